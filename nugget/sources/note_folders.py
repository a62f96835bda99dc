"""Folders of notes: canon, which everyone may search, and memory, which belongs to one identity. Both are only read.

Canon is set in `canon.folders`: documents of a workspace, handbooks, vaults; an id is `<folder name>/<path in it>`.
Memory is `memory/<identity>/` under `$NUGGET_HOME` and in the brain and, if the identity is a coding agent, the agent's
instruction files: `CLAUDE.md` and auto-memory for `claude-code` (https://code.claude.com/docs/en/memory), `AGENTS.md`
for the agents that read it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from nugget.config import Environment, Settings, expanded
from nugget.errors import GitError, TranscriptError, UsageError
from nugget.infra import git
from nugget.models import Problem, SourceName
from nugget.sources import ReadDocument
from nugget.sources.files import list_folder
from nugget.sources.ignore_files import Private, Walk
from nugget.sources.notes import SUFFIXES, Names, Redact, modified_day, read_bytes, read_note
from nugget.sources.records import mapping_of, read_document
from nugget.text import slugify

_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_FILES = 5000

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonFolder:
    """A folder of canon, and the name by which its units are known."""

    name: str
    path: Path
    inside: Path | None = None
    """The folder that `path` may not leave, not even by a link."""


def canon_folders(given: Sequence[str], *, base: Path) -> list[CanonFolder]:
    """Parse `canon.folders`: paths, or `name=path`, relative ones from `base`.

    A folder without a name gets that of the last part of its path, with its parent's in front if that is taken.
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


def check_identity(text: str) -> str:
    """Return the identity if it is valid as a part of paths. Raises UsageError."""
    if not _IDENTITY.fullmatch(text) or ".." in text:
        raise UsageError(
            f"{text!r} cannot be an identity.",
            hint="Use 1 to 64 letters, digits, `-`, `_` and `.`, such as claude-code.",
        )
    return text


def private_places(environment: Environment, brain: Path | None) -> Private:
    """Return the places that are memory of any identity: no other source may read them."""
    folders = [
        environment.home / "memory",
        environment.claude_config / "projects",
        *([brain / "memory"] if brain else []),
    ]
    files = {Path(name).name.lower() for names in INSTRUCTIONS.values() for name in names}
    return Private(names=frozenset(files), folders=frozenset(map(os.path.realpath, folders)))


class _Notes:
    """Notes of some folders as a source of units, each with its key as id."""

    name: SourceName

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._names = Names()

    def read(self, key: str, file: Path) -> ReadDocument:
        """Return the unit of a note. Raises KnowledgeError if the file is not a note, OSError if unreadable."""
        text = self._redact(read_bytes(file))
        unit, problems = read_note(text, key=key, source=self.name, names=self._names, modified=self._day(key, file))
        return ReadDocument(units=(unit,), problems=problems)

    def _day(self, key: str, file: Path) -> date:
        return modified_day(file)


class Canon(_Notes):
    """The files of the canon folders, without what is `private`.

    `problems` of the last walk are reported with every search, `left_out` only when a person syncs.
    """

    name = SourceName.CANON

    def __init__(
        self, folders: Sequence[CanonFolder], *, redact: Redact, max_files: int, private: Private | None = None
    ) -> None:
        self.folders = folders
        self.problems: list[Problem] = []
        self.left_out: list[Problem] = []
        super().__init__(redact)
        self._max_files = max_files
        self._private = private or Private()
        self._committed: dict[Path, dict[str, date]] = {}

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield every note as (`<folder name>/<path>`, place)."""
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

    def _day(self, key: str, file: Path) -> date:
        """Return when a note was last committed, else its file's day: after a checkout, files have the day of that."""
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
    """Return a folder's name as a part of refs."""
    kept = "".join(char if char.isalnum() or char in "._- " else "-" for char in name).strip(" .-")
    return kept[:80] or slugify(name)


class Memory(_Notes):
    """The notes of one identity; their ids are `<identity>/<path>`."""

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
        super().__init__(redact)
        self.identity = check_identity(identity)
        self._environment = environment
        self._brain = brain
        self._workspaces = workspaces

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield every note as (`<identity>/<path>`, place), each once: `AGENTS.md` is often a link to `CLAUDE.md`."""
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
        for project in list_folder(config / "projects"):
            yield from self._walked(Path(project.path, "memory"), f"@project/{project.name}/")

    def _walked(self, root: Path, prefix: str) -> Iterator[tuple[str, Path]]:
        if not root.is_dir():
            return
        walk = Walk(root=root, suffixes=SUFFIXES, max_files=_MAX_FILES)
        for path, file in walk.files():
            yield f"{prefix}{path}", Path(file)

    def _known_workspaces(self) -> list[Path]:
        """Return the given workspaces, then those that Claude Code has been used in."""
        user_home = Path(self._environment.variables.get("HOME") or Path.home())
        beside = self._environment.claude_config / ".claude.json"
        named = _projects_of(beside if beside.is_file() else user_home / ".claude.json")
        return [folder for folder in dict.fromkeys([*self._workspaces, *named]) if folder.is_dir()]


def _projects_of(client_file: Path) -> list[Path]:
    """Return the folders that Claude Code's own file lists."""
    try:
        projects = mapping_of((read_document(client_file) or {}).get("projects"))
    except TranscriptError:
        return []
    return [Path(name) for name in projects if os.path.isabs(name)]  # noqa: PTH117


def _present(places: Iterable[tuple[str, Path]], *, below: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Return the files that exist, by their path below a folder, else by their name."""
    for prefix, file in places:
        if file.is_file():
            yield f"{prefix}{file.relative_to(below).as_posix() if below else file.name}", file


def _short_name(folder: Path) -> str:
    """Return a workspace's name with a few digits that tell it from others of that name."""
    digest = hashlib.sha256(str(folder).encode("utf-8", "replace")).hexdigest()[:6]
    return f"{slugify(folder.name or 'root')}-{digest}"


def redacting(settings: Settings) -> Callable[[str], str]:
    """Return a function that removes secrets from a text. The rules are loaded when it is first called."""

    def redact_text(text: str) -> str:
        from nugget.redaction import allow_list, redact

        return redact(text, allow=allow_list(settings)).text

    return redact_text


def open_canon(environment: Environment, settings: Settings, brain: Path) -> Canon:
    """Return the folders of canon that the settings name, without what is memory."""
    folders = canon_folders(settings.canon.folders, base=brain)
    private = private_places(environment, brain)
    return Canon(folders, redact=redacting(settings), max_files=settings.canon.max_files, private=private)
