"""GitLab on loopback: its REST API for merge requests, and its git server over one bare repository.

The fields and refusals are those of docs.gitlab.com/api/merge_requests; what GitLab's description of its API does not
allow, in requests or in replies, fails the test at the end.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from forge_contract import HeldServer
from git_over_http import GitAnswer

TOKEN = "glpat-loopbackloopback01"
GROUP, NAME = "acme/platform", "brain"
MERGED_AT = "2026-03-02T10:00:00.000Z"


class _Answer(GitAnswer):
    place: GitLabServer

    def _answer(self, body: bytes) -> None:
        parts, place = urlsplit(self.path), self.place
        if not parts.path.startswith("/api/v4/"):
            if self._token() != TOKEN:
                self._send(401, b"", {"WWW-Authenticate": 'Basic realm="GitLab"'})
                return
            self._git(parts.path, parts.query, body)
            return
        status, value = 401, {"message": "401 Unauthorized"}
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            status, value = place.answer(
                self.command, parts.path, parse_qs(parts.query), json.loads(body) if body else {}
            )
        place.contract.check(self.command, self.path, body, (status, value))
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


class GitLabServer(HeldServer):
    """The server; `with` starts and stops it."""

    answers = _Answer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "gitlab.yaml", owner=GROUP, name=NAME)
        self.merges: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.refusal = ""

    @property
    def client_variables(self) -> dict[str, str]:
        """The environment variables of a client."""
        return {"GITLAB_TOKEN": TOKEN, "GITLAB_URL": self.origin}

    def answer(self, method: str, path: str, query: dict[str, list[str]], given: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and the JSON of a reply."""
        project = "/api/v4/projects/(?:1|acme%2Fplatform%2Fbrain)"
        if re.fullmatch(project, path):
            return 200, self.contract.example("project", path_with_namespace=f"{GROUP}/{NAME}")
        found = re.fullmatch(project + r"/merge_requests(?:/(\d+))?(/merge|/notes)?", path)
        if found is None or (found[1] and int(found[1]) > len(self.merges)):
            return 404, {"message": f"404 Not found: {unquote(path)}"}
        if found[1] is None and method == "GET":
            branch = query.get("source_branch", [""])[0]
            return 200, [self.view(one) for one in reversed(self.merges) if one["source_branch"] == branch]
        if found[1] is None:
            if any(one["source_branch"] == given["source_branch"] and one["state"] == "opened" for one in self.merges):
                return 409, {"message": ["Another open merge request already exists for this source branch: !1"]}
            self.merges.append({**given, "iid": len(self.merges) + 1, "state": "opened", "labels": []})
            return 201, self.view(self.merges[-1])
        one = self.merges[int(found[1]) - 1]
        if found[2] == "/notes":
            self.notes.append(given["body"])
            return 201, self.contract.example("note", body=given["body"], noteable_iid=one["iid"])
        if found[2] == "/merge":
            if given.get("sha") not in (None, self.head(one["source_branch"])):
                return 409, {"message": "SHA does not match HEAD of source branch"}
            if self.refusal:
                return 405, {"message": self.refusal}
            self.merge(one["iid"])
        elif method == "PUT":
            one["labels"] += given.get("add_labels", [])
            one["state"] = "closed" if given.get("state_event") == "close" else one["state"]
            one |= {name: given[name] for name in ("title", "description") if name in given}
        return 200, self.view(one)

    def merge(self, number: int) -> str:
        """Merge by a merge commit, and delete the branch; return the commit."""
        one = self.merges[number - 1]
        one["sha"] = self.head(one["source_branch"])
        commit = self.join(one["target_branch"], one["source_branch"], one["title"])
        one |= {"state": "merged", "merge_commit_sha": commit, "merged_at": MERGED_AT}
        self.git("update-ref", "-d", f"refs/heads/{one['source_branch']}")
        return commit

    def view(self, one: dict[str, Any]) -> dict[str, Any]:
        """Return a merge request as GitLab shows it."""
        one["sha"] = self.head(one["source_branch"]) or one["sha"]
        web = f"{self.origin}/{GROUP}/{NAME}/-/merge_requests/{one['iid']}"
        return self.contract.example("merge_request", **one, web_url=web)
