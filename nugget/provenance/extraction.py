"""Provenance of sessions: each becomes a file of nuggets and file touches in the store, once, and again when it grows.

read -> find its workspaces -> touches (by hash) -> redact -> nuggets -> store; then, over all sessions of a workspace,
which files a person changed since. What was read before and is unchanged is not read again: size and time of each
transcript stand in `$NUGGET_HOME/provenance/seen.json`. That file is only a memory; without it everything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.config import Settings
from nugget.errors import LLMUnavailable, reason_of
from nugget.extraction.places import Places
from nugget.extraction.provenance import heuristic_nuggets, read_for_nuggets
from nugget.extraction.requests import cleaned, is_request, one_line
from nugget.extraction.touches import TouchedFiles, file_touches
from nugget.extraction.tuning import find_tunings
from nugget.infra.workspace import Workspace
from nugget.models import EventKind, Session, SessionFile
from nugget.models.nuggets import Nugget, NuggetType, SessionRecord
from nugget.redaction import allow_list, is_excluded_project, redact, redact_session
from nugget.sources.files import session_file as describe_file
from nugget.sources.files import split_locator
from nugget.sources.nugget_store import (
    known_workspaces,
    natural_key,
    note_workspace,
    provenance_folder,
    read_session_file,
    session_file,
    session_files,
    write_session,
)
from nugget.sources.session_workspaces import ReadState, WorkspaceFinder
from nugget.sources.sessions import read_any

if TYPE_CHECKING:
    from nugget.extraction.generative_nuggets import GenerativeNuggets
    from nugget.infra.llm import LLM, ClaudeCli

NOTHING = "nothing"
"""How a session counts of which nothing is kept."""
NOTHING_NEW = "nothing new since it was extracted"
_PROMPT_CHARS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractor:
    """Everything that extraction needs, bound once by the face. Without `llm` it is heuristic.

    `is_optional` says that a session of which the LLM gave nothing is kept with what the heuristics found.
    """

    home: Path
    settings: Settings
    now: datetime
    llm: LLM | ClaudeCli | None = None
    is_optional: bool = True
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result for a session: `extracted`, `skipped` or `failed`, with the reason for the latter two.

    `nuggets` and `touches` are counts over all its workspaces; `dropped` what was found and could not be kept.
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
    found: Sequence[SessionFile],
    extractor: Extractor,
    *,
    workspace: str | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Iterator[Outcome]:
    """Extract these sessions, those of one workspace (by identity) or all; each one's outcome as it is known.

    Sessions of other workspaces have no outcome. One that fails stops nothing.
    """
    seen = ReadState.load(extractor.home)
    finder = WorkspaceFinder(extractor.home)
    method = "generative" if extractor.llm is not None else "heuristic"
    is_new = workspace is not None and not provenance_folder(extractor.home, workspace).is_dir()
    try:
        for number, file in enumerate(found):
            progress("Extracting", number, len(found))
            known = seen.workspaces(file)
            if extractor.force or is_new:
                known = None  # A checkout that got a remote is a new workspace: what was read before tells nothing.
            if known is not None and workspace is not None and workspace not in known:
                continue
            if known is not None and _is_done(file, known, seen.how(file), method, extractor.home):
                yield Outcome(
                    session=file.id, agent=file.agent, state="skipped", reason=NOTHING_NEW, workspaces=tuple(known)
                )
                continue
            outcome, places = _extract(file, extractor, finder, workspace)
            if not extractor.dry_run and (outcome is None or outcome.state != "failed"):
                seen.note(file, [one.identity for one in places], how=_how(outcome, method))
            if outcome is None:
                continue
            yield outcome
        progress("Extracting", len(found), len(found))
    finally:
        if not extractor.dry_run:
            seen.save()


def extract_captured(transcript: Path, *, home: Path, settings: Settings, now: datetime) -> Outcome | None:
    """Return the provenance of a session that was just captured, by the heuristics, where `provenance` is switched on.

    Also looks which files of its workspaces a person changed since. None where it is switched off or cannot be read;
    nothing is raised that a transcript or the disk can cause.
    """
    path, name = split_locator(transcript)
    file = describe_file(path, agent="claude-code", name=name or path.stem) if settings.provenance else None
    if file is None:
        return None
    file = replace(file, path=transcript)
    extractor = Extractor(home=home, settings=settings, now=now)
    try:
        outcome = next(extract_sessions([file], extractor), None)
        finder = WorkspaceFinder(home)
        places = {one.identity: one for one in map(finder.of_folder, known_workspaces(home))}
        for identity in outcome.workspaces if outcome and outcome.state == "extracted" else ():
            if identity in places and places[identity].root.is_dir():
                note_tunings(places[identity], extractor)
    except Exception:
        return None
    return outcome


def _how(outcome: Outcome | None, wanted: str) -> str:
    """Return how a session counts as read: by the method that kept something of it, or as one that left nothing."""
    if outcome is None:
        return ""
    if outcome.state == "extracted":
        return outcome.method
    return wanted if outcome.reason == NOTHING_NEW else NOTHING


def _is_done(file: SessionFile, workspaces: Sequence[str], how: str, method: str, home: Path) -> bool:
    """Return whether an unchanged session needs no reading: nothing is kept of it, or what is kept is still there."""
    kept = any(session_file(home, one, file.id).is_file() for one in workspaces)
    return how == NOTHING or (how in (method, "generative") and kept)


def note_tunings(workspace: Workspace, extractor: Extractor) -> int:
    """Look which files a person changed after a session had; how many nuggets tell of it that are new or different.

    A tuning that was seen once stays, whatever is checked out later, until another of the same file takes its place.
    """
    records = [read_session_file(file)[0] for file in session_files(extractor.home, workspace.identity)]
    found = find_tunings(records, workspace, now=extractor.now)
    noted = 0
    for record in records:
        fresh = found.get(record.session, [])
        known = {nugget.scope.path: nugget for nugget in record.nuggets if nugget.type is NuggetType.TUNING}
        changed = [one for one in fresh if _says_other(known.get(one.scope.path), one)]
        if not changed:
            continue
        noted += len(changed)
        paths = {one.scope.path for one in changed}
        kept = [one for one in record.nuggets if one.type is not NuggetType.TUNING or one.scope.path not in paths]
        if not extractor.dry_run:
            whole = replace(record, workspace=workspace.identity, nuggets=(*kept, *changed))
            write_session(extractor.home, whole, allow=allow_list(extractor.settings))
    return noted


def _says_other(known: Nugget | None, nugget: Nugget) -> bool:
    return known is None or (known.summary, known.file_hash) != (nugget.summary, nugget.file_hash)


def _extract(
    file: SessionFile, extractor: Extractor, finder: WorkspaceFinder, wanted: str | None
) -> tuple[Outcome | None, list[Workspace]]:
    """Extract one session; return its outcome (None if it is of another workspace) and its workspaces."""
    plain = Outcome(session=file.id, agent=file.agent, state="skipped")
    try:
        session = read_any(file)
        plain = replace(plain, session=session.id, agent=session.agent)
        grouped = finder.of_session(session)
        places = [checkouts[0] for checkouts in grouped.values()]
        if wanted is not None and wanted not in grouped:
            return None, places
        names = tuple(grouped)
        if reason := _nothing_to_do(session, extractor, grouped):
            return replace(plain, reason=reason, workspaces=names), places
        plain = replace(plain, title=_title(session))
        if reason := _known_already(session, extractor, names[0]):
            return replace(plain, reason=reason, workspaces=names), places
        parts = [_of_workspace(session, name, grouped, extractor) for name in grouped]
    except Exception as error:
        return replace(plain, state="failed", reason=reason_of(error)), []
    kept = [part for part in parts if part.record is not None]
    if not kept:
        return replace(plain, reason="nothing worth keeping was found", workspaces=names), places
    dropped = tuple(line for part in parts for line in part.dropped)
    outcome = replace(
        plain, state="extracted", workspaces=tuple(part.record.workspace for part in kept if part.record),
        nuggets=sum(len(part.record.nuggets) for part in kept if part.record), dropped=dropped,
        touches=sum(len(part.record.touches) for part in kept if part.record), usd=sum(part.usd for part in parts),
        method="generative" if any(part.is_generative for part in parts) else "heuristic",
    )  # fmt: skip
    return outcome, places


def _title(session: Session) -> str:
    """Return the title of the session, else its first prompt."""
    prompts = (one.text for one in session.events if one.kind is EventKind.PROMPT and is_request(one.text))
    return redact(session.title or one_line(cleaned(next(prompts, ""))[:_PROMPT_CHARS])).text


def _nothing_to_do(session: Session, extractor: Extractor, grouped: dict[str, list[Workspace]]) -> str:
    if not grouped:
        return "the transcript does not tell where it worked"
    if Path(session.cwd or "/").is_relative_to(extractor.home):
        return "Nugget itself ran it"
    if is_excluded_project(session, settings=extractor.settings):
        return f"sessions in {session.cwd} are excluded (capture.exclude_projects)"
    if not any(event.kind in (EventKind.PROMPT, EventKind.REPLY, EventKind.FILE_EDIT) for event in session.events):
        return "the session holds no conversation"
    return ""


def _known_already(session: Session, extractor: Extractor, workspace: str) -> str:
    """Return the reason why a session need not be extracted; empty if it has to be."""
    file = session_file(extractor.home, workspace, session.id)
    if extractor.force or not file.is_file():
        return ""
    known = read_session_file(file)[0]
    if known.records > session.records:
        return "a longer transcript of it was extracted already"
    until = _read_until(_found_by_llm(known))
    asked = extractor.llm is None or (until is not None and (session.ended is None or until >= session.ended))
    return NOTHING_NEW if known.records == session.records and asked else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The part of a session that belongs to one of its workspaces."""

    record: SessionRecord | None
    dropped: tuple[str, ...] = ()
    usd: float = 0.0
    is_generative: bool = False


