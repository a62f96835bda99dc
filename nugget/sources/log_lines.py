"""Lines of terminal output: which of them are worth keeping, and what a person would have seen of them.

Output is long and mostly dull. Of a large part of it the beginning, the end and the lines that look like failures are
kept; the rest stays where it is and can be found by its offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 1 << 22
WHOLE_BYTES = 1 << 18
"""A part of output up to this size is kept whole."""
HEAD_BYTES = 1 << 14
TAIL_BYTES = 1 << 17
MAX_FAILURES = 2000
"""Failure-like lines kept from the middle of one large part, at most."""
MAX_LINE_CHARS = 1000
_MAX_RAW_BYTES = 1 << 16
_SAME_KIND = 3
"""Of lines that differ in their numbers only, so many are kept."""

_SIGNS = (
    b"error", b"fail", b"panic", b"traceback", b"exception", b"fatal", b"cannot", b"not found", b"denied", b"refused",
    b"undefined", b"timed out", b"abort", b"segmentation", b"killed", b"unresolved", b"conflict", b"no such",
)  # fmt: skip
_FAILED = re.compile(
    r"error|fail(?:ed|ure|s|ing)?\b|panic|traceback|exception|fatal|cannot|can't|could not|not found|denied|refused"
    r"|undefined|undeclared|timed out|abort(?:ed|ing)|segmentation|killed|unresolved|conflict|no such|unexpected"
    r"|^\s*[✗✘×]|^E   ",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:0|no|zero|without) (?:errors?|failures?|failed|failing|fails|exceptions?|conflicts?)\b"
    r"|\b(?:errors?|failures?|failed)\s*[:=]\s*(?:0|none|false|null|\[\])(?![\w.])"
    r"|\berror[-_ ]?(?:handl|rate|message|page|boundar|log|code[sd]?\b(?!\s*[:=]?\s*\d))\w*"
    r"|\bfail[-_](?:fast|over|safe)\b"
    r"|[\w/.-]*(?:error|exception|fail|fatal|panic|conflict)s?[\w-]*\.[a-z]{1,5}\b(?!:\d)",
    re.IGNORECASE,
)
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[P_^X][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_KEY_LIKE = re.compile(r"\s*[A-Za-z0-9+/]{40,}={0,2}\s*")
_DIGITS = re.compile(r"\d+|0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of output: where it begins in its file, what a person saw of it, whether it looks like a failure."""

    offset: int
    text: str
    is_failure: bool


def looks_failed(text: str) -> bool:
    """Whether a line of output tells of a failure; `0 errors` and a file called errors.py do not."""
    if not _FAILED.search(text):
        return False
    return _FAILED.search(_HARMLESS.sub("", text)) is not None


def clean_line(raw: bytes, *, most_chars: int = MAX_LINE_CHARS) -> str:
    """What a terminal would show of a line: no escape codes, of overwritten parts the last; empty where it is no text.

    Lines of nothing but base64, as in keys and images, are no text either.
    """
    if b"\0" in raw:
        return ""
    text = raw[:_MAX_RAW_BYTES].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.rstrip("\r\n \t")
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if "\b" in text:
        text = _with_backspaces(text)
    if text.count("�") * 10 > len(text):
        return ""
    if not text.isprintable():
        text = _CONTROL.sub("", text)
    return "" if is_opaque(text) else text[:most_chars]


def is_opaque(text: str) -> bool:
    """Whether a line is nothing but base64: a part of a key or an image, which tells nobody anything."""
    return len(text) >= 40 and " " not in text.strip() and _KEY_LIKE.fullmatch(text) is not None


def keep_lines(file: BinaryIO, start: int, end: int, *, most_chars: int = MAX_LINE_CHARS) -> Iterator[LogLine]:
    """The lines worth keeping of the bytes from `start` to `end`, which are both borders of lines, in their order."""
    if end - start <= WHOLE_BYTES:
        yield from _every_line(file, start, end, most_chars)
        return
    head = _next_line(file, start + HEAD_BYTES, end)
    tail = _next_line(file, end - TAIL_BYTES, end)
    yield from _every_line(file, start, head, most_chars)
    seen: dict[str, int] = {}
    for offset, raw in _suspects(file, head, tail):
        text = clean_line(raw, most_chars=most_chars)
        if not text or not looks_failed(text):
            continue
        kind = _DIGITS.sub("0", text)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= _SAME_KIND:
            yield LogLine(offset, text, True)
            if len(seen) >= MAX_FAILURES:
                break
    yield from _every_line(file, tail, end, most_chars)


def last_border(file: BinaryIO, start: int, end: int) -> int:
    """The end of the last whole line between two offsets; `start` where there is none.

    A line without end is cut after 4 MB, so that no file can hold up the reading for ever.
    """
    file.seek(max(start, end - BLOCK_BYTES))
    block = file.read(min(end - start, BLOCK_BYTES))
    newline = block.rfind(b"\n")
    if newline >= 0:
        return end - len(block) + newline + 1
    return end if len(block) >= BLOCK_BYTES else start


def _every_line(file: BinaryIO, start: int, end: int, most_chars: int) -> Iterator[LogLine]:
    file.seek(start)
    offset = start
    for raw in file.read(end - start).split(b"\n"):
        text = clean_line(raw, most_chars=most_chars)
        if text:
            yield LogLine(offset, text, looks_failed(text))
        offset += len(raw) + 1


def _next_line(file: BinaryIO, offset: int, end: int) -> int:
    """The first border of a line behind an offset, looked for as far as one long line may reach."""
    file.seek(offset)
    newline = file.read(min(_MAX_RAW_BYTES, max(0, end - offset))).find(b"\n")
    return offset + newline + 1 if newline >= 0 else min(offset, end)


def _suspects(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of each line with one of the signs, found without looking at the others one by one."""
    position = start
    while position < end:
        file.seek(position)
        block = file.read(min(BLOCK_BYTES, end - position))
        if not block:
            return
        cut = block.rfind(b"\n") + 1 if position + len(block) < end else len(block)
        block = block[: cut or len(block)]
        yield from ((position + begin, line) for begin, line in _marked_lines(block))
        position += len(block)


def _marked_lines(block: bytes) -> Iterable[tuple[int, bytes]]:
    lowered = block.lower()
    begins: set[int] = set()
    for sign in _SIGNS:
        place = lowered.find(sign)
        while place >= 0:
            begins.add(block.rfind(b"\n", 0, place) + 1)
            close = block.find(b"\n", place)
            place = lowered.find(sign, close) if close >= 0 else -1
    for begin in sorted(begins):
        close = block.find(b"\n", begin)
        yield begin, block[begin : close if close >= 0 else len(block)]


def _with_backspaces(text: str) -> str:
    shown: list[str] = []
    for char in text:
        if char != "\b":
            shown.append(char)
        elif shown:
            shown.pop()
    return "".join(shown)
