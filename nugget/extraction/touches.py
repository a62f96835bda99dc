"""The files that a session touched, with the SHA-256 of their contents before and after.

What a tool's result tells of a file's content counts; if it tells nothing, contents are reconstructed by applying the
edits in their order to what the file is known to have held. Files that shell commands changed are taken up if the disk
or git shows the change. Hashes are made of the session as it was, so this reads it before redaction; only hashes and
paths leave.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nugget.extraction.places import Places, is_excluded
from nugget.extraction.shell_changes import ShellChange, shell_changes
from nugget.extraction.traces import Traces, as_text, gather
from nugget.models import Event, EventKind, Session
from nugget.models.nuggets import FileTouch, TouchAction
from nugget.sources.claude_records import SHELL_TOOLS
from nugget.sources.event_builder import MAX_TEXT_CHARS
from nugget.text import apply_edit, content_hash, line_hash

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
    """The files that a session touched, one touch a path.

    `edited_between` are paths whose content, at an edit of the session, was not what its edit before had left although
    no command had run since.
    """

    touches: tuple[FileTouch, ...] = ()
    edited_between: tuple[str, ...] = ()


@dataclass(slots=True)
class _Track:
    """What is known of one file while going through the session; `content` is None if unknown.

    `commands_seen` is one more than the commands that had run before its last edit, 0 if no edit shows it.
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
        for line in map(str.strip, written.splitlines()):
            if len(self.lines) >= MAX_LINES:
                return
            if line and line not in old:
                self.lines[line_hash(line)] = None

    def delete(self, at: datetime | None) -> None:
        """Note that the file is gone."""
        self.exists, self.after_hash, self.content, self.at = False, None, None, at


def file_touches(session: Session, places: Places) -> TouchedFiles:
    """Return the files of a workspace that a session, not yet redacted, touched; those outside are left out."""
    outputs = {one.call_id: one for one in session.events if one.kind is EventKind.OUTPUT and one.call_id}
    commands = [(one, outputs.get(one.call_id or "")) for one in session.events if one.kind is EventKind.COMMAND]
    changes = {id(event): _verifiable(event, output, session, places) for event, output in commands}
    edited = {id(event): places.find(event.path or "") for event in session.events if is_made_edit(event, session)}
    unknown = {
        path for event in session.events if (path := edited.get(id(event))) and event.before_hash is None
    }  # fmt: skip
    named = [one for part in changes.values() for one in part]
    may_rewrite = any(_REWRITES.search(event.text) for event, _ in commands)
    traces = gather(session, places.roots, paths=unknown, changes=named, needs_period=may_rewrite)
    tracks: dict[str, _Track] = {}
    edited_between: dict[str, None] = {}
    ran = rewritten = 0
    for event in session.events:
        if event.kind is EventKind.COMMAND:
            ran += 1
            rewritten = ran if _REWRITES.search(event.text) else rewritten
            for change in changes[id(event)]:
                _follow(change, event.timestamp, tracks, traces)
        elif (path := edited.get(id(event))) and _edit(path, event, tracks, traces, ran):
            edited_between[path] = None
    for path, track in tracks.items():
        if track.exists and 0 < track.commands_seen <= rewritten and track.after_hash != traces.hash_now(path):
            track.after_hash = traces.hash_after(path)
    own = [
        commit
        for event, output in commands
        if output and output.ok is not False and "commit" in event.text and event.tool in SHELL_TOOLS
        for commit in _OWN_COMMIT.findall(output.text)
    ]
    _add_committed(own, session.ended, tracks, traces, places.excluded)
    touches = tuple(touch for path, track in tracks.items() if (touch := _touch(path, track, traces)))
    return TouchedFiles(touches=touches, edited_between=tuple(edited_between))


def is_made_edit(event: Event, session: Session) -> bool:
    """Return whether the event is an edit that was made. Claude Code tells of each; silence of others is success."""
    if event.kind is not EventKind.FILE_EDIT or event.ok is False or not event.path:
        return False
    return event.ok is True or session.agent != "claude-code"


def _verifiable(event: Event, output: Event | None, session: Session, places: Places) -> list[ShellChange]:
    """Return the changes of a command that went well, with paths in the workspace."""
    went_well = output is not None and (output.ok is True or (output.ok is None and session.agent != "claude-code"))
    found = []
    for change in shell_changes(event.text) if event.tool in SHELL_TOOLS and went_well else ():
        previous = places.find(change.previous) if change.previous else None
        if (path := places.find(change.path)) and (change.action != "move" or previous):
            found.append(ShellChange(action=change.action, path=path, previous=previous, content=change.content))
    return found


