"""Recall asks a server that runs: through a socket that is its owner's alone, for a tenth of a second at most."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import PATIENT
from served import REPOSITORY, served
from waiting import PATIENCE_S, wait_for

from nugget.app import Brain
from nugget.config import EmbeddingSettings
from nugget.infra import server_socket
from nugget.infra.server_socket import ServerSocket
from nugget.sources.speakers import MEMORY_TAG

PROMPT = "where should user sessions be kept"
MEANT = "brain:decision/sessions-in-postgres"
"""What the prompt is about; its words alone do not make it stand out."""


@pytest.fixture
def synced(brain: Path) -> Path:
    with Brain(brain) as opened:
        opened.sync()
    return brain


@pytest.fixture
def by_words(words: Path) -> Path:
    """A brain without vectors, which is quicker to index."""
    with Brain(words) as opened:
        opened.sync()
    return words


def hook(prompt: str = PROMPT, **variables: str) -> tuple[str, float]:
    """What the hook says, and the CPU seconds that it took."""
    payload = {"hook_event_name": "UserPromptSubmit", "cwd": "/", "session_id": "s", "prompt": prompt}
    before = os.times()
    done = subprocess.run(
        [*PATIENT, "capture-session", "--recall"], input=json.dumps(payload).encode(), capture_output=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}, timeout=PATIENCE_S,
    )  # fmt: skip
    after = os.times()
    assert (done.returncode, done.stderr) == (0, b"")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    said = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] if done.stdout else ""
    return said, spent


@contextmanager
def other_end(home: Path, answer: bytes | None, *, mode: int = 0o700) -> Iterator[list[bytes]]:
    """A program at the server's place that says this, or nothing at all; gives what it was asked."""
    file = server_socket.socket_file(home)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.parent.chmod(mode)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(file))
    listening.listen()
    asked: list[bytes] = []
    held = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            held.append(connection)
            asked.append(connection.recv(1 << 16))
            if answer is not None:
                with suppress(OSError):  # who asked has gone: it took too long, or was too much
                    connection.sendall(answer)
                connection.close()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield asked
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        serving.join(5)
        listening.close()
        for connection in held:
            connection.close()
        file.unlink()


@pytest.mark.proves("RECALL-RESIDENT")
def test_while_a_server_runs_recall_finds_by_meaning_and_costs_less(synced: Path, home: Path) -> None:
    alone, spent_alone = hook(NUGGET_BRAIN=str(synced))
    assert MEANT not in alone
    own = {"NUGGET_HOME": str(home), "NUGGET_MODELS": os.environ["NUGGET_MODELS"]}
    model = EmbeddingSettings().model
    with served(home.parent, brain=synced, NUGGET_EMBEDDING_MODEL=model, **own) as server:
        told: list[tuple[str, float]] = []

        def is_meant() -> bool:  # the first times the model may still be on its way
            told.append(hook(NUGGET_BRAIN=str(synced)))
            return MEANT in told[-1][0]

        wait_for(is_meant)
        said, spent = told[-1]
        assert said.startswith(f"<{MEMORY_TAG}>\nWhat earlier sessions left")
        assert min(spent, hook(NUGGET_BRAIN=str(synced))[1]) < spent_alone
        file = server_socket.socket_file(home)
        assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
        assert server_socket.ask(home, {"recall": 5, "brain": None, "folder": "/"}, timeout_s=PATIENCE_S) == {}
        assert (
            server_socket.ask(home, {"recall": PROMPT, "brain": "/nowhere\0", "folder": "/"}, timeout_s=PATIENCE_S)
            == {}
        )
        assert hook("thanks", NUGGET_BRAIN=str(synced))[0] == ""
        assert server.stop(signal.SIGTERM) == 0
    assert not file.exists()
    assert hook(NUGGET_BRAIN=str(synced))[0] == alone


@pytest.mark.proves("RECALL-RESIDENT")
def test_whatever_stands_at_its_place_words_alone_are_fallen_back_on_in_time(by_words: Path, home: Path) -> None:
    alone = hook()[0]
    bad = (b"", b"[]", b'{"lines": [5]}', b"[" * 60_000, b'{"lines": ["' + b"x" * 200_000)
    for answer in (None, *bad):
        with other_end(home, answer) as asked:
            assert hook()[0] == alone
            wait_for(lambda: asked)
            assert len(asked) == 1
            assert min(seconds(lambda: server_socket.ask(home, {"recall": PROMPT})) for _ in range(3)) < 0.5


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


@pytest.mark.proves("RECALL-RESIDENT")
def test_nobody_is_asked_where_others_could_stand(by_words: Path, home: Path, tmp_path: Path) -> None:
    with other_end(home, b'{"lines": ["from somebody else"]}', mode=0o755) as asked:
        assert "somebody else" not in hook()[0]
    file = server_socket.socket_file(home)
    file.parent.chmod(0o700)
    with other_end(tmp_path, b'{"lines": ["from somebody else"]}') as also_asked:
        file.symlink_to(server_socket.socket_file(tmp_path))
        assert "somebody else" not in hook()[0]
    assert asked == also_asked == []


@pytest.mark.proves("RECALL-RESIDENT")
def test_one_server_of_a_home_answers_and_a_dead_ones_place_is_taken(home: Path) -> None:
    def answer(question: dict[str, Any]) -> dict[str, Any]:
        if "fail" in question:
            raise ValueError("no answer")
        return {"said": question["n"]}

    first, second = ServerSocket(home, answer), ServerSocket(home, lambda _: {"said": "second"})
    assert first.start() and not second.start()
    ask_patiently = partial(server_socket.ask, home, timeout_s=PATIENCE_S)
    assert ask_patiently({"n": 7}) == {"said": 7}
    assert ask_patiently({"fail": 1}) is None and ask_patiently({"n": 8}) == {"said": 8}
    second.stop()
    assert ask_patiently({"n": 9}) == {"said": 9}
    first.stop()
    assert ask_patiently({"n": 7}) is None and not server_socket.socket_file(home).exists()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(str(server_socket.socket_file(home)))
    dead.close()
    assert second.start() and ask_patiently({"n": 1}) == {"said": "second"}
    second.stop()
    assert not ServerSocket(home / ("deep/" * 30), answer).start()
