"""What extraction hands to capture."""

from __future__ import annotations

from dataclasses import dataclass

from nugget.models import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A knowledge unit found in a session, with one line on why it was proposed."""

    unit: Unit
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What extraction found. `dropped` says for each rejected unit why; `summary` says what the session was about."""

    proposals: tuple[Proposal, ...]
    method: str
    dropped: tuple[str, ...] = ()
    summary: str = ""
