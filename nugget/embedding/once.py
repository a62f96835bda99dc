"""The vector of one question, made once and beside other work."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from nugget.embedding import QuestionEmbedder, Vector
from nugget.errors import EmbeddingUnavailable


class Once:
    """An embedder that makes the vector of a question once, however many sources are asked."""

    def __init__(self, embedder: QuestionEmbedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vector | EmbeddingUnavailable] = {}
        self._begun: Thread | None = None

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._embedder.model

    def begin(self, text: str) -> None:
        """Make the vector of a question in a thread of its own; `embed_query` waits for it.

        Models and SQLite work outside of Python's lock, so that the one costs the other nothing.
        """
        self._begun = Thread(target=self._make_ahead, args=(text,), name="nugget-embed", daemon=True)
        self._begun.start()

    def embed_query(self, text: str) -> Vector:
        """The vector of a question. Raises EmbeddingUnavailable."""
        if self._begun is not None:
            self._begun.join()
        if text not in self._made:
            self._make(text)
        made = self._made[text]
        if isinstance(made, EmbeddingUnavailable):
            raise made
        return made

    def _make_ahead(self, text: str) -> None:
        with suppress(Exception):  # whoever asks for the vector meets it again
            self._make(text)

    def _make(self, text: str) -> None:
        try:
            self._made[text] = self._embedder.embed_query(text)
        except EmbeddingUnavailable as error:
            self._made[text] = error
