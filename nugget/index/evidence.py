"""The rows of evidence.sql: writing them, taking a session's out, finding those that a question needs.

A row's id holds its session's key, its number in the session and its table, so that ids order rows by when they were
read, a session is one range of ids, and an id alone says where the row stands.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_SESSION_BITS, _TABLE_BITS = 34, 3
TABLES = ("events", "command_inputs", "pane_output", "file_edits", "working_notes", "incidents")
"""Position in this tuple = the lowest bits of an id."""
_POSITIONS = {table: position for position, table in enumerate(TABLES)}

_COLUMNS = {
    "events": "id, ts_ms, kind, tool, text, ok, exit_code, started, offset",
    "command_inputs": "id, ts_ms, text, offset",
    "pane_output": "id, ts_ms, stream, text, is_failure, command, offset",
    "file_edits": "id, ts_ms, path, action, ok",
    "working_notes": "id, ts_ms, type, text, is_open, about",
    "incidents": "id, ts_ms, first_ms, first_event, last_event, title, text, command, failures, fixed_by, fixed_ms, "
    "details",
}
_SEARCHED = {
    "events": "SELECT id, text FROM events WHERE (kind IN ('command.start', 'prompt') OR ok = 0)",
    "command_inputs": "SELECT id, text FROM command_inputs WHERE 1",
    "pane_output": "SELECT id, text FROM pane_output WHERE 1",
    "file_edits": "SELECT id, path FROM file_edits WHERE 1",
    "working_notes": "SELECT id, text FROM working_notes WHERE 1",
    "incidents": "SELECT id, text FROM incidents WHERE 1",
}
"""What of each table stands in evidence_fts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSession:
    """What is known of a session that has been ingested; times in milliseconds since the epoch."""

    key: int
    source: str
    id: str
    path: str
    agent: str | None = None
    folder: str | None = None
    workspace: str | None = None
    title: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    generation: int = 0
    malformed: int = 0
    derived: int = 0


_SESSION_COLUMNS = (
    "key, source, id, path, agent, folder, workspace, title, started_ms, ended_ms, generation, malformed, derived"
)


@dataclass(slots=True)
class Ids:
    """Gives ids to the rows of one session."""

    key: int
    number: int

    def next(self, table: str) -> int:
        """A new id for a row of this table."""
        self.number += 1
        return self.key << _SESSION_BITS | self.number << _TABLE_BITS | _POSITIONS[table]


def table_of(row_id: int) -> str:
    """The table that an id belongs to."""
    return TABLES[row_id & (1 << _TABLE_BITS) - 1]


def session_key_of(row_id: int) -> int:
    """The key of the session that an id belongs to."""
    return row_id >> _SESSION_BITS


def id_range(key: int) -> tuple[int, int]:
    """The ids of a session: from the first to the one behind the last."""
    return key << _SESSION_BITS, (key + 1) << _SESSION_BITS


def find_log_session(connection: sqlite3.Connection, session_id: str, source: str | None = None) -> LogSession | None:
    """An ingested session by id; of a shell's and an agent's with the same id, the shell's."""
    row = connection.execute(
        f"SELECT {_SESSION_COLUMNS} FROM log_sessions WHERE id = ? AND source = coalesce(?, source) "
        "ORDER BY source DESC LIMIT 1",
        (session_id, source),
    ).fetchone()
    return _session(row) if row else None


def log_session(connection: sqlite3.Connection, key: int) -> LogSession | None:
    """An ingested session by key."""
    row = connection.execute(f"SELECT {_SESSION_COLUMNS} FROM log_sessions WHERE key = ?", (key,)).fetchone()
    return _session(row) if row else None


def log_sessions(
    connection: sqlite3.Connection, *, workspace: str | None = None, source: str | None = None, limit: int = -1
) -> list[LogSession]:
    """Ingested sessions, the latest first."""
    rows = connection.execute(
        f"SELECT {_SESSION_COLUMNS} FROM log_sessions WHERE (:workspace IS NULL OR workspace = :workspace) "
        "AND (:source IS NULL OR source = :source) ORDER BY ended_ms DESC NULLS LAST, key DESC LIMIT :limit",
        {"workspace": workspace, "source": source, "limit": limit},
    )
    return [_session(row) for row in rows]


def _session(row: Sequence[Any]) -> LogSession:
    return LogSession(**dict(zip(_SESSION_COLUMNS.split(", "), row, strict=True)))


def claim_session(connection: sqlite3.Connection, *, source: str, session_id: str, path: str) -> tuple[LogSession, Ids]:
    """The session's row, made where there is none, and the ids that its next rows get."""
    connection.execute(
        "INSERT INTO log_sessions (source, id, path) VALUES (?, ?, ?) "
        "ON CONFLICT (source, id) DO UPDATE SET path = excluded.path",
        (source, session_id, path),
    )
    session = find_log_session(connection, session_id, source)
    assert session is not None
    number = connection.execute("SELECT last_number FROM log_sessions WHERE key = ?", (session.key,)).fetchone()[0]
    return session, Ids(session.key, number)


