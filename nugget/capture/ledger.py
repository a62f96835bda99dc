"""The ledgers: append-only JSON lines in `$NUGGET_HOME/ledger/`, the memory of what capture did.

`captures.jsonl` says which transcript records were captured for which brain. A capture writes two lines: `planned`
before its branch is made and `captured` after. A crash in between leaves a plan, and the repository itself
says whether the plan was carried out: its commit carries the plan's trailer.
`rejected.jsonl` says which units a person turned down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nugget.infra import files
from nugget.models import Event, Session

CAPTURES = "captures.jsonl"
REJECTED = "rejected.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """Rejected knowledge: unit ids, hashes of bodies and of evidence quotes."""

    ids: frozenset[str] = frozenset()
    bodies: frozenset[str] = frozenset()
    quotes: frozenset[str] = frozenset()


def note_capture(home: Path, line: Mapping[str, Any]) -> None:
    """Add a line about a capture to the ledger."""
    files.append_line(home / "ledger" / CAPTURES, line)


def record_keys(session: Session) -> list[str]:
    """Return twelve hex digits for the record of every event, in the order of the transcript.

    Made of the record's uuid, which a resumed or forked session keeps; if an agent writes none, of what the event says
    in its session.
    """

    def key(event: Event) -> str:
        stamp = event.timestamp.isoformat() if event.timestamp else ""
        named = event.uuid or f"{session.id}\0{event.kind}\0{stamp}\0{event.text}"
        return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    return list(map(key, session.events))


def captured_keys(home: Path, *, brain: str, keys: Collection[str], carried_out: Callable[[str], bool]) -> set[str]:
    """Return those of `keys` that were captured for the brain before.

    `carried_out` decides on a plan without its `captured` line, by its id: whether the repository holds its commit.
    """
    wanted, found = set(keys), set[str]()
    plans: dict[str, set[str]] = {}
    for line in files.read_lines(home / "ledger" / CAPTURES):
        if line.get("brain") == brain:
            capture, records = str(line.get("capture")), wanted.intersection(str(line.get("records") or "").split())
            if line.get("event") == "planned":
                plans[capture] = records
            else:
                found |= records | plans.pop(capture, set())
    for capture, records in plans.items():
        if not records <= found and carried_out(capture):
            found |= records
    return found


def captured_sizes(home: Path) -> dict[str, int]:
    """Return transcript path -> the size in bytes up to which it was captured, for any brain."""
    sizes: dict[str, int] = {}
    for line in files.read_lines(home / "ledger" / CAPTURES):
        size = line.get("size")
        if line.get("event") == "captured" and isinstance(size, int):
            path = str(line.get("transcript"))
            sizes[path] = max(size, sizes.get(path, 0))
    return sizes


def text_key(text: str) -> str:
    """Return a hash of a text that spacing and letter case do not change."""
    return hashlib.sha256(" ".join(text.lower().split()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def rejected_line(brain: str, branch: str, unit_id: str, body: str, quotes: Iterable[str]) -> dict[str, Any]:
    """Return the line by which a rejected unit is remembered, so that it is not proposed again."""
    hashed = [text_key(quote) for quote in quotes]
    return {"brain": brain, "branch": branch, "id": unit_id, "body": text_key(body), "quotes": hashed}


def rejected_units(home: Path, *, brain: str) -> dict[str, list[str]]:
    """Return the rejected ids by the branch that proposed them; edits are not among them."""
    found: dict[str, list[str]] = {}
    for line in files.read_lines(home / "ledger" / REJECTED):
        if line.get("brain") == brain:
            found.setdefault(str(line.get("branch")), []).extend(filter(None, [str(line.get("id") or "")]))
    return found


def rejections(home: Path, *, brain: str) -> Rejections:
    """Return everything that was turned down for a brain."""
    lines = [line for line in files.read_lines(home / "ledger" / REJECTED) if line.get("brain") == brain]
    return Rejections(
        ids=frozenset(str(line.get("id")) for line in lines),
        bodies=frozenset(str(line.get("body")) for line in lines),
        quotes=frozenset(str(quote) for line in lines for quote in line.get("quotes") or []),
    )
