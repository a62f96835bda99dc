"""Stale units: still returned, penalised, and labelled with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from nugget.index import Index
from nugget.models import StaleReason, Unit


def stale_reasons(units: Mapping[int, Unit], index: Index, *, today: date) -> dict[int, StaleReason]:
    """Return key -> reason for each stale unit: another one supersedes it, or its `stale_after` has passed."""
    reasons = dict.fromkeys(index.superseded_by(list(units)), StaleReason.SUPERSEDED)
    for key, unit in units.items():
        if unit.stale_after and unit.stale_after < today:
            reasons.setdefault(key, StaleReason.EXPIRED)
    return reasons
