"""One writer at a time: Nugget's own writers of a checkout wait for each other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nugget.errors import ConflictError
from nugget.git.reading import git_dir, is_repository
from nugget.spool import try_lock

_LOCK = "nugget.lock"


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
