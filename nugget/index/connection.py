"""Opening the index file: pragmas, schema, the sqlite-vec extension, and what counts as unusable."""

from __future__ import annotations

import ctypes
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from nugget.errors import IndexUnavailable
from nugget.infra import files

SCHEMA_VERSION = "4"
"""Another version in a file means: rebuild it. There are no migrations, because nothing lives only in the index."""

NO_INDEX = "there is no index yet"
"""The reason for which a first index is made."""

_BUSY_TIMEOUT_MS = 15_000
_MMAP_BYTES = 1 << 28
_SCHEMA = Path(__file__).with_name("schema.sql")


class Unusable(IndexUnavailable):
    """The index file is missing, corrupt, foreign or of another schema; the message says which. Rebuild it."""


def connect(file: Path | str) -> sqlite3.Connection:
    """Open (or create) a database with Nugget's pragmas; autocommit, usable from any one thread at a time."""
    _register_everywhere()
    if str(file) != ":memory:":
        with suppress(OSError):  # SQLite says it better
            files.private_file(file)  # SQLite gives what it puts beside a database the permissions that this has
    connection = sqlite3.connect(
        str(file), timeout=_BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    connection.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
    return connection


def create(file: Path | str, *, schemas: Sequence[str] = (), version: str = SCHEMA_VERSION) -> sqlite3.Connection:
    """A new, empty index at a path where nothing is yet; `schemas` are SQL that adds tables to the common ones."""
    connection = connect(file)
    tables = "".join((_SCHEMA.read_text("utf-8"), *schemas))
    connection.executescript(f"BEGIN;\n{tables}")  # one transaction, for the disk is waited for once in each
    shape = "\n".join(_shape(connection))
    facts = ("schema_version", version), ("generation", "0"), ("shape", shape)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", facts)
    connection.execute("COMMIT")
    return connection


def remove_database(file: Path) -> None:
    """Delete a database with what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether SQLite found a database damaged, rather than locked or full. Text that is not UTF-8 is damage."""
    return not isinstance(error, sqlite3.OperationalError) or "decode to UTF-8" in str(error)


def find_damage(file: Path) -> str | None:
    """Return the first damage in a database, of its pages or of the texts in it; None if it is whole."""
    try:
        with closing(connect(file)) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                return str(found)
            tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            for (table,) in connection.execute(tables).fetchall():
                for _ in connection.execute(f"SELECT * FROM {_quoted(table)}"):
                    pass
    except sqlite3.DatabaseError as error:
        return str(error) if is_damage(error) else None
    return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def open_existing(file: Path, *, version: str = SCHEMA_VERSION) -> sqlite3.Connection:
    """Open an index for reading and writing. Raises Unusable with the reason when it must be rebuilt."""
    if not file.is_file():
        raise Unusable(NO_INDEX)
    connection = connect(file)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        connection.execute("SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH 'x'").fetchone()
        shape = connection.execute("SELECT value FROM meta WHERE key = 'shape'").fetchone()
        missing = set(str(shape[0] if shape else "").split("\n")) - _shape(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if "locked" in str(error) or "readonly" in str(error):
            raise IndexUnavailable(f"{file}: {error}.", hint="Another process holds it; try again.") from error
        raise Unusable(f"the index is not one of Nugget's ({error})") from error
    except sqlite3.DatabaseError as error:
        connection.close()
        raise Unusable(f"the index is corrupt ({error})") from error
    if row is None or shape is None or row[0] != version:
        connection.close()
        raise Unusable("the index was made by another version of Nugget")
    if missing:
        connection.close()
        raise Unusable(f"the index lacks the {max(missing)}")  # a table, where there is one, rather than its index
    return connection


def _shape(connection: sqlite3.Connection) -> set[str]:
    """What a file consists of: its tables, those that SQLite keeps for full text among them, indexes and the rest."""
    named = connection.execute("SELECT type || ' ' || name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
    return {name for (name,) in named}


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, one writer at a time; raises the generation, by which readers know that they must look again."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk or a broken page has SQLite roll back by itself
            connection.execute("ROLLBACK")
        raise


def load_sqlite_vec(connection: sqlite3.Connection) -> bool:
    """Make sqlite-vec's functions available on this connection; False where this Python cannot.

    Two ways: loading the extension, where Python was built to allow it; else registering the library as an
    auto-extension of the very SQLite that Python is linked with, which `connect` has then done beforehand.
    """
    if _has_vec(connection):
        return True
    library = _vec_library()
    if library is None or not hasattr(connection, "enable_load_extension"):
        return False
    try:
        connection.enable_load_extension(True)
        connection.load_extension(str(library.with_suffix("")))
        connection.enable_load_extension(False)
    except sqlite3.Error:
        return False
    return _has_vec(connection)


def _has_vec(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT vec_version()")
    except Exception:  # of whichever SQLite module made the connection
        return False
    return True


@cache
def _vec_library() -> Path | None:
    """sqlite-vec's loadable library, found without importing the package (which would import numpy)."""
    spec = find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("vec0.*"))), None)


@cache
def _register_everywhere() -> bool:
    """Register sqlite-vec for every later connection, on Pythons that cannot load extensions themselves."""
    library = _vec_library()
    if library is None or hasattr(sqlite3.Connection, "enable_load_extension"):
        return False
    try:
        import _sqlite3

        sqlite = ctypes.CDLL(_sqlite3.__file__)  # symbols of the libsqlite3 that it is linked with are found too
        vec = ctypes.CDLL(str(library))
        return bool(sqlite.sqlite3_auto_extension(ctypes.cast(vec.sqlite3_vec_init, ctypes.c_void_p)) == 0)
    except (OSError, AttributeError, ImportError):
        return False
