"""Nuggets travel between machines: the present state of sessions as one JSONL text, and back into a store.

The text is made of the lines of the store (nugget/sources/provenance.py): a `session` line, then its nuggets and
touches. Taking one in only ever adds: what the store knows by session, type, summary and scope stays as it is, and a
session that was extracted here stays what its own transcript says. What comes in is checked line by line, redacted,
and lands in the folder of the workspace that it names, nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from nugget.config import Settings
from nugget.models import Problem, Speaker, SpeechOrigin
from nugget.models.nuggets import FileTouch, Nugget, SessionRecord
from nugget.redaction import allow_list
from nugget.sources import nugget_store_lines as lines
from nugget.sources.nugget_store import (
    MAX_LINE_BYTES,
    natural_key,
    read_session_file,
    session_file,
    session_files,
    write_session,
)

MAX_PER_SESSION = 5000
"""Nuggets, and touches, taken from one session of an import; no session has more."""
MAX_BYTES = 500_000_000
MAX_LINES = 2_000_000
MAX_PROBLEMS = 1000
"""After so much, or so many lines that are none of an export, reading ends: standard input may never."""
_MAX_NAME = 200


_ELSEWHERE: dict[str, Any] = {"speaker": Speaker.QUOTED, "origin": SpeechOrigin.PASTED}
"""Who speaks in what the user of another machine, or whoever wrote the file, is said to have said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Result of an import: counts of sessions, of new and known nuggets, and the problems."""

    sessions: int
    new: int
    known: int
    touches: int
    problems: tuple[Problem, ...] = ()


def export_lines(home: Path, workspace: str | None = None) -> Iterator[str]:
    """Yield the lines (without ends) of all sessions of a workspace, of every workspace where none is named.

    Where a transcript lies on this machine stays here.
    """
    for file in session_files(home, workspace):
        record = replace(read_session_file(file)[0], workspace=file.parent.name, transcript=None)
        told = [lines.record_line(record)]
        told += [lines.nugget_line(nugget) for nugget in record.nuggets]
        told += [lines.touch_line(touch) for touch in record.touches]
        yield from (json.dumps(line, ensure_ascii=False) for line in told)


def import_lines(home: Path, stream: BinaryIO, *, name: str, settings: Settings, dry_run: bool = False) -> Imported:
    """Take in what `export_lines` gave; `name` is the file's, for its problems. One bad line stops nothing else."""
    problems: list[Problem] = []
    sessions = new = known = touches = 0
    for record in _sections(stream, name, problems):
        merged, added, same = _merged(home, record)
        sessions, new, known = sessions + 1, new + added, known + same
        touches += len(record.touches)
        if dry_run:
            continue
        try:
            write_session(home, merged, allow=allow_list(settings))
        except OSError as error:
            problems.append(Problem(path=name, reason=f"session {record.session} cannot be written ({error.strerror})"))
    return Imported(sessions=sessions, new=new, known=known, touches=touches, problems=tuple(problems))


def _sections(stream: BinaryIO, name: str, problems: list[Problem]) -> Iterator[SessionRecord]:
    """Yield each session of an import with its nuggets and touches."""
    record: SessionRecord | None = None
    nuggets: list[Nugget] = []
    touches: list[FileTouch] = []
    for number, line in enumerate(_lines(stream, name, problems), 1):
        try:
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                raise lines.Unreadable("the line is too long")
            values = lines.parse(line) if line.strip() else {}
            kind = values.get("kind")
            if kind == "session":
                if record is not None:
                    yield replace(record, nuggets=tuple(nuggets), touches=tuple(touches))
                record, nuggets, touches = None, [], []
                record = _checked(lines.read_record(values))
            elif kind in ("nugget", "touch") and record is None:
                raise lines.Unreadable(f"a {kind} without a session before it")
            elif kind == "nugget" and record is not None and len(nuggets) < MAX_PER_SESSION:
                nuggets.append(_of_session(lines.read_nugget(values), record))
            elif kind == "touch" and len(touches) < MAX_PER_SESSION:
                touches.append(lines.read_touch(values))
        except lines.Unreadable as error:
            problems.append(Problem(path=name, line=number, reason=str(error)))
    if record is not None:
        yield replace(record, nuggets=tuple(nuggets), touches=tuple(touches))


def _lines(stream: BinaryIO, name: str, problems: list[Problem]) -> Iterator[bytes]:
    """Yield the lines of an import, of one that is too long the beginning; what is beyond the limits is a problem."""
    read = number = 0
    is_inside = False
    while piece := stream.readline(MAX_LINE_BYTES):
        read += len(piece)
        number += not is_inside
        if read > MAX_BYTES or number > MAX_LINES or len(problems) >= MAX_PROBLEMS:
            why = f"what follows is not read: {_limit_met(read, number)}"
            problems.append(Problem(path=name, line=number, reason=why))
            return
        if not is_inside:
            yield piece
        is_inside = not piece.endswith(b"\n")


def _limit_met(read: int, number: int) -> str:
    if read > MAX_BYTES:
        return f"an import is at most {MAX_BYTES:,} bytes"
    return f"an import has at most {MAX_LINES:,} lines" if number > MAX_LINES else "too many lines are no export's"


def _checked(record: SessionRecord) -> SessionRecord:
    """Return a session as it may come in: without what only a transcript on this machine can say."""
    if len(record.session) > _MAX_NAME or len(record.workspace) > _MAX_NAME:
        raise lines.Unreadable("the name of the session or the workspace is too long")
    return replace(record, records=0, transcript=None)


def _of_session(nugget: Nugget, record: SessionRecord) -> Nugget:
    """Return a nugget cannot pose as one of another session or repository, nor as the words of this machine's user."""
    evidence = tuple(
        replace(one, session=record.session, **(_ELSEWHERE if one.speaker is Speaker.USER else {}))
        for one in nugget.evidence
    )
    said = _ELSEWHERE if nugget.speaker is Speaker.USER else {}
    scope = replace(nugget.scope, repo=record.workspace)
    return replace(nugget, session=record.session, scope=scope, agent=record.agent, evidence=evidence, **said)


def _merged(home: Path, record: SessionRecord) -> tuple[SessionRecord, int, int]:
    """Return the session as the store will hold it, how many nuggets that adds, and how many it knew."""
    file = session_file(home, record.workspace, record.session)
    here = read_session_file(file)[0] if file.is_file() else None
    base = replace(here, workspace=record.workspace) if here is not None else replace(record, nuggets=(), touches=())
    keys = {natural_key(nugget) for nugget in base.nuggets}
    fresh: list[Nugget] = []
    for nugget in record.nuggets:
        if (key := natural_key(nugget)) not in keys:
            keys.add(key)
            fresh.append(replace(nugget, id=""))
    paths = {touch.path for touch in base.touches}
    touches = {touch.path: touch for touch in record.touches if touch.path not in paths}
    merged = replace(base, nuggets=(*base.nuggets, *fresh), touches=(*base.touches, *touches.values()))
    return merged, len(fresh), len(record.nuggets) - len(fresh)
