"""The embedding model that settings name, opened when it is first needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable
from nugget.infra.embedding import Embedder, QuestionEmbedder, open_embedder
from nugget.infra.embedding.borrowed import RemoteEmbedder

if TYPE_CHECKING:
    from nugget.config import Environment, Settings


class ModelInUse:
    """The model of one brain's settings; one that cannot be had is not tried again. Thread-safe."""

    def __init__(self, settings: Settings, environment: Environment) -> None:
        self._settings = settings
        self._environment = environment
        self._lock = threading.Lock()
        self._is_open = False
        self._embedder: Embedder | None = None
        self._problem: str | None = None

    @property
    def embedder(self) -> Embedder | None:
        """The model; None for `none`, or where it cannot be had (`problem` says why)."""
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
        """Return the reason why a configured model is missing."""
        _ = self.embedder
        return self._problem

    def for_one_question(self) -> QuestionEmbedder | None:
        """Return the model for a process that asks once: a running server embeds if there is one."""
        return None if self.embedder is None else RemoteEmbedder(self.embedder, self._environment)
