"""The SQL statements of a question; all contain `%(space)s`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from nugget.index import UNIT_COLUMNS, conditions_of
from nugget.index.fulltext import LARGEST_CHARACTER
from nugget.index.postgres.bm25 import CHUNKS, UNITS, matching, ranking
from nugget.models import Filter

STATE = f"""
    SELECT nugget.schema_version(), s.model, s.dimensions,
        (SELECT coalesce(sum(docs), 0)::int FROM nugget.segments WHERE space = %(space)s AND kind = {CHUNKS})
    FROM (SELECT 1) AS one LEFT JOIN nugget.spaces s ON s.space = %(space)s"""

_DOCS = f"FROM nugget.postings p WHERE p.space = %(space)s AND p.kind = {CHUNKS}"
VOCABULARY = f"""
    WITH asked AS MATERIALIZED (
        SELECT q.term, (SELECT sum(docs)::int {_DOCS} AND p.term = q.term) AS docs
        FROM unnest(%(terms)s::text[]) AS q(term))
    SELECT 'known', term, docs FROM asked WHERE docs > 0
    UNION ALL SELECT 'known', part, sum(docs)::int FROM (
        SELECT x.part, p.docs FROM unnest(%(guessed)s::text[], %(parts)s::text[]) AS x(term, part)
        JOIN asked USING (term) JOIN nugget.postings p ON p.space = %(space)s AND p.kind = {CHUNKS} AND p.term = x.part
        WHERE coalesce(asked.docs, 0) = 0) AS parts GROUP BY part
    UNION ALL SELECT '~' || a.term, p.term, p.docs FROM asked a CROSS JOIN LATERAL (
        SELECT p.term, sum(p.docs)::int AS docs {_DOCS}
            AND p.term BETWEEN left(a.term, 2) AND left(a.term, 2) || '{LARGEST_CHARACTER}'
            AND abs(length(p.term) - length(a.term)) <= 2 GROUP BY p.term) AS p
        WHERE coalesce(a.docs, 0) = 0 AND a.term = ANY(%(guessed)s) AND p.docs > 0
    UNION ALL SELECT 'character', c.term, count(DISTINCT u.key)::int FROM unnest(%(characters)s::text[]) AS c(term)
        CROSS JOIN LATERAL (SELECT p.keys {_DOCS}
            AND p.term BETWEEN c.term AND c.term || '{LARGEST_CHARACTER}' OFFSET 0) AS p
        CROSS JOIN LATERAL unnest(p.keys) AS u(key) JOIN nugget.chunks k ON k.space = %(space)s AND k.key = u.key
        GROUP BY c.term"""
"""The frequencies of terms and, for unknown terms, of their likely meanings."""

_HOLDING = """
    SELECT u.key FROM nugget.postings p CROSS JOIN LATERAL unnest(p.keys) AS u(key)
    WHERE p.space = %(space)s AND p.kind = {kind} AND p.term = ANY(%(terms)s)
    GROUP BY u.key HAVING count(*) = cardinality(%(terms)s)"""
DOCUMENTS = {
    CHUNKS: f"""
        SELECT c.key, u.title, u.tags, u.content, c.heading_breadcrumb, c.content FROM nugget.chunks c
        JOIN nugget.units u ON u.space = %(space)s AND u.key = c.unit_key
        WHERE c.space = %(space)s AND c.key IN ({_HOLDING.format(kind=CHUNKS)}) ORDER BY c.key""",
    UNITS: f"""
        SELECT key, title, tags, content FROM nugget.units
        WHERE space = %(space)s AND key IN ({_HOLDING.format(kind=UNITS)}) ORDER BY key""",
}
"""The texts of the documents that contain all of some terms, to find their positions."""

_COSINES = """
    SELECT near.unit_key, chunk_key, cosine, -(w.embedding <#> %(vector)s::vector) AS whole,
        -(w.title_embedding <#> %(vector)s::vector) AS title{1}
    FROM (SELECT unit_key, (array_agg(chunk_key ORDER BY distance, chunk_key))[1] AS chunk_key, -min(distance) AS cosine
          FROM (SELECT unit_key, chunk_key, embedding <#> %(vector)s::vector AS distance FROM nugget.vectors
                WHERE space = %(space)s AND unit_key {0} OFFSET 0) AS measured GROUP BY unit_key) AS near
    LEFT JOIN LATERAL (SELECT * FROM nugget.unit_vectors u
                       WHERE u.space = %(space)s AND u.unit_key = near.unit_key OFFSET 0) AS w ON true"""
COSINES = _COSINES.format("= ANY(%(keys)s)", "")
_WHOLES = "FROM nugget.unit_vectors WHERE space = %(space)s AND unit_key"
_NEARNESS = f"-(embedding <#> (SELECT embedding {_WHOLES} = %(best)s))"
NEARNESS = f"SELECT unit_key, {_NEARNESS} {_WHOLES} = ANY(%(keys)s)"

EDGES = """
    SELECT s.key AS source, t.key AS target, r.relation_type FROM nugget.relationships r
    JOIN nugget.units s ON s.space = %(space)s AND s.key = r.source_key
    JOIN nugget.units t ON t.space = %(space)s AND t.id = r.target_id AND t.source = s.source
    WHERE r.space = %(space)s AND r.source_key = ANY(%(keys)s) AND s.key != t.key
    UNION SELECT s.key, t.key, r.relation_type FROM nugget.units t
    JOIN nugget.relationships r ON r.space = %(space)s AND r.target_id = t.id
    JOIN nugget.units s ON s.space = %(space)s AND s.key = r.source_key AND s.source = t.source
    WHERE t.space = %(space)s AND t.key = ANY(%(keys)s) AND s.key != t.key ORDER BY 1, 2"""
NOTE_AROUND = f"""
    SELECT set_config('nugget.around', (SELECT string_agg(DISTINCT key::text, ',') FROM (
        SELECT unnest(%(keys)s::int[]) AS key
        UNION ALL (SELECT unnest(ARRAY[source, target]) FROM ({EDGES}) AS edges LIMIT 200)) AS found), true)"""
"""Keep units and at most 200 related ones (a hub has many) for the statements of the same round trip."""
AROUND = "= ANY ((SELECT string_to_array(current_setting('nugget.around'), ',')::int[])::int[])"
RELATED = {
    "units": f"SELECT key, {UNIT_COLUMNS} FROM nugget.units WHERE space = %(space)s AND key {AROUND}",
    "relations": "SELECT source_key, target_id, relation_type FROM nugget.relationships "
    f"WHERE space = %(space)s AND source_key {AROUND} ORDER BY ctid",
    "chunks": "SELECT key, unit_key, position, heading_breadcrumb, content FROM nugget.chunks "
    f"WHERE space = %(space)s AND unit_key {AROUND} ORDER BY unit_key, position",
    "superseded": "SELECT t.key, s.id FROM nugget.units t "
    "JOIN nugget.relationships r ON r.space = %(space)s AND r.target_id = t.id AND r.relation_type = 'supersedes' "
    "JOIN nugget.units s ON s.space = %(space)s AND s.key = r.source_key AND s.source = t.source AND s.key != t.key "
    f"WHERE t.space = %(space)s AND t.key {AROUND} ORDER BY s.key",
    "edges": EDGES,
}
ADMITTED = "SELECT key FROM admitted"
"""The units that pass the tests of a search."""
_FEW_UNITS = 5_000
COSINES_AROUND = _COSINES.format(f"{AROUND} AND unit_key != ALL(%(keys)s)", f", {_NEARNESS}")
"""COSINES of the units around those with these keys, with their nearness to the best."""


def conditions(filter_: Filter, name: str) -> tuple[str, dict[str, Any]]:
    """Return the tests of a filter on units `u` as SQL of PostgreSQL, with its parameters; empty for no filter."""
    text, values = conditions_of(replace(filter_, match=""))
    start, *rest = text.replace("max(", "greatest(").split("?")
    text = start + "".join(f"%({name}{at})s{part}" for at, part in enumerate(rest))
    tests = [text] if text else []
    if filter_.match:
        tests.append(f"u.key IN ({matching(filter_.match)})")
    return " AND ".join(tests), {f"{name}{at}": value for at, value in enumerate(values)}


def units_admitted(tests: str) -> str:
    """Return the SELECT of the keys of units that pass tests; empty without tests."""
    return f"SELECT u.key FROM nugget.units u WHERE u.space = %(space)s AND {tests}" if tests else ""


def with_admitted(tests: str) -> str:
    """Return the beginning of a statement that finds the units that pass tests once, for ADMITTED."""
    return f"WITH admitted AS MATERIALIZED ({units_admitted(tests)})"


def by_vectors(is_filtered: bool, *, dimensions: int) -> str:
    """Return the SELECT of the nearest chunks as (key, score, unit_key); by the graph if `dimensions` are given.

    The graph compares half-precision numbers and misses some chunks, so four times as many are measured exactly. A few
    admitted units are measured one by one, since the graph would visit all units between them.
    """
    near = "nugget.vectors WHERE space = %(space)s" + (f" AND unit_key IN ({ADMITTED})" if is_filtered else "")
    if dimensions:
        order = f"embedding::halfvec({dimensions}) <#> %(vector)s::vector::halfvec({dimensions})"
        near = f"(SELECT chunk_key, unit_key, embedding FROM {near} ORDER BY {order} LIMIT %(k)s * 4) AS near"
    if dimensions and is_filtered:
        count = "(SELECT count(*) FROM admitted)"
        near = (
            f"(SELECT * FROM {near} WHERE {count} > {_FEW_UNITS} UNION ALL SELECT chunk_key, unit_key, embedding "
            f"FROM nugget.vectors WHERE space = %(space)s AND unit_key = ANY (ARRAY({ADMITTED})) "
            f"AND {count} <= {_FEW_UNITS}) AS either"
        )
    return (
        "SELECT chunk_key AS key, -(embedding <#> %(vector)s::vector) AS score, unit_key "
        f"FROM {near} ORDER BY embedding <#> %(vector)s::vector, chunk_key LIMIT %(k)s"
    )


@lru_cache(maxsize=64)
def search(tests: str, within: str | None, *, vectors: str, **shape: bool) -> str:
    """Return the one statement of a search: rows of (list, key, score, unit), and the cosines of the best units.

    Lists are 0 chunks by words, 1 units by words, 2 units of a period, 3 chunks by vectors; the cosines are list 4 with
    (nearest chunk, its cosine, unit, cosine of the whole, of the title).
    """
    admitted = ADMITTED if tests else ""
    texts = ranking(CHUNKS, limit="%(depth)s", admitted=admitted, **shape)
    wholes = ranking(UNITS, limit="%(depth)s", admitted=admitted, **shape)
    lists: Sequence[str] = (
        f"SELECT 0 AS list, r.key, r.score, c.unit_key FROM ({texts}) AS r "
        "JOIN nugget.chunks c ON c.space = %(space)s AND c.key = r.key",
        f"SELECT 1, key, score, key FROM ({wholes}) AS r",
    )
    if within is not None:
        period = ranking(UNITS, limit="%(k)s", admitted=units_admitted(within), **shape)
        lists = (*lists, f"SELECT 2, key, score, key FROM ({period}) AS r")
    if vectors:
        lists = (*lists, f"SELECT 3, key, score, unit_key FROM ({vectors}) AS r")
    whole = f"WITH listed AS MATERIALIZED ({' UNION ALL '.join(lists)})"
    if tests:
        whole = f"{with_admitted(tests)}, {whole.removeprefix('WITH ')}"
    if not vectors:
        return f"{whole} SELECT *, NULL, NULL FROM listed"
    chosen = (
        "IN (SELECT unit_key FROM (SELECT *, row_number() OVER (PARTITION BY list ORDER BY score DESC, key) AS rank "
        "FROM listed) AS ranked WHERE rank <= %(k)s)"
    )
    best = f"SELECT 4, chunk_key, cosine, unit_key, whole, title FROM ({_COSINES.format(chosen, '')}) AS c"
    return f"{whole} SELECT *, NULL, NULL FROM listed UNION ALL {best}"
