"""Putting units into the index and taking them out. Callers hold a write transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from nugget.index.fulltext import LARGE_INDEX_CHUNKS, chunk_columns, unit_columns
from nugget.markdown import body_below_title
from nugget.models import Chunk, FileState, Problem, Scope, SourceName, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WHOLE_UNIT_CHARS = 4000


def embedded_texts(unit: Unit, chunks: Sequence[Chunk]) -> list[str]:
    """Return what is embedded for a unit: each chunk, the whole unit, and the title if it has one of its own.

    Of the whole only the beginning is taken: no model reads on for long. A unit of one chunk is that chunk.
    """
    if not chunks:
        return []
    title = indexed_title(unit.title, unit.body)
    whole = f"{title}\n{body_below_title(unit.body)}" if title else unit.body
    return [*(chunk.embedded_text for chunk in chunks), whole[:_WHOLE_UNIT_CHARS], *([title] if title else [])]


def indexed_title(title: str, body: str) -> str:
    """Return the title if it says more than the text below it; empty if the text begins with it."""
    beginning = " ".join(body[: 4 * len(title) + 100].split())
    return "" if beginning.startswith(title.removesuffix("[…]").strip()) else title


def put_unit(connection: sqlite3.Connection, unit: Unit, chunks: Sequence[Chunk]) -> int:
    """Add a unit, or replace the one of the same source and id; return its key. It has no vectors yet.

    Raises ValueError for a unit of memory in an index that is not its identity's own.
    """
    if unit.source is SourceName.MEMORY:
        _check_identity(connection, unit)
    remove_unit(connection, unit.source, unit.id)
    scope = unit.scope or Scope()
    key = connection.execute(
        """INSERT INTO units (source, id, path, title, type, domain, tags, confidence, origin, created, last_modified,
               stale_after, scope_repo, scope_path, scope_symbol, session, details, content)
           VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            unit.source, unit.id, unit.path, unit.title, unit.type, unit.domain, _json(unit.tags), unit.confidence,
            unit.origin, _iso(unit.created), _iso(unit.last_modified), _iso(unit.stale_after), scope.repo, scope.path,
            scope.symbol, unit.session, _details(unit), unit.body,
        ),
    ).lastrowid  # fmt: skip
    assert key is not None
    connection.executemany(
        "INSERT INTO relationships VALUES (?,?,?)", [(key, edge.id, edge.relation) for edge in unit.related]
    )
    first = connection.execute("SELECT coalesce(max(key), 0) + 1 FROM chunks").fetchone()[0]
    title = indexed_title(unit.title, unit.body)
    rows = list(enumerate(chunks, start=first))
    connection.executemany(
        "INSERT INTO chunks VALUES (?,?,?,?,?,?)",
        [(k, key, c.position, c.breadcrumb, c.heading_level, c.text) for k, c in rows],
    )
    connection.executemany(
        "INSERT INTO chunks_fts (rowid, title, body, parts) VALUES (?,?,?,?)",
        [(k, *chunk_columns(title, unit.tags, c.breadcrumb, c.text)) for k, c in rows],
    )
    connection.execute(
        "INSERT INTO units_fts (rowid, title, body, parts) VALUES (?,?,?,?)",
        (key, *unit_columns(title, unit.tags, body_below_title(unit.body))),
    )
    return key


def _check_identity(connection: sqlite3.Connection, unit: Unit) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
    if row is None or not unit.id.startswith(f"{row[0]}/"):
        raise ValueError("a unit of memory belongs into the index of its identity, and into no other")


def put_vectors(
    connection: sqlite3.Connection, unit_key: int, chunk_keys: Sequence[int], vectors: Sequence[NDArray[np.float32]]
) -> None:
    """Give a unit and its chunks the vectors of its `embedded_texts`, in place of what it had."""
    of_chunks, (whole, *of_title) = vectors[: len(chunk_keys)], vectors[len(chunk_keys) :]
    connection.executemany(
        "INSERT OR REPLACE INTO vectors VALUES (?,?)",
        [(key, vector.tobytes()) for key, vector in zip(chunk_keys, of_chunks, strict=True)],
    )
    connection.execute(
        "INSERT OR REPLACE INTO unit_vectors VALUES (?,?,?)",
        (unit_key, whole.tobytes(), of_title[0].tobytes() if of_title else None),
    )


