"""Insights from the query log: what is asked most, what finds nothing, how fast, what is used, what to measure."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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


def report(entries: Sequence[Asked], uses: Sequence[Use], *, unit_ids: Sequence[str]) -> dict[str, Any]:
    """Return what was asked of a brain that has these units now, as `nugget queries --json` prints it.

    The questions asked most come first, each with the answer of the last time; spacing and letter case do not count.
    Times are in ms. `zero` and `weak` count questions asked, not different ones; `used_in` those whose answer was used.
    """
    groups: dict[str, list[Asked]] = {}
    used: dict[str, list[str]] = {}
    sources: dict[str, Counter[str]] = {}
    for use in uses:
        used.setdefault(use.asked, []).append(use.unit)
    for entry in entries:
        groups.setdefault(_plain(entry.text), []).append(entry)
        for source, count in (entry.sources or ({"brain": len(entry.units)} if entry.units else {})).items():
            sources.setdefault(source, Counter()).update(answers=1, results=count)
    times = sorted(entry.duration_ms for entry in entries)
    p50, p95 = (times[max(math.ceil(share * len(times)) - 1, 0)] if times else None for share in (0.5, 0.95))
    returned = len(set(unit_ids) & {unit_id for entry in entries for unit_id in entry.unit_ids})
    return {
        "asked": len(entries), "faces": dict(Counter(str(entry.face) for entry in entries)),
        "zero": sum(not entry.units for entry in entries),
        "weak": sum(entry.weak and bool(entry.units) for entry in entries), "p50_ms": p50, "p95_ms": p95,
        "used_in": sum(entry.id in used for entry in entries),
        "coverage": {
            "units": len(unit_ids), "returned": returned,
            "share": round(returned / len(unit_ids), 4) if unit_ids else None,
        },
        "sources": dict(sorted(sources.items(), key=lambda one: (-one[1]["answers"], one[0]))),
        "queries": [
            {
                "text": " ".join(group[-1].text.split()), "times": len(group),
                "last": group[-1].time.isoformat(timespec="seconds"), "weak": group[-1].weak,
                "zero": not group[-1].units,
                "used": list(dict.fromkeys(unit for one in group for unit in used.get(one.id, ()))),
                "units": [{"id": unit_id, "score": score} for unit_id, score in group[-1].units],
            }
            for group in sorted(groups.values(), key=lambda group: (-len(group), -group[-1].time.timestamp()))
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
    for one in report(entries, (), unit_ids=())["queries"]:
        if one["weak"] and one["text"]:
            nearest = f" Nearest: {one['units'][0]['id']}" if one["units"] else ""
            why = f"Not answered ({counted(one['times'], 'time')}, last {one['last'][:10]}).{nearest}"
            found.append((one["text"], "", why))
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
