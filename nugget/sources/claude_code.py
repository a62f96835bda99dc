"""Claude Code transcripts: JSONL files, one record a line, become a Session of Events.

Format (clients 1.0 to 2.1): every line is an object with a `type`. Only `user`, `assistant`, `system` and
`attachment` records carry conversation; the rest is the client's own state. Records form a tree by
`parentUuid`: going back to an earlier prompt leaves a dead branch, whose events are dropped. A line that
cannot be read is counted in `Session.skipped_records` and never stops the reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from nugget.errors import TranscriptError
from nugget.models import Event, EventKind, Session
from nugget.sources.claude_records import Reading, read_line, text_of

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is counted as unreadable: no record that the client writes comes near it."""


def find_transcripts(claude_config: Path) -> Iterator[Path]:
    """The session files below `claude_config` (normally ~/.claude), subagents' files left out, oldest first."""
    found: list[tuple[float, str, Path]] = []
    for file in (claude_config / "projects").glob("*/*.jsonl"):
        try:
            if not file.name.startswith("agent-") and file.is_file():
                found.append((file.stat().st_mtime, file.as_posix(), file))
        except OSError:
            continue
    yield from (file for _, _, file in sorted(found))


def read_session(path: Path, *, subagents: bool = True) -> Session:
    """Read a transcript, with the transcripts of its subagents where they lie beside it.

    Raises TranscriptError when the file is absent, unreadable, or holds no record that Claude Code writes.
    An empty file, or one without conversation, gives a Session without events.
    """
    reading = _read_file(path)
    require_records(path, reading)
    events = reading.live_events()
    session_id = reading.session_id(path)
    if subagents:
        events = _with_subagents(events, path, session_id)
    stamps = [event.timestamp for event in events if event.timestamp]
    return Session(
        id=session_id,
        agent="claude-code",
        path=str(path),
        events=tuple(events),
        cwd=next(iter(reading.folders), None),
        folders=tuple(reading.folders),
        branch=reading.branch,
        started=min(stamps, default=None),
        ended=max(stamps, default=None),
        title=reading.title(),
        records=reading.records,
        skipped_records=reading.skipped,
    )


def require_records(path: Path, reading: Reading, *, taken: int = 0) -> None:
    """Raise TranscriptError if none of the lines at the beginning of a file is a record that Claude Code writes."""
    if reading.records and not reading.recognised and not taken:
        raise TranscriptError(
            f"{path} is no transcript that can be read: none of its {reading.records} lines is a record of one.",
            hint="Those of Claude Code are .jsonl files below ~/.claude/projects; docs/agents.md lists other agents.",
        )


def _read_file(path: Path) -> Reading:
    reading = Reading()
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                    _skip_line(file)
                    line = b"too long"
                if line.strip():
                    reading.records += 1
                    read_line(line, reading)
    except FileNotFoundError:
        raise TranscriptError(f"There is no transcript at {path}.", hint="The client may have deleted it.") from None
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read ({error.strerror or error}).") from error
    return reading


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _with_subagents(events: list[Event], path: Path, session_id: str) -> list[Event]:
    """Insert each subagent's events behind the call that started it, else at the end."""
    merged = list(events)
    for file in _subagent_files(path, session_id):
        try:
            reading = _read_file(file)
        except TranscriptError:
            continue
        name = file.stem.removeprefix("agent-")
        # Nobody but another agent speaks to a subagent, and its task stands in the call that started it.
        live = (event for event in reading.live_events() if event.kind not in (EventKind.PROMPT, EventKind.PASTE))
        own = [replace(event, agent_id=event.agent_id or name) for event in live]
        call_id = _starting_call(file)
        place = next((n + 1 for n, event in enumerate(merged) if call_id and event.call_id == call_id), len(merged))
        merged[place:place] = own
    return merged


def _subagent_files(path: Path, session_id: str) -> list[Path]:
    """`SESSION/subagents/agent-*.jsonl`; clients up to 2.0 put them beside the session's own file."""
    if path.name.startswith("agent-"):
        return []
    files = sorted(file for file in path.with_suffix("").glob("subagents/agent-*.jsonl") if file.is_file())
    mark = session_id.encode("utf-8", "replace")
    for file in sorted(file for file in path.parent.glob("agent-*.jsonl") if file.is_file()):
        try:
            with file.open("rb") as opened:
                if mark in opened.readline(MAX_LINE_BYTES):
                    files.append(file)
        except OSError:
            continue
    return files


def _starting_call(file: Path) -> str | None:
    try:
        described = json.loads(file.with_suffix(".meta.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return text_of(described.get("toolUseId")) or None if isinstance(described, dict) else None
