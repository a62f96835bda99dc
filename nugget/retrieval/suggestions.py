"""Looking around: what is near a unit or a thought, and what can be asked for at all."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable, GitError
from nugget.index import IndexReader, StoredChunk
from nugget.index.fulltext import STOP_WORDS
from nugget.infra import git
from nugget.infra.embedding import Embedder
from nugget.models import Bundle, Chunk, Contribution, Depth, Filter, Hit, Query, SourceName, Unit
from nugget.retrieval import LIMIT, retrieve
from nugget.retrieval.candidates import Profile
from nugget.retrieval.packing import pack
from nugget.retrieval.search import Indexes

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector

BUDGET_TOKENS = 200_000
"""More than the summaries of all results need."""
LEAST_COSINE = 0.3
"""What is less alike than this is called related by nobody."""
NEAR_THE_BEST = 0.6
"""Share of the best cosine that a related hit needs."""
_LINKED = 1.0
_WORD = re.compile(r"[^\W\d_][\w-]{3,30}")
_MAX_TITLES = 20_000
_MAX_AUTHORS_COMMITS = 2000


@dataclass(frozen=True, slots=True)
class Suggestions:
    """Completions, each with its count, most frequent first."""

    domains: tuple[tuple[str, int], ...] = ()
    tags: tuple[tuple[str, int], ...] = ()
    types: tuple[tuple[str, int], ...] = ()
    paths: tuple[tuple[str, int], ...] = ()
    people: tuple[tuple[str, int], ...] = ()
    terms: tuple[tuple[str, int], ...] = ()


def related(
    thing: Unit | str,
    query: Query,
    indexes: Indexes,
    *,
    sources: Sequence[SourceName],
    profile: Profile,
    embedder: Embedder | None,
    now: datetime,
) -> Bundle:
    """Return what is similar to a unit or to a thought in words: linked units first, then the nearest by meaning.

    Without vectors, words stand in for meaning, and `degraded` says so.
    """
    first, limit = query.offset, query.limit or LIMIT
    most = first + limit + 1
    vector = _vector(thing, indexes, embedder)
    if vector is None:
        text = thing if isinstance(thing, str) else f"{thing.title} {' '.join(thing.tags)}"
        asked = Query(text, limit=most, budget_tokens=BUDGET_TOKENS)
        hits = list(retrieve(asked, profile, indexes, sources=sources, embedder=embedder, now=now).hits)
    else:
        model, numbers = vector
        known = {
            source: index for source in sources if (index := indexes.of(source)) and index.embedding_model == model
        }
        near = [hit for source, index in known.items() for hit in _nearest(index, numbers, source, most)]
        hits = sorted(near, key=lambda hit: -hit.score)
        hits = [hit for hit in hits if hit.score >= NEAR_THE_BEST * hits[0].score]
    if not isinstance(thing, str):
        linked = _linked(thing, indexes) if thing.source in sources else []
        passed_over = {thing.ref, *(hit.unit.ref for hit in linked)}
        hits = [*linked, *(hit for hit in hits if hit.unit.ref not in passed_over)]
    shown, budget, hint = pack(hits[first : first + limit], budget_tokens=BUDGET_TOKENS, depth=Depth.SUMMARY)
    return Bundle(
        query=query, profile=profile.name, hits=shown, budget=budget, degraded=() if vector else ("no_vectors",),
        more_context_hint=hint, remaining=max(len(hits) - first - limit, 0),
    )  # fmt: skip


def suggest(prefix: str, indexes: Indexes, *, brain: Path, limit: int = 10) -> Suggestions:
    """Return what begins with a prefix (of the whole, or of a part of a domain or path); everything for an empty one.

    Memory is never looked at, whoever asks.
    """
    domains, tags, types, paths, terms = (Counter[str]() for _ in range(5))
    for index in filter(None, (indexes.brain, indexes.machine)):
        for domain, its_tags, type_, path, scope_path, source, title in index.places(_MAX_TITLES):
            parts = domain.split("/") if domain else []
            domains.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
            tags.update(json.loads(its_tags))
            types[type_] += 1
            paths.update(_paths(scope_path or (path if source == SourceName.CANON else None)))
            terms.update({word.lower() for word in _WORD.findall(title)} - STOP_WORDS)
    chosen = [
        _beginning(names, prefix, limit) for names in (domains, tags, types, paths, Counter(_authors(brain)), terms)
    ]
    return Suggestions(*chosen)


def refs_beginning(prefix: str, indexes: Indexes, *, limit: int = 100) -> list[tuple[str, str]]:
    """Refs with their titles, for completion: `brain:` may be left out. Memory is never looked at."""
    bare = prefix.removeprefix("brain:")
    found: list[tuple[str, str]] = []
    for index, whole in ((indexes.brain, False), (indexes.machine, True)):
        if index is None:
            continue
        rows = index.titles(prefix if whole else bare, whole=whole, limit=limit)
        given = "brain:" if not whole and prefix.startswith("brain:") else ""
        found += [(f"{given}{ref}", title) for ref, title in rows]
    return found[:limit]


def _vector(thing: Unit | str, indexes: Indexes, embedder: Embedder | None) -> tuple[str, Vector] | None:
    """Return the vector of a unit as it is stored, or of a text as the model makes it, with the model's name."""
    if isinstance(thing, Unit):
        index = indexes.of(thing.source)
        keys = index.unit_keys([thing.id], thing.source) if index else {}
        if index and keys:
            vector = index.unit_vector(next(iter(keys.values())))
            if vector is not None:
                return index.embedding_model or "", vector
    if embedder is None:
        return None
    text = thing if isinstance(thing, str) else f"{thing.title}\n{thing.body}"[:2000]
    try:
        return embedder.model, embedder.embed_query(text)
    except EmbeddingUnavailable:
        return None


