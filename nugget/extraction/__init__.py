"""Extraction: a redacted session becomes proposals, by heuristics offline or by an LLM."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from nugget.config import Settings
from nugget.errors import LLMUnavailable, UsageError
from nugget.extraction.offline import extract_offline
from nugget.extraction.proposals import Extraction, Proposal
from nugget.models import Session
from nugget.sources.condense import exchanges
from nugget.text import shorten

if TYPE_CHECKING:
    from nugget.extraction.generative import Nearest
    from nugget.extraction.offline import Embed
    from nugget.infra.llm import LLM, ClaudeCli

__all__ = ["METHODS", "Extraction", "Proposal", "extract"]

METHODS = ("auto", "heuristic", "generative")


def extract(
    session: Session,
    *,
    method: str,
    settings: Settings,
    now: datetime,
    embed: Embed | None = None,
    llm: LLM | ClaudeCli | None = None,
    nearest: Nearest | None = None,
) -> Extraction:
    """Find knowledge in a session that is redacted already.

    `auto` is generative where there is an LLM. Raises UsageError for an unknown method, LLMUnavailable when
    `generative` is asked for without an LLM, or fails.
    """
    if method not in METHODS:
        raise UsageError(f"There is no extraction method {method!r}.", hint=f"Use one of {', '.join(METHODS)}.")
    if method == "generative" or (method == "auto" and llm is not None):
        from nugget.extraction.generative import extract_generative

        if llm is None:
            raise LLMUnavailable(
                "Generative extraction needs an LLM and a key.",
                hint="Set ANTHROPIC_API_KEY, or `llm: {extract_with: claude-code}`.",
            )
        return extract_generative(session, llm=llm, settings=settings, nearest=nearest, now=now)
    proposals = extract_offline(session, embed=embed, now=now)
    return Extraction(proposals=tuple(proposals), method="heuristic", summary=summary_of(session))


def summary_of(session: Session) -> str:
    """What the session was about, in a line: its title, else what was asked first, and how much more was asked."""
    parts = [part for part in exchanges(session) if part.prompt]
    asked = session.title or (shorten(parts[0].prompt, 200) if parts else "")
    others = f" (and {len(parts) - 1} more prompts)" if len(parts) > 1 else ""
    return f"{asked}{others}" if asked else "A session without prompts."
