"""Read a whole session from its transcript or from the archive, redacted, as numbered exchanges."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.errors import TranscriptError, UsageError
from nugget.models import Event, EventKind, Session
from nugget.redaction import is_excluded_project, redact_session
from nugget.sources import sessions
from nugget.sources.claude_code import exchange_numbers

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_REF = re.compile(r"sessions?:(?P<id>[^/#]+)(?:/[^#]*)?(?:#\d+)?")
_ARCHIVED = ".jsonl.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One prompt with all that followed; `number` is the one in refs (`session:<id>#<number>`), 0 before the first."""

    number: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSession:
    """A session with its exchanges, in order. `is_archived`: the client's own transcript is gone."""

    session: Session
    exchanges: tuple[Exchange, ...]
    is_archived: bool = False


def read_whole_session(environment: Environment, settings: Settings, name: str) -> WholeSession:
    """Return the session whose id is, or begins with, `name`; a ref such as `session:<id>#3` will do.

    Raises UsageError for a text that cannot be an id, TranscriptError if there is no such session or several.
    """
    ref = _REF.fullmatch(name)
    prefix = ref["id"] if ref else name
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"{name[:80]!r} is no session's id.", hint="`nugget search` names sessions behind `ref:`.")
    found = sessions.find_session_by_id(environment, prefix)
    if found is not None:
        session, is_archived = sessions.read_any(found), False
    else:
        session, is_archived = _read_archived(environment.home / "archive", prefix), True
    if is_excluded_project(session, settings=settings):
        raise TranscriptError(
            f"The session {session.id} is of an excluded project.", hint="See `capture.exclude_projects`."
        )
    redacted, _ = redact_session(session, settings=settings)
    numbers: Mapping[str, int] = {}
    if found is not None and found.agent == sessions.CLAUDE_CODE:
        numbers = exchange_numbers(found.path)
    if found is not None:
        redacted = replace(redacted, id=found.id)  # the id by which refs name it
    return WholeSession(session=redacted, exchanges=_exchanges(redacted.events, numbers), is_archived=is_archived)


def _exchanges(events: Sequence[Event], numbers: Mapping[str, int]) -> tuple[Exchange, ...]:
    """Return the events by exchange; a prompt that is not in `numbers` is counted on from the last."""
    groups: list[tuple[int, list[Event]]] = []
    for event in events:
        if event.kind is EventKind.PROMPT and not event.agent_id:
            number = numbers.get(event.uuid) or (groups[-1][0] if groups else 0) + 1
            if not groups or groups[-1][0] != number:
                groups.append((number, []))
        elif not groups:
            groups.append((0, []))
        groups[-1][1].append(event)
    return tuple(Exchange(number=number, events=tuple(own)) for number, own in groups)


def _read_archived(folder: Path, prefix: str) -> Session:
    from nugget.sources.archive import read_archive

    files = sorted(file for file in folder.glob("*" + _ARCHIVED) if file.name.startswith(prefix))
    exact = folder / f"{prefix}{_ARCHIVED}"
    if exact in files or len(files) == 1:
        return read_archive(exact if exact in files else files[0])
    if files:
        some = ", ".join(file.name.removesuffix(_ARCHIVED) for file in files[:3])
        raise TranscriptError(f"{len(files)} archived sessions begin with {prefix} ({some}…).", hint="Give more.")
    raise TranscriptError(
        f"There is no session {prefix}.", hint="Claude Code deletes transcripts after 30 days; captured ones are kept."
    )
