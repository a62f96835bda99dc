"""The rows of events.sql: sessions, their events, and the files that were read.

A row's id holds its session's key, its number in the session and its table. So ids sort in the order of reading, a
session is one range of ids, and an id alone locates a row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nugget.index.embedded.units import select_in
from nugget.index.fulltext import match_word
from nugget.models import SourceName
from nugget.models.sessions import Speaker, SpeechOrigin

_SESSION_BITS, _TABLE_BITS = 34, 3
TABLES = ("events", "command_inputs", "pane_output", "file_edits", "working_notes", "incidents")
"""The position in this tuple is in the lowest bits of an id."""
READ_TABLES = TABLES[:4]
"""The tables of what was read; the others are derived from them."""
_POSITIONS = {table: position for position, table in enumerate(TABLES)}

_COLUMNS = {
    "events": "id, ts_ms, kind, tool, text, ok, exit_code, started",
    "command_inputs": "id, ts_ms, text",
    "pane_output": "id, ts_ms, stream, text, is_failure, command",
    "file_edits": "id, ts_ms, path, action, ok",
    "working_notes": "id, ts_ms, type, text, is_open, about",
    "incidents": "id, ts_ms, first_ms, last_event, title, text, command, failures, fixed_by, details",
}
_WRITTEN = _COLUMNS | {
    "events": f"{_COLUMNS['events']}, speaker, origin, number, file, record",
    "command_inputs": f"{_COLUMNS['command_inputs']}, number",
    "pane_output": f"{_COLUMNS['pane_output']}, number",
}
MARKS = {SourceName.SHELL: "zqnuggetsourceshell", SourceName.BRIDGE: "zqnuggetsourcebridge"}
"""Words in the `parts` of every searched row of a small source, to find it among millions of rows of sessions."""
MORE = ".more"
"""The suffix in the kind of a row that continues the text of the previous row."""
_SHELL, _BRIDGE = (f"'{MARKS[source]}'" for source in (SourceName.SHELL, SourceName.BRIDGE))
SEARCHED = {
    "events": f"CASE kind WHEN 'message' THEN {_BRIDGE} WHEN 'command.start' THEN {_SHELL} ELSE '' END",
    "command_inputs": _SHELL,
    "pane_output": _SHELL,
}
"""The tables with rows that people search (those with a number, in events_fts), and the mark of a row."""
_FIRST_LINE = "iif(kind LIKE 'command.%' AND instr(text, char(10)), substr(text, 1, instr(text, char(10))), text)"
_EVIDENCE = {
    "events": (_FIRST_LINE, "number IS NULL AND (kind IN ('command.start', 'prompt') OR ok = 0)"),
    "command_inputs": ("text", "number IS NULL"),
    "pane_output": ("text", "number IS NULL"),
    "file_edits": ("path", "1"),
    "working_notes": ("text", "1"),
    "incidents": ("text || ' ' || coalesce(json_extract(details, '$.words'), '')", "1"),
}
"""The text and rows of each table in evidence_fts; for a command, only its first line."""


@dataclass(frozen=True, slots=True)
class LogSession:
    """A session that was read; times in milliseconds since the epoch. See log_sessions in events.sql."""

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
    derived: int = 0
    last_number: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """A file that was read: a row of read_files. `key` is 0 if the file has no key yet."""

    key: int = 0
    path: str
    session: int | None = None
    part: str = ""
    size: int = -1
    mtime_ns: int = 0
    problem: str = ""


_STATE_COLUMNS = ", ".join(ReadState.__slots__)


@dataclass(slots=True)
class Ids:
    """A counter of the row ids of one session."""

    key: int
    number: int

    def next(self, table: str) -> int:
        """Return a new id for a row of this table."""
        self.number += 1
        return self.key << _SESSION_BITS | self.number << _TABLE_BITS | _POSITIONS[table]


def table_of(row_id: int) -> str:
    """Return the table that an id belongs to."""
    return TABLES[row_id & (1 << _TABLE_BITS) - 1]


def ids_by_table(row_ids: Iterable[int]) -> dict[str, list[int]]:
    """Return ids by the table that they belong to."""
    found: dict[str, list[int]] = {}
    for row_id in row_ids:
        found.setdefault(table_of(row_id), []).append(row_id)
    return found


def session_key_of(row_id: int) -> int:
    """Return the key of the session that an id belongs to."""
    return row_id >> _SESSION_BITS


def id_range(key: int) -> tuple[int, int]:
    """Return the range of a session's ids: the first, and one past the last."""
    return key << _SESSION_BITS, (key + 1) << _SESSION_BITS


