"""Capture: a session becomes knowledge files on a branch of the brain, once.

read -> redact -> archive -> leave out what was captured before -> extract -> compare with the brain -> branch.
The user's checkout is never touched. The ledger is written before and after the branch, so that a kill at any
point neither loses a session nor captures it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget.brain import knowledge_file as knowledge
from nugget.brain.filing import forgotten
from nugget.capture import ledger
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import Comparison, FileChange, KnownBrain, Similar, compare
from nugget.capture.identity import brain_key, remember_brain
from nugget.config import Settings
from nugget.errors import BrainError, TranscriptError
from nugget.extraction.proposals import Extraction
from nugget.infra import files, git
from nugget.models import EventKind, Session, Unit
from nugget.redaction import is_excluded_project, redact_session, rules_stamp
from nugget.sources import archive
from nugget.sources.sessions import read_any

MAX_NOTED = 20
"""Of so many units that were left out the ledger keeps the reason."""

Extract = Callable[[Session], Extraction]
"""Finds knowledge in a redacted session; the face binds method, models and limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureResult:
    """Result for a session. `skipped` says why nothing was proposed; `branch` is where the proposal waits."""

    session: str
    branch: str | None = None
    changes: tuple[FileChange, ...] = ()
    skipped: str | None = None
    dropped: tuple[str, ...] = ()
    redacted: Mapping[str, int] = field(default_factory=dict)
    method: str = ""
    summary: str = ""
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Everything that one capture needs, bound once by the face."""

    brain: Path
    home: Path
    settings: Settings
    extract: Extract
    similar: Similar
    now: datetime
    dry_run: bool = False


def capture_transcript(transcript: Path, capture: Capture) -> CaptureResult:
    """Capture a transcript into the brain; where the client has deleted it, from the archive.

    Raises TranscriptError, BrainError, GitError, LLMUnavailable: nothing was captured then, and it can be tried again.
    """
    size = transcript.stat().st_size if transcript.is_file() else None
    session, redacted = read_redacted(transcript, capture)
    outcome = _capture_session(session, capture, redacted=redacted, transcript=transcript, size=size)
    return replace(outcome, redacted=redacted)


def read_redacted(transcript: Path, capture: Capture) -> tuple[Session, Mapping[str, int]]:
    """Read a session without secrets; return it with how many of which kinds were removed."""
    try:
        session = read_any(transcript)
    except TranscriptError:
        kept = archive.archive_file(capture.home, transcript.stem)
        if transcript.exists() or not kept.exists():
            raise
        session = archive.read_archive(kept)
    if is_excluded(session, capture):
        return replace(session, events=()), {}
    return redact_session(session, settings=capture.settings)


def is_excluded(session: Session, capture: Capture) -> bool:
    """Return whether the session is never read: by `capture.exclude_projects`, or because Nugget itself ran it."""
    ours = session.cwd is not None and Path(session.cwd).is_relative_to(capture.home)
    return ours or is_excluded_project(session, settings=capture.settings)


def base_commit(brain: Path) -> str | None:
    """Return the commit that proposals start from: the checked-out one, but never that of another proposal."""
    if not (git.current_branch(brain) or "").startswith(proposal_text.BRANCH_PREFIX):
        return git.head(brain)
    return git.resolve(brain, "refs/heads/main") or git.resolve(brain, "refs/heads/master") or git.head(brain)


def waiting_units(brain: Path) -> list[tuple[Unit, str]]:
    """Return the units on proposal branches that the checked-out branch does not hold, with their branch."""
    found: list[tuple[Unit, str]] = []
    for branch, path, content in git.unmerged_files(brain, proposal_text.BRANCH_PREFIX):
        unit = knowledge.parse_bytes(content, path=path).unit if path.endswith(".md") else None
        if unit is not None:
            found.append((unit, branch))
    return found


def _capture_session(
    session: Session, capture: Capture, *, redacted: Mapping[str, int], transcript: Path, size: int | None
) -> CaptureResult:
    brain, home = capture.brain, capture.home
    if not git.is_repository(brain):
        raise BrainError(f"{brain} is no git repository.", hint=f"Run `nugget init {brain}`.")
    key = brain_key(brain, home) if capture.dry_run else remember_brain(brain, home)
    line: dict[str, Any] = {
        "brain": key, "session": session.id, "transcript": str(transcript), "size": size, "cwd": session.cwd,
        "redacted": dict(redacted),
    }  # fmt: skip
    if not capture.dry_run and session.events:
        archive.write_archive(home, session, stamps=[rules_stamp(capture.settings)])
    with files.locked(home / "locks" / f"{key.replace('/', '_')[-60:]}.lock"):
        fresh = _not_captured_yet(session, capture, key)
        if reason := _nothing_to_do(session, fresh, capture):
            _note(capture, line | {"reason": reason})
            return CaptureResult(session=session.id, skipped=reason)
        extraction = capture.extract(fresh)
        comparison = _compare(fresh, extraction, capture, key)
        return _propose(fresh, extraction, comparison, capture=capture, line=line)


def _not_captured_yet(session: Session, capture: Capture, key: str) -> Session:
    def carried_out(plan: Mapping[str, Any]) -> bool:
        return git.has_commit_with(capture.brain, f"Nugget-Records: {plan.get('capture')}")

    keys = ledger.record_keys(session)
    captured = ledger.captured_keys(capture.home, brain=key, keys=keys, carried_out=carried_out)
    fresh = tuple(event for event, name in zip(session.events, keys, strict=True) if name not in captured)
    return replace(session, events=fresh)


def _nothing_to_do(session: Session, fresh: Session, capture: Capture) -> str | None:
    if is_excluded(session, capture):
        return f"sessions in {session.cwd} are excluded (capture.exclude_projects)"
    said = (EventKind.PROMPT, EventKind.REPLY)
    if not any(event.kind in said for event in session.events):
        return "the session holds no conversation"
    if not any(event.kind in said for event in fresh.events):
        return "nothing new since it was captured"
    return None


def _compare(session: Session, extraction: Extraction, capture: Capture, key: str) -> Comparison:
    brain = capture.brain
    base = base_commit(brain)

    def read(path: str) -> str | None:
        content = git.read_blob(brain, base, path) if base else None
        return None if content is None else content.decode("utf-8", "replace")

    known = KnownBrain(
        files=git.files_at(brain, base, under="domains") if base else {},
        read=read,
        similar=capture.similar,
        waiting=waiting_units(brain),
        rejected=ledger.rejections(capture.home, brain=key),
        forgotten=forgotten(brain),
    )
    return compare(
        extraction.proposals, known, today=capture.now.date(), session=session.id,
        max_units=capture.settings.capture.max_units,
    )  # fmt: skip


def _propose(
    session: Session, extraction: Extraction, comparison: Comparison, *, capture: Capture, line: dict[str, Any]
) -> CaptureResult:
    keys = list(dict.fromkeys(ledger.record_keys(session)))
    dropped = (*extraction.dropped, *comparison.dropped)
    result = CaptureResult(
        session=session.id, changes=comparison.changes, dropped=dropped, method=extraction.method,
        redacted=line["redacted"], summary=extraction.summary, usd=extraction.usd,
    )  # fmt: skip
    line |= {"method": result.method, "usd": result.usd, "dropped": dropped[:MAX_NOTED]}
    line |= {"records": " ".join(keys), "capture": capture_id(keys)}
    if not comparison.changes:
        _note(capture, line | {"reason": "nothing worth keeping was found"})
        return replace(result, skipped="nothing worth keeping was found")
    if capture.dry_run:
        return result
    branch = _make_branch(session, result, capture=capture, line=line, keys=keys)
    return replace(result, branch=branch)


def capture_id(keys: list[str]) -> str:
    """Return the id that a plan in the ledger and its commit's trailer share."""
    return proposal_text.records_trailer(keys).removeprefix("Nugget-Records: ")


