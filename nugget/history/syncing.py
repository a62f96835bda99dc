"""Bring the passages of the machine's index in line with the files of history.

What changed is known by size and time; what grew is read on from where reading stopped. It is committed every few
megabytes, so that an interruption loses little and other writers get their turn.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.config import Environment, Settings
from nugget.errors import NuggetError, TranscriptError
from nugget.history import finding, reading
from nugget.history.assembly import Clean
from nugget.history.texts import read_session_of
from nugget.history.values import PASSAGE_CHARS, Passage
from nugget.history.words import indexed_text, mark_of_source
from nugget.index import history as tables
from nugget.index.connection import write_transaction
from nugget.index.history import HistoryFile, NewPassage
from nugget.infra import files
from nugget.models import Problem, Session, SourceName
from nugget.redaction import allow_list, is_excluded_project, redact
from nugget.sources import channels as bridge

if TYPE_CHECKING:
    from nugget.index.sync.result import Progress

READING_VERSION = 1
"""Raise it when what is read of a file changes: everything is then read anew."""

_EXCLUDED = "excluded"
_BATCH_CHARS = 4_000_000
_BATCH_BYTES = 32_000_000
_BATCH_FILES = 500
_BATCH_SECONDS = 2.0
_FEW_DEAD_ROWS = 20_000
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """What a sync of history did. `is_busy`: another process is at it, so that nothing was done here."""

    added: int = 0
    modified: int = 0
    removed: int = 0
    unchanged: int = 0
    passages: int = 0
    bytes_read: int = 0
    is_busy: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the index is another one than before."""
        return bool(self.added or self.modified or self.removed)


@dataclass(slots=True)
class _Work:
    """A sync under way: what it was given, and what waits for the next commit."""

    connection: sqlite3.Connection
    settings: Settings
    clean: Clean
    progress: Progress | None
    total: int
    next_key: int
    families: dict[str, dict[str, int]] = field(default_factory=dict)
    waiting: list[tuple[HistoryFile, list[NewPassage], bool]] = field(default_factory=list)
    waiting_chars: int = 0
    committed: float = field(default_factory=time.monotonic)
    bytes_read: int = 0
    settled: int = 0
    passages: int = 0


def sync_history(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    *,
    brain: Path | None = None,
    wait: bool = True,
    progress: Progress | None = None,
) -> HistoryResult:
    """Read what is new in transcripts, archive and channels into the machine's index.

    One process reads at a time; `wait=False` returns at once where another one does. Safe to interrupt at any point.
    """
    lock = files.try_lock(environment.home / "history.lock", wait=wait)
    if lock is None:
        return HistoryResult(is_busy=True)
    try:
        return _sync(connection, environment, settings, brain, progress)
    finally:
        os.close(lock)


def _sync(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    brain: Path | None,
    progress: Progress | None,
) -> HistoryResult:
    rules = _rules(settings)
    if is_outgrown(connection, settings):
        with write_transaction(connection):
            tables.clear(connection, rules)
    found = finding.find_history(environment, settings, brain)
    known = tables.known_states(connection)
    gone = [path for path in known if path not in found]
    modified = {path for path, file in found.items() if known.get(path, (0, -1, -1))[1:] != (file.size, file.mtime_ns)}
    if not gone and not modified:
        return HistoryResult(unchanged=len(found))
    if not found:  # not a word of it stays
        with write_transaction(connection):
            tables.clear(connection, rules)
        return HistoryResult(removed=len(gone))
    allow = allow_list(settings)
    work = _Work(
        connection=connection,
        settings=settings,
        clean=lambda text: redact(text, allow=allow).text,
        progress=progress,
        total=sum(found[path].size for path in modified),
        next_key=tables.next_file_key(connection),
    )
    modified |= _remove(work, gone) & found.keys()
    for file in sorted((found[path] for path in modified), key=lambda file: (file.mtime_ns, file.path)):
        _read(work, file)
    _commit(work)
    _name_workspaces(connection)
    _drop_dead(connection, rules)
    added = len(modified - known.keys())
    return HistoryResult(
        added=added,
        modified=len(modified) - added,
        removed=len(gone),
        unchanged=len(found) - len(modified),
        passages=work.passages,
        bytes_read=work.bytes_read,
        problems=problems_of(connection),
    )


def is_outgrown(connection: sqlite3.Connection, settings: Settings) -> bool:
    """Whether what was read was read by other rules (redaction, excluded projects), so that a sync reads all anew."""
    return tables.meta(connection, "history_rules") != _rules(settings)


def problems_of(connection: sqlite3.Connection) -> tuple[Problem, ...]:
    """The files of history that cannot be read, and why."""
    rows = tables.files_where(connection, "problem NOT IN ('', ?)", (_EXCLUDED,))
    return tuple(Problem(path=row.path, reason=row.problem) for row in rows)


