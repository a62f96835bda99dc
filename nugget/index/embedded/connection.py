"""Open index files: paths, pragmas, schema, and the sqlite-vec extension.

A brain's index lies beside it; the machine's and those of memory lie in `$NUGGET_HOME`. All are derived: a missing or
damaged one, or one of another version, is replaced by an empty one, which the next sync fills.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from nugget.errors import IndexUnavailable
from nugget.index.embedded.events import READ_TABLES, index_rows
from nugget.index.embedded.units import meta
from nugget.index.fulltext import said_parts
from nugget.infra import files
from nugget.text import content_hash

SCHEMA_VERSION = "10"
"""A file with another version is rebuilt, so every change of an .sql file here needs a new version.

There are no migrations, because nothing lives only in the index.
"""

_BUSY_TIMEOUT_S = 15
_MMAP_BYTES = 1 << 31
_PAGE_BYTES = 1 << 13
"""Five vectors fill such a page; two leave a quarter of the usual 4096 bytes empty."""
_HOME_SCHEMAS = ("provenance.sql", "events.sql")


class Unusable(IndexUnavailable):
    """The index file must be rebuilt: it is missing, corrupt, foreign, or `is_outdated`: of another version."""

    is_outdated = False


def connect(file: Path | str) -> sqlite3.Connection:
    """Open (or create) a database with Nugget's pragmas; autocommit, usable from any one thread at a time."""
    _register_everywhere()
    if str(file) != ":memory:":
        with suppress(OSError):  # SQLite gives a better error
            files.private_file(file)  # SQLite gives the files beside a database its permissions
    connection = sqlite3.connect(str(file), timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
    connection.create_function("said_parts", 2, said_parts, deterministic=True)
    return connection


def create(file: Path | str, *, schemas: Sequence[str] = ()) -> sqlite3.Connection:
    """Create an empty index at an unused path; `schemas` are SQL files in addition to the common one."""
    connection = connect(file)
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    tables = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in ("schema.sql", *schemas))
    connection.executescript(f"BEGIN;\n{tables}")  # one transaction, since each waits for the disk once
    connection.execute(
        "INSERT INTO meta VALUES ('schema_version', ?), ('made', ?)", (SCHEMA_VERSION, secrets.token_hex(8))
    )
    connection.execute("COMMIT")
    return connection


def remove_database(file: Path) -> None:
    """Delete a database and the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error means that a database is damaged (also by text that is not UTF-8), not locked or full."""
    return not isinstance(error, sqlite3.OperationalError) or "decode to UTF-8" in str(error)


def find_damage(file: Path) -> str | None:
    """Return the first damage in a database's pages or texts, or None."""
    try:
        with closing(connect(file)) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            for (table,) in connection.execute(tables).fetchall() if found == "ok" else ():
                for _ in connection.execute(f'SELECT * FROM "{table}"'):
                    pass
            return None if found == "ok" else str(found)
    except sqlite3.DatabaseError as error:
        return str(error) if is_damage(error) else None


def open_existing(file: Path) -> sqlite3.Connection:
    """Open an index for reading and writing. Raises Unusable with the reason when it must be rebuilt."""
    if not file.is_file():
        raise Unusable("there is no index yet")
    connection = connect(file)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH 'x'").fetchone()
        if meta(connection, "schema_version") != SCHEMA_VERSION:
            error = Unusable("the index was made by another version of Nugget")
            error.is_outdated = True
            raise error
    except sqlite3.Error as error:
        connection.close()
        if "locked" in str(error) or "readonly" in str(error):
            raise IndexUnavailable(f"{file}: {error}.", hint="Another process holds it; try again.") from error
        state = "cannot be read" if isinstance(error, sqlite3.OperationalError) else "is corrupt"
        raise Unusable(f"the index {state} ({error})") from error
    except Unusable:
        connection.close()
        raise
    return connection


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing, one writer at a time; within another transaction, as a part of that."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.OperationalError):  # on a full disk or a broken page SQLite rolls back by itself
            connection.execute("ROLLBACK")
        raise


def load_sqlite_vec(connection: sqlite3.Connection) -> bool:
    """Make sqlite-vec's functions available on this connection; return False if Python cannot.

    Either the extension is loaded, if Python was built to allow that, or `connect` registered the library as an
    auto-extension of the SQLite that Python is linked with.
    """
    library = _vec_library()
    with suppress(Exception):  # from whichever SQLite module made the connection
        if library is not None and hasattr(connection, "enable_load_extension"):
            connection.enable_load_extension(True)
            connection.load_extension(str(library.with_suffix("")))
            connection.enable_load_extension(False)
        connection.execute("SELECT vec_version()")
        return True
    return False


