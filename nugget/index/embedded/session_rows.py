"""Make the rows of an agent's session: speech, commands with their outcome, output, edits, failures."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from nugget.config import Settings
from nugget.errors import NuggetError
from nugget.index.embedded import events as store
from nugget.index.embedded.events import Ids, ReadState, table_of
from nugget.index.embedded.units import select_in
from nugget.infra.workspace import find_workspace
from nugget.models import Event, EventKind, SourceName
from nugget.redaction import MARGIN_CHARS, redact, redact_all, within, without_excluded
from nugget.sources.channels import Message
from nugget.sources.condense import is_recall, printed
from nugget.sources.shell_logs import MAX_LINE_CHARS, is_opaque, looks_failed
from nugget.sources.speakers import is_refusal

_OUTPUT_CHARS = 200_000
_SAID_CHARS = 200_000
_TEXT_CHARS = {
    EventKind.PROMPT: _SAID_CHARS, EventKind.PASTE: _SAID_CHARS, EventKind.REPLY: _SAID_CHARS, EventKind.SUMMARY: 4000,
    EventKind.COMMAND: 2000, EventKind.TOOL_CALL: 1500, EventKind.TOOL_RESULT: 1500, EventKind.FILE_EDIT: 500,
    EventKind.OUTPUT: _OUTPUT_CHARS,
}  # fmt: skip
_ROW_CHARS = 6000
"""Longer texts become several rows, so that a single word still carries weight."""
_SPEECH = (EventKind.PROMPT, EventKind.PASTE, EventKind.REPLY)
_RESULTS = (EventKind.OUTPUT, EventKind.TOOL_RESULT)
_WHOLE_LINES, _HEAD_LINES, _FAILING_LINES, _TAIL_LINES = 60, 10, 40, 25
_RECALLED = -1
"""The row of a call whose result is not kept, because it only repeats what Nugget knows."""


@dataclass(slots=True, kw_only=True)
class IngestRun:
    """An ingest: its connection and settings, and what it counted, such as `rows` by table.

    `sessions` are the keys of those that gained rows.
    """

    connection: sqlite3.Connection
    settings: Settings
    allow: Sequence[re.Pattern[str]]
    now: datetime | None = None
    sessions: dict[int, None] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    bytes_read: int = 0

    def clean(self, text: str) -> str:
        """Return a text without secrets."""
        return redact(text, allow=self.allow).text if text else text

    def clean_all(self, texts: Sequence[str]) -> list[str]:
        """Return texts without secrets, and count the secrets."""
        cleaned = redact_all(texts, allow=self.allow)
        for each in cleaned:
            self.redacted.update(each.counts)
        return [each.text for each in cleaned]

    def put_rows(self, rows: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Write rows by table."""
        for table, made in rows.items():
            store.put_rows(self.connection, table, made)
            self.rows[table] += len(made)


