"""Bridge messages: what agents wrote to each other, found in transcripts and in the files of channels.

Agent teams keep their inboxes only as long as the session lasts, so the transcripts are where messages stay: the
sender's as a `SendMessage` call, the receiver's as `<teammate-message>` or `<cross-session-message>` in what looks
like a prompt. A channel of one's own is a file `bridge/<channel>.jsonl` below `$NUGGET_HOME` or in the brain, one JSON
object a line: `{"from": "...", "to": "...", "text": "...", "timestamp": "..."}`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget.sources.claude_records import blocks_of
from nugget.sources.files import (
    mapping_of,
    parse_moment,
    parse_record,
    parse_timestamp,
    read_lines,
    storable,
    text_of,
)

SIGNS = (b"SendMessage", b"-message", b"coordinator")
"""A line of a transcript that holds none of these holds no message."""

_LEAD = "team-lead"
"""What the client calls the session that a team belongs to."""

_TAGGED = re.compile(
    r"<(?P<tag>teammate-message|cross-session-message)\b(?P<attributes>[^>]*)>\n?(?P<text>.*?)\n?</(?P=tag)>", re.DOTALL
)
_ATTRIBUTE = re.compile(r'([a-z_-]+)="([^"]*)"')
_NAMED_AGENT = re.compile(r"\Aa(.+)-[0-9a-f]{8,}\Z")
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a channel. `to` and `summary` are empty if unknown."""

    sender: str
    text: str
    to: str = ""
    summary: str = ""
    at: datetime | None = None

    @property
    def shown(self) -> str:
        """Return the message with its head: who wrote to whom, and its summary."""
        head = f"{self.sender} → {self.to}" if self.to else self.sender
        if self.summary and self.summary not in self.text:
            head = f"{head} ({self.summary})"
        return f"{head}: {self.text}"


def channel_of_session(session_id: str) -> str:
    """Return the channel of a session's team: the name that the client gives the team's folder."""
    return f"session-{session_id[:8]}"


def channel_files(*folders: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files `<folder>/bridge/<channel>.jsonl` with their channels, except those with odd names."""
    for folder in folders:
        try:
            files = sorted((folder / "bridge").glob("*.jsonl"))
        except OSError:
            continue
        yield from ((file.stem, file) for file in files if _CHANNEL_NAME.fullmatch(file.stem) and file.is_file())


def messages_in_record(line: bytes) -> list[Message]:
    """Return the messages in a line of a transcript: sent or received."""
    if not any(sign in line for sign in SIGNS):
        return []
    record = parse_record(line) or {}
    readers = {"assistant": _sent, "user": _received, "attachment": _from_coordinator}
    reader = readers.get(text_of(record.get("type")))
    found = reader(record) if reader else []
    return [message for message in found if message.text and not _is_notice(message.text)]


def read_channel(path: Path, *, taken: int) -> tuple[list[Message], int]:
    """Read the file of a channel on from byte `taken`; return its messages and where to read on. Raises OSError."""
    messages: list[Message] = []
    with path.open("rb") as file:
        file.seek(taken)
        for length, line in read_lines(file):
            if message := _message_in(line or b""):
                messages.append(message)
            elif line and not line.endswith(b"\n"):
                break  # torn: left for the next reading
            taken += length
    return messages, taken


def _message_in(line: bytes) -> Message | None:
    entry = parse_record(line) or {}
    text = next((text for key in ("text", "message", "content", "body") if (text := text_of(entry.get(key)))), "")
    if not text.strip():
        return None
    sender = text_of(entry.get("from")) or text_of(entry.get("sender")) or text_of(entry.get("agent")) or "unknown"
    stamp = next((entry[key] for key in ("timestamp", "at", "ts", "created_at") if key in entry), None)
    return Message(
        sender=_one_line(sender), to=_one_line(text_of(entry.get("to"))),
        summary=_one_line(text_of(entry.get("summary"))), text=storable(text.strip()), at=_moment(stamp),
    )  # fmt: skip


def _sent(record: Mapping[str, Any]) -> list[Message]:
    return [
        Message(
            sender=_own_name(record),
            to=_one_line(text_of(given.get("to"))),
            summary=_one_line(text_of(given.get("summary"))),
            text=storable((text_of(given.get("message")) or text_of(given.get("content"))).strip()),
            at=parse_timestamp(record.get("timestamp")),
        )
        for block in blocks_of(record)
        if block.get("name") == "SendMessage" and isinstance(given := block.get("input"), Mapping)
    ]


def _received(record: Mapping[str, Any]) -> list[Message]:
    body = text_of(mapping_of(record.get("origin")).get("body"))
    content = "\n".join(text_of(block.get("text")) for block in blocks_of(record) if block.get("type") == "text")
    if not content.lstrip().startswith(("<teammate-message", "<cross-session-message", "Another Claude session")):
        return []
    found = []
    for match in _TAGGED.finditer(content):
        attributes = dict(_ATTRIBUTE.findall(match["attributes"]))
        sender = next((attributes[key] for key in ("teammate_id", "from-name", "from") if attributes.get(key)), "peer")
        is_peer = match["tag"] == "cross-session-message"
        found.append(
            Message(
                sender=_one_line(html.unescape(sender)),
                to=_own_name(record),
                summary=_one_line(html.unescape(attributes.get("summary", ""))),
                text=storable((body if is_peer and body else match["text"]).strip()),
                at=parse_timestamp(record.get("timestamp")),
            )
        )
    return found


def _from_coordinator(record: Mapping[str, Any]) -> list[Message]:
    attachment = mapping_of(record.get("attachment"))
    if mapping_of(attachment.get("origin")).get("kind") != "coordinator":
        return []
    text = storable(text_of(attachment.get("prompt")).strip())
    return [Message(sender=_LEAD, to=_own_name(record), text=text, at=parse_timestamp(record.get("timestamp")))]


def _own_name(record: Mapping[str, Any]) -> str:
    """Return whose transcript the record is from; a teammate's id is made of its name."""
    agent = text_of(record.get("agentId")) if record.get("isSidechain") else ""
    named = _NAMED_AGENT.match(agent)
    return _one_line(named.group(1) if named else agent) or _LEAD


def _is_notice(text: str) -> bool:
    """Return whether the client itself speaks: a teammate is idle, has ended, or wants something approved."""
    return text.startswith("{") and bool(text_of((parse_record(text) or {}).get("type")))


def _moment(value: object) -> datetime | None:
    in_seconds = isinstance(value, int | float) and value <= 1e11
    return parse_moment(value * 1000 if in_seconds else value)  # type: ignore[operator]


def _one_line(text: str) -> str:
    return storable(" ".join(text.split()))[:120]
