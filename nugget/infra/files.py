"""Write Nugget's own files privately and atomically, under any umask, and start the processes that work on them.

Everything in `$NUGGET_HOME` and a brain's `.nugget` is created here, so that nobody else on the machine can read it.
Standard library only, because the hooks import it: they must end within a fraction of the 1.5 s that Claude Code gives
all SessionEnd hooks together.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from nugget.infra import system

TYPE_CHECKING = False  # `typing` costs a hook more than the rest of this module
if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO, Any, BinaryIO

GUARD = "NUGGET_CAPTURING"
"""Set for the worker and every process that it starts, so that sessions started by Nugget are not captured."""
WORKER_LOCK = "NUGGET_WORKER_LOCK"
"""Names the descriptor of the queue's lock, which a worker inherits."""
REVIEW_STATE = "review.json"
"""The file in the queue's folder with the numbers of waiting and merged proposals by brain."""
FOLLOW_EVERY_S = 300
"""Background processes check the remote of a brain at most this often."""
STARTED: list[int] = []
"""Ids of detached processes that are not known to have ended."""
_FILE_MODE, _FOLDER_MODE = 0o600, 0o700

StrPath = str | os.PathLike[str]


class OutOfTime(BaseException):
    """Raised when a block takes too long. It is not an OSError, which code that reads files would ignore."""


def private_folder(path: StrPath) -> None:
    """Make a folder and its missing parents, which only their owner can enter."""
    path = os.fspath(path)
    if not path or os.path.isdir(path):
        return
    if (parent := os.path.dirname(path)) != path:
        private_folder(parent)
    try:
        os.mkdir(path, _FOLDER_MODE)
        os.chmod(path, _FOLDER_MODE)  # a umask may have removed the owner's rights too
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def private_file(path: StrPath) -> None:
    """Make an empty private file unless it exists; an existing one is not opened.

    Closing any descriptor of a SQLite database would drop the locks that this process holds on it.
    """
    with suppress(FileExistsError):
        os.close(_open(path, os.O_WRONLY | os.O_EXCL))


def open_private(path: StrPath, mode: str) -> IO[Any]:
    """Open one of Nugget's private files as `open` does, in UTF-8 unless `mode` is binary; its folder is made first."""
    private_folder(os.path.dirname(path))
    text = {} if "b" in mode else {"encoding": "utf-8", "errors": "replace"}
    return open(path, mode, opener=_open, **text)  # type: ignore[call-overload,no-any-return]


def open_plain(path: StrPath) -> BinaryIO | None:
    """Open a file for reading, without following a link; return None if it is not a plain file. Raises OSError."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    opened = open(path, "rb", opener=lambda name, _: os.open(name, flags))  # noqa: SIM115 - the caller closes it
    if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        return opened
    opened.close()
    return None


def replace(path: StrPath, content: bytes, *, mode: int = _FILE_MODE) -> None:
    """Replace a file's content by fsync and rename: readers see the old or the new, never a part.

    A power cut may restore the old content, unless `sync_folder` is called afterwards.
    """
    folder, name = os.path.split(path)
    private_folder(folder)
    partial = os.path.join(folder, f".{name[:80]}.{os.getpid()}.{os.urandom(4).hex()}.partial")
    try:
        with open(partial, "xb", opener=_open) as file:
            file.write(content)
            file.flush()
            if mode != _FILE_MODE:
                os.chmod(partial, mode)
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def sync_folder(folder: StrPath) -> None:
    """Make renames in a folder durable, if the system can open folders."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def try_lock(path: StrPath, *, wait: bool = False) -> int | None:
    """Take a lock file; return the descriptor that holds it until closed, None if another process has it.

    The kernel drops the lock when its last holder dies, so a lock is never stale.
    """
    private_folder(os.path.dirname(path))
    descriptor = _open(path, os.O_RDWR)
    try:
        system.lock(descriptor, wait=wait)
    except OSError:
        os.close(descriptor)
        if wait:
            raise
        return None
    return descriptor


