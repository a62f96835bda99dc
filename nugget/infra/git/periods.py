"""What was committed in a stretch of time, and what a repository held before it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nugget.infra.git.process import run, start
from nugget.infra.git.reading import local_moment


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedChange:
    """One path that a commit changed, with its blobs; None where the path is absent on that side."""

    commit: str
    committed: int
    path: str
    before: str | None
    after: str | None


def commit_before(repo: Path, moment: datetime) -> str | None:
    """The last commit of the checked-out branch up to a moment, None where there is none."""
    found = run(repo, "rev-list", "--max-count=1", f"--before={int(moment.timestamp())}", "HEAD", check=False)
    return found.decode().strip() or None


def committed_between(repo: Path, since: datetime, until: datetime) -> list[CommittedChange]:
    """Every path that the commits of a stretch of time changed, on any local branch, oldest first; merges left out."""
    period = (f"--since={int(since.timestamp())}", f"--until={int(until.timestamp())}")
    shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--no-merges", "--format=%x01%H %ct")
    completed = start(repo, ("log", "--branches", "HEAD", "--reverse", *period, *shown, "--"))
    return _changes(completed.stdout) if completed.returncode == 0 else []


def committed_in(repo: Path, commits: Sequence[str]) -> list[CommittedChange]:
    """Every path that these commits changed; a name that is no commit, or none any more, is passed over."""
    found: list[CommittedChange] = []
    for name in commits:
        shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--no-walk", "--format=%x01%H %ct")
        completed = start(repo, ("log", *shown, "--end-of-options", f"{name}^{{commit}}", "--"))
        found += _changes(completed.stdout) if completed.returncode == 0 else []
    return found


def files_below(repo: Path, revision: str, paths: Sequence[str]) -> dict[str, str]:
    """Path -> blob id of each file of a commit that is one of `paths` or below one; paths as of the root."""
    if not paths:
        return {}
    completed = start(repo, ("ls-tree", "-r", "-z", "--full-tree", revision, "--", *paths))
    found: dict[str, str] = {}
    for record in completed.stdout.split(b"\0") if completed.returncode == 0 else ():
        details, _, path = record.partition(b"\t")
        if details[7:11] == b"blob":
            found[os.fsdecode(path)] = details.split(b" ")[2].decode()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PathVersion:
    """A commit that changed a path, and the blob that it put there (None where it removed it)."""

    commit: str
    committed: datetime
    message: str
    blob: str | None


def versions_of(repo: Path, path: str, *, limit: int = 50) -> list[PathVersion]:
    """The last commits of any local branch that changed a path, newest first."""
    shown = ("--raw", "-z", "--no-renames", "--no-abbrev", "--root", "--format=%x01%H%x02%ct%x02%B")
    completed = start(repo, ("log", "--branches", "HEAD", f"--max-count={limit}", *shown, "--", path))
    found: list[PathVersion] = []
    head: list[str] = []
    for token in completed.stdout.split(b"\0") if completed.returncode == 0 else ():
        text = token.lstrip(b"\n")
        if text.startswith(b"\1"):
            head = text[1:].decode("utf-8", "replace").split("\2", 2)
        elif text.startswith(b":") and len(head) == 3 and head[1].isdecimal():
            blob = _object(text.decode("ascii").split(" ")[3])
            moment = local_moment(int(head[1]))
            found.append(PathVersion(commit=head[0], committed=moment, message=head[2], blob=blob))
    return found


def _changes(output: bytes) -> list[CommittedChange]:
    """The changes of `git log --raw -z` with a header `\\1<commit> <seconds>` for each commit."""
    found: list[CommittedChange] = []
    commit, moment = "", 0
    tokens = iter(output.split(b"\0"))
    for token in tokens:
        if token.lstrip(b"\n").startswith(b"\1"):
            commit, _, seconds = token.lstrip(b"\n")[1:].decode("ascii", "replace").strip().partition(" ")
            moment = int(seconds) if seconds.isdecimal() else 0
        elif (record := token.lstrip(b"\n")).startswith(b":"):
            _, _, before, after, _ = record.decode("ascii").split(" ")
            path = os.fsdecode(next(tokens, b""))
            found.append(
                CommittedChange(
                    commit=commit, committed=moment, path=path, before=_object(before), after=_object(after)
                )
            )
    return found


def _object(sha: str) -> str | None:
    return None if set(sha) == {"0"} else sha
