"""Accepting proposals in tests, as `Brain.accept` does without a remote."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from nugget.capture.review import Decided, Decision, decide


def accept(brain: Path, name: str | None = None, *, now: datetime, units: Sequence[str] | None = None) -> Decided:
    """Accept a proposal, or some units of it."""
    return decide(brain, name, Decision(accept=units), home=brain, now=now)
