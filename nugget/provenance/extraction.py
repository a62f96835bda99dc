"""Provenance of sessions: each becomes a file of nuggets and file touches in the store, and is read again if it grows.

read -> find its workspaces -> touches (by hash) -> redact -> nuggets -> store; then, over all sessions of a workspace,
the files that a person changed since. Unchanged transcripts are not read again: their sizes and times are in
`$NUGGET_HOME/provenance/seen.json`. Without that file everything is read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.config import Settings
from nugget.errors import LLMUnavailable, reason_of
from nugget.extraction.file_changes import file_touches
from nugget.extraction.places import Places
from nugget.extraction.reasons import heuristic_nuggets, readable
from nugget.extraction.requests import first_request, one_line
from nugget.extraction.tuning import find_tunings
from nugget.infra import files
from nugget.infra.workspace import Workspace, WorkspaceFinder
from nugget.models import EventKind, Session, SessionFile
from nugget.models.nuggets import FileTouch, Nugget, NuggetType, SessionRecord
from nugget.redaction import allow_list, is_excluded_project, redact, redact_session
from nugget.sources import nugget_store as store
from nugget.sources import parse_record, split_locator
from nugget.sources import session_file as describe_file
from nugget.sources.sessions import read_any
from nugget.text import tracked

if TYPE_CHECKING:
    from nugget.infra.llm import Model

_NOTHING = "nothing"
"""The method noted for a session with nothing worth keeping."""
_PROMPT_CHARS = 2000

ReadSession = tuple[Session, Session, Mapping[str, int]]
"""A session as in its transcript, for hashes; the same redacted; and the removed secrets by kind."""

_SEEN_VERSION = 5
"""Version of the heuristics; sessions read by an earlier one are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractor:
    """The parameters of extraction, bound once by the face. Without `llm` it is heuristic.

    With `is_optional`, a session for which the LLM fails keeps the findings of the heuristics.
    """

    home: Path
    settings: Settings
    now: datetime
    llm: Model | None = None
    is_optional: bool = True
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedSession:
    """The result for a session: `extracted`, `skipped` or `failed`, with the reason for the latter two.

    `nuggets` and `touches` are counts over all its workspaces; `dropped` are findings that could not be kept.
    """

    session: str
    agent: str
    state: str
    reason: str = ""
    title: str = ""
    workspaces: tuple[str, ...] = ()
    nuggets: int = 0
    touches: int = 0
    dropped: tuple[str, ...] = ()
    usd: float = 0.0
    method: str = "heuristic"


def extract_sessions(
    found: Sequence[SessionFile], extractor: Extractor, *, workspace: str | None = None, read: ReadSession | None = None
) -> Iterator[ExtractedSession]:
    """Extract these sessions, of one workspace (by identity) or all; yield each outcome as it is known.

    Sessions of other workspaces have no outcome. A failed one does not stop the others. `read` is the session if the
    caller has already read it.
    """
    file_of_seen = extractor.home / "provenance" / "seen.json"
    seen: dict[str, Any] = {}  # by locator: [size, mtime, version, workspaces, how]
    with suppress(OSError):
        seen = parse_record(file_of_seen.read_bytes()) or {}
    finder = WorkspaceFinder(store.known_workspaces(extractor.home))
    method = "generative" if extractor.llm is not None else "heuristic"
    # A checkout that got a remote is a new workspace, so everything is read again.
    is_new = workspace is not None and not store.provenance_folder(extractor.home, workspace).is_dir()
    try:
        for file in tracked(found, "Extracting"):
            state, entry = [file.size, file.mtime, _SEEN_VERSION], seen.get(file.locator)
            if isinstance(entry, list) and entry[:3] == state and not extractor.force and not is_new:
                names, how = entry[3:]
                if workspace is not None and workspace not in names:
                    continue
                is_kept = any(store.session_file(extractor.home, one, file.id).is_file() for one in names)
                if how == _NOTHING or (is_kept and how in (method, "generative")):
                    reason = "nothing new since it was extracted"
                    yield ExtractedSession(
                        session=file.id, agent=file.agent, state="skipped", reason=reason, workspaces=tuple(names)
                    )
                    continue
            extracted, names = _extract(file, extractor, finder, workspace, read)
            if extracted is None:  # of other workspaces
                seen[file.locator] = [*state, names, ""]
                continue
            if extracted.state != "failed":
                seen[file.locator] = [*state, names, extracted.method if extracted.state == "extracted" else _NOTHING]
            yield extracted
    finally:
        if not extractor.dry_run:
            with suppress(OSError):  # the sessions are read again
                files.replace(file_of_seen, json.dumps(seen).encode())


