"""Coverage of knowledge: nuggets by file, questions without answers, code that nobody explained."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nugget.errors import GitError
from nugget.index import provenance as stored
from nugget.infra import git
from nugget.infra.query_log import Asked
from nugget.provenance.checkout import Checkout, follow_renames

CHURN_DAYS = 180
"""How far back changes are counted."""
_TIMEOUT_S = 20.0
_NO_CODE = (
    ".lock", ".sum", ".svg", ".png", ".jpg", ".gif", ".ico", ".pdf", ".woff", ".woff2", ".map", ".snap", ".min.js",
    "package-lock.json", "CHANGELOG.md", ".gitignore",
)  # fmt: skip
"""What changes without anybody deciding anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """A file with the nuggets that are scoped to it."""

    path: str
    nuggets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A file that was asked about, or changed, more often than it is explained. `changes` counts commits."""

    path: str
    queries: int = 0
    nuggets: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Missing knowledge: `asked` has questions behind it, `unexplained` changes often and has no nugget at all."""

    asked: tuple[Gap, ...]
    unexplained: tuple[Gap, ...]
    degraded: tuple[str, ...] = ()


def coverage(connection: sqlite3.Connection, checkout: Checkout) -> list[Covered]:
    """Return the files of a workspace with nuggets, most first, under their present names."""
    scoped = stored.scoped_paths(connection, checkout.workspace.identity)
    aliases = follow_renames(connection, checkout, scoped)
    counts: Counter[str] = Counter()
    for path, count in scoped.items():
        counts[aliases.get(path, path)] += count
    return [
        Covered(path=path, nuggets=count)
        for path, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    ]


def find_gaps(connection: sqlite3.Connection, checkout: Checkout, entries: Sequence[Asked], *, now: datetime) -> Gaps:
    """Return the gaps of a workspace. `entries` are those of the query log.

    A file is a gap where it was asked about more often than it has nuggets, the most questions for each nugget first;
    and where it has none and was changed in CHURN_DAYS days, the most changes first.
    """
    identity = checkout.workspace.identity
    covered = {one.path: one.nuggets for one in coverage(connection, checkout)}
    asked = Counter(entry.path for entry in entries if entry.workspace == identity and entry.path)
    changes, degraded = _changes(checkout, now)
    gaps = [
        Gap(path=path, queries=count, nuggets=_known(path, covered), changes=changes.get(path, 0))
        for path, count in asked.items()
        if count > _known(path, covered) and checkout.exists(path)
    ]
    gaps.sort(key=lambda gap: (-gap.queries / (1 + gap.nuggets), -gap.changes, gap.path))
    silent = [
        Gap(path=path, queries=asked.get(path, 0), changes=count)
        for path, count in changes.items()
        if path not in covered and not path.endswith(_NO_CODE) and checkout.exists(path)
    ]
    silent.sort(key=lambda gap: (-gap.changes, gap.path))
    return Gaps(asked=tuple(gaps), unexplained=tuple(silent), degraded=degraded)


def _known(path: str, covered: dict[str, int]) -> int:
    """Return the nuggets of a file, or of everything below a folder."""
    return covered.get(path, 0) or sum(count for file, count in covered.items() if file.startswith(f"{path}/"))


def _changes(checkout: Checkout, now: datetime) -> tuple[Counter[str], tuple[str, ...]]:
    """Count the recent commits that changed each file; nothing, and the reason, if git cannot say."""
    counts: Counter[str] = Counter()
    if checkout.workspace.common_dir is None:
        return counts, ("no_git",)
    since = (now - timedelta(days=CHURN_DAYS)).isoformat()
    command = ("log", "--format=", "--name-only", "--no-renames", "--no-merges", "-z", f"--since={since}", "HEAD")
    try:
        output = git.run(checkout.workspace.root, *command, timeout_s=_TIMEOUT_S)
    except GitError as error:
        return counts, (f"no_churn: {error}",)
    counts.update(os.fsdecode(path.lstrip(b"\n")) for path in output.split(b"\0") if path.strip(b"\n"))
    return counts, ()
