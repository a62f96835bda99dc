"""The sources on this machine other than the brain: canon, provenance, sessions, shells, channels and memory.

`sync_local_sources` indexes everything that changed. `refresh_local_sources` is for a search: it indexes a few changes
and returns how many it left to a sync. Memory is synced only for the identity that was named.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.config import Environment, Settings, expanded
from nugget.index import Index, read_memory
from nugget.index.connection import discard_damaged, home_index_file, open_home, open_memory
from nugget.index.documents import document_changes, sync_documents
from nugget.index.sync import Progress, SyncResult
from nugget.infra import files
from nugget.infra.embedding import Embedder
from nugget.infra.workspace import find_workspace
from nugget.models import Problem, SourceName
from nugget.sources.notes import open_canon, redacting

if TYPE_CHECKING:
    pass

LOCAL_SOURCES = (
    SourceName.CANON,
    SourceName.PROVENANCE,
    SourceName.SESSIONS,
    SourceName.SHELL,
    SourceName.BRIDGE,
)
"""The sources of the machine's index, in the order in which they are synced. Memory has indexes of its own."""

LOCAL_LOCK = "machine-sync.lock"
"""Held in `$NUGGET_HOME` while these sources are synced."""
INLINE_FILES = 50
"""Up to this many changed files are taken in before a search; more are left to a sync of their own."""
INLINE_BYTES = 4_000_000
"""Up to this much of transcripts is read before a search: a tenth of a second."""
_WITH_VECTORS = 3

