"""Which workspaces a session worked in: those of its folders, and those of the files that it edited."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from nugget.infra.workspace import Workspace, find_workspace, vanished_workspace
from nugget.models import EventKind, Session
from nugget.sources.nugget_store import known_workspaces


@dataclass(slots=True)
class WorkspaceFinder:
    """Finds the workspaces of folders, each asked of git once."""

    home: Path
    found: dict[str, Workspace] = field(default_factory=dict)
    by_top: dict[Path, Workspace] = field(default_factory=dict)
    roots: dict[str, str] | None = None

    def of_folder(self, folder: str) -> Workspace:
        """The workspace of a folder, there or gone."""
        if folder not in self.found:
            self.found[folder] = self._ask(Path(folder))
        return self.found[folder]

    def of_session(self, session: Session) -> dict[str, list[Workspace]]:
        """The workspaces that a session worked in, each with its checkouts; that of its own folder first.

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
        top = _top(folder)
        if top is not None and top in self.by_top:
            return self.by_top[top]
        if self.roots is None:
            self.roots = known_workspaces(self.home)
        place = find_workspace(folder)
        if place is None:
            place = vanished_workspace(folder)
            known = next((one for one in (folder, *folder.parents) if str(one) in self.roots), None)
            if known is not None and place.common_dir is None:
                place = replace(place, identity=self.roots[str(known)], root=known, name=known.name)
        if top is not None and place.root == top:
            self.by_top[top] = place
        return place


def _top(folder: Path) -> Path | None:
    """The nearest folder upwards that holds a `.git`, without asking git."""
    try:
        return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    except OSError:
        return None
