"""One search over everything: the brain, what the machine's index holds, history, and one identity's memory.

Each source is asked for itself, so that a large one crowds no other out: units by words and meaning as in `ask`,
history by its own passages. Within a source relevance decides, then recency; in canon a match of file names comes
first. What only vectors point at, and that weakly, is left out beside the brain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from nugget.config import RetrievalSettings
from nugget.errors import UsageError
from nugget.index import Index, IndexReader
from nugget.index.fulltext import STOP_WORDS, question_words
from nugget.infra.embedding import QuestionEmbedder, Vector
from nugget.models import Budget, Bundle, Contribution, Depth, Filter, Hit, HitChunk, Query, SourceName, Unit
from nugget.retrieval import retrieve
from nugget.retrieval.candidates import configured
from nugget.retrieval.history import HISTORY_SOURCES, newest_history, search_history
from nugget.retrieval.packing import pack
from nugget.retrieval.query_language import SearchQuery
from nugget.text import estimate_tokens, folded

if TYPE_CHECKING:
    from nugget.index import StoredChunk

DEFAULT_LIMIT = 50
"""Results of each source, at most."""
PROFILE = "search"
"""The profile of a search that names none."""
ORDER = (
    SourceName.BRAIN, SourceName.PROVENANCE, SourceName.SESSIONS, SourceName.BRIDGE, SourceName.SHELL,
    SourceName.MEMORY, SourceName.CANON,
)  # fmt: skip
"""In which order the sources are shown."""

_LEAST_SHARE = 0.6
"""Of the best score of its source: what no word of matches needs more than this."""
_NAMED = 1.0
_ADMITTED = 1.0
BUDGET_TOKENS = 200_000
"""For the summaries of all results of a source: more than they ever need."""
_NAME_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexes:
    """The indexes a search reads. `memory` is set only if an identity was named.

    `others` are those of the other brains by name, `name` is that of this one.
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

    @property
    def brains(self) -> dict[str, IndexReader]:
        """Return the index of each brain, by its name."""
        return {self.name: self.brain, **self.others}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The results of one source, best first. `weak`: nothing in it is likely to be relevant."""

    source: SourceName
    hits: tuple[Hit, ...]
    weak: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a search: groups in the order in which they are shown, empty ones left out."""

    query: SearchQuery
    groups: tuple[Group, ...]
    degraded: tuple[str, ...] = ()
    more_hint: str | None = None
    explain: dict[str, Any] | None = None

    @property
    def hits(self) -> tuple[Hit, ...]:
        """All hits, group by group."""
        return tuple(hit for group in self.groups for hit in group.hits)

    @property
    def timeline(self) -> list[tuple[date | None, Hit]]:
        """All hits by the day they were made, oldest first, those without a day last."""
        dated = [(hit.unit.created or hit.unit.last_modified, hit) for hit in self.hits]
        return sorted(dated, key=lambda entry: (entry[0] is None, entry[0] or date.max, entry[1].ref))

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of hits by source."""
        return {str(group.source): len(group.hits) for group in self.groups}


class CachedEmbedder:
    """An embedder that computes the vector of a question once."""

    def __init__(self, embedder: QuestionEmbedder) -> None:
        self.model = embedder.model
        self._embed = cache(embedder.embed_query)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question. Raises EmbeddingUnavailable."""
        return self._embed(text)


def chosen_sources(names: Sequence[SourceName], *, identity: str | None) -> tuple[SourceName, ...]:
    """Return the sources to search: the named ones, else all. Memory is one of them only for a named identity.

    Raises UsageError where memory is asked for without an identity.
    """
    if SourceName.MEMORY in names and identity is None:
        raise UsageError(
            "Memory is private to an identity.", hint="Name it: nugget search … --source memory --as IDENTITY."
        )
    named = names or tuple(SourceName)
    return tuple(name for name in ORDER if name in named and (name is not SourceName.MEMORY or identity is not None))


