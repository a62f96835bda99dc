"""Search the passages of history: candidates from the index, then ranked by their texts.

Passages with all words are taken newest first, and of those with rare words the ones that hold the most of them: at a
million passages there is no time to rank every row of a common word. How often, how near together and in which words
their texts say it decides, and recency if that is equal.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta

from nugget.history.candidates import READ_AT_MOST, candidates, query_terms
from nugget.history.values import HISTORY_SOURCES, PassageHit, role_of
from nugget.history.words import Wanted, fold, wanted
from nugget.index import passages as tables
from nugget.index.log_ingest import BRIDGE_MARK
from nugget.index.passages import PassageFilter, StoredPassage
from nugget.index.query_language import Expression, compile_match, wanted_terms
from nugget.index.shell_ingest import SHELL_MARK
from nugget.models import SourceName
from nugget.text import shorten

EXCERPT_CHARS = 150

_MARKS = {SourceName.SHELL: SHELL_MARK, SourceName.BRIDGE: BRIDGE_MARK}
_RECENCY = 0.1
"""How much the newest passage gains over a very old one of the same score."""
_HALF_LIFE_S = 90 * 86_400
_LEAST_SCORE = 0.05
_LEAST_SHARE = 0.4
"""A hit of less than this share of the best hit's score says little of what was asked for."""


def search_history(
    connection: sqlite3.Connection,
    query: str,
    *,
    sources: Sequence[SourceName] = HISTORY_SOURCES,
    since: date | datetime | None = None,
    until: date | datetime | None = None,
    limit: int = 10,
    workspace: str | None = None,
    sessions: Sequence[str] = (),
    expression: Expression | None = None,
) -> list[PassageHit]:
    """Return the passages that answer a query, best first; `limit` of each of these sources at most.

    `query` is any text. If it has operators, `expression` is what passages must match, and `query` gives the words to
    rank them by. A day as `until` is the last one that counts; what has no time is of no day. `sessions` are the
    beginnings of ids of those that are searched.
    """
    terms = query_terms(connection, query)
    if not terms:
        return []
    prefixes = {fold(term.text.split()[-1]) for term in wanted_terms(expression) if term.prefix} if expression else ()
    weights = [wanted(term.word, term.stem, term.weight, is_prefix=fold(term.word) in prefixes) for term in terms]
    most = max(READ_AT_MOST, limit)
    hits: list[PassageHit] = []
    for source in [source for source in sources if source in HISTORY_SOURCES]:
        filter_ = _filter_of(source, since=since, until=until, workspace=workspace, sessions=sessions)
        if expression:
            found = tables.newest_matches(connection, compile_match(expression), filter_, most)
        else:
            found = candidates(connection, terms, filter_, most)
        ranked = _ranked(connection, found, weights, _phrases(query))
        hits += _shown(ranked, weights, limit, every=expression is not None)
    return sorted(hits, key=lambda hit: -hit.score)


def newest_history(
    connection: sqlite3.Connection,
    source: SourceName,
    *,
    since: date | None = None,
    until: date | None = None,
    sessions: Sequence[str] = (),
    limit: int = 10,
) -> list[PassageHit]:
    """Return the newest passages of a source that these admit, whatever they say, as `search_history` takes them."""
    filter_ = _filter_of(source, since=since, until=until, workspace=None, sessions=sessions)
    # Of both sides of an exchange, and of what was said twice, there is one hit.
    ids = tables.newest(connection, filter_, 2 * limit)
    stored = tables.passages_by_id(connection, ids)
    found = [_Found(stored[row_id]) for row_id in ids if row_id in stored]
    return [replace(hit, score=1.0) for hit in _shown(found, (), limit, every=True)]


def _filter_of(
    source: SourceName,
    *,
    since: date | datetime | None,
    until: date | datetime | None,
    workspace: str | None,
    sessions: Sequence[str],
) -> PassageFilter:
    return PassageFilter(
        source=source,
        mark=_MARKS.get(source, ""),
        since=_seconds(since),
        until=_seconds(until if until is None or isinstance(until, datetime) else until + timedelta(1)),
        workspace=workspace,
        sessions=tuple(sessions),
    )


