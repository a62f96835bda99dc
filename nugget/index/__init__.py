"""The interface between retrieval and an index, whether embedded in SQLite or a team's in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from nugget.index.fulltext import Terms, inverse_frequency, parts_of
from nugget.markdown import body_below_title
from nugget.models import Filter, Origin, Relation, RelationType, Scope, SourceName, Unit
from nugget.models.sessions import evidence_of
from nugget.text import folded

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector

CHANGED = "max(coalesce(u.last_modified, ''), coalesce(u.created, ''))"
UNIT_COLUMNS = (
    "source, id, path, title, type, domain, tags, confidence, origin, created, last_modified, stale_after, "
    "scope_repo, scope_path, scope_symbol, session, details, content"
)
Scored = list[tuple[int, float]]
"""Keys with their scores, best first."""
UnitCosines: TypeAlias = tuple[float, float | None]
"""The cosine of a whole unit, and of its title (None if it has none of its own)."""


class StoredChunk(NamedTuple):
    """A chunk as stored in the index."""

    key: int
    unit_key: int
    position: int
    breadcrumb: str
    text: str


class Edge(NamedTuple):
    """A relation between two indexed units; `outward` if it is written in the unit in question."""

    unit_key: int
    neighbour_key: int
    relation: RelationType
    outward: bool


class Lists(NamedTuple):
    """The results of a search: chunks by words, whole units by words, units of a period, chunks by vectors.

    `unit_of` maps these chunks to their units.
    """

    texts: Scored
    wholes: Scored
    of_period: Scored
    nearest: Scored
    unit_of: dict[int, int]


class IndexReader(Protocol):
    """The queries that retrieval makes to an index; those that both kinds share are implemented here."""

    def listed(self, columns: str, filter_: Filter, order: str, *, limit: int | None = None) -> Iterable[Any]:
        """Return columns of the units `u` that pass a filter; `columns` and `order` are trusted SQL."""

    @property
    def vector_search(self) -> str:
        """The way in which vectors are compared, for `--explain` and `status`."""

    @property
    def other_model(self) -> str:
        """The entry of `degraded` for a client with another model than the index."""

    @property
    def chunk_count(self) -> int:
        """The number of chunks of all sources."""

    @property
    def embedding_model(self) -> str | None:
        """The model of the index's vectors, or None."""

    def reading(self) -> AbstractContextManager[object]:
        """Read one state of the index throughout the block, even if others write to it."""

    def terms(self, text: str, *, matches: Sequence[str] = ()) -> Terms:
        """Return the words of a question to search for; `matches` are FTS5 queries to prepare."""

    def search(
        self, terms: Terms, vector: Vector | None, filter_: Filter, *, k: int, depth: int, within: Filter | None = None
    ) -> Lists:
        """Return the best `depth` chunks and units by words, the best k chunks by vectors, and k units of a period."""

    def search_vectors(self, vector: Vector, k: int, filter_: Filter) -> Scored:
        """Return the k chunks with the highest cosine to a normalised vector, as (chunk key, cosine)."""

    def nearest_units(self, vector: Vector, k: int, filter_: Filter) -> dict[int, tuple[int, float]]:
        """Return the units of the k nearest chunks, nearest first: unit key -> (nearest chunk, cosine)."""
        with self.reading():
            found = self.search_vectors(vector, k, filter_)
            unit_of = self.units_of_chunks([key for key, _ in found])
        nearest: dict[int, tuple[int, float]] = {}
        for key, cosine in found:
            nearest.setdefault(unit_of[key], (key, cosine))
        return nearest

    def words_of_unit(self, terms: Terms, unit_key: int) -> list[str]:
        """Return those of the words that occur in a unit."""

    def unit_cosines(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, UnitCosines]:
        """Return the cosines of each of these units that has vectors: of the whole, and of its title."""

    def nearest_chunks(self, vector: Vector, unit_keys: Sequence[int]) -> dict[int, tuple[int, float]]:
        """Return the nearest chunk of each of these units that has vectors: unit key -> (chunk key, cosine)."""

    def nearness(self, unit_key: int, unit_keys: Sequence[int]) -> dict[int, float]:
        """Return the cosine of each of these whole units with another one, at least 0."""

    def units_of_chunks(self, keys: Sequence[int]) -> dict[int, int]:
        """Return the unit of each of these chunks: chunk key -> unit key."""

    def chunks_of_units(self, keys: Iterable[int]) -> dict[int, list[StoredChunk]]:
        """Return all chunks of these units, in order."""

    def units(self, keys: Iterable[int]) -> dict[int, Unit]:
        """Return units by key."""

    def unit(self, unit_id: str, source: SourceName = SourceName.BRAIN) -> Unit | None:
        """Return the unit with this id, if it is indexed."""
        with self.reading():
            return next(iter(self.units(self.unit_keys([unit_id], source).values()).values()), None)

    def unit_ids(self, source: SourceName = SourceName.BRAIN) -> list[str]:
        """Return the ids of all units of a source, sorted."""
        return [row[0] for row in self.listed("u.id", Filter(sources=(source,)), "u.id")]

    def unit_keys(self, ids: Iterable[str], source: SourceName = SourceName.BRAIN) -> dict[str, int]:
        """Return the keys of units by id, within one source."""

    def unit_vector(self, unit_key: int) -> Vector | None:
        """Return the vector of a whole unit, if it has one."""

    def has_source(self, source: SourceName) -> bool:
        """Return whether a source has any unit."""
        return any(True for _ in self.listed("1", Filter(sources=(source,)), "1", limit=1))

    def units_named(self, words: Sequence[str], filter_: Filter) -> list[tuple[int, str]]:
        """Return the units whose path contains all of these `folded` words, as (key, path)."""
        rows = self.listed("u.key, u.path", filter_, "u.path")
        return [(key, path) for key, path in rows if path and all(word in folded(path) for word in words)]

    def newest_units(self, filter_: Filter, limit: int) -> list[int]:
        """Return the keys of the units that pass a filter, last changed first."""
        return [row[0] for row in self.listed("u.key", filter_, f"{CHANGED} DESC, u.id", limit=limit)]

    def places(self, limit: int) -> Iterable[tuple[str | None, str, str, str | None, str | None, str, str]]:
        """Return domain, tags (JSON), type, path, scope path, source and title of units, for suggestions."""
        return self.listed("domain, tags, type, path, scope_path, source, title", Filter(), "u.key", limit=limit)

    def titles(self, prefix: str, *, whole: bool, limit: int) -> list[tuple[str, str]]:
        """Return the ids with a prefix and their titles; with `whole`, the refs, which name the source."""
        rows = self.listed("source || ':' || id, title" if whole else "id, title", Filter(), "1")
        return list(islice(((name, title) for name, title in rows if name.startswith(prefix)), limit))

    def edges(self, keys: Sequence[int]) -> list[Edge]:
        """Return the relations of these units, in both directions."""

    def admitted(self, keys: Sequence[int], filter_: Filter) -> set[int]:
        """Return those of the units that pass a filter."""

    def superseded_by(self, keys: Sequence[int]) -> dict[int, str]:
        """Return the ids of the newer units that supersede any of these units."""


