"""From scored chunks to hits: units with their best chunks, stale ones behind their successors, related ones added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from nugget.index import Index, StoredChunk
from nugget.models import Contribution, Hit, HitChunk, Query, StaleReason, Unit
from nugget.retrieval.expansion import SEEDS, Neighbour, neighbours_of
from nugget.retrieval.profiles import Profile
from nugget.retrieval.scoring import COSINE_WEIGHT, Scored
from nugget.retrieval.staleness import stale_reasons

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNKS_A_UNIT = 3
"""Chunks that a hit carries, at most: its best ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredUnit:
    """A unit by the score of its best chunk; `chunks` are its candidates, best first."""

    key: int
    score: float
    chunks: tuple[Scored, ...]


def group_by_unit(scored: Sequence[Scored]) -> list[ScoredUnit]:
    """One entry a unit, best first; a unit scores as its best chunk does."""
    chunks: dict[int, list[Scored]] = {}
    for entry in scored:
        chunks.setdefault(entry.candidate.chunk.unit_key, []).append(entry)
    units = [ScoredUnit(key=key, score=parts[0].score, chunks=tuple(parts)) for key, parts in chunks.items()]
    return sorted(units, key=lambda unit: (-unit.score, unit.key))


def to_hits(
    ranked: Sequence[ScoredUnit],
    query: Query,
    profile: Profile,
    index: Index,
    *,
    vector: NDArray[np.float32] | None,
    today: date,
) -> list[Hit]:
    """Hits in their final local order: twice what was asked for, so that a re-ranker has something to choose from."""
    wanted = list(ranked[: max(2 * query.limit, 30)])
    units = index.units([entry.key for entry in wanted])
    stale = stale_reasons(units, index, today=today)
    hits = {entry.key: _hit(entry, units[entry.key], stale.get(entry.key)) for entry in wanted if entry.key in units}
    order = _behind_successors(list(hits), hits, stale, index)
    if profile.hops:
        return _with_neighbours(order, hits, query, profile, index, vector=vector, today=today)
    return [hits[key] for key in order]


def _hit(entry: ScoredUnit, unit: Unit, stale_reason: StaleReason | None) -> Hit:
    best = entry.chunks[0]
    ranks = [
        f"{name} #{rank}"
        for name, rank in (("vector", best.candidate.vector_rank), ("bm25", best.candidate.text_rank))
        if rank
    ]
    return Hit(
        unit=unit,
        score=min(max(entry.score, 0.0), 1.0),
        chunks=tuple(
            HitChunk(breadcrumb=part.candidate.chunk.breadcrumb, text=part.candidate.chunk.text, score=part.score)
            for part in entry.chunks[:CHUNKS_A_UNIT]
        ),
        reasons=tuple(ranks),
        stale_reason=stale_reason,
        contributions=best.contributions,
    )


def _behind_successors(
    order: list[int], hits: dict[int, Hit], stale: Mapping[int, StaleReason], index: Index
) -> list[int]:
    """The order with each superseded unit moved right behind the unit that supersedes it, where both were found."""
    superseded = [key for key in order if stale.get(key) is StaleReason.SUPERSEDED]
    if not superseded:
        return order
    by_id = {hits[key].unit.id: key for key in order}
    successors = index.superseded_by(superseded)
    for key in superseded:
        successor = by_id.get(successors.get(key, ""))
        if successor is None or order.index(successor) < order.index(key):
            continue
        order.remove(successor)
        order.insert(order.index(key), successor)
        lift = hits[key].score - hits[successor].score
        hits[successor] = _lifted(hits[successor], lift, f"supersedes {hits[key].unit.id}")
    return order


def _lifted(hit: Hit, lift: float, reason: str) -> Hit:
    """A hit raised to a place that its own match would not have given it, with an honest account of it."""
    if lift <= 0:
        return replace(hit, reasons=(*hit.reasons, reason))
    return replace(
        hit,
        score=hit.score + lift,
        reasons=(*hit.reasons, reason),
        contributions=(*hit.contributions, Contribution(name="relation", value=lift, detail=reason)),
    )


def _with_neighbours(
    order: list[int],
    hits: dict[int, Hit],
    query: Query,
    profile: Profile,
    index: Index,
    *,
    vector: NDArray[np.float32] | None,
    today: date,
) -> list[Hit]:
    """The hits with the related units of the best ones placed behind them."""
    seeds = order[:SEEDS]
    chosen = _chosen(neighbours_of(seeds, index, hops=profile.hops), per_seed=profile.neighbours)
    admitted = index.admitted([step.unit_key for step in chosen], query.filter)
    chosen = [step for step in chosen if step.unit_key in admitted]
    missing = [step.unit_key for step in chosen if step.unit_key not in hits]
    units = index.units(missing)
    stale = stale_reasons(units, index, today=today)
    parts = index.chunks_of_units(missing)
    placed: dict[int, Hit] = {}
    for step in chosen:
        relation = f"{step.relation} {hits[step.seed_key].unit.id}"
        reason = relation if not step.outward else f"{hits[step.seed_key].unit.id} {step.relation} it"
        if step.unit_key in hits:
            placed[step.unit_key] = replace(hits[step.unit_key], reasons=(*hits[step.unit_key].reasons, reason))
        elif parts.get(step.unit_key):
            placed[step.unit_key] = _related(
                units[step.unit_key], parts[step.unit_key], reason, stale.get(step.unit_key), index, vector
            )
    rest = [key for key in order[SEEDS:] if key not in placed]
    return [hits[key] for key in seeds] + list(placed.values()) + [hits[key] for key in rest]


def _chosen(steps: Sequence[Neighbour], *, per_seed: int) -> list[Neighbour]:
    """The strongest few neighbours of each seed, in the order of the seeds."""
    taken: dict[int, list[Neighbour]] = {}
    for step in steps:
        of_seed = taken.setdefault(step.seed_key, [])
        if len(of_seed) < per_seed:
            of_seed.append(step)
    return [step for of_seed in taken.values() for step in of_seed]


def _related(
    unit: Unit,
    chunks: Sequence[StoredChunk],
    reason: str,
    stale_reason: StaleReason | None,
    index: Index,
    vector: NDArray[np.float32] | None,
) -> Hit:
    """A hit for a unit that only a relation led to: it scores by its nearest chunk, and leads with that one."""
    cosines = index.cosines(vector, [chunk.key for chunk in chunks]) if vector is not None else {}
    nearest = max(chunks, key=lambda chunk: (cosines.get(chunk.key, 0.0), -chunk.position))
    score = COSINE_WEIGHT * max(cosines.get(nearest.key, 0.0), 0.0)
    return Hit(
        unit=unit,
        score=score,
        chunks=(HitChunk(breadcrumb=nearest.breadcrumb, text=nearest.text, score=score),),
        reasons=(reason,),
        stale_reason=stale_reason,
        contributions=(Contribution(name="vector", value=score, detail="reached by a relation"),),
    )
