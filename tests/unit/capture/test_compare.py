"""Comparison of proposed units with the brain: what replaces a decision, adds to one, or is another."""

from __future__ import annotations

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


@pytest.mark.proves("CAP-ANOTHER")
def test_another_decision_is_another_unit_however_alike_it_reads() -> None:
    known = unit_of("Store timestamps in UTC", "All tables of the shop hold times in UTC, because users travel")
    other = unit_of(
        "Show timestamps in the zone of the user", "All pages of the shop show times in the zone of the user"
    )
    made = compared(known, other, likeness=0.9)
    assert [(one.is_new, one.unit.title) for one in made[0]] == [(True, "Show timestamps in the zone of the user")]
