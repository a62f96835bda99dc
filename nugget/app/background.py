"""Work that outlives the command: one detached sync for many changes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from nugget.app.local_sources import LOCAL_LOCK
from nugget.infra import files

if TYPE_CHECKING:
    from nugget.app import Brain


def sync_in_background(brain: Brain, *, source: str = "brain") -> bool:
    """Start a `nugget sync` of the brain, or of `machine`, that outlives this process; False if one is at work.

    The new process takes the lock of that sync as soon as it has started. Until then, and for as long as it lives, it
    holds another one, which is taken here and inherited: of any number of commands at once one starts a process.
    """
    lock_file = brain.index_folder / "sync.lock" if source == "brain" else brain.environment.home / LOCAL_LOCK
    lock = files.try_lock(lock_file.with_suffix(".started"))
    if lock is None:
        return False
    try:
        others = files.try_lock(lock_file)
        if others is None:
            return False
        os.close(others)
        arguments = ["--brain", str(brain.path), "sync", "--source", source]
        files.start_detached([sys.executable, "-P", "-m", "nugget", *arguments], keep=lock)
    finally:
        os.close(lock)
    return True