def conditions_of(filter_: Filter) -> tuple[str, list[object]]:
    """Return the SQL tests of a filter on units `u`, with their parameters; an empty text for no filter.

    Except for `match` and `max`, PostgreSQL reads the SQL in the same way.
    """
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
    for tag in filter_.tags:  # lower-cased as by SQLite's `lower`: ASCII only
        conditions.append("replace(lower(u.tags), ?, '') != lower(u.tags)")
        parameters.append(json.dumps(tag, ensure_ascii=False).encode("utf-8", "replace").lower().decode())
    if filter_.paths:
        in_either = ["substr(lower(u.{0}), 1, ?) = ?", "replace(lower(u.{0}), ?, '') != lower(u.{0})"]
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
        conditions.append(f"{CHANGED} >= ?")
        parameters.append(filter_.since.isoformat())
    if filter_.until:
        conditions.append(f"{CHANGED} BETWEEN '0' AND ?")
        parameters.append(filter_.until.isoformat())
    if filter_.match:
        conditions.append("u.key IN (SELECT rowid FROM units_fts WHERE units_fts MATCH ?)")
        parameters.append(filter_.match)
    return " AND ".join(conditions), parameters


def indexed_title(title: str, body: str) -> str:
    """Return the title, or an empty text if the body begins with it."""
    beginning = " ".join(body[: 4 * len(title) + 100].split())
    return "" if beginning.startswith(title.removesuffix("[…]").strip()) else title


