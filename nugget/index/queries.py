"""Reading the index: units, chunks, edges and term statistics. Plain functions over a connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

from nugget.index.fulltext import COLUMN_WEIGHTS, Terms
from nugget.models import (
    FileState,
    Filter,
    Origin,
    Problem,
    Relation,
    RelationType,
    Scope,
    Severity,
    SourceName,
    Unit,
)
from nugget.models.speech import evidence_of
from nugget.text import folded, printable

_IN_ONE_QUERY = 500
_WEIGHTS = ", ".join(map(str, COLUMN_WEIGHTS))


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it stands in the index."""

    key: int
    unit_key: int
    position: int
    breadcrumb: str
    heading_level: int
    text: str


class Edge(NamedTuple):
    """A relation between two indexed units; `outward` when it was written in the unit that was asked about."""

    unit_key: int
    neighbour_key: int
    relation: RelationType
    outward: bool


def units_by_key(connection: sqlite3.Connection, keys: Iterable[int]) -> dict[int, Unit]:
    """Return the units of these keys. Raises DatabaseError for values that no sync wrote."""
    rows = select_in(connection, f"SELECT key, {_UNIT_COLUMNS} FROM units WHERE key IN", list(keys))
    found = {row[0]: row[1:] for row in rows}
    edges: dict[int, list[Relation]] = {}
    sql = "SELECT source_key, target_id, relation_type FROM relationships WHERE source_key IN"
    with _as_written():
        for key, target, relation in select_in(connection, sql, list(found)):
            edges.setdefault(key, []).append(Relation(id=target, relation=RelationType(relation)))
        return {key: _unit(row, edges.get(key, [])) for key, row in found.items()}


def unit_keys(connection: sqlite3.Connection, ids: Iterable[str], source: SourceName) -> dict[str, int]:
    """Return the keys of units by id, within one source."""
    rows = select_in(connection, "SELECT id, key FROM units WHERE source = ? AND id IN", list(ids), (source,))
    return {row[0]: row[1] for row in rows}


def unit_ids(connection: sqlite3.Connection, source: SourceName) -> list[str]:
    """Return the ids of all units of a source, sorted."""
    return [row[0] for row in connection.execute("SELECT id FROM units WHERE source = ? ORDER BY id", (source,))]


def chunks_of_units(connection: sqlite3.Connection, keys: Iterable[int]) -> dict[int, list[StoredChunk]]:
    """Return all chunks of these units, each list in the order of the unit."""
    found: dict[int, list[StoredChunk]] = {}
    for row in select_in(connection, f"SELECT {CHUNK_COLUMNS} FROM chunks WHERE unit_key IN", list(keys)):
        found.setdefault(row[1], []).append(StoredChunk(*row))
    return {key: sorted(chunks, key=lambda chunk: chunk.position) for key, chunks in found.items()}


def units_of_chunks(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, int]:
    """Return the unit of each of these chunks: chunk key -> unit key."""
    return dict(select_in(connection, "SELECT key, unit_key FROM chunks WHERE key IN", keys))


def search_text(
    connection: sqlite3.Connection, table: str, terms: Terms, k: int, allowed_sql: str, parameters: Sequence[object]
) -> list[tuple[int, float]]:
    """Return the k best rows of a full-text table for any of the terms as (rowid, BM25 score, higher is better)."""
    if not terms.match:
        return []
    where = f"AND +rowid IN ({allowed_sql})" if allowed_sql else ""  # the plus: match first, not row by row
    rows = connection.execute(
        # `ORDER BY rank` takes twice as long.
        f"SELECT rowid, -bm25({table}, {_WEIGHTS}) AS score FROM {table} WHERE {table} MATCH ? {where} "
        "ORDER BY score DESC LIMIT ?",
        (terms.match, *parameters, k),
    )
    return list(rows)


def vector_size(connection: sqlite3.Connection) -> int | None:
    """Return the size in bytes of a vector of the index; None if it holds none."""
    row = connection.execute("SELECT length(embedding) FROM vectors LIMIT 1").fetchone()
    return int(row[0]) if row else None


def allowed_chunks(filter_: Filter) -> tuple[str, list[object]]:
    """A SELECT of the keys of the chunks that a filter admits, with its parameters; an empty text for no filter."""
    conditions, parameters = conditions_of(filter_)
    if not conditions:
        return "", []
    return f"SELECT c.key FROM chunks c JOIN units u ON u.key = c.unit_key WHERE {conditions}", parameters


