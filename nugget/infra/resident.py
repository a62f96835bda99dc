"""The way to the resident server: one process that answers all windows of one `$NUGGET_HOME`.

`nugget serve` over stdio pipes its client's bytes to it, so a window costs a bare Python instead of a model, and starts
it if it does not run. Hooks and commands ask it for what needs the model. It listens on a Unix socket in a folder that
only its owner can enter, so nobody else can ask, and no other program can take its place as one can take a port.
Standard library only: this is all that a window runs.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from nugget import __version__
from nugget.infra import files

TYPE_CHECKING = False  # `typing` costs a hook more than the rest of this module
if TYPE_CHECKING:
    from typing import Any

PATIENCE_S = 0.1
"""How long a hook waits for an answer: it has 0.3 s in all, and 0.2 s is what it takes alone."""
START_PATIENCE_S = 12.0
"""How long a window waits for a server that starts, which it could not do faster itself; then it serves alone."""
IDLE_VARIABLE = "NUGGET_RESIDENT_S"
"""Names the seconds that the resident server stays after its last window; 0: there is none."""
IDLE_S = 600.0
MAX_BYTES = 1 << 16
"""Limit of a question and of its answer."""
READY = b"\n"
"""What the server sends before it takes the first byte of a window's client."""
WINDOW_VARIABLES = ("NUGGET_BRAIN", "CLAUDE_CODE_SESSION_ID")
"""The environment variables that a window sends along; in all others its server is like it."""

_VARIABLES = (
    "NUGGET_", "ANTHROPIC_", "OPENAI_", "VOYAGE_", "GITHUB_", "GH_", "AISH_", "CLAUDE_CONFIG_DIR", "HOME", "TZ", "SSL_",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "KF_", "HF_",
)  # fmt: skip
_RETRY_S = 0.02
_CHUNK = 1 << 16
_OPTIONS = {"--brain": "brain", "--as": "identity", "--compat": "compat"}


def idle_s() -> float:
    """Return how many seconds the resident server outlives its last window."""
    with suppress(ValueError):
        return float(os.environ.get(IDLE_VARIABLE) or IDLE_S)
    return IDLE_S


def socket_file(home: files.StrPath) -> str:
    """Return the path of the socket for this version of Nugget, this home and these keys and settings.

    Windows whose environments differ in a variable that Nugget reads never share a server, so none is sent.
    """
    import hashlib

    read = sorted(item for item in os.environ.items() if item[0].upper().startswith(_VARIABLES))
    same = [f"{name}={value}" for name, value in read if name not in WINDOW_VARIABLES]
    name = hashlib.sha256("\0".join([__version__, __file__, sys.executable, *same]).encode("utf-8", "replace"))
    return os.path.join(os.fspath(home), "run", f"{name.hexdigest()[:12]}.sock")


def ask(home: files.StrPath, question: dict[str, Any], *, timeout_s: float = PATIENCE_S) -> dict[str, Any] | None:
    """Return the answer of the resident server; None if none runs, or it takes longer. Raises nothing."""
    until = time.monotonic() + timeout_s
    try:
        with connect(socket_file(home), timeout_s) as asked:
            asked.sendall(json.dumps(question).encode())
            asked.shutdown(socket.SHUT_WR)
            content = b""
            while len(content) <= MAX_BYTES and (left := until - time.monotonic()) > 0:
                asked.settimeout(left)
                if not (part := asked.recv(_CHUNK)):
                    answer = json.loads(content)
                    return answer if isinstance(answer, dict) else None
                content += part
    except (OSError, ValueError, RecursionError):
        pass
    return None


def forward(home: files.StrPath, arguments: Sequence[str]) -> int | None:
    """Run `nugget serve <arguments>` by piping stdin and stdout to the resident server; return the exit code.

    None if the call is another one or no server can be had: nothing has been read from stdin then.
    """
    window = _window(arguments)
    if window is None or idle_s() <= 0 or (connection := _connected(os.fspath(home), window)) is None:
        return None
    is_over = threading.Event()
    threading.Thread(target=_pipe_stdin, args=(connection, is_over), daemon=True).start()
    try:
        while part := connection.recv(_CHUNK):
            while part:
                part = part[os.write(1, part) :]
    except BrokenPipeError:
        return 0
    except OSError:
        pass
    if is_over.is_set():
        return 0
    print("nugget: the server of this window has ended; connect it again.", file=sys.stderr)
    return 1


def connect(file: str, timeout_s: float) -> socket.socket:
    """Connect to a socket that is this person's, in a folder that nobody else may enter. Raises OSError."""
    place, folder = os.lstat(file), os.lstat(os.path.dirname(file))
    mine = place.st_uid == folder.st_uid == os.getuid()
    if not (mine and stat.S_ISSOCK(place.st_mode) and stat.S_ISDIR(folder.st_mode) and not folder.st_mode & 0o077):
        raise PermissionError
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(file)
    except OSError:
        connection.close()
        raise
    return connection


def _window(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return what the server must know of a window; None if the arguments are not those of a plain `nugget serve`."""
    if len(arguments) % 2 or sys.stdin.isatty() or not hasattr(socket, "AF_UNIX"):
        return None
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if not given.keys() <= _OPTIONS.keys():
        return None
    window: dict[str, Any] = {_OPTIONS[option]: value for option, value in given.items()}
    with suppress(OSError):  # the folder may be gone
        window["cwd"] = os.getcwd()
        window["variables"] = {name: os.environ[name] for name in WINDOW_VARIABLES if os.environ.get(name)}
        return window
    return None


def _connected(home: str, window: dict[str, Any]) -> socket.socket | None:
    """Return a connection to a server that is ready for this window, and start the server if there is none."""
    file, until, is_started = socket_file(home), time.monotonic() + START_PATIENCE_S, False
    while (left := until - time.monotonic()) > 0:
        try:
            connection = connect(file, left)
        except PermissionError:
            return None
        except OSError:
            try:
                files.private_folder(os.path.dirname(file))
                lock = files.try_lock(f"{file}.lock")
                if lock is not None:
                    if is_started:  # it has ended at once
                        os.close(lock)
                        return None
                    is_started = True
                    _start(home, file, lock)
            except OSError:
                return None
        else:
            with suppress(OSError):
                connection.sendall(json.dumps(window).encode() + b"\n")
                if connection.recv(len(READY)) == READY:
                    connection.settimeout(None)
                    return connection
            connection.close()
        time.sleep(_RETRY_S)
    return None


def _start(home: str, file: str, lock: int) -> None:
    """Start the server, which holds the lock as long as it lives."""
    try:
        variables = {"NUGGET_HOME": os.path.abspath(home), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", "nugget.mcp", file]
        files.start_detached(command, keep=lock, variables=variables)
    finally:
        os.close(lock)


def _pipe_stdin(connection: socket.socket, is_over: threading.Event) -> None:
    """Pass on what the client writes; `is_over` is set when it has closed stdin."""
    with suppress(OSError):
        while part := os.read(0, _CHUNK):
            connection.sendall(part)
    is_over.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
