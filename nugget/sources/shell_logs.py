"""Shell logs: a folder for each session, with what was typed, what happened and what was printed.

`LOG_DIR/SESSION/` holds `events.jsonl` (one `{"ts_ms", "session_id", "kind", "data"}` a line), `stdin.log` (one command
a line) and the streams `output.log` (what the terminal showed), `stdout.log` and `stderr.log`. Files are read on from
where the last reading ended. A file that was rotated, cut or written anew is read from its beginning. Only plain files
in plain folders are read: a link or a pipe could lead anywhere.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nugget.errors import UsageError
from nugget.sources.files import FilePlace, place_of, resumed
from nugget.sources.log_lines import MAX_LINE_CHARS, LogLine, keep_lines, last_border

EVENTS, INPUT = "events.jsonl", "stdin.log"
STREAMS = {"output.log": "merged", "stdout.log": "stdout", "stderr.log": "stderr"}
"""The stream that each file of output is."""

MAX_EVENT_BYTES = 1 << 24
"""A longer line of events.jsonl is counted as malformed."""
_BATCH_BYTES = 1 << 20
_FEW_LINES = 16
_MAX_KIND_CHARS = 2000
_SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLog:
    """The log folder of one session; `mtime` is the newest of its files (seconds), `size` their sum in bytes."""

    id: str
    path: Path
    mtime: float
    size: int


class LogEvent(NamedTuple):
    """A line of events.jsonl: `given` is its `data`, of which nothing is trusted; `offset` is where it stands.

    A tuple, since a log has hundreds of thousands.
    """

    offset: int
    ts_ms: int
    kind: str
    given: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """Some events, in the order of the file; `place` is where to go on, `anew` says that the file was begun again."""

    events: tuple[LogEvent, ...]
    malformed: int
    place: FilePlace
    anew: bool
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """The lines kept of what a text file has gained; `mtime_ms` is the file's time."""

    lines: tuple[LogLine, ...]
    place: FilePlace
    anew: bool
    bytes_read: int
    mtime_ms: int


def is_session_id(text: str) -> bool:
    """Whether a text can be a session's id: a plain name that leads nowhere."""
    return bool(_SESSION_ID.fullmatch(text)) and ".." not in text


def require_session_id(text: str) -> str:
    """The text, where it can be a session's id. Raises UsageError."""
    if not is_session_id(text):
        raise UsageError(
            f"{text[:80]!r} is no session id.",
            hint="An id has letters, digits, `_`, `-`, `.`, `:` and `@`, 128 at most.",
        )
    return text


def shell_sessions(log_dir: Path) -> Iterator[ShellLog]:
    """The sessions with logs below `log_dir`, the one that was written to last at the end."""
    try:
        names = [entry.name for entry in os.scandir(log_dir) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    found = [log for name in names if is_session_id(name) and (log := find_shell_session(log_dir, name))]
    yield from sorted(found, key=lambda log: (log.mtime, log.id))


def find_shell_session(log_dir: Path, session_id: str) -> ShellLog | None:
    """The logs of a session; None where there are none, or where the id could lead out of the folder."""
    folder = log_dir / session_id
    if not is_session_id(session_id) or folder.is_symlink() or not folder.is_dir():
        return None
    size, mtime, found = 0, 0.0, False
    for name in (EVENTS, INPUT, *STREAMS):
        try:
            state = os.lstat(folder / name)
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode):
            size, mtime, found = size + state.st_size, max(mtime, state.st_mtime), True
    return ShellLog(id=session_id, path=folder, mtime=mtime, size=size) if found else None


def read_events(file: Path, place: FilePlace) -> Iterator[EventBatch]:
    """What events.jsonl has gained, in batches of some megabytes; a torn last line waits for its end."""
    with _opened(file) as opened:
        if opened is None:
            return
        size = os.fstat(opened.fileno()).st_size
        place, anew = resumed(opened, place, size)
        while place.offset < size:
            batch = _read_batch(opened, place.offset, size, anew=anew)
            if batch.place.offset == place.offset:
                return
            yield batch
            place, anew = batch.place, False


