"""Keep the indexes current: the brain's, and that of canon, provenance, sessions, shells and channels.

`sync_local_sources` indexes everything that changed outside the brain. `refresh` is for a question: it indexes a few
changes of any source and returns how many it left to a sync. Memory is synced only for the identity that was named.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.app.brains import guarded, source_names
from nugget.config import Environment, Settings, expanded
from nugget.errors import BrainError, IndexUnavailable, NuggetError
from nugget.evidence.derive import derive_sessions, put_evidence_units
from nugget.index.embedded import Index, read_memory
from nugget.index.embedded.connection import open_home, open_memory
from nugget.index.embedded.events import underived_sessions
from nugget.index.embedded.ingest import changed_logs, ingest_all, is_outdated
from nugget.index.embedded.sync import SyncResult, document_changes, pending_changes, sync_documents, sync_provenance
from nugget.index.embedded.units import meta
from nugget.index.embedded.vectors import any_missing, embed_missing
from nugget.infra import files, git
from nugget.infra.workspace import find_workspace
from nugget.models import Problem, SourceName
from nugget.retrieval.history import HISTORY_SOURCES
from nugget.sources.notes import memory_of, open_canon, redactor

if TYPE_CHECKING:
    from nugget.app import Brain

LOCAL_SOURCES = SourceName.CANON, SourceName.PROVENANCE, SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE
"""The sources of the machine's index, in the order in which they are synced. Memory has indexes of its own."""
LOCAL_LOCK = "machine-sync.lock"
"""Lock in `$NUGGET_HOME`, held while these sources are synced."""
INLINE_FILES = 50
"""Maximum number of changed files to index before a search; more wait for a sync."""
INLINE_BYTES = 8_000_000
"""Maximum size of changed transcripts to read before a search, about a quarter of a second."""

_WITH_VECTORS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """State of the indexes beside their files.

    `files` counts the changed files that are not indexed yet, by source. `lacks_vectors`: some new units are
    found by their words alone until a sync. `other_model`: the brain's index has no vectors of the configured model,
    and `model_problem` says why the last sync could not load it. `rebuilt` says why an existing index has just been
    rebuilt. `problems` are those of the canon folders.
    """

    files: Mapping[SourceName, int] = field(default_factory=dict)
    lacks_vectors: bool = False
    other_model: bool = False
    model_problem: str | None = None
    rebuilt: str | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def is_behind(self) -> bool:
        """True if a sync would change the answer."""
        return bool(self.files) or (self.other_model and not self.model_problem)


def refresh(brain: Brain, sources: Sequence[SourceName] = (SourceName.BRAIN,)) -> IndexState:
    """Index a few changes of these sources since the last question; leave many, or another model, to a separate sync.

    Builds the brain's index if there is no usable one. An index that cannot be written (full disk, another writer) is
    used as it is. Raises BrainError if the brain's folder is gone.
    """
    state = _refresh_brain(brain) if SourceName.BRAIN in sources else IndexState()
    if not (wanted := {*sources} & {*LOCAL_SOURCES}):
        return state
    try:
        with closing(open_home(brain.environment.home)) as connection:
            return _refresh_local(brain, connection, wanted, state)
    except (IndexUnavailable, sqlite3.DatabaseError):  # a full disk, another process at work, damage
        return state


def _refresh_brain(brain: Brain) -> IndexState:
    if not brain.path.is_dir():
        raise BrainError(f"{brain.path} no longer exists.", hint="Put it back, or name another brain.")
    for other in brain.others:
        with suppress(NuggetError, OSError, sqlite3.Error):
            _refresh_brain(other)
    git.finish_pending(brain.path)
    if brain.settings.index:
        return IndexState()
    was_there = (brain.index_folder / "index.db").is_file()
    pending = pending_changes(brain.path, brain.environment)
    if pending is None:
        rebuilt = brain.sync().rebuilt
        return IndexState(rebuilt=rebuilt if was_there else None)
    index, embedder, state = brain.embedded_index, brain.embedder, IndexState()
    if embedder is not None and embedder.model != index.embedding_model:
        state = IndexState(other_model=True, model_problem=index.model_problem(embedder.model))
    if 0 < pending <= INLINE_FILES:
        with suppress(IndexUnavailable):
            return replace(state, rebuilt=brain.sync(in_passing=True).rebuilt)
    return replace(state, files={SourceName.BRAIN: pending} if pending else {})


