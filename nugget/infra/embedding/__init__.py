"""Texts to vectors: the bundled model offline, a named fastembed model, a local folder, or an HTTP endpoint.

Every vector is float32 and L2-normalised, so that the dot product is the cosine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.config import Environment, Settings

# Nothing of a user's leaves the machine: onnxruntime's official builds report their use to its maker, and the hub's
# client, which fastembed downloads with, to the hub. Both look here when they are imported, which only this package
# and what it starts do.
os.environ.update(ORT_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_TELEMETRY="1")

BUNDLED_MODEL = "all-MiniLM-L6-v2"


class Vector(Protocol):
    """A vector as the index stores it: a numpy array of shape (dimensions,), or an `array("f")` without numpy."""

    def tobytes(self) -> bytes:
        """Its numbers, float32 and little-endian."""


class QuestionEmbedder(Protocol):
    """The part of an embedding model that retrieval uses. `model` names it in the index and the vector cache."""

    @property
    def model(self) -> str:
        """The name under which vectors of this model are stored; two names never mix."""

    def embed_query(self, text: str) -> Vector:
        """The vector of a question. Raises EmbeddingUnavailable."""


class Embedder(Protocol):
    """A QuestionEmbedder that sync can have many texts embedded by, with numpy."""

    @property
    def model(self) -> str:
        """The name under which vectors of this model are stored; two names never mix."""

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """One vector of shape (dimensions,) for each text, in order. Raises EmbeddingUnavailable."""

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a question. Raises EmbeddingUnavailable."""

    def count_tokens(self, text: str) -> int:
        """Tokens of the text as this model counts them (an estimate where it has no tokenizer here)."""


def open_embedder(settings: Settings, environment: Environment) -> Embedder | None:
    """The embedder that the settings name; None for `none`. Loads no model yet.

    Raises EmbeddingUnavailable when the named model cannot be had, UsageError when the name makes no sense.
    """
    from nugget.config import expanded

    name = settings.embedding.model
    if name == "none":
        return None
    if name.startswith(("openai:", "voyage:")):
        from nugget.infra.embedding.remote import HttpEmbedder

        return HttpEmbedder.from_settings(settings.embedding, environment)
    if name == BUNDLED_MODEL or expanded(name).is_dir():
        from nugget.infra.embedding import local

        if name == BUNDLED_MODEL:
            return local.bundled(environment.models)
        return local.from_folder(expanded(name))
    from nugget.infra.embedding.named import FastembedEmbedder

    return FastembedEmbedder(name, cache=environment.models / "fastembed")
