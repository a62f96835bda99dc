"""The seam between retrieval and an index: embedded in SQLite, or a team's in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nugget.index.fulltext import Terms, chunk_columns, documents, match_any
from nugget.index.units import CHANGED, Edge, StoredChunk, indexed_title
from nugget.models import Filter, SourceName, Unit
from nugget.text import folded

if TYPE_CHECKING:
    from nugget.index.vectors import UnitCosines
    from nugget.infra.embedding import Vector

Scored = list[tuple[int, float]]
"""Keys with their scores, best first."""


class Lists(NamedTuple):
    """The results of a search: chunks by words, whole units by words, those of a period, chunks by vectors.

    `unit_of` has the unit of each of these chunks.
    """

    texts: Scored
    wholes: Scored
    of_period: Scored
    nearest: Scored
    unit_of: dict[int, int]


class IndexReader(Protocol):
    """The questions of retrieval to an index; those with one answer for both kinds are answered here."""

    def listed(self, columns: str, filter_: Filter, order: str, *, limit: int | None = None) -> Iterable[Any]:
        """Return columns of the units `u` that a filter admits; `columns` and `order` are SQL of ours."""
        raise NotImplementedError

    @property
    def vector_search(self) -> str:
        """How vectors are compared, for `--explain` and `status`."""

    @property
    def other_model(self) -> str:
        """The entry of `degraded` for a client whose model is not the one of the index."""

    @property
    def chunk_count(self) -> int:
        """Chunks of all sources."""

    @property
    def embedding_model(self) -> str | None:
        """The model whose vectors stand in this index; None when it has none."""

    def reading(self) -> AbstractContextManager[object]:
        """Read one state of the index throughout the block, whatever is written meanwhile."""

    def terms(self, text: str, *, matches: Sequence[str] = ()) -> Terms:
        """Return the words of a question that are worth looking for; `matches` are FTS5 queries that will be asked."""

    def search(
        self, terms: Terms, vector: Vector | None, filter_: Filter, *, k: int, depth: int, within: Filter | None = None
    ) -> Lists:
        """Return the best `depth` chunks and units by words, the best k chunks by vectors, and k units of a period."""

    def search_vectors(self, vector: Vector, k: int, filter_: Filter) -> Scored:
        """Return the k chunks of highest cosine with a normalised vector, as (chunk key, cosine)."""

    def nearest_units(self, vector: Vector, k: int, filter_: Filter) -> dict[int, tuple[int, float]]:
        """Return the units of the k nearest chunks, nearest first: unit key -> (its nearest chunk, cosine)."""
        with self.reading():
            found = self.search_vectors(vector, k, filter_)
            unit_of = self.units_of_chunks([key for key, _ in found])
        nearest: dict[int, tuple[int, float]] = {}
        for key, cosine in found:
            nearest.setdefault(unit_of[key], (key, cosine))
        return nearest

    def words_of_unit(self, terms: Terms, unit_key: int) -> list[str]:
        """Return those of the words that stand in a unit."""
        unit, chunks = self.units([unit_key]).get(unit_key), self.chunks_of_units([unit_key]).get(unit_key, [])
        title = indexed_title(unit.title, unit.body) if unit else ""
        rows = [(one.key, chunk_columns(title, unit.tags, one.breadcrumb, one.text)) for one in chunks if unit]
        asked = "SELECT 1 FROM docs WHERE docs MATCH ? LIMIT 1"
        with documents(rows) as held:
            return [word for word in terms.words if held.execute(asked, (match_any([word]),)).fetchone()]

    def unit_cosines(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, UnitCosines]:
        """Return the cosines with each of these units that has vectors: of the whole, and of its title."""

    def nearest_chunks(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, tuple[int, float]]:
        """Return the nearest chunk of each of these units that has vectors: unit key -> (chunk key, cosine)."""

    def nearness(self, unit_key: int, unit_keys: Sequence[int]) -> dict[int, float]:
        """Return the cosine of each of these units with another one, each as a whole; 0 if it is below."""

    def units_of_chunks(self, keys: Sequence[int]) -> dict[int, int]:
        """Return the unit of each of these chunks: chunk key -> unit key."""

    def chunks_of_units(self, keys: Iterable[int]) -> dict[int, list[StoredChunk]]:
        """Return all chunks of these units, in order."""

    def units(self, keys: Iterable[int]) -> dict[int, Unit]:
        """Return units by key."""

    def unit(self, unit_id: str, source: SourceName = SourceName.BRAIN) -> Unit | None:
        """Return the unit of this id, if it is indexed."""
        with self.reading():
            return next(iter(self.units(self.unit_keys([unit_id], source).values()).values()), None)

    def unit_ids(self, source: SourceName = SourceName.BRAIN) -> list[str]:
        """Return the ids of all units of a source, sorted."""
        return [row[0] for row in self.listed("u.id", Filter(sources=(source,)), "u.id")]

    def unit_keys(self, ids: Iterable[str], source: SourceName = SourceName.BRAIN) -> dict[str, int]:
        """Return the keys of units by id, within one source."""

    def unit_vector(self, unit_key: int) -> Vector | None:
        """Return the vector of a unit as a whole, if it has one."""

    def has_source(self, source: SourceName) -> bool:
        """Return whether there is any unit of a source."""
        return any(True for _ in self.listed("1", Filter(sources=(source,)), "1", limit=1))

    def units_named(self, words: Sequence[str], filter_: Filter) -> list[tuple[int, str]]:
        """Return the units in whose path every one of these `folded` words stands, as (key, path)."""
        rows = self.listed("u.key, u.path", filter_, "u.path")
        return [(key, path) for key, path in rows if path and all(word in folded(path) for word in words)]

    def newest_units(self, filter_: Filter, limit: int) -> list[int]:
        """Return the keys of the units that a filter admits, what changed last first."""
        return [row[0] for row in self.listed("u.key", filter_, f"{CHANGED} DESC, u.id", limit=limit)]

    def places(self, limit: int) -> Iterable[tuple[str | None, str, str, str | None, str | None, str, str]]:
        """Return domain, tags as JSON, type, path, path of the scope, source and title of units, for suggestions."""
        return self.listed("domain, tags, type, path, scope_path, source, title", Filter(), "u.key", limit=limit)

    def titles(self, prefix: str, *, whole: bool, limit: int) -> list[tuple[str, str]]:
        """Return the ids that begin so, with their titles; with `whole` the refs, which name the source."""

    def edges(self, keys: Sequence[int]) -> list[Edge]:
        """Return the relations of these units, in both directions."""

    def admitted(self, keys: Sequence[int], filter_: Filter) -> set[int]:
        """Return those of the units that a filter admits."""

    def superseded_by(self, keys: Sequence[int]) -> dict[int, str]:
        """Return for each of these units that a newer one supersedes the id of the newer one."""
