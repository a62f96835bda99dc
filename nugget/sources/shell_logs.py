"""Shell logs: a folder for each session, with its commands, events and output.

`LOG_DIR/SESSION/` holds `events.jsonl` (one `{"ts_ms", "session_id", "kind", "data"}` a line), `stdin.log` (one command
a line) and the streams `output.log` (what the terminal showed), `stdout.log` and `stderr.log`. Only plain files in
plain folders are read: a link or a pipe could lead anywhere. The beginning and end of long output are kept, and lines
that look like failures; the rest stays in the log.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from nugget.infra.files import open_plain
from nugget.sources import Log, list_folder, log_order, mapping_of, parse_record, read_lines, session_file
from nugget.text import is_name, without_escapes

EVENTS, INPUT = "events.jsonl", "stdin.log"
STREAMS = {"output.log": "merged", "stdout.log": "stdout", "stderr.log": "stderr"}
"""The stream of each file of output."""

MAX_LINE_CHARS = 1000
MAX_EVENT_BYTES = 1 << 24
"""A longer line of events.jsonl is counted as malformed."""
_MAX_KIND_CHARS = 2000

_KEPT_BYTES = 1 << 17
"""The bytes of output that are kept at the beginning and at the end."""
_MAX_FAILURES = 2000
"""The most kinds of failure-like lines kept from the middle of large output."""
_MAX_RAW_BYTES, _BLOCK_BYTES = 1 << 16, 1 << 12
_SAME_KIND = 3
"""The number of lines kept that differ only in digits."""
_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))

_SIGNS = tuple(
    b"error|fail|panic|traceback|exception|fatal|cannot|not found|denied|refused|undefined|timed out|abort"
    b"|segmentation|killed|unresolved|conflict|no such".split(b"|")
)

_FAILED = re.compile(
    r"error|fail(?:ed|ure|s|ing)?\b|panic|traceback|exception|fatal|cannot|can't|could not|not found|denied|refused"
    r"|undefined|undeclared|timed out|abort(?:ed|ing)|segmentation|killed|unresolved|conflict|no such|unexpected"
    r"|^\s*[✗✘×]|^E   ",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:0|no|zero|without) (?:errors?|failures?|failed|failing|fails|exceptions?|conflicts?)\b|\b(?:errors?"
    r"|failures?|failed)\s*[:=]\s*(?:0|none|false|null|\[\])(?![\w.])|\berror[-_ ]?(?:handl|rate|message|page|boundar"
    r"|log|code[sd]?\b(?!\s*[:=]?\s*\d))\w*|\bfail[-_](?:fast|over|safe)\b|[\w/.-]*(?:error|exception|fail|fatal"
    r"|panic|conflict)s?[\w-]*\.[a-z]{1,5}\b(?!:\d)"
    r"|^\s*[-+](?![-+]| \S|\w*sh: ).*|^@@ .*"  # of a diff
    r"|\b(?:raise|except|throw|catch|class|import|extends|instanceof|new|return) [\w., (]*\w(?:Error|Exception)\b"
    r"(?!: ).*|\b(?:new Error|panic!?)\(.*|[\w\])]\.(?:error|fail|fatal|panic|abort)\w*\(.*",  # of a program
    re.IGNORECASE,
)
_CONTROL = dict.fromkeys([*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0)])

LogLine = tuple[int, str, bool]
"""A line of output: its offset in the file, its visible text, and whether it looks like a failure."""
LogEvent = tuple[int, str, Mapping[str, Any]]
"""A line of events.jsonl: its time in ms, its kind, and its untrusted `data`."""


def is_session_id(text: str) -> bool:
    """Return whether a text can be a session's id: a plain name without a path."""
    return is_name(text, signs="_.@:-") and ".." not in text


def find_shell_sessions(log_dir: Path) -> Iterator[Log]:
    """Yield the shell sessions with logs below `log_dir`, most recently written last."""
    found = [log for entry in list_folder(log_dir) if (log := find_shell_session(log_dir, entry.name))]
    yield from sorted(found, key=log_order)


def find_shell_session(log_dir: Path, name: str) -> Log | None:
    """Return the log of a shell session with its files, links excluded; None if the id could lead elsewhere."""
    folder = log_dir / name
    if not is_session_id(name) or folder.is_symlink() or not folder.is_dir():
        return None
    entries = {entry.name: entry for entry in list_folder(folder) if not entry.is_symlink()}
    known = [entries[file] for file in (EVENTS, INPUT, *STREAMS) if file in entries]
    return tuple(file for entry in known if (file := session_file(entry, agent="shell", name=name))) or None


