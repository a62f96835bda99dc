"""A team's index in PostgreSQL answers as the embedded one does, whatever happens to it."""

import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Event, Thread
from typing import Any

import pytest
import team_load
from sync_stage import CACHE_FILE, unit
from waiting import wait_for

from nugget.config import load_settings, read_environment
from nugget.errors import IndexUnavailable, UsageError
from nugget.index.embedded import Index
from nugget.index.embedded.connection import create
from nugget.index.postgres import PostgresIndex
from nugget.index.postgres.connection import MIGRATIONS, MOST_CONNECTIONS, IndexBusy, migrate, pool_of
from nugget.index.postgres.writer import PublishedUnits, publish
from nugget.models import Filter, Query
from nugget.retrieval import retrieve
from nugget.retrieval.candidates import PROFILES, TASK
from nugget.retrieval.query_language import SearchQuery, merge_filters, parse_search
from nugget.retrieval.search import Indexes

psycopg: Any = pytest.importorskip("psycopg")
NOW, LOAD_S = datetime(2026, 11, 20, tzinfo=UTC), os.environ.get("NUGGET_TEAM_LOAD_S", "8")
FILTERS = (
    Filter(), Filter(types=("decision", "playbook")), Filter(domains=("coding",)), Filter(tags=("Redis",)),
    Filter(paths=("domains/coding",)), Filter(since=date(2026, 3, 1), until=date(2026, 6, 1)),
    Filter(types=("no-such-type",)),
)  # fmt: skip
QUERIES = (
    "connection pool", '"connection pool"', "conn* AND pool", "cache NOT redis", "(cache OR queue) AND retry",
    "NEAR(cache key, 8)", "pay* OR timeout", 'retry "exponential backoff"', "cache type:decision", "retyr bacoff",
    "what did we decide in march 2026?", "缓存 失效", "retrypolicy", "", "????", "a\x00b cache", "the of and",
)  # fmt: skip
"""Of every kind that the language knows, with misspelt, unspaced, compound and empty ones."""


@pytest.fixture
def index(brain: Path, synced: object) -> Iterator[Index]:
    with closing(Index(brain / ".nugget" / "index.db")) as opened:
        yield opened


@pytest.fixture
def team(index: Index, team_database: str) -> PostgresIndex:
    publish(index, team_database, "team")
    return PostgresIndex(team_database, "team")


@pytest.mark.parametrize("profile", list(PROFILES.values()), ids=list(PROFILES))
@pytest.mark.proves("TEAM-SAME", "TEAM-TRIPS")
def test_both_give_the_same_bundle(index, team, model, profile):
    titles = [unit.title for unit in index.units(range(1, 10_000, 9)).values()]
    for given, filter_ in product((*QUERIES, *titles), FILTERS):
        parsed = parse_search(given, today=NOW.date())
        parsed = replace(parsed, filter=merge_filters(filter_, parsed.filter))
        one, other = (
            retrieve(Query(given, limit=10), profile, Indexes(brain=either), parsed=parsed, embedder=model, now=NOW)
            for either in (index, team)
        )
        assert [hit.score for hit in other.hits] == pytest.approx([hit.score for hit in one.hits], abs=2e-6), given
        for mine, theirs in zip(one.hits, other.hits, strict=True):
            assert (theirs.unit, theirs.reasons) == (mine.unit, mine.reasons)
            assert [chunk.text for chunk in theirs.chunks] == [chunk.text for chunk in mine.chunks], given
        assert (other.degraded, other.weak) == (one.degraded, one.weak)
        assert team.trips <= 5, given


@pytest.mark.proves("TEAM-SAME")
def test_both_stay_the_same_whatever_is_changed(index, team, brain, synced, team_database):
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
        publish(index, team_database, "team")
        assert_same(index, team, chance.sample(known, 2))
    publish(index, team_database, "team", rebuild=True)
    assert_same(index, team, known)


