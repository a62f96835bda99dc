"""Comparison of proposed units with the brain: what replaces a decision, adds to one, or is another."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from nugget import brain as brains
from nugget.brain import knowledge_file as knowledge
from nugget.capture.compare import KnownBrain, ProposedChange, compare
from nugget.extraction.proposals import Proposal
from nugget.models import Evidence, KnowledgeType, Relation, RelationType, SourceName, Unit

TODAY = date(2026, 6, 1)


def unit_of(title: str, body: str = "", *, instead_of: str = "", kind: str = KnowledgeType.DECISION) -> Unit:
    slug = "-".join(title.lower().replace("`", "").split()[:6])
    return Unit(
        id=f"{kind}/{slug}", source=SourceName.BRAIN, type=kind, title=title, body=f"# {title}\n\n{body or title}.\n",
        path=brains.unit_path(kind, "projects/shop", slug), domain="projects/shop", confidence=0.7,
        alternatives=(instead_of,) if instead_of else (), created=date(2026, 5, 2),
        evidence=(Evidence(session="s", quote=body or title),),
    )  # fmt: skip


def compared(known: Unit, *units: Unit, likeness: float = 0.0) -> tuple[tuple[ProposedChange, ...], tuple[str, ...]]:
    files = {known.path or "": knowledge.serialise(known)}
    brain = KnownBrain(files=files, read=files.get, similar=lambda unit: [(known, likeness)] if likeness else [])
    proposals = [Proposal(unit=one, reason="You said so") for one in units]
    return compare(proposals, brain, today=TODAY, session="s", max_units=2)


@pytest.mark.proves("CAP-SUPERSEDES")
@pytest.mark.parametrize("likeness", [0.0, 0.9])
@pytest.mark.parametrize(
    ("before", "after", "rejected"),
    [
        ("Use Redis for the sessions", "Use Postgres for the sessions instead of Redis", "Redis"),
        ("We use Redis for sessions", "We no longer use Redis for sessions", "Redis"),
        ("Redis keeps the sessions of users", "Keep the sessions in Postgres", "Redis"),
    ],
)
def test_a_later_choice_that_rejects_an_earlier_one_supersedes_it(
    before: str, after: str, rejected: str, likeness: float
) -> None:
    known = unit_of(before)
    made = compared(known, unit_of(after, instead_of=rejected), likeness=likeness)
    new, marked = made[0]
    assert new.is_new and new.unit.related == (Relation(id=known.id, relation=RelationType.SUPERSEDES),)
    assert marked.path == known.path and f"superseded_by: {new.unit.id}" in marked.text


@pytest.mark.proves("CAP-SUPERSEDES")
@pytest.mark.parametrize(
    ("before", "after", "rejected"),
    [
        ("Use Redis for the rate limits", "Use Postgres for the job queue instead of Redis", "Redis"),
        ("Use Postgres for the sessions", "Use Postgres for the sessions instead of Redis", "Redis"),
    ],
)
def test_another_subject_or_the_same_choice_is_not_superseded(before: str, after: str, rejected: str) -> None:
    made = compared(unit_of(before), unit_of(after, instead_of=rejected))
    assert [one.note for one in made[0] if one.note and "supersede" in one.note] == []


@pytest.mark.proves("CAP-ANOTHER")
def test_another_decision_is_another_unit_however_alike_it_reads() -> None:
    known = unit_of("Store timestamps in UTC", "All tables of the shop hold times in UTC, because users travel")
    other = unit_of(
        "Show timestamps in the zone of the user", "All pages of the shop show times in the zone of the user"
    )
    made = compared(known, other, likeness=0.9)
    assert [(one.is_new, one.unit.title) for one in made[0]] == [(True, "Show timestamps in the zone of the user")]


@pytest.mark.proves("CAP-ANOTHER")
def test_two_units_on_one_quote_are_both_proposed_and_keep_the_day_of_their_session() -> None:
    first = unit_of("Use Postgres for the queue", "we take Postgres for the queue and Redis for rate limits")
    second = replace(unit_of("Count rate limits in Redis"), evidence=first.evidence)
    made = compared(unit_of("Never log a token", kind=KnowledgeType.BELIEF), first, second)
    assert len(made[0]) == 2
    assert {one.unit.created for one in made[0]} == {date(2026, 5, 2)}


def test_an_update_that_extraction_names_is_an_edit_of_that_unit() -> None:
    known, news = unit_of("Never log a token"), unit_of("Expire caches by event", kind=KnowledgeType.CONCEPT)
    brain = KnownBrain(
        files={known.path or "": ""}, read=lambda path: knowledge.serialise(known), similar=lambda one: []
    )
    for updates, path in ((known.id, known.path), ("pattern/not-there", news.path)):
        proposal = Proposal(unit=news, reason="", updates=updates)
        made = compare([proposal], brain, today=TODAY, session="s", max_units=5)
        assert [change.path for change in made[0]] == [path]


@pytest.mark.proves("CAP-SUPERSEDES")
def test_relations_lead_somewhere_and_conflicts_are_pointed_out() -> None:
    known = unit_of("Retry with a key", kind=KnowledgeType.PATTERN)
    related = [
        Relation(id=known.id, relation=RelationType.CONTRADICTS), Relation(id="concept/no", relation=RelationType.USES),
    ]  # fmt: skip
    (made,) = compared(known, replace(unit_of("Expire caches by event"), related=tuple(related)))[0]
    assert made.unit.related == (related[0],) and made.note == f"contradicts {known.id}"


def test_more_units_than_wanted_are_left_out_least_trusted_first() -> None:
    words = ("alpha", "bravo", "charlie", "delta")
    many = [replace(unit_of(f"Rule {word}"), confidence=number / 10) for number, word in enumerate(words)]
    made = compared(unit_of("Never log a token"), *many)
    assert [change.unit.title for change in made[0]] == ["Rule delta", "Rule charlie"]
    assert made[1] == tuple(f"Rule {word}: more than 2 units (capture.max_units)" for word in ("bravo", "alpha"))
