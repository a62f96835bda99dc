"""What git and the disk show of the files that a session changed: nothing is believed of a command's words alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from nugget.errors import GitError
from nugget.extraction.shell_changes import ShellChange
from nugget.infra import git
from nugget.infra.git import CommittedChange, commit_before, committed_between, committed_in
from nugget.infra.workspace import Workspace
from nugget.models import Session
from nugget.text import MAX_HASHED_CHARS, content_hash

MAX_DELETED = 200
"""Files below one deleted folder that are taken up."""
_SLACK = timedelta(minutes=2)
"""How long after the last event of a session its work may reach the disk or a commit."""


@dataclass(slots=True)
class Traces:
    """What is known of a workspace's files before, at and after a session. Empty where the repository is gone."""

    root: Path | None = None
    repo: Path | None = None
    ended: datetime | None = None
    started: datetime | None = None
    knows_start: bool = False
    held: dict[str, str] = field(default_factory=dict)
    committed: dict[str, CommittedChange] = field(default_factory=dict)
    contents: dict[str, bytes | None] = field(default_factory=dict)

    @classmethod
    def gather(
        cls,
        session: Session,
        roots: Sequence[Workspace],
        *,
        paths: Collection[str],
        changes: Sequence[ShellChange],
        needs_period: bool = False,
    ) -> Traces:
        """Ask git once for all `paths` and for what the commands `changes` name.

        What was committed meanwhile is asked for where there are `changes`, or where `needs_period` says so.
        """
        root = next((one for one in roots if one.root.is_dir()), None)
        if root is None:
            return cls()
        repo = root.root if root.common_dir is not None else None
        traces = cls(root=root.root, repo=repo, started=session.started, ended=session.ended)
        named = {path for one in changes for path in (one.path, one.previous) if path}
        if repo is None or not (paths or named or needs_period) or session.started is None or session.ended is None:
            return traces
        try:
            base = commit_before(repo, session.started)
            if base is not None:
                traces.knows_start = True
                wanted = tuple(sorted(named | set(paths)))
                traces.held = git.files_at(repo, base, under=wanted, check=False) if wanted else {}
            if named or needs_period:
                period = committed_between(repo, session.started, session.ended + _SLACK)
                traces.committed = {change.path: change for change in period}
        except GitError:
            return traces
        return traces

    def content_before(self, path: str) -> bytes | None:
        """What the last commit before the session held at a path."""
        return self._blob(self.held.get(path))

    def hash_before(self, path: str) -> str | None:
        """The SHA-256 of what the last commit before the session held at a path."""
        content = self.content_before(path)
        return None if content is None else content_hash(content)

    def hash_after(self, path: str) -> str | None:
        """The SHA-256 of a file as the session left it: as committed meanwhile, else as the disk still holds it."""
        change = self.committed.get(path)
        if change is not None and change.after is not None:
            return self.blob_hash(change.after)
        file = self._file(path)
        return _hash_of(file) if file is not None and self._was_written_in_time(file) else None

    def hash_now(self, path: str) -> str | None:
        """The SHA-256 of what the disk holds at a path."""
        file = self._file(path)
        return _hash_of(file) if file is not None else None

    def blob_hash(self, blob: str | None) -> str | None:
        """The SHA-256 of a blob's content."""
        content = self._blob(blob)
        return None if content is None else content_hash(content)

    def as_on_disk(self, path: str, hash_: str | None) -> str | None:
        """The hash of the file's bytes where the disk holds what was hashed, but with a mark or other line ends."""
        file = self._file(path)
        if hash_ is None or file is None:
            return hash_
        try:
            raw = file.read_bytes() if file.stat().st_size <= MAX_HASHED_CHARS else b""
        except OSError:
            return hash_
        plain = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
        return content_hash(raw) if plain != raw and content_hash(plain) == hash_ else hash_

    def shows(self, change: ShellChange) -> bool:
        """Whether a write is to be seen: committed meanwhile, or on disk since; without a disk, what it wrote tells."""
        if change.path in self.committed:
            return self.committed[change.path].after is not None
        file = self._file(change.path)
        if change.content is not None:
            return self.root is None or file is not None
        return file is not None and self._was_written_in_time(file)

    def deleted(self, path: str, *, tracked: Collection[str]) -> list[str]:
        """The files at or below a path that were there before, or made by the session, and are gone."""
        below = [name for name in (*self.held, *tracked) if name == path or name.startswith(f"{path}/")]
        gone = [name for name in dict.fromkeys(below) if self.root is None or self._file(name) is None]
        return gone[:MAX_DELETED]

    def moved(self, source: str, target: str, *, tracked: Collection[str]) -> str | None:
        """Where a file went, None where it cannot be seen that it was moved."""
        if source not in self.held and source not in tracked:
            return None
        if self.root is None:
            return target
        name = source.rpartition("/")[2]
        candidates = (target, f"{target}/{name}")
        there = [one for one in candidates if self._file(one) is not None or one in self.committed]
        return there[0] if there and self._file(source) is None else None

    def committed_in(self, commits: Sequence[str]) -> list[CommittedChange]:
        """What these commits changed, as far as they are still there."""
        try:
            return committed_in(self.repo, commits) if self.repo is not None else []
        except GitError:
            return []

    @staticmethod
    def text(content: bytes | None) -> str | None:
        """A content as text; None where it is none."""
        if content is None or b"\0" in content[:8000]:
            return None
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            return None

    def _blob(self, blob: str | None) -> bytes | None:
        if blob is None or self.repo is None:
            return None
        if blob not in self.contents:
            try:
                wanted = [one for one in {blob, *self.held.values()} if one not in self.contents][:500]
                wanted = wanted if blob in wanted else [blob]
                for name, content in zip(wanted, git.read_objects(self.repo, wanted), strict=True):
                    self.contents[name] = content
            except GitError:
                self.contents[blob] = None
        return self.contents[blob]

    def _file(self, path: str) -> Path | None:
        """The file at a path, where there is one; never through a link out of the workspace."""
        if self.root is None:
            return None
        file = self.root / path
        try:
            return file if file.is_file() and file.resolve().is_relative_to(self.root.resolve()) else None
        except OSError:
            return None

    def _was_written_in_time(self, file: Path) -> bool:
        if self.started is None or self.ended is None:
            return False
        try:
            moment = file.stat().st_mtime
        except OSError:
            return False
        return self.started.timestamp() - 2 <= moment <= (self.ended + _SLACK).timestamp()


def _hash_of(file: Path) -> str | None:
    try:
        return content_hash(file.read_bytes()) if file.stat().st_size <= MAX_HASHED_CHARS else None
    except OSError:
        return None
