"""The files of a checkout as they are now: their SHA-256, where renamed ones have gone, which nuggets are stale.

Sessions record the renames that they make; git knows the others. Git is asked only if a path that nuggets are scoped to
is not there any more, only as far back as the first session, and only for the commits since the last time.

A stale nugget is still returned, flagged with the first reason that holds, and penalised:

- `file_changed`: the file's SHA-256 is not the one that the session left, or the file is gone. A nugget without a
  recorded hash (of a folder, of the whole workspace, of a file that the session deleted) is not judged by it.
- `superseded`: a later session has a nugget of the same path, symbol and type. What one session says several times of
  a file stands side by side, and nuggets of the whole workspace do not supersede each other.
- `expired`: the day after which it was to be doubted has passed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from nugget.errors import GitError
from nugget.index import provenance as stored
from nugget.index.connection import write_transaction
from nugget.index.provenance import BriefNugget
from nugget.infra import git
from nugget.infra.workspace import Workspace
from nugget.models import StaleReason

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
        """Return the file at a path now; read once, however often it is asked for."""
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


TIMEOUT_S = 5.0
"""A history that takes longer to look through is given up; renames then stay unknown."""
_RENAME_LIMIT = "-l2000"
_IN_NAME_STATUS = ("--diff-filter=R", "-M", _RENAME_LIMIT, "--name-status", "-z")


def follow_renames(
    connection: sqlite3.Connection, checkout: Checkout, scoped: Iterable[str], *, asked: str | None = None
) -> dict[str, str]:
    """Return old path -> present path of files that were renamed; deleted files are not in it.

    `scoped` are the paths that nuggets are about; `asked` is the one that a question is about, which may be old too.
    """
    gone = [path for path in scoped if not checkout.exists(path)]
    if asked and asked not in gone and not checkout.exists(asked):
        gone.append(asked)
    if not gone:
        return {}
    identity = checkout.workspace.identity
    pairs = stored.touched_renames(connection, identity)
    found = _resolve(gone, pairs, checkout)
    if checkout.workspace.common_dir is not None and (left := [path for path in gone if path not in found]):
        found |= _resolve(left, [*pairs, *_committed(connection, checkout)], checkout)
        if left := [path for path in gone if path not in found]:
            found |= _resolve(left, [*_staged(checkout)], checkout)
    return found | _moved_unnoticed([path for path in gone if path not in found], connection, checkout, asked)


def _resolve(gone: Sequence[str], pairs: Sequence[tuple[str, str]], checkout: Checkout) -> dict[str, str]:
    """Follow each path from rename to rename until it is there. `pairs` are oldest first."""
    steps: Mapping[str, str] = dict(pairs)
    found: dict[str, str] = {}
    for path in gone:
        seen, now = {path}, steps.get(path)
        while now is not None and now not in seen:
            if checkout.exists(now):
                found[path] = now
                break
            seen.add(now)
            now = steps.get(now)
    return found


def _moved_unnoticed(
    gone: Sequence[str], connection: sqlite3.Connection, checkout: Checkout, asked: str | None
) -> dict[str, str]:
    """Files that are gone and whose very content is at the asked path now: moved, and nobody has told git yet."""
    if not gone or not asked or (present := checkout.file(asked).hash) is None:
        return {}
    same = stored.paths_with_hash(connection, checkout.workspace.identity, present)
    return {path: asked for path in gone if path in same}


def _committed(connection: sqlite3.Connection, checkout: Checkout) -> list[tuple[str, str]]:
    """Return the renames in the history since the first session, remembered from one time to the next."""
    root, identity = checkout.workspace.root, checkout.workspace.identity
    known_head, known_since, known = stored.known_renames(connection, identity)
    earliest: datetime | None = stored.earliest_session(connection, identity)
    since = (earliest.isoformat() if earliest else known_since) or ""
    try:
        head = git.head(root)
        if head is None or (head == known_head and known_since is not None and known_since <= since):
            return known
        is_ahead = (
            known_head and known_since is not None and known_since <= since and _is_ancestor(checkout, known_head)
        )
        span = f"{known_head}..{head}" if is_ahead else head
        arguments = ("log", "--reverse", "--format=", *_IN_NAME_STATUS, *([f"--since={since}"] if since else []), span)
        fresh = list(_pairs(git.run(root, *arguments, timeout_s=TIMEOUT_S)))
    except GitError:
        return known
    renames = [*known, *fresh] if is_ahead else fresh
    try:
        with write_transaction(connection):
            stored.put_renames(connection, identity, head=head, since=since, renames=renames)
    except sqlite3.Error:
        pass  # looked for again next time
    return renames


def _is_ancestor(checkout: Checkout, commit: str) -> bool:
    found = git.run(checkout.workspace.root, "merge-base", commit, "HEAD", check=False).decode().strip()
    return found == commit


def _staged(checkout: Checkout) -> Iterator[tuple[str, str]]:
    """Renames that are staged and not committed yet."""
    if checkout.is_bare:
        return
    try:
        yield from _pairs(
            git.run(checkout.workspace.root, "diff", "--cached", *_IN_NAME_STATUS, "HEAD", check=False,
                    timeout_s=TIMEOUT_S)
        )  # fmt: skip
    except GitError:
        return


def _pairs(output: bytes) -> Iterator[tuple[str, str]]:
    """(old, new) of each `R<score> NUL old NUL new NUL`. Format: git-log(1), --name-status -z."""
    tokens = iter(token.lstrip(b"\n") for token in output.split(b"\0"))
    for token in tokens:
        if token.startswith(b"R") and token[1:].isdigit():
            old, new = next(tokens, b""), next(tokens, b"")
            if old and new:
                yield os.fsdecode(old), os.fsdecode(new)


def stale_reason(
    nugget: BriefNugget,
    *,
    connection: sqlite3.Connection,
    checkout: Checkout,
    present_path: str,
    names: Sequence[str],
    today: date,
) -> StaleReason | None:
    """Return the reason why a nugget is stale, None if it is not.

    `present_path` is where its file is now, `names` are all paths that the file has had.
    """
    if nugget.file_hash and nugget.path:
        present = checkout.file(present_path)
        if not present.exists or (present.hash is not None and present.hash != nugget.file_hash):
            return StaleReason.FILE_CHANGED
    if nugget.path and stored.has_newer(connection, checkout.workspace.identity, nugget, names):
        return StaleReason.SUPERSEDED
    if nugget.stale_after is not None and nugget.stale_after < today:
        return StaleReason.EXPIRED
    return None
