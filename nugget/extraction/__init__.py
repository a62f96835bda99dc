"""Extraction: a redacted session becomes proposals, by heuristics offline or by an LLM."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from nugget.config import Settings
from nugget.extraction.offline import extract_offline
from nugget.extraction.proposals import Extraction, Proposal
from nugget.extraction.remembered import is_within, remembered
from nugget.models import Session
from nugget.sources.condense import exchanges
from nugget.text import shorten

if TYPE_CHECKING:
    from nugget.extraction.generative import Nearest
    from nugget.extraction.offline import Embed
    from nugget.infra.llm import Model

__all__ = ["Extraction", "Proposal", "extract"]


def extract(
    session: Session,
    *,
    settings: Settings,
    now: datetime,
    embed: Embed | None = None,
    llm: Model | None = None,
    nearest: Nearest | None = None,
) -> Extraction:
    """Find knowledge in a session that is redacted already, by `llm` if there is one, and what is to be remembered.

    Raises LLMUnavailable.
    """
    if llm is not None:
        from nugget.extraction.generative import extract_generative

        found = extract_generative(session, llm=llm, settings=settings, nearest=nearest, now=now)
    else:
        made = tuple(extract_offline(session, embed=embed, now=now))
        found = Extraction(proposals=made, method="heuristic", summary=summary_of(session))
    asked = remembered(session, now)
    others = (proposal for proposal in found.proposals if not is_within(proposal, asked))
    return replace(found, proposals=(*asked, *others))


def summary_of(session: Session) -> str:
    """What the session was about, in a line: its title, else what was asked first, and how much more was asked."""
    parts = [part for part in exchanges(session) if part.prompt]
    asked = session.title or (shorten(parts[0].prompt, 200) if parts else "")
    others = f" (and {len(parts) - 1} more prompts)" if len(parts) > 1 else ""
    return f"{asked}{others}" if asked else "A session without prompts."
