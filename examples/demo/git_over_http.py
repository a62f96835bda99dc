"""A bare repository that is served on this machine: git's smart protocol, by the program that git brings for it.

https://git-scm.com/docs/git-http-backend. What else a forge answers, the class of `answers` adds.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self


class GitServer:
    """A server for a bare repository below `folder`, run by `with`; `variables` are git's environment."""

    answers: type[GitAnswer]
    """What answers its requests."""

    def __init__(self, folder: Path, variables: Mapping[str, str], *, owner: str, name: str) -> None:
        self.folder = folder
        self.owner = owner
        self.name = name
        self.bare = folder / owner / f"{name}.git"
        self.variables = dict(variables)
        self.bare.mkdir(parents=True)
        self.git("init", "-q", "--bare", "--initial-branch=main")
        self.git("config", "http.receivepack", "true")

    def __enter__(self) -> Self:
        answer: Any = type("Answer", (self.answers,), {"place": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), answer)
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def origin(self) -> str:
        """Return the address of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Return the address for `git remote add origin`."""
        return f"{self.origin}/{self.owner}/{self.name}.git"

    def head(self, branch: str) -> str | None:
        """Return the commit of a branch, None if there is no such branch."""
        command = ["git", "-C", str(self.bare), "rev-parse", "--verify", "-q", f"refs/heads/{branch}"]
        return subprocess.run(command, text=True, capture_output=True, check=False).stdout.strip() or None

    def git(self, *arguments: str, stdin: str = "") -> str:
        """Run git in the bare repository and return its output. Raises CalledProcessError."""
        who = {f"GIT_{role}_{what}": said for role in ("AUTHOR", "COMMITTER")
               for what, said in (("NAME", "Reviewer"), ("EMAIL", "reviewer@example.invalid"))}  # fmt: skip
        command = ["git", "-C", str(self.bare), *arguments]
        variables = self.variables | who
        done = subprocess.run(command, input=stdin, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.strip()


class GitAnswer(BaseHTTPRequestHandler):
    """The base class of the handlers of requests; a subclass defines `_answer`."""

    protocol_version = "HTTP/1.1"
    place: Any
    """The GitServer."""

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer(self._body())

    def do_POST(self) -> None:
        """Answer a POST."""
        self._answer(self._body())

    def do_PATCH(self) -> None:
        """Answer a PATCH."""
        self._answer(self._body())

    def do_PUT(self) -> None:
        """Answer a PUT."""
        self._answer(self._body())

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _answer(self, body: bytes) -> None:
        raise NotImplementedError

    def _git(self, path: str, query: str, body: bytes) -> None:
        """Answer a fetch or a push by `git http-backend`."""
        variables = self.place.variables | {
            "GIT_PROJECT_ROOT": str(self.place.folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": self.place.owner,
            "REMOTE_ADDR": "127.0.0.1", "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=variables, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self._send(int(headers.pop("Status", "200 OK").split()[0]), content, headers)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _token(self) -> str | None:
        """Return the caller's token, as git (Basic) and REST clients (Bearer) send it."""
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        return (base64.b64decode(value).decode().partition(":")[2] if kind == "Basic" else value) or None

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
