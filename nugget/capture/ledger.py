"""The ledgers: append-only JSON lines in `$NUGGET_HOME/ledger/` that record what capture did.

`captures.jsonl` says which transcript records were captured for which brain. A capture writes two lines: `planned`
before its branch is created and `captured` after. A crash in between leaves a plan; the repository shows whether it was
carried out, because the commit has the plan's trailer.
`rejected.jsonl` says which units a person rejected.
`brains.jsonl` records where each brain was, so that it keeps its name when it is cloned or moved or its history is
rewritten. A brain has an `id` in its brain.yaml, else its first commit is its id. Ids can be copied, so an id counts
only together with a place: the folder or remote noted when the ledgers were last written, or any folder once the noted
one is gone. A brain with a copied id in another place gets a name, and so a history, of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from nugget.infra import files, git, remotes
from nugget.infra.workspace import normalised_remote
from nugget.models import Event, Session
from nugget.settings import YAMLRefused, read_entries
from nugget.text import content_hash

CAPTURES, REJECTED, BRAINS = "captures.jsonl", "rejected.jsonl", "brains.jsonl"


def brain_key(brain: Path, home: Path) -> str:
    """Return the name of a brain in the ledgers. Writes nothing."""
    return str(_identity(brain, home)["key"])


def remember_brain(brain: Path, home: Path) -> str:
    """Return the name of a brain in the ledgers, and record its current place."""
    line = _identity(brain, home)
    files.append_line(home / "ledger" / BRAINS, line, once=True)
    return str(line["key"])


def lock_file(home: Path, key: str, purpose: str = "") -> Path:
    """Return the lock file of a brain for captures, or for another `purpose`."""
    return home / "locks" / f"{key.replace('/', '_')[-60:]}{purpose}.lock"


def declared_id(brain: Path) -> str | None:
    """Return the `id` in brain.yaml; None if it is missing or invalid."""
    try:
        named = str(read_entries(brain / "brain.yaml").get("id", ("", 0))[0])
    except YAMLRefused:
        return None
    return named if re.fullmatch(r"[A-Za-z0-9-]{8,64}", named) else None


def record_keys(session: Session) -> list[str]:
    """Return a hash of twelve hex digits for each event's record, in the transcript's order.

    The hash covers the record's uuid, which resumed and forked sessions keep, or else session and content.
    """

    def key(event: Event) -> str:
        stamp = event.timestamp.isoformat() if event.timestamp else ""
        return content_hash(event.uuid or f"{session.id}\0{event.kind}\0{stamp}\0{event.text}")[:12]

    return list(map(key, session.events))


def captured_keys(home: Path, *, brain: str, keys: Collection[str], carried_out: Callable[[str], bool]) -> set[str]:
    """Return those of `keys` that were already captured for the brain.

    `carried_out` returns whether the repository holds the commit of a plan without a `captured` line, given its id.
    """
    wanted, found = set(keys), set[str]()
    plans: dict[str, set[str]] = {}
    for line in _lines(home, CAPTURES, brain):
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
    """Return how many bytes of each transcript were captured, by path, for any brain."""
    sizes: dict[str, int] = {}
    for line in files.read_lines(home / "ledger" / CAPTURES):
        size = line.get("size")
        if line.get("event") == "captured" and isinstance(size, int):
            path = str(line.get("transcript"))
            sizes[path] = max(size, sizes.get(path, 0))
    return sizes


def forget_texts(home: Path, session: str) -> None:
    """Delete a session's texts from the ledger; the record that it was captured stays."""
    file = home / "ledger" / CAPTURES
    with files.locked(file.with_suffix(".lock")):
        kept = []
        for line in files.read_lines(file):
            of_session = line.get("session") == session
            kept.append({key: value for key, value in line.items() if not (of_session and key in ("dropped", "units"))})
        if kept:
            files.replace(file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept).encode())


def text_key(text: str) -> str:
    """Return a hash of a text that ignores white space and case."""
    return content_hash(" ".join(text.lower().split()))[:16]


def rejected_units(home: Path, *, brain: str) -> dict[str, list[str]]:
    """Return the ids of rejected new units by the branch that proposed them."""
    found: dict[str, list[str]] = {}
    for line in _lines(home, REJECTED, brain):
        found.setdefault(str(line.get("branch")), []).extend(filter(None, [str(line.get("id") or "")]))
    return found


def rejections(home: Path, *, brain: str) -> frozenset[str]:
    """Return the rejections of a brain: ids of units, and hashes of their bodies and of evidence quotes."""
    lines = _lines(home, REJECTED, brain)
    return frozenset(str(key) for line in lines for key in (line.get("id"), line.get("body"), *line.get("quotes", ())))


def _lines(home: Path, name: str, brain: str) -> Iterator[dict[str, Any]]:
    return (line for line in files.read_lines(home / "ledger" / name) if line.get("brain") == brain)


def _identity(brain: Path, home: Path) -> dict[str, Any]:
    """Return the line of the ledger that identifies the brain in a folder."""
    path, remote, declared, first = os.path.realpath(brain), _remote(brain), declared_id(brain), _first_commit(brain)
    here = {"declared": declared is not None, "path": path, "remote": remote}
    lines = files.read_lines(home / "ledger" / BRAINS)
    known = [line for line in lines if line.keys() >= {"key", "id", "path", "remote", "declared"}]
    for line in reversed(known):
        is_here = line["path"] in (path, remote) or (remote is not None and line["remote"] == remote)
        # A brain without an id is the same as before if it is in the same place, even if its history was rewritten.
        is_same = line["id"] == declared if declared else not line["declared"]
        noted = Path(str(line["path"]))
        has_moved = line["id"] == (declared or first) and not (
            noted.is_dir() and (declared_id(noted) or _first_commit(noted)) == line["id"]
        )
        if (is_here and is_same) or has_moved:
            return {"key": line["key"], "id": declared or line["id"], **here}
    named = declared or first or path
    # Brains without an id are named by their first commit, so a brain cannot claim another's first commit as its id.
    is_taken = any(line["key"] == named for line in known) or (
        re.fullmatch(r"[0-9a-f]{40,64}", named) and named != first
    )
    key = content_hash(os.fsencode(f"{named}\0{path}"))[:40] if is_taken else named
    return {"key": key, "id": named, **here}


def _first_commit(brain: Path) -> str | None:
    if not git.is_repository(brain) or git.head(brain) is None:
        return None
    return git.run(brain, "rev-list", "--max-parents=0", "HEAD").decode().split()[-1]


def _remote(brain: Path) -> str | None:
    """Return the normalised address of the remote; for a local one its real path."""
    if (found := remotes.find_remote(brain)) is None:
        return None
    local = found.url.removeprefix("file://")
    return normalised_remote(found.url) or (os.path.realpath(local) if os.path.isabs(local) else None)  # noqa: PTH117
