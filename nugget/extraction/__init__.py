"""Extraction: a redacted session becomes proposals, by heuristics offline or by an LLM.

What the user asks to remember (`remember: …`, in six languages) is proposed whatever the judge says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from nugget.config import Settings
from nugget.extraction.phrases import SENTENCE_END, says
from nugget.extraction.proposals import Extraction, Proposal, domain_of
from nugget.models import Event, EventKind, Evidence, KnowledgeType, Origin, Session, SourceName, Speaker, Unit
from nugget.sources.condense import exchanges
from nugget.sources.speakers import said_in
from nugget.text import shorten, title_slug

if TYPE_CHECKING:
    from nugget.extraction.generative import Nearest
    from nugget.infra.llm import Model

__all__ = ["Extraction", "Proposal", "extract"]

_CONFIDENCE = 0.95
_TITLE_CHARS, _QUOTE_CHARS, _LEAST_CHARS, _MOST_CHARS = 80, 300, 4, 1000


def extract(
    session: Session, *, settings: Settings, now: datetime, llm: Model | None = None, nearest: Nearest | None = None
) -> Extraction:
    """Find knowledge in a redacted session, with `llm` if given, and what the user asked to remember.

    Raises LLMUnavailable.
    """
    if llm is not None:
        from nugget.extraction.generative import extract_generative

        found = extract_generative(session, llm=llm, settings=settings, nearest=nearest, now=now)
    else:
        from nugget.extraction.offline import extract_offline

        made = tuple(extract_offline(session, now=now))
        found = Extraction(proposals=made, method="heuristic", summary=summary_of(session))
    asked = remembered(session, now)
    others = (proposal for proposal in found.proposals if not is_within(proposal, asked))
    return replace(found, proposals=(*asked, *others))


def summary_of(session: Session) -> str:
    """Return one line on what a session was about: its title, or else its first prompt and the number of others."""
    parts = [part for part in exchanges(session) if part.prompt]
    asked = session.title or (shorten(parts[0].prompt, 200) if parts else "")
    others = f" (and {len(parts) - 1} more prompts)" if len(parts) > 1 else ""
    return f"{asked}{others}" if asked else "A session without prompts."


def remembered(session: Session, now: datetime) -> list[Proposal]:
    """Propose each thing that the user asked to remember, as a belief with its reason."""
    found = (_proposal(event, cue, session, now) for event, cue in _cues(session))
    return list({proposal.unit.id: proposal for proposal in found}.values())


def is_within(proposal: Proposal, asked: list[Proposal]) -> bool:
    """Return whether a proposal rests on words that were proposed because the user asked for it."""
    ours = {" ".join(one.quote.split()) for one in proposal.unit.evidence}
    theirs = {" ".join(one.quote.split()) for other in asked for one in other.unit.evidence}
    return any(quote in known or known in quote for quote in ours for known in theirs)


def _cues(session: Session) -> Iterator[tuple[Event, re.Match[str]]]:
    for event in session.events:
        for cue in says("remember").finditer(event.text) if event.kind is EventKind.PROMPT else ():
            is_question = cue[0].rstrip().endswith(("?", "？"))
            is_theirs = said_in(event, cue.start(), cue.end())[0] is Speaker.USER
            if is_theirs and not is_question and len((cue["after"] or cue["before"]).strip()) >= _LEAST_CHARS:
                yield event, cue


def _proposal(event: Event, cue: re.Match[str], session: Session, now: datetime) -> Proposal:
    text = " ".join((cue["after"] or cue["before"])[:_MOST_CHARS].split())
    claim, because = split_reason(text)
    first = SENTENCE_END.split(claim, maxsplit=1)[0]
    title, moment = shorten(first.rstrip(".。"), _TITLE_CHARS), event.timestamp or session.ended or now
    body = f"**Rule:** {claim}" + (f"\n\n**Because:** {because}" if because else "")
    quote = cue[0].strip()[:_QUOTE_CHARS]
    unit = Unit(
        id=f"{KnowledgeType.BELIEF}/{title_slug(title)}", source=SourceName.BRAIN, type=KnowledgeType.BELIEF,
        title=title,
        body=f"{body}\n\n> {shorten(' '.join(quote.split()), 200)}\n> (user, {moment:%Y-%m-%d %H:%M})\n",
        domain=domain_of(session), confidence=_CONFIDENCE, origin=Origin.AI_SESSION, session=session.id,
        evidence=(
            Evidence(session=session.id, quote=quote, records=(event.uuid,) if event.uuid else (),
                     speaker=Speaker.USER, origin=event.origin),
        ),
        created=moment.date(), last_modified=moment.date(),
    )  # fmt: skip
    return Proposal(unit=unit, reason="You asked to remember it")


def split_reason(text: str) -> tuple[str, str]:
    """Return a statement without its reason, and the reason, which is empty if none is given."""
    found = says("gives_reason").search(text)
    parts = (text[: found.start()], text[found.end() :]) if found else (text, "")
    parts = parts[::-1] if found and found["first"] else parts
    parts = parts if min(len(part.strip()) for part in parts) >= _LEAST_CHARS else (text, "")
    claim, because = (part.strip(" ,;.。，、*_") for part in parts)
    return claim[:1].upper() + claim[1:], because
