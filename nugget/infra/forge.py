"""The forge that a brain's remote is on, which opens and merges pull requests: GitHub, its Enterprise, or GitLab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from nugget.config import Environment
from nugget.infra import github, gitlab
from nugget.infra.github import PullRequest


class Forge(Protocol):
    """A repository on a forge, whose merge requests count as pull requests. Every method raises ForgeError."""

    def current_name(self) -> str:
        """Return the repository's name now, which differs after a rename."""

    def find_pull(self, branch: str) -> PullRequest | None:
        """Return the pull request of a branch: the open one, else the latest, or None."""

    def pull(self, number: int) -> PullRequest:
        """Return a pull request by its number."""

    def open_pull(self, branch: str, *, base: str, title: str, body: str) -> PullRequest:
        """Open a pull request, or return the one that exists."""

    def merge_pull(self, number: int, *, head: str) -> str:
        """Merge a pull request whose branch still ends in `head`; return the new commit."""

    def edit_pull(self, number: int, *, title: str, body: str) -> None:
        """Give a pull request another title and text."""

    def label(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to a pull request; new ones are created."""

    def close_pull(self, number: int, *, comment: str) -> PullRequest:
        """Close a pull request with a comment, unless it is closed already."""


class Found(NamedTuple):
    """The forge of a remote: the repository's name there, the token, and how to open a repository by name."""

    name: str
    token: str
    open: Callable[[str], Forge]  # the SDKs take a while to import


def find(url: str, environment: Environment) -> Found | str:
    """Return the forge of a remote's address, or why there is none. Makes no network call."""
    api_url = environment.github_api_url
    if name := github.repository_name(url, api_url=api_url):
        if (token := github.find_token(environment)) is None:
            return "there is no GitHub token (GITHUB_TOKEN, or `gh auth login`)"
        return Found(name, token, partial(github.Repository, token=token, api_url=api_url))
    if name := gitlab.project_path(url, server=gitlab.server_of(environment)):
        if (token := gitlab.find_token(environment)) is None:
            return "there is no GitLab token (GITLAB_TOKEN)"
        return Found(name, token, partial(gitlab.Project, token=token, server=gitlab.server_of(environment)))
    hosts = f"{github.web_host(api_url)} or {urlsplit(gitlab.server_of(environment)).hostname}"
    return f"is not on {hosts}"


def may_see_token(url: str, environment: Environment) -> bool:
    """Return True if a token may be sent to a remote: encrypted, or to the very server that the settings name."""
    servers = [environment.github_api_url, environment.variables.get(gitlab.SERVER_VARIABLE)]
    named = {urlsplit(server).netloc for server in servers if server}
    return url.startswith("https://") or urlsplit(url).netloc.rpartition("@")[2] in named
