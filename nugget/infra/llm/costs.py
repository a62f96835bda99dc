"""The cost ledger, `$NUGGET_HOME/ledger/costs.jsonl`: one line for every call, also for those that failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.infra import ledger

COSTS = "costs.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What LLM calls cost: `usd` sums known and estimated costs; `estimated_calls` had no known price."""

    calls: int
    failed_calls: int
    estimated_calls: int
    usd: float


def spending(home: Path, *, since: datetime | None = None, session: str | None = None) -> Spending:
    """What the cost ledger says, from `since` on (an aware time), for all calls or for those of a session."""
    lines = [
        line
        for line in ledger.read(home, COSTS)
        if (since is None or _time(line) >= since) and (session is None or line.get("session") == session)
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
