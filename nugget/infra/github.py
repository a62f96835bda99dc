"""The one gateway to GitHub: pull requests, through PyGithub.

Every wait has a bound: a request its timeout, a rate limit `MAX_WAIT_S`; what would take longer is a GitHubError
that says when to come back. Endpoints: docs.github.com/en/rest/pulls/pulls, .../using-the-rest-api/rate-limits.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from nugget.config import Environment
from nugget.errors import GitHubError

if TYPE_CHECKING:
    from github.GithubException import GithubException
    from github.PullRequest import PullRequest as GitHubPullRequest
    from github.Repository import Repository as GitHubRepository

T = TypeVar("T")

API_URL = "https://api.github.com"
TIMEOUT_S = 15
MAX_WAIT_S = 60.0
"""So long a rate limit is waited for, in sum over one use of a `Repository`."""
MAX_TRIES = 4
MAX_BODY_CHARS = 65_000
"""GitHub takes 65,536 characters in the text of a pull request."""
_NO_ANSWER = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RuntimeError)
"""What PyGithub raises for a reply of another form than GitHub's, and for a redirect to another host."""
_COUNT = re.compile(r"[0-9]{1,12}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NEW_TOKEN = "Renew GITHUB_TOKEN, or run `gh auth login`."


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request. `state` is `open`, `merged` or `closed` (turned down); `merged_as` is the commit of a merge."""

    number: int
    url: str
    state: str
    merged_as: str | None = None


def find_token(environment: Environment) -> str | None:
    """Return `GITHUB_TOKEN`, else the output of `gh auth token`; None if there is neither."""
    if environment.github_token:
        return environment.github_token
    command = shutil.which("gh", path=environment.variables.get("PATH", ""))
    if command is None:
        return None
    host = web_host(environment.github_api_url)
    try:
        asked = subprocess.run(
            [command, "auth", "token", "--hostname", host], env=dict(environment.variables), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    token = asked.stdout.decode("ascii", "replace").strip()
    return token if asked.returncode == 0 and re.fullmatch(r"[\x21-\x7e]+", token) else None


def web_host(api_url: str | None) -> str:
    """Return the host that repositories are cloned from: `api.github.com` answers for `github.com`."""
    return (urlsplit(api_url or API_URL).hostname or "").removeprefix("api.")


def repository_name(url: str, *, api_url: str | None) -> str | None:
    """`owner/name` of a remote that is on this GitHub, None for one that is elsewhere."""
    scp = re.fullmatch(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)", url)
    host, path = (scp[1], scp[2]) if scp else (urlsplit(url).hostname or "", urlsplit(url).path)
    if host.removeprefix("ssh.") != web_host(api_url):
        return None
    named = re.fullmatch(r"/*([\w.-]+)/([\w.-]+?)(?:\.git)?/*", path)
    return f"{named[1]}/{named[2]}" if named else None


def may_see_token(url: str, *, api_url: str | None) -> bool:
    """Return whether a token may travel to a remote: encrypted, or to the very server that the API address names."""
    return url.startswith("https://") or (
        bool(api_url) and urlsplit(url).netloc.rpartition("@")[2] == urlsplit(api_url).netloc
    )


class Repository:
    """A repository on GitHub. Raises GitHubError for whatever goes wrong, with one clear sentence.

    `sleep` is how it waits if GitHub asks it to.
    """

    def __init__(
        self, name: str, *, token: str, api_url: str | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        from github import Auth, Github

        self.name = name
        self._token = token
        self._sleep = sleep
        self._waited_s = 0.0
        client = Github(
            base_url=(api_url or API_URL).rstrip("/"), auth=Auth.Token(token), timeout=TIMEOUT_S, retry=0, lazy=True,
            user_agent="nugget",
        )  # fmt: skip
        self._remote: GitHubRepository = client.get_repo(name)

    def find_pull(self, branch: str) -> PullRequest | None:
        """Return the pull request of a branch of this repository: the open one, else the latest, or None."""
        owner = self.name.partition("/")[0]

        def get() -> list[PullRequest]:
            found = islice(self._remote.get_pulls(state="all", head=f"{owner}:{branch}"), 20)
            return [_pull(pull) for pull in found if pull.head.ref == branch]

        ours = sorted(self._ask(get), key=lambda pull: (pull.state != "open", -pull.number))
        return ours[0] if ours else None

    def pull(self, number: int) -> PullRequest:
        """Return a pull request by its number."""

        def get() -> PullRequest:
            pull = self._remote.get_pull(number)
            pull.complete()
            return _pull(pull)

        return self._ask(get)

    def open_pull(self, branch: str, *, base: str, title: str, body: str) -> PullRequest:
        """Open a pull request, or return the one that exists (a reply may have been lost)."""
        text = body if len(body) <= MAX_BODY_CHARS else body[: MAX_BODY_CHARS - 20] + "\n\n(shortened)"
        try:
            return self._ask(lambda: _pull(self._remote.create_pull(base, branch, title=title[:250], body=text)))
        except GitHubError as error:
            found = self.find_pull(branch) if "already exists" in str(error) else None
            if found is None:
                raise
            return found

    def label(self, number: int, labels: Sequence[str]) -> None:
        """Put labels on a pull request; those that do not exist yet come to be."""
        # Not `Issue.add_to_labels`: it sends a bare list, which GitHub's description of its API does not hold.
        address = f"{self._remote.url}/issues/{number}/labels"
        sent = {"labels": list(labels)}
        self._ask(lambda: self._remote.requester.requestJsonAndCheck("POST", address, input=sent))

    def close_pull(self, number: int, *, comment: str) -> PullRequest:
        """Close a pull request, and say why in a comment; one that is not open any more is left as it is.

        Closed first: a try that failed in between is not followed by a second comment.
        """
        if (pull := self.pull(number)).state != "open":
            return pull
        closed = self._ask(lambda: self._closed(number))
        self._ask(lambda: self._remote.get_issue(number).create_comment(comment))
        return closed

    def _closed(self, number: int) -> PullRequest:
        pull = self._remote.get_pull(number)
        pull.edit(state="closed")
        return _pull(pull)

    def _ask(self, request: Callable[[], T]) -> T:
        import requests
        from github import BadAttributeException, GithubException

        for tried in range(1, MAX_TRIES + 1):
            begun = time.monotonic()
            try:
                return request()
            except GithubException as error:
                pause = _asked_pause(error, tried)
                if pause is None or tried == MAX_TRIES or self._waited_s + pause > MAX_WAIT_S:
                    raise self._told(error, pause) from None
            except requests.RequestException as error:
                pause = float(tried)
                self._waited_s += time.monotonic() - begun
                is_final = isinstance(error, requests.exceptions.SSLError) or self._waited_s > MAX_WAIT_S
                if tried == MAX_TRIES or is_final:
                    reason = f"GitHub cannot be reached ({_why(error)})."
                    raise GitHubError(reason, hint="Look at the network, or at GITHUB_API_URL.") from None
            except (BadAttributeException, *_NO_ANSWER) as error:
                raise GitHubError(f"GitHub answered what is no answer ({type(error).__name__}).") from error
            self._waited_s += pause
            self._sleep(pause)
        raise AssertionError("unreachable")

    def _told(self, error: GithubException, pause: float | None) -> GitHubError:
        status, said = error.status, self._said(error)
        if pause is not None and status in (403, 429):
            return GitHubError(f"GitHub's rate limit is used up for another {pause:.0f} s.", hint="Try again then.")
        if status == 401:
            return GitHubError(f"GitHub does not accept the token ({said}).", hint=_NEW_TOKEN)
        if status == 403:
            hint = "It needs the permissions `contents: write` and `pull requests: write`."
            return GitHubError(f"The token may not do that in {self.name} ({said}).", hint=hint)
        if status == 404:
            hint = "Look at `git remote -v` in the brain and at what the token may see."
            return GitHubError(f"GitHub knows no repository {self.name}, or does not show it to this token.", hint=hint)
        if status >= 500:
            return GitHubError(f"GitHub has a fault of its own ({status}).", hint="Try again later.")
        return GitHubError(f"GitHub refused with {status}: {said}.")

    def _said(self, error: GithubException) -> str:
        """Return GitHub's own message as one short line without the token."""
        body: object = error.data
        parts = [str(body.get("message", ""))] if isinstance(body, Mapping) else [str(body or "")]
        details = body.get("errors") if isinstance(body, Mapping) else None
        for detail in details if isinstance(details, list) else []:
            parts.append(
                str(detail.get("message") or detail.get("code")) if isinstance(detail, Mapping) else str(detail)
            )
        words = " ".join(" ".join(part for part in parts if part).split()).replace(self._token, "…")
        return re.sub(r"[^ -~…]", "?", words)[:300].rstrip(".") or "no reason was given"


def _asked_pause(error: GithubException, tried: int) -> float | None:
    """Return the seconds to wait before trying again, None if that is of no use."""
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status >= 500:
        return float(tried)
    message = str(error.data.get("message", "") if isinstance(error.data, Mapping) else "").lower()
    if error.status not in (403, 429) or not (
        "rate limit" in message or error.status == 429 or "retry-after" in headers
    ):
        return None
    after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
    if _COUNT.fullmatch(after):
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and _COUNT.fullmatch(reset):
        return max(1.0, float(reset) - time.time() + 1)
    return 60.0


def _pull(pull: GitHubPullRequest) -> PullRequest:
    """Return the values of a pull request. Raises one of _NO_ANSWER, also while it fetches what is not there yet."""
    merged = pull.merged_at is not None
    state = "open" if pull.state == "open" else "merged" if merged else "closed"
    number, url, commit = int(pull.number), str(pull.html_url), pull.merge_commit_sha
    if not (number > 0 and url.isprintable() and (not commit or _COMMIT.fullmatch(commit))):
        raise ValueError("no pull request")
    return PullRequest(number=number, url=url, state=state, merged_as=commit or None if merged else None)


def _why(error: Exception) -> str:
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT_S} s"
    return "the connection failed" if isinstance(error, requests.ConnectionError) else type(error).__name__
