"""Units, chunks, relations and files in an embedded index: read, add and remove them.

Plain functions over a connection. Callers that write hold a write transaction.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from nugget.index import UNIT_COLUMNS, StoredChunk, chunk_columns, unit_columns, units_of
from nugget.models import Chunk, FileState, Problem, Scope, Severity, SourceName, Unit
from nugget.text import printable

_IN_ONE_QUERY = 500
_IN_A_ROW = 500
"""The documents in one row of `documents`; two rows fill a page."""
CHUNK_COLUMNS = "key, unit_key, position, heading_breadcrumb, content"


def units_by_key(connection: sqlite3.Connection, keys: Iterable[int]) -> dict[int, Unit]:
    """Return the units with these keys."""
    rows = list(select_in(connection, f"SELECT key, {UNIT_COLUMNS} FROM units WHERE key IN", list(keys)))
    sql = "SELECT source_key, target_id, relation_type FROM relationships WHERE source_key IN"
    return units_of(rows, select_in(connection, sql, [row[0] for row in rows]))


def unit_keys(connection: sqlite3.Connection, ids: Iterable[str], source: SourceName) -> dict[str, int]:
    """Return the keys of units by id, within one source."""
    return dict(select_in(connection, "SELECT id, key FROM units WHERE source = ? AND id IN", list(ids), (source,)))


def chunks_of_units(connection: sqlite3.Connection, keys: Iterable[int]) -> dict[int, list[StoredChunk]]:
    """Return all chunks of these units, in order."""
    found: dict[int, list[StoredChunk]] = {}
    for row in select_in(connection, f"SELECT {CHUNK_COLUMNS} FROM chunks WHERE unit_key IN", list(keys)):
        found.setdefault(row[1], []).append(StoredChunk(*row))
    return {key: sorted(chunks, key=lambda chunk: chunk.position) for key, chunks in found.items()}


def file_states(
    connection: sqlite3.Connection, source: SourceName, paths: Sequence[str] | None = None
) -> dict[str, FileState]:
    """Return the states of a source's files as last synced, or of these paths only."""
    sql = "SELECT path, hash, size, mtime_ns, unit_id, problems FROM files WHERE source = ?"
    rows = connection.execute(sql, (source,)) if paths is None else select_in(
        connection, f"{sql} AND path IN", list(paths), (source,)
    )  # fmt: skip
    return {
        path: FileState(
            path=path, hash=hash_, size=size, mtime_ns=mtime_ns, unit_id=unit_id,
            problems=tuple(
                Problem(path=printable(path), reason=p["reason"], line=p["line"], severity=Severity(p["severity"]))
                for p in json.loads(problems)
            )
        )
        for path, hash_, size, mtime_ns, unit_id, problems in rows
    }  # fmt: skip


def file_marks(connection: sqlite3.Connection, source: SourceName) -> dict[str, tuple[int, int]]:
    """Return the size and time (ns) of a source's files as last synced, by path."""
    rows = connection.execute("SELECT path, size, mtime_ns FROM files WHERE source = ?", (source,))
    return {path: (size, mtime_ns) for path, size, mtime_ns in rows}


def problems(connection: sqlite3.Connection, source: SourceName) -> list[Problem]:
    """Return all problems of a source's files, by path."""
    paths = connection.execute("SELECT path FROM files WHERE source = ? AND problems != '[]' ORDER BY path", (source,))
    states = file_states(connection, source, [row[0] for row in paths])
    return [problem for path in sorted(states) for problem in states[path].problems]


def paths_claiming(connection: sqlite3.Connection, source: SourceName, ids: Sequence[str]) -> list[str]:
    """Return the files that claim one of these unit ids."""
    rows = select_in(connection, "SELECT path FROM files WHERE source = ? AND unit_id IN", ids, (source,))
    return sorted(row[0] for row in rows)


def unit_path(connection: sqlite3.Connection, source: SourceName, unit_id: str) -> str | None:
    """Return the file that an indexed unit came from."""
    row = connection.execute("SELECT path FROM units WHERE source = ? AND id = ?", (source, unit_id)).fetchone()
    return None if row is None else row[0]


