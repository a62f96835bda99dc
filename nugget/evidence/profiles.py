"""Profiles of questions about sessions, as data: what each looks for first, and how a question shows its intent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nugget.errors import UsageError
from nugget.evidence.values import INTENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one kind of question is answered.

    `weights` (0..1) say how much each category counts, `caps` how many of each are selected at most; `boosts` are
    added for what stands beside a category: a line that looks like a failure (`failing`), the error stream (`stderr`),
    an incident that nothing has fixed yet (`open`). `plain_share` (0..1) is what is left of the score of a line of
    output that tells of no failure.
    """

    weights: Mapping[str, float]
    caps: Mapping[str, int]
    boosts: Mapping[str, float] = field(default_factory=dict)
    plain_share: float = 1.0


CATEGORIES = ("incident", "failure", "output", "edit", "command", "note")


def _profile(weights: str, caps: str, *, plain_share: float = 1.0, **boosts: float) -> Profile:
    return Profile(
        weights=dict(zip(CATEGORIES, map(float, weights.split()), strict=True)),
        caps=dict(zip(CATEGORIES, map(int, caps.split()), strict=True)),
        boosts=boosts,
        plain_share=plain_share,
    )


PROFILES: Mapping[str, Profile] = {
    #                   incident failure output edit command note
    "debug": _profile("1.00 0.95 0.90 0.45 0.30 0.45", "6 10 16 4 4 4", plain_share=0.4, failing=0.2, stderr=0.1,
                      open=0.1),
    "resume": _profile("0.90 0.55 0.40 0.80 0.50 1.00", "5 4 6 10 8 14", failing=0.1, open=0.25),
    "what-changed": _profile("0.40 0.25 0.15 1.00 0.55 0.70", "2 2 3 20 8 10"),
    "status": _profile("0.80 0.60 0.50 0.75 0.60 0.85", "5 5 8 8 8 10", failing=0.1, open=0.2),
    "general": _profile("0.80 0.70 0.65 0.70 0.70 0.75", "5 6 10 8 8 8", failing=0.1, open=0.1),
}  # fmt: skip

_KEYWORDS: Mapping[str, re.Pattern[str]] = {
    "debug": re.compile(
        r"\b(?:errors?|fail(?:ed|s|ing|ures?)?|panic(?:k?ed|s|king)?|debug(?:ged|ging|s)?|fix(?:ed|es|ing)?|wrong"
        r"|broken?|breaks?|crash(?:ed|es|ing)?|exceptions?|traceback|stack ?trace|bugs?|stuck|blocked|blockers?"
        r"|diagnos\w+|root cause|segfault\w*|not work\w*"
        r"|(?:does|did|is|are|wo|ca)n['’]?t (?:work|run|start|build|compil|pass)\w*"
        r"|hangs?(?! on\b)|hung|exit(?:ed)? (?:code|status|with)|went bad|problems?|issues?(?! tracker))\b",
        re.IGNORECASE,
    ),
    "resume": re.compile(
        r"\b(?:resum(?:e|ing)(?!\.\w)|continu(?:e|ing)|where (?:were|was|did) (?:we|i)|left off|leave off"
        r"|pick (?:it |this )?up|carry on|keep going|hand ?-?off|hand ?over|next steps?"
        r"|what(?:['’]s| is| was| comes) next|(?:do|work on) next|what was i|what were we|what now)\b",
        re.IGNORECASE,
    ),
    "what-changed": re.compile(
        r"\b(?:what(?:['’]s| has| have| did (?:we|i|it|you))? (?:been )?chang\w+|which files?|what files?|diffs?"
        r"|changed files?|files? (?:were |was |have been )?(?:changed|edited|modified|touched)|changes"
        r"|(?:did|have) (?:we|i|you) (?:change|modify|edit|touch)|modified|edited|edits)\b",
        re.IGNORECASE,
    ),
    "status": re.compile(
        r"\b(?:status(?! codes?\b| bars?\b)|summar(?:y|ise|ize)\w*|overview|progress|where are we|how far|state of"
        r"|how is it going|tl;?dr|recap)\b",
        re.IGNORECASE,
    ),
}

_DIAGNOSTIC = re.compile(
    r"\b(?:wrong|errors?|fail(?:ed|s|ing|ures?)?|traceback|stack ?trace|exceptions?|panic(?:k?ed|s|king)?"
    r"|crash(?:ed|es|ing)?|broken?|debug(?:ging)?|segfault\w*|hangs?(?! on\b)|hung|stuck"
    r"|not work\w*|(?:does|did|is|are|wo|ca)n['’]?t (?:work|run|start|build|compil|pass)\w*"
    r"|why (?:do|did|does|is|was|are|were|has|can|wo)(?:n['’]?t| \w+ not)|exit(?:ed)? (?:code|status))\b",
    re.IGNORECASE,
)


def detect_intent(query: str) -> str:
    """The intent that a question shows: the first of debug, resume, what-changed and status whose words stand in it."""
    return next((intent for intent, words in _KEYWORDS.items() if words.search(query)), "general")


def is_diagnostic(query: str) -> bool:
    """Whether a question asks what went wrong, so that a call in mode `diagnostic` is given evidence."""
    return _DIAGNOSTIC.search(query) is not None


def known_intent(name: str | None, query: str) -> str:
    """The intent asked for, else the one detected. Raises UsageError for one that does not exist."""
    if name is None or name == "":
        return detect_intent(query)
    if name not in INTENTS:
        raise UsageError(f"There is no intent {name[:40]!r}.", hint=f"Intents are: {', '.join(INTENTS)}.")
    return name
