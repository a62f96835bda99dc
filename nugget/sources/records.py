"""What the readers of all logs share: lines of any length, JSON that may hold anything, and times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, BinaryIO

from nugget.errors import TranscriptError

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is skipped: no record that a client writes comes near it."""
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
"""A session in one JSON document is read whole: a bigger one is refused."""


def read_lines(file: BinaryIO, *, limit: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its length in the file; None instead of a line longer than `limit`."""
    while line := file.readline(limit):
        length = len(line)
        is_long = length == limit and not line.endswith(b"\n")
        while is_long and (rest := file.readline(limit)):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
        yield length, None if is_long else line


def records_of(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the JSON object in each line that is not blank; None for any other line. Raises TranscriptError."""
    try:
        with path.open("rb") as file:
            for _, line in read_lines(file):
                if line is None or line.strip():
                    yield parse_record(line) if line else None
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> TranscriptError:
    """Return the error for a file that the system does not let us read."""
    if isinstance(error, FileNotFoundError):
        return TranscriptError(f"There is no transcript at {path}.", hint="The client may have deleted it.")
    return TranscriptError(f"{path} cannot be read ({error.strerror or error}).")


def read_document(path: Path) -> dict[str, Any] | None:
    """Return the JSON object that a file holds; None if it holds something else. Raises TranscriptError."""
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise TranscriptError(f"{path} is too big to be read ({path.stat().st_size >> 20} MB).")
        return parse_record(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error


def parse_record(line: str | bytes) -> dict[str, Any] | None:
    """Parse the JSON object in a line or document; return None for anything else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text_of(value: object) -> str:
    """Return the value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none if the value is not a list."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def joined_text(content: object, keys: Iterable[str] = ("text",)) -> str:
    """Return the text of a content: a string, or the texts of its parts."""
    if isinstance(content, str):
        return content
    parts = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Mapping):
            parts += [part[key] for key in keys if isinstance(part.get(key), str)]
    return "\n".join(parts)


def storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which neither UTF-8 files nor the index can hold."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def parse_timestamp(value: object) -> datetime | None:
    """Parse an ISO 8601 time as an aware datetime; return None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        stamp = datetime.fromisoformat(value)
    except ValueError:
        return None
    aware = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    return aware if date.min.year < stamp.year < date.max.year else None


def parse_moment(value: object) -> datetime | None:
    """Parse a time as agents write it: ISO 8601, or milliseconds since the epoch."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return None
    return parse_timestamp(value)
