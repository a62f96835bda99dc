"""What extraction hands to capture."""

from __future__ import annotations

from dataclasses import dataclass

from nugget.models import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A knowledge unit found in a session, with one line on why it was proposed.

    `updates` is the id of the unit of the brain whose file it corrects or extends, where that is known; `note` is
    what a reviewer should look at. Of a note in a vault, `names` are those by which others link to it, and `links` the
    names that it links to.
    """

    unit: Unit
    reason: str
    updates: str | None = None
    note: str | None = None
    names: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What extraction found.

    `dropped` says for each rejected unit why; `summary` says what the session was about; `usd` is what it cost.
    """

    proposals: tuple[Proposal, ...]
    method: str
    dropped: tuple[str, ...] = ()
    summary: str = ""
    usd: float = 0.0
