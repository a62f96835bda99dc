"""git, as Nugget uses it: real repositories, nothing of the user touched."""

from __future__ import annotations

import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from knowledge_files import commit, shell, write

from nugget.errors import ConflictError
from nugget.infra import git

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


def change(repo: Path, files: dict[str, bytes | None], message: str) -> None:
    git.commit_change(repo, files, message, branch="main", expect_head=git.head(repo))


def snapshot(repo: Path) -> tuple[str, str, str, bytes]:
    """Everything of the user's that a proposal must leave alone: HEAD, branch, status, index."""
    index = git.run(repo, "ls-files", "--stage")
    return shell(repo, "rev-parse", "HEAD"), shell(repo, "branch", "--show-current"), shell(repo, "status", "-s"), index


@pytest.mark.proves("CAPTURE-UNTOUCHED")
def test_a_branch_is_made_without_touching_checkout_index_or_hooks(repo: Path) -> None:
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
    assert snapshot(repo) == before
    assert not (repo / "HOOK-RAN").exists()
    assert set(git.files_at(repo, "nugget/session-1")) == {path, "brain.yaml"}
    assert git.read_blob(repo, sha, path) == b"# Bug\n"
    assert shell(repo, "log", "-1", "--format=%an <%ae> %cI", sha).startswith(
        "Test Person <test@example.invalid> 2026-03-01T12:30:05"
    )
    assert git.has_commit_with(repo, "Nugget-Session: abc")


def test_of_two_that_make_the_same_branch_one_wins(repo: Path) -> None:
    outcomes: list[str] = []

    def make(text: bytes) -> None:
        try:
            git.create_branch(repo, "nugget/session-1", files={"domains/a.md": text}, message="m", now=NOW)
            outcomes.append("made")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=make, args=(b"%d" % n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "refused", "refused", "refused"]