def assert_same(embedded: Index, team: PostgresIndex, words: Sequence[str]) -> None:
    mine, theirs = (index.terms(" ".join(words)) for index in (embedded, team))
    assert theirs == mine
    assert (team.chunk_count, held(team)) == (embedded.chunk_count, held(embedded))
    asked = replace(mine, match=f'{mine.match} OR "{" ".join(words)}" OR "{words[0][:3]}"*')
    with embedded.reading(), team.reading():
        one, other = (index.search(asked, None, Filter(), k=50, depth=5_000) for index in (embedded, team))
        for kind in ("texts", "wholes"):
            scores = [[score for _, score in getattr(found, kind)] for found in (one, other)]
            assert scores[1] == pytest.approx(scores[0], rel=1e-9)
        units = [sorted(unit.id for unit in index.units({key for key, _ in found.wholes}).values())
                 for index, found in ((embedded, one), (team, other))]  # fmt: skip
        assert units[0] == units[1]


def held(index: Any) -> dict[str, tuple[str, bytes]]:
    """Each unit with its chunks, in characters that PostgreSQL takes, and its vector in half precision."""
    with index.reading():
        keys = index.unit_keys(index.unit_ids())
        units, chunks = index.units(keys.values()), index.chunks_of_units(keys.values())
        texts = {key: f"{units[key]} {[(one.breadcrumb, one.text) for one in chunks[key]]}" for key in keys.values()}
        vectors = {key: index.unit_vector(key).astype("<f2").tobytes() for key in keys.values()}
        return {id_: (texts[key].replace("\\x00", "\ufffd"), vectors[key]) for id_, key in keys.items()}


@pytest.mark.proves("TEAM-IDEMPOTENT")
def test_publishing_again_writes_nothing_and_a_change_only_itself(index, team, brain, synced, team_database):
    assert publish(index, team_database, "team") == PublishedUnits()
    (brain / CACHE_FILE).write_text(unit("concept/cache-invalidation", body="Anew."))
    synced()
    assert publish(index, team_database, "team") == PublishedUnits(written=1)
    with pytest.raises(IndexUnavailable, match="another brain's"):
        publish(index, team_database, "team", origin="another")


@pytest.mark.proves("TEAM-ROWS")
def test_no_door_shows_the_rows_of_another_space(team, team_database):
    """Each table is asked through the service's role: without a setting, and with that of somebody else."""
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
            "units": ([1],), "edges": ([1],), "unit_vector": (1,),
        }  # fmt: skip
        for door, given in doors.items():
            with pytest.raises(IndexUnavailable, match="no space"):
                getattr(reader, door)(*given)


@pytest.mark.proves("TEAM-ROWS")
def test_two_spaces_with_the_same_ids_stay_apart(index, team, brain, synced, team_database):
    (brain / CACHE_FILE).write_text(unit("concept/cache-invalidation", body="Zebras xylophone."))
    synced()
    publish(index, team_database, "second")
    first, second = team, PostgresIndex(team_database, "second")
    bodies = [reader.unit("concept/cache-invalidation").body for reader in (first, second)]  # type: ignore[union-attr]
    assert ["Zebras" in body for body in bodies] == [False, True]
    assert first.terms("xylophone").idfs != second.terms("xylophone").idfs
    assert first.search(first.terms("xylophone"), None, Filter(), k=9, depth=9).texts == []
    publish(index, team_database, "team")
    assert second.terms("xylophone") == first.terms("xylophone")


def ask(index: Any, question: str = "connection pool", **options: Any) -> Any:
    parsed = SearchQuery(given=question, text=question, **options)
    return retrieve(Query(question, limit=5), TASK, Indexes(brain=index), parsed=parsed, embedder=None, now=NOW)


def kill(database: str, *, waiting: bool = False) -> None:
    """End Nugget's connections to a database as a restart does; with `waiting` once one waits for a lock."""
    which = "application_name = 'nugget' AND datname = current_database()"
    if waiting:
        which += " AND wait_event_type = 'Lock'"
    with psycopg.connect(database, autocommit=True) as connection:
        killed = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {which}"
        wait_for(lambda: connection.execute(killed).fetchone() != (0,) or not waiting)


