"""The local re-ranker: calibrated scores of every candidate, always there, no LLM.

    score = COSINE_SHARE * cosine + (1 - COSINE_SHARE) * bm25 / (bm25 + BM25_HALF)
    cosine = CHUNK_SHARE * nearest chunk + UNIT_SHARE * whole unit + TITLE_SHARE * title (else nearest chunk again)
    bm25   = mean of the best chunk's and the whole unit's

Ranks forget how good a match was; cosine and BM25 remember. What was tried, and what each part gave over five sets
of questions, is in docs/retrieval.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from nugget.index import Terms
from nugget.models import Contribution
from nugget.retrieval.candidates import Candidate, Match

COSINE_SHARE = 0.4
BM25_HALF = 16.0
CHUNK_SHARE, UNIT_SHARE, TITLE_SHARE = 0.45, 0.35, 0.20

WEAK_BELOW, WEAK_CHANCE = 0.36, 0.05
WEAK_BELOW_BY_TEXT, WEAK_CHANCE_BY_TEXT = 0.07, 0.0175
REACHED_WEIGHT, HELD_WEIGHT = 1.2, 0.5
MOST_CHUNKS_MEASURED = 10_000
"""Chance was measured up to so many chunks; beyond them it is taken to find no more."""

BM25_A_TERM = 2.2
"""The most that BM25 gives a term for each unit of its inverse document frequency (k1 + 1 with FTS5's k1 of 1.2)."""


class Scored(NamedTuple):
    """A candidate with its score in 0..1."""

    candidate: Candidate
    score: float


def rank(candidates: Sequence[Candidate], *, ranking: str, rrf_k: int, has_vectors: bool) -> list[Scored]:
    """Every candidate scored, best first: by calibrated scores, or by the bare RRF order."""
    if ranking == "rrf":
        # Divided by the most that RRF could give, so that these scores too lie in 0..1.
        most = (1 + has_vectors) / (rrf_k + 1)
        scored = [Scored(entry, entry.fused / most) for entry in candidates if entry.fused]
    else:
        scored = [Scored(entry, calibrated(entry.match)) for entry in candidates]
    order = sorted((-entry.score, entry.candidate.unit_key, entry) for entry in scored)
    return [entry for _, _, entry in order]


def calibrated(match: Match) -> float:
    """The calibrated score of a match: see the formula above."""
    bm25 = mean_bm25(match)
    return COSINE_SHARE * max(mixed_cosine(match), 0.0) + (1 - COSINE_SHARE) * bm25 / (bm25 + BM25_HALF)


def rrf_contributions(candidate: Candidate, *, k: int, has_vectors: bool) -> tuple[Contribution, ...]:
    """The addends of a candidate's score under the bare RRF order."""
    most = (1 + has_vectors) / (k + 1)
    ranks = (("vector", candidate.vector_rank), ("bm25", candidate.text_rank))
    return tuple(
        Contribution(name=name, value=1 / (k + rank) / most, detail=f"#{rank}") for name, rank in ranks if rank
    )


def contributions_of(
    match: Match, *, vector_rank: int | None = None, text_rank: int | None = None
) -> tuple[Contribution, ...]:
    """The addends of a match's calibrated score."""
    found: list[Contribution] = []
    if match.chunk_cosine is not None and mixed_cosine(match) > 0:
        titled = match.title_cosine is not None
        parts: list[tuple[str, float, float | None, str]] = [
            ("vector", CHUNK_SHARE + (0 if titled else TITLE_SHARE), match.chunk_cosine, _rank(vector_rank)),
            ("vector, whole unit", UNIT_SHARE, match.unit_cosine, ""),
        ]
        parts += [("vector, title", TITLE_SHARE, match.title_cosine, "")] if titled else []
        found = [
            Contribution(
                name=name,
                value=COSINE_SHARE * share * (cosine or 0.0),
                detail=f"{detail} cosine {cosine or 0.0:.3f}".strip(),
            )
            for name, share, cosine, detail in parts
        ]
    bm25 = mean_bm25(match)
    detail = f"{_rank(text_rank)} chunk {match.chunk_bm25:.2f}, whole unit {match.unit_bm25:.2f}".strip()
    return (*found, Contribution(name="bm25", value=(1 - COSINE_SHARE) * bm25 / (bm25 + BM25_HALF), detail=detail))


def mean_bm25(match: Match) -> float:
    """The mean of the best chunk's and the whole unit's BM25."""
    return max((match.chunk_bm25 + match.unit_bm25) / 2, 0.0)


def mixed_cosine(match: Match) -> float:
    """The cosines of nearest chunk, whole unit and title, mixed; 0 without vectors."""
    chunk, unit = match.chunk_cosine or 0.0, match.unit_cosine or 0.0
    title = chunk if match.title_cosine is None else match.title_cosine
    return CHUNK_SHARE * chunk + UNIT_SHARE * unit + TITLE_SHARE * title


def is_weak(best: Match, held: Collection[str], terms: Terms, *, chunks: int, has_vectors: bool) -> bool:
    """Return whether even the best match is unlikely to answer the question.

    Its cosine, its BM25 as a share of what the question could reach, and how much of the question it holds (`held` are
    the words that stand in the unit), less what chance alone gives in a brain of so many chunks. How often it is right
    is in docs/retrieval.md.
    """
    reached = mean_bm25(best) / (BM25_A_TERM * terms.idf_mass or 1.0)
    chance = math.pow(min(chunks, MOST_CHUNKS_MEASURED), 0.3)
    if not has_vectors:
        return reached - WEAK_CHANCE_BY_TEXT * chance < WEAK_BELOW_BY_TEXT
    confidence = mixed_cosine(best) + REACHED_WEIGHT * reached + HELD_WEIGHT * held_share(held, terms)
    return confidence - WEAK_CHANCE * chance < WEAK_BELOW


def held_share(held: Collection[str], terms: Terms) -> float:
    """The share of the question's words that `held` names, each by the square of its inverse document frequency.

    The square, because it is the rarest words that tell whether a unit is about the question.
    """
    squares = {word: terms.idfs.get(word, 0.0) ** 2 for word in terms.words}
    return sum(squares[word] for word in held) / (sum(squares.values()) or 1.0)


def _rank(rank: int | None) -> str:
    return f"#{rank}" if rank else ""