def conditions_of(filter_: Filter) -> tuple[str, list[object]]:
    """Return the SQL tests of a filter on units `u`, with their parameters; an empty text for no filter."""
    conditions: list[str] = []
    parameters: list[object] = []
    for column, values in (("source", filter_.sources), ("type", filter_.types)):
        if values:
            conditions.append(f"u.{column} IN ({','.join('?' * len(values))})")
            parameters += values
    if filter_.domains:
        either = " OR ".join(["u.domain = ? OR substr(u.domain, 1, ?) = ?"] * len(filter_.domains))
        conditions.append(f"({either})")
        for domain in filter_.domains:
            parameters += [domain, len(domain) + 1, f"{domain}/"]
    for tag in filter_.tags:
        conditions.append("EXISTS (SELECT 1 FROM json_each(u.tags) WHERE lower(value) = lower(?))")
        parameters.append(tag)
    if filter_.paths:
        in_either = ["substr(lower(u.{0}), 1, ?) = ?", "instr(lower(u.{0}), ?) > 0"]
        one = " OR ".join(part.format(column) for column in ("path", "scope_path") for part in in_either)
        conditions.append(f"({' OR '.join([one] * len(filter_.paths))})")
        for path in filter_.paths:
            beginning = path.lower().lstrip("/")
            parameters += [len(beginning), beginning, f"/{beginning}"] * 2
    if filter_.sessions:
        conditions.append(f"({' OR '.join(['substr(u.session, 1, ?) = ?'] * len(filter_.sessions))})")
        for session in filter_.sessions:
            parameters += [len(session), session]
    if filter_.since:
        conditions.append("max(coalesce(u.last_modified, ''), coalesce(u.created, '')) >= ?")
        parameters.append(filter_.since.isoformat())
    if filter_.until:
        conditions.append("max(coalesce(u.last_modified, ''), coalesce(u.created, '')) BETWEEN '0' AND ?")
        parameters.append(filter_.until.isoformat())
    if filter_.min_confidence > 0:
        conditions.append("u.confidence >= ?")
        parameters.append(filter_.min_confidence)
    if filter_.match:
        conditions.append("u.key IN (SELECT rowid FROM units_fts WHERE units_fts MATCH ?)")
        parameters.append(filter_.match)
    return " AND ".join(conditions), parameters


def edges_of(connection: sqlite3.Connection, keys: Sequence[int]) -> list[Edge]:
    """Return the edges of these units in both directions, to units that are in the index.

    Raises DatabaseError for values that no sync wrote.
    """
    outward = select_in(
        connection,
        """SELECT r.source_key, t.key, r.relation_type FROM relationships r
           JOIN units s ON s.key = r.source_key JOIN units t ON t.id = r.target_id AND t.source = s.source
           WHERE r.source_key IN""",
        list(keys),
    )
    inward = select_in(
        connection,
        """SELECT t.key, r.source_key, r.relation_type FROM units t
           JOIN relationships r ON r.target_id = t.id JOIN units s ON s.key = r.source_key AND s.source = t.source
           WHERE t.key IN""",
        list(keys),
    )
    with _as_written():
        return [
            Edge(unit, neighbour, RelationType(relation), is_outward)
            for rows, is_outward in ((outward, True), (inward, False))
            for unit, neighbour, relation in rows
            if unit != neighbour
        ]


def superseded_by(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, str]:
    """For each of these units that a newer one supersedes: the id of the newer one."""
    rows = select_in(
        connection,
        """SELECT t.key, s.id FROM units t
           JOIN relationships r ON r.target_id = t.id AND r.relation_type = 'supersedes'
           JOIN units s ON s.key = r.source_key AND s.source = t.source AND s.key != t.key
           WHERE t.key IN""",
        list(keys),
    )
    return dict(rows)


def file_states(
    connection: sqlite3.Connection, source: SourceName, paths: Sequence[str] | None = None
) -> dict[str, FileState]:
    """Return what sync has seen of the files of a source, or of these paths only."""
    columns = "SELECT path, hash, size, mtime_ns, unit_id, problems FROM files WHERE source = ?"
    if paths is None:
        rows: Iterator[Any] = iter(connection.execute(columns, (source,)))
    else:
        rows = select_in(connection, f"{columns} AND path IN", list(paths), (source,))
    return {str(row[0]): _file_state(row) for row in rows}


def file_marks(connection: sqlite3.Connection, source: SourceName) -> dict[str, tuple[int, int]]:
    """Size and time (ns) of the files of a source when sync saw them last, by path."""
    rows = connection.execute("SELECT path, size, mtime_ns FROM files WHERE source = ?", (source,))
    return {path: (size, mtime_ns) for path, size, mtime_ns in rows}


