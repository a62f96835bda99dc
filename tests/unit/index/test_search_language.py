"""The query language of `nugget search`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from nugget.index import Index
from nugget.index import units as stored
from nugget.index.connection import create, write_transaction
from nugget.index.fulltext import Vocabulary, terms_of
from nugget.markdown import chunk_markdown
from nugget.models import Filter, SourceName, Unit
from nugget.retrieval.query_language import SearchQuery, merge_filters, parse_search

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


def parsed(text: str) -> SearchQuery:
    return parse_search(text, today=TODAY)


def found(index: Index, text: str) -> list[str]:
    """The ids that a query admits."""
    query = parsed(text)
    assert query.problem is None, query.problem
    chosen = merge_filters(query.filter, Filter(match=query.match))
    terms = terms_of(Vocabulary(index.connection), query.text)
    rows = index.search_unit_text(replace(terms, match=query.match_any or terms.match), 9, chosen)
    return sorted(unit.id for unit in index.units([key for key, _ in rows]).values())


@pytest.mark.proves("SEARCH-LANGUAGE")
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("pool", ["memcached", "postgres", "redis"]),
        ('"connection pool"', ["redis"]),
        ("timeout OR cheap", ["memcached", "redis"]),
        ("cache NOT cheap", ["redis"]),
        ("pool AND NOT cache", ["postgres"]),
        ("(redis OR postgres) AND pool", ["postgres", "redis"]),
        ("缓", ["chinese"]),
        ("cache AND 效", []),
        ("redis OR postgres AND timeout", ["redis"]),
        ("memc*", ["memcached"]),
        ("NEAR(retry pool, 3)", ["redis"]),
        ("cache NEAR pool", ["memcached", "redis"]),
        ("失效 AND clock", ["chinese"]),
        ("backoff AND pool", ["postgres"]),
        ("pool path:x/re", ["redis"]),
        ("pool path:redis.md", ["redis"]),
    ],
)
def test_each_operator_finds_what_it_should(index: Index, text: str, ids: list[str]) -> None:
    assert found(index, text) == ids


@pytest.mark.proves("SEARCH-MALFORMED")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('say "hello', "a quotation mark is not closed"),
        ("NOT redis", "NOT needs something"),
        ("one AND", "stands alone"),
        ("(one OR two", "not closed"),
        ("NEAR(one)", "two or more"),
        ("redis since:yesterday", "is not a date"),
        ("(" * 50 + "a AND b" + ")" * 50, "nested too deep"),
        (" AND ".join(["word"] * 80), "more than 64 words"),
    ],
)
def test_a_malformed_query_is_plain_text_and_says_so(text: str, problem: str) -> None:
    query = parsed(text)
    assert query.problem is not None
    assert problem in query.problem
    assert (query.text, query.match, query.filter.is_empty) == (text, "", True)


@pytest.mark.proves("SEARCH-MALFORMED")
def test_every_string_is_a_query_that_sqlite_takes(index: Index) -> None:
    random.seed(7)
    scraps = ['"', "(", ")", "*", "AND", "OR", "NOT", "NEAR", "NEAR(", ", 3)", "type:", "since:2026", "path:", "a", "é",
              "缓存", "\x00", "\ud800", "'", "^", "{title}", ":", "-", "+", "\\", "\n", "\u202e", "%"]  # fmt: skip
    for _ in range(500):
        text = "".join(random.choice(scraps) + random.choice(["", " "]) for _ in range(random.randint(1, 12)))
        query = parsed(text)
        chosen = merge_filters(query.filter, Filter(match=query.match))
        index.search_unit_text(terms_of(Vocabulary(index.connection), query.text or "pool"), 9, chosen)
        for match in filter(None, (query.match, query.match_any)):
            index.connection.execute("SELECT 1 FROM units_fts WHERE units_fts MATCH ?", (match,)).fetchall()
