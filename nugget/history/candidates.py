"""Which passages are worth reading for a query: those with all of its words, and those with most of the rare ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from nugget.index import passages as tables
from nugget.index.fulltext import asked_word, match_any, question_words
from nugget.index.passages import PassageFilter
from nugget.index.terms import inverse_frequency, stemmed

READ_AT_MOST = 60
"""Passages whose text is read for one query and source."""

_RARE = 2000
"""A word in more passages than this is common: it costs too much to look at all of them."""
_MOST_PAIRED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerm:
    """A word of a query, its stem, how many passages hold it (estimated for a common one), and its weight."""

    word: str
    stem: str
    rows: int
    weight: float

    @property
    def is_rare(self) -> bool:
        """Whether all passages that hold it can be looked at."""
        return self.rows < _RARE


def query_terms(connection: sqlite3.Connection, query: str) -> list[QueryTerm]:
    """Return the distinct words of a query, rarest first."""
    total = tables.passage_count(connection)
    seen: dict[str, QueryTerm] = {}
    for word, stem in stemmed(connection, question_words(query)):
        if stem not in seen:
            rows = tables.estimated_matches(connection, match_any([word]), counted=_RARE)
            weight = max(0.1, inverse_frequency(total, rows))
            seen[stem] = QueryTerm(word=word, stem=stem, rows=rows, weight=weight)
    return sorted(seen.values(), key=lambda term: term.rows)


def candidates(
    connection: sqlite3.Connection, terms: Sequence[QueryTerm], filter_: PassageFilter, most: int
) -> list[int]:
    """Keys of passages worth reading, the likeliest first; `terms` are in the order of `query_terms`."""
    present = [term for term in terms if term.rows]
    words = [term.word for term in present]
    if len(words) < 2:
        return tables.newest_matches(connection, match_any(words), filter_, most) if words else []
    keys = tables.newest_matches(connection, _all(words), filter_, most // 2)
    weights: dict[int, float] = {}
    for term in present:
        if term.is_rare:
            for key in tables.newest_matches(connection, match_any([term.word]), filter_, _RARE):
                weights[key] = weights.get(key, 0.0) + term.weight
    keys += sorted(weights, key=lambda key: (-weights[key], -key))[:most]
    if len(keys) < most // 2 and len(words) > 2:
        pairs = " OR ".join(f"({_all(pair)})" for pair in combinations(words[:_MOST_PAIRED], 2))
        keys += tables.newest_matches(connection, pairs, filter_, most)
    if not keys:
        keys = tables.newest_matches(connection, match_any(words), filter_, most)
    return list(dict.fromkeys(keys))[:most]


def _all(words: Sequence[str]) -> str:
    return " AND ".join(map(asked_word, words))