@dataclass(slots=True, kw_only=True)
class RowMaker:
    """The rows, by table, made from the events of one file of a session.

    `repeated` are records that another session has too, where search finds them. `ts_ms` is the time of events without
    one. `calls` maps ids of calls without a result to their row and name.
    """

    ids: Ids
    file: int
    ts_ms: int
    cwd: str | None = None
    repeated: Collection[int] = ()
    calls: dict[str, tuple[int, str]] = field(default_factory=dict)
    rows: dict[str, list[list[Any]]] = field(
        default_factory=lambda: {"events": [], "pane_output": [], "file_edits": []}
    )

    def add(self, event: Event, number: int) -> None:
        """Add the next redacted event; `number` is that of its exchange."""
        self.ts_ms = ms_of(event.timestamp) or self.ts_ms
        row, _ = self.calls.get(event.call_id or "", (0, ""))
        if event.kind in _RESULTS and (is_recall(event) or row == _RECALLED):
            self._close(event)
        elif is_recall(event):
            self._open(event, _RECALLED, "")
        elif event.kind is EventKind.FILE_EDIT:
            self._add_edit(event)
        elif event.kind is EventKind.OUTPUT:
            self._add_output(event)
        elif event.kind in _SPEECH:
            self._add_speech(event, number)
        else:
            self._add_event(event)

    def _add_speech(self, event: Event, number: int) -> None:
        record = hash_of(event.uuid) if event.uuid else None
        found = None if record in self.repeated or not event.text.strip() else number
        for place, text in enumerate(cut_text(event.text, _ROW_CHARS)):
            kind = event.kind.value + (store.MORE if place else "")
            self._put(event, self.ids.next("events"), kind, text, number=found, record=record)

    def _add_edit(self, event: Event) -> None:
        row = self.ids.next("file_edits")
        action = "overwrite" if event.tool == "Write" else "edit"
        path = event.path or event.text
        if self.cwd:
            path = path.removeprefix(f"{self.cwd.rstrip('/')}/")
        self.rows["file_edits"].append([row, self.ts_ms, path, action, None if event.ok is None else int(event.ok)])
        if not event.ok:
            self._open(event, row, f"{event.tool} {path}".strip())

    def _add_event(self, event: Event) -> None:
        row = self.ids.next("events")
        kind, text, ok, begun = event.kind.value, event.text, None, None
        if event.kind is EventKind.COMMAND:
            kind = "command.start"
            self._open(event, row, text)
        elif event.kind is EventKind.TOOL_CALL:
            kind = "tool.start"
            self._open(event, row, f"{event.tool} {event.path or ''}".strip())
            text = f"{event.tool} {text}".strip()
        elif event.kind is EventKind.TOOL_RESULT:
            kind = "tool.end"
            call, label = self.calls.get(event.call_id or "", (0, ""))
            begun = call if call > 0 and table_of(call) == "events" else None
            ok = None if event.ok is None or is_refusal(text) else int(event.ok)
            text = f"{label}: {text}" if ok == 0 and label else text
            self._close(event)
        self._put(event, row, kind, text, ok=ok, begun=begun)

    def _add_output(self, event: Event) -> None:
        call, label = self.calls.get(event.call_id or "", (0, ""))
        begun = call if call > 0 else None
        for line in event.text.split("\n"):
            if shown := line.rstrip()[:MAX_LINE_CHARS]:
                row = self.ids.next("pane_output")
                self.rows["pane_output"].append(
                    [row, self.ts_ms, "merged", shown, int(looks_failed(shown)), begun, None]
                )
        was_stopped = is_refusal(event.text) or (event.exit_code is None and "[Request interrupted" in event.text)
        ok = None if event.ok is None or (was_stopped and not event.ok) else int(event.ok)
        self._put(event, self.ids.next("events"), "command.end", label, ok=ok, begun=begun)
        self._close(event)

    def _put(
        self, event: Event, row: int, kind: str, text: str, *, ok: int | None = None, begun: int | None = None,
        number: int | None = None, record: int | None = None,
    ) -> None:  # fmt: skip
        self.rows["events"].append([
            row, self.ts_ms, kind, event.tool, text, ok, event.exit_code, begun, event.speaker.value,
            event.origin.value, number, self.file, record,
        ])  # fmt: skip

    def _open(self, event: Event, row: int, label: str) -> None:
        if event.call_id:
            self.calls[event.call_id] = (row, label)

    def _close(self, event: Event) -> None:
        self.calls.pop(event.call_id or "", None)


def cleaned_events(run: IngestRun, events: Sequence[Event]) -> list[Event]:
    """Return the events, cut to the kept length, without secrets and without files of `capture.exclude_paths`."""
    trimmed = without_excluded([_trimmed(event) for event in events], run.settings.capture_exclude_paths)
    texts = run.clean_all([event.text for event in trimmed])
    names = run.clean_all([name for event in trimmed for name in (event.path or "", event.tool or "")])
    return [
        replace(
            event, text=within(text, _TEXT_CHARS[event.kind], was=len(event.text)),
            path=names[2 * place] or None, tool=names[2 * place + 1] or None,
        )
        for place, (event, text) in enumerate(zip(trimmed, texts, strict=True))
    ]  # fmt: skip


