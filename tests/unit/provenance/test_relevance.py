"""Scores and packing of nuggets, by cases that were worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nugget.models import Depth, Scope, StaleReason
from nugget.models.nuggets import Nugget, NuggetHit, NuggetQuery, NuggetType, ScopeMatch
from nugget.provenance import ranking
from nugget.provenance.ranking import Candidate, contributions_of, relevance
from nugget.retrieval.packing import NUGGET_FRAME_TOKENS, pack_nuggets

EXACT, DIRECTORY, SAME, WORKSPACE, ELSEWHERE = ScopeMatch


def weighed(
    type: NuggetType, match: ScopeMatch, confidence: float, *, is_stale: bool = False, **signals: Any
) -> Candidate:
    nugget = Nugget(id="a-1", type=type, summary="s", confidence=confidence, session="a")
    return Candidate(nugget=nugget, match=match, stale=StaleReason.EXPIRED if is_stale else None, **signals)


@pytest.mark.proves("WHY-SCOPE-VALUES", "WHY-SHARES")
@pytest.mark.parametrize(
    ("match", "expected"),
    # a decision without date: 0.2 * 0.7 = 0.14 and 0.1 * 0.9 = 0.09 beside the scope's 0.3 * value
    [(EXACT, 0.53), (DIRECTORY, 0.41), (SAME, 0.38), (WORKSPACE, 0.29), (ELSEWHERE, 0.23)],
)
def test_the_nearer_the_scope_the_higher_the_score(match: ScopeMatch, expected: float) -> None:
    signals = weighed(type=NuggetType.DECISION, match=match, confidence=0.9)
    assert relevance(signals) == pytest.approx(expected)


@pytest.mark.proves("WHY-TYPE-PRIORITY")
def test_types_have_the_priorities_of_the_design_in_their_order() -> None:
    values = [ranking.TYPE_VALUES[type_] for type_ in NuggetType]
    assert values == [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    plain = [relevance(weighed(type=type_, match=ELSEWHERE, confidence=0.0)) for type_ in NuggetType]
    # 0.2 * value, and the boosts of the first three
    assert plain == pytest.approx([0.40, 0.38, 0.31, 0.14, 0.12, 0.10, 0.08, 0.06])


@pytest.mark.proves("WHY-HALF-LIFE")
@pytest.mark.parametrize(
    ("age_days", "expected"), [(0, 1.0), (30, 0.5), (60, 0.25), (15, 0.70711), (300, 0.00098), (None, 0.0)]
)
def test_recency_halves_every_thirty_days(age_days: float | None, expected: float) -> None:
    (part,) = [
        one
        for one in contributions_of(weighed(NuggetType.INTENT, EXACT, 0.5, age_days=age_days))
        if one.name == "recency"
    ]
    assert part.value == pytest.approx(0.15 * expected, abs=1e-5)


@pytest.mark.proves("WHY-BOOSTS")
def test_boosts_are_added_after_the_weighing() -> None:
    found = weighed(type=NuggetType.INTENT, match=ELSEWHERE, confidence=0.0, text=1.0)
    # 0.2 * 0.4 + 0.1 * 1.0 + 0.15
    assert relevance(found) == pytest.approx(0.33)


@pytest.mark.proves("WHY-STALE-PENALTY", "WHY-CLAMP")
def test_a_stale_nugget_loses_three_tenths_and_no_score_is_negative() -> None:
    fresh = weighed(type=NuggetType.DECISION, match=EXACT, confidence=0.9, age_days=30)
    stale = weighed(type=NuggetType.DECISION, match=EXACT, confidence=0.9, age_days=30, is_stale=True)
    # 0.3 + 0.14 + 0.075 + 0.09 = 0.605
    assert relevance(fresh) == pytest.approx(0.605)
    assert relevance(stale) == pytest.approx(0.305)
    lowest = weighed(type=NuggetType.DEPENDENCY, match=ELSEWHERE, confidence=0.0, is_stale=True)
    assert relevance(lowest) == 0.0


@pytest.mark.proves("WHY-EXPLAIN")
@pytest.mark.parametrize("is_stale", [True, False])
@pytest.mark.parametrize("match", list(ScopeMatch))
@pytest.mark.parametrize("type_", list(NuggetType))
def test_contributions_add_up_to_the_score(type_: NuggetType, match: ScopeMatch, is_stale: bool) -> None:
    for text in (None, 0.3, 1.0):
        signals = weighed(type=type_, match=match, confidence=0.65, age_days=12.5, text=text, is_stale=is_stale)
        total = sum(part.value for part in contributions_of(signals))
        assert total == pytest.approx(relevance(signals))
        assert 0 <= relevance(signals) <= 1


def hit(
    number: int, *, summary: str = "s" * 40, detail: str = "", prompt: str = "", type_: str = "decision"
) -> NuggetHit:
    nugget = Nugget(
        id=f"abc-{number}", type=NuggetType(type_), summary=summary, detail=detail, source_prompt=prompt,
        confidence=0.5, session="abc", scope=Scope(path="src/a.py"), alternatives=("x" * 8,) if detail else (),
        session_started=datetime(2026, 11, 1, tzinfo=UTC),
    )  # fmt: skip
    return NuggetHit(nugget=nugget, score=1 - number / 100, match=EXACT)


# A summary of 40 characters is 10 tokens, `src/a.py` 2: with its frame 42. A detail of 80 with its alternative is 22.
SUMMARY_TOKENS = NUGGET_FRAME_TOKENS + 12


@pytest.mark.proves("WHY-TOKENS")
def test_four_characters_are_a_token_and_two_thousand_tokens_the_budget() -> None:
    assert NuggetQuery().budget_tokens == 2000
    _, budget, _ = pack_nuggets([hit(1)], budget_tokens=2000, depth=Depth.STANDARD)
    assert (budget.requested, budget.used, budget.available) == (2000, SUMMARY_TOKENS, 2000 - SUMMARY_TOKENS)


@pytest.mark.proves("WHY-PACKING")
def test_depth_decides_what_is_shown_of_a_nugget() -> None:
    hits = [hit(1, detail="d" * 80, prompt="p" * 400)]
    shown = {depth: pack_nuggets(hits, budget_tokens=2000, depth=depth) for depth in Depth}
    tokens = {depth: budget.used for depth, (_, budget, _) in shown.items()}
    assert tokens == {
        Depth.SUMMARY: SUMMARY_TOKENS, Depth.STANDARD: SUMMARY_TOKENS + 22, Depth.DEEP: SUMMARY_TOKENS + 122,
    }  # fmt: skip
    texts = {
        depth: (packed[0].nugget.detail, packed[0].nugget.alternatives, packed[0].nugget.source_prompt)
        for depth, (packed, _, _) in shown.items()
    }
    assert texts[Depth.SUMMARY] == ("", (), "")
    assert texts[Depth.STANDARD] == ("d" * 80, ("x" * 8,), "")
    assert texts[Depth.DEEP] == ("d" * 80, ("x" * 8,), "p" * 400)


@pytest.mark.proves("WHY-TRUNCATED")
def test_what_does_not_fit_is_counted_by_type() -> None:
    hits = [hit(1), hit(2, type_="intent"), hit(3, type_="intent"), hit(4, type_="constraint")]
    packed, budget, hint = pack_nuggets(hits, budget_tokens=SUMMARY_TOKENS + 5, depth=Depth.SUMMARY)
    assert [entry.nugget.id for entry in packed] == ["abc-1"] and budget.truncated
    assert hint and "3 nuggets (2 intent, 1 constraint)" in hint
    nothing, budget, hint = pack_nuggets(hits, budget_tokens=10, depth=Depth.SUMMARY)
    assert nothing == () and budget.used == 0 and budget.truncated and hint and "4 nuggets" in hint
