"""Remotes: clone, fetch and push through git, with time limits, and find the forge that opens pull requests.

Credential helpers, ssh and http settings are the user's own, never those of the repository's configuration. Nothing
here ever asks for a password. Errors say what a person can do: about the credentials, the permission, a rule of the
remote, its address or the network.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nugget.config import Environment, read_environment
from nugget.errors import GitError, PushRefused
from nugget.infra.forges import API_URL, GITLAB_VARIABLE, Forge, GitHub, GitLab
from nugget.infra.git import is_repository, run, start
from nugget.infra.git.process import HARDENED, Setting, user_settings
from nugget.infra.http_client import UNTRUSTED, parts_of
from nugget.infra.workspace import host_and_path

_FETCH_TIMEOUT_S = 10.0
_PUSH_TIMEOUT_S = 60.0
_CLONE_TIMEOUT_S = 600.0
_PROTOCOLS = "file:git:http:https:ssh"
_PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")
_RECEIVING: tuple[Setting, ...] = (("receive.autogc", "false"), ("receive.denyCurrentBranch", "refuse"))
"""Keep a remote on this machine from garbage collection and from updating its checkout."""
_OF_THE_NETWORK = r"^((credential|http|ssh)\.|remote\..*\.proxy)"
_KEPT_VARIABLES = frozenset(
    "GIT_SSH GIT_SSH_COMMAND GIT_SSH_VARIANT GIT_SSL_CAINFO GIT_SSL_CAPATH GIT_SSL_NO_VERIFY GIT_PROXY_COMMAND".split()
)
_REFUSED = r"GH006|GH013|protected branch|hook declined|push declined|error: 403|Permission to .* denied|Write access"
"""Words of git and GitHub for a refused push for which a retry is useless."""
_REASONS: tuple[tuple[str, str, str], ...] = (
    (r"GH006|GH013|protected branch|hook declined|push declined",
     "the remote does not take the branch: {rule}", "Ask whoever looks after the remote's rules, then publish again."),
    (r"certificate (verification failed|problem)", UNTRUSTED.format(""), "Look at the address of the remote, too."),
    (r"did not end in time|Could not resolve host|Failed to connect|Connection (refused|reset|timed out)|unable to conn"
     r"ect|Network is unreachable|Operation too slow|unexpected disconnect|hung up|early EOF|error: 5\d\d",
     "the remote cannot be reached", "Check the network; nothing is lost, and the next attempt continues from here."),
    (r"Authentication failed|could not read (Username|Password)|Invalid username|error: 401|Bad credentials",
     "the remote does not accept the token or password", "Renew GITHUB_TOKEN, or run `gh auth login`."),
    (r"error: 30\d|redirect",
     "the remote redirects to another address, where the token does not go", "`git remote set-url` with that address."),
    (r"error: 403|Permission to .* denied|Write access .* not granted|Permission denied|not permitted",
     "there is no permission to push", "Use a token or key that may write to the repository."),
    (r"not found|error: 404|does not appear to be a git repository|does not exist",
     "there is no such repository, or you may not see it", "Check the address; in a brain `git remote -v` shows it."),
)  # fmt: skip
"""Words of git and GitHub (pattern), what they mean, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A remote and its address; `token` goes only to that address, and only over http(s)."""

    name: str
    url: str
    token: str | None = None


class Target(NamedTuple):
    """The remote that proposals go to, its name on the forge, and how to open a repository there by name."""

    remote: Remote
    name: str
    open: Callable[[str], Forge]  # the SDKs take a while to import


def find_target(remote: Remote, environment: Environment) -> Target | str:
    """Return the target of proposals for a remote, or the reason why they stay local. Makes no network call."""
    url, api_url = remote.url, environment.github_api_url
    server = (environment.variables.get(GITLAB_VARIABLE) or "https://gitlab.com").rstrip("/")
    open_by_name: Callable[[str], Forge]
    if name := repository_name(url, api_url=api_url):
        if (token := find_token(environment)) is None:
            return "there is no GitHub token (GITHUB_TOKEN, or `gh auth login`)"
        open_by_name = partial(GitHub, token=token, api_url=api_url)
    elif name := _path_on(_host(server), url):
        if (token := environment.variables.get("GITLAB_TOKEN") or None) is None:
            return "there is no GitLab token (GITLAB_TOKEN)"
        open_by_name = partial(GitLab, token=token, server=server)
    else:
        hosts = {GitHub.variable: web_host(api_url), GitLab.variable: _host(server)}
        if wrong := next((variable for variable, host in hosts.items() if not host), None):
            return f"{wrong} is not the address of a server"
        return f"{remote.name} is not on {' or '.join(hosts.values())}"
    return Target(replace(remote, token=token if may_see_token(url, environment) else None), name, open_by_name)


def may_see_token(url: str, environment: Environment) -> bool:
    """Return True if a token may be sent to a remote: encrypted, or to the exact server in the settings."""
    servers = [environment.github_api_url, environment.variables.get(GITLAB_VARIABLE)]
    named = {parts_of(server).netloc for server in servers} - {""}
    return url.startswith("https://") or parts_of(url).netloc.rpartition("@")[2] in named


def find_token(environment: Environment) -> str | None:
    """Return `GITHUB_TOKEN`, else the output of `gh auth token`; None if there is neither."""
    if given := environment.variables.get("GITHUB_TOKEN"):
        return given
    command = shutil.which("gh", path=environment.variables.get("PATH", ""))
    if command is None:
        return None
    host = web_host(environment.github_api_url)
    try:
        done = subprocess.run(
            [command, "auth", "token", "--hostname", host], env=dict(environment.variables), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    token = done.stdout.decode("ascii", "replace").strip()
    return token if done.returncode == 0 and re.fullmatch(r"[\x21-\x7e]+", token) else None


def web_host(api_url: str | None) -> str:
    """Return the host to clone from; `api.github.com` belongs to `github.com`."""
    return _host(api_url or API_URL).removeprefix("api.")


def _host(address: str) -> str:
    parts = parts_of(address)
    return parts.hostname or "" if parts.scheme in ("http", "https") else ""


def repository_name(url: str, *, api_url: str | None) -> str | None:
    """Return `owner/name` of a remote on this GitHub, or None."""
    found = _path_on(web_host(api_url), url)
    return found if found and found.count("/") == 1 else None


def _path_on(server: str, url: str) -> str | None:
    """Return the path of a remote on this host, such as `group/project`, or None."""
    host, path = host_and_path(url)
    named = re.fullmatch(r"/*((?:[\w.-]+/)+[\w.-]+?)(?:\.git)?/*", path)
    return named[1] if named and server in (host, host.removeprefix("ssh.")) else None


def find_remote(repo: Path) -> Remote | None:
    """Return `origin`, else the only remote; None without either, and outside of a repository."""
    if not is_repository(repo):
        return None
    names = run(repo, "remote").decode("utf-8", "replace").split()
    if not names or ("origin" not in names and len(names) > 1):
        return None
    name = "origin" if "origin" in names else names[0]
    url = run(repo, "remote", "get-url", "--push", "--", name).decode("utf-8", "replace").strip()
    return Remote(name=name, url=url)


def default_branch(repo: Path, remote: Remote) -> str | None:
    """Return the remote's default branch, None if it has no commit. Raises GitError if it cannot be reached.

    The HEAD of a new bare repository may name a branch that nobody pushed; then it is `main` or the only branch.
    """
    listed = _talk(repo, remote, "ls-remote", "--symref", _upload_from(repo, remote), "--", remote.name, "HEAD")
    name = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", listed, re.MULTILINE)
    if name and re.search(r"^[0-9a-f]{40,64}\tHEAD$", listed, re.MULTILINE):
        return name[1]
    heads = _talk(repo, remote, "ls-remote", "--heads", _upload_from(repo, remote), "--", remote.name)
    branches = re.findall(r"\trefs/heads/(\S+)$", heads, re.MULTILINE)
    return "main" if "main" in branches else branches[0] if len(branches) == 1 else None


def fetch(repo: Path, remote: Remote, branch: str) -> str:
    """Fetch one branch of the remote into `refs/remotes` and return its commit; no branch of the user's changes."""
    kept = f"refs/remotes/{remote.name}/{branch}"
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
    branches = f"+refs/heads/{branch}:{kept}"
    _talk(repo, remote, "fetch", *options, _upload_from(repo, remote), "--", remote.name, branches)
    return run(repo, "rev-parse", "--verify", "--end-of-options", f"{kept}^{{commit}}").decode().strip()


