"""The values of history: where a passage of a session stands, and what is shown of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from nugget.models import SourceName

PASSAGE_CHARS = 1200
"""A passage is about one side of an exchange; a longer one is cut at a paragraph, line, sentence or word."""


class Role(IntEnum):
    """Who speaks in a passage. The numbers stand in the index."""

    YOU = 0
    AGENT = 1
    MESSAGE = 2
    COMMAND = 3
    OUTPUT = 4

    @property
    def label(self) -> str:
        """How people see it: `You`, `Agent`, `Message`, `Command`, `Output`."""
        return self.name.title()

    @property
    def source(self) -> SourceName:
        """The source that passages of this role belong to."""
        return _SOURCES[self]


_SOURCES = {
    Role.YOU: SourceName.SESSIONS,
    Role.AGENT: SourceName.SESSIONS,
    Role.MESSAGE: SourceName.BRIDGE,
    Role.COMMAND: SourceName.SHELL,
    Role.OUTPUT: SourceName.SHELL,
}
HISTORY_SOURCES = (SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE)


class Span(NamedTuple):
    """A stretch of a file: of bytes for a file of lines, of events (position, count) for one that is read whole."""

    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the text of a passage stands: the spans that hold it, and which characters of their text it is.

    `stop` 0 means all of it.
    """

    spans: tuple[Span, ...]
    start: int = 0
    stop: int = 0

    def packed(self) -> bytes:
        """As it is stored: unsigned LEB128 numbers, the starts as distances from the last end."""
        numbers = [self.start, self.stop]
        end = 0
        for span in self.spans:
            numbers += [span.start - end, span.length]
            end = span.start + span.length
        return _pack(numbers)


def unpack_place(packed: bytes) -> Place:
    """The place that `Place.packed` made the bytes of."""
    numbers = _unpack(packed)
    spans = []
    end = 0
    for at in range(2, len(numbers) - 1, 2):
        start = end + numbers[at]
        end = start + numbers[at + 1]
        spans.append(Span(start, numbers[at + 1]))
    return Place(spans=tuple(spans), start=numbers[0], stop=numbers[1])


def only_span(packed: bytes) -> Span | None:
    """The span of a place that has one, and None of any other: what is asked of thousands of places in a search."""
    numbers = _unpack(packed)
    return Span(numbers[2], numbers[3]) if len(numbers) == 4 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A passage as it is read from a file: redacted text, and where it stands.

    `number` is the exchange's in its session. `at` is in seconds since the epoch, 0 where the file does not say.
    For a message, `channel` is where it was said.
    """

    role: Role
    number: int
    at: int
    text: str
    place: Place
    channel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageHit:
    """A passage that was found.

    `excerpt` is about 150 characters around the match, on one line, redacted. `session` is the session's id, or the
    channel's name. `score` is 0..1, higher is better. `speaker` names a subagent, or who sent a message.
    """

    ref: str
    source: SourceName
    session: str
    role: Role
    timestamp: datetime | None
    excerpt: str
    score: float
    agent: str
    speaker: str = ""
    title: str = ""
    folder: str = ""
    workspace: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPassage:
    """One passage of a stretch of history: whole, redacted. `is_asked_for` tells the one that the ref names."""

    ref: str
    role: Role
    speaker: str
    timestamp: datetime | None
    text: str
    is_asked_for: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What stands around a ref: the exchange or message with its neighbours, in order."""

    ref: str
    source: SourceName
    session: str
    title: str
    agent: str
    folder: str
    path: str
    passages: tuple[ShownPassage, ...]


def cut_text(text: str, max_chars: int = PASSAGE_CHARS) -> list[tuple[int, int]]:
    """Where to cut a text: (start, stop) of pieces of at most `max_chars`, at the best boundary in reach."""
    pieces = []
    start = 0
    while len(text) - start > max_chars:
        room = text[start : start + max_chars]
        stop = start + max_chars
        for boundary in ("\n\n", "\n", ". ", " "):
            found = room.rfind(boundary, max_chars // 2)
            if found > 0:
                stop = start + found + len(boundary)
                break
        pieces.append((start, stop))
        start = stop
    pieces.append((start, len(text)))
    return pieces


def _pack(numbers: Iterable[int]) -> bytes:
    packed = bytearray()
    for number in numbers:
        if number < 0:
            raise ValueError("spans of a place are in order")
        while number > 127:
            packed.append(number & 127 | 128)
            number >>= 7
        packed.append(number)
    return bytes(packed)


def _unpack(packed: bytes) -> Sequence[int]:
    numbers = []
    number = shift = 0
    for byte in packed:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    return numbers
