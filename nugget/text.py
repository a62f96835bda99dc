"""Small pure functions on text that several layers share."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime

CHARS_PER_TOKEN = 4
"""Tokens are estimated at four characters each where no tokenizer is at hand (openqed's rule)."""

# Control characters, line ends, bytes that are no UTF-8, and what turns the direction of text around.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_SLUG_BREAK = re.compile(r"[^a-z0-9]+")
_SENTENCE_END = re.compile(r"[.!?。！？](?=\s|$)|\n")


def estimate_tokens(text: str) -> int:
    """Tokens of a text, estimated at four characters each, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def slugify(text: str, *, max_chars: int = 60) -> str:
    """A file name of lower-case ASCII words joined by `-`, cut at a word; a hash where nothing is left."""
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = _SLUG_BREAK.sub("-", folded).strip("-")
    if len(slug) > max_chars:
        slug = slug[: max_chars + 1].rsplit("-", 1)[0][:max_chars].strip("-")
    if slug:
        return slug
    import hashlib

    return "unit-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`, `1,200 files`; the last word of the noun takes the s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ago(moment: datetime, now: datetime) -> str:
    """How long before `now` a moment was, as people say it: `40 seconds ago`, `90 minutes ago`, `3 hours ago`."""
    seconds = max(0, int((now - moment).total_seconds()))
    if seconds < 60:
        return f"{counted(seconds, 'second')} ago"
    minutes = seconds // 60
    if minutes < 120:
        return f"{counted(minutes, 'minute')} ago"
    return f"{counted(minutes // 60, 'hour') if minutes < 48 * 60 else counted(minutes // (24 * 60), 'day')} ago"


def shorten(text: str, max_chars: int) -> str:
    """The text on one line, cut at a sentence (else a word) boundary with `[…]` when it is longer."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    room = line[: max(1, max_chars - 4)]
    ends = [match.end() for match in _SENTENCE_END.finditer(room)]
    if ends and ends[-1] >= len(room) // 2:
        return room[: ends[-1]].rstrip() + " […]"
    return (room.rsplit(" ", 1)[0] if " " in room else room).rstrip() + " […]"


def folded(name: str) -> str:
    """A name as names are compared: in small letters, and composed, however a file system wrote its accents."""
    return unicodedata.normalize("NFC", name).lower()


def printable(path: str) -> str:
    """A path as a message shows it: on one line, whatever bytes its name has."""
    return _UNPRINTABLE.sub(lambda char: char[0].encode("unicode_escape").decode(), path)
