"""Give vectors to the units of an index that have none yet, from a cache of vectors or from the model.

Units are written without vectors, so that they are found by their words at once; their vectors follow batch by batch.
That makes a long first indexing resumable, and a switch of the embedding model is the same thing again.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable
from nugget.index import units as stored
from nugget.index.connection import connect, remove_database, write_transaction
from nugget.infra import files
from nugget.infra.embedding import Embedder
from nugget.markdown import body_below_title
from nugget.text import slugify

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = dict[bytes, NDArray[np.float32]]

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, how many are done, how many there are)."""

_UNITS_A_BATCH = 64
_WHOLE_UNIT_CHARS = 4000


@dataclass(slots=True)
class Embedded:
    """How many vectors were made and how many were cached; `unavailable` says why there are no more."""

    embedded: int = 0
    cached: int = 0
    unavailable: str | None = None
    used: set[bytes] = field(default_factory=set)


class VectorCache:
    """Vectors of one model by the SHA-256 of the embedded text: losing the file costs time and nothing else."""

    def __init__(self, folder: Path, model: str) -> None:
        files.private_folder(folder)
        suffix = hashlib.sha256(model.encode()).hexdigest()[:8]
        file = folder / f"{slugify(model, max_chars=40)}-{suffix}.db"
        try:
            self._connection = _open_cache(file)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            remove_database(file)
            self._connection = _open_cache(file)

    def get(self, hashes: Sequence[bytes]) -> Vectors:
        """Return the vectors that are known, by hash."""
        import numpy as np

        rows = stored.select_in(self._connection, "SELECT hash, vector FROM vectors WHERE hash IN", hashes)
        return {key: np.frombuffer(blob, dtype="<f4") for key, blob in rows}

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Remember vectors."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT OR REPLACE INTO vectors VALUES (?,?)", [(key, v.tobytes()) for key, v in vectors.items()]
        )
        self._connection.execute("COMMIT")

    def keep_only(self, hashes: Iterable[bytes]) -> None:
        """Drop every vector whose text is no longer indexed."""
        self._connection.execute("CREATE TEMP TABLE kept (hash BLOB PRIMARY KEY) WITHOUT ROWID")
        self._connection.executemany("INSERT OR IGNORE INTO kept VALUES (?)", [(key,) for key in hashes])
        self._connection.execute("DELETE FROM vectors WHERE hash NOT IN (SELECT hash FROM kept)")

    def clear(self) -> None:
        """Drop every vector."""
        self._connection.execute("DELETE FROM vectors")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def any_missing(connection: sqlite3.Connection) -> bool:
    """Return whether any unit has no vectors."""
    return bool(_missing(connection, after=0, limit=1))


def embed_missing(
    connection: sqlite3.Connection,
    *,
    embedder: Embedder,
    cache_folder: Path,
    prune: bool = False,
    progress: Progress | None = None,
) -> Embedded:
    """Embed every unit of the index that has no vectors of this model; commit after each batch.

    Vectors of another model are dropped first, once this one has shown that it can be had. If another process is
    doing the same, leave it to that one. `prune` drops cached vectors that were not used.
    """
    is_other = stored.meta(connection, "embedding_model") != embedder.model
    if not is_other and not any_missing(connection):
        return Embedded()
    lock = files.try_lock(cache_folder / "embedding.lock")
    if lock is None:
        return Embedded(unavailable="another process is making the vectors")
    try:
        if is_other:
            if problem := model_problem(embedder):
                return Embedded(unavailable=problem)
            _drop_vectors(connection, model=embedder.model)
        with closing(VectorCache(cache_folder, embedder.model)) as cache:
            done = _embed_all(connection, embedder, cache, progress)
            if prune and not done.unavailable:
                cache.keep_only(done.used)
            return done
    finally:
        os.close(lock)


def model_problem(embedder: Embedder) -> str | None:
    """Return why a model cannot be had now; None if it can."""
    try:
        next(iter(embedder.embed(["Can this model be had?"])))
    except EmbeddingUnavailable as error:
        return str(error)
    return None


def _drop_vectors(connection: sqlite3.Connection, *, model: str) -> None:
    with write_transaction(connection):
        connection.execute("DELETE FROM vectors")
        connection.execute("DELETE FROM unit_vectors")
        stored.put_meta(connection, embedding_model=model)


