"""Bring the index in line with the brain: read what changed, embed what is new, write it in one transaction.

The only bridge from files to index. Safe to kill at any point and to run twice at once: a lock admits one writer,
readers go on reading, and what was not finished is found again by the next sync.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from nugget.config import Environment
from nugget.errors import EmbeddingUnavailable, IndexUnavailable
from nugget.index import Unusable, queries
from nugget.index.connection import connect, create, open_existing, remove_database, write_transaction
from nugget.index.sync.changes import changes_of
from nugget.index.sync.result import Freshness, Progress, SyncResult
from nugget.infra import files
from nugget.infra.embedding import Embedder

__all__ = ["Freshness", "Progress", "SyncResult", "index_folder", "pending_changes", "sync"]


def index_folder(brain: Path, environment: Environment) -> Path:
    """Where a brain's index lives: `<brain>/.nugget`, or under `$NUGGET_HOME` when the brain is read-only."""
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
    """How many files differ from the index; None when there is no usable index. Takes no lock, reads no file."""
    try:
        with closing(open_existing(index_folder(brain, environment) / "index.db")) as connection:
            found = changes_of(brain, connection)
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
    those that are there are kept, and `without_vectors` of the result says why. `in_passing` leaves a switch of models
    to a sync of its own. While an index is made anew the old one goes on serving. Raises IndexUnavailable when it
    cannot be written.
    """
    folder = index_folder(brain, environment)
    file = folder / "index.db"
    try:
        with files.locked(folder / "sync.lock"):
            try:
                with closing(open_existing(file)) as connection:
                    if not rebuild:
                        return _update(brain, connection, folder, embedder, unavailable, in_passing, progress)
                    reason = "asked for"
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


def _update(
    brain: Path,
    connection: sqlite3.Connection,
    folder: Path,
    embedder: Embedder | None,
    unavailable: str | None,
    in_passing: bool,
    progress: Progress | None,
) -> SyncResult:
    """Write what changed into the index that is there; raises Unusable where another model wants it made anew.

    An index of another model is better than none: it stays where the configured one cannot be had now.
    """
    from nugget.index.sync.brain import update

    indexed = queries.meta(connection, "embedding_model") or ""
    if in_passing or unavailable or indexed == (embedder.model if embedder else ""):
        result = update(brain, connection, folder, embedder, unavailable, progress)
        if embedder and indexed == embedder.model:
            _note_problem(connection, None)
        return result
    if embedder is None:
        raise Unusable("vectors are switched off now")
    try:
        next(iter(embedder.embed(["Can this model be had?"])))
    except EmbeddingUnavailable as error:
        result = update(brain, connection, folder, None, str(error), progress)
        _note_problem(connection, {"model": embedder.model, "reason": str(error)})
        return replace(result, without_vectors=str(error))
    raise Unusable(f"the embedding model is {embedder.model} now")


def _note_problem(connection: sqlite3.Connection, problem: Mapping[str, str] | None) -> None:
    """Note which model could not be had and why, so that questions say so, and do not each try it again."""
    from nugget.index import writes

    noted = json.dumps(problem) if problem else ""
    if noted != (queries.meta(connection, "model_problem") or ""):
        with write_transaction(connection):
            writes.put_meta(connection, model_problem=noted)


def _rebuild(
    brain: Path,
    folder: Path,
    embedder: Embedder | None,
    unavailable: str | None,
    reason: str,
    progress: Progress | None,
) -> SyncResult:
    """Make a new index beside the old one, then put it in the old one's place in a single transaction."""
    from nugget.index.sync.brain import update

    fresh = folder / "index.db.new"
    remove_database(fresh)
    try:
        with closing(create(fresh)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("PRAGMA synchronous = OFF")
            result = update(brain, connection, folder, embedder, unavailable, progress, rebuilt=reason)
            if embedder and result.without_vectors:
                _note_problem(connection, {"model": embedder.model, "reason": result.without_vectors})
            _install(connection, folder / "index.db")
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
