"""Remotes and GitHub: fetch and push with time limits, and pull requests through PyGithub.

Credential helpers, ssh and http settings are the user's own, never those of the repository's configuration. Errors say
what a person can do: about the credentials, the permission, a rule of the remote, its address or the network.
Endpoints: docs.github.com/en/rest/pulls/pulls, .../using-the-rest-api/rate-limits.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nugget.config import Environment, read_environment
from nugget.errors import GitError, GitHubError
from nugget.infra.git import run, start
from nugget.infra.git.process import HARDENED, Setting, user_settings

if TYPE_CHECKING:
    from github.GithubException import GithubException
    from github.PullRequest import PullRequest as GitHubPullRequest
    from github.Repository import Repository as GitHubRepository
    from urllib3.response import BaseHTTPResponse
    from urllib3.util import Retry

API_URL = "https://api.github.com"
TIMEOUT_S = 15
MAX_RETRIES = 3
MAX_WAIT_S = 60
"""GitHub may ask to wait so long before a retry; a longer wait is an error."""
MAX_BODY_CHARS = 65_000
"""GitHub takes 65,536 characters in the text of a pull request."""
_NO_ANSWER = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RuntimeError)
"""What PyGithub raises for a reply of another form than GitHub's, and for a redirect to another host."""
_REFUSALS = {
    401: ("GitHub does not accept the token ({reason}).", "Renew GITHUB_TOKEN, or run `gh auth login`."),
    403: ("The token may not do that in {name} ({reason}).",
          "It needs the permissions `contents: write` and `pull requests: write`."),
    404: ("GitHub knows no repository {name}, or does not show it to this token.",
          "Look at `git remote -v` in the brain and at what the token may see."),
    429: ("GitHub's rate limit is used up ({reason}).", "Try again in some minutes."),
}  # fmt: skip


_FETCH_TIMEOUT_S = 15.0
_PUSH_TIMEOUT_S = 60.0
_CLONE_TIMEOUT_S = 600.0
_PROTOCOLS = "file:git:http:https:ssh"
_PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")
_RECEIVING: tuple[Setting, ...] = (("receive.autogc", "false"), ("receive.denyCurrentBranch", "refuse"))
"""Keep a remote on this machine from collecting garbage and from changing its checkout."""
_OF_THE_NETWORK = r"^(credential|http|ssh)\."
_KEPT_VARIABLES = frozenset(
    "GIT_SSH GIT_SSH_COMMAND GIT_SSH_VARIANT GIT_ASKPASS GIT_SSL_CAINFO GIT_SSL_CAPATH GIT_SSL_NO_VERIFY"
    " GIT_PROXY_COMMAND".split()
)
_REASONS: tuple[tuple[str, str, str], ...] = (
    (r"GH006|GH013|protected branch|hook declined|push declined",
     "the remote does not take the branch: {rule}", "Ask whoever looks after the remote's rules, then publish again."),
    (r"did not end in time", "the remote did not answer in time", "Publish again when the network is better."),
    (r"Could not resolve host|Failed to connect|Connection (refused|reset|timed out)|unable to connect|"
     r"Network is unreachable|Operation too slow|unexpected disconnect|hung up unexpectedly|early EOF|error: 5\d\d",
     "the remote cannot be reached", "Look at the network; nothing is lost, and the next attempt goes on from here."),
    (r"Authentication failed|could not read (Username|Password)|Invalid username|error: 401|Bad credentials",
     "the remote does not accept the token or password", "Renew GITHUB_TOKEN, or run `gh auth login`."),
    (r"error: 30\d|redirect",
     "the remote redirects to another address, where the token does not go", "`git remote set-url` with that address."),
    (r"error: 403|Permission to .* denied|Write access .* not granted|Permission denied|not permitted",
     "there is no permission to push", "Use a token or key that may write to the repository."),
    (r"[Rr]epository .*not found|error: 404|does not appear to be a git repository|does not exist|not found",
     "there is no such repository, or it may not be seen with this token", "Look at `git remote -v` in the brain."),
)  # fmt: skip
"""What git and GitHub say (pattern), what that means, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A remote with the address it is reached at. `token` goes to that address alone, and only over http(s)."""

    name: str
    url: str
    token: str | None = None


