"""Publish a brain's embedded index to its space: all units whose content hash differs, in one transaction.

Units are chunked and embedded in the embedded index before the database is touched. Each publication adds a segment
to BM25; segments are merged afterwards, in a separate transaction.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from nugget.errors import IndexUnavailable
from nugget.index import UNIT_COLUMNS, chunk_columns, unit_columns
from nugget.index.embedded import Index
from nugget.index.embedded.connection import SCHEMA_VERSION
from nugget.index.embedded.units import CHUNK_COLUMNS, select_in
from nugget.index.fulltext import LARGE_INDEX_CHUNKS
from nugget.index.postgres.bm25 import CHUNKS, ENTRY_BYTES, UNITS, Postings, add_postings
from nugget.index.postgres.connection import clean, clear_errors, one_value, open_connection, transaction
from nugget.models import SourceName

if TYPE_CHECKING:
    from psycopg import Connection

_TYPES = {
    "units": f"text int4 bytea {7 * 'text '} float8 {10 * 'text '}",
    "chunks": "text int4 int4 int4 text text",
    "vectors": "text int4 int4 bytea",
    "unit_vectors": "text int4 bytea bytea",
    "relationships": "text int4 text text",
    "postings": "text int2 text int4 int4 bytea bytea",
}
"""The columns of the tables to copy into; `bytea` means that a value is already in PostgreSQL's format."""
_TABLES = (*_TYPES, "segments", "dead")
_DOCUMENTS_A_BATCH = 2_000
_GROWTH = 4
"""A segment is merged with newer ones once they reach a quarter of its size, which keeps segments and rewrites few."""
_GRAPH_BYTES, _MOST_GRAPH_BYTES = 1_200, 2 << 30
"""Memory for making a graph, per chunk and at most; a graph that does not fit takes many times as long."""
_ROOM_FOR_GRAPH = """SELECT set_config('maintenance_work_mem',
    greatest(pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, %s) || 'kB', true)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedUnits:
    """The numbers of units that a publication wrote and removed."""

    written: int = 0
    removed: int = 0


def publish(index: Index, url: str, space: str, *, origin: str = "", rebuild: bool = False) -> PublishedUnits:
    """Bring a space in line with a brain's index; write only differences, unless asked to `rebuild` it.

    Raises IndexUnavailable if the database cannot be written, or if the space is another brain's.
    """
    with clear_errors(), open_connection(url) as connection:
        # Only now is the index read, since another writer may have published a later state.
        with transaction(connection, space, writes=True), index.reading():
            result = _publish(index, connection, space, origin, rebuild=rebuild)
        if result != PublishedUnits():
            with transaction(connection, space, writes=True):
                _merge_segments(connection, space)
            with transaction(connection, space, writes=True):
                chunks = one_value(connection, "SELECT count(*) FROM nugget.vectors WHERE space = %s", space)
                if chunks > LARGE_INDEX_CHUNKS:
                    connection.execute(_ROOM_FOR_GRAPH, (min(chunks * _GRAPH_BYTES, _MOST_GRAPH_BYTES) // 1024,))
                    connection.execute("SELECT nugget.make_graph(%s)", (space,))
        return result


def space_state(index: Index, url: str, space: str) -> tuple[datetime, int]:
    """Return when a space was last published, and how many units differ from a brain's index.

    Raises IndexUnavailable if the database cannot be reached, or has another schema or no such space.
    """
    with clear_errors(), open_connection(url) as connection, transaction(connection, space, writes=False):
        row = connection.execute("SELECT written FROM nugget.spaces WHERE space = %s", (space,)).fetchone()
        if row is None:
            raise IndexUnavailable(f"The team's index has no space {space}.", hint="Run: nugget sync")
        return row[0], len({id_ for id_, _ in _own_units(index).keys() ^ _published_units(connection, space).keys()})


def _publish(index: Index, connection: Connection[Any], space: str, origin: str, *, rebuild: bool) -> PublishedUnits:
    model, dimensions = index.embedding_model or "", _dimensions(index)
    sql = "SELECT model, dimensions, origin FROM nugget.spaces WHERE space = %s"
    known = connection.execute(sql, (space,)).fetchone()
    if known and known[2] != origin:
        hint = "Name another in `index`: postgresql://…/database#SPACE"
        raise IndexUnavailable(f"The space {space} is another brain's.", hint=hint)
    if known and (rebuild or known[:2] != (model, dimensions)):
        for table in _TABLES:
            connection.execute(f"DELETE FROM nugget.{table} WHERE space = %s", (space,))
    connection.execute(
        "INSERT INTO nugget.spaces VALUES (%s, %s, %s, %s, 0, now()) "
        "ON CONFLICT (space) DO UPDATE SET model = excluded.model, dimensions = excluded.dimensions, written = now()",
        (space, model, dimensions, origin),
    )
    mine, theirs = _own_units(index), _published_units(connection, space)
    wanted = sorted(mine[unit] for unit in mine.keys() - theirs.keys())
    gone = [theirs[unit] for unit in theirs.keys() - mine.keys()]
    if wanted or gone:
        lost = _remove(connection, space, gone)
        hashes = {key: hash_ for (_, hash_), key in mine.items()}
        gained = _insert(index, connection, space, wanted, hashes)
        _add_segment(connection, space, gained, lost)
    return PublishedUnits(written=len(wanted), removed=len({id_ for id_, _ in theirs} - {id_ for id_, _ in mine}))


def _dimensions(index: Index) -> int:
    row = index.connection.execute("SELECT length(embedding) / 4 FROM vectors LIMIT 1").fetchone()
    return int(row[0]) if row else 0


def _own_units(index: Index) -> dict[tuple[str, bytes], int]:
    """Return the keys of the brain's units by id and content hash, in the embedded index."""
    rows = index.connection.execute(
        "SELECT u.id, u.key, u.path, f.hash, EXISTS (SELECT 1 FROM unit_vectors WHERE unit_key = u.key) "
        "FROM units u LEFT JOIN files f ON f.source = u.source AND f.path = u.path WHERE u.source = ?",
        (SourceName.BRAIN,),
    )
    about = SCHEMA_VERSION, index.embedding_model
    return {
        (id_, hashlib.sha256(json.dumps([*about, id_, *content]).encode()).digest()): key for id_, key, *content in rows
    }


