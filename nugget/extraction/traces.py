"""Evidence of git and the disk for the files that a session changed: nothing is believed of a command's words alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from nugget.errors import GitError
from nugget.extraction.places import file_inside
from nugget.extraction.shell_changes import ShellChange
from nugget.infra import git
from nugget.infra.git import Change, commit_before, committed_between, committed_in
from nugget.infra.workspace import Workspace
from nugget.models import Session
from nugget.text import MAX_HASHED_CHARS, content_hash

MAX_DELETED = 200
"""Files below one deleted folder that are taken up."""
_MAX_READ_AT_ONCE = 500
_SLACK = timedelta(minutes=2)
"""How long after the last event of a session its work may reach the disk or a commit."""


@dataclass(slots=True)
class Traces:
    """What is known of a workspace's files before, at and after a session. Empty if the repository is gone."""

    root: Path | None = None
    repo: Path | None = None
    started: datetime | None = None
    ended: datetime | None = None
    knows_start: bool = False
    held: dict[str, str] = field(default_factory=dict)
    committed: dict[str, Change] = field(default_factory=dict)
    contents: dict[str, bytes | None] = field(default_factory=dict)

    def blob(self, blob: str | None) -> bytes | None:
        """Return the content of a blob, None if there is none."""
        if blob is not None and self.repo is not None and blob not in self.contents:
            with suppress(GitError):
                self.contents[blob] = git.read_objects(self.repo, [blob])[0]
        return self.contents.get(blob or "")

    def blob_hash(self, blob: str | None) -> str | None:
        """Return the SHA-256 of a blob's content."""
        content = self.blob(blob)
        return None if content is None else content_hash(content)

    def hash_now(self, path: str) -> str | None:
        """Return the SHA-256 of what the disk holds at a path."""
        content = self._read(path)
        return None if content is None else content_hash(content)

    def hash_after(self, path: str) -> str | None:
        """Return the SHA-256 of a file as the session left it: as committed meanwhile, else as on disk since."""
        change = self.committed.get(path)
        if change is not None and change.after is not None:
            return self.blob_hash(change.after)
        return self.hash_now(path) if self._was_written_in_time(path) else None

    def as_on_disk(self, path: str, hash_: str | None) -> str | None:
        """Return the hash of the file's bytes if the disk holds what was hashed, but with a mark or other line ends."""
        raw = (self._read(path) or b"") if hash_ is not None else b""
        plain = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
        return content_hash(raw) if plain != raw and content_hash(plain) == hash_ else hash_

    def shows(self, change: ShellChange) -> bool:
        """Return whether a write is to be seen: committed meanwhile, or on disk since, or told without a disk."""
        if change.path in self.committed:
            return self.committed[change.path].after is not None
        if change.content is not None:
            return self.root is None or file_inside(self.root, change.path) is not None
        return self._was_written_in_time(change.path)

    def deleted(self, path: str, *, tracked: Collection[str]) -> list[str]:
        """Return the files at or below a path that were there before, or made by the session, and are gone."""
        below = [name for name in (*self.held, *tracked) if name == path or name.startswith(f"{path}/")]
        gone = [name for name in dict.fromkeys(below) if self.root is None or file_inside(self.root, name) is None]
        return gone[:MAX_DELETED]

    def moved(self, source: str, target: str, *, tracked: Collection[str]) -> str | None:
        """Return where a file went, None if there is no sign that it was moved."""
        if source not in self.held and source not in tracked:
            return None
        if self.root is None:
            return target
        for place in (target, f"{target}/{source.rpartition('/')[2]}"):
            if place in self.committed or file_inside(self.root, place) is not None:
                return place if file_inside(self.root, source) is None else None
        return None

    def committed_in(self, commits: Sequence[str]) -> list[Change]:
        """Return what these commits changed, as far as they are still there."""
        try:
            return committed_in(self.repo, list(dict.fromkeys(commits))) if self.repo is not None else []
        except GitError:
            return []

    def _read(self, path: str) -> bytes | None:
        file = file_inside(self.root, path) if self.root is not None else None
        try:
            return file.read_bytes() if file is not None and file.stat().st_size <= MAX_HASHED_CHARS else None
        except OSError:
            return None

    def _was_written_in_time(self, path: str) -> bool:
        file = file_inside(self.root, path) if self.root is not None else None
        if file is None or self.started is None or self.ended is None:
            return False
        try:
            return self.started.timestamp() - 2 <= file.stat().st_mtime <= (self.ended + _SLACK).timestamp()
        except OSError:
            return False


def gather(
    session: Session,
    roots: Sequence[Workspace],
    *,
    paths: Collection[str],
    changes: Sequence[ShellChange],
    needs_period: bool = False,
) -> Traces:
    """Ask git once for all `paths` and for what the commands `changes` name.

    What was committed meanwhile is asked for if there are `changes`, or if `needs_period` says so.
    """
    root = next((one for one in roots if one.root.is_dir()), None)
    repo = root.root if root is not None and root.common_dir is not None else None
    traces = Traces(root=root.root if root else None, repo=repo, started=session.started, ended=session.ended)
    named = {path for one in changes for path in (one.path, one.previous) if path}
    if repo is None or not (paths or named or needs_period) or session.started is None or session.ended is None:
        return traces
    with suppress(GitError):
        base = commit_before(repo, session.started)
        wanted = tuple(sorted(named | set(paths)))
        traces.knows_start = base is not None
        if base is not None and wanted:
            traces.held = git.files_at(repo, base, under=wanted, check=False)
            blobs = list(dict.fromkeys(traces.held.values()))[:_MAX_READ_AT_ONCE]
            traces.contents = dict(zip(blobs, git.read_objects(repo, blobs), strict=True))
        if named or needs_period:
            period = committed_between(repo, session.started, session.ended + _SLACK)
            traces.committed = {change.path: change for change in period}
    return traces


def as_text(content: bytes | None) -> str | None:
    """Return a content as text; None if it is binary."""
    if content is None or b"\0" in content[:8000]:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
