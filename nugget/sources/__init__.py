"""Sources: where units and sessions come from. A module each; none of them knows the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nugget.models import Problem, SourceName, Unit
from nugget.models.nuggets import SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDocument:
    """Content of a file: its units and problems; of a file of provenance also the session that it is of."""

    units: tuple[Unit, ...] = ()
    problems: tuple[Problem, ...] = ()
    record: SessionRecord | None = None


class DocumentSource(Protocol):
    """Files that each hold units. `nugget.index.sync` syncs the machine's index with them."""

    @property
    def name(self) -> SourceName:
        """The source that the units belong to."""

    def files(self) -> Iterable[tuple[str, Path | str]]:
        """Yield every file as (key, place); the key is unique within the source and stays the same."""

    def read(self, key: str, file: Path) -> ReadDocument:
        """Return the content of a file. May raise NuggetError, OSError or ValueError, which become a Problem."""