def find_remote(repo: Path) -> Remote | None:
    """Return `origin`, else the only remote; None if there is none to choose."""
    names = run(repo, "remote").decode("utf-8", "replace").split()
    if not names or ("origin" not in names and len(names) > 1):
        return None
    name = "origin" if "origin" in names else names[0]
    url = run(repo, "remote", "get-url", "--push", "--", name).decode("utf-8", "replace").strip()
    return Remote(name=name, url=url)


def default_branch(repo: Path, remote: Remote) -> str | None:
    """Return the remote's default branch, None if it has no commit. Raises GitError if it cannot be reached."""
    listed = _talk(repo, remote, "ls-remote", "--symref", _upload_from(repo, remote), "--", remote.name, "HEAD")
    name = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", listed, re.MULTILINE)
    return name[1] if name and re.search(r"^[0-9a-f]{40,64}\tHEAD$", listed, re.MULTILINE) else None


def fetch(repo: Path, remote: Remote, branch: str) -> str:
    """Fetch one branch of the remote into `refs/remotes` and return its commit; no branch of the user's changes."""
    kept = f"refs/remotes/{remote.name}/{branch}"
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", _upload_from(repo, remote))
    _talk(repo, remote, "fetch", *options, "--", remote.name, f"+refs/heads/{branch}:{kept}")
    return run(repo, "rev-parse", "--verify", "--end-of-options", f"{kept}^{{commit}}").decode().strip()


def clone(url: str, folder: Path) -> None:
    """Clone a repository into a new folder, without hooks, templates and submodules. Raises GitError."""
    upload = f"--upload-pack={_program('upload-pack', url)}"
    options = ("--quiet", "--template=", "--no-recurse-submodules", upload)
    remote = Remote(name="origin", url=url)
    _talk(folder.parent, remote, "clone", *options, "--", url, folder.name, timeout_s=_CLONE_TIMEOUT_S)


def push(repo: Path, remote: Remote, sha: str | None, *, branch: str, replacing: str | None = None) -> bool:
    """Let `branch` on the remote be `sha`, or delete it (None); False if it holds commits of its own, which stay.

    `replacing` is the commit that we put there before: only while it still stands there may it be deleted, or replaced
    by one that does not build on it. Raises GitError when the remote refuses or cannot be reached.
    """
    ref = f"refs/heads/{branch}"
    lease = [f"--force-with-lease={ref}:{replacing}"] if replacing else []
    receive = f"--receive-pack={_program('receive-pack', remote.url, _RECEIVING)}"
    kept = r"\[rejected\] \((non-fast-forward|fetch first|stale info)\)" + ("" if sha else "|ref does not exist")
    arguments = (*_PUSH, receive, *lease, "--", remote.name, f"{sha or ''}:{ref}")
    return bool(_talk(repo, remote, *arguments, timeout_s=_PUSH_TIMEOUT_S, kept=kept))


def _upload_from(repo: Path, remote: Remote) -> str:
    """Return the option for the address that is fetched from, which may differ from the one that is pushed to."""
    found = run(repo, "remote", "get-url", "--", remote.name, check=False).decode("utf-8", "replace").strip()
    return f"--upload-pack={_program('upload-pack', found or remote.url)}"


def _program(name: str, url: str, settings: tuple[Setting, ...] = ()) -> str:
    """Return the program that serves a remote, whatever remote.<name>.uploadpack or receivepack names.

    If the remote is a folder the program runs here, with that folder's configuration and hooks: git hands none of our
    settings on to it.
    """
    is_folder = url.startswith("file://") or ":" not in url.split("/", 1)[0]
    hardened = (*HARDENED, *settings) if is_folder else ()
    options = "".join(f" -c {shlex.quote(f'{key}={value}')}" for key, value in hardened)
    return f"git{options} {name}" if options else f"git-{name}"