def find_log_session(connection: sqlite3.Connection, session_id: str, source: str | None = None) -> LogSession | None:
    """Return a session by id; if a shell and an agent share it, the shell's."""
    of_source = "(source = :source OR (:source IS NULL AND source != 'bridge'))"
    where = f"id = :id AND {of_source} ORDER BY source DESC LIMIT 1"
    return next(_sessions(connection, where, id=session_id, source=source), None)


def log_session(connection: sqlite3.Connection, key: int) -> LogSession | None:
    """Return a session by key."""
    return next(_sessions(connection, "key = :key", key=key), None)


def log_sessions(connection: sqlite3.Connection, *, workspace: str | None = None, limit: int = -1) -> list[LogSession]:
    """Return the sessions of shells and agents that were read, latest first."""
    where = (
        "(:workspace IS NULL OR workspace = :workspace) AND source != 'bridge' "
        "ORDER BY ended_ms DESC NULLS LAST, key DESC LIMIT :limit"
    )
    return list(_sessions(connection, where, workspace=workspace, limit=limit))


def underived_sessions(connection: sqlite3.Connection) -> list[int]:
    """Return the keys of the sessions whose new rows still lack incidents and notes."""
    rows = connection.execute("SELECT key FROM log_sessions WHERE derived < last_number AND source != 'bridge'")
    return [row[0] for row in rows]


def _sessions(connection: sqlite3.Connection, where: str, **values: object) -> Iterator[LogSession]:
    sql = f"SELECT {', '.join(LogSession.__slots__)} FROM log_sessions WHERE {where}"
    return (LogSession(*row) for row in connection.execute(sql, values).fetchall())


def claim_session(connection: sqlite3.Connection, *, source: str, session_id: str, path: str) -> LogSession:
    """Return the row of a session to be read; create it if it is missing, reset it if it was gone."""
    known = find_log_session(connection, session_id, source)
    if known is not None and known.gone and source != SourceName.BRIDGE:
        reset_session(connection, known.key)
    connection.execute(
        "INSERT INTO log_sessions (source, id, path) VALUES (?, ?, ?) "
        "ON CONFLICT (source, id) DO UPDATE SET path = excluded.path, gone = 0",
        (source, session_id, path),
    )
    session = find_log_session(connection, session_id, source)
    assert session is not None
    return session


def put_session(connection: sqlite3.Connection, ids: Ids, **values: Any) -> None:
    """Update the columns of a session, except those given as None, and raise its generation."""
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
    marks = ",".join("?" * (_WRITTEN[table].count(",") + 1))
    connection.executemany(f"INSERT INTO {table} ({_WRITTEN[table]}) VALUES ({marks})", rows)
    index_rows(connection, table, rows[0][0], rows[-1][0])


def index_rows(connection: sqlite3.Connection, table: str, first: int, last: int) -> None:
    """Make written rows searchable, from one id to another."""
    _put_words(connection, table, "id BETWEEN ? AND ?", (first, last))


def remove_rows(connection: sqlite3.Connection, table: str, first: int, end: int, *, where: str = "1") -> int:
    """Remove the rows with `first` <= id < `end`; return how many. `where` is trusted SQL."""
    tests, bounds = f"{where} AND id >= ? AND id < ?", (first, end)
    _put_words(connection, table, tests, bounds, command="'delete', ")
    return connection.execute(f"DELETE FROM {table} WHERE {tests}", bounds).rowcount


def _put_words(
    connection: sqlite3.Connection, table: str, tests: str, bounds: tuple[int, int], *, command: str = ""
) -> None:
    """Write rows to the full-text tables, or remove them, for which FTS5 needs the same texts again."""
    text, where = _EVIDENCE[table]
    evidence, events = ("evidence_fts, ", "events_fts, ") if command else ("", "")
    connection.execute(
        f"INSERT INTO evidence_fts ({evidence}rowid, text) SELECT {command}id, "
        f"{text} || ' ' || said_parts({text}, '') FROM {table} WHERE {where} AND {tests}",
        bounds,
    )
    if mark := SEARCHED.get(table):
        changed = connection.execute(
            f"INSERT INTO events_fts ({events}rowid, text, parts) SELECT {command}id, text, "
            f"said_parts(text, {mark}) FROM {table} WHERE number IS NOT NULL AND {tests}",
            bounds,
        ).rowcount
        if changed:
            count = "UPDATE meta SET value = value + ? WHERE key = 'said_rows'"
            connection.execute(count, (-changed if command else changed,))


