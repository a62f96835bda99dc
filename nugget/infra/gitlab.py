"""GitLab: merge requests through python-gitlab, as pull requests.

Endpoints: docs.gitlab.com/api/merge_requests, .../api/notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from nugget.config import Environment, read_environment
from nugget.errors import ForgeError
from nugget.infra.github import PullRequest, fitting, host_and_path, reason_in, refused, unreachable

SERVER_VARIABLE = "GITLAB_URL"
TIMEOUT_S = 10
_STATES = {"opened": "open", "locked": "open", "merged": "merged", "closed": "closed"}
_REFUSALS = {
    401: ("GitLab does not accept the token ({reason}).", "Renew GITLAB_TOKEN."),
    403: ("The token may not do that in {name} ({reason}).", "It needs the scope `api` and the role Developer."),
    404: ("GitLab knows no project {name}, or does not show it to this token.",
          "Look at `git remote -v` in the brain and at what the token may see."),
    429: ("GitLab's rate limit is used up ({reason}).", "Try again in some minutes."),
}  # fmt: skip


def server_of(environment: Environment) -> str:
    """Return the address of the GitLab server: GITLAB_URL, else gitlab.com."""
    return (environment.variables.get(SERVER_VARIABLE) or "https://gitlab.com").rstrip("/")


def find_token(environment: Environment) -> str | None:
    """Return `GITLAB_TOKEN`."""
    return environment.variables.get("GITLAB_TOKEN") or None


def project_path(url: str, *, server: str) -> str | None:
    """Return `group/project` of a remote on this GitLab, None for one that is elsewhere."""
    host, path = host_and_path(url)
    named = re.fullmatch(r"/*((?:[\w.-]+/)+[\w.-]+?)(?:\.git)?/*", path)
    return named[1] if named and host == urlsplit(server).hostname else None


class Project:
    """A project on GitLab. Every failure is a ForgeError with one clear sentence."""

    def __init__(self, name: str, *, token: str, server: str) -> None:
        import gitlab as sdk

        self.name = name
        self._token = token
        client = sdk.Gitlab(
            server, private_token=token, timeout=TIMEOUT_S, retry_transient_errors=True, user_agent="nugget",
            ssl_verify=read_environment().variables.get("SSL_CERT_FILE") or True,
        )  # fmt: skip
        self._projects = client.projects
        self._project = client.projects.get(name, lazy=True)

    def current_name(self) -> str:
        """Return `group/project` as the project is called now."""
        with self._errors():
            return str(self._projects.get(self.name).path_with_namespace)

    def find_pull(self, branch: str) -> PullRequest | None:
        """Return the merge request of a branch: the open one, else the latest, or None."""
        with self._errors():
            found = self._project.mergerequests.list(source_branch=branch, state="all", per_page=20, get_all=False)
            ours = [_pull(one) for one in found if one.source_branch == branch]
        return min(ours, key=lambda pull: (pull.state != "open", -pull.number), default=None)

    def pull(self, number: int) -> PullRequest:
        """Return a merge request by its number."""
        with self._errors():
            return _pull(self._project.mergerequests.get(number))

    def open_pull(self, branch: str, *, base: str, title: str, body: str) -> PullRequest:
        """Open a merge request, or return the one that exists (a reply may have been lost)."""
        wanted = {"source_branch": branch, "target_branch": base, "title": title[:250], "description": fitting(body)}
        try:
            with self._errors():
                return _pull(self._project.mergerequests.create(wanted))
        except ForgeError as error:
            if "already exists" in str(error) and (found := self.find_pull(branch)):
                return found
            raise

    def merge_pull(self, number: int, *, head: str) -> str:
        """Merge a merge request whose branch still ends in `head`, as the project is set up; return the new commit.

        Raises ForgeError, with the address of its page, if a rule or a conflict forbids it.
        """
        page = ""
        try:
            with self._errors():
                request = self._project.mergerequests.get(number)
                page = request.web_url
                request.merge(sha=head)
                merged = _pull(self._project.mergerequests.get(number)).merged_as
                if merged is None:
                    raise ValueError("not merged")
                return merged
        except ForgeError as error:
            raise ForgeError(f"It cannot be merged now. {error}", hint=f"See {page}" if page else error.hint) from None

    def edit_pull(self, number: int, *, title: str, body: str) -> None:
        """Give a merge request another title and text."""
        with self._errors():
            self._project.mergerequests.update(number, {"title": title[:250], "description": fitting(body)})

    def label(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to a merge request; new ones are created."""
        with self._errors():
            self._project.mergerequests.update(number, {"add_labels": ",".join(labels)})

    def close_pull(self, number: int, *, comment: str) -> PullRequest:
        """Close a merge request with a comment, unless it is closed already."""
        if (found := self.pull(number)).state != "open":
            return found
        with self._errors():
            self._project.mergerequests.update(number, {"state_event": "close"})
            request = self._project.mergerequests.get(number)
            request.notes.create({"body": comment})
            return _pull(request)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import requests
        from gitlab.exceptions import GitlabError

        try:
            yield
        except GitlabError as error:
            reason, status = reason_in(str(error.error_message), self._token), int(error.response_code or 0)
            raise refused("GitLab", status, reason, name=self.name, sentences=_REFUSALS) from None
        except requests.RequestException as error:
            raise unreachable("GitLab", error, variable=SERVER_VARIABLE) from None
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ForgeError(f"GitLab sent an unexpected reply ({type(error).__name__}).") from error


def _pull(request: Any) -> PullRequest:
    """Return a merge request as a pull request. Raises ValueError, TypeError, LookupError or AttributeError."""
    values = request.attributes
    state, head, url = _STATES[values["state"]], values["sha"], str(values["web_url"])
    merged = values.get("merge_commit_sha") or values.get("squash_commit_sha") or head if state == "merged" else None
    if not url.isprintable() or not all(
        re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", one) for one in (head, merged or head)
    ):
        raise ValueError("not a merge request")
    return PullRequest(
        number=int(values["iid"]), url=url, state=state, head=head, title=str(values.get("title") or ""),
        body=str(values.get("description") or ""), merged_as=merged,
    )  # fmt: skip
