"""A change of a brain is whole or not there: killed at any step, on a full disk, and beside the user's own work."""

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
import reviewing
from knowledge_files import commit, shell, write
from sessions import ScriptedExtraction, capture_into, unit, write_transcript

from nugget import brain as brains
from nugget.brain.filing import add_unit, forget_unit, move_unit
from nugget.capture import capture_transcript
from nugget.errors import GitError
from nugget.infra import git

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GIT = shutil.which("git")
KILLER = f"""#!/bin/sh
# git, which kills whoever called it the given number of times: before its work, or after it.
count=$(($(cat "$COUNT") + 1))
echo $count > "$COUNT"
[ $count = "$KILL_BEFORE" ] && kill -9 $PPID && exit 1
{GIT} "$@"
code=$?
[ $count = "$KILL_AFTER" ] && kill -9 $PPID
exit $code
"""
RETRY = unit("Retry idempotent calls only", "Retry a payment only with an idempotency key, or it charges twice.")
CACHE = unit("Expire caches by event", "Invalidate the cache when the event arrives, not by age.", type="concept")


@pytest.fixture
def own(tmp_path: Path, home: Path) -> Path:
    """A brain of linked units with a proposal, and work of the user's under way."""
    folder = brains.init_brain(tmp_path / "own", owner="Ada", now=NOW)[0]
    for slug, related in (("keys", ""), ("retry", "concept/keys"), ("queue", "concept/keys")):
        kind = "concept" if slug == "keys" else "pattern"
        edge = f"related:\n  - id: {related}\n    relation: uses\n" if related else ""
        text = f"---\nid: {kind}/{slug}\ntype: {kind}\ndomain: coding\n{edge}---\n# {slug}\n\nAbout {slug}.\n"
        write(folder, f"domains/coding/{kind}s/{slug}.md", text)
    commit(folder, ["domains"], "Linked")
    transcript = tmp_path / "session.jsonl"
    write_transcript(transcript, [("Why?", f"{RETRY.title}\n{CACHE.title}")])
    capture_transcript(transcript, capture_into(folder, home, ScriptedExtraction([RETRY, CACHE])))
    write(folder, "README.md", "changed, not staged")
    write(folder, "staged.txt", "staged")
    shell(folder, "add", "staged.txt")
    return folder


def add(brain: Path) -> object:
    return add_unit(brain, "Always set a timeout.", type="pattern", domain="coding", now=NOW)


def move(brain: Path) -> object:
    return move_unit(brain, "concept/keys", slug="idempotency-keys", domain="payments")


def accept(brain: Path) -> object:
    return reviewing.accept(brain, now=NOW)


def state(repo: Path) -> dict[str, object]:
    """Everything that a change may change, but for the moment of its commit."""
    branches = shell(repo, "for-each-ref", "--format=%(refname) %(tree) %(subject)", "refs/heads")
    files = {
        path.relative_to(repo).as_posix(): path.read_bytes()
        for path in sorted(repo.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }
    return {"branches": branches, "status": shell(repo, "status", "--porcelain"), "files": files}


def killed(brain: Path, change: Callable[[Path], object], killer: Path, **when: int) -> bool:
    """Make a change in a process of its own that is killed at a call of git; whether it got that far."""
    (killer / "count").write_text("0")
    process = os.fork()
    if process == 0:
        os.environ |= {"PATH": f"{killer}{os.pathsep}{os.environ['PATH']}", "COUNT": str(killer / "count")}
        os.environ |= {name: str(value) for name, value in when.items()}
        with suppress(BaseException):
            change(brain)
        os._exit(0)
    return os.waitpid(process, 0)[1] == signal.SIGKILL


@pytest.fixture
def killer(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(KILLER)
    (folder / "git").chmod(0o755)
    return folder


@pytest.mark.proves("WRITE-WHOLE")
@pytest.mark.parametrize("change", [move, accept])
def test_killed_before_any_call_of_git_it_is_there_whole_or_not_at_all(
    own: Path, tmp_path: Path, killer: Path, change: Callable[[Path], object]
) -> None:
    before = state(own)
    shutil.copytree(own, tmp_path / "done", symlinks=True)
    change(tmp_path / "done")
    after = state(tmp_path / "done")
    seen = set()
    for number in range(1, 100, 3):  # `make faults` tries each, and every other change
        copy = tmp_path / f"copy{number}"
        shutil.copytree(own, copy, symlinks=True)
        if not killed(copy, change, killer, KILL_BEFORE=number):
            break
        files = [path for path in (copy / "domains").rglob("*") if path.is_file()]
        assert all(path.suffix == ".md" and not path.name.startswith(".") for path in files)
        git.finish_pending(copy)
        found = state(copy)
        assert found in (before, after), f"killed before call {number}"
        seen.add(found == after)
        assert not (copy / ".git/nugget/work").exists() and not git.lock_files(copy)
        if found == before:
            change(copy)
            assert state(copy) == after
        shutil.rmtree(copy)
    assert seen >= {False, True}, "killed on both sides of the moment that counts"
    assert number > 5
    assert shell(own, "fsck", "--strict") == ""


@pytest.mark.proves("WRITE-WHOLE")
def test_locks_of_a_killed_update_of_branches_are_removed(own: Path, tmp_path: Path, killer: Path) -> None:
    """The wrapper stands for git: it makes the locks, and dies with its parent."""
    locks = [own / ".git" / name for name in ("refs/heads/main.lock", "HEAD.lock", "packed-refs.lock")]
    made = " ".join(f'"{lock}"' for lock in locks)
    mortal = f'case "$*" in *update-ref*) touch {made}; kill -9 $PPID; exit 1;; esac\n{GIT} "$@"\n'
    (killer / "git").write_text(f"#!/bin/sh\n{mortal}")
    assert killed(own, add, killer)
    assert all(lock.exists() for lock in locks)
    git.finish_pending(own)
    assert not git.lock_files(own)
    assert add(own)


@pytest.fixture
def half_moved(own: Path, killer: Path) -> Path:
    """The brain after a move of a unit that was killed when the branch had moved and no file had followed."""
    head = git.head(own)
    dying = f'case "$*" in *update-ref*) {GIT} "$@"; kill -9 $PPID; exit 1;; esac\n{GIT} "$@"\n'
    (killer / "git").write_text(f"#!/bin/sh\n{dying}")
    assert killed(own, move, killer) and git.head(own) != head
    return own


@pytest.mark.proves("WRITE-WHOLE")
def test_what_the_user_did_between_the_kill_and_the_next_command_stays(half_moved: Path) -> None:
    retry = half_moved / "domains/coding/patterns/retry.md"
    retry.write_text(retry.read_text() + "\nMine.\n")
    git.finish_pending(half_moved)
    assert retry.read_text().endswith("\nMine.\n")
    assert (half_moved / "domains/payments/concepts/idempotency-keys.md").exists()
    assert not (half_moved / "domains/coding/concepts/keys.md").exists()
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
