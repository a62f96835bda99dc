"""Models other than the bundled one: any that fastembed knows by name, and endpoints over HTTP.

Formats: platform.openai.com/docs/api-reference/embeddings and docs.voyageai.com/reference/embeddings-api.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.config import Environment, Settings, expanded, import_extra
from nugget.errors import EmbeddingUnavailable, UsageError
from nugget.infra import http_client
from nugget.infra.embedding import normalised
from nugget.redaction import redact
from nugget.text import estimate_tokens, shorten

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector

_CPU: dict[str, Any] = {"threads": 1, "providers": ["CPUExecutionProvider"]}
_DEFAULTS = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "voyage": ("https://api.voyageai.com/v1", "VOYAGE_API_KEY"),
}
_BATCH = 64


class FastembedEmbedder:
    """A model from fastembed's list. Embedding texts downloads it if a hub can be reached; a question never does."""

    # Loading the model just to count would make chunking depend on a download.
    count_tokens = staticmethod(estimate_tokens)

    def __init__(self, model: str, *, cache: Path) -> None:
        self.model = model
        self._cache = cache
        self._loaded: Any = None

    def embed(self, texts: Sequence[str]) -> Iterator[Vector]:
        """Yield one vector of shape (dimensions,) for each text, in order; batch 1 is fastembed's best setting."""
        yield from map(normalised, self._model(download=True).embed(texts, batch_size=1))

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question, with the prefix that the model wants for questions."""
        return normalised(next(iter(self._model(download=False).query_embed(text))))

    def _model(self, *, download: bool) -> Any:
        if self._loaded is not None:
            return self._loaded
        fastembed: Any = import_extra("fastembed", "large", f"The embedding model {self.model}", EmbeddingUnavailable)
        if not _is_known(self.model, fastembed.TextEmbedding):
            raise UsageError(
                f"`embedding.model: {self.model}` is neither bundled, `openai:…`, `voyage:…` nor known to fastembed.",
                hint="Use `all-MiniLM-L6-v2` (bundled, offline) or a name from fastembed's list of models.",
            )
        reason = "it has not been downloaded"
        for is_local in (True, False) if download else (True,):
            try:
                place = {"cache_dir": str(self._cache), "local_files_only": is_local}
                self._loaded = fastembed.TextEmbedding(self.model, **place, **_CPU)
                return self._loaded
            except Exception as error:  # hub, network and file errors of four libraries arrive here
                reason = reason if is_local else _first_line(error).rstrip(".")
        raise EmbeddingUnavailable(
            f"The embedding model {self.model} could not be loaded or downloaded ({reason}).",
            hint="Check the network and run `nugget sync`, or use the bundled model: "
            "`embedding: {model: all-MiniLM-L6-v2}`.",
        )


def _is_known(name: str, family: Any) -> bool:
    return name.lower() in {entry["model"].lower() for entry in family.list_supported_models()}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]


class HttpEmbedder:
    """An embedding endpoint. `model` carries vendor and base URL (no credentials), so that two never share vectors."""

    count_tokens = staticmethod(estimate_tokens)

    def __init__(self, settings: Settings, environment: Environment) -> None:
        self._vendor, _, self._name = settings.embedding_model.partition(":")
        base_url, variable = _DEFAULTS[self._vendor]
        base_url, variable = settings.embedding_base_url or base_url, settings.embedding_api_key_env or variable
        key = environment.variables.get(variable)
        if not key:
            raise EmbeddingUnavailable(
                f"`embedding.model: {settings.embedding_model}` needs a key, and {variable} is not set.",
                hint=f"Set {variable}, or use the bundled model: `embedding: {{model: all-MiniLM-L6-v2}}`.",
            )
        if not key.isascii() or not key.isprintable():
            raise EmbeddingUnavailable(f"{variable} contains characters that no key has.", hint="Copy the key again.")
        self.model = f"{settings.embedding_model}@{_without_credentials(base_url)}"
        self._url = base_url.rstrip("/") + "/embeddings"
        self._shown_url = _without_credentials(self._url)
        self._timeout_s, self._headers = settings.embedding_timeout_s, {"Authorization": f"Bearer {key}"}

    def embed(self, texts: Sequence[str]) -> Iterator[Vector]:
        """Yield one vector of shape (dimensions,) for each text, in order."""
        for start in range(0, len(texts), _BATCH):
            yield from self._request(texts[start : start + _BATCH], input_type="document")

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question."""
        return self._request([text], input_type="query")[0]

    def _request(self, texts: Sequence[str], *, input_type: str) -> list[Vector]:
        cleaned = [redact(text).text.encode("utf-8", "replace").decode() for text in texts]
        body: dict[str, Any] = {"model": self._name, "input": [text or " " for text in cleaned]}
        if self._vendor == "voyage":
            body["input_type"] = input_type
        try:
            status, content = http_client.send(self._url, body, self._headers, until=time.monotonic() + self._timeout_s)
            reply = json.loads(content) if status == 200 else None
            reason = f"HTTP {status}"
        except (OSError, ValueError, RecursionError) as error:
            reply, reason = None, shorten(_without_credentials(str(error)), 200) or type(error).__name__
        if reply is None:
            hint = "Check base URL, key and network."
            raise EmbeddingUnavailable(f"{self._shown_url} gave no vectors ({reason}).", hint=hint)
        return _vectors(reply, expected=len(texts), url=self._shown_url)


