"""The sessions of every agent: where they are kept, and how each becomes a models.Session. The logs of any kind.

Each agent has a module that finds, recognises and reads its own files; `_OTHERS` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from nugget.config import Environment, Settings
from nugget.errors import TranscriptError, UsageError
from nugget.models import Event, EventKind, Session, SourceName
from nugget.models import SessionFile as SessionFile
from nugget.sources import channels, claude_code, codex, cursor, gemini, opencode, shell_logs
from nugget.sources.files import (
    DATABASE_MAGIC,
    MAX_DOCUMENT_BYTES,
    AgentFolders,
    LogFile,
    agent_folders,
    archived_sessions,
    find_file,
    list_folder,
    parse_record,
    read_document,
    split_locator,
)

CLAUDE_CODE = claude_code.AGENT
ALL_AGENTS = "all"

_PEEKED_LINES = 20
_PEEKED_BYTES = 4 * 1024 * 1024
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_REF = re.compile(r"sessions?:(?P<id>[^/#]+)(?:/[^#]*)?(?:#\d+)?")


class Source(Protocol):
    """The module of an agent: it finds the agent's sessions, recognises a record of one, and reads one."""

    AGENT: str

    def find(self, folders: AgentFolders) -> Iterable[SessionFile]:
        """Yield the sessions in the agent's folders."""

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """Return whether the agent writes such a record."""

    def read(self, path: Path) -> Session:
        """Read the session in a file. Raises TranscriptError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedExchange:
    """One prompt with all that followed; `number` is the one in refs (`session:<id>#<number>`), 0 before the first."""

    number: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSession:
    """A session, redacted, with its exchanges in order. `is_archived`: the client's own transcript is gone."""

    session: Session
    exchanges: tuple[NumberedExchange, ...]
    is_archived: bool = False


