"""What changed in a brain since its last sync: asked before every question, so apart from all that a sync imports."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from nugget.index import queries
from nugget.models import FileState, SourceName
from nugget.sources import brain as brain_source


def changes_of(brain: Path, connection: sqlite3.Connection) -> brain_source.Changes:
    """Which files differ from what the index has seen."""

    def known(paths: Sequence[str] | None) -> dict[str, FileState]:
        return queries.file_states(connection, SourceName.BRAIN, paths)

    return brain_source.changes(brain, known, queries.meta(connection, "brain_state"))
