"""Reading another program's SQLite database without touching it: no lock is taken, no file is made beside it.

A database at rest is opened as `immutable`. Where a write-ahead log waits beside it, both are copied first, since
reading the log in place would take locks and write to its index. The copies of a process are kept until it ends.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from nugget.errors import TranscriptError

MAX_COPIED_BYTES = 512 * 1024 * 1024
"""A bigger database is read without its log: the last minutes are missing until the program folds them in."""

MAGIC = b"SQLite format 3\0"

_TRIES = 3


@contextmanager
def open_snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to the database as it is now, for reading.

    Raises TranscriptError when it is absent, damaged or no database, also for what fails inside the block.
    """
    try:
        file = _at_rest(path)
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = lambda value: value.decode("utf-8", "replace")
            yield connection
    except sqlite3.Error as error:
        raise TranscriptError(f"{path} cannot be read as a database ({error}).") from error
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read ({error.strerror or error}).") from error


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the database has the table."""
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone())


def _at_rest(path: Path) -> Path:
    """Return the database itself, or a copy with its log folded in."""
    for _ in range(_TRIES):
        before = _state(path)
        if not before[3] or before[1] + before[3] > MAX_COPIED_BYTES:
            return path
        copy = _copy(path, before)
        if _state(path) == before:
            break
    return Path(copy.name) / path.name


def _state(path: Path) -> tuple[int, int, int, int]:
    """Time and size of the database and of its log; zeros without a log."""
    stat, log = path.stat(), path.with_name(f"{path.name}-wal")
    try:
        logged = log.stat()
    except OSError:
        return stat.st_mtime_ns, stat.st_size, 0, 0
    return stat.st_mtime_ns, stat.st_size, logged.st_mtime_ns, logged.st_size


@lru_cache(maxsize=4)
def _copy(path: Path, state: tuple[int, int, int, int]) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory(prefix="nugget-")
    copy = Path(folder.name) / path.name
    shutil.copyfile(path.with_name(f"{path.name}-wal"), f"{copy}-wal")
    shutil.copyfile(path, copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    return folder
