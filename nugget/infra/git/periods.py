"""Read the commits of a period, of given ids, or of a path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nugget.infra.git.process import run, start
from nugget.infra.git.reading import local_moment, raw_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedChange:
    """One path that a commit changed, with its blobs; None if the path is absent on that side."""

    commit: str
    committed: int
    path: str
    before: str | None
    after: str | None


def commit_before(repo: Path, moment: datetime) -> str | None:
    """Return the last commit of the checked-out branch up to a moment, None if there is none."""
    found = run(repo, "rev-list", "--max-count=1", f"--before={int(moment.timestamp())}", "HEAD", check=False)
    return found.decode().strip() or None


def committed_between(repo: Path, since: datetime, until: datetime) -> list[CommittedChange]:
    """Return every path that commits of any local branch changed in a period, oldest first, without merges."""
    period = (f"--since={int(since.timestamp())}", f"--until={int(until.timestamp())}")
    shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--no-merges", "--format=%x01%H %ct")
    completed = start(repo, ("log", "--branches", "HEAD", "--reverse", *period, *shown, "--"))
    return _changes(completed.stdout) if completed.returncode == 0 else []


def committed_in(repo: Path, commits: Sequence[str]) -> list[CommittedChange]:
    """Return every path that these commits changed; names of commits that do not exist are skipped."""
    found: list[CommittedChange] = []
    for name in commits:
        shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--no-walk", "--format=%x01%H %ct")
        completed = start(repo, ("log", *shown, "--end-of-options", f"{name}^{{commit}}", "--"))
        found += _changes(completed.stdout) if completed.returncode == 0 else []
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PathVersion:
    """A commit that changed a path, and the blob that it put there (None where it removed it)."""

    commit: str
    committed: datetime
    message: str
    blob: str | None


def versions_of(repo: Path, path: str, *, limit: int = 50) -> list[PathVersion]:
    """Return the last commits of any local branch that changed a path, newest first."""
    shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--format=%x01%H%x02%ct%x02%B")
    completed = start(repo, ("log", "--branches", "HEAD", f"--max-count={limit}", *shown, "--", path))
    found: list[PathVersion] = []
    for header, change in raw_changes(completed.stdout if completed.returncode == 0 else b""):
        commit, _, rest = header.partition("\2")
        seconds, _, message = rest.partition("\2")
        moment = local_moment(int(seconds)) if seconds.isdecimal() else local_moment(0)
        text = os.fsencode(message).decode("utf-8", "replace")
        found.append(PathVersion(commit=commit, committed=moment, message=text, blob=change.after))
    return found


def _changes(output: bytes) -> list[CommittedChange]:
    """Return the changes of `git log --raw -z` with a header `\\1<commit> <seconds>` for each commit."""
    found: list[CommittedChange] = []
    for header, change in raw_changes(output):
        commit, _, seconds = header.strip().partition(" ")
        moment = int(seconds) if seconds.isdecimal() else 0
        found.append(
            CommittedChange(commit=commit, committed=moment, path=change.path, before=change.before, after=change.after)
        )
    return found
