"""Files that hold units: the interface that the sources of the machine's index share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nugget.models import Problem, SourceName, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDocument:
    """Content of a file: its units and problems."""

    units: tuple[Unit, ...] = ()
    problems: tuple[Problem, ...] = ()


class DocumentSource(Protocol):
    """Files that each hold units. `nugget.index.sync.documents` syncs the machine's index with them."""

    @property
    def name(self) -> SourceName:
        """The source that the units belong to."""

    def files(self) -> Iterable[tuple[str, Path | str]]:
        """Every file as (key, place). The key is unique within the source and stays the same while the file does."""

    def read(self, key: str, file: Path) -> ReadDocument:
        """Return the content of a file. Unit ids are unique within the source.

        May raise NuggetError, OSError or ValueError for a file that cannot be taken: it becomes a Problem.
        """
