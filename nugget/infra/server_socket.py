"""Ask a running server of Nugget through a socket in `$NUGGET_HOME/run`, never over a network.

It is a Unix domain socket in a folder that only its owner can enter, so that nobody else can ask, and no other program
can have taken its place as one can take a port. If there is none, or it does not answer at once, a hook goes on
without it. Standard library only, for the hook's sake.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from nugget.infra import files

PATIENCE_S = 0.1
"""How long a hook waits for a server: it has 0.3 s in all, and 0.2 s is what it takes alone."""
MAX_BYTES = 1 << 16
"""A longer question or answer is none."""
_SERVER_PATIENCE_S = 1.0

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def socket_file(home: Path) -> Path:
    """Return the path of the server's socket."""
    return home / "run" / "serve.sock"


def ask(home: Path, question: dict[str, Any], *, timeout_s: float = PATIENCE_S) -> dict[str, Any] | None:
    """Return the answer of the server of this NUGGET_HOME; None if none runs, or it takes longer. Raises nothing."""
    until = time.monotonic() + timeout_s
    try:
        with _connected(socket_file(home), timeout_s) as asked:
            asked.sendall(json.dumps(question).encode())
            asked.shutdown(socket.SHUT_WR)
            answer = json.loads(_read(asked, until))
    except (OSError, ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


class ServerSocket:
    """A server's end: answers one question after the other in a thread of its own."""

    def __init__(self, home: Path, answer: Answer) -> None:
        self._file = socket_file(home)
        self._answer = answer
        self._listening: socket.socket | None = None
        self._inode = 0

    def start(self) -> bool:
        """Start to answer; return False if another server does, or the system does not let us."""
        with suppress(OSError), _connected(self._file, _SERVER_PATIENCE_S):
            return False
        partial = self._file.with_name(f"{os.getpid()}.sock")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:  # it listens from the moment it appears
            files.private_folder(self._file.parent)
            partial.unlink(missing_ok=True)
            listening.bind(str(partial))
            partial.chmod(0o600)
            listening.listen(16)
            self._inode = partial.lstat().st_ino
            partial.replace(self._file)
        except OSError:
            listening.close()
            return False
        self._listening = listening
        Thread(target=self._serve, args=(listening,), name="nugget-socket", daemon=True).start()
        return True

    def stop(self) -> None:
        """Stop answering, and remove the socket if it is still this server's."""
        if self._listening is None:
            return
        with suppress(OSError):
            if self._file.lstat().st_ino == self._inode:
                self._file.unlink()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._listening = None

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                asking, _ = listening.accept()
            except OSError:
                return
            with asking, suppress(OSError, ValueError, RecursionError):
                question = json.loads(_read(asking, time.monotonic() + _SERVER_PATIENCE_S))
                if isinstance(question, dict):
                    asking.settimeout(_SERVER_PATIENCE_S)
                    asking.sendall(json.dumps(self._answer(question)).encode())


def _connected(file: Path, timeout_s: float) -> socket.socket:
    """Connect to a socket that is this person's, in a folder that nobody else may enter. Raises OSError."""
    place, folder = file.lstat(), file.parent.lstat()
    mine = place.st_uid == folder.st_uid == os.getuid()
    if not (mine and stat.S_ISSOCK(place.st_mode) and stat.S_ISDIR(folder.st_mode) and not folder.st_mode & 0o077):
        raise PermissionError
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(str(file))
    except OSError:
        connection.close()
        raise
    return connection


def _read(connection: socket.socket, until: float) -> bytes:
    """Return all that comes before the other end closes. Raises OSError if that is too much or too late."""
    content = b""
    while len(content) <= MAX_BYTES and (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        part = connection.recv(MAX_BYTES)
        if not part:
            return content
        content += part
    raise TimeoutError
