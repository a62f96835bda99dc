"""Vectors by (model, SHA-256 of the embedded text): a rebuild or a branch switch embeds nothing twice.

One SQLite file a model in `<index folder>/embeddings/`. Losing it costs time, nothing else.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.index.connection import connect
from nugget.infra import files
from nugget.text import slugify

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def text_hash(text: str) -> bytes:
    """The SHA-256 by which the vector of a text is cached."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class VectorCache:
    """The cached vectors of one model. Not shared between threads."""

    def __init__(self, folder: Path, model: str) -> None:
        files.private_folder(folder)
        suffix = hashlib.sha256(model.encode()).hexdigest()[:8]
        self._file = folder / f"{slugify(model, max_chars=40)}-{suffix}.db"
        self._connection = self._open()

    def get(self, hashes: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors that are known, by hash."""
        import numpy as np

        found: dict[bytes, NDArray[np.float32]] = {}
        for start in range(0, len(hashes), 500):
            part = hashes[start : start + 500]
            marks = ",".join("?" * len(part))
            rows = self._connection.execute(f"SELECT hash, vector FROM vectors WHERE hash IN ({marks})", part)
            found.update((key, np.frombuffer(blob, dtype="<f4")) for key, blob in rows)
        return found

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
        self._connection.execute("DROP TABLE kept")

    def clear(self) -> None:
        """Drop every vector: the model is another one by now, under the same name."""
        self._connection.execute("DELETE FROM vectors")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._create()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            for suffix in ("", "-wal", "-shm"):
                self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
            return self._create()

    def _create(self) -> sqlite3.Connection:
        connection = connect(self._file)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, vector BLOB NOT NULL)")
            connection.execute("SELECT hash, vector FROM vectors LIMIT 1").fetchone()
        except sqlite3.Error:
            connection.close()
            raise
        return connection
