"""The brain as a source of units: which of its files changed since the last sync, and what a file says.

A git repository is asked what changed since the commit and the uncommitted files that were seen last, which costs
one `git status`; without git, every file's size and time is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nugget import brain as brains
from nugget.errors import GitError, NuggetError
from nugget.infra import git
from nugget.models import FileState, Problem, Unit
from nugget.text import printable

KnownFiles = Callable[[Sequence[str] | None], Mapping[str, FileState]]
"""What sync has seen: of all files (None), or of these paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Differences from the last sync. Hand `state` back as `last_state` next time.

    `problems` tell of what could not be looked at; what is known of it stays as it is.
    """

    modified: tuple[str, ...]
    removed: tuple[str, ...]
    state: str
    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.modified or self.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file as it was read: its state, and its unit if it is valid."""

    state: FileState
    unit: Unit | None


def changes(folder: Path, known: KnownFiles, last_state: str | None) -> Changes:
    """Return the knowledge files that were modified (or added) and removed since `last_state`, cheaply.

    A file counts as modified when its size or time differs from what is known; `read` tells whether its content does.
    """
    now_state = _git_state(folder)
    last = _parse_state(last_state)
    if now_state is None or last is None:
        return _compare_all(folder, known(None), now_state)
    suspects = {*now_state.dirty, *last.dirty, *now_state.unwatched, *last.unwatched}
    if now_state.head != last.head:
        moved = git.changed_between(folder, last.head, now_state.head) if last.head and now_state.head else None
        if moved is None:
            return _compare_all(folder, known(None), now_state)
        suspects.update(moved)
    if folders := tuple(path for path in suspects if path.endswith("/")):
        suspects.update(path for path in (*brains.knowledge_paths(folder), *known(None)) if path.startswith(folders))
    paths = sorted(path for path in suspects if brains.is_knowledge_path(path))
    storable = [path for path in paths if _is_storable(path)]
    return _compare(folder, paths, known(storable) if storable else {}, now_state)


def read(folder: Path, path: str) -> ReadFile:
    """Read and parse one file. A file that cannot be taken gives a state with problems and no unit."""
    try:
        found = _look(folder / path)
        content = brains.read_file(folder, path)
    except (OSError, NuggetError) as error:
        reason = str(error) if isinstance(error, NuggetError) else f"cannot be read ({error.strerror or error})"
        shown = printable(path)
        problem = Problem(path=shown, reason=reason.removeprefix(f"{shown}: "))
        size, mark = -1, 0
        with suppress(OSError):  # tried again when its size or its ctime, which permissions change too, differs
            found = _look(folder / path)
            size, mark = found.st_size, -found.st_ctime_ns
        return ReadFile(state=FileState(path=path, hash="", size=size, mtime_ns=mark, problems=(problem,)), unit=None)
    parsed = brains.load(folder, path, content)
    state = FileState(
        path=path, hash=hashlib.sha256(content).hexdigest(), size=found.st_size, mtime_ns=found.st_mtime_ns,
        unit_id=parsed.unit.id if parsed.unit else None, problems=tuple(parsed.problems),
    )  # fmt: skip
    return ReadFile(state=state, unit=parsed.unit)


def _look(file: Path) -> os.stat_result:
    """Return the status of a file, or of a link's target if there is one."""
    found = file.lstat()
    if stat.S_ISLNK(found.st_mode):
        with suppress(OSError):
            return file.stat()
    return found


def _compare_all(folder: Path, known: Mapping[str, FileState], state: git.State | None) -> Changes:
    unlisted: list[Problem] = []
    paths = list(brains.knowledge_paths(folder, unlisted=unlisted))
    found = _compare(folder, [*paths, *sorted(known.keys() - {*paths})], known, state)
    unlisted_paths = tuple(f"{problem.path}/" for problem in unlisted)
    others = [problem for problem in found.problems if not problem.path.startswith(unlisted_paths)]
    return replace(found, problems=(*unlisted, *others))


def _compare(folder: Path, paths: Iterable[str], known: Mapping[str, FileState], state: git.State | None) -> Changes:
    """Return which of these paths exist, which are gone, and which of them changed."""
    modified: list[str] = []
    removed: list[str] = []
    problems: list[Problem] = []
    for path in paths:
        seen = known.get(path)
        try:
            found = _look(folder / path)
        except (FileNotFoundError, NotADirectoryError):
            removed += [path] if seen else []
            continue
        except OSError as error:
            problems.append(Problem(path=printable(path), reason=f"cannot be read ({error.strerror or error})"))
            continue
        marks = {(found.st_size, found.st_mtime_ns), (found.st_size, -found.st_ctime_ns)}
        if not _is_storable(path):
            problems.append(Problem(path=printable(path), reason="has a name that is no UTF-8; rename it"))
        elif seen is None or (seen.size, seen.mtime_ns) not in marks:
            modified.append(path)
    written = "" if state is None else json.dumps(asdict(state))
    return Changes(modified=tuple(modified), removed=tuple(sorted(removed)), state=written, problems=tuple(problems))


def _is_storable(path: str) -> bool:
    """Return whether a path is text that an index can hold: names of files are bytes, and need not be."""
    return path.isascii() or not any("\ud800" <= char <= "\udfff" for char in path)


def _git_state(folder: Path) -> git.State | None:
    if not git.is_repository(folder):
        return None
    try:
        return git.state(folder)
    except GitError:
        return None


def _parse_state(text: str | None) -> git.State | None:
    loaded = json.loads(text) if text else {}
    if "unwatched" not in loaded:
        return None
    return git.State(head=loaded["head"], dirty=tuple(loaded["dirty"]), unwatched=tuple(loaded["unwatched"]))
