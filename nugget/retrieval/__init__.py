"""The read path on one screen: gather, rank, relate, re-rank, pack.

    question -> [vectors || BM25] -> RRF union -> calibrated scores -> related units -> re-ranker -> Bundle

Nothing here reads files or writes anything; the index is all it knows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from nugget.errors import EmbeddingUnavailable, LLMUnavailable
from nugget.index import IndexReader, StoredChunk
from nugget.infra.embedding import QuestionEmbedder
from nugget.models import Bundle, Contribution, Depth, Hit, HitChunk, Query
from nugget.retrieval.candidates import Profile, gather
from nugget.retrieval.grouping import to_hits
from nugget.retrieval.packing import SUMMARY_CHARS, pack
from nugget.retrieval.reranking import Passage, Reranker
from nugget.retrieval.scoring import helpful, is_weak, rank
from nugget.retrieval.snippets import chunks_of_hits, summaries

BUDGET_TOKENS = 2000
"""Length of an answer to a query that names none."""
RERANKED = 30
"""Units that a re-ranker is shown."""


def retrieve(
    query: Query,
    profile: Profile,
    index: IndexReader | Mapping[str, IndexReader],
    *,
    embedder: QuestionEmbedder | None,
    reranker: Reranker | None = None,
    now: datetime,
) -> Bundle:
    """Answer a query from the index. Any text is a valid query; what could not be used is named in `degraded`.

    Of several indexes, each with the name of its brain, the hits are merged by their scores, which compare.
    """
    clock = [("", time.perf_counter())]
    indexes, several = (index, len(index) > 1) if isinstance(index, Mapping) else ({"": index}, False)
    hits: list[Hit] = []
    degraded: tuple[str, ...] = ()
    candidates, has_vectors = 0, True
    idfs: dict[str, Mapping[str, float]] = {}
    chunks: dict[str, dict[str, list[StoredChunk]]] = {}
    for name, one in indexes.items():
        with one.reading():
            gathered = gather(query, profile, one, embedder, today=now.date())
            clock.append(("gather", time.perf_counter()))
            scored = rank(gathered, ranking=profile.ranking, rrf_k=profile.rrf_k)
            clock.append(("rank", time.perf_counter()))
            at_least = RERANKED if reranker else 0
            found = to_hits(scored, query, profile, one, gathered, at_least=at_least, today=now.date())
            chunks[name] = chunks_of_hits(found[: max(query.limit, at_least) if query.limit else None], one)
            clock.append(("relate", time.perf_counter()))
        hits += [replace(hit, brain=name) for hit in found] if several else found
        idfs[name] = gathered.terms.idfs
        degraded = tuple(dict.fromkeys((*degraded, *gathered.degraded)))
        candidates, has_vectors = candidates + len(scored), has_vectors and gathered.has_vectors
    if several:
        hits.sort(key=lambda hit: -hit.score)
    if reranker and hits:
        hits, problem = _rerank(query.text, hits, reranker)
        degraded = (*degraded, problem) if problem else degraded
        clock.append(("re-rank", time.perf_counter()))
    weak = is_weak(hits, has_vectors=has_vectors)
    hits = hits[: query.limit]
    if query.only_helpful:
        hits = [] if weak else helpful(hits)
    shown: dict[tuple[str | None, str], HitChunk] = {}
    for name in indexes:
        mine = [hit for hit in hits if hit.brain == name or not several]
        shown |= summaries(query.text, idfs[name], mine, chunks[name], SUMMARY_CHARS)
    packed, budget, hint = pack(
        hits, budget_tokens=query.budget_tokens or BUDGET_TOKENS, depth=query.depth or Depth.STANDARD, summaries=shown
    )
    clock.append(("pack", time.perf_counter()))
    explain = None
    if query.explain:
        counts = {"candidates": candidates, "hits": len(hits), "packed": len(packed)}
        laps = dict.fromkeys((name for name, _ in clock[1:]), 0.0)
        for (_, since), (name, at) in pairwise(clock):
            laps[name] = round(laps[name] + (at - since) * 1000, 3)
        explain = _explain(profile, counts, laps, packed, next(iter(indexes.values())))
    return Bundle(
        query=query,
        profile=profile.name,
        hits=packed,
        budget=budget,
        degraded=degraded,
        weak=weak,
        more_context_hint=hint,
        explain=explain,
    )


def _rerank(question: str, hits: Sequence[Hit], reranker: Reranker) -> tuple[list[Hit], str | None]:
    """The hits in the re-ranker's order; in their own, with the reason, when it fails."""
    head, tail = list(hits[:RERANKED]), list(hits[RERANKED:])
    passages = [
        Passage(unit=hit.unit, text="\n\n".join(chunk.text for chunk in hit.chunks), score=hit.score) for hit in head
    ]
    try:
        relevance = reranker(question, passages)
    except (LLMUnavailable, EmbeddingUnavailable) as error:
        return list(hits), f"no_reranker: {error}"
    judged = [
        replace(
            hit,
            score=value,
            relevance=value,
            reasons=(*hit.reasons, f"{reranker.name} {value:.2f}"),
            contributions=(Contribution(name=reranker.name, value=value, detail=f"local score {hit.score:.3f}"),),
        )
        for hit, value in zip(head, relevance, strict=True)
    ]
    judged.sort(key=lambda hit: -hit.score)
    return [*judged, *tail], None


def _explain(
    profile: Profile, counts: Mapping[str, int], laps: dict[str, float], hits: Sequence[Hit], index: IndexReader
) -> dict[str, Any]:
    return {
        "profile": {name: getattr(profile, name) for name in ("name", "ranking", "candidates", "rrf_k", "hops")},
        "counts": dict(counts),
        "timings_ms": laps,
        "vector_search": index.vector_search,
        "hits": [
            {
                "id": hit.unit.id,
                "score": hit.score,
                "relevance": hit.relevance,
                "contributions": list(map(asdict, hit.contributions)),
            }
            for hit in hits
        ],
    }