def _published_units(connection: Connection[Any], space: str) -> dict[tuple[str, bytes], int]:
    """Return the keys of the units of a space by id and content hash."""
    rows = connection.execute("SELECT id, hash, key FROM nugget.units WHERE space = %s", (space,))
    return {(id_, hash_): key for id_, hash_, key in rows}


def _remove(connection: Connection[Any], space: str, keys: Sequence[int]) -> dict[int, Postings]:
    """Delete units with everything that belongs to them; return their postings, for the counts."""
    lost = _published_postings(connection, space, keys)
    for kind, its in lost.items():
        dead = space, kind, list(its.lengths)
        connection.execute("INSERT INTO nugget.dead SELECT %s, %s, key FROM unnest(%s::int[]) AS keys(key)", dead)
    for table, column in (
        ("units", "key"), ("chunks", "unit_key"), ("vectors", "unit_key"), ("unit_vectors", "unit_key"),
        ("relationships", "source_key"),
    ):  # fmt: skip
        connection.execute(f"DELETE FROM nugget.{table} WHERE space = %s AND {column} = ANY(%s)", (space, list(keys)))
    return lost


def _published_postings(
    connection: Connection[Any], space: str, keys: Sequence[int] | None = None
) -> dict[int, Postings]:
    """Return the postings of these units of a space, or of all, made from their published texts."""
    where, given = ("", []) if keys is None else (" AND {} = ANY(%s)", [list(keys)])
    units, chunks = (
        connection.execute(
            f"SELECT {columns} FROM nugget.{table} WHERE space = %s{where.format(column)}", [space, *given]
        )
        for table, column, columns in (
            ("units", "key", "key, title, tags, content"),
            ("chunks", "unit_key", "unit_key, key, heading_breadcrumb, content"),
        )
    )
    return _postings(units, chunks)