def read_events(file: Path) -> tuple[list[LogEvent], int]:
    """Return the events of events.jsonl, and the number of malformed lines; an unfinished last line is left out."""
    events: list[LogEvent] = []
    malformed = 0
    with _opened(file) as opened:
        for _, line in read_lines(opened, limit=MAX_EVENT_BYTES) if opened else ():
            if event := _event(line):
                events.append(event)
            else:
                malformed += line is None or (bool(line.strip()) and line.endswith(b"\n"))
    return events, malformed


def read_text(file: Path, *, now_ms: int, most_chars: int = MAX_LINE_CHARS) -> tuple[list[LogLine], int, bool]:
    """Return the lines of a text file, its time in ms, and whether its last line was left out.

    A line is cut at `most_chars`. A last line without an end is left out if the file changed within five seconds.
    """
    with _opened(file) as opened:
        if opened is None:
            return [], 0, False
        state = os.fstat(opened.fileno())
        mtime_ms = int(state.st_mtime * 1000)
        opened.seek(max(0, state.st_size - _MAX_RAW_BYTES))
        torn = len(opened.read(_MAX_RAW_BYTES).rpartition(b"\n")[2]) if now_ms - mtime_ms <= 5000 else 0
        return list(_keep_lines(opened, state.st_size - torn, most_chars)), mtime_ms, torn > 0


def _opened(file: Path) -> AbstractContextManager[BinaryIO | None]:
    """Open a file for reading; None if it is absent, unreadable, or not a plain file."""
    with suppress(OSError):
        return open_plain(file) or nullcontext()
    return nullcontext()


def _event(line: bytes | None) -> LogEvent | None:
    # Decoded leniently, since shells write file names as raw bytes.
    record = parse_record(line.decode("utf-8-sig", "replace")) if line else None
    kind = (record or {}).get("kind")
    if record is None or not isinstance(kind, str) or not kind:
        return None
    ts_ms = record.get("ts_ms")
    if not isinstance(ts_ms, int | float) or isinstance(ts_ms, bool) or not 0 <= ts_ms < 1 << 53:
        ts_ms = 0
    return int(ts_ms), kind[:_MAX_KIND_CHARS], mapping_of(record.get("data"))


def looks_failed(text: str) -> bool:
    """Return whether a line of output reports a failure; `0 errors` and a file called errors.py do not."""
    return bool(_FAILED.search(text) and _FAILED.search(_HARMLESS.sub("", text)))


def clean_line(raw: bytes, *, most_chars: int = MAX_LINE_CHARS) -> str:
    """Return the visible text of a terminal line; empty if it is not text, or only base64."""
    if b"\0" in raw:
        return ""
    text = without_escapes(raw[:_MAX_RAW_BYTES].decode("utf-8", "replace")).rstrip("\r\n \t")
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if text.count("�") * 10 > len(text):
        return ""
    text = text.translate(_CONTROL)
    return "" if is_opaque(text) else text[:most_chars]


def is_opaque(text: str) -> bool:
    """Return whether a line is only base64, such as part of a key or an image."""
    digits = text.strip().rstrip("=")
    return len(digits) >= 40 and digits.isascii() and digits.replace("+", "").replace("/", "").isalnum()


def _keep_lines(file: BinaryIO, end: int, most_chars: int) -> Iterator[LogLine]:
    """Yield the lines to keep before an offset: head, tail, and failures in the middle."""
    seen: Counter[str] = Counter()
    file.seek(0)
    offset, looked_at, is_begin = 0, 0, True
    while offset < end:
        if is_begin and max(_KEPT_BYTES, looked_at) <= offset < end - _KEPT_BYTES:  # most lines are dull
            block = file.read(min(_BLOCK_BYTES, end - _KEPT_BYTES - offset))
            lowered = block[: block.rfind(b"\n") + 1].lower()
            looked_at = offset + len(lowered)
            offset = offset if any(sign in lowered for sign in _SIGNS) else looked_at
            file.seek(offset)
        if not (raw := file.readline(min(_MAX_RAW_BYTES, end - offset))):
            return
        is_kept, lowered = not _KEPT_BYTES <= offset < end - _KEPT_BYTES, raw.lower()
        if is_begin and (is_kept or any(sign in lowered for sign in _SIGNS)):
            text = clean_line(raw, most_chars=most_chars)
            is_failure = looks_failed(text)
            if is_failure and not is_kept:
                kind = text.translate(_NO_DIGITS)
                if kind in seen or len(seen) < _MAX_FAILURES:
                    seen[kind] += 1
                    is_kept = seen[kind] <= _SAME_KIND
            if text and is_kept:
                yield offset, text, is_failure
        offset, is_begin = offset + len(raw), raw.endswith(b"\n")