def unit_columns(title: str, tags: Sequence[str], body: str) -> tuple[str, str, str]:
    """Return the indexed (title, body, parts) of a whole unit; tags count as title."""
    return _columns(indexed_title(title, body), tags, body_below_title(body))


def chunk_columns(title: str, tags: Sequence[str], body: str, breadcrumb: str, text: str) -> tuple[str, str, str]:
    """Return the indexed (title, body, parts) of a chunk of a unit; headings count as body."""
    title = indexed_title(title, body)
    return _columns(title, tags, f"{breadcrumb.removeprefix(title)}\n{text}")


def _columns(title: str, tags: Sequence[str], body: str) -> tuple[str, str, str]:
    named = " ".join((title, *tags))
    return named, body, " ".join(parts_of(f"{named}\n{body}"))


def best_documents(
    keys: Any, freqs: Any, lengths: Any, sizes: Sequence[int], total: Sequence[float], k: int, admitted: Any
) -> Scored:
    """Return the k best documents as (key, score), with FTS5's BM25 scores in a third of its time.

    Keys, weighted frequencies in half units, lengths and whether a document may be found (None for all) are those of
    postings, term by term, `sizes` of each; `total` is the number of documents and their mean length.
    """
    import numpy as np

    count, mean = total
    idfs = [inverse_frequency(int(count), size) for size in sizes]
    values = np.repeat(idfs, sizes) * 2.2 * freqs / (freqs + (0.6 + 1.8 * lengths / mean))
    if admitted is not None:
        keys, values = keys[admitted], values[admitted]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    of_key = np.flatnonzero(np.diff(keys, prepend=-1))
    found, scores = keys[of_key], np.add.reduceat(values[order], of_key)
    for part in (8, 1):  # first without those behind the best k of every eighth
        if len(found) > k * part:
            is_best = scores >= np.partition(scores[::part], -k)[-k]
            found, scores = found[is_best], scores[is_best]
    order = np.lexsort((found, -scores))[:k]
    return list(zip(found[order].tolist(), scores[order].tolist(), strict=True))


def units_of(rows: Iterable[Sequence[Any]], relations: Iterable[Sequence[Any]]) -> dict[int, Unit]:
    """Return units by key, from rows of (key, UNIT_COLUMNS) and of (key, id of the other unit, relation type)."""
    related: dict[int, list[Relation]] = {}
    for key, target, relation in relations:
        related.setdefault(key, []).append(Relation(id=target, relation=RelationType(relation)))
    return {key: _unit_of(row, related.get(key, ())) for key, *row in rows}


def _unit_of(row: Any, related: Sequence[Relation]) -> Unit:
    """Return the unit in a row of UNIT_COLUMNS."""
    (source, id_, path, title, type_, domain, tags, confidence, origin, created, last_modified, stale_after,
     repo, scope_path, symbol, session, details_json, content) = row  # fmt: skip
    details = json.loads(details_json)
    days = {"created": created, "last_modified": last_modified, "stale_after": stale_after}
    has_scope = repo or scope_path or symbol
    return Unit(
        id=id_, source=SourceName(source), type=type_, title=title, body=content, path=path, domain=domain,
        tags=tuple(json.loads(tags)), confidence=confidence, origin=Origin(origin) if origin else None,
        related=tuple(related), scope=Scope(repo=repo, path=scope_path, symbol=symbol) if has_scope else None,
        session=session,
        evidence=tuple(map(evidence_of, details["evidence"])),
        alternatives=tuple(details["alternatives"]),
        **{name: date.fromisoformat(day) if day else None for name, day in days.items()}
    )  # fmt: skip
