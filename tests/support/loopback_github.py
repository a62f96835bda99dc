"""GitHub on loopback: its REST API for pull requests, and its git server (`git http-backend`) over one bare repository.

    with GitHubServer(folder) as github:
        github.url      # what `git remote add origin` is given
        github.api_url  # GITHUB_API_URL

Branches, merges and what a pull request holds are read from the repository itself.
`github.fail(...)` scripts faults; `github.requests` records what was asked. Whatever GitHub's own description of its
API does not allow, in requests or in replies, fails the test at the end.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from forge_contract import HeldServer
from git_over_http import GitAnswer

OWNER, NAME = "acme", "brain"
TOKEN = "ghp_loopbackloopbackloopbackloopback0001"
CLOSED_AT = "2026-03-02T10:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it arrived; git's own are there too."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    token: str | None
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A reply that stands in for the right one. `after` answers only once the right one has been worked out."""

    method: str
    path: str
    status: int
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    after: bool = False


@dataclass(slots=True, kw_only=True)
class Pull:
    """A pull request as it is kept; what it holds is in the repository."""

    number: int
    branch: str
    base: str
    title: str
    body: str
    labels: list[str]
    closed: bool = False
    merged_as: str | None = None
    last_sha: str = ""
    comments: list[str] = field(default_factory=list)


def _invalid(error: Mapping[str, str]) -> dict[str, Any]:
    return {"message": "Validation Failed", "errors": [error], "documentation_url": "https://docs.github.com/rest"}


class _Answer(GitAnswer):
    place: GitHubServer

    def _answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        state = self.place
        is_api = parts.path.startswith("/api/v3/")
        loaded = json.loads(body) if is_api and body else body
        request = Request(
            method=self.command, path=parts.path, query=parse_qs(parts.query), token=self._token(), body=loaded
        )
        with state.lock:
            state.requests.append(request)
            named = [f for f in state.faults if f.method in ("", self.command) and f.path in self.path]
            fault = named[0] if named else None
            if fault is not None:
                state.faults.remove(fault)
            if not is_api and (fault is None or fault.after):
                owner, _, rest = parts.path.lstrip("/").partition("/")
                name, git, service = rest.partition(".git")
                if name in state.old_names:
                    query = f"?{parts.query}" if parts.query else ""
                    location = f"{state.origin}/{owner}/{state.name}{git}{service}{query}"
                    self._send(301, b"", {"Location": location})
                    return
                self._serve_git(request, body, parts.query)
                return
            right = self._api(request) if is_api and (fault is None or fault.after) else None
            if is_api:
                state.contract.check(self.command, self.path.removeprefix("/api/v3"), body, right)
            if fault is None:
                status, value = right or (500, {})
                headers = {"Content-Type": "application/json; charset=utf-8"}
                headers |= {"Location": value["url"]} if status == 301 else {}
                self._send(status, json.dumps(value).encode(), headers)
            else:
                said = json.dumps({"message": fault.message}).encode()
                self._send(fault.status, said, {"Content-Type": "application/json", **fault.headers})

    def _api(self, request: Request) -> tuple[int, Any]:
        state = self.place
        if request.token not in state.tokens:
            return 401, {"message": "Bad credentials"}
        if moved := re.fullmatch(rf"/api/v3/repos/{OWNER}/({'|'.join(state.old_names) or '-'})(/.*)?", request.path):
            location = f"{state.api_url}/repos/{OWNER}/{state.name}{moved[2] or ''}"
            return 301, {"message": "Moved Permanently", "url": location}
        if request.path == f"/api/v3/repos/{OWNER}/{state.name}":
            return 200, state.view_repository()
        found = re.fullmatch(
            rf"/api/v3/repos/{OWNER}/{state.name}/(?:pulls|issues)(?:/(\d+))?(/labels|/comments|/merge)?", request.path
        )
        number, part = found.groups() if found else (None, None)
        if found is None or (number is not None and not 0 < int(number) <= len(state.pulls)):
            return 404, {"message": "Not Found"}
        if number is None:
            return state.create(request.body) if request.method == "POST" else self._list(request)
        pull = state.pulls[int(number) - 1]
        if part == "/labels":
            pull.labels = list(dict.fromkeys([*pull.labels, *request.body["labels"]]))
            return 200, state.view(pull)["labels"]
        if part == "/merge":
            return state.press(pull, request.body)
        if part == "/comments":
            return state.comment(pull, request.body["body"])
        return state.update(pull, request.body) if request.method == "PATCH" else (200, state.view(pull))

    def _list(self, request: Request) -> tuple[int, Any]:
        place, (head,), (state,) = self.place, request.query["head"], request.query.get("state", ["open"])
        found = [pull for pull in place.pulls if f"{OWNER}:{pull.branch}" == head]
        found = [pull for pull in found if state in ("all", "closed" if pull.closed else "open")]
        return 200, [place.view(pull, "pull-request-simple") for pull in found]

    def _serve_git(self, request: Request, body: bytes, query: str) -> None:
        """A fetch or a push, for those who may."""
        state = self.place
        writes = "git-receive-pack" in self.path
        if request.token not in state.tokens:
            self._send(401, b"Bad credentials", {"WWW-Authenticate": 'Basic realm="GitHub"'})
            return
        if writes and not state.may_push:
            self._send(403, b"Permission to acme/brain.git denied to reader.", {"Content-Type": "text/plain"})
            return
        self._git(request.path, query, body)


