"""The forge of a brain's remote: pull requests on GitHub through PyGithub, on GitLab through python-gitlab.

Endpoints: docs.github.com/en/rest/pulls/pulls, .../using-the-rest-api/rate-limits; docs.gitlab.com/api/merge_requests,
.../api/notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from nugget.config import read_environment
from nugget.errors import ForgeError
from nugget.infra.http_client import tls_problem

if TYPE_CHECKING:
    from github.PullRequest import PullRequest as GitHubPullRequest
    from github.Repository import Repository as GitHubRepository
    from urllib3.response import BaseHTTPResponse
    from urllib3.util import Retry

API_URL = "https://api.github.com"
GITLAB_VARIABLE = "GITLAB_URL"
TIMEOUT_S = 10
MAX_RETRIES = 3
MAX_WAIT_S = 60
"""Longest wait before a retry that GitHub may ask for, in seconds; a longer one is an error."""
MAX_TITLE_CHARS, MAX_BODY_CHARS = 250, 65_000
"""Lengths of the title and the text of a pull request; GitHub takes 65,536 characters."""
_REFUSALS = {
    401: ("{self.forge} does not accept the token ({reason}).", "{self.renewal}"),
    403: ("The token may not do that in {self.name} ({reason}).", "{self.rights}"),
    404: ("{self.forge} has no {self.thing} {self.name}, or does not show it to this token.",
          "Look at `git remote -v` in the brain and at what the token may see."),
    429: ("{self.forge}'s rate limit is used up ({reason}).", "Try again in some minutes."),
}  # fmt: skip
"""The meaning of each status, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request. `state` is `open`, `merged` or `closed` (turned down); `merged_as` is the commit of a merge.

    `head` is the last commit of its branch.
    """

    number: int
    url: str
    state: str
    head: str
    title: str = ""
    body: str = ""
    merged_as: str | None = None

    def __post_init__(self) -> None:
        commits = [self.head, *([self.merged_as] if self.merged_as else [])]
        is_sound = all(re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) for commit in commits)
        if not (is_sound and self.number > 0 and self.url and self.url.isprintable()):
            raise ValueError("no pull request")


class Forge(Protocol):
    """A repository on a forge, whose merge requests count as pull requests. Every failure is a ForgeError.

    `variable` names the address of the server in the environment; `renewal` and `rights` say what a token needs.
    """

    forge: ClassVar[str]
    thing: ClassVar[str]
    variable: ClassVar[str]
    renewal: ClassVar[str]
    rights: ClassVar[str]
    name: str
    token: str

    def current_name(self) -> str:
        """Return the current name of the repository; a forge accepts the old name of a renamed one."""
        with self._errors():
            return self._name_now()

    def pull(self, number: int) -> PullRequest:
        """Return a pull request by its number."""
        with self._errors():
            return self._read(number)

    def find_pull(self, branch: str) -> PullRequest | None:
        """Return the pull request of a branch of this repository: the open one, else the latest, or None."""
        with self._errors():
            return min(self._pulls_of(branch), key=lambda pull: (pull.state != "open", -pull.number), default=None)

    def open_pull(self, branch: str, *, base: str, title: str, body: str) -> PullRequest:
        """Open a pull request, or return the one that exists (a reply may have been lost)."""
        try:
            with self._errors():
                return self._create(branch, base, title[:MAX_TITLE_CHARS], fit_body(body))
        except ForgeError as error:
            if "already exists" in str(error) and (found := self.find_pull(branch)):
                return found
            raise

    def merge_pull(self, number: int, *, head: str) -> str:
        """Merge a pull request whose branch still points at `head`, in a way that the repository allows.

        Returns the new commit. Raises ForgeError, with the address of its page, if a rule or a conflict forbids it.
        """
        page = self.pull(number).url
        try:
            with self._errors():
                return self._merge(number, head)
        except ForgeError as error:
            raise ForgeError(f"It cannot be merged now. {error}", hint=f"See {page}") from None

    def edit_pull(self, number: int, *, title: str, body: str) -> None:
        """Give a pull request another title and text."""
        with self._errors():
            self._edit(number, title[:MAX_TITLE_CHARS], fit_body(body))

    def label(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to a pull request; new ones are created."""
        with self._errors():
            self._label(number, labels)

    def close_pull(self, number: int, *, comment: str) -> PullRequest:
        """Close an open pull request, with a comment that gives the reason.

        It is closed first, so that a retry after a failure does not add a second comment.
        """
        if (found := self.pull(number)).state != "open":
            return found
        with self._errors():
            return self._close(number, comment)

    def _name_now(self) -> str: ...
    def _read(self, number: int) -> PullRequest: ...
    def _pulls_of(self, branch: str) -> list[PullRequest]: ...
    def _create(self, branch: str, base: str, title: str, body: str) -> PullRequest: ...
    def _merge(self, number: int, head: str) -> str: ...
    def _edit(self, number: int, title: str, body: str) -> None: ...
    def _label(self, number: int, labels: Sequence[str]) -> None: ...
    def _close(self, number: int, comment: str) -> PullRequest: ...
    def _refusal_in(self, error: Exception) -> tuple[int, str] | None: ...

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import requests

        try:
            yield
        except ForgeError:
            raise
        except requests.RequestException as error:
            late = f"no answer within {TIMEOUT_S} s" if isinstance(error, requests.Timeout) else "no connection"
            reason, hint = tls_problem(error) or late, f"Look at the network, or at {self.variable}."
            raise ForgeError(f"{self.forge} cannot be reached ({reason}).", hint=hint) from None
        except Exception as error:
            if refused := self._refusal_in(error):
                raise self._refusal(*refused) from None
            raise ForgeError(f"{self.forge} sent an unexpected reply ({type(error).__name__}).") from error

    def _refusal(self, status: int, words: str) -> ForgeError:
        if status >= 500:
            return ForgeError(f"{self.forge} has an internal error ({status}).", hint="Try again later.")
        plain = re.sub(r"[^ -~…]", "?", " ".join(words.split()).replace(self.token, "…"))
        reason = plain[:300].rstrip(".") or "no reason was given"
        status = 429 if status == 403 and "rate limit" in reason.lower() else status
        sentence, hint = _REFUSALS.get(status, (f"{self.forge} refused with {status}: {{reason}}.", ""))
        return ForgeError(sentence.format(self=self, reason=reason), hint=hint.format(self=self) or None)


