"""The workspace of a path, and the present state of its files: SHA-256, renames, definitions, and stale nuggets.

Sessions record the renames that they make; git knows the others. It is asked only if the path of a nugget is gone, and
only as far back as the first session.

A stale nugget is still returned, flagged with the first reason that holds, and penalised:

- `file_changed`: the file's SHA-256 is not the one that the session left, or the file is gone. This does
  not apply to a nugget without a recorded hash (of a folder, the workspace, or a file that the session deleted).
- `superseded`: a later session has a nugget of the same path, symbol and type. Nuggets of one session or of the whole
  workspace do not supersede each other.
- `expired`: its last day has passed.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path

from nugget.config import expanded
from nugget.errors import GitError, UsageError
from nugget.extraction.places import GRAMMARS, definition_reader, read_inside
from nugget.index.embedded import provenance as stored
from nugget.infra import git
from nugget.infra.workspace import Workspace, find_workspace, relative_path
from nugget.models import StaleReason
from nugget.models.nuggets import Nugget, ScopeMatch
from nugget.text import content_hash

MAX_HASHED_BYTES = 64 * 1024 * 1024
"""Larger files (generated, vendored) are not read, so whether they changed stays unknown."""
_GIT_TIMEOUT_S = 5.0
"""The time limit for reading a history; beyond it, renames stay unknown."""
_RENAMES_ONLY = ("--diff-filter=R", "-M", "-l2000", "--name-status", "-z")


@dataclass(slots=True)
class Checkout:
    """The files of a workspace, by paths relative to it; none for a bare repository."""

    workspace: Workspace
    _hashes: dict[str, str | None] = field(default_factory=dict)

    @property
    def is_bare(self) -> bool:
        """True if the repository is bare."""
        return self.workspace.common_dir is not None and not (self.workspace.root / ".git").exists()

    def exists(self, path: str) -> bool:
        """Return whether a path exists now."""
        return os.path.lexists(f"{self.workspace.root}/{path}") or self.is_bare  # a Path is slow for thousands

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder now."""
        return path == "" or os.path.isdir(f"{self.workspace.root}/{path}")  # noqa: PTH112

    def hash_of(self, path: str) -> str | None:
        """Return the SHA-256 of the file at a path now, None if unknown; each file is read once."""
        if path not in self._hashes:
            content = self.read(path, max_bytes=MAX_HASHED_BYTES)
            self._hashes[path] = None if content is None else content_hash(content)
        return self._hashes[path]

    def git(self, *command: str, stdin: bytes | None = None, check: bool = False) -> str | None:
        """Return the output of git here, or None if this is not a repository, or git fails or takes too long."""
        with suppress(GitError):
            if self.workspace.common_dir is not None:
                output = git.run(self.workspace.root, *command, check=check, timeout_s=20, stdin=stdin)
                return os.fsdecode(output)
        return None

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """Return the content of a file; None if it is missing, outside the workspace, or larger."""
        return read_inside(self.workspace.root, path, max_bytes=max_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a checkout as it is now; `aliases` map old paths to present ones.

    Its path is '' for the root of the checkout, None for no place.
    """

    connection: sqlite3.Connection
    checkout: Checkout
    path: str | None = None
    is_folder: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> str:
        """Identity of the workspace."""
        return self.checkout.workspace.identity

    def names(self, present: str) -> list[str]:
        """Return all paths that a file has had, its present one first."""
        return [present, *(old for old, now in self.aliases.items() if now == present)]

    def match(self, path: str) -> ScopeMatch:
        """Return the relation of a scope to the place; the empty path is the whole workspace.

        Above and below count alike: nuggets of a folder explain its files, and nuggets of files explain their folder.
        """
        here, scoped = self.path, self.aliases.get(path, path)
        if here is None:
            return ScopeMatch.ELSEWHERE
        if not scoped:
            return ScopeMatch.EXACT if here == "" else ScopeMatch.WORKSPACE
        if here == scoped:
            return ScopeMatch.EXACT
        if here == "" or here.startswith(f"{scoped}/") or scoped.startswith(f"{here}/"):
            return ScopeMatch.DIRECTORY
        if not self.is_folder and here.rpartition("/")[0] == scoped.rpartition("/")[0]:
            return ScopeMatch.SAME_DIRECTORY
        return ScopeMatch.ELSEWHERE

    def stale_reason(self, nugget: Nugget, today: date) -> StaleReason | None:
        """Return the reason why a nugget is stale, None if it is not."""
        path = nugget.scope.path or ""
        present = self.aliases.get(path, path)
        is_same = self.checkout.exists(present) and self.checkout.hash_of(present) in (None, nugget.file_hash)
        if nugget.file_hash and path and not is_same:
            return StaleReason.FILE_CHANGED
        if path and stored.has_newer(self.connection, self.workspace, nugget, self.names(present)):
            return StaleReason.SUPERSEDED
        return StaleReason.EXPIRED if nugget.stale_after is not None and nugget.stale_after < today else None


def find_workspace_of(
    path: str | None, *, folder: Path, is_known: Callable[[str], bool]
) -> tuple[Workspace, str | None]:
    """Return the workspace of `path` and the path relative to it; without a path that of `folder`.

    A relative path starts at `folder`. The innermost repository of the path counts (a submodule, not its parent),
    unless only the repository of `folder` has known sessions. Raises UsageError for a path outside any workspace.
    """
    own = find_workspace(folder, is_known=is_known)
    if path is None:
        return own, None
    if "\0" in path or not path.strip():
        raise UsageError("The path is empty or holds a NUL.", hint="Give a file or folder of a repository.")
    whole = Path(os.path.normpath(Path(folder, expanded(path))))
    there = next(place for place in (whole, *whole.parents) if os.path.isdir(place))  # noqa: PTH112 (is_dir raises for a long name)
    fallback: tuple[Workspace, str] | None = None
    for found in (find_workspace(there, is_known=is_known), own):
        is_root = os.path.realpath(whole) == os.path.realpath(found.root)
        relative = "" if is_root else relative_path(found, str(whole))
        if relative is not None and is_known(found.identity):
            return found, relative
        if relative is not None and (found.common_dir is not None or found.identity == own.identity):
            fallback = fallback or (found, relative)
    if fallback is None:
        hint = "Change to its repository, or give its path from there."
        raise UsageError(f"{path} is outside of the workspace {own.name} ({own.root}).", hint=hint)
    return fallback


def follow_renames(connection: sqlite3.Connection, checkout: Checkout, paths: Iterable[str]) -> dict[str, str]:
    """Return old path -> present path of those that were renamed, without deleted ones."""
    gone = [path for path in dict.fromkeys(paths) if not checkout.exists(path)]
    if not gone:
        return {}
    pairs = stored.touched_renames(connection, checkout.workspace.identity)
    found = _resolve(gone, pairs, checkout)
    if checkout.workspace.common_dir is not None and len(found) < len(gone):
        found = _resolve(gone, [*pairs, *_committed_renames(connection, checkout)], checkout)
    return found


def _resolve(gone: Sequence[str], pairs: Sequence[tuple[str, str]], checkout: Checkout) -> dict[str, str]:
    """Follow each path through the renames to an existing one; `pairs` are oldest first."""
    steps = dict(pairs)
    found: dict[str, str] = {}
    for path in gone:
        seen, now = {path}, steps.get(path)
        while now is not None and now not in seen and not checkout.exists(now):
            seen.add(now)
            now = steps.get(now)
        if now is not None and now not in seen:
            found[path] = now
    return found


def _committed_renames(connection: sqlite3.Connection, checkout: Checkout) -> list[tuple[str, str]]:
    """Return the renames in the history since the first session, oldest first."""
    root = checkout.workspace.root
    earliest = stored.earliest_session(connection, checkout.workspace.identity)
    try:
        head = git.head(root)
        return _renames_until(root, head, earliest.isoformat() if earliest else "") if head else []
    except GitError:
        return []


@lru_cache(maxsize=32)
def _renames_until(root: Path, head: str, since: str) -> list[tuple[str, str]]:
    """Return (old, new) of each `R<score> NUL old NUL new NUL`. Format: git-log(1), --name-status -z."""
    limit = [f"--since={since}"] if since else []
    output = git.run(root, "log", "--reverse", "--format=", *_RENAMES_ONLY, *limit, head, timeout_s=_GIT_TIMEOUT_S)
    tokens = iter(os.fsdecode(output).split("\0"))
    return [(next(tokens, ""), next(tokens, "")) for token in tokens if token.lstrip("\n").startswith("R")]


MAX_FILE_BYTES = 2_000_000
MAX_FILES = 200
"""The most files with the name that are parsed if no file is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A definition of a symbol; lines count from 1. `inner` are the names that are defined inside it."""

    path: str
    name: str
    kind: str
    first_line: int
    last_line: int
    inner: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = f"{self.first_line}-{self.last_line}" if self.last_line > self.first_line else str(self.first_line)
        return f"{self.path}:{lines} ({self.kind} {self.name})"


def is_symbol(name: str) -> bool:
    """Return True for a text that can name a symbol: `login`, `Session.refresh`, `Session::refresh`."""
    return re.fullmatch(r"[\w$.:#?!~]{1,200}", name) is not None and bool(_parts(name))


def find_definitions(checkout: Checkout, name: str, path: str | None = None) -> list[Definition]:
    """Return the definitions of a symbol in a file, below a folder, or (`path` None or empty) in the whole workspace.

    A dotted name includes its parents: `Session.refresh`. Sorted by path and line; unparsable files have none.
    """
    is_file, wanted = path and not checkout.is_folder(path), _parts(name)
    found: list[Definition] = []
    for file in [path] if path and is_file else _paths_with(checkout, wanted[-1], path or ".")[:MAX_FILES]:
        content = checkout.read(file, max_bytes=MAX_FILE_BYTES) or b""
        read = definition_reader(file) if wanted and wanted[-1].encode() in content else None
        everything = list(read(content)) if read else []
        found += [
            Definition(
                path=file, name=".".join(names), kind=kind, first_line=first, last_line=last,
                inner=tuple(dict.fromkeys(
                    other[-1] for other, *_ in everything if len(other) > len(names) and other[: len(names)] == names
                )),
            )
            for names, kind, first, last in everything
            if names[-len(wanted) :] == wanted
        ]  # fmt: skip
    return found


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"\.|::|#", name) if part)


def _paths_with(checkout: Checkout, word: str, folder: str) -> list[str]:
    """Return the files of known languages below a folder that contain a word, sorted."""
    where = ["--untracked"] if checkout.workspace.common_dir is not None else ["--no-index", "--exclude-standard"]
    command = ["grep", "-l", "-z", "-I", "--fixed-strings", *where, "-e", word, "--", folder]
    try:
        output = git.run(checkout.workspace.root, *command, check=False, timeout_s=10)
    except GitError:
        return []
    return sorted(path for path in os.fsdecode(output).split("\0") if path.lower().endswith(tuple(GRAMMARS)))
