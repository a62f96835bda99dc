"""Claude Code transcripts: JSONL files, read whole as a Session or on from where the last reading ended.

Format (clients 1.0 to 2.1): every line is an object with a `type`. Only `user`, `assistant`, `system` and
`attachment` records carry conversation; the rest is the client's own state. Records form a tree by
`parentUuid`: going back to an earlier prompt leaves a dead branch, whose events are dropped. A line that
cannot be read is counted in `Session.skipped_records` and never stops the reading. Subagents have transcripts of
their own, in a folder beside that of the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nugget.errors import TranscriptError
from nugget.models import Event, EventKind, Session
from nugget.sources import channels
from nugget.sources.claude_records import AGENT as AGENT
from nugget.sources.claude_records import TranscriptReader, read_line
from nugget.sources.files import LogFile, find_file, list_folder, read_document, read_lines, text_of, unreadable

PART_BYTES = 16 * 1024 * 1024
"""Read between two commits: what an interruption loses, and what bounds the memory."""

SAID = (EventKind.PROMPT, EventKind.PASTE, EventKind.REPLY)
_STATE = (b'"type":"progress"', b'"type":"file-history-snapshot"', b'"type":"file-history-delta"')


@dataclass(slots=True, kw_only=True)
class TranscriptPart:
    """What was read of a transcript in one go.

    `events` have the number of their exchange beside them in `numbers`. `parents` are the records that typed prompts
    follow, by the uuid of the prompt: two prompts with one parent mean that the person went back. `dead` are the
    records that the person went back on within this part. `settled` are the edits whose result was awaited, with their
    outcome. `taken` is where to read on; `is_last` says that the file ended there.
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


def find_files(projects: Path) -> Iterator[tuple[str, LogFile]]:
    """Yield the transcripts of all projects with their session ids, each before those of its subagents.

    Those that clients before 2.0 wrote for subagents, beside the sessions, are left out.
    """
    for project in list_folder(projects):
        entries = list(list_folder(project))
        folders = {entry.name for entry in entries}
        for entry in entries:
            name, extension = os.path.splitext(entry.name)  # noqa: PTH122
            if extension == ".jsonl" and not name.startswith("agent-") and (file := find_file(entry)):
                yield name, file
                if name in folders:
                    yield from ((name, own) for own in find_subagents(entry.path))


def find_subagents(transcript: str) -> Iterator[LogFile]:
    """Yield the transcripts of the subagents of a session, by its own transcript."""
    for entry in list_folder(f"{transcript.removesuffix('.jsonl')}/subagents"):
        is_subagent = entry.name.startswith("agent-") and entry.name.endswith(".jsonl")
        if is_subagent and (file := find_file(entry, entry.name[6:-6])):
            yield file


def read_session(path: Path, *, subagents: bool = True) -> Session:
    """Read a transcript, with the transcripts of its subagents beside it.

    Raises TranscriptError if the file is absent, unreadable, or holds no record that Claude Code writes.
    An empty file, or one without conversation, gives a Session without events.
    """
    reader = _read_file(path)
    _require_records(path, reader)
    reader.events = reader.live_events()
    if subagents:
        _add_subagents(reader, path)
    reader.session, reader.title = reader.session_id(path), reader.best_title()
    reader.stamps = [event.timestamp for event in reader.events if event.timestamp]
    return reader.build(path)


def read_part(path: Path, *, taken: int = 0, exchanges: int = 0, waiting: Sequence[Event] = ()) -> TranscriptPart:
    """Read a transcript on from byte `taken`, as far as PART_BYTES or its end; a torn last line is left for later.

    `exchanges` are those before `taken`, `waiting` the calls without a result. Raises OSError, or TranscriptError for a
    file without any record of a transcript.
    """
    reader = TranscriptReader(events=list(waiting))
    for position, call in enumerate(waiting):
        reader.calls.setdefault(call.call_id or "", (call.tool or "", []))[1].append(position)
    part = TranscriptPart(taken=taken, exchanges=exchanges)
    numbers = [0] * len(waiting)
    with path.open("rb") as file:
        file.seek(taken)
        for length, line in read_lines(file):
            if line and line.strip() and not any(sign in line for sign in _STATE):
                first, skipped = len(reader.events), reader.skipped
                read_line(line, reader)
                if reader.skipped > skipped and not line.endswith(b"\n"):
                    reader.skipped = skipped
                    break
                reader.records += 1
                for event in reader.events[first:]:
                    part.exchanges += event.kind is EventKind.PROMPT
                    numbers.append(max(1, part.exchanges))
                part.messages += channels.messages_in_record(line)
            part.taken += length
            if part.taken - taken >= PART_BYTES:
                part.is_last = False
                break
    if not taken:
        _require_records(path, reader)
    _finish_part(part, reader, numbers, waiting=len(waiting))
    return part


def _finish_part(part: TranscriptPart, reader: TranscriptReader, numbers: Sequence[int], *, waiting: int) -> None:
    """Fill the part from the reader; of dead branches only what was said is kept."""
    part.dead = reader.dead_records()
    kept = [
        n
        for n in range(waiting, len(reader.events))
        if reader.events[n].kind in SAID or reader.events[n].uuid not in part.dead
    ]
    part.events, part.numbers = [reader.events[n] for n in kept], [numbers[n] for n in kept]
    part.parents = {uuid: parent for uuid in reader.prompts if (parent := reader.parents.get(uuid))}
    part.folders, part.title, part.skipped = tuple(reader.folders), reader.best_title() or "", reader.skipped
    settled = {event.call_id for event in reader.events if event.kind is EventKind.FILE_EDIT and event.ok is not None}
    part.settled = [call for call in reader.events[:waiting] if call.call_id in settled]


def exchange_numbers(path: Path) -> dict[str, int]:
    """Return the number of the exchange that each prompt of a transcript begins, by the uuid of its record."""
    prompts = [event.uuid for event in _read_file(path).events if event.kind is EventKind.PROMPT]
    return {uuid: number for number, uuid in enumerate(prompts, 1) if uuid}


def _require_records(path: Path, reader: TranscriptReader) -> None:
    if reader.records and not reader.recognised:
        raise TranscriptError(
            f"{path} is not a transcript: none of its {reader.records} lines is a record of one.",
            hint="Those of Claude Code are .jsonl files below ~/.claude/projects; docs/agents.md lists other agents.",
        )


def _read_file(path: Path) -> TranscriptReader:
    reader = TranscriptReader()
    try:
        with path.open("rb") as file:
            for _, line in read_lines(file):
                if line is None or line.strip():
                    reader.records += 1
                    read_line(line or b"", reader)
    except OSError as error:
        raise unreadable(path, error) from error
    return reader


def _add_subagents(reader: TranscriptReader, path: Path) -> None:
    """Insert each subagent's events behind the call that started it, else at the end."""
    for found in find_subagents(str(path)):
        file = Path(found.path)
        try:
            own = _read_file(file)
            described = read_document(meta) if (meta := file.with_suffix(".meta.json")).is_file() else None
        except TranscriptError:
            continue
        # Nobody but another agent speaks to a subagent, and its task stands in the call that started it.
        live = (event for event in own.live_events() if event.kind not in (EventKind.PROMPT, EventKind.PASTE))
        call_id = text_of((described or {}).get("toolUseId"))
        calls = (n for n, event in enumerate(reader.events, 1) if call_id and event.call_id == call_id)
        place = next(calls, len(reader.events))
        reader.events[place:place] = [replace(event, agent_id=event.agent_id or found.part) for event in live]