def _postings(units: Iterable[Sequence[Any]], chunks: Iterable[Sequence[Any]]) -> dict[int, Postings]:
    """Return the postings of units (key, title, tags, content) and of their chunks (unit, key, breadcrumb, text)."""
    found = {UNITS: Postings(), CHUNKS: Postings()}
    of_unit = {key: (title, json.loads(tags), content) for key, title, tags, content in units}
    wholes = ((key, (key, unit_columns(*unit))) for key, unit in of_unit.items())
    parts = ((unit, (key, chunk_columns(*of_unit[unit], head, text))) for unit, key, head, text in chunks)
    for kind, rows in ((UNITS, wholes), (CHUNKS, parts)):
        while batch := list(islice(rows, _DOCUMENTS_A_BATCH)):
            add_postings(found[kind], [row for _, row in batch], {row[0]: unit for unit, row in batch})
    return found


def _insert(
    index: Index, connection: Connection[Any], space: str, keys: Sequence[int], hashes: Mapping[int, bytes]
) -> dict[int, Postings]:
    """Copy units with their chunks and vectors from the embedded index; return their postings."""
    last = one_value(connection, "SELECT last_key FROM nugget.spaces WHERE space = %s", space)
    own, size = partial(select_in, index.connection, values=keys), _dimensions(index)
    head = struct.pack(">HH", size, 0)
    unit_key = {key: last + at for at, key in enumerate(keys, start=1)}
    own_units = own(f"SELECT key, {UNIT_COLUMNS} FROM units WHERE key IN")
    units = [(unit_key[key], hashes[key], *map(clean, row)) for key, *row in own_units]
    own_chunks = sorted(own(f"SELECT {CHUNK_COLUMNS} FROM chunks WHERE unit_key IN"))
    chunk_key = {row[0]: last + len(keys) + at for at, row in enumerate(own_chunks, start=1)}
    chunks = [(chunk_key[key], unit_key[unit], *map(clean, row)) for key, unit, *row in own_chunks]
    last += len(keys) + len(chunks)
    connection.execute("UPDATE nugget.spaces SET last_key = %s WHERE space = %s", (last, space))
    parts = own("SELECT key, unit_key, embedding FROM chunks CROSS JOIN vectors ON key = chunk_key WHERE unit_key IN")
    wholes = own("SELECT unit_key, embedding, title_embedding FROM unit_vectors WHERE unit_key IN")
    relations = own("SELECT source_key, target_id, relation_type FROM relationships WHERE source_key IN")
    rows: dict[str, Iterable[Sequence[Any]]] = {
        "units": units,
        "chunks": chunks,
        "vectors": ((chunk_key[key], unit_key[unit], head + _halves(one, size, ">f2")) for key, unit, one in parts),
        "unit_vectors": (
            (unit_key[key], _halves(one, size, "<f2"), _halves(title, size, "<f2") if title else None)
            for key, one, title in wholes
        ),
        "relationships": ((unit_key[key], clean(target), relation) for key, target, relation in relations),
    }
    for table, its in rows.items():
        _copy(connection, space, table, its)
    texts = ((key, title, tags, content) for key, _, _, _, _, title, _, _, tags, *_, content in units)
    return _postings(texts, ((unit, key, head, text) for key, unit, _, head, text in chunks))


