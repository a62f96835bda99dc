"""The SQL statements of a question; all contain `%(space)s`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nugget.index import UNIT_COLUMNS, conditions_of
from nugget.index.fulltext import LARGEST_CHARACTER
from nugget.index.postgres.bm25 import CHUNKS, UNITS, matching
from nugget.models import Filter

_NUMBERS = """
    LEFT JOIN LATERAL (
        SELECT coalesce(sum(docs), 0)::int AS docs, coalesce(sum(tokens), 0)::int8, (
            SELECT array_send(array_agg(key)) FROM nugget.dead WHERE space = %(space)s AND kind = {0})
        FROM nugget.segments WHERE space = %(space)s AND kind = {0}) AS numbers{0} ON true"""
STATE = f"""
    SELECT nugget.schema_version(), s.model, s.dimensions, numbers{CHUNKS}.*, numbers{UNITS}.*,
        set_config('hnsw.ef_search', greatest(200, least(1000, numbers{CHUNKS}.docs / 400))::text, true)
    FROM (SELECT 1) AS one LEFT JOIN nugget.spaces s ON s.space = %(space)s
    {_NUMBERS.format(CHUNKS)} {_NUMBERS.format(UNITS)}"""
"""The schema, the model and dimensions of a space; of its chunks and units the number, all terms, and the dead ones."""

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
        WHERE coalesce(a.docs, 0) = 0 AND a.term = ANY(%(guessed)s) AND p.docs > 0"""
"""The frequencies of terms and, for unknown terms, of their likely meanings."""

POSTINGS = """
    SELECT q.at::int - 1, p.kind, p.entries, CASE WHEN q.placed THEN p.places END
    FROM unnest(%(lows)s::text[], %(highs)s::text[], %(placed)s::bool[]) WITH ORDINALITY AS q(low, high, placed, at)
    CROSS JOIN LATERAL (SELECT kind, entries, places FROM nugget.postings
                        WHERE space = %(space)s AND kind IN (0, 1) AND term BETWEEN q.low AND q.high OFFSET 0) AS p"""
"""The postings of ranges of terms."""

_WHOLES = (
    "SELECT unit_key, embedding, title_embedding FROM nugget.unit_vectors WHERE space = %(space)s AND unit_key {0}"
)
_DISTANCE = "embedding::vector <-> %(vector)s::vector AS distance"
_COSINE = "1 - distance * distance / 2"
_NEAREST = f"""
    SELECT DISTINCT ON (unit_key) unit_key, chunk_key, {_COSINE}
    FROM (SELECT unit_key, chunk_key, {_DISTANCE} FROM nugget.vectors
          WHERE space = %(space)s AND unit_key {{0}} OFFSET 0) AS measured ORDER BY unit_key, distance, chunk_key"""
GIVEN = "= ANY(%(keys)s)"

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
    SELECT set_config('nugget.around', string_agg(DISTINCT key::text, ','), true),
        set_config('nugget.others', string_agg(DISTINCT key::text, ',') FILTER (WHERE key != ALL(%(keys)s)), true)
    FROM (SELECT unnest(%(keys)s::int[]) AS key UNION ALL (
        SELECT unnest(ARRAY[source, target]) FROM ({EDGES}) AS edges LIMIT 200)) AS found"""
"""Keep units and at most 200 related ones (a hub has many) for the statements of the same round trip."""
AROUND = "= ANY ((SELECT string_to_array(current_setting('nugget.around'), ',')::int[])::int[])"
OTHERS = AROUND.replace("around", "others")
"""The units around those with the keys, with and without these themselves."""
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
ALL_ADMITTED = "SELECT array_send(array_agg(key)) FROM admitted"
"""The units that pass the tests of a search, one by one and together."""
_FEW_UNITS = 5_000


def conditions(filter_: Filter, name: str) -> tuple[str, dict[str, Any]]:
    """Return the tests of a filter on units `u` as SQL of PostgreSQL, with its parameters; empty for no filter."""
    text, values = conditions_of(replace(filter_, match=""))
    start, *rest = text.replace("max(", "greatest(").split("?")
    text = start + "".join(f"%({name}{at})s{part}" for at, part in enumerate(rest))
    tests = [text] if text else []
    if filter_.match:
        tests.append(f"u.key = ANY (ARRAY({matching(filter_.match)}))")  # a join would look up each
    return " AND ".join(tests), {f"{name}{at}": value for at, value in enumerate(values)}


def measuring(which: str, keys: list[int], others: list[int], vector: str) -> list[tuple[str, dict[str, Any]]]:
    """Return statements that read the vectors of whole units and titles, and of `others` the nearest chunk."""
    return [(_WHOLES.format(which), {"keys": keys}), (_NEAREST.format(which), {"keys": others, "vector": vector})]


def with_admitted(tests: str) -> str:
    """Return the beginning of a statement that finds the units that pass tests once, for ADMITTED; empty without."""
    units = f"SELECT u.key FROM nugget.units u WHERE u.space = %(space)s AND {tests}"
    return f"WITH admitted AS MATERIALIZED ({units})" if tests else ""


def by_vectors(is_filtered: bool, *, dimensions: int) -> str:
    """Return the SELECT of the nearest chunks as (key, score, unit_key); by the graph if `dimensions` are given.

    A few admitted units are measured one by one, since the graph would visit all units between them. Ten chunks more
    are found with a vector in half precision, and all are measured again with the whole one.
    """
    size = f"::halfvec({dimensions})" if dimensions else ""
    measured = f"SELECT *, embedding{size} <#> %(rounded)s::halfvec{size} AS rough"
    measured += " FROM nugget.vectors WHERE space = %(space)s"
    near = f"{measured} AND unit_key = ANY (ARRAY({ADMITTED}))" if is_filtered else measured
    best = "ORDER BY rough, chunk_key LIMIT %(k)s + 10"
    if dimensions:
        # IS TRUE keeps it a test of what the graph finds; a join would measure every vector of the space.
        within = f"AND (unit_key IN ({ADMITTED})) IS TRUE" if is_filtered else ""
        by_graph = f"SELECT * FROM ({measured} {within} ORDER BY rough LIMIT %(k)s + 10) AS near"
        count = "(SELECT count(*) FROM admitted)"
        few = f"{near} AND {count} <= {_FEW_UNITS} {best}"
        near = f"({by_graph} WHERE {count} > {_FEW_UNITS}) UNION ALL ({few})" if is_filtered else by_graph
    again = f"SELECT chunk_key, unit_key, {_DISTANCE} FROM ({near} {best}) AS near OFFSET 0"
    return f"SELECT chunk_key, {_COSINE}, unit_key FROM ({again}) AS measured ORDER BY distance, chunk_key LIMIT %(k)s"
