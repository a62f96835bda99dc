"""Databases of other memory tools, read as the export that they would write: one JSON text, a row on each line.

claude-mem keeps its observations in `claude-mem.db` and ships no export with its package; mem0 keeps what became of
each memory in `history.db`. Both are only read, also while their owner is at work.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

DATABASE_NAMES = ("claude-mem.db", "history.db")
"""What the databases are called that are looked for in a folder."""
MAX_ROWS = 50_000

_MAGIC = b"SQLite format 3\0"
_OBSERVATIONS = ("title", "subtitle", "narrative", "text", "facts", "concepts", "type", "project", "created_at")
_EVENTS = ("memory_id", "new_memory", "event", "is_deleted", "created_at", "updated_at")


def is_database(file: Path) -> bool:
    """Return whether a file is a SQLite database."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def export_of(file: Path) -> str:
    """The export of a database, with row n on line n. Empty for one that is neither claude-mem's nor mem0's.

    Raises sqlite3.Error for a damaged or locked one.
    """
    # Without a log beside it nobody writes, and as immutable nothing (`-shm`) is made beside it for reading either.
    how = "mode=ro" if Path(f"{file}-wal").exists() else "mode=ro&immutable=1"
    address = f"file:{quote(str(file.resolve()))}?{how}"
    with closing(sqlite3.connect(address, uri=True, timeout=2.0)) as connection:
        rows = _rows(connection, "observations", _OBSERVATIONS, order="id")
        if rows:
            return f'{{"observations": [{_lines(rows)}]}}'
        rows = _rows(connection, "history", _EVENTS, order="rowid")
        return f"[{_lines(rows)}]" if rows else ""


def _rows(connection: sqlite3.Connection, table: str, wanted: Sequence[str], *, order: str) -> list[dict[str, object]]:
    """The rows of a table that has a memory tool's columns; none of another one. Older versions lack some columns."""
    present = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
    if not {wanted[0], wanted[1]} <= set(present):
        return []
    columns = [name for name in wanted if name in present]
    sql = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order} LIMIT {MAX_ROWS}"
    return [dict(zip(columns, row, strict=True)) for row in connection.execute(sql)]


def _lines(rows: Sequence[dict[str, object]]) -> str:
    return ",\n".join(json.dumps(row, ensure_ascii=False, default=str) for row in rows)
