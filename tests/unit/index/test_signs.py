"""The signs of a large index's vectors, held in memory."""

from __future__ import annotations

import sqlite3
from array import array
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nugget.index.connection import connect, create
from nugget.index.vectors import Signs

NUMBERS = np.random.default_rng(3)


def put(connection: sqlite3.Connection, keys: range) -> None:
    made = NUMBERS.normal(size=(len(keys), 100)).astype("<f4")
    for key, vector in zip(keys, made / np.linalg.norm(made, axis=1, keepdims=True), strict=True):
        connection.execute("INSERT OR REPLACE INTO vectors VALUES (?,?)", (key, vector.tobytes()))
        bits = np.packbits(vector > 0).tobytes()
        connection.execute("INSERT OR REPLACE INTO signs (chunk_key, bits) VALUES (?,?)", (key, bits))


def nearest(connection: sqlite3.Connection, vector: array[float], count: int) -> set[int]:
    rows = connection.execute("SELECT chunk_key, embedding FROM vectors").fetchall()
    cosines = [(float(np.frombuffer(blob, "<f4") @ np.frombuffer(vector, "<f4")), key) for key, blob in rows]
    return {key for _, key in sorted(cosines, reverse=True)[:count]}


@pytest.mark.proves("INDEX-NUMPY")
def test_signs_in_memory_find_the_nearest_and_follow_what_is_written(tmp_path: Path) -> None:
    with closing(create(tmp_path / "index.db")) as connection, closing(connect(tmp_path / "index.db")) as other:
        follow_what_is_written(connection, other)


def follow_what_is_written(connection: sqlite3.Connection, other: sqlite3.Connection) -> None:
    signs = Signs()
    put(connection, range(1, 401))
    question = array("f", NUMBERS.normal(size=100).astype("<f4").tobytes())

    def found(allowed: list[int] | None = None) -> set[int]:
        text = None if allowed is None else ",".join(map(str, allowed))
        return set(signs.near(connection, question, 80, text).tolist())

    assert len(nearest(connection, question, 10) & found()) >= 7
    assert found([3, 5, 9999]) == {3, 5}
    best = nearest(connection, question, 1).pop()
    blob = np.negative(np.frombuffer(question, "<f4"))  # a write of another process: one chunk changed, more came
    other.execute("UPDATE vectors SET embedding = ? WHERE chunk_key = ?", (blob.tobytes(), best))
    bits = np.packbits(blob > 0).tobytes()
    other.execute("INSERT OR REPLACE INTO signs (chunk_key, bits) VALUES (?,?)", (best, bits))
    put(other, range(401, 901))
    assert len(nearest(connection, question, 10) & found()) >= 7
    assert max(found()) > 400
    connection.execute("DELETE FROM signs WHERE chunk_key > 20")
    connection.execute("UPDATE meta SET value = 'again' WHERE key = 'made'")  # what a rebuild does
    assert found() == set(range(1, 21))
