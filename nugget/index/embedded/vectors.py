"""Make vectors for the units of an index that lack them, and search them.

Units are written without vectors, so that they are found by their words at once; their vectors follow batch by batch,
from a cache or from the model. So a long first indexing can be resumed, and a switch of the model works the same way.

A search compares the signs of the numbers, which take a thirty-second of the space and are kept in memory. The nearest
are then measured exactly, by sqlite-vec or, where that does not load, by a function of the same name.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.errors import EmbeddingUnavailable, IndexUnavailable
from nugget.index import indexed_title
from nugget.index.embedded import units as stored
from nugget.index.embedded.connection import connect, remove_database, write_transaction
from nugget.index.fulltext import pieces
from nugget.infra import files
from nugget.markdown import body_below_title
from nugget.text import content_hash, on_progress, slugify

if TYPE_CHECKING:
    from nugget.infra.embedding import Embedder, Vector

PROGRESS = "progress.json"
"""In the folder of the vector cache while vectors are made: `done` of `total` units since `started`, as of `at`."""
_FORGOTTEN_AFTER_S = 120.0
_UNITS_A_BATCH = 16
_CHOSEN, _OF_CHUNKS = 6, 52_000
"""Chunks measured exactly per result: a number, or a fraction of all, which finds .98 of a million's best 50."""
_COMPARED, _COUNTED = 5, 15
"""Chunks whose signs are multiplied with the query, and whose last third of signs is counted, for each such one."""
_WHOLE_UNIT_CHARS = 4000


class Signs:
    """The signs of an index's vectors in memory; new ones are read, removed ones are never measured."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: tuple[str | None, int, Any, Any] = ("", 0, None, None)

    def near(self, connection: sqlite3.Connection, vector: Vector, k: int, admitted: Any) -> list[int]:
        """Return keys of chunks that almost surely include the nearest k; `admitted` says by key which may be used.

        Among those whose signs differ least, they are the best by the product of vector and signs.
        """
        import numpy as np

        keys, signs = self._known(connection)
        if not len(keys):
            return []
        query = np.frombuffer(vector.tobytes(), "<f4")
        if admitted is not None:
            is_admitted = admitted.take(keys, mode="clip")  # later keys of another thread have no vector here
            keys, signs = keys[is_admitted], signs[:, is_admitted]
        asked = np.frombuffer(_in_words(np.packbits(query > 0).tobytes()), "<u8")
        if len(asked) != len(signs):
            raise IndexUnavailable("The index has vectors of another size than the model.", hint="Run: nugget rebuild")

        def smallest(wanted: int) -> Any:  # with all ties, in whatever order the rows were read
            most = bisect_left(range(len(query)), wanted, key=lambda n: int(np.count_nonzero(differing <= n)))
            return np.flatnonzero(differing <= most)

        chosen, part = k * max(_CHOSEN, len(keys) // _OF_CHUNKS), -(-len(asked) * 2 // 3)
        differing = np.zeros(len(keys), np.uint16)
        for own, word in zip(signs[:part], asked[:part], strict=True):
            differing += np.bitwise_count(own ^ word)
        first = smallest(chosen * _COUNTED)
        differing = differing[first]
        for own, word in zip(signs[part:], asked[part:], strict=True):
            differing += np.bitwise_count(own[first] ^ word)
        first = first[smallest(chosen * _COMPARED)]
        bits = np.ascontiguousarray(signs[:, first].T).view(np.uint8)
        scores = np.unpackbits(bits, axis=1)[:, : len(query)].astype(np.float32) @ query
        least = np.partition(scores, -chosen)[-chosen] if len(scores) > chosen else -np.inf
        return np.sort(keys[first[scores >= least]]).tolist()  # type: ignore[no-any-return]

    def _known(self, connection: sqlite3.Connection) -> tuple[Any, Any]:
        import numpy as np

        made = f"{stored.meta(connection, 'made')} {stored.meta(connection, 'embedding_model')}"
        with self._lock:
            known, last, keys, signs = self._read
            sql = "SELECT number, chunk_key, bits FROM signs WHERE number > ? ORDER BY number"
            rows = connection.execute(sql, (last if known == made else 0,)).fetchall()
            if known == made and rows:
                count = connection.execute("SELECT count(*) FROM signs").fetchone()[0]
                if len(keys) + len(rows) > 1.25 * count:  # too many are gone
                    known, rows = "", connection.execute(sql, (0,)).fetchall()
            if not rows:
                return (keys, signs) if known == made else ((), ())
            added = np.frombuffer(b"".join(_in_words(row[2]) for row in rows), "<u8").reshape(len(rows), -1).T
            more = np.array([row[1] for row in rows], np.int64)
            if known != made:
                keys, signs = more[:0], added[:, :0]
            keys, signs = np.concatenate((keys, more)), np.ascontiguousarray(np.concatenate((signs, added), axis=1))
            self._read = (made, rows[-1][0], keys, signs)
            return keys, signs


def add_distance(connection: sqlite3.Connection) -> None:
    """Define the one function of sqlite-vec that is used, on a connection where it does not load."""

    def distance(one: bytes, other: bytes) -> float:
        import numpy as np

        return float(np.linalg.norm(np.frombuffer(one, "<f4") - np.frombuffer(other, "<f4")))

    connection.create_function("vec_distance_L2", 2, distance, deterministic=True)


def any_missing(connection: sqlite3.Connection) -> bool:
    """Return whether any unit has no vectors."""
    return bool(_missing(connection, after=0, limit=1))


def model_problem(embedder: Embedder) -> str | None:
    """Return why a model is unavailable now, or None."""
    try:
        next(iter(embedder.embed(["Is this model available?"])))
    except EmbeddingUnavailable as error:
        return str(error)
    return None


def embed_missing(connection: sqlite3.Connection, *, embedder: Embedder, cache_folder: Path) -> dict[str, Any]:
    """Embed every unit of the index that has no vectors of this model; commit after each batch.

    Return these fields of a SyncResult: `embedded`, `cached`, `without_vectors`. Vectors of another model are dropped
    first, once this one has proved available. If another process is doing the same, leave it to that one.
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
            with write_transaction(connection):
                for table in ("vectors", "signs", "unit_vectors"):
                    connection.execute(f"DELETE FROM {table}")
                stored.put_meta(connection, embedding_model=embedder.model)
        with closing(open_cache(cache_folder, embedder.model)) as cache:
            return _embed_all(connection, embedder, cache)
    finally:
        os.close(lock)


