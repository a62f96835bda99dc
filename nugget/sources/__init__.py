"""Sources of units and sessions. Each has a module; none uses the index.

Here are the values that they return, and readers for the folders, files, JSON and databases of other programs. Such a
database is read without touching it: no lock is taken, no file is made next to it. At rest it is opened as
`immutable`. If it has a write-ahead log, both are copied first, since reading the log in place would take locks and
write to its index. The copies are kept until the process ends.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from nugget.config import Environment, Settings, absolute_folder, config_home, load_settings, user_home
from nugget.errors import TranscriptError, reason_of
from nugget.models import Problem, SessionFile, SourceName, Unit
from nugget.models.nuggets import SessionRecord

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longer lines are skipped; no client writes records of that size."""
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
"""Larger documents are refused, since a session in one JSON document is read whole."""
MAX_COPIED_BYTES = 512 * 1024 * 1024
"""A larger database is read without its log: the last minutes are missing until the program merges them."""
DATABASE_MAGIC = b"SQLite format 3\0"
ARCHIVE_ENDING = ".jsonl.gz"

UnitsRead = tuple[tuple[Unit, ...], tuple[Problem, ...], SessionRecord | None]
"""The units of a file and its problems; for a file of provenance, also its session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFiles:
    """Files that hold units, as (key, place); `content` gives the bytes of one, in which `read` finds the units.

    The `problems` of the last walk are reported with every search, `left_out` only when a person syncs.
    """

    name: SourceName
    files: Callable[[], Iterable[tuple[str, Path | str]]]
    content: Callable[[str, Path], bytes]
    read: Callable[[str, Path, bytes], UnitsRead]
    problems: list[Problem] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)


Log = tuple[SessionFile, ...]
"""The files of a session, shell or channel: its own first, then those of its subagents, or the streams of a shell."""


def source_of(log: Log) -> SourceName:
    """Return the source of a log: shell logs have the agent `shell`, channel files have none."""
    return {"shell": SourceName.SHELL, "": SourceName.BRIDGE}.get(log[0].agent, SourceName.SESSIONS)


def log_order(log: Log) -> tuple[int, Path, str]:
    """Return the key by which logs are sorted, most recently written last."""
    return max(file.mtime_ns for file in log), log[0].path, log[0].id


def agent_folders(environment: Environment, settings: Settings | None = None) -> dict[str, Path]:
    """Return the session folders of the other agents, from the settings or the agents' own variables."""
    env = environment.variables
    chosen = settings or load_settings(environment)
    user = user_home(environment)

    def place(setting: str, fallback: Path) -> Path:
        return absolute_folder(setting, user_home=user) if setting else fallback

    on_mac = user / "Library/Application Support/Cursor/User"
    return {
        "codex": place(chosen.agents_codex, Path(env.get("CODEX_HOME") or user / ".codex")),
        "gemini": place(chosen.agents_gemini, Path(env.get("GEMINI_CLI_HOME") or user) / ".gemini"),
        "cursor_projects": user / ".cursor/projects",
        "cursor": place(chosen.agents_cursor, on_mac if on_mac.is_dir() else config_home(environment) / "Cursor/User"),
        "opencode": place(chosen.agents_opencode, Path(env.get("XDG_DATA_HOME") or user / ".local/share") / "opencode"),
    }


def list_folder(folder: str | os.DirEntry[str] | Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder by name; none if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return


def session_file(entry: os.DirEntry[str] | Path, *, agent: str, name: str, part: str = "") -> SessionFile | None:
    """Return the value for a file of a session, or None if it is not a plain file or cannot be examined."""
    try:
        state = entry.stat()
        if not entry.is_file():
            return None
    except OSError:
        return None
    return SessionFile(
        path=Path(entry), agent=agent, id=name, mtime_ns=state.st_mtime_ns, size=state.st_size, part=part
    )


def split_locator(path: Path) -> tuple[Path, str | None]:
    """Split `FILE#ID` into the file and the id; a path that exists is never split."""
    file, mark, name = str(path).rpartition("#")
    return (Path(file), name) if mark and name and not path.exists() and Path(file).is_file() else (path, None)


def read_lines(file: BinaryIO, *, limit: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its length in the file, and None for a line longer than `limit`."""
    while line := file.readline(limit):
        length = len(line)
        is_long = length == limit and not line.endswith(b"\n")
        while is_long and (rest := file.readline(limit)):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
        yield length, None if is_long else line


def records_of(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the JSON object in each line that is not blank, or None for invalid lines. Raises TranscriptError."""
    try:
        with path.open("rb") as file:
            for _, line in read_lines(file):
                if line is None or line.strip():
                    yield parse_record(line) if line else None
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> TranscriptError:
    """Return the error for a file that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return TranscriptError(f"There is no transcript at {path}.", hint="The client may have deleted it.")
    return TranscriptError(f"{path} cannot be read ({error.strerror or error}).")


def read_document(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None for other JSON. Raises TranscriptError."""
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise TranscriptError(f"{path} is too big to be read ({path.stat().st_size >> 20} MB).")
        return parse_record(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error


def parse_record(line: str | bytes) -> dict[str, Any] | None:
    """Parse the JSON object in a line, a document or a column of a database; return None for anything else."""
    try:
        record = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text_of(value: object) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none if the value is not a list."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def blocks_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content blocks of a record's message; a plain string is one text block."""
    message = record.get("message")
    content = message.get("content") if isinstance(message, Mapping) else message
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects_in(content)


def joined_text(content: object, keys: Iterable[str] = ("text",)) -> str:
    """Return the text of a content: a string, or the texts of its parts."""
    parts = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Mapping):
            parts += [part[key] for key in keys if isinstance(part.get(key), str)]
    return "\n".join(parts)


def between(text: str, opening: str, closing: str) -> str:
    """Return the text between two marks; empty if one is missing."""
    inside, end, _ = text.partition(opening)[2].partition(closing)
    return inside if end else ""


def storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which neither UTF-8 files nor the index can store."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def parse_timestamp(value: object) -> datetime | None:
    """Parse a time in the formats of agents, ISO 8601 or milliseconds since the epoch; return None for others."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value / 1000, UTC)
        stamp = datetime.fromisoformat(text_of(value))
    except (OverflowError, ValueError, OSError):
        return None
    aware = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    return aware if date.min.year < stamp.year < date.max.year else None


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to another program's database as it is now, for reading.

    Raises TranscriptError if it is absent, damaged or not a database, even for failures inside the block.
    """
    try:
        sizes = [(file.stat().st_mtime_ns, file.stat().st_size) if file.exists() else (0, 0) for file in _parts(path)]
        is_copied = sizes[1][1] and sum(size for _, size in sizes) <= MAX_COPIED_BYTES
        file = Path(_copy(path, tuple(sizes)).name) / path.name if is_copied else path
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = lambda value: value.decode("utf-8", "replace")
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise TranscriptError(f"{path} {reason_of(error)}.") from error


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; none if the database lacks the table."""
    return {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def _parts(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-wal")


@lru_cache(maxsize=4)
def _copy(path: Path, state: tuple[tuple[int, int], ...]) -> TemporaryDirectory[str]:
    """Return a folder with a copy of a database in this state, including its write-ahead log."""
    folder = TemporaryDirectory(prefix="nugget-")
    for file in reversed(_parts(path)):
        shutil.copyfile(file, Path(folder.name) / file.name)
    with closing(sqlite3.connect(Path(folder.name) / path.name)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    return folder
