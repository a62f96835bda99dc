"""Take over from an older index what cannot be read again: sessions whose files are gone.

Everything else is derived from files that are there, and made again by the next sync.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from nugget.index.events import index_rows

_TABLES = ("events", "command_inputs", "pane_output", "file_edits")


def adopt_gone_sessions(connection: sqlite3.Connection, old: Path) -> int:
    """Copy the sessions whose files are gone from an older index into an empty one; return how many there are.

    Incidents and notes are derived again. An index that cannot be read has nothing to give.
    """
    keys: list[int] = []
    with suppress(sqlite3.Error):
        connection.execute("ATTACH ? AS old", (str(old),))
        try:
            rows = connection.execute("SELECT key, path FROM old.log_sessions WHERE source != 'bridge'").fetchall()
            keys = [key for key, path in rows if not Path(path).exists()]
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TEMP TABLE gone AS SELECT value AS key FROM json_each(?)", (str(keys),))
            for table in ("log_sessions", *_TABLES):
                names = ", ".join(_shared_columns(connection, table))
                which = "key" if table == "log_sessions" else "id >> 34"
                connection.execute(
                    f"INSERT INTO main.{table} ({names}) SELECT {names} FROM old.{table} "
                    f"WHERE {which} IN (SELECT key FROM temp.gone)"
                )
            for table in _TABLES:
                index_rows(connection, table, 0, 1 << 62)
            connection.execute("UPDATE log_sessions SET gone = 1, derived = 0, generation = 1, unit_generation = 0")
            if keys:  # by which rules they were redacted is not known
                connection.execute("UPDATE meta SET value = 'unknown' WHERE key = 'events_rules'")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
                keys = []
            connection.execute("DETACH old")
    return len(keys)


def _shared_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns that a table has in both indexes. `file` says nothing there: files have other numbers."""
    own, theirs = (
        [row[1] for row in connection.execute(f"PRAGMA {schema}.table_info({table})")] for schema in ("main", "old")
    )
    return [name for name in own if name in theirs and name != "file"]
