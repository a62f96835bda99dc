"""Take in the logs of sessions and shells, and derive incidents and notes from what they gained."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime

from nugget.config import Environment, Settings
from nugget.errors import reason_of
from nugget.evidence.derive import derive
from nugget.evidence.values import Ingested
from nugget.index import events as store
from nugget.index import ingest as logs
from nugget.index.connection import write_transaction
from nugget.models import Problem, SourceName
from nugget.sources.logs import log_of
from nugget.sources.sessions import SessionFile, find_session_by_id, find_sessions
from nugget.sources.shell_logs import ShellLog, find_shell_session, require_session_id, shell_sessions

Log = ShellLog | SessionFile


def find_log(environment: Environment, session_id: str) -> Log | None:
    """Return the logs of a session: a shell's folder, else an agent's transcript. Raises UsageError for a bad id."""
    require_session_id(session_id)
    return find_shell_session(environment.shell_logs, session_id) or find_session_by_id(environment, session_id)


def all_logs(environment: Environment) -> Iterator[Log]:
    """Return every session of shells and agents that has logs, those of shells first, each oldest first."""
    yield from shell_sessions(environment.shell_logs)
    yield from find_sessions(environment)


def ingest(connection: sqlite3.Connection, log: Log, *, settings: Settings, now: datetime) -> Ingested:
    """Take in what is new in the logs of a session. Doing so again finds nothing; two at once do each part once.

    Raises NuggetError for logs that cannot be read.
    """
    source = SourceName.SHELL if isinstance(log, ShellLog) else SourceName.SESSIONS
    read = logs.ingest_log(connection, log_of(log), settings, now=now)
    session = store.find_log_session(connection, log.id, source)
    incidents, notes = derive_sessions(connection, read.sessions or ([session.key] if session else []))
    counts = {table: max(0, read.rows[table]) for table in store.TABLES[:4]}
    return Ingested(
        session=log.id, source=source, malformed=read.malformed,
        bytes_read=read.bytes_read, anew=read.anew, redacted=dict(read.redacted), incidents=incidents,
        working_notes=notes, **counts,
    )  # fmt: skip


def ingest_all(
    connection: sqlite3.Connection,
    environment: Environment,
    *,
    settings: Settings,
    now: datetime,
    progress: logs.Progress | None = None,
) -> tuple[list[Ingested], list[Problem]]:
    """Take in every session's logs; a session that cannot be read is a problem and stops no other."""
    found = list(all_logs(environment))
    done: list[Ingested] = []
    problems: list[Problem] = []
    for number, log in enumerate(found):
        if progress:
            progress("Reading logs", number, len(found))
        try:
            result = ingest(connection, log, settings=settings, now=now)
        except sqlite3.Error:
            raise
        except Exception as error:
            problems.append(Problem(path=str(log.path), reason=reason_of(error)))
            continue
        if not result.is_empty:
            done.append(result)
    return done, problems


def derive_sessions(connection: sqlite3.Connection, keys: Iterable[int]) -> tuple[int, int]:
    """Derive the incidents and notes of sessions that gained rows; return how many there are more than before."""
    incidents = notes = 0
    for key in keys:
        with write_transaction(connection):
            session = store.log_session(connection, key)
            if session is None or session.derived >= session.last_number:
                continue
            more = derive(connection, session)
            incidents, notes = incidents + more[0], notes + more[1]
    return incidents, notes
