"""The sessions of every agent: where they are kept, and how each becomes a models.Session.

Each agent has a module that finds, recognises and reads its own files; `_OTHERS` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from nugget.config import Environment
from nugget.errors import TranscriptError
from nugget.models import Session
from nugget.models import SessionFile as SessionFile
from nugget.sources import claude_code, codex, cursor, gemini, opencode
from nugget.sources.files import AgentFolders, agent_folders, split_locator
from nugget.sources.records import MAX_DOCUMENT_BYTES, parse_record, read_document
from nugget.sources.sqlite_snapshot import MAGIC

CLAUDE_CODE = claude_code.AGENT
ALL_AGENTS = "all"

_PEEKED_LINES = 20
_PEEKED_BYTES = 4 * 1024 * 1024


class Source(Protocol):
    """The module of an agent: it finds the agent's sessions, recognises a record of one, and reads one."""

    AGENT: str

    def find(self, folders: AgentFolders) -> Iterable[SessionFile]:
        """Yield the sessions in the agent's folders."""

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """Return whether the agent writes such a record."""

    def read(self, path: Path) -> Session:
        """Read the session in a file. Raises TranscriptError."""


class DatabaseSource(Source, Protocol):
    """The module of an agent that keeps several sessions in one database."""

    def stored(self, database: Path) -> list[SessionFile]:
        """Return the sessions in a database. Raises TranscriptError."""

    def read_stored(self, database: Path, name: str) -> Session:
        """Read one session of a database. Raises TranscriptError."""


_OTHERS: tuple[Source, ...] = (codex, gemini, cursor, opencode)
_DATABASES: tuple[DatabaseSource, ...] = (cursor, opencode)

AGENTS = (CLAUDE_CODE, *(source.AGENT for source in _OTHERS))
"""The agents whose sessions can be read."""


def find_sessions(environment: Environment, agents: Collection[str] | None = None) -> Iterator[SessionFile]:
    """Yield the sessions of all agents, or of those named, oldest first.

    Transcripts are not read (of Gemini CLI's the first bytes, of databases their list of sessions). A folder that is
    absent or unreadable holds none. Raises UsageError for invalid settings.
    """
    wanted = AGENTS if agents is None or ALL_AGENTS in agents else agents
    found: list[SessionFile] = []
    if CLAUDE_CODE in wanted:
        found += [
            SessionFile(path=Path(file.path), agent=CLAUDE_CODE, id=name, mtime=file.mtime, size=file.size)
            for name, file in claude_code.find_files(environment.claude_config / "projects")
            if not file.part
        ]
    if others := [source for source in _OTHERS if source.AGENT in wanted]:
        folders = agent_folders(environment)
        found += [file for source in others for file in source.find(folders)]
    yield from sorted(found, key=lambda file: (file.mtime, file.path.as_posix(), file.id))


def find_session_by_id(environment: Environment, prefix: str) -> SessionFile | None:
    """Return the session whose id is, or begins with, `prefix`; None if there is none.

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
    """Read the session in a file of any agent; of a bare path, the content decides, never the name.

    A session in a database is named `PATH#ID`. Raises TranscriptError if the file is absent, unreadable, or nothing
    that a known agent writes.
    """
    if isinstance(file, SessionFile):
        if file.is_shared:
            return next(source for source in _DATABASES if file.agent == source.AGENT).read_stored(file.path, file.id)
        file = file.path
    path, name = split_locator(file)
    if path.is_dir() and path.parent.name == "message":
        return opencode.read(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # read twice, a pipe would be half or for ever
        raise TranscriptError(f"{path} is not a file but a pipe or a device.", hint="Save the transcript first.")
    head = _head(path)
    if head.startswith(MAGIC):
        return _read_database(path, name)
    if head.startswith(codex.ZSTD_MAGIC):
        return codex.read(path)
    return _reader_of(path, head)(path)


def _reader_of(path: Path, head: bytes) -> Callable[[Path], Session]:
    for line in head.split(b"\n")[:_PEEKED_LINES]:
        if (record := parse_record(line)) is None:
            continue
        if source := next((source for source in _OTHERS if source.recognises(record)), None):
            return source.read
        if isinstance(record.get("type"), str):
            return claude_code.read_session
    if head.lstrip().startswith(b"{") and len(head) <= MAX_DOCUMENT_BYTES:
        document = read_document(path) or {}
        found = (source.read for source in (gemini, opencode) if source.recognises(document))
        return next(found, claude_code.read_session)
    return claude_code.read_session


def _read_database(path: Path, name: str | None) -> Session:
    found = [file for source in _DATABASES for file in source.stored(path)]
    if not found:
        raise TranscriptError(f"{path} is a database without sessions of an agent that Nugget knows.")
    chosen = [file for file in found if file.id == name] if name else found
    if not chosen:
        raise TranscriptError(f"{path} holds no session {name}.")
    if len(chosen) > 1:
        newest = max(chosen, key=lambda file: file.mtime)
        hint = f"Name one of them: '{newest.locator}' is the newest."
        raise TranscriptError(f"{path} holds {len(chosen)} sessions.", hint=hint)
    return read_any(chosen[0])


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_PEEKED_BYTES)
    except OSError:
        return b""
