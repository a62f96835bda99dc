"""`nugget commit`: match the staged changes to the sessions that wrote them, and draft a message from both.

Sessions come from the store of provenance; transcripts of this workspace that are newer than the store are read
directly. Only recent sessions count.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.commits import message as messages
from nugget.commits.attribution import StagedFile, attribute, author_name, has_lines, staged_content, staged_files
from nugget.config import Environment, Settings
from nugget.errors import GitError, LLMUnavailable
from nugget.infra import git
from nugget.infra.workspace import Workspace, find_workspace, relative_path
from nugget.models import EventKind, Scope, Session, SessionFile
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.sources import nugget_store as store
from nugget.text import content_hash, shorten

if TYPE_CHECKING:
    from nugget.infra.llm import LLM

_REASONS = (NuggetType.CONSTRAINT, NuggetType.DECISION, NuggetType.WORKAROUND, NuggetType.CAVEAT)
_MAX_HASHED = 20
_MAX_PROMPT = 4000
_MAX_BYTES, _MAX_BYTES_IN_HOOK = 256 << 20, 24 << 20
"""Larger transcripts are not read."""
_SLACK_S = 2.0
"""A transcript newer than its stored session by more than this has grown since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A planned commit: the sessions that it comes from (most lines first), and its message."""

    sessions: tuple[SessionRecord, ...]
    message: str
    notes: tuple[str, ...] = ()


def prepare(
    folder: Path, environment: Environment, settings: Settings, *, now: datetime, llm: LLM | None = None,
    variables: Mapping[str, str] | None = None, until: float | None = None,
) -> Commit | None:  # fmt: skip
    """Return the commit that `git commit` in `folder` would make, with a message.

    git's hook passes on the `variables` from git, and `until`, a value of time.process_time: transcripts newer than the
    store are read up to then (the newest in any case), and None is returned if no recent session wrote part of
    the commit. Raises GitError outside a repository, in a bare one, and if nothing is staged.
    """
    workspace = find_workspace(folder)
    if workspace.common_dir is None:
        raise GitError(f"{folder} is not in a git repository.", hint="Change to the repository to commit in.")
    if workspace.root == workspace.common_dir or not (workspace.root / ".git").exists():
        raise GitError(f"{workspace.root} is a bare repository: nothing can be staged there.")
    staged = staged_files(workspace.root, variables=variables)
    if not staged:
        raise GitError("Nothing is staged.", hint="Stage the changes to commit: git add FILE")
    records = _recent_sessions(workspace, staged, environment, settings, now=now, until=until)
    attribution = attribute(staged, records)
    matched = _matched(workspace.root, staged, records, attribution.sessions, variables)
    if until is not None and not matched:
        return None
    intents, reasons = _intents(matched, staged), _reasons(matched, staged)
    message = messages.draft(staged, intents=intents, reasons=reasons)
    notes = []
    if llm is not None:
        try:
            message = messages.draft_with_llm(llm, staged, message, intents, reasons, settings=settings)
        except LLMUnavailable as error:
            notes.append(f"{error} The message was made by rules.")
    trailers = messages.trailers(
        attribution, sessions=[record.session for record in matched], co_authors=settings.commit_co_author,
        name=author_name(workspace.root, variables=variables),
    )  # fmt: skip
    return Commit(sessions=tuple(matched), message=messages.render(message, trailers), notes=tuple(notes))


def _recent_sessions(
    workspace: Workspace, staged: Sequence[StagedFile], environment: Environment, settings: Settings, *,
    now: datetime, until: float | None,
) -> list[SessionRecord]:  # fmt: skip
    """Return the recent sessions that touched a staged file, newest first; unreadable ones are skipped."""
    from nugget.sources.sessions import find_sessions

    since = (now - timedelta(days=settings.commit_recent_days)).timestamp()
    paths = {name for file in staged for name in (file.path, file.previous) if name}
    files = {file.stem: file for file in store.session_files(environment.home, workspace.identity)}
    stored_at = {name: file.stat().st_mtime for name, file in files.items()}
    transcripts = reversed(list(find_sessions(environment, settings.capture_agents)))
    news = [one for one in transcripts if one.mtime >= since and stored_at.get(one.id, 0.0) + _SLACK_S < one.mtime]
    read = _read_transcripts(news, workspace, paths, settings, until) if news else ()
    fresh = {record.session: record for record in read}
    recent = [file for name, file in files.items() if stored_at[name] >= since and name not in fresh]
    stored = _read_stored(recent, paths)
    touching = [one for one in (*fresh.values(), *stored) if any(touch.path in paths for touch in one.touches)]
    return sorted((one for one in touching if _moment(one).timestamp() >= since), key=_moment, reverse=True)


def _moment(record: SessionRecord) -> datetime:
    return record.ended or record.started or datetime.fromtimestamp(0, UTC)


def _read_stored(files: Iterable[Path], paths: set[str]) -> Iterator[SessionRecord]:
    """Yield the stored sessions whose files mention one of the paths, without parsing the others."""
    for file in files:
        with suppress(Exception):
            if _mentions(file, paths):
                yield store.read_session_file(file)[0]


def _mentions(file: Path, names: Iterable[str]) -> bool:
    """Return whether a JSON file contains one of the names, escaped or not."""
    content = file.read_bytes()
    forms = (json.dumps(name, ensure_ascii=is_ascii)[1:-1] for name in names for is_ascii in (True, False))
    return any(form.encode("utf-8", "replace") in content for form in forms)


def _read_transcripts(
    files: Iterable[SessionFile], workspace: Workspace, paths: set[str], settings: Settings, until: float | None
) -> Iterator[SessionRecord]:
    from nugget.extraction.file_changes import file_touches
    from nugget.extraction.places import Places
    from nugget.redaction import is_excluded_project
    from nugget.sources.sessions import read_any

    roots = [workspace, *(replace(workspace, root=folder) for folder in git.checkouts(workspace.root))]
    names = {name.rpartition("/")[2] for name in paths}
    most_bytes = _MAX_BYTES if until is None else _MAX_BYTES_IN_HOOK
    parsed = 0
    for file in files:
        if parsed and until is not None and time.process_time() >= until:
            return
        with suppress(Exception):  # no transcript, however odd, may cost a person their commit message
            is_plain = file.path.is_file() and not file.is_shared and file.path.suffix != ".zst"
            if file.size > most_bytes or (is_plain and not _mentions(file.path, names)):
                continue
            parsed += 1
            session = read_any(file)
            places = [(root, place) for root in roots for place in (session.cwd, *session.folders) if place]
            is_here = any(Path(place) == root.root or relative_path(root, place) for root, place in places)
            if is_here and not is_excluded_project(session, settings=settings):
                excluded = settings.capture_exclude_paths
                touches = file_touches(session, Places(session=session, roots=roots, excluded=excluded))
                yield _record(session, roots, touches)


def _record(session: Session, roots: Sequence[Workspace], touches: Sequence[FileTouch]) -> SessionRecord:
    """Return the part of a session that the commit needs: its touches, and the prompt of each edit."""
    from nugget.redaction import redact_all

    said = [event.text[:_MAX_PROMPT] for event in session.events if event.kind is EventKind.PROMPT]
    title, *prompts = (one.text for one in redact_all([session.title or "", *said]))
    return SessionRecord(
        session=session.id, workspace=roots[0].identity, agent=session.agent, title=title,
        first_prompt=prompts[0] if prompts else "", started=session.started, ended=session.ended,
        branch=session.branch, transcript=session.path, records=session.records, touches=tuple(touches),
        nuggets=tuple(_edit_intents(session, roots, iter(prompts))),
    )  # fmt: skip


def _edit_intents(session: Session, roots: Sequence[Workspace], prompts: Iterator[str]) -> Iterator[Nugget]:
    """Yield the redacted prompt of each edit of a file as an intent that is scoped to the file."""
    prompt = ""
    for event in session.events:
        if event.kind is EventKind.PROMPT:
            prompt = next(prompts)
        elif event.kind is EventKind.FILE_EDIT and event.path and prompt:
            paths = (relative_path(root, event.path, folder=session.cwd) for root in roots)
            if path := next(filter(None, paths), None):
                yield Nugget(
                    id="", type=NuggetType.INTENT, summary=shorten(prompt, SUMMARY_CHARS), confidence=0.5,
                    session=session.id, scope=Scope(path=path), source_prompt=prompt,
                )  # fmt: skip


def _matched(
    repo: Path, staged: Sequence[StagedFile], records: Sequence[SessionRecord], writers: Iterable[str],
    variables: Mapping[str, str] | None,
) -> list[SessionRecord]:  # fmt: skip
    """Return the `writers` of lines of the commit, else the sessions that left a file exactly as staged."""
    by_id = {record.session: record for record in records}
    found = {name: by_id[name] for name in writers}
    explained = {touch.path for record in found.values() for touch in record.touches}
    left = [file for file in staged if file.path not in explained and not (has_lines(file) and file.added)]
    for file in left[:_MAX_HASHED]:
        content = None if file.status == "D" else staged_content(repo, file.path, variables=variables) or b""
        hashed = None if content is None else content_hash(content)
        for record in records:
            own = [touch for touch in record.touches if touch.path in (file.path, file.previous)]
            if any(one.after_hash == hashed and (hashed or one.action is TouchAction.DELETED) for one in own):
                found.setdefault(record.session, record)
    return list(found.values())


def _intents(matched: Sequence[SessionRecord], staged: Sequence[StagedFile]) -> list[str]:
    """Return the prompts under which the staged files were edited, most frequent first; else the session's first."""
    paths = {file.path for file in staged}
    nuggets = [one for record in matched for one in record.nuggets]
    intents = [one for one in nuggets if one.type is NuggetType.INTENT and one.scope.path in paths]
    prompts = [text for text, _ in Counter(one.source_prompt or one.summary for one in intents).most_common()]
    if any(map(messages.subject_of, prompts)):
        return prompts
    return [text for record in matched for text in (record.first_prompt, record.title) if text][:1]