def _make_branch(
    session: Session, result: CaptureResult, *, capture: Capture, line: dict[str, Any], keys: list[str]
) -> str:
    moment = (session.ended or capture.now).astimezone(capture.now.tzinfo)
    taken = {branch.name for branch in git.branches(capture.brain, proposal_text.BRANCH_PREFIX)}
    first = branch = proposal_text.branch_name(session, moment)
    number = 1
    while branch in taken:
        number += 1
        branch = f"{first}-{number}"
    body = proposal_text.body(
        session, result.changes, branch=branch, summary=result.summary, dropped=result.dropped,
        redacted=result.redacted, method=result.method, usd=result.usd,
    )  # fmt: skip
    title = proposal_text.title(moment)
    message = proposal_text.message(title, body, session=session, keys=keys, method=result.method)
    units = [change.unit.id for change in result.changes]
    ledger.note_capture(capture.home, _stamped(capture, line | {"event": "planned", "branch": branch}))
    files = {change.path: change.text.encode() for change in result.changes}
    base = base_commit(capture.brain)
    git.create_branch(capture.brain, branch, files=files, message=message, now=capture.now, base=base)
    # The plan holds the records already; this line only closes it.
    closing = {name: value for name, value in line.items() if name != "records"}
    _note(capture, closing | {"branch": branch, "units": units})
    return branch


def _note(capture: Capture, line: dict[str, Any]) -> None:
    if not capture.dry_run:
        ledger.note_capture(capture.home, _stamped(capture, {"event": "captured"} | line))


def _stamped(capture: Capture, line: dict[str, Any]) -> dict[str, Any]:
    return {"time": capture.now.isoformat()} | line
