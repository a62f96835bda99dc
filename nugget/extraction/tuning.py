"""Tuning: files that a person changed after an agent had written them, seen by their hashes.

A file counts if its content, at the next session that touched it or now, is not what the session left, and enough of
the agent's lines still stand in it: otherwise another branch is checked out, or the work was thrown away. What the
session's own commit or another agent's commit holds is nobody's tuning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nugget.errors import GitError
from nugget.extraction.file_nuggets import TUNING, is_generated
from nugget.extraction.places import file_inside
from nugget.extraction.requests import one_line
from nugget.infra import git
from nugget.infra.git import Change, versions_of
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


@dataclass(slots=True)
class _History:
    """The versions of files in git, each file's read once, by path: (commit, content), newest first."""

    workspace: Workspace
    versions: dict[str, list[tuple[Change, bytes]]] = field(default_factory=dict)

    def find(self, path: str, hash_: str | None) -> tuple[Change, bytes] | None:
        """Return the commit in which a path got the content of this hash, and the content."""
        if path not in self.versions:
            self.versions[path] = []
            with suppress(GitError):
                root = self.workspace.root
                commits = versions_of(root, path) if self.workspace.common_dir is not None else []
                held = [one for one in commits if one.after]
                contents = git.read_objects(root, [one.after or "" for one in held])
                self.versions[path] = [(one, said or b"") for one, said in zip(held, contents, strict=True)]
        return next((one for one in self.versions[path] if content_hash(one[1]) == hash_), None)


def find_tunings(records: Sequence[SessionRecord], workspace: Workspace, *, now: datetime) -> dict[str, list[Nugget]]:
    """Return the tuning nuggets (without ids) of each session, by session, from all sessions known of a workspace."""
    history = _History(workspace)
    found: dict[str, list[Nugget]] = {}
    for record, touch, next_hash in _left_files(records):
        if next_hash is not None:
            shown = history.find(touch.path, next_hash) if next_hash != touch.after_hash else None
            content, hash_ = (shown[1] if shown else None), next_hash
        else:
            content = _on_disk(workspace, touch.path)
            hash_ = content_hash(content) if content is not None else touch.after_hash or ""
        if _is_tuned(record, touch, hash_, content, history):
            nugget = _nugget(record, touch, hash_, content, history, now)
            found.setdefault(record.session, []).append(nugget)
    return found


def _on_disk(workspace: Workspace, path: str) -> bytes | None:
    file = file_inside(workspace.root, path)
    try:
        return file.read_bytes() if file is not None and file.stat().st_size <= MAX_HASHED_CHARS else None
    except OSError:
        return None


def _left_files(records: Sequence[SessionRecord]) -> Iterator[tuple[SessionRecord, FileTouch, str | None]]:
    """Yield each file as each session left it, with the hash that the next session found, None if nobody came."""
    earliest = datetime.min.replace(tzinfo=UTC)
    rows: dict[str, list[tuple[SessionRecord, FileTouch]]] = {}
    for record in sorted(records, key=lambda one: one.started or earliest):
        for touch in record.touches:
            for path in filter(None, dict.fromkeys((touch.path, touch.previous_path))):
                rows.setdefault(path, []).append((record, touch))
    for path, row in rows.items():
        for (record, touch), following in zip(row, [*row[1:], None], strict=True):
            is_left = touch.action is not TouchAction.DELETED and touch.after_hash and touch.path == path
            is_known = following is None or following[1].before_hash is not None
            if is_left and is_known and not is_generated(path):
                yield record, touch, following[1].before_hash if following else None


def _is_tuned(record: SessionRecord, touch: FileTouch, hash_: str, content: bytes | None, history: _History) -> bool:
    """Return whether a person changed the file: not a formatter in the session's own commit, not another agent."""
    if hash_ == touch.after_hash:
        return False
    if content is not None:
        is_same = content_hash(content.replace(b"\r\n", b"\n")) == touch.after_hash
        wrote = set(touch.line_hashes)
        if is_same or not wrote or len(wrote & _line_hashes(content)) < LEAST_SHARE * len(wrote):
            return False
    shown = history.find(touch.path, hash_)
    if shown is None:
        return True
    is_own = record.ended is not None and shown[0].committed <= record.ended + _SLACK
    return not is_own and not _AGENT_TRAILER.search(shown[0].message)


def _nugget(
    record: SessionRecord, touch: FileTouch, hash_: str, content: bytes | None, history: _History, now: datetime
) -> Nugget:
    written = history.find(touch.path, touch.after_hash)
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


def _line_hashes(content: bytes) -> set[str]:
    return {line_hash(line) for line in content.decode("utf-8", "replace").splitlines() if line.strip()}


def _changes(before: bytes | None, after: bytes | None) -> tuple[list[str], list[str]]:
    """Return the lines that went and those that came, in order; nothing if one of the contents is not known."""
    if before is None or after is None or b"\0" in before[:8000] or b"\0" in after[:8000]:
        return [], []
    old, new = (Counter(map(str.strip, one.decode("utf-8", "replace").splitlines())) for one in (before, after))
    return [line for line in old - new if line], [line for line in new - old if line]
