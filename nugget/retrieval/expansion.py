"""Graph expansion: related units of the best hits, placed where they help and push nothing relevant out.

Adding score to neighbours dilutes; one neighbour for each of the first three hits, placed behind rank seven, gains
recall on linked collections and changes nothing on unlinked ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nugget.index import Index
from nugget.models import RelationType

SEEDS = 3
"""Only the best hits are expanded."""

PLACED_BEHIND = 7
"""Neighbours come after this many hits."""

HUB_DEGREE = 20
"""A unit with more relations than this says little about any one of them: its edges are not followed."""

RELATION_WEIGHTS: Mapping[RelationType, float] = {
    RelationType.SUPERSEDES: 1.0,
    RelationType.CONTRADICTS: 1.0,
    RelationType.USES: 0.9,
    RelationType.IMPLEMENTS: 0.9,
    RelationType.REQUIRES_UNDERSTANDING_OF: 0.9,
    RelationType.OFTEN_COMBINED_WITH: 0.8,
    RelationType.INFORMED_BY: 0.8,
}


class Neighbour(NamedTuple):
    """A related unit, how it was reached, and the weight of that path (0..1)."""

    unit_key: int
    seed_key: int
    relation: RelationType
    outward: bool
    hops: int
    weight: float


def neighbours_of(seeds: Sequence[int], index: Index, *, hops: int) -> list[Neighbour]:
    """Return the units that relations lead to from the seeds (not the seeds themselves), by their strongest path."""
    found: dict[int, Neighbour] = {}
    frontier: dict[int, Neighbour | None] = dict.fromkeys(seeds)
    for hop in range(1, hops + 1):
        reached: dict[int, Neighbour] = {}
        edges = index.edges(list(frontier))
        degrees: dict[int, int] = {}
        for edge in edges:
            degrees[edge.unit_key] = degrees.get(edge.unit_key, 0) + 1
        for edge in edges:
            if degrees[edge.unit_key] > HUB_DEGREE or edge.neighbour_key in frontier or edge.neighbour_key in found:
                continue
            before = frontier[edge.unit_key]
            step = Neighbour(
                unit_key=edge.neighbour_key,
                seed_key=before.seed_key if before else edge.unit_key,
                relation=edge.relation,
                outward=edge.outward,
                hops=hop,
                weight=(before.weight if before else 1.0) * RELATION_WEIGHTS[edge.relation],
            )
            known = reached.get(step.unit_key)
            if known is None or step.weight > known.weight:
                reached[step.unit_key] = step
        found |= reached
        frontier = dict(reached)
    return list(found.values())


def choose(
    steps: Sequence[Neighbour], seeds: Sequence[int], score: Callable[[int], float], *, per_seed: int
) -> list[Neighbour]:
    """The best few neighbours of each seed, by their own score times the weight of the path, in the order of seeds."""
    chosen: list[Neighbour] = []
    for seed in seeds:
        of_seed = [step for step in steps if step.seed_key == seed]
        of_seed.sort(key=lambda step: (-score(step.unit_key) * step.weight, step.unit_key))
        chosen += of_seed[:per_seed]
    return chosen
