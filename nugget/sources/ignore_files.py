"""Walking a folder of notes without what nobody means: hidden and generated folders, and what ignore files say.

`.gitignore`, `.ignore` and `.nuggetignore` have the syntax of https://git-scm.com/docs/gitignore; a deeper file and a
later line decide. Above the folder, the ignore files of the git repository that it is in count too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.models import Problem, Severity
from nugget.text import counted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ignore", ".nuggetignore")
NEVER = frozenset(
    "node_modules bower_components vendor venv env __pycache__ site-packages dist build target out coverage "
    "Pods DerivedData".split()
)
"""Folders that other programs fill. Hidden ones (`.git`, `.obsidian`, `.trash`, `.venv`…) are never entered either."""
MAX_ENTRIES = 300_000
"""A walk that has seen so many files and folders ends."""

_CONFLICT_COPY = re.compile(r"\([^()]{0,80}conflicted copy[^()]{0,80}\)|\.sync-conflict-\d{8}-\d{6}", re.IGNORECASE)
_MAX_DEPTH = 60
_MAX_RULES_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """Files and folders that a walk leaves to their owner: names in lower case, and real paths.

    A walk that knows of any also leaves out the brains below its root, and the memory in one that is its root.
    """

    names: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def holds(self, folder: str) -> bool:
        """Return whether a real folder is private, or lies in one that is."""
        return any(folder == own or folder.startswith(own + os.sep) for own in self.folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One walk through a folder. While `files` is read, `problems` fills, and `left_out` with what it did not give."""

    root: Path
    suffixes: tuple[str, ...]
    max_files: int
    max_entries: int = MAX_ENTRIES
    problems: list[Problem] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)
    private: Private = Private()

    def files(self) -> Iterator[tuple[str, str]]:
        """The files with one of the suffixes as (path below the root with `/`, place), folder by folder, sorted.

        Links to folders are not followed, links to files only where they stay below the root. What a cloud client left
        (placeholders, conflict copies) is counted, and told at the end.
        """
        if not self.root.is_dir():
            self._wrong(self.root, "is no folder (any more); nothing of it is found")
            return
        real_root = os.path.realpath(self.root)
        if self.private.holds(real_root):
            self._wrong(self.root, "holds memory, which is private to its identity; nothing of it is found")
            return
        entries = files = 0
        left = _LeftByClouds()
        waiting: list[tuple[Path, str, tuple[Rules, ...]]] = [(self.root, "", rules_above(self.root))]
        while waiting:
            folder, path, rules = waiting.pop()
            found = self._listed(folder)
            entries += len(found)
            if entries > self.max_entries:
                self._leave_out(f"holds more than {counted(self.max_entries, 'file')}; the rest is left out. Name a "
                                "smaller folder, or leave parts out in a .nuggetignore")  # fmt: skip
                return
            names = {entry.name for entry in found}
            is_brain = bool(self.private.names) and "brain.yaml" in names and bool(names & {"domains", ".git"})
            if is_brain and path:
                continue
            rules = (*rules, *rules_in(folder, path, names))
            below: list[tuple[Path, str, tuple[Rules, ...]]] = []
            for entry in found:
                its_path = f"{path}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    is_private = (is_brain and entry.name == "memory") or self._is_private(real_root, its_path)
                    if not is_private and _is_entered(entry.name, its_path, rules):
                        below.append((folder / entry.name, f"{its_path}/", rules))
                elif entry.name.startswith("."):
                    left.note_placeholder(entry.name, self.suffixes)
                elif entry.name.lower() in self.private.names:
                    continue
                elif entry.name.lower().endswith(self.suffixes) and not is_ignored(its_path, rules):
                    if left.has_conflict(entry.name, its_path) or not self._is_inside(entry):
                        continue
                    files += 1
                    if files > self.max_files:
                        self._leave_out(f"holds more than {counted(self.max_files, 'note')}; the rest is left out. "
                                        "Name a smaller folder, or raise canon.max_files")  # fmt: skip
                        return
                    yield its_path, entry.path
            waiting += reversed(below)
        for told in left.told():
            self._leave_out(told)

    def _listed(self, folder: Path) -> list[os.DirEntry[str]]:
        """Return the entries of a folder, sorted; empty if it cannot be listed."""
        try:
            with os.scandir(folder) as listing:
                return sorted(listing, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []  # gone since the folder above was listed
        except OSError as error:
            self._wrong(folder, f"cannot be listed ({error.strerror or error})")
            return []

    def _is_inside(self, entry: os.DirEntry[str]) -> bool:
        if not entry.is_symlink():
            return entry.is_file()
        try:
            real = Path(entry.path).resolve(strict=True)
        except (OSError, RuntimeError):
            return False  # a link to nowhere, or one that leads in a circle
        is_private = real.name.lower() in self.private.names or self.private.holds(str(real.parent))
        return real.is_file() and real.is_relative_to(self.root.resolve()) and not is_private

    def _is_private(self, real_root: str, path: str) -> bool:
        return bool(self.private.folders) and os.path.join(real_root, path) in self.private.folders  # noqa: PTH118

    def _wrong(self, place: Path, reason: str) -> None:
        self.problems.append(Problem(path=str(place), reason=reason, severity=Severity.WARNING))

    def _leave_out(self, reason: str) -> None:
        self.left_out.append(Problem(path=str(self.root), reason=reason, severity=Severity.WARNING))


@dataclass(slots=True)
class _LeftByClouds:
    """Files that sync clients leave in a folder: placeholders of notes not on this disk, copies of both sides.

    iCloud Drive writes `.Note.md.icloud`; Dropbox and Nextcloud `Note (… conflicted copy …).md`; Syncthing
    `Note.sync-conflict-20260501-101010-ABCDEFG.md`.
    """

    placeholders: int = 0
    conflicts: list[str] = field(default_factory=list)

    def note_placeholder(self, name: str, suffixes: tuple[str, ...]) -> None:
        """Count a hidden file that stands for a note."""
        lower = name.lower()
        self.placeholders += lower.endswith(".icloud") and lower.removesuffix(".icloud").endswith(suffixes)

    def has_conflict(self, name: str, path: str) -> bool:
        """Return whether this is one side's copy of a note that two sides changed; if so, it is kept in mind."""
        found = "conflict" in name.lower() and _CONFLICT_COPY.search(name) is not None
        if found:
            self.conflicts.append(path)
        return found

    def told(self) -> Iterator[str]:
        """A sentence for each kind."""
        if self.placeholders:
            yield f"holds {counted(self.placeholders, 'note')} not downloaded from iCloud; not found until they are"
        if self.conflicts:
            files = counted(len(self.conflicts), "file")
            yield f"holds {files} in conflict, such as {self.conflicts[0]}; left out until merged into the note"


@dataclass(frozen=True, slots=True)
class Rules:
    """An ignore file: `below` is its folder as seen from the root, `above` the way from it down to the root."""

    spec: GitIgnoreSpec
    below: str = ""
    above: str = ""


def _is_entered(name: str, path: str, rules: Sequence[Rules]) -> bool:
    if name.startswith(".") or name in NEVER or path.count("/") > _MAX_DEPTH:
        return False
    return not is_ignored(f"{path}/", rules)


def is_ignored(path: str, rules: Sequence[Rules]) -> bool:
    """Return whether the deepest ignore file that has a word on this path ignores it; a folder's path ends in `/`."""
    for entry in reversed(rules):
        decided = entry.spec.check_file(entry.above + path.removeprefix(entry.below)).include
        if decided is not None:
            return decided
    return False


def rules_in(folder: Path, path: str, names: set[str]) -> Iterator[Rules]:
    """Return the rules of a folder that holds these names; `path` is relative to the root and ends in `/`."""
    for name in IGNORE_FILES:
        if name in names and (spec := _read_rules(folder / name)):
            yield Rules(spec, below=path)


def rules_above(root: Path) -> tuple[Rules, ...]:
    """Return the rules of the repository around a root, from its top down, unless they ignore the root itself."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if top is None:
        return ()
    found: list[Rules] = []
    way = [root, *root.parents]
    for folder in reversed(way[1 : way.index(top) + 1]) if top != root else []:
        above = f"{root.relative_to(folder).as_posix()}/"
        for name in IGNORE_FILES:
            spec = _read_rules(folder / name)
            if spec and spec.check_file(above).include is not True:
                found.append(Rules(spec, above=above))
    excluded = _read_rules(top / ".git" / "info" / "exclude")
    if excluded and top == root:
        found.insert(0, Rules(excluded))
    return tuple(found)


def _read_rules(file: Path) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    try:
        if not file.is_file() or file.stat().st_size > _MAX_RULES_BYTES:
            return None
        lines = file.read_text("utf-8-sig", "replace").splitlines()
    except OSError:
        return None
    rules = [line for line in lines if line.strip() and not line.startswith("#")]
    try:
        return GitIgnoreSpec.from_lines(rules) if rules else None
    except ValueError:
        return None  # a line that git would not take either
