"""The brain as a source of units: which of its files changed since the last sync, and what a file says.

A git repository is asked what changed since the commit and the uncommitted files that were seen last, which costs
one `git status`; without git, every file's size and time is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nugget import brain as brains
from nugget import git, knowledge
from nugget.errors import GitError, NuggetError
from nugget.models import FileState, Problem, Unit

KnownFiles = Callable[[Sequence[str] | None], Mapping[str, FileState]]
"""What sync has seen: of all files (None), or of these paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs from the last sync. `state` is to be handed back as `last_state` next time."""

    modified: tuple[str, ...]
    removed: tuple[str, ...]
    state: str

    def __bool__(self) -> bool:
        return bool(self.modified or self.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file as it was read: its state, and its unit where it holds a valid one."""

    state: FileState
    unit: Unit | None


def changes(folder: Path, known: KnownFiles, last_state: str | None) -> Changes:
    """The knowledge files that were modified (or added) and removed since `last_state`, cheaply.

    A file counts as modified when its size or time differs from what is known; `read` tells whether its content does.
    """
    now_state = _git_state(folder)
    last = _parse_state(last_state)
    if now_state is None or last is None:
        return _compare(folder, list(brains.knowledge_paths(folder)), known(None), now_state, complete=True)
    suspects = {*now_state.dirty, *last.dirty}
    if now_state.head != last.head:
        moved = git.changed_between(folder, last.head, now_state.head) if last.head and now_state.head else None
        if moved is None:
            return _compare(folder, list(brains.knowledge_paths(folder)), known(None), now_state, complete=True)
        suspects.update(moved)
    paths = sorted(path for path in suspects if brains.is_knowledge_path(path))
    return _compare(folder, paths, known(paths) if paths else {}, now_state, complete=False)


def read(folder: Path, path: str) -> ReadFile:
    """Read and parse one file. A file that cannot be taken gives a state with problems and no unit."""
    try:
        stat = (folder / path).stat()
        content = brains.read_file(folder, path)
    except (OSError, NuggetError) as error:
        reason = str(error) if isinstance(error, NuggetError) else f"cannot be read ({error.strerror or error})"
        problem = Problem(path=path, reason=reason.removeprefix(f"{brains.printable(path)}: "))
        return ReadFile(state=FileState(path=path, hash="", size=-1, mtime_ns=0, problems=(problem,)), unit=None)
    parsed = knowledge.parse_bytes(content, path=path)
    state = FileState(
        path=path,
        hash=hashlib.sha256(content).hexdigest(),
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        unit_id=parsed.unit.id if parsed.unit else None,
        problems=tuple(parsed.problems),
    )
    return ReadFile(state=state, unit=parsed.unit)


def _compare(
    folder: Path, paths: Iterable[str], known: Mapping[str, FileState], state: git.State | None, *, complete: bool
) -> Changes:
    modified: list[str] = []
    present: set[str] = set()
    for path in paths:
        try:
            stat = os.lstat(folder / path)
        except OSError:
            continue
        present.add(path)
        seen = known.get(path)
        if seen is None or (seen.size, seen.mtime_ns) != (stat.st_size, stat.st_mtime_ns):
            modified.append(path)
    removed = known.keys() - present if complete else {path for path in known if path not in present}
    return Changes(modified=tuple(modified), removed=tuple(sorted(removed)), state=_write_state(state))


def _git_state(folder: Path) -> git.State | None:
    if not git.is_repository(folder):
        return None
    try:
        return git.state(folder)
    except GitError:
        return None


def _write_state(state: git.State | None) -> str:
    return "" if state is None else json.dumps({"head": state.head, "dirty": sorted(state.dirty)})


def _parse_state(text: str | None) -> git.State | None:
    if not text:
        return None
    loaded = json.loads(text)
    return git.State(head=loaded["head"], dirty=tuple(loaded["dirty"]))