def clone(url: str, folder: Path) -> None:
    """Clone a repository into a new folder, without hooks, templates and submodules. Raises GitError."""
    upload = f"--upload-pack={_program('upload-pack', url)}"
    options = ("--quiet", "--template=", "--no-recurse-submodules", upload)
    remote = Remote(name="origin", url=url)
    _talk(folder.parent, remote, "clone", *options, "--", url, folder.name, timeout_s=_CLONE_TIMEOUT_S)
    is_empty = not run(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False)
    if is_empty and (branch := default_branch(folder, remote)):
        run(folder, "checkout", "--quiet", branch, "--")


def push(repo: Path, remote: Remote, sha: str | None, *, branch: str, replacing: str | None = None) -> bool:
    """Set `branch` on the remote to `sha`, or delete it (None); return False if it has commits of its own, which stay.

    `replacing` is the commit that we pushed before: only if the branch still points at it may it be deleted, or
    replaced by a commit that does not build on it. Raises GitError when the remote refuses or cannot be reached.
    """
    everywhere = run(repo, "remote", "get-url", "--push", "--all", "--", remote.name)
    if everywhere.decode("utf-8", "replace").strip() != remote.url:
        raise GitError(f"{remote.name} has more addresses to push to than one.", hint="`git remote -v` shows them.")
    ref = f"refs/heads/{branch}"
    lease = [f"--force-with-lease={ref}:{replacing}"] if replacing else []
    receive = f"--receive-pack={_program('receive-pack', remote.url, _RECEIVING)}"
    kept = r"\[rejected\] \((non-fast-forward|fetch first|stale info)\)" + ("" if sha else "|ref does not exist")
    arguments = (*_PUSH, receive, *lease, "--", remote.name, f"{sha or ''}:{ref}")
    return bool(_talk(repo, remote, *arguments, timeout_s=_PUSH_TIMEOUT_S, kept=kept))


