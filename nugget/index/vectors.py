"""The vectors of an index: made for the units that have none yet, and searched.

Units are written without vectors, so that they are found by their words at once; their vectors follow batch by batch,
from a cache or from the model. That makes a long first indexing resumable, and a switch of the embedding model is the
same thing again.

A search compares the signs of the numbers, which are a thirty-second of a vector, and measures the nearest of them
exactly. sqlite-vec does both in SQL; a Python that cannot load it gets the functions from here.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nugget.errors import EmbeddingUnavailable
from nugget.index import units as stored
from nugget.index.connection import connect, remove_database, write_transaction
from nugget.index.fulltext import pieces
from nugget.infra import files
from nugget.markdown import body_below_title
from nugget.text import slugify

if TYPE_CHECKING:
    from nugget.infra.embedding import Embedder, Vector

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, how many are done, how many there are)."""
UnitCosines: TypeAlias = tuple[float, float, float | None]
"""With the nearest chunk of a unit, with the unit as a whole, and with its title (None if it has none of its own)."""

PROGRESS = "progress.json"
"""In the folder of the vector cache while vectors are made: `done` of `total` units since `started`, as of `at`."""
_FORGOTTEN_AFTER_S = 120.0
_UNITS_A_BATCH = 16
_MEASURED = 8
"""Chunks measured exactly for each one wanted. Of the nearest ten to a question the signs miss one in 500 then."""
_WHOLE_UNIT_CHARS = 4000


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection without sqlite-vec the functions of it that are used here."""

    def distance(one: bytes, other: bytes) -> float:
        import numpy as np

        difference = np.frombuffer(one, "<f4") - np.frombuffer(other, "<f4")
        return math.sqrt(float(difference @ difference))

    def differing(one: bytes, other: bytes) -> int:
        return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()

    connection.create_function("vec_distance_L2", 2, distance, deterministic=True)
    connection.create_function("vec_distance_hamming", 2, differing, deterministic=True)
    connection.create_function("vec_bit", 1, lambda bits: bits, deterministic=True)


def search(
    connection: sqlite3.Connection, vector: Vector, k: int, allowed_sql: str, parameters: Sequence[object]
) -> list[tuple[int, float]]:
    """Return the k chunks of highest cosine as (chunk key, cosine).

    `allowed_sql` selects the chunk keys that may be found; empty for all.
    """
    where = f"WHERE chunk_key IN ({allowed_sql})" if allowed_sql else ""
    embedding = vector.tobytes()
    rows = connection.execute(
        f"WITH near AS MATERIALIZED (SELECT chunk_key FROM signs {where} "
        "ORDER BY vec_distance_hamming(vec_bit(bits), vec_bit(?)), chunk_key LIMIT ?) "
        "SELECT chunk_key, vec_distance_L2(embedding, ?) AS distance FROM near JOIN vectors USING (chunk_key) "
        "ORDER BY distance, chunk_key LIMIT ?",
        (*parameters, _signs(embedding), k * _MEASURED, embedding, k),
    )
    # Of all its measures L2 is the one that spares sqlite-vec two norms a row.
    return [(key, _cosine(distance)) for key, distance in rows]


def nearest_chunks(
    connection: sqlite3.Connection, vector: Vector, units: Sequence[int]
) -> dict[int, tuple[int, float]]:
    """Return the nearest chunk of each of these units that has vectors: unit key -> (chunk key, cosine)."""
    sql = (
        "SELECT unit_key, key, vec_distance_L2(embedding, ?) FROM chunks JOIN vectors ON chunk_key = key "
        "WHERE unit_key IN"
    )
    best: dict[int, tuple[int, float]] = {}
    for unit, key, distance in stored.select_in(connection, sql, units, [vector.tobytes()]):
        if unit not in best or _cosine(distance) > best[unit][1]:
            best[unit] = (key, _cosine(distance))
    return best


def unit_cosines(connection: sqlite3.Connection, vector: Vector, units: Sequence[int]) -> dict[int, UnitCosines]:
    """Return the cosines with each of these units that has vectors."""
    sql = (
        "SELECT unit_key, vec_distance_L2(embedding, ?), "
        "CASE WHEN title_embedding IS NOT NULL THEN vec_distance_L2(title_embedding, ?) END "
        "FROM unit_vectors WHERE unit_key IN"
    )
    found = {
        unit: (_cosine(whole), None if title is None else _cosine(title))
        for unit, whole, title in stored.select_in(connection, sql, units, [vector.tobytes()] * 2)
    }
    nearest = nearest_chunks(connection, vector, units)
    return {unit: (cosine, *found.get(unit, (0.0, None))) for unit, (_, cosine) in nearest.items()}


def nearness(connection: sqlite3.Connection, unit: int, units: Sequence[int]) -> dict[int, float]:
    """Return the cosine of each of these units with another one, each as a whole; 0 if it is below."""
    row = connection.execute("SELECT embedding FROM unit_vectors WHERE unit_key = ?", (unit,)).fetchone()
    sql = "SELECT unit_key, vec_distance_L2(embedding, ?) FROM unit_vectors WHERE unit_key IN"
    near = stored.select_in(connection, sql, units, [row[0]]) if row else ()
    return {key: max(_cosine(distance), 0.0) for key, distance in near}


def any_missing(connection: sqlite3.Connection) -> bool:
    """Return whether any unit has no vectors."""
    return bool(_missing(connection, after=0, limit=1))


def model_problem(embedder: Embedder) -> str | None:
    """Return why a model cannot be had now; None if it can."""
    try:
        next(iter(embedder.embed(["Can this model be had?"])))
    except EmbeddingUnavailable as error:
        return str(error)
    return None


def embed_missing(
    connection: sqlite3.Connection, *, embedder: Embedder, cache_folder: Path, progress: Progress | None = None
) -> dict[str, Any]:
    """Embed every unit of the index that has no vectors of this model; commit after each batch.

    Return what a SyncResult says of it: `embedded`, `cached`, `without_vectors`. Vectors of another model are dropped
    first, once this one has shown that it can be had. If another process is doing the same, leave it to that one.
    """
    is_other = stored.meta(connection, "embedding_model") != embedder.model
    if not is_other and not any_missing(connection):
        return {}
    lock = files.try_lock(cache_folder / "embedding.lock")
    if lock is None:
        return {"without_vectors": "another process is making the vectors"}
    try:
        if is_other:
            if problem := model_problem(embedder):
                return {"without_vectors": problem}
            _drop_vectors(connection, model=embedder.model)
        with closing(open_cache(cache_folder, embedder.model)) as cache:
            return _embed_all(connection, embedder, cache, progress)
    finally:
        os.close(lock)


def open_cache(folder: Path, model: str) -> sqlite3.Connection:
    """Open the cache of a model's vectors by the SHA-256 of their text: losing it costs time and nothing else."""
    files.private_folder(folder)
    file = folder / f"{slugify(model, max_chars=40)}-{hashlib.sha256(model.encode()).hexdigest()[:8]}.db"
    connection = connect(file)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        connection.execute("SELECT hash, vector FROM vectors LIMIT 1").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        if "locked" in str(error):
            raise
        remove_database(file)
        return open_cache(folder, model)
    return connection


