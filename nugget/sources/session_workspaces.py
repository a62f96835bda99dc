"""Find the workspaces that a session worked in, and remember which sessions were read for provenance."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nugget.infra import files
from nugget.infra.workspace import Workspace, find_workspace, vanished_workspace
from nugget.models import EventKind, Session, SessionFile
from nugget.sources.files import parse_record
from nugget.sources.nugget_store import known_workspaces

VERSION = 1
"""Version of what the heuristics find. A session that an earlier version read is read again."""


@dataclass(slots=True)
class WorkspaceFinder:
    """Find the workspaces of folders, asking git once for each."""

    home: Path
    found: dict[str, Workspace] = field(default_factory=dict)
    roots: dict[str, str] | None = None

    def of_folder(self, folder: str) -> Workspace:
        """Return the workspace of a folder, even if the folder is gone."""
        top = str((_top(Path(folder)) if Path(folder).is_dir() else None) or folder)  # git is asked once a repository
        if top not in self.found:
            self.found[top] = self._ask(Path(top))
        return self.found[top]

    def of_session(self, session: Session) -> dict[str, list[Workspace]]:
        """Return the workspaces that a session worked in with their checkouts, that of its own folder first.

        Files that it edited in another repository count, whether it ever went there or not.
        """
        folders = list(dict.fromkeys(filter(None, (session.cwd, *session.folders))))
        for event in session.events:
            if event.kind is EventKind.FILE_EDIT and event.path and event.ok is not False:
                beside = Path(event.path).parent
                if beside.is_absolute() and (top := _top(beside)) is not None:
                    folders.append(str(top))
        grouped: dict[str, list[Workspace]] = {}
        for folder in dict.fromkeys(folders):
            place = self.of_folder(folder)
            checkouts = grouped.setdefault(place.identity, [])
            if all(place.root != one.root for one in checkouts):
                checkouts.append(place)
        return grouped

    def _ask(self, folder: Path) -> Workspace:
        if (place := find_workspace(folder)) is not None:
            return place
        if self.roots is None:
            self.roots = known_workspaces(self.home)
        place = vanished_workspace(folder)
        known = next((one for one in (folder, *folder.parents) if str(one) in self.roots), None)
        if known is None or place.common_dir is not None:
            return place
        return replace(place, identity=self.roots[str(known)], root=known, name=known.name)


def _top(folder: Path) -> Path | None:
    """Return the nearest folder upwards that holds a `.git`."""
    try:
        return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    except OSError:
        return None


@dataclass(slots=True)
class SeenSessions:
    """The sessions read for provenance, by locator: [size, mtime, version, workspaces, how].

    `how` is the method of extraction, `nothing` if nothing is kept of the session, empty if it is of other workspaces.
    """

    file: Path
    entries: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, home: Path) -> SeenSessions:
        """Load the state of earlier runs, empty at first."""
        file = home / "provenance" / "seen.json"
        try:
            entries = parse_record(file.read_bytes()) or {}
        except OSError:
            entries = {}
        return cls(file, {key: one for key, one in entries.items() if isinstance(one, list) and len(one) == 5})

    def find(self, found: SessionFile) -> tuple[list[str] | None, str]:
        """Return the workspaces of a session and how it was extracted; None if it has to be read (again)."""
        entry = self.entries.get(found.locator)
        if entry is None or entry[:3] != [found.size, found.mtime, VERSION] or not isinstance(entry[3], list):
            return None, ""
        return entry[3], str(entry[4])

    def note(self, found: SessionFile, workspaces: Iterable[str], *, how: str) -> None:
        """Remember a session as read."""
        self.entries[found.locator] = [found.size, found.mtime, VERSION, list(workspaces), how]

    def save(self) -> None:
        """Write the state; after a failure the sessions are read again."""
        with suppress(OSError):
            files.replace(self.file, json.dumps(self.entries).encode())
