"""The cost ledger, `$NUGGET_HOME/ledger/costs.jsonl`: one line for every call, also for those that failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nugget.errors import LLMUnavailable
from nugget.infra import ledger

COSTS = "costs.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Cost of LLM calls: `usd` sums known and estimated costs; `estimated_calls` had no known price."""

    calls: int
    failed_calls: int
    estimated_calls: int
    usd: float


class CostCapReached(LLMUnavailable):
    """A call that was not made, because it could cost more than it may."""


class DailyCapReached(CostCapReached):
    """A call that was not made, because its face could spend more than it may in a day."""

    retry_after_s: int = 0


class DailyBudget:
    """A limit in USD to what the calls of one face cost from midnight to midnight UTC. Thread-safe.

    What was spent is read from the cost ledger, so a restart changes nothing. A call under way counts at the most it
    can cost: calls at the same time exceed the limit no more than one does. Other processes count once they are done.
    """

    def __init__(self, home: Path, *, max_usd: float, face: str) -> None:
        self.face = face
        self._home = home
        self._max_usd = max_usd
        self._lock = threading.Lock()
        self._under_way_usd = 0.0

    def hold(self, usd: float, *, now: datetime) -> Callable[[], None]:
        """Set `usd` aside for a call, and return how to release it. Raises DailyCapReached."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        with self._lock:
            spent = spending(self._home, since=midnight, face=self.face).usd + self._under_way_usd
            if spent + usd > self._max_usd:
                error = DailyCapReached(
                    f"This call could cost ${usd:.4f}, and ${spent:.4f} of the ${self._max_usd:.2f} a day is spent.",
                    hint="Try again after midnight UTC, or raise `http.max_usd_per_day`.",
                )
                error.retry_after_s = int((midnight + timedelta(days=1) - now).total_seconds()) + 1
                raise error
            self._under_way_usd += usd

        def release() -> None:
            with self._lock:
                self._under_way_usd -= usd

        return release


def spending(
    home: Path, *, since: datetime | None = None, session: str | None = None, face: str | None = None
) -> Spending:
    """Return what the cost ledger says from `since` (an aware time) on, of all calls or of a session's or a face's."""
    lines = [
        line
        for line in ledger.read(home, COSTS)
        if (since is None or _time(line) >= since)
        and (session is None or line.get("session") == session)
        and (face is None or line.get("face") == face)
    ]
    return Spending(
        calls=len(lines),
        failed_calls=sum(line.get("ok") is not True for line in lines),
        estimated_calls=sum(line.get("usd") is None for line in lines),
        usd=sum(_number(line.get("usd_counted")) for line in lines),
    )


def _time(line: Mapping[str, Any]) -> datetime:
    try:
        time = datetime.fromisoformat(str(line.get("time")))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