def _rules(settings: Settings) -> str:
    """What decides how files are read: when it changes, what was read by other rules does not hold any more."""
    parts = (READING_VERSION, PASSAGE_CHARS, settings.capture.exclude_projects, settings.redaction.allow)
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:16]


def _remove(work: _Work, gone: Sequence[str]) -> set[str]:
    """Take out files that are gone. Returns the forks of them, whose copies of their records count from now on."""
    families = tables.family_members(work.connection)
    orphans: set[str] = set()
    for path in gone:
        for members in families.values():
            if members.pop(path, None) is not None:
                orphans |= members.keys()
    with write_transaction(work.connection):
        for file in tables.files_at(work.connection, [*gone, *orphans]):
            tables.remove_file(work.connection, file.key)
    work.families = {name: {p: n for p, n in files.items() if p not in orphans} for name, files in families.items()}
    return orphans


def _read(work: _Work, file: HistoryFile) -> None:
    """Read a new or changed file as far as it goes, portion by portion."""
    old = next(iter(tables.files_at(work.connection, [file.path])), None)
    if old is not None and old.problem == _EXCLUDED:
        _put(work, replace(old, size=file.size, mtime_ns=file.mtime_ns), [], anew=False)
        return
    try:
        if file.reader == finding.LINES:
            _read_transcript(work, file, old)
        elif file.reader == finding.CHANNEL:
            _read_channel(work, file, old)
        elif file.reader == finding.SHELL:
            _read_shell(work, file, old)
        else:
            _read_whole(work, file, old)
    except (OSError, NuggetError) as error:
        reason = f"cannot be read ({error.strerror or error})" if isinstance(error, OSError) else str(error)
        _put(work, replace(file, key=old.key if old else 0, problem=reason), [], anew=True)


def _read_transcript(work: _Work, file: HistoryFile, old: HistoryFile | None) -> None:
    path = Path(file.path)
    at = old if old is not None and _has_grown(file, old) else None
    session = file.session or (old.session if old else "") or reading.session_named_in(path)
    family = at.family if at else reading.first_uuid(path)
    siblings = work.families.setdefault(family, {}) if family else {}
    known: set[str] = set()
    if at is None:
        for sibling, taken in siblings.items():
            known |= reading.uuids_of(Path(sibling), taken) if sibling != file.path else set()
    state = replace(
        at or file,
        key=old.key if old else 0,
        session=session,
        family=family,
        size=file.size,
        mtime_ns=file.mtime_ns,
        problem="",
    )
    anew = at is None
    while True:
        portion = reading.read_portion(
            path,
            taken=state.taken,
            exchanges=state.exchanges,
            channel=bridge.channel_of_session(session),
            known=known,
            clean=work.clean,
        )
        if _is_excluded(work, state, portion.folders):
            _put(work, replace(state, problem=_EXCLUDED, title=""), [], anew=True)
            return
        work.bytes_read += portion.taken - state.taken
        state = replace(
            state,
            taken=portion.taken,
            mark=reading.mark_of(path, portion.taken),
            exchanges=portion.exchanges,
            folder=state.folder or next(iter(portion.folders), ""),
            title=portion.title or state.title,
        )
        siblings[file.path] = state.taken
        # A file that is not finished has no size yet, so that an interrupted sync is known to go on with it.
        state = replace(state, size=file.size if portion.is_last else -1)
        state = _put(work, state, portion.passages, anew=anew)
        if portion.is_last:
            return
        anew = False


def _read_channel(work: _Work, file: HistoryFile, old: HistoryFile | None) -> None:
    at = old if old is not None and _has_grown(file, old) else None
    path = Path(file.path)
    portion = reading.read_channel(path, taken=at.taken if at else 0, channel=file.session, clean=work.clean)
    work.bytes_read += portion.taken - (at.taken if at else 0)
    mark = reading.mark_of(path, portion.taken)
    state = replace(file, key=old.key if old else 0, taken=portion.taken, mark=mark, workspace="")
    _put(work, state, portion.passages, anew=at is None)


def _read_shell(work: _Work, file: HistoryFile, old: HistoryFile | None) -> None:
    path = Path(file.path)
    at = old if old is not None and _has_grown(file, old) else None
    state = replace(file, key=old.key if old else 0, workspace="")
    state = replace(state, taken=at.taken, exchanges=at.exchanges) if at else state
    anew = at is None
    while True:
        portion = reading.read_shell(
            path, taken=state.taken, exchanges=state.exchanges, at=file.mtime_ns // 10**9, clean=work.clean
        )
        work.bytes_read += portion.taken - state.taken
        mark = reading.mark_of(path, portion.taken)
        size = file.size if portion.is_last else -1
        state = replace(state, taken=portion.taken, exchanges=portion.exchanges, mark=mark, size=size)
        state = _put(work, state, portion.passages, anew=anew)
        if portion.is_last:
            return
        anew = False


