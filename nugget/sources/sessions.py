"""The sessions of every agent: find them, and read them as models.Session; also the logs of any kind.

Each agent has a module that finds, recognises and reads its own files; `_OTHERS` lists them.

Claude Code deletes its transcripts after 30 days; from the archive, knowledge can still be extracted. Each file of it
contains a session as gzipped JSON lines: a line about the session, then one per event. Its text is redacted, and its
first line names the rules used: `redact_again` applies stricter ones later.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.errors import TranscriptError, UsageError, only_id, reason_of
from nugget.infra import files
from nugget.models import Session, SessionFile
from nugget.sources import (
    ARCHIVE_ENDING,
    DATABASE_MAGIC,
    MAX_DOCUMENT_BYTES,
    Log,
    agent_folders,
    channels,
    claude_code,
    codex,
    cursor,
    gemini,
    log_order,
    opencode,
    parse_record,
    read_document,
    session_file,
    shell_logs,
    source_of,
    split_locator,
)
from nugget.sources.condense import Exchange, cut_at_prompts
from nugget.text import content_hash, is_name, tracked

CLAUDE_CODE = claude_code.AGENT
ALL_AGENTS = "all"
ERASED = "erased.jsonl"
"""The list of sessions that the person erased, which are not read again."""

_ARCHIVE_FORMAT = 1
_MAX_STAMPS = 8
"""The most sets of rules to name; several brains share an archive, each with its own rules."""
_MAX_HEADER_CHARS = 1_000_000
_PEEKED_LINES = 20
_PEEKED_BYTES = 4 * 1024 * 1024

_OTHERS = (codex, gemini, cursor, opencode)

AGENTS = (CLAUDE_CODE, *(source.AGENT for source in _OTHERS))
"""The agents whose sessions can be read."""


def find_sessions(
    environment: Environment, agents: Collection[str] | None = None, settings: Settings | None = None
) -> Iterator[SessionFile]:
    """Yield the sessions of all agents, or of those named, oldest first.

    Transcripts are not read (except the first bytes of Gemini CLI's, and the list of sessions in databases). A missing
    or unreadable folder has none. Raises UsageError for invalid settings.
    """
    wanted = AGENTS if agents is None or ALL_AGENTS in agents else agents
    found: list[SessionFile] = []
    if CLAUDE_CODE in wanted:
        found += (log[0] for log in claude_code.find_logs(environment.claude_config / "projects"))
    if others := [source for source in _OTHERS if source.AGENT in wanted]:
        folders = agent_folders(environment, settings)
        found += [file for source in others for file in source.find(folders)]
    erased = erased_sessions(environment.home)
    yield from sorted((file for file in found if file.id not in erased),
                      key=lambda file: (file.mtime, file.path.as_posix(), file.id))  # fmt: skip


def erased_sessions(home: Path) -> set[str]:
    """Return the ids of the sessions that the person erased."""
    return {str(line.get("session")) for line in files.read_lines(home / ERASED)}


def find_session_by_id(environment: Environment, prefix: str) -> SessionFile | None:
    """Return the session whose id is or begins with `prefix`; None if no session matches.

    If several files share an id (a transcript and its copy), the newest counts. Raises TranscriptError for a prefix
    that several sessions share.
    """
    if not is_name(prefix):
        return None
    found = {file.id: file for file in find_sessions(environment)}
    name = only_id(prefix, found, "session", error=TranscriptError)
    return found[name] if name else None


def read_any(file: SessionFile | Path) -> Session:
    """Read the session in a file of any agent or of the archive; for a bare path, the content decides on the agent.

    A session in a database is named `PATH#ID`. Raises TranscriptError if the file is absent, unreadable, or nothing
    that a known agent writes.
    """
    if isinstance(file, SessionFile):
        if file.is_shared:
            read_stored = cursor.read_stored if file.agent == cursor.AGENT else opencode.read_stored
            return read_stored(file.path, file.id)
        file = file.path
    path, name = split_locator(file)
    if path.name.endswith(ARCHIVE_ENDING):
        return read_archive(path)
    if path.is_dir() and path.parent.name == "message":
        return opencode.read(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe cannot be read twice
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
        readers: Iterator[Callable[[Path], Session]] = (one.read for one in _OTHERS if one.recognises(record))
        if reader := next(readers, None):
            return reader
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


def id_in(name: str) -> str:
    """Return the id, or its beginning, in the name of a session, which may be a ref: `session:4f1c/subagent#3`."""
    return name.removeprefix("session:").removeprefix("sessions:").partition("#")[0].partition("/")[0]


def read_whole_session(
    environment: Environment, settings: Settings, name: str
) -> tuple[Session, tuple[Exchange, ...], bool]:
    """Return the redacted session whose id is or begins with `name`, which may be a ref such as `session:<id>#3`.

    Its exchanges follow, and whether it was read from the archive because the transcript is gone. Raises UsageError for
    an invalid id, TranscriptError for no or several sessions.
    """
    from nugget.redaction import is_excluded_project, redact_session

    prefix = id_in(name)
    if not is_name(prefix):
        raise UsageError(f"{name[:80]!r} is not the id of a session.", hint="`nugget sessions` lists them.")
    if found := find_session_by_id(environment, prefix):
        session = replace(read_any(found), id=found.id)  # the id by which refs name it
    else:
        archived = archived_sessions(environment.home)
        archived_id = only_id(prefix, archived, "session", error=TranscriptError)
        if archived_id is None:
            hint = "Claude Code deletes transcripts after 30 days; captured ones are kept."
            raise TranscriptError(f"There is no session {prefix}.", hint=hint)
        session = read_archive(archived[archived_id])
    if is_excluded_project(session, settings=settings):
        raise TranscriptError(f"{session.id} belongs to an excluded project.", hint="See `capture.exclude_projects`.")
    session, _ = redact_session(session, settings=settings)
    return session, tuple(cut_at_prompts(session.events)), found is None


def find_logs(environment: Environment, settings: Settings, brain: Path | None = None) -> list[Log]:
    """Return all logs, most recently written last; none if history is switched off.

    A session whose transcript is gone is represented by its archive.
    """
    if not settings.history_enabled:
        return []
    found: list[Log] = [(file,) for file in find_sessions(environment, AGENTS[1:], settings)]
    found += claude_code.find_logs(environment.claude_config / "projects")
    present = {log[0].id for log in found}
    for session, path in archived_sessions(environment.home).items():
        if session not in present and (archived := session_file(path, agent=CLAUDE_CODE, name=session)):
            found.append((archived,))
    for channel, path in channels.channel_files(environment.home, brain):
        if own_file := session_file(path, agent="", name=channel):
            found.append((own_file,))
    found += shell_logs.find_shell_sessions(environment.shell_logs)
    erased = erased_sessions(environment.home)
    # The newer of a transcript and its copy counts.
    logs = sorted((log for log in found if log[0].id not in erased), key=log_order)
    return sorted({(source_of(log), log[0].id): log for log in logs}.values(), key=log_order)


def find_log(environment: Environment, session_id: str) -> Log | None:
    """Return the logs of a session: a shell's folder, a transcript or its archive. Raises UsageError for a bad id."""
    if not shell_logs.is_session_id(session_id):
        hint = "An id has letters, digits, `_`, `-`, `.`, `:` and `@`, 128 at most."
        raise UsageError(f"{session_id[:80]!r} is not a session id.", hint=hint)
    if shell := shell_logs.find_shell_session(environment.shell_logs, session_id):
        return shell
    archived = session_file(archive_file(environment.home, session_id), agent=CLAUDE_CODE, name=session_id)
    found = find_session_by_id(environment, session_id) or archived
    subagents = claude_code.find_subagents(found.path) if found and found.agent == CLAUDE_CODE else ()
    return (found, *subagents) if found else None


def archive_file(home: Path, session_id: str) -> Path:
    """Return the path of an archived session; an id that is not a plain file name is replaced by its hash."""
    plain = is_name(session_id, signs="_-", most=100)
    name = session_id if plain else content_hash(session_id)[:32]
    return home / "archive" / f"{name}{ARCHIVE_ENDING}"


def archived_sessions(home: Path) -> dict[str, Path]:
    """Return the archived files by session name."""
    found = sorted((home / "archive").glob(f"*{ARCHIVE_ENDING}"))
    return {file.name.removesuffix(ARCHIVE_ENDING): file for file in found if file.is_file()}


def write_archive(home: Path, session: Session, *, stamps: Sequence[str] = ()) -> Path:
    """Archive a redacted session, replacing an earlier archive unless that already holds all its events.

    `stamps` name the rules that redacted it (`redaction.rules_stamp`).
    """
    file = archive_file(home, session.id)
    with files.locked(home / "locks" / "archive.lock"):
        with suppress(TranscriptError):
            held = {(event.uuid, event.kind) for event in read_archive(file).events}
            if held.issuperset((event.uuid, event.kind) for event in session.events):
                return file
        _write_archive(file, session, stamps)
    return file


def outdated_archives(home: Path, settings: Settings) -> list[Path]:
    """Return the archived sessions that older rules redacted, reading only their first lines."""
    from nugget.redaction import rules_stamp

    stamp = rules_stamp(settings)
    return [file for file in archived_sessions(home).values() if stamp not in _stamps(file)]


def redact_again(home: Path, settings: Settings) -> dict[str, list[str]]:
    """Redact the `outdated_archives` by the current rules; sessions of excluded projects are removed.

    Text that an earlier rule removed stays removed. Files are replaced atomically, so this can be stopped at any time.
    Returns the files `rewritten`, those `removed`, and what `failed`.
    """
    from nugget.redaction import is_excluded_project, redact_session, rules_stamp

    done: dict[str, list[str]] = {"rewritten": [], "removed": [], "failed": []}
    for file in tracked(outdated_archives(home, settings), "Redacting sessions"):
        with files.locked(home / "locks" / "archive.lock"):
            try:
                session = read_archive(file)
                if is_excluded_project(session, settings=settings):
                    file.unlink()
                    done["removed"].append(str(file))
                    continue
                cleaned, _ = redact_session(session, settings=settings)
                _write_archive(file, cleaned, [*_stamps(file)[-_MAX_STAMPS + 1 :], rules_stamp(settings)])
                done["rewritten"] += [str(file)] if cleaned != session else []
            except Exception as error:
                done["failed"].append(f"{file}: {reason_of(error)}")
    return done


def _stamps(file: Path) -> list[str]:
    """Return the stamps in an archive's first line; empty if it cannot be read."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            named = (parse_record(lines.readline(_MAX_HEADER_CHARS)) or {}).get("redacted_by")
    except (OSError, EOFError, zlib.error, ValueError):
        return []
    return [str(stamp) for stamp in named] if isinstance(named, list) else []


def _write_archive(file: Path, session: Session, stamps: Sequence[str]) -> None:
    about = {"format": _ARCHIVE_FORMAT, "redacted_by": list(stamps)} | asdict(replace(session, events=()))
    # An empty `before` means an empty file, none an unknown one.
    kept = ("before", "after")
    filled = (asdict(event).items() for event in session.events)
    events = ({key: one for key, one in event if one is not None and (one != "" or key in kept)} for event in filled)
    lines = [json.dumps(one, ensure_ascii=False, default=datetime.isoformat) for one in (about, *events)]
    packed = gzip.compress("\n".join([*lines, ""]).encode("utf-8", "replace"), compresslevel=6, mtime=0)
    files.replace(file, packed)
    files.sync_folder(file.parent)


def read_archive(file: Path) -> Session:
    """Return the archived session. Raises TranscriptError when the file is absent, damaged or of a newer format."""
    from pydantic import TypeAdapter

    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            about = json.loads(next(lines, ""))
            if about.pop("format") != _ARCHIVE_FORMAT:
                raise TranscriptError(f"{file} was written by a newer Nugget.", hint="Update Nugget.")
            events = [{"text": "", **json.loads(line)} for line in lines]
        session: Session = TypeAdapter(Session).validate_python(about | {"events": events})
        return session
    except FileNotFoundError as error:
        raise TranscriptError(f"{file} does not exist.") from error
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TranscriptError(f"{file} is damaged and cannot be read ({error}).") from error
