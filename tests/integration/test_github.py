"""The gateway to GitHub: the real PyGithub against a server on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_github import NAME, OWNER, TOKEN, GitHubServer

from nugget.config import read_environment
from nugget.errors import ForgeError
from nugget.infra.github import Repository, find_token, repository_name
from nugget.infra.remotes import may_see_token

BRANCH = "nugget/session-20260301-120000-0a1b2c3d"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitHubServer]:
    with GitHubServer(tmp_path / "github") as running:
        running.commit("main", {"README.md": "hello\n"})
        running.git("update-ref", f"refs/heads/{BRANCH}", "refs/heads/main")
        running.commit(BRANCH, {"domains/coding/a.md": "a\n"})
        yield running


def connect(server: GitHubServer) -> Repository:
    return Repository(f"{OWNER}/{NAME}", token=TOKEN, api_url=server.api_url)


def test_only_a_remote_on_github_has_a_name_there() -> None:
    for url in ("https://x:secret@github.com/a/b.c/", "git@github.com:a/b.c.git", "ssh://git@ssh.github.com:443/a/b.c"):
        assert repository_name(url, api_url=None) == "a/b.c"
    for url in (
        "https://github.com.evil.example/a/b",
        "https://evil.example/github.com/a",
        "file:///srv/github.com/a/b",
    ):
        assert repository_name(url, api_url=None) is None


@pytest.mark.proves("GITHUB-TOKEN")
def test_a_token_travels_encrypted_or_to_the_api_server_itself() -> None:
    assert may_see_token("https://github.com/acme/brain", read_environment({}))
    assert not may_see_token("http://github.com/acme/brain", read_environment({}))
    assert not may_see_token("ssh://git@github.com/acme/brain", read_environment({}))
    own = read_environment({"GITHUB_API_URL": "http://127.0.0.1:80/api/v3"})
    assert may_see_token("http://127.0.0.1:80/a/b", own) and not may_see_token("http://127.0.0.1:81/a/b", own)


@pytest.mark.proves("GITHUB-TOKEN")
def test_the_token_is_that_of_the_environment_else_of_gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    command = tmp_path / "gh"
    assert find_token(read_environment({"PATH": str(tmp_path)})) is None
    command.write_text('#!/bin/sh\n[ "$*" = "auth token --hostname github.com" ] && echo gho_from_gh\n')
    command.chmod(0o755)
    assert find_token(read_environment({"PATH": str(tmp_path)})) == "gho_from_gh"
    assert find_token(read_environment({"PATH": str(tmp_path), "GITHUB_TOKEN": "ghp_mine"})) == "ghp_mine"
    assert "ghp_mine" not in repr(read_environment({"GITHUB_TOKEN": "ghp_mine"}))


@pytest.mark.proves("GITHUB-WAITS")
def test_a_rate_limit_is_waited_for_as_long_as_github_asks(server: GitHubServer) -> None:
    server.fail(403, message="You have exceeded a secondary rate limit.", headers={"Retry-After": "1"})
    server.fail(429, message="too many", headers={"Retry-After": "1"})
    server.fail(502)
    started = time.monotonic()
    made = connect(server).open_pull(BRANCH, base="main", title="T", body="B")
    assert time.monotonic() - started >= 2
    assert made.state == "open" and len(server.pulls) == 1
    server.fail(429, message="too many", headers={"Retry-After": "3600"})
    with pytest.raises(ForgeError, match="rate limit is used up for another 3600 s"):
        connect(server).pull(1)


@pytest.mark.proves("GITHUB-SENTENCE", "GITHUB-TOKEN")
def test_every_refusal_is_one_sentence_without_the_token(server: GitHubServer) -> None:
    cases = [
        (403, f"not for {TOKEN} \x1b[31m", "may not do that in acme/brain"),
        (422, "Validation Failed", "refused with 422: Validation Failed"),
    ]
    for status, message, said in cases:
        repository = connect(server)
        server.fail(status, message=message)
        with pytest.raises(ForgeError, match=said) as failure:
            repository.find_pull(BRANCH)
        assert TOKEN not in str(failure.value) and str(failure.value).isprintable()
    server.fail(500, times=4, message="oops")
    with pytest.raises(ForgeError, match="a fault of its own"):
        connect(server).find_pull(BRANCH)
    assert connect(server).find_pull(BRANCH) is None, "four tries were made"


@pytest.mark.proves("GITHUB-MERGE")
def test_a_pull_request_is_merged_as_the_repository_allows_and_a_refusal_names_its_page(server: GitHubServer) -> None:
    repository = connect(server)
    made = repository.open_pull(BRANCH, base="main", title="T", body="B")
    server.forbids_merging = 'Required status check "lint" is failing.'
    with pytest.raises(ForgeError, match=r"cannot be merged now.*\"lint\" is failing") as refusal:
        repository.merge_pull(made.number, head=made.head)
    assert refusal.value.hint == f"See {made.url}"
    server.forbids_merging = ""
    with pytest.raises(ForgeError, match="Head branch was modified"):
        repository.merge_pull(made.number, head="0" * 40)
    server.methods["merge"] = False
    merged = connect(server).merge_pull(made.number, head=made.head)
    (asked,) = [one for one in server.asked("PUT", "/merge") if one.body["sha"] == made.head][1:]
    assert asked.body["merge_method"] == "squash" and server.head("main") == merged
    assert server.git("rev-list", "--parents", "-1", merged).count(" ") == 1


@pytest.mark.proves("GITHUB-TOKEN")
@pytest.mark.parametrize("status", [301, 307])
def test_the_token_follows_no_redirect_to_another_host(status: int, server: GitHubServer, tmp_path: Path) -> None:
    with GitHubServer(tmp_path / "elsewhere") as elsewhere:
        server.fail(status, headers={"Location": elsewhere.api_url.replace("127.0.0.1", "localhost")})
        with pytest.raises(ForgeError):
            connect(server).pull(1)
        assert elsewhere.requests == []
