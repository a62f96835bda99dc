"""Bring the machine's index in line with the files of a source: canon, memory, provenance.

What changed is found by size and time, then by hash. It is written a batch of files at a time, so that other writers
get their turn and an interrupted sync goes on where it was; vectors follow when all words are in.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from stat import S_ISREG

from nugget.index import queries, writes
from nugget.index.connection import write_transaction
from nugget.index.embed import Embedded, Progress, embed_missing
from nugget.index.provenance import put_record, remove_record
from nugget.index.writes import indexed_title
from nugget.infra.embedding import Embedder
from nugget.markdown import chunk_markdown
from nugget.models import Chunk, FileState, Problem, SourceName, Unit
from nugget.sources import DocumentSource, ReadDocument
from nugget.sources.nugget_store import NuggetUnits
from nugget.text import estimate_tokens

_FILES_A_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """Counts of what a sync did. `rebuilt` says why the index was rebuilt, if it was; `problems` are all that stand."""

    added: int = 0
    modified: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    embedded: int = 0
    cached: int = 0
    rebuilt: str | None = None
    without_vectors: str | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the sync changed the index."""
        return bool(self.added or self.modified or self.moved or self.removed or self.rebuilt)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChanges:
    """The files of a source that differ from what the index has seen: (key, place), and the keys of those gone."""

    modified: tuple[tuple[str, Path], ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0

    def __len__(self) -> int:
        return len(self.modified) + len(self.removed)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A file with its units, chunked; no document if only its time changed."""

    state: FileState
    document: ReadDocument | None
    chunks: Sequence[Sequence[Chunk]] = ()


def document_changes(source: DocumentSource, connection: sqlite3.Connection) -> DocumentChanges:
    """Return what changed since the last sync, by size and time alone. Reads no file and takes no lock."""
    known = queries.file_marks(connection, source.name)
    modified: list[tuple[str, Path]] = []
    present: set[str] = set()
    for given, file in source.files():
        key = given.encode("utf-8", "backslashreplace").decode()  # a name that is not UTF-8 cannot be stored
        try:
            stat = os.stat(file)  # noqa: PTH116 - a Path of each of 20,000 would take as long as all else
        except OSError:
            continue  # removed since it was listed, or a link to nowhere
        present.add(key)
        if known.get(key) != (stat.st_size, stat.st_mtime_ns):
            modified.append((key, Path(file)))
    removed = sorted(known.keys() - present)
    return DocumentChanges(modified=tuple(modified), removed=tuple(removed), unchanged=len(present) - len(modified))


def sync_documents(
    source: DocumentSource,
    connection: sqlite3.Connection,
    *,
    embedder: Embedder | None,
    cache_folder: Path,
    changes: DocumentChanges | None = None,
    progress: Progress | None = None,
) -> SyncResult:
    """Bring the index in line with the files of a source. Commits after each batch; safe to kill and to run twice.

    The units that `source.read` gives are stored with the file's key as their path. A file that cannot be read or
    parsed is a problem and has no units; one that changes while it is read is left for the next sync. `cache_folder`
    holds the cached vectors; without an `embedder` units get none for now. `changes` are those of `document_changes`,
    if the caller has them already. Sessions and file touches of provenance are written with its units.
    """
    found = document_changes(source, connection) if changes is None else changes
    before = queries.file_states(connection, source.name, [*found.removed, *(key for key, _ in found.modified)])
    count_tokens = embedder.count_tokens if embedder else estimate_tokens
    added = modified = done = 0
    gone, remaining = iter(found.removed), iter(found.modified)
    while keys := list(islice(gone, _FILES_A_BATCH)):
        with write_transaction(connection):
            for key in keys:
                _remove_units(connection, source.name, key)
                writes.remove_file(connection, source.name, key)
            writes.put_statistics(connection)
    while batch := list(islice(remaining, _FILES_A_BATCH)):
        prepared = list(_prepare_all(source, batch, before, count_tokens))
        with write_transaction(connection):
            for entry in prepared:
                _put(connection, source.name, entry)
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
        added=added, modified=modified, removed=len(found.removed), embedded=vectors.embedded, cached=vectors.cached,
        unchanged=found.unchanged + len(found.modified) - added - modified, without_vectors=vectors.unavailable,
        problems=tuple(queries.problems(connection, source.name)),
    )  # fmt: skip


def sync_provenance(
    home: Path, connection: sqlite3.Connection, *, embedder: Embedder | None = None, progress: Progress | None = None
) -> SyncResult:
    """Read the provenance files that changed. Without an `embedder` new nuggets are found by their words alone."""
    source = NuggetUnits(home)
    changes = document_changes(source, connection)
    if not changes and embedder is None:
        return SyncResult(unchanged=changes.unchanged)
    return sync_documents(
        source, connection, embedder=embedder, cache_folder=home / "embeddings", changes=changes, progress=progress
    )


def _remove_units(connection: sqlite3.Connection, source: SourceName, key: str) -> None:
    for unit_id in queries.unit_ids_of_path(connection, source, key):
        writes.remove_unit(connection, source, unit_id)


def _prepare_all(
    source: DocumentSource,
    files: Sequence[tuple[str, Path]],
    before: Mapping[str, FileState],
    count_tokens: Callable[[str], int],
) -> Iterator[_Prepared]:
    """Yield each file, read and chunked; one that changed while it was read is left out."""
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
        raise ValueError("it is not a regular file")
    with file.open("rb") as content:
        hash_ = hashlib.file_digest(content, "sha256").hexdigest()
    document: ReadDocument | None = None
    chunks: list[Sequence[Chunk]] = []
    if seen is None or seen.hash != hash_ or not hash_:
        document = source.read(key, file)
        document = replace(document, units=tuple(replace(unit, path=key) for unit in document.units))
        chunks = [chunks_of(unit, count_tokens) for unit in document.units]
    after = file.stat()
    if (after.st_size, after.st_mtime_ns) != (stat.st_size, stat.st_mtime_ns):
        return
    problems = document.problems if document else seen.problems if seen else ()
    state = FileState(path=key, hash=hash_, size=stat.st_size, mtime_ns=stat.st_mtime_ns, problems=problems)
    yield _Prepared(state, document, chunks)


def chunks_of(unit: Unit, count_tokens: Callable[[str], int] = estimate_tokens) -> Sequence[Chunk]:
    """Return the chunks of a unit as they are indexed."""
    return chunk_markdown(unit.body, title=indexed_title(unit.title, unit.body), count_tokens=count_tokens)


def _put(connection: sqlite3.Connection, source: SourceName, entry: _Prepared) -> None:
    """Write a file's state and its units. An id that another file has already stays with that file."""
    state = entry.state
    if entry.document is not None:
        _remove_units(connection, source, state.path)
        stored: set[str] = set()
        for unit, chunks in zip(entry.document.units, entry.chunks, strict=True):
            owner = queries.unit_path(connection, source, unit.id)
            if owner is None:
                writes.put_unit(connection, unit, chunks)
                stored.add(unit.id)
                continue
            taken = Problem(path=state.path, reason=f"the id {unit.id} is there already, in {owner}")
            state = replace(state, problems=(*state.problems, taken))
            if owner != state.path:  # read it again next time: the other file may be gone by then
                state = replace(state, hash="", mtime_ns=-1)
        if entry.document.record is not None:
            put_record(connection, state.path, entry.document.record, stored)
        elif source is SourceName.PROVENANCE:
            remove_record(connection, state.path)
    writes.put_files(connection, source, [state])
