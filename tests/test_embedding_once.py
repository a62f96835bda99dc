"""The vector of one question: made once, beside other work."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from nugget.embedding import Embedder
from nugget.embedding.once import Once
from nugget.errors import EmbeddingUnavailable


class Waiting:
    """An embedder that is told when it may answer, and fails where it is to."""

    model = "waiting"

    def __init__(self, failure: Exception | None = None) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []
        self._failure = failure

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(text)
        assert self.may_answer.wait(60)
        if self._failure:
            raise self._failure
        return [1.0, 0.0]


def test_the_vector_is_made_beside_other_work_and_once() -> None:
    slow = Waiting()
    once = Once(slow)
    once.begin("retry")
    slow.may_answer.set()  # which was not waited for
    assert [list(once.embed_query("retry")) for _ in range(3)] == [[1.0, 0.0]] * 3
    assert list(once.embed_query("another")) == [1.0, 0.0]
    assert slow.asked == ["retry", "another"]


def test_what_goes_wrong_is_told_to_whoever_asks_and_not_tried_again() -> None:
    failing = Waiting(EmbeddingUnavailable("the endpoint does not answer"))
    failing.may_answer.set()
    once = Once(failing)
    once.begin("retry")
    for _ in range(2):
        with pytest.raises(EmbeddingUnavailable, match="does not answer"):
            once.embed_query("retry")
    assert failing.asked == ["retry"]
    mistaken = Waiting(ZeroDivisionError("a mistake"))
    mistaken.may_answer.set()
    once = Once(mistaken)
    once.begin("retry")
    with pytest.raises(ZeroDivisionError):
        once.embed_query("retry")


def test_it_is_the_vector_of_the_model(model: Embedder) -> None:
    question = "how often is it tried again?"
    once = Once(model)
    once.begin(question)
    assert np.array_equal(once.embed_query(question), model.embed_query(question))
