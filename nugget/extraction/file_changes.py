"""The files that a session changed, with the SHA-256 of their contents before and after.

If a tool's result does not give the contents of a file, they are reconstructed by applying the edits in order to what
git held before. A shell command proves nothing by itself: a file that it names counts only if the disk or git shows
the change. Hashes need the original text, so this reads the session before redaction; only hashes and paths leave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from nugget.errors import GitError
from nugget.extraction.places import Places, ShellChange, file_inside, read_inside, shell_changes
from nugget.infra import git
from nugget.infra.git import Change, commit_before, committed_between, committed_in
from nugget.models import Event, EventKind, Session
from nugget.models.nuggets import FileTouch, TouchAction
from nugget.sources.claude_code import SHELL_TOOLS
from nugget.sources.event_builder import MAX_TEXT_CHARS
from nugget.text import apply_edit, content_hash, line_hash

MAX_LINES = 20_000
"""The most lines of one file whose hashes are kept; longer files are generated."""
MAX_FILES = 200
"""The most files to record of one deleted folder, and of the session's own commits."""
_SLACK = timedelta(minutes=2)
"""The time after a session's last event in which its work may still reach the disk or a commit."""
_OWN_COMMIT = re.compile(r"^\[[^\]\n]*?\b([0-9a-f]{7,40})\] ", re.MULTILINE)
"""The output of `git commit`: `[main 1a2b3c4] Message`."""
_REWRITES = re.compile(
    r"\b(?:\w*fmt|format|goimports|prettier|black|isort|ruff|clang-format|biome|rubocop|pre-commit)\b|--fix\b"
    r"|\bgit (?:-\S+ \S+ )?(?:checkout(?! -[bB])|restore(?! --staged)|reset --hard|stash|merge|rebase|pull"
    r"|revert|apply|cherry-pick|am)\b"
)
"""Commands that may change files without naming them."""


@dataclass(slots=True)
class _Traces:
    """Evidence in git and on disk for a session's work; empty if the repository is gone.

    `held` are the blobs of the requested paths before the session, `committed` the changes committed during it.
    """

    root: Path | None
    repo: Path | None
    started: datetime | None
    ended: datetime | None
    held: dict[str, str] = field(default_factory=dict)
    committed: dict[str, Change] = field(default_factory=dict)

    def ask_git(self, paths: Iterable[str], changes: Iterable[ShellChange], *, needs_period: bool) -> None:
        """Ask git once for `paths`, for the files that `changes` name, and if needed for the commits of the period."""
        named = {path for one in changes for path in (one.path, one.previous) if path}
        wanted = tuple(sorted(named | set(paths)))
        if self.repo is None or not (wanted or needs_period) or self.started is None or self.ended is None:
            return
        with suppress(GitError):
            base = commit_before(self.repo, self.started)
            if base is not None and wanted:
                self.held = git.files_at(self.repo, base, under=wanted, check=False)
            if named or needs_period:
                period = committed_between(self.repo, self.started, self.ended + _SLACK)
                self.committed = {change.path: change for change in period}

    def blob(self, blob: str | None) -> bytes | None:
        """Return the content of a blob, or None."""
        if blob is None or self.repo is None:
            return None
        with suppress(GitError):
            return git.read_objects(self.repo, [blob])[0]
        return None

    def hash_after(self, path: str) -> str | None:
        """Return the SHA-256 of a file as the session left it: from a commit of that time, else from disk."""
        change = self.committed.get(path)
        if change is not None and change.after is not None:
            return _hash(self.blob(change.after))
        return _hash(read_inside(self.root, path)) if self.is_written_in_time(path) else None

    def as_on_disk(self, path: str, hash_: str | None) -> str | None:
        """Return the hash of the bytes on disk if they differ from the hashed text only in BOM or line endings."""
        raw = (read_inside(self.root, path) or b"") if hash_ is not None else b""
        plain = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
        return content_hash(raw) if plain != raw and content_hash(plain) == hash_ else hash_

    def shows(self, change: ShellChange) -> bool:
        """Return whether a commit or the disk shows a write; without a repository, whether its content is known."""
        if change.path in self.committed:
            return self.committed[change.path].after is not None
        if change.content is not None:
            return self.root is None or file_inside(self.root, change.path) is not None
        return self.is_written_in_time(change.path)

    def moved(self, source: str, target: str) -> str | None:
        """Return the new path of a file, or None without a sign that it was moved."""
        if self.root is None:
            return target
        for place in (target, f"{target}/{source.rpartition('/')[2]}"):
            if place in self.committed or file_inside(self.root, place) is not None:
                return place if file_inside(self.root, source) is None else None
        return None

    def is_written_in_time(self, path: str) -> bool:
        """Return whether the file on disk was last written while the session ran."""
        file = file_inside(self.root, path)
        if file is None or self.started is None or self.ended is None:
            return False
        with suppress(OSError):
            return self.started.timestamp() - 2 <= file.stat().st_mtime <= (self.ended + _SLACK).timestamp()
        return False


