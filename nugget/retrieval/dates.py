"""The days in a question or a text: "last week", "since March", "vor zwei Wochen".

In English and German. They affect the ranking and exclude nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import TypeAlias

Days: TypeAlias = tuple[date, date]
"""The first and the last day of a period."""


def _numbered(text: str, start: int) -> dict[str, int]:
    return {name: number for number, names in enumerate(text.split("|"), start) for name in names.split()}


_MONTHS = _numbered(
    "jan january januar|feb february februar|mar march märz|apr april|may mai|jun june juni|jul july juli|aug august|"
    "sep sept september|oct october oktober okt|nov november|dec december dezember dez", 1,
)  # fmt: skip
_COUNTS = _numbered("a an one ein eine einem einer|two couple zwei|three few drei|four vier|five fünf|six sechs", 1)
_UNITS = {
    name: days
    for days, names in ((1, "day tag tage"), (7, "week woche"), (30, "month monat monate"), (365, "year jahr jahre"))
    for name in names.split()
}
_DAYS_BACK = {"today": 0, "heute": 0, "yesterday": 1, "gestern": 1, "vorgestern": 2}
_THIS = frozenset("this diese dieser".split())
_LAST = frozenset("last past previous letzte letzter vergangene vorige".split())
_SINCE = frozenset("since after seit nach ab".split())
_UNTIL = frozenset("until till before bis vor".split())
_BEFORE_A_DATE = _SINCE | _UNTIL | frozenset("in im on am during from vom early late".split())
_PASSED_OVER = frozenset("st nd rd th of the dem den".split())


def asks_when(question: str) -> bool:
    """Return whether a date answers the question."""
    when = (
        r"\bwhen (?:did|was|were|has|have|had|will)\b|\b(?:what|which) (?:date|day|month|year)\b|\bhow long ago\b"
        r"|\bsince when\b|\bwann\b|\ban welchem tag\b"
    )
    return re.search(when, question, re.IGNORECASE) is not None


def asked_days(question: str, *, today: date) -> Days | None:
    """Return the period that a question names, or None."""
    words = _words(question)
    for at in range(len(words)):
        before = words[at - 1] if at else ""
        found = _relative(words[at : at + 3], today) or _absolute(
            words[at : at + 3], today, bare=before in _BEFORE_A_DATE
        )
        if found is None:
            continue
        if before in _SINCE:
            return found[0], max(today, found[0])
        return (date.min, found[0] if before in ("before", "vor") else found[1]) if before in _UNTIL else found
    return None


def days_in(text: str) -> Iterator[Days]:
    """Yield the dates that a text names with their year."""
    words = _words(text)
    read = 0
    for at, word in enumerate(words):
        is_date = at >= read and (word in _MONTHS or word[0].isdecimal())
        if is_date and (found := _absolute(words[at : at + 3], None, bare=False)):
            read = at + 2  # "March 2025" in "3 March 2025" is not a separate date
            yield found


def nearness(asked: Days, named: Iterable[Days]) -> float:
    """Return how near the nearest of several periods is to a question's: 1 inside, halved with each length away."""
    half = max(2, min((asked[1] - asked[0]).days, 365) // 4)
    gaps = (max((asked[0] - last).days, (first - asked[1]).days, 0) for first, last in named)
    return max((0.5 ** (gap / half) for gap in gaps), default=0.0)


def _words(text: str) -> list[str]:
    """Return the words, numbers and dates of a text, without words that mean nothing beside a date."""
    kinds = r"\d{4}-\d\d(?:-\d\d)?|\d{1,2}\.\d{1,2}\.\d{4}|[^\W\d_]+|\b\d+(?=(?:st|nd|rd|th)?\b)"
    return [word for word in re.findall(kinds, text.lower()) if word not in _PASSED_OVER]


def _relative(words: Sequence[str], today: date) -> Days | None:
    first, second, third = (*words, "", "", "")[:3]
    if first in _DAYS_BACK:
        day = today - timedelta(_DAYS_BACK[first])
        return day, day
    if first == "vor" or third == "ago":
        count, unit = (_count(second), _unit(third)) if first == "vor" else (_count(first), _unit(second))
        if not count or not unit:
            return None
        day = _back(today, count * unit)
        return day - timedelta(unit // 2), day + timedelta(unit // 2)
    stem = first.rstrip("mns")
    if stem not in _THIS | _LAST:
        return None
    if (count := _count(second)) and (unit := _unit(third)):
        return _back(today, count * unit), today
    if not (unit := _unit(second)):
        return None
    begin = {
        1: today, 7: today - timedelta(today.weekday()), 30: today.replace(day=1), 365: today.replace(month=1, day=1)
    }[unit]  # fmt: skip
    if stem in _THIS:
        return begin, today
    last = begin - timedelta(1)
    return {1: last, 7: begin - timedelta(7), 30: last.replace(day=1), 365: last.replace(month=1, day=1)}[unit], last


def _absolute(words: Sequence[str], today: date | None, *, bare: bool) -> Days | None:
    """Return the days of the date that these words begin with.

    Without a year it is the latest such date until today. A month or year alone is a date only if `bare`.
    """
    first, second, third = (*words, "", "", "")[:3]
    year, month, day = 0, 0, 0
    if "-" in first or "." in first:
        numbers = [*map(int, re.split(r"[-.]", first)), 0]
        year, month, day = numbers[:3] if "-" in first else numbers[2::-1]
    elif first in _MONTHS:
        month = _MONTHS[first]
        day, rest = (int(second), third) if second.isdecimal() and len(second) < 3 else (0, second)
        year = _year(rest)
    elif first.isdecimal() and len(first) < 3 and second in _MONTHS:
        year, month, day = _year(third), _MONTHS[second], int(first)
    elif bare and len(first) == 4:
        year = _year(first)
    if not year and (today is None or not month or not (bare or day)):
        return None
    try:
        begin = date(year or (today or date.min).year, month or 1, day or 1)
        if not year and today and begin > today:
            begin = begin.replace(year=begin.year - 1)
        if day:
            return begin, begin
        following = date(begin.year + 1, 1, 1) if month in (0, 12) else begin.replace(month=month + 1)
    except ValueError:
        return None
    return begin, following - timedelta(1)


def _year(word: str) -> int:
    return int(word) if len(word) == 4 and word.isdecimal() and word[:2] in ("19", "20") else 0


def _count(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) < 4 else _COUNTS.get(word, 0)


def _unit(word: str) -> int:
    return _UNITS.get(word) or _UNITS.get(word.rstrip("sn"), 0)


def _back(today: date, days: int) -> date:
    return today - timedelta(min(days, today.toordinal() - 1000))
