"""Promotion: a nugget that is worth more than one file's history becomes a knowledge unit, through the usual review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nugget import brain as brains
from nugget.capture import CaptureResult
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import ProposalTarget, compare, known_brain
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


def promote(
    nugget: Nugget, target: ProposalTarget, *, type: str | None, domain: str, stale: StaleReason | None
) -> CaptureResult:
    """Propose a nugget as a knowledge unit, on a branch of its own; scope, evidence and alternatives are kept.

    `stale` is why it may not hold any more, for the reviewer to look at. Raises BrainError for a folder that is not a
    git repository, UsageError for an unknown type or domain, ReviewError if the brain knows it already, or it was
    rejected or forgotten.
    """
    if not git.is_repository(target.brain):
        raise BrainError(f"{target.brain} is not a git repository.", hint=f"Run `nugget init {target.brain}`.")
    if type is not None and type not in list(KnowledgeType):
        raise UsageError(f"There is no type {type!r}.", hint=f"Types are: {', '.join(KnowledgeType)}.")
    note = f"The nugget is stale: {str(stale).replace('_', ' ')}." if stale else None
    reason = f"promoted by hand; a {nugget.type} of {nugget.scope.path or 'the workspace'}"
    unit = _unit(nugget, type or BECOMES[nugget.type], domain, target.settings)
    proposal = Proposal(unit=unit, reason=reason, note=note)
    found = compare([proposal], known_brain(target), today=target.now.date(), session=nugget.session, max_units=1)
    if not found.changes:
        why = found.dropped[0] if found.dropped else "the brain has it already"
        raise ReviewError(f"{nugget.id} is not proposed: {why}.", hint="`nugget review` shows what waits.")
    branch = proposal_text.propose(
        target, proposal_text.branch_name("promotion", nugget.id, target.now), found.changes,
        lambda branch: proposal_text.promotion_message(
            nugget.id, nugget.summary, nugget.session, found.changes, branch=branch, dropped=found.dropped
        ),
    )  # fmt: skip
    return CaptureResult(session=nugget.session, branch=branch, changes=found.changes)


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
