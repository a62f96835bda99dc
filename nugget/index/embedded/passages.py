"""Search the numbered rows of events.sql (what was said), even among millions.

FTS5's own ranking reads every row of every word, which costs too much for words that occur everywhere. Instead, rows
are taken newest first until there are enough, and the caller ranks them by their text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from nugget.index.embedded.events import MARKS, id_range, ids_by_table
from nugget.index.embedded.units import select_in
from nugget.index.fulltext import LARGEST_CHARACTER
from nugget.models import Filter, SourceName
from nugget.models.sessions import Evidence, Speaker, SpeechOrigin

_SESSION = "s.key, s.source, s.id, coalesce(s.agent, ''), coalesce(s.folder, ''), coalesce(s.workspace, ''), " \
    "coalesce(s.title, '')"  # fmt: skip
_FILE = "CASE r.stream WHEN 'merged' THEN 'output' ELSE r.stream END || '.log'"
_OF_SESSION = "JOIN log_sessions s ON s.key = r.id >> 34"
_ROWS = {
    "events": "SELECT r.id, r.kind, r.number, r.ts_ms / 1000, r.text, coalesce(r.speaker, ''), coalesce(r.origin, ''), "
    "coalesce(f.part, ''), "
    f"coalesce(f.path, s.path), {_SESSION} FROM events r LEFT JOIN read_files f ON f.key = r.file {_OF_SESSION}",
    "command_inputs": "SELECT r.id, 'command.start', r.number, r.ts_ms / 1000, r.text, 'user', 'typed', '', "
    f"s.path || '/stdin.log', {_SESSION} FROM command_inputs r {_OF_SESSION}",
    "pane_output": "SELECT r.id, 'output', r.number, r.ts_ms / 1000, r.text, 'tool', 'tool_result', "
    f"{_FILE}, s.path || '/' || {_FILE}, {_SESSION} FROM pane_output r {_OF_SESSION}",
}
_ROLES = {
    "prompt": "you", "paste": "you", "reply": "agent", "message": "message", "command": "command", "output": "output"
}  # fmt: skip
_MOMENT = (
    "CASE {id} & 7 WHEN 0 THEN (SELECT ts_ms FROM events WHERE id = {id}) "
    "WHEN 1 THEN (SELECT ts_ms FROM command_inputs WHERE id = {id}) "
    "ELSE (SELECT ts_ms FROM pane_output WHERE id = {id}) END"
)


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A row of `_ROWS`: a passage. `at` is in seconds; `part` is the subagent, or the file of a shell's output."""

    id: int
    kind: str
    number: int
    at: int
    text: str
    speaker: str
    origin: str
    part: str
    path: str
    session_key: int
    source: str
    session: str
    agent: str
    folder: str
    workspace: str
    title: str

    @property
    def role(self) -> str:
        """The speaker: `you`, `agent`, `quoted`, `tool`, `message`, `command` or `output`."""
        kind = self.kind.partition(".")[0]
        is_others = kind in ("prompt", "paste") and self.speaker not in ("", Speaker.USER)
        return self.speaker if is_others else _ROLES[kind]

    @property
    def ref(self) -> str:
        """The ref of the passage.

        `session:<id>#<exchange>`, `session:<id>/<subagent>#<exchange>`, `shell:<id>#<command>`,
        `shell:<id>/output.log#<part>`, `bridge:<channel>#<message>`.
        """
        kind = "session" if self.source == SourceName.SESSIONS else self.source
        part = f"/{self.part}" if self.part else ""
        return f"{kind}:{self.session}{part}#{self.number}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The speaker and origin, or an empty text for a message between agents."""
        if self.source == SourceName.BRIDGE or not self.speaker:
            return ()
        origin = SpeechOrigin(self.origin) if self.origin else None
        return (Evidence(session=self.session, quote=self.text, speaker=Speaker(self.speaker), origin=origin),)

    @property
    def author(self) -> str:
        """The subagent that speaks or the sender of a message, else an empty text."""
        return self.speaker if self.source == SourceName.BRIDGE else self.part


def passage_count(connection: sqlite3.Connection) -> int:
    """Return the number of passages."""
    return int(connection.execute("SELECT value FROM meta WHERE key = 'said_rows'").fetchone()[0])


def estimated_matches(connection: sqlite3.Connection, match: str, *, counted: int) -> int:
    """Return how many passages match, counted up to a number and estimated beyond by how far back these reach."""
    sql = "SELECT rowid FROM events_fts WHERE events_fts MATCH ? ORDER BY rowid DESC LIMIT ?"
    rows = connection.execute(sql, (match, counted)).fetchall()
    if len(rows) < counted:
        return len(rows)
    first, last = (  # each from its end of the table; one query for both would read all of it
        connection.execute(f"SELECT {which}(id) FROM events WHERE number IS NOT NULL").fetchone()[0] or rows[-1][0]
        for which in ("min", "max")
    )
    first, last = min(first, rows[-1][0]), max(last, rows[0][0])
    reached = (last - rows[-1][0]) / max(1, last - first)
    return min(passage_count(connection), int(counted / max(reached, 1e-6)))


def newest_matches(
    connection: sqlite3.Connection, match: str, source: SourceName, filter_: Filter, limit: int
) -> list[int]:
    """Return the ids of the newest passages that match, newest first; none if `match` is empty."""
    if not match:
        return []
    if source in MARKS:
        match = f"({match}) AND parts : {MARKS[source]}"
    tests, parameters = _tests(source, filter_, _MOMENT.format(id="events_fts.rowid"))
    sql = (
        "SELECT events_fts.rowid FROM events_fts CROSS JOIN log_sessions s ON s.key = events_fts.rowid >> 34 "
        f"WHERE events_fts MATCH ? AND {tests} ORDER BY events_fts.rowid DESC LIMIT ?"
    )
    return [row[0] for row in connection.execute(sql, (match, *parameters, limit))]


