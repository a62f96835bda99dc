"""Exact nearest neighbours over the vectors table: by sqlite-vec in SQL, or by numpy over a snapshot in memory.

Both give the same order. A process that asks once lets sqlite-vec scan the file; one that stays (a server), and
any Python that cannot load sqlite-vec, keeps a snapshot. Up to EXACT_LIMIT vectors that is the float32 matrix;
beyond it only their signs, packed to bits, choose RESCORED candidates whose true vectors are then read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from nugget.index.queries import select_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.infra.embedding import Vector

EXACT_LIMIT = 20_000
"""Vectors kept whole in memory (30 MB at 384 dimensions); more are kept as bits (5 MB for 100,000)."""

RESCORED = 400
"""Candidates by sign that are scored by their true vectors; recall of the top 50 is then .99 and more."""

_ROWS_A_READ = 8192
_FILTERS_KEPT = 8

UnitCosines: TypeAlias = tuple[float, float, float | None]
"""With the nearest chunk of a unit, with the unit as a whole, and with its title where it has one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The vectors of one generation of the index, in memory.

    `keys` (of the chunks) have shape (n,), int64, ascending. `matrix` has shape (n, dimensions) float32, or is None
    and `signs` has shape (n, dimensions / 64) uint64. The chunks of a unit stand in one run of rows: `starts` are the
    first rows of the runs, `runs` the number of each unit's run; `unit_of` is the unit of each chunk. `whole_and_title`
    has shape (runs, 2, dimensions), float32; a unit without a title of its own has zeros there and False in
    `has_title`. `admitted` keeps which rows the last filters admit.
    """

    generation: int
    keys: NDArray[np.int64]
    matrix: NDArray[np.float32] | None
    signs: NDArray[np.uint64] | None
    starts: NDArray[np.intp]
    runs: Mapping[int, int]
    unit_of: Mapping[int, int]
    whole_and_title: NDArray[np.float32]
    has_title: NDArray[np.bool_]
    admitted: dict[tuple[object, ...], NDArray[np.intp]] = field(default_factory=dict)


def search_by_sql(
    connection: sqlite3.Connection, vector: Vector, k: int, allowed_sql: str, parameters: Sequence[object]
) -> list[tuple[int, float]]:
    """The k chunks of highest cosine as (chunk key, cosine), scanned by sqlite-vec.

    `allowed_sql` selects the chunk keys that may be found; empty for all.
    """
    where = f"WHERE chunk_key IN ({allowed_sql})" if allowed_sql else ""
    rows = connection.execute(
        f"SELECT chunk_key, vec_distance_L2(embedding, ?) AS distance FROM vectors {where} ORDER BY distance LIMIT ?",
        (vector.tobytes(), *parameters, k),
    )
    # Of all its measures L2 is the one that spares sqlite-vec two norms a row.
    return [(key, _cosine(distance)) for key, distance in rows]


def take_snapshot(connection: sqlite3.Connection, generation: int) -> Snapshot:
    """Read the vectors into memory, a few thousand rows at a time."""
    import numpy as np

    count = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
    keys: list[int] = []
    starts: list[int] = []
    runs: dict[int, int] = {}
    unit_of: dict[int, int] = {}
    blocks: list[Any] = []
    size = 0
    cursor = connection.execute(
        "SELECT chunk_key, unit_key, embedding FROM vectors JOIN chunks ON key = chunk_key ORDER BY chunk_key"
    )
    while part := cursor.fetchmany(_ROWS_A_READ):
        for key, unit, _ in part:
            if unit not in runs:  # its chunks were given their keys in one go
                runs[unit] = len(starts)
                starts.append(len(keys))
            keys.append(key)
            unit_of[key] = unit
        size = len(part[0][2])
        block = np.frombuffer(b"".join(row[2] for row in part), dtype="<f4").reshape(len(part), -1)
        blocks.append(block if count <= EXACT_LIMIT else _signs(block))
    stacked: Any = np.concatenate(blocks) if blocks else np.zeros((0, 0), dtype=np.float32)
    whole_and_title, has_title = _unit_matrices(connection, list(runs), size)
    return Snapshot(
        generation=generation,
        keys=np.array(keys, dtype=np.int64),
        matrix=stacked if count <= EXACT_LIMIT else None,
        signs=None if count <= EXACT_LIMIT else stacked,
        starts=np.array(starts, dtype=np.intp),
        runs=runs,
        unit_of=unit_of,
        whole_and_title=whole_and_title,
        has_title=has_title,
    )


def _unit_matrices(
    connection: sqlite3.Connection, units: Sequence[int], size: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The vectors (of so many bytes) of these units as a whole and of their titles, and which have a title."""
    import numpy as np

    rows = connection.execute("SELECT unit_key, embedding, title_embedding FROM unit_vectors")
    read = {row[0]: row[1:] for row in rows}
    found = [read.get(unit, (None, None)) for unit in units]
    blobs = b"".join(vector or bytes(size) for pair in found for vector in pair)
    both = np.frombuffer(blobs, dtype="<f4").reshape(len(found), 2, -1 if found else 0)
    return both, np.array([title is not None for _, title in found], dtype=np.bool_)


