"""Bring the index in line with the brain: read what changed, embed what is new, write it in one transaction.

The only bridge from files to index. Safe to kill at any point and to run twice at once: a lock admits one writer,
readers go on reading, and what was not finished is found again by the next sync.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from nugget.config import Environment
from nugget.embedding import Embedder
from nugget.errors import EmbeddingUnavailable, IndexUnavailable
from nugget.index import IndexedUnit, Unusable, queries, writes
from nugget.index.connection import connect, create, open_existing, write_transaction
from nugget.index.vector_cache import VectorCache, text_hash
from nugget.index.writes import embedded_texts, indexed_title
from nugget.markdown import chunk_markdown
from nugget.models import Chunk, FileState, Problem, SourceName
from nugget.sources import brain as brain_source
from nugget.text import estimate_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, how many are done, how many there are)."""

_BRAIN = SourceName.BRAIN
_FILES_A_BATCH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """What a sync did. `rebuilt` says why the index was made anew, where it was; `problems` are all that stand."""

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
        """Whether the index is another one than before."""
        return bool(self.added or self.modified or self.moved or self.removed or self.rebuilt)


@dataclass(frozen=True, slots=True)
class _Prepared:
    file: brain_source.ReadFile
    chunks: Sequence[Chunk]


@dataclass(slots=True)
class _Vectors:
    """Where the vectors of one sync come from, and what has been spent on them so far."""

    embedder: Embedder | None
    cache: VectorCache | None
    embedded: int = 0
    cached: int = 0
    used: set[bytes] = field(default_factory=set)
    unavailable: str | None = None

    def of(self, batch: Sequence[_Prepared]) -> Iterator[tuple[_Prepared, list[NDArray[np.float32]]]]:
        """Each file with its vectors (none where none can be had), as soon as they are ready."""
        if self.embedder is None or self.cache is None or self.unavailable:
            yield from ((prepared, []) for prepared in batch)
            return
        texts = [embedded_texts(p.file.unit, p.chunks) if p.file.unit else [] for p in batch]
        hashes = [[text_hash(text) for text in its_texts] for its_texts in texts]
        wanted = {key: text for pairs in map(zip, hashes, texts) for key, text in pairs}
        ready = self.cache.get(list(wanted))
        fresh: dict[bytes, NDArray[np.float32]] = {}
        missing = [key for key in wanted if key not in ready]
        made = self.embedder.embed([wanted[key] for key in missing])
        coming = iter(missing)
        for prepared, keys in zip(batch, hashes, strict=True):
            try:
                while not self.unavailable and any(key not in ready for key in keys):
                    key = next(coming)
                    ready[key] = fresh[key] = next(made)
            except EmbeddingUnavailable as error:
                self.unavailable = str(error)
            complete = all(key in ready for key in keys)
            yield prepared, [ready[key] for key in keys] if complete else []
        self.cache.put(fresh)
        self.used.update(wanted)
        self.embedded += len(fresh)
        self.cached += len(wanted) - len(missing)


