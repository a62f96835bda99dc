"""Exports of ChatGPT and Claude: each conversation of their `conversations.json` becomes an archived session.

From the archive it is searched, shown and captured like any other session. ChatGPT keeps the messages as a tree with
the one that was shown last as `current_node`; Claude keeps them in a list.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.config import Settings
from nugget.errors import UsageError, reason_of
from nugget.models import Event, EventKind, Session, Speaker, SpeechOrigin
from nugget.redaction import redact_session, rules_stamp
from nugget.sources import mapping_of, objects_in, text_of
from nugget.sources.sessions import write_archive

FILE = "conversations.json"
MAX_BYTES = 1 << 30


def find_export(path: Path) -> Path | None:
    """Return the file or archive at a path that may hold conversations: itself, or the one in a folder."""
    file = path / FILE if path.is_dir() else path
    return file if file.is_file() and file.name.endswith((FILE, ".zip")) else None


def import_chats(path: Path, home: Path, settings: Settings, *, dry_run: bool = False) -> dict[str, str]:
    """Archive the conversations of an export, redacted; return their titles by session id.

    Raises UsageError if the file cannot be read or holds no conversations that are known.
    """
    done: dict[str, str] = {}
    for session in _sessions(_read(path), str(path)):
        cleaned, _ = redact_session(session, settings=settings)
        if not dry_run:
            write_archive(home, cleaned, stamps=[rules_stamp(settings)])
        done[cleaned.id] = cleaned.title or ""
    if not done:
        raise UsageError(f"{path} holds no conversations of ChatGPT or Claude.")
    return done


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive, archive.open(FILE) as opened:
                text = opened.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as opened:
                text = opened.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise UsageError(f"{path} holds more than {MAX_BYTES:,} bytes.")
        return json.loads(text)
    except (OSError, KeyError, ValueError, RecursionError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} cannot be read as an export ({reason_of(error)}).") from error


def _sessions(value: Any, path: str) -> Iterator[Session]:
    for one in objects_in(value):
        is_claude = isinstance(one.get("chat_messages"), list)
        events = tuple(_claude_events(one) if is_claude else _chatgpt_events(one))
        name = text_of(one.get("uuid") or one.get("conversation_id") or one.get("id"))
        if not (name and events):
            continue
        moments = [event.timestamp for event in events if event.timestamp]
        yield Session(
            id=name, agent="claude.ai" if is_claude else "chatgpt", path=path, events=events, records=len(events),
            title=text_of(one.get("name") or one.get("title")) or None,
            started=min(moments, default=None), ended=max(moments, default=None),
        )  # fmt: skip


def _claude_events(conversation: Mapping[str, Any]) -> Iterator[Event]:
    for message in objects_in(conversation["chat_messages"]):
        parts = [text_of(part.get("text")) for part in objects_in(message.get("content")) if part.get("type") == "text"]
        is_user = message.get("sender") == "human"
        text = "\n\n".join(filter(None, parts)) or text_of(message.get("text"))
        yield from _said(text, is_user=is_user, uuid=text_of(message.get("uuid")), moment=message.get("created_at"))
        for attached in objects_in(message.get("attachments")):
            pasted = text_of(attached.get("extracted_content"))
            if pasted and is_user:
                yield Event(
                    kind=EventKind.PASTE, text=pasted, speaker=Speaker.QUOTED, origin=SpeechOrigin.PASTED,
                    uuid=text_of(message.get("uuid")), timestamp=_moment(message.get("created_at")),
                )  # fmt: skip


def _chatgpt_events(conversation: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the messages of the branch that was shown last, from its root."""
    nodes, name = mapping_of(conversation.get("mapping")), conversation.get("current_node")
    branch: dict[str, Mapping[str, Any]] = {}
    while isinstance(name, str) and name in nodes and name not in branch:
        branch[name] = mapping_of(nodes[name])
        name = branch[name].get("parent")
    for uuid, node in reversed(branch.items()):
        message = mapping_of(node.get("message"))
        role = mapping_of(message.get("author")).get("role")
        parts = mapping_of(message.get("content")).get("parts")
        text = "\n\n".join(part for part in parts if isinstance(part, str)) if isinstance(parts, list) else ""
        if role in ("user", "assistant"):
            yield from _said(text, is_user=role == "user", uuid=uuid, moment=message.get("create_time"))


def _said(text: str, *, is_user: bool, uuid: str, moment: object) -> Iterator[Event]:
    if text.strip():
        speaker, origin = (Speaker.USER, SpeechOrigin.TYPED) if is_user else (Speaker.AGENT, SpeechOrigin.WRITTEN)
        kind = EventKind.PROMPT if is_user else EventKind.REPLY
        yield Event(kind=kind, text=text, speaker=speaker, origin=origin, uuid=uuid, timestamp=_moment(moment))


def _moment(value: object) -> datetime | None:
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str):
            return datetime.fromisoformat(value).astimezone(UTC)
    return None
