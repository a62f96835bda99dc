"""Read what a session is shown at its start: a few rows of one workspace from the machine's index."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from nugget.index.connection import home_index_file, home_version
from nugget.index.events import LogSession, id_range, log_sessions

_SESSIONS = 30
"""How many of the latest sessions of a workspace are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    """The latest failure of a workspace; `fixed_by` is the command that later went well."""

    title: str
    text: str
    session: str
    ts_ms: int
    fixed_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A constraint or caveat that the user stated; `path` is relative to the workspace, empty for all of it."""

    type: str
    path: str
    summary: str


def open_read_only(home: Path) -> sqlite3.Connection | None:
    """Return the machine's index, without waiting for any lock; None if there is none of this version."""
    try:
        connection = sqlite3.connect(f"{home_index_file(home).as_uri()}?mode=ro", uri=True, timeout=0.1)
    except sqlite3.Error:
        return None
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    except sqlite3.Error:
        row = None
    if row is None or row[0] != home_version():
        connection.close()
        return None
    return connection


def past_sessions(connection: sqlite3.Connection, workspace: str, *, without: str | None) -> list[LogSession]:
    """Return the latest sessions of a workspace, without the one that is asking."""
    found = log_sessions(connection, workspace=workspace, limit=_SESSIONS)
    return [session for session in found if session.id != without]


def last_incident(connection: sqlite3.Connection, sessions: list[LogSession]) -> PastIncident | None:
    """Return the latest failure in these sessions."""
    best: PastIncident | None = None
    for session in sessions:
        row = connection.execute(
            "SELECT title, text, ts_ms, fixed_by FROM incidents WHERE id >= ? AND id < ? ORDER BY ts_ms DESC LIMIT 1",
            id_range(session.key),
        ).fetchone()
        if row is not None and (best is None or row[2] > best.ts_ms):
            best = PastIncident(title=row[0], text=row[1], session=session.id, ts_ms=row[2], fixed_by=row[3])
    return best


def open_todos(connection: sqlite3.Connection, sessions: list[LogSession], *, limit: int) -> list[str]:
    """Return what is still to do, the latest first, each once."""
    rows: list[tuple[int, str]] = []
    for session in sessions:
        rows += connection.execute(
            "SELECT ts_ms, text FROM working_notes WHERE is_open = 1 AND type = 'todo' AND id >= ? AND id < ? "
            "ORDER BY ts_ms DESC LIMIT ?",
            (*id_range(session.key), limit),
        )
    return list(dict.fromkeys(text for _, text in sorted(rows, reverse=True)))[:limit]


def rules_of(connection: sqlite3.Connection, workspace: str, *, limit: int, today: date) -> list[Rule]:
    """Return what the user typed of a workspace that is not stale by its date; constraints first, the latest first.

    Nobody has reviewed a nugget, so that what an agent, a tool or a pasted text says is not passed on as a rule.
    """
    rows = connection.execute(
        "SELECT type, path, summary FROM nuggets WHERE workspace = ? AND type IN ('constraint', 'caveat') "
        "AND json_extract(details, '$.speaker') = 'user' AND json_extract(details, '$.origin') = 'typed' "
        "AND (stale_after IS NULL OR stale_after >= ?) "
        "ORDER BY type = 'caveat', confidence DESC, session_started DESC LIMIT ?",
        (workspace, today.isoformat(), limit),
    )
    return [Rule(type=row[0], path=row[1], summary=row[2]) for row in rows]
