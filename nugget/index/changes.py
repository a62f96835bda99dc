"""Which files of a source differ from what the machine's index has seen: by size and time, reading nothing."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from nugget.index import queries
from nugget.sources.notes import DocumentSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChanges:
    """The files of a source that differ from what the index has seen: (key, place), and the keys of those gone."""

    modified: tuple[tuple[str, Path], ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0

    def __len__(self) -> int:
        return len(self.modified) + len(self.removed)


def document_changes(source: DocumentSource, connection: sqlite3.Connection) -> DocumentChanges:
    """What changed since the last sync, by size and time alone. Reads no file and takes no lock."""
    known = queries.file_marks(connection, source.name)
    modified: list[tuple[str, Path]] = []
    present: set[str] = set()
    for given, file in source.files():
        key = given.encode("utf-8", "backslashreplace").decode()  # a name that is no UTF-8 cannot be stored
        try:
            stat = os.stat(file)  # noqa: PTH116 - a Path of each of 20,000 would take as long as all else
        except OSError:
            continue  # removed since it was listed, or a link to nowhere
        present.add(key)
        seen = known.get(key)
        if seen != (stat.st_size, stat.st_mtime_ns):
            modified.append((key, Path(file)))
    removed = sorted(known.keys() - present)
    return DocumentChanges(modified=tuple(modified), removed=tuple(removed), unchanged=len(present) - len(modified))