def unit_ids_of_path(connection: sqlite3.Connection, source: SourceName, path: str) -> list[str]:
    """Return the ids of the units that came from a file."""
    return [row[0] for row in connection.execute("SELECT id FROM units WHERE source = ? AND path = ?", (source, path))]


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return a fact about the index as a whole."""
    return next((str(row[0]) for row in connection.execute("SELECT value FROM meta WHERE key = ?", (key,))), None)


def select_in(
    connection: sqlite3.Connection, sql: str, values: Sequence[object],
    parameters: Sequence[object] = ()
) -> Iterator[Any]:  # fmt: skip
    """Yield the rows of a query that ends in `IN`, for any number of values."""
    for start in range(0, len(values), _IN_ONE_QUERY):
        part = values[start : start + _IN_ONE_QUERY]
        yield from connection.execute(f"{sql} ({','.join('?' * len(part))})", (*parameters, *part))


def put_unit(connection: sqlite3.Connection, unit: Unit, chunks: Sequence[Chunk]) -> int:
    """Add a unit without vectors, or replace the one with the same source and id; return its key.

    Raises ValueError for a unit of memory in an index other than its identity's.
    """
    if unit.source is SourceName.MEMORY and not unit.id.startswith(f"{meta(connection, 'identity') or ''}/"):
        raise ValueError("a unit of memory belongs only in the index of its identity")
    remove_unit(connection, unit.source, unit.id)
    scope = unit.scope or Scope()
    details = {"evidence": [asdict(entry) for entry in unit.evidence], "alternatives": unit.alternatives}
    key = connection.execute(
        f"INSERT INTO units ({UNIT_COLUMNS}) VALUES ({','.join('?' * 18)})",
        (
            unit.source, unit.id, unit.path, unit.title, unit.type, unit.domain, _json(unit.tags), unit.confidence,
            unit.origin, *(str(day) if day else None for day in (unit.created, unit.last_modified, unit.stale_after)),
            scope.repo, scope.path, scope.symbol, unit.session, _json(details), unit.body
        )
    ).lastrowid  # fmt: skip
    assert key is not None
    connection.executemany(
        "INSERT INTO relationships VALUES (?,?,?)", [(key, edge.id, edge.relation) for edge in unit.related]
    )
    first = connection.execute("SELECT coalesce(max(key), 0) + 1 FROM chunks").fetchone()[0]
    rows = list(enumerate(chunks, start=first))
    connection.executemany(
        "INSERT INTO chunks VALUES (?,?,?,?,?)", [(k, key, c.position, c.breadcrumb, c.text) for k, c in rows]
    )
    connection.executemany(
        "INSERT INTO chunks_fts (rowid, title, body, parts) VALUES (?,?,?,?)",
        [(k, *chunk_columns(unit.title, unit.tags, unit.body, c.breadcrumb, c.text)) for k, c in rows],
    )
    connection.execute(
        "INSERT INTO units_fts (rowid, title, body, parts) VALUES (?,?,?,?)",
        (key, *unit_columns(unit.title, unit.tags, unit.body)),
    )
    _note_documents(connection, "chunks", [k for k, _ in rows], key)
    _note_documents(connection, "units", [key], key)
    return key


def remove_unit(connection: sqlite3.Connection, source: SourceName, unit_id: str) -> None:
    """Remove a unit with everything that belongs to it, if it exists."""
    row = connection.execute(
        "SELECT key, title, tags, content FROM units WHERE source = ? AND id = ?", (source, unit_id)
    ).fetchone()
    if row is None:
        return
    key, title, tags, body = row[0], row[1], json.loads(row[2]), row[3]
    sql = "SELECT key, heading_breadcrumb, content FROM chunks WHERE unit_key = ? ORDER BY key"
    chunks = connection.execute(sql, (key,)).fetchall()
    # A contentless FTS5 table can delete a row only with the exact text that was indexed.
    connection.executemany(
        "INSERT INTO chunks_fts (chunks_fts, rowid, title, body, parts) VALUES ('delete',?,?,?,?)",
        [(k, *chunk_columns(title, tags, body, breadcrumb, text)) for k, breadcrumb, text in chunks],
    )
    connection.execute(
        "INSERT INTO units_fts (units_fts, rowid, title, body, parts) VALUES ('delete',?,?,?,?)",
        (key, *unit_columns(title, tags, body)),
    )
    _note_documents(connection, "chunks", [chunk[0] for chunk in chunks], key)
    _note_documents(connection, "units", [key], key)
    for table, where in (
        ("vectors", "chunk_key IN (SELECT key FROM chunks WHERE unit_key = ?)"),
        ("signs", "chunk_key IN (SELECT key FROM chunks WHERE unit_key = ?)"), ("unit_vectors", "unit_key = ?"),
        ("chunks", "unit_key = ?"), ("relationships", "source_key = ?"), ("units", "key = ?")
    ):  # fmt: skip
        connection.execute(f"DELETE FROM {table} WHERE {where}", (key,))


def _note_documents(connection: sqlite3.Connection, kind: str, keys: Sequence[int], unit: int) -> None:
    """Note the lengths of these documents of a unit, which have consecutive keys, or that they are gone."""
    sql = f"SELECT id, sz FROM {kind}_fts_docsize WHERE id BETWEEN ? AND ?"
    sizes = dict(connection.execute(sql, (keys[0], keys[-1]))) if keys else {}
    for row, its in groupby(keys, lambda key: key // _IN_A_ROW):
        sql = "SELECT words, units FROM documents WHERE kind = ? AND number = ?"
        known = connection.execute(sql, (kind, row)).fetchone() or [bytes(4 * _IN_A_ROW)] * 2
        words, units = (array("i", column) for column in known)
        for key in its:
            words[key % _IN_A_ROW], units[key % _IN_A_ROW] = (_length(sizes[key]) + 1 if key in sizes else 0), unit
        changed = (kind, row, words.tobytes(), units.tobytes())
        connection.execute("INSERT OR REPLACE INTO documents VALUES (?,?,?,?)", changed)


def _length(sizes: bytes) -> int:
    """Return the sum of numbers in SQLite's varint format, seven bits per byte."""
    total = number = 0
    for byte in sizes:
        number = number << 7 | byte & 127
        if byte < 128:
            total, number = total + number, 0
    return total


