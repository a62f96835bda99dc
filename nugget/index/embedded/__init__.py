"""The embedded index: one SQLite file, disposable, with units, chunks, relations, full text and vectors.

Everything above reads it through `Index`. Only sync writes it, through `units` within `write_transaction`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.index import Edge, IndexReader, Lists, StoredChunk, UnitCosines, best_documents, conditions_of
from nugget.index.embedded import units as stored
from nugget.index.embedded import vectors
from nugget.index.embedded.connection import (
    Unusable,
    home_index_file,
    load_sqlite_vec,
    memory_index_file,
    open_existing,
    open_memory,
)
from nugget.index.embedded.units import select_in
from nugget.index.fulltext import (
    BM25_WEIGHTS,
    HALVES,
    SMALL_INDEX_CHUNKS,
    Terms,
    Vocabulary,
    is_unspaced_character,
    match_any,
    terms_of,
)
from nugget.models import Filter, RelationType, SourceName, Unit

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector

_MOST_KNOWN = 32
"""The most document lengths and filter masks that a thread keeps for one state."""


class Index(IndexReader):
    """An index file, opened for reading; thread-safe, since each thread has its own connection.

    `IndexReader` describes its queries. Each thread keeps postings of `kept_bytes` at most until something is written.
    Raises Unusable if the file must be rebuilt first.
    """

    other_model = "no_vectors"  # sync gives this index vectors of the client's model

    def __init__(self, file: Path, *, kept_bytes: int = 1 << 26) -> None:
        self.file, self._kept_bytes = file, kept_bytes
        self._signs = vectors.Signs()
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        _ = self.connection

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = open_existing(self.file)
            self._local.connection, self._local.state = connection, (0, -1)
            self._local.vector_search = "sqlite-vec" if load_sqlite_vec(connection) else "numpy"
            if self._local.vector_search == "numpy":
                vectors.add_distance(connection)
            self._opened.append(connection)
        return connection

    @property
    def vector_search(self) -> str:
        """The library that compares vectors in this thread: `sqlite-vec`, or `numpy` where that does not load."""
        _ = self.connection
        return str(self._local.vector_search)

    @contextmanager
    def reading(self) -> Iterator[None]:
        connection = self.connection
        if connection.in_transaction:
            yield
            return
        connection.execute("BEGIN")
        state = connection.execute("PRAGMA data_version").fetchone()[0], connection.total_changes
        if state != self._local.state or len(self._local.known) > _MOST_KNOWN:
            self._local.state, self._local.known = state, {}
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                connection.execute("COMMIT")

    @property
    def chunk_count(self) -> int:
        return self._vocabulary.chunks

    @property
    def _vocabulary(self) -> Vocabulary:
        vocabulary: Vocabulary = self._once(Vocabulary, lambda: Vocabulary(self.connection))
        return vocabulary

    @property
    def embedding_model(self) -> str | None:
        return self.meta("embedding_model") or None

    def model_problem(self, model: str | None = None) -> str | None:
        """Return why the last sync could not load the configured model (or this one), or None."""
        noted = self.meta("model_problem")
        problem = json.loads(noted) if noted else {}
        return None if model not in (None, problem.get("model")) else problem.get("reason")

    def meta(self, key: str) -> str | None:
        """Return a fact about the index as a whole."""
        return stored.meta(self.connection, key)

    def counts(self) -> dict[str, int]:
        """Return the number of units, chunks, vectors, relationships and files."""
        names = ("units", "chunks", "vectors", "relationships", "files")
        return {name: self.connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}

    def terms(self, text: str, *, matches: Sequence[str] = ()) -> Terms:
        return terms_of(self._vocabulary, text)

    def search(
        self, terms: Terms, vector: Vector | None, filter_: Filter, *, k: int, depth: int, within: Filter | None = None
    ) -> Lists:
        # One after the other: in parallel threads they would lose more to the interpreter lock than they gain.
        texts = self.search_text("chunks", terms, depth, filter_)
        wholes = self.search_text("units", terms, depth, filter_)
        of_period = self.search_text("units", terms, k, within) if within else []
        nearest = self.search_vectors(vector, k, filter_) if vector is not None else []
        unit_of = self.units_of_chunks(list({key for key, _ in [*texts, *nearest]}))
        return Lists(texts, wholes, of_period, nearest, unit_of)

    def search_text(self, kind: str, terms: Terms, k: int, filter_: Filter) -> list[tuple[int, float]]:
        """Return the k best matches for any of these terms, among the `chunks` or the whole `units`.

        Each is (key, BM25 score); higher is better.
        """
        if not terms.match:
            return []
        if self._has_numpy and (alone := _plain_terms(terms)):
            import numpy as np

            its, (lengths, _, *total) = self._postings(kind, alone), self._documents(kind)
            (keys, freqs), admitted = np.concatenate(its, axis=1), self._admitted(filter_, kind)
            sizes, may_be = [one.shape[1] for one in its], None if admitted is None else admitted[keys]
            return best_documents(keys, freqs, lengths[keys] - 1, sizes, total, k, may_be)
        table, (allowed_sql, parameters) = f"{kind}_fts", _allowed(filter_, kind)
        where = f"AND +rowid IN ({allowed_sql})" if allowed_sql else ""  # `+` makes SQLite match first, not row by row
        return self.connection.execute(
            # `ORDER BY rank` takes twice as long.
            f"SELECT rowid, -bm25({table}, {BM25_WEIGHTS}) AS score FROM {table} WHERE {table} MATCH ? {where} "
            "ORDER BY score DESC LIMIT ?",
            (terms.match, *parameters, k),
        ).fetchall()

    @property
    def _has_numpy(self) -> bool:
        """True if numpy is faster than SQLite alone: never for a small index, or if it is not imported yet."""
        return self.chunk_count > SMALL_INDEX_CHUNKS and "numpy" in sys.modules

    def _postings(self, kind: str, terms: Sequence[str]) -> list[Any]:
        """Return the documents of each term in order: an array of their keys and one of weighted frequencies in halves.

        FTS5 says where each term occurs. Within `reading` those of the latest terms are kept.
        """
        import numpy as np

        kept, room = self._once("postings", lambda: ({}, [self._kept_bytes]))
        for term in terms:
            if (its := kept.pop((kind, term), None)) is None:
                # One text, since a row for each place takes twice as long.
                sql = f"SELECT group_concat(doc * 8 + {HALVES}) FROM {kind}_places WHERE term = ?"
                places = np.fromstring(self.connection.execute(sql, (term,)).fetchone()[0] or "", np.int64, sep=",")
                first = np.flatnonzero(np.diff(docs := places >> 3, prepend=-1))
                its = np.array((docs[first], np.add.reduceat(places & 7, first)), np.int32)
                room[0] -= its.nbytes
            kept[kind, term] = its  # behind those of earlier questions
        found = [kept[kind, term] for term in terms]
        while room[0] < 0:
            room[0] += kept.pop(next(iter(kept))).nbytes
        return found

    def _documents(self, kind: str) -> Any:
        return self._once(kind, lambda: stored.read_documents(self.connection, kind))

    def _admitted(self, filter_: Filter, kind: str) -> Any:
        """Return an array that says for each key whether it passes a filter, or None if all do."""
        import numpy as np

        sql, parameters = _allowed(filter_, "units")
        if not sql:
            return None

        def read() -> Any:
            one_text = f"SELECT coalesce(group_concat(key), '') FROM ({sql})"  # a row for each key takes twice as long
            keys = self.connection.execute(one_text, parameters).fetchone()[0]
            mask = np.zeros(len(self._documents("units")[0]), bool)
            mask[np.fromstring(keys, np.int64, sep=",")] = True
            return mask

        units = self._once(filter_, read)
        return units if kind == "units" else self._once((filter_, kind), lambda: units[self._documents("chunks")[1]])

    def _once(self, name: object, read: Callable[[], Any]) -> Any:
        """Return the result of `read`, which is kept within `reading` until something is written."""
        is_same = self.connection.in_transaction and self._local.state[1] == self.connection.total_changes
        known = self._local.known if is_same else {}
        if name not in known:
            known[name] = read()
        return known[name]

    def search_vectors(self, vector: Vector, k: int, filter_: Filter) -> list[tuple[int, float]]:
        near = self._signs.near(self.connection, vector, k, self._admitted(filter_, "chunks"))
        # L2 is sqlite-vec's only measure that does not compute two norms per row.
        sql = "SELECT vec_distance_L2(embedding, ?), chunk_key FROM json_each(?) CROSS JOIN vectors"
        given = vector.tobytes(), json.dumps(near), k
        best = self.connection.execute(f"{sql} ON chunk_key = value ORDER BY 1, 2 LIMIT ?", given)
        return [(key, vectors.cosine(distance)) for distance, key in best]

    def unit_cosines(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, UnitCosines]:
        sql = (
            "SELECT unit_key, vec_distance_L2(embedding, ?), "
            "CASE WHEN title_embedding IS NOT NULL THEN vec_distance_L2(title_embedding, ?) END "
            "FROM unit_vectors WHERE unit_key IN"
        )
        return {
            unit: (vectors.cosine(whole), None if title is None else vectors.cosine(title))
            for unit, whole, title in select_in(self.connection, sql, unit_keys, [vector.tobytes()] * 2)
        }

    def nearest_chunks(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, tuple[int, float]]:
        sql = (  # with min(), SQLite takes `key` from the smallest row
            "SELECT unit_key, key, min(vec_distance_L2(embedding, ?)) FROM chunks CROSS JOIN vectors "
            "ON chunk_key = key WHERE unit_key IN (SELECT value FROM json_each(?)) GROUP BY unit_key"
        )
        rows = self.connection.execute(sql, (vector.tobytes(), json.dumps(unit_keys)))
        return {unit: (key, vectors.cosine(distance)) for unit, key, distance in rows}

    def nearness(self, unit_key: int, unit_keys: Sequence[int]) -> dict[int, float]:
        vector = self.unit_vector(unit_key)
        sql = "SELECT unit_key, vec_distance_L2(embedding, ?) FROM unit_vectors WHERE unit_key IN"
        near = () if vector is None else select_in(self.connection, sql, unit_keys, (vector.tobytes(),))
        return {key: max(vectors.cosine(distance), 0.0) for key, distance in near}

    def words_of_unit(self, terms: Terms, unit_key: int) -> list[str]:
        between = "SELECT min(key), max(key) FROM chunks WHERE unit_key = ?"  # a unit's chunks have consecutive keys
        keys = self.connection.execute(between, (unit_key,)).fetchone()
        if self._has_numpy and keys[0] and (alone := _plain_terms(terms)):
            ends = [its[0].searchsorted((keys[0], keys[1] + 1)) for its in self._postings("chunks", alone)]
            return [word for word, (first, last) in zip(terms.words, ends, strict=True) if first < last]
        sql = "SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid BETWEEN ? AND ? LIMIT 1"
        return [word for word in terms.words if self.connection.execute(sql, (match_any([word]), *keys)).fetchone()]

    def units_of_chunks(self, keys: Sequence[int]) -> dict[int, int]:
        if self._has_numpy:
            return dict(zip(keys, self._documents("chunks")[1][list(keys)].tolist(), strict=True))
        return dict(select_in(self.connection, "SELECT key, unit_key FROM chunks WHERE key IN", keys))

    def chunks_of_units(self, keys: Iterable[int]) -> dict[int, list[StoredChunk]]:
        return stored.chunks_of_units(self.connection, keys)

    def units(self, keys: Iterable[int]) -> dict[int, Unit]:
        return stored.units_by_key(self.connection, keys)

    def unit_keys(self, ids: Iterable[str], source: SourceName = SourceName.BRAIN) -> dict[str, int]:
        return stored.unit_keys(self.connection, ids, source)

    def unit_vector(self, unit_key: int) -> Vector | None:
        import numpy as np

        sql = "SELECT embedding FROM unit_vectors WHERE unit_key = ?"
        row = self.connection.execute(sql, (unit_key,)).fetchone()
        return np.frombuffer(row[0], dtype="<f4") if row else None

    def listed(self, columns: str, filter_: Filter, order: str, *, limit: int | None = None) -> Iterable[Any]:
        conditions, parameters = conditions_of(filter_)
        sql = f"SELECT {columns} FROM units u WHERE {conditions or 'true'} ORDER BY {order} LIMIT ?"
        return self.connection.execute(sql, (*parameters, -1 if limit is None else limit))

    def edges(self, keys: Sequence[int]) -> list[Edge]:
        ends = (
            "FROM relationships r JOIN units s ON s.key = r.source_key "
            "JOIN units t ON t.id = r.target_id AND t.source = s.source"
        )
        found = []
        for is_outward, unit, neighbour in ((True, "s", "t"), (False, "t", "s")):
            sql = f"SELECT {unit}.key, {neighbour}.key, relation_type {ends} WHERE s.key != t.key AND {unit}.key IN"
            rows = select_in(self.connection, sql, list(keys))
            found += [Edge(key, other, RelationType(relation), is_outward) for key, other, relation in rows]
        return found

    def admitted(self, keys: Sequence[int], filter_: Filter) -> set[int]:
        conditions, parameters = conditions_of(filter_)
        if not conditions:
            return set(keys)
        sql = f"SELECT key FROM units u WHERE {conditions} AND key IN"
        return {row[0] for row in select_in(self.connection, sql, keys, parameters)}

    def superseded_by(self, keys: Sequence[int]) -> dict[int, str]:
        sql = """SELECT t.key, s.id FROM units t
                 JOIN relationships r ON r.target_id = t.id AND r.relation_type = 'supersedes'
                 JOIN units s ON s.key = r.source_key AND s.source = t.source AND s.key != t.key
                 WHERE t.key IN"""
        return dict(select_in(self.connection, sql, keys))

    def close(self) -> None:
        """Close every thread's connection; the index may not be used afterwards."""
        for connection in self._opened:
            connection.close()
        self._opened.clear()

    def __del__(self) -> None:
        self.close()


