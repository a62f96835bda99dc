"""Uses: returned units that the session which asked for them cited later, or whose file it edited."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from nugget.evaluation.query_log import Asked, read
from nugget.infra import files
from nugget.models import Event, EventKind, Session

USES = "uses.jsonl"
_CITING = (EventKind.PROMPT, EventKind.REPLY, EventKind.COMMAND, EventKind.FILE_EDIT)


def note_uses(
    home: Path, brain: Path, session_id: str, load: Callable[[], Session], *,
    scope_of: Callable[[str], str | None], now: datetime,
) -> None:  # fmt: skip
    """Record the uses of a captured session that are not recorded yet; it is loaded only if it asked something.

    `scope_of` gives the path of a unit's scope.
    """
    entries = [entry for entry in read(home, brain=brain) if entry.session == session_id]
    if not entries:
        return
    session = load()
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
    """Yield question, unit, and `cited` or `edited` for each use. Tool output does not count: it names every result."""
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
