"""Bring the index of a brain in line with its files: read what changed, write it in one transaction, then embed it.

Safe to kill at any point and to run twice at once: a lock admits one writer, readers go on reading, and what was not
finished is found again by the next sync.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from nugget.config import Environment
from nugget.errors import IndexUnavailable, reason_of
from nugget.index import Unusable, queries, writes
from nugget.index.connection import connect, create, open_existing, remove_database, write_transaction
from nugget.index.documents import SyncResult, chunks_of
from nugget.index.embed import Embedded, Progress, embed_missing, model_problem
from nugget.infra import files
from nugget.infra.embedding import Embedder
from nugget.models import FileState, Problem, SourceName
from nugget.sources import brain as brain_source
from nugget.text import estimate_tokens, printable

__all__ = ["IndexState", "Progress", "SyncResult", "index_folder", "pending_changes", "sync"]

_BRAIN = SourceName.BRAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """How the index stands to the files.

    `behind` counts the changed files that an answer does not know of yet; `other_model` says that the index has no
    vectors of the configured model. Both want a sync of its own, in the background. `model_problem` says why the last
    sync could not have that model, `rebuilt` why an index that was there has just been rebuilt.
    """

    rebuilt: str | None = None
    behind: int = 0
    other_model: bool = False
    model_problem: str | None = None

    @property
    def is_behind(self) -> bool:
        """Whether a sync would change the answer."""
        return self.behind > 0 or (self.other_model and not self.model_problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sync:
    """One sync of a brain. `unavailable` says why an embedder that is wanted cannot be had."""

    brain: Path
    folder: Path
    embedder: Embedder | None
    unavailable: str | None
    progress: Progress | None


def index_folder(brain: Path, environment: Environment) -> Path:
    """Return where a brain's index lives: `<brain>/.nugget`, or under `$NUGGET_HOME` if the brain is read-only."""
    folder = brain / ".nugget"
    try:
        files.private_folder(folder)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    name = hashlib.sha256(os.fsencode(brain.resolve())).hexdigest()[:16]
    folder = environment.home / "indexes" / name
    files.private_folder(folder)
    return folder


def pending_changes(brain: Path, environment: Environment) -> int | None:
    """Return how many files differ from the index, None if it is not usable. Takes no lock, reads no file."""
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
    """Bring the index of `brain` in line with its files; rebuild it if asked to, or if it is missing or broken.

    `embedder` None means that no vectors are wanted or, with the reason in `unavailable`, that none can be had now:
    those that are there are kept, and `without_vectors` of the result says why. `in_passing` leaves a switch of models
    to a sync of its own. While an index is rebuilt the old one goes on serving. Raises IndexUnavailable if it cannot
    be written.
    """
    folder = index_folder(brain, environment)
    file = folder / "index.db"
    run = _Sync(brain=brain, folder=folder, embedder=embedder, unavailable=unavailable, progress=progress)
    try:
        with files.locked(folder / "sync.lock"):
            try:
                with closing(open_existing(file)) as connection:
                    if not rebuild:
                        return _update(run, connection, in_passing=in_passing)
                    reason = "asked for"
            except Unusable as error:
                reason = str(error)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:  # damage that opening the file did not show
                reason = f"the index is corrupt ({error})"
            return _rebuild(run, reason)
    except sqlite3.OperationalError as error:
        raise IndexUnavailable(f"{file} cannot be written ({error}).", hint="Check space and permissions.") from error
    except OSError as error:
        raise IndexUnavailable(f"{folder} cannot be written ({error.strerror or error}).") from error


def _update(run: _Sync, connection: sqlite3.Connection, *, in_passing: bool) -> SyncResult:
    """Write what changed into the index that is there; raise Unusable if another model wants it rebuilt.

    An index of another model is better than none: it stays if the configured one cannot be had now.
    """
    indexed, embedder = queries.meta(connection, "embedding_model") or "", run.embedder
    if indexed == (embedder.model if embedder else ""):
        result = _write(run, connection)
        if embedder and not result.without_vectors:
            _note_problem(connection, None)
        return result
    if in_passing or run.unavailable:
        reason = run.unavailable or f"the index has vectors of {indexed or 'no model'}"
        return _write(replace(run, embedder=None, unavailable=reason), connection)
    if embedder is None:
        raise Unusable("vectors are switched off now")
    if problem := model_problem(embedder):
        result = _write(replace(run, embedder=None, unavailable=problem), connection)
        _note_problem(connection, {"model": embedder.model, "reason": problem})
        return replace(result, without_vectors=problem)
    raise Unusable(f"the embedding model is {embedder.model} now")


def _note_problem(connection: sqlite3.Connection, problem: Mapping[str, str] | None) -> None:
    """Note which model could not be had and why, so that questions say so, and do not each try it again."""
    noted = json.dumps(problem) if problem else ""
    if noted != (queries.meta(connection, "model_problem") or ""):
        with write_transaction(connection):
            writes.put_meta(connection, model_problem=noted)


