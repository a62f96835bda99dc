"""Questions that name a time: units and passages of that time come first, and nothing is left out for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_stage import write_unit

from nugget.app import Brain
from nugget.models import Bundle, Query


@pytest.mark.proves("ASK-TIME")
def test_units_of_the_time_that_a_question_names_come_first_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "domains/coding/decisions").mkdir(parents=True)
    (tmp_path / "brain.yaml").write_text("owner: T\n")
    body = "# Cache of sessions {}\n\nThe cache of the sessions is cleared by {}."
    for number, (made, by) in enumerate((("2026-11-12", "hand"), ("2025-03-04", "hand"), ("2024-01-02", "hand"))):
        write_unit(tmp_path, f"decision/d{number}", body.format("one two three".split()[number], by), created=made)
    write_unit(tmp_path, "decision/named", body.format("four", "hand since 7 May 2025"), created="2026-06-01")
    with Brain(tmp_path) as brain:
        brain.sync()

        def found(question: str) -> Bundle:
            now = datetime(2026, 11, 22, tzinfo=UTC)
            return brain.ask(Query(question, explain=True), fresh=False, now=now)

        for question, first in (
            ("how was the cache of the sessions cleared last week", "decision/d0"),
            ("how was the cache of the sessions cleared in March 2025", "decision/d1"),
            ("when was the cache of sessions changed", "decision/named"),
        ):
            hits = found(question).hits
            assert hits[0].unit.id == first, question
            assert len(hits) == 4
            assert sum(part.value for part in hits[0].contributions) == pytest.approx(hits[0].score)
            assert "date" in {part.name for part in hits[0].contributions}
        plain = found("how is the cache of the sessions cleared").hits
        assert not any(part.name == "date" for hit in plain for part in hit.contributions)