def _embed_all(
    connection: sqlite3.Connection, embedder: Embedder, cache: sqlite3.Connection, progress: Progress | None
) -> dict[str, Any]:
    total, reached, embedded, cached, last = len(_missing(connection, after=0, limit=-1)), 0, 0, 0, 0
    problem: str | None = None
    progress_file, started = Path(cache.execute("PRAGMA database_list").fetchone()[2]).with_name(PROGRESS), time.time()
    if progress:
        progress("Embedding", 0, total)
    while not problem and (keys := _missing(connection, after=last, limit=_UNITS_A_BATCH)):
        texts = _texts(connection, keys)
        wanted = {_hash(text): text for its in texts.values() for text in its}
        ready = dict(stored.select_in(cache, "SELECT hash, vector FROM vectors WHERE hash IN", list(wanted)))
        missing = [key for key in wanted if key not in ready]
        fresh: dict[bytes, bytes] = {}
        try:
            for key, vector in zip(missing, embedder.embed([wanted[key] for key in missing]), strict=False):
                fresh[key] = vector.tobytes()
        except EmbeddingUnavailable as error:
            problem = str(error)
        cache.execute("BEGIN IMMEDIATE")
        cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?,?)", list(fresh.items()))
        cache.execute("COMMIT")
        embedded, cached, ready = embedded + len(fresh), cached + len(ready), ready | fresh
        with write_transaction(connection):
            _put(connection, texts, ready)
        reached, last = reached + len(keys), keys[-1]
        state = {"done": reached, "total": total, "started": started, "at": time.time()}
        files.replace(progress_file, json.dumps(state).encode())
        if progress:
            progress("Embedding", reached, total)
    progress_file.unlink(missing_ok=True)
    return {"embedded": embedded, "cached": cached, "without_vectors": problem}


