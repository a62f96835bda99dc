"""Read files of history into passages, a portion at a time, and read the text of a passage again from its place.

A Claude Code transcript is read line by line and remembered by bytes, so that a session that grew is read on from
where reading stopped. What other agents and the archive keep is read whole and remembered by the numbers of its
events. Both ways the text of a passage is the same when it is shown as when it was indexed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from nugget.history.assembly import Assembly, Clean
from nugget.history.expressions import Probe
from nugget.history.values import Passage, Place, Role, Span
from nugget.models import Event, EventKind
from nugget.sources import channels as bridge
from nugget.sources import log_lines
from nugget.sources import shell_logs as shell
from nugget.sources.claude_code import MAX_LINE_BYTES
from nugget.sources.claude_records import Reading, read_line

PORTION_BYTES = 16 * 1024 * 1024
"""Read between two commits: what an interruption loses, and what bounds the memory."""

_ROLES = {EventKind.PROMPT: Role.YOU, EventKind.PASTE: Role.YOU, EventKind.REPLY: Role.AGENT}
_CALLS = (EventKind.COMMAND, EventKind.FILE_EDIT, EventKind.TOOL_CALL)
_UUID = re.compile(rb'"uuid":\s?"([^"\\]{1,100})"')
_SESSION = re.compile(rb'"sessionId":\s?"([A-Za-z0-9_-]{1,100})"')
_CONVERSATION = (b'"message"', b"queued_command", b'itle"', b'"summary"')
_STATE = (b'"type":"progress"', b'"type":"file-history-snapshot"', b'"type":"file-history-delta"')
_RESULT = b'"type":"tool_result"'
_SAYS = (b"the user said", b"answered your question", b'"type": "text"', *bridge.SIGNS)
_TEXT, _TEXT_OF_FILE = b'"type":"text"', b'"toolUseResult":{"type":"text"'
_EDGE_BYTES = 1024


@dataclass(slots=True)
class Portion:
    """What was read of a file in one go. `taken` is where to read on; `is_last` tells that the file ended there."""

    passages: list[Passage] = field(default_factory=list)
    taken: int = 0
    exchanges: int = 0
    folders: tuple[str, ...] = ()
    title: str = ""
    is_last: bool = True


def read_portion(
    path: Path,
    *,
    taken: int,
    exchanges: int,
    channel: str,
    known: Collection[str],
    clean: Clean,
) -> Portion:
    """Read a transcript on from byte `taken`, as far as PORTION_BYTES or its end; a torn last line is left for later.

    `exchanges` are those before `taken`; records whose uuid is `known` are counted and not taken. Raises OSError.
    """
    reading = Reading()
    assembly = Assembly(clean, exchanges=exchanges)
    asked: dict[str, Span] = {}
    end, is_last = taken, True
    with path.open("rb") as file:
        file.seek(taken)
        for span, line in _lines(file, taken):
            if line is not None and not _is_silent(line):
                first, skipped = len(reading.events), reading.skipped
                read_line(line, reading)
                if reading.skipped > skipped and not line.endswith(b"\n"):
                    break
                _take(reading.events[first:], span, assembly, asked, known)
                for order, message in enumerate(bridge.messages_in_record(line)):
                    assembly.add_message(message, span, seconds(message.at), channel, order=order)
            end = span.start + span.length
            if end - taken >= PORTION_BYTES:
                is_last = False
                break
    assembly.flush()
    return Portion(
        passages=assembly.passages,
        taken=end,
        exchanges=assembly.exchanges,
        folders=tuple(reading.folders),
        title=clean(reading.title() or ""),
        is_last=is_last,
    )


def read_channel(path: Path, *, taken: int, channel: str, clean: Clean) -> Portion:
    """Read the file of a channel on from byte `taken` to its end; a torn last line is left for later."""
    assembly = Assembly(clean)
    end = taken
    with path.open("rb") as file:
        file.seek(taken)
        for span, line in _lines(file, taken):
            message = bridge.message_of_channel(line) if line is not None else None
            if message:
                assembly.add_message(message, span, seconds(message.at), channel, order=0)
            elif line is not None and not line.endswith(b"\n"):
                break
            end = span.start + span.length
    return Portion(passages=assembly.passages, taken=end)


def read_shell(path: Path, *, taken: int, exchanges: int, at: int, clean: Clean) -> Portion:
    """Read a shell's log on from byte `taken`, as far as PORTION_BYTES or its last whole line.

    A file of commands gives a passage for each, a file of output one for some lines; what is not worth keeping of a
    long output is passed over (sources/log_lines.py). Raises OSError.
    """
    assembly = Assembly(clean, exchanges=exchanges)
    if path.name == shell.EVENTS:
        return _read_started(path, assembly, taken=taken, at=at)
    role = Role.COMMAND if path.name == shell.INPUT else Role.OUTPUT
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = max(taken, log_lines.last_border(file, taken, min(size, taken + PORTION_BYTES)))
        for line in log_lines.keep_lines(file, taken, end):
            if not log_lines.is_opaque(line.text):
                assembly.add_line(role, line.text, Span(line.offset, 0), at)
    assembly.flush_lines(role, at)
    is_last = end == taken or size - taken <= PORTION_BYTES
    return Portion(passages=assembly.passages, taken=end, exchanges=assembly.exchanges, is_last=is_last)


def _read_started(path: Path, assembly: Assembly, *, taken: int, at: int) -> Portion:
    """The commands that a shell's events say were started, each with its time; `at` is for one without."""
    end, is_last = taken, True
    with path.open("rb") as file:
        file.seek(taken)
        for span, line in _lines(file, taken):
            if line is not None and not line.endswith(b"\n"):
                break
            if line is not None and (command := shell.command_in(line)):
                text, ts_ms = command
                assembly.add_line(Role.COMMAND, text, Span(span.start, 0), at)
                assembly.flush_lines(Role.COMMAND, ts_ms // 1000 or at)
            end = span.start + span.length
            if end - taken >= PORTION_BYTES:
                is_last = False
                break
    return Portion(passages=assembly.passages, taken=end, exchanges=assembly.exchanges, is_last=is_last)


def text_of_shell(file: BinaryIO, place: Place, clean: Clean, *, of_events: bool) -> str:
    """The text of a passage of a shell's log, redacted; `of_events` where it stands in the events of the shell."""
    lines = []
    for span in place.spans:
        file.seek(span.start)
        if of_events:
            lines += [command[0] for command in [shell.command_in(file.readline(MAX_LINE_BYTES))] if command]
            continue
        lines.append(log_lines.clean_line(file.readline(1 << 16).rstrip(b"\n")))
    return clean("\n".join(lines))


def read_events(events: Iterable[Event], clean: Clean, *, at: int, known: Collection[str] = ()) -> Portion:
    """The passages of a session that was read whole; `at` is when it was written, for events without a time."""
    assembly = Assembly(clean)
    groups: list[list[tuple[int, Event]]] = []
    for position, event in enumerate(events):
        if event.kind in _ROLES and event.text.strip():
            if event.kind is EventKind.PASTE and groups and groups[-1][0][1].uuid == event.uuid:
                groups[-1].append((position, event))
            else:
                groups.append([(position, event)])
    for group in groups:
        first = group[0][1]
        is_known = bool(first.uuid) and first.uuid in known
        text = "\n\n".join(event.text for _, event in group)
        spans = tuple(Span(position, 1) for position, _ in group)
        assembly.add(_ROLES[first.kind], text, spans, seconds(first.timestamp) or at, is_known=is_known)
    assembly.flush()
    return Portion(passages=assembly.passages, exchanges=assembly.exchanges)


def text_of_lines(file: BinaryIO, place: Place, role: Role, clean: Clean) -> str:
    """The text of a passage of a transcript, redacted; empty where the lines are not there any more."""
    reading = Reading()
    texts = []
    for span in place.spans:
        first = len(reading.events)
        read_line(_line_at(file, span), reading)
        said = "\n".join(event.text for event in reading.events[first:] if _ROLES.get(event.kind) is role)
        if said:
            texts.append(clean(said))
    return _cut("\n\n".join(texts), place)


def line_may_hold(file: BinaryIO, span: Span, probe: Probe) -> bool:
    """Whether the text in a line may hold what `probe` (of `expressions.probe`) looks for. Raises OSError."""
    line = _line_at(file, span)
    return not line.isascii() or b"\\u" in line or probe(line.lower())


def message_at(file: BinaryIO, place: Place, *, of_channel: bool) -> bridge.Message | None:
    """The message at a place, as it stands there; None where it is not there any more."""
    line = _line_at(file, place.spans[0])
    if of_channel:
        return bridge.message_of_channel(line)
    return next(iter(bridge.messages_in_record(line)[place.start :]), None)


def text_of_events(events: Sequence[Event], place: Place, role: Role, clean: Clean) -> str:
    """The text of a passage of a session that was read whole, redacted."""
    found = [events[span.start] for span in place.spans if span.start < len(events)]
    return _cut("\n\n".join(clean(event.text) for event in found if _ROLES.get(event.kind) is role), place)


def first_uuid(path: Path) -> str:
    """The uuid of a transcript's first record that has one: a fork has its original's."""
    try:
        with path.open("rb") as file:
            for _, line in _lines(file, 0):
                if line is not None and (found := _UUID.search(line)):
                    return found.group(1).decode("ascii", "replace")
    except OSError:
        pass
    return ""


def exchange_numbers(path: Path) -> dict[str, int]:
    """The number of the exchange that each prompt of a transcript begins, by the uuid of its record."""
    numbers: dict[str, int] = {}
    reading, assembly = Reading(), Assembly(lambda text: text)
    asked: dict[str, Span] = {}
    with path.open("rb") as file:
        for span, line in _lines(file, 0):
            if line is None or _is_silent(line):
                continue
            first = len(reading.events)
            read_line(line, reading)
            _take(reading.events[first:], span, assembly, asked, ())
            for event in reading.events[first:]:
                if event.kind is EventKind.PROMPT and event.uuid:
                    numbers[event.uuid] = assembly.exchanges
    return numbers


def session_named_in(path: Path) -> str:
    """The session that a subagent's transcript of an old client says it belongs to; its own name where it does not."""
    try:
        with path.open("rb") as file:
            found = _SESSION.search(file.readline(MAX_LINE_BYTES))
    except OSError:
        found = None
    return found.group(1).decode("ascii") if found else path.stem


def uuids_of(path: Path, upto: int) -> set[str]:
    """The uuids of the records in the first `upto` bytes of a transcript."""
    try:
        with path.open("rb") as file:
            lines = (line for span, line in _lines(file, 0) if line is not None and span.start < upto)
            return {found.decode("ascii", "replace") for line in lines for found in _UUID.findall(line)}
    except OSError:
        return set()


def mark_of(path: Path, taken: int) -> str:
    """A hash of the first and last bytes before `taken`, by which a file that was written anew is known."""
    if not taken:
        return ""
    try:
        with path.open("rb") as file:
            head = file.read(min(taken, _EDGE_BYTES))
            file.seek(max(0, taken - _EDGE_BYTES))
            return hashlib.blake2b(head + file.read(min(taken, _EDGE_BYTES)), digest_size=8).hexdigest()
    except OSError:
        return ""


def seconds(moment: datetime | None) -> int:
    """Whole seconds since the epoch; 0 for no or an absurd time."""
    try:
        return max(0, int(moment.timestamp())) if moment else 0
    except (OverflowError, OSError, ValueError):
        return 0


def _take(
    events: Sequence[Event], span: Span, assembly: Assembly, asked: dict[str, Span], known: Collection[str]
) -> None:
    """Add what one line says, by role; what was said in a dialog can only be read together with its call's line."""
    said: dict[Role, list[Event]] = {}
    for event in events:
        if event.call_id and event.kind in _CALLS:
            asked[event.call_id] = span
        if event.kind in _ROLES:
            said.setdefault(_ROLES[event.kind], []).append(event)
    for role, own in said.items():
        question = asked.get(own[0].call_id or "")
        spans = (question, span) if question and question.start < span.start else (span,)
        text = "\n".join(event.text for event in own)
        is_known = bool(own[0].uuid) and own[0].uuid in known
        assembly.add(role, text, spans, seconds(own[0].timestamp), is_known=is_known)


def _is_silent(line: bytes) -> bool:
    """Whether a line can be passed over unparsed: the client's state, or a tool's result and nothing else.

    A key that is quoted inside a text has backslashes before its quotation marks, so that it is not taken for one.
    """
    if not any(sign in line for sign in _CONVERSATION) or any(sign in line for sign in _STATE):
        return True
    if _RESULT not in line:
        return False
    texts = line.count(_TEXT)
    return (texts == 0 or (texts == 1 and _TEXT_OF_FILE in line)) and not any(sign in line for sign in _SAYS)


def _lines(file: BinaryIO, start: int) -> Iterator[tuple[Span, bytes | None]]:
    """Each line from here on with its span, as bytes; None for one that is blank or too long to be a record."""
    while line := file.readline(MAX_LINE_BYTES):
        length = len(line)
        is_long = length == MAX_LINE_BYTES and not line.endswith(b"\n")
        while is_long and (rest := file.readline(MAX_LINE_BYTES)):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
        yield Span(start, length), None if is_long or not line.strip() else line
        start += length


def _line_at(file: BinaryIO, span: Span) -> bytes:
    file.seek(span.start)
    return file.read(min(span.length, MAX_LINE_BYTES))


def _cut(text: str, place: Place) -> str:
    return text[place.start : place.stop] if place.stop else text
