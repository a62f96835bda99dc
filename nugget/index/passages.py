"""Ask the full text of history: which passages hold which words, at a million of them.

FTS5's own ranking reads every row of every word that it is given, which costs too much for words that stand
everywhere: rows are taken newest first until there are enough, and whoever asks ranks them by their text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from nugget.index.queries import select_in

_COLUMNS = (
    "p.key, p.role, p.number, p.at, p.place, f.key, f.path, f.reader, f.agent, f.session, f.subagent, f.folder, "
    "f.workspace, f.title, f.exchanges"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageFilter:
    """Which passages may be found. Empty tuples and None filter nothing; `since` and `until` are in epoch seconds.

    `mark` is a word that every passage wanted was indexed with; `sessions` are ids or their beginnings.
    """

    roles: tuple[int, ...] = ()
    mark: str = ""
    since: int | None = None
    until: int | None = None
    workspace: str | None = None
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassage:
    """A passage as it stands in the index, with what is known of its file."""

    key: int
    role: int
    number: int
    at: int
    place: bytes
    file: int
    path: str
    reader: str
    agent: str
    session: str
    subagent: str
    folder: str
    workspace: str
    title: str
    exchanges: int


class Candidate(NamedTuple):
    """What must be known of a passage to look at the bytes of its file; a plain tuple, as there are thousands."""

    key: int
    role: int
    at: int
    place: bytes
    path: str
    reader: str


def count_matches(connection: sqlite3.Connection, match: str, *, most: int) -> int:
    """How many rows match, counted no further than `most`."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM passages_fts WHERE passages_fts MATCH ? LIMIT ?)"
    return int(connection.execute(sql, (match, most)).fetchone()[0])


def last_key(connection: sqlite3.Connection) -> int:
    """The key of the newest passage: about how many there are."""
    return int(connection.execute("SELECT coalesce(max(key), 0) FROM passages").fetchone()[0])


def share_of_newest(connection: sqlite3.Connection, match: str, *, rows: int) -> float:
    """In what share of the newest `rows` something stands: an estimate for words that are too common to be counted."""
    sql = "SELECT count(*) FROM passages_fts WHERE passages_fts MATCH ? AND rowid > ?"
    found = int(connection.execute(sql, (match, last_key(connection) - rows)).fetchone()[0])
    return found / max(1, rows)


def newest_matches(connection: sqlite3.Connection, match: str, filter_: PassageFilter, limit: int) -> list[int]:
    """The keys of the newest passages that match, newest first; none where `match` is empty."""
    return [key for (key,) in islice(_matches(connection, "p.key", match, filter_), limit)]


def newest(connection: sqlite3.Connection, filter_: PassageFilter, limit: int) -> list[int]:
    """The keys of the newest passages that a filter admits, newest first; its mark says nothing that roles do not."""
    tests, parameters = _tests(filter_)
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    sql = f"SELECT p.key FROM passages p{where} ORDER BY p.at DESC, p.key DESC LIMIT ?"
    return [row[0] for row in connection.execute(sql, (*parameters, limit))]


def each_match(connection: sqlite3.Connection, match: str, filter_: PassageFilter) -> Iterator[Candidate]:
    """All passages that match, newest first, found as they are asked for; none for an empty `match`."""
    columns, files = "p.key, p.role, p.at, p.place, f.path, f.reader", "JOIN history_files f ON f.key = p.file"
    return map(Candidate._make, _matches(connection, columns, match, filter_, joined=files))


def _matches(
    connection: sqlite3.Connection, columns: str, match: str, filter_: PassageFilter, *, joined: str = ""
) -> Iterator[tuple[Any, ...]]:
    if not match:
        return
    if filter_.mark:
        match = f'({match}) AND "{filter_.mark}"'
    tests, parameters = _tests(filter_)
    sql = (
        f"SELECT {columns} FROM passages_fts CROSS JOIN passages p ON p.key = passages_fts.rowid {joined}"
        f" WHERE {' AND '.join(['passages_fts MATCH ?', *tests])} ORDER BY passages_fts.rowid DESC"
    )
    with closing(connection.execute(sql, (match, *parameters))) as rows:
        yield from rows


def passages_by_key(connection: sqlite3.Connection, keys: Collection[int]) -> dict[int, StoredPassage]:
    """The passages of these keys."""
    sql = f"SELECT {_COLUMNS} FROM passages p JOIN history_files f ON f.key = p.file WHERE p.key IN"
    return {row[0]: _stored(row) for row in select_in(connection, sql, list(keys))}


def passages_around(
    connection: sqlite3.Connection, session: str, subagent: str, roles: Sequence[int], numbers: tuple[int, int]
) -> list[StoredPassage]:
    """The passages of a session whose exchange numbers lie between two, both included, in order."""
    marks = ",".join("?" * len(roles))
    sql = (
        f"SELECT {_COLUMNS} FROM history_files f JOIN passages p ON p.file = f.key "
        f"WHERE f.session = ? AND f.subagent = ? AND p.role IN ({marks}) AND p.number BETWEEN ? AND ? ORDER BY p.key"
    )
    return [_stored(row) for row in connection.execute(sql, (session, subagent, *roles, *numbers))]


def messages_of(connection: sqlite3.Connection, channel: str) -> list[StoredPassage]:
    """The messages of a channel in the order in which they were written."""
    sql = (
        f"SELECT {_COLUMNS} FROM messages m JOIN passages p ON p.key = m.passage JOIN history_files f "
        "ON f.key = p.file WHERE m.channel = ? ORDER BY p.at, m.number"
    )
    return [_stored(row) for row in connection.execute(sql, (channel,))]


def channels_of(connection: sqlite3.Connection, keys: Collection[int]) -> dict[int, str]:
    """The channel of each of these messages: passage key -> channel."""
    return dict(select_in(connection, "SELECT passage, channel FROM messages WHERE passage IN", list(keys)))


def sessions_like(connection: sqlite3.Connection, prefix: str) -> list[str]:
    """The sessions whose id begins with this, at most a few."""
    sql = (
        "SELECT DISTINCT session FROM history_files WHERE session >= ? AND session < ? AND reader != 'channel' LIMIT 5"
    )
    return [row[0] for row in connection.execute(sql, (prefix, prefix + "\U0010ffff"))]


def _tests(filter_: PassageFilter) -> tuple[list[str], list[object]]:
    """What SQL tests of a passage, all but its mark."""
    tests, parameters = list[str](), list[object]()
    if filter_.roles:
        tests.append(f"p.role IN ({','.join(map(str, map(int, filter_.roles)))})")
    if filter_.since is not None:
        tests.append("p.at >= ?")
        parameters.append(filter_.since)
    if filter_.until is not None:
        tests.append("p.at > 0 AND p.at < ?")
        parameters.append(filter_.until)
    if filter_.workspace is not None:
        tests.append("p.file IN (SELECT key FROM history_files WHERE workspace = ?)")
        parameters.append(filter_.workspace)
    if filter_.sessions:
        either = " OR ".join(["session >= ? AND session < ?"] * len(filter_.sessions))
        tests.append(f"p.file IN (SELECT key FROM history_files WHERE {either})")
        for session in filter_.sessions:
            parameters += [session, session + "\U0010ffff"]
    return tests, parameters


def _stored(row: Sequence[object]) -> StoredPassage:
    names = StoredPassage.__slots__
    values = dict(zip(names, row, strict=True))
    return StoredPassage(**values | {"workspace": values["workspace"] or ""})  # type: ignore[arg-type]
