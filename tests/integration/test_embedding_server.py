"""The vector of a question from a running server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
from paths import REPOSITORY
from served import served
from test_server_socket import other_end, synced
from waiting import PATIENCE_S, wait_for

from nugget.config import EmbeddingSettings, Settings, read_environment
from nugget.infra.embedding import BUNDLED_MODEL, Embedder, RemoteEmbedder, open_embedder

__all__ = ["synced"]

ROOT = REPOSITORY
MEANT = "decision/sessions-in-postgres"
QUESTION = "people get logged out on every page load in the browser"
MODEL = {"numpy", "onnxruntime", "tokenizers"}
COMMAND = """\
import atexit, sys
def report():
    loaded = sorted({name.split('.')[0] for name in sys.modules})
    print(*loaded, file=sys.stderr)
import os
leave = os._exit
os._exit = lambda code: (report(), sys.stderr.flush(), leave(code))
from nugget.__main__ import console
console()
"""


@pytest.fixture
def own() -> Embedder:
    model = open_embedder(Settings(embedding=EmbeddingSettings(model=BUNDLED_MODEL)), read_environment())
    assert model is not None
    return model


def asked(brain: Path, **variables: str) -> tuple[list[str], set[str]]:
    """The ids that `nugget search` finds, and the top-level modules that it loaded for that."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "--brain", str(brain), "search", "--source", "brain", "--json", QUESTION],
        capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [hit["id"] for hit in json.loads(done.stdout)["hits"]], set(done.stderr.splitlines()[-1].split())


@pytest.mark.proves("ASK-BORROWED")
def test_a_command_finds_by_meaning_and_loads_no_model_itself(synced: Path, isolated_home: Path) -> None:
    model = EmbeddingSettings().model
    own_way, loaded = asked(synced, NUGGET_EMBEDDING_MODEL=model)
    assert MEANT in own_way
    assert loaded >= MODEL
    keep = {"NUGGET_HOME": str(isolated_home / ".nugget"), "NUGGET_MODELS": os.environ["NUGGET_MODELS"]}
    with served(isolated_home, brain=synced, NUGGET_EMBEDDING_MODEL=model, **keep) as server:
        answers: list[tuple[list[str], set[str]]] = []

        def is_borrowed() -> bool:  # at first the server may be loading it still
            answers.append(asked(synced, NUGGET_EMBEDDING_MODEL=model))
            return not answers[-1][1] & MODEL

        wait_for(is_borrowed)
        assert answers[-1][0] == own_way
        assert server.stop(signal.SIGTERM) == 0


@pytest.mark.proves("ASK-BORROWED")
def test_whatever_the_others_answer_the_model_itself_is_fallen_back_on(own: Embedder, isolated_home: Path) -> None:
    environment = read_environment()
    expected = own.embed_query(QUESTION).tobytes()
    short = b64encode(np.float32([3, 4]).tobytes()).decode()
    for answer in (b"", b"{", b"[]", b"{}", b'{"vector": 5}', b'{"vector": "%%"}', b'{"vector": "abcd"}',
                   json.dumps({"vector": short}).encode()):  # fmt: skip
        with other_end(environment.home, answer) as heard:
            assert RemoteEmbedder(own, environment).embed_query(QUESTION).tobytes() == expected
            wait_for(lambda: heard)
            assert json.loads(heard[0]) == {"embed": QUESTION, "model": own.model}
