"""Exact nearest neighbours over the vectors table: by sqlite-vec in SQL, or by numpy over a snapshot in memory.

Both give the same order. A process that asks once lets sqlite-vec scan the file; a long-lived one (a server), and any
Python that cannot load sqlite-vec, keeps a snapshot.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from nugget.index.units import select_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.infra.embedding import Vector

_ROWS_A_READ = 8192

UnitCosines: TypeAlias = tuple[float, float, float | None]
"""With the nearest chunk of a unit, with the unit as a whole, and with its title (None if it has none of its own)."""


def search_by_sql(
    connection: sqlite3.Connection, vector: Vector, k: int, allowed_sql: str, parameters: Sequence[object]
) -> list[tuple[int, float]]:
    """Return the k chunks of highest cosine as (chunk key, cosine), scanned by sqlite-vec.

    `allowed_sql` selects the chunk keys that may be found; empty for all.
    """
    where = f"WHERE chunk_key IN ({allowed_sql})" if allowed_sql else ""
    rows = connection.execute(
        f"SELECT chunk_key, vec_distance_L2(embedding, ?) AS distance FROM vectors {where} ORDER BY distance LIMIT ?",
        (vector.tobytes(), *parameters, k),
    )
    # Of all its measures L2 is the one that spares sqlite-vec two norms a row.
    return [(key, _cosine(distance)) for key, distance in rows]


def nearest_chunks_by_sql(
    connection: sqlite3.Connection, vector: Vector, units: Sequence[int]
) -> dict[int, tuple[int, float]]:
    """Return the nearest chunk of each of these units that has vectors: unit key -> (chunk key, cosine)."""
    sql = (
        "SELECT unit_key, key, vec_distance_L2(embedding, ?) FROM chunks JOIN vectors ON chunk_key = key "
        "WHERE unit_key IN"
    )
    best: dict[int, tuple[int, float]] = {}
    for unit, key, distance in select_in(connection, sql, units, [vector.tobytes()]):
        if unit not in best or _cosine(distance) > best[unit][1]:
            best[unit] = (key, _cosine(distance))
    return best


def unit_cosines_by_sql(connection: sqlite3.Connection, vector: Vector, units: Sequence[int]) -> dict[int, UnitCosines]:
    """Return the cosines with each of these units that has vectors, by sqlite-vec."""
    nearest = nearest_chunks_by_sql(connection, vector, units)
    sql = (
        "SELECT unit_key, vec_distance_L2(embedding, ?), "
        "CASE WHEN title_embedding IS NOT NULL THEN vec_distance_L2(title_embedding, ?) END "
        "FROM unit_vectors WHERE unit_key IN"
    )
    found = {
        unit: (_cosine(whole), None if title is None else _cosine(title))
        for unit, whole, title in select_in(connection, sql, units, [vector.tobytes()] * 2)
    }
    return {unit: (cosine, *found.get(unit, (0.0, None))) for unit, (_, cosine) in nearest.items()}


class Snapshot:
    """The vectors of one generation of an index, in memory.

    `keys` (of the chunks) have shape (n,), int64, ascending; `matrix` has shape (n, dimensions), float32. The chunks of
    a unit stand in one run of rows: `_starts` are the first rows of the runs, `_runs` the number of each unit's run.
    `_whole_and_title` has shape (runs, 2, dimensions); a unit without a title of its own has zeros there.
    """

    def __init__(self, connection: sqlite3.Connection, generation: int) -> None:
        import numpy as np

        self.generation = generation
        self.unit_of: dict[int, int] = {}
        self._runs: dict[int, int] = {}
        self._last: tuple[Vector, NDArray[np.float32], NDArray[np.float32]] | None = None
        starts: list[int] = []
        blocks: list[Any] = []
        cursor = connection.execute(
            "SELECT chunk_key, unit_key, embedding FROM vectors JOIN chunks ON key = chunk_key ORDER BY chunk_key"
        )
        while part := cursor.fetchmany(_ROWS_A_READ):
            for key, unit, _ in part:
                if unit not in self._runs:  # its chunks were given their keys in one go
                    self._runs[unit] = len(starts)
                    starts.append(len(self.unit_of))
                self.unit_of[key] = unit
            blocks.append(np.frombuffer(b"".join(row[2] for row in part), dtype="<f4").reshape(len(part), -1))
        self._keys = np.array(list(self.unit_of), dtype=np.int64)
        self._starts = np.array(starts, dtype=np.intp)
        self._matrix: NDArray[np.float32] = np.concatenate(blocks) if blocks else np.zeros((0, 0), dtype=np.float32)
        rows = connection.execute("SELECT unit_key, embedding, title_embedding FROM unit_vectors")
        read = {row[0]: row[1:] for row in rows}
        found = [read.get(unit, (None, None)) for unit in self._runs]
        blobs = b"".join(vector or bytes(4 * self._matrix.shape[1]) for pair in found for vector in pair)
        self._whole_and_title = np.frombuffer(blobs, dtype="<f4").reshape(len(found), 2, -1 if found else 0)
        self._has_title = [title is not None for _, title in found]

    def search(
        self, connection: sqlite3.Connection, vector: Vector, k: int, allowed_sql: str, parameters: Sequence[object]
    ) -> list[tuple[int, float]]:
        """Return the k chunks of highest cosine as (chunk key, cosine), as `search_by_sql` does."""
        import numpy as np

        cosines, _ = self._cosines(vector)
        rows = self._allowed(connection, allowed_sql, parameters) if allowed_sql else np.arange(len(cosines))
        values = cosines[rows]
        best = np.arange(len(values)) if len(values) <= k else np.sort(np.argpartition(-values, k - 1)[:k])
        best = rows[best[np.argsort(-values[best], kind="stable")]]
        return list(zip(self._keys[best].tolist(), cosines[best].tolist(), strict=True))

    def unit_cosines(self, vector: Vector, units: Sequence[int]) -> dict[int, UnitCosines]:
        """Return the cosines with each of these units that has vectors."""
        import numpy as np

        present = [unit for unit in units if unit in self._runs]
        rows = [self._runs[unit] for unit in present]
        row = np.asarray(vector, dtype="<f4")
        # Of two axes, not three: only that is one call of BLAS.
        both = (self._whole_and_title[rows].reshape(-1, len(row)) @ row).reshape(-1, 2).tolist()
        nearest = self._cosines(vector)[1][rows].tolist()
        return {
            unit: (chunk, whole, title if self._has_title[run] else None)
            for unit, run, chunk, (whole, title) in zip(present, rows, nearest, both, strict=True)
        }

    def nearest_chunk(self, vector: Vector, unit: int) -> int | None:
        """Return the chunk of a unit whose cosine is highest."""
        run = self._runs.get(unit)
        if run is None:
            return None
        start = int(self._starts[run])
        end = int(self._starts[run + 1]) if run + 1 < len(self._starts) else len(self._keys)
        return int(self._keys[start + int(self._cosines(vector)[0][start:end].argmax())])

    def _cosines(self, vector: Vector) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the cosines of every chunk, and of every unit's nearest chunk; made once a question."""
        import numpy as np

        last = self._last
        if last is None or last[0] is not vector:
            row = np.asarray(vector, dtype="<f4")
            cosines = self._matrix @ row if len(self._matrix) else self._matrix.ravel()
            nearest = np.maximum.reduceat(cosines, self._starts) if len(cosines) else cosines
            self._last = last = (vector, cosines, nearest)
        return last[1], last[2]

    def _allowed(
        self, connection: sqlite3.Connection, allowed_sql: str, parameters: Sequence[object]
    ) -> NDArray[np.intp]:
        """Return the rows of the chunks that a SELECT of keys admits."""
        import numpy as np

        keys = np.array([row[0] for row in connection.execute(allowed_sql, parameters)], dtype=np.int64)
        return np.flatnonzero(np.isin(self._keys, keys))


def _cosine(distance: float) -> float:
    """Return the cosine of two unit vectors at this Euclidean distance: |a-b|^2 = 2 - 2 cos(a, b)."""
    return 1.0 - distance * distance / 2.0
