"""Vectors of questions from a running server, so that a command does not load the model."""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from nugget.infra import resident
from nugget.infra.embedding import Embedder, QuestionEmbedder, Vector

if TYPE_CHECKING:
    from nugget.config import Environment

_SERVER_PATIENCE_S = 0.2
"""How long to wait for a server; loading the model takes about as long."""

_ROUNDING = 1e-3


class RemoteEmbedder:
    """A model whose query vectors a running server makes if it can, and `own` if not."""

    def __init__(self, own: QuestionEmbedder, environment: Environment) -> None:
        self._own = own
        self._environment = environment

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._own.model

    def embed_query(self, text: str) -> Vector:
        """The vector of a question. Raises EmbeddingUnavailable."""
        question = {"embed": text, "model": self.model}
        of_server = _vector_in(resident.ask(self._environment.home, question, timeout_s=_SERVER_PATIENCE_S))
        return of_server or self._own.embed_query(text)


def vector_for(question: dict[str, Any], embedder: Embedder | None) -> dict[str, Any]:
    """The answer to `{"embed": text, "model": name}`: `{"vector": base64}`; `{}` by another model than the named.

    Raises EmbeddingUnavailable.
    """
    text = question.get("embed")
    if embedder is None or not isinstance(text, str) or question.get("model") != embedder.model:
        return {}
    return {"vector": b64encode(embedder.embed_query(text).tobytes()).decode()}


def _vector_in(answer: dict[str, Any] | None) -> array[float] | None:
    """The vector of an answer, where it is one: of length 1."""
    given = (answer or {}).get("vector")
    vector = array("f")
    try:
        vector.frombytes(b64decode(given, validate=True) if isinstance(given, str) else b"")
    except ValueError:
        return None
    return vector if abs(sum(number * number for number in vector) - 1.0) < _ROUNDING else None
