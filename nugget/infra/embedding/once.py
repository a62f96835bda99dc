"""The vector of one question, made once."""

from __future__ import annotations

from nugget.errors import EmbeddingUnavailable
from nugget.infra.embedding import QuestionEmbedder, Vector


class Once:
    """An embedder that makes the vector of a question once, however many sources are asked.

    What goes wrong is not tried again either: an endpoint that does not answer is waited for once.
    """

    def __init__(self, embedder: QuestionEmbedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vector | EmbeddingUnavailable] = {}

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._embedder.model

    def embed_query(self, text: str) -> Vector:
        """The vector of a question. Raises EmbeddingUnavailable."""
        if text not in self._made:
            try:
                self._made[text] = self._embedder.embed_query(text)
            except EmbeddingUnavailable as error:
                self._made[text] = error
        made = self._made[text]
        if isinstance(made, EmbeddingUnavailable):
            raise made
        return made
