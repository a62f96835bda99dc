"""Bring an opened index in line with a brain: take out what the changed files held, put in what they hold now."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable
from nugget.index import queries, writes
from nugget.index.connection import write_transaction
from nugget.index.sync.changes import changes_of
from nugget.index.sync.preparing import Prepared, prepared
from nugget.index.sync.result import Progress, SyncResult
from nugget.index.sync.vectors import Vectors
from nugget.index.vector_cache import VectorCache
from nugget.infra.embedding import Embedder
from nugget.infra.embedding.other_models import HttpEmbedder
from nugget.models import FileState, Problem, SourceName
from nugget.sources import brain as brain_source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BRAIN = SourceName.BRAIN


def update(
    brain: Path,
    connection: sqlite3.Connection,
    folder: Path,
    embedder: Embedder | None,
    unavailable: str | None,
    progress: Progress | None,
    *,
    rebuilt: str | None = None,
) -> SyncResult:
    """Write what changed, in one transaction; `rebuilt` says why the index is new and empty."""
    changes = changes_of(brain, connection)
    if not changes and not rebuilt:
        if changes.state != queries.meta(connection, "brain_state"):
            with write_transaction(connection):
                writes.put_meta(connection, brain_state=changes.state)
        return _result(connection, SyncResult(), changes)
    indexed = queries.meta(connection, "embedding_model") or ""
    if not rebuilt and embedder and embedder.model != indexed:
        # Vectors of two models never stand in one index: what changed goes without until it is made anew.
        embedder, unavailable = None, unavailable or f"the index has vectors of {indexed or 'no model'}"
    cache = VectorCache(folder / "embeddings", embedder.model) if embedder else None
    size = _size_now(embedder) if rebuilt else queries.vector_size(connection)
    vectors = Vectors(embedder, cache, size, unavailable=unavailable)
    try:
        with write_transaction(connection):
            result = _apply(brain, connection, changes, vectors, progress, has_model=bool(indexed) and not rebuilt)
            complete = not vectors.unavailable
            writes.put_meta(connection, brain_state=changes.state if complete else "")
            if rebuilt:
                writes.put_meta(connection, embedding_model=embedder.model if embedder and complete else "")
            writes.put_statistics(connection, everything=bool(rebuilt))
        if rebuilt and cache and complete:
            cache.keep_only(vectors.used)
    finally:
        if cache:
            cache.close()
    result = replace(
        result, embedded=vectors.embedded, cached=vectors.cached, rebuilt=rebuilt, without_vectors=vectors.unavailable
    )
    return _result(connection, result, changes)


def _size_now(embedder: Embedder | None) -> int | None:
    """The size in bytes of what an endpoint answers with today, whatever is cached of it; None where it is not known.

    A model of this machine stays what it is.
    """
    if not isinstance(embedder, HttpEmbedder):
        return None
    try:
        return embedder.embed_query("How large is a vector?").nbytes
    except EmbeddingUnavailable:
        return None


def _apply(
    brain: Path,
    connection: sqlite3.Connection,
    changes: brain_source.Changes,
    vectors: Vectors,
    progress: Progress | None,
    *,
    has_model: bool,
) -> SyncResult:
    """Take out what the changed files held, then put in what they hold now; `has_model`: others have vectors."""
    before = queries.file_states(connection, _BRAIN, [*changes.modified, *changes.removed])
    shadowed = _files_behind(connection, before)
    for path, state in before.items():
        if state.unit_id:
            _release(connection, state.unit_id, path)
    for path in changes.removed:
        writes.remove_file(connection, _BRAIN, path)
    paths = sorted({*changes.modified, *shadowed})
    hashes_before = {state.hash: path for path, state in before.items() if path in changes.removed}
    added = modified = moved = done = 0
    for batch in prepared(brain, paths, vectors):
        for entry, its_vectors in zip(batch, vectors.of([entry.texts for entry in batch]), strict=True):
            state = entry.file.state
            if state.path in before:
                modified += before[state.path].hash != state.hash
            elif state.path not in shadowed:
                is_move = hashes_before.pop(state.hash, None) is not None
                moved, added = moved + is_move, added + (not is_move)
            _put(connection, entry, its_vectors, is_behind=has_model and bool(vectors.unavailable))
            done += 1
            if progress:
                progress("Indexing", done, len(paths))
    return SyncResult(added=added, modified=modified, moved=moved, removed=len(changes.removed) - moved)


def _files_behind(connection: sqlite3.Connection, before: dict[str, FileState]) -> list[str]:
    """Files that claim an id which one of the changed files held: one of them may have it now."""
    released = [state.unit_id for state in before.values() if state.unit_id]
    return [path for path in queries.paths_claiming(connection, _BRAIN, released) if path not in before]


def _release(connection: sqlite3.Connection, unit_id: str, path: str) -> None:
    if queries.unit_path(connection, _BRAIN, unit_id) == path:
        writes.remove_unit(connection, _BRAIN, unit_id)


def _put(
    connection: sqlite3.Connection, entry: Prepared, vectors: Sequence[NDArray[np.float32]], *, is_behind: bool
) -> None:
    """Write a file and its unit. Of several files with one id, the path that sorts first has it."""
    state, unit = entry.file.state, entry.file.unit
    if unit and (owner := queries.unit_path(connection, _BRAIN, unit.id)) and owner != state.path:
        keeper, loser = sorted([owner, state.path])
        taken = Problem(path=loser, reason=f"the id {unit.id} is already that of {keeper}; give this file another one")
        if loser == state.path:
            state, unit = replace(state, problems=(*state.problems, taken)), None
        else:
            lost = queries.file_states(connection, _BRAIN, [loser])[loser]
            writes.put_files(connection, _BRAIN, [replace(lost, problems=(*lost.problems, taken))])
    if is_behind:
        state = replace(state, mtime_ns=0)  # so that the next sync, finding a model, reads it again
    writes.put_files(connection, _BRAIN, [state])
    if unit:
        writes.put_unit(
            connection, writes.IndexedUnit(unit=unit, chunks=entry.chunks, vectors=vectors, columns=entry.columns)
        )


def _result(connection: sqlite3.Connection, result: SyncResult, changes: brain_source.Changes) -> SyncResult:
    problems = (*changes.problems, *queries.problems(connection, _BRAIN))
    total = connection.execute("SELECT count(*) FROM files WHERE source = ?", (_BRAIN,)).fetchone()[0]
    unchanged = total - result.added - result.modified - result.moved
    return replace(result, unchanged=unchanged, problems=problems)
