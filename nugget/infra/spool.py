"""The files of the capture queue and the worker's start: standard library only, for the hook's sake.

The hook must end within a fraction of the 1.5 s that Claude Code gives all SessionEnd hooks together, so this
module imports nothing that costs more than a millisecond or two. One job is one JSON file; the folder that it
lies in is its state; it moves between states by rename.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from nugget.infra import files

STATES = ("pending", "running", "failed", "done", "skipped")
GUARD = "NUGGET_CAPTURING"
"""Set for the worker and so for every process that it starts: a session that we started is not captured."""
WORKER_LOCK = "NUGGET_WORKER_LOCK"
"""Names the descriptor of the queue's lock that a worker inherits from who started it."""


def queue_folder(home: str | os.PathLike[str]) -> str:
    """The queue of a NUGGET_HOME."""
    return os.path.join(home, "queue")


def make_queue(home: str | os.PathLike[str]) -> str:
    """Make the queue's folder where it is not there yet, with a file whose time says since when it exists."""
    queue = queue_folder(home)
    files.private_folder(queue)
    files.private_file(os.path.join(queue, "installed"))
    return queue


def put(home: str | os.PathLike[str], job: Mapping[str, object]) -> str:
    """Write one pending job atomically; return its name.

    Raises OSError when the disk is full or not writable.
    """
    make_queue(home)
    name = f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}.json"
    pending = os.path.join(queue_folder(home), "pending")
    files.replace(os.path.join(pending, name), json.dumps(job).encode())
    files.sync_folder(pending)
    return name


def start_worker(home: str | os.PathLike[str], *arguments: str, python: str = "") -> bool:
    """Start one detached worker on this queue unless one is at work; True when it was started.

    The lock is taken here and inherited, so of any number of hooks at the same moment one starts a worker.
    """
    lock = files.try_lock(os.path.join(queue_folder(home), "worker.lock"))
    if lock is None:
        return False
    try:
        command = [python or sys.executable, "-P", "-m", "nugget.app.worker", *arguments]
        # One thread is enough for what numpy does here, and starting more costs 50 ms.
        ours = {GUARD: "1", WORKER_LOCK: str(lock), "OPENBLAS_NUM_THREADS": "1"}
        ours["NUGGET_HOME"] = os.path.abspath(home)  # the worker leaves the folder that a relative one is meant from
        _start_detached(command, {**os.environ, **ours}, keep=lock)
    finally:
        os.close(lock)
    return True


def _start_detached(command: Sequence[str], variables: Mapping[str, str], *, keep: int) -> None:
    """Start a process in a session of its own, which neither the client's exit nor a hang-up reaches."""
    if not hasattr(os, "posix_spawn"):
        import subprocess

        flags = 0x00000008 | 0x00000200  # DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP
        unlocked = {name: value for name, value in variables.items() if name != WORKER_LOCK}
        subprocess.Popen(command, env=unlocked, creationflags=flags, close_fds=True)
        return
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
    ]
    os.set_inheritable(keep, True)
    try:
        os.posix_spawn(command[0], list(command), dict(variables), file_actions=streams, setsid=True)
    except NotImplementedError:
        # Where the system cannot do it at the start, the worker makes a session of its own.
        os.posix_spawn(command[0], list(command), dict(variables), file_actions=streams)
    finally:
        os.set_inheritable(keep, False)