def remove_session_rows(connection: sqlite3.Connection, key: int, *, where: str = "1") -> None:
    """Remove all rows of a session except its own; with `where`, only some of its events."""
    for table in TABLES if where == "1" else TABLES[:1]:
        remove_rows(connection, table, *id_range(key), where=where)


def reset_session(connection: sqlite3.Connection, key: int) -> None:
    """Forget what was read of a session, so that its files are read again."""
    for (file,) in connection.execute("SELECT key FROM read_files WHERE session = ?", (key,)).fetchall():
        remove_messages(connection, file)
    remove_session_rows(connection, key)
    connection.execute("UPDATE log_sessions SET derived = 0, generation = generation + 1 WHERE key = ?", (key,))
    connection.execute("UPDATE read_files SET size = -1 WHERE session = ?", (key,))


def forget_session(connection: sqlite3.Connection, key: int) -> None:
    """Remove all rows of a session, and the units of its incidents and notes."""
    remove_session_rows(connection, key)
    for table, column in (("read_files", "session"), ("log_sessions", "key")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))


def remove_messages(connection: sqlite3.Connection, file: int) -> None:
    """Remove the messages that were read from a file, in all channels."""
    sql = "SELECT DISTINCT id >> 34 FROM events WHERE file = ? AND kind = 'message'"
    for (channel,) in connection.execute(sql, (file,)).fetchall():
        remove_session_rows(connection, channel, where=f"file = {int(file)}")


