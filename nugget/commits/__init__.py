"""`nugget commit`: what is staged is matched to the sessions that wrote it, and a message is made of both.

Sessions come from the store of provenance; a transcript of this workspace that the store does not know yet, or knows
an older state of, is read as it is. Only recent sessions are looked at.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.commits import message as messages
from nugget.commits.attribution import Attribution, attribute, has_lines, touches_of
from nugget.config import Environment, Settings
from nugget.errors import GitError, LLMUnavailable
from nugget.infra import git
from nugget.infra.git import StagedFile
from nugget.infra.workspace import Workspace, find_workspace, relative_path
from nugget.models import EventKind, Scope, Session, SessionFile
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.redaction import is_excluded_project, redact
from nugget.sources import nugget_store as provenance
from nugget.text import content_hash, shorten

if TYPE_CHECKING:
    from nugget.infra.llm import LLM

_REASONS = (NuggetType.CONSTRAINT, NuggetType.DECISION, NuggetType.WORKAROUND, NuggetType.CAVEAT)
_MAX_HASHED = 20
_MAX_PROMPT = 4000
_ALWAYS_PARSED = 20
_SLACK_S = 2.0
"""A transcript that much newer than what the store has of it has grown since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is read: unknown transcripts up to `max_bytes`, and everything `until`.

    `until` is compared with time.process_time, so that it does not matter what else the machine does. A few of the
    newest sessions are read in any case.
    """

    max_bytes: int = 256 * 1024 * 1024
    until: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit to be: what is staged, the sessions that it comes from (most lines first), and its message."""

    staged: tuple[StagedFile, ...]
    sessions: tuple[SessionRecord, ...]
    attribution: Attribution
    message: str
    method: str = "heuristic"
    notes: tuple[str, ...] = field(default=())


def prepare(
    folder: Path,
    environment: Environment,
    settings: Settings,
    *,
    now: datetime,
    llm: LLM | None = None,
    model: str | None = None,
    variables: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    only_with_sessions: bool = False,
) -> Commit | None:
    """Return the commit that `git commit` in `folder` would make, with a message for it.

    None with `only_with_sessions` if no recent session had a part in it. `variables` are those that git gave its
    hook. Raises GitError outside a repository, in a bare one, and if nothing is staged.
    """
    workspace = find_workspace(folder)
    if workspace is None or workspace.common_dir is None:
        raise GitError(f"{folder} is in no git repository.", hint="Change to the repository whose changes to commit.")
    if workspace.root == workspace.common_dir or not (workspace.root / ".git").exists():
        raise GitError(f"{workspace.root} is a bare repository: nothing can be staged there.")
    staged = git.staged_files(workspace.root, variables=variables)
    if not staged:
        raise GitError("Nothing is staged.", hint="Stage what belongs into the commit: git add FILE")
    records = list(recent_sessions(workspace, staged, environment, settings, now=now, limits=limits or Limits()))
    attribution = attribute(staged, records, held=_held(workspace.root, staged))
    matched = _matched(workspace.root, staged, records, attribution, variables)
    if only_with_sessions and not matched:
        return None
    intents, reasons = _intents(matched, staged), _reasons(matched, staged)
    made = messages.draft(staged, intents=intents, reasons=reasons)
    method, notes = "heuristic", []
    if llm is not None:
        try:
            made = messages.worded(llm, staged, made, intents, reasons, settings=settings, model=model)
            method = "generative"
        except LLMUnavailable as error:
            notes.append(f"{error} The message was made by rules.")
    ends = messages.trailers(
        attribution,
        sessions=[record.session for record in matched],
        name=git.author_name(workspace.root, variables=variables),
        co_authors=settings.commit.co_author,
    )
    return Commit(
        staged=staged, sessions=tuple(matched), attribution=attribution, message=messages.rendered(made, ends),
        method=method, notes=tuple(notes),
    )  # fmt: skip


def recent_sessions(
    workspace: Workspace,
    staged: Sequence[StagedFile],
    environment: Environment,
    settings: Settings,
    *,
    now: datetime,
    limits: Limits,
) -> Iterator[SessionRecord]:
    """Yield the recent sessions that touched a staged file, newest first; unreadable ones are skipped."""
    since = (now - timedelta(days=settings.commit.recent_days)).timestamp()
    named = {name for file in staged for name in (file.path, file.previous) if name}
    files = {file: file.stat().st_mtime for file in provenance.session_files(environment.home, workspace.identity)}
    known = {file.stem: mtime for file, mtime in files.items()}
    unread = [file for file in _transcripts(workspace, environment, settings, since=since) if _is_news(file, known)]
    fresh = {record.session: record for record in _read_transcripts(unread, workspace, named, settings, limits)}
    newest = sorted((file for file in files if file.stem not in fresh), key=lambda file: -files[file])
    found = [*fresh.values(), *_read_stored((file for file in newest if files[file] >= since), named, limits)]
    touching = [record for record in found if any(touch.path in named for touch in record.touches)]
    recent = [record for record in touching if _moment(record).timestamp() >= since]
    yield from sorted(recent, key=_moment, reverse=True)


