"""Search the text of sessions, channels and shells.

Candidates are the newest passages with all words, and passages with the most rare words: among a million passages there
is no time to rank every row of a common word. They are ranked by how often and how close together the words occur, and
then by recency.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import combinations, islice
from typing import NamedTuple

from nugget.index.embedded import passages as tables
from nugget.index.embedded.events import first_prompt
from nugget.index.embedded.passages import StoredPassage
from nugget.index.fulltext import (
    LARGEST_CHARACTER,
    documents,
    inverse_frequency,
    is_unspaced_character,
    match_any,
    match_word,
    question_words,
    said_parts,
    stemmed,
)
from nugget.models import Chunk, Contribution, Filter, Hit, SourceName, Unit
from nugget.retrieval.dates import Days, asked_days, nearness
from nugget.retrieval.query_language import SearchQuery
from nugget.text import shorten

HISTORY_SOURCES = (SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE)
READ_AT_MOST = 60
"""The most passages whose text is read for one query and source."""
EXCERPT_CHARS = 150
WHOLE_CHARS = 4000
_TITLE_CHARS = 80

_RARE = 2000
"""A word in more passages than this is common: it would cost too much to read them all."""
_MOST_PAIRED, _MOST_PLACES = 4, 20
_RECENCY = 0.1
"""The bonus of the newest passage over a very old one with the same score."""
_OF_PERIOD = 0.3
"""The bonus of a passage from the requested period over one far from it."""
_HALF_LIFE_S = 90 * 86_400
_LEAST_SCORE = 0.05
_LEAST_SHARE = 0.4
"""A hit with less than this share of the best hit's score is hardly relevant."""


class QueryTerm(NamedTuple):
    """A word of a query: its term in the index, their common prefix, its number of passages, and its weight.

    With `is_prefix`, longer terms count too.
    """

    word: str
    term: str
    start: str
    is_prefix: bool
    rows: int
    weight: float


def search_history(
    connection: sqlite3.Connection, query: SearchQuery, source: SourceName, *, today: date, limit: int = 10
) -> list[Hit]:
    """Return the passages of a source that answer a query, best first.

    The filter's days and sessions count; a passage without a time matches no day. Passages of the period that the
    query names come before equally good ones.
    """
    terms = _query_terms(connection, query)
    if not terms:
        return []
    days = asked_days(query.text, today=today)
    within = replace(query.filter, since=days[0], until=days[1]) if days else None
    most = max(READ_AT_MOST, limit)
    if query.match:
        found = tables.newest_matches(connection, query.match, source, query.filter, most)
    else:
        found = _candidates(connection, terms, source, query.filter, most)
        found += _candidates(connection, terms, source, within, most) if within else []
    titled = tables.opening_passages(connection, [term.start for term in terms], source, query.filter, limit)
    ranked = _ranked(tables.passages_by_id(connection, {*found, *titled}).values(), terms, days, titled)
    least = 0.0 if query.match or not ranked else max(_LEAST_SCORE, _LEAST_SHARE * ranked[0][0])
    return _distinct(connection, [one for one in ranked if one[0] >= least], terms, limit)


def newest_history(connection: sqlite3.Connection, source: SourceName, filter_: Filter, limit: int) -> list[Hit]:
    """Return the newest passages of a source that pass a filter."""
    ids = tables.newest(connection, source, filter_, 2 * limit)  # an exchange is one hit, whichever side matches
    stored = tables.passages_by_id(connection, ids)
    return _distinct(connection, [(1.0, stored[row_id]) for row_id in ids if row_id in stored], (), limit)