def _rebuild(run: _Sync, reason: str) -> SyncResult:
    """Make a new index beside the old one, then put it in the old one's place in a single transaction."""
    fresh = run.folder / "index.db.new"
    remove_database(fresh)
    try:
        with closing(create(fresh)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("PRAGMA synchronous = OFF")
            result = _write(run, connection, rebuilt=reason)
            if run.embedder and result.without_vectors:
                _note_problem(connection, {"model": run.embedder.model, "reason": result.without_vectors})
            _install(connection, run.folder / "index.db")
    finally:
        remove_database(fresh)
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
        remove_database(file)
        target, generation = connect(file), 0
    with closing(target):
        fresh.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (str(generation + 1),))
        fresh.backup(target)
        target.execute("PRAGMA journal_mode = WAL")


def _changes(brain: Path, connection: sqlite3.Connection) -> brain_source.Changes:
    """Return which files differ from what the index has seen."""

    def known(paths: Sequence[str] | None) -> dict[str, FileState]:
        return queries.file_states(connection, _BRAIN, paths)

    return brain_source.changes(brain, known, queries.meta(connection, "brain_state"))


def _write(run: _Sync, connection: sqlite3.Connection, *, rebuilt: str | None = None) -> SyncResult:
    """Write what changed in one transaction, then embed what has no vectors."""
    changes = _changes(run.brain, connection)
    result = SyncResult(rebuilt=rebuilt, without_vectors=run.unavailable)
    if changes or rebuilt:
        with write_transaction(connection):
            result = _apply(run, connection, changes, result)
            writes.put_meta(connection, brain_state=changes.state)
            writes.put_statistics(connection, everything=bool(rebuilt))
    elif changes.state != queries.meta(connection, "brain_state"):
        with write_transaction(connection):
            writes.put_meta(connection, brain_state=changes.state)
    vectors = Embedded(unavailable=run.unavailable)
    if run.embedder:
        vectors = embed_missing(
            connection, embedder=run.embedder, cache_folder=run.folder / "embeddings", prune=bool(rebuilt),
            progress=run.progress,
        )  # fmt: skip
    total = connection.execute("SELECT count(*) FROM files WHERE source = ?", (_BRAIN,)).fetchone()[0]
    return replace(
        result, embedded=vectors.embedded, cached=vectors.cached, without_vectors=vectors.unavailable,
        unchanged=total - result.added - result.modified - result.moved,
        problems=(*changes.problems, *queries.problems(connection, _BRAIN)),
    )  # fmt: skip


def _apply(run: _Sync, connection: sqlite3.Connection, changes: brain_source.Changes, result: SyncResult) -> SyncResult:
    """Take out what the changed files held, then put in what they hold now."""
    before = queries.file_states(connection, _BRAIN, [*changes.modified, *changes.removed])
    released = [state.unit_id for state in before.values() if state.unit_id]
    # Files that claim an id which one of the changed files held: one of them may have it now.
    shadowed = [path for path in queries.paths_claiming(connection, _BRAIN, released) if path not in before]
    for path, state in before.items():
        if state.unit_id and queries.unit_path(connection, _BRAIN, state.unit_id) == path:
            writes.remove_unit(connection, _BRAIN, state.unit_id)
    for path in changes.removed:
        writes.remove_file(connection, _BRAIN, path)
    paths = sorted({*changes.modified, *shadowed})
    hashes_before = {state.hash: path for path, state in before.items() if path in changes.removed}
    added = modified = moved = 0
    for done, path in enumerate(paths, start=1):
        state = _put_file(run, connection, path)
        if path in before:
            modified += before[path].hash != state.hash
        elif path not in shadowed:
            is_move = hashes_before.pop(state.hash, None) is not None
            moved, added = moved + is_move, added + (not is_move)
        if run.progress:
            run.progress("Indexing", done, len(paths))
    return replace(result, added=added, modified=modified, moved=moved, removed=len(changes.removed) - moved)


def _put_file(run: _Sync, connection: sqlite3.Connection, path: str) -> FileState:
    """Read a file and write it with its unit. Of several files with one id, the path that sorts first has it."""
    file = brain_source.read(run.brain, path)
    state, unit = file.state, file.unit
    try:
        chunks = chunks_of(unit, run.embedder.count_tokens if run.embedder else estimate_tokens) if unit else ()
    except Exception as error:
        problem = Problem(path=printable(path), reason=f"cannot be indexed ({reason_of(error)})")
        state, unit, chunks = replace(state, unit_id=None, problems=(*state.problems, problem)), None, ()
    if unit and (owner := queries.unit_path(connection, _BRAIN, unit.id)) and owner != path:
        keeper, loser = sorted([owner, path])
        taken = Problem(path=loser, reason=f"the id {unit.id} is already that of {keeper}; give this file another one")
        if loser == path:
            state, unit = replace(state, problems=(*state.problems, taken)), None
        else:
            lost = queries.file_states(connection, _BRAIN, [loser])[loser]
            writes.put_files(connection, _BRAIN, [replace(lost, problems=(*lost.problems, taken))])
    writes.put_files(connection, _BRAIN, [state])
    if unit:
        writes.put_unit(connection, unit, chunks)
    return state
