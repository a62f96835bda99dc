"""One writer at a time: Nugget's own writers of a checkout wait for each other, and for the locks of git itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nugget.errors import ConflictError
from nugget.infra.files import try_lock
from nugget.infra.git.process import PATIENCE_S, locked
from nugget.infra.git.reading import git_dir, is_repository

_LOCK = "nugget.lock"
_OF_CHECKOUT = ("index.lock", "HEAD.lock")
_OF_REPOSITORY = ("packed-refs.lock", "reftable/tables.list.lock", "config.lock")


@contextmanager
def only_writer(repo: Path, *, wait_s: float = 60.0) -> Iterator[None]:
    """Hold the one lock of all that Nugget writes into this checkout and its index, waiting for it so many seconds.

    git has no such lock: two commits at the same time fail on each other's `index.lock`. A folder that cannot be
    written needs none. Not to be held twice by one process. Raises ConflictError when another has it for too long.
    """
    held = _wait(repo, wait_s)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def lock_files(repo: Path) -> list[Path]:
    """The lock files of git's own that are in its folder now, beside what they lock (gitrepository-layout(5)).

    git deletes them when it has done its work; one whose git was killed stays, and refuses every later one.
    """
    folder = git_dir(repo)
    shared = folder
    with suppress(OSError):  # a worktree of its own shares all but index and HEAD
        shared = Path(os.path.normpath(folder / (folder / "commondir").read_text("utf-8").strip()))
    named = [*(folder / name for name in _OF_CHECKOUT), *(shared / name for name in _OF_REPOSITORY)]
    return [*filter(os.path.lexists, named), *sorted((shared / "refs").rglob("*.lock"))]


def wait_until_free(repo: Path, *, wait_s: float = PATIENCE_S) -> None:
    """Wait until no other git process changes index or branches. Raises GitError where one still does after `wait_s`.

    Called before steps of which git could do some and then find the next one locked.
    """
    deadline = time.monotonic() + wait_s
    while held := [lock for lock in lock_files(repo) if lock.name != "config.lock"]:
        if time.monotonic() > deadline:
            raise locked(repo, held[0])
        time.sleep(0.1)


def _wait(repo: Path, wait_s: float) -> int | None:
    folder = git_dir(repo) if is_repository(repo) else repo / ".nugget"
    deadline = time.monotonic() + wait_s
    with suppress(OSError):
        while (held := try_lock(folder / _LOCK)) is None:
            if time.monotonic() > deadline:
                hint = "Try again when it is done; `ps` shows what it is."
                raise ConflictError(f"Another nugget has been writing in {repo} for {wait_s:g} s.", hint=hint)
            time.sleep(0.02)
        return held
    return None
