"""Remotes through GitPython: a bare repository, and GitHub's way of serving one on loopback."""

from __future__ import annotations

import os
import socketserver
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from knowledge_files import commit
from loopback_github import TOKEN, GitHubServer

from nugget.errors import ForgeError, GitError
from nugget.infra import git, remotes
from nugget.infra.github import Repository


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A brain and the bare repository that is its origin."""
    brain, bare = tmp_path / "brain", tmp_path / "bare.git"
    brain.mkdir()
    git.init(brain)
    (brain / "a.md").write_text("a\n")
    commit(brain, ["a.md"], "First")
    subprocess.run(["git", "init", "-q", "--bare", "--initial-branch=main", str(bare)], check=True)
    git.run(brain, "remote", "add", "origin", bare.as_uri())
    return brain, bare


def remote_of(brain: Path) -> remotes.Remote:
    found = remotes.find_remote(brain)
    assert found is not None
    return found


def test_commits_that_others_pushed_are_never_overwritten(pair: tuple[Path, Path]) -> None:
    brain, bare = pair
    remote, first = remote_of(brain), str(git.head(brain))
    remotes.push(brain, remote, first, branch="side")
    (brain / "a.md").write_text("b\n")
    second = commit(brain, ["a.md"], "Second")
    subprocess.run(["git", "-C", str(bare), "fetch", "-q", str(brain), "main:refs/heads/side"], check=True)
    assert not remotes.push(brain, remote, first, branch="side")
    assert not remotes.push(brain, remote, first, branch="side", replacing=first), "it moved since"
    assert remotes.push(brain, remote, first, branch="side", replacing=second)


@pytest.mark.proves("REMOTE-CLEAN")
def test_an_inherited_repository_hooks_and_prompts_have_no_effect(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brain, _ = pair
    hook = brain / ".git" / "hooks" / "pre-push"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\nexit 1\n")
    hook.chmod(0o755)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_QUARANTINE_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'broken")
    assert remotes.push(brain, remote_of(brain), str(git.head(brain)), branch="main")
    remotes.fetch(brain, remote_of(brain), "main")
    assert not (tmp_path / "hooked").exists() and not (tmp_path / "elsewhere").exists()


@pytest.mark.proves("GITHUB-TOKEN")
def test_the_token_is_a_header_for_one_address_and_stands_nowhere_else(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brain, _ = pair
    seen = tmp_path / "arguments"
    real = subprocess.run(["sh", "-c", "command -v git"], capture_output=True, text=True, check=True).stdout.strip()
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\necho "$@" >> {seen}\nexec {real} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent), prepend=os.pathsep)
    with GitHubServer(tmp_path / "github") as server:
        url = server.url.replace("://", "://me:hunter2@")
        git.run(brain, "remote", "set-url", "origin", server.url)
        remote = remotes.Remote(name="origin", url=server.url, token=TOKEN)
        assert remotes.push(brain, remote, str(git.head(brain)), branch="main")
        assert {request.token for request in server.requests} == {TOKEN}
        git.run(brain, "remote", "set-url", "origin", url)
        with pytest.raises(GitError) as failure:
            remotes.push(brain, remotes.Remote(name="origin", url=url, token=None), str(git.head(brain)), branch="x")
    said = f"{failure.value} {failure.value.hint}"
    assert "does not accept" in said and "hunter2" not in said and TOKEN not in said
    assert "push" in seen.read_text() and TOKEN not in seen.read_text()
    assert TOKEN not in (brain / ".git" / "config").read_text()


@pytest.mark.proves("GITHUB-TOKEN")
def test_the_token_follows_no_redirect(pair: tuple[Path, Path], tmp_path: Path) -> None:
    brain, _ = pair
    with GitHubServer(tmp_path / "named") as named, GitHubServer(tmp_path / "elsewhere") as elsewhere:
        elsewhere.commit("main", {"README.md": "hello\n"})
        there = elsewhere.url.replace("127.0.0.1", "localhost")
        git.run(brain, "remote", "set-url", "origin", named.url)
        remote = replace(remote_of(brain), token=TOKEN)
        for service, ask in (
            ("git-upload-pack", lambda: remotes.fetch(brain, remote, "main")),
            ("git-receive-pack", lambda: remotes.push(brain, remote, str(git.head(brain)), branch="main")),
        ):
            named.fail(301, headers={"Location": f"{there}/info/refs?service={service}"})
            with pytest.raises(GitError, match="redirects to another address"):
                ask()
        assert elsewhere.requests == []


@pytest.mark.proves("REMOTE-PROXY")
def test_git_and_github_go_through_the_proxy_of_the_environment(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    brain, _ = pair
    asked: list[bytes] = []

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline().split()[1])
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_address[1]}")
        monkeypatch.setenv("NO_PROXY", "")
        git.run(brain, "remote", "set-url", "origin", "https://git.invalid/acme/brain.git")
        with pytest.raises(GitError):
            remotes.fetch(brain, remote_of(brain), "main")
        with pytest.raises(ForgeError):
            Repository("acme/brain", token=TOKEN, api_url="https://api.invalid").current_name()
        proxy.shutdown()
    assert {*asked} == {b"git.invalid:443", b"api.invalid:443"}