def open_cache(folder: Path, model: str) -> sqlite3.Connection:
    """Open the cache of a model's vectors by the SHA-256 of their text; losing it costs only time."""
    files.private_folder(folder)
    file = folder / f"{slugify(model, max_chars=40)}-{content_hash(model)[:8]}.db"
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


def _embed_all(connection: sqlite3.Connection, embedder: Embedder, cache: sqlite3.Connection) -> dict[str, Any]:
    total, reached, embedded, cached, last = len(_missing(connection, after=0, limit=-1)), 0, 0, 0, 0
    problem: str | None = None
    progress_file, started = Path(cache.execute("PRAGMA database_list").fetchone()[2]).with_name(PROGRESS), time.time()
    on_progress.get()("Embedding", 0, total)
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
        on_progress.get()("Embedding", reached, total)
    progress_file.unlink(missing_ok=True)
    return {"embedded": embedded, "cached": cached, "without_vectors": problem}


def embedding_under_way(cache_folder: Path) -> dict[str, Any] | None:
    """Return the progress of a process that is making vectors now: `done`, `total`, `per_s`, `seconds_left`."""
    try:
        state = json.loads((cache_folder / PROGRESS).read_bytes())
        rate = state["done"] / max(state["at"] - state["started"], 1e-3)
        if time.time() - state["at"] > _FORGOTTEN_AFTER_S:
            return None
        left = round((state["total"] - state["done"]) / rate)
        return {"done": state["done"], "total": state["total"], "per_s": round(rate, 1), "seconds_left": left}
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def _missing(connection: sqlite3.Connection, *, after: int, limit: int) -> list[int]:
    """Return the keys of the next units with chunks and no vectors, in order."""
    rows = connection.execute(
        """SELECT key FROM units u WHERE key > ? AND NOT EXISTS (SELECT 1 FROM unit_vectors WHERE unit_key = u.key)
           AND EXISTS (SELECT 1 FROM chunks WHERE unit_key = u.key) ORDER BY key LIMIT ?""",
        (after, limit),
    )
    return [row[0] for row in rows]


def _texts(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, list[str]]:
    """Return the texts to embed for each of these units that still exists: its chunks, the whole, its own title.

    Only the beginning of the whole counts, since models read no further. A unit of one chunk is that chunk.
    """
    chunks = stored.chunks_of_units(connection, keys)
    texts = {}
    for key, unit in stored.units_by_key(connection, keys).items():
        if key in chunks:
            title = indexed_title(unit.title, unit.body)
            whole = f"{title}\n{body_below_title(unit.body)}" if title else unit.body
            parts = [f"{one.breadcrumb}\n{one.text}" if one.breadcrumb else one.text for one in chunks[key]]
            words = " ".join(pieces(title)) if title.isalnum() else ""  # like the name of a wiki page: `LearnTesting`
            texts[key] = [*parts, whole[:_WHOLE_UNIT_CHARS], *([words or title] if title else [])]
    return texts


def _put(connection: sqlite3.Connection, embedded: Mapping[int, Sequence[str]], ready: Mapping[bytes, bytes]) -> None:
    """Write the vectors of unchanged units; another process may have replaced some."""
    import numpy as np

    chunks = stored.chunks_of_units(connection, list(embedded))
    for key, texts in _texts(connection, list(embedded)).items():
        found = (np.frombuffer(ready[of_text], "<f4") for text in texts if (of_text := _hash(text)) in ready)
        vectors = [one.astype("<f2").astype("<f4") for one in found]  # as a team's index keeps them
        if texts != embedded[key] or len(vectors) != len(texts):
            continue
        of_chunks = list(zip((chunk.key for chunk in chunks[key]), vectors, strict=False))
        connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?,?)", of_chunks)
        signs = [(chunk, np.packbits(vector > 0)) for chunk, vector in of_chunks]
        connection.executemany("INSERT OR REPLACE INTO signs (chunk_key, bits) VALUES (?,?)", signs)
        whole, title, *_ = *vectors[len(chunks[key]) :], None
        connection.execute("INSERT OR REPLACE INTO unit_vectors VALUES (?,?,?)", (key, whole, title))


def _in_words(bits: bytes) -> bytes:
    """Return bits padded with zeros to whole 64-bit numbers."""
    return bits.ljust(-(-len(bits) // 8) * 8, b"\0")


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def cosine(distance: float) -> float:
    """Return the cosine of two unit vectors at this Euclidean distance: |a-b|^2 = 2 - 2 cos(a, b)."""
    return 1.0 - distance * distance / 2.0