@pytest.mark.proves("TEAM-FAULTS")
def test_a_question_outlives_a_restart_and_says_so_in_the_middle_of_one(team, team_database):
    before = ask(team)
    kill(team_database)
    assert ask(team) == before
    with pytest.raises(IndexUnavailable, match="The team's index failed"), team.reading():
        team.terms("pool")
        kill(team_database)
        team.unit_ids()
    assert ask(team) == before
    pool = pool_of(team_database)
    wait_for(lambda: (stats := pool.get_stats())["pool_available"] == stats["pool_size"])  # and none is being opened
    returned, pool.timeout, pool.kwargs["host"] = pool.get_stats()["returns_bad"], 0.5, "/nowhere"
    kill(team_database)
    with pytest.raises(IndexBusy, match="no free connection"):
        ask(team)
    assert pool.get_stats()["returns_bad"] == returned + 1


@pytest.mark.proves("TEAM-FAULTS")
def test_a_publication_that_is_killed_leaves_what_was_there(team, index, brain, synced, team_database):
    before = ask(team)
    (brain / CACHE_FILE).write_text(unit("concept/cache-invalidation", body="Connection pool, connection pool."))
    (brain / "domains/coding/concepts/more.md").write_text(unit("concept/more", body="A pool of connections."))
    synced()
    with psycopg.connect(team_database) as other, ThreadPoolExecutor(1) as pool:
        other.execute("LOCK TABLE nugget.segments IN SHARE MODE")  # reached when units and postings are written
        written = pool.submit(publish, index, team_database, "team")
        kill(team_database, waiting=True)
        with pytest.raises(IndexUnavailable, match="failed"):
            written.result()
    assert ask(team) == before
    assert publish(index, team_database, "team") == PublishedUnits(written=2)
    assert "concept/more" in team.unit_ids()


