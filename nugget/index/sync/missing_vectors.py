"""Give vectors to the units of the machine's index that have none yet.

Units are put in without vectors, so that they are found by their words at once; their vectors follow here, batch by
batch. That makes a long first indexing resumable, and a switch of the embedding model is the same thing again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable
from nugget.index import queries, writes
from nugget.index.connection import write_transaction
from nugget.index.sync.result import Progress
from nugget.index.sync.vectors import Vectors
from nugget.index.vector_cache import VectorCache
from nugget.infra import files
from nugget.infra.embedding import Embedder
from nugget.models import Chunk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UNITS_A_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """How many vectors were made and how many were known; `unavailable` says why there are no more."""

    embedded: int = 0
    cached: int = 0
    unavailable: str | None = None


def any_missing(connection: sqlite3.Connection) -> bool:
    """Whether any unit has no vectors."""
    return bool(_missing(connection, after=0, limit=1))


def embed_missing(
    connection: sqlite3.Connection, *, embedder: Embedder, cache_folder: Path, progress: Progress | None = None
) -> Embedded:
    """Embed every unit of the index that has no vectors of this model; commits after each batch.

    Vectors of another model are dropped first, once this one has shown that it can be had. While another process is
    at the same work, it is left to that one.
    """
    is_other = queries.meta(connection, "embedding_model") != embedder.model
    if not is_other and not _missing(connection, after=0, limit=1):
        return Embedded()
    lock = files.try_lock(cache_folder / "embedding.lock")
    if lock is None:
        return Embedded(unavailable="another process is making the vectors")
    try:
        if is_other and (problem := _switch_model(connection, embedder)):
            return Embedded(unavailable=problem)
        with closing(VectorCache(cache_folder, embedder.model)) as cache:
            return _embed_all(connection, Vectors(embedder, cache, queries.vector_size(connection)), progress)
    finally:
        os.close(lock)


def _switch_model(connection: sqlite3.Connection, embedder: Embedder) -> str | None:
    """Make the index one of this model, without vectors; the reason where the model cannot be had."""
    try:
        next(iter(embedder.embed(["Can this model be had?"])))
    except EmbeddingUnavailable as error:
        return str(error)
    with write_transaction(connection):
        connection.execute("DELETE FROM vectors")
        connection.execute("DELETE FROM unit_vectors")
        writes.put_meta(connection, embedding_model=embedder.model)
    return None


def _embed_all(connection: sqlite3.Connection, vectors: Vectors, progress: Progress | None) -> Embedded:
    total = len(_missing(connection, after=0, limit=-1))
    done = last = 0
    while not vectors.unavailable and (keys := _missing(connection, after=last, limit=_UNITS_A_BATCH)):
        texts = _texts(connection, keys)
        made = vectors.of(list(texts.values()))
        ready = {key: (its_texts, its) for (key, its_texts), its in zip(texts.items(), made, strict=True) if its}
        with write_transaction(connection):
            _put(connection, ready)
        done, last = done + len(keys), keys[-1]
        if progress:
            progress("Embedding", done, total)
    if vectors.is_outgrown:
        with write_transaction(connection):
            connection.execute("DELETE FROM vectors")
            connection.execute("DELETE FROM unit_vectors")
    return Embedded(embedded=vectors.embedded, cached=vectors.cached, unavailable=vectors.unavailable)


def _missing(connection: sqlite3.Connection, *, after: int, limit: int) -> list[int]:
    """The keys of the next units with chunks and no vectors, in order."""
    rows = connection.execute(
        """SELECT key FROM units u WHERE key > ? AND NOT EXISTS (SELECT 1 FROM unit_vectors WHERE unit_key = u.key)
           AND EXISTS (SELECT 1 FROM chunks WHERE unit_key = u.key) ORDER BY key LIMIT ?""",
        (after, limit),
    )
    return [row[0] for row in rows]


def _texts(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, list[str]]:
    """What is to be embedded for each of these units that (still) exists."""
    units = queries.units_by_key(connection, keys)
    stored = queries.chunks_of_units(connection, keys)
    return {
        key: writes.embedded_texts(
            units[key],
            [
                Chunk(breadcrumb=c.breadcrumb, text=c.text, heading_level=c.heading_level, position=c.position)
                for c in stored[key]
            ],
        )
        for key in keys
        if key in units and key in stored
    }


def _put(connection: sqlite3.Connection, ready: dict[int, tuple[list[str], list[NDArray[np.float32]]]]) -> None:
    """Write the vectors of the units that are still what was embedded: another process may have replaced some."""
    chunks = queries.chunks_of_units(connection, list(ready))
    for key, texts in _texts(connection, list(ready)).items():
        embedded, vectors = ready[key]
        if texts == embedded:
            writes.put_vectors(connection, key, [chunk.key for chunk in chunks[key]], vectors)