def as_bundle(results: Results, asked: Query) -> Bundle:
    """Return all hits as one Bundle, which is `weak` if nothing found is likely to be what was looked for."""
    hits = results.hits
    query = results.query
    used = sum(estimate_tokens(chunk.breadcrumb + chunk.text) for hit in hits for chunk in hit.chunks)
    explained = None
    if asked.explain:
        explained = dict((results.explain or {}).get(str(SourceName.BRAIN)) or {})
        explained["sources"] = {name: its for name, its in (results.explain or {}).items() if name != SourceName.BRAIN}
        explained["contributed"] = results.counts
    return Bundle(
        query=replace(asked, text=query.given, filter=query.filter),
        profile=asked.profile or PROFILE,
        hits=hits,
        budget=Budget(requested=BUDGET_TOKENS, used=used),
        degraded=results.degraded,
        weak=not hits or all(group.weak for group in results.groups),
        more_context_hint=results.more_hint,
        explain=explained,
    )


def search_everything(
    query: SearchQuery,
    asked: Query,
    indexes: Indexes,
    *,
    sources: Sequence[SourceName],
    settings: RetrievalSettings,
    embedder: QuestionEmbedder | None,
    now: datetime,
) -> Results:
    """Search each of these sources for a parsed query, with the limit, depth and profile of `asked` for each."""
    limit, depth = asked.limit or DEFAULT_LIMIT, asked.depth or Depth.SUMMARY
    if query.lists:
        listed = _listed(query, indexes, sources, limit=limit, depth=depth)
        return Results(query=query, groups=tuple(listed))
    once = None if embedder is None else CachedEmbedder(embedder)
    # History goes without vectors: the model may still be loading in another process meanwhile.
    passages = _passages(query, indexes, sources, limit=limit, today=now.date())
    chosen = configured(asked.profile or PROFILE, settings)
    groups: list[Group] = []
    degraded: list[str] = []
    hint: str | None = None
    explained: dict[str, Any] = {}
    for source in sources:
        index = indexes.of(source)
        if index is None:
            continue
        hits: list[Hit] = []
        weak = False
        if source is SourceName.BRAIN or index.has_source(source):
            part = _asked_of(source, query, limit=limit, depth=depth, explain=asked.explain)
            searched = indexes.brains if source is SourceName.BRAIN else index
            bundle = retrieve(part, chosen, searched, embedder=once, now=now)
            hits, weak = _units_of(source, query, bundle, index)
            degraded += bundle.degraded
            explained[str(source)] = bundle.explain
            hint = hint or bundle.more_context_hint
        if source in passages:
            hits = _by_relevance_and_recency([*hits, *passages[source]])
            weak = weak and not hits
        if hits:
            groups.append(Group(source=source, hits=tuple(hits[:limit]), weak=weak))
    return Results(
        query=query,
        groups=tuple(sorted(groups, key=lambda group: group.weak)),  # what is likely comes before what is not
        degraded=tuple(dict.fromkeys([*([f"plain_text: {query.problem}"] if query.problem else []), *degraded])),
        more_hint=hint,
        explain=explained if asked.explain else None,
    )


def _listed(
    query: SearchQuery,
    indexes: Indexes,
    sources: Sequence[SourceName],
    *,
    limit: int,
    depth: Depth,
) -> Iterator[Group]:
    """Yield all that the filters admit, the newest first: nothing else was asked for."""
    filter_ = query.filter
    for source in sources:
        index = indexes.of(source)
        if index is None:
            continue
        whole: list[Hit] = []
        for name, one in indexes.brains.items() if source is SourceName.BRAIN else [("", index)]:
            keys = one.newest_units(replace(filter_, sources=(source,)), limit)
            units, chunks = one.units(keys), one.chunks_of_units(keys)
            whole += [
                Hit(unit=units[key], score=_ADMITTED, chunks=(_first_of(units[key], chunks.get(key, ())),),
                    reasons=("filter",), brain=name if name and indexes.others else None)
                for key in keys
            ]  # fmt: skip
        hits = list(pack(whole, budget_tokens=BUDGET_TOKENS, depth=depth)[0])
        if indexes.machine and source in HISTORY_SOURCES and not _is_about_units(filter_):
            hits += newest_history(indexes.machine.connection, source, filter_, limit)
        if hits:
            hits.sort(key=lambda hit: (day_of(hit) or date.min).toordinal(), reverse=True)
            yield Group(source=source, hits=tuple(hits[:limit]))


def _asked_of(source: SourceName, query: SearchQuery, *, limit: int, depth: Depth, explain: bool) -> Query:
    """Return the query as it is put to the units of one source."""
    sources = () if source is SourceName.BRAIN else (source,)
    return Query(
        text=query.text,
        match_any=query.match_any,
        filter=replace(query.filter, sources=sources, match=query.match),
        limit=limit,
        budget_tokens=BUDGET_TOKENS,
        depth=depth,
        explain=explain,
    )


