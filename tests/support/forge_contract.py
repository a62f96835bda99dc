"""A forge's description of its API, to which the scripted forge and what Nugget asks of it are held."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import yaml
from git_over_http import GitServer
from openapi_core import Config, OpenAPI
from openapi_core.testing import MockRequest, MockResponse
from paths import TESTS


class Contract:
    """A description of tests/fixtures/forges; `breaches` are requests and replies that it does not allow."""

    def __init__(self, file: str) -> None:
        self.document = yaml.load((TESTS / "fixtures" / "forges" / file).read_text(), yaml.CSafeLoader)
        self._api = OpenAPI.from_dict(self.document, config=Config(spec_validator_cls=None))
        self.breaches: list[str] = []

    def example(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """Return the description's example of a value, with other fields."""
        return {**self.document["components"]["examples"][kind]["value"], **fields}

    def check(self, method: str, address: str, body: bytes, reply: tuple[int, Any] | None) -> None:
        """Note a breach by a request, or by the reply to it."""
        path, _, query = address.partition("?")
        given = dict(parse_qsl(query))
        request = MockRequest("http://forge", method.lower(), path, args=given, data=body or None)
        try:
            asked = self._api.unmarshal_request(request)
            asked.raise_for_errors()
            unknown = given.keys() - asked.parameters.query.keys()
            assert not unknown, f"unknown parameters {unknown}"
            if reply is not None:
                self._api.validate_response(request, MockResponse(json.dumps(reply[1]).encode(), reply[0]))
        except Exception as error:
            cause = error.__cause__ or error
            reasons = [f"{one.json_path}: {one.message}" for one in getattr(cause, "schema_errors", ())] or [str(cause)]
            self.breaches.append(f"{method} {address} -> {reply and reply[0]}: {'; '.join(reasons)[:500]}")


class HeldServer(GitServer):
    """A scripted forge that fails the test, when it stops, if anything went against the forge's description."""

    def __init__(self, folder: Path, description: str, *, owner: str, name: str) -> None:
        super().__init__(folder, os.environ, owner=owner, name=name)
        self.contract = Contract(description)

    def stop(self) -> None:
        """Stop the server."""
        super().stop()
        assert not self.contract.breaches, "\n".join(self.contract.breaches)

    def commit(self, branch: str, files: Mapping[str, str | None], message: str = "By the reviewer") -> str:
        """A commit on a branch, as a person makes it on the web page; None deletes a file."""
        parent = self.head(branch)
        lines = [f"commit refs/heads/{branch}", "committer R <r@example.invalid> 1772400000 +0000"]
        lines += [f"data {len(message)}", message, *([f"from {parent}"] if parent else [])]
        for path, text in files.items():
            lines += [f"D {path}"] if text is None else [f"M 100644 inline {path}", f"data {len(text.encode())}", text]
        self.git("fast-import", "--quiet", "--force", stdin="\n".join(lines) + "\n")
        return str(self.head(branch))

    def join(self, base: str, branch: str, title: str, *, squash: bool = False) -> str:
        """Merge a branch by a merge commit, or all of it as one commit; return the commit."""
        tree = self.git("merge-tree", "--write-tree", base, branch).split("\n")[0]
        parents = ["-p", base] if squash else ["-p", base, "-p", branch]
        commit = self.git("commit-tree", tree, *parents, "-m", title)
        self.git("update-ref", f"refs/heads/{base}", commit)
        return commit
