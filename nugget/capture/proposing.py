"""The brain as proposals meet it: the commit they start from, what it knows and refuses, their branches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from nugget.brain import knowledge_file as knowledge
from nugget.brain.filing import forgotten
from nugget.capture import ledger
from nugget.capture.compare import KnownBrain, ProposedFile, Similar
from nugget.capture.identity import brain_key
from nugget.capture.proposals import BRANCH_PREFIX
from nugget.infra import git
from nugget.models import Unit


def base_commit(brain: Path) -> str | None:
    """Return the commit that proposals start from: the checked-out one, but never that of another proposal."""
    if not (git.current_branch(brain) or "").startswith(BRANCH_PREFIX):
        return git.head(brain)
    return git.resolve(brain, "refs/heads/main") or git.resolve(brain, "refs/heads/master") or git.head(brain)


def waiting_units(brain: Path) -> list[tuple[Unit, str]]:
    """Return the units on proposal branches that the checked-out branch does not hold, with their branch."""
    files = git.unmerged_files(brain, BRANCH_PREFIX)
    units = [(knowledge.parse_bytes(content, path=path).unit, branch) for branch, path, content in files
             if path.endswith(".md")]  # fmt: skip
    return [(unit, branch) for unit, branch in units if unit is not None]


def known_brain(brain: Path, home: Path, similar: Similar) -> KnownBrain:
    """Return what new units are compared with: the base commit, what waits, what was rejected or forgotten."""
    base = base_commit(brain)

    def read(path: str) -> str | None:
        content = git.read_blob(brain, base, path) if base else None
        return None if content is None else content.decode("utf-8", "replace")

    return KnownBrain(
        files=git.files_at(brain, base, under=["domains"]) if base else {}, read=read, similar=similar,
        waiting=waiting_units(brain), rejected=ledger.rejections(home, brain=brain_key(brain, home)),
        forgotten=forgotten(brain),
    )  # fmt: skip


def free_branch(brain: Path, name: str) -> str:
    """Return the name of a branch, with a number if the name is taken."""
    taken = {branch.name for branch in git.branches(brain, BRANCH_PREFIX)}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def make_branch(brain: Path, branch: str, changes: Sequence[ProposedFile], message: str, *, now: datetime) -> None:
    """Make the branch of a proposal, on top of the base commit."""
    files = {change.path: change.text.encode() for change in changes}
    git.create_branch(brain, branch, files=files, message=message, now=now, base=base_commit(brain))
