"""Bring the machine's index in line with the files of a source: canon, memory, provenance.

What changed is found by size and time, then by hash. It is written a batch of files at a time, so that other writers
get their turn and an interrupted sync goes on where it was; vectors follow when all words are in.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from stat import S_ISREG

from nugget.index import queries, writes
from nugget.index.changes import DocumentChanges, document_changes
from nugget.index.connection import write_transaction
from nugget.index.sync.missing_vectors import Embedded, embed_missing
from nugget.index.sync.result import Progress, SyncResult
from nugget.index.writes import indexed_title
from nugget.infra.embedding import Embedder
from nugget.markdown import chunk_markdown
from nugget.models import Chunk, FileState, Problem, SourceName
from nugget.sources.notes import DocumentSource, ReadDocument
from nugget.text import estimate_tokens

__all__ = ["DocumentChanges", "DocumentSource", "ReadDocument", "document_changes", "sync_documents"]

Also = Callable[[sqlite3.Connection, str, ReadDocument, Collection[str]], None]
"""Writes what a source keeps beside its units: given a file's key, what it says, and the ids that became units."""

_FILES_A_BATCH = 64
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A file with its units, chunked; no document where only its time changed."""

    state: FileState
    document: ReadDocument | None
    chunks: Sequence[Sequence[Chunk]] = ()


def sync_documents(
    source: DocumentSource,
    connection: sqlite3.Connection,
    *,
    embedder: Embedder | None,
    cache_folder: Path,
    changes: DocumentChanges | None = None,
    also: Also | None = None,
    progress: Progress | None = None,
) -> SyncResult:
    """Bring the index in line with the files of a source. Commits after each batch; safe to kill and to run twice.

    The units that `source.read` gives are stored with the file's key as their path. A file that cannot be read or
    parsed is a problem and has no units; one that changes while it is read is left for the next sync. `cache_folder`
    holds the vectors that are known (`$NUGGET_HOME/embeddings`); without an `embedder` units get none for now.
    `changes` are those of `document_changes`, where the caller has looked already. `also` is called in the
    transaction that writes a file's units.
    """
    found = document_changes(source, connection) if changes is None else changes
    before = queries.file_states(connection, source.name, [*found.removed, *(key for key, _ in found.modified)])
    _remove(connection, source.name, found.removed)
    count_tokens = embedder.count_tokens if embedder else estimate_tokens
    added = modified = done = 0
    remaining = iter(found.modified)
    while batch := list(islice(remaining, _FILES_A_BATCH)):
        prepared = list(_prepare_all(source, batch, before, count_tokens))
        with write_transaction(connection):
            for entry in prepared:
                _put(connection, source.name, entry, also)
            writes.put_statistics(connection)
        added += sum(entry.state.path not in before for entry in prepared)
        modified += sum(entry.state.path in before and entry.document is not None for entry in prepared)
        done += len(batch)
        if progress:
            progress(f"Indexing {source.name}", done, len(found.modified))
    vectors = Embedded()
    if embedder:
        vectors = embed_missing(connection, embedder=embedder, cache_folder=cache_folder, progress=progress)
    return SyncResult(
        added=added,
        modified=modified,
        removed=len(found.removed),
        unchanged=found.unchanged + len(found.modified) - added - modified,
        embedded=vectors.embedded,
        cached=vectors.cached,
        without_vectors=vectors.unavailable,
        problems=tuple(queries.problems(connection, source.name)),
    )


def _remove(connection: sqlite3.Connection, source: SourceName, keys: Sequence[str]) -> None:
    """Take out the files that are gone, with their units."""
    remaining = iter(keys)
    while batch := list(islice(remaining, _FILES_A_BATCH)):
        with write_transaction(connection):
            for key in batch:
                _remove_units(connection, source, key)
                writes.remove_file(connection, source, key)
            writes.put_statistics(connection)


def _remove_units(connection: sqlite3.Connection, source: SourceName, key: str) -> None:
    for unit_id in queries.unit_ids_of_path(connection, source, key):
        writes.remove_unit(connection, source, unit_id)


def _prepare_all(
    source: DocumentSource,
    files: Sequence[tuple[str, Path]],
    before: Mapping[str, FileState],
    count_tokens: Callable[[str], int],
) -> Iterator[_Prepared]:
    """Each file read and chunked; one that changed while it was read is left out."""
    for key, file in files:
        try:
            yield from _prepare(source, key, file, before.get(key), count_tokens)
        except FileNotFoundError:
            continue  # gone since it was listed, as files do while a client syncs: the next sync takes it out
        except Exception as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problem = Problem(path=key, reason=f"cannot be read ({reason or type(error).__name__})")
            state = FileState(path=key, hash="", size=-1, mtime_ns=0, problems=(problem,))
            yield _Prepared(state, ReadDocument())


def _prepare(
    source: DocumentSource, key: str, file: Path, seen: FileState | None, count_tokens: Callable[[str], int]
) -> Iterator[_Prepared]:
    stat = file.stat()
    if not S_ISREG(stat.st_mode):
        raise ValueError("it is no regular file")
    hash_ = _hash(file)
    document: ReadDocument | None = None
    chunks: list[Sequence[Chunk]] = []
    if seen is None or seen.hash != hash_ or not hash_:
        document = source.read(key, file)
        document = replace(document, units=tuple(replace(unit, path=key) for unit in document.units))
        for unit in document.units:
            title = indexed_title(unit.title, unit.body)
            chunks.append(chunk_markdown(unit.body, title=title, count_tokens=count_tokens))
    after = file.stat()
    if (after.st_size, after.st_mtime_ns) != (stat.st_size, stat.st_mtime_ns):
        return
    problems = document.problems if document else seen.problems if seen else ()
    state = FileState(path=key, hash=hash_, size=stat.st_size, mtime_ns=stat.st_mtime_ns, problems=problems)
    yield _Prepared(state, document, chunks)


def _hash(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _put(connection: sqlite3.Connection, source: SourceName, entry: _Prepared, also: Also | None) -> None:
    """Write a file's state and its units. An id that another file has already stays that one's."""
    state = entry.state
    if entry.document is not None:
        _remove_units(connection, source, state.path)
        stored: set[str] = set()
        for unit, chunks in zip(entry.document.units, entry.chunks, strict=True):
            owner = queries.unit_path(connection, source, unit.id)
            if owner is None:
                writes.put_unit(connection, writes.IndexedUnit(unit=unit, chunks=chunks))
                stored.add(unit.id)
                continue
            taken = Problem(path=state.path, reason=f"the id {unit.id} is there already, in {owner}")
            state = replace(state, problems=(*state.problems, taken))
            if owner != state.path:  # read it again next time: the other file may be gone by then
                state = replace(state, hash="", mtime_ns=-1)
        if also:
            also(connection, state.path, entry.document, stored)
    writes.put_files(connection, source, [state])