def opening_passages(
    connection: sqlite3.Connection, words: Sequence[str], source: SourceName, filter_: Filter, limit: int
) -> list[int]:
    """Return the ids of the first passages of the newest sessions whose title holds all of these words."""
    tests, parameters = _tests(source, filter_, "s.started_ms")
    sql = (
        "SELECT (SELECT min(id) FROM events WHERE number IS NOT NULL AND id >= s.key << 34 AND id < s.key + 1 << 34) "
        f"FROM log_sessions s WHERE {tests}{' AND instr(lower(s.title), ?)' * len(words)} ORDER BY s.key DESC LIMIT ?"
    )
    return [row[0] for row in connection.execute(sql, (*parameters, *words, limit)) if row[0] is not None]


def newest(connection: sqlite3.Connection, source: SourceName, filter_: Filter, limit: int) -> list[int]:
    """Return the ids of the newest passages that pass a filter, newest first."""
    tests, parameters = _tests(source, filter_, "r.ts_ms")
    found: list[tuple[int, int]] = []
    for table in _ROWS if source is SourceName.SHELL else ("events",):
        sql = (
            f"SELECT r.ts_ms, r.id FROM {table} r {_OF_SESSION} "
            f"WHERE r.number IS NOT NULL AND {tests} ORDER BY r.ts_ms DESC, r.id DESC LIMIT ?"
        )
        found += connection.execute(sql, (*parameters, limit)).fetchall()
    return [row[1] for row in sorted(found, reverse=True)[:limit]]


def passages_by_id(connection: sqlite3.Connection, ids: Collection[int]) -> dict[int, StoredPassage]:
    """Return the passages of these ids."""
    found: dict[int, StoredPassage] = {}
    for table, own in ids_by_table(ids).items():
        found |= {row[0]: StoredPassage(*row) for row in select_in(connection, f"{_ROWS[table]} WHERE r.id IN", own)}
    return found


def passages_around(
    connection: sqlite3.Connection, session: int, part: str, numbers: tuple[int, int]
) -> list[StoredPassage]:
    """Return the passages of a part of a session with these numbers (inclusive), in order."""
    found: list[StoredPassage] = []
    for table in _ROWS:
        sql = f"{_ROWS[table]} WHERE r.id >= ? AND r.id < ? AND r.number BETWEEN ? AND ? ORDER BY r.id"
        found += (StoredPassage(*row) for row in connection.execute(sql, (*id_range(session), *numbers)))
    return [passage for passage in found if passage.part == part]


def sessions_like(connection: sqlite3.Connection, source: SourceName, prefix: str) -> dict[str, int]:
    """Return the keys of a few sessions of a source whose id begins with a prefix, by id."""
    sql = "SELECT id, key FROM log_sessions WHERE source = ? AND id >= ? AND id < ? AND gone = 0 ORDER BY id LIMIT 5"
    return dict(connection.execute(sql, (source, prefix, prefix + LARGEST_CHARACTER)).fetchall())


_PAST = (
    "(SELECT key, id FROM log_sessions WHERE workspace = ? AND id IS NOT ? AND source != 'bridge' "
    "ORDER BY ended_ms DESC NULLS LAST, key DESC LIMIT 30) s"
)
"""The latest sessions of a workspace, without the one that asks."""


def last_incident(connection: sqlite3.Connection, workspace: str, *, without: str | None) -> tuple[Any, ...] | None:
    """Return (text, session, ts_ms) of the latest serious failure in a workspace, or None if it was fixed."""
    row: tuple[Any, ...] | None = connection.execute(
        f"SELECT text, s.id, ts_ms, fixed_by FROM {_PAST} CROSS JOIN incidents i ON i.id >= s.key << 34 "
        "AND i.id < s.key + 1 << 34 WHERE json_extract(details, '$.severity') >= 0.3 ORDER BY ts_ms DESC LIMIT 1",
        (workspace, without),
    ).fetchone()
    return row[:3] if row and row[3] is None else None


def open_todos(connection: sqlite3.Connection, workspace: str, *, without: str | None, limit: int) -> list[str]:
    """Return the open todos of a workspace, newest first, without duplicates."""
    rows = connection.execute(
        f"SELECT text FROM {_PAST} CROSS JOIN working_notes n ON n.id >= s.key << 34 AND n.id < s.key + 1 << 34 "
        "WHERE is_open = 1 AND type = 'todo' GROUP BY text ORDER BY max(ts_ms) DESC, text DESC LIMIT ?",
        (workspace, without, limit),
    )
    return [row[0] for row in rows]


def _tests(source: SourceName, filter_: Filter, moment: str) -> tuple[str, list[object]]:
    """Return the SQL tests of a passage and its session `s`: source, and days and sessions of a filter."""
    tests, parameters = ["s.gone = 0", "s.source = ?"], list[object]([source])
    if filter_.since is not None:
        tests.append(f"s.ended_ms >= ? AND {moment} >= ?")
        parameters += [_midnight_ms(filter_.since)] * 2
    if filter_.until is not None:
        tests.append(f"{moment} > 0 AND {moment} < ?")
        parameters.append(_midnight_ms(filter_.until + timedelta(1)))
    if filter_.sessions:
        tests.append(f"({' OR '.join(['s.id >= ? AND s.id < ?'] * len(filter_.sessions))})")
        for session in filter_.sessions:
            parameters += [session, session + LARGEST_CHARACTER]
    return " AND ".join(tests), parameters


def _midnight_ms(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)