def _add_segment(
    connection: Connection[Any], space: str, gained: Mapping[int, Postings], lost: Mapping[int, Postings]
) -> None:
    """Write the postings of new units as a segment, whose counts also subtract removed ones."""
    nothing = (bytearray(), bytearray())
    for kind in (CHUNKS, UNITS):
        new, old = gained[kind], lost[kind]
        sql = "SELECT coalesce(max(segment), 0) + 1 FROM nugget.segments WHERE space = %s AND kind = %s"
        segment = one_value(connection, sql, space, kind)
        _copy(connection, space, "postings", (
            (kind, term, segment, (len(entries) - len(old.of_term.get(term, nothing)[0])) // ENTRY_BYTES,
             entries, places)
            for term in {**new.of_term, **old.of_term}
            for entries, places in (new.of_term.get(term, nothing),)
        ))  # fmt: skip
        connection.execute(
            "INSERT INTO nugget.segments VALUES (%s, %s, %s, %s, %s, %s)",
            (space, kind, segment, len(new.lengths) - len(old.lengths),
             sum(new.lengths.values()) - sum(old.lengths.values()), len(new.lengths) + len(old.lengths)),
        )  # fmt: skip


def _merge_segments(connection: Connection[Any], space: str) -> None:
    """Merge the newest segments of about the same size, or rebuild all once a fifth of the documents is dead."""
    for kind in (CHUNKS, UNITS):
        where = "WHERE space = %s AND kind = %s"
        dead = one_value(connection, f"SELECT count(*) FROM nugget.dead {where}", space, kind)
        rows = connection.execute(
            f"SELECT segment, size FROM nugget.segments {where} ORDER BY segment DESC", (space, kind)
        ).fetchall()
        if dead * 5 > sum(row[1] for row in rows):
            _rebuild_postings(connection, space)
            return
        merged, size = 1, rows[0][1]
        while merged < len(rows) and rows[merged][1] <= size * _GROWTH:
            merged, size = merged + 1, size + rows[merged][1]
        if merged > 1:
            _merge(connection, space, kind, oldest=rows[merged - 1][0])


def _rebuild_postings(connection: Connection[Any], space: str) -> None:
    """Replace all segments with one without dead documents."""
    postings = _published_postings(connection, space)
    for table in ("postings", "segments", "dead"):
        connection.execute(f"DELETE FROM nugget.{table} WHERE space = %s", (space,))
    _add_segment(connection, space, postings, {kind: Postings() for kind in postings})


def _merge(connection: Connection[Any], space: str, kind: int, *, oldest: int) -> None:
    """Replace the segments from `oldest` on with one."""
    for table, key, kept, having in (
        ("postings", "term, ", "sum(docs), string_agg(entries, '' ORDER BY segment), "
         "string_agg(places, '' ORDER BY segment)", "HAVING sum(docs) != 0 OR sum(length(entries)) > 0"),
        ("segments", "", "sum(docs), sum(tokens), sum(size)", ""),
    ):  # fmt: skip
        connection.execute(
            f"""WITH old AS (DELETE FROM nugget.{table} WHERE space = %(space)s AND kind = %(kind)s
                             AND segment >= %(oldest)s RETURNING *)
                INSERT INTO nugget.{table} SELECT space, kind, {key}%(oldest)s, {kept} FROM old
                GROUP BY space, kind{key and ", term"} {having}""",
            {"space": space, "kind": kind, "oldest": oldest},
        )


def _copy(connection: Connection[Any], space: str, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Copy rows into a table, in PostgreSQL's binary format.

    It goes through a temporary table, because COPY cannot write to tables with row-level security.
    """
    connection.execute(f"CREATE TEMPORARY TABLE incoming (LIKE nugget.{table} INCLUDING STORAGE) ON COMMIT DROP")
    with connection.cursor() as cursor, cursor.copy("COPY incoming FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(_TYPES[table].split())
        for row in rows:
            copy.write_row((space, *row))
    connection.execute(f"INSERT INTO nugget.{table} SELECT * FROM incoming")
    connection.execute("DROP TABLE incoming")


def _halves(embedding: bytes, dimensions: int, kind: str) -> bytes:
    """Return the numbers of a vector in half precision. Raises IndexUnavailable if it is not one."""
    import numpy as np

    values = np.frombuffer(embedding, "<f4", len(embedding) // 4)
    if len(embedding) != 4 * dimensions or not np.isfinite(values).all():
        raise IndexUnavailable("A vector of the index is not a list of numbers.", hint="Run: nugget rebuild")
    return values.astype(kind).tobytes()
