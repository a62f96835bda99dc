"""Bring the machine's index in line with the logs of sessions, shells and channels.

What changed is known by size and time. A transcript that grew is read on from where reading stopped; what other agents
keep, and the archive, is read whole. Texts are redacted once, on their way in. Incidents and notes are not derived
here: `Ingested.sessions` says which sessions gained something.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.config import Environment, Settings
from nugget.errors import NuggetError
from nugget.index import events as store
from nugget.index.connection import write_transaction
from nugget.index.log_ingest import read_log, remove_messages, reset_session
from nugget.index.session_rows import Run
from nugget.infra import files
from nugget.models import Problem, SourceName
from nugget.redaction import allow_list, rules_stamp
from nugget.redaction.batches import redacted_all
from nugget.sources.sessions import Log, find_logs

READING_VERSION = 1
"""Raise it when what is read of a file changes: everything is then read again."""
_MEGABYTE = 1_000_000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """Counts of what ingest did: of logs, and `rows` by table. `sessions` are the keys of those that gained rows.

    `is_busy` says that another process is reading, so that nothing was done. `reread` names files read again.
    """

    added: int = 0
    modified: int = 0
    removed: int = 0
    unchanged: int = 0
    sessions: tuple[int, ...] = ()
    rows: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    bytes_read: int = 0
    reread: tuple[str, ...] = ()
    is_busy: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether ingest changed the index."""
        return bool(self.added or self.modified or self.removed)


