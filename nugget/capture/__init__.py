"""Capture a session once, as knowledge files on a branch of the brain.

read -> redact -> archive -> skip records captured before -> extract -> compare with the brain -> branch.
The user's checkout is never touched. The ledger is written before and after the branch is created, so that a kill
at any point neither loses a session nor captures it twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget import brain as brains
from nugget.capture import ledger
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import BRANCH_PREFIX, ProposalTarget, ProposedChange, compare, known_brain
from nugget.config import Settings
from nugget.errors import BrainError, ReviewError, UsageError
from nugget.extraction.places import Places
from nugget.extraction.proposals import Extraction, Proposal
from nugget.infra import files, git
from nugget.infra.workspace import WorkspaceFinder, find_workspace
from nugget.models import (
    EventKind,
    Evidence,
    KnowledgeType,
    Origin,
    Scope,
    Session,
    SourceName,
    Speaker,
    SpeechOrigin,
    StaleReason,
    Unit,
)
from nugget.models.nuggets import Nugget, NuggetType
from nugget.redaction import allow_list, redact, redact_session, rules_stamp
from nugget.sources.sessions import archive_file, read_any, write_archive
from nugget.text import printable, shorten, slugify

if TYPE_CHECKING:
    from nugget.provenance.extraction import ReadSession

MAX_NOTED = 20
"""Number of rejected candidates whose reasons the ledger keeps."""

Extract = Callable[[Session], Extraction]
"""A function that extracts knowledge from a redacted session, with method, models and limits bound."""


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


def capture_transcript(
    transcript: Path, target: ProposalTarget, extract: Extract, read: ReadSession | None = None
) -> CaptureResult:
    """Capture a transcript into the brain; `read` is the result of `read_redacted` if the caller has it already.

    Raises TranscriptError, BrainError, GitError or LLMUnavailable if nothing was captured; it can be retried.
    """
    size = transcript.stat().st_size if transcript.is_file() else None
    _, session, redacted = read or read_redacted(transcript, target.home, target.settings)
    brain, home = target.brain, target.home
    _require_repository(brain)
    key = ledger.brain_key(brain, home) if target.dry_run else ledger.remember_brain(brain, home)
    line: dict[str, Any] = {
        "time": target.now.isoformat(), "brain": key, "session": session.id, "transcript": str(transcript),
        "size": size, "cwd": session.cwd, "redacted": dict(redacted),
    }  # fmt: skip
    from nugget.provenance.extraction import reason_to_skip

    if not target.dry_run and session.events:
        write_archive(home, session, stamps=[rules_stamp(target.settings)])
    with files.locked(ledger.lock_file(home, key)):
        keys = ledger.record_keys(session)
        captured = ledger.captured_keys(
            home, brain=key, keys=keys, carried_out=lambda plan: git.has_commit_with(brain, f"Nugget-Records: {plan}")
        )
        events = zip(session.events, keys, strict=True)
        fresh = replace(session, events=tuple(event for event, name in events if name not in captured))
        reason = reason_to_skip(session, home, target.settings)
        if not any(event.kind in (EventKind.PROMPT, EventKind.REPLY) for event in fresh.events):
            reason = reason or "nothing new since it was captured"
        if reason:
            _note(target, line | {"reason": reason})
            return CaptureResult(session=session.id, skipped=reason, redacted=redacted)
        return _propose(fresh, target, extract, line)


def read_redacted(transcript: Path, home: Path, settings: Settings) -> ReadSession:
    """Read and redact a session, from the archive if the client deleted it; a skipped one loses its events.

    Raises TranscriptError.
    """
    from nugget.provenance.extraction import reason_to_skip

    kept = archive_file(home, transcript.stem)
    session = read_any(kept if kept.exists() and not transcript.exists() else transcript)
    if reason_to_skip(session, home, settings):
        return session, replace(session, events=()), {}
    return session, *redact_session(session, settings=settings)


def _require_repository(brain: Path) -> None:
    if not git.is_repository(brain):
        raise BrainError(f"{brain} is not a git repository.", hint="Run `nugget init` in it.")


def _propose(session: Session, target: ProposalTarget, extract: Extract, line: dict[str, Any]) -> CaptureResult:
    extraction = extract(session)
    places = [Places(session=session, roots=roots) for roots in WorkspaceFinder(known={}).of_session(session).values()]
    changes, dropped = compare(
        [_placed(one, places) for one in extraction.proposals], known_brain(target, line["brain"]), session=session.id,
        max_units=target.settings.capture_max_units,
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
        _note(target, line | records | {"reason": "nothing worth keeping was found"})
        return replace(result, skipped="nothing worth keeping was found")
    moment = (session.ended or target.now).astimezone(target.now.tzinfo)

    def planned(branch: str) -> str:
        """Write the plan to the ledger before the branch is made, and return the commit's message."""
        line["branch"] = branch
        message = proposal_text.session_message(session, result, branch=branch, keys=keys)
        _note(target, line | records, event="planned")
        return message

    branch = proposal_text.propose(target, proposal_text.session_branch_name(session, moment), result.changes, planned)
    # The plan already lists the records; this line closes it.
    _note(target, line | {"units": [change.unit.id for change in result.changes]})
    return replace(result, branch=branch)


