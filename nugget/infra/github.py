"""GitHub: the token, and pull requests through PyGithub.

Endpoints: docs.github.com/en/rest/pulls/pulls, .../using-the-rest-api/rate-limits.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nugget.config import Environment, read_environment
from nugget.errors import ForgeError

if TYPE_CHECKING:
    from github.GithubException import GithubException
    from github.PullRequest import PullRequest as GitHubPullRequest
    from github.Repository import Repository as GitHubRepository
    from urllib3.response import BaseHTTPResponse
    from urllib3.util import Retry

API_URL = "https://api.github.com"
TIMEOUT_S = 10
MAX_RETRIES = 3
MAX_WAIT_S = 60
"""GitHub may ask to wait so long before a retry; a longer wait is an error."""
MAX_BODY_CHARS = 65_000
"""GitHub takes 65,536 characters in the text of a pull request."""
_NO_ANSWER = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RuntimeError)
"""Errors of PyGithub for a reply of another form than GitHub's, and for a redirect to another host."""
_REFUSALS = {
    401: ("GitHub does not accept the token ({reason}).", "Renew GITHUB_TOKEN, or run `gh auth login`."),
    403: ("The token may not do that in {name} ({reason}).",
          "It needs the permissions `contents: write` and `pull requests: write`."),
    404: ("GitHub knows no repository {name}, or does not show it to this token.",
          "Look at `git remote -v` in the brain and at what the token may see."),
    429: ("GitHub's rate limit is used up ({reason}).", "Try again in some minutes."),
}  # fmt: skip


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


def host_and_path(url: str) -> tuple[str, str]:
    """Return the host and the path of a remote's address, also of `user@host:path`."""
    scp = re.fullmatch(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)", url)
    return (scp[1], scp[2]) if scp else (urlsplit(url).hostname or "", urlsplit(url).path)


def repository_name(url: str, *, api_url: str | None) -> str | None:
    """Return `owner/name` of a remote that is on this GitHub, None for one that is elsewhere."""
    host, path = host_and_path(url)
    if host.removeprefix("ssh.") != web_host(api_url):
        return None
    named = re.fullmatch(r"/*([\w.-]+)/([\w.-]+?)(?:\.git)?/*", path)
    return f"{named[1]}/{named[2]}" if named else None