def _units_of(source: SourceName, query: SearchQuery, bundle: Bundle, index: IndexReader) -> tuple[list[Hit], bool]:
    """Return the units that one source shows, of those that were found, and whether they are weak.

    Units of the brain stand in the order of `ask`.
    """
    hits, weak = list(bundle.hits), bundle.weak
    if source is SourceName.BRAIN:
        return hits, weak
    weak = weak and not any(map(_matches_words, hits))
    hits = _by_relevance_and_recency(_telling(hits, weak=weak))
    return _names_first(query, bundle.query, hits, index) if source is SourceName.CANON else hits, weak


def day_of(hit: Hit) -> date | None:
    """Return when what was found was made or changed last."""
    return hit.unit.last_modified or hit.unit.created


def _is_about_units(filter_: Filter) -> bool:
    """Return whether a filter names what only units have."""
    return bool(filter_.types or filter_.domains or filter_.tags or filter_.paths)


def _telling(hits: Sequence[Hit], *, weak: bool) -> list[Hit]:
    """Return the hits that match a word, and those whose vectors are nearly as good as the best."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit for hit in hits if _matches_words(hit) or (not weak and hit.score >= _LEAST_SHARE * best)]


def _matches_words(hit: Hit) -> bool:
    return any(reason.startswith("bm25") for reason in hit.reasons)


def _by_relevance_and_recency(hits: Iterable[Hit]) -> list[Hit]:
    """Best first; of those that are about equally good the newest first."""

    def place(hit: Hit) -> tuple[float, int, str]:
        day = day_of(hit)
        return -round(hit.score, 2), -day.toordinal() if day else 0, hit.ref

    return sorted(hits, key=place)


def _names_first(query: SearchQuery, asked: Query, hits: Sequence[Hit], index: IndexReader) -> list[Hit]:
    """The notes in whose path every word stands before those that only say them; a match of the name itself first."""
    words = [word for word in _NAME_WORD.findall(folded(query.text)) if word not in STOP_WORDS]
    if not words or len(words) > 8:
        return list(hits)
    named = dict(index.units_named(words, asked.filter)[: (asked.limit or DEFAULT_LIMIT) * 4])
    if not named:
        return list(hits)
    known = {hit.unit.path: hit for hit in hits}
    units = index.units([key for key, path in named.items() if path not in known])
    chunks = index.chunks_of_units(list(units))
    found: list[Hit] = []
    for key, path in named.items():
        hit = known.get(path)
        if hit is None:
            hit = Hit(unit=units[key], score=0.0, chunks=(_first_of(units[key], chunks.get(key, ())),))
        part = Contribution(name="file name", value=_NAMED - hit.score, detail=path)
        found.append(
            replace(hit, score=_NAMED, reasons=("file name", *hit.reasons), contributions=(*hit.contributions, part))
        )

    def place(hit: Hit) -> tuple[bool, bool, int, str]:
        path = folded(hit.unit.path or "")
        name = path.rsplit("/", 1)[-1]
        in_name = all(word in name for word in words)
        return not in_name, not _matches_words(hit), len(path), path

    ordered = sorted(found, key=place)
    return [*ordered, *(hit for hit in hits if hit.unit.path not in {other.unit.path for other in found})]


def _first_of(unit: Unit, chunks: Sequence[StoredChunk]) -> HitChunk:
    """Return the beginning of a unit, or its title if it has no text."""
    if not chunks or not chunks[0].text:
        return HitChunk(breadcrumb="", text=unit.title, score=0.0)
    return HitChunk(breadcrumb=chunks[0].breadcrumb, text=chunks[0].text, score=0.0)


def _passages(
    query: SearchQuery, indexes: Indexes, sources: Sequence[SourceName], *, limit: int, today: date
) -> dict[SourceName, list[Hit]]:
    """Return the passages of each source of history."""
    chosen = [source for source in sources if source in HISTORY_SOURCES]
    index = indexes.machine if chosen and not _is_about_units(query.filter) else None
    if index is None:
        return {}
    if not question_words(query.text) and not query.match:
        return {source: [] for source in chosen}
    found = search_history(index.connection, query, sources=chosen, limit=limit, today=today)
    return {source: [hit for hit in found if hit.unit.source is source] for source in chosen}
