"""The type of unit a note becomes, and why: its author's words, its folder, its wording."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nugget.importing.notes import Page, listed
from nugget.models import KnowledgeType

_WORDS: dict[str, KnowledgeType] = {
    name: kind
    for kind, names in {
        KnowledgeType.DECISION: "decision adr adrs choice choices rfc",
        KnowledgeType.BUG: "bug gotcha pitfall incident postmortem troubleshooting problem issue fix bugfix workaround "
        "debugging error root-cause",
        KnowledgeType.PATTERN: "pattern howto how-to recipe snippet practice best-practice technique method tip rule "
        "guideline convention playbook runbook workflow procedure",
        KnowledgeType.BELIEF: "belief principle opinion value preference hypothesis assumption",
        KnowledgeType.CONCEPT: "concept definition glossary term idea fact insight",
    }.items()
    for name in names.split()
}
"""What people call a folder, a tag, a type or a category, in the singular."""

MAX_SENTENCE_CHARS = 300
"""So much of a title or sentence is looked at."""

_TITLES: tuple[tuple[KnowledgeType, re.Pattern[str]], ...] = (
    (KnowledgeType.DECISION, re.compile(
        r"\b(?:we (?:chose|choose|decided|picked|use)|why we|decision|instead of|rather than|chosen)\b|\bvs\.? |"
        r"\w+ over \w+$", re.IGNORECASE)),
    (KnowledgeType.BUG, re.compile(
        r"\b(?:fails?|failing|failed|error|crash(?:es)?|leaks?|deadlocks?|hangs?|broken|does(?:n't| not) work|"
        r"exception|race condition|bug|gotcha|pitfall|root cause)\b", re.IGNORECASE)),
    (KnowledgeType.PATTERN, re.compile(
        r"^(?:how to|use|always|never|prefer|avoid|don't|do not|keep|write|run|set up|make)\b|\b(?:pattern|recipe|"
        r"checklist|best practices?|guidelines?|conventions?|steps)\b", re.IGNORECASE)),
    (KnowledgeType.BELIEF, re.compile(
        r"\b(?:i (?:believe|think|prefer)|should|prefers?|principle|matters?)\b", re.IGNORECASE)),
)  # fmt: skip

_HEADINGS: tuple[tuple[KnowledgeType, frozenset[str]], ...] = (
    (KnowledgeType.BUG, frozenset(("symptom", "symptoms", "root cause", "workaround"))),
    (KnowledgeType.DECISION, frozenset(("decision", "alternatives", "considered options", "trade-offs", "tradeoffs"))),
    (KnowledgeType.PATTERN, frozenset(("steps", "usage", "when to use", "how to use", "procedure"))),
)


def kind_of(page: Page, *, title: str, headings: Sequence[str]) -> tuple[KnowledgeType, str]:
    """The type of a note with the reason for it; `concept` where nothing says otherwise."""
    for key in ("type", "category", "kind"):
        named = named_kind(page.first(key))
        if named:
            return named, f"its `{key}` says {page.first(key)}"
    for tag in listed((*page.front.get("tags", ()), *page.front.get("tag", ()))):
        if named := named_kind(tag.rpartition("/")[2]):
            return named, f"tagged #{tag}"
    for folder in reversed(page.path.split("/")[:-1]):
        if named := named_kind(folder):
            return named, f"filed under {folder}/"
    present = {heading.lower().strip(" :") for heading in headings}
    for kind, names in _HEADINGS:
        if found := sorted(present & names):
            return kind, f"it has a section {found[0]!r}"
    return kind_of_sentence(title)


def kind_of_sentence(sentence: str) -> tuple[KnowledgeType, str]:
    """The type that a title or a single sentence reads like, with the reason."""
    for kind, pattern in _TITLES:
        if found := pattern.search(sentence[:MAX_SENTENCE_CHARS]):
            return kind, f"it reads like a {kind} ({found[0].strip()!r})"
    return KnowledgeType.CONCEPT, "nothing says otherwise"


def named_kind(word: str) -> KnowledgeType | None:
    """The type that a folder, tag or category names, None for any other word."""
    plain = re.sub(r"[\s_]+", "-", word.strip().lower().lstrip("0123456789.-_ "))
    return _WORDS.get(plain) or _WORDS.get(plain.removesuffix("s")) or _WORDS.get(plain.removesuffix("es"))
