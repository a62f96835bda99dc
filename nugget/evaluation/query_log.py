"""The query log: one JSON line for each question in `$NUGGET_HOME/ledger/queries.jsonl`, with the ids of its answer.

Secrets are removed from the text first. When the file has grown too long it replaces `queries.old.jsonl`.
`uses.jsonl` lists the returned units that the asking session later cited, or whose file it edited.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from nugget.config import Environment, Settings
from nugget.infra import files
from nugget.models import Bundle, Event, EventKind, Query, Session, SourceName
from nugget.redaction import allow_list, redact

if TYPE_CHECKING:
    from nugget.models.nuggets import NuggetBundle

QUERIES, OLD_QUERIES, USES = "queries.jsonl", "queries.old.jsonl", "uses.jsonl"
MAX_BYTES = 4_000_000
"""About 8,000 questions; the previous file is kept too."""
MAX_TEXT_CHARS = 2000
MAX_UNITS = 20
_CITING = (EventKind.PROMPT, EventKind.REPLY, EventKind.COMMAND, EventKind.FILE_EDIT)

_PLAIN = re.compile(r"(?:[^\W\d_]{1,24}(?:[ ,.?!/()\n。，？！、-]+|(?<=\w)'(?=\w)|$))*")
_SECRET_HINT = (
    r"(?i)(?:^|\s)--?\w|pass|pwd|secret|token|key|credential|kennwort|contrase|identified|net use|nmcli|rabbitmqctl"
    r"|auth\b|redis|login"
)
"""Places where a plain word can be a password: after a flag or a word for one, and in some commands."""

Face = Literal["cli", "mcp", "http", "python", "web"]
"""The interface through which a question came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question with its answer: unit ids (refs for sources other than the brain) with their scores, best first.

    `brain` is its folder; `session` is the agent session that asked, if known. A question about code has the identity
    of its `workspace` and the `path` in it, and no brain.
    `budget` is in tokens, and `agent` is who asked, if known. Units of memory are left out.
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
    budget: int | None = None
    agent: str | None = None

    @property
    def unit_ids(self) -> list[str]:
        """The ids of the answer, best first."""
        return [unit_id for unit_id, _ in self.units]


def asked_of(
    bundle: Bundle, brain: Path, environment: Environment, *, face: Face, started: float, now: datetime
) -> Asked:
    """Return a question with its answer; `started` is the `time.perf_counter()` of its arrival."""
    shown, query = [hit for hit in bundle.hits if hit.unit.source is not SourceName.MEMORY], bundle.query
    return _asked(
        query, environment, face=face, started=started, now=now, brain=str(brain), profile=bundle.profile,
        filters=query.filter.named(), weak=bundle.weak or not shown, degraded=bundle.degraded,
        units=tuple((hit.name, round(hit.score, 4)) for hit in shown[:MAX_UNITS]),
    )  # fmt: skip


def log_answer(
    answer: NuggetBundle, environment: Environment, settings: Settings, *, face: Face, started: float, now: datetime
) -> None:
    """Log a question about code that was answered, unless `retrieval.log_queries` is false."""
    if settings.retrieval_log_queries:
        query, hits = answer.query, answer.hits[:MAX_UNITS]
        entry = _asked(
            query, environment, face=face, started=started, now=now, brain="", profile="file", path=query.path,
            workspace=answer.workspace,
            filters=query.filter.named() | ({"symbol": query.symbol} if query.symbol else {}),
            units=tuple((hit.nugget.id, round(hit.score, 4)) for hit in hits),
        )  # fmt: skip
        record(environment.home, entry, settings=settings)


def _asked(
    query: Query, environment: Environment, *, face: Face, started: float, now: datetime, **answered: Any
) -> Asked:
    # Only Claude Code says in which session a command runs.
    agent = "claude-code" if environment.session else None
    return Asked(
        id=os.urandom(6).hex(), time=now, face=face, text=query.text[:MAX_TEXT_CHARS], session=environment.session,
        agent=agent, budget=query.budget_tokens, duration_ms=round((perf_counter() - started) * 1000, 1), **answered,
    )  # fmt: skip


def record(home: Path, entry: Asked, *, settings: Settings) -> None:
    """Add an entry to the log; failures are ignored, since no question may fail because of them."""
    file = home / "ledger" / QUERIES
    with suppress(OSError):
        line = asdict(entry) | {"time": entry.time.isoformat(timespec="milliseconds")}
        if not _PLAIN.fullmatch(entry.text) or re.search(_SECRET_HINT, entry.text):  # loading the rules takes 0.6 s
            line["text"] = redact(entry.text, allow=allow_list(settings)).text
        with files.locked(file.with_suffix(".lock")):
            if file.exists() and file.stat().st_size > MAX_BYTES:
                file.replace(file.with_name(OLD_QUERIES))
        files.append_line(file, {name: value for name, value in line.items() if value is not None}, durable=False)


