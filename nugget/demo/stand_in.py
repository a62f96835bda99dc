"""A stand-in for GitHub on this machine, as small as the demo allows: one repository and its pull requests.

`git push` and `git fetch` are answered by git's own program for that (git-http-backend(1)), the few REST calls that
publishing makes by what the bare repository holds. Whoever presses the merge button is `merge`.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

OWNER, NAME, TOKEN = "team", "brain", "demo-token"
MERGED_AT = "2026-01-01T12:00:00Z"
_API = f"/api/v3/repos/{OWNER}/{NAME}"


@dataclass(slots=True, kw_only=True)
class PullRequest:
    """A pull request as it is kept; what it holds is in the repository."""

    number: int
    branch: str
    base: str
    title: str
    body: str
    merged_as: str | None = None


class StandIn:
    """The server; `with` starts and stops it. `folder` is where its bare repository lies."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.bare = folder / OWNER / f"{NAME}.git"
        self.variables = dict(variables)
        self.pulls: list[PullRequest] = []
        self.bare.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main")
        self.git("config", "http.receivepack", "true")

    def __enter__(self) -> StandIn:
        stand_in = self

        class Answer(_Answer):
            place = stand_in

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def origin(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """What `git remote add origin` is given."""
        return f"{self.origin}/{OWNER}/{NAME}.git"

    def git(self, *arguments: str) -> str:
        """What git prints in the bare repository."""
        who = {f"GIT_{role}_{what}": said for role in ("AUTHOR", "COMMITTER")
               for what, said in (("NAME", "Reviewer"), ("EMAIL", "reviewer@example.invalid"))}  # fmt: skip
        command = ["git", "-C", str(self.bare), *arguments]
        done = subprocess.run(command, env=self.variables | who, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def files(self, pull: PullRequest) -> list[str]:
        """The paths that a pull request changes."""
        return self.git("diff", "--name-only", f"{pull.base}...{pull.branch}").splitlines()

    def merge(self, pull: PullRequest) -> None:
        """Press the button; nothing else happened on the base branch meanwhile."""
        subject = f"{pull.title} (#{pull.number})"
        parents = ["-p", pull.base, "-p", pull.branch]
        pull.merged_as = self.git("commit-tree", f"{pull.branch}^{{tree}}", *parents, "-m", subject)
        self.git("update-ref", f"refs/heads/{pull.base}", pull.merged_as)
        self.git("update-ref", "-d", f"refs/heads/{pull.branch}")

    def opened(self, wanted: Mapping[str, str]) -> PullRequest:
        """A new pull request."""
        branch = wanted["head"].rpartition(":")[2]
        pull = PullRequest(
            number=len(self.pulls) + 1, branch=branch, base=wanted["base"], title=wanted["title"], body=wanted["body"]
        )
        self.pulls.append(pull)
        return pull

    def view(self, pull: PullRequest) -> dict[str, Any]:
        """The fields of a pull request in JSON that publishing reads."""
        return {
            "number": pull.number, "html_url": f"{self.origin}/{OWNER}/{NAME}/pull/{pull.number}",
            "url": f"{self.origin}{_API}/pulls/{pull.number}", "title": pull.title, "body": pull.body,
            "state": "closed" if pull.merged_as else "open", "merged_at": MERGED_AT if pull.merged_as else None,
            "merge_commit_sha": pull.merged_as, "head": {"ref": pull.branch}, "base": {"ref": pull.base},
        }  # fmt: skip


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    place: StandIn

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        if self._token() != TOKEN:
            self._send(401, b"{}", {"WWW-Authenticate": 'Basic realm="stand-in"'})
        elif parts.path.startswith(f"{_API}/"):
            status, value = self._rest(parts.path.removeprefix(_API), body)
            self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})
        else:
            self._git(parts.path, parts.query, body)

    def _rest(self, path: str, body: bytes) -> tuple[int, Any]:
        place = self.place
        if path == "/pulls" and self.command == "POST":
            return 201, place.view(place.opened(json.loads(body)))
        if path == "/pulls":
            return 200, [place.view(pull) for pull in place.pulls]
        numbered = re.fullmatch(r"/pulls/(\d+)", path)
        if numbered and 0 < int(numbered[1]) <= len(place.pulls):
            return 200, place.view(place.pulls[int(numbered[1]) - 1])
        return 404, {"message": "Not Found"}

    def _git(self, path: str, query: str, body: bytes) -> None:
        variables = self.place.variables | {
            "GIT_PROJECT_ROOT": str(self.place.folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": OWNER, "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
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

    def _token(self) -> str:
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        return base64.b64decode(value).decode().partition(":")[2] if kind == "Basic" else value

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
