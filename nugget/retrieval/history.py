"""Search what was said in sessions, written in channels and typed into shells.

Candidates are the newest passages with all words, and of those with rare words the ones that hold the most of them: at
a million passages there is no time to rank every row of a common word. How often, how near together and in which words
their texts say it decides, and recency if that is equal.
"""

from __future__ import annotations

import math
import sqlite3
import unicodedata
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import combinations

from nugget.index import passages as tables
from nugget.index.events import first_prompt
from nugget.index.fulltext import asked_word, has_unspaced, inverse_frequency, match_any, question_words, stemmed
from nugget.index.passages import StoredPassage
from nugget.models import Chunk, Contribution, Filter, Hit, SourceName, Unit
from nugget.retrieval.dates import Days, asked_days, nearness
from nugget.retrieval.query_language import SearchQuery
from nugget.text import shorten

HISTORY_SOURCES = (SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE)
READ_AT_MOST = 60
"""Passages whose text is read for one query and source."""
EXCERPT_CHARS = 150
WHOLE_CHARS = 4000
_TITLE_CHARS = 80

_RARE = 2000
"""A word in more passages than this is common: it costs too much to look at all of them."""
_MOST_PAIRED, _MOST_PLACES = 4, 20
_RECENCY = 0.1
"""How much the newest passage gains over a very old one of the same score."""
_OF_PERIOD = 0.3
"""How much a passage of the period that was asked about gains over one that is far from it."""
_HALF_LIFE_S = 90 * 86_400
_LEAST_SCORE = 0.05
_LEAST_SHARE = 0.4
"""A hit of less than this share of the best hit's score says little of what was asked for."""
_ENDING_CHARS, _ANY_CHARS = 8, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerm:
    """A word of a query: in how many passages it stands, its weight, and how it is found in a text in any of its forms.

    `start` is what a word must begin with, `more` how many letters may follow it. In a script that puts
    no spaces between words it may stand anywhere (`is_unspaced`).
    """

    word: str
    rows: int
    weight: float
    start: str
    more: int
    is_unspaced: bool = False

    def places(self, folded: str) -> list[int]:
        """Return where the word stands in a folded text."""
        found: list[int] = []
        at = folded.find(self.start)
        while at >= 0 and len(found) < _MOST_PLACES:
            begins = self.is_unspaced or not at or not folded[at - 1].isalnum()
            following = folded[at + len(self.start) :][: self.more + 1]
            if begins and (len(following) <= self.more or not following.isalnum()):
                found.append(at)
            at = folded.find(self.start, at + 1)
        return found


def search_history(
    connection: sqlite3.Connection,
    query: SearchQuery,
    *,
    today: date,
    sources: Sequence[SourceName] = HISTORY_SOURCES,
    limit: int = 10,
) -> list[Hit]:
    """Return the passages that answer a query, best first, `limit` of each of these sources at most.

    Of its filter the days and the sessions count; a passage without a time is of no day. Passages of the period that
    the query names come before equally good ones.
    """
    terms = _query_terms(connection, query)
    if not terms:
        return []
    days = asked_days(query.text, today=today)
    within = replace(query.filter, since=days[0], until=days[1]) if days else None
    most = max(READ_AT_MOST, limit)
    hits: list[Hit] = []
    for source in [source for source in sources if source in HISTORY_SOURCES]:
        if query.match:
            found = tables.newest_matches(connection, query.match, source, query.filter, most)
        else:
            found = _candidates(connection, terms, source, query.filter, most)
            found += _candidates(connection, terms, source, within, most) if within else []
        titled = tables.opening_passages(connection, [term.start for term in terms], source, query.filter, limit)
        ranked = _ranked(tables.passages_by_id(connection, {*found, *titled}).values(), terms, days, titled)
        least = 0.0 if query.match or not ranked else max(_LEAST_SCORE, _LEAST_SHARE * ranked[0][0])
        hits += _distinct(connection, [one for one in ranked if one[0] >= least], terms, limit)
    return sorted(hits, key=lambda hit: -hit.score)


def newest_history(connection: sqlite3.Connection, source: SourceName, filter_: Filter, limit: int) -> list[Hit]:
    """Return the newest passages of a source that a filter admits, whatever they say."""
    ids = tables.newest(connection, source, filter_, 2 * limit)  # of both sides of an exchange there is one hit
    stored = tables.passages_by_id(connection, ids)
    return _distinct(connection, [(1.0, stored[row_id]) for row_id in ids if row_id in stored], (), limit)


def fold(text: str) -> str:
    """Return a text in lower case without diacritics, as the tokenizer sees it."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    decomposed = unicodedata.normalize("NFKD", lowered)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _query_terms(connection: sqlite3.Connection, query: SearchQuery) -> list[QueryTerm]:
    """Return the distinct words of a query, rarest first; a common one's rows are estimated."""
    prefixes = {fold(term.text.split()[-1]) for term in query.terms if term.prefix}
    total = tables.passage_count(connection)
    seen: dict[str, QueryTerm] = {}
    for word, (stem, *_) in stemmed(question_words(query.text)):
        if stem not in seen:
            rows = tables.estimated_matches(connection, match_any([word]), counted=_RARE)
            term = _query_term(word, stem, is_prefix=fold(word) in prefixes)
            seen[stem] = replace(term, rows=rows, weight=max(0.1, inverse_frequency(total, rows)))
    return sorted(seen.values(), key=lambda term: term.rows)


