"""Gathering candidates: the best chunks by vectors and by BM25, with everything that ranking needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nugget.embedding import Embedder
from nugget.errors import EmbeddingUnavailable
from nugget.index import Index, StoredChunk
from nugget.index.fulltext import match_any, query_tokens
from nugget.models import Query
from nugget.retrieval.fusion import fuse
from nugget.retrieval.profiles import Profile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A chunk with its ranks (from 1, None where a list does not hold it) and raw scores.

    `bm25` is FTS5's score with its sign turned (0 and more, unbounded); `cosine` is None without vectors;
    `fused` is the RRF score.
    """

    chunk: StoredChunk
    text_rank: int | None
    vector_rank: int | None
    bm25: float
    cosine: float | None
    fused: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Candidates in fused order, and what was missing."""

    candidates: tuple[Candidate, ...]
    vector: NDArray[np.float32] | None
    degraded: tuple[str, ...]


def gather(query: Query, profile: Profile, index: Index, embedder: Embedder | None) -> Gathered:
    """The union of both lists in fused order; every candidate carries its exact cosine."""
    texts = index.search_text(match_any(query_tokens(query.text)), profile.candidates, query.filter)
    vector, degraded = embed_question(query.text, index, embedder)
    nearest = index.search_vectors(vector, profile.candidates, query.filter) if vector is not None else []
    text_ranks = {key: rank for rank, (key, _) in enumerate(texts, start=1)}
    vector_ranks = {key: rank for rank, (key, _) in enumerate(nearest, start=1)}
    fused = fuse([list(text_ranks), list(vector_ranks)], k=profile.rrf_k)
    cosines = dict(nearest)
    if vector is not None:
        cosines |= index.cosines(vector, [key for key in fused if key not in cosines])
    bm25 = dict(texts)
    chunks = index.chunks(fused)
    candidates = tuple(
        Candidate(
            chunk=chunks[key],
            text_rank=text_ranks.get(key),
            vector_rank=vector_ranks.get(key),
            bm25=bm25.get(key, 0.0),
            cosine=cosines.get(key),
            fused=score,
        )
        for key, score in fused.items()
        if key in chunks
    )
    return Gathered(candidates=candidates, vector=vector, degraded=degraded)


def embed_question(
    text: str, index: Index, embedder: Embedder | None
) -> tuple[NDArray[np.float32] | None, tuple[str, ...]]:
    """The question's vector where the index has vectors of this very model; else why not, as `degraded` names it."""
    if embedder is None or index.embedding_model != embedder.model or not text.strip():
        return None, ("no_vectors",)
    try:
        return embedder.embed_query(text), ()
    except EmbeddingUnavailable:
        return None, ("no_vectors",)
