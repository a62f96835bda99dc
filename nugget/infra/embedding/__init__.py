"""Texts to vectors: the bundled model offline, a named fastembed model, a local folder, or an HTTP endpoint.

Every vector is float32 and L2-normalised, so that the dot product is the cosine.
"""

from __future__ import annotations

import os
import threading
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nugget.errors import EmbeddingUnavailable
from nugget.infra import server_socket

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.config import Environment, Settings

# Nothing of a user's leaves the machine: onnxruntime's official builds report their use to its maker, and the hub's
# client, which fastembed downloads with, to the hub. Both look here when they are imported, which only this package
# and what it starts do.
# fastembed logs each attempt to download through loguru, whose own handler writes to stderr unless it is off.
os.environ.update(ORT_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_TELEMETRY="1", LOGURU_AUTOINIT="0")

BUNDLED_MODEL = "all-MiniLM-L6-v2"

_SERVER_PATIENCE_S = 0.2
"""How long to wait for a server; loading the model takes about as long."""
_ROUNDING = 1e-3


class Vector(Protocol):
    """A vector as the index stores it: a numpy array of shape (dimensions,), or an `array("f")` without numpy."""

    def tobytes(self) -> bytes:
        """Return the numbers, float32 and little-endian."""


class QuestionEmbedder(Protocol):
    """The part of an embedding model that retrieval uses. `model` names it in the index and the vector cache."""

    @property
    def model(self) -> str:
        """The name under which vectors of this model are stored; two names never mix."""

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question. Raises EmbeddingUnavailable."""


class Embedder(Protocol):
    """A QuestionEmbedder that sync can have many texts embedded by, with numpy."""

    @property
    def model(self) -> str:
        """The name under which vectors of this model are stored; two names never mix."""

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield one vector of shape (dimensions,) for each text, in order. Raises EmbeddingUnavailable."""

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question. Raises EmbeddingUnavailable."""

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens (an estimate if the model has no tokenizer on this machine)."""


def open_embedder(settings: Settings, environment: Environment) -> Embedder | None:
    """Return the embedder that the settings name; None for `none`. Loads no model yet.

    Raises EmbeddingUnavailable when the named model cannot be had, UsageError when the name makes no sense.
    """
    from nugget.config import expanded

    name = settings.embedding.model
    if name == "none":
        return None
    if name.startswith(("openai:", "voyage:")):
        from nugget.infra.embedding.other_models import HttpEmbedder

        return HttpEmbedder.from_settings(settings.embedding, environment)
    if name == BUNDLED_MODEL or expanded(name).is_dir():
        from nugget.infra.embedding import onnx_model

        if name == BUNDLED_MODEL:
            return onnx_model.bundled(environment.models)
        return onnx_model.from_folder(expanded(name))
    from nugget.infra.embedding.other_models import FastembedEmbedder

    return FastembedEmbedder(name, cache=environment.models / "fastembed")


class CachedEmbedder:
    """An embedder that computes the vector of a question once, and does not repeat a failure either."""

    def __init__(self, embedder: QuestionEmbedder) -> None:
        self.model = embedder.model
        self._embedder = embedder
        self._results: dict[str, Vector | EmbeddingUnavailable] = {}

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question. Raises EmbeddingUnavailable."""
        if text not in self._results:
            try:
                self._results[text] = self._embedder.embed_query(text)
            except EmbeddingUnavailable as error:
                self._results[text] = error
        result = self._results[text]
        if isinstance(result, EmbeddingUnavailable):
            raise result
        return result


class RemoteEmbedder:
    """An embedder that asks the running server for a vector, and uses the model itself if no server answers."""

    def __init__(self, own: QuestionEmbedder, environment: Environment) -> None:
        self.model = own.model
        self._own = own
        self._environment = environment

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question. Raises EmbeddingUnavailable."""
        question = {"embed": text, "model": self.model}
        answer = server_socket.ask(self._environment.home, question, timeout_s=_SERVER_PATIENCE_S)
        return _vector_in(answer) or self._own.embed_query(text)


def vector_for(question: dict[str, Any], embedder: Embedder | None) -> dict[str, Any]:
    """Answer `{"embed": text, "model": name}` with `{"vector": base64}`, or `{}` if the model is another one.

    Raises EmbeddingUnavailable.
    """
    text = question.get("embed")
    if embedder is None or not isinstance(text, str) or question.get("model") != embedder.model:
        return {}
    return {"vector": b64encode(embedder.embed_query(text).tobytes()).decode()}


def _vector_in(answer: dict[str, Any] | None) -> array[float] | None:
    """Return the vector of an answer if it is one of length 1."""
    encoded = (answer or {}).get("vector")
    vector = array("f")
    try:
        vector.frombytes(b64decode(encoded, validate=True) if isinstance(encoded, str) else b"")
    except ValueError:
        return None
    return vector if abs(sum(number * number for number in vector) - 1.0) < _ROUNDING else None


class ConfiguredModel:
    """The embedding model that settings name, opened on first use; a failure is not tried again. Thread-safe."""

    def __init__(self, settings: Settings, environment: Environment) -> None:
        self._settings = settings
        self._environment = environment
        self._lock = threading.Lock()
        self._is_open = False
        self._embedder: Embedder | None = None
        self._problem: str | None = None

    @property
    def embedder(self) -> Embedder | None:
        """The model; None for `none`, or if it cannot be opened (`problem` says why)."""
        with self._lock:
            if not self._is_open:
                try:
                    self._embedder = open_embedder(self._settings, self._environment)
                except EmbeddingUnavailable as error:
                    self._problem = str(error)
                self._is_open = True
            return self._embedder

    @property
    def problem(self) -> str | None:
        """The reason why a configured model is missing."""
        _ = self.embedder
        return self._problem

    def for_one_question(self) -> QuestionEmbedder | None:
        """Return the embedder for a process that asks once: a running server embeds if there is one."""
        return None if self.embedder is None else RemoteEmbedder(self.embedder, self._environment)