class GitHub(Forge):
    """A repository on GitHub or its Enterprise."""

    forge, thing, variable = "GitHub", "repository", "GITHUB_API_URL"
    renewal = "Renew GITHUB_TOKEN, or run `gh auth login`."
    rights = "It needs the permissions `contents: write` and `pull requests: write`."

    def __init__(self, name: str, *, token: str, api_url: str | None = None) -> None:
        from github import Auth, Github

        self.name, self.token = name, token
        client = Github(
            base_url=(api_url or API_URL).rstrip("/"), auth=Auth.Token(token), timeout=TIMEOUT_S, retry=_retry(),
            lazy=True, user_agent="nugget", verify=read_environment().variables.get("SSL_CERT_FILE") or True,
        )  # fmt: skip
        self._remote: GitHubRepository = client.get_repo(name)

    def _name_now(self) -> str:
        self._remote.complete()
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self._remote.full_name):
            raise ValueError("no name")
        return self._remote.full_name

    def _read(self, number: int) -> PullRequest:
        pull = self._remote.get_pull(number)
        pull.complete()
        return _from_github(pull)

    def _edit(self, number: int, title: str, body: str) -> None:
        self._remote.get_pull(number).edit(title=title, body=body)

    def _label(self, number: int, labels: Sequence[str]) -> None:
        # Not `Issue.add_to_labels`: it sends a bare list, which GitHub's API description does not allow.
        address = f"{self._remote.url}/issues/{number}/labels"
        self._remote.requester.requestJsonAndCheck("POST", address, input={"labels": list(labels)})

    def _pulls_of(self, branch: str) -> list[PullRequest]:
        head = f"{self.name.partition('/')[0]}:{branch}"
        found = islice(self._remote.get_pulls(state="all", head=head), 20)
        return [_from_github(pull) for pull in found if pull.head.ref == branch]

    def _create(self, branch: str, base: str, title: str, body: str) -> PullRequest:
        return _from_github(self._remote.create_pull(base, branch, title=title, body=body))

    def _merge(self, number: int, head: str) -> str:
        remote = self._remote
        remote.complete()
        way = "merge" if remote.allow_merge_commit else "squash" if remote.allow_squash_merge else "rebase"
        done = remote.get_pull(number).merge(merge_method=way, sha=head)
        if not (done.merged and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", done.sha)):
            raise ValueError("not merged")
        return done.sha

    def _close(self, number: int, comment: str) -> PullRequest:
        pull = self._remote.get_pull(number)
        pull.edit(state="closed")
        closed = _from_github(pull)
        self._remote.get_issue(number).create_comment(comment)
        return closed

    def _refusal_in(self, error: Exception) -> tuple[int, str] | None:
        from github import BadAttributeException, GithubException

        if not isinstance(error, GithubException) or isinstance(error, BadAttributeException):
            return None
        body: Any = error.data if isinstance(error.data, Mapping) else {"message": error.data}
        details = body.get("errors")
        named = [one.get("message") or one.get("code") if isinstance(one, Mapping) else one
                 for one in (details if isinstance(details, list) else [])]  # fmt: skip
        return error.status, " ".join(str(part) for part in (body.get("message"), *named) if part)


class GitLab(Forge):
    """A project on GitLab."""

    forge, thing, variable = "GitLab", "project", GITLAB_VARIABLE
    renewal, rights = "Renew GITLAB_TOKEN.", "It needs the scope `api` and the role Developer."

    def __init__(self, name: str, *, token: str, server: str) -> None:
        import gitlab

        self.name, self.token = name, token
        # As `Authorization`, which goes along with no redirect to another host; PRIVATE-TOKEN would.
        client = gitlab.Gitlab(
            server, oauth_token=token, timeout=TIMEOUT_S, user_agent="nugget",
            ssl_verify=read_environment().variables.get("SSL_CERT_FILE") or True,
        )  # fmt: skip
        self._projects = client.projects
        self._merges: Any = client.projects.get(name, lazy=True).mergerequests

    def _name_now(self) -> str:
        return str(self._projects.get(self.name).path_with_namespace)

    def _read(self, number: int) -> PullRequest:
        return _from_gitlab(self._merges.get(number))

    def _edit(self, number: int, title: str, body: str) -> None:
        self._merges.update(number, {"title": title, "description": body})

    def _label(self, number: int, labels: Sequence[str]) -> None:
        self._merges.update(number, {"add_labels": list(labels)})

    def _pulls_of(self, branch: str) -> list[PullRequest]:
        found = self._merges.list(source_branch=branch, state="all", per_page=20, get_all=False)
        return [_from_gitlab(one) for one in found if one.source_branch == branch]

    def _create(self, branch: str, base: str, title: str, body: str) -> PullRequest:
        wanted = {"source_branch": branch, "target_branch": base, "title": title, "description": body}
        return _from_gitlab(self._merges.create(wanted))

    def _merge(self, number: int, head: str) -> str:
        # Not `merge(sha=...)`: it sends the commit in the query, which GitLab's API description does not allow.
        self._merges.gitlab.http_put(f"{self._merges.path}/{number}/merge", post_data={"sha": head})
        if (merged := _from_gitlab(self._merges.get(number)).merged_as) is None:
            raise ValueError("not merged")
        return merged

    def _close(self, number: int, comment: str) -> PullRequest:
        self._merges.update(number, {"state_event": "close"})
        request = self._merges.get(number)
        request.notes.create({"body": comment})
        return _from_gitlab(request)

    def _refusal_in(self, error: Exception) -> tuple[int, str] | None:
        from gitlab.exceptions import GitlabError

        return (int(error.response_code or 0), str(error.error_message)) if isinstance(error, GitlabError) else None


def fit_body(body: str) -> str:
    """Return the text of a pull request, shortened to GitHub's limit."""
    return body if len(body) <= MAX_BODY_CHARS else body[: MAX_BODY_CHARS - 20] + "\n\n(shortened)"


def _retry() -> Retry:
    """Return urllib3's retries: after GitHub's own failures, and after as long as a rate limit asks for."""
    from urllib3.util import Retry

    class WithRateLimits(Retry):
        RETRY_AFTER_STATUS_CODES = frozenset({403, 429, 503})

        def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
            wait_s = super().get_retry_after(response)
            if wait_s and wait_s > MAX_WAIT_S:
                raise ForgeError(f"GitHub's rate limit is used up for another {wait_s:.0f} s.", hint="Try again then.")
            return wait_s

    return WithRateLimits(
        total=MAX_RETRIES, backoff_factor=0.5, status_forcelist=(500, 502, 503, 504), allowed_methods=None,
        raise_on_status=False,
    )  # fmt: skip


def _from_github(pull: GitHubPullRequest) -> PullRequest:
    """Return a pull request of GitHub as our value."""
    if pull.state not in ("open", "closed"):
        raise ValueError("no state")
    merged = pull.merged_at is not None
    return PullRequest(
        number=int(pull.number), url=pull.html_url, head=pull.head.sha, title=pull.title or "", body=pull.body or "",
        state="open" if pull.state == "open" else "merged" if merged else "closed",
        merged_as=pull.merge_commit_sha or None if merged else None,
    )  # fmt: skip


def _from_gitlab(request: Any) -> PullRequest:
    """Return a merge request as a pull request."""
    values = request.attributes
    head, state = values["sha"], {"opened": "open", "locked": "open"}.get(values["state"], values["state"])
    if state not in ("open", "merged", "closed"):
        raise ValueError("no state")
    merged = values.get("merge_commit_sha") or values.get("squash_commit_sha") or head if state == "merged" else None
    return PullRequest(
        number=int(values["iid"]), url=str(values["web_url"]), state=state, head=head,
        title=str(values.get("title") or ""), body=str(values.get("description") or ""), merged_as=merged,
    )  # fmt: skip