def _without_credentials(url: str) -> str:
    """Return an address as it may be stored and shown, without user, password, query and fragment."""
    return re.sub(r"[?#].*", "", re.sub(r"(?<=://)[^/?#]*@", "", url))


def _vectors(reply: Any, *, expected: int, url: str) -> list[Vector]:
    """Return the embeddings of a reply in the order of the texts."""
    import numpy as np

    try:
        entries = {entry["index"]: entry["embedding"] for entry in reply["data"]}
        matrix = np.array([entries[number] for number in range(len(reply["data"]))], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise EmbeddingUnavailable(f"{url} did not answer with a list of embeddings.") from None
    is_sound = matrix.ndim == 2 and matrix.size and bool(np.isfinite(matrix).all())
    if not is_sound or len(matrix) != expected:
        raise EmbeddingUnavailable(f"{url} answered with {len(matrix)} vectors, not all usable, for {expected} texts.")
    return list(map(normalised, matrix))


class CrossEncoder:
    """A model that scores a question together with a text: a name known to fastembed, or a folder with its files.

    Loads (and, for a name, downloads) on first use.
    """

    def __init__(self, model: str, *, cache: Path) -> None:
        self._model = model
        self._cache = cache

    def logits(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return one logit for each text, in order; higher answers better. Raises EmbeddingUnavailable."""
        loaded = self._loaded
        try:
            logits = [float(logit) for logit in loaded.rerank(question, texts, batch_size=1)]
        except Exception as error:  # onnxruntime and tokenizers raise exceptions of their own
            raise EmbeddingUnavailable(f"The cross-encoder {self._model} failed ({_first_line(error)}).") from error
        if len(logits) != len(texts) or not all(map(math.isfinite, logits)):
            raise EmbeddingUnavailable(f"The cross-encoder {self._model} gave no usable scores.")
        return logits

    @cached_property
    def _loaded(self) -> Any:
        purpose = f"The cross-encoder {self._model}"
        family = import_extra("fastembed.rerank.cross_encoder", "large", purpose, EmbeddingUnavailable).TextCrossEncoder
        folder = expanded(self._model)
        name = self._model
        place: dict[str, Any] = {"cache_dir": str(self._cache)}
        if folder.is_dir():
            name, place = _folder_model(folder.resolve(), family), {"specific_model_path": str(folder)}
        elif not _is_known(name, family):
            raise EmbeddingUnavailable(
                f"`retrieval.reranker: cross-encoder:{name}` is neither a folder nor a model that fastembed knows.",
                hint="Use a folder, or a name from fastembed's list, such as Xenova/ms-marco-MiniLM-L-6-v2.",
            )
        try:
            return family(name, **place, **_CPU)
        except Exception as error:  # hub, network and file errors of four libraries arrive here
            raise EmbeddingUnavailable(
                f"The cross-encoder {self._model} could not be loaded or downloaded ({_first_line(error)}).",
                hint="Check the network, name a local folder, or set `retrieval: {reranker: local}`.",
            ) from error


def _folder_model(folder: Path, family: Any) -> str:
    """Register a local folder with fastembed under a name that no other folder has, and return that name."""
    from fastembed.common.model_description import ModelSource

    file = next((name for name in ("model.onnx", "onnx/model.onnx") if (folder / name).is_file()), None)
    if file is None:
        raise EmbeddingUnavailable(f"{folder} holds no model.onnx.", hint="Name a folder with a cross-encoder in it.")
    name = f"nugget{folder.as_posix()}"
    if not _is_known(name, family):
        family.add_custom_model(name, sources=ModelSource(url=folder.as_uri()), model_file=file)
    return name