@contextmanager
def cable(database: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Another way to a database, and what cuts the connections that go by it."""
    from psycopg.conninfo import conninfo_to_dict

    given, opened = conninfo_to_dict(database), list[socket.socket]()

    def pump(source: socket.socket, target: socket.socket) -> None:
        with source, suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        cut()

    def cut() -> None:
        for one in opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        opened.clear()

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, far = door.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(f"{given['host']}/.s.PGSQL.5432")
                opened.extend((near, far))
                for ends in ((near, far), (far, near)):
                    Thread(target=pump, args=ends, daemon=True).start()

    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{folder}/.s.PGSQL.5432")
        door.listen()
        Thread(target=accept, daemon=True).start()
        yield f"postgresql://postgres:@/{given['dbname']}?host={folder}", cut
        cut()
        door.shutdown(socket.SHUT_RDWR)


@pytest.mark.proves("TEAM-FAULTS")
def test_a_network_that_is_cut_in_a_transaction_leaves_what_was_there(index, team, team_database):
    with cable(team_database) as (address, cut):
        reader = PostgresIndex(address, "team")
        before = [hit.ref for hit in ask(reader).hits]
        with pytest.raises(IndexUnavailable), reader.reading():
            assert reader.unit_ids()
            cut()
            reader.unit_ids()
        assert before and [hit.ref for hit in ask(reader).hits] == before
        with psycopg.connect(team_database, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
            other.execute("BEGIN")
            other.execute("LOCK TABLE nugget.segments IN EXCLUSIVE MODE")  # what a publication writes last
            published = pool.submit(publish, index, address, "team", rebuild=True)
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            with psycopg.connect(team_database, autocommit=True) as third:
                wait_for(lambda: third.execute(waiting).fetchone() != (0,))
            cut()
            other.execute("ROLLBACK")
            with pytest.raises(IndexUnavailable):
                published.result()
        assert index.unit_ids() == team.unit_ids()
        assert [hit.ref for hit in ask(team).hits] == before


@pytest.mark.proves("TEAM-IDEMPOTENT")
def test_a_publication_that_waits_for_another_one_publishes_what_is_there_after_it(tmp_path, team_database):
    with closing(create(tmp_path / "one.db")), closing(Index(tmp_path / "one.db")) as index:
        team_load.add(index, "one", 0)
        with psycopg.connect(team_database) as other, ThreadPoolExecutor(1) as pool:
            other.execute("SELECT pg_advisory_xact_lock(hashtextextended('one', 0))")
            published = pool.submit(publish, index, team_database, "one")
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            wait_for(lambda: other.execute(waiting).fetchone() != (0,))
            team_load.add(index, "one", 1)
            other.rollback()
            assert published.result() == PublishedUnits(written=2)


@pytest.mark.proves("TEAM-FAULTS")
def test_a_migration_that_is_killed_changes_nothing(empty_database):
    with psycopg.connect(empty_database) as other, ThreadPoolExecutor(1) as pool:
        other.execute("CREATE SCHEMA nugget")  # not committed: the migration waits behind it
        migrated = pool.submit(migrate, empty_database)
        kill(empty_database, waiting=True)
        with pytest.raises(IndexUnavailable):
            migrated.result()
        other.rollback()
        assert other.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None
    assert [migrate(empty_database), migrate(empty_database)] == [(0, len(MIGRATIONS)), (len(MIGRATIONS),) * 2]


@pytest.mark.proves("TEAM-FAULTS")
def test_another_version_of_the_schema_gets_one_sentence(team, index, team_database):
    with psycopg.connect(team_database, autocommit=True) as connection:
        connection.execute("CREATE OR REPLACE FUNCTION nugget.schema_version() RETURNS int LANGUAGE sql AS 'SELECT 99'")
    for call in (lambda: ask(team), lambda: publish(index, team_database, "team"), lambda: migrate(team_database)):
        with pytest.raises(IndexUnavailable, match=r"schema 99, this version of Nugget knows \d") as caught:
            call()
        assert caught.value.hint == "Upgrade Nugget."


@pytest.mark.proves("TEAM-FAULTS")
def test_a_pool_that_is_used_up_answers_within_seconds(team):
    ready, done = Barrier(MOST_CONNECTIONS + 1, timeout=30), Event()

    def hold(_: int) -> None:
        with team.reading():
            team.unit_ids()
            ready.wait()
            done.wait(60)

    with ThreadPoolExecutor(MOST_CONNECTIONS) as threads, ExitStack() as stack:
        stack.callback(done.set)
        threads.map(hold, range(MOST_CONNECTIONS))
        ready.wait()
        with pytest.raises(IndexBusy, match="no free connection"):
            ask(team)
    assert ask(team).hits


@pytest.mark.proves("TEAM-FAULTS")
@pytest.mark.parametrize("text", ["a\x00b", "\ud800 pool", "pool \udfff\x00", "\x00"])
def test_what_postgresql_cannot_hold_is_no_error(team, text):
    ask(team, text)
    ask(team, "pool", filter=Filter(paths=(text,), tags=(text,), domains=(text,), sessions=(text,)))
    assert team.unit(text) is None and team.titles(text, whole=True, limit=3) == []


@pytest.mark.proves("TEAM-FAULTS")
def test_what_is_no_vector_is_not_written_and_not_searched_with(team, index, model, team_database):
    for numbers in ([float("nan")] * 384, [float("inf")] * 384, [0.1] * 383, []):
        assert team.search_vectors(array("f", numbers), 5, Filter()) == []
    before = team.unit_ids()
    bad = struct.pack("<384f", *[float("nan")] * 384)
    index.connection.execute("UPDATE vectors SET embedding = ?", (bad,))
    with pytest.raises(IndexUnavailable, match="not a list of numbers"):
        publish(index, team_database, "team", rebuild=True)
    assert team.unit_ids() == before and team.search_vectors(model.embed_query("pool"), 5, Filter())


@pytest.mark.proves("TEAM-MODEL")
def test_another_model_searches_by_words(team, model):
    embed = model.embed_query

    class Other:
        model = "another-model"
        embed_query = staticmethod(embed)

    found = retrieve(Query("connection pool", limit=5), TASK, Indexes(brain=team), embedder=Other(), now=NOW)  # type: ignore[arg-type]
    assert found.degraded == ("other_model",) and found.hits


@pytest.mark.proves("TEAM-CONFIG")
def test_the_setting_is_ones_own_and_without_a_password(brain, nugget, synced, team_database, monkeypatch):
    with (brain / "brain.yaml").open("a") as file:
        file.write("\nindex: postgresql://attacker.example/x\n")
    assert load_settings(read_environment(), brain).index == ""
    for address in ("postgresql://me:hunter2@db/x", "postgresql://db/x?pass%77ord=hunter2"):
        refused = nugget("config", "set", "index", address)
        assert refused.code == 2 and "hunter2" not in refused.out + refused.err
        monkeypatch.setenv("NUGGET_INDEX", address)
        with pytest.raises(UsageError) as caught:
            load_settings(read_environment(), brain)
        assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("NUGGET_INDEX", "postgresql://nobody@127.0.0.1:1/none")
    failed = nugget("ask", "connection pool", "--brain", str(brain))
    assert (failed.code, failed.err.count("\n")) == (1, 2) and "failed" in failed.err
    monkeypatch.setenv("NUGGET_INDEX", f"{team_database}#platform")
    assert "no space platform" in nugget("ask", "connection pool", "--brain", str(brain)).err
    assert "44 units written" in nugget("sync", "--source", "brain", "--brain", str(brain)).out
    assert "bug/leaked-session-exhausts-pool" in nugget("ask", "connection pool", "--brain", str(brain)).out
    monkeypatch.delenv("NUGGET_INDEX")
    changed = next((brain / "domains").rglob("*.md"))
    changed.write_text(f"{changed.read_text('utf-8')}\nNot published yet.\n", "utf-8")
    nugget("sync", "--source", "brain", "--brain", str(brain))
    for place, why in (("platform", "1 changed unit not published"), ("x", "The team's index has no space x.")):
        monkeypatch.setenv("NUGGET_INDEX", f"{team_database}#{place}")
        assert f"space {place}: {why}" in nugget("status", "--brain", str(brain)).out


@pytest.mark.proves("TEAM-ROWS", "TEAM-FAULTS")
def test_processes_with_writers_and_readers_lose_nothing_and_see_only_their_own(tmp_path, team_database):
    """Two processes, four writers, 50 readers; NUGGET_TEAM_LOAD_S=120 for as long as a busy team would."""
    for space in team_load.SPACES:
        with closing(create(tmp_path / f"{space}.db")), closing(Index(tmp_path / f"{space}.db")) as index:
            team_load.add(index, space, 0)
            publish(index, team_database, space)
    given = [team_database, str(tmp_path), LOAD_S, "25"]
    running = [
        subprocess.Popen([sys.executable, team_load.__file__, *given, kind], stdout=subprocess.PIPE, text=True)
        for kind in ("adds", "rebuilds")
    ]
    did = [json.loads(one.communicate()[0] or "{}") for one in running]
    assert [one.returncode for one in running] == [0, 0]
    assert all(one["published"] >= 4 and one["answered"] >= 25 for one in did), did
    for space in team_load.SPACES:
        with closing(Index(tmp_path / f"{space}.db")) as index:
            assert index.unit_ids() == PostgresIndex(team_database, space).unit_ids()


@pytest.mark.proves("TEAM-FAULTS")
def test_a_full_disk_of_the_server_leaves_what_was_there(index, team, brain, synced, team_database):
    """The file of a table that the publication is the first to write takes no byte, as on a full disk."""
    before = ask(team)
    (brain / CACHE_FILE).write_text(unit("concept/cache-invalidation", body="Connection pool, connection pool."))
    synced()
    with psycopg.connect(team_database, autocommit=True) as connection:
        place = connection.execute(
            "SELECT current_setting('data_directory'), pg_relation_filepath(replace(tableoid::regclass::text, 'units', "
            "'dead')::regclass) FROM nugget.units LIMIT 1"
        ).fetchone()
    assert place is not None
    file = Path(*place)
    assert file.stat().st_size == 0
    file.unlink()
    file.symlink_to("/dev/full")
    with pytest.raises(IndexUnavailable, match="No space left on device"):
        publish(index, team_database, "team")
    assert ask(team) == before
    file.unlink()
    file.touch()
    shutil.chown(file, user=file.parent.stat().st_uid)
    assert publish(index, team_database, "team") == PublishedUnits(written=1)
    assert ask(team) != before