def embedding_under_way(cache_folder: Path) -> dict[str, Any] | None:
    """Return how far the vectors are that a process is making now: `done`, `total`, `per_s`, `seconds_left`."""
    try:
        state = json.loads((cache_folder / PROGRESS).read_bytes())
        rate = state["done"] / max(state["at"] - state["started"], 1e-3)
        if time.time() - state["at"] > _FORGOTTEN_AFTER_S:
            return None
        left = round((state["total"] - state["done"]) / rate)
        return {"done": state["done"], "total": state["total"], "per_s": round(rate, 1), "seconds_left": left}
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def _drop_vectors(connection: sqlite3.Connection, *, model: str) -> None:
    with write_transaction(connection):
        for table in ("vectors", "signs", "unit_vectors"):
            connection.execute(f"DELETE FROM {table}")
        stored.put_meta(connection, embedding_model=model)


def _missing(connection: sqlite3.Connection, *, after: int, limit: int) -> list[int]:
    """Return the keys of the next units with chunks and no vectors, in order."""
    rows = connection.execute(
        """SELECT key FROM units u WHERE key > ? AND NOT EXISTS (SELECT 1 FROM unit_vectors WHERE unit_key = u.key)
           AND EXISTS (SELECT 1 FROM chunks WHERE unit_key = u.key) ORDER BY key LIMIT ?""",
        (after, limit),
    )
    return [row[0] for row in rows]


def _texts(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, list[str]]:
    """Return the texts to embed of each of these units that (still) exists: its chunks, the whole, its own title.

    Of the whole only the beginning is taken: no model reads on for long. A unit of one chunk is that chunk.
    """
    chunks = stored.chunks_of_units(connection, keys)
    texts = {}
    for key, unit in stored.units_by_key(connection, keys).items():
        if key in chunks:
            title = stored.indexed_title(unit.title, unit.body)
            whole = f"{title}\n{body_below_title(unit.body)}" if title else unit.body
            parts = [f"{one.breadcrumb}\n{one.text}" if one.breadcrumb else one.text for one in chunks[key]]
            words = " ".join(pieces(title)) if title.isalnum() else ""  # as a wiki names its pages: `LearnTesting`
            texts[key] = [*parts, whole[:_WHOLE_UNIT_CHARS], *([words or title] if title else [])]
    return texts


def _put(connection: sqlite3.Connection, embedded: Mapping[int, Sequence[str]], ready: Mapping[bytes, bytes]) -> None:
    """Write the vectors of the units that are still what was embedded: another process may have replaced some."""
    chunks = stored.chunks_of_units(connection, list(embedded))
    for key, texts in _texts(connection, list(embedded)).items():
        vectors = [ready[of_text] for text in texts if (of_text := _hash(text)) in ready]
        if texts != embedded[key] or len(vectors) != len(texts):
            continue
        of_chunks = list(zip((chunk.key for chunk in chunks[key]), vectors, strict=False))
        connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?,?)", of_chunks)
        signs = [(chunk, _signs(vector)) for chunk, vector in of_chunks]
        connection.executemany("INSERT OR REPLACE INTO signs VALUES (?,?)", signs)
        whole, *of_title = vectors[len(chunks[key]) :]
        title = of_title[0] if of_title else None
        connection.execute("INSERT OR REPLACE INTO unit_vectors VALUES (?,?,?)", (key, whole, title))


def _signs(vector: bytes) -> bytes:
    """Return a bit for each number of a vector: 1 if it is above zero."""
    bits = "".join("1" if number > 0 else "0" for number in array("f", vector))
    return int(bits, 2).to_bytes((len(bits) + 7) // 8)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _cosine(distance: float) -> float:
    """Return the cosine of two unit vectors at this Euclidean distance: |a-b|^2 = 2 - 2 cos(a, b)."""
    return 1.0 - distance * distance / 2.0
