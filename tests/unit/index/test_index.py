"""The index beneath sync and retrieval: vectors, their signs, terms, full text, transactions, queries."""

import random
import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nugget.index.embedded import Index
from nugget.index.embedded import units as stored
from nugget.index.embedded.connection import connect, create, write_transaction
from nugget.index.embedded.vectors import Signs
from nugget.index.fulltext import Vocabulary, compound_parts, nearest, pieces, question_words, terms_of
from nugget.markdown import chunk_markdown
from nugget.models import Chunk, Filter, SourceName, Unit
from nugget.retrieval.query_language import merge_filters, parse_search


def unit(number: int, body: str = "text", *, title: str = "Some title") -> Unit:
    return Unit(id=f"concept/n{number}", source=SourceName.BRAIN, type="concept", title=title, body=body)


def chunk(text: str, position: int = 0) -> Chunk:
    return Chunk(breadcrumb="Some title", text=text, position=position)


@pytest.mark.proves("INDEX-NARROW")
def test_in_a_large_index_frequent_words_are_not_asked_and_the_rows_that_matter_are_found(tmp_path):
    file = tmp_path / "index.db"
    with closing(create(file)) as connection, write_transaction(connection):
        for number in range(210):
            texts = [f"the cache and the queue hold item {number} {part}" for part in range(100)]
            if number == 77:
                texts[5] = "the cache of the zorblatt must be flushed before the queue"
            chunks = [chunk(text, position) for position, text in enumerate(texts)]
            stored.put_unit(connection, unit(number, "\n".join(texts)), chunks)
    with closing(Index(file)) as index:
        terms = index.terms("how is the cache of the zorblatt flushed before item 77 in the queue")
        assert {"zorblatt", "flushed"} <= set(terms.words) and "cache" not in terms.words
        best, _ = index.search_text("chunks", terms, 10, Filter())[0]
        assert index.chunks_of_units([78])[78][5].key == best, "the cache of the zorblatt"
        common = index.terms("cache queue")
        assert set(common.words) == {"cache", "queue"}
        assert index.search_text("chunks", common, 10, Filter()), "frequent words alone still find something"


