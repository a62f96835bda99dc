"""Tuning: files that a person changed after an agent had written them, seen by their hashes.

A file counts when its content, at the next session that touched it or now, is not what the session left, and enough
of the agent's lines still stand in it: otherwise another branch is checked out, or the work was thrown away. What the
session's own commit or another agent's commit holds is nobody's tuning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nugget.errors import GitError
from nugget.extraction.file_nuggets import TUNING, is_generated
from nugget.extraction.requests import one_line
from nugget.infra import git
from nugget.infra.git import PathVersion, versions_of
from nugget.infra.workspace import Workspace
from nugget.models import Scope
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.text import MAX_HASHED_CHARS, content_hash, counted, line_hash

LEAST_SHARE = 0.3
"""Share of the agent's lines that must still stand in a file for a change of it to be tuning."""
_SHOWN_LINES = 6
_SLACK = timedelta(minutes=2)
_AGENT_TRAILER = re.compile(
    r"^(?:co-authored-by:.*(?:noreply@anthropic\.com|\bclaude\b|\bcodex\b|\bcursor\b|\bgemini\b|\bcopilot\b|\bopencode\b)"
    r"|nugget-attribution: 100% agent)",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """A file as one session left it, and what it was when the next session came to it (None: nobody came)."""

    record: SessionRecord
    touch: FileTouch
    next_hash: str | None


@dataclass(slots=True)
class _Files:
    """The workspace's files and their versions in git, each read once."""

    workspace: Workspace
    versions: dict[str, list[PathVersion]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    def now(self, path: str) -> bytes | None:
        """What the disk holds; None for nothing, a link out of the workspace, and what is too large."""
        file = self.workspace.root / path
        try:
            root = Path(self.workspace.root).resolve()
            if not file.is_file() or file.stat().st_size > MAX_HASHED_CHARS or not file.resolve().is_relative_to(root):
                return None
            return file.read_bytes()
        except OSError:
            return None

    def history(self, path: str) -> list[PathVersion]:
        """The commits that changed a path, newest first."""
        if path not in self.versions:
            try:
                bare = self.workspace.common_dir is None
                self.versions[path] = [] if bare else versions_of(self.workspace.root, path)
            except GitError:
                self.versions[path] = []
        return self.versions[path]

    def committed(self, path: str, hash_: str) -> tuple[PathVersion, bytes] | None:
        """The commit in which a path got the content of this hash, and the content."""
        history = [one for one in self.history(path) if one.blob]
        missing = [one.blob for one in history if one.blob and one.blob not in self.contents]
        try:
            for blob, content in zip(missing, git.read_objects(self.workspace.root, missing), strict=True):
                self.contents[blob] = content or b""
        except GitError:
            return None
        for version in history:
            content = self.contents.get(version.blob or "", b"")
            if content_hash(content) == hash_:
                return version, content
        return None


def find_tunings(records: Sequence[SessionRecord], workspace: Workspace, *, now: datetime) -> dict[str, list[Nugget]]:
    """The tuning nuggets (without ids) of each session, by session, from all sessions known of a workspace."""
    files = _Files(workspace)
    found: dict[str, list[Nugget]] = {}
    for left in _left_files(records):
        nugget = _tuning(left, files, now)
        if nugget is not None:
            found.setdefault(left.record.session, []).append(nugget)
    return found


def _left_files(records: Sequence[SessionRecord]) -> Iterator[_Left]:
    """Each file as each session left it, with what the next session that touched it found."""
    ages = datetime.min.replace(tzinfo=UTC)
    rows: dict[str, list[tuple[SessionRecord, FileTouch]]] = {}
    for record in sorted(records, key=lambda one: one.started or ages):
        for touch in record.touches:
            rows.setdefault(touch.path, []).append((record, touch))
            if touch.previous_path:
                rows.setdefault(touch.previous_path, []).append((record, touch))
    for path, row in rows.items():
        for place, (record, touch) in enumerate(row):
            if touch.action is TouchAction.DELETED or not touch.after_hash or touch.path != path or is_generated(path):
                continue
            following = row[place + 1][1] if place + 1 < len(row) else None
            if following is not None and following.before_hash is None:
                continue
            yield _Left(
                record=record, touch=touch, next_hash=following.before_hash if following else None,
            )  # fmt: skip


def _tuning(left: _Left, files: _Files, now: datetime) -> Nugget | None:
    path, wanted = left.touch.path, left.touch.after_hash
    if left.next_hash is not None and left.next_hash != wanted:
        shown = files.committed(path, left.next_hash)
        content, hash_ = (shown[1] if shown else None), left.next_hash
    elif left.next_hash is None:
        content = files.now(path)
        if content is None:
            return None
        hash_ = content_hash(content)
    else:
        return None
    if hash_ == wanted or (content is not None and content_hash(content.replace(b"\r\n", b"\n")) == wanted):
        return None
    if content is not None and not _still_stands(left.touch, content):
        return None
    if _is_of_an_agent(left, files, hash_):
        return None
    return _nugget(left, files, hash_, content, now)


def _still_stands(touch: FileTouch, content: bytes) -> bool:
    wrote = set(touch.line_hashes)
    there = {line_hash(line) for line in content.decode("utf-8", "replace").splitlines() if line.strip()}
    return bool(wrote) and len(wrote & there) >= LEAST_SHARE * len(wrote)


def _is_of_an_agent(left: _Left, files: _Files, hash_: str) -> bool:
    """Whether the changed content stands in a commit of the session itself (a formatter ran), or of an agent."""
    shown = files.committed(left.touch.path, hash_)
    if shown is None:
        return False
    version, ended = shown[0], left.record.ended
    return bool(_AGENT_TRAILER.search(version.message)) or (ended is not None and version.committed <= ended + _SLACK)


def _nugget(left: _Left, files: _Files, hash_: str, content: bytes | None, now: datetime) -> Nugget:
    record, touch = left.record, left.touch
    written = files.committed(touch.path, touch.after_hash or "")
    removed, added = _changes(written[1] if written else None, content)
    lines = [f"- {line}" for line in removed[:_SHOWN_LINES]] + [f"+ {line}" for line in added[:_SHOWN_LINES]]
    more = len(removed) + len(added) - len(lines)
    gone = len(set(touch.line_hashes) - _line_hashes(content)) if content is not None else 0
    wrote = counted(len(set(touch.line_hashes)), "line")
    told = [f"{gone} of the {wrote} that the agent wrote are gone."] if gone else []
    if lines:
        told += ["```diff", *lines, *([f"… {counted(more, 'more line')}"] if more > 0 else []), "```"]
    summary = f"Human-edited AI output in {touch.path}"
    if len(removed) == len(added) == 1 and len(summary) + len(removed[0]) + len(added[0]) + 5 <= SUMMARY_CHARS:
        summary = f"{summary}: {removed[0]} → {added[0]}"
    elif gone and len(summary) < SUMMARY_CHARS - 20:
        summary = f"{summary} ({gone} of {wrote} changed)"
    return Nugget(
        id="", type=NuggetType.TUNING, summary=one_line(summary), confidence=TUNING, session=record.session,
        detail="\n".join(told), scope=Scope(repo=record.workspace, path=touch.path), agent=record.agent,
        session_started=record.started, extracted_at=now, file_hash=hash_, source_prompt=record.first_prompt,
    )  # fmt: skip


def _line_hashes(content: bytes | None) -> set[str]:
    return {line_hash(line) for line in (content or b"").decode("utf-8", "replace").splitlines() if line.strip()}


def _changes(before: bytes | None, after: bytes | None) -> tuple[list[str], list[str]]:
    """The lines that went and those that came, in order; nothing where one of the contents is not known."""
    if before is None or after is None or b"\0" in before[:8000] or b"\0" in after[:8000]:
        return [], []
    old, new = ([line.strip() for line in one.decode("utf-8", "replace").splitlines()] for one in (before, after))
    counts_old, counts_new = Counter(old), Counter(new)
    removed = [line for line in dict.fromkeys(old) if line and counts_old[line] > counts_new[line]]
    added = [line for line in dict.fromkeys(new) if line and counts_new[line] > counts_old[line]]
    return removed, added
