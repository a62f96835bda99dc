"""Search the passages of history: candidates from the index, then ranked by their texts.

Words that are rare are ranked by BM25, which costs little for them. Passages with all words are taken newest first,
for what is common cannot be ranked in time at a million passages. The texts of the best candidates are read from the
transcripts; how often, how near together and in which words they say it decides, and recency where that is equal.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import combinations

from nugget.history.assembly import Clean
from nugget.history.syncing import read_session_of
from nugget.history.texts import Texts
from nugget.history.values import HISTORY_SOURCES, PassageHit, Role
from nugget.history.words import Wanted, compile_match, fold, prefixes_of, wanted
from nugget.index import passages as tables
from nugget.index.fulltext import question_words
from nugget.index.passages import PassageFilter, StoredPassage
from nugget.index.terms import inverse_frequency, stemmed
from nugget.models import SourceName
from nugget.redaction import redact
from nugget.text import shorten

EXCERPT_CHARS = 150

_RARE = 2000
"""A word in more passages than this is common: it costs too much to rank all of them."""
_RANKED_ROWS = 6000
"""Rows that BM25 may rank for one query: about ten milliseconds."""
_SAMPLE_ROWS = 4096
_READ_AT_MOST = 80
_RECENCY = 0.1
"""How much the newest passage gains over a very old one of the same score."""
_HALF_LIFE_S = 90 * 86_400
_LEAST_SCORE = 0.05
_LEAST_SHARE = 0.4
"""A hit of less than this share of the best hit's score says little of what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    word: str
    stem: str
    rows: int


def search_history(
    connection: sqlite3.Connection,
    query: str,
    *,
    sources: Sequence[SourceName] = HISTORY_SOURCES,
    since: date | datetime | None = None,
    until: date | datetime | None = None,
    limit: int = 10,
    workspace: str | None = None,
    match: str | None = None,
    allow: Sequence[re.Pattern[str]] = (),
) -> list[PassageHit]:
    """The passages that answer a query, best first; `limit` of each of these sources at most.

    `query` is any text. `match` is an FTS5 expression over the column `text` where the query has operators: then only
    passages for which it holds are found, and `query` gives the words to rank them by. `allow` are texts that
    redaction leaves.
    """
    terms = _terms(connection, query)
    if not terms and not match:
        return []
    prefixes = prefixes_of(match) if match else set()
    weights = [_wanted(connection, term, is_prefix=fold(term.word) in prefixes) for term in terms]

    def clean(text: str) -> str:
        return redact(text, allow=allow).text

    with Texts(lambda file: read_session_of(file).events) as texts:
        hits: list[PassageHit] = []
        for source in sources:
            if source not in HISTORY_SOURCES:
                continue
            filter_ = PassageFilter(
                roles=tuple(int(role) for role in Role if role.source is source),
                origin="" if source is SourceName.SESSIONS else str(source),
                since=_seconds(since),
                until=_seconds(until),
                workspace=workspace,
            )
            keys = _candidates(connection, terms, filter_, compile_match(match) if match else None)
            found = _ranked(connection, keys, weights, texts, clean, phrases=_phrases(query))
            hits += _shown(connection, found, weights, limit, clean, every=bool(match))
        return sorted(hits, key=lambda hit: -hit.score)


def _terms(connection: sqlite3.Connection, query: str) -> list[_Term]:
    """The words of a query, rarest first, with how many passages hold them (counted no further than needed)."""
    seen: dict[str, _Term] = {}
    for word, stem in stemmed(connection, question_words(query)):
        if stem not in seen:
            rows = tables.count_matches(connection, _any([word]), most=_RARE)
            seen[stem] = _Term(word=word, stem=stem, rows=rows)
    return sorted(seen.values(), key=lambda term: term.rows)


def _wanted(connection: sqlite3.Connection, term: _Term, *, is_prefix: bool) -> Wanted:
    """What a word weighs. For a common one the share of the newest passages that hold it stands for all."""
    total = max(1, int(connection.execute("SELECT coalesce(max(key), 1) FROM passages").fetchone()[0]))
    rows = term.rows
    if rows >= _RARE:
        rows = max(rows, int(total * tables.share_of_newest(connection, _any([term.word]), rows=_SAMPLE_ROWS)))
    return wanted(term.word, term.stem, max(0.1, inverse_frequency(total, rows)), is_prefix=is_prefix)


