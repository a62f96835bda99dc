"""The hits of every source: units of the brain and of the machine's index, passages, one identity's memory.

Each source is searched separately, so that a large one does not crowd out others, and hits are merged by their
comparable scores. Outside the brain, weak hits of vectors alone are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import NamedTuple

from nugget.errors import UsageError
from nugget.index import IndexReader, StoredChunk
from nugget.index.embedded import Index
from nugget.index.fulltext import STOP_WORDS, question_words
from nugget.infra.embedding import QuestionEmbedder
from nugget.models import Chunk, Contribution, Filter, Hit, Query, SourceName, Unit
from nugget.retrieval.candidates import Matcher, Profile, gather
from nugget.retrieval.history import HISTORY_SOURCES, newest_history, search_history
from nugget.retrieval.query_language import SearchQuery
from nugget.retrieval.scoring import is_weak, rank, to_hits
from nugget.text import folded

_LEAST_SHARE = 0.6
"""The minimum share of the source's best score for a hit without any query word."""
_IN_NAME, _IN_FOLDER = 0.3, 0.2
"""Added to the score of a note whose file name, or whose path, holds every word of the query."""
_LONE_PASSAGE = 0.6
"""The score of the best possible passage if no unit is likely to answer; units seldom exceed it."""
WRITTEN = (SourceName.BRAIN, SourceName.CANON, SourceName.MEMORY)
"""Sources written to be read."""
_NUGGET_SHARE, _RECORD_SHARE = 0.6, 0.8
"""The shares of their score that nuggets, which repeat prompts or units, and other records keep."""
_PASSAGE_WEAK_BELOW = 0.35
"""The share of a question's words that a likely passage contains."""
_FEW_CHUNKS = 100
"""Below this, a source with any of the question's words is not weak, and every hit needs a word or near vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexes:
    """The indexes that a search reads; `memory` is set only if an identity was named.

    `others` are the indexes of other brains by name; `name` is this brain's.
    """

    brain: IndexReader
    machine: Index | None = None
    memory: Index | None = None
    name: str = ""
    others: Mapping[str, IndexReader] = field(default_factory=dict)

    def of(self, source: SourceName) -> IndexReader | None:
        """Return the index that holds a source, if there is one."""
        if source is SourceName.BRAIN:
            return self.brain
        return self.memory if source is SourceName.MEMORY else self.machine

    def holding(self, source: SourceName) -> dict[str | None, IndexReader]:
        """Return the indexes with units of a source; several brains are listed by name."""
        if source is SourceName.BRAIN:
            return dict([(self.name, self.brain), *self.others.items()]) if self.others else {None: self.brain}
        index = self.of(source)
        return {None: index} if index is not None and index.has_source(source) else {}


class Found(NamedTuple):
    """The hits of one source, best first; from each index the idfs of the words and the chunks of its hits."""

    source: SourceName
    hits: list[Hit]
    weak: bool
    degraded: tuple[str, ...] = ()
    idfs: Mapping[str | None, Mapping[str, float]] = {}
    chunks: Mapping[str | None, Mapping[str, Sequence[StoredChunk]]] = {}
    candidates: int = 0


def chosen_sources(names: Sequence[SourceName], *, identity: str | None) -> tuple[SourceName, ...]:
    """Return the sources to search: the named ones, else all. Memory is one of them only for a named identity.

    Raises UsageError if memory is asked for without an identity.
    """
    if SourceName.MEMORY in names and identity is None:
        raise UsageError("Memory is private to an identity.", hint="Name it: --as IDENTITY.")
    allowed = [name for name in SourceName if name is not SourceName.MEMORY or identity is not None]
    return tuple(name for name in allowed if name in (names or allowed))


def search_source(
    source: SourceName, asked: Query, parsed: SearchQuery, profile: Profile, indexes: Indexes, *,
    embedder: QuestionEmbedder | None, most: int, today: date,
) -> Found:  # fmt: skip
    """Return the hits of one source, at least `most` if there are enough."""
    sources = () if source is SourceName.BRAIN else (source,)
    if asked.filter.sessions and source is not SourceName.SESSIONS:  # unlike `session:` in the text of the query
        parsed = replace(parsed, filter=replace(parsed.filter, sessions=()))
    filter_ = replace(parsed.filter, sources=sources, match=parsed.match)
    query = Query(parsed.text, match_any=parsed.match_any, filter=filter_, limit=most, explain=asked.explain)
    hits: list[Hit] = []
    degraded: list[str] = []
    idfs: dict[str | None, Mapping[str, float]] = {}
    chunks: dict[str | None, Mapping[str, Sequence[StoredChunk]]] = {}
    candidates, has_vectors, is_small = 0, True, True
    for name, index in indexes.holding(source).items():
        with index.reading():
            gathered = gather(query, profile, index, embedder, today=today)
            scored = rank(gathered)
            found = to_hits(scored, query, profile, index, gathered, at_least=most, today=today)
            if source is SourceName.CANON:
                found = _with_named(parsed.text, query, found, index, gathered.matcher)
            chunks[name] = gathered.matcher.chunks
            is_small = is_small and index.chunk_count < _FEW_CHUNKS
        hits += [replace(hit, brain=name) for hit in found] if name is not None else found
        degraded += gathered.degraded
        idfs[name] = gathered.terms.idfs
        candidates, has_vectors = candidates + len(scored), has_vectors and gathered.matcher.vector is not None
    if indexes.others and source is SourceName.BRAIN:
        hits.sort(key=lambda hit: -hit.score)
    weak = is_weak(hits, has_vectors=has_vectors)
    if weak and source is not SourceName.BRAIN and hits:
        weak = not any("file name" in hit.reasons or (is_small and _matches_words(hit)) for hit in hits)
    if is_small or source is not SourceName.BRAIN:
        best = max((hit.score for hit in hits), default=0.0)  # hits of vectors alone must be nearly as good
        hits = [hit for hit in hits if _matches_words(hit) or (not weak and hit.score >= _LEAST_SHARE * best)]
    passages = _passages(source, parsed, indexes, limit=most, today=today) if source in HISTORY_SOURCES else []
    if source is not SourceName.BRAIN:
        hits += passages
        hits.sort(key=lambda hit: (-round(hit.score, 2), -(day_of(hit) or date.min).toordinal(), hit.ref))
    if passages and (parsed.match or max(hit.score for hit in passages) >= _PASSAGE_WEAK_BELOW):
        weak = False
    return Found(source, hits, weak, tuple(degraded), idfs, chunks, candidates)


def list_source(source: SourceName, filter_: Filter, indexes: Indexes, *, most: int) -> list[Hit]:
    """Return all units or passages of a source that pass a filter, newest first."""
    hits = []
    for name, index in indexes.holding(source).items():
        keys = index.newest_units(replace(filter_, sources=(source,)), most)
        units, chunks = index.units(keys), index.chunks_of_units(keys)
        hits += [
            Hit(unit=units[key], score=1.0, chunks=(_first_of(units[key], chunks.get(key, ())),),
                reasons=("filter",), brain=name)
            for key in keys
        ]  # fmt: skip
    machine = indexes.machine
    if source in HISTORY_SOURCES and machine and not _is_about_units(filter_):
        hits += newest_history(machine.connection, source, filter_, most)
    return hits


def merge_hits(found: Sequence[Found]) -> list[Hit]:
    """Return the hits of all sources, best first; those of a source without a likely hit come last.

    If no written source has a likely hit, the brain's hits that match a word count as likely: in a small brain that is
    hard to tell. Each source keeps its own order, and about equal hits follow the order of sources. The score of a
    passage is the share of words in it; the best possible one counts as much as the best unit. Nuggets count less.
    """
    likely = [hit.score for one in found if one.source in WRITTEN and not one.weak for hit in one.hits]
    if not likely:
        found = [part for one in found for part in _split(one)]
    most = max(likely, default=_LONE_PASSAGE)
    scaled = (one._replace(hits=[_scaled(hit, one.source, most) for hit in one.hits]) for one in found)
    return [hit for _, hit in sorted((entry for one in scaled for entry in _keyed(one)), key=lambda entry: entry[0])]


def _split(found: Found) -> tuple[Found, ...]:
    """Split the brain's hits into those that match a word, which count as likely, and others; keep other sources."""
    if found.source is not SourceName.BRAIN:
        return (found,)
    of_words = [hit for hit in found.hits if _matches_words(hit)]
    others = [hit for hit in found.hits if not _matches_words(hit)]
    return found._replace(hits=of_words, weak=False), found._replace(hits=others)


