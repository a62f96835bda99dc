"""The files that a session touched, with the SHA-256 of their contents before and after.

What a tool's result tells of a file's content counts; where it tells nothing, contents are reconstructed by applying
the edits in their order to what the file is known to have held. Files that shell commands changed are taken up where
the disk or git shows the change. Hashes are made of the session as it was, so this reads it before redaction; only
hashes and paths leave.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from nugget.extraction.places import Places, is_excluded
from nugget.extraction.shell_changes import ShellAction, ShellChange, shell_changes
from nugget.extraction.traces import Traces
from nugget.models import Event, EventKind, Session
from nugget.models.nuggets import FileTouch, TouchAction
from nugget.sources.claude_records import SHELL_TOOLS
from nugget.text import MAX_HASHED_CHARS, apply_edit, content_hash, line_hash

MAX_LINES = 20_000
"""Lines of one file whose hashes are kept; more of them are generated."""
MAX_FROM_COMMITS = 50
"""Files that only a commit of the session shows, taken up from one session, at most."""

_OWN_COMMIT = re.compile(r"^\[[^\]\n]*?\b([0-9a-f]{7,40})\] ", re.MULTILINE)
"""What `git commit` prints: `[main 1a2b3c4] Message`."""
_REWRITES = re.compile(
    r"\b(?:\w*fmt|format|goimports|prettier|black|isort|ruff|clang-format|biome|rubocop|pre-commit)\b|--fix\b"
    r"|\bgit (?:-\S+ \S+ )?(?:checkout(?! -[bB])|restore(?! --staged)|reset --hard|stash|merge|rebase|pull"
    r"|revert|apply|cherry-pick|am)\b"
)
"""Commands that may change files that they do not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedFiles:
    """The files that a session touched, one touch a path, and those that somebody else changed in between.

    `edited_between` are paths whose content, at an edit of the session, was not what the session's edit before had
    left although no command had run since.
    """

    touches: tuple[FileTouch, ...] = ()
    edited_between: tuple[str, ...] = ()


@dataclass(slots=True)
class _Track:
    """What is known of one file while going through the session; `content` is None where it is not known.

    `commands_seen` is one more than the commands that had run before its last edit, 0 where no edit shows it.
    """

    existed: bool | None = None
    exists: bool = True
    before_hash: str | None = None
    after_hash: str | None = None
    content: str | None = None
    previous_path: str | None = None
    at: datetime | None = None
    commands_seen: int = 0
    lines: dict[str, None] = field(default_factory=dict)

    def add_lines(self, written: str, known: str | None) -> None:
        """Note the lines of `written` that did not stand in `known`."""
        old = set(map(str.strip, known.splitlines())) if known else set()
        for line in written.splitlines():
            if len(self.lines) >= MAX_LINES:
                return
            if (bare := line.strip()) and bare not in old:
                self.lines[line_hash(bare)] = None


def file_touches(session: Session, places: Places) -> TouchedFiles:
    """The files of a workspace that a session, not yet redacted, touched, by path; those outside are left out."""
    roots = places.roots
    outputs = {event.call_id: event for event in session.events if event.kind is EventKind.OUTPUT and event.call_id}
    changed = {
        position: changes
        for position, event in enumerate(session.events)
        if event.kind is EventKind.COMMAND and (changes := _verifiable(event, outputs, session, places))
    }
    unknown = {
        path
        for event in session.events
        if is_made_edit(event, session) and event.before_hash is None and (path := places.find(event.path or ""))
    }
    named = [one for part in changed.values() for one in part]
    rewrites = any(event.kind is EventKind.COMMAND and _REWRITES.search(event.text) for event in session.events)
    traces = Traces.gather(session, roots, paths=unknown, changes=named, needs_period=rewrites)
    tracks: dict[str, _Track] = {}
    edited_between: dict[str, None] = {}
    commands = rewritten = 0
    for position, event in enumerate(session.events):
        if event.kind is EventKind.COMMAND:
            commands += 1
            rewritten = commands if _REWRITES.search(event.text) else rewritten
            for change in changed.get(position, ()):
                _follow(change, event, tracks, traces)
        elif (
            is_made_edit(event, session)
            and (path := places.find(event.path or ""))
            and _edit(path, event, tracks, traces, commands=commands)
        ):
            edited_between[path] = None
    for path, track in tracks.items():
        if track.exists and 0 < track.commands_seen <= rewritten:
            track.after_hash = (
                traces.hash_after(path) if track.after_hash != traces.hash_now(path) else track.after_hash
            )
    _add_committed(session, outputs, tracks, traces, places.excluded)
    touches = tuple(touch for path, track in tracks.items() if (touch := _touch(path, track, traces)))
    return TouchedFiles(touches=touches, edited_between=tuple(edited_between))


def is_made_edit(event: Event, session: Session) -> bool:
    """Whether the event is an edit that was made. Claude Code tells of each; of others silence counts as success."""
    if event.kind is not EventKind.FILE_EDIT or event.ok is False or not event.path:
        return False
    return event.ok is True or session.agent != "claude-code"


def _verifiable(event: Event, outputs: dict[str, Event], session: Session, places: Places) -> list[ShellChange]:
    """The changes of a command that went well, with paths in the workspace."""
    output = outputs.get(event.call_id or "")
    went_well = output is not None and (output.ok is True or (output.ok is None and session.agent != "claude-code"))
    if event.tool not in SHELL_TOOLS or not went_well:
        return []
    found = []
    for change in shell_changes(event.text):
        previous = places.find(change.previous) if change.previous else None
        if (path := places.find(change.path)) and (change.action is not ShellAction.MOVE or previous):
            found.append(ShellChange(action=change.action, path=path, previous=previous, content=change.content))
    return found