def _query_term(word: str, stem: str, *, is_prefix: bool) -> QueryTerm:
    """Return a word, found by what it and its stem begin with in common (`retry`, `retri` find `retries`)."""
    folded, stem = fold(word), fold(stem)
    shared = 0
    while shared < min(len(folded), len(stem)) and folded[shared] == stem[shared]:
        shared += 1
    start, more = (folded[:shared], _ENDING_CHARS) if shared >= 3 else (folded, 0)
    more = _ANY_CHARS if is_prefix or not folded.isascii() else more
    return QueryTerm(word=word, rows=0, weight=1.0, start=start, more=more, is_unspaced=has_unspaced(folded))


def _candidates(
    connection: sqlite3.Connection, terms: Sequence[QueryTerm], source: SourceName, filter_: Filter, most: int
) -> list[int]:
    """Return the ids of passages worth reading, the likeliest first: with all words, with rare ones, with pairs."""

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
    return " AND ".join(map(asked_word, words))


def _ranked(
    found: Iterable[StoredPassage], terms: Sequence[QueryTerm], days: Days | None, titled: Container[int]
) -> list[tuple[float, StoredPassage]]:
    """Return the passages with their scores, the best first; the words of the title count for the `titled` ones."""
    passages = list(found)
    newest = max((one.at for one in passages), default=0)
    scored = []
    for one in passages:
        weight, timely = _RECENCY, 2.0 ** (-(newest - one.at) / _HALF_LIFE_S) if one.at else 0.0
        if days:
            day = datetime.fromtimestamp(one.at, UTC).date()
            weight, timely = _OF_PERIOD, nearness(days, [(day, day)] if one.at else [])
        text = f"{one.title}\n{one.text}" if one.id in titled else one.text
        scored.append((score_text(text, terms) * (1 - weight + weight * timely), one))
    return sorted(scored, key=lambda pair: (-pair[0], -pair[1].at, -pair[1].id))


def score_text(text: str, terms: Sequence[QueryTerm]) -> float:
    """Return how well a text answers, 0..1: the share of the words' weight that it holds, more if they stand together.

    Each word counts by how often it stands (saturating, as in BM25) for the length of the text.
    """
    folded = fold(text)
    total = sum(term.weight for term in terms) or 1.0
    length = 0.5 + 0.5 * len(text) / 600
    held, places = 0.0, []
    for term in terms:
        matches = term.places(folded)
        if matches:
            often = len(matches) * 2.2 / (len(matches) + 1.2 * length)
            held += term.weight * min(1.0, 0.55 + 0.2 * often)
            places.append(matches)
    score = held / total
    if len(places) > 1:
        near = 1.0 / (1.0 + math.log1p(_shortest_span(places) / (20.0 * len(places))))
        score = 0.8 * score + 0.2 * near * len(places) / len(terms)
    return min(1.0, score)


def _shortest_span(places: Sequence[Sequence[int]]) -> int:
    """Return the length of the shortest span of characters that holds a place of each word."""
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
    """Return the best as hits: one of each side of an exchange, and what was said twice in the same words once."""
    hits: list[Hit] = []
    seen: set[object] = set()
    for score, passage in ranked:
        words = hash(" ".join(passage.text.split()))
        side = (passage.session_key, passage.part, passage.number, passage.role)
        excerpt = _excerpt_of(passage.text, terms)
        if not seen.isdisjoint((words, side, excerpt)):
            continue
        seen |= {words, side, excerpt}
        hits.append(_hit(passage, passage.title or _opening(connection, passage), excerpt, round(score, 4)))
        if len(hits) == limit:
            break
    return hits


def _opening(connection: sqlite3.Connection, passage: StoredPassage) -> str:
    """Return what a session without a title began with; its id for the passage that says just that."""
    asked = first_prompt(connection, passage.session_key)
    return passage.session if passage.text.startswith(asked) else shorten(asked, _TITLE_CHARS)


def _hit(passage: StoredPassage, title: str, excerpt: str, score: float) -> Hit:
    """Return a passage as a hit: a unit stands in for it, with its role as type and the excerpt as text."""
    day = datetime.fromtimestamp(passage.at, UTC).date() if passage.at else None
    unit = Unit(
        id=passage.ref.partition(":")[2], source=SourceName(passage.source), type=passage.role,
        title=title, body=shorten(passage.text, WHOLE_CHARS),
        path=passage.path.removesuffix(f"#{passage.session}") or None, session=passage.session, created=day,
        last_modified=day, evidence=passage.evidence,
    )  # fmt: skip
    return Hit(
        unit=unit, score=score, chunks=(Chunk(breadcrumb=passage.author, text=excerpt, score=score),),
        reasons=("words",), contributions=(Contribution(name="words", value=score),), named=passage.ref,
    )  # fmt: skip


def _excerpt_of(text: str, terms: Sequence[QueryTerm], max_chars: int = EXCERPT_CHARS) -> str:
    """Return about `max_chars` of a text around where most of the words stand, on one line, cut with `[…]`."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    folded = fold(line)
    marks = sorted((place, term.weight) for term in terms for place in term.places(folded))
    if len(folded) != len(line) or not marks:
        return shorten(line, max_chars)
    room = max_chars - 30
    best = max(marks, key=lambda mark: sum(w for at, w in marks if mark[0] <= at < mark[0] + room))[0]
    if best < room:
        return shorten(line, max_chars)
    return f"[…] {shorten(line[_sentence_start(line, best) :], max_chars - 4)}"


def _sentence_start(line: str, at: int) -> int:
    """Return where the sentence around a place begins; a word shortly before the place if that is far away."""
    found = max(line.rfind(end, max(0, at - 60), at) for end in (". ", "! ", "? ", "。"))
    if found >= 0:
        return found + 1 if line[found] == "。" else found + 2
    return line.rfind(" ", 0, max(1, at - 20)) + 1