@contextmanager
def locked(path: StrPath, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file; with `wait=False`, raise BlockingIOError at once if another process has it."""
    descriptor = try_lock(path, wait=wait)
    if descriptor is None:
        raise BlockingIOError(f"{path} is locked")
    try:
        yield
    finally:
        os.close(descriptor)


def append_line(file: StrPath, line: Mapping[str, object], *, durable: bool = True, once: bool = False) -> None:
    """Append one line of JSON to a file; with `once` only a new one, with `durable` wait until it is on the disk.

    A line that a crash or a full disk cut short is ended first, so that it does not spoil the new one.
    """
    with locked(os.path.splitext(file)[0] + ".lock"), open_private(file, "ab+") as opened:
        if once and dict(line) in read_lines(file):
            return
        end = opened.seek(0, os.SEEK_END)
        if end:
            opened.seek(end - 1)
        prefix = b"\n" if end and opened.read(1) != b"\n" else b""
        opened.write(prefix + json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        opened.flush()
        if durable:
            os.fsync(opened.fileno())


def read_lines(file: StrPath) -> Iterator[dict[str, Any]]:
    """Yield every readable line of a file of JSON objects, oldest first; nothing if the file is missing."""
    with suppress(FileNotFoundError), open(file, "rb") as opened:
        for raw in opened:
            with suppress(ValueError):
                if isinstance(line := json.loads(raw), dict):
                    yield line


def is_due(stamp: StrPath, every_s: float) -> bool:
    """Return True if a file is missing, or its time is longer ago than this or in the future (clocks are corrected)."""
    return not (os.path.exists(stamp) and 0 <= time.time() - os.stat(stamp).st_mtime < every_s)


def make_queue(home: StrPath) -> str:
    """Make the queue's folder if it is missing, with a file whose time is that of its creation; return the folder."""
    queue = os.path.join(home, "queue")
    private_folder(queue)
    private_file(os.path.join(queue, "installed"))
    return queue


def queue_job(home: StrPath, job: Mapping[str, object], *, name: str = "") -> str:
    """Write one pending job, in place of one of the same name, and return its name.

    Raises OSError if the disk is full or not writable.
    """
    name = name or f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}.json"
    pending = os.path.join(make_queue(home), "pending")
    replace(os.path.join(pending, name), json.dumps(job).encode())
    sync_folder(pending)
    return name


def start_worker(home: StrPath, *arguments: str) -> bool:
    """Start a detached worker on the queue and return True, unless one is running.

    The lock is taken here and inherited, so of any number of hooks at the same moment one starts a worker.
    """
    if (lock := try_lock(os.path.join(home, "queue", "worker.lock"))) is None:
        return False
    try:
        command = [sys.executable, "-P", "-m", "nugget.app.worker", *arguments]
        # The worker changes its folder, which breaks relative paths. Threads of numpy beyond the first cost 50 ms.
        variables = {GUARD: "1", "NUGGET_HOME": os.path.abspath(home), "OPENBLAS_NUM_THREADS": "1"}
        inherited = {WORKER_LOCK: str(lock)} if system.IS_POSIX else {}
        if process := start_detached(command, keep=lock, variables={**variables, **inherited}):
            sign(lock, process)
    finally:
        os.close(lock)
    return True


def sign(lock: int, process: int) -> None:
    """Name the process that holds a lock in its file."""
    os.ftruncate(lock, 0)
    os.lseek(lock, 0, os.SEEK_SET)
    os.write(lock, b"%d" % process)


def start_detached(command: Sequence[str], *, keep: int, variables: Mapping[str, str] | None = None) -> int | None:
    """Start a process in a session of its own, which survives the caller's exit and a hang-up; return its id on POSIX.

    It inherits the descriptor `keep`, such as that of a lock, and gets `variables` on top of the environment.
    """
    # Ended processes would stay as zombies of a long-lived server.
    STARTED[:] = [process for process in STARTED if not system.has_ended(process)]
    if process := system.spawn(command, {**os.environ, **(variables or {})}, keep=keep):
        STARTED.append(process)
    return process


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError from a block that takes longer. Has no effect outside the main thread and on Windows."""

    def give_up(*_: object) -> None:
        raise OutOfTime

    stop = system.start_alarm(seconds, give_up)
    try:
        yield
    except OutOfTime:
        raise TimeoutError(f"it took longer than {seconds:g} s") from None
    finally:
        stop()


def resource(name: str) -> Path:
    """Return the path of a folder or file that ships with Nugget, such as `brain-template`."""
    from pathlib import Path

    from nugget.errors import NuggetError

    package = Path(__file__).parent.parent
    for candidate in (package / "_bundled" / name, package / name, package.parent / name):
        if candidate.exists():
            return candidate
    raise NuggetError(f"Nugget's own file {name} is missing.", hint="Install Nugget again.")


def is_inside(place: StrPath, folder: StrPath) -> bool:
    """Return True if no link leads from a place out of a folder."""
    root, real = (os.path.join(os.path.realpath(path), "") for path in (folder, place))
    return real.startswith(root)


def has_links(folder: Path) -> bool:
    """Return True if a folder is a link or holds one: then it is not one that only Nugget writes."""
    return any(map(os.path.islink, (folder, *folder.rglob("*"))))


def make_private(*roots: StrPath) -> list[str]:
    """Remove other users' rights from all of Nugget's files in and under `roots`; return those that changed."""
    changed = []
    for root in roots:
        inside = (os.path.join(folder, name) for folder, folders, files in os.walk(root) for name in (*folders, *files))
        for path in map(str, (root, *inside)):
            with suppress(OSError):
                status = os.lstat(path)
                is_ours = status.st_uid == system.user_id() and not stat.S_ISLNK(status.st_mode)
                if is_ours and status.st_mode & system.OTHERS:
                    os.chmod(path, stat.S_IMODE(status.st_mode) & ~system.OTHERS)
                    changed.append(path)
    return changed


def _open(path: StrPath, flags: int) -> int:
    """Open a file, creating it if it is missing; an own file that others can read becomes private."""
    descriptor = os.open(path, flags | os.O_CREAT, _FILE_MODE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) != _FILE_MODE and found.st_uid == system.user_id():
        system.make_private(descriptor, _FILE_MODE)
    return descriptor
