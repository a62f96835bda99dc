"""One contract for both indexes: a team's in PostgreSQL answers as the embedded one does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from sync_stage import CACHE_FILE, unit

from nugget.errors import IndexUnavailable
from nugget.index import Index
from nugget.index.postgres import PostgresIndex
from nugget.index.postgres.writer import Published, publish
from nugget.infra.embedding import Embedder
from nugget.models import Filter, Query
from nugget.retrieval import retrieve
from nugget.retrieval.candidates import PROFILES
from nugget.retrieval.query_language import merge_filters, parse_search
from nugget.retrieval.search import Indexes

NOW = datetime(2026, 11, 20, tzinfo=UTC)
FILTERS = (
    Filter(), Filter(types=("decision", "playbook")), Filter(domains=("coding",)), Filter(tags=("Redis",)),
    Filter(paths=("domains/coding",)), Filter(since=date(2026, 3, 1), until=date(2026, 6, 1)),
    Filter(min_confidence=0.85), Filter(types=("no-such-type",)),
)  # fmt: skip
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
@pytest.mark.proves("TEAM-SAME", "TEAM-TRIPS")
def test_both_give_the_same_bundle(pair: Any, model: Embedder, profile: Any) -> None:
    embedded, team = pair
    asked, same = [(given, filter_) for filter_ in FILTERS for given in (*QUERIES, *titles(embedded)[::9])], 0
    for given, filter_ in asked:
        parsed = parse_search(given, today=NOW.date())
        parsed = replace(parsed, filter=merge_filters(filter_, parsed.filter))
        one, other = (
            retrieve(Query(given, limit=10), profile, Indexes(brain=index), parsed=parsed, embedder=model, now=NOW)
            for index in pair
        )
        if [hit.ref for hit in other.hits] == [hit.ref for hit in one.hits]:  # but for those that are equally good
            assert [hit.score for hit in other.hits] == pytest.approx([hit.score for hit in one.hits], abs=1e-5), given
            same += 1
            for mine, theirs in zip(one.hits, other.hits, strict=True):
                assert (theirs.unit, theirs.reasons) == (mine.unit, mine.reasons)
                assert [chunk.text for chunk in theirs.chunks] == [chunk.text for chunk in mine.chunks], given
        assert (other.degraded, other.weak) == (one.degraded, one.weak)
        assert team.trips <= 5, given
    assert same >= 0.99 * len(asked)


@pytest.mark.proves("TEAM-SAME")
def test_both_stay_the_same_whatever_is_changed(pair: Any, brain: Path, synced: Any, team_database: str) -> None:
    """Files are added, changed, moved and removed in any order; segments are merged on the way."""
    chance = random.Random(11)
    known = ["cache", "retry", "pool", "timeout", "queue", "naïve", "缓存失效", "retryWithBackoff"]
    written: list[Path] = []
    for step in range(30):
        for number in range(chance.randint(1, 4)):
            kind = chance.choice(["add", "add", "change", "remove", "move"])
            if kind == "add" or not written:
                path = brain / f"domains/coding/concepts/made-{step}-{number}.md"
                written.append(path)
            path = chance.choice(written) if kind != "add" else written[-1]
            if kind == "remove":
                path.unlink(missing_ok=True)
            elif kind == "move" and path.exists():
                written.append(path.rename(path.with_name(f"moved-{step}-{number}.md")))
            else:
                said = " ".join(chance.choices(known, k=chance.randint(3, 60)))
                path.write_text(unit(f"concept/{path.stem}", body=f"## One\n\n{said}\n\n## Two\n\n{said[::-1]}\x00"))
        synced()
        with closing(Index(brain / ".nugget" / "index.db")) as index:
            publish(index, team_database, "team")
            assert_same_lists(index, pair[1], chance.sample(known, 2))
    with closing(Index(brain / ".nugget" / "index.db")) as index:
        publish(index, team_database, "team", rebuild=True)
        assert_same_lists(index, pair[1], known)


def assert_same_lists(embedded: Index, team: PostgresIndex, words: Sequence[str]) -> None:
    text = " ".join(words)
    mine, theirs = embedded.terms(text), team.terms(text)
    assert theirs == mine
    assert team.chunk_count == embedded.chunk_count
    assert team.unit_ids() == embedded.unit_ids()
    with embedded.reading(), team.reading():
        one, other = (index.search(mine, None, Filter(), k=50, depth=5_000) for index in (embedded, team))
        for kind in ("texts", "wholes"):
            scores = [[score for _, score in getattr(found, kind)] for found in (one, other)]
            assert scores[1] == pytest.approx(scores[0], rel=1e-9)
        units = [sorted(unit.id for unit in index.units({key for key, _ in found.wholes}).values())
                 for index, found in ((embedded, one), (team, other))]  # fmt: skip
        assert units[0] == units[1]


@pytest.mark.proves("TEAM-IDEMPOTENT")
def test_publishing_again_writes_nothing_and_a_change_only_itself(
    pair: Any, brain: Path, synced: Any, team_database: str
) -> None:
    assert publish(pair[0], team_database, "team") == Published()
    (brain / CACHE_FILE).write_text(unit("concept/cache-invalidation", body="Anew."))
    synced()
    with closing(Index(brain / ".nugget" / "index.db")) as index:
        assert publish(index, team_database, "team") == Published(written=1)
    with pytest.raises(IndexUnavailable, match="another brain's"):
        publish(pair[0], team_database, "team", origin="another")


@pytest.mark.proves("TEAM-ROWS")
def test_no_door_shows_the_rows_of_another_space(pair: Any, team_database: str) -> None:
    """Each table is asked through the service's role: without a setting, and with that of somebody else."""
    import psycopg

    with psycopg.connect(team_database, autocommit=True) as connection:
        ours = "FROM pg_class WHERE relnamespace = 'nugget'::regnamespace AND relkind IN ('r', 'p')"
        tables = [row[0] for row in connection.execute(f"SELECT relname {ours}")]
        for wrong in (f"{ours} AND NOT (relrowsecurity AND relforcerowsecurity)",
                      "FROM pg_class WHERE relowner = 'nugget_service'::regrole"):  # fmt: skip
            assert connection.execute(f"SELECT relname {wrong}").fetchall() == []
        assert connection.execute("SELECT count(*) FROM nugget.units").fetchone() != (0,)
        connection.execute("SET ROLE nugget_service")
        for spaces in (None, "", "tea", "team2,other", "*", "%"):
            with connection.transaction():
                for setting in ("spaces", "writable") if spaces is not None else ():
                    connection.execute(f"SELECT set_config('nugget.{setting}', %s, true)", (spaces,))
                for table in tables:
                    try:
                        with connection.transaction():
                            found = connection.execute(f"SELECT count(*) FROM nugget.{table}").fetchone()
                        assert found == (0,), (spaces, table)
                    except psycopg.errors.InsufficientPrivilege:
                        assert table[-1].isdigit(), table  # partitions are reached through their table alone
        for statement in (
            "INSERT INTO nugget.dead VALUES ('team', 0, 1)", "DELETE FROM nugget.units",
            "ALTER TABLE nugget.units DISABLE ROW LEVEL SECURITY",
        ):  # fmt: skip
            with connection.transaction(force_rollback=True):
                connection.execute("SELECT set_config('nugget.spaces', 'team', true)")  # may read, but not write
                try:
                    with connection.transaction():
                        assert connection.execute(statement).rowcount == 0, statement
                except psycopg.errors.InsufficientPrivilege:
                    pass
    for reader in (PostgresIndex(team_database, "other"), PostgresIndex(team_database, "team,other")):
        doors: dict[str, tuple[Any, ...]] = {
            "unit_ids": (), "unit": ("pattern/retry",), "terms": ("pool",), "newest_units": (Filter(), 9),
            "units": ([1],), "chunks": ([1],), "edges": ([1],), "unit_vector": (1,),
        }  # fmt: skip
        for door, given in doors.items():
            with pytest.raises(IndexUnavailable, match="no space"):
                getattr(reader, door)(*given)


@pytest.mark.proves("TEAM-ROWS")
def test_two_spaces_with_the_same_ids_stay_apart(
    pair: Any, brain: Path, synced: Any, team_database: str, model: Embedder
) -> None:
    (brain / CACHE_FILE).write_text(unit("concept/cache-invalidation", body="Zebras xylophone."))
    synced()
    with closing(Index(brain / ".nugget" / "index.db")) as index:
        publish(index, team_database, "second")
    first, second = pair[1], PostgresIndex(team_database, "second")
    bodies = [index.unit("concept/cache-invalidation").body for index in (first, second)]  # type: ignore[union-attr]
    assert ["Zebras" in body for body in bodies] == [False, True]
    assert first.terms("xylophone").idfs != second.terms("xylophone").idfs
    assert first.search(first.terms("xylophone"), None, Filter(), k=9, depth=9).texts == []
    publish(pair[0], team_database, "team")
    assert second.terms("xylophone") == first.terms("xylophone")
