"""The machine's own index, `$NUGGET_HOME/index.db`: what belongs to no single brain.

Provenance, sessions, shell logs, canon and bridge channels are those of a person at a machine, and a brain is
made anew without reading gigabytes of transcripts again. The tables of `schema.sql` hold units here as they do in a
brain's index; the other SQL files beside this module add what only this index has. It is derived, like the other one:
where it is missing, damaged or of another version, a new and empty one takes its place and the next sync fills it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from nugget.errors import IndexUnavailable
from nugget.index import Index
from nugget.index.adoption import adopt_gone_sessions
from nugget.index.connection import (
    SCHEMA_VERSION,
    Unusable,
    create,
    find_damage,
    open_existing,
    remove_database,
)
from nugget.infra import files

_SCHEMAS = ("provenance.sql", "events.sql")


def home_index_file(home: Path) -> Path:
    """Where the machine's index lies, for `home` = `$NUGGET_HOME`."""
    return home / "index.db"


def open_home(home: Path) -> sqlite3.Connection:
    """Open the machine's index for reading and writing; make it where there is none that can be used.

    Raises IndexUnavailable where it can neither be opened nor made.
    """
    return open_or_make(home_index_file(home), schemas=_schemas(), version=home_version(), adopt=adopt_gone_sessions)


def open_or_make(
    file: Path,
    *,
    schemas: Sequence[str],
    version: str,
    adopt: Callable[[sqlite3.Connection, Path], object] | None = None,
) -> sqlite3.Connection:
    """Open an index for reading and writing; if there is none that can be used, an empty one takes its place.

    `adopt` may take over what only the old file has. Raises IndexUnavailable if it can neither be opened nor made.
    """
    try:
        return open_existing(file, version=version)
    except Unusable:
        pass
    try:
        with files.locked(file.with_suffix(".lock")):
            try:
                return open_existing(file, version=version)  # another process has just made it
            except Unusable:
                pass
            fresh = file.with_name(f"{file.name}.new")
            remove_database(fresh)
            with closing(create(fresh, schemas=schemas, version=version)) as made:
                if adopt and file.is_file():
                    adopt(made, file)
            remove_database(file)
            fresh.replace(file)
            return open_existing(file, version=version)
    except (OSError, sqlite3.Error) as error:
        raise IndexUnavailable(f"{file} cannot be made ({error}).", hint="Check space and permissions.") from error


def read_home(home: Path, *, resident: bool = False) -> Index:
    """The machine's index, opened for reading. Raises Unusable where nothing has been synced into it yet."""
    return Index(home_index_file(home), resident=resident, version=home_version())


def discard_damaged(home: Path) -> bool:
    """Remove the machine's index if it is damaged, for the next sync to make again; return whether it was."""
    file = home_index_file(home)
    if not file.exists() or find_damage(file) is None:
        return False
    remove_database(file)
    return True


@cache
def home_version() -> str:
    """Changes with every change of the schema, so that an older file is made anew."""
    return f"{SCHEMA_VERSION}-{hashlib.sha256(''.join(_schemas()).encode()).hexdigest()[:12]}"


def _schemas() -> list[str]:
    return [Path(__file__).with_name(name).read_text("utf-8") for name in _SCHEMAS]
