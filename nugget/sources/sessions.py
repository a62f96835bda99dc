"""The one entrance to the sessions of every agent: where they are kept, and how each becomes a models.Session.

Each agent has a module that finds and reads its own files; this one knows which there are. Whoever wants "all
sessions" asks here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from nugget.config import Environment
from nugget.errors import TranscriptError
from nugget.models import Session
from nugget.sources import transcripts

CLAUDE_CODE = "claude-code"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFile:
    """A session as it lies on disk, unread. `mtime` is in seconds since the epoch, `size` in bytes."""

    path: Path
    agent: str
    id: str
    mtime: float
    size: int


def find_sessions(environment: Environment, agents: Collection[str] | None = None) -> Iterator[SessionFile]:
    """The sessions of all agents, or of those named, oldest first. Nothing is read but names, sizes and times.

    A folder that is absent or unreadable holds none.
    """
    found = [file for name, find in _FINDERS.items() if agents is None or name in agents for file in find(environment)]
    yield from sorted(found, key=lambda file: (file.mtime, file.path.as_posix(), file.id))


def find_session_by_id(environment: Environment, prefix: str) -> SessionFile | None:
    """The session whose id is, or begins with, `prefix`; None where there is none.

    Of several files with one id (a transcript and its copy) the newest counts. Raises TranscriptError for a prefix
    that several sessions share.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", prefix):
        return None
    found = {file.id: file for file in find_sessions(environment) if file.id.startswith(prefix)}
    if prefix in found or len(found) < 2:
        return found.get(prefix) or next(iter(found.values()), None)
    some = ", ".join(sorted(found)[:3])
    raise TranscriptError(f"{len(found)} sessions have an id that begins with {prefix} ({some}…).", hint="Give more.")


def read_any(file: SessionFile | Path) -> Session:
    """Read the session in a file, whichever agent wrote it; of a bare path, the content tells which.

    Raises TranscriptError when the file is absent, unreadable, or nothing that any known agent writes.
    """
    return transcripts.read_session(file.path if isinstance(file, SessionFile) else file)


def _find_claude_code(environment: Environment) -> Iterator[SessionFile]:
    for file in transcripts.find_transcripts(environment.claude_config):
        try:
            stat = file.stat()
        except OSError:
            continue
        yield SessionFile(path=file, agent=CLAUDE_CODE, id=file.stem, mtime=stat.st_mtime, size=stat.st_size)


_FINDERS: dict[str, Callable[[Environment], Iterator[SessionFile]]] = {CLAUDE_CODE: _find_claude_code}