@dataclass(slots=True)
class _Found:
    passage: StoredPassage
    score: float = 0.0


def _ranked(
    connection: sqlite3.Connection, ids: Sequence[int], weights: Sequence[Wanted], phrases: Sequence[str]
) -> list[_Found]:
    """The passages with these ids and their scores, the best first."""
    found = [_Found(passage) for passage in tables.passages_by_id(connection, ids).values()]
    newest = max((one.passage.at for one in found), default=0)
    for one in found:
        age = 2.0 ** (-(newest - one.passage.at) / _HALF_LIFE_S) if one.passage.at else 0.0
        one.score = score_text(one.passage.text, weights, phrases) * (1 - _RECENCY + _RECENCY * age)
    return sorted(found, key=lambda one: (-one.score, -one.passage.at, -one.passage.id))


def score_text(text: str, weights: Sequence[Wanted], phrases: Sequence[str] = ()) -> float:
    """How well a text answers, 0..1: the share of the words' weight that it holds, more where they stand together.

    Each word counts by how often it stands (saturating, as in BM25) for the length of the text.
    """
    folded = fold(text)
    total = sum(word.weight for word in weights) or 1.0
    length = 0.5 + 0.5 * len(text) / 600
    held, places = 0.0, []
    for word in weights:
        matches = word.places(folded)
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


def _shown(found: Sequence[_Found], weights: Sequence[Wanted], limit: int, *, every: bool) -> list[PassageHit]:
    """The best as hits: one of each side of an exchange, and what was said twice in the same words once.

    `every`: all that was found matches an expression, so that none is too weak.
    """
    hits: list[PassageHit] = []
    seen: set[object] = set()
    least = 0.0 if every or not found else max(_LEAST_SCORE, _LEAST_SHARE * found[0].score)
    for one in found:
        passage, role = one.passage, role_of(one.passage.kind)
        words = hash(" ".join(passage.text.split()))
        side = (passage.session_key, passage.part, passage.number, role)
        if words in seen or side in seen or one.score < least:
            continue
        seen |= {words, side}
        excerpt = excerpt_of(passage.text, weights)
        if excerpt in seen:
            continue
        seen.add(excerpt)
        hits.append(
            PassageHit(
                ref=ref_of(passage),
                source=role.source,
                session=passage.session,
                role=role,
                timestamp=datetime.fromtimestamp(passage.at, UTC) if passage.at else None,
                excerpt=excerpt,
                score=round(one.score, 4),
                agent=passage.agent,
                speaker=speaker_of(passage),
                title=passage.title,
                folder=passage.folder,
                workspace=passage.workspace,
                path=passage.path.removesuffix(f"#{passage.session}"),
            )
        )
        if len(hits) == limit:
            break
    return hits


def ref_of(passage: StoredPassage) -> str:
    """Return the name by which a passage is found again.

    `session:<id>#<exchange>`, `session:<id>/<subagent>#<exchange>`, `shell:<id>#<command>`,
    `shell:<id>/output.log#<part>`, `bridge:<channel>#<message>`.
    """
    kind = "session" if passage.source == SourceName.SESSIONS else passage.source
    part = f"/{passage.part}" if passage.part else ""
    return f"{kind}:{passage.session}{part}#{passage.number}"


def speaker_of(passage: StoredPassage) -> str:
    """Return who speaks in a passage, if that is a subagent or who sent a message; empty for all else."""
    return passage.speaker if passage.source == SourceName.BRIDGE else passage.part


def excerpt_of(text: str, weights: Sequence[Wanted], max_chars: int = EXCERPT_CHARS) -> str:
    """About `max_chars` of a text around where most of the words stand, on one line, cut with `[…]`."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    folded = fold(line)
    marks = sorted((place, word.weight) for word in weights for place in word.places(folded))
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


def _seconds(moment: date | datetime | None) -> int | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time(), UTC)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
