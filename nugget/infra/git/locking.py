"""The lock files of git itself: which there are, and waiting for them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from nugget.infra.git.process import PATIENCE_S, locked
from nugget.infra.git.reading import git_dir

_OF_CHECKOUT = ("index.lock", "HEAD.lock")
_OF_REPOSITORY = ("packed-refs.lock", "reftable/tables.list.lock", "config.lock")


def lock_files(repo: Path) -> list[Path]:
    """Return the lock files of git's own that are in its folder now (gitrepository-layout(5)).

    git deletes them when it has done its work; the lock of a git that was killed stays, and refuses every later one.
    """
    folder = git_dir(repo)
    shared = folder
    with suppress(OSError):  # a worktree of its own shares all but index and HEAD
        shared = Path(os.path.normpath(folder / (folder / "commondir").read_text("utf-8").strip()))
    named = [*(folder / name for name in _OF_CHECKOUT), *(shared / name for name in _OF_REPOSITORY)]
    return [*filter(os.path.lexists, named), *sorted((shared / "refs").rglob("*.lock"))]


def wait_until_free(repo: Path, *, wait_s: float = PATIENCE_S) -> None:
    """Wait until no other git process changes index or branches. Raises GitError if one still does after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while held := [lock for lock in lock_files(repo) if lock.name != "config.lock"]:
        if time.monotonic() > deadline:
            raise locked(repo, held[0])
        time.sleep(0.1)
