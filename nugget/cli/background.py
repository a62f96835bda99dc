"""Work that outlives the command: one detached sync for a brain with many changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nugget import spool
from nugget.config import Environment

MACHINE_LOCK = "machine-sync.lock"
"""Held in `$NUGGET_HOME` by whoever syncs what is searched beside the brain."""

_STARTED: list[object] = []
"""Nobody waits for these; kept, because Python takes a forgotten child for a mistake."""


def sync_in_background(brain: Path, environment: Environment) -> bool:
    """Start a `nugget sync` that outlives this process; False when one is at work already."""
    from nugget.sync import index_folder

    return _start(brain, index_folder(brain, environment) / "sync.lock", "sync", "--source", "brain")


def sync_machine_in_background(brain: Path, environment: Environment) -> bool:
    """Start a `nugget sync` of what is searched beside the brain; False when one is at work already."""
    return _start(brain, environment.home / MACHINE_LOCK, "sync", "--source", "machine")


def _start(brain: Path, lock_file: Path, *arguments: str) -> bool:
    import subprocess

    lock = spool.try_lock(lock_file)
    if lock is None:
        return False
    os.close(lock)
    _STARTED.append(
        subprocess.Popen(
            [sys.executable, "-P", "-m", "nugget.entry", "--brain", str(brain), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=brain,
            start_new_session=True,
        )
    )
    return True
