"""The query log: what was asked and what came back, one JSON line a question in `$NUGGET_HOME/ledger/queries.jsonl`.

It stays on this machine. Secrets are taken out of the text first; answers and passages are not kept, only the ids of
units. When the file has grown too long it becomes `queries.old.jsonl`, in place of the one before.
`uses.jsonl` beside it says which of the returned units were used later in the same session.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Any

from nugget.config import Environment, Settings
from nugget.errors import UsageError
from nugget.infra import files
from nugget.models import Bundle, Filter, Hit, SourceName
from nugget.models.nuggets import NuggetBundle

QUERIES, OLD_QUERIES, USES = "queries.jsonl", "queries.old.jsonl", "uses.jsonl"
MAX_BYTES = 4_000_000
"""About 8,000 questions; the file before this one is kept too."""
MAX_TEXT_CHARS = 2000
MAX_UNITS = 20
RELATED = "related"
"""Stands among the filters of what was no question, but a ref or a thought near which everything was wanted."""

_SYMBOLS = re.compile(r"[\"$%&*+:;<=>@\[\\\]^`{|}~#]")
_RUN = re.compile(r"[A-Za-z0-9_./-]{20,}")
_WORD = re.compile(r"[A-Za-z0-9]+")
_TELLING = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)
_PLACED = re.compile(
    r"(?:^|\s)--?\w|(?:pass|pwd|secret|kennwort|contrase).*(?:\s(?:is|was|ist|lautet|est|es)\s|')|identified|net use|"
    r"nmcli|rabbitmqctl|requirepass|masterauth|wpa_passphrase|redis-cli|login\s\S+\s+password",
    re.IGNORECASE | re.DOTALL,
)
"""Where a plain word can be a password: behind a flag, in a sentence, in some commands."""
_MOST_LETTERS, _MOST_MIXED = 24, 8


class Face(StrEnum):
    """Through what a question came."""

    CLI = "cli"
    MCP = "mcp"
    HTTP = "http"
    PYTHON = "python"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
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
    return Asked(
        id=os.urandom(6).hex(),
        time=now,
        brain=str(brain),
        face=face,
        text=bundle.query.text[:MAX_TEXT_CHARS],
        profile=bundle.profile,
        session=session,
        filters=filters_json(bundle.query.filter),
        units=tuple((_name(hit), round(hit.score, 4)) for hit in told[:MAX_UNITS]),
        weak=bundle.weak or not told,
        degraded=bundle.degraded,
        duration_ms=round(duration_ms, 1),
        sources=dict(Counter(str(hit.unit.source) for hit in told)),
    )


def asked_of_code(
    bundle: NuggetBundle, *, workspace: str, face: Face, session: str | None, duration_ms: float, now: datetime
) -> Asked:
    """Return the entry for a question about code that was answered."""
    query = bundle.query
    filters = {"type": [str(type_) for type_ in query.types], "symbol": query.symbol}
    return Asked(
        id=os.urandom(6).hex(),
        time=now,
        brain="",
        face=face,
        text=(query.text or "")[:MAX_TEXT_CHARS],
        profile="file",
        session=session,
        filters={name: value for name, value in filters.items() if value},
        units=tuple((hit.nugget.id, round(hit.score, 4)) for hit in bundle.hits[:MAX_UNITS]),
        duration_ms=round(duration_ms, 1),
        path=query.path,
        workspace=workspace,
    )


def record(home: Path, entry: Asked, *, settings: Settings) -> bool:
    """Add an entry to the log; return False if that fails, which is never an error."""
    try:
        text = _redacted(entry.text, settings)
    except UsageError:  # a bad pattern in `redaction.allow`: told by whatever else redacts
        return False
    line = {
        "id": entry.id, "time": entry.time.isoformat(timespec="milliseconds"), "brain": entry.brain,
        "face": str(entry.face), "session": entry.session, "profile": entry.profile, "text": text,
        "filters": dict(entry.filters), "units": [list(unit) for unit in entry.units], "weak": entry.weak,
        "degraded": list(entry.degraded), "duration_ms": entry.duration_ms,
        "sources": dict(entry.sources),
    }  # fmt: skip
    line |= {name: value for name in ("path", "workspace") if (value := getattr(entry, name)) is not None}
    try:
        _make_room(home / "ledger" / QUERIES)
        files.append_line(home / "ledger" / QUERIES, line, durable=False)
    except OSError:
        return False
    return True


def holds_no_secret(text: str) -> bool:
    """Return whether a look at its words is enough to know that redaction would find nothing in a text.

    That is so for nearly every question, and it spares a command 0.6 s of processor time, which loading the rules of
    redaction takes. If there is any doubt it is False.
    """
    if _SYMBOLS.search(text) or _PLACED.search(text) or any(any(map(str.isdigit, run)) for run in _RUN.findall(text)):
        return False
    words = _WORD.findall(text)
    if any(len(word) > (_MOST_LETTERS if word.isalpha() else _MOST_MIXED) for word in words):
        return False
    return all(word.isalpha() for word in words) or not _TELLING.search(text)


def _redacted(text: str, settings: Settings) -> str:
    if holds_no_secret(text):
        return text
    from nugget.redaction import allow_list, redact

    return redact(text, allow=allow_list(settings)).text


def read(
    home: Path, *, brain: Path | None = None, session: str | None = None, since: date | None = None
) -> list[Asked]:
    """Return the entries of a brain, of a session, from a day on, or all; oldest first, without spoilt lines."""
    found: list[Asked] = []
    for name in (OLD_QUERIES, QUERIES):
        for line in files.read_lines(home / "ledger" / name):
            if brain is not None and line.get("brain") != str(brain):
                continue
            if session is not None and line.get("session") != session:
                continue
            entry = _parse(line)
            if entry and (since is None or entry.time.date() >= since):
                found.append(entry)
    return found


def record_uses(home: Path, uses: Sequence[Use], *, now: datetime) -> int:
    """Add uses that are not in the ledger yet; returns how many. Raises OSError when it cannot be written."""
    known = set(read_uses(home))
    fresh = [use for use in dict.fromkeys(uses) if use not in known]
    for use in fresh:
        line = {"time": now.isoformat(timespec="seconds"), "asked": use.asked, "unit": use.unit, "how": use.how}
        files.append_line(home / "ledger" / USES, line)
    return len(fresh)


def read_uses(home: Path) -> Iterator[Use]:
    """Yield every use that was recorded, oldest first."""
    for line in files.read_lines(home / "ledger" / USES):
        yield Use(asked=str(line.get("asked")), unit=str(line.get("unit")), how=str(line.get("how")))


def filters_json(filter_: Filter) -> dict[str, Any]:
    """Return the filters that were set, by their names on the command line."""
    named = {
        "source": [str(source) for source in filter_.sources], "type": list(filter_.types),
        "domain": list(filter_.domains), "tag": list(filter_.tags),
        "since": filter_.since.isoformat() if filter_.since else None,
    }  # fmt: skip
    return {name: value for name, value in named.items() if value}


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _name(hit: Hit) -> str:
    """Return a unit of the brain by its id, anything else by its ref."""
    return hit.unit.id if hit.unit.source is SourceName.BRAIN else hit.ref


def _make_room(file: Path) -> None:
    """Put a log grown too long aside, once, whoever else has the same idea."""
    if _size(file) <= MAX_BYTES:
        return
    with files.locked(file.with_suffix(".lock")):
        if _size(file) > MAX_BYTES:
            file.replace(file.with_name(OLD_QUERIES))


def _size(file: Path) -> int:
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


def _parse(line: Mapping[str, Any]) -> Asked | None:
    try:
        time = datetime.fromisoformat(line["time"])
        return Asked(
            id=str(line["id"]),
            time=time if time.tzinfo else time.replace(tzinfo=UTC),
            brain=str(line["brain"]),
            face=str(line["face"]),
            text=str(line["text"]),
            profile=str(line["profile"]),
            session=line["session"] if isinstance(line["session"], str) else None,
            filters=dict(line["filters"]),
            units=tuple((str(unit_id), float(score)) for unit_id, score in line["units"]),
            weak=bool(line["weak"]),
            degraded=tuple(map(str, line["degraded"])),
            duration_ms=float(line["duration_ms"]),
            path=_text_or_none(line.get("path")),
            workspace=_text_or_none(line.get("workspace")),
            sources={str(name): int(count) for name, count in line.get("sources", {}).items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