def _of_workspace(session: Session, name: str, grouped: dict[str, list[Workspace]], extractor: Extractor) -> _Part:
    """Extract for one workspace and store it; no record where the session did nothing there that is its main one."""
    others = [root for other, roots in grouped.items() if other != name for root in roots]
    places = Places(
        session=session, roots=grouped[name], others=others, excluded=extractor.settings.capture.exclude_paths
    )
    touched = file_touches(session, places)
    is_main = name == next(iter(grouped))
    if not touched.touches and not is_main:
        return _Part(record=None)
    reading = read_for_nuggets(session, touched, places, workspace=name, settings=extractor.settings, now=extractor.now)
    file = session_file(extractor.home, name, session.id)
    known = read_session_file(file)[0] if file.is_file() else None
    try:
        asked = _by_llm(session, known, places, touched, extractor) if is_main else None
        dropped = asked.dropped if asked else ()
    except LLMUnavailable as error:
        if not extractor.is_optional:
            raise
        asked, dropped = None, (f"the LLM was of no help, so this is what the heuristics found: {error}",)
    by_llm = asked.nuggets if asked else _found_by_llm(known)
    usd = asked.usd if asked else 0.0
    is_generative = asked is not None and extractor.llm is not None and not extractor.dry_run
    nuggets = [*heuristic_nuggets(reading, reasons=not is_generative), *by_llm]
    nuggets += _tunings_of(known, nuggets)
    if not nuggets and not touched.touches:
        return _Part(record=None, dropped=dropped, usd=usd)
    first = next((one.text for one in session.events if one.kind is EventKind.PROMPT and is_request(one.text)), "")
    record = SessionRecord(
        session=session.id, workspace=name, agent=session.agent, title=session.title or "",
        first_prompt=cleaned(first)[:_PROMPT_CHARS] if first else "", started=session.started, ended=session.ended,
        branch=session.branch, transcript=session.path, records=session.records, nuggets=tuple(nuggets),
        touches=touched.touches,
    )  # fmt: skip
    if not extractor.dry_run:
        note_workspace(extractor.home, grouped[name][0])
        write_session(extractor.home, record, allow=allow_list(extractor.settings))
    return _Part(record=record, dropped=dropped, usd=usd, is_generative=is_generative)


