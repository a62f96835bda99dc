"""The index of one identity's memory: a file of its own, so that no query of another index can ever reach it.

Not even words and their frequencies are shared: what a search suggests, or how it weighs a word, says nothing of
anybody's memory. It is derived like the others.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

from nugget.index import Index, queries
from nugget.index.connection import SCHEMA_VERSION, Unusable
from nugget.index.home import open_or_make
from nugget.index.writes import put_meta


def memory_index_file(home: Path, identity: str) -> Path:
    """Where the index of an identity lies, for `home` = `$NUGGET_HOME`."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]  # Zealot and zealot are two, on any file system
    return home / "memory-indexes" / f"{identity}-{digest}.db"


def open_memory(home: Path, identity: str) -> sqlite3.Connection:
    """Open an identity's index for reading and writing; make it where there is none that can be used."""
    connection = open_or_make(memory_index_file(home, identity), schemas=(), version=SCHEMA_VERSION)
    if queries.meta(connection, "identity") is None:
        put_meta(connection, identity=identity)
    return connection


def read_memory(home: Path, identity: str, *, resident: bool = False) -> Index:
    """An identity's index, opened for reading; made where there is none."""
    try:
        index = Index(memory_index_file(home, identity), resident=resident)
    except Unusable:
        with closing(open_memory(home, identity)):
            index = Index(memory_index_file(home, identity), resident=resident)
    if index.meta("identity") != identity:
        raise Unusable("the index is another identity's")
    return index