def _allowed(filter_: Filter, kind: str) -> tuple[str, list[object]]:
    """Return a SELECT of the keys of the chunks or units that pass a filter, with parameters; empty for all."""
    conditions, parameters = conditions_of(filter_)
    tables = "units u CROSS JOIN chunks c ON c.unit_key = u.key" if kind == "chunks" else "units u"
    return f"SELECT {kind[0]}.key FROM {tables} WHERE {conditions}" if conditions else "", parameters


def read_home(home: Path) -> Index:
    """Open the machine's index for reading. Raises Unusable if nothing was synced into it yet."""
    return Index(home_index_file(home))


def read_memory(home: Path, identity: str) -> Index:
    """Open the index of an identity's memory for reading; create it if necessary."""
    open_memory(home, identity).close()
    index = Index(memory_index_file(home, identity))
    if index.meta("identity") != identity:
        raise Unusable("the index is another identity's")
    return index


def _plain_terms(terms: Terms) -> list[str]:
    """Return the FTS5 terms of a search if it consists of terms only, without phrases or prefixes."""
    found = [terms.tokens[word] for word in terms.words]
    is_plain = terms.match == match_any(terms.words) and not any(map(is_unspaced_character, terms.words))
    return [its[0] for its in found] if is_plain and all(len(its) == 1 for its in found) else []
