"""The local re-ranker: calibrated scores of every candidate, always there, no LLM.

Ranks forget how good a match was; cosine and BM25 remember. Each is brought to 0..1 (the cosine is there already,
BM25 saturates as b / (b + BM25_HALF)) and they are mixed. What was tried, and what it gave, is in docs/retrieval.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from nugget.index import Index
from nugget.models import Contribution
from nugget.retrieval.candidates import Candidate

COSINE_WEIGHT = 0.4
BM25_HALF = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A candidate with its score in 0..1 and the addends of that score."""

    candidate: Candidate
    score: float
    contributions: tuple[Contribution, ...]


def is_weak(question: str, scored: list[Scored], index: Index, *, has_vectors: bool) -> bool:
    """Whether nothing found is likely to answer the question."""
    return not scored


def calibrate(candidates: tuple[Candidate, ...], question: str, index: Index, *, has_vectors: bool) -> list[Scored]:
    """Score every candidate, best first."""
    weight = COSINE_WEIGHT if has_vectors else 0.0
    return _ordered([_calibrated(candidate, weight) for candidate in candidates])


def by_rank(candidates: tuple[Candidate, ...], *, k: int, has_vectors: bool) -> list[Scored]:
    """The bare RRF order, scores divided by the most that RRF could give, so that they too lie in 0..1."""
    best = (2 if has_vectors else 1) / (k + 1)
    scored = []
    for candidate in candidates:
        addends = [("vector", candidate.vector_rank), ("bm25", candidate.text_rank)]
        contributions = tuple(
            Contribution(name=name, value=1 / (k + rank) / best, detail=f"#{rank}") for name, rank in addends if rank
        )
        scored.append(Scored(candidate=candidate, score=candidate.fused / best, contributions=contributions))
    return _ordered(scored)


def _calibrated(candidate: Candidate, cosine_weight: float) -> Scored:
    cosine = max(candidate.cosine or 0.0, 0.0)
    saturated = candidate.bm25 / (candidate.bm25 + BM25_HALF)
    contributions = [
        Contribution(name="bm25", value=(1 - cosine_weight) * saturated, detail=_rank_detail(candidate.text_rank)),
    ]
    if cosine_weight:
        vector = Contribution(name="vector", value=cosine_weight * cosine, detail=_rank_detail(candidate.vector_rank))
        contributions.insert(0, vector)
    return Scored(
        candidate=candidate, score=sum(c.value for c in contributions), contributions=tuple(contributions)
    )


def _rank_detail(rank: int | None) -> str:
    return f"#{rank}" if rank else "not in the list"


def _ordered(scored: list[Scored]) -> list[Scored]:
    return sorted(scored, key=lambda entry: (-entry.score, entry.candidate.chunk.key))
