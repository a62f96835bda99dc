"""The files of logs before they are read, and how far they have been read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nugget.config import AgentSettings, Environment, absolute_folder, load_settings
from nugget.models import SessionFile

_PRINT_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolders:
    """Folders where the agents other than Claude Code keep their sessions."""

    codex: Path
    gemini: Path
    cursor_projects: Path
    cursor_user: Path
    opencode: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file with its size and times. `part` names the subagent whose transcript it is."""

    path: str
    size: int
    mtime_ns: int
    mtime: float = 0.0
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """How far a file has been read: `offset` bytes, with prints of its first bytes and of those before the offset."""

    offset: int = 0
    head: str = ""
    before: str = ""


def agent_folders(environment: Environment, settings: AgentSettings | None = None) -> AgentFolders:
    """Return the folders by the settings (by default this machine's), else by the agents' own variables."""
    env = environment.variables
    chosen = load_settings(environment).agents if settings is None else settings
    user_home = Path(env.get("HOME") or Path.home())

    def place(setting: str, fallback: Path) -> Path:
        return absolute_folder(setting, user_home=user_home) if setting else fallback

    on_mac = user_home / "Library/Application Support/Cursor/User"
    config = Path(env.get("XDG_CONFIG_HOME") or user_home / ".config")
    return AgentFolders(
        codex=place(chosen.codex, Path(env.get("CODEX_HOME") or user_home / ".codex")),
        gemini=place(chosen.gemini, Path(env.get("GEMINI_CLI_HOME") or user_home) / ".gemini"),
        cursor_projects=user_home / ".cursor/projects",
        cursor_user=place(chosen.cursor, on_mac if on_mac.is_dir() else config / "Cursor/User"),
        opencode=place(chosen.opencode, Path(env.get("XDG_DATA_HOME") or user_home / ".local/share") / "opencode"),
    )


def list_folder(folder: str | os.DirEntry[str] | Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder by name; none if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return


def find_file(entry: os.DirEntry[str] | Path, part: str = "") -> LogFile | None:
    """Return the file of an entry; None if it is not a plain file or cannot be looked at."""
    try:
        state = entry.stat()
        if not entry.is_file():
            return None
    except OSError:
        return None
    return LogFile(
        path=os.fspath(entry), size=state.st_size, mtime_ns=state.st_mtime_ns, mtime=state.st_mtime, part=part
    )


def split_locator(path: Path) -> tuple[Path, str | None]:
    """Split `FILE#ID` into the file and the id; a path that exists is never split."""
    file, mark, name = str(path).rpartition("#")
    return (Path(file), name) if mark and name and not path.exists() and Path(file).is_file() else (path, None)


def session_file(path: Path, *, agent: str, name: str) -> SessionFile | None:
    """Return the value for a file with a session of its own; None if it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return SessionFile(path=path, agent=agent, id=name, mtime=stat.st_mtime, size=stat.st_size)


def resumed(file: BinaryIO, place: FilePlace, size: int) -> tuple[FilePlace, bool]:
    """Return where to go on, and whether the file was replaced and has to be read from its beginning."""
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