def problems(connection: sqlite3.Connection, source: SourceName) -> list[Problem]:
    """Everything that is wrong with the files of a source, by path."""
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


def has_source(connection: sqlite3.Connection, source: SourceName) -> bool:
    """Return whether there is any unit of a source."""
    return connection.execute("SELECT 1 FROM units WHERE source = ? LIMIT 1", (source,)).fetchone() is not None


def units_named(connection: sqlite3.Connection, words: Sequence[str], filter_: Filter) -> list[tuple[int, str]]:
    """The units in whose path every one of these `folded` words stands, in any case of letters, as (key, path)."""
    conditions, parameters = conditions_of(filter_)
    plain = [word for word in words if word.isascii()]  # SQLite knows no other small letters
    tests = ["instr(lower(u.path), ?) > 0"] * len(plain) + ([conditions] if conditions else [])
    rows = connection.execute(
        f"SELECT u.key, u.path FROM units u WHERE {' AND '.join(tests) or 'true'} ORDER BY u.path",
        (*plain, *parameters),
    )
    others = [word for word in words if not word.isascii()]
    return [(key, path) for key, path in rows if not others or all(word in folded(path) for word in others)]


def newest_units(connection: sqlite3.Connection, filter_: Filter, limit: int) -> list[int]:
    """Return the keys of the units that a filter admits, what changed last first."""
    conditions, parameters = conditions_of(filter_)
    rows = connection.execute(
        f"SELECT u.key FROM units u WHERE {conditions or 'true'} "
        "ORDER BY max(coalesce(u.last_modified, ''), coalesce(u.created, '')) DESC, u.id LIMIT ?",
        (*parameters, limit),
    )
    return [row[0] for row in rows]


def unit_ids_of_path(connection: sqlite3.Connection, source: SourceName, path: str) -> list[str]:
    """Return the ids of the units that came from a file."""
    return [row[0] for row in connection.execute("SELECT id FROM units WHERE source = ? AND path = ?", (source, path))]


def meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return a fact about the index as a whole."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def select_in(
    connection: sqlite3.Connection, sql: str, values: Sequence[object],
    parameters: Sequence[object] = (),
) -> Iterator[Any]:  # fmt: skip
    """Yield the rows of a query that ends in `IN`, for any number of values."""
    for start in range(0, len(values), _IN_ONE_QUERY):
        part = values[start : start + _IN_ONE_QUERY]
        yield from connection.execute(f"{sql} ({','.join('?' * len(part))})", (*parameters, *part))


@contextmanager
def _as_written() -> Iterator[None]:
    """Report values outside the vocabulary as damage, for which the index is rebuilt."""
    try:
        yield
    except ValueError as error:
        raise sqlite3.DatabaseError(f"it holds values that no sync wrote ({error})") from error


CHUNK_COLUMNS = "key, unit_key, position, heading_breadcrumb, heading_level, content"
_UNIT_COLUMNS = (
    "source, id, path, title, type, domain, tags, confidence, origin, created, last_modified, stale_after, "
    "scope_repo, scope_path, scope_symbol, session, details, content"
)


def _unit(row: Any, related: Sequence[Relation]) -> Unit:
    (source, id_, path, title, type_, domain, tags, confidence, origin, created, last_modified, stale_after,
     repo, scope_path, symbol, session, details_json, content) = row  # fmt: skip
    details = json.loads(details_json)
    has_scope = repo or scope_path or symbol
    return Unit(
        id=id_, source=SourceName(source), type=type_, title=title, body=content, path=path, domain=domain,
        tags=tuple(json.loads(tags)), confidence=confidence, origin=Origin(origin) if origin else None,
        related=tuple(related), scope=Scope(repo=repo, path=scope_path, symbol=symbol) if has_scope else None,
        session=session,
        evidence=tuple(map(evidence_of, details["evidence"])),
        alternatives=tuple(details["alternatives"]),
        created=_date(created), last_modified=_date(last_modified), stale_after=_date(stale_after),
    )  # fmt: skip


def _file_state(row: Any) -> FileState:
    path, hash_, size, mtime_ns, unit_id, problems = row
    return FileState(
        path=path, hash=hash_, size=size, mtime_ns=mtime_ns, unit_id=unit_id,
        problems=tuple(
            Problem(path=printable(path), reason=p["reason"], line=p["line"], severity=Severity(p["severity"]))
            for p in json.loads(problems)
        ),
    )  # fmt: skip


def _date(value: str | None) -> date | None:
    return date.fromisoformat(value) if value else None
