"""Limit how often a long-lived process repeats an expensive look-up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE = 20
"""Looking takes one part in so many of the time at most, however often it is asked for."""
QUICK_S = 0.005
"""What takes less is looked for each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look(Generic[T]):
    found: T
    took_s: float
    holds_until: float


class Throttle(Generic[T]):
    """Cache of look-ups by name, each for as long as it may be reused. Thread-safe.

    `clock` and `worked` give seconds: those that pass, and those that this thread has worked.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        self._last: dict[str, _Look[T]] = {}
        self._clock, self._worked = clock, worked

    def cached(self, name: str, look: Callable[[], T]) -> T:
        """Return what `look` finds now, or found recently.

        It is measured in processor time, so that a busy machine makes nothing older; and by the quicker of the last
        two times, as the first one also imports, and one that found much to do says nothing of the next.
        """
        last = self._last.get(name)
        if last and self._clock() < last.holds_until:
            return last.found
        began = self._worked()
        found = look()
        took = self._worked() - began
        quicker = min(took, last.took_s) if last else 0.0
        pause = SHARE * quicker if quicker > QUICK_S else 0.0
        self._last[name] = _Look(found=found, took_s=took, holds_until=self._clock() + pause)
        return found
