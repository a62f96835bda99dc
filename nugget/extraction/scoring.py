"""How likely a sentence is knowledge: its words, and its likeness to prototypes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable
from nugget.extraction import cues, wording
from nugget.extraction.passages import Passage
from nugget.models import EventKind, KnowledgeType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Embed = Callable[[Sequence[str]], NDArray[np.float32]]
    """Texts to L2-normalised vectors, shape (len(texts), dimensions)."""

MAX_EMBEDDED = 500
"""Sentences given to the embedding model, the best by their words."""

_NOT_WORTH_EMBEDDING = -0.8
_PROTOTYPE_WEIGHT = 3.0
_NEAREST = 3
_SHARES = (1.0, 0.7, 0.5, 0.3)
"""How much the strongest, second, third and fourth cue of a sentence count."""

_ABOVE_A_LIST = 1.2
_CURATED_BONUS = 0.7
_CURATED = re.compile(r"error|concept|feedback|solv|decision", re.IGNORECASE)
"""Sections of a compaction summary that hold what was learned."""

_IDENTIFIER = re.compile(
    r"`[^`\n]{2,80}`|\b\w+(?:\.\w+)+\(?|\b\w+\(\)|\b[a-z]+[A-Z]\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|(?<!\w)--[a-z][\w-]+"
    r"|\b[A-Z][a-z]+[A-Z]\w+"
)
_WORD = re.compile(r"[A-Za-z_]\w{2,}")


@dataclass(slots=True)
class Scored:
    """A sentence of a passage: `text` is its point, above about 0.5 its `score` says that it may be knowledge."""

    passage: Passage
    number: int
    text: str
    score: float
    cues: tuple[str, ...]
    type: KnowledgeType | None
    vector: NDArray[np.float32] | None = None


def score_passages(parts: Sequence[Passage], embed: Embed | None) -> list[list[Scored]]:
    """Each passage's sentences with their scores."""
    scored: list[list[Scored]] = []
    for place, passage in enumerate(parts):
        bonus = _ABOVE_A_LIST if _introduces_list(parts, place) else 0.0
        if passage.event.kind is EventKind.SUMMARY and _CURATED.search(passage.heading):
            bonus += _CURATED_BONUS
        row = []
        for number, sentence in enumerate(passage.sentences):
            score, names, kind = score_sentence(sentence.text, by_user=passage.by_user)
            row.append(Scored(passage, number, wording.point_of(sentence.text), score + bonus, names, kind))
        scored.append(row)
    if embed is not None:
        everything = sorted((one for row in scored for one in row), key=lambda one: -one.score)
        with suppress(EmbeddingUnavailable):  # the cue phrases stand by themselves
            _add_likeness([one for one in everything[:MAX_EMBEDDED] if one.score > _NOT_WORTH_EMBEDDING], embed)
    return scored


def score_sentence(text: str, *, by_user: bool) -> tuple[float, tuple[str, ...], KnowledgeType | None]:
    """(score, names of the cues, type) of a sentence by its words alone."""
    point = wording.point_of(text)
    words = len(_WORD.findall(point))
    if words < 4 or len(point) > 700 or cues.LEAD_INS.fullmatch(point) or cues.TOOL_OUTPUT.search(point):
        return -2.0, (), None
    found = [cue for cue in cues.CUES if cue.pattern.search(point) or cue.pattern.search(text)]
    strongest = sorted((cue.weight for cue in found), reverse=True)
    score = sum(weight * share for weight, share in zip(strongest, _SHARES, strict=False))
    score += sum(cue.weight for cue in cues.CHATTER if cue.pattern.search(point))
    identifiers = len(set(_IDENTIFIER.findall(point)))
    score += 0.3 * min(identifiers, 2) if identifiers else -0.15
    score -= 0.5 if words < 7 else 0.3 if words > 60 else 0.0
    score -= 0.5 if not cues.FINITE_VERB.search(point) else 0.0
    score -= 0.4 if words < 10 and not identifiers else 0.0
    if by_user:
        score += 0.9 if cues.STRONG_CONSTRAINT.search(point) else 0.3 if cues.CONSTRAINT.search(point) else -0.4
        score -= 1.2 if cues.ONE_OFF.search(point) else 0.0
    kind = next((cue.type for cue in sorted(found, key=lambda cue: -cue.weight) if cue.type), None)
    return score, tuple(cue.name for cue in found), kind


def shared_words(one: str, other: str) -> float:
    """How much of the shorter text's distinct words the other has too, 0..1."""
    ours, theirs = (set(map(str.lower, _WORD.findall(text))) for text in (one, other))
    return len(ours & theirs) / max(1, min(len(ours), len(theirs)))


def _introduces_list(parts: Sequence[Passage], place: int) -> bool:
    """Whether the passage is the line above a list, and so stands for more than itself."""
    following = parts[place + 1] if place + 1 < len(parts) else None
    return following is not None and following.is_under(parts[place])


def _add_likeness(chosen: Sequence[Scored], embed: Embed) -> None:
    """Add to each score how much nearer the sentence is to the prototypes of knowledge than to those of chatter."""
    if not chosen:
        return
    good, bad = embed(cues.KNOWLEDGE_PROTOTYPES), embed(cues.CHATTER_PROTOTYPES)
    for one, vector in zip(chosen, embed([one.text for one in chosen]), strict=True):
        near = sorted(map(float, good @ vector))[-_NEAREST:]
        far = sorted(map(float, bad @ vector))[-_NEAREST:]
        one.score += _PROTOTYPE_WEIGHT * (sum(near) - sum(far)) / _NEAREST
        one.vector = vector
