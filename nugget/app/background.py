"""Work that outlives the command: one detached sync for a brain with many changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nugget.app.local_sources import LOCAL_LOCK
from nugget.config import Environment
from nugget.infra import files


def sync_in_background(brain: Path, environment: Environment) -> bool:
    """Start a `nugget sync` that outlives this process; False when one is at work already."""
    from nugget.index.sync import index_folder

    return _start(brain, index_folder(brain, environment) / "sync.lock", "sync", "--source", "brain")


def sync_local_in_background(brain: Path, environment: Environment) -> bool:
    """Start a `nugget sync` of what is searched beside the brain; False when one is at work already."""
    return _start(brain, environment.home / LOCAL_LOCK, "sync", "--source", "machine")


def _start(brain: Path, lock_file: Path, *arguments: str) -> bool:
    """Start `nugget <arguments>`, unless a process that holds the lock file is at the same work.

    The new process takes that lock as soon as it has started. Until then, and for as long as it lives, it holds another
    one, which is taken here and inherited: of any number of commands at the same moment one starts a process.
    """
    lock = files.try_lock(lock_file.with_suffix(".started"))
    if lock is None:
        return False
    try:
        others = files.try_lock(lock_file)
        if others is None:
            return False
        os.close(others)
        files.start_detached([sys.executable, "-P", "-m", "nugget", "--brain", str(brain), *arguments], keep=lock)
    finally:
        os.close(lock)
    return True
