"""The differences between POSIX systems and Windows: only this module makes calls that Windows lacks.

Each docstring says what happens on Windows. Standard library only, because the hooks import it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

TYPE_CHECKING = False  # `typing` costs a hook more than this module
if TYPE_CHECKING:
    from typing import Any

IS_POSIX = hasattr(os, "posix_spawn")
"""False on Windows, detected by its calls and not by the system's name."""
OTHERS = 0o077 if IS_POSIX else 0
"""The rights of other users in a mode; none on Windows, where an ACL closes a user's folder to others."""
_LOCKED_BYTE = 1 << 30
"""The byte to lock on Windows, beyond the end of any lock file, since a locked byte cannot be read."""


def user_id() -> int:
    """Return the id of the user; 0 on Windows, as in every `stat` there."""
    return os.getuid() if IS_POSIX else 0


def is_own_group(group: int) -> bool:
    """Return True if the user is the only member of a group, as on many systems; always on Windows."""
    if not IS_POSIX:
        return True
    import grp
    import pwd

    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}


def make_private(descriptor: int, mode: int) -> None:
    """Set the mode of an open file; no effect on Windows, which only has a read-only flag."""
    if IS_POSIX:
        os.fchmod(descriptor, mode)


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file until it is closed, on Windows by a byte; raise OSError if another process holds it.

    With `wait`, wait for the other one; Windows gives up after ten seconds.
    """
    if IS_POSIX:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    from importlib import import_module

    windows = import_module("msvcrt")
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    windows.locking(descriptor, windows.LK_LOCK if wait else windows.LK_NBLCK, 1)
    os.lseek(descriptor, 0, os.SEEK_SET)


def spawn(command: Sequence[str], variables: Mapping[str, str], *, keep: int) -> int | None:
    """Start a process in a session of its own and return its id if it must be waited for.

    It inherits the descriptor `keep`. On Windows it inherits none, so that a lock ends with its holder.
    """
    if not IS_POSIX:
        flags = getattr(subprocess, "DETACHED_PROCESS", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        null = subprocess.DEVNULL
        subprocess.Popen(command, env=variables, stdin=null, stdout=null, stderr=null, creationflags=flags)
        return None
    files = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    os.set_inheritable(keep, True)
    try:
        return os.posix_spawn(command[0], list(command), variables, file_actions=files, setsid=True)
    finally:
        os.set_inheritable(keep, False)


def has_ended(process: int) -> bool:
    """Return True once a started process has ended and been waited for; always on Windows."""
    with suppress(ChildProcessError):
        return not IS_POSIX or os.waitpid(process, os.WNOHANG) != (0, 0)
    return True


def is_running(process: int) -> bool:
    """Return True if a process may exist; always on Windows, where the test would kill it."""
    if not IS_POSIX:
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def end_group(process: Any, *, gently: bool = False) -> None:
    """End a process group by its leader; on Windows the process alone."""
    if IS_POSIX:
        os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)
    else:
        process.kill()


def leave_session(max_memory_bytes: int) -> None:
    """Start a session, with low priority and limited memory; no effect on Windows."""
    if not IS_POSIX:
        return
    import resource

    with suppress(OSError):
        os.setsid()
    with suppress(OSError):
        os.nice(10)
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (max_memory_bytes, hard))


def start_alarm(seconds: float, ring: Callable[..., None]) -> Callable[[], None]:
    """Call `ring` in the main thread after a time, except on Windows and in other threads; return what cancels it."""
    if not IS_POSIX:
        return lambda: None
    try:
        before = signal.signal(signal.SIGALRM, ring)
    except ValueError:  # not the main thread
        return lambda: None
    signal.setitimer(signal.ITIMER_REAL, seconds)

    def stop() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    return stop


def unix_socket() -> socket.socket:
    """Return a Unix socket; on Windows raise OSError, so that each window of a client serves itself."""
    if not IS_POSIX:
        raise OSError("this system has no sockets with a file")
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def has_input(seconds: float) -> bool:
    """Return True if stdin can be read within a time; always on Windows, where reading a pipe blocks."""
    if not IS_POSIX:
        return True
    import select

    return bool(select.select([0], [], [], seconds)[0])
