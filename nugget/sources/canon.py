"""Canon: folders of markdown that people keep and Nugget only reads: documents of a workspace, handbooks, vaults.

Which folders those are is set in `canon.folders`. A unit is a file; its id is `<folder name>/<path in it>`. Wiki links
and links between files are relations. Nothing is ever written there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from nugget.config import expanded
from nugget.errors import GitError
from nugget.infra import git
from nugget.models import Problem, SourceName
from nugget.sources.documents import ReadDocument
from nugget.sources.ignore_files import Private, Walk
from nugget.sources.notes import SUFFIXES, Names, Redact, modified_day, read_bytes, read_note
from nugget.text import slugify

_NOTHING = Private()


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonFolder:
    """A folder of canon, and the name by which its units are known."""

    name: str
    path: Path
    inside: Path | None = None
    """The folder that `path` may not leave, not even by a link."""


def canon_folders(given: Sequence[str], *, base: Path) -> list[CanonFolder]:
    """The folders of `canon.folders`: paths, or `name=path`. A relative one is meant from `base`.

    A folder without a name has that of the last part of its path; where two would have the same, the later one has
    its parent's name in front.
    """
    folders: dict[str, CanonFolder] = {}
    for text in given:
        name, equals, rest = text.partition("=")
        given_path = expanded(rest if equals else text)
        path = given_path if given_path.is_absolute() else base / given_path
        inside = None if given_path.is_absolute() or ".." in given_path.parts else base
        wanted = [slugify(name)] if equals else [_plain(path.name), _plain(f"{path.parent.name}-{path.name}")]
        unique = f"{wanted[0]}-{hashlib.sha256(str(path).encode('utf-8', 'replace')).hexdigest()[:6]}"
        chosen = next((name for name in (*wanted, unique) if name and name not in folders), None)
        if chosen and path not in [folder.path for folder in folders.values()]:
            folders[chosen] = CanonFolder(name=chosen, path=path, inside=inside)
    return list(folders.values())


class Canon:
    """The files of the canon folders as a source of units; `problems` is what was wrong with the last walk.

    What is `private` is memory, and never canon, whichever folder it lies in.

    `left_out` is what of the folders is not taken in, which a person is told when they sync, not when they search.
    """

    name = SourceName.CANON

    def __init__(
        self, folders: Sequence[CanonFolder], *, redact: Redact, max_files: int, private: Private = _NOTHING
    ) -> None:
        self.folders = folders
        self.problems: list[Problem] = []
        self.left_out: list[Problem] = []
        self._redact = redact
        self._max_files = max_files
        self._private = private
        self._names = Names()
        self._committed: dict[Path, dict[str, date]] = {}

    def files(self) -> Iterator[tuple[str, str]]:
        """Every note as (`<folder name>/<path>`, place)."""
        self.problems.clear()
        self.left_out.clear()
        self._names = Names()
        for folder in self.folders:
            if folder.inside and not _real(folder.path).is_relative_to(_real(folder.inside)):
                reason = f"leads out of {folder.inside}, so it is not read; name it by its absolute path"
                self.problems.append(Problem(path=str(folder.path), reason=reason))
                continue
            walk = Walk(
                root=folder.path, suffixes=SUFFIXES, max_files=self._max_files, problems=self.problems,
                left_out=self.left_out, private=self._private,
            )  # fmt: skip
            for path, file in walk.files():
                key = f"{folder.name}/{path}"
                self._names.add(key)
                yield key, file

    def read(self, key: str, file: Path) -> ReadDocument:
        """Return the unit of a note. Raises KnowledgeError if the file is not a note, OSError if unreadable."""
        text = self._redact(read_bytes(file))
        unit, problems = read_note(
            text, key=key, source=SourceName.CANON, names=self._names, modified=self._day(key, file)
        )
        return ReadDocument(units=(unit,), problems=problems)

    def _day(self, key: str, file: Path) -> date:
        """When a note changed last: by git where it is committed, for files have the day of their checkout."""
        name, _, path = key.partition("/")
        folder = next((folder.path for folder in self.folders if folder.name == name), None)
        if folder is None:
            return modified_day(file)
        if folder not in self._committed:
            self._committed[folder] = _committed_days(folder)
        return self._committed[folder].get(path) or modified_day(file)


def _committed_days(folder: Path) -> dict[str, date]:
    try:
        return git.last_commit_days(folder)
    except GitError:
        return {}


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # of links in a circle too


def _plain(name: str) -> str:
    """A folder's name as a part of refs: without what a ref or a terminal would take for something else."""
    kept = "".join(char if char.isalnum() or char in "._- " else "-" for char in name).strip(" .-")
    return kept[:80] or slugify(name)