def _edit(path: str, event: Event, tracks: dict[str, _Track], traces: Traces, ran: int) -> bool:
    """Follow one edit; return True if somebody else had changed the file since the session's last."""
    track = tracks.get(path)
    is_between = False
    if track is None:
        track = tracks[path] = _begin(path, event, traces)
    elif track.after_hash and event.before_hash and track.after_hash != event.before_hash:
        is_between = track.commands_seen == ran + 1
    track.commands_seen, track.at = ran + 1, event.timestamp or track.at
    if event.tool == "Delete":
        track.delete(track.at)
        return is_between
    track.exists, after = True, event.after or ""
    if event.tool == "NotebookEdit":
        track.content = None
    elif event.tool == "Write" or event.before is None:
        # Of a longer text the event holds the beginning only, and a mark.
        track.add_lines(after[:MAX_TEXT_CHARS], track.content if event.before is None else event.before)
        track.content = after if len(after) <= MAX_TEXT_CHARS else None
    else:
        track.add_lines(after, event.before)
        track.content = None if track.content is None else apply_edit(track.content, event.before, after)
    known_hash = content_hash(track.content) if track.content is not None else None
    track.after_hash = event.after_hash or known_hash
    if event.after_hash and known_hash != event.after_hash:
        track.content = None
    return is_between


def _begin(path: str, event: Event, traces: Traces) -> _Track:
    """Return a track from what the first edit, else git, tells of the file as it was."""
    if event.before_hash:
        return _Track(existed=True, before_hash=event.before_hash)
    if event.before == "" and event.after_hash:
        return _Track(existed=False, content="")
    content = traces.blob(traces.held.get(path))
    if content is not None:
        return _Track(existed=True, before_hash=content_hash(content), content=as_text(content))
    is_new = event.tool == "Write" and event.before is None and traces.knows_start
    return _Track(existed=False if is_new else None if event.tool == "Write" else True, content="" if is_new else None)


def _follow(change: ShellChange, at: datetime | None, tracks: dict[str, _Track], traces: Traces) -> None:
    """Follow what a command did to a file, if it can be verified."""
    path, previous = change.path, change.previous
    if change.action == "delete":
        for gone in traces.deleted(path, tracked=tracks):
            tracks.setdefault(gone, _before(gone, traces)).delete(at)
    elif previous is not None:
        if moved := traces.moved(previous, path, tracked=tracks):
            track = tracks.pop(previous) if previous in tracks else _before(previous, traces)
            track.after_hash = track.after_hash or traces.hash_after(moved)
            track.previous_path = None if track.existed is False else (track.previous_path or previous)
            track.at = at
            tracks[moved] = track
    elif traces.shows(change):
        track = tracks.setdefault(path, _before(path, traces))
        track.exists, track.at, track.content = True, at, change.content
        if change.content is not None:
            track.after_hash = content_hash(change.content)
            track.add_lines(change.content, as_text(traces.blob(traces.held.get(path))))
        else:
            track.after_hash = traces.hash_after(path)


def _before(path: str, traces: Traces) -> _Track:
    """Return a track of a file as git held it before the session."""
    held = traces.blob_hash(traces.held.get(path))
    return _Track(existed=path in traces.held, before_hash=held)


def _add_committed(
    own: Sequence[str], ended: datetime | None, tracks: dict[str, _Track], traces: Traces, excluded: Sequence[str]
) -> None:
    """Add files that only a commit of the session shows: what generators and installers wrote."""
    known = tracks.keys() | {track.previous_path for track in tracks.values()}
    fresh = [one for one in traces.committed_in(own) if one.path not in known and not is_excluded(one.path, excluded)]
    for change in fresh[:MAX_FROM_COMMITS]:
        tracks[change.path] = _Track(
            existed=change.before is not None, exists=change.after is not None, at=ended,
            before_hash=traces.blob_hash(change.before), after_hash=traces.blob_hash(change.after),
        )  # fmt: skip


def _touch(path: str, track: _Track, traces: Traces) -> FileTouch | None:
    """Return the touch that a track adds up to; None if nothing is left of it, or it changed nothing."""
    if not track.exists:
        gone = FileTouch(path=path, action=TouchAction.DELETED, at=track.at, before_hash=track.before_hash)
        return gone if track.existed is not False else None
    if track.before_hash and track.before_hash == track.after_hash and not track.previous_path:
        return None
    action = TouchAction.MODIFIED if track.existed is not False else TouchAction.CREATED
    return FileTouch(
        path=path, action=TouchAction.RENAMED if track.previous_path else action, at=track.at,
        before_hash=track.before_hash, after_hash=traces.as_on_disk(path, track.after_hash),
        previous_path=track.previous_path, line_hashes=tuple(track.lines),
    )  # fmt: skip
