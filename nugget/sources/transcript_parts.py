"""Read a Claude Code transcript on from where the last reading ended, a few megabytes at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from nugget.models import Event, EventKind
from nugget.sources import channels
from nugget.sources.claude_code import MAX_LINE_BYTES, require_records
from nugget.sources.claude_records import Reading, read_line

PART_BYTES = 16 * 1024 * 1024
"""Read between two commits: what an interruption loses, and what bounds the memory."""

SAID = (EventKind.PROMPT, EventKind.PASTE, EventKind.REPLY)
_STATE = (b'"type":"progress"', b'"type":"file-history-snapshot"', b'"type":"file-history-delta"')
_SESSION = re.compile(rb'"sessionId":\s?"([A-Za-z0-9_-]{1,100})"')


@dataclass(slots=True, kw_only=True)
class TranscriptPart:
    """What was read of a transcript in one go.

    `events` have the number of their exchange beside them in `numbers`. `parents` are the records that typed prompts
    follow, by the uuid of the prompt: two prompts with one parent mean that the person went back. `dead` are the
    records that the person went back on within this part. `settled` are the
    edits of which a result was awaited, with their outcome. `taken` is where to read on; `is_last` tells that the file
    ended there.
    """

    events: list[Event] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    messages: list[channels.Message] = field(default_factory=list)
    settled: list[Event] = field(default_factory=list)
    folders: tuple[str, ...] = ()
    title: str = ""
    taken: int = 0
    exchanges: int = 0
    skipped: int = 0
    is_last: bool = True


def read_part(path: Path, *, taken: int = 0, exchanges: int = 0, waiting: Sequence[Event] = ()) -> TranscriptPart:
    """Read a transcript on from byte `taken`, as far as PART_BYTES or its end; a torn last line is left for later.

    `exchanges` are those before `taken`, `waiting` the calls without a result. Raises OSError, or TranscriptError for a
    file without any record of a transcript.
    """
    reading = Reading(events=list(waiting))
    for position, call in enumerate(waiting):
        reading.calls.setdefault(call.call_id or "", (call.tool or "", []))[1].append(position)
    part = TranscriptPart(taken=taken, exchanges=exchanges)
    numbers = [0] * len(waiting)
    with path.open("rb") as file:
        file.seek(taken)
        for length, line in _lines(file):
            if line is not None and not any(sign in line for sign in _STATE):
                first, skipped = len(reading.events), reading.skipped
                read_line(line, reading)
                if reading.skipped > skipped and not line.endswith(b"\n"):
                    reading.skipped = skipped
                    break
                reading.records += 1
                for event in reading.events[first:]:
                    part.exchanges += event.kind is EventKind.PROMPT
                    numbers.append(max(1, part.exchanges))
                part.messages += channels.messages_in_record(line)
            part.taken += length
            if part.taken - taken >= PART_BYTES:
                part.is_last = False
                break
    require_records(path, reading, taken=taken)
    _sort_out(part, reading, numbers, waiting=len(waiting))
    return part


def _sort_out(part: TranscriptPart, reading: Reading, numbers: Sequence[int], *, waiting: int) -> None:
    """Give the part what was gathered; of dead branches only what was said."""
    part.dead = reading.dead_records()
    kept = [
        n
        for n in range(waiting, len(reading.events))
        if reading.events[n].kind in SAID or reading.events[n].uuid not in part.dead
    ]
    part.events, part.numbers = [reading.events[n] for n in kept], [numbers[n] for n in kept]
    part.parents = {uuid: parent for uuid in reading.prompts if (parent := reading.parents.get(uuid))}
    part.folders, part.title, part.skipped = tuple(reading.folders), reading.title() or "", reading.skipped
    settled = {event.call_id for event in reading.events if event.kind is EventKind.FILE_EDIT and event.ok is not None}
    part.settled = [call for call in reading.events[:waiting] if call.call_id in settled]


def exchange_numbers(path: Path) -> dict[str, int]:
    """Return the number of the exchange that each prompt of a transcript begins, by the uuid of its record."""
    numbers: dict[str, int] = {}
    taken = exchanges = 0
    while True:
        part = read_part(path, taken=taken, exchanges=exchanges)
        for event, number in zip(part.events, part.numbers, strict=True):
            if event.kind is EventKind.PROMPT and event.uuid:
                numbers[event.uuid] = number
        if part.is_last:
            return numbers
        taken, exchanges = part.taken, part.exchanges


def read_channel(path: Path, *, taken: int) -> tuple[list[channels.Message], int]:
    """Read the file of a channel on from byte `taken`: its messages, and where to read on. Raises OSError."""
    messages: list[channels.Message] = []
    with path.open("rb") as file:
        file.seek(taken)
        for length, line in _lines(file):
            message = channels.message_of_channel(line) if line is not None else None
            if message:
                messages.append(message)
            elif line is not None and not line.endswith(b"\n"):
                break
            taken += length
    return messages, taken


def session_named_in(path: Path) -> str:
    """Return the session that a subagent's transcript of an old client says it belongs to, else its own name."""
    try:
        with path.open("rb") as file:
            found = _SESSION.search(file.readline(MAX_LINE_BYTES))
    except OSError:
        found = None
    return found.group(1).decode("ascii") if found else path.stem


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Each line from here on with its length; None for one that is blank or too long to be a record."""
    while line := file.readline(MAX_LINE_BYTES):
        length = len(line)
        is_long = length == MAX_LINE_BYTES and not line.endswith(b"\n")
        while is_long and (rest := file.readline(MAX_LINE_BYTES)):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
        yield length, None if is_long or not line.strip() else line
