"""The one entrance to the sessions of every agent: where they are kept, and how each becomes a models.Session.

Each agent has a module that finds and reads its own files; this one knows which there are. Whoever wants "all
sessions" asks here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from nugget.config import Environment
from nugget.errors import TranscriptError
from nugget.models import Session, SessionFile
from nugget.sources import claude_code as transcripts
from nugget.sources import codex, cursor, gemini, opencode
from nugget.sources import sqlite_snapshot as snapshots
from nugget.sources.event_builder import MAX_DOCUMENT_BYTES, parse_record, read_document
from nugget.sources.files import session_file, split_locator
from nugget.sources.folders import AgentFolders, agent_folders

__all__ = ["AGENTS", "ALL_AGENTS", "CLAUDE_CODE", "SessionFile", "find_session_by_id", "find_sessions", "read_any"]

CLAUDE_CODE = "claude-code"
ALL_AGENTS = "all"

_PEEKED_LINES = 20
_PEEKED_BYTES = 4 * 1024 * 1024

_FINDERS: dict[str, Callable[[AgentFolders], Iterator[SessionFile]]] = {
    codex.AGENT: lambda folders: codex.find(folders.codex),
    gemini.AGENT: lambda folders: gemini.find(folders.gemini),
    cursor.AGENT: lambda folders: cursor.find(folders.cursor_projects, folders.cursor_user),
    opencode.AGENT: lambda folders: opencode.find(folders.opencode),
}
_STORED: dict[str, Callable[[Path, str], Session]] = {
    cursor.AGENT: cursor.read_stored,
    opencode.AGENT: opencode.read_stored,
}

AGENTS = (CLAUDE_CODE, *_FINDERS)
"""The agents whose sessions can be read."""


def find_sessions(environment: Environment, agents: Collection[str] | None = None) -> Iterator[SessionFile]:
    """The sessions of all agents, or of those named, oldest first.

    No transcript is read for that (of Gemini CLI's the first bytes, of databases their list of sessions). A folder
    that is absent or unreadable holds none. Raises UsageError for settings that cannot be taken.
    """
    wanted = AGENTS if agents is None or ALL_AGENTS in agents else agents
    found = list(_find_claude_code(environment)) if CLAUDE_CODE in wanted else []
    if others := [name for name in _FINDERS if name in wanted]:
        folders = agent_folders(environment)
        found += [file for name in others for file in _FINDERS[name](folders)]
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
    """Read the session in a file, whichever agent wrote it: of a bare path, the content tells, never the name.

    A database with several sessions is named together with one of them: `PATH#ID`.
    Raises TranscriptError when the file is absent, unreadable, or nothing that any known agent writes.
    """
    if isinstance(file, SessionFile):
        read_stored = _STORED.get(file.agent)
        if read_stored and (file.is_shared or _head(file.path, len(snapshots.MAGIC)) == snapshots.MAGIC):
            return read_stored(file.path, file.id)
        return read_any(file.path)
    path, name = split_locator(file)
    if path.is_dir() and path.parent.name == "message":
        return opencode.read(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # read twice, a pipe would be half or for ever
        raise TranscriptError(f"{path} is no file but a pipe or a device.", hint="Save the transcript to a file first.")
    head = _head(path)
    if head.startswith(snapshots.MAGIC):
        return _read_database(path, name)
    if head.startswith(codex.ZSTD_MAGIC):
        return codex.read(path)
    reader = _reader_of(path, head)
    return reader(path) if reader else transcripts.read_session(path)


def _reader_of(path: Path, head: bytes) -> Callable[[Path], Session] | None:
    for line in head.split(b"\n")[:_PEEKED_LINES]:
        record = parse_record(line) if line.lstrip().startswith(b"{") and line.strip() != b"{" else None
        if record is None:
            continue
        for recognises, read in (
            (codex.recognises, codex.read),
            (gemini.recognises, gemini.read),
            (cursor.recognises, cursor.read),
            (opencode.recognises, opencode.read),
        ):
            if recognises(record):
                return read
        if isinstance(record.get("type"), str):
            return None
    if head.lstrip().startswith(b"{") and len(head) <= MAX_DOCUMENT_BYTES:
        document = read_document(path) or {}
        return gemini.read if gemini.recognises(document) else opencode.read if opencode.recognises(document) else None
    return None


def _read_database(path: Path, name: str | None) -> Session:
    found = [*cursor.stored(path), *opencode.stored(path)]
    if not found:
        raise TranscriptError(f"{path} is a database without sessions of an agent that Nugget knows.")
    chosen = [file for file in found if file.id == name] if name else found
    if not chosen:
        raise TranscriptError(f"{path} holds no session {name}.")
    if len(chosen) > 1:
        newest = max(chosen, key=lambda file: file.mtime)
        raise TranscriptError(
            f"{path} holds {len(chosen)} sessions.",
            hint=f"Name one of them: '{newest.locator}' is the newest.",
        )
    return read_any(chosen[0])


def _head(path: Path, size: int = _PEEKED_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _find_claude_code(environment: Environment) -> Iterator[SessionFile]:
    for file in transcripts.find_transcripts(environment.claude_config):
        if found := session_file(file, agent=CLAUDE_CODE, name=file.stem):
            yield found