def index_folder(brain: Path, environment: Environment) -> Path:
    """Where a brain's index lives: `<brain>/.nugget`, or under `$NUGGET_HOME` when the brain is read-only."""
    folder = brain / ".nugget"
    try:
        folder.mkdir(exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    name = hashlib.sha256(os.fsencode(brain.resolve())).hexdigest()[:16]
    folder = environment.home / "indexes" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pending_changes(brain: Path, environment: Environment) -> int | None:
    """How many files differ from the index; None when there is no usable index. Takes no lock, reads no file."""
    try:
        with closing(open_existing(index_folder(brain, environment) / "index.db")) as connection:
            found = _changes(brain, connection)
            return len(found.modified) + len(found.removed)
    except (Unusable, sqlite3.DatabaseError):
        return None


def sync(
    brain: Path,
    environment: Environment,
    *,
    embedder: Embedder | None,
    unavailable: str | None = None,
    rebuild: bool = False,
    in_passing: bool = False,
    progress: Progress | None = None,
) -> SyncResult:
    """Bring the index of `brain` in line with its files; make it anew when asked, missing, broken or outgrown.

    `embedder` None means that no vectors are wanted, or, with the reason in `unavailable`, that none can be had now:
    those that are there are kept. `in_passing` leaves a switch of models to a sync of its own. While an index is
    made anew the old one goes on serving. Raises IndexUnavailable when it cannot be written.
    """
    folder = index_folder(brain, environment)
    file = folder / "index.db"
    try:
        with _one_writer(folder):
            try:
                with closing(open_existing(file)) as connection:
                    reason = "asked for" if rebuild else _outgrown(connection, embedder, unavailable, in_passing)
                    if not reason:
                        return _update(brain, connection, folder, embedder, unavailable, progress)
            except Unusable as error:
                reason = str(error)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:  # damage that opening the file did not show
                reason = f"the index is corrupt ({error})"
            return _rebuild(brain, folder, embedder, unavailable, reason, progress)
    except sqlite3.OperationalError as error:
        raise IndexUnavailable(f"{file} cannot be written ({error}).", hint="Check space and permissions.") from error
    except OSError as error:
        raise IndexUnavailable(f"{folder} cannot be written ({error.strerror or error}).") from error


@contextmanager
def _one_writer(folder: Path) -> Iterator[None]:
    """Hold the brain's writer lock; it is the operating system's, so that a killed process holds nothing."""
    from filelock import FileLock

    with FileLock(folder / "sync.lock"):
        yield


def _outgrown(
    connection: sqlite3.Connection, embedder: Embedder | None, unavailable: str | None, in_passing: bool
) -> str | None:
    """Why the index does not fit the configured model any more; None where it does, or where that can wait."""
    indexed = queries.meta(connection, "embedding_model") or ""
    if in_passing or unavailable or indexed == (embedder.model if embedder else ""):
        return None
    if embedder is None:
        return "vectors are switched off now"
    try:
        next(iter(embedder.embed(["Can this model be had?"])))
    except EmbeddingUnavailable:
        return None  # the old index is better than none; the next sync tries again
    return f"the embedding model is {embedder.model} now"


def _rebuild(
    brain: Path,
    folder: Path,
    embedder: Embedder | None,
    unavailable: str | None,
    reason: str,
    progress: Progress | None,
) -> SyncResult:
    """Make a new index beside the old one, then put it in the old one's place in a single transaction."""
    fresh = folder / "index.db.new"
    _remove_database(fresh)
    try:
        with closing(create(fresh)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("PRAGMA synchronous = OFF")
            result = _update(brain, connection, folder, embedder, unavailable, progress, rebuilt=reason)
            _install(connection, folder / "index.db")
    finally:
        _remove_database(fresh)
    return result


def _install(fresh: sqlite3.Connection, file: Path) -> None:
    """Copy the new index over the old one with SQLite's backup.

    That is one transaction for whoever has the old one open: they see the old one or the new one, whole. Replacing
    the file under them would leave them a write-ahead log that belongs to another database.
    """
    try:
        target = open_existing(file)
        generation = int(queries.meta(target, "generation") or 0)
    except Unusable:
        _remove_database(file)
        target, generation = connect(file), 0
    with closing(target):
        fresh.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (str(generation + 1),))
        fresh.backup(target)
        target.execute("PRAGMA journal_mode = WAL")


def _remove_database(file: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def _changes(brain: Path, connection: sqlite3.Connection) -> brain_source.Changes:
    def known(paths: Sequence[str] | None) -> dict[str, FileState]:
        return queries.file_states(connection, _BRAIN, paths)

    return brain_source.changes(brain, known, queries.meta(connection, "brain_state"))


def _update(
    brain: Path,
    connection: sqlite3.Connection,
    folder: Path,
    embedder: Embedder | None,
    unavailable: str | None,
    progress: Progress | None,
    *,
    rebuilt: str | None = None,
) -> SyncResult:
    changes = _changes(brain, connection)
    if not changes and not rebuilt:
        if changes.state != queries.meta(connection, "brain_state"):
            with write_transaction(connection):
                writes.put_meta(connection, brain_state=changes.state)
        return _result(connection, SyncResult())
    indexed = queries.meta(connection, "embedding_model") or ""
    if not rebuilt and embedder and embedder.model != indexed:
        # Vectors of two models never stand in one index: what changed goes without until it is made anew.
        embedder, unavailable = None, unavailable or f"the index has vectors of {indexed or 'no model'}"
    cache = VectorCache(folder / "embeddings", embedder.model) if embedder else None
    vectors = _Vectors(embedder, cache, unavailable=unavailable)
    try:
        with write_transaction(connection):
            result = _apply(brain, connection, changes, vectors, progress)
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
    return _result(connection, result)


def _apply(
    brain: Path,
    connection: sqlite3.Connection,
    changes: brain_source.Changes,
    vectors: _Vectors,
    progress: Progress | None,
) -> SyncResult:
    """Take out what the changed files held, then put in what they hold now."""
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
    for batch in _prepared(brain, paths, vectors):
        for prepared, its_vectors in vectors.of(batch):
            state = prepared.file.state
            if state.path in before:
                modified += before[state.path].hash != state.hash
            elif state.path not in shadowed:
                is_move = hashes_before.pop(state.hash, None) is not None
                moved, added = moved + is_move, added + (not is_move)
            _put(connection, prepared, its_vectors, has_vectors=not vectors.unavailable)
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
    connection: sqlite3.Connection, prepared: _Prepared, vectors: Sequence[NDArray[np.float32]], *, has_vectors: bool
) -> None:
    """Write a file and its unit. Of several files with one id, the path that sorts first has it."""
    state, unit = prepared.file.state, prepared.file.unit
    if unit and (owner := queries.unit_path(connection, _BRAIN, unit.id)) and owner != state.path:
        keeper, loser = sorted([owner, state.path])
        taken = Problem(path=loser, reason=f"the id {unit.id} is already that of {keeper}; give this file another one")
        if loser == state.path:
            state, unit = replace(state, problems=(*state.problems, taken)), None
        else:
            lost = queries.file_states(connection, _BRAIN, [loser])[loser]
            writes.put_files(connection, _BRAIN, [replace(lost, problems=(*lost.problems, taken))])
    if not has_vectors:
        state = replace(state, mtime_ns=-1)  # so that the next sync, finding a model, reads it again
    writes.put_files(connection, _BRAIN, [state])
    if unit:
        writes.put_unit(connection, IndexedUnit(unit=unit, chunks=prepared.chunks, vectors=vectors))


def _prepared(brain: Path, paths: Sequence[str], vectors: _Vectors) -> Iterator[list[_Prepared]]:
    """Files read and chunked, in batches; while there is something to embed, one batch ahead of that.

    Where every vector is cached there is nothing to wait for, and a thread would only get in the way.
    """
    count_tokens = vectors.embedder.count_tokens if vectors.embedder else estimate_tokens

    def batches() -> Iterator[list[_Prepared]]:
        remaining = iter(paths)
        while batch := list(islice(remaining, _FILES_A_BATCH)):
            yield [_prepare(brain, path, count_tokens) for path in batch]

    prepared = batches()
    while not vectors.embedded and (batch := next(prepared, None)):
        yield batch
    yield from _one_ahead(prepared)


def _prepare(brain: Path, path: str, count_tokens: Callable[[str], int]) -> _Prepared:
    file = brain_source.read(brain, path)
    if file.unit is None:
        return _Prepared(file, [])
    title = indexed_title(file.unit.title, file.unit.body)
    return _Prepared(file, chunk_markdown(file.unit.body, title=title, count_tokens=count_tokens))


def _one_ahead(values: Iterable[T]) -> Iterator[T]:
    """The same values, each made in a thread while the one before it is being used."""
    ready: Queue[tuple[T | None, BaseException | None]] = Queue(maxsize=1)
    stopped = False

    def make() -> None:
        try:
            for value in values:
                if stopped:
                    return
                ready.put((value, None))
            ready.put((None, None))
        except BaseException as error:  # handed to the consumer, where it is raised
            ready.put((None, error))

    thread = Thread(target=make, daemon=True)
    thread.start()
    try:
        while True:
            value, error = ready.get()
            if error:
                raise error
            if value is None:
                return
            yield value
    finally:
        stopped = True
        while thread.is_alive():
            while not ready.empty():
                ready.get_nowait()
            thread.join(0.01)


def _result(connection: sqlite3.Connection, result: SyncResult) -> SyncResult:
    problems = queries.problems(connection, _BRAIN)
    total = connection.execute("SELECT count(*) FROM files WHERE source = ?", (_BRAIN,)).fetchone()[0]
    unchanged = total - result.added - result.modified - result.moved
    return replace(result, unchanged=unchanged, problems=tuple(problems))