def read(home: Path, *, brain: Path | None = None, since: date | None = None, with_code: bool = False) -> list[Asked]:
    """Return the entries of one or all brains since a time, oldest first; unreadable lines are skipped.

    `with_code` adds the questions about code, which are asked of a workspace instead of a brain.
    """
    from pydantic import TypeAdapter

    parse = TypeAdapter(Asked).validate_python
    found: list[Asked] = []
    for line in (line for name in (OLD_QUERIES, QUERIES) for line in files.read_lines(home / "ledger" / name)):
        if brain in (None, Path(str(line.get("brain")))) or (with_code and line.get("workspace")):
            with suppress(ValueError):
                entry = parse(line)
                if since is None or entry.time.date() >= since:
                    found.append(entry)
    return found


def report(entries: Sequence[Asked], *, used: Mapping[str, Sequence[str]], unit_ids: Sequence[str]) -> dict[str, Any]:
    """Return the questions asked of a brain that now has these units, as `nugget queries --json` prints them.

    The most frequent come first, each with its latest answer; spacing and case are ignored. Times are in ms.
    `zero` and `weak` count every time a question was asked, `used_in` those after which a unit was used. `used` maps
    the ids of questions to the units used after them.
    """
    groups: dict[str, list[Asked]] = {}
    for entry in entries:
        groups.setdefault(" ".join((entry.text or entry.path or "").casefold().split()), []).append(entry)
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
        "queries": [
            {
                "text": " ".join((group[-1].text or group[-1].path or "").split()), "times": len(group),
                "last": group[-1].time.isoformat(timespec="seconds"), "weak": group[-1].weak,
                "zero": not group[-1].units, "budget": group[-1].budget, "agent": group[-1].agent,
                "used": list(dict.fromkeys(unit for one in group for unit in used.get(one.id, ()))),
                "units": [{"id": unit_id, "score": score} for unit_id, score in group[-1].units],
            }
            for group in sorted(groups.values(), key=lambda group: (-len(group), -group[-1].time.timestamp()))
        ],
    }  # fmt: skip


def note_uses(
    home: Path, brain: Path, session: Session, *, scope_of: Callable[[str], str | None], now: datetime
) -> None:
    """Record new uses in a captured session; `scope_of` gives the path of a unit's scope."""
    entries = [entry for entry in read(home, brain=brain) if entry.session == session.id]
    known = {(asked, unit) for asked, units in read_uses(home).items() for unit in units}
    for asked, unit, how in uses_in(session, entries, scope_of=scope_of):
        if (asked, unit) not in known:
            line = {"time": now.isoformat(timespec="seconds"), "asked": asked, "unit": unit, "how": how}
            files.append_line(home / "ledger" / USES, line)


def read_uses(home: Path) -> dict[str, list[str]]:
    """Return the units that were used after each question, by its id."""
    found: dict[str, list[str]] = {}
    for line in files.read_lines(home / "ledger" / USES):
        found.setdefault(str(line.get("asked")), []).append(str(line.get("unit")))
    return found


def uses_in(
    session: Session, entries: Sequence[Asked], *, scope_of: Callable[[str], str | None]
) -> Iterator[tuple[str, str, str]]:
    """Yield question, unit, and `cited` or `edited` for each use. Tool output is ignored: it names every result."""
    for entry in entries:
        later = [event for event in session.events if event.timestamp and event.timestamp > entry.time]
        said = "\n".join(text for event in later if event.kind in _CITING for text in (event.text, event.after) if text)
        edited = [event for event in later if event.kind is EventKind.FILE_EDIT and event.path]
        for unit in entry.unit_ids:
            if unit in said and re.search(rf"(?<![\w/-]){re.escape(unit)}(?![\w/-])", said):
                yield entry.id, unit, "cited"
            elif edited and (scope := scope_of(unit)) and any(_is_within(event, scope) for event in edited):
                yield entry.id, unit, "edited"


def _is_within(event: Event, scope: str) -> bool:
    """Return True if the edited file is the scope's file or lies in its folder, in any checkout."""
    path, scope = f"/{(event.path or '').strip('/')}/", f"/{scope.strip('/')}/"
    return scope != "//" and scope in path
