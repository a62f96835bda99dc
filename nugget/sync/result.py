"""What a sync tells: while it works, and when it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nugget.models import Problem

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, how many are done, how many there are)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """What a sync did. `rebuilt` says why the index was made anew, where it was; `problems` are all that stand."""

    added: int = 0
    modified: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    embedded: int = 0
    cached: int = 0
    rebuilt: str | None = None
    without_vectors: str | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the index is another one than before."""
        return bool(self.added or self.modified or self.moved or self.removed or self.rebuilt)
