"""The files of sessions before they are read, and how far they have been read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nugget.models import SessionFile

_PRINT_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """How far a file has been read: `offset` bytes, with prints of its first bytes and of those before the offset."""

    offset: int = 0
    head: str = ""
    before: str = ""


def split_locator(path: Path) -> tuple[Path, str | None]:
    """The file that a locator names, and the id behind its `#`; a file that is there is never split."""
    file, mark, name = str(path).rpartition("#")
    return (Path(file), name) if mark and name and not path.exists() and Path(file).is_file() else (path, None)


def session_file(path: Path, *, agent: str, name: str) -> SessionFile | None:
    """The value for a file with a session of its own; None where it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return SessionFile(path=path, agent=agent, id=name, mtime=stat.st_mtime, size=stat.st_size)


def resumed(file: BinaryIO, place: FilePlace, size: int) -> tuple[FilePlace, bool]:
    """Return where to go on, and whether that is the beginning again of a file that was read before."""
    if place.offset and (size < place.offset or place_of(file, place.offset) != place):
        return FilePlace(), True
    return place, False


def place_of(file: BinaryIO, offset: int) -> FilePlace:
    """Return the place at an offset of a file, with its prints."""
    file.seek(0)
    head = file.read(min(_PRINT_BYTES, offset))
    file.seek(max(0, offset - _PRINT_BYTES))
    before = file.read(min(_PRINT_BYTES, offset))
    return FilePlace(offset=offset, head=_print_of(head), before=_print_of(before))


def _print_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