def extract_captured(
    transcript: Path, read: ReadSession, *, home: Path, settings: Settings, now: datetime
) -> ExtractedSession | None:
    """Extract a captured session by the heuristics, and look for files changed by hand since.

    None if `provenance` is off or the session cannot be read; errors of transcripts and disk are not raised.
    """
    path, name = split_locator(transcript)
    file = describe_file(path, agent="claude-code", name=name or path.stem) if settings.provenance else None
    if file is None:
        return None
    extractor = Extractor(home=home, settings=settings, now=now)
    try:
        outcome = next(extract_sessions([replace(file, path=transcript)], extractor, read=read), None)
        known = store.known_workspaces(home)
        for place in map(WorkspaceFinder(known).of_folder, known):
            if outcome and outcome.state == "extracted" and place.identity in outcome.workspaces:
                note_tunings(place, extractor)
    except Exception:
        return None
    return outcome


def note_tunings(workspace: Workspace, extractor: Extractor) -> int:
    """Find files that a person changed after a session did, and return the number of new or changed nuggets.

    A tuning stays, even if another commit is checked out later, until a newer one of the same file replaces it.
    """
    if not workspace.root.is_dir():
        return 0
    records = [store.read_session_file(file)[0] for file in store.session_files(extractor.home, workspace.identity)]
    found = find_tunings(records, workspace, now=extractor.now)
    noted = 0
    for record in records:
        known = {(one.scope.path, one.summary, one.file_hash) for one in _nuggets_of_type(record, NuggetType.TUNING)}
        changed = [
            one for one in found.get(record.session, ()) if (one.scope.path, one.summary, one.file_hash) not in known
        ]
        if changed and not extractor.dry_run:
            paths = {one.scope.path for one in changed}
            kept = [one for one in record.nuggets if one.type is not NuggetType.TUNING or one.scope.path not in paths]
            whole = replace(record, workspace=workspace.identity, nuggets=(*kept, *changed))
            store.write_session(extractor.home, whole, allow=allow_list(extractor.settings))
        noted += len(changed)
    return noted


def _nuggets_of_type(record: SessionRecord | None, kind: NuggetType) -> list[Nugget]:
    return [one for one in (record.nuggets if record else ()) if one.type is kind]


def _extract(
    file: SessionFile, extractor: Extractor, finder: WorkspaceFinder, wanted: str | None, read: ReadSession | None
) -> tuple[ExtractedSession | None, list[str]]:
    """Extract one session; return its outcome (None if it is of another workspace) and its workspaces."""
    plain = ExtractedSession(session=file.id, agent=file.agent, state="skipped")
    try:
        session = read[0] if read else read_any(file)
        grouped = finder.of_session(session)
        names = list(grouped)
        if wanted is not None and wanted not in grouped:
            return None, names
        plain = replace(plain, session=session.id, agent=session.agent, workspaces=tuple(names))
        reason = "" if grouped else "the transcript does not tell where it worked"
        if reason := reason or reason_to_skip(session, extractor.home, extractor.settings):
            return replace(plain, reason=reason), names
        request = first_request(session)[:_PROMPT_CHARS]
        plain = replace(plain, title=redact(session.title or one_line(request)).text)
        known = _stored(session, names[0], extractor)
        if known is not None and known.records > session.records and not extractor.force:
            return replace(plain, reason="a longer transcript of it was extracted already"), names
        redacted = read[1] if read else redact_session(readable(session), settings=extractor.settings)[0]
        parts = [
            _extract_for_workspace((session, redacted), name, grouped, extractor, plain, first_prompt=request)
            for name in grouped
        ]
    except Exception as error:
        return replace(plain, state="failed", reason=reason_of(error)), []
    kept = [part for part in parts if part.state == "extracted"]
    if not kept:
        return replace(plain, reason="nothing worth keeping was found"), names
    return replace(
        plain, state="extracted", workspaces=tuple(part.workspaces[0] for part in kept),
        nuggets=sum(part.nuggets for part in kept), touches=sum(part.touches for part in kept),
        dropped=tuple(line for part in parts for line in part.dropped), usd=sum(part.usd for part in parts),
        method=max((part.method for part in parts), key="heuristic generative".index),
    ), names  # fmt: skip


