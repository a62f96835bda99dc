"""Sync and the embedding model: a switch, a model that cannot be had, vectors that follow later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nugget.app import Brain
from nugget.config import EmbeddingSettings, Settings, read_environment
from nugget.errors import EmbeddingUnavailable
from nugget.index import Index, SyncResult
from nugget.index.sync import sync
from nugget.infra.embedding import Embedder
from nugget.models import Filter
from nugget.text import telling


class OtherModel:
    """Another embedding model: the real one with its axes reversed; `fail_after` texts it has no more vectors."""

    def __init__(
        self, real: Embedder, *, fail_after: int | None = None, gate: Callable[[], None] | None = None
    ) -> None:
        self.model = "reversed"
        self._real = real
        self._left = fail_after
        self._gate = gate

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        for vector in self._real.embed(texts):
            if self._gate:
                self._gate()
            if self._left is not None:
                if self._left == 0:
                    raise EmbeddingUnavailable("no more vectors")
                self._left -= 1
            yield np.ascontiguousarray(vector[::-1])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return np.ascontiguousarray(self._real.embed_query(text)[::-1])

    def count_tokens(self, text: str) -> int:
        return self._real.count_tokens(text)


@pytest.mark.proves("SYNC-MODEL-SWITCH")
def test_a_model_switch_embeds_everything_again_while_the_old_index_serves(
    brain: Path, model: Embedder, synced: Callable[..., SyncResult]
) -> None:
    file = brain / ".nugget/index.db"
    served: list[str | None] = []
    steps: list[tuple[int, int]] = []

    def look() -> None:
        with closing(Index(file)) as index:
            served.append(index.embedding_model)
            assert index.search_vectors(model.embed_query("cache"), 3, Filter())

    other = OtherModel(model, gate=look)
    token = telling.set(lambda stage, done, total: steps.append((done, total)))
    result = sync(brain, read_environment(), embedder=other)
    telling.reset(token)
    assert result.rebuilt == "the embedding model is reversed now"
    assert result.embedded > 100 and result.cached == 0
    assert set(served) == {model.model}
    assert steps[-1] == (result.added, result.added)
    with closing(Index(file)) as index:
        assert index.embedding_model == "reversed"
    assert synced().embedded == 0, "the first model's vectors are still cached"


@pytest.mark.proves("SYNC-NO-VECTORS")
def test_when_vectors_cannot_be_had_text_is_indexed_and_vectors_follow_later(brain: Path, model: Embedder) -> None:
    failing = OtherModel(model, fail_after=20)
    result = sync(brain, read_environment(), embedder=failing)
    assert result.without_vectors == "no more vectors"
    with Brain(brain, settings=Settings(embedding=EmbeddingSettings(model="none"))) as opened:
        bundle = opened.ask("cache invalidation", fresh=False)
    assert bundle.hits[0].unit.id == "concept/cache-invalidation"
    assert bundle.degraded == ("no_vectors",)
    result = sync(brain, read_environment(), embedder=OtherModel(model))
    assert result.without_vectors is None
    with closing(Index(brain / ".nugget/index.db")) as index:
        counts = index.counts()
        assert counts["vectors"] == counts["chunks"] > 100
