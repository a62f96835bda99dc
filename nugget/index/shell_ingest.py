"""Take in the log of a shell session: what its files have gained, redacted, a batch at a time."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nugget.index import events as store
from nugget.index.connection import write_transaction
from nugget.index.events import Ids, ReadState
from nugget.index.fulltext import said_parts
from nugget.index.shell_rows import (
    MAX_NAME_CHARS,
    MAX_PATH_CHARS,
    MAX_TEXT_CHARS,
    Command,
    Rows,
    Running,
    event_rows,
    input_rows,
    output_rows,
)
from nugget.models import SourceName
from nugget.redaction import redact
from nugget.redaction.batches import MARGIN_CHARS, redacted_all, redacted_lines, within
from nugget.sources.files import FilePlace, LogFile
from nugget.sources.logs import Log
from nugget.sources.shell_logs import EVENTS, INPUT, MAX_LINE_CHARS, STREAMS, read_events, read_text, rotated_rest

PASSAGE_CHARS = 1200
"""Of output so many characters of lines have one number."""
_MAX_PLAIN_LINES, _MAX_FAILURE_LINES = 30_000, 10_000
"""Lines of output that the index holds of one shell session, at most."""


@dataclass(slots=True, kw_only=True)
class ShellIngest:
    """A shell session that is being taken in. `states` say how far its files were read, by path."""

    connection: sqlite3.Connection
    log: Log
    allow: Sequence[re.Pattern[str]]
    now_ms: int
    states: dict[str, ReadState]
    rows: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    bytes_read: int = 0
    anew: list[str] = field(default_factory=list)


def ingest_shell(run: ShellIngest) -> store.LogSession:
    """Take in what the files of a shell session have gained; return the session as it is then."""
    session = store.find_log_session(run.connection, run.log.id, SourceName.SHELL)
    if session is None:
        with write_transaction(run.connection):
            session = store.claim_session(
                run.connection, source=SourceName.SHELL, session_id=run.log.id, path=run.log.path
            )
    running = _resumed(run, session)
    files = {Path(file.path).name: file for file in run.log.files}
    typed = INPUT if INPUT in files and files[INPUT].size else EVENTS
    shown = next((name for name in STREAMS if name in files), "")
    searched = {typed, shown, "stderr.log" if shown == "stdout.log" else ""}
    for name in (EVENTS, INPUT, *STREAMS):
        file = files.get(name) or LogFile(path=str(Path(run.log.path, name)), size=-1, mtime_ns=0)
        rest = rotated_rest(Path(file.path), _place(run, file))
        for path in (rest, Path(file.path)):
            if path is None:
                continue
            if name == EVENTS:
                _take_events(run, path, file, running, is_searched=name in searched)
            else:
                _take_text(run, path, file, running, is_searched=name in searched)
    with write_transaction(run.connection):
        if run.bytes_read:
            _forget_old_output(run.connection, session.key)
        for file in run.log.files:
            state = run.states.get(file.path) or ReadState(path=file.path, session=session.key)
            is_waiting = state.taken < file.size and Path(file.path).name != EVENTS  # for the end of its last line
            size = -1 if is_waiting else file.size
            store.put_state(run.connection, replace(state, size=size, mtime_ns=file.mtime_ns))
    return store.log_session(run.connection, session.key) or session


def _resumed(run: ShellIngest, session: store.LogSession) -> Running:
    """What the events before said about those to come: commands still open, those known, the last time."""
    first, end = store.id_range(session.key)
    starts = store.rows_in(run.connection, "events", first, end, where="kind = 'command.start'", limit=50, newest=True)
    ends = store.rows_in(
        run.connection, "events", starts[0][0] if starts else end, end, where="kind = 'command.end'"
    )  # fmt: skip
    ended = {row[7] for row in ends}
    commands = [Command(row[0], row[4], row[1]) for row in starts]
    return Running(
        ids=Ids(session.key, session.last_number),
        ts_ms=session.ended_ms or 0,
        open=[command for command in commands if command.id not in ended],
        known={command.id: command for command in commands},
        folder=session.folder,
    )


def _take_events(run: ShellIngest, path: Path, file: LogFile, running: Running, *, is_searched: bool) -> None:
    """Take in the events that a file has gained; `file` is the log's, also if `path` was moved away."""
    for batch in read_events(path, _place(run, file)):
        running.ids.number = _last_number(run.connection, running.ids.key)
        rows = event_rows(batch.events, running)
        _clean(rows, running, run)
        number = _exchanges(run, file)
        made = []
        for row in rows.events:
            said = is_searched and row[2] == "command.start" and bool(row[4])
            number += said
            made.append(
                (*row, None, None, number if said else None, None, None, None, _parts(row[4]) if said else None)
            )
        with write_transaction(run.connection):
            store.put_rows(run.connection, "events", made)
            store.put_rows(run.connection, "file_edits", rows.file_edits)
            _remember(run, running, file, batch.place, exchanges=number, malformed=batch.malformed)
        run.rows.update(events=len(made), file_edits=len(rows.file_edits))
        run.malformed += batch.malformed
        run.bytes_read += batch.bytes_read
        run.anew += [Path(file.path).name] if batch.anew else []


