"""Bring the machine's index in line with the logs of sessions, shells and channels.

A log whose size or time changed is read whole. Texts are redacted once, as they enter. Incidents and notes are not
derived here: `IngestRun.sessions` lists the sessions that gained rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget.config import Environment, Settings
from nugget.errors import NuggetError, reason_of
from nugget.index.embedded import events as store
from nugget.index.embedded.connection import write_transaction
from nugget.index.embedded.events import Ids, LogSession, ReadState
from nugget.index.embedded.session_rows import (
    IngestRun,
    RowMaker,
    cleaned_events,
    ms_of,
    put_messages,
    repeated_records,
    workspace_of,
)
from nugget.index.embedded.shell_ingest import read_shell
from nugget.index.embedded.sync import SyncResult
from nugget.index.embedded.units import meta, put_meta, remove_unit
from nugget.infra import files
from nugget.models import EventKind, Problem, Session, SessionFile, SourceName
from nugget.redaction import allow_list, is_excluded_project, rules_stamp
from nugget.sources import ARCHIVE_ENDING, Log, source_of
from nugget.sources.channels import channel_of_session, read_channel
from nugget.sources.claude_code import Logged, read_logged
from nugget.sources.sessions import CLAUDE_CODE, find_logs, read_any
from nugget.text import tracked

READING_VERSION = 3
"""To be raised when different parts of a file are read; everything is then read again."""
_EXCLUDED = "excluded"
"""The problem of a file whose content is not kept because its project is excluded."""


def ingest_all(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    *,
    brain: Path | None = None,
    now: datetime | None = None,
    wait: bool = True,
) -> SyncResult | None:
    """Read what is new in every log into the machine's index.

    One process reads at a time; `wait=False` returns None at once if another one is reading. Safe to interrupt at any
    point.
    """
    run = IngestRun(connection=connection, settings=settings, allow=allow_list(settings), now=now)
    with _ingest_lock(connection, wait=wait) as is_held:
        if not is_held:
            return None
        _forget_other_rules(run)
        before = store.known_files(connection)
        if not settings.history_enabled:
            if before:
                with write_transaction(connection):
                    store.remove_everything(connection)
                    sql = "SELECT source, id FROM units WHERE source IN ('sessions', 'shell')"
                    for source, unit_id in connection.execute(sql).fetchall():
                        remove_unit(connection, source, unit_id)
            return SyncResult(removed=len(before))
        logs = find_logs(environment, settings, brain)
        gone = before.keys() - {file.locator for log in logs for file in log}
        if gone:
            _forget_gone(connection, gone, {log[0].id for log in logs if source_of(log) is not SourceName.BRIDGE})
        known = store.known_files(connection)
    changed = [log for log in logs if _is_changed(log, known)]
    added = modified = 0
    for log in tracked(changed, "Reading sessions (MB)", lambda log: sum(file.size for file in log) / 1e6):
        read = run.bytes_read
        with _ingest_lock(connection, wait=True):
            _read_log(run, log)
        is_new = not any(file.locator in before for file in log)
        added += is_new
        modified += not is_new and run.bytes_read > read
    return SyncResult(
        added=added, modified=modified, removed=len(gone), unchanged=len(logs) - added - modified,
        problems=tuple(Problem(path=path, reason=why) for path, why in store.file_problems(connection).items()),
    )  # fmt: skip


def ingest_log(connection: sqlite3.Connection, log: Log, settings: Settings, *, now: datetime) -> IngestRun:
    """Read what is new in one log. Raises NuggetError if it cannot be read."""
    run = IngestRun(connection=connection, settings=settings, allow=allow_list(settings), now=now)
    with _ingest_lock(connection, wait=True):
        if _is_changed(log, store.known_files(connection)):
            _read_log(run, log)
    problems = store.file_problems(connection)
    for file in log:
        if file.locator in problems:
            raise NuggetError(f"{file.locator}: {problems[file.locator]}")
    return run


def is_outdated(connection: sqlite3.Connection, settings: Settings) -> bool:
    """Return whether the rules of redaction changed, so that the next ingest reads all files again."""
    return meta(connection, "events_rules") != _rules(settings) and bool(store.known_files(connection))


def changed_logs(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path | None
) -> tuple[list[Log], int, int]:
    """Return the logs that ingest would read, their size in bytes, and how many known files are gone."""
    logs = find_logs(environment, settings, brain)
    known = store.known_files(connection)
    is_all = is_outdated(connection, settings)
    changed = [log for log in logs if is_all or _is_changed(log, known)]
    size = sum(file.size for log in changed for file in log)
    return changed, size, len(known.keys() - {file.locator for log in logs for file in log})


@contextmanager
def _ingest_lock(connection: sqlite3.Connection, *, wait: bool) -> Iterator[bool]:
    """Hold the lock for reading logs, which lies beside the index; yield False if another process has it."""
    index = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    lock = files.try_lock(index.with_name("history.lock"), wait=wait)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _is_changed(log: Log, known: Mapping[str, tuple[int, int]]) -> bool:
    return any(known.get(file.locator) != (file.size, file.mtime_ns) for file in log)


def _forget_gone(connection: sqlite3.Connection, gone: Iterable[str], present: set[str]) -> None:
    """Remove deleted files from the index; their text is searched no longer, unless it is archived.

    Their forks are read again, since the copies of the records now count.
    """
    forks = (
        "SELECT DISTINCT o.id >> 34 FROM events e JOIN events o ON o.record = e.record AND o.file != e.file "
        "WHERE e.file = ? AND e.record IS NOT NULL AND o.number IS NULL"
    )
    states = store.read_states(connection, list(gone)).values()
    with write_transaction(connection):
        for state in states:
            again = [row[0] for row in connection.execute(forks, (state.key,))]
            connection.execute("DELETE FROM read_files WHERE key = ?", (state.key,))
            store.remove_messages(connection, state.key)
            session = store.log_session(connection, state.session) if state.session else None
            if session is not None and session.id in present:
                again.append(session.key)
            elif session is not None:
                sql = "UPDATE log_sessions SET gone = 1, generation = generation + 1 WHERE key = ?"
                connection.execute(sql, (session.key,))
            for key in again:
                store.reset_session(connection, key)


def _forget_other_rules(run: IngestRun) -> None:
    """Forget files that were read under other rules; sessions whose files are gone are redacted again instead."""
    connection, rules = run.connection, _rules(run.settings)
    if meta(connection, "events_rules") == rules:
        return
    columns = {"events": 4, "command_inputs": 2, "pane_output": 3, "file_edits": 2}
    with write_transaction(connection):
        for key, is_gone in connection.execute("SELECT key, gone FROM log_sessions").fetchall():
            kept = {}
            for table, column in columns.items() if is_gone else ():
                kept[table] = [[*row] for row in store.whole_rows(connection, table, key)]
                texts = run.clean_all([row[column] for row in kept[table]])
                for row, text in zip(kept[table], texts, strict=True):
                    row[column] = text
            store.remove_session_rows(connection, key)
            for table, rows in kept.items():
                store.put_rows(connection, table, rows)
        connection.execute("DELETE FROM read_files")
        connection.execute("DELETE FROM log_sessions WHERE gone = 0")
        connection.execute("UPDATE log_sessions SET derived = 0, generation = generation + 1")
        put_meta(connection, events_rules=rules)


def _rules(settings: Settings) -> str:
    """Return the version of reading and redaction; when it changes, everything is read again."""
    return f"{READING_VERSION}-{rules_stamp(settings)}"


def _read_log(run: IngestRun, log: Log) -> None:
    """Read a log that changed, and replace its rows."""
    known = store.read_states(run.connection, [file.locator for file in log])
    seen: dict[str, ReadState] = {}
    for file in log:
        state = known.get(file.locator) or ReadState(path=file.locator, part=file.part)
        seen[file.locator] = replace(state, size=file.size, mtime_ns=file.mtime_ns)
    if source_of(log) is SourceName.SHELL:
        with write_transaction(run.connection):
            _put_shell(run, log, list(seen.values()))
        return
    read: list[tuple[SessionFile, Logged]] = []
    is_excluded = any(state.problem == _EXCLUDED for state in seen.values())
    for file in () if is_excluded else log:
        state = seen[file.locator] = replace(seen[file.locator], problem="")
        try:
            read.append((file, _read_file(log, file)))
        except Exception as error:
            reason = reason_of(error).removeprefix(f"{file.locator} ")  # the path is shown beside it
            seen[file.locator] = replace(state, problem=reason)
    with write_transaction(run.connection):
        session = store.claim_session(
            run.connection, source=source_of(log), session_id=log[0].id, path=str(log[0].path)
        )
        for path, state in seen.items():
            state = replace(state, session=session.key)
            seen[path] = replace(state, key=store.put_state(run.connection, state))
        if read and not _is_excluded(run, session, [own for _, (own, _) in read], seen.values()):
            run.bytes_read += sum(file.size for file, _ in read)
            _put_session(run, session, [(seen[file.locator], logged) for file, logged in read])


def _read_file(log: Log, file: SessionFile) -> Logged:
    if source_of(log) is SourceName.BRIDGE:
        return Session(id=log[0].id, agent="", path=str(file.path), events=()), [*read_channel(file.path)]
    if file.agent == CLAUDE_CODE and not file.path.name.endswith(ARCHIVE_ENDING):
        return read_logged(file.path)
    return read_any(file), ()


def _put_shell(run: IngestRun, log: Log, states: Sequence[ReadState]) -> None:
    """Write the rows of a shell session in place of its old ones."""
    session = store.claim_session(
        run.connection, source=SourceName.SHELL, session_id=log[0].id, path=str(log[0].path.parent)
    )
    _remove_read_rows(run, session)
    shell = read_shell(run, log, session.key)
    run.put_rows(shell.rows)
    for state in states:
        size = -1 if state.path in shell.waiting else state.size
        store.put_state(run.connection, replace(state, session=session.key, size=size))
    _note_read(
        run, session, shell.ids, folder=shell.folder, workspace=workspace_of(shell.folder),
        started_ms=shell.started_ms or None, ended_ms=shell.ts_ms or None
    )  # fmt: skip


def _remove_read_rows(run: IngestRun, session: LogSession) -> None:
    run.rows.subtract(store.row_counts(run.connection, session.key))
    for table in store.READ_TABLES:
        store.remove_rows(run.connection, table, *store.id_range(session.key))


def _note_read(run: IngestRun, session: LogSession, ids: Ids, **values: Any) -> None:
    """Update a session whose rows were read, so that its incidents and notes are derived again."""
    ids.number = max(ids.number, session.last_number)  # new numbers follow those of derived rows
    run.sessions[session.key] = None
    store.put_session(run.connection, ids, derived=0, **values)


def _put_session(run: IngestRun, session: LogSession, read: Sequence[tuple[ReadState, Logged]]) -> None:
    """Write the rows of a session or channel in place of its old ones."""
    connection, (first, (main, messages)) = run.connection, read[0]
    if session.source == SourceName.BRIDGE:
        store.remove_messages(connection, first.key)
        put_messages(run, session.id, messages, first)
        return
    _remove_read_rows(run, session)
    ids = Ids(session.key, 0)  # counted from the start, so that unmoved rows keep their ids
    cwd, written_ms = run.clean(main.cwd or ""), first.mtime_ns // 1_000_000
    for state, (own, _) in read:
        run.malformed += own.skipped_records
        maker = RowMaker(
            ids=ids, file=state.key, ts_ms=ms_of(own.started) or ms_of(main.started) or written_ms, cwd=cwd or None,
            repeated=repeated_records(run, session.key, own.events)
        )  # fmt: skip
        number = 0
        for event in cleaned_events(run, own.events):
            number += event.kind is EventKind.PROMPT
            maker.add(event, max(1, number))
        run.put_rows(maker.rows)
    _note_read(
        run, session, ids, agent=main.agent, folder=cwd or None, workspace=workspace_of(cwd),
        title=run.clean(main.title or "") or None, started_ms=ms_of(main.started) or None,
        ended_ms=max(ms_of(own.ended) for _, (own, _) in read) or written_ms
    )  # fmt: skip
    for state, (_, messages) in read:
        put_messages(run, channel_of_session(session.id), messages, state)


def _is_excluded(run: IngestRun, session: LogSession, read: Sequence[Session], states: Iterable[ReadState]) -> bool:
    """Return whether a session's project is excluded; then only that fact is kept."""
    folders = tuple(folder for one in read for folder in (*one.folders, *([one.cwd] if one.cwd else [])))
    if not is_excluded_project(
        replace(read[0], cwd=session.folder or read[0].cwd, folders=folders), settings=run.settings
    ):
        return False
    store.remove_session_rows(run.connection, session.key)
    run.connection.execute(
        "UPDATE log_sessions SET title = NULL, generation = generation + 1 WHERE key = ?", (session.key,)
    )
    for state in states:
        store.put_state(run.connection, replace(state, problem=_EXCLUDED))
    return True
