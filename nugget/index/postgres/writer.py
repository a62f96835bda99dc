"""Publish a brain's embedded index to its space: what differs by content hash, in one transaction.

The embedded index has the units chunked and their vectors made before the database is touched. BM25 grows by one
segment a publication; segments are merged afterwards, in a transaction of their own.
"""

from __future__ import annotations

import hashlib
import json
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from nugget.errors import IndexUnavailable
from nugget.index import UNIT_COLUMNS, indexed_title
from nugget.index.bm25 import CHUNKS, UNITS, Postings, add_postings
from nugget.index.embedded import Index
from nugget.index.embedded.connection import SCHEMA_VERSION
from nugget.index.embedded.units import select_in
from nugget.index.fulltext import LARGE_INDEX_CHUNKS, Document, chunk_columns, unit_columns
from nugget.index.postgres.connection import check_version, clean, clear_errors, enter, open_connection
from nugget.markdown import body_below_title
from nugget.models import SourceName

if TYPE_CHECKING:
    from psycopg import Connection

_TABLES = ("units", "chunks", "vectors", "unit_vectors", "relationships", "postings", "segments", "dead")
_DOCUMENTS_A_BATCH = 2_000
_GROWTH = 4
"""A segment is merged with the newer ones once they hold a fourth of it, so that few segments are rewritten seldom."""
_TYPES = {4: 23, 2: 21}  # PostgreSQL's numbers of int4 and int2, by size
_GRAPH_BYTES, _MOST_GRAPH_BYTES = 1_200, 2 << 30
"""Memory for making a graph, for each chunk and at most: a graph that does not fit takes many times as long."""
_ROOM_FOR_GRAPH = """SELECT set_config('maintenance_work_mem',
    greatest(pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, %s) || 'kB', true)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedUnits:
    """Units that a publication wrote and removed."""

    written: int = 0
    removed: int = 0


def publish(index: Index, url: str, space: str, *, origin: str = "", rebuild: bool = False) -> PublishedUnits:
    """Make a space hold what a brain's index holds; write only what differs, unless asked to `rebuild` it.

    Raises IndexUnavailable if the database cannot be written, or if the space is another brain's.
    """
    with clear_errors(), open_connection(url) as connection:
        with connection.transaction():
            check_version(_one(connection, "SELECT nugget.schema_version()"))
            enter(connection, space, writes=True)
            with index.reading():  # no sooner: another writer may have published a later state of it
                result = _publish(index, connection, space, origin, rebuild=rebuild)
        if result != PublishedUnits():
            with connection.transaction():
                enter(connection, space, writes=True)
                _merge_segments(connection, space)
            with connection.transaction():
                enter(connection, space, writes=True)
                chunks = _one(connection, "SELECT count(*) FROM nugget.vectors WHERE space = %s", space)
                if chunks > LARGE_INDEX_CHUNKS:
                    connection.execute(_ROOM_FOR_GRAPH, (min(chunks * _GRAPH_BYTES, _MOST_GRAPH_BYTES) // 1024,))
                    connection.execute("SELECT nugget.make_graph(%s)", (space,))
        return result


def space_state(index: Index, url: str, space: str) -> tuple[datetime, int]:
    """Return when a space was last published and how many units differ from a brain's index.

    Raises IndexUnavailable if the database cannot be reached, has another schema or no such space.
    """
    with clear_errors(), open_connection(url) as connection, connection.transaction():
        check_version(_one(connection, "SELECT nugget.schema_version()"))
        enter(connection, space, writes=False)
        row = connection.execute("SELECT written FROM nugget.spaces WHERE space = %s", (space,)).fetchone()
        if row is None:
            raise IndexUnavailable(f"The team's index has no space {space}.", hint="Run: nugget sync")
        theirs = {*connection.execute("SELECT id, hash FROM nugget.units WHERE space = %s", (space,))}
        mine = {(id_, hash_) for id_, _, hash_ in _content_hashes(index)}
        return row[0], len({id_ for id_, _ in mine ^ theirs})


def _publish(index: Index, connection: Connection[Any], space: str, origin: str, *, rebuild: bool) -> PublishedUnits:
    model, dimensions = index.embedding_model or "", _dimensions(index)
    sql = "SELECT model, dimensions, origin FROM nugget.spaces WHERE space = %s"
    known = connection.execute(sql, (space,)).fetchone()
    if known and known[2] != origin:
        raise IndexUnavailable(
            f"The space {space} is another brain's.", hint="Name another space: index: postgresql://…/database#SPACE"
        )
    if known and (rebuild or known[:2] != (model, dimensions)):
        for table in _TABLES:
            connection.execute(f"DELETE FROM nugget.{table} WHERE space = %s", (space,))
    connection.execute(
        "INSERT INTO nugget.spaces VALUES (%s, %s, %s, %s, 0, now()) "
        "ON CONFLICT (space) DO UPDATE SET model = excluded.model, dimensions = excluded.dimensions, written = now()",
        (space, model, dimensions, origin),
    )
    mine = {id_: (key, hash_) for id_, key, hash_ in _content_hashes(index)}
    rows = connection.execute("SELECT id, key, hash FROM nugget.units WHERE space = %s", (space,))
    theirs = {id_: (key, hash_) for id_, key, hash_ in rows}
    wanted = sorted(key for id_, (key, hash_) in mine.items() if theirs.get(id_, (0, b""))[1] != hash_)
    gone = [key for id_, (key, hash_) in theirs.items() if mine.get(id_, (0, b""))[1] != hash_]
    if wanted or gone:
        hashes = dict(mine.values())
        lost = _remove(connection, space, gone)
        gained, last_key = _insert(index, connection, space, wanted, hashes)
        _add_segment(connection, space, gained, lost, last_key)
    return PublishedUnits(written=len(wanted), removed=len(theirs.keys() - mine.keys()))


def _dimensions(index: Index) -> int:
    row = index.connection.execute("SELECT length(embedding) / 4 FROM vectors LIMIT 1").fetchone()
    return int(row[0]) if row else 0


def _content_hashes(index: Index) -> Iterator[tuple[str, int, bytes]]:
    """Yield the id, key and content hash of each unit of the brain."""
    rows = index.connection.execute(
        "SELECT u.id, u.key, u.path, f.hash, EXISTS (SELECT 1 FROM unit_vectors WHERE unit_key = u.key) "
        "FROM units u LEFT JOIN files f ON f.source = u.source AND f.path = u.path WHERE u.source = ?",
        (SourceName.BRAIN,),
    )
    model = index.embedding_model
    for id_, key, *content in rows:
        yield id_, key, hashlib.sha256(json.dumps([SCHEMA_VERSION, model, id_, *content]).encode()).digest()


def _remove(connection: Connection[Any], space: str, keys: Sequence[int]) -> dict[int, Postings]:
    """Delete units with everything that belongs to them; return their postings, for the counts."""
    units = connection.execute(
        "SELECT key, title, tags, content FROM nugget.units WHERE space = %s AND key = ANY(%s) ORDER BY key",
        (space, list(keys)),
    ).fetchall()
    chunks = connection.execute(
        "SELECT unit_key, key, heading_breadcrumb, content FROM nugget.chunks WHERE space = %s AND unit_key = ANY(%s) "
        "ORDER BY key", (space, list(keys)),
    ).fetchall()  # fmt: skip
    for kind, dead in ((UNITS, [row[0] for row in units]), (CHUNKS, [row[1] for row in chunks])):
        connection.execute(
            "INSERT INTO nugget.dead SELECT %s, %s, key FROM unnest(%s::int[]) AS keys(key)", (space, kind, dead)
        )
    for table, column in (
        ("units", "key"), ("chunks", "unit_key"), ("vectors", "unit_key"), ("unit_vectors", "unit_key"),
        ("relationships", "source_key"),
    ):  # fmt: skip
        connection.execute(f"DELETE FROM nugget.{table} WHERE space = %s AND {column} = ANY(%s)", (space, list(keys)))
    return _postings(units, chunks)


def _postings(units: Iterable[Sequence[Any]], chunks: Iterable[Sequence[Any]]) -> dict[int, Postings]:
    """Return the postings of units (key, title, tags, content) and of their chunks (unit, key, breadcrumb, text)."""
    found = {UNITS: Postings(), CHUNKS: Postings()}
    named: dict[int, tuple[str, list[str]]] = {}

    def unit_documents() -> Iterator[Document]:
        for key, title, tags, content in units:
            named[key] = (indexed_title(title, content), json.loads(tags))
            yield key, unit_columns(*named[key], body_below_title(content))

    of_chunks = ((key, chunk_columns(*named[unit], breadcrumb, text)) for unit, key, breadcrumb, text in chunks)
    for kind, rows in ((UNITS, unit_documents()), (CHUNKS, of_chunks)):
        while batch := list(islice(rows, _DOCUMENTS_A_BATCH)):
            add_postings(found[kind], batch)
    return found


def _insert(
    index: Index, connection: Connection[Any], space: str, keys: Sequence[int], hashes: Mapping[int, bytes]
) -> tuple[dict[int, Postings], int]:
    """Copy units of the embedded index with their chunks and vectors; return their postings and the last key given."""
    last = _one(connection, "SELECT last_key FROM nugget.spaces WHERE space = %s", space)
    own, size = index.connection, _dimensions(index)
    unit_key = {key: last + at for at, key in enumerate(keys, start=1)}
    chunks = sorted(select_in(own, "SELECT key, unit_key, position, heading_breadcrumb, content FROM chunks "
                              "WHERE unit_key IN", keys))  # fmt: skip
    chunk_key = {row[0]: last + len(keys) + at for at, row in enumerate(chunks, start=1)}
    last += len(keys) + len(chunks)
    connection.execute("UPDATE nugget.spaces SET last_key = %s WHERE space = %s", (last, space))
    units = list(select_in(own, f"SELECT key, {UNIT_COLUMNS} FROM units WHERE key IN", keys))
    types = f"text int4 bytea {7 * 'text '} float8 {10 * 'text '}"
    _copy(connection, "units", types, (
        (space, unit_key[row[0]], hashes[row[0]], *map(clean, row[1:])) for row in units
    ))  # fmt: skip
    _copy(connection, "chunks", "text int4 int4 int4 text text", (
        (space, chunk_key[key], unit_key[unit], position, clean(breadcrumb), clean(text))
        for key, unit, position, breadcrumb, text in chunks
    ))  # fmt: skip
    of_unit = {key: unit_key[unit] for key, unit, *_ in chunks}
    vectors = select_in(own, "SELECT chunk_key, embedding FROM vectors WHERE chunk_key IN", list(chunk_key))
    _copy(connection, "vectors", "text int4 int4 bytea", (
        (space, chunk_key[key], of_unit[key], _vector(embedding, size)) for key, embedding in vectors
    ))  # fmt: skip
    wholes = select_in(own, "SELECT unit_key, embedding, title_embedding FROM unit_vectors WHERE unit_key IN", keys)
    _copy(connection, "unit_vectors", "text int4 bytea bytea", (
        (space, unit_key[key], _vector(whole, size), _vector(title, size) if title else None)
        for key, whole, title in wholes
    ))  # fmt: skip
    sql = "SELECT source_key, target_id, relation_type FROM relationships WHERE source_key IN"
    _copy(connection, "relationships", "text int4 text text", (
        (space, unit_key[key], clean(target), relation) for key, target, relation in select_in(own, sql, keys)
    ))  # fmt: skip
    return _postings(
        ((unit_key[row[0]], *map(clean, (row[4], row[7], row[18]))) for row in units),
        ((unit_key[unit], chunk_key[key], clean(head), clean(text)) for key, unit, _, head, text in chunks),
    ), last


def _add_segment(
    connection: Connection[Any], space: str, gained: Mapping[int, Postings], lost: Mapping[int, Postings], last: int
) -> None:
    """Write the postings of what came as a segment; its counts are less what went."""
    nothing = (array("i"), array("h"), array("i"))
    for kind in (CHUNKS, UNITS):
        new, old = gained[kind], lost[kind]
        sql = "SELECT coalesce(max(segment), 0) + 1 FROM nugget.segments WHERE space = %s AND kind = %s"
        segment = _one(connection, sql, space, kind)
        _copy(connection, "postings", "text int2 text int4 int4 bytea bytea bytea", (
            (space, kind, term, segment, len(keys) - len(old.of_term.get(term, nothing)[0]),
             _array(keys), _array(freqs), _array(lengths))
            for term in {**new.of_term, **old.of_term}
            for keys, freqs, lengths in (new.of_term.get(term, nothing),)
        ))  # fmt: skip
        connection.execute(
            "INSERT INTO nugget.segments VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (space, kind, segment, len(new.lengths) - len(old.lengths),
             sum(new.lengths.values()) - sum(old.lengths.values()), len(new.lengths) + len(old.lengths), last),
        )  # fmt: skip


def _merge_segments(connection: Connection[Any], space: str) -> None:
    """Join the newest segments that are about of one size; all of them, once a fifth of the documents is dead."""
    for kind in (CHUNKS, UNITS):
        where = "WHERE space = %s AND kind = %s"
        rows = connection.execute(
            f"SELECT segment, size, last_key FROM nugget.segments {where} ORDER BY segment DESC", (space, kind)
        ).fetchall()
        dead = _one(connection, f"SELECT count(*) FROM nugget.dead {where}", space, kind)
        merged, size = 1, rows[0][1]
        while merged < len(rows) and rows[merged][1] <= size * _GROWTH:
            merged, size = merged + 1, size + rows[merged][1]
        if dead * 5 > sum(row[1] for row in rows):
            merged = len(rows)
        elif merged == 1:
            continue
        below = rows[merged][2] if merged < len(rows) else 0
        _merge(connection, space, kind, oldest=rows[merged - 1][0], below=below)


def _merge(connection: Connection[Any], space: str, kind: int, *, oldest: int, below: int) -> None:
    """Replace the segments from `oldest` on by one without dead documents; `below` is the last key before them."""
    parameters = {"space": space, "kind": kind, "oldest": oldest, "below": below}
    where = "space = %(space)s AND kind = %(kind)s"
    connection.execute(
        f"""CREATE TEMPORARY TABLE merged ON COMMIT DROP AS
            SELECT p.term, min(p.counted) AS docs,
                   coalesce(array_agg(u.key ORDER BY u.key) FILTER (WHERE u.key IS NOT NULL), '{{}}') AS keys,
                   coalesce(array_agg(u.freq ORDER BY u.key) FILTER (WHERE u.key IS NOT NULL), '{{}}') AS freqs,
                   coalesce(array_agg(u.length ORDER BY u.key) FILTER (WHERE u.key IS NOT NULL), '{{}}') AS lengths
            FROM (SELECT *, sum(docs) OVER (PARTITION BY term) AS counted FROM nugget.postings
                  WHERE {where} AND segment >= %(oldest)s) AS p
            LEFT JOIN LATERAL (
                SELECT * FROM unnest(p.keys, p.freqs, p.lengths) AS u(key, freq, length)
                WHERE u.key NOT IN (SELECT key FROM nugget.dead WHERE {where})) AS u ON true
            GROUP BY p.term""",
        parameters,
    )
    connection.execute(f"DELETE FROM nugget.postings WHERE {where} AND segment >= %(oldest)s", parameters)
    connection.execute(
        "INSERT INTO nugget.postings SELECT %(space)s, %(kind)s, term, %(oldest)s, docs, keys, freqs, lengths "
        "FROM merged WHERE docs != 0 OR cardinality(keys) > 0",
        parameters,
    )
    connection.execute("DROP TABLE merged")
    connection.execute(
        f"""WITH old AS (DELETE FROM nugget.segments WHERE {where} AND segment >= %(oldest)s RETURNING *),
                 dropped AS (DELETE FROM nugget.dead WHERE {where} AND key > %(below)s RETURNING key)
            INSERT INTO nugget.segments
            SELECT %(space)s, %(kind)s, %(oldest)s, sum(docs), sum(tokens),
                   sum(size) - (SELECT count(*) FROM dropped), max(last_key) FROM old""",
        parameters,
    )


def _copy(connection: Connection[Any], table: str, types: str, rows: Iterable[Sequence[Any]]) -> None:
    """Copy rows in PostgreSQL's binary format; what stands as bytea in `types` is in that format already.

    By way of a temporary table, because COPY does not write where row-level security holds.
    """
    connection.execute(f"CREATE TEMPORARY TABLE incoming (LIKE nugget.{table}) ON COMMIT DROP")
    with connection.cursor() as cursor, cursor.copy("COPY incoming FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(types.split())
        for row in rows:
            copy.write_row(row)
    connection.execute(f"INSERT INTO nugget.{table} SELECT * FROM incoming")
    connection.execute("DROP TABLE incoming")


def _vector(embedding: bytes, dimensions: int) -> bytes:
    """Return a vector in the binary format of pgvector. Raises IndexUnavailable if it is not one."""
    import numpy as np

    values = np.frombuffer(embedding, "<f4", len(embedding) // 4)
    if len(embedding) != 4 * dimensions or not np.isfinite(values).all():
        raise IndexUnavailable("A vector of the index is not a row of numbers.", hint="Run: nugget rebuild")
    return struct.pack(">HH", len(values), 0) + values.astype(">f4").tobytes()


def _array(values: array[int]) -> bytes:
    """Return numbers in the binary format of an array of int4 or int2."""
    import numpy as np

    size, element = values.itemsize, _TYPES[values.itemsize]
    if not values:
        return struct.pack(">iii", 0, 0, element)
    packed = np.empty(len(values), dtype=[("size", ">i4"), ("value", f">i{size}")])
    packed["size"], packed["value"] = size, np.frombuffer(values, dtype=f"i{size}")
    return struct.pack(">iiiii", 1, 0, element, len(values), 1) + packed.tobytes()


def _one(connection: Connection[Any], sql: str, *parameters: object) -> Any:
    row = connection.execute(sql, parameters).fetchone()
    assert row is not None
    return row[0]
