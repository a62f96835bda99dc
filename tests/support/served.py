"""The real `nugget serve --http` as a process of its own, and a plain client for it over real sockets."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from paths import REPOSITORY
from waiting import PATIENCE_S

START = [sys.executable, "-c", "import sys; from nugget.__main__ import console; sys.argv[0] = 'nugget'; console()"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON document."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """What stands under `error`: code, message and hint."""
        (error,) = self.json.values()
        assert set(error) == {"code", "message", "hint"}
        return SimpleNamespace(**error)


@dataclass(slots=True, kw_only=True)
class Served:
    """A server that runs, with its folders."""

    process: subprocess.Popen[bytes]
    port: int
    home: Path
    brain: Path | None = None
    headers: dict[str, str] = field(default_factory=dict)
    said: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def logs(self) -> Path:
        """The folder of its shell logs."""
        return self.home / "logs"

    def ask(
        self, path: str, *, method: str | None = None, body: Any = None, headers: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S, **query: Any,
    ) -> Answer:  # fmt: skip
        """One request; a body that is no bytes is sent as JSON."""
        sent = {**self.headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        if query:
            path += "?" + "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body=body, headers=sent)
            reply = connection.getresponse()
            named = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(status=reply.status, headers=named, body=reply.read())
        finally:
            connection.close()

    def socket(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.said.append(self.process.communicate(timeout=PATIENCE_S)[1] or b"")
        return self.process.returncode


def variables_for(folder: Path, **more: str) -> dict[str, str]:
    """An environment of its own below a folder, without keys."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NUGGET_", "ANTHROPIC_", "CLAUDE", "AISH", "GITHUB_"))
    }
    ours = {
        "HOME": str(folder), "NUGGET_HOME": str(folder / ".nugget"), "AISH_LOG_DIR": str(folder / "logs"),
        "NUGGET_MODELS": str(REPOSITORY / ".models"), "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1",
        "NUGGET_EMBEDDING_MODEL": "none", "KF_RULE_CACHE_DIR": str(REPOSITORY / ".models" / "rules"),
    }  # fmt: skip
    return {**kept, **ours, **more}


@contextmanager
def served(
    folder: Path, *options: str, brain: Path | None = None, address: str = "127.0.0.1:0", **variables: str
) -> Iterator[Served]:
    """Start the server and wait until it answers; it is ended with the block."""
    environment = variables_for(folder, **variables)
    if brain is not None:
        environment["NUGGET_BRAIN"] = str(brain)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [*START, "serve", "--http", address, *options], cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # Whoever runs the tests in a shell's background has SIGINT ignored, and so would have the server.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(rb"http://.*:(\d+) ", line)
    if found is None:
        process.kill()
        raise AssertionError((line + process.communicate()[1]).decode())
    server = Served(process=process, port=int(found[1]), home=folder, brain=brain, said=[process.stderr.readline()])
    header = Path(environment["NUGGET_HOME"]) / "http-header"
    if "NUGGET_HTTP_TOKEN" not in environment and "--no-token" not in options and header.exists():
        name, _, value = header.read_text().strip().partition(": ")
        server.headers[name] = value
    try:
        yield server
    finally:
        if process.poll() is None:
            server.stop()


@contextmanager
def served_brain(folder: Path, *options: str, **variables: str) -> Iterator[Served]:
    """A server with a copy of tests/brain, in an empty folder.

    The folder is for pytest to remove: what a command left running in the background may still write there.
    """
    shutil.copytree(REPOSITORY / "tests" / "brain", folder / "brain")
    with served(folder, *options, brain=folder / "brain", **variables) as server:
        yield server


def read_all(connection: socket.socket) -> bytes:
    """Everything that comes until the other end closes."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received
