"""The vector of a question from another process: a server that runs, or one that is started beside the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from paths import REPOSITORY
from served import served
from test_resident import other_end, synced
from waiting import PATIENCE_S, wait_for

from nugget.config import EmbeddingSettings, Settings, read_environment
from nugget.infra.embedding import BUNDLED_MODEL, Embedder, borrowed, open_embedder
from nugget.infra.embedding.borrowed import Borrowing, load_ahead, vector_for

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
os.sched_getaffinity = lambda process: {0, 1}
leave = os._exit
os._exit = lambda code: (report(), sys.stderr.flush(), leave(code))
from nugget.__main__ import console
console()
"""


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one alone no second process is started."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)


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


def end_loading() -> None:
    """End the second process, where there is one."""
    if borrowed._loading is not None:
        borrowed._loading.kill()
        borrowed._loading.communicate()
        borrowed._loading = None


@pytest.fixture
def stopped() -> Iterator[None]:
    """No second process outlives the test."""
    yield
    end_loading()


@pytest.mark.proves("ASK-BORROWED")
def test_a_command_finds_by_meaning_and_loads_no_model_itself(synced: Path, isolated_home: Path) -> None:
    model = EmbeddingSettings().model
    own_way, loaded = asked(synced, NUGGET_EMBEDDING_MODEL=model)
    assert MEANT in own_way
    assert loaded & MODEL == set(), "the process beside it has"
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
def test_a_borrowed_vector_is_the_own_one_to_the_bit(own: Embedder, isolated_home: Path) -> None:
    load_ahead()
    environment = read_environment()
    model = Borrowing(_Unused(own.model), environment)
    assert model.embed_query(QUESTION).tobytes() == own.embed_query(QUESTION).tobytes()
    again = Borrowing(own, environment).embed_query("The process answers once; then the model does it itself.")
    assert isinstance(again, np.ndarray)


@pytest.mark.proves("ASK-BORROWED")
def test_whatever_the_others_answer_the_model_itself_is_fallen_back_on(own: Embedder, isolated_home: Path) -> None:
    environment = read_environment()
    expected = own.embed_query(QUESTION).tobytes()
    short = b64encode(np.float32([3, 4]).tobytes()).decode()
    for answer in (b"", b"{", b"[]", b"{}", b'{"vector": 5}', b'{"vector": "%%"}', b'{"vector": "abcd"}',
                   json.dumps({"vector": short}).encode()):  # fmt: skip
        with other_end(environment.home, answer) as heard:
            assert Borrowing(own, environment).embed_query(QUESTION).tobytes() == expected
            wait_for(lambda: heard)
            assert json.loads(heard[0]) == {"embed": QUESTION, "model": own.model}
    load_ahead()
    assert borrowed._loading is not None
    borrowed._loading.kill()
    assert Borrowing(own, environment).embed_query(QUESTION).tobytes() == expected


@pytest.mark.proves("ASK-BORROWED")
def test_no_process_is_started_in_vain(own: Embedder, isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with other_end(read_environment().home, None):
        load_ahead()
        assert borrowed._loading is None, "a server runs"
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    load_ahead()
    assert borrowed._loading is None, "no vectors are wanted"


@pytest.mark.proves("ASK-BORROWED")
@pytest.mark.parametrize(
    ("settings", "started"),
    [
        ("embedding:\n  # which one\n\n  timeout_s: 5\n  model: 'other/model'  # ours\n", False),
        ("embedding: {timeout_s: 5, model: none}\n", False),
        (f"embedding:\n  model: {BUNDLED_MODEL}\n", True),
        ("embedding:\n  # model: none\nllm:\n  model: claude\n", True),
        ("", True),
    ],
    ids=str.split("other none-in-one-line bundled comment nothing"),
)
def test_no_process_is_started_for_another_model(home: Path, settings: str, started: bool, stopped: None) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(settings)
    load_ahead()
    assert (borrowed._loading is not None) is started


def test_settings_that_are_not_text_stop_no_question(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, stopped: None
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    home.mkdir()
    (home / "config.yaml").write_bytes(b"embedding:\n" * 3000 + b"\xff\n")
    load_ahead()
    assert borrowed._loading is not None
    end_loading()


@pytest.mark.proves("ASK-BORROWED", "CLI-EXIT")
def test_an_interrupt_while_the_second_process_is_started_ends_without_a_traceback(synced: Path) -> None:
    interrupt = """\
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *rest):
        if name == "nugget.infra.embedding.borrowed":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""
    done = subprocess.run(
        [sys.executable, "-c", interrupt + COMMAND, "--brain", str(synced), "ask", QUESTION],
        capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert len(done.stderr.splitlines()) == 1, "the modules that COMMAND reports"


@pytest.mark.proves("ASK-BORROWED")
def test_the_second_process_does_not_take_the_place_of_a_closed_stream(synced: Path) -> None:
    kinds = """\
import os, stat, sys
leave = os._exit
def report(code):
    kinds = [stat.S_ISCHR(os.fstat(number).st_mode) for number in (0, 1)]
    print(code, kinds, file=sys.stderr, flush=True)
    leave(code)
os._exit = report
from nugget.__main__ import console
console()
"""
    command = [sys.executable, "-c", kinds, "--brain", str(synced), "search", "--source", "brain", QUESTION]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command], capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUGGET_EMBEDDING_MODEL": EmbeddingSettings().model},
    )  # fmt: skip
    assert done.stderr == "0 [True, True]\n", "both are the null device"


@pytest.mark.proves("ASK-BORROWED")
def test_a_vector_of_another_model_is_not_lent(own: Embedder) -> None:
    assert vector_for({"embed": QUESTION, "model": own.model}, own)["vector"]
    assert vector_for({"embed": QUESTION, "model": "another"}, own) == {}
    assert vector_for({"embed": 5, "model": own.model}, own) == {}
    assert vector_for({"embed": QUESTION, "model": own.model}, None) == {}


class _Unused:
    """A model that must not be asked."""

    def __init__(self, model: str) -> None:
        self.model = model

    def embed_query(self, text: str) -> np.ndarray:
        """Fail."""
        raise AssertionError(text)
