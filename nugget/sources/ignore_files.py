"""Walk a folder of notes without hidden, generated and ignored files.

`.gitignore`, `.ignore` and `.nuggetignore` have the syntax of
https://git-scm.com/docs/gitignore; a deeper file and a later line decide. The ignore files above the
folder in its git repository count too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.models import Problem, Severity
from nugget.text import counted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ignore", ".nuggetignore")
_MAX_RULES_BYTES = 1_000_000
_GENERATED = frozenset(
    "node_modules bower_components vendor venv env __pycache__ site-packages dist build target out coverage "
    "Pods DerivedData".split()
)
"""Folders that other programs fill. Hidden ones (`.git`, `.obsidian`, `.trash`, `.venv`…) are never entered either."""
_CONFLICT_COPIES = ("conflicted copy 2", ".sync-conflict-2")
"""Parts of the names that Dropbox, Nextcloud and Syncthing give to conflicting copies, before the year."""

_Rules = tuple[str, "GitIgnoreSpec"]
"""An ignore file: its folder, with `/` at the end, and its rules."""


@dataclass(slots=True, kw_only=True)
class Walk:
    """A walk through a folder. `problems` lists what could not be read, `left_out` what was skipped on purpose.

    `named` are the files to find and hidden folders to enter by exact name. `private_names` and `private_folders` (real
    paths) are memory, which only its identity may read; with names, memory in a brain at the root is left out
    too. Brains below the root are left out.
    """

    root: Path
    suffixes: tuple[str, ...]
    max_files: int
    named: frozenset[str] = frozenset()
    private_names: frozenset[str] = frozenset()
    private_folders: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)
    ignored: int = 0

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the wanted files as (path below the root with `/`, place), folder by folder, sorted.

        Links to folders are not followed, links to files only if they stay below the root.
        """
        root, real_root = str(self.root.absolute()), os.path.realpath(self.root)
        is_gone = not self.root.is_dir()
        if is_gone or self._is_private(real_root):
            reason = "is not a folder" if is_gone else "holds memory, which is private to its identity"
            self._note(self.problems, root, f"{reason}; nothing in it is found")
            return
        files = 0
        inherited = {root: _rules_above(Path(root))}
        for folder, folders, names in os.walk(root, onerror=self._note_unlisted):
            path = f"{folder.removeprefix(root).strip(os.sep)}/".lstrip("/")
            is_brain = "brain.yaml" in names and not {"domains", ".git"}.isdisjoint((*folders, *names))
            if is_brain and path:
                self._note(self.left_out, folder, "is a brain already")
                folders.clear()
                continue
            rules = (*inherited.pop(folder), *_rules_in(folder, names))
            kept = [name for name in sorted(folders) if self._is_entered(name, f"{real_root}/{path}{name}", is_brain)]
            folders[:] = [name for name in kept if not self._is_ignored(f"{folder}/{name}/", rules)]
            inherited |= {f"{folder.rstrip(os.sep)}{os.sep}{name}": rules for name in folders}
            for name in sorted(names):
                place = f"{folder}/{name}"
                if self._is_wanted(name) and not self._is_ignored(place, rules) and self._is_inside(place, real_root):
                    files += 1
                    if files > self.max_files:
                        reason = f"holds more than {counted(self.max_files, 'note')}; the rest is left out"
                        self._note(self.left_out, root, reason)
                        return
                    yield f"{path}{name}", place

    def _is_private(self, folder: str) -> bool:
        """Return whether a real folder is private or lies in a private folder."""
        return any(folder == own or folder.startswith(own + os.sep) for own in self.private_folders)

    def _is_entered(self, name: str, real: str, is_brain: bool) -> bool:
        is_other = (name.startswith(".") and name not in self.named) or name in _GENERATED
        is_memory = is_brain and name == "memory" and bool(self.private_names)
        return not is_other and not is_memory and not self._is_private(real)

    def _is_wanted(self, name: str) -> bool:
        wanted = name.lower().endswith(self.suffixes) and not name.startswith(".")
        is_other = name.lower() in self.private_names or any(mark in name for mark in _CONFLICT_COPIES)
        return name in self.named or (wanted and not is_other)

    def _is_ignored(self, path: str, rules: Sequence[_Rules]) -> bool:
        """Return whether the deepest ignore file that decides on a path ignores it, and count it if so."""
        decided = (spec.check_file(path.removeprefix(folder)).include for folder, spec in reversed(rules))
        is_ignored = next((include for include in decided if include is not None), False)
        self.ignored += is_ignored
        return is_ignored

    def _is_inside(self, place: str, real_root: str) -> bool:
        file = Path(place)
        if not file.is_symlink():
            return file.is_file()
        real = Path(os.path.realpath(place))
        is_private = real.name.lower() in self.private_names or self._is_private(str(real.parent))
        return real.is_file() and real.is_relative_to(real_root) and not is_private

    def _note_unlisted(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # gone since its parent was listed
            self._note(self.problems, error.filename, f"cannot be listed ({error.strerror or error})")

    def _note(self, problems: list[Problem], place: str, reason: str) -> None:
        problems.append(Problem(path=place, reason=reason, severity=Severity.WARNING))


def _rules_above(root: Path) -> tuple[_Rules, ...]:
    """Return the ignore files above a root in its repository, from the top down, unless they ignore the root itself."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    above = [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]
    rules = (rule for folder in above for rule in _rules_in(str(folder), IGNORE_FILES))
    return tuple((folder, spec) for folder, spec in rules if not spec.match_file(f"{root}/".removeprefix(folder)))


def _rules_in(folder: str, names: Collection[str]) -> Iterator[_Rules]:
    """Yield the ignore files of a folder that are among `names` and that git would read."""
    for file in (Path(folder, name) for name in IGNORE_FILES if name in names):
        from pathspec import GitIgnoreSpec

        with suppress(OSError, ValueError):
            if file.is_file() and file.stat().st_size <= _MAX_RULES_BYTES:
                lines = file.read_text("utf-8-sig", "replace").splitlines()
                yield f"{folder}/", GitIgnoreSpec.from_lines(line for line in lines if line.strip())
