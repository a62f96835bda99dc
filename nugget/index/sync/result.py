"""What a sync tells: while it works, when it is done, and how an index stands before the next one."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How the index stands to the files.

    `behind` counts the changed files that an answer does not know of yet; `other_model` says that the index has no
    vectors of the configured model. Both want a sync of its own, in the background. `model_problem` says why the last
    sync could not have that model.
    """

    synced: SyncResult | None = None
    behind: int = 0
    other_model: bool = False
    model_problem: str | None = None

    @property
    def is_behind(self) -> bool:
        """Whether a sync would make the answer another one."""
        return self.behind > 0 or (self.other_model and not self.model_problem)
