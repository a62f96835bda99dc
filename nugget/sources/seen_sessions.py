"""Which transcripts were read for provenance, so that what is unchanged is not read again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nugget.infra import files
from nugget.models import SessionFile

VERSION = 1
"""Of what the heuristics find. A session that an earlier version read is read again."""


@dataclass(slots=True)
class Seen:
    """What was read before, by locator: [size, mtime, version, workspaces, how].

    `how` is the method that it was extracted by, `nothing` where nothing is kept of it, empty where it was only looked
    at because it is of other workspaces.
    """

    file: Path
    entries: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, home: Path) -> Seen:
        """The memory of earlier runs, empty where there is none."""
        file = home / "provenance" / "seen.json"
        try:
            loaded = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError):
            loaded = {}
        entries = loaded if isinstance(loaded, dict) else {}
        return cls(file, {key: one for key, one in entries.items() if isinstance(one, list) and len(one) == 5})

    def workspaces(self, found: SessionFile) -> list[str] | None:
        """The workspaces of a session that is as it was when it was read; None where it has to be read."""
        entry = self.entries.get(found.locator)
        if entry is None or entry[:3] != [found.size, found.mtime, VERSION] or not isinstance(entry[3], list):
            return None
        return entry[3]

    def how(self, found: SessionFile) -> str:
        """How the session was extracted; empty where it was not."""
        entry = self.entries.get(found.locator)
        return str(entry[4]) if entry is not None else ""

    def note(self, found: SessionFile, workspaces: Iterable[str], *, how: str) -> None:
        """Remember a session as read."""
        self.entries[found.locator] = [found.size, found.mtime, VERSION, list(workspaces), how]

    def save(self) -> None:
        """Write the memory; a failure costs nothing but reading again."""
        with suppress(OSError):
            files.replace(self.file, json.dumps(self.entries).encode())
