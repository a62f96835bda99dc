"""Reciprocal rank fusion: several ranked lists into one.

Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods",
SIGIR 2009: score(d) = sum over the lists of 1 / (k + rank(d)), ranks from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T", int, str)


def fuse(rankings: Sequence[Sequence[T]], *, k: int) -> dict[T, float]:
    """The fused score of every member, highest first; ties in the order of the members' best rank.

    The order of the lists does not matter: equal sums are told apart by best rank, then by the members themselves.
    """
    scores: dict[T, float] = {}
    best: dict[T, int] = {}
    for ranking in rankings:
        for rank, member in enumerate(ranking, start=1):
            scores[member] = scores.get(member, 0.0) + 1.0 / (k + rank)
            best[member] = min(best.get(member, rank), rank)
    order = sorted(scores, key=lambda member: (-round(scores[member], 12), best[member], member))
    return {member: scores[member] for member in order}
