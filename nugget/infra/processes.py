"""Processes that outlive the command that starts them, and a time limit for a block of code.

Standard library only, for the hook's sake.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

STARTED: list[int] = []
"""Ids of detached processes that have not been seen to end."""


class OutOfTime(BaseException):
    """The limit of a block is over. Not an OSError, as TimeoutError is: code that reads files goes on after those."""


def start_detached(command: Sequence[str], *, keep: int, variables: Mapping[str, str] | None = None) -> None:
    """Start a process in a session of its own, which neither the caller's exit nor a hang-up reaches.

    It inherits the descriptor `keep`, such as that of a lock, and gets `variables` on top of the environment.
    """
    every = {**os.environ, **(variables or {})}
    if not hasattr(os, "posix_spawn"):
        import subprocess

        flags = 0x00000008 | 0x00000200  # DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP
        subprocess.Popen(command, env=every, creationflags=flags, close_fds=True)
        return
    _forget_ended()
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
    ]
    os.set_inheritable(keep, True)
    try:
        process = os.posix_spawn(command[0], list(command), every, file_actions=streams, setsid=True)
    except NotImplementedError:  # the system cannot make a session while it starts a process
        process = os.posix_spawn(command[0], list(command), every, file_actions=streams)
    finally:
        os.set_inheritable(keep, False)
    STARTED.append(process)


def _forget_ended() -> None:
    """Collect the processes that have ended, which would otherwise stay as zombies of a long-lived server."""
    for process in [*STARTED]:
        with suppress(ChildProcessError):
            if os.waitpid(process, os.WNOHANG) == (0, 0):
                continue
        STARTED.remove(process)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError from a block that takes longer, in the middle of whatever it does.

    Without effect outside of the main thread, and on systems without interval timers.
    """
    import signal

    def give_up(*_: object) -> None:
        raise OutOfTime

    if not hasattr(signal, "setitimer"):
        yield
        return
    try:
        before = signal.signal(signal.SIGALRM, give_up)
    except ValueError:  # not the main thread
        yield
        return
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except OutOfTime:
        raise TimeoutError(f"it took longer than {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
