"""Models other than the bundled one: any that fastembed knows by name, and endpoints over HTTP.

Formats: platform.openai.com/docs/api-reference/embeddings and docs.voyageai.com/reference/embeddings-api.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from nugget.config import EmbeddingSettings, Environment, expanded
from nugget.errors import EmbeddingUnavailable, UsageError
from nugget.infra import files
from nugget.redaction import redact
from nugget.text import estimate_tokens, shorten, slugify

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

_CPU: dict[str, Any] = {"threads": 1, "providers": ["CPUExecutionProvider"]}
_TRY_AGAIN_AFTER_S = 600
"""How long a hub that could not be reached is left alone: fastembed waits 39 s before it gives up."""

_DEFAULTS = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "voyage": ("https://api.voyageai.com/v1", "VOYAGE_API_KEY"),
}
_BATCH = 64
_ATTEMPTS = 4
_RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)
_LONGEST_WAIT_S = 20.0
_LARGEST_NUMBER = 1e12
"""No model gives numbers beyond this; their squares add up within a float."""
_MODEL_FILES = ("model.onnx", "onnx/model.onnx")


class FastembedEmbedder:
    """A model from fastembed's list. Embedding texts downloads it if a hub can be reached; a question never does."""

    def __init__(self, model: str, *, cache: Path) -> None:
        self.model = model
        self._cache = cache
        self._lock = Lock()
        self._loaded: Any = None

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield one vector of shape (dimensions,) for each text, in order; batch 1 is fastembed's best setting."""
        yield from map(_normalised, self._model(download=True).embed(texts, batch_size=1))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question, with the prefix that the model wants for questions."""
        return _normalised(next(iter(self._model(download=False).query_embed(text))))

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens: loading the model only to count would make chunking depend on a download."""
        return estimate_tokens(text)

    def _model(self, *, download: bool) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load_embedding(self.model, self._cache, download=download)
        return self._loaded


def _load_embedding(name: str, cache: Path, *, download: bool) -> Any:
    import fastembed

    if not _is_known(name, fastembed.TextEmbedding):
        raise UsageError(
            f"`embedding.model: {name}` is neither bundled, a folder, `openai:…`, `voyage:…` nor known to fastembed.",
            hint="Use `all-MiniLM-L6-v2` (bundled, offline) or a name from fastembed's list of models.",
        )
    failed = cache / f"{slugify(name)}.unavailable"
    try:
        return fastembed.TextEmbedding(name, cache_dir=str(cache), local_files_only=True, **_CPU)
    except Exception as error:  # hub, network and file errors of four libraries arrive here
        reason = _recent_reason(failed) if download else "it has not been downloaded"
        if reason is not None:
            raise _unavailable(name, reason) from error
    try:
        model = fastembed.TextEmbedding(name, cache_dir=str(cache), **_CPU)
        failed.unlink(missing_ok=True)
        return model
    except Exception as error:
        reason = _first_line(error).rstrip(".")
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


def _is_known(name: str, family: Any) -> bool:
    return name.lower() in {entry["model"].lower() for entry in family.list_supported_models()}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]


