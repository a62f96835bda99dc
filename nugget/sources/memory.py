"""Memory: the private notes of one agent, read for that agent alone.

An identity owns `memory/<identity>/` under `$NUGGET_HOME` and in the brain, and, where it is the name of a coding
agent, the instruction files of that agent: `CLAUDE.md` and auto-memory for `claude-code`, `AGENTS.md` for the agents
that read it. The files of Claude Code: https://code.claude.com/docs/en/memory. Nothing is ever written there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nugget.config import Environment
from nugget.errors import UsageError
from nugget.models import SourceName
from nugget.sources.documents import ReadDocument
from nugget.sources.ignore_files import Private, Walk
from nugget.sources.notes import SUFFIXES, Names, Redact, modified_day, read_bytes, read_note
from nugget.text import slugify

_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_FILES = 5000
_MAX_CLIENT_BYTES = 64_000_000

CLAUDE_CODE = "claude-code"
INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    CLAUDE_CODE: ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md"),
    "codex": ("AGENTS.md",),
    "gemini-cli": ("GEMINI.md", "AGENTS.md"),
    "cursor": ("AGENTS.md",),
    "opencode": ("AGENTS.md",),
    "copilot-cli": (".github/copilot-instructions.md", "AGENTS.md"),
}
"""The instruction files at the top of a workspace, by the agent that reads them."""

_OF_USER: Mapping[str, tuple[str, ...]] = {
    "codex": (".codex/AGENTS.md",),
    "gemini-cli": (".gemini/GEMINI.md",),
    "opencode": (".config/opencode/AGENTS.md",),
}


def check_identity(text: str) -> str:
    """The identity, if it can be one. Raises UsageError: it becomes a part of paths, and may not lead elsewhere."""
    if not _IDENTITY.fullmatch(text) or ".." in text:
        raise UsageError(
            f"{text!r} cannot be an identity.",
            hint="Use 1 to 64 letters, digits, `-`, `_` and `.`, such as claude-code.",
        )
    return text


def private_places(environment: Environment, brain: Path | None) -> Private:
    """Return the places that are memory, of whichever identity: no other source may read them."""
    folders = [
        environment.home / "memory",
        environment.claude_config / "projects",
        *([brain / "memory"] if brain else []),
    ]
    files = {Path(name).name.lower() for names in INSTRUCTIONS.values() for name in names}
    return Private(names=frozenset(files), folders=frozenset(map(os.path.realpath, folders)))


class Memory:
    """The notes of one identity as a source of units: their ids are `<identity>/<path>`."""

    name = SourceName.MEMORY

    def __init__(
        self,
        identity: str,
        environment: Environment,
        *,
        redact: Redact,
        brain: Path | None = None,
        workspaces: Sequence[Path] = (),
    ) -> None:
        self.identity = check_identity(identity)
        self._environment = environment
        self._redact = redact
        self._brain = brain
        self._workspaces = workspaces
        self._names = Names()

    def files(self) -> Iterator[tuple[str, Path]]:
        """Every note as (`<identity>/<path>`, place), each once: an `AGENTS.md` is often a link to the `CLAUDE.md`."""
        self._names = Names()
        seen: set[str | tuple[int, int]] = set()
        for path, file in self._places():
            key = f"{self.identity}/{path}"
            try:
                state = file.stat()
            except OSError:
                continue  # gone since its folder was listed
            same = (state.st_dev, state.st_ino)
            if key not in seen and same not in seen:
                seen |= {key, same}
                self._names.add(key)
                yield key, file

    def read(self, key: str, file: Path) -> ReadDocument:
        """Return the unit of a note. Raises KnowledgeError if the file is not a note, OSError if unreadable."""
        text = self._redact(read_bytes(file))
        unit, problems = read_note(
            text, key=key, source=SourceName.MEMORY, names=self._names, modified=modified_day(file)
        )
        return ReadDocument(units=(unit,), problems=problems)

    def _places(self) -> Iterator[tuple[str, Path]]:
        yield from self._walked(self._environment.home / "memory" / self.identity, "")
        if self._brain:
            yield from self._walked(self._brain / "memory" / self.identity, "@brain/")
        user_home = Path(self._environment.variables.get("HOME") or Path.home())
        yield from _present([("@user/", user_home / name) for name in _OF_USER.get(self.identity, ())])
        if self.identity == CLAUDE_CODE:
            yield from self._of_claude()
        for folder in self._known_workspaces() if self.identity in INSTRUCTIONS else ():
            prefix = f"@workspace/{_short_name(folder)}/"
            yield from _present([(prefix, folder / name) for name in INSTRUCTIONS[self.identity]], below=folder)
            if self.identity == CLAUDE_CODE:
                yield from self._walked(folder / ".claude" / "rules", f"{prefix}.claude/rules/")

    def _of_claude(self) -> Iterator[tuple[str, Path]]:
        config = self._environment.claude_config
        yield from _present([("@user/", config / "CLAUDE.md")])
        yield from self._walked(config / "rules", "@user/rules/")
        for project in _folders(config / "projects"):
            yield from self._walked(project / "memory", f"@project/{project.name}/")

    def _walked(self, root: Path, prefix: str) -> Iterator[tuple[str, Path]]:
        if not root.is_dir():
            return
        walk = Walk(root=root, suffixes=SUFFIXES, max_files=_MAX_FILES)
        for path, file in walk.files():
            yield f"{prefix}{path}", Path(file)

    def _known_workspaces(self) -> list[Path]:
        """The given ones, then those that Claude Code has been used in."""
        user_home = Path(self._environment.variables.get("HOME") or Path.home())
        beside = self._environment.claude_config / ".claude.json"
        named = _projects_of(beside if beside.is_file() else user_home / ".claude.json")
        return [folder for folder in dict.fromkeys([*self._workspaces, *named]) if folder.is_dir()]


def _projects_of(client_file: Path) -> list[Path]:
    """The folders that Claude Code's own file lists; nothing else of that file is looked at."""
    with suppress(OSError, ValueError, RecursionError):
        if client_file.stat().st_size <= _MAX_CLIENT_BYTES:
            told = json.loads(client_file.read_text("utf-8", "replace"))
            projects = told.get("projects") if isinstance(told, dict) else None
            return [Path(name) for name in projects if os.path.isabs(name)] if isinstance(projects, dict) else []  # noqa: PTH117
    return []


def _present(places: Iterable[tuple[str, Path]], *, below: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Return the files that exist, by their path below a folder, else by their name."""
    for prefix, file in places:
        if file.is_file():
            yield f"{prefix}{file.relative_to(below).as_posix() if below else file.name}", file


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(entry for entry in parent.iterdir() if entry.is_dir())
    except OSError:
        return []


def _short_name(folder: Path) -> str:
    """A workspace's name with a few digits that tell it from others of that name."""
    digest = hashlib.sha256(str(folder).encode("utf-8", "replace")).hexdigest()[:6]
    return f"{slugify(folder.name or 'root')}-{digest}"