class Reader(StrEnum):
    """How the files of a log are read."""

    LINES = "lines"
    WHOLE = "whole"
    ARCHIVE = "archive"
    CHANNEL = "channel"
    SHELL = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A session, shell or channel with its files.

    `path` is the transcript, the archive, the folder of a shell or the file of a channel.
    """

    reader: Reader
    source: SourceName
    id: str
    path: str
    agent: str = ""
    files: tuple[LogFile, ...] = ()

    @property
    def mtime_ns(self) -> int:
        """Time of the file that was written to last."""
        return max((file.mtime_ns for file in self.files), default=0)


_OTHERS: tuple[Source, ...] = (codex, gemini, cursor, opencode)

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
    if not _PREFIX.fullmatch(prefix):
        return None
    found = {file.id: file for file in find_sessions(environment)}
    name = _id_by_prefix(found, prefix)
    return found[name] if name else None


def _id_by_prefix(ids: Iterable[str], prefix: str) -> str | None:
    """Return the id that is the prefix, else the only one that begins with it; None if none does."""
    found = sorted(name for name in ids if name.startswith(prefix))
    if prefix in found or len(found) < 2:
        return next(iter(found), None)
    some = ", ".join(found[:3])
    raise TranscriptError(f"{len(found)} sessions have an id that begins with {prefix} ({some}…).", hint="Give more.")


def read_any(file: SessionFile | Path) -> Session:
    """Read the session in a file of any agent; of a bare path, the content decides, never the name.

    A session in a database is named `PATH#ID`. Raises TranscriptError if the file is absent, unreadable, or nothing
    that a known agent writes.
    """
    if isinstance(file, SessionFile):
        if file.is_shared:
            read_stored = cursor.read_stored if file.agent == cursor.AGENT else opencode.read_stored
            return read_stored(file.path, file.id)
        file = file.path
    path, name = split_locator(file)
    if path.is_dir() and path.parent.name == "message":
        return opencode.read(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # read twice, a pipe would be half or for ever
        raise TranscriptError(f"{path} is not a file but a pipe or a device.", hint="Save the transcript first.")
    try:
        with path.open("rb") as opened:
            head = opened.read(_PEEKED_BYTES)
    except OSError:
        head = b""
    if head.startswith(DATABASE_MAGIC):
        return _read_database(path, name)
    if head.startswith(codex.ZSTD_MAGIC):
        return codex.read(path)
    return _reader_of(path, head)(path)


def _reader_of(path: Path, head: bytes) -> Callable[[Path], Session]:
    for record in filter(None, map(parse_record, head.split(b"\n")[:_PEEKED_LINES])):
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
    found = [*cursor.stored(path), *opencode.stored(path)]
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


def read_whole_session(environment: Environment, settings: Settings, name: str) -> WholeSession:
    """Return the session whose id is, or begins with, `name`, redacted; a ref such as `session:<id>#3` will do.

    Of a session whose transcript is gone the archive is read. Raises UsageError for a text that cannot be an id,
    TranscriptError if there is no such session or several.
    """
    from nugget.redaction import is_excluded_project, redact_session
    from nugget.sources.archive import read_archive

    ref = _REF.fullmatch(name)
    prefix = ref["id"] if ref else name
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"{name[:80]!r} is no session's id.", hint="`nugget search` names sessions behind `ref:`.")
    if found := find_session_by_id(environment, prefix):
        session = replace(read_any(found), id=found.id)  # the id by which refs name it
    else:
        archived = archived_sessions(environment.home)
        archived_id = _id_by_prefix(archived, prefix)
        if archived_id is None:
            hint = "Claude Code deletes transcripts after 30 days; captured ones are kept."
            raise TranscriptError(f"There is no session {prefix}.", hint=hint)
        session = read_archive(archived[archived_id])
    if is_excluded_project(session, settings=settings):
        raise TranscriptError(
            f"The session {session.id} is of an excluded project.", hint="See `capture.exclude_projects`."
        )
    session, _ = redact_session(session, settings=settings)
    is_numbered = found is not None and found.agent == CLAUDE_CODE
    numbers = claude_code.exchange_numbers(found.path) if found and is_numbered else {}
    exchanges = _exchanges(session.events, numbers)
    return WholeSession(session=session, exchanges=exchanges, is_archived=found is None)


def _exchanges(events: Iterable[Event], numbers: Mapping[str, int]) -> tuple[NumberedExchange, ...]:
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
    return tuple(NumberedExchange(number=number, events=tuple(own)) for number, own in groups)


def find_logs(environment: Environment, settings: Settings, brain: Path | None = None) -> list[Log]:
    """Return all logs, those written to last at the end; none if history is switched off.

    Of a session whose transcript is gone the archived one is taken.
    """
    if not settings.history.enabled:
        return []
    grouped: list[tuple[str, list[LogFile]]] = []
    for session, file in claude_code.find_files(environment.claude_config / "projects"):
        if file.part:
            grouped[-1][1].append(file)
        else:
            grouped.append((session, [file]))
    found = [_session_log(Reader.LINES, name, own[0].path, CLAUDE_CODE, *own) for name, own in grouped]
    others = [agent for agent in AGENTS if agent != CLAUDE_CODE]
    found += map(log_of, find_sessions(environment, others))
    present = {log.id for log in found}
    for session, path in archived_sessions(environment.home).items():
        if session not in present and (archived := find_file(path)):
            found.append(_session_log(Reader.ARCHIVE, session, archived.path, CLAUDE_CODE, archived))
    for channel, path in channels.channel_files(environment.home, *([brain] if brain else [])):
        if own_file := find_file(path):
            files = (own_file,)
            found.append(
                Log(reader=Reader.CHANNEL, source=SourceName.BRIDGE, id=channel, path=own_file.path, files=files)
            )
    for entry in list_folder(environment.shell_logs):
        if shell_logs.is_session_id(entry.name) and entry.is_dir(follow_symlinks=False):
            found += [log for log in [_shell_log(entry.name, entry.path)] if log.files]
    found.sort(key=lambda log: (log.mtime_ns, log.path))
    newest = {(log.source, log.id): log for log in found}  # of a transcript and its copy the newest counts
    return sorted(newest.values(), key=lambda log: (log.mtime_ns, log.path))


def log_of(found: SessionFile | shell_logs.ShellLog) -> Log:
    """Return the log with all files of a session that was found otherwise."""
    if isinstance(found, shell_logs.ShellLog):
        return _shell_log(found.id, str(found.path))
    if found.agent == CLAUDE_CODE and not found.is_shared:
        own = find_file(found.path)
        files = (*([own] if own else []), *claude_code.find_subagents(str(found.path)))
        return _session_log(Reader.LINES, found.id, str(found.path), found.agent, *files)
    file = LogFile(path=found.locator, size=found.size, mtime_ns=int(found.mtime * 1e9))
    return _session_log(Reader.WHOLE, found.id, str(found.path), found.agent, file)


def _session_log(reader: Reader, session: str, path: str, agent: str, *files: LogFile) -> Log:
    return Log(reader=reader, source=SourceName.SESSIONS, id=session, path=path, agent=agent, files=files)


def _shell_log(name: str, folder: str) -> Log:
    """Return the log of a shell session with its files; a link is not a file of it."""
    entries = {entry.name: entry for entry in list_folder(folder) if not entry.is_symlink()}
    known = [entries[file] for file in (shell_logs.EVENTS, shell_logs.INPUT, *shell_logs.STREAMS) if file in entries]
    files = tuple(file for entry in known if (file := find_file(entry)))
    return Log(reader=Reader.SHELL, source=SourceName.SHELL, id=name, path=folder, agent="shell", files=files)
