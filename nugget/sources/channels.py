"""Bridge messages that agents sent each other, found in transcripts and in the files of channels.

Agent teams keep their inboxes only as long as the session lasts, so the transcripts are where messages stay: the
sender's as a `SendMessage` call, the receiver's as `<teammate-message>` or `<cross-session-message>` in an
apparent prompt. Your own channels are files `bridge/<channel>.jsonl` below `$NUGGET_HOME` or in the brain, one JSON
object a line: `{"from": "...", "to": "...", "text": "...", "timestamp": "..."}`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import hexdigits
from typing import Any

from nugget.infra.files import is_inside
from nugget.sources import blocks_of, mapping_of, parse_record, parse_timestamp, records_of, storable, text_of
from nugget.text import is_name

_LEAD = "team-lead"
"""The client's name for the session that leads a team."""
_TAGGED = re.compile(
    r"<(?P<tag>teammate-message|cross-session-message)\b(?P<attributes>[^>]*)>\n?(?P<text>.*?)\n?</(?P=tag)>", re.DOTALL
)
_OPENINGS = ("<teammate-message", "<cross-session-message", "Another Claude session")


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


def channel_files(home: Path, brain: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield the files `bridge/<channel>.jsonl` with their channels, without links out of the brain."""
    shared = sorted((brain / "bridge").glob("*.jsonl")) if brain else []
    found = [*sorted((home / "bridge").glob("*.jsonl")), *(file for file in shared if is_inside(file, brain or home))]
    yield from ((file.stem, file) for file in found if is_name(file.stem) and file.is_file())


def messages_in_record(record: Mapping[str, Any]) -> list[Message]:
    """Return the messages in a record of a transcript: sent or received."""
    readers = {"assistant": _sent, "user": _received, "attachment": _from_coordinator}
    read = readers.get(text_of(record.get("type")))
    # JSON comes from the client: a teammate is idle, has ended, or wants approval.
    return [
        message
        for message in (read(record) if read else ())
        if message.text and not (message.text.startswith("{") and (parse_record(message.text) or {}).get("type"))
    ]


def read_channel(path: Path) -> list[Message]:
    """Return the messages in the file of a channel. Raises TranscriptError."""
    messages: list[Message] = []
    for given in filter(None, records_of(path)):
        if (text := text_of(given.get("text"))).strip():
            sender = text_of(given.get("from")) or "unknown"
            messages.append(_message(sender, text, given.get("to"), given.get("summary"), given.get("timestamp")))
    return messages


def _message(sender: str, text: str, to: object, summary: object, at: object) -> Message:
    sender, to, summary = (storable(" ".join(text_of(one).split()))[:120] for one in (sender, to, summary))
    return Message(sender=sender, text=storable(text.strip()), to=to, summary=summary, at=parse_timestamp(at))


def _sent(record: Mapping[str, Any]) -> Iterator[Message]:
    for block in blocks_of(record):
        given = mapping_of(block.get("input"))
        if block.get("name") == "SendMessage":
            text = text_of(given.get("message")) or text_of(given.get("content"))
            yield _message(_own_name(record), text, given.get("to"), given.get("summary"), record.get("timestamp"))


def _received(record: Mapping[str, Any]) -> Iterator[Message]:
    body = text_of(mapping_of(record.get("origin")).get("body"))
    content = "\n".join(text_of(block.get("text")) for block in blocks_of(record) if block.get("type") == "text")
    for found in _TAGGED.finditer(content) if content.lstrip().startswith(_OPENINGS) else ():
        pairs = re.findall(r'([a-z_-]+)="([^"]*)"', found["attributes"])
        attributes = {key: html.unescape(value) for key, value in pairs}
        sender = next((attributes[key] for key in ("teammate_id", "from-name", "from") if attributes.get(key)), "peer")
        text = body if body and found["tag"] == "cross-session-message" else found["text"]
        yield _message(sender, text, _own_name(record), attributes.get("summary"), record.get("timestamp"))


def _from_coordinator(record: Mapping[str, Any]) -> Iterator[Message]:
    attachment = mapping_of(record.get("attachment"))
    if mapping_of(attachment.get("origin")).get("kind") == "coordinator":
        yield _message(_LEAD, text_of(attachment.get("prompt")), _own_name(record), "", record.get("timestamp"))


def _own_name(record: Mapping[str, Any]) -> str:
    """Return the name of the agent whose transcript holds the record; a teammate's id contains its name."""
    agent = text_of(record.get("agentId")) if record.get("isSidechain") else ""
    name, _, number = agent.rpartition("-")
    is_named = name.startswith("a") and len(number) >= 8 and not number.strip(hexdigits)
    return (name[1:] if is_named else agent) or _LEAD
