"""The sessions of a workspace: those that provenance knows, and those that lie on disk and were not extracted yet."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.errors import NuggetError, UsageError, reason_of
from nugget.index import provenance as stored
from nugget.index.provenance import IndexedSession
from nugget.infra.workspace import Workspace
from nugget.models import EventKind, Session, SessionFile
from nugget.models.nuggets import FileTouch, Nugget, SessionRecord
from nugget.sources.session_workspaces import WorkspaceFinder
from nugget.sources.sessions import find_sessions, read_any

_HEAD_BYTES = 65_536
_FOLDER = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSession:
    """A session of a workspace. Without `indexed` it was found on disk and not extracted yet."""

    record: SessionRecord
    indexed: IndexedSession | None = None
    file: SessionFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDetail:
    """A session in full: what was asked, what it touched and taught, how many events of each kind it has.

    `problem` says why its transcript could not be read; prompts and events are those of the store then, or none.
    """

    known: KnownSession
    prompts: tuple[str, ...] = ()
    events: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    touches: tuple[FileTouch, ...] = ()
    nuggets: tuple[Nugget, ...] = ()
    problem: str | None = None


def workspace_sessions(
    connection: sqlite3.Connection, workspace: Workspace, environment: Environment, *, since: datetime | None = None
) -> list[KnownSession]:
    """Return the sessions of a workspace that ended at `since` or later, newest first."""
    files = {file.id: file for file in find_sessions(environment)}
    known = [
        KnownSession(record=one.record, indexed=one, file=files.get(one.record.session))
        for one in stored.sessions(connection, workspace.identity, since=since)
    ]
    extracted = {one.record.session for one in stored.sessions(connection, workspace.identity)}
    finder = WorkspaceFinder(environment.home)
    for file in files.values():
        ended = datetime.fromtimestamp(file.mtime, UTC)
        if file.id in extracted or (since and ended < since):
            continue
        folder = _folder_of(file)
        if folder and finder.of_folder(folder).identity == workspace.identity:
            record = SessionRecord(session=file.id, workspace=workspace.identity, agent=file.agent, ended=ended)
            known.append(KnownSession(record=record, file=file))
    return sorted(known, key=_moment, reverse=True)


def session_detail(
    connection: sqlite3.Connection, workspace: Workspace, environment: Environment, settings: Settings, prefix: str
) -> SessionDetail:
    """One session of a workspace, by its id or the beginning of it. Nothing secret is in what is returned.

    Raises UsageError where no session, or more than one, has such an id.
    """
    found = [one for one in workspace_sessions(connection, workspace, environment) if _begins(one, prefix)]
    if len(found) != 1:
        if not found:
            raise UsageError(
                f"No session of {workspace.name} has an id that begins with {prefix!r}.",
                hint="`nugget sessions` lists them.",
            )
        some = ", ".join(one.record.session for one in found[:3])
        raise UsageError(f"{len(found)} sessions have an id that begins with {prefix!r} ({some}…).", hint="Give more.")
    (known,) = found
    touches = stored.touches_of(connection, known.indexed.file) if known.indexed else []
    nuggets = list(stored.nugget_list(connection, workspace.identity, session=known.record.session))
    try:
        session = _read(known, settings)
    except Exception as error:
        prompts = (known.record.first_prompt,) if known.record.first_prompt else ()
        return SessionDetail(
            known=known, prompts=prompts, touches=tuple(touches), nuggets=tuple(nuggets), problem=reason_of(error)
        )
    return SessionDetail(
        known=known,
        prompts=tuple(event.text for event in session.events if event.kind is EventKind.PROMPT),
        events=dict(Counter(str(event.kind) for event in session.events)),
        failed=sum(event.ok is False for event in session.events),
        touches=tuple(touches),
        nuggets=tuple(nuggets),
    )


def _read(known: KnownSession, settings: Settings) -> Session:
    from nugget.redaction import redact_session

    place = known.file or (Path(known.record.transcript) if known.record.transcript else None)
    if place is None or (isinstance(place, Path) and not place.is_file()):
        raise NuggetError("Its transcript is not on this machine (any more).")
    return redact_session(read_any(place), settings=settings)[0]


def _folder_of(file: SessionFile) -> str | None:
    """Return the folder that a session ran in, from the beginning of its file; None where that does not tell."""
    if file.is_shared:
        return None
    try:
        with file.path.open("rb") as content:
            found = _FOLDER.search(content.read(_HEAD_BYTES))
        return str(json.loads(found[1])) if found else None
    except (OSError, ValueError):
        return None


def _begins(one: KnownSession, prefix: str) -> bool:
    return bool(prefix) and one.record.session.startswith(prefix)


def _moment(one: KnownSession) -> datetime:
    return one.record.started or one.record.ended or datetime.min.replace(tzinfo=UTC)