def _reasons(matched: Sequence[SessionRecord], staged: Sequence[StagedFile]) -> list[str]:
    """Return known constraints, decisions and other reasons about the staged files."""
    paths = {file.path for file in staged}
    nuggets = [one for record in matched for one in record.nuggets if one.scope.path in paths]
    # A summary may begin with its type already.
    found = (f"{kind.capitalize()}: {messages.sentence(one.summary.removeprefix(f'{kind.capitalize()}: '))}"
             for kind in _REASONS for one in nuggets if one.type is kind)  # fmt: skip
    return list(dict.fromkeys(found))


def write_message(folder: Path, file: Path, make: Callable[[], Commit | None]) -> None:
    """Put a message above the comments in git's file, unless it already has one."""
    content, mark = file.read_bytes(), _comment_mark(folder)
    lines = [line for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
    above = takewhile(lambda line: not (line.startswith(mark) and ">8" in line), lines)
    if all(line.startswith(mark) for line in above) and (commit := make()) is not None:
        file.write_bytes(commit.message.encode("utf-8", "replace") + b"\n" + content.lstrip(b"\r\n"))


def _comment_mark(folder: Path) -> str:
    """Return the prefix of git's comments: `#`, or the configured one. With `auto`, a new message has `#`."""
    found = git.run(folder, "config", "--get-regexp", r"^core\.comment(char|string)$", check=False).decode()
    mark = found.rstrip("\n").rpartition("\n")[2].partition(" ")[2]
    return "#" if mark in ("", "auto") else mark
