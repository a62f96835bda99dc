"""Build a session's Events from the records of any agent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.errors import TranscriptError
from nugget.models import Event, EventKind, Session
from nugget.sources import injected_text as injected
from nugget.sources.claude_records import parse_timestamp, storable, text_of
from nugget.sources.speakers import SAID_BY, prompt_parts
from nugget.sources.tool_calls import SHELL, Call

MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
"""A session in one JSON document is read whole: a bigger one is refused."""

MAX_TEXT_CHARS = 1_000_000
"""What one event holds at most; of a longer text the beginning is kept."""


@dataclass(slots=True)
class Gathering:
    """The events so far. `session` is its id; `moment` and `uuid` are those of the record that is being read."""

    agent: str
    session: str
    events: list[Event] = field(default_factory=list)
    records: int = 0
    skipped: int = 0
    folders: dict[str, None] = field(default_factory=dict)
    branch: str | None = None
    title: str | None = None
    moment: datetime | None = None
    uuid: str = ""
    stamps: list[datetime] = field(default_factory=list)
    calls: dict[str, tuple[str, list[int]]] = field(default_factory=dict)

    def begin(self, *, moment: object, uuid: object = "") -> None:
        """Take up the next record, with its time (ISO 8601, or a number of milliseconds) and its name.

        A record without a name is called by the session and its place, which stays the same when a session grows.
        """
        self.records += 1
        self.uuid = text_of(uuid) or f"{self.session}:{self.records}"
        self.moment = parse_moment(moment) or self.moment
        if self.moment:
            self.stamps.append(self.moment)

    def add(self, kind: EventKind, text: str, **values: Any) -> None:
        """Append an event of the record that is being read."""
        speaker, origin = SAID_BY[kind]
        said_by = {"speaker": speaker, "origin": origin} | values
        self.events.append(Event(kind=kind, text=bounded(text), uuid=self.uuid, timestamp=self.moment, **said_by))

    def prompt(self, text: str) -> None:
        """Append what the person said, without what the client wove into it."""
        if typed := injected.typed_text(text):
            for part in prompt_parts(typed):
                self.add(part.kind, part.text, speaker=part.speaker, origin=part.origin)

    def reply(self, text: str) -> None:
        """Append what the agent said, when it said something."""
        if text.strip():
            self.add(EventKind.REPLY, text.strip())

    def call(self, call: Call, call_id: str = "") -> None:
        """Append the command, the edits or the call."""
        first = len(self.events)
        named = call_id or None
        if call.folder:
            self.folders.setdefault(call.folder)
        if call.command is not None:
            self.add(EventKind.COMMAND, call.command, tool=SHELL, call_id=named)
        for change in call.changes:
            before = None if change.before is None else bounded(change.before)
            self.add(
                EventKind.FILE_EDIT, f"{change.tool} {change.path}", tool=change.tool, call_id=named,
                path=storable(change.path), before=before, after=bounded(change.after),
            )  # fmt: skip
        if len(self.events) == first:
            self.add(EventKind.TOOL_CALL, call.text, tool=call.tool, call_id=named, path=call.path)
        if call_id:
            self.calls[call_id] = (call.tool, list(range(first, len(self.events))))

    def result(self, call_id: str, text: str, *, ok: bool | None, exit_code: int | None = None) -> None:
        """Append what a call printed; for edits, settle whether they came about."""
        tool, positions = self.calls.get(call_id, ("", []))
        named = call_id or None
        text = injected.strip_injected(text)
        edits = [position for position in positions if self.events[position].kind is EventKind.FILE_EDIT]
        for position in edits:
            self.events[position] = replace(self.events[position], ok=ok)
        if tool == SHELL:
            self.add(EventKind.OUTPUT, text, tool=tool, call_id=named, ok=ok, exit_code=exit_code)
        elif not edits or ok is False:
            self.add(EventKind.TOOL_RESULT, text, tool=tool or None, call_id=named, ok=ok)

    def make(self, path: Path | str) -> Session:
        """The session that was gathered from `path`."""
        return Session(
            id=self.session,
            agent=self.agent,
            path=str(path),
            events=tuple(self.events),
            cwd=next(iter(self.folders), None),
            folders=tuple(self.folders),
            branch=self.branch,
            started=min(self.stamps, default=None),
            ended=max(self.stamps, default=None),
            title=self.title,
            records=self.records,
            skipped_records=self.skipped,
        )


def bounded(text: str) -> str:
    """The text as it can be stored, no longer than MAX_TEXT_CHARS."""
    return storable(text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}\n… (cut)")


def parse_moment(value: object) -> datetime | None:
    """A time as the agents write it: ISO 8601, or milliseconds since the epoch."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return None
    return parse_timestamp(value)


def parse_record(line: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a line or document; None for anything else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def read_document(path: Path) -> dict[str, Any] | None:
    """The JSON object that a file holds; None where it holds something else. Raises TranscriptError."""
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise TranscriptError(f"{path} is too big to be read ({path.stat().st_size >> 20} MB).")
        return parse_record(path.read_bytes())
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read ({error.strerror or error}).") from error


def joined_text(content: object, keys: Iterable[str] = ("text",)) -> str:
    """The text of a content: a string, or the texts of its parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return ""
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Mapping):
            parts += [part[key] for key in keys if isinstance(part.get(key), str)]
    return "\n".join(parts)
