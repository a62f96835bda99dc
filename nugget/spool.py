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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

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
    private_folder(queue)
    with suppress(FileExistsError):
        os.close(os.open(os.path.join(queue, "installed"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return queue


def private_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder, and those above it that are not there yet, so that nobody else can look into them."""
    path = os.fspath(path)
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        private_folder(above)
    os.makedirs(path, mode=0o700, exist_ok=True)


def put(home: str | os.PathLike[str], job: Mapping[str, object]) -> str:
    """Write one pending job so that it is there whole, or not at all, whatever happens; returns its name.

    Raises OSError when the disk is full or not writable.
    """
    make_queue(home)
    name = f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}.json"
    pending = os.path.join(queue_folder(home), "pending")
    replace(os.path.join(pending, name), json.dumps(job).encode())
    sync_folder(pending)
    return name


def replace(path: str | os.PathLike[str], content: bytes) -> None:
    """Give the file `path` this content by fsync and rename: readers see the old or the new, never a part.

    A power cut may bring the old back; who cannot have that calls `sync_folder`.
    """
    folder, name = os.path.split(path)
    private_folder(folder)
    partial = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            os.unlink(partial)
        raise


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make renames in a folder durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(path: str | os.PathLike[str], *, wait: bool = False) -> int | None:
    """Take the lock file `path`: a descriptor that holds it until closed, None where another process has it.

    The kernel drops the lock when its last holder dies, so a lock is never stale.
    """
    private_folder(os.path.dirname(path))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        else:
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        os.close(descriptor)
        if wait:
            raise
        return None
    return descriptor


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock file `path`, waiting for it as long as it takes."""
    descriptor = try_lock(path, wait=True)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def start_worker(home: str | os.PathLike[str], *arguments: str, python: str = "") -> bool:
    """Start one detached worker on this queue unless one is at work; True when it was started.

    The lock is taken here and inherited, so of any number of hooks at the same moment one starts a worker.
    """
    lock = try_lock(os.path.join(queue_folder(home), "worker.lock"))
    if lock is None:
        return False
    try:
        command = [python or sys.executable, "-P", "-m", "nugget.worker", *arguments]
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
