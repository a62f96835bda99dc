"""Bring the machine's index in line with the store of provenance: units, nuggets, sessions and file touches at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path

from nugget.index.provenance import put_record, remove_record
from nugget.index.sync.documents import document_changes, sync_documents
from nugget.index.sync.result import Progress, SyncResult
from nugget.infra.embedding import Embedder
from nugget.sources.notes import ReadDocument
from nugget.sources.nugget_units import NuggetUnits, RecordDocument


def sync_provenance(
    home: Path, connection: sqlite3.Connection, *, embedder: Embedder | None = None, progress: Progress | None = None
) -> SyncResult:
    """Read the files of the store that changed. Without an `embedder` new nuggets are found by their words alone."""
    source = NuggetUnits(home)
    changes = document_changes(source, connection)
    if not changes and embedder is None:
        return SyncResult(unchanged=changes.unchanged)
    return sync_documents(
        source, connection, embedder=embedder, cache_folder=home / "embeddings", changes=changes, progress=progress,
        also=_put_record,
    )  # fmt: skip


def _put_record(connection: sqlite3.Connection, key: str, document: ReadDocument, stored: Collection[str]) -> None:
    """What a file that cannot be read said before goes with its units."""
    if isinstance(document, RecordDocument):
        put_record(connection, key, document.record, stored)
    else:
        remove_record(connection, key)
