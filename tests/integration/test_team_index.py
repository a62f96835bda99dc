"""One contract for both indexes: a team's in PostgreSQL answers as the embedded one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from nugget.index import Index
from nugget.index.postgres import PostgresIndex
from nugget.index.postgres.writer import publish
from nugget.infra.embedding import Embedder
from nugget.models import Filter, Query
from nugget.retrieval import retrieve
from nugget.retrieval.candidates import PROFILES
from nugget.retrieval.query_language import merge_filters, parse_search

NOW = datetime(2026, 11, 20, tzinfo=UTC)
FILTERS = {
    "none": Filter(),
    "type": Filter(types=("decision", "playbook")),
    "domain": Filter(domains=("coding",)),
    "tag": Filter(tags=("Redis",)),
    "path": Filter(paths=("domains/coding",)),
    "since": Filter(since=date(2026, 3, 1)),
    "until": Filter(until=date(2026, 6, 1)),
    "confidence": Filter(min_confidence=0.85),
    "nothing": Filter(types=("no-such-type",)),
}
QUERIES = (
    "connection pool", '"connection pool"', "conn* AND pool", "cache NOT redis", "(cache OR queue) AND retry",
    "NEAR(cache key, 8)", "pay* OR timeout", 'retry "exponential backoff"', "cache type:decision", "retyr bacoff",
    "what did we decide in march 2026?", "缓存 失效", "retrypolicy", "", "????", "a\x00b cache", "the of and",
)  # fmt: skip
"""Of every kind that the language knows, with misspelt, unspaced, compound and empty ones."""


@pytest.fixture
def pair(brain: Path, synced: object, team_database: str) -> Iterator[tuple[Index, PostgresIndex]]:
    """The same brain in both indexes."""
    (brain / ".nugget").mkdir(exist_ok=True)
    index = Index(brain / ".nugget" / "index.db")
    publish(index, team_database, "team")
    yield index, PostgresIndex(team_database, "team")
    index.close()


def titles(index: Index) -> list[str]:
    return [unit.title for unit in index.units(index.unit_keys(index.unit_ids()).values()).values()]


@pytest.mark.parametrize("profile", list(PROFILES.values()), ids=list(PROFILES))
@pytest.mark.parametrize("filter_", list(FILTERS.values()), ids=list(FILTERS))
@pytest.mark.proves("TEAM-SAME", "TEAM-TRIPS")
def test_both_give_the_same_bundle(pair: Any, model: Embedder, filter_: Filter, profile: Any) -> None:
    embedded, team = pair
    asked, same = (*QUERIES, *titles(embedded)[::5]), 0
    for given in asked:
        parsed = parse_search(given, today=NOW.date())
        wanted = replace(merge_filters(filter_, parsed.filter), match=parsed.match)
        query = Query(parsed.text, match_any=parsed.match_any, limit=10, filter=wanted)
        one, other = (retrieve(query, profile, index, embedder=model, now=NOW) for index in pair)
        if [hit.ref for hit in other.hits] == [hit.ref for hit in one.hits]:  # but for those that are equally good
            assert [hit.score for hit in other.hits] == pytest.approx([hit.score for hit in one.hits], abs=1e-5), given
            same += 1
            for mine, theirs in zip(one.hits, other.hits, strict=True):
                assert (theirs.unit, theirs.reasons, theirs.stale_reason) == (
                    mine.unit,
                    mine.reasons,
                    mine.stale_reason,
                )
                assert [chunk.text for chunk in theirs.chunks] == [chunk.text for chunk in mine.chunks], given
        assert (other.degraded, other.weak) == (one.degraded, one.weak)
        assert team.trips <= 5, given
    assert same >= len(asked) - 1
