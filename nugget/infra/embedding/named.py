"""The gateway to fastembed: any model that it knows by name."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from nugget.errors import EmbeddingUnavailable, UsageError
from nugget.infra import files
from nugget.text import estimate_tokens, slugify

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_TRY_AGAIN_AFTER_S = 600
"""A hub that could not be reached is not asked again for this long: fastembed waits 39 s before it gives up."""


class FastembedEmbedder:
    """A model from fastembed's list. Embedding texts downloads it where a hub can be reached; a question never does."""

    def __init__(self, model: str, *, cache: Path) -> None:
        self.model = model
        self._cache = cache
        self._lock = Lock()
        self._loaded: Any = None

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """One vector of shape (dimensions,) for each text, in order; batch 1 is fastembed's best setting."""
        yield from map(_normalised, self._model(download=True).embed(texts, batch_size=1))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a question, with the prefix that the model wants for questions."""
        return _normalised(next(iter(self._model(download=False).query_embed(text))))

    def count_tokens(self, text: str) -> int:
        """Estimated: loading the model only to count would make chunking depend on a download."""
        return estimate_tokens(text)

    def _model(self, *, download: bool) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self.model, self._cache, download=download)
        return self._loaded


def _load(name: str, cache: Path, *, download: bool) -> Any:
    import fastembed
    import loguru

    loguru.logger.disable("fastembed")  # it logs each attempt to stderr; we say once what came of them
    known = {entry["model"].lower() for entry in fastembed.TextEmbedding.list_supported_models()}
    if name.lower() not in known:
        raise UsageError(
            f"`embedding.model: {name}` is neither bundled, a folder, `openai:…`, `voyage:…` nor known to fastembed.",
            hint="Use `all-MiniLM-L6-v2` (bundled, offline) or a name from fastembed's list of models.",
        )
    options: dict[str, Any] = {"cache_dir": str(cache), "threads": 1, "providers": ["CPUExecutionProvider"]}
    failed = cache / f"{slugify(name)}.unavailable"
    try:
        return fastembed.TextEmbedding(name, local_files_only=True, **options)
    except Exception as error:  # hub, network and file errors of four libraries arrive here
        reason = _recent_reason(failed) if download else None
        if not download or reason is not None:
            raise _unavailable(name, reason or "it has not been downloaded") from error
    try:
        model = fastembed.TextEmbedding(name, **options)
        failed.unlink(missing_ok=True)
        return model
    except Exception as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        files.private_folder(cache)
        failed.write_text(reason, "utf-8", "replace")
        raise _unavailable(name, reason) from error


def _recent_reason(failed: Path) -> str | None:
    """Return the reason why the last download failed, if that was recently."""
    try:
        if time.time() - failed.stat().st_mtime < _TRY_AGAIN_AFTER_S:
            return failed.read_text("utf-8", "replace")
    except OSError:
        pass
    return None


def _unavailable(name: str, reason: str) -> EmbeddingUnavailable:
    return EmbeddingUnavailable(
        f"The embedding model {name} could not be loaded or downloaded ({reason}).",
        hint="Check the network and run `nugget sync`, or use the bundled model: "
        "`embedding: {model: all-MiniLM-L6-v2}`.",
    )


def _normalised(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    result: NDArray[np.float32] = (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
    return result