class HttpEmbedder:
    """An embedding endpoint. `model` carries vendor and base URL (no credentials), so that two never share vectors."""

    def __init__(self, vendor: str, name: str, *, base_url: str, key: str, timeout_s: float) -> None:
        self.model = f"{vendor}:{name}@{_without_credentials(base_url)}"
        self._vendor = vendor
        self._name = name
        self._url = base_url.rstrip("/") + "/embeddings"
        self._shown_url = _without_credentials(self._url)
        self._headers = {"Authorization": f"Bearer {key}"}
        self._timeout_s = timeout_s
        self._size: int | None = None

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, environment: Environment) -> HttpEmbedder:
        """Read `openai:<model>` or `voyage:<model>`. Raises EmbeddingUnavailable when the key is not set."""
        vendor, _, name = settings.model.partition(":")
        base_url, variable = _DEFAULTS[vendor]
        variable = settings.api_key_env or variable
        key = environment.variables.get(variable)
        if not key:
            raise EmbeddingUnavailable(
                f"`embedding.model: {settings.model}` needs a key, and {variable} is not set.",
                hint=f"Set {variable}, or use the bundled model: `embedding: {{model: all-MiniLM-L6-v2}}`.",
            )
        if not key.isascii() or not key.isprintable():
            raise EmbeddingUnavailable(f"{variable} holds characters that no key has.", hint="Copy the key again.")
        return cls(vendor, name, base_url=settings.base_url or base_url, key=key, timeout_s=settings.timeout_s)

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield one vector of shape (dimensions,) for each text, in order."""
        import httpx

        with httpx.Client(timeout=self._timeout_s, headers=self._headers) as client:
            for start in range(0, len(texts), _BATCH):
                yield from self._request(client, texts[start : start + _BATCH], input_type="document")

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question."""
        import httpx

        with httpx.Client(timeout=self._timeout_s, headers=self._headers) as client:
            return self._request(client, [text], input_type="query")[0]

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens at four characters each."""
        return estimate_tokens(text)

    def _request(self, client: httpx.Client, texts: Sequence[str], *, input_type: str) -> list[NDArray[np.float32]]:
        cleaned = [redact(text).text.encode("utf-8", "replace").decode() for text in texts]
        body: dict[str, Any] = {"model": self._name, "input": [text or " " for text in cleaned]}
        if self._vendor == "voyage":
            body["input_type"] = input_type
        made = _vectors(self._post(client, body), expected=len(texts), url=self._shown_url)
        sizes = {len(vector) for vector in made} | {self._size or len(made[0])}
        if len(sizes) > 1:
            raise EmbeddingUnavailable(f"{self._shown_url} answered with vectors of different sizes.")
        self._size = len(made[0])
        return made

    def _post(self, client: httpx.Client, body: dict[str, Any]) -> Any:
        import httpx

        reason, wait_s = "", 0.0
        for attempt in range(_ATTEMPTS):
            time.sleep(wait_s)
            wait_s = 0.5 * 2**attempt
            try:
                response = client.post(self._url, json=body)
                if response.status_code == 200:
                    return json.loads(response.content)
            except httpx.InvalidURL as error:
                reason = _without_credentials(str(error))
                break
            except httpx.HTTPError as error:
                reason = shorten(str(error), 200) or type(error).__name__
                continue
            except (ValueError, RecursionError):
                raise EmbeddingUnavailable(f"{self._shown_url} answered with something that is not JSON.") from None
            reason = f"HTTP {response.status_code}"
            if response.status_code not in _RETRIED:
                break
            wait_s = min(_retry_after_s(response.headers.get("retry-after")) or wait_s, _LONGEST_WAIT_S)
        raise EmbeddingUnavailable(
            f"{self._shown_url} gave no vectors ({reason}).", hint="Check base URL, key and network."
        )


def _retry_after_s(header: str | None) -> float | None:
    return float(header) if header and re.fullmatch(r"[0-9]+(\.[0-9]+)?", header) else None


def _without_credentials(url: str) -> str:
    """Return an address as it may be stored and shown, without user, password, query and fragment."""
    return re.sub(r"[?#].*", "", re.sub(r"(?<=://)[^/?#]*@", "", url))


def _vectors(reply: Any, *, expected: int, url: str) -> list[NDArray[np.float32]]:
    import numpy as np

    try:
        entries = {entry["index"]: entry["embedding"] for entry in reply["data"]}
        matrix = np.array([entries[number] for number in range(len(reply["data"]))], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise EmbeddingUnavailable(f"{url} answered in a form that is no list of embeddings.") from None
    is_sound = matrix.ndim == 2 and matrix.size and bool((np.abs(matrix) < _LARGEST_NUMBER).all())
    if not is_sound or len(matrix) != expected:
        raise EmbeddingUnavailable(f"{url} answered with {len(matrix)} vectors, not all usable, for {expected} texts.")
    norms = np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return list((matrix / norms).astype(np.float32))


class CrossEncoder:
    """A model that scores a question together with a text: a name known to fastembed, or a folder with its files.

    Thread-safe; loads (and, for a name, downloads) on first use.
    """

    def __init__(self, model: str, *, cache: Path) -> None:
        self._model = model
        self._cache = cache
        self._lock = Lock()
        self._loaded: Any = None

    def logits(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return one logit for each text, in order; higher answers better. Raises EmbeddingUnavailable."""
        with self._lock:
            if self._loaded is None:
                self._loaded = _load_cross_encoder(self._model, self._cache)
        try:
            logits = [float(logit) for logit in self._loaded.rerank(question, texts, batch_size=1)]
        except Exception as error:  # onnxruntime and tokenizers raise types of their own
            raise EmbeddingUnavailable(f"The cross-encoder {self._model} failed ({_first_line(error)}).") from error
        if len(logits) != len(texts) or not all(map(math.isfinite, logits)):
            raise EmbeddingUnavailable(f"The cross-encoder {self._model} gave no usable scores.")
        return logits


def _load_cross_encoder(model: str, cache: Path) -> Any:
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    folder = expanded(model)
    if folder.is_dir():
        return _load_folder(folder)
    if not _is_known(model, TextCrossEncoder):
        raise EmbeddingUnavailable(
            f"`retrieval.reranker: cross-encoder:{model}` is neither a folder nor a model that fastembed knows.",
            hint="Use a folder, or a name from fastembed's list, such as Xenova/ms-marco-MiniLM-L-6-v2.",
        )
    try:
        return TextCrossEncoder(model, cache_dir=str(cache), **_CPU)
    except Exception as error:  # hub, network and file errors of four libraries arrive here
        raise EmbeddingUnavailable(
            f"The cross-encoder {model} could not be loaded or downloaded ({_first_line(error)}).",
            hint="Check the network, name a local folder, or set `retrieval: {reranker: local}`.",
        ) from error


def _load_folder(folder: Path) -> Any:
    """Open a local folder with fastembed's own loader, under a name that no other folder has."""
    from fastembed.common.model_description import ModelSource
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    folder = folder.resolve()
    model_file = next((name for name in _MODEL_FILES if (folder / name).is_file()), None)
    if model_file is None:
        raise EmbeddingUnavailable(f"{folder} holds no model.onnx.", hint="Name a folder with a cross-encoder in it.")
    name = f"nugget{folder.as_posix()}"
    try:
        if not _is_known(name, TextCrossEncoder):
            TextCrossEncoder.add_custom_model(name, sources=ModelSource(url=folder.as_uri()), model_file=model_file)
        return TextCrossEncoder(name, specific_model_path=str(folder), **_CPU)
    except Exception as error:  # onnxruntime, tokenizers and fastembed raise types of their own
        raise EmbeddingUnavailable(f"{folder} cannot be loaded as a cross-encoder ({_first_line(error)}).") from error
