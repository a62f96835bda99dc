"""Promotion: a nugget that is worth more than one file's history becomes a knowledge unit, through the usual review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from nugget import brain as brains
from nugget.brain.filing import forgotten
from nugget.capture import base_commit, ledger, waiting_units
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import Comparison, FileChange, KnownBrain, Similar, compare
from nugget.capture.identity import brain_key
from nugget.config import Settings
from nugget.errors import BrainError, ReviewError, UsageError
from nugget.extraction.proposals import Proposal
from nugget.infra import git
from nugget.models import Evidence, KnowledgeType, Origin, SourceName, StaleReason, Unit
from nugget.models.nuggets import Nugget, NuggetType
from nugget.redaction import allow_list, redact
from nugget.text import shorten, slugify

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
"""The type of knowledge unit that a nugget becomes, unless another is asked for."""

_QUOTE_CHARS = 280


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Everything that a promotion needs, bound once by the face."""

    brain: Path
    home: Path
    settings: Settings
    similar: Similar
    now: datetime
    type: str | None = None
    domain: str = "coding"
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """The proposal of a nugget: the files that it makes or changes, and the branch where it waits (None when dry)."""

    nugget: str
    changes: tuple[FileChange, ...]
    branch: str | None = None


def promote(nugget: Nugget, bound: Promotion, *, stale: StaleReason | None = None) -> Promoted:
    """Propose a nugget as a knowledge unit, on a branch of its own; scope, evidence and alternatives are kept.

    `stale` is why it may not hold any more, for the reviewer to look at. Raises BrainError for a folder that is no git
    repository, UsageError for a type or domain that cannot be, ReviewError where the brain does not want it: it knows
    it already, or it was turned down or forgotten.
    """
    if not git.is_repository(bound.brain):
        raise BrainError(f"{bound.brain} is no git repository.", hint=f"Run `nugget init {bound.brain}`.")
    if bound.type is not None and bound.type not in list(KnowledgeType):
        raise UsageError(f"There is no type {bound.type!r}.", hint=f"Types are: {', '.join(KnowledgeType)}.")
    domain = brains.validate_domain(bound.domain)
    note = f"The nugget is stale: {str(stale).replace('_', ' ')}." if stale else None
    reason = f"promoted by hand; a {nugget.type} of {nugget.scope.path or 'the workspace'}"
    proposal = Proposal(unit=_unit(nugget, bound, domain), reason=reason, note=note)
    base = base_commit(bound.brain)
    found = _compare(proposal, nugget, bound, base)
    if not found.changes:
        why = found.dropped[0] if found.dropped else "the brain has it already"
        raise ReviewError(f"{nugget.id} is not proposed: {why}.", hint="`nugget review` shows what waits.")
    if bound.dry_run:
        return Promoted(nugget=nugget.id, changes=found.changes)
    branch = _make_branch(nugget, found, bound, base)
    return Promoted(nugget=nugget.id, changes=found.changes, branch=branch)


def _unit(nugget: Nugget, bound: Promotion, domain: str) -> Unit:
    allow = allow_list(bound.settings)

    def clean(text: str) -> str:
        return redact(text, allow=allow).text if text else text

    title = clean(nugget.summary)
    parts = [f"# {title}", clean(nugget.detail) or title]
    alternatives = tuple(map(clean, nugget.alternatives))
    if alternatives:
        parts.append("## Turned down\n\n" + "\n".join(f"- {one}" for one in alternatives))
    quote = shorten(clean(nugget.source_prompt) or title, _QUOTE_CHARS)
    evidence = nugget.evidence or (
        Evidence(session=nugget.session, quote=quote, speaker=nugget.speaker, origin=nugget.origin),
    )
    type_ = bound.type or BECOMES[nugget.type]
    return Unit(
        id=f"{type_}/{slugify(title)}",
        source=SourceName.BRAIN,
        type=type_,
        title=title,
        body="\n\n".join(parts),
        domain=domain,
        confidence=nugget.confidence,
        origin=Origin.AI_SESSION,
        scope=nugget.scope if nugget.scope.path or nugget.scope.symbol else None,
        session=nugget.session,
        evidence=tuple(replace(one, quote=clean(one.quote)) for one in evidence),
        alternatives=alternatives,
        stale_after=nugget.stale_after,
    )


def _compare(proposal: Proposal, nugget: Nugget, bound: Promotion, base: str | None) -> Comparison:
    def read(path: str) -> str | None:
        content = git.read_blob(bound.brain, base, path) if base else None
        return None if content is None else content.decode("utf-8", "replace")

    known = KnownBrain(
        files=git.files_at(bound.brain, base, under="domains") if base else {}, read=read, similar=bound.similar,
        waiting=waiting_units(bound.brain), forgotten=forgotten(bound.brain),
        rejected=ledger.rejections(bound.home, brain=brain_key(bound.brain, bound.home)),
    )  # fmt: skip
    return compare([proposal], known, today=bound.now.date(), session=nugget.session, max_units=1)


def _make_branch(nugget: Nugget, found: Comparison, bound: Promotion, base: str | None) -> str:
    taken = {branch.name for branch in git.branches(bound.brain, proposal_text.BRANCH_PREFIX)}
    first = branch = proposal_text.promotion_branch_name(nugget.id, bound.now)
    number = 1
    while branch in taken:
        number += 1
        branch = f"{first}-{number}"
    message = proposal_text.promotion_message(
        f"Promote {nugget.id}: {proposal_text.inline(nugget.summary, max_chars=60)}", nugget.id, nugget.session,
        found.changes, branch=branch, dropped=found.dropped,
    )  # fmt: skip
    files = {change.path: change.text.encode() for change in found.changes}
    git.create_branch(bound.brain, branch, files=files, message=message, now=bound.now, base=base)
    return branch
