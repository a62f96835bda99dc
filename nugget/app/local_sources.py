"""The sources on this machine other than the brain: canon, provenance, sessions, shells, channels and memory.

`sync_local_sources` indexes everything that changed. `refresh_local_sources` is for a search: it indexes a few changes
and returns how many it left to a sync. Memory is synced only for the identity that was named.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.app.brains import source_names
from nugget.config import Environment, Settings, expanded
from nugget.errors import IndexUnavailable
from nugget.index import Index, SyncResult, read_memory
from nugget.index.connection import discard_damaged, open_home, open_memory
from nugget.index.events import underived_sessions
from nugget.index.sync import document_changes, sync_documents, sync_provenance
from nugget.index.vectors import any_missing
from nugget.infra import files
from nugget.infra.workspace import find_workspace
from nugget.models import Problem, SourceName
from nugget.sources.notes import memory_of, open_canon, redacting
from nugget.sources.nugget_store import NuggetUnits

if TYPE_CHECKING:
    from nugget.app import Brain

LOCAL_SOURCES = (
    SourceName.CANON, SourceName.PROVENANCE, SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE,
)  # fmt: skip
"""The sources of the machine's index, in the order in which they are synced. Memory has indexes of its own."""
LOCAL_LOCK = "machine-sync.lock"
"""Held in `$NUGGET_HOME` while these sources are synced."""
INLINE_FILES = 50
"""Up to this many changed files are indexed before a search; more are left to a sync of their own."""
INLINE_BYTES = 8_000_000
"""Up to this much of changed transcripts is read before a search: a quarter of a second."""