def _moment(record: SessionRecord) -> datetime:
    moment = record.ended or record.started or datetime.fromtimestamp(0, UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _read_stored(files: Iterable[Path], named: set[str], limits: Limits) -> Iterator[SessionRecord]:
    """Return what the store has of sessions in which one of the paths occurs: most files need not be parsed."""
    spellings = {spelling for name in named for spelling in _spellings(name)}
    parsed = 0
    for file in files:
        if parsed >= _ALWAYS_PARSED and time.process_time() >= limits.until:
            return
        try:
            content = file.read_bytes()
            if any(spelling in content for spelling in spellings):
                parsed += 1
                yield provenance.read_session_file(file)[0]
        except Exception:
            continue


def _spellings(name: str) -> set[bytes]:
    """Return the ways a path can be written in JSON."""
    return {json.dumps(name, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "replace") for ascii_only in (True, False)}


def _transcripts(
    workspace: Workspace, environment: Environment, settings: Settings, *, since: float
) -> Iterator[SessionFile]:
    """Yield the recent transcripts, newest first, of the agents that capture is switched on for."""
    from nugget.sources.sessions import find_sessions

    files = list(find_sessions(environment, settings.capture.agents))
    yield from (file for file in reversed(files) if file.mtime >= since)


def _is_news(file: SessionFile, known: Mapping[str, float]) -> bool:
    return known.get(file.id, 0.0) + _SLACK_S < file.mtime


def _read_transcripts(
    files: Iterable[SessionFile], workspace: Workspace, named: set[str], settings: Settings, limits: Limits
) -> Iterator[SessionRecord]:
    roots: list[Workspace] = []
    names = {name.rpartition("/")[2] for name in named}
    parsed = 0
    for file in files:
        if parsed and time.process_time() >= limits.until:
            return
        if file.size > limits.max_bytes or not _mentions(file, names):
            continue
        from nugget.extraction.places import Places
        from nugget.extraction.touches import file_touches
        from nugget.sources.sessions import read_any

        parsed += 1
        try:
            session = read_any(file)
            roots = roots or _checkouts(workspace)
            is_here = any(_is_inside(folder, roots) for folder in (session.cwd, *session.folders) if folder)
            if is_here and not is_excluded_project(session, settings=settings):
                places = Places(session=session, roots=roots, excluded=settings.capture.exclude_paths)
                yield _record(session, roots, file_touches(session, places).touches)
        except Exception:  # a transcript of any shape must not cost a person the message of a commit
            continue


def _mentions(file: SessionFile, names: set[str]) -> bool:
    """Return whether a transcript names one of the files at all, so that it is worth being parsed."""
    if file.is_shared or not file.path.is_file() or file.path.suffix == ".zst":
        return True
    try:
        content = file.path.read_bytes()
    except OSError:
        return False
    return any(spelling in content for name in names for spelling in _spellings(name))


def _checkouts(workspace: Workspace) -> list[Workspace]:
    others = [folder for folder in git.checkouts(workspace.root) if folder != workspace.root]
    return [workspace, *(replace(workspace, root=folder) for folder in others)]


def _is_inside(folder: str, roots: Sequence[Workspace]) -> bool:
    path = Path(folder)
    return any(path == root.root or relative_path(root, folder) is not None for root in roots)


def _record(session: Session, roots: Sequence[Workspace], touches: Sequence[FileTouch]) -> SessionRecord:
    """Return what the commit needs of a session: its touches, and under which prompt each file was edited."""
    prompts = [event.text for event in session.events if event.kind is EventKind.PROMPT]
    return SessionRecord(
        session=session.id, workspace=roots[0].identity, agent=session.agent,
        title=redact(session.title or "").text, first_prompt=redact(prompts[0][:_MAX_PROMPT]).text if prompts else "",
        started=session.started, ended=session.ended, branch=session.branch, transcript=session.path,
        records=session.records, touches=tuple(touches), nuggets=tuple(_prompted(session, roots)),
    )  # fmt: skip


def _prompted(session: Session, roots: Sequence[Workspace]) -> Iterator[Nugget]:
    prompt, seen = "", set()
    for event in session.events:
        if event.kind is EventKind.PROMPT:
            prompt = redact(event.text[:_MAX_PROMPT]).text
        elif event.kind is EventKind.FILE_EDIT and event.path and prompt:
            named = (relative_path(root, event.path, folder=session.cwd) for root in roots)
            path = next(filter(None, named), None)
            if path and (path, prompt) not in seen:
                seen.add((path, prompt))
                yield Nugget(
                    id="", type=NuggetType.INTENT, summary=shorten(prompt, SUMMARY_CHARS), confidence=0.5,
                    session=session.id, scope=Scope(path=path), source_prompt=prompt,
                )  # fmt: skip


def _held(repo: Path, staged: Sequence[StagedFile]) -> dict[str, frozenset[str]]:
    """Return the lines, without space at their ends, that the staged files hold in HEAD, by their present path."""
    files = [file for file in staged if file.status != "A" and file.added and has_lines(file)]
    plain = [file for file in files if "\n" not in (file.previous or file.path)]
    contents = git.read_objects(repo, [f"HEAD:{file.previous or file.path}" for file in plain])
    return {
        file.path: frozenset(line.strip() for line in content.decode("utf-8", "replace").splitlines())
        for file, content in zip(plain, contents, strict=True)
        if content is not None
    }


def _matched(
    repo: Path,
    staged: Sequence[StagedFile],
    records: Sequence[SessionRecord],
    attribution: Attribution,
    variables: Mapping[str, str] | None,
) -> list[SessionRecord]:
    """Return the sessions that wrote lines of the commit, else left a file just as it is staged."""
    by_id = {record.session: record for record in records}
    found = {name: by_id[name] for name in attribution.sessions}
    explained = {touch.path for record in found.values() for touch in record.touches}
    left = [file for file in staged if file.path not in explained and not (has_lines(file) and file.added)]
    for file in left[:_MAX_HASHED]:
        content: str | None = None
        for record in records:
            for touch in touches_of(file, record):
                if file.status == "D":
                    is_same = touch.action is TouchAction.DELETED
                else:
                    content = content or content_hash(git.staged_content(repo, file.path, variables=variables) or b"")
                    is_same = touch.after_hash == content
                if is_same:
                    found.setdefault(record.session, record)
    return list(found.values())


def _intents(matched: Sequence[SessionRecord], staged: Sequence[StagedFile]) -> list[str]:
    """Return the prompts under which the staged files were edited, most frequent first; else the session's first."""
    paths = {file.path for file in staged}
    of_files: Counter[str] = Counter()
    of_sessions: list[str] = []
    for record in matched:
        for nugget in record.nuggets:
            if nugget.type is NuggetType.INTENT and nugget.scope.path in paths:
                of_files[nugget.source_prompt or nugget.summary] += 1
        of_sessions += [text for text in (record.first_prompt, record.title) if text]
    prompts_of_files = [text for text, _ in of_files.most_common()]
    return prompts_of_files if any(map(messages.subject_of, prompts_of_files)) else of_sessions[:1]


def _reasons(matched: Sequence[SessionRecord], staged: Sequence[StagedFile]) -> list[str]:
    """Constraints, decisions and the like that are known of the staged files."""
    paths = {file.path for file in staged}
    found = [
        f"{nugget.type.capitalize()}: {messages.sentence(nugget.summary)}"
        for kind in _REASONS
        for record in matched
        for nugget in record.nuggets
        if nugget.type is kind and nugget.scope.path in paths
    ]
    return list(dict.fromkeys(found))


def write_message(
    file: Path, make: Callable[[], Commit | None], *, source: str = "", comment: Callable[[], str] = lambda: "#"
) -> bool:
    """Put a message above the comments in git's file, unless the person gave one.

    `source` is git's second argument: with any (message, template, merge, squash, commit) nothing is done, nor where
    something stands in the file already. Returns whether the file was written.
    """
    if source:
        return False
    content = file.read_bytes()
    if _says_something(content.decode("utf-8", "replace"), comment):
        return False
    commit = make()
    if commit is None:
        return False
    rest = content.lstrip(b"\r\n")
    file.write_bytes(commit.message.encode("utf-8", "replace") + b"\n" + rest)
    return True


def _says_something(content: str, comment: Callable[[], str]) -> bool:
    lines = [line for line in content.splitlines() if line.strip()]
    if all(line.startswith("#") for line in lines):
        return False
    if not lines:
        return False
    mark = comment()
    for line in lines:
        if line.startswith(mark) and ">8" in line:
            return False
        if not line.startswith(mark):
            return True
    return False
