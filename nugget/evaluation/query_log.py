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
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from nugget.config import Environment, Settings
from nugget.errors import UsageError
from nugget.infra import files
from nugget.models import Bundle, SourceName

if TYPE_CHECKING:
    from nugget.provenance import CodeAnswer

QUERIES, OLD_QUERIES, USES = "queries.jsonl", "queries.old.jsonl", "uses.jsonl"
MAX_BYTES = 4_000_000
"""About 8,000 questions; the file before this one is kept too."""
MAX_TEXT_CHARS = 2000
MAX_UNITS = 20
RELATED = "related"
"""Stands among the filters of what was no question, but a ref or a thought near which everything was wanted."""

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
