"""Work that outlives the command: one detached sync for a brain with many changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nugget import spool
from nugget.config import Environment

_STARTED: list[object] = []
"""Nobody waits for these; kept, because Python takes a forgotten child for a mistake."""


def sync_in_background(brain: Path, environment: Environment) -> bool:
    """Start a `nugget sync` that outlives this process; False when one is at work already."""
    import subprocess

    from nugget.sync import index_folder

    lock = spool.try_lock(index_folder(brain, environment) / "sync.lock")
    if lock is None:
        return False
    os.close(lock)
    _STARTED.append(
        subprocess.Popen(
            [sys.executable, "-P", "-m", "nugget.entry", "--brain", str(brain), "sync"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=brain,
            start_new_session=True,
        )
    )
    return True
