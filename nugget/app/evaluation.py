"""The pipeline that `nugget eval` measures."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nugget.evaluation import Pipeline
from nugget.retrieval import profiles

if TYPE_CHECKING:
    from nugget.app import Brain


def pipeline_of(brain: Brain) -> Pipeline:
    """Return the pipeline as `ask` uses it, without an LLM re-ranker."""
    is_local = brain.settings.retrieval.reranker.startswith("cross-encoder:")
    return Pipeline(
        index=brain.index, profile=profiles.configured("task", brain.settings.retrieval), embedder=brain.embedder,
        reranker=brain.reranker(None) if is_local else None, now=datetime.now(UTC),
    )  # fmt: skip
