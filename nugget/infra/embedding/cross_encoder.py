"""Cross-encoders through fastembed: how well each text answers a question, read together with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from nugget.config import expanded
from nugget.errors import EmbeddingUnavailable

_MODEL_FILES = ("model.onnx", "onnx/model.onnx")


class CrossEncoder:
    """A model that fastembed knows by name, or a folder with model.onnx and tokenizer files.

    Thread-safe; loads (and, for a name, downloads) on first use.
    """

    def __init__(self, model: str, *, cache: Path) -> None:
        self._model = model
        self._cache = cache
        self._lock = Lock()
        self._loaded: Any = None

    def logits(self, question: str, texts: Sequence[str]) -> list[float]:
        """One logit for each text, in order; higher answers better. Raises EmbeddingUnavailable."""
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._model, self._cache)
        try:
            logits = [float(logit) for logit in self._loaded.rerank(question, texts, batch_size=1)]
        except Exception as error:  # onnxruntime and tokenizers raise types of their own
            raise EmbeddingUnavailable(f"The cross-encoder {self._model} failed ({_first_line(error)}).") from error
        if len(logits) != len(texts) or not all(map(math.isfinite, logits)):
            raise EmbeddingUnavailable(f"The cross-encoder {self._model} gave no usable scores.")
        return logits


def _load(model: str, cache: Path) -> Any:
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    folder = expanded(model)
    if folder.is_dir():
        return _load_folder(folder)
    known = {entry["model"].lower() for entry in TextCrossEncoder.list_supported_models()}
    if model.lower() not in known:
        raise EmbeddingUnavailable(
            f"`retrieval.reranker: cross-encoder:{model}` is neither a folder nor a model that fastembed knows.",
            hint="Use a folder, or a name from fastembed's list, such as Xenova/ms-marco-MiniLM-L-6-v2.",
        )
    try:
        return TextCrossEncoder(model, cache_dir=str(cache), threads=1, providers=["CPUExecutionProvider"])
    except Exception as error:  # hub, network and file errors of four libraries arrive here
        raise EmbeddingUnavailable(
            f"The cross-encoder {model} could not be loaded or downloaded ({_first_line(error)}).",
            hint="Check the network, name a local folder, or set `retrieval: {reranker: local}`.",
        ) from error


def _load_folder(folder: Path) -> Any:
    """fastembed's own loader on a local folder, under a name that no other folder has."""
    from fastembed.common.model_description import ModelSource
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    folder = folder.resolve()
    model_file = next((name for name in _MODEL_FILES if (folder / name).is_file()), None)
    if model_file is None:
        raise EmbeddingUnavailable(f"{folder} holds no model.onnx.", hint="Name a folder with a cross-encoder in it.")
    name = f"nugget{folder.as_posix()}"
    try:
        if name.lower() not in {entry["model"].lower() for entry in TextCrossEncoder.list_supported_models()}:
            TextCrossEncoder.add_custom_model(name, sources=ModelSource(url=folder.as_uri()), model_file=model_file)
        return TextCrossEncoder(name, specific_model_path=str(folder), threads=1, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime, tokenizers and fastembed raise types of their own
        raise EmbeddingUnavailable(f"{folder} cannot be loaded as a cross-encoder ({_first_line(error)}).") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
