"""List what Nugget changed in a brain, and undo the last change.

Each change is one move of the checked-out branch, named in git's reflog. Undoing it is a commit that restores the
files; later changes of other lines stay.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from nugget.errors import ConflictError, NuggetError
from nugget.infra import git

if TYPE_CHECKING:
    from nugget.app import Brain

_VERBS = {
    "accept": "accepted",
    "Add": "added",
    "Edit": "edited",
    "Forget": "forgotten",
    "Move": "moved",
    "File": "moved",
}
_UNDOES = "Nugget-Undoes"
_LOOKED_AT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainChange:
    """A change that Nugget made: the commits before and after it, and the commit that undid it, if any."""

    kind: str
    title: str
    time: datetime
    before: str
    commit: str
    undone_by: str | None = None


def changes(brain: Brain, *, limit: int = 20) -> list[BrainChange]:
    """Return what was accepted, added, moved, forgotten and undone in this clone, newest first."""
    branch, _ = git.ready_branch(brain.path)
    form = f"--format=%H%x00%gs%x00%ct%x00%(trailers:key={_UNDOES},valueonly)%x01"
    shown = git.run(brain.path, "log", "-g", form, "-n", str(_LOOKED_AT), f"refs/heads/{branch}", "--")
    entries = [os.fsdecode(one).strip("\n").split("\0") for one in shown.split(b"\1") if one.strip()]
    undone = {undoes.strip(): sha for sha, _, _, undoes in entries if undoes.strip()}
    held = set(git.run(brain.path, "rev-list", "HEAD").decode().split())
    found = []
    for (sha, subject, seconds, _), older in pairwise(entries):
        title = subject.removeprefix("nugget: ")
        kind = "taken back" if title.startswith("Undo: ") else _VERBS.get(title.partition(" ")[0])
        if title != subject and kind and sha in held:
            made = datetime.fromtimestamp(int(seconds), UTC)
            found.append(BrainChange(kind=kind, title=title, time=made, before=older[0], commit=sha,
                                     undone_by=undone.get(sha)))  # fmt: skip
    return found[:limit]


def undo(brain: Brain, commit: str | None = None) -> BrainChange:
    """Undo the change of a commit, by default the last one that is not undone yet, by a new commit, and return it.

    Raises NuggetError if there is none, ConflictError if the same lines changed since, or a file has uncommitted work.
    """
    from nugget.capture.review import merge_sides

    with git.only_writer(brain.path):
        branch, tip = git.ready_branch(brain.path)
        undoable = (one for one in changes(brain, limit=_LOOKED_AT) if one.kind != "taken back" and not one.undone_by)
        last = next((one for one in undoable if commit in (None, one.commit)), None)
        if last is None:
            raise NuggetError("There is nothing to take back.", hint="`nugget log` lists what was changed here.")
        files: dict[str, bytes | None] = {}
        for change in git.changes(brain.path, last.before, last.commit):
            sides = (f"{tip}:{change.path}", f"{last.commit}:{change.path}", f"{last.before}:{change.path}")
            ours, after, before = git.read_objects(brain.path, sides)
            try:
                files[change.path] = merge_sides(change.path, ours, after, before)
            except ConflictError as error:
                raise ConflictError(
                    f"{change.path} was changed since `{last.title}`; nothing was taken back.",
                    hint=f"`git revert {last.commit[:10]}` in the brain lets you settle it.",
                ) from error
        message = f"Undo: {last.title}\n\n{_UNDOES}: {last.commit}\n"
        git.commit_change(brain.path, files, message, branch=branch, expect_head=tip)
    brain.make_current()
    return last
