"""A team's index: a space in PostgreSQL with pgvector, read with the same answers as the embedded one.

A question takes a few round trips. Each sends several statements at once and also fetches what retrieval asks for
next, which is kept until the end of `reading`.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from nugget.index import (
    Edge,
    IndexReader,
    Lists,
    Scored,
    StoredChunk,
    UnitCosines,
    chunk_columns,
    unit_columns,
    units_of,
)
from nugget.index.fulltext import LARGE_INDEX_CHUNKS, Document, Terms, documents, match_any, terms_of
from nugget.index.postgres import statements as sql
from nugget.index.postgres.bm25 import CHUNKS, UNITS, AskedWords, Item, items_of, places, ranges
from nugget.index.postgres.connection import Rows, Snapshot, Statement, Transactions
from nugget.models import Filter, RelationType, SourceName, Unit

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector


class PostgresIndex(Transactions, IndexReader):
    """A space of a team's index, opened for reading; thread-safe, since each thread has its own transaction."""

    vector_search, other_model = "pgvector", "other_model"

    @property
    def chunk_count(self) -> int:
        """The number of chunks in the space."""
        return self._state[2]

    @property
    def embedding_model(self) -> str | None:
        """The model of the space, or None if it has no vectors."""
        return self._state[0] or None

    def terms(self, text: str, *, matches: Sequence[str] = ()) -> Terms:
        """Return the words of a question to search for, and read what `matches` will need."""
        asked = AskedWords(text)
        placed = [item for match in matches for item in items_of(match) if item.is_placed]
        with self.reading() as now:
            rows, *found = self._trip((sql.VOCABULARY, asked.parameters), *_documents_of(placed))
            _remember_places(now, placed, found)
            return terms_of(asked.answered(self.chunk_count, rows), text)

    def _parameters(self, match: str, name: str) -> dict[str, Any]:
        """Return the parameters of an FTS5 query; the documents of its phrases are read first."""
        items = items_of(match)
        with self.reading() as now:
            known = now.read["places"]
            placed = [item for item in items if item.is_placed and (item.given, UNITS) not in known]
            if placed:
                _remember_places(now, placed, self._trip(*_documents_of(placed)))
            parameters = ranges(items, name)
            for kind in (CHUNKS, UNITS):
                rows = [
                    (at, *row) for at, item in enumerate(items) if item.is_placed for row in known[item.given, kind]
                ]
                for column, name_ in enumerate(("item", "key", "freq", "length")):
                    parameters[f"{name}{kind}_{name_}"] = [row[column] for row in rows]
        return parameters

    def _conditions(self, filter_: Filter) -> tuple[str, dict[str, Any]]:
        """Return the tests of a filter on units `u` with all parameters; empty without a filter."""
        tests, parameters = sql.conditions(filter_, "f")
        return tests, parameters | (self._parameters(filter_.match, "must") if filter_.match else {})

    def search(
        self, terms: Terms, vector: Vector | None, filter_: Filter, *, k: int, depth: int, within: Filter | None = None
    ) -> Lists:
        """Return the best `depth` chunks and units by words, the best k chunks by vectors, and k units of a period."""
        with self.reading() as now:
            numbers = self._fitting(vector)
            now.vector, now.filter = vector, filter_
            parameters: dict[str, Any] = {"k": k, "depth": depth, "vector": numbers}
            parameters |= self._parameters(terms.match, "any")
            tests, of_filter = self._conditions(filter_)
            period, of_period = sql.conditions(within, "p") if within else (None, {})
            parameters |= of_filter | of_period
            vectors = self._by_vectors(bool(tests)) if numbers else ""
            shape = {"prefixes": '"*' in terms.match, "placed": any(item.is_placed for item in items_of(terms.match))}
            rows = self._trip((sql.search(tests, period, vectors=vectors, **shape), parameters))[0]
            unit_of = {row[1]: row[3] for row in rows if row[0] in (0, 3)}
            now.read["unit_of"].update(unit_of)
            lists: list[Scored] = [[(row[1], row[2]) for row in rows if row[0] == at] for at in range(4)]
            for one in lists:
                one.sort(key=lambda entry: (-entry[1], entry[0]))
            if numbers:
                best = [
                    unit_of.get(key, key) if at in (0, 3) else key for at, one in enumerate(lists) for key, _ in one[:k]
                ]
                cosines = {row[3]: (row[2], row[4], row[5], row[1]) for row in rows if row[0] == 4}
                now.read["cosines"].update((key, cosines.get(key)) for key in best)
            texts, wholes, dated, nearest = lists
            return Lists(texts, wholes, dated, nearest, unit_of)

    def _fitting(self, vector: Vector | None) -> str:
        """Return a vector as pgvector writes it if it can be compared with those of the space, or nothing."""
        numbers = array("f", b"" if vector is None else vector.tobytes())
        return str(numbers.tolist()) if 0 < len(numbers) == self._state[1] and all(map(isfinite, numbers)) else ""

    def _by_vectors(self, is_filtered: bool) -> str:
        _, dimensions, chunks = self._state
        return sql.by_vectors(is_filtered, dimensions=dimensions if chunks > LARGE_INDEX_CHUNKS else 0)

    def search_vectors(self, vector: Vector, k: int, filter_: Filter) -> Scored:
        """Return the k chunks with the highest cosine to a normalised vector, as (chunk key, cosine)."""
        with self.reading() as now:
            if not (numbers := self._fitting(vector)):
                return []
            tests, parameters = self._conditions(filter_)
            start = sql.with_admitted(tests) if tests else ""
            rows = self._rows(f"{start} {self._by_vectors(bool(tests))}", k=k, vector=numbers, **parameters)
            now.read["unit_of"].update((row[0], row[2]) for row in rows)
            return sorted(((row[0], row[1]) for row in rows), key=lambda entry: (-entry[1], entry[0]))

    def unit_cosines(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, UnitCosines]:
        """Return the cosines of each of these units that has vectors: of the whole, and of its title."""
        return {key: (one[1] or 0.0, one[2]) for key, one in self._cosines(vector, unit_keys).items()}

    def nearest_chunks(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, tuple[int, float]]:
        """Return the nearest chunk of each of these units that has vectors: unit key -> (chunk key, cosine)."""
        return {key: (one[3], one[0]) for key, one in self._cosines(vector, unit_keys).items()}

    def _cosines(self, vector: Vector, keys: Sequence[int]) -> dict[int, tuple[float, float, float | None, int]]:
        def fetch(missing: list[int]) -> dict[int, Any]:
            rows = self._rows(sql.COSINES, keys=missing, vector=numbers)
            return {row[0]: (row[2], row[3], row[4], row[1]) for row in rows}

        with self.reading() as now:
            if not (numbers := self._fitting(vector)):
                return {}
            if now.vector is not vector:
                now.vector = vector
                now.read["cosines"].clear()
            return self._known("cosines", keys, fetch)

    def nearness(self, unit_key: int, unit_keys: Sequence[int]) -> dict[int, float]:
        """Return the cosine of each of these whole units with another one, at least 0."""

        def fetch(missing: list[int]) -> dict[int, float]:
            keys = [*missing, *now.read["units"]]  # may have been read already
            found: dict[int, float] = dict(self._rows(sql.NEARNESS, best=unit_key, keys=keys))
            now.read["nearness"].update((key, found.get(key)) for key in keys)
            return found

        with self.reading() as now:
            if now.best != unit_key:
                now.best = unit_key
                now.read["nearness"].clear()
            return {key: max(near, 0.0) for key, near in self._known("nearness", unit_keys, fetch).items()}

    def units_of_chunks(self, keys: Sequence[int]) -> dict[int, int]:
        """Return the unit of each of these chunks: chunk key -> unit key."""
        statement = "SELECT key, unit_key FROM nugget.chunks WHERE space = %(space)s AND key = ANY(%(keys)s)"
        return self._known("unit_of", keys, lambda missing: dict(self._rows(statement, keys=missing)))

    def units(self, keys: Iterable[int]) -> dict[int, Unit]:
        """Return units by key."""
        return self._known("units", keys, lambda missing: self._related(missing)["units"])

    def _related(self, keys: list[int]) -> dict[str, dict[int, Any]]:
        """Read units with their chunks and related units; remember all, and return it by kind."""
        with self.reading() as now:
            names = list(sql.RELATED)
            given: dict[str, Any] = {"keys": keys}
            asked: list[Statement] = [(sql.NOTE_AROUND, given), *((sql.RELATED[name], given) for name in names)]
            tests, parameters = self._conditions(now.filter)
            if tests:
                asked.append((f"{sql.units_admitted(tests)} AND u.key {sql.AROUND}", {**given, **parameters}))
            if numbers := self._fitting(now.vector):
                asked.append((sql.COSINES_AROUND, {**given, "vector": numbers, "best": now.best or 0}))
            found = self._trip(*asked)[1:]
            rows = dict(zip(names, found, strict=False))
            found = found[len(names) :]
            around = [row[0] for row in rows["units"]]
            chunks: dict[int, list[StoredChunk]] = {key: [] for key in around}
            for row in rows["chunks"]:
                chunks[row[1]].append(StoredChunk(*row))
            read: dict[str, dict[int, Any]] = {
                "units": units_of(rows["units"], rows["relations"]),
                "chunks_of": chunks,
                "superseded": dict.fromkeys(around) | dict(rows["superseded"]),
                "edges": {key: _edges(key, rows["edges"]) for key in keys},
            }
            if tests:
                admitted = {row[0] for row in found.pop(0)}
                read["admitted"] = {key: key in admitted for key in around}
            if found:
                others = dict.fromkeys(set(around).difference(keys))
                read["cosines"] = others | {row[0]: (row[2], row[3], row[4], row[1]) for row in found[0]}
                if now.best is not None:
                    read["nearness"] = others | {row[0]: row[5] for row in found[0]}
            for name, values in read.items():
                now.read[name].update(values)
            return read

    def chunks_of_units(self, keys: Iterable[int]) -> dict[int, list[StoredChunk]]:
        """Return all chunks of these units, in order."""
        found = self._known("chunks_of", keys, lambda missing: self._related(missing)["chunks_of"])
        return {key: chunks for key, chunks in found.items() if chunks}

    def edges(self, keys: Sequence[int]) -> list[Edge]:
        """Return the relations of these units, in both directions."""
        found: dict[int, list[Edge]] = self._known("edges", keys, lambda missing: self._related(missing)["edges"])
        every = [edge for edges in found.values() for edge in edges]
        return sorted(every, key=lambda edge: not edge.outward)

    def superseded_by(self, keys: Sequence[int]) -> dict[int, str]:
        """Return the ids of the newer units that supersede any of these units."""
        return self._known("superseded", keys, lambda missing: self._related(missing)["superseded"])

    def admitted(self, keys: Sequence[int], filter_: Filter) -> set[int]:
        """Return those of the units that pass a filter."""

        def fetch(missing: list[int]) -> dict[int, bool]:
            statement = f"{sql.units_admitted(tests)} AND u.key = ANY(%(keys)s)"
            return {row[0]: True for row in self._rows(statement, keys=missing, **parameters)}

        with self.reading() as now:
            tests, parameters = self._conditions(filter_)
            if not tests:
                return set(keys)
            if now.filter != filter_:
                now.filter = filter_
                now.read["admitted"].clear()
            return {key for key, is_admitted in self._known("admitted", keys, fetch).items() if is_admitted}

    def words_of_unit(self, terms: Terms, unit_key: int) -> list[str]:
        """Return those of the words that occur in a unit."""
        unit, chunks = self.units([unit_key])[unit_key], self.chunks_of_units([unit_key]).get(unit_key, [])
        rows = [(one.key, chunk_columns(unit.title, unit.tags, unit.body, one.breadcrumb, one.text)) for one in chunks]
        asked = "SELECT 1 FROM docs WHERE docs MATCH ? LIMIT 1"
        with documents(rows) as held:
            return [word for word in terms.words if held.execute(asked, (match_any([word]),)).fetchone()]

    def unit_keys(self, ids: Iterable[str], source: SourceName = SourceName.BRAIN) -> dict[str, int]:
        """Return the keys of units by id, within one source."""
        statement = "SELECT id, key FROM nugget.units WHERE space = %(space)s AND source = %(source)s"
        return dict(self._rows(f"{statement} AND id = ANY(%(ids)s)", source=source, ids=list(ids)))

    def unit_vector(self, unit_key: int) -> Vector | None:
        """Return the vector of a whole unit, if it has one."""
        import numpy as np

        statement = "SELECT embedding::text FROM nugget.unit_vectors WHERE space = %(space)s AND unit_key = %(key)s"
        rows = self._rows(statement, key=unit_key)
        return np.array(json.loads(rows[0][0]), dtype="<f4") if rows else None

    def listed(self, columns: str, filter_: Filter, order: str, *, limit: int | None = None) -> Rows:
        """Return columns of the units `u` that pass a filter; `columns` and `order` are trusted SQL."""
        order = order.replace("max(", "greatest(")
        with self.reading():
            tests, parameters = self._conditions(filter_)
            statement = f"SELECT {columns} FROM nugget.units u WHERE u.space = %(space)s AND {tests or 'true'}"
            return self._rows(f"{statement} ORDER BY {order} LIMIT %(limit)s", limit=limit, **parameters)


def _documents_of(items: Sequence[Item]) -> list[Statement]:
    """Return the statements that read the documents in which these items may occur."""
    return [(sql.DOCUMENTS[kind], {"terms": item.required}) for item in items for kind in (CHUNKS, UNITS)]


def _remember_places(now: Snapshot, items: Sequence[Item], found: Iterable[Rows]) -> None:
    """Remember where these items occur in the documents found for them."""
    rows = iter(found)
    for item in items:
        for kind in (CHUNKS, UNITS):
            now.read["places"][item.given, kind] = places(item, [_document(row) for row in next(rows)])


def _edges(key: int, rows: Rows) -> list[Edge]:
    """Return the edges of one unit."""
    outward = [Edge(key, target, RelationType(relation), True) for source, target, relation in rows if source == key]
    return outward + [Edge(key, source, RelationType(one), False) for source, target, one in rows if target == key]


def _document(row: Sequence[Any]) -> Document:
    """Return a document as FTS5 indexes it, from a row of statements.DOCUMENTS."""
    key, title, tags, content, *chunk = row
    unit = title, json.loads(tags), content
    return key, chunk_columns(*unit, *chunk) if chunk else unit_columns(*unit)
