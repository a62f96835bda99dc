"""Propose single units for review: a nugget, or a note that an agent makes during its session."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nugget import brain as brains
from nugget.capture import CaptureResult
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import BRANCH_PREFIX, ProposalTarget, compare, known_brain
from nugget.config import Settings
from nugget.errors import BrainError, ReviewError, UsageError
from nugget.extraction.proposals import Proposal
from nugget.extraction.replies import without_invisible
from nugget.infra import git
from nugget.infra.workspace import find_workspace
from nugget.models import (
    Evidence,
    KnowledgeType,
    Origin,
    Scope,
    SourceName,
    Speaker,
    SpeechOrigin,
    StaleReason,
    Unit,
)
from nugget.models.nuggets import Nugget, NuggetType
from nugget.redaction import allow_list, redact
from nugget.text import printable, shorten, slugify

BECOMES: Mapping[NuggetType, KnowledgeType] = {
    NuggetType.CONSTRAINT: KnowledgeType.BELIEF,
    NuggetType.CAVEAT: KnowledgeType.BUG,
    NuggetType.TUNING: KnowledgeType.PATTERN,
    NuggetType.DECISION: KnowledgeType.DECISION,
    NuggetType.REJECTION: KnowledgeType.DECISION,
    NuggetType.WORKAROUND: KnowledgeType.BUG,
    NuggetType.INTENT: KnowledgeType.CONCEPT,
    NuggetType.DEPENDENCY: KnowledgeType.DECISION,
}
"""The default type of the unit that a nugget becomes."""
_QUOTE_CHARS = 280
_NOTE_CONFIDENCE = 0.7
_MOST_NOTES = 30
"""Number of notes that may wait for review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note that an agent proposes to keep; its texts are untrusted."""

    title: str
    statement: str
    type: KnowledgeType
    because: str = ""
    paths: Sequence[str] = ()


def promote(
    nugget: Nugget, target: ProposalTarget, *, type: str | None, domain: str, stale: StaleReason | None
) -> CaptureResult:
    """Propose a nugget as a knowledge unit, on a branch of its own; scope, evidence and alternatives are kept.

    `stale` is why it may not hold any more, for the reviewer to look at. Raises BrainError for a folder that is not a
    git repository, UsageError for an unknown type or domain, ReviewError if the brain knows it already, or it was
    rejected or forgotten.
    """
    if type is not None and type not in list(KnowledgeType):
        raise UsageError(f"There is no type {type!r}.", hint=f"Types are: {', '.join(KnowledgeType)}.")
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
    if not git.is_repository(target.brain):
        raise BrainError(f"{target.brain} is not a git repository.", hint=f"Run `nugget init {target.brain}`.")
    session = proposal.unit.session or ""
    changes, dropped = compare([proposal], known_brain(target), today=target.now.date(), session=session, max_units=1)
    if not changes:
        why = dropped[0] if dropped else "the brain has it already"
        return CaptureResult(session=session, skipped=why, dropped=dropped)
    branch = proposal_text.propose(
        target, name, changes,
        lambda branch: proposal_text.unit_message(title, opening, session, changes, branch=branch, dropped=dropped),
    )  # fmt: skip
    return CaptureResult(session=session, branch=branch, changes=changes)


def propose_note(note: Note, target: ProposalTarget, *, session: str, folder: Path) -> CaptureResult:
    """Propose the note of an agent that works in a folder; `skipped` says why nothing was proposed.

    Raises UsageError for a path outside the folder's repository, ReviewError if too many notes wait.
    """
    if len(git.branches(target.brain, f"{BRANCH_PREFIX}note-")) >= _MOST_NOTES:
        raise ReviewError(f"{_MOST_NOTES} notes wait for review; no more are taken.", hint="Run `nugget review`.")
    place = find_workspace(folder)
    root = place.root if place else folder

    def clean(text: str) -> str:
        return redact(without_invisible(text), allow=allow_list(target.settings)).text.strip()

    paths = [_path_in(root, clean(path)) for path in note.paths]
    title, statement, because = " ".join(clean(note.title).split()), clean(note.statement), clean(note.because)
    body = [f"# {title}", statement, f"**Because:** {because}" if because else ""]
    body.append(f"Files: {', '.join(map(proposal_text.coded, paths))}" if paths else "")
    unit = Unit(
        id=f"{note.type}/{slugify(title)}", source=SourceName.BRAIN, type=note.type, title=title,
        body="\n\n".join(filter(None, body)), origin=Origin.AI_SESSION, confidence=_NOTE_CONFIDENCE, session=session,
        domain=f"projects/{slugify(root.name)}" if paths else "general",
        scope=Scope(path=paths[0]) if len(paths) == 1 else None,
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
        raise UsageError(f"{printable(path[:200])!r} is no file below {root}.", hint="Name files of this repository.")
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
