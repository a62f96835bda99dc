"""The tables of history.sql: which files of sessions have been read and how far, and the passages in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_FILE_COLUMNS = (
    "key, path, reader, agent, session, subagent, size, mtime_ns, taken, mark, family, exchanges, folder, workspace, "
    "title, problem"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFile:
    """A row of history_files: see there."""

    key: int = 0
    path: str
    reader: str
    agent: str
    session: str
    subagent: str = ""
    size: int = -1
    mtime_ns: int = 0
    taken: int = 0
    mark: str = ""
    family: str = ""
    exchanges: int = 0
    folder: str = ""
    workspace: str | None = None
    title: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """A passage to be written; `words` is what is indexed of it. A message has a channel and a hash of its own."""

    role: int
    number: int
    at: int
    place: bytes
    words: str
    channel: str = ""
    hash: str = ""


def known_states(connection: sqlite3.Connection) -> dict[str, tuple[int, int, int]]:
    """What sync has seen of every file: path -> (key, size, mtime in ns)."""
    rows = connection.execute("SELECT path, key, size, mtime_ns FROM history_files")
    return {path: (key, size, mtime_ns) for path, key, size, mtime_ns in rows}


def files_where(connection: sqlite3.Connection, condition: str, parameters: Sequence[object]) -> list[HistoryFile]:
    """The files for which an SQL condition holds, in the order in which they were first read."""
    rows = connection.execute(f"SELECT {_FILE_COLUMNS} FROM history_files WHERE {condition} ORDER BY key", parameters)
    names = _FILE_COLUMNS.split(", ")
    return [HistoryFile(**dict(zip(names, row, strict=True))) for row in rows]


def files_at(connection: sqlite3.Connection, paths: Sequence[str]) -> list[HistoryFile]:
    """The files at these paths."""
    found = []
    for start in range(0, len(paths), 500):
        some = paths[start : start + 500]
        found += files_where(connection, f"path IN ({','.join('?' * len(some))})", some)
    return found


def family_members(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Which files begin with the same record: its uuid -> {path: bytes read}."""
    families: dict[str, dict[str, int]] = {}
    rows = connection.execute("SELECT family, path, taken FROM history_files WHERE family != '' ORDER BY key")
    for family, path, taken in rows:
        families.setdefault(family, {})[path] = taken
    return families


def folders_without_workspace(connection: sqlite3.Connection) -> list[str]:
    """The folders of files whose workspace has not been looked up."""
    return [row[0] for row in connection.execute("SELECT DISTINCT folder FROM history_files WHERE workspace IS NULL")]


def name_workspaces(connection: sqlite3.Connection, identities: Mapping[str, str]) -> None:
    """Write the workspace of each of these folders to the files that have none yet."""
    connection.executemany(
        "UPDATE history_files SET workspace = ? WHERE folder = ? AND workspace IS NULL",
        [(identity, folder) for folder, identity in identities.items()],
    )


def next_file_key(connection: sqlite3.Connection) -> int:
    """The key for the next new file."""
    return int(connection.execute("SELECT coalesce(max(key), 0) + 1 FROM history_files").fetchone()[0])


def put_file(connection: sqlite3.Connection, file: HistoryFile) -> None:
    """Write the state of a file, new or known."""
    names = _FILE_COLUMNS.split(", ")
    marks = ",".join("?" * len(names))
    values = [getattr(file, name) for name in names]
    connection.execute(f"INSERT OR REPLACE INTO history_files ({_FILE_COLUMNS}) VALUES ({marks})", values)


def put_passages(connection: sqlite3.Connection, file: int, passages: Iterable[NewPassage]) -> int:
    """Write passages of a file; returns how many. A message that its channel already has is left out."""
    key = int(connection.execute("SELECT coalesce(max(key), 0) FROM passages").fetchone()[0])
    key = max(key, int(connection.execute("SELECT value FROM meta WHERE key = 'history_last'").fetchone()[0]))
    first = key
    rows: list[tuple[object, ...]] = []
    words: list[tuple[int, str]] = []
    for passage in passages:
        number = passage.number
        if passage.channel:
            taken = _message_number(connection, passage, key + 1)
            if taken is None:
                continue
            number = taken
        key += 1
        rows.append((key, file, passage.role, number, passage.at, passage.place))
        words.append((key, passage.words))
    connection.executemany("INSERT INTO passages (key, file, role, number, at, place) VALUES (?,?,?,?,?,?)", rows)
    connection.executemany("INSERT INTO passages_fts (rowid, text) VALUES (?,?)", words)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'history_last'", (str(key),))
    return key - first


def remove_passages(connection: sqlite3.Connection, file: int) -> int:
    """Take the passages of a file out of the index; returns how many there were."""
    connection.execute(
        "DELETE FROM messages WHERE passage IN (SELECT key FROM passages WHERE file = ? AND role = 2)", (file,)
    )
    return connection.execute("DELETE FROM passages WHERE file = ?", (file,)).rowcount


def remove_file(connection: sqlite3.Connection, file: int) -> int:
    """Take a file and its passages out of the index; returns how many passages there were."""
    removed = remove_passages(connection, file)
    connection.execute("DELETE FROM history_files WHERE key = ?", (file,))
    return removed


def clear(connection: sqlite3.Connection, rules: str) -> None:
    """Forget all history; `rules` names the way of reading it that holds from now on."""
    for table in ("messages", "passages", "history_files"):
        connection.execute(f"DELETE FROM {table}")
    connection.execute("INSERT INTO passages_fts (passages_fts) VALUES ('delete-all')")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('history_rules', ?), ('history_last', '0')", (rules,))


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """A fact about the index."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def passage_counts(connection: sqlite3.Connection) -> tuple[int, int]:
    """(passages, rows of the full text that no passage stands behind any more)."""
    live = int(connection.execute("SELECT count(*) FROM passages").fetchone()[0])
    return live, int(meta(connection, "history_last") or 0) - live


def _message_number(connection: sqlite3.Connection, passage: NewPassage, key: int) -> int | None:
    """The next number of the message's channel; None where the channel has the message."""
    channel = (passage.channel,)
    row = connection.execute("SELECT coalesce(max(number), 0) FROM messages WHERE channel = ?", channel).fetchone()
    number = int(row[0]) + 1
    written = connection.execute(
        "INSERT OR IGNORE INTO messages (channel, hash, number, passage) VALUES (?,?,?,?)",
        (passage.channel, passage.hash, number, key),
    )
    return number if written.rowcount else None
