"""The name by which the ledgers know a brain, which clones, moves and a rewritten history do not change.

A brain carries an `id` in its brain.yaml; the id of one that has none is its first commit. An id can be copied, so it
counts only together with a place: the folder or the remote that was noted when the ledgers were last written, or any
folder once the noted one is gone. A brain with a copied id in another place has a name, and so a memory, of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from nugget.infra import files, git, github
from nugget.infra.workspace import normalised_remote
from nugget.settings_file import YAMLRefused, read_entries

BRAINS = "brains.jsonl"
"""The ledger of which brain was where."""
_ID = re.compile(r"[A-Za-z0-9-]{8,64}")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def brain_key(brain: Path, home: Path) -> str:
    """Return what the ledgers call a brain. Writes nothing."""
    return str(_place(brain, home)["key"])


def remember_brain(brain: Path, home: Path) -> str:
    """Return what the ledgers call a brain, and note where it is now."""
    place = _place(brain, home)
    if place not in files.read_lines(home / "ledger" / BRAINS):
        files.append_line(home / "ledger" / BRAINS, place)
    return str(place["key"])


def declared_id(brain: Path) -> str | None:
    """Return the `id` of a brain.yaml; None if it has none that can be taken."""
    try:
        entry = read_entries(brain / "brain.yaml").get("id")
    except (OSError, YAMLRefused):
        return None
    value = str(entry.value) if entry else ""
    return value if _ID.fullmatch(value) else None


def write_id(brain: Path, home: Path) -> str | None:
    """Commit the id of a brain that declares none to its brain.yaml and return it; None if there is nothing to do.

    Raises BrainError, ConflictError: the brain is in the middle of something, or the file has uncommitted changes.
    """
    if not git.is_repository(brain) or git.head(brain) is None or "id" in read_entries(brain / "brain.yaml"):
        return None
    with git.only_writer(brain):
        branch, tip = git.ready_branch(brain)
        named = str(_place(brain, home)["id"])
        text = git.read_blob(brain, tip, "brain.yaml") or b""
        line = f"# By this Nugget knows the brain again. Never change it.\nid: {named}\n".encode()
        content = text if not text or text.endswith(b"\n") else text + b"\n"
        git.commit_change(
            brain, {"brain.yaml": content + line}, "Name the brain by its first commit", branch=branch, expect_head=tip
        )
    return named


def _place(brain: Path, home: Path) -> dict[str, Any]:
    """Return the line of the ledger that says which brain is here."""
    path, remote, declared, first = os.path.realpath(brain), _remote(brain), declared_id(brain), _first_commit(brain)
    known = [
        line
        for line in files.read_lines(home / "ledger" / BRAINS)
        if line.keys() >= {"key", "id", "path", "remote", "declared"}
    ]
    for line in reversed(known):
        is_here = line["path"] in (path, remote) or (remote is not None and line["remote"] == remote)
        # Without an id of its own a brain in the same place is the same one, whatever became of its history.
        is_same = line["id"] == declared if declared else not line["declared"]
        has_moved = line["id"] == (declared or first) and not _is_there(Path(str(line["path"])), line["id"])
        if (is_here and is_same) or has_moved:
            return {"key": line["key"], "id": declared or line["id"], "declared": declared is not None,
                    "path": path, "remote": remote}  # fmt: skip
    named = declared or first or path
    # The ledgers of brains without an id are kept by first commits, which another brain may only have if it is its own.
    is_taken = any(line["key"] == named for line in known) or (_COMMIT.fullmatch(named) and named != first)
    key = hashlib.sha256(f"{named}\0{path}".encode("utf-8", "surrogateescape")).hexdigest()[:40] if is_taken else named
    return {"key": key, "id": named, "declared": declared is not None, "path": path, "remote": remote}


def _is_there(folder: Path, brain_id: str) -> bool:
    """Return whether the brain that was noted for a folder is still in it."""
    return folder.is_dir() and (declared_id(folder) or _first_commit(folder)) == brain_id


def _first_commit(brain: Path) -> str | None:
    if not git.is_repository(brain) or git.head(brain) is None:
        return None
    return git.run(brain, "rev-list", "--max-parents=0", "HEAD").decode().split()[-1]


def _remote(brain: Path) -> str | None:
    """Return the address of the remote that all its clones share; of one on this machine its real path."""
    found = github.find_remote(brain) if git.is_repository(brain) else None
    if found is None:
        return None
    local = found.url.removeprefix("file://")
    return normalised_remote(found.url) or (os.path.realpath(local) if os.path.isabs(local) else None)  # noqa: PTH117