def _by_llm(
    session: Session, known: SessionRecord | None, places: Places, touched: TouchedFiles, extractor: Extractor
) -> GenerativeNuggets:
    """Return what the LLM finds in what is new, beside what it found before. Raises LLMUnavailable."""
    from nugget.extraction.generative_nuggets import GenerativeNuggets, extract_nuggets

    earlier = () if extractor.force and extractor.llm is not None else _found_by_llm(known)
    if extractor.llm is None or extractor.dry_run:
        return GenerativeNuggets(nuggets=earlier)
    events = session.events
    if until := _read_until(earlier):
        events = tuple(one for one in events if one.timestamp is not None and one.timestamp > until)
    if not any(one.kind in (EventKind.PROMPT, EventKind.REPLY) for one in events):
        return GenerativeNuggets(nuggets=earlier)
    fresh, _ = redact_session(replace(session, events=events), settings=extractor.settings)
    workspace = places.roots[0].identity
    found = extract_nuggets(
        fresh, llm=extractor.llm, settings=extractor.settings, places=places, touches=touched.touches,
        workspace=workspace, now=extractor.now,
    )  # fmt: skip
    keys = {natural_key(one) for one in earlier}
    return replace(found, nuggets=(*earlier, *(one for one in found.nuggets if natural_key(one) not in keys)))


def _found_by_llm(known: SessionRecord | None) -> tuple[Nugget, ...]:
    return tuple(one for one in (known.nuggets if known else ()) if one.method == "generative")


def _read_until(by_llm: Sequence[Nugget]) -> datetime | None:
    """Return when the LLM read the session last, as far as what it found tells."""
    return max((one.extracted_at for one in by_llm if one.extracted_at), default=None)


def _tunings_of(known: SessionRecord | None, nuggets: Sequence[Nugget]) -> list[Nugget]:
    """Return the tunings that were seen before, of files that none of `nuggets` tells the same of."""
    told = {one.scope.path for one in nuggets if one.type is NuggetType.TUNING}
    before = known.nuggets if known else ()
    return [one for one in before if one.type is NuggetType.TUNING and one.scope.path not in told]