def _edit(path: str, event: Event, tracks: dict[str, _Track], traces: Traces, *, commands: int) -> bool:
    """Follow one edit; True where somebody else had changed the file since the session's last."""
    track = tracks.get(path)
    is_between = False
    if track is None:
        track = tracks[path] = _begin(path, event, traces)
    elif track.after_hash and event.before_hash and track.after_hash != event.before_hash:
        is_between = track.commands_seen == commands + 1
    track.commands_seen, track.at = commands + 1, event.timestamp or track.at
    if event.tool == "Delete":
        track.exists, track.content, track.after_hash = False, None, None
        return is_between
    track.exists = True
    after = event.after or ""
    if event.tool == "NotebookEdit":
        track.content = None
    elif event.tool == "Write" or event.before is None:
        known = track.content if event.before is None else event.before
        track.add_lines(after, known)
        track.content = after if len(after) <= MAX_HASHED_CHARS else None
    else:
        track.add_lines(after, event.before)
        track.content = None if track.content is None else apply_edit(track.content, event.before, after)
    known_hash = content_hash(track.content) if track.content is not None else None
    track.after_hash = event.after_hash or known_hash
    if event.after_hash and known_hash != event.after_hash:
        track.content = None
    return is_between


def _begin(path: str, event: Event, traces: Traces) -> _Track:
    """A track from what the first edit, else git, tells of the file as it was."""
    if event.before_hash:
        return _Track(existed=True, before_hash=event.before_hash)
    if event.before == "" and event.after_hash:
        return _Track(existed=False, content="")
    content = traces.content_before(path)
    if content is not None:
        return _Track(existed=True, before_hash=content_hash(content), content=traces.text(content))
    is_new = event.tool == "Write" and event.before is None and traces.knows_start
    return _Track(existed=False if is_new else None if event.tool == "Write" else True, content="" if is_new else None)


def _follow(change: ShellChange, event: Event, tracks: dict[str, _Track], traces: Traces) -> None:
    """Follow what a command did to a file, where it can be verified."""
    if change.action is ShellAction.DELETE:
        for path in traces.deleted(change.path, tracked=tracks):
            track = tracks.setdefault(path, _Track(existed=True, before_hash=traces.hash_before(path)))
            track.exists, track.after_hash, track.content, track.at = False, None, None, event.timestamp
        return
    if change.action is ShellAction.MOVE and change.previous:
        moved = traces.moved(change.previous, change.path, tracked=tracks)
        if moved is None:
            return
        unseen = _Track(existed=True, before_hash=traces.hash_before(change.previous))
        track = tracks.pop(change.previous) if change.previous in tracks else unseen
        track.after_hash = track.after_hash or traces.hash_after(moved)
        track.previous_path = None if track.existed is False else (track.previous_path or change.previous)
        track.at = event.timestamp
        tracks[moved] = track
        return
    if not traces.shows(change):
        return
    known = tracks.get(change.path)
    if known is None:
        before = traces.hash_before(change.path)
        known = tracks[change.path] = _Track(existed=before is not None, before_hash=before)
    known.exists, known.at, known.content = True, event.timestamp, change.content
    if change.content is not None:
        known.after_hash = content_hash(change.content)
        known.add_lines(change.content, traces.text(traces.content_before(change.path)))
    else:
        known.after_hash = traces.hash_after(change.path)


def _add_committed(
    session: Session, outputs: dict[str, Event], tracks: dict[str, _Track], traces: Traces, excluded: Collection[str]
) -> None:
    """Files that a commit of the session holds although no edit shows them: what generators and installers wrote."""
    names: dict[str, datetime | None] = {}
    for event in session.events:
        output = outputs.get(event.call_id or "") if event.kind is EventKind.COMMAND else None
        if output is not None and output.ok is not False and "commit" in event.text and event.tool in SHELL_TOOLS:
            names |= dict.fromkeys(_OWN_COMMIT.findall(output.text), output.timestamp)
    moved_away = {track.previous_path for track in tracks.values() if track.previous_path}
    added = 0
    for change in traces.committed_in(list(names)):
        if change.path in tracks or change.path in moved_away or is_excluded(change.path, excluded):
            continue
        added += 1
        if added > MAX_FROM_COMMITS:
            return
        tracks[change.path] = _Track(
            existed=change.before is not None, exists=change.after is not None, at=session.ended,
            before_hash=traces.blob_hash(change.before), after_hash=traces.blob_hash(change.after),
        )  # fmt: skip


def _touch(path: str, track: _Track, traces: Traces) -> FileTouch | None:
    """The touch that a track adds up to; None where nothing is left of it, and where it changed nothing."""
    if not track.exists:
        if track.existed is False:
            return None
        return FileTouch(path=path, action=TouchAction.DELETED, at=track.at, before_hash=track.before_hash)
    if track.before_hash and track.before_hash == track.after_hash and not track.previous_path:
        return None
    action = TouchAction.MODIFIED if track.existed is not False else TouchAction.CREATED
    return FileTouch(
        path=path, action=TouchAction.RENAMED if track.previous_path else action, at=track.at,
        before_hash=track.before_hash, after_hash=traces.as_on_disk(path, track.after_hash),
        previous_path=track.previous_path, line_hashes=tuple(track.lines),
    )  # fmt: skip
