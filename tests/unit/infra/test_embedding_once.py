"""The vector of one question: made once, however many sources are asked."""

from __future__ import annotations

import numpy as np
import pytest

from nugget.errors import EmbeddingUnavailable
from nugget.infra.embedding import Embedder
from nugget.infra.embedding.once import Once


class Counting:
    """An embedder that keeps what it was asked, and fails for an empty question."""

    model = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(text)
        if not text:
            raise EmbeddingUnavailable("the endpoint does not answer")
        return [1.0, 0.0]


def test_each_question_is_embedded_once() -> None:
    counting = Counting()
    once = Once(counting)
    assert [list(once.embed_query(text)) for text in ("retry", "retry", "another", "retry")] == [[1.0, 0.0]] * 4
    assert counting.asked == ["retry", "another"]


def test_an_endpoint_that_does_not_answer_is_asked_once() -> None:
    counting = Counting()
    once = Once(counting)
    for _ in range(3):
        with pytest.raises(EmbeddingUnavailable, match="does not answer"):
            once.embed_query("")
    assert counting.asked == [""]


def test_it_is_the_vector_of_the_model(model: Embedder) -> None:
    question = "how often is it tried again?"
    once = Once(model)
    vectors = [once.embed_query(question) for _ in range(2)]
    assert all(np.array_equal(vector, model.embed_query(question)) for vector in vectors)