@pytest.mark.proves("INDEX-FORGETS")
def test_a_unit_that_is_taken_out_leaves_nothing_behind(tmp_path):
    file = tmp_path / "index.db"
    with closing(create(file)) as connection:
        for _ in range(3):
            with write_transaction(connection):
                key = stored.put_unit(connection, unit(1, "zorblatt retryWithBackoff"), [chunk("zorblatt")])
                put_vector(connection, 1, np.zeros(8))
                connection.execute("INSERT INTO unit_vectors VALUES (?, x'00', NULL)", (key,))
        for table in ("units", "chunks", "vectors", "signs", "unit_vectors"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
        with write_transaction(connection):
            stored.remove_unit(connection, SourceName.BRAIN, "concept/n1")
            stored.remove_unit(connection, SourceName.BRAIN, "concept/n1")
        for table in ("chunks_fts", "units_fts"):
            found = connection.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH 'zorblatt OR backoff'")
            assert found.fetchone() == (0,)
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
        assert connection.execute("SELECT count(*) FROM chunks_vocabulary").fetchone() == (0,)


@pytest.mark.proves("INDEX-NUMPY")
def test_words_are_scored_as_fts5_does_it_also_after_writes(tmp_path):
    chance, file = random.Random(5), tmp_path / "index.db"
    words = [f"word{number}" for number in range(300)] + ["retryWithBackoff", "Caches", "缓存失效"]

    def put_some(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
        for number in numbers:
            texts = [" ".join(chance.choices(words, k=chance.randrange(30))) for _ in range(chance.randrange(25))]
            made = replace(unit(number, "\n".join(texts)), title=chance.choice(words), domain=str(number % 3))
            stored.put_unit(connection, made, [chunk(text, position) for position, text in enumerate(texts)])

    def check(index: Index, question: str, filter_: Filter) -> None:
        terms = index.terms(question)
        for kind in ("chunks", "units"):
            sql = f"SELECT rowid, -bm25({kind}_fts, 2, 1, .5) FROM {kind}_fts WHERE {kind}_fts MATCH ?"
            scores = dict(index.connection.execute(sql, (terms.match,)).fetchall())
            units = index.units_of_chunks(list(scores)) if kind == "chunks" else {key: key for key in scores}
            admitted, found = index.admitted(list(units.values()), filter_), index.search_text(kind, terms, 40, filter_)
            best = {key: scores[key] for key in scores if units[key] in admitted}
            assert [score for _, score in found] == pytest.approx(sorted(best.values(), reverse=True)[:40])
            assert [score for _, score in found] == pytest.approx([best[key] for key, _ in found])

    with closing(create(file)) as connection, write_transaction(connection):
        put_some(connection, range(600))
    room = 20_000  # for some words of earlier questions
    with closing(Index(file, kept_bytes=room)) as index, closing(connect(file)) as other:
        for writer in (other, index.connection):
            for question in ("word7 cache", "retry word1 word2 word3", "缓存 word9", "word9 backoff", "nowhere"):
                with index.reading():
                    check(index, question, Filter())
                    check(index, question, Filter(domains=("1",)))
            with write_transaction(writer):
                put_some(writer, chance.sample(range(620), 40))
                stored.remove_unit(writer, SourceName.BRAIN, "concept/n599")
        check(index, "word7 cache", Filter(domains=("1",)))
        assert index.chunk_count > 5000


@pytest.mark.proves("TEXT-IDENTIFIERS")
@pytest.mark.parametrize(("word", "expected"), [
    ("retryWithBackoff", ["retry", "With", "Backoff"]), ("HTTPServer2", ["HTTP", "Server", "2"]), ("URLs", []),
    ("Größe", []), ("缓存失效", ["缓存", "存失", "失效"]), ("中", ["中"]),
])  # fmt: skip
def test_words_are_taken_apart_where_people_put_them_together(word, expected):
    assert pieces(word) == expected


@pytest.mark.proves("TEXT-QUESTION")
def test_stop_words_go_when_other_words_remain():
    assert question_words("How do we retry payments") == ["retry", "payments"]
    assert question_words("what is it") == ["what", "is", "it"]


@pytest.mark.proves("TEXT-UNKNOWN")
def test_unknown_words_are_taken_for_their_nearest_spelling_or_their_parts():
    vocabulary = ["cache", "cach", "idempot", "payment"]
    assert nearest("idempto", vocabulary) == ["idempot"] and nearest("xyzzy", vocabulary) == []
    parts = compound_parts("datenbankverbindung", {"datenbank", "verbindung"}.__contains__)
    assert parts == ["datenbank", "verbindung"]
    assert compound_parts("unbekannt", set[str]().__contains__) == []


NUMBERS = np.random.default_rng(3)


def put(connection: sqlite3.Connection, keys: range) -> None:
    made = NUMBERS.normal(size=(len(keys), 100)).astype("<f4")
    with write_transaction(connection):
        for key, vector in zip(keys, made / np.linalg.norm(made, axis=1, keepdims=True), strict=True):
            put_vector(connection, key, vector)


def put_vector(connection: sqlite3.Connection, key: int, vector: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO vectors VALUES (?,?)", (key, vector.tobytes()))
    bits = np.packbits(vector > 0).tobytes()
    connection.execute("INSERT OR REPLACE INTO signs (chunk_key, bits) VALUES (?,?)", (key, bits))


def nearest_keys(connection: sqlite3.Connection, vector: Any, count: int) -> set[int]:
    rows = connection.execute("SELECT chunk_key, embedding FROM vectors").fetchall()
    rows.sort(key=lambda row: -float(np.frombuffer(row[1], "<f4") @ np.frombuffer(vector, "<f4")))
    return {key for key, _ in rows[:count]}


@pytest.mark.proves("INDEX-NUMPY")
def test_signs_in_memory_find_the_nearest_and_follow_what_is_written(tmp_path):
    connection, other, signs = create(tmp_path / "index.db"), connect(tmp_path / "index.db"), Signs()
    put(connection, range(1, 401))
    question = array("f", NUMBERS.normal(size=100).astype("<f4").tobytes())

    def found(allowed: list[int] | None = None) -> set[int]:
        admitted = None if allowed is None else np.isin(np.arange(1000), allowed)
        return set(signs.near(connection, question, 14, admitted))

    assert len(nearest_keys(connection, question, 10) & found()) >= 7
    assert found([3, 5, 9999]) == {3, 5}
    best = nearest_keys(connection, question, 1).pop()
    put_vector(other, best, np.negative(np.frombuffer(question, "<f4")))  # another process: one changed, more came
    put(other, range(401, 901))
    assert len(nearest_keys(connection, question, 10) & found()) >= 7
    assert signs.near(connection, question, 14, np.ones(500, bool)), "this thread's state may be earlier than the signs"
    connection.execute("DELETE FROM signs WHERE chunk_key > 20")
    connection.execute("UPDATE meta SET value = 'again' WHERE key = 'made'")  # what a rebuild does
    assert found() == set(range(1, 21))


TODAY = date(2026, 11, 21)
NOTES = {
    "redis": "Redis cache: retry the connection pool after a timeout.",
    "memcached": "Memcached cache: no retries, the connection is cheap. A pool would be too much.",
    "postgres": "Postgres pool of connections; retryWithBackoff when the server restarts.",
    "chinese": "缓存失效 happens when the clock jumps.",
    "bank": "Payments are deployed by queryset and keyboard; the player obeyed.",
}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with closing(create(tmp_path / "index.db")) as connection, write_transaction(connection):
        for name, body in NOTES.items():
            unit = Unit(id=name, source=SourceName.CANON, type="document", title=name, body=body, path=f"x/{name}.md")
            stored.put_unit(connection, unit, chunk_markdown(body, title=name))
    with closing(Index(tmp_path / "index.db")) as opened:
        yield opened


def found(index: Index, text: str) -> list[str]:
    """The ids that a query admits."""
    query = parse_search(text, today=TODAY)
    assert query.problem is None, query.problem
    chosen = merge_filters(query.filter, Filter(match=query.match))
    terms = terms_of(Vocabulary(index.connection), query.text)
    rows = index.search_text("units", replace(terms, match=query.match_any or terms.match), 9, chosen)
    return sorted(unit.id for unit in index.units([key for key, _ in rows]).values())


@pytest.mark.proves("SEARCH-LANGUAGE")
@pytest.mark.parametrize(("text", "ids"), [
    ("pool", ["memcached", "postgres", "redis"]), ('"connection pool"', ["redis"]),
    ("timeout OR cheap", ["memcached", "redis"]), ("cache NOT cheap", ["redis"]), ("pool AND NOT cache", ["postgres"]),
    ("(redis OR postgres) AND pool", ["postgres", "redis"]), ("缓", ["chinese"]), ("cache AND 效", []),
    ("redis OR postgres AND timeout", ["redis"]), ("memc*", ["memcached"]), ("NEAR(retry pool, 3)", ["redis"]),
    ("cache NEAR pool", ["memcached", "redis"]), ("失效 AND clock", ["chinese"]), ("backoff AND pool", ["postgres"]),
    ("pool path:x/re", ["redis"]), ("pool path:redis.md", ["redis"]),
])  # fmt: skip
def test_each_operator_finds_what_it_should(index, text, ids):
    assert found(index, text) == ids


@pytest.mark.proves("SEARCH-MALFORMED")
@pytest.mark.parametrize(("text", "problem"), [
    ('say "hello', "a quotation mark is not closed"), ("NOT redis", "NOT needs something"), ("one AND", "stands alone"),
    ("(one OR two", "not closed"), ("NEAR(one)", "two or more"), ("redis since:yesterday", "is not a date"),
    ("(" * 50 + "a AND b" + ")" * 50, "nested too deep"), (" AND ".join(["word"] * 80), "more than 64 words"),
])  # fmt: skip
def test_a_malformed_query_is_plain_text_and_says_so(text, problem):
    query = parse_search(text, today=TODAY)
    assert problem in query.problem
    assert (query.text, query.match, query.filter.is_empty) == (text, "", True)


@pytest.mark.proves("SEARCH-MALFORMED", "ASK-ANY-TEXT")
def test_every_string_is_a_query_that_sqlite_takes(index):
    random.seed(7)
    scraps = ['"', "(", ")", "*", "AND", "OR", "NOT", "NEAR", "NEAR(", ", 3)", "type:", "since:2026", "path:", "a", "é",
              "缓存", "\x00", "\ud800", "'", "^", "{title}", ":", "-", "+", "\\", "\n", "\u202e", "%"]  # fmt: skip
    for _ in range(500):
        text = "".join(random.choice(scraps) + random.choice(["", " "]) for _ in range(random.randint(1, 12)))
        query = parse_search(text, today=TODAY)
        chosen = merge_filters(query.filter, Filter(match=query.match))
        index.search_text("units", terms_of(Vocabulary(index.connection), query.text or "pool"), 9, chosen)
        for match in filter(None, (query.match, query.match_any)):
            index.connection.execute("SELECT 1 FROM units_fts WHERE units_fts MATCH ?", (match,)).fetchall()
