"""The files of sessions, before they are read."""

from __future__ import annotations

from pathlib import Path

from nugget.models import SessionFile


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
