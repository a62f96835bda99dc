"""Exports of ChatGPT and Claude: each conversation of their `conversations.json` becomes an archived session.

There they are searched, shown and captured like any other session. ChatGPT keeps messages in a tree, with the last one
shown as `current_node`; Claude keeps them in a list.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nugget.config import Settings
from nugget.errors import UsageError, reason_of
from nugget.models import EventKind, Session
from nugget.redaction import redact_session, rules_stamp
from nugget.sources import joined_text, mapping_of, objects_in, text_of
from nugget.sources.event_builder import EventBuilder
from nugget.sources.sessions import write_archive

FILE = "conversations.json"
MAX_BYTES = 1 << 30


def find_export(path: Path) -> Path | None:
    """Return the file or archive that may hold conversations: the path itself, or a file in that folder."""
    file = path / FILE if path.is_dir() else path
    return file if file.is_file() and file.name.endswith((FILE, ".zip")) else None


def import_chats(path: Path, home: Path, settings: Settings, *, dry_run: bool = False) -> dict[str, str]:
    """Redact and archive the conversations of an export; return their titles by session id.

    Raises UsageError if the file cannot be read or holds no known conversations.
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
        place = zipfile.Path(path, FILE) if path.suffix == ".zip" else path
        with place.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise UsageError(f"{path} holds more than {MAX_BYTES:,} bytes.")
        return json.loads(text)
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile) as error:  # of a zip with a password, too deep JSON
        raise UsageError(f"{path} cannot be read as an export ({reason_of(error)}).") from error


def _sessions(value: Any, path: str) -> Iterator[Session]:
    for one in objects_in(value):
        read = _read_claude if isinstance(one.get("chat_messages"), list) else _read_chatgpt
        builder = EventBuilder(agent="claude.ai" if read is _read_claude else "chatgpt")
        builder.session = text_of(one.get("uuid") or one.get("conversation_id") or one.get("id"))
        builder.title = text_of(one.get("name") or one.get("title")) or None
        read(one, builder)
        if builder.session and builder.events:
            yield builder.build(path)


def _read_claude(conversation: Mapping[str, Any], builder: EventBuilder) -> None:
    for message in objects_in(conversation["chat_messages"]):
        parts = [part for part in objects_in(message.get("content")) if part.get("type") == "text"]
        text = joined_text(parts) or text_of(message.get("text"))
        builder.begin(moment=message.get("created_at"), uuid=message.get("uuid"))
        if message.get("sender") != "human":
            builder.reply(text)
            continue
        builder.prompt(text)
        for attached in objects_in(message.get("attachments")):
            if pasted := text_of(attached.get("extracted_content")):
                builder.add(EventKind.PASTE, pasted)


def _read_chatgpt(conversation: Mapping[str, Any], builder: EventBuilder) -> None:
    """Add the messages of the last branch shown, from its root."""
    nodes, name = mapping_of(conversation.get("mapping")), conversation.get("current_node")
    branch: dict[str, Mapping[str, Any]] = {}
    while isinstance(name, str) and name in nodes and name not in branch:
        branch[name] = mapping_of(nodes[name])
        name = branch[name].get("parent")
    for uuid, node in reversed(branch.items()):
        message = mapping_of(node.get("message"))
        role, seconds = mapping_of(message.get("author")).get("role"), message.get("create_time")
        parts = mapping_of(message.get("content")).get("parts")
        text = "\n\n".join(part for part in parts if isinstance(part, str)) if isinstance(parts, list) else ""
        if role in ("user", "assistant"):
            builder.begin(moment=seconds * 1000 if isinstance(seconds, int | float) else seconds, uuid=uuid)
            (builder.prompt if role == "user" else builder.reply)(text)
