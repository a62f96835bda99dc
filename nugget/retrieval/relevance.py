"""Relevance of a nugget to a place in the code: the profile `file` as data, and the sum it describes.

    score = clamp( scope + type + recency + confidence + text + boosts - penalty )

Each addend is a share of the profile times a value from 0 to 1. The contributions of a hit add up to its score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nugget.models import Contribution
from nugget.models.nuggets import NuggetType, ScopeMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProfile:
    """The numbers of the sum. Shares weigh values from 0 to 1, boosts and the penalty are added as they are.

    `symbol_boost` is for a nugget that is about the symbol asked for, or names it.
    """

    name: str = "file"
    scope_share: float = 0.30
    type_share: float = 0.20
    recency_share: float = 0.15
    confidence_share: float = 0.10
    text_share: float = 0.10
    half_life_days: float = 30.0
    text_boost: float = 0.15
    symbol_boost: float = 0.10
    stale_penalty: float = 0.30
    scope_values: Mapping[ScopeMatch, float] = field(
        default_factory=lambda: {
            ScopeMatch.EXACT: 1.0,
            ScopeMatch.DIRECTORY: 0.6,
            ScopeMatch.SAME_DIRECTORY: 0.5,
            ScopeMatch.WORKSPACE: 0.2,
            ScopeMatch.ELSEWHERE: 0.0,
        }
    )
    type_values: Mapping[NuggetType, float] = field(
        default_factory=lambda: {
            NuggetType.CONSTRAINT: 1.0,
            NuggetType.CAVEAT: 0.9,
            NuggetType.TUNING: 0.8,
            NuggetType.DECISION: 0.7,
            NuggetType.REJECTION: 0.6,
            NuggetType.WORKAROUND: 0.5,
            NuggetType.INTENT: 0.4,
            NuggetType.DEPENDENCY: 0.3,
        }
    )
    type_boosts: Mapping[NuggetType, float] = field(
        default_factory=lambda: {NuggetType.CONSTRAINT: 0.20, NuggetType.CAVEAT: 0.20, NuggetType.TUNING: 0.15}
    )


FILE = FileProfile()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Signals of one nugget for one question.

    `age_days` is that of its session, None where it is not known. `text` is its BM25 as a share of the best match's,
    None where no word of the question stands in it; `meaning` is the cosine of one that was found by that alone.
    """

    type: NuggetType
    match: ScopeMatch
    confidence: float
    age_days: float | None = None
    text: float | None = None
    meaning: float | None = None
    names_symbol: bool = False
    is_stale: bool = False


def scope_match(asked: str | None, scoped: str | None, *, is_folder: bool = False) -> ScopeMatch:
    """Return how a scope relates to the path in question; both relative to the workspace, with `/`.

    Above and below count alike: a file is explained by what was said of its folders, a folder by what was said of the
    files in it. `asked` is empty for the root and None for no place; `scoped` is None for the whole workspace.
    """
    if asked is None:
        return ScopeMatch.ELSEWHERE
    if not scoped:
        return ScopeMatch.EXACT if asked == "" else ScopeMatch.WORKSPACE
    if asked == scoped:
        return ScopeMatch.EXACT
    if asked == "" or asked.startswith(f"{scoped}/") or scoped.startswith(f"{asked}/"):
        return ScopeMatch.DIRECTORY
    if not is_folder and asked.rpartition("/")[0] == scoped.rpartition("/")[0]:
        return ScopeMatch.SAME_DIRECTORY
    return ScopeMatch.ELSEWHERE


def recency(age_days: float | None, *, half_life_days: float) -> float:
    """From 1 for today, halved with every half-life; 0 where the age is not known."""
    if age_days is None:
        return 0.0
    return float(0.5 ** (max(age_days, 0.0) / half_life_days))


def relevance(signals: Signals, profile: FileProfile = FILE) -> float:
    """The score of a nugget, 0 to 1."""
    return min(max(sum(value for _, value, _ in _addends(signals, profile)), 0.0), 1.0)


def contributions_of(signals: Signals, profile: FileProfile = FILE) -> tuple[Contribution, ...]:
    """The addends of a nugget's score; what the clamp takes away or gives is one of them."""
    parts = [
        Contribution(name=name, value=value, detail=_words(name, of)) for name, value, of in _addends(signals, profile)
    ]
    total = sum(part.value for part in parts)
    clamped = min(max(total, 0.0), 1.0)
    if clamped != total:
        parts.append(Contribution(name="clamp", value=clamped - total, detail="scores lie between 0 and 1"))
    return tuple(parts)


def _addends(signals: Signals, profile: FileProfile) -> Iterator[tuple[str, float, object]]:
    """(name, value, what it is made of) of each addend; thousands are made for a question, so nothing is worded yet."""
    yield "scope", profile.scope_share * profile.scope_values[signals.match], signals.match
    yield "type", profile.type_share * profile.type_values[signals.type], signals.type
    fresh = recency(signals.age_days, half_life_days=profile.half_life_days)
    yield "recency", profile.recency_share * fresh, signals.age_days
    yield "confidence", profile.confidence_share * signals.confidence, signals.confidence
    if signals.text is not None:
        yield "text", profile.text_share * signals.text, signals.text
        yield "text match", profile.text_boost, ""
    elif signals.meaning is not None:
        yield "meaning", profile.text_share * max(signals.meaning, 0.0), signals.meaning
    if boost := profile.type_boosts.get(signals.type):
        yield "boost", boost, signals.type
    if signals.names_symbol:
        yield "symbol", profile.symbol_boost, ""
    if signals.is_stale:
        yield "stale", -profile.stale_penalty, ""


def _words(name: str, of: object) -> str:
    if name == "recency":
        return f"{max(of, 0):.0f} days old" if isinstance(of, float | int) else "date unknown"
    if name == "text":
        return f"{of:.0%} of the best match"
    return f"cosine {of:.3f}" if name == "meaning" else str(of)