def remove_everything(connection: sqlite3.Connection) -> None:
    """Forget all logs."""
    for table in (*TABLES, "read_files", "log_sessions"):
        connection.execute(f"DELETE FROM {table}")
    for table in ("events_fts", "evidence_fts"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")
    connection.execute("UPDATE meta SET value = '0' WHERE key = 'said_rows'")


def whole_rows(connection: sqlite3.Connection, table: str, key: int) -> list[tuple[Any, ...]]:
    """Return the rows of a session with all columns, as `put_rows` takes them."""
    sql = f"SELECT {_WRITTEN[table]} FROM {table} WHERE id >= ? AND id < ? ORDER BY id"
    return connection.execute(sql, id_range(key)).fetchall()


def row_counts(connection: sqlite3.Connection, key: int) -> dict[str, int]:
    """Return the number of a session's rows in each table."""
    return {
        table: connection.execute(f"SELECT count(*) FROM {table} WHERE id >= ? AND id < ?", id_range(key)).fetchone()[0]
        for table in TABLES
    }


def session_counts(connection: sqlite3.Connection, key: int) -> dict[str, int]:
    """Return the numbers of a session's commands, incidents and open incidents."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM events WHERE kind = 'command.start' AND id >= ?1 AND id < ?2), count(*), "
        "count(*) - count(fixed_by) FROM incidents WHERE id >= ?1 AND id < ?2",
        id_range(key),
    ).fetchone()
    return dict(zip(("commands", "incidents", "open"), row, strict=True))


def first_prompt(connection: sqlite3.Connection, key: int) -> str:
    """Return the request that was extracted from a session, else its first prompt, shortened; empty without one."""
    sql = """SELECT coalesce((SELECT nullif(json_extract(line, '$.first_prompt'), '') FROM log_sessions s
        JOIN provenance_sessions ON file = s.workspace || '/' || id || '.jsonl' WHERE key = ?),
        (SELECT text FROM events WHERE kind = 'prompt' AND id >= ? AND id < ? ORDER BY id LIMIT 1), '')"""
    return str(connection.execute(sql, (key, *id_range(key))).fetchone()[0][:200])


def speech_of(connection: sqlite3.Connection, row_ids: Iterable[int]) -> dict[int, tuple[Speaker, SpeechOrigin]]:
    """Return the speaker and origin of each row; for derived rows, those of their source."""
    by_table = ids_by_table(row_ids)
    found = dict.fromkeys(by_table.pop("pane_output", ()), (Speaker.TOOL, SpeechOrigin.TOOL_RESULT))
    found |= dict.fromkeys(by_table.pop("command_inputs", ()), (Speaker.USER, SpeechOrigin.TYPED))
    found |= dict.fromkeys(by_table.pop("file_edits", ()), (Speaker.AGENT, SpeechOrigin.WRITTEN))
    said = select_in(connection, "SELECT id, speaker, origin FROM events WHERE id IN", by_table.pop("events", []))
    for row_id, speaker, origin in said:  # rows of a shell have neither
        found[row_id] = (Speaker(speaker or Speaker.USER), SpeechOrigin(origin or SpeechOrigin.TYPED))
    for table, own in by_table.items():
        column = "about" if table == "working_notes" else "last_event"
        sources = dict(select_in(connection, f"SELECT id, {column} FROM {table} WHERE id IN", own))
        known = speech_of(connection, filter(None, sources.values()))
        unknown = (Speaker.AGENT, SpeechOrigin.WRITTEN)
        found |= {row_id: known.get(source, unknown) for row_id, source in sources.items()}
    return found


def rows_in(
    connection: sqlite3.Connection, table: str, first: int, end: int, *, where: str = "1", limit: int = -1,
    newest: bool = False,
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Return the rows with `first` <= id < `end`, in order; with `newest`, the last `limit` of them.

    `where` is trusted SQL, never text from outside.
    """
    rows = connection.execute(
        f"SELECT {_COLUMNS[table]} FROM {table} WHERE id >= ? AND id < ? AND {where} "
        f"ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?",
        (first, end, limit),
    ).fetchall()
    return rows[::-1] if newest else rows


def rows_by_id(connection: sqlite3.Connection, table: str, row_ids: Iterable[int]) -> list[tuple[Any, ...]]:
    """Return the rows with these ids, in their order, without those that are gone."""
    sql = f"SELECT {_COLUMNS[table]} FROM {table} WHERE id IN"
    return sorted(select_in(connection, sql, sorted(set(row_ids))))


def matching_ids(
    connection: sqlite3.Connection, words: Sequence[str], *, key: int | None = None, limit: int
) -> dict[str, list[int]]:
    """Return for each word the rows that contain it: the newest `limit` of each kind, in one session or all."""
    first, end = id_range(key) if key is not None else (0, 1 << 62)
    tests = "rowid >= ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
    said = "(rowid & 7 != 0 OR (SELECT kind FROM events WHERE id = rowid) IN ('command.start', 'prompt'))"
    found: dict[str, list[int]] = {word: [] for word in words}
    for word, ids in found.items():
        for sql in (
            f"SELECT rowid FROM events_fts WHERE events_fts MATCH 'text:' || ? AND {said} AND {tests}",
            f"SELECT rowid FROM evidence_fts WHERE evidence_fts MATCH ? AND {tests}",
        ):
            with suppress(sqlite3.OperationalError):  # a letter that FTS5 takes for a separator makes a phrase
                ids += (row[0] for row in connection.execute(sql, (match_word(word), first, end, limit)))
    return found


def known_files(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return the size and time of every file when it was read, by path; the size is -1 if some was left unread."""
    return {row[0]: row[1:] for row in connection.execute("SELECT path, size, mtime_ns FROM read_files")}


def read_states(connection: sqlite3.Connection, paths: Sequence[str]) -> dict[str, ReadState]:
    """Return the states of these files, by path, without those that were never read."""
    rows = select_in(connection, f"SELECT {_STATE_COLUMNS} FROM read_files WHERE path IN", list(paths))
    states = (ReadState(**dict(zip(ReadState.__slots__, row, strict=True))) for row in rows)
    return {state.path: state for state in states}


def put_state(connection: sqlite3.Connection, state: ReadState) -> int:
    """Write the state of a file that was read; return the key of the file."""
    values = [state.key or None, *(getattr(state, name) for name in ReadState.__slots__[1:])]
    sql = f"INSERT OR REPLACE INTO read_files ({_STATE_COLUMNS}) VALUES ({','.join('?' * len(values))})"
    key = connection.execute(sql, values).lastrowid  # RETURNING needs SQLite 3.35, which RHEL 9 lacks
    assert key is not None
    return key


def file_problems(connection: sqlite3.Connection) -> Mapping[str, str]:
    """Return the files that cannot be read, and why."""
    rows = connection.execute("SELECT path, problem FROM read_files WHERE problem NOT IN ('', 'excluded')")
    return dict(rows.fetchall())
