"""The local re-ranker: calibrated scores of every candidate, always there, no LLM.

    score  = COSINE_SHARE * cosine + BM25_SHARE * words + NEAR_SHARE * cosine to the best match + DATE_SHARE * dated
    match  = MATCH_COSINE_SHARE * cosine + (1 - MATCH_COSINE_SHARE) * words
    words  = bm25 / (bm25 + BM25_HALF)
    cosine = CHUNK_SHARE * nearest chunk + UNIT_SHARE * whole unit + TITLE_SHARE * title (else nearest chunk again)
    bm25   = mean of the best chunk's and the whole unit's

Ranks forget how good a match was; cosine and BM25 remember. Words tell best which unit comes first, meaning which come
after it: the best match is found first, and what is near it is raised. What was tried, and what each part gave over
five sets of questions, is in docs/retrieval.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from nugget.index import IndexReader, Terms
from nugget.models import Contribution, Hit, StaleReason, Unit
from nugget.retrieval.candidates import Candidate, Gathered, Match

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
"""Logistic weights of a hit: constant, `known`, its score less than that of the best, whether it is the best."""
WEAK_BELOW, WEAK_BELOW_BY_TEXT = 0.16, 0.11
STANDS_OUT = 0.51
HELPFUL_ABOVE, HELPFUL_SHARE = 0.02, 0.05
MOST_CHUNKS_MEASURED = 10_000
"""Chance was measured up to so many chunks; beyond them it is taken to find no more."""

BM25_A_TERM = 2.2
"""The most that BM25 gives a term for each unit of its inverse document frequency (k1 + 1 with FTS5's k1 of 1.2)."""


class Scored(NamedTuple):
    """A candidate with its score in 0..1."""

    candidate: Candidate
    score: float


def rank(gathered: Gathered) -> list[Scored]:
    """Return every candidate with its score, best first."""
    candidates, matcher = gathered.candidates, gathered.matcher
    if not candidates:
        return []
    matcher.compare_with(max(candidates, key=lambda entry: (calibrated(entry.match), -entry.unit_key)).unit_key)
    matches = matcher.matches(entry.unit_key for entry in candidates)
    scored = [
        Scored(entry._replace(match=match), score(match)) for entry, match in zip(candidates, matches, strict=True)
    ]
    return sorted(scored, key=lambda entry: (-entry.score, entry.candidate.unit_key))


def calibrated(match: Match) -> float:
    """Return how well a unit matches by itself: see the formula above."""
    return MATCH_COSINE_SHARE * max(mixed_cosine(match), 0.0) + (1 - MATCH_COSINE_SHARE) * words(match)


def score(match: Match) -> float:
    """Return the score of a unit beside the best match: see the formula above."""
    by_meaning = COSINE_SHARE * max(mixed_cosine(match), 0.0) + NEAR_SHARE * match.near
    return by_meaning + BM25_SHARE * words(match) + DATE_SHARE * match.dated


def words(match: Match) -> float:
    """Return the BM25 of a match, brought into 0..1."""
    bm25 = mean_bm25(match)
    return bm25 / (bm25 + BM25_HALF)


def contributions_of(
    match: Match, *, vector_rank: int | None = None, text_rank: int | None = None
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
    """The mean of the best chunk's and the whole unit's BM25."""
    return max((match.chunk_bm25 + match.unit_bm25) / 2, 0.0)


def mixed_cosine(match: Match) -> float:
    """The cosines of nearest chunk, whole unit and title, mixed; 0 without vectors."""
    chunk, unit = match.chunk_cosine or 0.0, match.unit_cosine or 0.0
    title = chunk if match.title_cosine is None else match.title_cosine
    return CHUNK_SHARE * chunk + UNIT_SHARE * unit + TITLE_SHARE * title


def signals(best: Match, held: Collection[str], terms: Terms, *, chunks: int) -> tuple[float, ...]:
    """Return the values that tell whether the brain knows the answer, in the order of `KNOWN`.

    They are the cosine of the best match, its BM25 as a share of what the question could reach, how much of the
    question it holds (`held` are the words that stand in the unit), its BM25, and what chance alone finds in a brain of
    so many chunks.
    """
    bm25 = mean_bm25(best)
    reached = min(bm25 / (BM25_A_TERM * terms.idf_mass or 1.0), 1.5)
    chance = math.pow(min(chunks, MOST_CHUNKS_MEASURED), 0.3)
    return 1.0, mixed_cosine(best), reached, held_share(held, terms), math.log1p(bm25), chance


def relevance(known: float, *, behind: float, is_best: bool, has_vectors: bool) -> float:
    """Return the probability that a hit helps, from the log odds that the brain knows the answer.

    `behind` is how much worse it matches than the best hit.
    """
    return 1 / (1 + math.exp(-weighed(HELPS if has_vectors else HELPS_BY_TEXT, (1.0, known, behind, is_best))))


def weighed(weights: Sequence[float], values: Sequence[float]) -> float:
    """Return the weighted sum of the values."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def is_weak(hits: Sequence[Hit], *, has_vectors: bool) -> bool:
    """Return whether no hit is likely to answer the question."""
    return all((hit.relevance or 0.0) < (WEAK_BELOW if has_vectors else WEAK_BELOW_BY_TEXT) for hit in hits)


def helpful(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that are likely enough to help, by themselves and beside the best."""
    least = max(HELPFUL_ABOVE, HELPFUL_SHARE * max((hit.relevance or 0.0 for hit in hits), default=0.0))
    return [hit for hit in hits if (hit.relevance or 0.0) >= least]


def held_share(held: Collection[str], terms: Terms) -> float:
    """The share of the question's words that `held` names, each by the square of its inverse document frequency.

    The square, because it is the rarest words that tell whether a unit is about the question.
    """
    squares = {word: terms.idfs.get(word, 0.0) ** 2 for word in terms.words}
    return sum(squares[word] for word in held) / (sum(squares.values()) or 1.0)


def stale_reasons(units: Mapping[int, Unit], index: IndexReader, *, today: date) -> dict[int, StaleReason]:
    """Return key -> reason for each stale unit: another one supersedes it, or its `stale_after` has passed."""
    reasons = dict.fromkeys(index.superseded_by(list(units)), StaleReason.SUPERSEDED)
    for key, unit in units.items():
        if unit.stale_after and unit.stale_after < today:
            reasons.setdefault(key, StaleReason.EXPIRED)
    return reasons
