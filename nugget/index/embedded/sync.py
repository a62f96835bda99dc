"""Bring an index in line with files: that of a brain, and the machine's with canon, memory and provenance.

A brain is written in one transaction, everything else in batches of files. Vectors follow when all words are in.
Safe to kill at any point and to run twice at once: the next sync finds what was not finished.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG

from nugget import brain as brains
from nugget.config import Environment
from nugget.errors import IndexUnavailable, KnowledgeError, reason_of
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
from nugget.text import content_hash, estimate_tokens, on_progress, printable

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
            modified, removed, _ = document_changes(knowledge_units(brain), connection)
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
    source = knowledge_units(brain)
    changes = document_changes(source, connection)
    with write_transaction(connection) if any(changes[:2]) else nullcontext():
        result = sync_documents(source, connection, embedder=embedder, changes=changes)
    result = replace(result, rebuilt=rebuilt, without_vectors=unavailable)
    if embedder:
        result = replace(result, **embed_missing(connection, embedder=embedder, cache_folder=folder / "embeddings"))
    return result


def knowledge_units(brain: Path) -> UnitFiles:
    """Return the knowledge files of a brain as a source of units."""
    problems: list[Problem] = []

    def files() -> Iterator[tuple[str, str]]:
        del problems[:]
        for path in brains.knowledge_paths(brain, unlisted=problems):
            if not path.isascii() and any("\ud800" <= char <= "\udfff" for char in path):
                problems.append(Problem(path=printable(path), reason="has a name that is not UTF-8; rename it"))
            else:
                yield path, f"{brain}/{path}"

    def content(path: str, file: Path) -> bytes:
        return brains.read_file(brain, path)

    def read(path: str, file: Path, content: bytes) -> UnitsRead:
        parsed = brains.load(brain, path, content)
        return (parsed.unit,) if parsed.unit else (), parsed.problems, None

    return UnitFiles(name=SourceName.BRAIN, files=files, content=content, read=read, problems=problems)


def document_changes(source: UnitFiles, connection: sqlite3.Connection) -> DocumentChanges:
    """Return the changes since the last sync, by size and time alone. Reads no files and takes no lock.

    A file that cannot be examined counts as unchanged, and so does everything in a folder that cannot be listed.
    """
    known = stored.file_marks(connection, source.name)
    modified: list[tuple[str, Path]] = []
    present: set[str] = set()
    for given, file in source.files():
        key = given.encode("utf-8", "backslashreplace").decode()  # a name that is not UTF-8 cannot be stored
        try:
            found = _look(file)
        except FileNotFoundError:
            continue  # removed since it was listed
        except OSError as error:
            source.problems.append(Problem(path=printable(key), reason=reason_of(error)))
        else:
            if known.get(key) not in ((found.st_size, found.st_mtime_ns), (found.st_size, -found.st_ctime_ns)):
                modified.append((key, Path(file)))
        present.add(key)
    unlisted = tuple(f"{problem.path}/" for problem in source.problems)
    removed = sorted(key for key in known.keys() - present if not key.startswith(unlisted))
    return modified, removed, len(present) - len(modified)


def _look(file: str | Path) -> os.stat_result:
    """Return the status of a file, or of a link to nowhere."""
    try:
        return os.stat(file)  # noqa: PTH116 - 20,000 Path objects would take as long as all else
    except OSError:
        return os.lstat(file)


def sync_documents(
    source: UnitFiles,
    connection: sqlite3.Connection,
    *,
    embedder: Embedder | None,
    changes: DocumentChanges | None = None,
) -> SyncResult:
    """Bring the index, except vectors, in line with the files of a source; the embedder only counts tokens.

    Each batch is committed, unless the caller holds a transaction. The units from `source.read` get the file's key as
    their path. A file that cannot be read or parsed is a problem and has no units; one that changes while it is read is
    left for the next sync.
    """
    changed, gone, same = changes or document_changes(source, connection)
    before = stored.file_states(connection, source.name, [*gone, *(key for key, _ in changed)])
    released = [state.unit_id for state in before.values() if state.unit_id]
    # Other files that claim an id of a changed file: one of them may get it now.
    shadowed = {*stored.paths_claiming(connection, source.name, released)} - before.keys()
    again = [(key, Path(file)) for key, file in source.files() if key in shadowed] if shadowed else []
    changed = sorted([*changed, *again])
    moved_from = Counter(before[key].hash for key in gone)
    counts = Counter[str]()
    count_tokens = embedder.count_tokens if embedder else estimate_tokens
    for start in range(0, len(gone), _FILES_A_BATCH):
        with write_transaction(connection):
            for key in gone[start : start + _FILES_A_BATCH]:
                _remove_document(connection, source.name, key)
    for start in range(0, len(changed), _FILES_A_BATCH):
        batch = changed[start : start + _FILES_A_BATCH]
        read = [entry for key, file in batch if (entry := _read(source, key, file, before.get(key), count_tokens))]
        with write_transaction(connection):
            for state, document, chunks in read:
                if document is None:
                    stored.put_file(connection, source.name, state)
                    counts["same"] += 1
                else:
                    _put_document(connection, source.name, state, document, chunks)
                    is_move = state.path not in before and moved_from[state.hash] > 0
                    moved_from[state.hash] -= is_move
                    what = "modified" if state.path in before else "moved" if is_move else "added"
                    counts[what] += state.path not in shadowed and bool(document[0] or document[2])
        on_progress.get()(f"Indexing {source.name}", start + len(batch), len(changed))
    return SyncResult(
        added=counts["added"], modified=counts["modified"], moved=counts["moved"],
        removed=len(gone) - counts["moved"], unchanged=same + counts["same"],
        problems=(*source.problems, *stored.problems(connection, source.name)),
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
        found = _look(file)
    except OSError:
        return None  # removed since it was listed: the next sync will notice
    try:
        if not S_ISREG(found.st_mode):
            raise KnowledgeError("is not a regular file")
        content = source.content(key, file)
        state = FileState(path=key, hash=content_hash(content), size=found.st_size, mtime_ns=found.st_mtime_ns)
        after = file.stat()
        if (after.st_size, after.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
            return None
        if seen is not None and seen.hash == state.hash and not seen.problems:
            return replace(state, unit_id=seen.unit_id), None, ()
        units, problems, record = source.read(key, file, content)
        chunks = [chunks_of(unit, count_tokens) for unit in units]
    except Exception as error:  # one file that breaks a parser must not stop the others
        problem = Problem(path=key, reason=reason_of(error).removeprefix(f"{key}: "))
        mark = -found.st_ctime_ns  # permissions change it, too
        return FileState(path=key, hash="", size=found.st_size, mtime_ns=mark, problems=(problem,)), ((), (), None), ()
    state = replace(state, unit_id=units[0].id if len(units) == 1 else None, problems=problems)
    return state, (tuple(replace(unit, path=key) for unit in units), problems, record), chunks


def _remove_document(connection: sqlite3.Connection, source: SourceName, key: str) -> None:
    """Remove a file with its units; a trigger removes other rows of a provenance file."""
    for unit_id in stored.unit_ids_of_path(connection, source, key):
        stored.remove_unit(connection, source, unit_id)
    stored.remove_file(connection, source, key)


def _put_document(
    connection: sqlite3.Connection, source: SourceName, state: FileState, document: UnitsRead, chunks: _Chunks
) -> None:
    """Write a file with its units. If several files have one id, the first path in order gets it."""
    units, _, record = document
    _remove_document(connection, source, state.path)
    indexed: set[str] = set()
    for unit, its in zip(units, chunks, strict=True):
        owner = stored.unit_path(connection, source, unit.id)
        keeper, loser = sorted([owner or state.path, state.path])
        if keeper == state.path:
            stored.put_unit(connection, unit, its)
            indexed.add(unit.id)
        if owner is None:
            continue
        taken = Problem(path=loser, reason=f"the id {unit.id} is already that of {keeper}; give this file another one")
        lost = state if loser == state.path else stored.file_states(connection, source, [loser])[loser]
        lost = replace(lost, problems=(*lost.problems, taken))
        if lost.unit_id is None:  # of several units: read it again next time, since the other file may be gone by then
            lost = replace(lost, hash="", mtime_ns=-1)
        if loser == state.path:
            state = lost
        else:
            stored.put_file(connection, source, lost)
    if record is not None:
        put_record(connection, state.path, record, indexed)
    stored.put_file(connection, source, state)