def _take_text(run: ShellIngest, path: Path, file: LogFile, running: Running, *, is_searched: bool) -> None:
    name = Path(file.path).name
    part = read_text(path, _place(run, file), now_ms=run.now_ms, most_chars=MAX_LINE_CHARS + MARGIN_CHARS)
    if part is None:
        return
    given = [line.text for line in part.lines]
    cleaned = redacted_lines(given, allow=run.allow, counts=run.redacted)
    texts = [within(text, MAX_LINE_CHARS, was=len(line)) for line, text in zip(given, cleaned, strict=True)]
    running.ids.number = _last_number(run.connection, running.ids.key)
    running.ts_ms = running.ts_ms or part.mtime_ms
    number = _exchanges(run, file)
    if name == INPUT:
        table, rows, text_column = "command_inputs", input_rows(part.lines, texts, running), 2
    else:
        table, rows, text_column = "pane_output", output_rows(STREAMS[name], part.lines, texts, running), 3
    room = 0
    for row in rows:
        room -= len(row[text_column])
        if is_searched and (room < 0 or name == INPUT):
            number, room = number + 1, PASSAGE_CHARS - len(row[text_column])
        row += [number, _parts(row[text_column])] if is_searched else [None, None]
    with write_transaction(run.connection):
        store.put_rows(run.connection, table, rows)
        _remember(run, running, file, part.place, exchanges=number)
    run.rows[table] += len(rows)
    run.bytes_read += part.bytes_read
    run.anew += [name] if part.anew else []


def _parts(text: str) -> str | None:
    return said_parts(text, mark=store.MARKS[SourceName.SHELL])


def _clean(rows: Rows, running: Running, run: ShellIngest) -> None:
    """Take secrets out of rows and of what else is stored, also out of what should be a plain name."""
    columns = (
        (rows.events, 2, MAX_NAME_CHARS), (rows.events, 3, MAX_NAME_CHARS), (rows.events, 4, MAX_TEXT_CHARS),
        (rows.file_edits, 2, MAX_PATH_CHARS),
    )  # fmt: skip
    for made, column, most in columns:
        given = [row[column] or "" for row in made]
        texts = redacted_all(given, allow=run.allow, counts=run.redacted)
        if texts is not given or max(map(len, given), default=0) > most:
            made[:] = [
                (*row[:column], within(text, most, was=len(row[column] or "")) or row[column], *row[column + 1 :])
                for row, text in zip(made, texts, strict=True)
            ]
    if running.folder:
        cleaned = redact(running.folder, allow=run.allow).text
        running.folder = within(cleaned, MAX_PATH_CHARS, was=len(running.folder))


def _remember(
    run: ShellIngest, running: Running, file: LogFile, place: FilePlace, *, exchanges: int, malformed: int = 0
) -> None:
    known = run.states.get(file.path) or ReadState(path=file.path)
    state = replace(
        known, session=running.ids.key, size=-1, taken=place.offset, head=place.head, before=place.before,
        exchanges=exchanges,
    )  # fmt: skip
    run.states[file.path] = replace(state, key=store.put_state(run.connection, state))
    store.put_session(run.connection, running.ids, ended_ms=running.ts_ms or None, folder=running.folder)
    run.connection.execute(
        "UPDATE log_sessions SET started_ms = coalesce(started_ms, ?), malformed = malformed + ? WHERE key = ?",
        (running.ts_ms or None, malformed, running.ids.key),
    )


def _place(run: ShellIngest, file: LogFile) -> FilePlace:
    state = run.states.get(file.path)
    return FilePlace(offset=state.taken, head=state.head, before=state.before) if state else FilePlace()


def _exchanges(run: ShellIngest, file: LogFile) -> int:
    return run.states[file.path].exchanges if file.path in run.states else 0


def _last_number(connection: sqlite3.Connection, key: int) -> int:
    number: int = connection.execute("SELECT last_number FROM log_sessions WHERE key = ?", (key,)).fetchone()[0]
    return number


def _forget_old_output(connection: sqlite3.Connection, key: int) -> None:
    """Keep no more than so many lines of a session's output: plain ones go first, the oldest before the others.

    They still stand in the log itself.
    """
    first, end = store.id_range(key)
    for where, most in (("is_failure = 0", _MAX_PLAIN_LINES), ("is_failure = 1", _MAX_FAILURE_LINES)):
        oldest_kept = connection.execute(
            f"SELECT id FROM pane_output WHERE id >= ? AND id < ? AND {where} ORDER BY id DESC LIMIT 1 OFFSET ?",
            (first, end, most - 1),
        ).fetchone()
        if oldest_kept:
            store.remove_rows(connection, "pane_output", first, oldest_kept[0], where=where)