def read_text(file: Path, place: FilePlace, *, now_ms: int, most_chars: int = MAX_LINE_CHARS) -> TextPart | None:
    """What a file of text has gained, of each line at most `most_chars`; None where that is nothing.

    A last line without end is left for the next time, unless the file has rested for five seconds.
    """
    with _opened(file) as opened:
        if opened is None:
            return None
        state = os.fstat(opened.fileno())
        mtime_ms = int(state.st_mtime * 1000)
        place, anew = resumed(opened, place, state.st_size)
        start = place.offset
        is_settled = now_ms - mtime_ms > 5000
        end = state.st_size if is_settled else last_border(opened, start, state.st_size)
        if end <= start:
            return None
        lines = tuple(keep_lines(opened, start, end, most_chars=most_chars))
        return TextPart(lines=lines, place=place_of(opened, end), anew=anew, bytes_read=end - start, mtime_ms=mtime_ms)


def rotated_rest(file: Path, place: FilePlace) -> Path | None:
    """The file that a log was moved to when it was rotated (`output.log.1`), where that goes on from a place."""
    if not place.offset:
        return None
    with _opened(file) as opened:
        if opened is not None and not resumed(opened, place, os.fstat(opened.fileno()).st_size)[1]:
            return None
    moved = file.with_name(f"{file.name}.1")
    with _opened(moved) as opened:
        if opened is None:
            return None
        size = os.fstat(opened.fileno()).st_size
        return moved if size > place.offset and not resumed(opened, place, size)[1] else None


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO | None]:
    """The file, opened for reading; None where it is absent, unreadable, or anything but a plain file."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(file, flags)
    except OSError:
        yield None
        return
    with os.fdopen(descriptor, "rb") as opened:
        yield opened if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else None


def _read_batch(file: BinaryIO, start: int, size: int, *, anew: bool) -> EventBatch:
    file.seek(start)
    block = file.read(min(_BATCH_BYTES, size - start))
    end = start + block.rfind(b"\n") + 1
    if end == start:
        return _read_line(file, start, anew=anew)
    lines = block[: end - start].split(b"\n")
    events: list[LogEvent] = []
    malformed, offset = 0, start
    for line, record in zip(lines, _records(lines), strict=True):
        event = _event(record, offset)
        if event is not None:
            events.append(event)
        elif record is not None or (line and not line.isspace()):
            malformed += 1
        offset += len(line) + 1
    return EventBatch(
        events=tuple(events), malformed=malformed, place=place_of(file, end), anew=anew, bytes_read=end - start
    )


def _read_line(file: BinaryIO, start: int, *, anew: bool) -> EventBatch:
    """The one line at `start`, where it is a long one or the last, which may have no end yet."""
    file.seek(start)
    line = file.readline(MAX_EVENT_BYTES)
    is_whole = line.endswith(b"\n")
    if not is_whole and len(line) >= MAX_EVENT_BYTES:
        while (rest := file.readline(MAX_EVENT_BYTES)) and not rest.endswith(b"\n"):
            pass
        place = place_of(file, file.tell())
        return EventBatch(events=(), malformed=1, place=place, anew=anew, bytes_read=place.offset - start)
    event = _event(_record(line), start)
    end = start + len(line) if is_whole or event is not None else start
    is_malformed = event is None and is_whole and not line.isspace()
    return EventBatch(
        events=() if event is None else (event,), malformed=int(is_malformed), place=place_of(file, end), anew=anew,
        bytes_read=end - start,
    )  # fmt: skip


def _records(lines: Sequence[bytes]) -> list[Any]:
    """What each line holds as JSON; None for one that holds none.

    Many lines are parsed as one array, which takes half the time; where one of them is malformed, half as many at once.
    """
    if len(lines) < _FEW_LINES:
        return [_record(line) for line in lines]
    try:
        text = b",\n".join([line or b"null" for line in lines]).decode("utf-8")
        if "\ufeff" not in text:
            records = json.loads(f"[{text}]")
            if len(records) == len(lines):
                return records  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    middle = len(lines) // 2
    return [*_records(lines[:middle]), *_records(lines[middle:])]


def _record(line: bytes) -> Any:
    try:
        # As text: of bytes json guesses the encoding. A shell writes names of files as they are.
        return json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def _event(record: Any, offset: int) -> LogEvent | None:
    if type(record) is not dict:
        return None
    kind, ts_ms, given = record.get("kind"), record.get("ts_ms"), record.get("data")
    if type(kind) is not str or not kind:
        return None
    if type(ts_ms) is not int:
        ts_ms = int(ts_ms) if type(ts_ms) is float and 0 <= ts_ms < 1 << 53 else 0
    elif not 0 <= ts_ms < 1 << 53:
        ts_ms = 0
    return LogEvent(offset, ts_ms, kind[:_MAX_KIND_CHARS], given if type(given) is dict else {})