def _placed(proposal: Proposal, places: Sequence[Places]) -> Proposal:
    """Return a proposal whose scope names the repository that holds its file, if one does."""
    scope = proposal.unit.scope or Scope()
    for place in places:
        if scope.path and (path := place.find(scope.path)) and place.is_file(path):
            return replace(proposal, unit=replace(proposal.unit, scope=replace(scope, repo=place.repo, path=path)))
    return proposal


def _note(target: ProposalTarget, line: dict[str, Any], *, event: str = "captured") -> None:
    if not target.dry_run:
        files.append_line(target.home / "ledger" / ledger.CAPTURES, {"event": event} | line)


BECOMES: Mapping[NuggetType, KnowledgeType] = {
    NuggetType.CONSTRAINT: KnowledgeType.BELIEF, NuggetType.CAVEAT: KnowledgeType.BUG,
    NuggetType.TUNING: KnowledgeType.PATTERN, NuggetType.DECISION: KnowledgeType.DECISION,
    NuggetType.REJECTION: KnowledgeType.DECISION, NuggetType.WORKAROUND: KnowledgeType.BUG,
    NuggetType.INTENT: KnowledgeType.CONCEPT, NuggetType.DEPENDENCY: KnowledgeType.DECISION,
}  # fmt: skip
"""The default type of the unit that a nugget becomes."""
_QUOTE_CHARS = 280
_NOTE_CONFIDENCE = 0.7
_MOST_NOTES = 30
"""The most notes that may wait for review."""


def promote(
    nugget: Nugget, target: ProposalTarget, *, type: str | None, domain: str, stale: StaleReason | None
) -> CaptureResult:
    """Propose a nugget as a knowledge unit, on a branch of its own; scope, evidence and alternatives are kept.

    `stale` tells the reviewer why it may no longer hold. Raises BrainError for a folder that is not a git repository,
    UsageError for an unknown domain, ReviewError if it is known, rejected or forgotten.
    """
    note = f"The nugget is stale: {str(stale).replace('_', ' ')}." if stale else None
    reason = f"promoted by hand; a {nugget.type} of {nugget.scope.path or 'the workspace'}"
    unit = _unit(nugget, type or BECOMES[nugget.type], domain, target.settings)
    coded = proposal_text.coded
    opening = f"The nugget {coded(nugget.id)}, learned in session {coded(nugget.session)}, as a unit."
    name = proposal_text.branch_name("promotion", nugget.id, target.now)
    title = f"Promote {nugget.id}: {nugget.summary}"
    done = propose_unit(Proposal(unit=unit, reason=reason, note=note), target, name=name, title=title, opening=opening)
    if done.skipped:
        raise ReviewError(f"{nugget.id} is not proposed: {done.skipped}.", hint="`nugget review` shows what waits.")
    return done