def rows_admitted(
    connection: sqlite3.Connection, snapshot: Snapshot, allowed_sql: str, parameters: Sequence[object]
) -> NDArray[np.intp] | None:
    """The rows of the chunks that a SELECT of keys admits, ascending; None for an empty one, which admits all.

    Those of the last filters are kept: the same few come back, as each source has one, and some admit most of an index.
    """
    import numpy as np

    if not allowed_sql:
        return None
    rows = snapshot.admitted.get((allowed_sql, *parameters))
    if rows is None:
        keys = np.array([row[0] for row in connection.execute(allowed_sql, parameters)], dtype=np.int64)
        rows = np.flatnonzero(np.isin(snapshot.keys, keys))
        if len(snapshot.admitted) >= _FILTERS_KEPT:
            snapshot.admitted.clear()
        snapshot.admitted[(allowed_sql, *parameters)] = rows
    return rows


def search_snapshot(
    connection: sqlite3.Connection,
    snapshot: Snapshot,
    vector: Vector,
    k: int,
    *,
    cosines: NDArray[np.float32] | None,
    admitted: NDArray[np.intp] | None,
) -> list[tuple[int, float]]:
    """The k chunks of highest cosine as (chunk key, cosine); `admitted` are the rows that may be found, None for all.

    `cosines` are those of every row, where the snapshot holds whole vectors.
    """
    import numpy as np

    rows = np.arange(len(snapshot.keys)) if admitted is None else admitted
    if not len(rows):
        return []
    if cosines is not None:
        best = rows[_largest(cosines if admitted is None else cosines[rows], k)]
        return list(zip(snapshot.keys[best].tolist(), cosines[best].tolist(), strict=True))
    assert snapshot.signs is not None
    signs = snapshot.signs if admitted is None else snapshot.signs[rows]
    differing = np.bitwise_count(signs ^ _signs(as_row(vector).reshape(1, -1))).sum(axis=1, dtype=np.int32)
    near = snapshot.keys[rows[_largest(-differing, max(RESCORED, 4 * k))]]
    scored = cosines_of(connection, vector, [int(key) for key in near])
    return sorted(scored.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


def cosines_of(connection: sqlite3.Connection, vector: Vector, keys: Sequence[int]) -> dict[int, float]:
    """The exact cosine of each of these chunks that has a vector."""
    rows = list(select_in(connection, "SELECT chunk_key, embedding FROM vectors WHERE chunk_key IN", keys))
    cosines = _cosines([row[1] for row in rows], vector)
    return {row[0]: cosine for row, cosine in zip(rows, cosines, strict=True)}


def best_chunks(connection: sqlite3.Connection, vector: Vector, units: Sequence[int]) -> dict[int, tuple[int, float]]:
    """The nearest chunk of each of these units that has vectors: unit key -> (chunk key, cosine)."""
    sql = "SELECT unit_key, key, embedding FROM chunks JOIN vectors ON chunk_key = key WHERE unit_key IN"
    found = list(select_in(connection, sql, units))
    cosines = _cosines([row[2] for row in found], vector)
    return _best((unit, key, cosine) for (unit, key, _), cosine in zip(found, cosines, strict=True))


def best_chunks_by_sql(
    connection: sqlite3.Connection, vector: Vector, units: Sequence[int]
) -> dict[int, tuple[int, float]]:
    """The same as `best_chunks`, by sqlite-vec."""
    sql = (
        "SELECT unit_key, key, vec_distance_L2(embedding, ?) FROM chunks JOIN vectors ON chunk_key = key "
        "WHERE unit_key IN"
    )
    found = select_in(connection, sql, units, [vector.tobytes()])
    return _best((unit, key, _cosine(distance)) for unit, key, distance in found)


def _best(found: Iterable[tuple[int, int, float]]) -> dict[int, tuple[int, float]]:
    best: dict[int, tuple[int, float]] = {}
    for unit, key, cosine in found:
        if unit not in best or cosine > best[unit][1]:
            best[unit] = (key, cosine)
    return best


def best_of_units(snapshot: Snapshot, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of each unit's nearest chunk, in the order of runs, from the cosines of every row of a snapshot."""
    import numpy as np

    return np.maximum.reduceat(cosines, snapshot.starts) if len(cosines) else cosines


def nearest_chunk(snapshot: Snapshot, cosines: NDArray[np.float32], unit: int) -> int | None:
    """The chunk of a unit whose cosine is highest."""
    run = snapshot.runs.get(unit)
    if run is None:
        return None
    start = int(snapshot.starts[run])
    end = int(snapshot.starts[run + 1]) if run + 1 < len(snapshot.starts) else len(snapshot.keys)
    return int(snapshot.keys[start + int(cosines[start:end].argmax())])


def unit_cosines(
    connection: sqlite3.Connection, snapshot: Snapshot, best: NDArray[np.float32] | None,
    vector: Vector, units: Sequence[int],
) -> dict[int, UnitCosines]:  # fmt: skip
    """The cosines with each of these units that has vectors. `best` is what `best_of_units` gave for the snapshot."""
    present = [unit for unit in units if unit in snapshot.runs]
    rows = [snapshot.runs[unit] for unit in present]
    # Of two axes, not three: only that is one call of BLAS.
    row = as_row(vector)
    both = (snapshot.whole_and_title[rows].reshape(-1, len(row)) @ row).reshape(-1, 2).tolist()
    titled = snapshot.has_title[rows].tolist()
    if best is None:
        found = best_chunks(connection, vector, present)
        nearest = [found[unit][1] for unit in present]
    else:
        nearest = best[rows].tolist()
    return {
        unit: (chunk, whole, title if has_title else None)
        for unit, chunk, (whole, title), has_title in zip(present, nearest, both, titled, strict=True)
    }


def unit_cosines_by_sql(connection: sqlite3.Connection, vector: Vector, units: Sequence[int]) -> dict[int, UnitCosines]:
    """The same as `unit_cosines`, by sqlite-vec."""
    nearest = best_chunks_by_sql(connection, vector, units)
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


def _cosine(distance: float) -> float:
    """Of two unit vectors at this Euclidean distance: |a-b|^2 = 2 - 2 cos(a, b)."""
    return 1.0 - distance * distance / 2.0


def as_row(vector: Vector) -> NDArray[np.float32]:
    """A vector as numpy has it, not copied."""
    import numpy as np

    return np.asarray(vector, dtype="<f4")


def _cosines(blobs: Sequence[bytes], vector: Vector) -> list[float]:
    import numpy as np

    if not blobs:
        return []
    matrix = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), -1)
    cosines: list[float] = (matrix @ as_row(vector)).tolist()
    return cosines


def _signs(block: NDArray[np.float32]) -> NDArray[np.uint64]:
    import numpy as np

    packed = np.packbits(block > 0, axis=1)
    padding = -packed.shape[1] % 8
    if padding:
        packed = np.pad(packed, ((0, 0), (0, padding)))
    return np.ascontiguousarray(packed).view(np.uint64)


def _largest(values: NDArray[np.float32] | NDArray[np.int32], k: int) -> NDArray[np.intp]:
    """Positions of the k largest values, largest first, equal ones in their order."""
    import numpy as np

    positions = np.arange(len(values)) if len(values) <= k else np.sort(np.argpartition(-values, k - 1)[:k])
    return positions[np.argsort(-values[positions], kind="stable")]
