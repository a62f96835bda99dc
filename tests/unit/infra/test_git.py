"""git, as Nugget uses it: real repositories, nothing of the user touched; one identity for a repository."""

import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from knowledge_files import commit, shell, write

from nugget.infra import git
from nugget.infra.workspace import find_workspace, relative_path

NOW = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git.init(folder)
    write(folder, "domains/coding/patterns/retry.md", "# Retry\n")
    write(folder, "brain.yaml", "owner: me\n")
    commit(folder, ["domains/coding/patterns/retry.md", "brain.yaml"], "First")
    return folder


def snapshot(repo: Path) -> tuple[str, str, str, bytes]:
    """Everything of the user's that a proposal must leave alone: HEAD, branch, status, index."""
    index = git.run(repo, "ls-files", "--stage")
    return shell(repo, "rev-parse", "HEAD"), shell(repo, "branch", "--show-current"), shell(repo, "status", "-s"), index


@pytest.mark.proves("CAPTURE-UNTOUCHED")
def test_a_branch_is_made_without_touching_checkout_index_or_hooks(repo):
    hook = repo / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {repo}/HOOK-RAN\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    write(repo, "brain.yaml", "owner: someone in the middle of an edit\n")
    write(repo, "staged.txt", "x")
    shell(repo, "add", "staged.txt")
    (repo / "HOOK-RAN").unlink(missing_ok=True)
    before = snapshot(repo)
    path = 'domains/coding/bugs/quote " and \\ and ü.md'
    sha = git.create_branch(
        repo, "nugget/session-1", files={path: b"# Bug\n", "domains/coding/patterns/retry.md": None},
        message="Knowledge\n\nNugget-Session: abc\n", now=NOW,
    )  # fmt: skip
    assert snapshot(repo) == before and not (repo / "HOOK-RAN").exists()
    assert set(git.files_at(repo, "nugget/session-1")) == {path, "brain.yaml"}
    assert git.read_blob(repo, sha, path) == b"# Bug\n"
    assert shell(repo, "log", "-1", "--format=%an <%ae> %cI", sha).startswith(
        "Test Person <test@example.invalid> 2026-03-01T12:30:05"
    )
    assert git.has_commit_with(repo, "Nugget-Session: abc")


def make_repository(folder: Path, *, remote: str | None = None) -> Path:
    folder.mkdir(parents=True)
    shell(folder, "init", "-q")
    (folder / "README.md").write_text(f"# {folder}\n", "utf-8")
    shell(folder, "add", "-A")
    shell(folder, "commit", "-q", "-m", "First")
    if remote:
        shell(folder, "remote", "add", "origin", remote)
    return folder


@pytest.mark.proves("PROVENANCE-WORKSPACE")
@pytest.mark.parametrize("url", [
    "git@github.com:acme/shop.git", "git@github.com-work:acme/shop.git", "ssh://git@ssh.github.com:443/acme/shop.git",
    "https://github.com/acme/shop.git/", "https://ghp_secret:x-oauth-basic@github.com:443//acme/shop.git",
])  # fmt: skip
def test_clones_of_one_remote_have_one_identity_however_its_address_is_written(tmp_path, url):
    one = find_workspace(make_repository(tmp_path / "one", remote="https://github.com/acme/shop.git"))
    other = find_workspace(make_repository(tmp_path / "other place", remote=url))
    assert one.identity == other.identity
    assert re.fullmatch(r"github\.com-acme-shop-[0-9a-f]{8}", one.identity)
    assert one.name == other.name == "shop" and other.root == tmp_path / "other place"
    renamed = find_workspace(other.root.rename(tmp_path / "renamed"))
    gone = (find_workspace(renamed.root / name).identity for name in (".claude/worktrees/agent-1", "x" * 300))
    assert {renamed.identity, *gone} == {one.identity}


@pytest.mark.proves("PROVENANCE-BAD-INPUT")
def test_paths_are_relative_to_the_workspace_and_those_outside_are_none(tmp_path):
    repo = make_repository(tmp_path / "repo")
    (tmp_path / "link").symlink_to(repo)
    workspace = find_workspace(repo)
    inside = {
        f"{repo}/src/a.py": "src/a.py", "src/../b.py": "b.py", f"{tmp_path}/link/src/a.py": "src/a.py",
        f"{repo}/.claude/worktrees/agent-1/src/a.py": "src/a.py", f"{repo}/Größe und Maß.md": "Größe und Maß.md",
    }  # fmt: skip
    assert {path: relative_path(workspace, path) for path in inside} == inside
    assert relative_path(workspace, "a.py", folder=str(repo / "src")) == "src/a.py"
    outside = ["/etc/passwd", "../x", f"{repo}-two/a.py", str(repo), "", "a\0b", f"{repo}/.git/config", "~/x"]
    assert [relative_path(workspace, path) for path in outside] == [None] * len(outside)