def _scaled(hit: Hit, source: SourceName, most: float) -> Hit:
    if source in WRITTEN:
        return hit
    share = most if hit.named else _NUGGET_SHARE if source is SourceName.PROVENANCE else _RECORD_SHARE
    parts = tuple(replace(part, value=part.value * share) for part in hit.contributions)
    return replace(hit, score=hit.score * share, contributions=parts)


def _keyed(found: Found) -> Iterator[tuple[tuple[bool, float, int, int], Hit]]:
    """Yield each hit with its sort key; a hit placed before better ones counts as much as the best of them."""
    best, place = 0.0, [*SourceName].index(found.source)
    for at in reversed(range(len(found.hits))):
        best = max(best, found.hits[at].score)
        yield (found.weak, -round(best, 2), place, at), found.hits[at]


def day_of(hit: Hit) -> date | None:
    """Return the day of a hit's last change."""
    return hit.unit.last_modified or hit.unit.created


def _is_about_units(filter_: Filter) -> bool:
    """Return whether a filter has conditions that only units can meet."""
    return bool(filter_.types or filter_.domains or filter_.tags or filter_.paths)


def _matches_words(hit: Hit) -> bool:
    return any(reason.startswith(("bm25", "file name")) for reason in hit.reasons)


def _with_named(text: str, query: Query, hits: Sequence[Hit], index: IndexReader, matcher: Matcher) -> list[Hit]:
    """Return the hits, with a higher score for notes whose path contains every word."""
    words = [word for word in re.findall(r"[^\W_]+", folded(text)) if word not in STOP_WORDS]
    if not words or len(words) > 8:
        return list(hits)
    named = dict(index.units_named(words, query.filter)[: 4 * (query.limit or 1)])
    paths = {hit.unit.path for hit in hits}
    units, chunks = matcher.read([key for key, path in named.items() if path not in paths])
    unmatched = [Hit(unit=unit, score=0.0, chunks=(_first_of(unit, chunks.get(key, ())),))
                 for key, unit in units.items()]  # fmt: skip
    return [_lifted(hit, words) if hit.unit.path in named.values() else hit for hit in (*hits, *unmatched)]


def _lifted(hit: Hit, words: Sequence[str]) -> Hit:
    path = folded(hit.unit.path or "")
    value = _IN_NAME if all(word in path.rsplit("/", 1)[-1] for word in words) else _IN_FOLDER
    part = Contribution(name="file name", value=value, detail=hit.unit.path or "")
    return replace(
        hit, score=hit.score + value, reasons=("file name", *hit.reasons), contributions=(*hit.contributions, part)
    )


def _first_of(unit: Unit, chunks: Sequence[StoredChunk]) -> Chunk:
    """Return the beginning of a unit, or its title if it has no text."""
    if not chunks or not chunks[0].text:
        return Chunk(breadcrumb="", text=unit.title, score=0.0)
    return Chunk(breadcrumb=chunks[0].breadcrumb, text=chunks[0].text, score=0.0)


def _passages(source: SourceName, parsed: SearchQuery, indexes: Indexes, *, limit: int, today: date) -> list[Hit]:
    index = indexes.machine
    has_words = parsed.match or question_words(parsed.text)
    if index is None or not has_words or _is_about_units(parsed.filter):
        return []
    return search_history(index.connection, parsed, source, limit=limit, today=today)
