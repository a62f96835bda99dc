"""The query log: what was asked, what came back and what was of use.

It is one JSON line a question in `$NUGGET_HOME/ledger/queries.jsonl`, and stays on this machine. Secrets are removed
from the text first; answers and passages are not kept, only the ids of units. When the file has grown too long it
becomes `queries.old.jsonl`, in place of the one before. `uses.jsonl` beside it says which of the returned units were
used later in the same session.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from nugget.config import Environment, Settings
from nugget.errors import UsageError
from nugget.infra import files
from nugget.models import Bundle, Event, EventKind, Session, SourceName
from nugget.text import counted

if TYPE_CHECKING:
    from nugget.capture import Capture
    from nugget.index import Index
    from nugget.provenance import CodeAnswer

QUERIES, OLD_QUERIES, USES = "queries.jsonl", "queries.old.jsonl", "uses.jsonl"
MAX_BYTES = 4_000_000
"""About 8,000 questions; the file before this one is kept too."""
MAX_TEXT_CHARS = 2000
MAX_UNITS = 20
RELATED = "related"
"""Stands among the filters of what was no question, but a ref or a thought near which everything was wanted."""

FEWEST_WORDS = 4
"""A heading of fewer words (`When not to`) is no question."""

_CITING = (EventKind.PROMPT, EventKind.REPLY, EventKind.COMMAND, EventKind.FILE_EDIT)

_PLAIN = re.compile(r"(?:[^\W\d_]{1,24}(?:[ ,.?!/()\n。，？！、-]+|(?<=\w)'(?=\w)|$))*")
_TELLING = re.compile(
    r"(?:^|\s)--?\w|pass|pwd|secret|token|key|credential|kennwort|contrase|identified|net use|nmcli|rabbitmqctl|auth\b"
    r"|redis|login",
    re.IGNORECASE,
)
"""Where a plain word can be a password: behind a flag, after a word for one, in some commands."""


class Face(StrEnum):
    """Through what a question came."""

    CLI = "cli"
    MCP = "mcp"
    HTTP = "http"
    PYTHON = "python"
    WEB = "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question with what came back: unit ids with their scores, best first.

    `brain` is its folder; `session` is the agent session that asked, where it is known. A question about code has the
    identity of its `workspace` and the `path` in it, and no brain.
    `sources` tells how much each source contributed. Nothing of memory stands here; other sources' by their refs.
    """

    id: str
    time: datetime
    brain: str
    face: str
    text: str
    profile: str = "task"
    session: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    units: tuple[tuple[str, float], ...] = ()
    weak: bool = False
    degraded: tuple[str, ...] = ()
    duration_ms: float = 0.0
    path: str | None = None
    workspace: str | None = None
    sources: Mapping[str, int] = field(default_factory=dict)

    @property
    def unit_ids(self) -> list[str]:
        """The ids of what came back, best first."""
        return [unit_id for unit_id, _ in self.units]


class Use(NamedTuple):
    """A returned unit that was used: `how` is `cited` or `edited` (a file that the unit is about)."""

    asked: str
    unit: str
    how: str


class QuestionLog:
    """Notes the questions that come to a brain through one face. Thread-safe.

    One from the command line (`face`) is written when the answer is on the screen: by `write`, any other at once.
    """

    def __init__(self, brain: Path, *, face: Face, environment: Environment, settings: Settings) -> None:
        self._brain = brain
        self.face = face
        self._environment = environment
        self._settings = settings
        self._waiting: list[Asked] = []

    def note(self, bundle: Bundle, *, started: float, now: datetime, related: bool = False) -> None:
        """Note a question with its answer; `started` is `time.perf_counter()` when it came.

        `related` says that its text is a ref, or a thought, near which everything was wanted.
        """
        duration_ms = (perf_counter() - started) * 1000
        entry = asked(bundle, brain=self._brain, face=self.face, session=self._environment.session,
                      duration_ms=duration_ms, now=now)  # fmt: skip
        self._waiting.append(replace(entry, filters={**entry.filters, RELATED: True}) if related else entry)
        if self.face is not Face.CLI:
            self.write()

    def write(self) -> None:
        """Write what was noted."""
        with suppress(IndexError):  # emptied, perhaps by another thread
            while True:
                record(self._environment.home, self._waiting.pop(0), settings=self._settings)