def _read_whole(work: _Work, file: HistoryFile, old: HistoryFile | None) -> None:
    """Read a session of another agent, or from the archive: it has no lines to go on from."""
    session = read_session_of(file)
    state = replace(file, key=old.key if old else 0, folder=session.cwd or "", title=work.clean(session.title or ""))
    if _is_excluded(work, state, session.folders or ((session.cwd,) if session.cwd else ())):
        _put(work, replace(state, problem=_EXCLUDED, title=""), [], anew=True)
        return
    family = next((event.uuid for event in session.events if event.uuid), "")
    siblings = work.families.setdefault(family, {}) if family else {}
    known: set[str] = set()
    for sibling, taken in siblings.items():
        if sibling != file.path:
            known |= _archived_uuids(sibling) if sibling.endswith(".gz") else reading.uuids_of(Path(sibling), taken)
    portion = reading.read_events(session.events, work.clean, at=file.mtime_ns // 10**9, known=known)
    siblings[file.path] = 0
    work.bytes_read += file.size
    _put(work, replace(state, family=family, exchanges=portion.exchanges), portion.passages, anew=True)


def _archived_uuids(path: str) -> set[str]:
    from nugget.sources.archive import read_archive

    with suppress(TranscriptError):
        return {event.uuid for event in read_archive(Path(path)).events}
    return set()


def _has_grown(file: HistoryFile, old: HistoryFile) -> bool:
    """Whether what was read of a file still stands at its beginning."""
    return bool(old.taken) and file.size >= old.taken and reading.mark_of(Path(file.path), old.taken) == old.mark


def _is_excluded(work: _Work, file: HistoryFile, folders: Iterable[str]) -> bool:
    session = Session(
        id=file.session, agent=file.agent, path=file.path, events=(), cwd=file.folder or None, folders=tuple(folders)
    )
    return is_excluded_project(session, settings=work.settings)


def _put(work: _Work, file: HistoryFile, passages: Sequence[Passage], *, anew: bool) -> HistoryFile:
    """Let the state of a file and its new passages wait for the next commit; `anew` replaces the old ones."""
    if not file.key:
        file = replace(file, key=work.next_key)
        work.next_key += 1
    work.waiting.append((file, [_new(passage) for passage in passages], anew))
    work.waiting_chars += sum(len(passage.text) for passage in passages)
    is_due = time.monotonic() - work.committed > _BATCH_SECONDS or work.bytes_read - work.settled > _BATCH_BYTES
    if work.waiting_chars > _BATCH_CHARS or is_due or len(work.waiting) >= _BATCH_FILES:
        _commit(work)
    return file


def _new(passage: Passage) -> NewPassage:
    source = passage.role.source
    body = passage.text.split(": ", 1)[-1] if passage.channel else ""
    return NewPassage(
        role=passage.role,
        number=passage.number,
        at=passage.at,
        place=passage.place.packed(),
        words=indexed_text(passage.text) + ("" if source is SourceName.SESSIONS else f" {mark_of_source(source)}"),
        channel=passage.channel,
        hash=hashlib.sha256(" ".join(body.split()).encode("utf-8", "replace")).hexdigest()[:16] if body else "",
    )


def _commit(work: _Work) -> None:
    if work.waiting:
        with write_transaction(work.connection):
            for file, passages, anew in work.waiting:
                if anew:
                    tables.remove_passages(work.connection, file.key)
                tables.put_file(work.connection, file)
                work.passages += tables.put_passages(work.connection, file.key, passages)
    work.waiting, work.waiting_chars, work.settled, work.committed = [], 0, work.bytes_read, time.monotonic()
    if work.progress and work.total:
        done = min(work.bytes_read, work.total)
        work.progress("Reading sessions (MB)", done // _MEGABYTE, -(-work.total // _MEGABYTE))


def _name_workspaces(connection: sqlite3.Connection) -> None:
    """Look up which repositories the folders of new files belong to."""
    from nugget.infra.workspace import find_workspace, vanished_workspace

    unnamed = tables.folders_without_workspace(connection)
    named = {}
    for folder in unnamed:
        with suppress(OSError, NuggetError, ValueError):
            place = Path(folder)
            named[folder] = (find_workspace(place) or vanished_workspace(place)).identity if folder else ""
    if unnamed:
        with write_transaction(connection):
            tables.name_workspaces(connection, {folder: named.get(folder, "") for folder in unnamed})


def _drop_dead(connection: sqlite3.Connection, rules: str) -> None:
    """Forget all history when most of the full text stands for nothing any more: the next sync reads it anew."""
    live, dead = tables.passage_counts(connection)
    if dead > max(_FEW_DEAD_ROWS, 2 * live):
        with write_transaction(connection):
            tables.clear(connection, rules)