_HISTORY = frozenset({SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChanges:
    """Changed files a search does not know of yet, by source. `problems` are of the folders that were walked.

    `lacks_vectors`: what was taken in is found by its words alone, until a sync of its own gives it vectors.
    """

    files: Mapping[SourceName, int] = field(default_factory=dict)
    lacks_vectors: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def total(self) -> int:
        """All files that wait."""
        return sum(self.files.values())


def sync_local_sources(
    environment: Environment,
    settings: Settings,
    *,
    brain: Path,
    sources: Sequence[SourceName] = LOCAL_SOURCES,
    embedder: Embedder | None,
    now: datetime,
    progress: Progress | None = None,
) -> dict[SourceName, SyncResult]:
    """Bring the machine's index in line with these sources; what was done, by source.

    Sessions, shells and channels are read in one go and reported as sessions. A damaged index is rebuilt. Raises
    IndexUnavailable where it cannot be written.
    """
    with files.locked(environment.home / LOCAL_LOCK):  # one process at a time, the others wait
        try:
            return _sync_all(environment, settings, brain, sources, embedder, now, progress)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            if not discard_damaged(environment.home):
                raise
            return _sync_all(environment, settings, brain, sources, embedder, now, progress)


def _sync_all(
    environment: Environment,
    settings: Settings,
    brain: Path,
    sources: Sequence[SourceName],
    embedder: Embedder | None,
    now: datetime,
    progress: Progress | None,
) -> dict[SourceName, SyncResult]:
    done: dict[SourceName, SyncResult] = {}
    with closing(open_home(environment.home)) as connection:
        if SourceName.CANON in sources:
            done[SourceName.CANON] = _sync_canon(connection, environment, settings, brain, embedder, progress)
        if SourceName.PROVENANCE in sources:
            from nugget.index.documents import sync_provenance

            done[SourceName.PROVENANCE] = sync_provenance(
                environment.home, connection, embedder=embedder, progress=progress
            )
        if _HISTORY & {*sources}:
            done[SourceName.SESSIONS] = _sync_history(connection, environment, settings, brain, now, progress)
        if embedder and done:
            from nugget.index.embed import embed_missing

            embed_missing(
                connection, embedder=embedder, cache_folder=environment.home / "embeddings", progress=progress
            )
    return done


def refresh_local_sources(
    environment: Environment,
    settings: Settings,
    *,
    brain: Path,
    sources: Sequence[SourceName],
    embedder: Embedder | None,
) -> PendingChanges:
    """Take in what little changed of these sources since the last search; do nothing if there are none."""
    if not _anything(environment, settings, brain):
        return PendingChanges()
    with ExitStack() as stack:

        @cache
        def connect() -> sqlite3.Connection:
            return stack.enter_context(closing(open_home(environment.home)))

        def look(part: SourceName) -> PendingChanges:
            if part is SourceName.CANON:
                return _refresh_canon(connect(), environment, settings, brain, embedder)
            if part is SourceName.PROVENANCE:
                return _refresh_provenance(connect(), environment, embedder)
            return _refresh_history(connect(), environment, settings, brain)

        parts = dict.fromkeys(SourceName.SESSIONS if source in _HISTORY else source for source in sources)
        found = [look(part) for part in parts if part in LOCAL_SOURCES]
    return PendingChanges(
        files={source: count for one in found for source, count in one.files.items()},
        lacks_vectors=any(one.lacks_vectors for one in found),
        problems=tuple(problem for one in found for problem in one.problems),
    )


def _lacks_vectors(connection: sqlite3.Connection, embedder: Embedder | None) -> bool:
    from nugget.index.embed import any_missing

    return embedder is not None and any_missing(connection)


def open_memory_of(
    identity: str,
    environment: Environment,
    settings: Settings,
    *,
    brain: Path,
    embedder: Embedder | None,
    long_lived: bool = False,
) -> Index:
    """Open the index of an identity's memory, synced with its files. Raises UsageError for an invalid identity."""
    from nugget.sources.notes import Memory

    here = find_workspace(Path.cwd())
    workspaces = [*([here.root] if here else []), *(expanded(folder) for folder in settings.memory.workspaces)]
    source = Memory(identity, environment, redact=redacting(settings), brain=brain, workspaces=workspaces)
    with closing(open_memory(environment.home, identity)) as connection:
        changes = document_changes(source, connection)
        if changes or (embedder and _model_of(connection) != embedder.model):
            sync_documents(
                source, connection, embedder=embedder, cache_folder=environment.home / "embeddings", changes=changes
            )
    return read_memory(environment.home, identity, resident=long_lived)


def _anything(environment: Environment, settings: Settings, brain: Path) -> bool:
    """Return whether there is anything on this machine to be searched beside the brain."""
    from nugget.sources.logs import find_logs

    if settings.canon.folders or home_index_file(environment.home).is_file():
        return True
    return (environment.home / "provenance").is_dir() or bool(find_logs(environment, settings, brain))


def _model_of(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'embedding_model'").fetchone()
    return None if row is None else str(row[0])


def _sync_canon(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    brain: Path,
    embedder: Embedder | None,
    progress: Progress | None,
) -> SyncResult:
    source = open_canon(environment, settings, brain)
    result = sync_documents(
        source, connection, embedder=embedder, cache_folder=environment.home / "embeddings", progress=progress
    )
    return replace(result, problems=(*source.problems, *source.left_out, *result.problems))


def _refresh_canon(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    brain: Path,
    embedder: Embedder | None,
) -> PendingChanges:
    source = open_canon(environment, settings, brain)
    changes = document_changes(source, connection)
    problems = tuple(source.problems)
    if not changes or len(changes.modified) > INLINE_FILES:
        return _waiting(SourceName.CANON, len(changes), problems)
    model = embedder if embedder and len(changes) <= _WITH_VECTORS and _model_of(connection) == embedder.model else None
    sync_documents(source, connection, embedder=model, cache_folder=environment.home / "embeddings", changes=changes)
    return PendingChanges(lacks_vectors=_lacks_vectors(connection, embedder), problems=problems)


def _refresh_provenance(
    connection: sqlite3.Connection, environment: Environment, embedder: Embedder | None
) -> PendingChanges:
    from nugget.index.documents import sync_provenance
    from nugget.sources.nugget_store import NuggetUnits

    if not (environment.home / "provenance").is_dir():
        return PendingChanges()
    changes = document_changes(NuggetUnits(environment.home), connection)
    if not changes or len(changes) > INLINE_FILES:
        return _waiting(SourceName.PROVENANCE, len(changes))
    sync_provenance(environment.home, connection)
    return PendingChanges(lacks_vectors=_lacks_vectors(connection, embedder))


def _refresh_history(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path
) -> PendingChanges:
    from nugget.index.ingest import changed_logs, ingest_all, is_outdated

    changed, gained, gone = changed_logs(connection, environment, settings, brain)
    if is_outdated(connection, settings):
        return _waiting(SourceName.SESSIONS, len(changed))
    if not changed and not gone:
        return PendingChanges()
    waiting = len(changed)
    if gained <= INLINE_BYTES and len(changed) <= INLINE_FILES:
        result = ingest_all(connection, environment, settings, brain=brain, wait=False)
        waiting = waiting if result.is_busy else 0
    return _waiting(SourceName.SESSIONS, waiting)


def _waiting(source: SourceName, count: int, problems: tuple[Problem, ...] = ()) -> PendingChanges:
    return PendingChanges(files={source: count} if count else {}, problems=problems)


def _sync_history(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    brain: Path,
    now: datetime,
    progress: Progress | None,
) -> SyncResult:
    """Read what is new in sessions, shells and channels, and derive what went wrong in them."""
    from nugget.evidence import derive_sessions, put_evidence_units
    from nugget.index.events import underived_sessions
    from nugget.index.ingest import ingest_all

    result = ingest_all(connection, environment, settings, brain=brain, now=now, progress=progress)
    derive_sessions(connection, underived_sessions(connection))
    put_evidence_units(connection)
    return SyncResult(
        added=result.added,
        modified=result.modified,
        removed=result.removed,
        unchanged=result.unchanged,
        problems=result.problems,
    )