def _query_terms(connection: sqlite3.Connection, query: SearchQuery) -> list[QueryTerm]:
    """Return the distinct words of a query, rarest first; a common one's rows are estimated."""
    prefixes = {term.text.split()[-1].lower() for term in query.terms if term.prefix}
    total = tables.passage_count(connection)
    seen: dict[str, QueryTerm] = {}
    for word, (term, *_) in stemmed(question_words(query.text)):
        if term not in seen:
            rows = tables.estimated_matches(connection, match_any([word]), counted=_RARE)
            start = term if word.lower().startswith(term) else word.lower()[: len(term) - 1]  # `retr` of `retry`
            is_prefix = word.lower() in prefixes or is_unspaced_character(word)
            weight = max(0.1, inverse_frequency(total, rows))
            begins = word.lower() if is_prefix and word.isascii() else term  # `payment` begins with no `pai`
            seen[term] = QueryTerm(word, begins, start, is_prefix, rows, weight)
    return sorted(seen.values(), key=lambda term: term.rows)


def _candidates(
    connection: sqlite3.Connection, terms: Sequence[QueryTerm], source: SourceName, filter_: Filter, most: int
) -> list[int]:
    """Return the ids of passages to read, likeliest first: with all words, with rare ones, with pairs."""

    def newest(match: str, limit: int) -> list[int]:
        return tables.newest_matches(connection, match, source, filter_, limit)

    present = [term for term in terms if term.rows]
    words = [term.word for term in present]
    if len(words) < 2:
        return newest(match_any(words), most) if words else []
    keys = newest(_match_all(words), most // 2)
    weights: dict[int, float] = {}
    for term in present:
        if term.rows < _RARE:
            for key in newest(match_any([term.word]), _RARE):
                weights[key] = weights.get(key, 0.0) + term.weight
    keys += sorted(weights, key=lambda key: (-weights[key], -key))[:most]
    if len(keys) < most // 2 and len(words) > 2:
        pairs = combinations(words[:_MOST_PAIRED], 2)
        keys += newest(" OR ".join(f"({_match_all(pair)})" for pair in pairs), most)
    return list(dict.fromkeys(keys or newest(match_any(words), most)))[:most]


def _match_all(words: Sequence[str]) -> str:
    return " AND ".join(map(match_word, words))


def _ranked(
    found: Iterable[StoredPassage], terms: Sequence[QueryTerm], days: Days | None, titled: Container[int]
) -> list[tuple[float, StoredPassage]]:
    """Return the passages with their scores, best first; words of the title count for the `titled` ones."""
    passages = list(found)
    newest = max((one.at for one in passages), default=0)
    places = _places(passages, terms, titled)
    scored = []
    for one in passages:
        weight, timely = _RECENCY, 2.0 ** (-(newest - one.at) / _HALF_LIFE_S) if one.at else 0.0
        if days:
            day = datetime.fromtimestamp(one.at, UTC).date()
            weight, timely = _OF_PERIOD, nearness(days, [(day, day)] if one.at else [])
        scored.append((_score(places.get(one.id, {}), len(one.text), terms) * (1 - weight + weight * timely), one))
    return sorted(scored, key=lambda pair: (-pair[0], -pair[1].at, -pair[1].id))


def _places(
    passages: Sequence[StoredPassage], terms: Sequence[QueryTerm], titled: Container[int]
) -> dict[int, dict[QueryTerm, list[int]]]:
    """Return the places of each term in each passage, counted in words; other columns are far away."""
    found: dict[int, dict[QueryTerm, list[int]]] = {}
    sql = "SELECT doc, offset + CASE col WHEN 'body' THEN 0 ELSE 100000 END FROM instances WHERE term BETWEEN ? AND ?"
    rows = ((one.id, (one.title if one.id in titled else "", one.text, said_parts(one.text, ""))) for one in passages)
    with documents(rows) as held:
        for term in terms:
            last = term.term + LARGEST_CHARACTER if term.is_prefix else term.term
            for passage, place in held.execute(sql, (term.term, last)):
                found.setdefault(passage, {}).setdefault(term, []).append(place)
    return found


def _score(places: Mapping[QueryTerm, Sequence[int]], length: int, terms: Sequence[QueryTerm]) -> float:
    """Return how well a text answers (0..1): the share of the words' weight in it, more if they are close together.

    Each word counts by its frequency (saturating, as in BM25) relative to the length of the text.
    """
    total, norm = sum(term.weight for term in terms) or 1.0, 0.5 + 0.5 * length / 600
    often = ((term.weight, len(own) * 2.2 / (len(own) + 1.2 * norm)) for term, own in places.items())
    score = sum(weight * min(1.0, 0.55 + 0.2 * count) for weight, count in often) / total
    if len(places) > 1:
        near = 1.0 / (1.0 + math.log1p(_shortest_span([*places.values()]) / (3.0 * len(places))))
        score = 0.8 * score + 0.2 * near * len(places) / len(terms)
    return min(1.0, score)


def _shortest_span(places: Sequence[Sequence[int]]) -> int:
    """Return the length of the shortest span that contains each word."""
    marks = sorted((place, word) for word, own in enumerate(places) for place in own)
    last: dict[int, int] = {}
    best = 1 << 30
    for place, word in marks:
        last[word] = place
        if len(last) == len(places):
            best = min(best, place - min(last.values()))
    return best


def _distinct(
    connection: sqlite3.Connection, ranked: Sequence[tuple[float, StoredPassage]], terms: Sequence[QueryTerm],
    limit: int,
) -> list[Hit]:  # fmt: skip
    """Return the best passages as hits, one for each side of an exchange and without repeated texts."""
    hits: list[Hit] = []
    seen: set[object] = set()
    for score, passage in ranked:
        words = hash(" ".join(passage.text.split()))
        side = (passage.session_key, passage.part, passage.number, passage.role)
        excerpt = _excerpt_of(passage.text, terms)
        if not seen.isdisjoint((words, side, excerpt)):
            continue
        seen |= {words, side, excerpt}
        title = passage.title or shorten(first_prompt(connection, passage.session_key), _TITLE_CHARS) or passage.session
        hits.append(_hit(passage, title, excerpt, round(score, 4)))
        if len(hits) == limit:
            break
    return hits


def _hit(passage: StoredPassage, title: str, excerpt: str, score: float) -> Hit:
    """Return a passage as a hit: a unit with its role as type and the excerpt as text."""
    day = datetime.fromtimestamp(passage.at, UTC).date() if passage.at else None
    whole = passage.text if len(passage.text) <= WHOLE_CHARS else f"{passage.text[:WHOLE_CHARS]} […]"
    unit = Unit(
        id=passage.ref.partition(":")[2], source=SourceName(passage.source), type=passage.role, title=title, body=whole,
        path=passage.path.removesuffix(f"#{passage.session}") or None, session=passage.session, created=day,
        last_modified=day, evidence=passage.evidence,
    )  # fmt: skip
    return Hit(
        unit=unit, score=score, chunks=(Chunk(breadcrumb=passage.author, text=excerpt, score=score),),
        reasons=("words",), contributions=(Contribution(name="words", value=score),), named=passage.ref,
    )  # fmt: skip


def _excerpt_of(text: str, terms: Sequence[QueryTerm]) -> str:
    """Return about EXCERPT_CHARS of a text around most of the words, on one line, cut with `[…]`."""
    line = " ".join(text.split())
    if len(line) <= EXCERPT_CHARS:
        return line
    marks = [(found.start(), term.weight) for term in terms
             for found in islice(re.finditer(re.escape(term.start), line, re.IGNORECASE), _MOST_PLACES)]  # fmt: skip
    room = EXCERPT_CHARS - 30
    best = max(sorted(marks), default=(0, 0.0), key=lambda mark: sum(w for at, w in marks if 0 <= at - mark[0] < room))
    if best[0] < room:
        return shorten(line, EXCERPT_CHARS)
    return f"[…] {shorten(line[_sentence_start(line, best[0]) :], EXCERPT_CHARS - 4)}"


def _sentence_start(line: str, at: int) -> int:
    """Return the start of the sentence around a place, or of a word shortly before it if that is far away."""
    found = max(line.rfind(end, max(0, at - 60), at) for end in (". ", "! ", "? ", "。"))
    if found >= 0:
        return found + 1 if line[found] == "。" else found + 2
    return line.rfind(" ", 0, max(1, at - 20)) + 1
