"""From scored units to hits: with their best chunks, stale ones behind their successors, related ones added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from nugget.index import IndexReader, StoredChunk
from nugget.models import Chunk, Contribution, Hit, Query, RelationType, StaleReason
from nugget.retrieval.candidates import Gathered, Match, Matcher, Profile
from nugget.retrieval.scoring import (
    KNOWN,
    KNOWN_BY_TEXT,
    Scored,
    calibrated,
    contributions_of,
    relevance,
    score,
    signals,
    stale_reasons,
    weighed,
)

CHUNKS_A_UNIT = 3
"""Chunks that a hit carries, at most: its best ones."""
SEEDS = 3
"""Only the best hits are expanded."""
PLACED_BEHIND = 7
"""Neighbours come after this many hits: their score added dilutes, their place here pushes nothing relevant out."""
_HUB_DEGREE = 20
"""A unit with more relations than this says little about any one of them: its edges are not followed."""


def to_hits(
    scored: Sequence[Scored],
    query: Query,
    profile: Profile,
    index: IndexReader,
    gathered: Gathered,
    *,
    at_least: int,
    today: date,
) -> list[Hit]:
    """Return hits in their final local order: `at_least` so many if there are, and some spare ones."""
    matcher = gathered.matcher
    wanted = scored[: max(2 * (query.limit or len(scored)), at_least)]
    keys = [entry.candidate.unit_key for entry in wanted]
    if not keys:
        return []
    matcher.look_up(keys)
    matches = dict(zip(keys, matcher.matches(keys), strict=True))
    units = index.units(keys)
    helps = _helps(keys[0], matches[keys[0]], gathered, index)
    stale = stale_reasons(units, index, today=today)
    chunks = _shown_chunks(wanted, index, matcher)
    hits: dict[int, Hit] = {}
    for key, entry in zip(keys, wanted, strict=True):
        if key not in units or not chunks[key]:
            continue
        ranks = (("vector", entry.candidate.vector_rank), ("bm25", entry.candidate.text_rank))
        hits[key] = Hit(
            unit=units[key], score=entry.score, chunks=tuple(_as_shown(chunk, entry.score) for chunk in chunks[key]),
            reasons=tuple(f"{name} #{rank}" for name, rank in ranks if rank) or ("bm25, whole unit",),
            stale_reason=stale.get(key), contributions=_parts(entry) if query.explain else (),
            relevance=helps(key, matches[key]),
        )  # fmt: skip
    order = _behind_successors(list(hits), hits, stale, index)
    if profile.hops and order:
        return _with_neighbours(order, hits, query, profile, index, matcher, helps, today=today)
    return [hits[key] for key in order]


def _helps(best: int, match: Match, gathered: Gathered, index: IndexReader) -> Callable[[int, Match], float]:
    """Return a function that gives the relevance of a unit and its match, beside the best of all."""
    held = index.words_of_unit(gathered.terms, best)
    has_vectors, most = gathered.has_vectors, calibrated(match)
    values = signals(match, held, gathered.terms, chunks=index.chunk_count)
    known = weighed(KNOWN if has_vectors else KNOWN_BY_TEXT, values)
    return lambda key, its: relevance(
        known, behind=max(most - calibrated(its), 0.0), is_best=key == best, has_vectors=has_vectors
    )


def _shown_chunks(scored: Sequence[Scored], index: IndexReader, matcher: Matcher) -> dict[int, list[StoredChunk]]:
    """Return the best chunks of each unit; of a unit that only matched as a whole, the nearest or the first."""
    wanted = {entry.candidate.unit_key: entry.candidate.chunk_keys[:CHUNKS_A_UNIT] for entry in scored}
    stored = index.chunks(chunk for chunks in wanted.values() for chunk in chunks)
    shown = {key: [stored[chunk] for chunk in chunks if chunk in stored] for key, chunks in wanted.items()}
    unplaced = [key for key, chunks in wanted.items() if not chunks]
    return shown | {key: [chunk] for key, chunk in _nearest_chunks(unplaced, index, matcher).items()}


def _nearest_chunks(keys: Sequence[int], index: IndexReader, matcher: Matcher) -> dict[int, StoredChunk]:
    """Return the nearest chunk of each unit; the first of a unit without vectors."""
    nearest = {} if matcher.vector is None else index.nearest_chunks(matcher.vector, keys)
    stored = index.chunks(nearest.values())
    shown = {key: stored[chunk] for key, chunk in nearest.items() if chunk in stored}
    chunks = index.chunks_of_units(key for key in keys if key not in shown)
    return shown | {key: of_unit[0] for key, of_unit in chunks.items()}


def _as_shown(chunk: StoredChunk, score: float) -> Chunk:
    return Chunk(breadcrumb=chunk.breadcrumb, text=chunk.text, score=score, position=chunk.position)


def _parts(entry: Scored) -> tuple[Contribution, ...]:
    found = entry.candidate
    return contributions_of(found.match, vector_rank=found.vector_rank, text_rank=found.text_rank)


def _behind_successors(
    order: list[int], hits: dict[int, Hit], stale: Mapping[int, StaleReason], index: IndexReader
) -> list[int]:
    """A match on a superseded unit is one on its successor: that takes the higher place, the old one follows it."""
    superseded = [key for key in order if stale.get(key) is StaleReason.SUPERSEDED]
    if not superseded:
        return order
    by_id = {hits[key].unit.id: key for key in order}
    successors = index.superseded_by(superseded)
    for key in superseded:
        successor = by_id.get(successors.get(key, ""))
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
    """Return a hit raised to a place that its own match would not have given it, with an honest account of it."""
    contributions = hit.contributions
    if lift and contributions:
        contributions = (*contributions, Contribution(name="relation", value=lift, detail=reason))
    return replace(
        hit, score=hit.score + lift, reasons=(*hit.reasons, reason), contributions=contributions,
        relevance=max(hit.relevance or 0.0, least or 0.0),
    )  # fmt: skip


def _with_neighbours(
    order: list[int],
    hits: Mapping[int, Hit],
    query: Query,
    profile: Profile,
    index: IndexReader,
    matcher: Matcher,
    helps: Callable[[int, Match], float],
    *,
    today: date,
) -> list[Hit]:
    """Return the hits with one related unit for each of the best placed behind the first few."""
    head, seeds = order[:PLACED_BEHIND], order[:SEEDS]
    steps = [step for step in _neighbours_of(seeds, index, hops=profile.hops) if step.unit_key not in head]
    if not steps:
        return [hits[key] for key in order]
    admitted = index.admitted([step.unit_key for step in steps], query.filter)
    matcher.look_up(admitted)
    matches = dict(zip(admitted, matcher.matches(admitted), strict=True))
    scores = {key: score(match) for key, match in matches.items()}
    chosen: list[Neighbour] = []
    for seed_key in seeds:
        of_seed = [step for step in steps if step.seed_key == seed_key and step.unit_key in admitted]
        chosen += sorted(of_seed, key=lambda step: (-scores[step.unit_key], step.unit_key))[:1]
    new = [step.unit_key for step in chosen if step.unit_key not in hits]
    units = index.units(new)
    stale = stale_reasons(units, index, today=today)
    shown = _nearest_chunks(new, index, matcher)
    placed: list[Hit] = []
    for step in chosen:
        key, seed = step.unit_key, hits[step.seed_key].unit.id
        relation = f"{seed} {step.relation} it" if step.outward else f"{step.relation} {seed}"
        reason = relation if step.hops == 1 else f"{step.hops} hops from {seed}"
        if key in hits:
            placed.append(_lifted(hits[key], 0.0, reason))
        elif key in shown:
            placed.append(Hit(
                unit=units[key], score=scores[key], chunks=(_as_shown(shown[key], scores[key]),),
                reasons=(reason,), stale_reason=stale.get(key), relevance=helps(key, matches[key]),
                contributions=contributions_of(matches[key]) if query.explain else (),
            ))  # fmt: skip
    moved = {hit.unit.id for hit in placed}
    rest = [hits[key] for key in order[len(head) :] if hits[key].unit.id not in moved]
    return [hits[key] for key in head] + placed + rest


class Neighbour(NamedTuple):
    """A related unit, and how it was reached."""

    unit_key: int
    seed_key: int
    relation: RelationType
    outward: bool
    hops: int


def _neighbours_of(seeds: Sequence[int], index: IndexReader, *, hops: int) -> list[Neighbour]:
    """Return the units that relations lead to from the seeds (not the seeds themselves), by their shortest path."""
    found: dict[int, Neighbour] = {}
    frontier = {key: key for key in seeds}
    for hop in range(1, hops + 1):
        reached: dict[int, Neighbour] = {}
        edges = index.edges(list(frontier))
        degrees = Counter(edge.unit_key for edge in edges)
        for edge in edges:
            key = edge.neighbour_key
            if degrees[edge.unit_key] <= _HUB_DEGREE and key not in frontier and key not in found:
                step = Neighbour(key, frontier[edge.unit_key], edge.relation, edge.outward, hop)
                reached.setdefault(key, step)
        found |= reached
        frontier = {key: step.seed_key for key, step in reached.items()}
    return list(found.values())