def _refresh_local(
    brain: Brain, connection: sqlite3.Connection, wanted: Set[SourceName], state: IndexState
) -> IndexState:
    environment, settings, embedder = brain.environment, brain.settings, brain.embedder
    home, waiting, problems, is_changed = environment.home, dict(state.files), tuple[Problem, ...](), False
    if SourceName.PROVENANCE in wanted:
        is_changed = sync_provenance(home, connection).changed
    if SourceName.CANON in wanted:
        canon = open_canon(environment, settings, brain.path)
        changes, problems = document_changes(canon, connection), tuple(canon.problems)
        number = len(changes[0]) + len(changes[1])
        if len(changes[0]) > INLINE_FILES:
            waiting[SourceName.CANON] = number
        elif number:
            is_ready = embedder and number <= _WITH_VECTORS and meta(connection, "embedding_model") == embedder.model
            sync_documents(canon, connection, embedder=embedder if is_ready else None, changes=changes)
            if embedder and is_ready:
                embed_missing(connection, embedder=embedder, cache_folder=home / "embeddings")
            is_changed = True
    lacks_vectors = is_changed and embedder is not None and any_missing(connection)
    if wanted & {*HISTORY_SOURCES} and (left := read_new_logs(connection, environment, settings, brain.path)):
        waiting[SourceName.SESSIONS] = left
    return replace(state, files=waiting, lacks_vectors=lacks_vectors, problems=problems)


def sync_local_sources(brain: Brain, sources: Sequence[SourceName | str] = ()) -> dict[SourceName, SyncResult]:
    """Index the changed files of sources other than the brain; return the results by source.

    Sessions, shells and channels are read in one go and reported as sessions. A damaged index is rebuilt. Raises
    IndexUnavailable if it cannot be written.
    """
    chosen = source_names(sources) or LOCAL_SOURCES
    with files.locked(brain.environment.home / LOCAL_LOCK):  # one process at a time, the others wait
        return guarded(brain, lambda: _sync_all(brain, chosen))


def _sync_all(brain: Brain, sources: Sequence[SourceName]) -> dict[SourceName, SyncResult]:
    home, embedder = brain.environment.home, brain.embedder
    done: dict[SourceName, SyncResult] = {}
    with closing(open_home(home)) as connection:
        if SourceName.CANON in sources:
            canon = open_canon(brain.environment, brain.settings, brain.path)
            result = sync_documents(canon, connection, embedder=embedder)
            done[SourceName.CANON] = replace(result, problems=(*result.problems, *canon.left_out))
        if SourceName.PROVENANCE in sources:
            done[SourceName.PROVENANCE] = sync_provenance(home, connection, embedder=embedder)
        if {*HISTORY_SOURCES} & {*sources}:
            done[SourceName.SESSIONS] = read_logs(connection, brain.environment, brain.settings, brain.path)
        if embedder and done:
            # Only now, so that the words of every source are searchable before the first vector is made.
            made = embed_missing(connection, embedder=embedder, cache_folder=home / "embeddings")
            first = next(iter(done))
            done[first] = replace(done[first], **made)
    return done


def read_logs(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path | None
) -> SyncResult:
    """Read new entries of sessions, shells and channels, and derive incidents from them."""
    result = ingest_all(connection, environment, settings, brain=brain, now=datetime.now(UTC))
    derive_sessions(connection, underived_sessions(connection))
    put_evidence_units(connection)
    return result or SyncResult()


def read_new_logs(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path | None
) -> int:
    """Read the changed logs if they are few; return how many are left to a sync."""
    changed, size, gone = changed_logs(connection, environment, settings, brain)
    is_small = size <= INLINE_BYTES and len(changed) <= INLINE_FILES
    if not (changed or gone) or not is_small or is_outdated(connection, settings):
        return len(changed)
    return 0 if ingest_all(connection, environment, settings, brain=brain, wait=False) else len(changed)


def open_memory_of(brain: Brain, identity: str) -> Index:
    """Open the index of an identity's memory, synced with its files. Raises UsageError for an invalid identity."""
    environment, settings, embedder = brain.environment, brain.settings, brain.embedder
    workspaces = [find_workspace(Path.cwd()).root, *(expanded(folder) for folder in settings.memory_workspaces)]
    source = memory_of(identity, environment, redact=redactor(settings), brain=brain.path, workspaces=workspaces)
    with closing(open_memory(environment.home, identity)) as connection:
        changes = document_changes(source, connection)
        if any(changes[:2]) or (embedder and meta(connection, "embedding_model") != embedder.model):
            sync_documents(source, connection, embedder=embedder, changes=changes)
            if embedder:
                embed_missing(connection, embedder=embedder, cache_folder=environment.home / "embeddings")
    return read_memory(environment.home, identity)


def sync_in_background(brain: Brain, *, source: str = "brain") -> bool:
    """Start a detached `nugget sync` of the brain or of `machine`; return False if one is running.

    The new process inherits a lock, so that only one of several commands starts it.
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