def _talk(repo: Path, remote: Remote, *args: str, timeout_s: float = _FETCH_TIMEOUT_S, kept: str = "") -> str:
    """Return the standard output of a git command that uses the network, "" if it refuses with words of `kept`."""
    # Whatever sends is the user's own: of the brain's configuration only the address of the remote counts.
    found = start(repo, ("config", "-z", "--name-only", "--get-regexp", _OF_THE_NETWORK)).stdout.split(b"\0")
    settings = [(key, "true" if key.endswith(".sslverify") else "") for key in map(os.fsdecode, found) if key]
    settings += [("credential.helper", ""), *user_settings(repo, _OF_THE_NETWORK)]
    settings += [("http.lowSpeedLimit", "1"), ("http.lowSpeedTime", str(int(timeout_s))), *_token_header(remote)]
    try:
        done = start(repo, args, variables=_variables(repo), settings=settings, timeout_s=timeout_s)
    except GitError as error:
        if isinstance(error.__cause__, subprocess.TimeoutExpired):
            raise _error("did not end in time", args[0], remote) from error
        raise
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode == 0:
        return printed
    printed += "\n" + done.stderr.decode("utf-8", "replace")
    if kept and re.search(kept, printed):
        return ""
    raise _error(printed, args[0], remote)


def _variables(repo: Path) -> dict[str, str]:
    """Return what the user's environment says about the network, with ssh never asking."""
    kept = {name: value for name, value in read_environment().variables.items() if name in _KEPT_VARIABLES}
    chosen = [value for _, value in user_settings(repo, r"^core\.sshcommand$")]
    if "GIT_SSH_COMMAND" in kept or chosen or "GIT_SSH" not in kept:
        ssh = kept.get("GIT_SSH_COMMAND") or (chosen or ["ssh"])[-1]
        kept["GIT_SSH_COMMAND"] = f"{ssh} -o BatchMode=yes -o ConnectTimeout={int(_FETCH_TIMEOUT_S)}"
    else:
        kept["GIT_SSH_COMMAND"] = shlex.quote(kept["GIT_SSH"])
    return kept | {"GIT_ALLOW_PROTOCOL": _PROTOCOLS}


def _token_header(remote: Remote) -> list[Setting]:
    """Return the settings that send the token to the remote's own address, and nowhere it redirects to."""
    parts = urlsplit(remote.url)
    if not remote.token or parts.scheme not in ("http", "https"):
        return []
    header = base64.b64encode(f"x-access-token:{remote.token}".encode()).decode()
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
    return [(f"http.{address}.extraHeader", f"Authorization: Basic {header}"), ("http.followRedirects", "false")]


def _error(output: str, verb: str, remote: Remote) -> GitError:
    """Return the error for what git printed, in words that say what to do."""
    output = _without_secrets(output, remote)
    lines = [line.strip() for line in output.splitlines() if re.match(r"\s*(fatal|error|remote|!)", line)]
    meaning, hint = next(
        ((f"{meaning}.", hint) for pattern, meaning, hint in _REASONS if re.search(pattern, output)),
        ((lines or ["no reason was given"])[0][:300], None),
    )
    said = re.findall(r"^\s*remote:\s*(?:error: )?(.*\S)", output, re.MULTILINE)
    marked = [line for line in said if re.search(r"GH0|[Pp]rotected|declined|error", line)]
    rule = re.sub(r"[^ -~]", "?", (marked or said or ["a rule protects it"])[0])[:200].rstrip(".")
    meaning = meaning.replace("{rule}", rule)
    address = _without_secrets(remote.url, remote)
    return GitError(f"git {verb} with {remote.name} ({address}) failed: {meaning}", hint=hint)


