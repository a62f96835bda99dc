"""The client of the resident server: one process that answers all windows of one `$NUGGET_HOME`.

`nugget serve` over stdio starts it if necessary and pipes its client's bytes to it, so a window costs a bare Python
instead of a model. Hooks and commands use its model. It listens on a Unix socket in a folder that only its owner can
enter, so nobody else can ask, and no other program can take its place, as with a port. Standard library only, since
this is all that a window runs.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from nugget import __version__
from nugget.infra import files, system

PATIENCE_S, START_PATIENCE_S, _IDLE_S = 0.1, 12.0, 600.0
"""How long a hook waits for an answer, a window for a new server, and the server for another window."""
READY = b"\n"
"""Sent by the server before it takes the first byte of a window's client."""
WINDOW_VARIABLES = ("NUGGET_BRAIN", "CLAUDE_CODE_SESSION_ID")
"""The variables that a window sends along; all others are the same in its server."""

_VARIABLES = tuple(
    "NUGGET_ ANTHROPIC_ OPENAI_ VOYAGE_ GITHUB_ GH_ AISH_ CLAUDE_CONFIG_DIR HOME TZ SSL_ KF_ HF_"
    " HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY".split()
)
_RETRY_S, _CHUNK = 0.02, 1 << 16
_OPTIONS = {"--brain": "brain", "--as": "identity", "--compat": "compat"}


def idle_s() -> float:
    """Return for how many seconds the resident server outlives its last window; 0 without a server, as on Windows."""
    if not system.IS_POSIX:
        return 0.0
    with suppress(ValueError):
        return float(os.environ.get("NUGGET_RESIDENT_S") or _IDLE_S)
    return _IDLE_S


def socket_file(home: files.StrPath) -> str:
    """Return the path of the socket for this version of Nugget, this home and these keys and settings.

    Windows whose environments differ in a variable that Nugget reads never share a server, so none is sent.
    """
    import hashlib

    read = sorted(item for item in os.environ.items() if item[0].upper().startswith(_VARIABLES))
    same = [f"{name}={value}" for name, value in read if name not in WINDOW_VARIABLES]
    key = "\0".join([__version__, __file__, sys.executable, *same]).encode("utf-8", "replace")
    return os.path.join(home, "run", f"{hashlib.sha256(key).hexdigest()[:12]}.sock")


def ask(home: files.StrPath, question: Mapping[str, object], timeout_s: float = PATIENCE_S) -> dict[str, object] | None:
    """Return the answer of the resident server, or None if none runs or it takes longer. Raises nothing."""
    try:
        with connect(socket_file(home), timeout_s) as connection:
            connection.sendall(json.dumps(question).encode())
            connection.shutdown(socket.SHUT_WR)
            answer = json.loads(connection.makefile("rb").read(_CHUNK))
            return answer if isinstance(answer, dict) else None
    except (OSError, ValueError, RecursionError):
        return None


def forward(home: files.StrPath, arguments: Sequence[str]) -> int | None:
    """Run `nugget serve <arguments>` by piping stdin and stdout to the resident server; return the exit code.

    Return None, before reading stdin, if this is another command or no server can be started.
    """
    given = dict(zip(arguments[::2], arguments[1::2], strict=False))
    if len(arguments) % 2 or not given.keys() <= _OPTIONS.keys() or sys.stdin.isatty() or idle_s() <= 0:
        return None
    if (connection := _connected(home, {_OPTIONS[name]: value for name, value in given.items()})) is None:
        return None
    is_over = threading.Event()
    threading.Thread(target=_pipe_stdin, args=(connection, is_over), daemon=True).start()
    try:
        while part := connection.recv(_CHUNK):
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
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
    mine = place.st_uid == folder.st_uid == system.user_id()
    is_private = stat.S_ISDIR(folder.st_mode) and not folder.st_mode & system.OTHERS
    if not (mine and stat.S_ISSOCK(place.st_mode) and is_private):
        raise PermissionError
    connection = system.unix_socket()
    connection.settimeout(timeout_s)
    try:
        connection.connect(file)
    except OSError:
        connection.close()
        raise
    return connection


def _connected(home: files.StrPath, options: dict[str, str]) -> socket.socket | None:
    """Return a connection to a server that is ready for this window, and start the server if none runs."""
    file, until, is_started = socket_file(home), time.monotonic() + START_PATIENCE_S, False
    with suppress(OSError):  # the current folder may be gone, and the home read-only
        variables = {name: os.environ[name] for name in WINDOW_VARIABLES if os.environ.get(name)}
        window = json.dumps({**options, "cwd": os.getcwd(), "variables": variables}).encode() + b"\n"
        files.private_folder(os.path.dirname(file))
        while (left := until - time.monotonic()) > 0:
            try:
                if connection := _greet(file, window, left):
                    return connection
            except PermissionError:
                return None
            except OSError:
                if (lock := files.try_lock(f"{file}.lock")) is not None:
                    with os.fdopen(lock):  # the server keeps it while it lives
                        if is_started:  # it ended at once
                            return None
                        is_started = True
                        command = [sys.executable, "-P", "-c", "from nugget import mcp; mcp.serve_windows()", file]
                        variables = {"NUGGET_HOME": os.path.abspath(home), "OPENBLAS_NUM_THREADS": "1"}
                        files.start_detached(command, keep=lock, variables=variables)
            time.sleep(_RETRY_S)
    return None


def _greet(file: str, window: bytes, timeout_s: float) -> socket.socket | None:
    """Return a connection to the server if it is ready for this window. Raises OSError."""
    connection = connect(file, timeout_s)
    connection.sendall(window)
    if connection.recv(len(READY)) == READY:
        connection.settimeout(None)
        return connection
    connection.close()
    return None


def _pipe_stdin(connection: socket.socket, is_over: threading.Event) -> None:
    """Forward the client's input; `is_over` is set when it has closed stdin."""
    with suppress(OSError):
        while part := os.read(0, _CHUNK):
            connection.sendall(part)
    is_over.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