def read_documents(connection: sqlite3.Connection, kind: str) -> tuple[Any, ...]:
    """Return by key one more than each document's length in terms (0 for none), and its unit.

    The number of documents and their mean length follow.
    """
    import numpy as np

    rows = connection.execute("SELECT words, units FROM documents WHERE kind = ? ORDER BY number", (kind,)).fetchall()
    words, units = (np.frombuffer(b"".join(row[at] for row in rows), np.int32) for at in (0, 1))
    count = int(np.count_nonzero(words))
    return words, units, count, (words.sum(dtype=np.int64) - count) / max(count, 1)


def put_file(connection: sqlite3.Connection, source: SourceName, file: FileState) -> None:
    """Record the state of a file."""
    problems = json.dumps([{"line": p.line, "reason": p.reason, "severity": p.severity} for p in file.problems])
    row = source, file.path, file.hash, file.size, file.mtime_ns, file.unit_id, problems
    connection.execute("INSERT OR REPLACE INTO files VALUES (?,?,?,?,?,?,?)", row)


def remove_file(connection: sqlite3.Connection, source: SourceName, path: str) -> None:
    """Forget a file that is gone."""
    connection.execute("DELETE FROM files WHERE source = ? AND path = ?", (source, path))


def put_meta(connection: sqlite3.Connection, **values: str) -> None:
    """Set facts about the index as a whole, such as the embedding model or the synced state."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", list(values.items()))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def learned_in(connection: sqlite3.Connection, sessions: Sequence[str], *, limit: int) -> list[tuple[str, str]]:
    """Return (id, title) of the brain's newest units learned in one of these sessions."""
    rows = connection.execute(
        "SELECT id, title FROM units WHERE source = 'brain' AND session IN (SELECT value FROM json_each(?)) "
        "ORDER BY coalesce(created, last_modified) DESC, confidence DESC, id LIMIT ?", (json.dumps(sessions), limit)
    )  # fmt: skip
    return rows.fetchall()
