"""Bring an index in line with files: that of a brain, and the machine's with canon, memory and provenance.

A brain is written in one transaction, everything else in batches of files. Vectors follow when all words are in.
Safe to kill at any point and to run twice at once: the next sync finds what was not finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG

from nugget import brain as brains
from nugget.config import Environment
from nugget.errors import IndexUnavailable, reason_of
from nugget.index import indexed_title
from nugget.index.embedded import units as stored
from nugget.index.embedded.connection import (
    Unusable,
    connect,
    create,
    index_folder,
    open_existing,
    remove_database,
    write_transaction,
)
from nugget.index.embedded.provenance import put_record
from nugget.index.embedded.vectors import embed_missing, model_problem
from nugget.infra import files
from nugget.infra.embedding import Embedder
from nugget.markdown import chunk_markdown
from nugget.models import Chunk, FileState, Problem, SourceName, Unit
from nugget.sources import UnitFiles, UnitsRead
from nugget.sources.nugget_store import nugget_units
from nugget.text import estimate_tokens, on_progress, printable, tracked

_BRAIN = SourceName.BRAIN
_FILES_A_BATCH = 64
DocumentChanges = tuple[list[tuple[str, Path]], list[str], int]
"""Files that differ from the index, by key and path, the keys of missing ones, and the number of unchanged ones."""
_Chunks = Sequence[Sequence[Chunk]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The counts of a sync. `rebuilt` says why the index was rebuilt, if it was; `problems` are all current ones."""

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
        """True if the sync changed the index."""
        return bool(self.added or self.modified or self.moved or self.removed or self.rebuilt)


def pending_changes(brain: Path, environment: Environment) -> int | None:
    """Return how many files differ from the index, None if it is unusable. Takes no lock, reads no files."""
    try:
        with closing(open_existing(index_folder(brain, environment.home) / "index.db")) as connection:
            modified, removed, _ = brains.changed_files(brain, stored.file_marks(connection, _BRAIN))
            return len(modified) + len(removed)
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
) -> SyncResult:
    """Bring the index of `brain` in line with its files; rebuild it if asked to, or if it is missing or broken.

    Without an `embedder`, vectors are switched off or, for the reason in `unavailable`, cannot be made now: existing
    ones are kept, and `without_vectors` of the result says why. `in_passing` leaves a switch of models to a later sync.
    While an index is rebuilt the old one stays in use. Raises IndexUnavailable if it cannot be written.
    """
    folder = index_folder(brain, environment.home)
    file = folder / "index.db"
    try:
        with files.locked(folder / "sync.lock"):
            try:
                with closing(open_existing(file)) as connection:
                    if not rebuild:
                        return _update(brain, folder, connection, embedder, unavailable, in_passing=in_passing)
                    reason = "asked for"
            except Unusable as error:
                reason = str(error)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:  # damage that did not show when the file was opened
                reason = f"the index is corrupt ({error})"
            return _rebuild(brain, folder, embedder, unavailable, reason)
    except sqlite3.OperationalError as error:
        raise IndexUnavailable(f"{file} cannot be written ({error}).", hint="Check space and permissions.") from error
    except OSError as error:
        raise IndexUnavailable(f"{folder} cannot be written ({error.strerror or error}).") from error


def _update(
    brain: Path, folder: Path, connection: sqlite3.Connection, embedder: Embedder | None, unavailable: str | None,
    *, in_passing: bool
) -> SyncResult:  # fmt: skip
    """Write changes to the existing index; raise Unusable if another model requires a rebuild.

    An index of another model is better than none: it stays if the configured model is unavailable.
    """
    indexed = stored.meta(connection, "embedding_model") or ""
    if indexed == (embedder.model if embedder else ""):
        result = _write(brain, folder, connection, embedder, unavailable)
        if embedder and not result.without_vectors:
            _note_problem(connection, None)
        return result
    if in_passing or unavailable:
        reason = unavailable or f"the index has vectors of {indexed or 'no model'}"
        return _write(brain, folder, connection, None, reason)
    if embedder is None:
        raise Unusable("vectors are switched off now")
    if problem := model_problem(embedder):
        _note_problem(connection, {"model": embedder.model, "reason": problem})
        return _write(brain, folder, connection, None, problem)
    raise Unusable(f"the embedding model is {embedder.model} now")


