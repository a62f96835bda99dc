"""The local ranking: calibrated scores of every candidate, without an LLM, and the hits that they become.

    score  = COSINE_SHARE * cosine + BM25_SHARE * words + NEAR_SHARE * cosine to the best match + DATE_SHARE * dated
    match  = MATCH_COSINE_SHARE * cosine + (1 - MATCH_COSINE_SHARE) * words
    words  = bm25 / (bm25 + BM25_HALF)
    cosine = CHUNK_SHARE * nearest chunk + UNIT_SHARE * whole unit + TITLE_SHARE * title (else nearest chunk again)
    bm25   = mean of the best chunk's and the whole unit's

Ranks forget how good a match was; cosine and BM25 do not. Words are best at finding the first unit, meaning at finding
the next ones: the best match is found first, and units near it are raised. docs/experiments.md says what was tried,
docs/retrieval.md what each part gained. Stale units come after their successors, related ones are added.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

from nugget.index import Edge, IndexReader, StoredChunk
from nugget.index.fulltext import Terms
from nugget.models import Chunk, Contribution, Hit, Query, SourceName, StaleReason, Unit
from nugget.retrieval.candidates import Candidate, Gathered, Match, Matcher, Profile

MATCH_COSINE_SHARE = 0.4
COSINE_SHARE, BM25_SHARE, NEAR_SHARE = 0.5, 0.4, 0.1
DATE_SHARE = 0.1
BM25_HALF = 16.0
CHUNK_SHARE, UNIT_SHARE, TITLE_SHARE = 0.45, 0.35, 0.20

KNOWN = (-5.4283, 15.2471, 6.1226, 3.0834, 0.0, -0.4163)
KNOWN_BY_TEXT = (-7.5721, 0.0, 8.8271, 2.4052, 3.1541, -0.4802)
"""Logistic weights of `known`: constant, cosine, BM25 reached, words held, BM25, chance."""
HELPS = (-2.6433, 0.39, -14.3937, 1.6697)
HELPS_BY_TEXT = (-2.6023, 0.4683, -21.6717, 1.3273)
"""Logistic weights of a hit: constant, `known`, difference to the best score, whether it is the best."""
WEAK_BELOW, WEAK_BELOW_BY_TEXT = 0.185, 0.11
STANDS_OUT = 0.51
HELPFUL_ABOVE, HELPFUL_SHARE = 0.02, 0.05
MOST_CHUNKS_MEASURED = 10_000
"""Chance was measured up to this many chunks, and is assumed to find no more beyond."""

BM25_A_TERM = 2.2
"""The most that BM25 gives a term for each unit of its inverse document frequency (k1 + 1 with FTS5's k1 of 1.2)."""

CHUNKS_A_UNIT = 3
"""The most chunks of a hit, the best ones."""
SEEDS = 3
"""The number of best hits that are expanded."""
PLACED_BEHIND = 7
"""Neighbours come after this many hits: added scores would dilute the ranking, this place displaces nothing good."""
_HUB_DEGREE = 20
"""The edges of a unit with more relations than this are not followed, since they say little."""


def rank(gathered: Gathered) -> list[Candidate]:
    """Return every candidate with its score, best first."""
    candidates, matcher = gathered.candidates, gathered.matcher
    if not candidates:
        return []
    keys = [entry.unit_key for entry in candidates]
    alone = zip(map(calibrated, matcher.matches(keys)), keys, strict=True)
    matcher.compare_with(max(alone, key=lambda pair: (pair[0], -pair[1]))[1])
    matches = matcher.matches(keys)
    scored = [Candidate(*entry[:4], match, score(match)) for entry, match in zip(candidates, matches, strict=True)]
    return sorted(scored, key=lambda entry: (-entry.score, entry.unit_key))


def calibrated(match: Match) -> float:
    """Return how well a unit matches by itself, by the formula above."""
    return MATCH_COSINE_SHARE * max(mixed_cosine(match), 0.0) + (1 - MATCH_COSINE_SHARE) * words(match)


def score(match: Match) -> float:
    """Return the score of a unit beside the best match, by the formula above."""
    by_meaning = COSINE_SHARE * max(mixed_cosine(match), 0.0) + NEAR_SHARE * match.near
    return by_meaning + BM25_SHARE * words(match) + DATE_SHARE * match.dated


def words(match: Match) -> float:
    """Return the BM25 of a match, mapped to 0..1."""
    bm25 = mean_bm25(match)
    return bm25 / (bm25 + BM25_HALF)


def contributions_of(
    match: Match, vector_rank: int | None = None, text_rank: int | None = None
) -> tuple[Contribution, ...]:
    """Return the addends of a match's score."""
    ranks = [f"#{rank} " if rank else "" for rank in (vector_rank, text_rank)]
    of_chunk = CHUNK_SHARE + (TITLE_SHARE if match.title_cosine is None else 0)
    parts = [
        ("vector", COSINE_SHARE * of_chunk, match.chunk_cosine, ranks[0]),
        ("vector, whole unit", COSINE_SHARE * UNIT_SHARE, match.unit_cosine, ""),
        ("vector, title", COSINE_SHARE * TITLE_SHARE, match.title_cosine, ""),
    ] if mixed_cosine(match) > 0 else []  # fmt: skip
    detail = f"{ranks[1]}chunk {match.chunk_bm25:.2f}, whole unit {match.unit_bm25:.2f}"
    return (
        *(
            Contribution(name=name, value=share * cosine, detail=f"{rank}cosine {cosine:.3f}")
            for name, share, cosine, rank in [*parts, ("near the best match", NEAR_SHARE, match.near or None, "")]
            if cosine is not None
        ),
        Contribution(name="bm25", value=BM25_SHARE * words(match), detail=detail),
        *([Contribution(name="date", value=DATE_SHARE * match.dated)] if match.dated else []),
    )


def mean_bm25(match: Match) -> float:
    """Return the mean of the best chunk's and the whole unit's BM25."""
    return max((match.chunk_bm25 + match.unit_bm25) / 2, 0.0)


def mixed_cosine(match: Match) -> float:
    """Return the mixed cosine of nearest chunk, whole unit and title; 0 without vectors."""
    chunk, unit = match.chunk_cosine or 0.0, match.unit_cosine or 0.0
    title = chunk if match.title_cosine is None else match.title_cosine
    return CHUNK_SHARE * chunk + UNIT_SHARE * unit + TITLE_SHARE * title


def signals(best: Match, held: Collection[str], terms: Terms, *, chunks: int) -> tuple[float, ...]:
    """Return the values that show whether the brain knows the answer, in the order of `KNOWN`.

    They are the cosine of the best match, its BM25 as a share of the question's maximum, the share of the question in
    it (`held` are the words that occur in the unit), its BM25, and what chance alone finds among so many chunks.
    """
    bm25 = mean_bm25(best)
    reached = min(bm25 / (BM25_A_TERM * sum(terms.idfs.values()) or 1.0), 1.5)
    chance = math.pow(min(chunks, MOST_CHUNKS_MEASURED), 0.3)
    # Squared, because the rarest words show whether a unit is about the question.
    squares = {word: terms.idfs.get(word, 0.0) ** 2 for word in terms.words}
    share = sum(squares[word] for word in held) / (sum(squares.values()) or 1.0)
    return 1.0, mixed_cosine(best), reached, share, math.log1p(bm25), chance


def relevance(known: float, *, behind: float, is_best: bool, has_vectors: bool) -> float:
    """Return the probability that a hit helps, from the log odds that the brain knows the answer.

    `behind` is the distance of its match to the best one.
    """
    return 1 / (1 + math.exp(-weighted_sum(HELPS if has_vectors else HELPS_BY_TEXT, (1.0, known, behind, is_best))))


def weighted_sum(weights: Sequence[float], values: Sequence[float]) -> float:
    """Return the weighted sum of the values."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def is_weak(hits: Sequence[Hit], *, has_vectors: bool) -> bool:
    """Return whether no hit is likely to answer the question."""
    return all((hit.relevance or 0.0) < (WEAK_BELOW if has_vectors else WEAK_BELOW_BY_TEXT) for hit in hits)


def helpful(hits: Sequence[Hit], likely: Container[SourceName]) -> list[Hit]:
    """Return the hits that are likely enough to help, on their own and beside the best, or by their source.

    Passages of conversations, which have no relevance, are left out.
    """
    least = max(HELPFUL_ABOVE, HELPFUL_SHARE * max((hit.relevance or 0.0 for hit in hits), default=0.0))
    judged = ((hit, hit.relevance) for hit in hits if hit.relevance is not None)
    return [hit for hit, known in judged if known >= least or hit.unit.source in likely]


def stale_reasons(units: Mapping[int, Unit], index: IndexReader, *, today: date) -> dict[int, StaleReason]:
    """Return key -> reason for each stale unit: another one supersedes it, or its `stale_after` has passed."""
    reasons = dict.fromkeys(index.superseded_by(list(units)), StaleReason.SUPERSEDED)
    for key, unit in units.items():
        if unit.stale_after and unit.stale_after < today:
            reasons.setdefault(key, StaleReason.EXPIRED)
    return reasons


def to_hits(
    scored: Sequence[Candidate], query: Query, profile: Profile, index: IndexReader, gathered: Gathered, *,
    at_least: int, today: date,
) -> list[Hit]:  # fmt: skip
    """Return the hits in their final local order: `at_least` this many if possible, and some spare ones."""
    matcher = gathered.matcher
    wanted = scored[: max(2 * (query.limit or len(scored)), at_least)]
    keys = [entry.unit_key for entry in wanted]
    if not keys:
        return []
    units, chunks = matcher.read(keys)
    helps = _helps(keys[0], wanted[0].match, gathered, index)
    stale = stale_reasons(units, index, today=today)
    hits: dict[int, Hit] = {}
    for key, entry in zip(keys, wanted, strict=True):
        if key not in units or key not in chunks:
            continue
        reasons = [f"vector #{entry.vector_rank}"] if entry.vector_rank else []
        if entry.text_rank or mean_bm25(entry.match):
            reasons.append(f"bm25 #{entry.text_rank}" if entry.text_rank else "bm25, whole unit")
        hits[key] = Hit(
            unit=units[key], score=entry.score,
            chunks=_shown(chunks[key], entry.chunk_keys, matcher, entry.score),
            reasons=tuple(reasons), stale_reason=stale.get(key), relevance=helps(key, entry.match),
            contributions=contributions_of(entry.match, entry.vector_rank, entry.text_rank) if query.explain else (),
        )  # fmt: skip
    order = _behind_successors(list(hits), hits, stale, index)
    if profile.hops and order:
        return _with_neighbours(order, hits, query, index, matcher, helps, today=today)
    return [hits[key] for key in order]


def _helps(best: int, match: Match, gathered: Gathered, index: IndexReader) -> Callable[[int, Match], float]:
    """Return a function that gives the relevance of a unit with its match, relative to the best one."""
    held = index.words_of_unit(gathered.terms, best)
    has_vectors, most = gathered.matcher.vector is not None, calibrated(match)
    values = signals(match, held, gathered.terms, chunks=index.chunk_count)
    known = weighted_sum(KNOWN if has_vectors else KNOWN_BY_TEXT, values)
    return lambda key, its: relevance(
        known, behind=max(most - calibrated(its), 0.0), is_best=key == best, has_vectors=has_vectors
    )


def _shown(chunks: Sequence[StoredChunk], best: Sequence[int], matcher: Matcher, score: float) -> tuple[Chunk, ...]:
    """Return the best chunks of a unit, or the nearest or first one if it only matched as a whole."""
    of_key = {chunk.key: chunk for chunk in chunks}
    wanted = best[:CHUNKS_A_UNIT] or matcher.nearest.get(chunks[0].unit_key, (chunks[0].key,))[:1]
    shown = [of_key[key] for key in wanted if key in of_key]
    return tuple(Chunk(breadcrumb=one.breadcrumb, text=one.text, score=score, position=one.position) for one in shown)


def _behind_successors(
    order: list[int], hits: dict[int, Hit], stale: Mapping[int, StaleReason], index: IndexReader
) -> list[int]:
    """Return the order with each superseded unit after its successor, which takes the higher place of the two."""
    superseded = [key for key in order if stale.get(key) is StaleReason.SUPERSEDED]
    if not superseded:
        return order
    by_id = {hits[key].unit.id: key for key in order}
    successors = index.superseded_by(superseded)
    for key in superseded:
        hits[key] = replace(hits[key], reasons=(*hits[key].reasons, f"superseded by {successors[key]}"))
        successor = by_id.get(successors[key])
        if successor is None:
            continue
        reason = f"supersedes {hits[key].unit.id}"
        lift = max(hits[key].score - hits[successor].score, 0.0)
        hits[successor] = _lifted(hits[successor], lift, reason, least=hits[key].relevance)
        place = min(order.index(key), order.index(successor))
        order = [other for other in order if other not in (key, successor)]
        order[place:place] = [successor, key]
    return order


def _lifted(hit: Hit, lift: float, reason: str, *, least: float | None = None) -> Hit:
    """Return a hit raised above the place of its own match, with the reason."""
    contributions = hit.contributions
    if lift and contributions:
        contributions = (*contributions, Contribution(name="relation", value=lift, detail=reason))
    return replace(
        hit, score=hit.score + lift, reasons=(*hit.reasons, reason), contributions=contributions,
        relevance=max(hit.relevance or 0.0, least or 0.0),
    )  # fmt: skip


def _with_neighbours(
    order: list[int], hits: Mapping[int, Hit], query: Query, index: IndexReader, matcher: Matcher,
    helps: Callable[[int, Match], float], *, today: date,
) -> list[Hit]:  # fmt: skip
    """Return the hits with one related unit for each of the best ones, placed after the first few."""
    head, seeds = order[:PLACED_BEHIND], order[:SEEDS]
    edges = [edge for edge in _edges_of(seeds, index) if edge.neighbour_key not in head]
    if not edges:
        return [hits[key] for key in order]
    admitted = index.admitted([edge.neighbour_key for edge in edges], query.filter)
    matcher.look_up(admitted)
    matches = dict(zip(admitted, matcher.matches(admitted), strict=True))
    scores = {key: score(match) for key, match in matches.items()}
    chosen: list[Edge] = []
    for seed_key in seeds:
        of_seed = [edge for edge in edges if edge.unit_key == seed_key and edge.neighbour_key in admitted]
        chosen += sorted(of_seed, key=lambda edge: (-scores[edge.neighbour_key], edge.neighbour_key))[:1]
    units, chunks = matcher.read([edge.neighbour_key for edge in chosen if edge.neighbour_key not in hits])
    stale = stale_reasons(units, index, today=today)
    placed: list[Hit] = []
    for edge in chosen:
        key, seed = edge.neighbour_key, hits[edge.unit_key].unit.id
        reason = f"{seed} {edge.relation} it" if edge.outward else f"{edge.relation} {seed}"
        if key in hits:
            placed.append(_lifted(hits[key], 0.0, reason))
        elif key in chunks:
            placed.append(Hit(
                unit=units[key], score=scores[key],
                chunks=_shown(chunks[key], (), matcher, scores[key]),
                reasons=(reason,), stale_reason=stale.get(key), relevance=helps(key, matches[key]),
                contributions=contributions_of(matches[key]) if query.explain else (),
            ))  # fmt: skip
    moved = {hit.unit.id for hit in placed}
    rest = [hits[key] for key in order[len(head) :] if hits[key].unit.id not in moved]
    return [hits[key] for key in head] + placed + rest


def _edges_of(seeds: Sequence[int], index: IndexReader) -> Iterator[Edge]:
    """Yield the relations from the seeds to other units, one for each unit, without those of hubs.

    They are in the order of the seeds, so a unit related to two of them counts for the better one.
    """
    edges = sorted(index.edges(seeds), key=lambda edge: (seeds.index(edge.unit_key), edge.neighbour_key, edge.relation))
    degrees = Counter(edge.unit_key for edge in edges)
    found = set(seeds)
    for edge in edges:
        if degrees[edge.unit_key] <= _HUB_DEGREE and edge.neighbour_key not in found:
            found.add(edge.neighbour_key)
            yield edge
