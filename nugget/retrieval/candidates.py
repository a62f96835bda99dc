"""Gather candidates: the units that vectors or BM25 find, with everything that ranking needs.

Hundreds of candidates are made for every question, so they are named tuples, which are twice as fast to make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from nugget.config import Settings
from nugget.errors import EmbeddingUnavailable, UsageError
from nugget.index import IndexReader, StoredChunk
from nugget.index.fulltext import Terms
from nugget.infra.embedding import QuestionEmbedder
from nugget.models import Query, Unit
from nugget.retrieval.dates import Days, asked_days, asks_when, days_in, nearness

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector

BM25_DEPTH = 200
"""Rows read of each BM25 list, so that units found only by vectors have their BM25 score too."""
_SHARED_BY = 3
"""A title shared by this many candidates, such as a page's title by its sections, distinguishes none of them."""
_NO_COSINES = (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Settings for one kind of question.

    `candidates` chunks come from each list; `hops` is 1 if relations of the best units are followed. `reads_closely`
    chooses the sentences of the first hits by their meaning too, which takes longer than the search.
    """

    name: str
    candidates: int = 50
    hops: int = 1
    reads_closely: bool = False


TASK = Profile(name="task")
SEARCH = Profile(name="search", candidates=200, hops=0)

PROFILES = {profile.name: profile for profile in (TASK, SEARCH)}


def configured_profile(name: str, settings: Settings) -> Profile:
    """Return a profile with the user's settings applied. Raises UsageError for an unknown name."""
    if name not in PROFILES:
        raise UsageError(f"There is no profile {name!r}.", hint=f"Choose one of: {', '.join(PROFILES)}.")
    profile = PROFILES[name]
    return replace(
        profile,
        candidates=min(max(settings.retrieval_candidates, profile.candidates, 1), 1000),
        hops=settings.retrieval_hops if profile.hops else 0,
    )


class Match(NamedTuple):
    """Signals of how well a unit matches the question, before they are weighed.

    `chunk_bm25` is that of its best chunk, `unit_bm25` that of the whole unit: FTS5's scores with the sign
    reversed (0 or more). `chunk_cosine` is that of its nearest chunk; those of the whole and of the title follow. All
    are None without vectors, the title's also if the unit has no title of its own. `near` is the cosine of the whole
    with the unit of the best match, 0 until that is known. `dated` is how near its dates are to those in the
    question.
    """

    chunk_bm25: float = 0.0
    unit_bm25: float = 0.0
    chunk_cosine: float | None = None
    unit_cosine: float | None = None
    title_cosine: float | None = None
    near: float = 0.0
    dated: float = 0.0


class Candidate(NamedTuple):
    """A unit with its ranks (from 1, None where a list lacks it), its matching chunks (best first), match and score."""

    unit_key: int
    vector_rank: int | None
    text_rank: int | None
    chunk_keys: Sequence[int]
    match: Match = Match()
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Candidates, the terms and the vector of the question, and what was missing."""

    candidates: tuple[Candidate, ...]
    terms: Terms
    matcher: Matcher
    degraded: tuple[str, ...]


@dataclass(slots=True)
class Matcher:
    """The matches of units with one question; each unit is looked up only once."""

    _index: IndexReader
    vector: Vector | None
    _chunk_bm25: dict[int, float]
    _unit_bm25: dict[int, float]
    nearest: dict[int, tuple[int, float]]
    chunks: dict[str, list[StoredChunk]] = field(default_factory=dict)
    dated: dict[int, float] = field(default_factory=dict)
    _looked_up: set[int] = field(default_factory=set)
    _cosines: dict[int, tuple[float | None, float | None, float | None]] = field(default_factory=dict)
    _best: int | None = None
    _near: dict[int, float] = field(default_factory=dict)

    def look_up(self, unit_keys: Iterable[int]) -> None:
        """Fetch the data to match these units."""
        missing = [key for key in unit_keys if key not in self._looked_up]
        self._looked_up.update(missing)
        if self.vector is not None and missing:
            found = self._index.unit_cosines(self.vector, missing)
            self.nearest |= self._index.nearest_chunks(self.vector, [key for key in missing if key not in self.nearest])
            titles = Counter(title for _, title in found.values())
            self._cosines |= {
                key: (self.nearest[key][1], whole, title if titles[title] < _SHARED_BY else None)
                for key, (whole, title) in found.items()
            }
            if self._best is not None:
                self._near |= self._index.nearness(self._best, missing)

    def read(self, unit_keys: Sequence[int]) -> tuple[dict[int, Unit], dict[int, list[StoredChunk]]]:
        """Return units by key and their chunks, which are kept by the units' refs."""
        units, chunks = self._index.units(unit_keys), self._index.chunks_of_units(unit_keys)
        self.chunks |= {unit.ref: chunks[key] for key, unit in units.items() if key in chunks}
        return units, chunks

    def compare_with(self, best: int) -> None:
        """Compare every unit with this one, the best match, from now on."""
        if self.vector is not None:
            self._best, self._near = best, self._index.nearness(best, list(self._looked_up))

    def matches(self, unit_keys: Iterable[int]) -> list[Match]:
        """Return the match of each of these candidates."""
        of_chunk, of_unit, near, dated = self._chunk_bm25.get, self._unit_bm25.get, self._near.get, self.dated.get
        cosines = self._cosines.get
        return [
            Match(of_chunk(key, 0.0), of_unit(key, 0.0), *cosines(key, _NO_COSINES), near(key, 0.0), dated(key, 0.0))
            for key in unit_keys
        ]


def gather(
    query: Query, profile: Profile, index: IndexReader, embedder: QuestionEmbedder | None, *, today: date
) -> Gathered:
    """Return the units of the best chunks by vectors, of the best chunks by BM25, and the best whole units by BM25.

    If the question names a period, the best whole units of that period are among them.
    """
    terms = index.terms(query.text, matches=[query.match_any, query.filter.match])
    if query.match_any:
        terms = replace(terms, match=query.match_any)
    days = asked_days(query.text, today=today)
    within = replace(query.filter, since=days[0], until=days[1]) if days else None
    vector, degraded = embed_question(query.text, index, embedder)
    found = index.search(terms, vector, query.filter, k=profile.candidates, depth=BM25_DEPTH, within=within)
    texts, wholes, of_period, nearest, unit_of = found
    chunk_bm25: dict[int, float] = {}
    for key, score in texts:
        chunk_bm25.setdefault(unit_of[key], score)
    of_unit = {unit_of[key]: (key, cosine) for key, cosine in reversed(nearest)}
    by_vector = list(dict.fromkeys(unit_of[key] for key, _ in nearest))
    by_text = list(dict.fromkeys(unit_of[key] for key, _ in texts[: profile.candidates]))
    matcher = Matcher(index, vector, chunk_bm25, dict([*of_period, *wholes]), of_unit)
    keys = list(dict.fromkeys([*by_vector, *by_text, *(key for key, _ in [*wholes[: profile.candidates], *of_period])]))
    matcher.look_up(keys)
    if days or asks_when(query.text):
        matcher.dated = {key: _dated(unit, days) for key, unit in index.units(keys).items()}
    vector_ranks = {key: rank for rank, key in enumerate(by_vector, start=1)}
    text_ranks = {key: rank for rank, key in enumerate(by_text, start=1)}
    chunks: dict[int, list[int]] = {}
    for key in fuse([[key for key, _ in texts[: profile.candidates]], [key for key, _ in nearest]]):
        chunks.setdefault(unit_of[key], []).append(key)
    candidates = [Candidate(key, vector_ranks.get(key), text_ranks.get(key), chunks.get(key, ())) for key in keys]
    return Gathered(candidates=tuple(candidates), terms=terms, matcher=matcher, degraded=degraded)


def _dated(unit: Unit, asked: Days | None) -> float:
    """Return how near a unit's dates are to those in the question; 1 or 0 if any date answers it."""
    if asked is None:
        return float(any(days_in(unit.body)))
    made = [(day, day) for day in (unit.created, unit.last_modified) if day]
    return nearness(asked, [*made, *days_in(unit.body)])


def embed_question(
    text: str, index: IndexReader, embedder: QuestionEmbedder | None
) -> tuple[Vector | None, tuple[str, ...]]:
    """Return the question's vector if the index has vectors of this model, else the entry of `degraded`."""
    if not any(map(str.isalnum, text)):  # signs alone mean nothing, but their vector is near to something
        return None, ()
    model = index.embedding_model
    if embedder is None or model != embedder.model:
        is_other = embedder and model and model != embedder.model
        return None, (index.other_model if is_other else "no_vectors",)
    try:
        return embedder.embed_query(text), ()
    except EmbeddingUnavailable:
        return None, ("no_vectors",)


def fuse(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return the reciprocal rank fusion of several lists, best first: the sum of 1 / (60 + rank) over the lists.

    Equal sums are ordered by best rank, then by the members themselves. (Cormack, Clarke and Buettcher, SIGIR 2009.)
    """
    scores: dict[int, float] = {}
    best: dict[int, int] = {}
    for ranking in rankings:
        for rank, member in enumerate(ranking, start=1):
            scores[member] = scores.get(member, 0.0) + 1.0 / (60 + rank)
            best[member] = min(best.get(member, rank), rank)
    order = sorted(scores, key=lambda member: (-round(scores[member], 12), best[member], member))
    return {member: scores[member] for member in order}
