"""A team's index: a space in PostgreSQL with pgvector, read with the same answers as the embedded one.

A question takes a few round trips. Each sends several statements at once and also fetches what retrieval asks for
next, which is kept until the end of `reading`.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from nugget.index import Edge, IndexReader, Lists, Scored, StoredChunk, UnitCosines, best_documents, units_of
from nugget.index.fulltext import LARGE_INDEX_CHUNKS, Terms, match_any, match_word, terms_of
from nugget.index.postgres import statements as sql
from nugget.index.postgres.bm25 import CHUNKS, ENTRY, ENTRY_BYTES, UNITS, AskedWords, documents_of, entry_of, items_of
from nugget.index.postgres.connection import Rows, Statement, Transactions
from nugget.models import Filter, RelationType, SourceName, Unit

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector


class PostgresIndex(Transactions, IndexReader):
    """A space of a team's index, opened for reading; thread-safe, since each thread has its own transaction."""

    vector_search, other_model = "pgvector", "other_model"

    @property
    def chunk_count(self) -> int:
        """The number of chunks in the space."""
        return self._numbers(CHUNKS)[0]

    @property
    def embedding_model(self) -> str | None:
        """The model of the space, or None if it has no vectors."""
        return self._state[0] or None

    def terms(self, text: str, *, matches: Sequence[str] = ()) -> Terms:
        """Return the words of a question to search for, and read what `matches` will need."""
        asked = AskedWords(text)
        with self.reading():
            rows = self._read_items([match_any(asked.characters), *matches], (sql.VOCABULARY, asked.parameters))[0]
            characters = {word: len(self._items(match_word(word), CHUNKS)[0]) for word in asked.characters}
            return terms_of(asked.answered(self.chunk_count, rows, characters), text)

    def _read_items(self, matches: Iterable[str], *others: Statement) -> list[Rows]:
        """Read the documents of the items of FTS5 queries, with other statements, whose rows are returned."""
        with self.reading() as now:
            known = now.read["items"]
            items = {item: None for match in matches for item in items_of(match) if (item.given, UNITS) not in known}
            asked = [term for item in items for term in item.asked]
            columns = {name: [term[at] for term in asked] for at, name in enumerate(("lows", "highs", "placed"))}
            statements = [*others, *([(sql.POSTINGS, columns)] if asked else [])]
            found = self._trip(*statements) if statements else []
            rows: dict[tuple[int, int], Rows] = defaultdict(list)
            for at, kind, *packed in found.pop() if asked else ():
                rows[kind, at].append(tuple(packed))
            for kind in (CHUNKS, UNITS):
                order = iter(range(len(asked)))
                for item in items:
                    of_terms = [rows[kind, next(order)] for _ in item.asked]
                    known[item.given, kind] = documents_of(item, of_terms, self._numbers(kind)[2])
            return found

    def _items(self, match: str, kind: int) -> list[Any]:
        """Return the documents of each item of an FTS5 query."""
        with self.reading() as now:
            self._read_items([match])
            return [now.read["items"][item.given, kind] for item in items_of(match)]

    def _numbers(self, kind: int) -> tuple[int, int, Any]:
        """Return the numbers of documents and of their terms, and the keys of dead documents."""
        docs, tokens, dead = self._state[2 + 3 * kind : 5 + 3 * kind]
        return docs, tokens, _keys(dead)

    def _conditions(self, filter_: Filter) -> tuple[str, dict[str, Any]]:
        """Return the tests of a filter on units `u` with all parameters; empty without a filter."""
        tests, parameters = sql.conditions(filter_, "f")
        if filter_.match:
            items = [its["key"].tolist() for its in self._items(filter_.match, UNITS)]
            parameters["must_items"] = [at for at, keys in enumerate(items) for _ in keys]
            parameters["must_keys"] = [key for keys in items for key in keys]
        return tests, parameters

    def search(
        self, terms: Terms, vector: Vector | None, filter_: Filter, *, k: int, depth: int, within: Filter | None = None
    ) -> Lists:
        """Return the best `depth` chunks and units by words, the best k chunks by vectors, and k units of a period."""
        with self.reading() as now:
            asked = [] if vector is None or not self._fitting(vector) else [self._nearest(vector, k, filter_)]
            filters = [one for one in (filter_, within) if one and self._conditions(one)[0]]
            matches = terms.match, match_any(terms.words)
            found = self._read_items(matches, *asked, *map(self._admitting, filters))
            nearest = found.pop(0) if asked else []
            now.read["admitted"].update((one, _keys(rows[0][0])) for one, rows in zip(filters, found, strict=True))
            texts, unit_of = self._ranked(CHUNKS, terms.match, depth, filter_)
            wholes, _ = self._ranked(UNITS, terms.match, depth, filter_)
            dated, _ = self._ranked(UNITS, terms.match, k, within) if within else ([], {})
            unit_of |= {key: unit for key, _, unit in nearest}
            now.read["unit_of"].update(unit_of)
            now.read["nearest"].update((unit, (key, score)) for key, score, unit in reversed(nearest))
            return Lists(texts, wholes, dated, [(key, score) for key, score, _ in nearest], unit_of)

    def _ranked(self, kind: int, match: str, k: int, filter_: Filter) -> tuple[Scored, dict[int, int]]:
        """Return the best k documents for any item of a query, and their units."""
        import numpy as np

        its, (docs, tokens, _) = self._items(match, kind), self._numbers(kind)
        sizes = list(map(len, its))
        if not sum(sizes):
            return [], {}
        found = np.concatenate([one.view(f"V{ENTRY_BYTES}") for one in its]).view(ENTRY)  # ten times as fast as fields
        with self.reading() as now:
            admitted = now.read["admitted"].get(filter_)
        admitted = None if admitted is None else np.isin(found["unit"], admitted)
        best = best_documents(found["key"], found["freq"], found["length"], sizes, (docs, tokens / docs), k, admitted)
        keys = [key for key, _ in best]
        return best, dict(zip(keys, entry_of(found, keys)["unit"].tolist(), strict=True)) if kind == CHUNKS else {}

    def _admitting(self, filter_: Filter) -> Statement:
        """Return the statement that reads the units that pass a filter."""
        tests, parameters = self._conditions(filter_)
        return f"{sql.with_admitted(tests)} {sql.ALL_ADMITTED}", parameters

    def _fitting(self, vector: Vector | None) -> str:
        """Return a vector as pgvector writes it if it can be compared with those of the space, or nothing."""
        with self.reading() as now:
            if now.vector is not vector:
                now.vector, now.written = vector, ""
                now.read["cosines"], now.read["nearest"] = {}, {}
                numbers = array("f", b"" if vector is None else vector.tobytes())
                if 0 < len(numbers) == self._state[1] and all(map(isfinite, numbers)):
                    now.written = str(numbers.tolist())
            return now.written

    def _nearest(self, vector: Vector, k: int, filter_: Filter) -> Statement:
        _, dimensions, chunks, *_ = self._state
        tests, parameters = self._conditions(filter_)
        by_vectors = sql.by_vectors(bool(tests), dimensions=dimensions if chunks > LARGE_INDEX_CHUNKS else 0)
        given = {"k": k, "vector": self._fitting(vector), "rounded": self._fitting(vector)}
        return f"{sql.with_admitted(tests)} {by_vectors}", {**parameters, **given}

    def search_vectors(self, vector: Vector, k: int, filter_: Filter) -> Scored:
        """Return the k chunks with the highest cosine to a normalised vector, as (chunk key, cosine)."""
        with self.reading() as now:
            rows = self._trip(self._nearest(vector, k, filter_))[0] if self._fitting(vector) else []
            now.read["unit_of"].update((key, unit) for key, _, unit in rows)
            return [(key, score) for key, score, _ in rows]

    def unit_cosines(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, UnitCosines]:
        """Return the cosines of each of these units that has vectors: of the whole, and of its title."""
        with self.reading() as now:

            def fetch(missing: list[int]) -> dict[int, UnitCosines]:
                others = [key for key in missing if key not in now.read["nearest"]]
                return self._measured(others, *self._trip(*sql.measuring(sql.GIVEN, missing, others, now.written)))

            return self._known("cosines", unit_keys, fetch) if self._fitting(vector) else {}

    def nearest_chunks(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, tuple[int, float]]:
        """Return the nearest chunk of each of these units that has vectors: unit key -> (chunk key, cosine)."""
        with self.reading() as now:
            self.unit_cosines(vector, unit_keys)
            return {key: one for key in unit_keys if (one := now.read["nearest"].get(key))}

    def _measured(self, keys: Sequence[int], wholes: Rows, nearest: Rows) -> dict[int, UnitCosines]:
        """Return the cosines of units from rows of statements.measuring; remember the rest of them."""
        import numpy as np

        with self.reading() as now:
            assert now.vector is not None
            query = np.frombuffer(now.vector.tobytes(), "<f4")
            packed = (np.frombuffer(b"".join(row[at] for row in wholes if row[at]), "<f2") for at in (1, 2))
            of_whole, of_title = (its.astype(np.float32).reshape(-1, len(query)) for its in packed)
            now.read["nearest"].update(dict.fromkeys(keys) | {unit: (key, cosine) for unit, key, cosine in nearest})
            now.read["wholes"].update((row[0], whole) for row, whole in zip(wholes, of_whole, strict=True))
            titles, cosines = iter(_cosines(of_title, query).tolist()), _cosines(of_whole, query).tolist()
            rows = zip(wholes, cosines, strict=True)
            return {key: (cosine, next(titles) if title else None) for (key, _, title), cosine in rows}

    def nearness(self, unit_key: int, unit_keys: Sequence[int]) -> dict[int, float]:
        """Return the cosine of each of these whole units with another one, at least 0."""
        import numpy as np

        with self.reading() as now:
            if now.vector is not None:
                self.unit_cosines(now.vector, [unit_key, *unit_keys])
            wholes = now.read["wholes"]
            found = [key for key in unit_keys if key in wholes] if unit_key in wholes else []
            cosines = _cosines(np.array([wholes[key] for key in found]), wholes[unit_key]) if found else np.empty(0)
            return dict(zip(found, np.maximum(cosines, 0.0).tolist(), strict=True))

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
            if numbers := self._fitting(now.vector):
                asked += sql.measuring(sql.OTHERS, keys, keys, numbers)
            found = self._trip(*asked)[1:]
            rows, found = dict(zip(names, found, strict=False)), found[len(names) :]
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
            if found:
                others = list({*around} - {*keys})
                read["cosines"] = dict.fromkeys(others) | self._measured(others, *found)
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
        return sorted((edge for edges in found.values() for edge in edges), key=lambda edge: not edge.outward)

    def superseded_by(self, keys: Sequence[int]) -> dict[int, str]:
        """Return the ids of the newer units that supersede any of these units."""
        return self._known("superseded", keys, lambda missing: self._related(missing)["superseded"])

    def admitted(self, keys: Sequence[int], filter_: Filter) -> set[int]:
        """Return those of the units that pass a filter."""
        with self.reading() as now:
            if not self._conditions(filter_)[0]:
                return set(keys)
            if filter_ not in now.read["admitted"]:
                now.read["admitted"][filter_] = _keys(self._trip(self._admitting(filter_))[0][0][0])
            return set(keys).intersection(now.read["admitted"][filter_].tolist())

    def words_of_unit(self, terms: Terms, unit_key: int) -> list[str]:
        """Return those of the words that occur in a unit."""
        found = zip(terms.words, self._items(match_any(terms.words), CHUNKS), strict=True)
        return [word for word, its in found if unit_key in its["unit"]]

    def unit_keys(self, ids: Iterable[str], source: SourceName = SourceName.BRAIN) -> dict[str, int]:
        """Return the keys of units by id, within one source."""
        statement = "SELECT id, key FROM nugget.units WHERE space = %(space)s AND source = %(source)s"
        return dict(self._rows(f"{statement} AND id = ANY(%(ids)s)", source=source, ids=list(ids)))

    def unit_vector(self, unit_key: int) -> Vector | None:
        """Return the vector of a whole unit, if it has one."""
        import numpy as np

        rows = self._trip(*sql.measuring(sql.GIVEN, [unit_key], [], "[0]"))[0]
        return np.frombuffer(rows[0][1], "<f2").astype("<f4") if rows else None

    def listed(self, columns: str, filter_: Filter, order: str, *, limit: int | None = None) -> Rows:
        """Return columns of the units `u` that pass a filter; `columns` and `order` are trusted SQL."""
        order = order.replace("max(", "greatest(")
        with self.reading():
            tests, parameters = self._conditions(filter_)
            statement = f"SELECT {columns} FROM nugget.units u WHERE u.space = %(space)s AND {tests or 'true'}"
            return self._rows(f"{statement} ORDER BY {order} LIMIT %(limit)s", limit=limit, **parameters)


def _cosines(vectors: Any, vector: Any) -> Any:
    """Return the cosine of each vector with another one, from their distance, as the embedded index does."""
    import numpy as np

    return 1 - np.einsum("ij,ij->i", apart := vectors - vector, apart) / 2


def _keys(packed: bytes | None) -> Any:
    """Return the keys in an array of int4 as PostgreSQL sends it."""
    import numpy as np

    return np.frombuffer(packed or bytes(20), [("size", ">i4"), ("key", ">i4")], offset=20)["key"].astype(np.int32)


def _edges(key: int, rows: Rows) -> list[Edge]:
    """Return the edges of one unit."""
    outward = [Edge(key, target, RelationType(relation), True) for source, target, relation in rows if source == key]
    return outward + [Edge(key, source, RelationType(one), False) for source, target, one in rows if target == key]