def propose_unit(proposal: Proposal, target: ProposalTarget, *, name: str, title: str, opening: str) -> CaptureResult:
    """Propose one unit on a branch of this name; `skipped` says if nothing was. Raises BrainError without git."""
    _require_repository(target.brain)
    session = proposal.unit.session or ""
    changes, dropped = compare([proposal], known_brain(target), session=session, max_units=1)
    if not changes:
        why = dropped[0] if dropped else "the brain has it already"
        return CaptureResult(session=session, skipped=why, dropped=dropped)
    branch = proposal_text.propose(
        target, name, changes,
        lambda branch: proposal_text.unit_message(title, opening, session, changes, branch=branch, dropped=dropped),
    )  # fmt: skip
    return CaptureResult(session=session, branch=branch, changes=changes)


def propose_note(
    target: ProposalTarget, *, session: str, folder: Path, title: str, statement: str, type: KnowledgeType,
    because: str = "", paths: Sequence[str] = (),
) -> CaptureResult:  # fmt: skip
    """Propose an agent's note on its work in a folder; `skipped` says why nothing was proposed.

    Raises UsageError for a path outside the folder's repository, ReviewError if too many notes wait.
    """
    from nugget.extraction.replies import cleaned

    if len(git.branches(target.brain, f"{BRANCH_PREFIX}note-")) >= _MOST_NOTES:
        raise ReviewError(f"{_MOST_NOTES} notes wait for review; no more are taken.", hint="Run `nugget review`.")
    here = find_workspace(folder)
    allow = allow_list(target.settings)
    paths = [_path_in(here.root, cleaned(path, allow)) for path in paths]
    title, statement, because = (cleaned(text, allow) for text in (" ".join(title.split()), statement, because))
    body = [f"# {title}", statement, f"**Because:** {because}" if because else ""]
    body.append(f"Files: {', '.join(map(proposal_text.coded, paths))}" if paths else "")
    unit = Unit(
        id=f"{type}/{slugify(title)}", source=SourceName.BRAIN, type=type, title=title,
        body="\n\n".join(filter(None, body)), origin=Origin.AI_SESSION, confidence=_NOTE_CONFIDENCE, session=session,
        domain=f"projects/{slugify(here.name)}" if paths else "general",
        scope=Scope(repo=here.identity, path=paths[0]) if len(paths) == 1 else None,
        evidence=(
            Evidence(session=session, quote=shorten(statement, _QUOTE_CHARS), speaker=Speaker.AGENT,
                     origin=SpeechOrigin.WRITTEN),
        ),
    )  # fmt: skip
    return propose_unit(
        Proposal(unit=unit, reason="an agent noted it in its session"), target, title=f"Note: {title}",
        name=proposal_text.branch_name("note", title, target.now),
        opening=f"A note of the agent in session {proposal_text.coded(session)}: nobody has looked at it yet.",
    )  # fmt: skip


def _path_in(root: Path, path: str) -> str:
    """Return a path relative to a repository. Raises UsageError if it leads out of it."""
    whole = os.path.normpath(root / path)
    if "\0" in path or not path or not Path(whole).is_relative_to(root):
        raise UsageError(f"{printable(path[:200])!r} is not a file below {root}.", hint="Name files of the repository.")
    return Path(whole).relative_to(root).as_posix()


def _unit(nugget: Nugget, type_: str, domain: str, settings: Settings) -> Unit:
    allow = allow_list(settings)

    def clean(text: str) -> str:
        return redact(text, allow=allow).text

    title, alternatives = clean(nugget.summary), tuple(map(clean, nugget.alternatives))
    parts = [f"# {title}", clean(nugget.detail) or title]
    if alternatives:
        parts.append("## Turned down\n\n" + "\n".join(f"- {one}" for one in alternatives))
    quote = shorten(clean(nugget.source_prompt) or title, _QUOTE_CHARS)
    evidence = nugget.evidence or (
        Evidence(session=nugget.session, quote=quote, speaker=nugget.speaker, origin=nugget.origin),
    )
    return Unit(
        id=f"{type_}/{slugify(title)}", source=SourceName.BRAIN, type=type_, title=title, body="\n\n".join(parts),
        domain=brains.validate_domain(domain), confidence=nugget.confidence, origin=Origin.AI_SESSION,
        scope=nugget.scope if nugget.scope.path or nugget.scope.symbol else None, session=nugget.session,
        evidence=tuple(replace(one, quote=clean(one.quote)) for one in evidence), alternatives=alternatives,
        stale_after=nugget.stale_after,
    )  # fmt: skip