def _embed_all(
    connection: sqlite3.Connection, embedder: Embedder, cache: VectorCache, progress: Progress | None
) -> Embedded:
    done = Embedded()
    total, reached, last = len(_missing(connection, after=0, limit=-1)), 0, 0
    while not done.unavailable and (keys := _missing(connection, after=last, limit=_UNITS_A_BATCH)):
        texts = _texts(connection, keys)
        ready = _vectors_of({_hash(text): text for its in texts.values() for text in its}, embedder, cache, done)
        sizes = {vector.nbytes for vector in ready.values()}
        if sizes and len(sizes | {vector_size(connection) or min(sizes)}) > 1:
            # An endpoint answers with vectors of another size now: nothing compares with what was made before.
            cache.clear()
            _drop_vectors(connection, model="")
            done.unavailable = f"{embedder.model} makes vectors of another size now; sync again to make all of them."
            break
        with write_transaction(connection):
            _put(connection, texts, ready)
        reached, last = reached + len(keys), keys[-1]
        if progress:
            progress("Embedding", reached, total)
    return done


def _vectors_of(wanted: Mapping[bytes, str], embedder: Embedder, cache: VectorCache, done: Embedded) -> Vectors:
    """Return the vectors of these texts by hash, as many as can be had, and count them."""
    ready = cache.get(list(wanted))
    missing = [key for key in wanted if key not in ready]
    fresh: Vectors = {}
    try:
        for key, vector in zip(missing, embedder.embed([wanted[key] for key in missing]), strict=False):
            fresh[key] = vector
    except EmbeddingUnavailable as error:
        done.unavailable = str(error)
    cache.put(fresh)
    done.used.update(wanted)
    done.embedded, done.cached = done.embedded + len(fresh), done.cached + len(ready)
    return ready | fresh


def _missing(connection: sqlite3.Connection, *, after: int, limit: int) -> list[int]:
    """Return the keys of the next units with chunks and no vectors, in order."""
    rows = connection.execute(
        """SELECT key FROM units u WHERE key > ? AND NOT EXISTS (SELECT 1 FROM unit_vectors WHERE unit_key = u.key)
           AND EXISTS (SELECT 1 FROM chunks WHERE unit_key = u.key) ORDER BY key LIMIT ?""",
        (after, limit),
    )
    return [row[0] for row in rows]


def _texts(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, list[str]]:
    """Return what is to be embedded of each of these units that (still) exists: its chunks, the whole, its own title.

    Of the whole only the beginning is taken: no model reads on for long. A unit of one chunk is that chunk.
    """
    chunks = stored.chunks_of_units(connection, keys)
    texts = {}
    for key, unit in stored.units_by_key(connection, keys).items():
        if key in chunks:
            title = stored.indexed_title(unit.title, unit.body)
            whole = f"{title}\n{body_below_title(unit.body)}" if title else unit.body
            parts = [f"{one.breadcrumb}\n{one.text}" if one.breadcrumb else one.text for one in chunks[key]]
            texts[key] = [*parts, whole[:_WHOLE_UNIT_CHARS], *([title] if title else [])]
    return texts


def vector_size(connection: sqlite3.Connection) -> int | None:
    """Return the size in bytes of a vector of the index; None if it holds none."""
    row = connection.execute("SELECT length(embedding) FROM vectors LIMIT 1").fetchone()
    return int(row[0]) if row else None


def put_vectors(
    connection: sqlite3.Connection, unit_key: int, chunk_keys: Sequence[int], vectors: Sequence[NDArray[np.float32]]
) -> None:
    """Give a unit and its chunks the vectors of its `embedded_texts`, in place of what it had."""
    of_chunks, (whole, *of_title) = vectors[: len(chunk_keys)], vectors[len(chunk_keys) :]
    connection.executemany(
        "INSERT OR REPLACE INTO vectors VALUES (?,?)",
        [(key, vector.tobytes()) for key, vector in zip(chunk_keys, of_chunks, strict=True)],
    )
    connection.execute(
        "INSERT OR REPLACE INTO unit_vectors VALUES (?,?,?)",
        (unit_key, whole.tobytes(), of_title[0].tobytes() if of_title else None),
    )


def _put(connection: sqlite3.Connection, embedded: Mapping[int, Sequence[str]], ready: Vectors) -> None:
    """Write the vectors of the units that are still what was embedded: another process may have replaced some."""
    chunks = stored.chunks_of_units(connection, list(embedded))
    for key, texts in _texts(connection, list(embedded)).items():
        vectors = [ready[of_text] for text in texts if (of_text := _hash(text)) in ready]
        if texts == embedded[key] and len(vectors) == len(texts):
            put_vectors(connection, key, [chunk.key for chunk in chunks[key]], vectors)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _open_cache(file: Path) -> sqlite3.Connection:
    connection = connect(file)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        connection.execute("SELECT hash, vector FROM vectors LIMIT 1").fetchone()
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            connection.close()
        raise
    return connection