def remove_unit(connection: sqlite3.Connection, source: SourceName, unit_id: str) -> bool:
    """Take a unit out with everything that belongs to it; False when it was not there."""
    row = connection.execute(
        "SELECT key, title, tags, content FROM units WHERE source = ? AND id = ?", (source, unit_id)
    ).fetchone()
    if row is None:
        return False
    key, title, tags, body = row[0], row[1], json.loads(row[2]), row[3]
    title = indexed_title(title, body)
    chunks = connection.execute(
        "SELECT key, heading_breadcrumb, content FROM chunks WHERE unit_key = ?", (key,)
    ).fetchall()
    # A contentless FTS5 table forgets a row only if it is given the very text that was indexed.
    connection.executemany(
        "INSERT INTO chunks_fts (chunks_fts, rowid, title, body, parts) VALUES ('delete',?,?,?,?)",
        [(k, *chunk_columns(title, tags, breadcrumb, text)) for k, breadcrumb, text in chunks],
    )
    connection.execute(
        "INSERT INTO units_fts (units_fts, rowid, title, body, parts) VALUES ('delete',?,?,?,?)",
        (key, *unit_columns(title, tags, body_below_title(body))),
    )
    connection.execute("DELETE FROM vectors WHERE chunk_key IN (SELECT key FROM chunks WHERE unit_key = ?)", (key,))
    connection.execute("DELETE FROM unit_vectors WHERE unit_key = ?", (key,))
    connection.execute("DELETE FROM chunks WHERE unit_key = ?", (key,))
    connection.execute("DELETE FROM relationships WHERE source_key = ?", (key,))
    connection.execute("DELETE FROM units WHERE key = ?", (key,))
    return True


def put_files(connection: sqlite3.Connection, source: SourceName, files: Iterable[FileState]) -> None:
    """Remember what was seen of each file."""
    connection.executemany(
        "INSERT OR REPLACE INTO files VALUES (?,?,?,?,?,?,?)",
        [
            (source, file.path, file.hash, file.size, file.mtime_ns, file.unit_id, _problems(file.problems))
            for file in files
        ],
    )


def remove_file(connection: sqlite3.Connection, source: SourceName, path: str) -> None:
    """Forget a file that is gone."""
    connection.execute("DELETE FROM files WHERE source = ? AND path = ?", (source, path))


def put_meta(connection: sqlite3.Connection, **values: str) -> None:
    """Set facts about the index as a whole: the embedding model, the state that was synced."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", list(values.items()))


def put_statistics(connection: sqlite3.Connection, *, everything: bool = False) -> None:
    """Record how large the index is and, in a large one, in how many chunks each term stands.

    Frequencies only choose which terms of a question are worth a look, so they are counted again (one pass over the
    vocabulary) when the index has grown or shrunk by a twentieth, or when `everything` is new.
    """
    chunks = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
    put_meta(connection, chunks=str(chunks))
    if chunks <= LARGE_INDEX_CHUNKS:
        connection.execute("DELETE FROM term_frequencies")
        return
    row = connection.execute("SELECT value FROM meta WHERE key = 'terms_counted_at'").fetchone()
    if not everything and row and abs(chunks - int(row[0])) * 20 <= chunks:
        return
    connection.execute("DELETE FROM term_frequencies")
    connection.execute("INSERT INTO term_frequencies SELECT term, doc FROM chunks_vocabulary")
    put_meta(connection, terms_counted_at=str(chunks))


def _details(unit: Unit) -> str:
    evidence = [asdict(entry) for entry in unit.evidence]
    return json.dumps({"evidence": evidence, "alternatives": list(unit.alternatives)}, ensure_ascii=False)


def _problems(problems: Sequence[Problem]) -> str:
    return json.dumps([{"line": p.line, "reason": p.reason, "severity": p.severity} for p in problems])


def _json(values: Sequence[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False)


def _iso(value: object) -> str | None:
    return None if value is None else str(value)