def repeated_records(run: IngestRun, session: int, events: Sequence[Event]) -> set[int]:
    """Return the records of these events that search finds in another session, as in a fork."""
    records = {hash_of(event.uuid) for event in events if event.uuid and event.kind in _SPEECH}
    sql = (
        "SELECT e.record FROM events e JOIN log_sessions s ON s.key = e.id >> 34 AND s.gone = 0 "
        "WHERE e.number IS NOT NULL AND s.key != ? AND e.record IN"
    )
    return {row[0] for row in select_in(run.connection, sql, list(records), (session,))}


def put_messages(run: IngestRun, channel: str, messages: Sequence[Message], state: ReadState) -> None:
    """Write the new messages of a channel; sender and receiver both record each."""
    if not messages:
        return
    session = store.claim_session(run.connection, source=SourceName.BRIDGE, session_id=channel, path=state.path)
    sql = "SELECT record, number FROM events WHERE id >= ? AND id < ?"
    known = dict(run.connection.execute(sql, store.id_range(session.key)))
    number = max(known.values(), default=0)
    ids = Ids(session.key, session.last_number)
    rows: list[list[Any]] = []
    for message in messages:
        shown = message.shown if channel.startswith("session-") else f"#{channel} {message.shown}"  # a name to search
        text = run.clean(shown)
        record = hash_of(" ".join(text.split(": ", 1)[-1].split()))  # of its words only
        if record not in known:
            number += 1
            known[record] = number
            rows.append([
                ids.next("events"), ms_of(message.at), "message", None, text, None, None, None,
                run.clean(message.sender), None, number, state.key, record,
            ])  # fmt: skip
    store.put_rows(run.connection, "events", rows)
    ended = max([session.ended_ms or 0, *(row[1] for row in rows)])
    store.put_session(run.connection, ids, ended_ms=ended or None)


@lru_cache(maxsize=256)
def workspace_of(folder: str | None) -> str | None:
    """Return the identity of a folder's code repository, even if the folder is gone."""
    with suppress(OSError, NuggetError, ValueError):
        return find_workspace(Path(folder)).identity if folder and folder.startswith("/") else None
    return None


def hash_of(text: str) -> int:
    """Return a hash of a text that SQLite can store as a number."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def ms_of(moment: datetime | None) -> int:
    """Return milliseconds since the epoch; 0 for a missing or absurd time."""
    try:
        return max(0, int(moment.timestamp() * 1000)) if moment else 0
    except (OverflowError, OSError, ValueError):
        return 0


def cut_text(text: str, max_chars: int) -> Iterator[str]:
    """Yield a text in pieces of at most `max_chars`, cut after the last line (or word) in their second half."""
    while len(text) > max_chars:
        ends = (text.rfind(border, max_chars // 2, max_chars) + 1 for border in ("\n", " "))
        stop = next(filter(None, ends), max_chars)
        yield text[:stop]
        text = text[stop:]
    yield text


def _trimmed(event: Event) -> Event:
    """Return the event with only slightly more text than is kept."""
    text = event.text[: _TEXT_CHARS[event.kind] + MARGIN_CHARS]
    if event.kind is EventKind.OUTPUT:
        text = "\n".join(_kept(printed(_end_of(event.text)).split("\n")))
    return replace(event, text=text, before=None, after=None)


def _end_of(text: str) -> str:
    """Return the last lines of an output, or the last characters of a single line."""
    if len(text) <= _OUTPUT_CHARS:
        return text
    _, border, lines = text[-_OUTPUT_CHARS:].partition("\n")
    return lines if border else text[MARGIN_CHARS - _OUTPUT_CHARS :]


def _kept(lines: Sequence[str]) -> Sequence[str]:
    """Return the beginning of a long output, lines that look like failures, and the end."""
    lines = [line for line in lines if line.strip() and not is_opaque(line)]
    if len(lines) <= _WHOLE_LINES:
        return lines
    middle = lines[_HEAD_LINES:-_TAIL_LINES]
    failing = [line for line in middle if looks_failed(line[:MAX_LINE_CHARS])][:_FAILING_LINES]
    return [*lines[:_HEAD_LINES], *failing, *lines[-_TAIL_LINES:]]