def _without_secrets(text: str, remote: Remote) -> str:
    plain = re.sub(r"(?<=://)[^/@\s]+@", "", text)
    return plain.replace(remote.token, "…") if remote.token else plain


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
    """Return `owner/name` of a remote that is on this GitHub, None for one that is elsewhere."""
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
    """A repository on GitHub. Raises GitHubError for whatever goes wrong, with one clear sentence."""

    def __init__(self, name: str, *, token: str, api_url: str | None = None) -> None:
        from github import Auth, Github

        self.name = name
        self._token = token
        client = Github(
            base_url=(api_url or API_URL).rstrip("/"), auth=Auth.Token(token), timeout=TIMEOUT_S, retry=_retry(),
            lazy=True, user_agent="nugget",
        )  # fmt: skip
        self._remote: GitHubRepository = client.get_repo(name)

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
        text = body if len(body) <= MAX_BODY_CHARS else body[: MAX_BODY_CHARS - 20] + "\n\n(shortened)"
        try:
            with self._errors():
                return _pull(self._remote.create_pull(base, branch, title=title[:250], body=text))
        except GitHubError as error:
            if "already exists" in str(error) and (found := self.find_pull(branch)):
                return found
            raise

    def label(self, number: int, labels: Sequence[str]) -> None:
        """Put labels on a pull request; those that do not exist yet come to be."""
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
            reason = f"no answer within {TIMEOUT_S} s" if isinstance(error, requests.Timeout) else "no connection"
            hint = "Look at the network, or at GITHUB_API_URL."
            raise GitHubError(f"GitHub cannot be reached ({reason}).", hint=hint) from None
        except (BadAttributeException, *_NO_ANSWER) as error:
            raise GitHubError(f"GitHub answered what is no answer ({type(error).__name__}).") from error

    def _refusal(self, error: GithubException) -> GitHubError:
        body: object = error.data
        parts = [body.get("message")] if isinstance(body, Mapping) else [body]
        details = body.get("errors") if isinstance(body, Mapping) else None
        for detail in details if isinstance(details, list) else []:
            parts.append(detail.get("message") or detail.get("code") if isinstance(detail, Mapping) else detail)
        words = " ".join(" ".join(str(part) for part in parts if part).split()).replace(self._token, "…")
        reason = re.sub(r"[^ -~…]", "?", words)[:300].rstrip(".") or "no reason was given"
        if error.status >= 500:
            return GitHubError(f"GitHub has a fault of its own ({error.status}).", hint="Try again later.")
        status = 429 if error.status == 403 and "rate limit" in reason.lower() else error.status
        sentence, hint = _REFUSALS.get(status, (f"GitHub refused with {status}: {{reason}}.", None))
        return GitHubError(sentence.format(name=self.name, reason=reason), hint=hint)


def _retry() -> Retry:
    """Return urllib3's retries: after GitHub's own failures, and after as long as a rate limit asks for."""
    from urllib3.util import Retry

    class WithRateLimits(Retry):
        RETRY_AFTER_STATUS_CODES = frozenset({403, 429, 503})

        def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
            wait_s = super().get_retry_after(response)
            if wait_s and wait_s > MAX_WAIT_S:
                message = f"GitHub's rate limit is used up for another {wait_s:.0f} s."
                raise GitHubError(message, hint="Try again then.")
            return wait_s

    return WithRateLimits(
        total=MAX_RETRIES, backoff_factor=0.5, status_forcelist=(500, 502, 503, 504), allowed_methods=None,
        raise_on_status=False,
    )  # fmt: skip


def _pull(pull: GitHubPullRequest) -> PullRequest:
    """Return the values of a pull request. Raises one of _NO_ANSWER, also while it fetches what is not there yet."""
    merged = pull.merged_at is not None
    state = "open" if pull.state == "open" else "merged" if merged else "closed"
    number, url, commit = int(pull.number), pull.html_url, pull.merge_commit_sha
    is_commit = not commit or re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit)
    if not (number > 0 and url and url.isprintable() and is_commit and pull.state in ("open", "closed")):
        raise ValueError("no pull request")
    return PullRequest(number=number, url=url, state=state, merged_as=commit or None if merged else None)
