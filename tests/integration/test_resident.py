"""The resident server: one for all windows of a home, and what hooks and commands ask it."""

import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from commands import hook
from mcp_wire import HELLO, RUN
from waiting import PATIENCE_S, wait_for, within

from nugget.app import Brain
from nugget.config import Settings
from nugget.infra import resident
from nugget.sources.speakers import MEMORY_TAG

PROMPT = "where should user sessions be kept"
MEANT = "brain:decision/sessions-in-postgres"
"""What the prompt is about; its words alone do not make it stand out."""


@pytest.fixture
def synced(brain: Path, indexed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", Settings().embedding_model)
    shutil.copytree(indexed, brain / ".nugget")
    return brain


@pytest.fixture
def by_words(words: Path) -> Path:
    """A brain without vectors, which is quicker to index."""
    with Brain(words) as opened:
        opened.sync()
    return words


@contextmanager
def window(brain: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Open a window on a brain, as a client does, and see that it answers."""
    process = subprocess.Popen(
        [*RUN, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "NUGGET_BRAIN": str(brain), **variables},
    )  # fmt: skip
    try:
        assert process.stdin and process.stdout
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "nugget"
        yield process
    finally:
        process.stdin.close()
        assert process.wait(PATIENCE_S) in (0, 1)
        process.stdout.close()


def servers(home: Path) -> list[Path]:
    """The sockets of resident servers that run."""
    return sorted((home / "run").glob("*.sock"))


def recalled(**variables: str) -> str:
    """What the hook says at a prompt."""
    payload = {"hook_event_name": "UserPromptSubmit", "cwd": "/", "session_id": "s", "prompt": PROMPT}
    done = hook(payload, "--recall", **variables)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] if done.stdout else ""


@contextmanager
def other_end(home: Path, answer: bytes | None, *, mode: int = 0o700) -> Iterator[list[bytes]]:
    """A program at the server's place that says this, or nothing at all; gives what it was asked."""
    file, asked, ended = Path(resident.socket_file(home)), list[bytes](), threading.Event()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.parent.chmod(mode)

    class Other(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.request.recv(1 << 16))
            if answer is None:
                ended.wait(PATIENCE_S)
            else:
                with suppress(OSError):  # who asked has gone: it took too long, or was too much
                    self.request.sendall(answer)

    with socketserver.ThreadingUnixStreamServer(str(file), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield asked
        finally:
            ended.set()
            server.shutdown()
            file.unlink()


@pytest.mark.proves("MCP-RESIDENT")
def test_windows_that_open_at_once_share_one_server_that_ends_after_the_last(by_words, home):
    with ExitStack() as windows:
        processes = [windows.enter_context(window(by_words, NUGGET_RESIDENT_S="1")) for _ in range(4)]
        assert len(servers(home)) == 1
        for process in processes:
            loaded = Path(f"/proc/{process.pid}/maps").read_text() if sys.platform == "linux" else ""
            assert "onnxruntime" not in loaded and "sqlite3" not in loaded
        (file,) = servers(home)
        assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
        with window(by_words, ANTHROPIC_API_KEY="another", NUGGET_RESIDENT_S="1"):
            assert len(servers(home)) == 2, "its server would have another key"
    wait_for(lambda: not servers(home))


@pytest.mark.proves("MCP-ALONE")
@pytest.mark.parametrize("place", ["off", "open folder", "silent", "deep"])
def test_a_window_without_a_server_that_it_may_trust_serves_itself(by_words, home, place, monkeypatch):
    with ExitStack() as standing:
        if place == "off":
            monkeypatch.setenv("NUGGET_RESIDENT_S", "0")
        elif place == "open folder":
            standing.enter_context(other_end(home, b"\n", mode=0o755))
        elif place == "silent":
            standing.enter_context(other_end(home, b""))
        else:
            monkeypatch.setenv("NUGGET_HOME", str(home / ("deep/" * 30)))
        before = set(servers(home))
        with window(by_words):
            assert set(servers(home)) == before


@pytest.mark.proves("RECALL-RESIDENT")
def test_while_a_window_is_open_recall_finds_by_meaning(synced, home):
    alone = recalled(NUGGET_BRAIN=str(synced))
    assert MEANT not in alone
    with window(synced):
        told: list[str] = []

        def is_meant() -> bool:  # the first times the model may still be on its way
            told.append(recalled(NUGGET_BRAIN=str(synced)))
            return MEANT in told[-1]

        wait_for(is_meant)
        assert told[-1].startswith(f"<{MEMORY_TAG}>\nWhat earlier sessions left")
        for odd in ({"recall": 5, "folder": "/"}, {"recall": PROMPT, "brains": {"x": "/nowhere\0"}, "folder": "/"}, {}):
            assert resident.ask(home, odd, timeout_s=PATIENCE_S) in (None, {"lines": []})
    wait_for(lambda: not servers(home))
    assert recalled(NUGGET_BRAIN=str(synced)) == alone


@pytest.mark.proves("RECALL-RESIDENT")
def test_whatever_stands_at_its_place_words_alone_are_fallen_back_on_in_time(by_words, home):
    alone = recalled()
    for answer in (None, b"", b"[]", b'{"lines": [5]}', b"[" * 60_000, b'{"lines": ["' + b"x" * 200_000):
        with other_end(home, answer) as asked:
            assert recalled() == alone
            wait_for(lambda: asked)
            with within(PATIENCE_S / 4):
                resident.ask(home, {"recall": PROMPT})


@pytest.mark.proves("RECALL-RESIDENT")
def test_nobody_is_asked_where_others_could_stand(by_words, home, tmp_path):
    with other_end(home, b'{"lines": ["from somebody else"]}', mode=0o755) as asked:
        assert "somebody else" not in recalled()
    file = Path(resident.socket_file(home))
    file.parent.chmod(0o700)
    with other_end(tmp_path, b'{"lines": ["from somebody else"]}') as also_asked:
        file.symlink_to(resident.socket_file(tmp_path))
        assert "somebody else" not in recalled()
    assert asked == also_asked == []
