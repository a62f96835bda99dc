"""Change over time: which earlier choice a unit replaces, and which it only resembles."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nugget.models import KnowledgeType, Relation, RelationType, Unit

_CHOICES = (KnowledgeType.DECISION, KnowledgeType.BELIEF)
_SAME_CHOICE = 0.6
"""Share of the shorter title's words from which two choices may be about the same."""
_FILLER = frozenset(
    "the an is are was be to of for in on at by with and or not it its that this from as no only we use used using uses"
    " now never always must should instead rather than over keep wir nehmen statt für der die das".split()
)
_WORD = re.compile(r"\w{2,}")


def superseded(unit: Unit, candidates: Iterable[Unit]) -> list[Relation]:
    """Return `supersedes` relations to the decisions whose choice this one rejects, on the same subject."""
    if unit.type not in _CHOICES or not unit.alternatives:
        return []
    named = {relation.id for relation in unit.related}
    found = []
    for known in candidates:
        if known.type not in _CHOICES or known.id in named or known.id == unit.id:
            continue
        gone = [content_words(name) for name in unit.alternatives]
        before = content_words(known.title) - frozenset().union(*(content_words(name) for name in known.alternatives))
        is_gone = any(words and words <= before for words in gone)
        subject = content_words(unit.title) - frozenset().union(*gone)
        if is_gone and subject & before:
            found.append(Relation(id=known.id, relation=RelationType.SUPERSEDES))
    return found


def is_another_decision(unit: Unit, twin: Unit) -> bool:
    """Return whether two choices or rules are about different things, however alike their words are."""
    if unit.type not in _CHOICES or twin.type not in _CHOICES:
        return False
    ours, theirs = content_words(unit.title), content_words(twin.title)
    return len(ours & theirs) < _SAME_CHOICE * min(len(ours), len(theirs))


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that tell what it is about."""
    return frozenset(word for word in _WORD.findall(text.lower()) if word not in _FILLER)