class GitHubServer(HeldServer):
    """The server; `with` starts and stops it."""

    answers = _Answer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "github.json", owner=OWNER, name=NAME)
        self.pulls: list[Pull] = []
        self.requests: list[Request] = []
        self.tokens = {TOKEN}
        self.may_push = True
        self.faults: list[Fault] = []
        self.lock = Lock()
        self.old_names: list[str] = []
        self.forbids_merging = ""
        self.methods = {"merge": True, "squash": True, "rebase": False}

    @property
    def api_url(self) -> str:
        return f"{self.origin}/api/v3"

    @property
    def client_variables(self) -> dict[str, str]:
        """The environment variables of a client."""
        return {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": self.api_url}

    def rename(self, name: str) -> None:
        """Give the repository another name; requests for the old one are redirected."""
        there = self.bare.with_name(f"{name}.git")
        self.old_names.append(self.name)
        self.bare, self.name = self.bare.rename(there), name

    def fail(self, status: int, *, method: str = "", path: str = "", times: int = 1, **reply: Any) -> None:
        """Answer the next requests that fit with a fault."""
        self.faults += [Fault(method=method, path=path, status=status, **reply)] * times

    def merge(self, number: int, *, squash: bool = False, delete: bool = False) -> str:
        """Press the button: a merge commit, or all as one commit; `delete` removes the branch."""
        pull = self.pulls[number - 1]
        pull.merged_as = self.join(pull.base, pull.branch, f"{pull.title} (#{number})", squash=squash)
        pull.closed = True
        if delete:
            self.git("update-ref", "-d", f"refs/heads/{pull.branch}")
        return pull.merged_as

    def close(self, number: int) -> None:
        """Turn a pull request down."""
        self.pulls[number - 1].closed = True

    def files_of(self, number: int) -> dict[str, str]:
        """Path -> text of what a pull request changes."""
        pull = self.pulls[number - 1]
        base = self.git("merge-base", pull.base, pull.branch)
        paths = self.git("diff", "--name-only", "--no-renames", base, f"refs/heads/{pull.branch}").split("\n")
        return {path: self.git("show", f"refs/heads/{pull.branch}:{path}") for path in paths if path}

    def asked(self, method: str, ending: str) -> list[Request]:
        """The requests of a method to paths that end so."""
        return [request for request in self.requests if request.method == method and request.path.endswith(ending)]

    def view_repository(self) -> dict[str, Any]:
        """The repository in JSON, as those see it who may push."""
        allowed = {"merge": "allow_merge_commit", "squash": "allow_squash_merge", "rebase": "allow_rebase_merge"}
        ways = {name: self.methods[way] for way, name in allowed.items()}
        address = f"{self.api_url}/repos/{OWNER}/{self.name}"
        named = {"name": self.name, "full_name": f"{OWNER}/{self.name}", "url": address}
        return self.contract.example("full-repository", **named, **ways)

    def press(self, pull: Pull, wanted: Mapping[str, str]) -> tuple[int, Any]:
        """`PUT /repos/{owner}/{repo}/pulls/{pull_number}/merge`, with the refusals that GitHub documents."""
        base, head, way = self.head(pull.base), self.head(pull.branch), wanted.get("merge_method", "merge")
        if self.forbids_merging or pull.closed or not self.methods[way]:
            return 405, {"message": self.forbids_merging or "Pull Request is not mergeable"}
        if wanted.get("sha", head) != head:
            return 409, {"message": "Head branch was modified. Review and try the merge again."}
        command = ["git", "-C", str(self.bare), "merge-tree", "--write-tree", str(base), str(head)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return 405, {"message": "Pull Request is not mergeable"}
        sha = self.merge(pull.number, squash=way == "squash")
        return 200, {"sha": sha, "merged": True, "message": "Pull Request successfully merged"}

    def notice_pushes(self) -> None:
        """Mark pull requests as merged whose last commit has come to be on the base by a push."""
        for pull in self.pulls:
            head, base = self.head(pull.branch), self.head(pull.base)
            if not pull.closed and head and base and self.git("merge-base", head, base) == head:
                pull.closed, pull.merged_as = True, base

    def view(self, pull: Pull, kind: str = "pull-request") -> dict[str, Any]:
        """A pull request in JSON."""
        self.notice_pushes()
        # The last commit of a branch is remembered when the branch is gone.
        pull.last_sha = self.head(pull.branch) or pull.last_sha
        address, page = f"{self.api_url}/repos/{OWNER}/{self.name}", f"{self.origin}/{OWNER}/{self.name}"
        view = self.contract.example(
            kind, number=pull.number, url=f"{address}/pulls/{pull.number}", html_url=f"{page}/pull/{pull.number}",
            title=pull.title, body=pull.body, state="closed" if pull.closed else "open",
            merged_at=CLOSED_AT if pull.merged_as else None, closed_at=CLOSED_AT if pull.closed else None,
            merge_commit_sha=pull.merged_as, issue_url=f"{address}/issues/{pull.number}",
            labels=[self.contract.example("label", name=name) for name in pull.labels],
        )  # fmt: skip
        view["head"] = view["head"] | {"ref": pull.branch, "sha": pull.last_sha}
        return view | ({"merged": bool(pull.merged_as)} if kind == "pull-request" else {})

    def update(self, pull: Pull, wanted: Mapping[str, str]) -> tuple[int, Any]:
        """`PATCH /repos/{owner}/{repo}/pulls/{pull_number}`: its state, title and body."""
        if wanted.get("state") == "open" and (pull.merged_as or self.head(pull.branch) is None):
            return 422, _invalid({"resource": "PullRequest", "field": "state", "code": "invalid"})
        pull.closed = {"open": False, "closed": True}.get(wanted.get("state", ""), pull.closed)
        pull.title, pull.body = wanted.get("title", pull.title), wanted.get("body", pull.body)
        return 200, self.view(pull)

    def comment(self, pull: Pull, body: str) -> tuple[int, Any]:
        """`POST /repos/{owner}/{repo}/issues/{issue_number}/comments`."""
        pull.comments.append(body)
        return 201, self.contract.example("issue-comment", id=100 * pull.number + len(pull.comments), body=body)

    def create(self, wanted: Mapping[str, str]) -> tuple[int, Any]:
        """`POST /repos/{owner}/{repo}/pulls`, with the refusals that GitHub documents."""
        branch, base = wanted["head"].rpartition(":")[2], wanted["base"]
        if self.head(branch) is None or self.head(base) is None:
            where = "head" if self.head(branch) is None else "base"
            return 422, _invalid({"resource": "PullRequest", "field": where, "code": "invalid"})
        if any(pull.branch == branch and not pull.closed for pull in self.pulls):
            said = f"A pull request already exists for {OWNER}:{branch}."
            return 422, _invalid({"resource": "PullRequest", "code": "custom", "message": said})
        if not self.git("rev-list", f"refs/heads/{base}..refs/heads/{branch}"):
            said = f"No commits between {base} and {branch}"
            return 422, _invalid({"resource": "PullRequest", "code": "custom", "message": said})
        pull = Pull(
            number=len(self.pulls) + 1, branch=branch, base=base, title=wanted["title"],
            body=wanted.get("body", ""), labels=[],
        )  # fmt: skip
        self.pulls.append(pull)
        return 201, self.view(pull)
