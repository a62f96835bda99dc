"""The read path on one screen: search each source, merge, re-rank, pack.

    question -> for each source: [vectors || BM25] -> union -> calibrated scores -> related units
             -> merged -> re-ranker -> page -> sentences that answer -> Bundle

Nothing here reads files or writes anything; it uses only the indexes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

from nugget.errors import EmbeddingUnavailable, LLMUnavailable
from nugget.infra.embedding import QuestionEmbedder
from nugget.models import Bundle, Chunk, Contribution, Depth, Hit, Query, SourceName
from nugget.retrieval.candidates import Profile
from nugget.retrieval.llm import Reranker
from nugget.retrieval.packing import pack, summary
from nugget.retrieval.query_language import SearchQuery
from nugget.retrieval.scoring import helpful
from nugget.retrieval.search import WRITTEN, Found, Indexes, day_of, list_source, merge_hits, search_source

LIMIT = 10
"""The default number of results."""
BUDGET_TOKENS = 2000
"""The default length of an answer."""
RERANKED = 30
"""The number of hits for a re-ranker."""
READ_CLOSELY = 3
"""The number of hits whose sentences are compared with the question by meaning, for people."""


def retrieve(
    query: Query, profile: Profile, indexes: Indexes, *, sources: Sequence[SourceName] = (SourceName.BRAIN,),
    parsed: SearchQuery | None = None, embedder: QuestionEmbedder | None, reranker: Reranker | None = None,
    now: datetime,
) -> Bundle:  # fmt: skip
    """Answer a query from these sources; `parsed` is its text if it is in the query language.

    Any text is a valid query; `degraded` names unavailable parts.
    """
    begin = time.perf_counter()
    parsed = parsed or SearchQuery(given=query.text, text=query.text, filter=query.filter)
    first, limit = query.offset, query.limit or LIMIT
    most = first + limit + 1  # one more shows that there are more
    found: list[Found] = []
    once: Any = embedder and SimpleNamespace(model=embedder.model, embed_query=cache(embedder.embed_query))
    if parsed.lists:
        hits = [hit for source in sources for hit in list_source(source, parsed.filter, indexes, most=most)]
        hits.sort(key=lambda hit: (day_of(hit) or date.min).toordinal(), reverse=True)
    else:
        wide = replace(profile, candidates=max(profile.candidates, most))
        found = [
            search_source(source, query, parsed, wide, indexes, embedder=once, today=now.date(),
                          most=max(most, RERANKED if reranker else 0))
            for source in sources
        ]  # fmt: skip
        hits = merge_hits(found)
    searched = time.perf_counter()
    degraded = [f"plain_text: {parsed.problem}"] if parsed.problem else []
    degraded += _degraded(found)
    if reranker and hits:
        hits, problem = _rerank(query.text, hits, reranker)
        degraded += [problem] if problem else []
    weak = not parsed.lists and all(one.weak or not one.hits for one in found)
    if query.only_helpful:
        # Without vectors, a few records say too little about how rare a word is.
        likely = {one.source for one in found if not one.weak and "no_vectors" in one.degraded} - {*WRITTEN}
        hits = [] if weak else helpful(hits, likely)
    candidates, remaining = sum(one.candidates for one in found), max(len(hits) - first - limit, 0)
    hits = hits[first : first + limit]
    packed, budget, hint = pack(
        hits, budget_tokens=query.budget_tokens or BUDGET_TOKENS, depth=query.depth or Depth.STANDARD,
        summaries=_summaries(parsed.text, hits, found, once if profile.reads_closely else None),
    )  # fmt: skip
    explain = None
    if query.explain:
        seconds = {"search": searched - begin, "pack": time.perf_counter() - searched}
        counts = {"candidates": candidates, "hits": len(hits), "packed": len(packed)}
        explain = _explanation(profile, packed, counts, seconds, vector_search=indexes.brain.vector_search)
    return Bundle(
        query=query, profile=profile.name, hits=packed, budget=budget, degraded=tuple(dict.fromkeys(degraded)),
        weak=weak, more_context_hint=hint, explain=explain, remaining=remaining,
    )  # fmt: skip


def _explanation(
    profile: Profile, packed: Sequence[Hit], counts: Mapping[str, int], seconds: Mapping[str, float], *,
    vector_search: str,
) -> dict[str, Any]:  # fmt: skip
    return {
        "profile": {name: getattr(profile, name) for name in ("name", "candidates", "hops")},
        "counts": counts,
        "timings_ms": {name: round(value * 1000, 3) for name, value in seconds.items()},
        "vector_search": vector_search,
        "contributed": Counter(str(hit.unit.source) for hit in packed),
        "hits": [{"id": hit.unit.id, "score": hit.score, "relevance": hit.relevance,
                  "contributions": list(map(asdict, hit.contributions))} for hit in packed],
    }  # fmt: skip


def _degraded(found: Sequence[Found]) -> list[str]:
    """Return the entries of `degraded`; a source that waits for its vectors while others have them is behind."""
    lacking = [name for one in found for name in one.degraded]
    has_vectors = any(one.idfs and "no_vectors" not in one.degraded for one in found)
    return ["vectors_behind" if name == "no_vectors" and has_vectors else name for name in lacking]


def _summaries(
    text: str, hits: Sequence[Hit], found: Sequence[Found], embedder: QuestionEmbedder | None
) -> dict[tuple[str | None, str], Chunk]:
    """Return the sentences that answer the question, for each hit that is a unit."""
    shown: dict[tuple[str | None, str], Chunk] = {}
    for at, hit in enumerate(hits):
        for one in found:
            chunks = one.chunks.get(hit.brain, {}) if one.source is hit.unit.source else {}
            if hit.ref in chunks:
                close = embedder if at < READ_CLOSELY else None
                idfs = one.idfs[hit.brain]
                shown[hit.brain, hit.ref] = summary(text, idfs, hit, chunks[hit.ref], close)
    return shown


def _rerank(question: str, hits: Sequence[Hit], reranker: Reranker) -> tuple[list[Hit], str | None]:
    """Return the hits in the re-ranker's order, or in their own with the reason if it fails."""
    head, tail = list(hits[:RERANKED]), list(hits[RERANKED:])
    try:
        relevance = reranker.judge(question, head)
    except (LLMUnavailable, EmbeddingUnavailable) as error:
        return list(hits), f"no_reranker: {error}"
    judged = [
        replace(hit, score=value, relevance=value, reasons=(*hit.reasons, f"{reranker.name} {value:.2f}"),
                contributions=(Contribution(name=reranker.name, value=value, detail=f"local score {hit.score:.3f}"),))
        for hit, value in zip(head, relevance, strict=True)
    ]  # fmt: skip
    judged.sort(key=lambda hit: -hit.score)
    return [*judged, *tail], None
