"""Capture a session once, as knowledge files on a branch of the brain.

read -> redact -> archive -> skip what was captured before -> extract -> compare with the brain -> branch.
The user's checkout is never touched. The ledger is written before and after the branch is created, so that a kill
at any point neither loses a session nor captures it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nugget.capture import ledger
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import ProposalTarget, ProposedChange, compare, known_brain
from nugget.errors import BrainError, TranscriptError
from nugget.extraction.proposals import Extraction
from nugget.infra import files, git
from nugget.models import EventKind, Session
from nugget.redaction import is_excluded_project, redact_session, rules_stamp
from nugget.sources.sessions import archive_file, read_any, read_archive, write_archive

MAX_NOTED = 20
"""Number of rejected candidates whose reasons the ledger keeps."""

Extract = Callable[[Session], Extraction]
"""Finds knowledge in a redacted session; the face binds method, models and limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureResult:
    """Result of a capture. `skipped` says why nothing was proposed; `branch` holds the proposal."""

    session: str
    branch: str | None = None
    changes: tuple[ProposedChange, ...] = ()
    skipped: str | None = None
    dropped: tuple[str, ...] = ()
    redacted: Mapping[str, int] = field(default_factory=dict)
    method: str = ""
    summary: str = ""
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture(ProposalTarget):
    """Everything that a capture needs."""

    extract: Extract


def capture_transcript(transcript: Path, capture: Capture) -> CaptureResult:
    """Capture a transcript into the brain; if the client has deleted it, from the archive.

    Raises TranscriptError, BrainError, GitError or LLMUnavailable; nothing was captured then, and it can be retried.
    """
    size = transcript.stat().st_size if transcript.is_file() else None
    session, redacted = read_redacted(transcript, capture)
    brain, home = capture.brain, capture.home
    if not git.is_repository(brain):
        raise BrainError(f"{brain} is not a git repository.", hint=f"Run `nugget init {brain}`.")
    key = ledger.brain_key(brain, home) if capture.dry_run else ledger.remember_brain(brain, home)
    line: dict[str, Any] = {
        "time": capture.now.isoformat(), "brain": key, "session": session.id, "transcript": str(transcript),
        "size": size, "cwd": session.cwd, "redacted": dict(redacted),
    }  # fmt: skip
    if not capture.dry_run and session.events:
        write_archive(home, session, stamps=[rules_stamp(capture.settings)])
    with files.locked(ledger.lock_file(home, key)):
        fresh = _not_captured_yet(session, capture, key)
        if reason := _nothing_to_do(session, fresh, capture):
            _note(capture, line | {"reason": reason})
            return CaptureResult(session=session.id, skipped=reason, redacted=redacted)
        return _propose(fresh, capture, line)


def read_redacted(transcript: Path, capture: Capture) -> tuple[Session, Mapping[str, int]]:
    """Read and redact a session; return it with the number of secrets removed by kind."""
    try:
        session = read_any(transcript)
    except TranscriptError:
        kept = archive_file(capture.home, transcript.stem)
        if transcript.exists() or not kept.exists():
            raise
        session = read_archive(kept)
    if _is_excluded(session, capture):
        return replace(session, events=()), {}
    return redact_session(session, settings=capture.settings)


def _is_excluded(session: Session, capture: Capture) -> bool:
    """Return True if the session is excluded by `capture.exclude_projects`, or Nugget itself started it."""
    ours = session.cwd is not None and Path(session.cwd).is_relative_to(capture.home)
    return ours or is_excluded_project(session, settings=capture.settings)


def _not_captured_yet(session: Session, capture: Capture, key: str) -> Session:
    def carried_out(plan: str) -> bool:
        return git.has_commit_with(capture.brain, f"Nugget-Records: {plan}")

    keys = ledger.record_keys(session)
    captured = ledger.captured_keys(capture.home, brain=key, keys=keys, carried_out=carried_out)
    fresh = tuple(event for event, name in zip(session.events, keys, strict=True) if name not in captured)
    return replace(session, events=fresh)


def _nothing_to_do(session: Session, fresh: Session, capture: Capture) -> str | None:
    if _is_excluded(session, capture):
        return f"sessions in {session.cwd} are excluded (capture.exclude_projects)"
    said = (EventKind.PROMPT, EventKind.REPLY)
    if not any(event.kind in said for event in session.events):
        return "the session holds no conversation"
    if not any(event.kind in said for event in fresh.events):
        return "nothing new since it was captured"
    return None


def _propose(session: Session, capture: Capture, line: dict[str, Any]) -> CaptureResult:
    extraction = capture.extract(session)
    changes, dropped = compare(
        extraction.proposals, known_brain(capture), today=capture.now.date(),
        session=session.id, max_units=capture.settings.capture.max_units,
    )  # fmt: skip
    keys = list(dict.fromkeys(ledger.record_keys(session)))
    result = CaptureResult(
        session=session.id, changes=changes, dropped=(*extraction.dropped, *dropped),
        redacted=line["redacted"], method=extraction.method, summary=extraction.summary, usd=extraction.usd,
    )  # fmt: skip
    line |= {"method": result.method, "usd": result.usd, "dropped": result.dropped[:MAX_NOTED]}
    line |= {"capture": proposal_text.capture_id(keys)}
    records = {"records": " ".join(keys)}
    if not changes:
        _note(capture, line | records | {"reason": "nothing worth keeping was found"})
        return replace(result, skipped="nothing worth keeping was found")
    moment = (session.ended or capture.now).astimezone(capture.now.tzinfo)

    def planned(branch: str) -> str:
        """Note the plan before the branch is made, and return its message."""
        line["branch"] = branch
        message = proposal_text.session_message(session, result, branch=branch, keys=keys)
        _note(capture, line | records, event="planned")
        return message

    branch = proposal_text.propose(capture, proposal_text.session_branch_name(session, moment), result.changes, planned)
    # The plan already lists the records; this line closes it.
    _note(capture, line | {"units": [change.unit.id for change in result.changes]})
    return replace(result, branch=branch)


def _note(capture: Capture, line: dict[str, Any], *, event: str = "captured") -> None:
    if not capture.dry_run:
        files.append_line(capture.home / "ledger" / ledger.CAPTURES, {"event": event} | line)