def put_session(connection: sqlite3.Connection, ids: Ids, **values: Any) -> None:
    """Change what is known of a session, and raise its generation. `None` leaves a value as it is."""
    known = {name: value for name, value in values.items() if value is not None}
    columns = "".join(f"{name} = ?, " for name in known)
    connection.execute(
        f"UPDATE log_sessions SET {columns} last_number = ?, generation = generation + 1 WHERE key = ?",
        (*known.values(), ids.number, ids.key),
    )


def put_rows(connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Add rows, in the order of the table's columns, and make them searchable."""
    if not rows:
        return
    marks = ",".join("?" * (_COLUMNS[table].count(",") + 1))
    connection.executemany(f"INSERT INTO {table} ({_COLUMNS[table]}) VALUES ({marks})", rows)
    connection.execute(
        f"INSERT INTO evidence_fts (rowid, text) {_SEARCHED[table]} AND id BETWEEN ? AND ?", (rows[0][0], rows[-1][0])
    )


def remove_rows(connection: sqlite3.Connection, table: str, first: int, end: int, *, where: str = "1") -> int:
    """Take out the rows with ids from `first` to before `end`; how many there were. `where` is SQL of ours."""
    searched = _SEARCHED[table].replace("SELECT id", "SELECT 'delete', id", 1)
    connection.execute(
        f"INSERT INTO evidence_fts (evidence_fts, rowid, text) {searched} AND {where} AND id >= ? AND id < ?",
        (first, end),
    )
    return connection.execute(f"DELETE FROM {table} WHERE {where} AND id >= ? AND id < ?", (first, end)).rowcount


def remove_session_rows(connection: sqlite3.Connection, key: int) -> None:
    """Take out everything that a session has, but for the session's own row."""
    for table in TABLES:
        remove_rows(connection, table, *id_range(key))
    connection.execute("DELETE FROM log_files WHERE session_key = ?", (key,))


def row_counts(connection: sqlite3.Connection, key: int) -> dict[str, int]:
    """How many rows of each table a session has."""
    return {
        table: connection.execute(f"SELECT count(*) FROM {table} WHERE id >= ? AND id < ?", id_range(key)).fetchone()[0]
        for table in TABLES
    }


def rows_in(
    connection: sqlite3.Connection,
    table: str,
    first: int,
    end: int,
    *,
    where: str = "1",
    limit: int = -1,
    newest: bool = False,
) -> list[tuple[Any, ...]]:
    """Rows with ids from `first` to before `end`, in order; with `newest`, the last `limit` of them.

    `where` is SQL of ours, never a text from outside.
    """
    rows = list(each_row_in(connection, table, first, end, where=where, limit=limit, newest_first=newest))
    return rows[::-1] if newest else rows


def each_row_in(
    connection: sqlite3.Connection,
    table: str,
    first: int,
    end: int,
    *,
    where: str = "1",
    limit: int = -1,
    newest_first: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """Rows with ids from `first` to before `end`, in order or from the end on, none of them held.

    `where` is SQL of ours, never a text from outside.
    """
    order = "DESC" if newest_first else "ASC"
    return connection.execute(
        f"SELECT {_COLUMNS[table]} FROM {table} WHERE id >= ? AND id < ? AND {where} ORDER BY id {order} LIMIT ?",
        (first, end, limit),
    )


def rows_by_id(connection: sqlite3.Connection, table: str, row_ids: Iterable[int]) -> list[tuple[Any, ...]]:
    """The rows of these ids, in the order of the ids; those that are gone are left out."""
    wanted = sorted(set(row_ids))
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        marks = ",".join("?" * len(part))
        found += connection.execute(
            f"SELECT {_COLUMNS[table]} FROM {table} WHERE id IN ({marks}) ORDER BY id", part
        ).fetchall()
    return found


def matching_ids(
    connection: sqlite3.Connection, words: Sequence[str], *, key: int | None = None, limit: int
) -> list[int]:
    """Ids of rows in which any of the words stands: for each word the newest `limit`, in one session or in all."""
    first, end = id_range(key) if key is not None else (0, 1 << 62)
    found: dict[int, None] = {}
    for word in words:
        if not word.isalnum():
            continue
        rows = connection.execute(
            "SELECT rowid FROM evidence_fts WHERE evidence_fts MATCH ? AND rowid >= ? AND rowid < ? "
            "ORDER BY rowid DESC LIMIT ?",
            (f'"{word}"', first, end, limit),
        )
        with suppress(sqlite3.OperationalError):  # a letter that FTS5 takes for a border makes a phrase of the word
            found.update((row[0], None) for row in rows)
    return list(found)


def put_file(connection: sqlite3.Connection, key: int, name: str, place: tuple[int, str, str]) -> None:
    """Remember how far a file was read: (offset, print of its beginning, print of what is before the offset)."""
    connection.execute("INSERT OR REPLACE INTO log_files VALUES (?,?,?,?,?)", (key, name, *place))


def file_places(connection: sqlite3.Connection, key: int) -> dict[str, tuple[int, str, str]]:
    """How far each file of a session was read."""
    rows = connection.execute("SELECT name, offset, head, before FROM log_files WHERE session_key = ?", (key,))
    return {row[0]: (row[1], row[2], row[3]) for row in rows}