class Repository:
    """A repository on GitHub. Every failure is a ForgeError with one clear sentence."""

    def __init__(self, name: str, *, token: str, api_url: str | None = None) -> None:
        from github import Auth, Github

        self.name = name
        self._token = token
        client = Github(
            base_url=(api_url or API_URL).rstrip("/"), auth=Auth.Token(token), timeout=TIMEOUT_S, retry=_retry(),
            lazy=True, user_agent="nugget", verify=read_environment().variables.get("SSL_CERT_FILE") or True,
        )  # fmt: skip
        self._remote: GitHubRepository = client.get_repo(name)

    def current_name(self) -> str:
        """Return `owner/name` as the repository is called now: GitHub answers for a renamed one under both."""
        with self._errors():
            self._remote.complete()
            if not re.fullmatch(r"[\w.-]+/[\w.-]+", self._remote.full_name):
                raise ValueError("no name")
            return self._remote.full_name

    def find_pull(self, branch: str) -> PullRequest | None:
        """Return the pull request of a branch of this repository: the open one, else the latest, or None."""
        with self._errors():
            head = f"{self.name.partition('/')[0]}:{branch}"
            found = islice(self._remote.get_pulls(state="all", head=head), 20)
            ours = [_pull(pull) for pull in found if pull.head.ref == branch]
        return min(ours, key=lambda pull: (pull.state != "open", -pull.number), default=None)

    def pull(self, number: int) -> PullRequest:
        """Return a pull request by its number."""
        with self._errors():
            pull = self._remote.get_pull(number)
            pull.complete()
            return _pull(pull)

    def open_pull(self, branch: str, *, base: str, title: str, body: str) -> PullRequest:
        """Open a pull request, or return the one that exists (a reply may have been lost)."""
        try:
            with self._errors():
                return _pull(self._remote.create_pull(base, branch, title=title[:250], body=fitting(body)))
        except ForgeError as error:
            if "already exists" in str(error) and (found := self.find_pull(branch)):
                return found
            raise

    def merge_pull(self, number: int, *, head: str) -> str:
        """Merge a pull request whose branch still ends in `head`, in a way that the repository allows.

        Returns the new commit. Raises ForgeError, with the address of its page, if a rule or a conflict forbids it.
        """
        pull, remote = self._remote.get_pull(number), self._remote
        with self._errors():
            remote.complete()
            allowed = (("merge", remote.allow_merge_commit), ("squash", remote.allow_squash_merge), ("rebase", True))
            way, page = next(way for way, is_allowed in allowed if is_allowed), pull.html_url
        try:
            with self._errors():
                done = pull.merge(merge_method=way, sha=head)
                if not (done.merged and _is_commit(done.sha)):
                    raise ValueError("not merged")
                return done.sha
        except ForgeError as error:
            raise ForgeError(f"It cannot be merged now. {error}", hint=f"See {page}") from None

    def edit_pull(self, number: int, *, title: str, body: str) -> None:
        """Give a pull request another title and text."""
        with self._errors():
            self._remote.get_pull(number).edit(title=title[:250], body=fitting(body))

    def label(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to a pull request; new ones are created."""
        with self._errors():
            # Not `Issue.add_to_labels`: it sends a bare list, which GitHub's description of its API does not hold.
            address = f"{self._remote.url}/issues/{number}/labels"
            self._remote.requester.requestJsonAndCheck("POST", address, input={"labels": list(labels)})

    def close_pull(self, number: int, *, comment: str) -> PullRequest:
        """Close a pull request, and say why in a comment; one that is not open any more is left as it is.

        Closed first: a try that failed in between is not followed by a second comment.
        """
        if (found := self.pull(number)).state != "open":
            return found
        with self._errors():
            pull = self._remote.get_pull(number)
            pull.edit(state="closed")
            closed = _pull(pull)
            self._remote.get_issue(number).create_comment(comment)
        return closed

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import requests
        from github import BadAttributeException, GithubException

        try:
            yield
        except GithubException as error:
            raise self._refusal(error) from None
        except requests.RequestException as error:
            raise unreachable("GitHub", error, variable="GITHUB_API_URL") from None
        except (BadAttributeException, *_NO_ANSWER) as error:
            raise ForgeError(f"GitHub sent an unexpected reply ({type(error).__name__}).") from error

    def _refusal(self, error: GithubException) -> ForgeError:
        body: Any = error.data if isinstance(error.data, Mapping) else {"message": error.data}
        details = body.get("errors")
        named = [one.get("message") or one.get("code") if isinstance(one, Mapping) else one
                 for one in (details if isinstance(details, list) else [])]  # fmt: skip
        reason = reason_in(" ".join(str(part) for part in (body.get("message"), *named) if part), self._token)
        status = 429 if error.status == 403 and "rate limit" in reason.lower() else error.status
        return refused("GitHub", status, reason, name=self.name, sentences=_REFUSALS)


def reason_in(words: str, token: str) -> str:
    """Return a forge's words as part of a sentence: on one line, printable, without the token."""
    plain = re.sub(r"[^ -~…]", "?", " ".join(words.split()).replace(token, "…"))
    return plain[:300].rstrip(".") or "no reason was given"


def refused(
    forge: str, status: int, reason: str, *, name: str, sentences: Mapping[int, tuple[str, str | None]]
) -> ForgeError:
    """Return the error for a status that a forge answered with; `sentences` are those for some, with their hints."""
    if status >= 500:
        return ForgeError(f"{forge} has a fault of its own ({status}).", hint="Try again later.")
    sentence, hint = sentences.get(status, (f"{forge} refused with {status}: {{reason}}.", None))
    return ForgeError(sentence.format(name=name, reason=reason), hint=hint)


def unreachable(forge: str, error: Exception, *, variable: str) -> ForgeError:
    """Return the error for a forge that did not answer; `variable` names its address in the environment."""
    import requests

    reason = f"no answer within {TIMEOUT_S} s" if isinstance(error, requests.Timeout) else "no connection"
    return ForgeError(f"{forge} cannot be reached ({reason}).", hint=f"Look at the network, or at {variable}.")


def fitting(body: str) -> str:
    """Return the text of a pull request, shortened to what GitHub takes."""
    return body if len(body) <= MAX_BODY_CHARS else body[: MAX_BODY_CHARS - 20] + "\n\n(shortened)"


def _retry() -> Retry:
    """Return urllib3's retries: after GitHub's own failures, and after as long as a rate limit asks for."""
    from urllib3.util import Retry

    class WithRateLimits(Retry):
        RETRY_AFTER_STATUS_CODES = frozenset({403, 429, 503})

        def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
            wait_s = super().get_retry_after(response)
            if wait_s and wait_s > MAX_WAIT_S:
                message = f"GitHub's rate limit is used up for another {wait_s:.0f} s."
                raise ForgeError(message, hint="Try again then.")
            return wait_s

    return WithRateLimits(
        total=MAX_RETRIES, backoff_factor=0.5, status_forcelist=(500, 502, 503, 504), allowed_methods=None,
        raise_on_status=False,
    )  # fmt: skip


def _pull(pull: GitHubPullRequest) -> PullRequest:
    """Return the values of a pull request. Raises one of _NO_ANSWER, also while it fetches what is missing."""
    merged = pull.merged_at is not None
    state = "open" if pull.state == "open" else "merged" if merged else "closed"
    number, url, commit, head = int(pull.number), pull.html_url, pull.merge_commit_sha, pull.head.sha
    is_sound = _is_commit(commit or head) and _is_commit(head) and pull.state in ("open", "closed")
    if not (is_sound and number > 0 and url and url.isprintable()):
        raise ValueError("no pull request")
    return PullRequest(
        number=number, url=url, state=state, head=head, title=pull.title or "", body=pull.body or "",
        merged_as=commit or None if merged else None,
    )  # fmt: skip


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None