def reason_to_skip(session: Session, home: Path, settings: Settings) -> str:
    """Return why a session is not extracted, or an empty text if it may be."""
    if session.cwd and Path(session.cwd).is_relative_to(home):
        return "Nugget itself ran it"
    if is_excluded_project(session, settings=settings):
        return f"sessions in {session.cwd} are excluded (capture.exclude_projects)"
    if not any(event.kind in (EventKind.PROMPT, EventKind.REPLY, EventKind.FILE_EDIT) for event in session.events):
        return "the session holds no conversation"
    return ""


def _stored(session: Session, workspace: str, extractor: Extractor) -> SessionRecord | None:
    file = store.session_file(extractor.home, workspace, session.id)
    return store.read_session_file(file)[0] if file.is_file() else None


def _extract_for_workspace(
    read: tuple[Session, Session], name: str, grouped: Mapping[str, Sequence[Workspace]], extractor: Extractor,
    plain: ExtractedSession, *, first_prompt: str,
) -> ExtractedSession:  # fmt: skip
    """Extract and store a session for one workspace, unless it did nothing there."""
    session, redacted = read
    others = [root for other, roots in grouped.items() if other != name for root in roots]
    excluded = extractor.settings.capture_exclude_paths
    places = Places(session=session, roots=grouped[name], others=others, excluded=excluded)
    touches = file_touches(session, places)
    is_main = name == next(iter(grouped))
    if not touches and not is_main:
        return plain
    known = _stored(session, name, extractor)
    by_llm = tuple(one for one in (known.nuggets if known else ()) if one.method == "generative")
    dropped, usd, method = tuple[str, ...](), 0.0, "heuristic"
    if is_main and extractor.llm is not None and not extractor.dry_run:
        try:
            by_llm, dropped, usd = _ask_llm(session, () if extractor.force else by_llm, places, touches, extractor)
            method = "generative"
        except LLMUnavailable as error:
            if not extractor.is_optional:
                raise
            dropped = (f"the LLM failed, so this is what the heuristics found: {error}",)
    reasons = method == "heuristic"
    found = list(heuristic_nuggets(redacted, touches, places, now=extractor.now, reasons=reasons))
    if by_llm:  # which explain their files better than the prompt alone
        explained = {one.scope.path for one in by_llm} | {None}
        found = [one for one in found if one.type is not NuggetType.INTENT or one.scope.path not in explained]
    nuggets = [*found, *by_llm]
    tuned = {one.scope.path for one in nuggets if one.type is NuggetType.TUNING}
    nuggets += [one for one in _nuggets_of_type(known, NuggetType.TUNING) if one.scope.path not in tuned]
    if not nuggets and not touches:
        return replace(plain, dropped=dropped, usd=usd)
    record = SessionRecord(
        session=session.id, workspace=name, agent=session.agent, title=session.title or "", first_prompt=first_prompt,
        started=session.started, ended=session.ended, branch=session.branch, transcript=session.path,
        records=session.records, nuggets=tuple(nuggets), touches=touches,
    )  # fmt: skip
    if not extractor.dry_run:
        store.note_workspace(extractor.home, grouped[name][0])
        store.write_session(extractor.home, record, allow=allow_list(extractor.settings))
    return replace(
        plain, state="extracted", workspaces=(name,), nuggets=len(nuggets), touches=len(touches),
        dropped=dropped, usd=usd, method=method,
    )  # fmt: skip


def _ask_llm(
    session: Session, earlier: tuple[Nugget, ...], places: Places, touches: Sequence[FileTouch], extractor: Extractor
) -> tuple[tuple[Nugget, ...], tuple[str, ...], float]:
    """Return the LLM's earlier nuggets with those from new events, the dropped ones, and the cost.

    Raises LLMUnavailable.
    """
    from nugget.extraction.generative import extract_nuggets

    assert extractor.llm is not None
    until = max((one.extracted_at for one in earlier if one.extracted_at), default=None)  # already read by the LLM
    events = session.events
    if until is not None:
        events = tuple(one for one in events if one.timestamp is not None and one.timestamp > until)
    if not any(one.kind in (EventKind.PROMPT, EventKind.REPLY) for one in events):
        return earlier, (), 0.0
    fresh, _ = redact_session(replace(session, events=events), settings=extractor.settings)
    found, dropped, usd = extract_nuggets(
        fresh, llm=extractor.llm, settings=extractor.settings, places=places, touches=touches,
        now=extractor.now,
    )  # fmt: skip
    keys = {store.natural_key(one) for one in earlier}
    return (*earlier, *(one for one in found if store.natural_key(one) not in keys)), dropped, usd
