"""Tuning: files that a person changed after an agent wrote them, found by their hashes.

A file counts if its content, now or at the next session that touched it, is not what the session left, and enough of
the agent's lines remain: otherwise another branch is checked out, or the work was thrown away. Content from the
session's own commit or another agent's commit is not tuning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from nugget.errors import GitError
from nugget.extraction.places import is_generated, read_inside
from nugget.extraction.requests import one_line
from nugget.infra import git
from nugget.infra.git import Change, versions_of
from nugget.infra.workspace import Workspace
from nugget.models import Scope
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.text import content_hash, counted, line_hash

LEAST_SHARE = 0.3
"""The share of the agent's lines that must remain in a file for its change to count as tuning."""
_SHOWN_LINES = 6
_SLACK = timedelta(minutes=2)
_AGENT_TRAILER = re.compile(
    r"^(?:co-authored-by:.*(?:noreply@anthropic\.com|\b(?:claude|codex|cursor|gemini|copilot|opencode)\b)"
    r"|nugget-attribution: 100% agent)",
    re.IGNORECASE | re.MULTILINE,
)
_Versions = Mapping[str, tuple[Change, bytes]]
"""The versions of a file in git, by the hash of their content."""


def find_tunings(records: Sequence[SessionRecord], workspace: Workspace, *, now: datetime) -> dict[str, list[Nugget]]:
    """Return the tuning nuggets (without ids) by session, for all changes that can be shown."""
    found: dict[str, list[Nugget]] = {}
    for record, touch, next_hash in _left_files(records):
        content = read_inside(workspace.root, touch.path) if next_hash is None else None
        hash_ = next_hash or (content_hash(content) if content is not None else touch.after_hash)
        if hash_ is None or hash_ == touch.after_hash:
            continue
        versions = _versions(workspace, touch.path)
        commit, held = versions.get(hash_, (None, content))
        if _is_tuned(record, touch, commit, held):
            summary, detail = _difference(touch, versions, held)
            if not detail:
                continue
            nugget = Nugget(
                id="", type=NuggetType.TUNING, summary=summary, confidence=0.65, session=record.session,
                detail=detail, scope=Scope(repo=record.workspace, path=touch.path), agent=record.agent,
                session_started=record.started, extracted_at=now, file_hash=hash_, source_prompt=record.first_prompt,
            )  # fmt: skip
            found.setdefault(record.session, []).append(nugget)
    return found


def _versions(workspace: Workspace, path: str) -> _Versions:
    with suppress(GitError):
        held = [one for one in versions_of(workspace.root, path) if one.after] if workspace.common_dir else []
        contents = git.read_objects(workspace.root, [one.after or "" for one in held])
        pairs = [(one, content or b"") for one, content in zip(held, contents, strict=True)]
        return {content_hash(content): (one, content) for one, content in reversed(pairs)}
    return {}


def _left_files(records: Sequence[SessionRecord]) -> Iterator[tuple[SessionRecord, FileTouch, str | None]]:
    """Yield each file as each session left it, with the hash that the next session found, None for the last."""
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


def _is_tuned(record: SessionRecord, touch: FileTouch, commit: Change | None, content: bytes | None) -> bool:
    """Return whether a person changed the file: not a formatter in the session's own commit, not another agent."""
    if content is not None:
        is_same = content_hash(content.replace(b"\r\n", b"\n")) == touch.after_hash
        wrote, lines = set(touch.line_hashes), content.decode("utf-8", "replace").splitlines()
        if is_same or not wrote or len(wrote & set(map(line_hash, lines))) < LEAST_SHARE * len(wrote):
            return False
    if commit is None:
        return True
    is_own = record.ended is not None and commit.committed <= record.ended + _SLACK
    return not is_own and not _AGENT_TRAILER.search(commit.message)


def _difference(touch: FileTouch, versions: _Versions, content: bytes | None) -> tuple[str, str]:
    """Return the summary and detail: which lines changed, or how many if git lacks what the session left."""
    summary = f"Human-edited AI output in {touch.path}"
    wrote, now = set(touch.line_hashes), (content or b"").decode("utf-8", "replace").splitlines()
    _, before = versions.get(touch.after_hash or "", (None, None))
    is_known = before is not None and content is not None and b"\0" not in before + content
    if before is not None:  # the agent may have replaced its own lines
        wrote &= set(map(line_hash, before.decode("utf-8", "replace").splitlines()))
    gone = len(wrote - set(map(line_hash, now))) if content is not None else 0
    detail = [f"{gone} of the {counted(len(wrote), 'line')} that the agent wrote are gone."] if gone else []
    old, new = (
        Counter(map(str.strip, lines)) for lines in ((before or b"").decode("utf-8", "replace").splitlines(), now)
    )
    removed, added = ([line for line in lines if line and is_known] for lines in (old - new, new - old))
    if removed or added:
        lines = [f"- {line}" for line in removed[:_SHOWN_LINES]] + [f"+ {line}" for line in added[:_SHOWN_LINES]]
        more = len(removed) + len(added) - len(lines)
        detail += ["```diff", *lines, *([f"… {counted(more, 'more line')}"] if more > 0 else []), "```"]
    if len(removed) == len(added) == 1 and len(summary) + len(removed[0]) + len(added[0]) + 5 <= SUMMARY_CHARS:
        summary = f"{summary}: {removed[0]} → {added[0]}"
    elif gone:
        summary = f"{summary} ({gone} of {counted(len(wrote), 'line')} changed)"
    return one_line(summary), "\n".join(detail)