_WITH_VECTORS = 3
_HISTORY = frozenset({SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChanges:
    """Changed files a search does not know of yet, by source. `problems` are of the folders that were walked.

    `lacks_vectors`: what was indexed is found by its words alone, until a sync of its own gives it vectors.
    """

    files: Mapping[SourceName, int] = field(default_factory=dict)
    lacks_vectors: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def total(self) -> int:
        """All files that wait."""
        return sum(self.files.values())


def sync_local_sources(brain: Brain, sources: Sequence[SourceName | str] = ()) -> dict[SourceName, SyncResult]:
    """Index the changed files of sources other than the brain; return the results by source.

    Sessions, shells and channels are read in one go and reported as sessions. A damaged index is rebuilt. Raises
    IndexUnavailable if it cannot be written.
    """
    home, chosen = brain.environment.home, source_names(sources) or LOCAL_SOURCES
    with files.locked(home / LOCAL_LOCK):  # one process at a time, the others wait
        try:
            return _sync_all(brain, chosen)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            if not discard_damaged(home):
                raise
            return _sync_all(brain, chosen)


def _sync_all(brain: Brain, sources: Sequence[SourceName]) -> dict[SourceName, SyncResult]:
    home, embedder = brain.environment.home, brain.embedder
    done: dict[SourceName, SyncResult] = {}
    with closing(open_home(home)) as connection:
        if SourceName.CANON in sources:
            canon = open_canon(brain.environment, brain.settings, brain.path)
            result = sync_documents(
                canon, connection, embedder=embedder, cache_folder=home / "embeddings", with_vectors=False
            )
            problems = (*canon.problems, *canon.left_out, *result.problems)
            done[SourceName.CANON] = replace(result, problems=problems)
        if SourceName.PROVENANCE in sources:
            done[SourceName.PROVENANCE] = sync_provenance(home, connection, embedder=embedder)
        if _HISTORY & {*sources}:
            done[SourceName.SESSIONS] = read_logs(connection, brain.environment, brain.settings, brain.path)
        if embedder and done:
            from nugget.index.vectors import embed_missing

            # Only now, so that the words of every source are searchable before the first vector is made.
            made = embed_missing(connection, embedder=embedder, cache_folder=home / "embeddings")
            first = next(iter(done))
            done[first] = replace(done[first], **made)
    return done


def read_logs(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path | None
) -> SyncResult:
    """Read what is new in sessions, shells and channels, and derive what went wrong in them."""
    from nugget.evidence.derive import derive_sessions, put_evidence_units
    from nugget.index.ingest import ingest_all

    result = ingest_all(connection, environment, settings, brain=brain, now=datetime.now(UTC))
    derive_sessions(connection, underived_sessions(connection))
    put_evidence_units(connection)
    same = ("added", "modified", "removed", "unchanged", "problems")
    return SyncResult(**{name: getattr(result, name) for name in same})


def refresh_local_sources(brain: Brain, sources: Sequence[SourceName]) -> PendingChanges:
    """Index the little that changed outside the brain; return how much was left to `sync_local_sources`."""
    wanted = {*sources} & {*LOCAL_SOURCES}
    home, embedder = brain.environment.home, brain.embedder
    waiting: dict[SourceName, int] = {}
    problems: tuple[Problem, ...] = ()
    is_changed = lacks_vectors = False
    if not wanted:
        return PendingChanges()
    try:
        with closing(open_home(home)) as connection:
            if SourceName.PROVENANCE in wanted and document_changes(NuggetUnits(home), connection):
                sync_provenance(home, connection)
                is_changed = True
            if SourceName.CANON in wanted:
                canon = open_canon(brain.environment, brain.settings, brain.path)
                changes, problems = document_changes(canon, connection), tuple(canon.problems)
                if len(changes.modified) > INLINE_FILES:
                    waiting[SourceName.CANON] = len(changes)
                elif changes:
                    is_ready = embedder and len(changes) <= _WITH_VECTORS and _model_of(connection) == embedder.model
                    sync_documents(
                        canon, connection, embedder=embedder if is_ready else None,
                        cache_folder=home / "embeddings", changes=changes,
                    )  # fmt: skip
                    is_changed = True
            lacks_vectors = is_changed and embedder is not None and any_missing(connection)
            if wanted & _HISTORY and (left := read_new_logs(connection, brain.environment, brain.settings, brain.path)):
                waiting[SourceName.SESSIONS] = left
    except (IndexUnavailable, sqlite3.DatabaseError):  # a full disk, another process at work, damage
        return PendingChanges()
    return PendingChanges(files=waiting, lacks_vectors=lacks_vectors, problems=problems)


def read_new_logs(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path | None
) -> int:
    """Read the logs that changed if they are few; return how many were left to a sync."""
    from nugget.index.ingest import changed_logs, ingest_all, is_outdated

    changed, size, gone = changed_logs(connection, environment, settings, brain)
    is_small = size <= INLINE_BYTES and len(changed) <= INLINE_FILES
    if not (changed or gone) or not is_small or is_outdated(connection, settings):
        return len(changed)
    return len(changed) if ingest_all(connection, environment, settings, brain=brain, wait=False).is_busy else 0


def open_memory_of(brain: Brain, identity: str) -> Index:
    """Open the index of an identity's memory, synced with its files. Raises UsageError for an invalid identity."""
    environment, settings, embedder = brain.environment, brain.settings, brain.embedder
    here = find_workspace(Path.cwd())
    workspaces = [*([here.root] if here else []), *(expanded(folder) for folder in settings.memory_workspaces)]
    source = memory_of(identity, environment, redact=redacting(settings), brain=brain.path, workspaces=workspaces)
    with closing(open_memory(environment.home, identity)) as connection:
        changes = document_changes(source, connection)
        if changes or (embedder and _model_of(connection) != embedder.model):
            sync_documents(
                source, connection, embedder=embedder, cache_folder=environment.home / "embeddings", changes=changes
            )
    return read_memory(environment.home, identity)


def sync_in_background(brain: Brain, *, source: str = "brain") -> bool:
    """Start a `nugget sync` of the brain, or of `machine`, that outlives this process; False if one is at work.

    The new process inherits a lock that it holds while it lives: of any number of commands at once one starts it.
    """
    lock_file = brain.index_folder / "sync.lock" if source == "brain" else brain.environment.home / LOCAL_LOCK
    lock = files.try_lock(lock_file.with_suffix(".started"))
    if lock is None:
        return False
    try:
        arguments = ["--brain", str(brain.path), "sync", "--no-pull", "--source", source]
        files.start_detached([sys.executable, "-P", "-m", "nugget", *arguments], keep=lock)
    finally:
        os.close(lock)
    return True


def _model_of(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'embedding_model'").fetchone()
    return None if row is None else str(row[0])