@cache
def _vec_library() -> Path | None:
    """Return sqlite-vec's loadable library, found without importing the package (which would import numpy)."""
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

        sqlite = ctypes.CDLL(_sqlite3.__file__)  # also finds symbols of the libsqlite3 that it is linked with
        vec = ctypes.CDLL(str(library))
        return bool(sqlite.sqlite3_auto_extension(ctypes.cast(vec.sqlite3_vec_init, ctypes.c_void_p)) == 0)
    except (OSError, AttributeError, ImportError):
        return False


def index_folder(brain: Path, home: Path) -> Path:
    """Return the folder of a brain's index: `.nugget` in it; in `$NUGGET_HOME` if that is read-only or has a link."""
    folder = brain / ".nugget"
    with suppress(OSError):
        files.private_folder(folder)
        if os.access(folder, os.W_OK | os.X_OK) and not files.has_links(folder):
            return folder
    folder = home / "indexes" / content_hash(os.fsencode(brain.resolve()))[:16]
    files.private_folder(folder)
    return folder


def home_index_file(home: Path) -> Path:
    """Return the path of the machine's index, for `home` = `$NUGGET_HOME`."""
    return home / "index.db"


def open_home(home: Path) -> sqlite3.Connection:
    """Open the machine's index for reading and writing; create it if it is missing or unusable.

    It holds sources that do not belong to one brain: provenance, sessions, shell logs, canon and channels. Raises
    IndexUnavailable if it can be neither opened nor created.
    """
    return _open_or_create(home_index_file(home), schemas=_HOME_SCHEMAS)


def empty_home() -> sqlite3.Connection:
    """Return an empty index of the machine, in memory."""
    return create(":memory:", schemas=_HOME_SCHEMAS)


def open_read_only(home: Path) -> sqlite3.Connection | None:
    """Return the machine's index without waiting for locks, or None if it is missing or of another version."""
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(f"{home_index_file(home).as_uri()}?mode=ro", uri=True, timeout=0.1)
        with suppress(sqlite3.Error):
            if meta(connection, "schema_version") == SCHEMA_VERSION:
                return connection
        connection.close()
    return None


def memory_index_file(home: Path, identity: str) -> Path:
    """Return the path of the index of an identity's memory, which no other identity's query can reach."""
    digest = content_hash(identity)[:8]  # Zealot and zealot differ, on any file system
    return home / "memory-indexes" / f"{identity}-{digest}.db"


def open_memory(home: Path, identity: str) -> sqlite3.Connection:
    """Open the index of an identity's memory for reading and writing; create it if it is missing or unusable."""
    connection = _open_or_create(memory_index_file(home, identity))
    if meta(connection, "identity") is None:
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (identity,))
    return connection


def discard_damaged(home: Path) -> bool:
    """Remove the machine's index if it is damaged, for the next sync to rebuild; return whether it was."""
    file = home_index_file(home)
    if not file.exists() or find_damage(file) is None:
        return False
    remove_database(file)
    return True


def _open_or_create(file: Path, *, schemas: Sequence[str] = ()) -> sqlite3.Connection:
    with suppress(Unusable):
        return open_existing(file)
    try:
        with files.locked(file.with_suffix(".lock")):
            with suppress(Unusable):
                return open_existing(file)  # another process has just created it
            fresh = file.with_name(f"{file.name}.new")
            remove_database(fresh)
            with closing(create(fresh, schemas=schemas)) as made:
                if schemas and file.is_file():
                    _keep_gone_sessions(made, file)
            remove_database(file)
            fresh.replace(file)
            return open_existing(file)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", "") or error
        raise IndexUnavailable(f"{file} cannot be made ({reason}).", hint="Check space and permissions.") from error


def _keep_gone_sessions(connection: sqlite3.Connection, old: Path) -> None:
    """Copy the sessions whose files are gone from an older index; everything else is read again from files.

    Incidents and notes are derived again. An index that cannot be read is ignored.
    """
    with suppress(sqlite3.Error):
        connection.execute("ATTACH ? AS old", (str(old),))
        with write_transaction(connection):
            rows = connection.execute("SELECT key, path FROM old.log_sessions WHERE source != 'bridge'").fetchall()
            keys = ", ".join(str(int(key)) for key, path in rows if not Path(path).exists())
            for table in ("log_sessions", *READ_TABLES):
                own, theirs = (
                    [row[1] for row in connection.execute(f"PRAGMA {schema}.table_info({table})")]
                    for schema in ("main", "old")
                )
                names = ", ".join(name for name in own if name in theirs and name != "file")  # file numbers differ
                which = "key" if table == "log_sessions" else "id >> 34"
                connection.execute(
                    f"INSERT INTO main.{table} ({names}) SELECT {names} FROM old.{table} WHERE {which} IN ({keys})"
                )
            for table in READ_TABLES:
                index_rows(connection, table, 0, 1 << 62)
            connection.execute("UPDATE log_sessions SET gone = 1, derived = 0, generation = 1, unit_generation = 0")
            if keys:  # the rules that redacted them are unknown
                connection.execute("UPDATE meta SET value = 'unknown' WHERE key = 'events_rules'")