def _nearest(index: IndexReader, vector: Vector, source: SourceName, limit: int) -> tuple[Hit, ...]:
    """Return the units of a source whose nearest chunk is nearest, with that chunk."""
    with index.reading():
        found = index.search_vectors(vector, limit * 4, Filter(sources=() if source is SourceName.BRAIN else (source,)))
        unit_of = index.units_of_chunks([key for key, _ in found])
        best: dict[int, tuple[int, float]] = {}
        for chunk, cosine in found:
            if cosine >= LEAST_COSINE:
                best.setdefault(unit_of[chunk], (chunk, cosine))
        units = index.units(best)
        chunks = index.chunks(chunk for chunk, _ in best.values())
    return tuple(
        _hit(units[key], chunks[chunk], Contribution(name="vector", value=cosine), f"cosine {cosine:.2f}")
        for key, (chunk, cosine) in list(best.items())[:limit]
    )


def _linked(unit: Unit, indexes: Indexes) -> list[Hit]:
    """Return the units that are linked to one, in either direction."""
    index = indexes.of(unit.source)
    keys = index.unit_keys([unit.id], unit.source) if index else {}
    if index is None or not keys:
        return []
    linked: dict[int, str] = {}
    for edge in index.edges(list(keys.values())):
        reason = f"{unit.id} {edge.relation} it" if edge.outward else f"{edge.relation} {unit.id}"
        linked.setdefault(edge.neighbour_key, reason)
    units, chunks = index.units(linked), index.chunks_of_units(linked)
    return [
        _hit(units[key], chunks[key][0], Contribution(name="relation", value=_LINKED, detail=reason), reason)
        for key, reason in linked.items()
        if key in units and chunks.get(key)
    ]


def _hit(unit: Unit, chunk: StoredChunk, part: Contribution, reason: str) -> Hit:
    shown = Chunk(breadcrumb=chunk.breadcrumb, text=chunk.text, score=part.value)
    return Hit(unit=unit, score=part.value, chunks=(shown,), reasons=(reason,), contributions=(part,))


def _paths(path: str | None) -> Iterable[str]:
    """Return the folders of a path, two levels deep, and the path itself."""
    parts = path.split("/") if path else []
    return {*("/".join(parts[:end]) + "/" for end in range(1, min(len(parts), 3))), *([path] if path else [])}


def _authors(brain: Path) -> list[str]:
    """Return the authors of the brain's latest commits, one name a commit."""
    if not git.is_repository(brain):
        return []
    try:
        named = git.run(brain, "log", f"-n{_MAX_AUTHORS_COMMITS}", "--format=%an", check=False)
    except GitError:
        return []
    return [name for name in named.decode("utf-8", "replace").splitlines() if name.strip()]


def _beginning(names: Counter[str], prefix: str, limit: int) -> tuple[tuple[str, int], ...]:
    wanted = prefix.casefold()
    matching = [
        (name, count)
        for name, count in names.items()
        if name.casefold().startswith(wanted) or (wanted and f"/{wanted}" in f"/{name.casefold()}")
    ]
    return tuple(sorted(matching, key=lambda entry: (-entry[1], entry[0]))[:limit])
