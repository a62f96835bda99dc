"""A stand-in for GitHub on this machine, as small as the demo allows: one repository and its pull requests.

`git push` and `git fetch` are answered by git itself, the few REST calls that publishing makes by what the bare
repository holds. Whoever presses the merge button is `merge`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from git_over_http import GitAnswer, GitServer

OWNER, NAME, TOKEN = "team", "brain", "demo-token"
MERGED_AT = "2026-01-01T12:00:00Z"
_API = f"/api/v3/repos/{OWNER}/{NAME}"


@dataclass(slots=True, kw_only=True)
class PullRequest:
    """A pull request; its commits are in the repository."""

    number: int
    branch: str
    base: str
    title: str
    body: str
    head: str
    merged_as: str | None = None


class _Answer(GitAnswer):
    def _answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        if self._token() != TOKEN:
            self._send(401, b"{}", {"WWW-Authenticate": 'Basic realm="stand-in"'})
        elif parts.path.startswith(_API):
            status, value = self._rest(parts.path.removeprefix(_API), body)
            self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})
        else:
            self._git(parts.path, parts.query, body)

    def _rest(self, path: str, body: bytes) -> tuple[int, Any]:
        place = self.place
        if not path:
            return 200, {"url": f"{place.origin}{_API}", "full_name": f"{OWNER}/{NAME}"}
        if path == "/pulls" and self.command == "POST":
            return 201, place.view(place.opened(json.loads(body)))
        if path == "/pulls":
            return 200, [place.view(pull) for pull in place.pulls]
        numbered = re.fullmatch(r"/pulls/(\d+)", path)
        if numbered and 0 < int(numbered[1]) <= len(place.pulls):
            return 200, place.view(place.pulls[int(numbered[1]) - 1])
        return 404, {"message": "Not Found"}


class StandIn(GitServer):
    """A server for one repository, run by `with`; the bare repository is below `folder`."""

    answers = _Answer

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(folder, variables, owner=OWNER, name=NAME)
        self.pulls: list[PullRequest] = []

    def files(self, pull: PullRequest) -> list[str]:
        """Return the paths that a pull request changes."""
        return self.git("diff", "--name-only", f"{pull.base}...{pull.branch}").splitlines()

    def merge(self, pull: PullRequest) -> None:
        """Merge a pull request whose base branch has not moved."""
        subject = f"{pull.title} (#{pull.number})"
        parents = ["-p", pull.base, "-p", pull.branch]
        pull.merged_as = self.git("commit-tree", f"{pull.branch}^{{tree}}", *parents, "-m", subject)
        self.git("update-ref", f"refs/heads/{pull.base}", pull.merged_as)
        self.git("update-ref", "-d", f"refs/heads/{pull.branch}")

    def opened(self, wanted: Mapping[str, str]) -> PullRequest:
        """Open a pull request."""
        branch = wanted["head"].rpartition(":")[2]
        pull = PullRequest(
            number=len(self.pulls) + 1, branch=branch, base=wanted["base"], title=wanted["title"], body=wanted["body"],
            head=self.git("rev-parse", f"refs/heads/{branch}"),
        )  # fmt: skip
        self.pulls.append(pull)
        return pull

    def view(self, pull: PullRequest) -> dict[str, Any]:
        """Return the fields of a pull request that publishing reads."""
        return {
            "number": pull.number, "html_url": f"{self.origin}/{OWNER}/{NAME}/pull/{pull.number}",
            "url": f"{self.origin}{_API}/pulls/{pull.number}", "title": pull.title, "body": pull.body,
            "state": "closed" if pull.merged_as else "open", "merged_at": MERGED_AT if pull.merged_as else None,
            "merge_commit_sha": pull.merged_as, "head": {"ref": pull.branch, "sha": pull.head},
            "base": {"ref": pull.base},
        }  # fmt: skip