def _candidates(
    connection: sqlite3.Connection, terms: Sequence[_Term], filter_: PassageFilter, match: str | None
) -> list[int]:
    """Keys of passages worth reading, the likeliest first."""
    try:
        if match:
            return tables.newest_matches(connection, f"{{text}} : ({match})", filter_, 3 * _READ_AT_MOST)
        present = [term for term in terms if term.rows]
        if not present:
            return []
        words = [term.word for term in present]
        keys = tables.newest_matches(connection, _all(words), filter_, _READ_AT_MOST // 2)
        if len(words) == 1 and present[0].rows >= _RARE:
            return tables.newest_matches(connection, _all(words), filter_, _READ_AT_MOST)
        rare, room = [], _RANKED_ROWS
        for term in present:
            room -= term.rows
            if term.rows < _RARE and room >= 0:
                rare.append(term.word)
        if rare:
            keys += tables.best_matches(connection, _any(rare), filter_, _READ_AT_MOST)
        if len(keys) < _READ_AT_MOST // 2 and len(words) > 2:
            pairs = " OR ".join(f"({_all(pair)})" for pair in combinations(words[:4], 2))
            keys += tables.newest_matches(connection, pairs, filter_, _READ_AT_MOST)
        if not keys:
            keys = tables.newest_matches(connection, _any(words), filter_, _READ_AT_MOST)
        return list(dict.fromkeys(keys))[:_READ_AT_MOST]
    except sqlite3.OperationalError as error:
        if "fts5" in str(error) or "syntax" in str(error):  # an expression that FTS5 does not take finds nothing
            return []
        raise


@dataclass(slots=True)
class _Found:
    passage: StoredPassage
    text: str
    speaker: str
    score: float


def _ranked(
    connection: sqlite3.Connection,
    keys: Sequence[int],
    weights: Sequence[Wanted],
    texts: Texts,
    clean: Clean,
    *,
    phrases: Sequence[str],
) -> list[_Found]:
    """The candidates with their texts, best first; those whose text is nowhere any more are left out."""
    stored = tables.passages_by_key(connection, keys[:_READ_AT_MOST])
    newest = max((passage.at for passage in stored.values()), default=0)
    found = []
    for key in keys[:_READ_AT_MOST]:
        text, speaker = texts.read(stored[key], clean, is_for_ranking=True) if key in stored else ("", "")
        if not text:
            continue
        relevance = score_text(text, weights, phrases)
        age = 2.0 ** (-(newest - stored[key].at) / _HALF_LIFE_S) if stored[key].at else 0.0
        score = relevance * (1 - _RECENCY + _RECENCY * age)
        found.append(_Found(stored[key], text, speaker, score))
    found.sort(key=lambda one: (-one.score, -one.passage.at, -one.passage.key))
    return found


def score_text(text: str, weights: Sequence[Wanted], phrases: Sequence[str] = ()) -> float:
    """How well a text answers, 0..1: the share of the words' weight that it holds, more where they stand together.

    Each word counts by how often it stands (saturating, as in BM25) for the length of the text.
    """
    folded = fold(text)
    total = sum(word.weight for word in weights) or 1.0
    length = 0.5 + 0.5 * len(text) / 600
    held, places = 0.0, []
    for word in weights:
        matches = [match.start() for match in word.pattern.finditer(folded)][:20]
        if matches:
            often = len(matches) * 2.2 / (len(matches) + 1.2 * length)
            held += word.weight * min(1.0, 0.55 + 0.2 * often)
            places.append(matches)
    score = held / total
    if len(places) > 1:
        near = 1.0 / (1.0 + math.log1p(_closest(places) / (20.0 * len(places))))
        score = 0.8 * score + 0.2 * near * len(places) / len(weights)
    if phrases and all(phrase in folded for phrase in phrases):
        score = 0.5 + 0.5 * score
    return min(1.0, score)


def _closest(places: Sequence[Sequence[int]]) -> int:
    """The shortest stretch of characters that holds a place of each word."""
    marks = sorted((place, word) for word, own in enumerate(places) for place in own)
    last: dict[int, int] = {}
    best = 1 << 30
    for place, word in marks:
        last[word] = place
        if len(last) == len(places):
            best = min(best, place - min(last.values()))
    return best


def _shown(
    connection: sqlite3.Connection,
    found: Sequence[_Found],
    weights: Sequence[Wanted],
    limit: int,
    clean: Clean,
    *,
    every: bool,
) -> list[PassageHit]:
    """The best as hits: one of each side of an exchange, and what was said twice in the same words once.

    `every`: all that was found matches an expression, so that none is too weak.
    """
    hits: list[PassageHit] = []
    channels = tables.channels_of(connection, [one.passage.key for one in found if one.passage.role == Role.MESSAGE])
    seen: set[object] = set()
    least = 0.0 if every or not found else max(_LEAST_SCORE, _LEAST_SHARE * found[0].score)
    for one in found:
        passage, role = one.passage, Role(one.passage.role)
        words = hash(" ".join(one.text.split()))
        side = (passage.file, passage.number, role, passage.key if role is Role.MESSAGE else 0)
        if words in seen or side in seen or one.score < least:
            continue
        seen |= {words, side}
        excerpt = excerpt_of(clean(one.text), weights)
        if excerpt in seen:
            continue
        seen.add(excerpt)
        hits.append(
            PassageHit(
                ref=ref_of(passage, channels.get(passage.key, "")),
                source=role.source,
                session=channels.get(passage.key) or passage.session,
                role=role,
                timestamp=datetime.fromtimestamp(passage.at, UTC) if passage.at else None,
                excerpt=excerpt,
                score=round(one.score, 4),
                agent=passage.agent,
                speaker=one.speaker,
                title=passage.title,
                folder=passage.folder,
                workspace=passage.workspace,
                path=passage.path.removesuffix(f"::{passage.session}"),
            )
        )
        if len(hits) == limit:
            break
    return hits


def ref_of(passage: StoredPassage, channel: str = "") -> str:
    """The name by which a passage is found again: `session:<id>#<exchange>`, `bridge:<channel>#<message>`."""
    if channel:
        return f"bridge:{channel}#{passage.number}"
    if Role(passage.role).source is SourceName.SHELL:
        return f"shell:{passage.session}#{passage.number}"
    subagent = f"/{passage.subagent}" if passage.subagent else ""
    return f"session:{passage.session}{subagent}#{passage.number}"


def excerpt_of(text: str, weights: Sequence[Wanted], max_chars: int = EXCERPT_CHARS) -> str:
    """About `max_chars` of a text around where most of the words stand, on one line, cut with `[…]`."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    folded = fold(line)
    marks = sorted((match.start(), word.weight) for word in weights for match in word.pattern.finditer(folded))
    if len(folded) != len(line) or not marks:
        return shorten(line, max_chars)
    room = max_chars - 30
    best = max(marks, key=lambda mark: sum(w for at, w in marks if mark[0] <= at < mark[0] + room))[0]
    if best < room:
        return shorten(line, max_chars)
    return f"[…] {shorten(line[_sentence_start(line, best) :], max_chars - 4)}"


def _sentence_start(line: str, at: int) -> int:
    """Where the sentence begins that stands at a place; a word shortly before it where that is far away."""
    found = max(line.rfind(end, max(0, at - 60), at) for end in (". ", "! ", "? ", "。"))
    if found >= 0:
        return found + 1 if line[found] == "。" else found + 2
    return line.rfind(" ", 0, max(1, at - 20)) + 1


def _phrases(query: str) -> list[str]:
    return [fold(found) for found in re.findall(r'"([^"]+ [^"]+)"', query)]


def _all(words: Sequence[str]) -> str:
    return " AND ".join(f'"{word}"' for word in words)


def _any(words: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def _seconds(moment: date | datetime | None) -> int | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time(), UTC)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
