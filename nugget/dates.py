"""Dates as people write them: on a command line, in a query."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

DATE_FORMS = "YYYY-MM-DD, or so long back: 24h, 30d, 6w, 3m, 1y"
"""What can be written, for helps and error sentences."""

_SPAN = re.compile(r"(\d{1,5})([hdwmy])")
_DAY = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30, "y": 24 * 365}


def parse_day(text: str, *, today: date, last: bool = False) -> date | None:
    """The day meant by 2026-01-31, 2026-01, 2026, or by 24h, 30d, 6w, 3m, 1y back; None for anything else.

    Of a month or a year it is the first day, or with `last` the last one. Hours count as the days that they reach into.
    """
    if (hours := _span_hours(text)) is not None:
        most = today.toordinal() - 2  # to the second day that there is: a day before it can be told too
        return today - timedelta(days=min(most, -(-hours // 24)))
    parts = _DAY.fullmatch(text)
    if parts is None:
        return None
    year, month, day = int(parts[1]), int(parts[2] or (12 if last else 1)), int(parts[3] or 1)
    try:
        found = date(year, month, day)
        if last and not parts[3]:
            return date(year + month // 12, month % 12 + 1, 1) - timedelta(1)
    except ValueError:
        return None
    return found


def parse_moment(text: str, *, now: datetime) -> datetime | None:
    """The moment meant: as `parse_day`, but back by the hour, and from a date on with a time if there is one.

    A date or a time without a zone is that of this machine. None for anything else.
    """
    try:
        if (hours := _span_hours(text)) is not None:
            return now - timedelta(hours=hours)
        if day := parse_day(text, today=now.date()):
            return datetime.combine(day, time.min).astimezone()
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None


def _span_hours(text: str) -> int | None:
    span = _SPAN.fullmatch(text.lower())
    return int(span[1]) * _HOURS[span[2]] if span else None
