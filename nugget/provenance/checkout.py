"""The files of a checkout and their SHA-256. Only files in question are read."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from nugget.infra import git
from nugget.infra.workspace import Workspace

MAX_HASHED_BYTES = 64 * 1024 * 1024
"""Larger files (generated, vendored) are not read for an answer: whether they changed stays unknown."""
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentFile:
    """A file as it is now; `hash` is None where it is there and cannot or need not be read."""

    exists: bool
    hash: str | None = None
    why_unread: str = ""


ABSENT = PresentFile(exists=False)


@dataclass(slots=True)
class Checkout:
    """The files of a workspace, by paths relative to it. A bare repository's are those of its HEAD."""

    workspace: Workspace
    is_bare: bool = field(init=False)
    """Whether there is a repository without a checkout."""
    _root: str = field(init=False)
    _files: dict[str, PresentFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._root = str(self.workspace.root)
        self.is_bare = self.workspace.common_dir is not None and not (self.workspace.root / ".git").exists()

    def exists(self, path: str) -> bool:
        """Return whether something is at a path now."""
        if self.is_bare:
            return self._tree_has(path)
        return os.path.lexists(f"{self._root}/{path}")  # asked for thousands of paths: a Path costs more than the look

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder now."""
        if path == "":
            return True
        if self.is_bare:
            return git.run(self.workspace.root, "cat-file", "-t", f"HEAD:{path}", check=False).strip() == b"tree"
        try:
            return S_ISDIR((self.workspace.root / path).stat().st_mode)
        except (OSError, ValueError):
            return False

    def file(self, path: str) -> PresentFile:
        """The file at a path now; read once, however often it is asked for."""
        if path not in self._files:
            self._files[path] = self._from_head(path) if self.is_bare else self._from_disk(path)
        return self._files[path]

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """Return the content of a file; None if it is missing, outside the workspace, or larger."""
        file = self.workspace.root / path
        try:
            stat = file.stat()
            if not S_ISREG(stat.st_mode) or stat.st_size > max_bytes or not _is_within(file, self.workspace.root):
                return None
            return file.read_bytes()
        except (OSError, ValueError):
            return None

    def _tree_has(self, path: str) -> bool:
        return bool(git.run(self.workspace.root, "cat-file", "-t", f"HEAD:{path}", check=False))

    def _from_head(self, path: str) -> PresentFile:
        content = git.read_blob(self.workspace.root, "HEAD", path)
        return ABSENT if content is None else PresentFile(exists=True, hash=hashlib.sha256(content).hexdigest())

    def _from_disk(self, path: str) -> PresentFile:
        file = self.workspace.root / path
        try:
            if not _is_within(file, self.workspace.root):
                return PresentFile(exists=True, why_unread="it leads out of the repository")
            stat = file.stat()
            if not S_ISREG(stat.st_mode):
                return PresentFile(exists=True, why_unread="it is no regular file")
            if stat.st_size > MAX_HASHED_BYTES:
                return PresentFile(exists=True, why_unread=f"it has {stat.st_size >> 20:,} MB")
            return PresentFile(exists=True, hash=_sha256(file))
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except (OSError, ValueError) as error:
            return PresentFile(exists=True, why_unread=f"it cannot be read ({error})")


def _is_within(file: Path, root: Path) -> bool:
    real, top = os.path.realpath(file), os.path.realpath(root)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