def asked(bundle: Bundle, *, brain: Path, face: Face, session: str | None, duration_ms: float, now: datetime) -> Asked:
    """Return the entry for an answered question, with its text as it was asked: `record` redacts it."""
    told = [hit for hit in bundle.hits if hit.unit.source is not SourceName.MEMORY]
    names = [hit.unit.id if hit.unit.source is SourceName.BRAIN else hit.ref for hit in told[:MAX_UNITS]]
    return Asked(
        id=os.urandom(6).hex(), time=now, brain=str(brain), face=face, text=bundle.query.text[:MAX_TEXT_CHARS],
        profile=bundle.profile, session=session, filters=bundle.query.filter.named(),
        units=tuple((name, round(hit.score, 4)) for name, hit in zip(names, told, strict=False)),
        weak=bundle.weak or not told, degraded=bundle.degraded, duration_ms=round(duration_ms, 1),
        sources=dict(Counter(str(hit.unit.source) for hit in told)),
    )  # fmt: skip


def log_answer(answer: CodeAnswer, environment: Environment, settings: Settings, *, face: Face, now: datetime) -> None:
    """Log a question about code that was answered, unless `retrieval.log_queries` is false."""
    if settings.retrieval.log_queries:
        query, hits = answer.bundle.query, answer.bundle.hits[:MAX_UNITS]
        filters = {"type": [str(type_) for type_ in query.types], "symbol": query.symbol}
        entry = Asked(
            id=os.urandom(6).hex(), time=now, brain="", face=face, text=(query.text or "")[:MAX_TEXT_CHARS],
            profile="file", session=environment.session, path=query.path, workspace=answer.workspace.identity,
            filters={name: value for name, value in filters.items() if value},
            units=tuple((hit.nugget.id, round(hit.score, 4)) for hit in hits),
            duration_ms=round(answer.duration_ms, 1),
        )  # fmt: skip
        record(environment.home, entry, settings=settings)


def record(home: Path, entry: Asked, *, settings: Settings) -> bool:
    """Add an entry to the log; return False if that fails, which is never an error."""
    file = home / "ledger" / QUERIES
    try:
        line = asdict(entry) | {"time": entry.time.isoformat(timespec="milliseconds"), "face": str(entry.face)}
        line["text"] = _redacted(entry.text, settings)
        with files.locked(file.with_suffix(".lock")):
            if file.exists() and file.stat().st_size > MAX_BYTES:
                file.replace(file.with_name(OLD_QUERIES))
        files.append_line(file, {name: value for name, value in line.items() if value is not None}, durable=False)
    except (OSError, UsageError):  # UsageError: a bad pattern in `redaction.allow`, which whatever else redacts tells
        return False
    return True


def holds_no_secret(text: str) -> bool:
    """Return True for plain words of prose, in which redaction would find nothing: loading its rules takes 0.6 s."""
    return _PLAIN.fullmatch(text) is not None and not _TELLING.search(text)


def _redacted(text: str, settings: Settings) -> str:
    if holds_no_secret(text):
        return text
    from nugget.redaction import allow_list, redact

    return redact(text, allow=allow_list(settings)).text


def read(
    home: Path, *, brain: Path | None = None, session: str | None = None, since: date | None = None
) -> list[Asked]:
    """Return the entries of a brain, of a session, from a day on, or all; oldest first, without spoilt lines."""
    from pydantic import TypeAdapter

    parse = TypeAdapter(Asked).validate_python
    found: list[Asked] = []
    for line in (line for name in (OLD_QUERIES, QUERIES) for line in files.read_lines(home / "ledger" / name)):
        if brain in (None, Path(str(line.get("brain")))) and session in (None, line.get("session")):
            with suppress(ValueError):
                entry = parse(line)
                if since is None or entry.time.date() >= since:
                    found.append(entry)
    return found


def record_uses(home: Path, uses: Sequence[Use], *, now: datetime) -> int:
    """Add uses that are not in the ledger yet; returns how many. Raises OSError when it cannot be written."""
    known = set(read_uses(home))
    fresh = [use for use in dict.fromkeys(uses) if use not in known]
    for use in fresh:
        files.append_line(home / "ledger" / USES, {"time": now.isoformat(timespec="seconds")} | use._asdict())
    return len(fresh)


def read_uses(home: Path) -> Iterator[Use]:
    """Yield every use that was recorded, oldest first."""
    for line in files.read_lines(home / "ledger" / USES):
        yield Use(asked=str(line.get("asked")), unit=str(line.get("unit")), how=str(line.get("how")))


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
    from nugget.capture import read_redacted

    entries = read(capture.home, brain=capture.brain, session=session)
    if not entries:
        return 0
    session_read, _ = read_redacted(transcript, capture)

    def scope_of(unit_id: str) -> str | None:
        unit = index.unit(unit_id)
        return unit.scope.path if unit and unit.scope else None

    return record_uses(capture.home, list(uses_in(session_read, entries, scope_of=scope_of)), now=capture.now)


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
    from nugget.markdown import subheadings_of

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
