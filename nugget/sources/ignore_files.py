"""Walk a folder of notes without hidden, generated and ignored files.

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
"""How Dropbox, Nextcloud and Syncthing name one side's copy of a note that two sides changed."""
_MAX_DEPTH = 60
_MAX_RULES_BYTES = 1_000_000

Rules = tuple[str, "GitIgnoreSpec"]
"""An ignore file: its folder, with `/` at the end, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """Files and folders that only their identity may read: names in lower case, and real paths."""

    names: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def holds(self, folder: str) -> bool:
        """Return whether a real folder is private, or lies in one that is."""
        return any(folder == own or folder.startswith(own + os.sep) for own in self.folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One walk through a folder. `files` fills `problems`, `left_out`, and `ignored` with the paths of ignored files.

    `named` are files wanted and hidden folders entered by their whole name. A walk that leaves out what is private also
    leaves out the memory in a brain that is its root. Brains below the root are left out.
    """

    root: Path
    suffixes: tuple[str, ...]
    max_files: int
    max_entries: int = MAX_ENTRIES
    named: frozenset[str] = frozenset()
    private: Private = Private()
    problems: list[Problem] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the wanted files as (path below the root with `/`, place), folder by folder, sorted.

        Links to folders are not followed, links to files only if they stay below the root.
        """
        root = self.root.absolute()
        real_root = os.path.realpath(root)
        if not root.is_dir():
            self._note(self.problems, self.root, "is not a folder (any more); nothing in it is found")
            return
        if self.private.holds(real_root):
            self._note(self.problems, root, "holds memory, which is private to its identity; nothing in it is found")
            return
        entries = files = 0
        waiting: list[tuple[Path, str, tuple[Rules, ...]]] = [(root, "", rules_above(root))]
        while waiting:
            folder, path, rules = waiting.pop()
            found = self._listed(folder)
            entries += len(found)
            names = {entry.name for entry in found}
            is_brain = "brain.yaml" in names and bool(names & {"domains", ".git"})
            if entries > self.max_entries:
                hint = "the rest is left out. Name a smaller folder, or leave parts out in a .nuggetignore"
                self._note(self.left_out, self.root, f"holds more than {counted(self.max_entries, 'file')}; {hint}")
                return
            if is_brain and path:
                self._note(self.left_out, folder, "is a brain already")
                continue
            rules = (*rules, *rules_in(folder, names))
            below: list[tuple[Path, str, tuple[Rules, ...]]] = []
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    is_memory = is_brain and entry.name == "memory" and bool(self.private.names)
                    is_private = is_memory or self.private.holds(f"{real_root}/{path}{entry.name}")
                    if not is_private and self._is_entered(entry, path, rules):
                        below.append((folder / entry.name, f"{path}{entry.name}/", rules))
                elif self._is_wanted(entry.name) and not self._is_ignored(entry, rules):
                    if not self._is_inside(entry, real_root):
                        continue
                    files += 1
                    if files > self.max_files:
                        reason = f"holds more than {counted(self.max_files, 'note')}; the rest is left out"
                        self._note(self.left_out, root, reason)
                        return
                    yield f"{path}{entry.name}", entry.path
            waiting += reversed(below)

    def _listed(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as listing:
                return sorted(listing, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []  # gone since the folder above was listed
        except OSError as error:
            self._note(self.problems, folder, f"cannot be listed ({error.strerror or error})")
            return []

    def _is_entered(self, entry: os.DirEntry[str], path: str, rules: Sequence[Rules]) -> bool:
        is_other = (entry.name.startswith(".") and entry.name not in self.named) or entry.name in NEVER
        return not is_other and path.count("/") <= _MAX_DEPTH and not self._is_ignored(entry, rules, "/")

    def _is_wanted(self, name: str) -> bool:
        if name in self.named:
            return True
        wanted = name.lower().endswith(self.suffixes) and not name.startswith(".")
        return wanted and name.lower() not in self.private.names and not _CONFLICT_COPY.search(name)

    def _is_ignored(self, entry: os.DirEntry[str], rules: Sequence[Rules], mark: str = "") -> bool:
        if ignored := is_ignored(entry.path + mark, rules):
            self.ignored.append(entry.path)
        return ignored

    def _is_inside(self, entry: os.DirEntry[str], real_root: str) -> bool:
        if not entry.is_symlink():
            return entry.is_file()
        real = Path(os.path.realpath(entry.path))
        is_private = real.name.lower() in self.private.names or self.private.holds(str(real.parent))
        return real.is_file() and real.is_relative_to(real_root) and not is_private

    def _note(self, problems: list[Problem], place: Path, reason: str) -> None:
        problems.append(Problem(path=str(place), reason=reason, severity=Severity.WARNING))


def is_ignored(path: str, rules: Sequence[Rules]) -> bool:
    """Return whether the deepest ignore file that decides on this path ignores it; a folder's path ends in `/`."""
    for folder, spec in reversed(rules):
        decided = spec.check_file(path.removeprefix(folder)).include
        if decided is not None:
            return decided
    return False


def rules_in(folder: Path, names: set[str] | None = None) -> Iterator[Rules]:
    """Yield the ignore files of a folder; `names` are its entries, if they are known."""
    for name in IGNORE_FILES:
        if (names is None or name in names) and (spec := _read_rules(folder / name)):
            yield f"{folder}/", spec


def rules_above(root: Path) -> tuple[Rules, ...]:
    """Return the ignore files above a root in its repository, from the top down, unless they ignore the root itself."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    above = [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]
    rules = (rule for folder in above for rule in rules_in(folder))
    return tuple(rule for rule in rules if not is_ignored(f"{root}/", [rule]))


def _read_rules(file: Path) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    try:
        if not file.is_file() or file.stat().st_size > _MAX_RULES_BYTES:
            return None
        lines = file.read_text("utf-8-sig", "replace").splitlines()
        return GitIgnoreSpec.from_lines(line for line in lines if line.strip() and not line.startswith("#"))
    except (OSError, ValueError):
        return None  # unreadable, or a line that git would not take either