@dataclass(slots=True)
class _Track:
    """The state of one file while the session is read; `content` is None if unknown.

    `commands_seen` is one more than the number of commands run before its last edit, 0 if there was no edit.
    """

    existed: bool = True
    exists: bool = True
    before_hash: str | None = None
    after_hash: str | None = None
    content: str | None = None
    previous_path: str | None = None
    at: datetime | None = None
    commands_seen: int = 0
    lines: dict[str, None] = field(default_factory=dict)

    def add_lines(self, written: str, known: str | None) -> None:
        """Add the hashes of the lines of `written` that are not in `known`."""
        old = set(map(str.strip, known.splitlines())) if known else set()
        for line in map(str.strip, written.splitlines()):
            if line and line not in old and len(self.lines) < MAX_LINES:
                self.lines[line_hash(line)] = None

    def delete(self, at: datetime | None) -> None:
        """Record that the file is gone."""
        self.exists, self.after_hash, self.content, self.at = False, None, None, at


def file_touches(session: Session, places: Places) -> tuple[FileTouch, ...]:
    """Return the files of a workspace that a session (before redaction) touched, without those outside it."""
    outputs = {one.call_id: one for one in session.events if one.kind is EventKind.OUTPUT and one.call_id}
    commands = [(one, outputs.get(one.call_id or "")) for one in session.events if one.kind is EventKind.COMMAND]
    changes = {id(event): list(_named(event, output, session, places)) for event, output in commands}
    edited = {id(event): places.find(event.path or "") for event in session.events if is_made_edit(event, session)}
    root = next((one for one in places.roots if one.root.is_dir()), None)
    repo = root.root if root is not None and root.common_dir is not None else None
    traces = _Traces(root=root.root if root else None, repo=repo, started=session.started, ended=session.ended)
    traces.ask_git(
        {path for event in session.events if (path := edited.get(id(event))) and event.before_hash is None},
        [one for part in changes.values() for one in part],
        needs_period=any(_REWRITES.search(event.text) for event, _ in commands),
    )
    tracks: dict[str, _Track] = {}
    ran = rewritten = 0
    for event in session.events:
        if event.kind is EventKind.COMMAND:
            ran += 1
            rewritten = ran if _REWRITES.search(event.text) else rewritten
            for change in changes[id(event)]:
                _follow(change, event.timestamp, tracks, traces)
        elif path := edited.get(id(event)):
            _edit(path, event, tracks, traces, ran)
    for path, track in tracks.items():
        if (
            track.exists
            and 0 < track.commands_seen <= rewritten
            and track.after_hash != _hash(read_inside(traces.root, path))
        ):
            track.after_hash = traces.hash_after(path)
    _add_committed(commands, tracks, traces, places)
    return tuple(touch for path, track in tracks.items() if (touch := _touch(path, track, traces)))


def is_made_edit(event: Event, session: Session) -> bool:
    """Return whether an edit succeeded; Claude Code always says so, other agents only report failures."""
    if event.kind is not EventKind.FILE_EDIT or event.ok is False or not event.path:
        return False
    return event.ok is True or session.agent != "claude-code"


def _named(event: Event, output: Event | None, session: Session, places: Places) -> Iterator[ShellChange]:
    """Yield the changes that a successful command names, with paths in the workspace."""
    went_well = output is not None and (output.ok is True or (output.ok is None and session.agent != "claude-code"))
    for change in shell_changes(event.text) if event.tool in SHELL_TOOLS and went_well else ():
        previous = places.find(change.previous) if change.previous else None
        if (path := places.find(change.path)) and (change.action != "move" or previous):
            yield change._replace(path=path, previous=previous)


def _edit(path: str, event: Event, tracks: dict[str, _Track], traces: _Traces, ran: int) -> None:
    """Record one edit, made after `ran` commands."""
    track = tracks.get(path)
    if track is None:
        track = tracks[path] = _begin(path, event, traces)
    track.commands_seen, track.at = ran + 1, event.timestamp or track.at
    if event.tool == "Delete":
        track.delete(track.at)
        return
    track.exists, after = True, event.after or ""
    if event.tool == "NotebookEdit":
        track.content = None
    elif event.tool == "Write" or event.before is None:
        # The event holds only the beginning of a longer text, and a mark.
        track.add_lines(after[:MAX_TEXT_CHARS], track.content if event.before is None else event.before)
        track.content = after if len(after) <= MAX_TEXT_CHARS else None
    else:
        track.add_lines(after, event.before)
        track.content = None if track.content is None else apply_edit(track.content, event.before, after)
    known_hash = _hash(track.content)
    track.after_hash = event.after_hash or known_hash
    if event.after_hash and known_hash != event.after_hash:
        track.content = None


