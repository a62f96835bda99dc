"""A change of a brain is whole or not there: where it was killed half way, and beside the user's own work.

tests/faults kills every command that writes at each of its calls, and of git's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from knowledge_files import linked_brain, shell, write
from programs import program

from nugget.brain.filing import add_unit, forget_unit, move_unit
from nugget.errors import GitError
from nugget.infra import git

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GIT = shutil.which("git")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A brain of linked units, and work of the user's under way."""
    return linked_brain(tmp_path / "own")


def add(brain: Path) -> object:
    return add_unit(brain, "Always set a timeout.", type="pattern", domain="coding", now=NOW)


def move(brain: Path) -> object:
    return move_unit(brain, "concept/keys", slug="idempotency-keys", domain="payments")


def killed(brain: Path, change: Callable[[Path], object], script: str) -> bool:
    """Make a change in a process of its own, in which this stands for git and kills it; whether it got that far."""
    wrapper = program(brain.with_name("bin") / "git", f'{script}\n{GIT} "$@"')
    process = os.fork()
    if process == 0:
        os.environ["PATH"] = f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}"
        with suppress(BaseException):
            change(brain)
        os._exit(0)
    return os.waitpid(process, 0)[1] == signal.SIGKILL


@pytest.mark.proves("WRITE-WHOLE")
def test_locks_of_a_killed_update_of_branches_are_removed(own: Path) -> None:
    """The wrapper stands for git: it makes the locks, and dies with its parent."""
    locks = [own / ".git" / name for name in ("refs/heads/main.lock", "HEAD.lock", "packed-refs.lock")]
    made = " ".join(f'"{lock}"' for lock in locks)
    assert killed(own, add, f'case "$*" in *update-ref*) touch {made}; kill -9 $PPID; exit 1;; esac')
    assert all(lock.exists() for lock in locks)
    git.finish_pending(own)
    assert not git.lock_files(own)
    assert add(own)


@pytest.fixture
def half_moved(own: Path) -> Path:
    """The brain after a move of a unit that was killed when the branch had moved and no file had followed."""
    head = git.head(own)
    assert killed(own, move, f'case "$*" in *update-ref*) {GIT} "$@"; kill -9 $PPID; exit 1;; esac')
    assert git.head(own) != head
    return own


@pytest.mark.proves("WRITE-WHOLE")
def test_what_the_user_did_between_the_kill_and_the_next_command_stays(half_moved: Path) -> None:
    retry = half_moved / "domains/coding/patterns/retry.md"
    retry.write_text(retry.read_text() + "\nMine.\n")
    git.finish_pending(half_moved)
    assert retry.read_text().endswith("\nMine.\n")
    assert (half_moved / "domains/payments/concepts/idempotency-keys.md").exists()
    assert shell(half_moved, "status", "--porcelain", "--", "domains") == " M domains/coding/patterns/retry.md\n"


@pytest.mark.proves("WRITE-WHOLE")
def test_a_commit_by_hand_cannot_undo_what_was_killed_half_way(half_moved: Path) -> None:
    command = ["git", "-C", str(half_moved), "commit", "-qam", "By hand"]
    by_hand = subprocess.run(command, capture_output=True, check=False)
    assert by_hand.returncode != 0 and b"index.lock" in by_hand.stderr
    git.finish_pending(half_moved)
    shell(half_moved, "commit", "-qam", "By hand")
    assert (half_moved / "domains/payments/concepts/idempotency-keys.md").exists()
    assert shell(half_moved, "status", "--porcelain") == ""


@pytest.mark.proves("WRITE-WHOLE")
def test_the_lock_of_another_git_is_neither_taken_nor_removed(own: Path) -> None:
    (own / ".git/index.lock").write_text("")
    with pytest.raises(GitError, match="locked by"):
        add(own)
    git.finish_pending(own)
    assert (own / ".git/index.lock").exists()
    (own / ".git/index.lock").unlink()
    assert add(own)


@pytest.mark.proves("BRAIN-UNCOMMITTED")
def test_unrelated_work_stays_as_it_is_also_where_git_converts_line_ends(own: Path) -> None:
    write(own, ".gitattributes", "*.md text eol=crlf\n")
    retry = own / "domains/coding/patterns/retry.md"
    retry.write_bytes(retry.read_bytes().replace(b"\n", b"\r\n"))
    before = shell(own, "status", "--porcelain")
    forget_unit(own, "concept/keys")
    assert shell(own, "status", "--porcelain") == before
    assert "concept/keys" not in retry.read_text()
