"""Nuggets travel between machines: the present state of sessions as one JSONL text, and back into a store.

The text is made of the lines of the store: a `session` line, then its nuggets and touches. Taking one in only ever
adds: what the store knows by session, type, summary and scope stays as it is. What comes in is checked line by line,
redacted, and lands in the folder of the workspace that it names, nowhere else.
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
from nugget.sources import nugget_store as store
from nugget.sources import read_lines

MAX_PER_SESSION = 5000
"""Nuggets, and touches, taken from one session of an import; no session has more."""
_MAX_NAME = 200
_ELSEWHERE: dict[str, Any] = {"speaker": Speaker.QUOTED, "origin": SpeechOrigin.PASTED}
"""Speaker of what the user of another machine, or whoever wrote the file, is said to have said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Result of an import: counts of sessions, of new and known nuggets, and the problems."""

    sessions: int
    new: int
    known: int
    touches: int
    problems: tuple[Problem, ...] = ()


def export_lines(home: Path, workspace: str | None = None) -> Iterator[str]:
    """Yield the lines (without ends) of all sessions of a workspace, by default of every workspace.

    The places of transcripts on this machine are left out.
    """
    for file in store.session_files(home, workspace):
        record = replace(store.read_session_file(file)[0], workspace=file.parent.name, transcript=None)
        lines = (store.line_of(record), *map(store.line_of, record.nuggets), *map(store.line_of, record.touches))
        yield from (json.dumps(line, ensure_ascii=False) for line in lines)


def import_lines(home: Path, stream: BinaryIO, *, name: str, settings: Settings, dry_run: bool = False) -> Imported:
    """Take in what `export_lines` gave; `name` is the file's, for its problems. One bad line stops nothing else."""
    problems: list[Problem] = []
    sessions = new = known = touches = 0
    for record in _sessions(stream, name, problems):
        merged, added = _merged(home, record)
        sessions, new, touches = sessions + 1, new + added, touches + len(record.touches)
        known += len(record.nuggets) - added
        try:
            if not dry_run:
                store.write_session(home, merged, allow=allow_list(settings))
        except OSError as error:
            problems.append(Problem(path=name, reason=f"session {record.session} cannot be written ({error.strerror})"))
    return Imported(sessions=sessions, new=new, known=known, touches=touches, problems=tuple(problems))


def _sessions(stream: BinaryIO, name: str, problems: list[Problem]) -> Iterator[SessionRecord]:
    """Yield each session of an import with its nuggets and touches."""
    record: SessionRecord | None = None
    for number, (_, line) in enumerate(read_lines(stream, limit=store.MAX_LINE_BYTES), 1):
        try:
            value = store.read_line(line)
            if isinstance(value, SessionRecord):
                if record is not None:
                    yield record
                record = None
                if len(value.session) > _MAX_NAME or len(value.workspace) > _MAX_NAME:
                    raise store.Unreadable("the name of the session or the workspace is too long")
                # Only a transcript on this machine can say more.
                record = replace(value, records=0, transcript=None)
            elif isinstance(value, Nugget | FileTouch) and record is None:
                raise store.Unreadable("a nugget or touch without a session before it")
            elif isinstance(value, Nugget) and record is not None and len(record.nuggets) < MAX_PER_SESSION:
                record = replace(record, nuggets=(*record.nuggets, _of_session(value, record)))
            elif isinstance(value, FileTouch) and record is not None and len(record.touches) < MAX_PER_SESSION:
                record = replace(record, touches=(*record.touches, value))
        except store.Unreadable as error:
            problems.append(Problem(path=name, line=number, reason=str(error)))
    if record is not None:
        yield record


def _of_session(nugget: Nugget, record: SessionRecord) -> Nugget:
    """Return a nugget that cannot pose as one of another session or repository, nor as words of this machine's user."""
    evidence = tuple(
        replace(one, session=record.session, **(_ELSEWHERE if one.speaker is Speaker.USER else {}))
        for one in nugget.evidence
    )
    said = _ELSEWHERE if nugget.speaker is Speaker.USER else {}
    scope = replace(nugget.scope, repo=record.workspace)
    return replace(nugget, session=record.session, scope=scope, agent=record.agent, evidence=evidence, **said)


def _merged(home: Path, record: SessionRecord) -> tuple[SessionRecord, int]:
    """Return the session as the store will hold it, and how many nuggets that adds."""
    file = store.session_file(home, record.workspace, record.session)
    here = store.read_session_file(file)[0] if file.is_file() else replace(record, nuggets=(), touches=())
    known = {store.natural_key(nugget) for nugget in here.nuggets}
    fresh = {key: nugget for nugget in reversed(record.nuggets) if (key := store.natural_key(nugget)) not in known}
    paths = {touch.path for touch in here.touches}
    touches = {touch.path: touch for touch in record.touches if touch.path not in paths}
    nuggets = [replace(nugget, id="") for nugget in reversed(fresh.values())]
    merged = replace(
        here, workspace=record.workspace, nuggets=(*here.nuggets, *nuggets), touches=(*here.touches, *touches.values())
    )
    return merged, len(nuggets)