def _upload_from(repo: Path, remote: Remote) -> str:
    """Return the option for the fetch address, which may differ from the push address."""
    found = run(repo, "remote", "get-url", "--", remote.name, check=False).decode("utf-8", "replace").strip()
    return f"--upload-pack={_program('upload-pack', found or remote.url)}"


def _program(name: str, url: str, settings: tuple[Setting, ...] = ()) -> str:
    """Return the program that serves a remote, regardless of remote.<name>.uploadpack or receivepack.

    For a folder it runs here, with that folder's configuration and hooks, since git does not pass our settings on.
    """
    is_folder = url.startswith("file://") or ":" not in url.split("/", 1)[0]
    hardened = (*HARDENED, *settings) if is_folder else ()
    options = "".join(f" -c {shlex.quote(f'{key}={value}')}" for key, value in hardened)
    return f"git{options} {name}" if options else f"git-{name}"


def _talk(repo: Path, remote: Remote, *args: str, timeout_s: float = _FETCH_TIMEOUT_S, kept: str = "") -> str:
    """Return the output of a git command that uses the network, or "" if its refusal matches `kept`."""
    # Only the user's own programs send; the brain's configuration provides just the remote's address.
    found = start(repo, ("config", "-z", "--name-only", "--get-regexp", _OF_THE_NETWORK)).stdout.split(b"\0")
    settings = [(key, "true" if key.endswith(".sslverify") else "") for key in map(os.fsdecode, found) if key]
    settings += [("credential.helper", ""), *user_settings(repo, _OF_THE_NETWORK)]
    settings += [("http.lowSpeedLimit", "1"), ("http.lowSpeedTime", str(int(timeout_s))), *_token_header(remote)]
    try:
        done = start(repo, args, variables=_variables(repo), settings=settings, timeout_s=timeout_s)
    except GitError as error:
        raise _error(str(error), args[0], remote) from error
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode == 0:
        return printed
    printed += "\n" + done.stderr.decode("utf-8", "replace")
    if kept and re.search(kept, printed):
        return ""
    raise _error(printed, args[0], remote)


def _variables(repo: Path) -> dict[str, str]:
    """Return the user's variables about the network, and make ssh never ask."""
    given = read_environment().variables
    kept = {name: value for name, value in given.items() if name in _KEPT_VARIABLES}
    if certificates := given.get("SSL_CERT_FILE"):  # libcurl reads only its own file
        kept.setdefault("GIT_SSL_CAINFO", certificates)
    chosen = [value for _, value in user_settings(repo, r"^core\.sshcommand$")]
    if "GIT_SSH_COMMAND" in kept or chosen or "GIT_SSH" not in kept:
        ssh = kept.get("GIT_SSH_COMMAND") or (chosen or ["ssh"])[-1]
        kept["GIT_SSH_COMMAND"] = f"{ssh} -o BatchMode=yes -o ConnectTimeout={int(_FETCH_TIMEOUT_S)}"
    else:
        kept["GIT_SSH_COMMAND"] = shlex.quote(kept["GIT_SSH"])
    return kept | {"GIT_ALLOW_PROTOCOL": _PROTOCOLS}


def _token_header(remote: Remote) -> list[Setting]:
    """Return the settings that send the token to the remote's own address, and nowhere it redirects to."""
    parts = parts_of(remote.url)
    if not remote.token or parts.scheme not in ("http", "https"):
        return []
    header = base64.b64encode(f"x-access-token:{remote.token}".encode()).decode()
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
    return [(f"http.{address}.extraHeader", f"Authorization: Basic {header}"), ("http.followRedirects", "false")]


def _error(output: str, verb: str, remote: Remote) -> GitError:
    """Return the error for git's output, with what to do."""
    output = _without_secrets(output, remote)
    lines = [line.strip() for line in output.splitlines() if re.match(r"\s*(fatal|error|remote|!)", line)]
    first = (lines or ["no reason was given"])[0][:300]
    meaning, hint = next((one[1:] for one in _REASONS if re.search(one[0], output)), (first.rstrip("."), None))
    remarks = re.findall(r"^\s*remote:\s*(?:error: )?(.*\S)", output, re.MULTILINE)
    marked = [line for line in remarks if re.search(r"GH0|[Pp]rotected|declined|error", line)]
    rule = re.sub(r"[^ -~]", "?", (marked or remarks or ["a rule protects it"])[0])[:200].rstrip(".")
    kind = PushRefused if verb == "push" and re.search(_REFUSED, output) else GitError
    address = _without_secrets(remote.url, remote)
    message = f"git {verb} failed for {address}: {meaning.replace('{rule}', rule)}."
    return kind(message, hint=hint)


def _without_secrets(text: str, remote: Remote) -> str:
    plain = re.sub(r"(?<=://)[^/\s]*@", "", text)
    return plain.replace(remote.token, "…") if remote.token else plain