def ingest_all(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    *,
    brain: Path | None = None,
    now: datetime | None = None,
    wait: bool = True,
    progress: Progress | None = None,
) -> Ingested:
    """Read what is new in every log into the machine's index.

    One process reads a log at a time; `wait=False` returns at once if another one is reading. Safe to interrupt at any
    point.
    """
    with _alone(connection, wait=wait) as is_alone:
        if not is_alone:
            return Ingested(is_busy=True)
        _forget_other_rules(connection, settings)
        known = store.known_files(connection)
        if not settings.history.enabled:
            if known:
                with write_transaction(connection):
                    store.remove_everything(connection)
            return Ingested(removed=len(known))
        logs = find_logs(environment, settings, brain)
        gone = known.keys() - {file.path for log in logs for file in log.files}
        if gone:
            _forget_gone(connection, gone, {log.id for log in logs if log.source is not SourceName.BRIDGE})
        before, known = known, store.known_files(connection)
    run = _run(connection, settings, now)
    changed = [log for log in logs if _is_changed(log, known)]
    total = sum(file.size for log in changed for file in log.files)
    added = modified = done = 0
    for log in changed:
        read = run.bytes_read
        with _alone(connection, wait=True):
            read_log(run, log)
        is_new = not any(file.path in before for file in log.files)
        added += is_new
        modified += not is_new and run.bytes_read > read
        done += sum(file.size for file in log.files)
        if progress:
            progress("Reading sessions (MB)", done // _MEGABYTE, -(-total // _MEGABYTE))
    problems = store.file_problems(connection).items()
    return _result(
        run, added=added, modified=modified, removed=len(gone), unchanged=len(logs) - added - modified,
        problems=tuple(Problem(path=path, reason=reason) for path, reason in problems),
    )  # fmt: skip


def ingest_log(connection: sqlite3.Connection, log: Log, settings: Settings, *, now: datetime) -> Ingested:
    """Read what is new in one log. Raises NuggetError if it cannot be read."""
    run = _run(connection, settings, now)
    with _alone(connection, wait=True):
        states = store.read_states(connection, [file.path for file in log.files])
        if _is_changed(log, {path: (state.size, state.mtime_ns) for path, state in states.items()}):
            read_log(run, log)
    problems = store.file_problems(connection)
    for file in log.files:
        if file.path in problems:
            raise NuggetError(f"{file.path}: {problems[file.path]}")
    return _result(run)


def is_outdated(connection: sqlite3.Connection, settings: Settings) -> bool:
    """Return whether files were read by other rules of redaction, so that the next ingest reads all again."""
    sql = "SELECT value FROM meta WHERE key = 'events_rules' AND EXISTS (SELECT 1 FROM read_files)"
    row = connection.execute(sql).fetchone()
    return row is not None and row[0] != _rules(settings)


def changed_logs(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path | None
) -> tuple[list[Log], int, int]:
    """Return the logs that ingest would read, how many bytes they gained, and how many known files are gone."""
    logs = find_logs(environment, settings, brain)
    known = store.known_files(connection)
    changed = [log for log in logs if _is_changed(log, known)]
    gained = 0
    for file in (file for log in changed for file in log.files):
        before = known.get(file.path, (0, 0))[0]
        gained += file.size - max(0, before) if file.size >= before else file.size
    return changed, gained, len(known.keys() - {file.path for log in logs for file in log.files})


@contextmanager
def _alone(connection: sqlite3.Connection, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of whoever reads logs, which lies beside the index; False if it is held and not waited for."""
    index = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    lock = files.try_lock(index.with_name("history.lock"), wait=wait)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _run(connection: sqlite3.Connection, settings: Settings, now: datetime | None) -> Run:
    moment = now or datetime.now(UTC)
    return Run(
        connection=connection, settings=settings, allow=allow_list(settings), now_ms=int(moment.timestamp() * 1000)
    )


def _result(run: Run, **counts: object) -> Ingested:
    return Ingested(
        sessions=tuple(run.sessions), rows=run.rows, redacted=run.redacted, malformed=run.malformed,
        bytes_read=run.bytes_read, reread=tuple(run.reread), **counts,  # type: ignore[arg-type]
    )  # fmt: skip


def _is_changed(log: Log, known: Mapping[str, tuple[int, int]]) -> bool:
    return any(known.get(file.path) != (file.size, file.mtime_ns) for file in log.files)


def _forget_gone(connection: sqlite3.Connection, gone: Iterable[str], present: set[str]) -> None:
    """Forget files that are gone. What was said in them is searched no longer, unless it is archived.

    Forks of them are read again: their copies of the records count from now on.
    """
    states = store.read_states(connection, list(gone)).values()
    with write_transaction(connection):
        for state in states:
            forks = connection.execute(
                "SELECT DISTINCT o.id >> 34 FROM events e JOIN events o ON o.record = e.record AND o.file != e.file "
                "WHERE e.file = ? AND e.record IS NOT NULL AND o.number IS NULL",
                (state.key,),
            ).fetchall()
            connection.execute("DELETE FROM read_files WHERE key = ?", (state.key,))
            remove_messages(connection, state.key)
            session = store.log_session(connection, state.session) if state.session else None
            if session is not None and session.id in present:
                reset_session(connection, session.key)
            elif session is not None:
                connection.execute(
                    "UPDATE log_sessions SET gone = 1, generation = generation + 1 WHERE key = ?", (session.key,)
                )
            for (fork,) in forks:
                reset_session(connection, fork)


def _forget_other_rules(connection: sqlite3.Connection, settings: Settings) -> None:
    """Forget what was read by other rules, to be read again; sessions whose files are gone are redacted again."""
    if connection.execute("SELECT value FROM meta WHERE key = 'events_rules'").fetchone()[0] == _rules(settings):
        return
    allow = allow_list(settings)
    with write_transaction(connection):
        for key, is_gone in connection.execute("SELECT key, gone FROM log_sessions").fetchall():
            kept = {table: _redacted_rows(connection, table, key, allow) for table in store.TABLES[:4] if is_gone}
            store.remove_session_rows(connection, key)
            for table, rows in kept.items():
                store.put_rows(connection, table, rows)
        connection.execute("DELETE FROM read_files")
        connection.execute("DELETE FROM log_sessions WHERE gone = 0")
        connection.execute("UPDATE log_sessions SET derived = 0, generation = generation + 1")
        connection.execute("UPDATE meta SET value = ? WHERE key = 'events_rules'", (_rules(settings),))


def _redacted_rows(
    connection: sqlite3.Connection, table: str, key: int, allow: Sequence[re.Pattern[str]]
) -> list[list[Any]]:
    """Return the rows of a session, redacted by the rules of today."""
    column = {"events": 4, "command_inputs": 2, "pane_output": 3, "file_edits": 2}[table]
    rows = [[*row] for row in store.whole_rows(connection, table, key)]
    for row, text in zip(rows, redacted_all([row[column] for row in rows], allow=allow), strict=True):
        row[column] = text
    return rows


def _rules(settings: Settings) -> str:
    """Return the version of reading and redaction: when it changes, everything is read again."""
    return f"{READING_VERSION}-{rules_stamp(settings)}"