def _note_problem(connection: sqlite3.Connection, problem: Mapping[str, str] | None) -> None:
    """Note which model is unavailable and why, so that questions say so and do not all retry."""
    noted = json.dumps(problem) if problem else ""
    if noted != (stored.meta(connection, "model_problem") or ""):
        with write_transaction(connection):
            stored.put_meta(connection, model_problem=noted)


def _rebuild(brain: Path, folder: Path, embedder: Embedder | None, unavailable: str | None, reason: str) -> SyncResult:
    """Make a new index beside the old one, then replace that in a single transaction."""
    fresh = folder / "index.db.new"
    remove_database(fresh)
    try:
        with closing(create(fresh)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("PRAGMA synchronous = OFF")
            result = _write(brain, folder, connection, embedder, unavailable, rebuilt=reason)
            if embedder and result.without_vectors:
                _note_problem(connection, {"model": embedder.model, "reason": result.without_vectors})
            for kind in ("chunks", "units"):  # terms in one segment are found faster
                connection.execute(f"INSERT INTO {kind}_fts ({kind}_fts) VALUES ('optimize')")
            _install(connection, folder / "index.db")
    finally:
        remove_database(fresh)
    return result


def _install(fresh: sqlite3.Connection, file: Path) -> None:
    """Copy the new index over the old one with SQLite's backup.

    For readers that is one transaction: they see either the old or the new index. Replacing the file under them would
    leave them with a write-ahead log that belongs to another database.
    """
    try:
        target = open_existing(file)
    except Unusable:
        remove_database(file)
        target = connect(file)
    with closing(target):
        fresh.backup(target)
        target.execute("PRAGMA journal_mode = WAL")


def _write(
    brain: Path, folder: Path, connection: sqlite3.Connection, embedder: Embedder | None, unavailable: str | None,
    *, rebuilt: str | None = None
) -> SyncResult:  # fmt: skip
    """Write all changes in one transaction, then embed units without vectors."""
    modified, removed, problems = brains.changed_files(brain, stored.file_marks(connection, _BRAIN))
    result = SyncResult(rebuilt=rebuilt, without_vectors=unavailable)
    if modified or removed or rebuilt:
        count_tokens = embedder.count_tokens if embedder else estimate_tokens
        with write_transaction(connection):
            result = _apply(brain, connection, count_tokens, modified, removed, result)
    if embedder:
        vectors = embed_missing(connection, embedder=embedder, cache_folder=folder / "embeddings")
        result = replace(result, **vectors)
    total = connection.execute("SELECT count(unit_id) FROM files WHERE source = ?", (_BRAIN,)).fetchone()[0]
    return replace(
        result, unchanged=total - result.added - result.modified - result.moved,
        problems=(*problems, *stored.problems(connection, _BRAIN))
    )  # fmt: skip


def _apply(
    brain: Path, connection: sqlite3.Connection, count_tokens: Callable[[str], int], modified: Sequence[str],
    removed: Sequence[str], result: SyncResult
) -> SyncResult:  # fmt: skip
    """Remove the old units of the changed files, then add the new ones."""
    before = stored.file_states(connection, _BRAIN, [*modified, *removed])
    released = [state.unit_id for state in before.values() if state.unit_id]
    # Other files that claim an id of a changed file: one of them may get it now.
    shadowed = [path for path in stored.paths_claiming(connection, _BRAIN, released) if path not in before]
    for path, state in before.items():
        if state.unit_id and stored.unit_path(connection, _BRAIN, state.unit_id) == path:
            stored.remove_unit(connection, _BRAIN, state.unit_id)
    for path in removed:
        stored.remove_file(connection, _BRAIN, path)
    paths = sorted({*modified, *shadowed})
    hashes_before = {state.hash: path for path, state in before.items() if path in removed}
    added = changed = moved = 0
    for path in tracked(paths, "Indexing"):
        state = _put_file(brain, connection, path, count_tokens)
        if path in before:
            changed += before[path].hash != state.hash and state.unit_id is not None
        elif path not in shadowed and state.unit_id:
            is_move = hashes_before.pop(state.hash, None) is not None
            moved, added = moved + is_move, added + (not is_move)
    return replace(result, added=added, modified=changed, moved=moved, removed=len(removed) - moved)


def _put_file(brain: Path, connection: sqlite3.Connection, path: str, count_tokens: Callable[[str], int]) -> FileState:
    """Read a file and write it with its unit. If several files have one id, the first path in order gets it."""
    state, unit = brains.read_state(brain, path)
    try:
        chunks = chunks_of(unit, count_tokens) if unit else ()
    except Exception as error:  # one file that breaks the parser must not stop the others
        wrong = Problem(path=printable(path), reason=f"cannot be indexed ({reason_of(error)})")
        state, unit, chunks = replace(state, unit_id=None, problems=(*state.problems, wrong)), None, ()
    if unit and (owner := stored.unit_path(connection, _BRAIN, unit.id)) and owner != path:
        keeper, loser = sorted([owner, path])
        taken = Problem(path=loser, reason=f"the id {unit.id} is already that of {keeper}; give this file another one")
        if loser == path:
            state, unit = replace(state, problems=(*state.problems, taken)), None
        else:
            lost = stored.file_states(connection, _BRAIN, [loser])[loser]
            stored.put_file(connection, _BRAIN, replace(lost, problems=(*lost.problems, taken)))
    stored.put_file(connection, _BRAIN, state)
    if unit:
        stored.put_unit(connection, unit, chunks)
    return state


def document_changes(source: UnitFiles, connection: sqlite3.Connection) -> DocumentChanges:
    """Return the changes since the last sync, by size and time alone. Reads no files and takes no lock."""
    known = stored.file_marks(connection, source.name)
    modified: list[tuple[str, Path]] = []
    present: set[str] = set()
    for given, file in source.files():
        key = given.encode("utf-8", "backslashreplace").decode()  # a name that is not UTF-8 cannot be stored
        try:
            stat = os.stat(file)  # noqa: PTH116 - 20,000 Path objects would take as long as all else
        except OSError:
            continue  # removed since it was listed, or a link to nowhere
        present.add(key)
        if known.get(key) != (stat.st_size, stat.st_mtime_ns):
            modified.append((key, Path(file)))
    removed = sorted(known.keys() - present)
    return modified, removed, len(present) - len(modified)


def sync_documents(
    source: UnitFiles,
    connection: sqlite3.Connection,
    *,
    embedder: Embedder | None,
    changes: DocumentChanges | None = None,
) -> SyncResult:
    """Bring the index, except vectors, in line with the files of a source; the embedder only counts tokens.

    Each batch is committed. The units from `source.read` get the file's key as their path. A file that cannot be read
    or parsed is a problem and has no units; one that changes while it is read is left for the next sync.
    """
    changed, gone, same = changes or document_changes(source, connection)
    before = stored.file_states(connection, source.name, [*gone, *(key for key, _ in changed)])
    count_tokens = embedder.count_tokens if embedder else estimate_tokens
    added = modified = 0
    for start in range(0, len(gone), _FILES_A_BATCH):
        with write_transaction(connection):
            for key in gone[start : start + _FILES_A_BATCH]:
                _remove_document(connection, source.name, key)
    for start in range(0, len(changed), _FILES_A_BATCH):
        batch = changed[start : start + _FILES_A_BATCH]
        read = [entry for key, file in batch if (entry := _read(source, key, file, before.get(key), count_tokens))]
        with write_transaction(connection):
            for state, document, chunks in read:
                if document is not None:
                    state = _put_document(connection, source.name, state, document, chunks)
                stored.put_file(connection, source.name, state)
        added += sum(state.path not in before for state, _, _ in read)
        modified += sum(state.path in before and document is not None for state, document, _ in read)
        on_progress.get()(f"Indexing {source.name}", start + len(batch), len(changed))
    return SyncResult(
        added=added, modified=modified, removed=len(gone),
        unchanged=same + len(changed) - added - modified,
        problems=tuple(stored.problems(connection, source.name))
    )  # fmt: skip


def sync_provenance(home: Path, connection: sqlite3.Connection, *, embedder: Embedder | None = None) -> SyncResult:
    """Read the provenance files that changed; an `embedder` counts the tokens of their chunks."""
    return sync_documents(nugget_units(home), connection, embedder=embedder)


def chunks_of(unit: Unit, count_tokens: Callable[[str], int] = estimate_tokens) -> Sequence[Chunk]:
    """Return the indexed chunks of a unit."""
    return chunk_markdown(unit.body, title=indexed_title(unit.title, unit.body), count_tokens=count_tokens)


def _read(
    source: UnitFiles, key: str, file: Path, seen: FileState | None, count_tokens: Callable[[str], int]
) -> tuple[FileState, UnitsRead | None, _Chunks] | None:
    """Return a file with its chunked units, no document if only its time changed, or None if it is changing or gone."""
    try:
        stat = file.stat()
        if not S_ISREG(stat.st_mode):
            raise ValueError("it is not a regular file")
        with file.open("rb") as content:
            hash_ = hashlib.file_digest(content, "sha256").hexdigest()
        document, problems = None, seen.problems if seen else ()
        chunks: _Chunks = ()
        if seen is None or seen.hash != hash_:
            units, problems, record = source.read(key, file)
            document = tuple(replace(unit, path=key) for unit in units), problems, record
            chunks = [chunks_of(unit, count_tokens) for unit in units]
        after = file.stat()
    except FileNotFoundError:
        return None  # removed since it was listed: the next sync will notice
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = Problem(path=key, reason=f"cannot be read ({reason or type(error).__name__})")
        return FileState(path=key, hash="", size=-1, mtime_ns=0, problems=(problem,)), ((), (), None), ()
    if (after.st_size, after.st_mtime_ns) != (stat.st_size, stat.st_mtime_ns):
        return None
    state = FileState(path=key, hash=hash_, size=stat.st_size, mtime_ns=stat.st_mtime_ns, problems=problems)
    return state, document, chunks


def _remove_document(connection: sqlite3.Connection, source: SourceName, key: str) -> None:
    """Remove a file with its units; a trigger removes other rows of a provenance file."""
    for unit_id in stored.unit_ids_of_path(connection, source, key):
        stored.remove_unit(connection, source, unit_id)
    stored.remove_file(connection, source, key)


def _put_document(
    connection: sqlite3.Connection, source: SourceName, state: FileState, document: UnitsRead, chunks: _Chunks
) -> FileState:
    """Write a file's units; return its state. An id that another file already has stays there."""
    units, _, record = document
    _remove_document(connection, source, state.path)
    indexed: set[str] = set()
    for unit, its in zip(units, chunks, strict=True):
        owner = stored.unit_path(connection, source, unit.id)
        if owner is None:
            stored.put_unit(connection, unit, its)
            indexed.add(unit.id)
            continue
        taken = Problem(path=state.path, reason=f"the id {unit.id} exists already, in {owner}")
        state = replace(state, problems=(*state.problems, taken))
        if owner != state.path:  # read it again next time: the other file may be gone by then
            state = replace(state, hash="", mtime_ns=-1)
    if record is not None:
        put_record(connection, state.path, record, indexed)
    return state