def _begin(path: str, event: Event, traces: _Traces) -> _Track:
    """Return the state of a file before its first edit, as the edit or git shows it."""
    if event.before_hash:
        return _Track(existed=True, before_hash=event.before_hash)
    if event.before == "" and event.after_hash:
        return _Track(existed=False, content="")
    if path in traces.held:
        content = traces.blob(traces.held[path])
        return _Track(existed=True, before_hash=_hash(content), content=_as_text(content))
    is_new = event.tool == "Write" and event.before is None
    return _Track(existed=not is_new, content="" if is_new else None)


def _follow(change: ShellChange, at: datetime | None, tracks: dict[str, _Track], traces: _Traces) -> None:
    """Record what a command did to a file, if it can be verified."""

    def track_of(path: str) -> _Track:
        before = _Track(existed=path in traces.held, before_hash=_hash(traces.blob(traces.held.get(path))))
        return tracks.setdefault(path, before)

    path, previous = change.path, change.previous
    if change.action == "delete":
        below = [one for one in dict.fromkeys((*traces.held, *tracks)) if f"{one}/".startswith(f"{path}/")]
        for gone in [one for one in below if file_inside(traces.root, one) is None][:MAX_FILES]:
            track_of(gone).delete(at)
    elif previous is not None:
        is_known = previous in traces.held or previous in tracks
        if is_known and (moved := traces.moved(previous, path)):
            track = track_of(previous)
            tracks[moved] = tracks.pop(previous)
            track.after_hash = track.after_hash or traces.hash_after(moved)
            track.previous_path = (track.previous_path or previous) if track.existed else None
            track.at = at
    elif traces.shows(change):
        track = track_of(path)
        track.exists, track.at, track.content = True, at, change.content
        track.after_hash = _hash(change.content) if change.content is not None else traces.hash_after(path)
        if change.content is not None:
            track.add_lines(change.content, _as_text(traces.blob(traces.held.get(path))))


def _add_committed(
    commands: Sequence[tuple[Event, Event | None]], tracks: dict[str, _Track], traces: _Traces, places: Places
) -> None:
    """Add files that only a commit of the session shows, such as those that generators and installers wrote."""
    own = [
        commit
        for event, output in commands
        if output and output.ok is not False and "commit" in event.text and event.tool in SHELL_TOOLS
        for commit in _OWN_COMMIT.findall(output.text)
    ]
    known = tracks.keys() | {track.previous_path for track in tracks.values()}
    with suppress(GitError):
        changes = committed_in(traces.repo, list(dict.fromkeys(own))) if own and traces.repo is not None else []
        fresh = [one for one in changes if one.path not in known and places.find(f"{traces.repo}/{one.path}")]
        for change in fresh[:MAX_FILES]:
            tracks[change.path] = _Track(
                existed=change.before is not None, exists=change.after is not None, at=traces.ended,
                before_hash=_hash(traces.blob(change.before)), after_hash=_hash(traces.blob(change.after)),
            )  # fmt: skip


def _touch(path: str, track: _Track, traces: _Traces) -> FileTouch | None:
    """Return the touch that a track amounts to, or None if the file did not change."""
    if not track.exists:
        gone = FileTouch(path=path, action=TouchAction.DELETED, at=track.at, before_hash=track.before_hash)
        return gone if track.existed else None
    if track.before_hash and track.before_hash == track.after_hash and not track.previous_path:
        return None
    action = TouchAction.MODIFIED if track.existed else TouchAction.CREATED
    return FileTouch(
        path=path, action=TouchAction.RENAMED if track.previous_path else action, at=track.at,
        before_hash=track.before_hash, after_hash=traces.as_on_disk(path, track.after_hash),
        previous_path=track.previous_path, line_hashes=tuple(track.lines),
    )  # fmt: skip


def _hash(content: bytes | str | None) -> str | None:
    return None if content is None else content_hash(content)


def _as_text(content: bytes | None) -> str | None:
    """Return the content as text, or None if it is binary."""
    with suppress(UnicodeDecodeError):
        return None if content is None or b"\0" in content[:8000] else content.decode("utf-8")
    return None
