"""Insights from the query log: what is asked most, what finds nothing, how fast, what is used, what to measure."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget.capture import Capture, read_redacted
from nugget.evaluation import query_log
from nugget.evaluation.query_log import RELATED, Asked, Use
from nugget.index import Index
from nugget.markdown import subheadings_of
from nugget.models import Event, EventKind, Session
from nugget.text import counted

FEWEST_WORDS = 4
"""A heading of fewer words (`When not to`) is no question."""

_CITING = (EventKind.PROMPT, EventKind.REPLY, EventKind.COMMAND, EventKind.FILE_EDIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """All times that one question was asked, spacing and letter case aside. The rest is from the last time."""

    text: str
    times: int
    last: datetime
    units: tuple[tuple[str, float], ...]
    weak: bool
    used: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The query log of a brain, summed up. Times in ms; `returned` of `units` were ever part of an answer.

    `sources` tells of each source in how many answers it had a part, and how many results it gave.
    `zero` and `weak` count questions asked, not different ones; `used_in` counts those whose answer was used.
    """

    asked: int
    faces: Mapping[str, int]
    zero: int
    weak: int
    p50_ms: float | None
    p95_ms: float | None
    units: int
    returned: int
    used_in: int
    askings: tuple[Asking, ...]
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def report(entries: Sequence[Asked], uses: Sequence[Use], *, unit_ids: Sequence[str]) -> Report:
    """Sum up the entries of a brain that has these units now; the questions asked most come first."""
    groups: dict[str, list[Asked]] = {}
    used: dict[str, list[str]] = {}
    sources: dict[str, tuple[int, int]] = {}
    for use in uses:
        used.setdefault(use.asked, []).append(use.unit)
    for entry in entries:
        groups.setdefault(_plain(entry.text), []).append(entry)
        for source, count in (entry.sources or ({"brain": len(entry.units)} if entry.units else {})).items():
            answers, results = sources.get(source, (0, 0))
            sources[source] = (answers + 1, results + count)
    times = sorted(entry.duration_ms for entry in entries)
    p50, p95 = (times[max(math.ceil(share * len(times)) - 1, 0)] if times else None for share in (0.5, 0.95))
    askings = [
        Asking(
            text=" ".join(group[-1].text.split()), times=len(group), last=group[-1].time, units=group[-1].units,
            weak=group[-1].weak, used=tuple(dict.fromkeys(unit for one in group for unit in used.get(one.id, ()))),
        )
        for group in groups.values()
    ]  # fmt: skip
    return Report(
        asked=len(entries), faces=Counter(entry.face for entry in entries), p50_ms=p50, p95_ms=p95,
        zero=sum(not entry.units for entry in entries), units=len(unit_ids),
        weak=sum(entry.weak and bool(entry.units) for entry in entries),
        returned=len(set(unit_ids) & {unit_id for entry in entries for unit_id in entry.unit_ids}),
        used_in=sum(entry.id in used for entry in entries),
        sources=dict(sorted(sources.items(), key=lambda total: (-total[1][0], total[0]))),
        askings=tuple(sorted(askings, key=lambda one: (-one.times, -one.last.timestamp()))),
    )  # fmt: skip


def report_json(found: Report, askings: Sequence[Asking]) -> dict[str, Any]:
    """Return a report as JSON, with these of its questions."""
    plain = {name: getattr(found, name) for name in ("asked", "faces", "zero", "weak", "p50_ms", "p95_ms", "used_in")}
    share = round(found.returned / found.units, 4) if found.units else None
    sources = {name: {"answers": answers, "results": results} for name, (answers, results) in found.sources.items()}
    return plain | {
        "coverage": {"units": found.units, "returned": found.returned, "share": share}, "sources": sources,
        "queries": [
            {
                "text": one.text, "times": one.times, "last": one.last.isoformat(timespec="seconds"),
                "weak": one.weak, "zero": not one.units, "used": list(one.used),
                "units": [{"id": unit_id, "score": score} for unit_id, score in one.units],
            }
            for one in askings
        ],
    }  # fmt: skip


def note_uses(transcript: Path, session: str, *, capture: Capture, index: Index) -> int:
    """Record which units, returned to a session's questions, it used later; returns how many are new.

    Called when the session has been captured. Raises what reading the transcript raises, and OSError.
    """
    entries = query_log.read(capture.home, brain=capture.brain, session=session)
    if not entries:
        return 0
    read, _ = read_redacted(transcript, capture)

    def scope_of(unit_id: str) -> str | None:
        unit = index.unit(unit_id)
        return unit.scope.path if unit and unit.scope else None

    return query_log.record_uses(capture.home, list(uses_in(read, entries, scope_of=scope_of)), now=capture.now)


def uses_in(session: Session, entries: Sequence[Asked], *, scope_of: Callable[[str], str | None]) -> Iterator[Use]:
    """Yield the returned units that a later event of the session cites by id, or whose scoped path it edits.

    What tools put out is no use: the answer itself names every id. `scope_of` gives the path of a unit's scope.
    """
    for entry in entries:
        later = [event for event in session.events if event.timestamp and event.timestamp > entry.time]
        said = "\n".join(text for event in later if event.kind in _CITING for text in (event.text, event.after) if text)
        edited = [event for event in later if event.kind is EventKind.FILE_EDIT and event.path]
        for unit_id in entry.unit_ids:
            if unit_id in said and re.search(rf"(?<![\w/-]){re.escape(unit_id)}(?![\w/-])", said):
                yield Use(asked=entry.id, unit=unit_id, how="cited")
            elif edited and (scope := scope_of(unit_id)) and any(_is_within(event, scope) for event in edited):
                yield Use(asked=entry.id, unit=unit_id, how="edited")


def suggestions(index: Index, entries: Sequence[Asked], *, known: Sequence[str], limit: int) -> str:
    """Return questions that could be golden ones, as YAML to be pasted: unanswered ones from the log, then headings.

    `known` are the texts of the golden questions that there are.
    """
    asked_before = set(map(_plain, known))
    entries = [entry for entry in entries if RELATED not in entry.filters]
    found: list[tuple[str, str, str]] = []
    for one in report(entries, (), unit_ids=()).askings:
        if one.weak and one.text:
            nearest = f" Nearest: {one.units[0][0]}" if one.units else ""
            why = f"Not answered ({counted(one.times, 'time')}, last {one.last:%Y-%m-%d}).{nearest}"
            found.append((one.text, "", why))
    headings: dict[str, tuple[str, str, str]] = {}
    for unit in filter(None, map(index.unit, index.unit_ids())):
        telling = [heading for heading in subheadings_of(unit.body) if len(heading.split()) >= FEWEST_WORDS]
        heading = max(telling, key=len, default=unit.title)
        headings.setdefault(heading.casefold(), (heading, unit.id, "A heading; ask it in other words."))
    found += headings.values()
    lines = ["questions:"]
    for text, unit_id, why in [one for one in found if _plain(one[0]) not in asked_before][:limit]:
        # A JSON string is a YAML string, whatever is in it.
        question = json.dumps(" ".join(text.split()), ensure_ascii=False)
        lines += [f"  # {why}", f"  - question: {question}", f"    expect: [{unit_id}]"]
    return "\n".join(lines) + "\n" if len(lines) > 1 else ""


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _is_within(event: Event, scope: str) -> bool:
    """Return whether the edited file is the scope's file or lies in its folder, wherever the repository is."""
    path, scope = f"/{(event.path or '').strip('/')}/", f"/{scope.strip('/')}/"
    return scope != "//" and scope in path
