"""Search the passages of history: candidates from the index, then ranked by their texts.

Passages with all words are taken newest first, and of those with rare words the ones that hold the most of them: at a
million passages there is no time to rank every row of a common word. The texts of the likeliest are read from the
transcripts; how often, how near together and in which words they say it decides, and recency where that is equal.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from time import perf_counter
from typing import Any

from nugget.history.assembly import Clean
from nugget.history.candidates import READ_AT_MOST, candidates, query_terms
from nugget.history.expressions import Probe, is_exact, matcher, prefixes_of, probe, wider_match
from nugget.history.texts import Texts
from nugget.history.values import HISTORY_SOURCES, PassageHit, Role
from nugget.history.words import Wanted, fold, mark_of_source, wanted
from nugget.index import passages as tables
from nugget.index.passages import Candidate, PassageFilter, StoredPassage
from nugget.index.query_language import Expression
from nugget.models import SourceName
from nugget.redaction import redact
from nugget.text import shorten

EXCERPT_CHARS = 150

PATIENCE_S = 0.5
"""So long an expression is tried on the texts of passages that hold all its words, the newest first."""
_BATCH = 160
_MANY = 300
"""After so many of them, half again as many as are shown are enough to rank: some may say the same."""
_RECENCY = 0.1
"""How much the newest passage gains over a very old one of the same score."""
_HALF_LIFE_S = 90 * 86_400
_LEAST_SCORE = 0.05
_LEAST_SHARE = 0.4
"""A hit of less than this share of the best hit's score says little of what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAnswer:
    """What history knows of a query, best first. `cut` says how far back it was looked for where time ran out."""

    hits: tuple[PassageHit, ...] = ()
    cut: Mapping[SourceName, str] = field(default_factory=dict)


def search_history(connection: sqlite3.Connection, query: str, **options: Any) -> list[PassageHit]:
    """The hits of `ask_history`, which takes the same options."""
    return list(ask_history(connection, query, **options).hits)


def ask_history(
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
    allow: Sequence[re.Pattern[str]] = (),
    patience_s: float = PATIENCE_S,
) -> HistoryAnswer:
    """The passages that answer a query, best first; `limit` of each of these sources at most.

    `query` is any text. Where it has operators, `expression` is what passages must match, and `query` gives the words
    to rank them by. A day as `until` is the last one that counts; what has no time is of no day. `sessions` are the
    beginnings of ids of those that are searched. `allow` are texts that redaction leaves.
    """
    terms = query_terms(connection, query)
    if not terms:
        return HistoryAnswer()
    prefixes = prefixes_of(expression) if expression else set[str]()
    most = max(READ_AT_MOST, limit)
    weights = [wanted(term.word, term.stem, term.weight, is_prefix=fold(term.word) in prefixes) for term in terms]
    stems = {fold(term.word): term.stem for term in terms}

    clean = _cleaning(allow)

    def stem_of(word: str) -> str:
        return stems.get(fold(word), word)

    test = _Test()
    if expression and not is_exact(expression):
        test = _Test(
            admits=matcher(expression, stem_of), probe=probe(expression, stem_of), patience_s=patience_s
        )  # fmt: skip
    with Texts() as texts:
        hits: list[PassageHit] = []
        cut: dict[SourceName, str] = {}
        for source in [source for source in sources if source in HISTORY_SOURCES]:
            filter_ = _filter_of(source, since=since, until=until, workspace=workspace, sessions=sessions)
            if expression:
                rows = tables.each_match(connection, wider_match(expression), filter_)
                found, left = _read_admitted(connection, rows, texts, clean, test, limit)
                if left:
                    cut[source] = left
            else:
                found = _read(connection, candidates(connection, terms, filter_, most), texts, clean)
            _rank(found, weights, _phrases(query))
            hits += _shown(connection, found, weights, limit, clean, every=expression is not None)
        return HistoryAnswer(hits=tuple(sorted(hits, key=lambda hit: -hit.score)), cut=cut)


def newest_history(
    connection: sqlite3.Connection,
    source: SourceName,
    *,
    since: date | None = None,
    until: date | None = None,
    sessions: Sequence[str] = (),
    limit: int = 10,
    allow: Sequence[re.Pattern[str]] = (),
) -> list[PassageHit]:
    """The newest passages of a source that these admit, whatever they say; options are as in `ask_history`."""
    clean = _cleaning(allow)
    filter_ = _filter_of(source, since=since, until=until, workspace=None, sessions=sessions)
    with Texts() as texts:
        # Of both sides of an exchange, and of what was said twice, there is one hit.
        found = _read(connection, tables.newest(connection, filter_, 2 * limit), texts, clean)
        found.sort(key=lambda one: (-one.passage.at, -one.passage.key))
        hits = _shown(connection, found, (), limit, clean, every=True)
    return [replace(hit, score=1.0) for hit in hits]


def _filter_of(
    source: SourceName,
    *,
    since: date | datetime | None,
    until: date | datetime | None,
    workspace: str | None,
    sessions: Sequence[str],
) -> PassageFilter:
    return PassageFilter(
        roles=tuple(int(role) for role in Role if role.source is source),
        mark="" if source is SourceName.SESSIONS else mark_of_source(source),
        since=_seconds(since),
        until=_seconds(until if until is None or isinstance(until, datetime) else until + timedelta(1)),
        workspace=workspace,
        sessions=tuple(sessions),
    )


def _cleaning(allow: Sequence[re.Pattern[str]]) -> Clean:
    return lambda text: redact(text, allow=allow).text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """What a text must pass beyond the index's word for it: nothing, or what an expression says, tried for so long."""

    admits: Callable[[str], bool] | None = None
    probe: Probe | None = None
    patience_s: float = 0.0


@dataclass(slots=True)
class _Found:
    passage: StoredPassage
    text: str
    speaker: str
    score: float = 0.0


def _read(connection: sqlite3.Connection, keys: Sequence[int], texts: Texts, clean: Clean) -> list[_Found]:
    """Those of these passages that are still there, with their texts."""
    stored = tables.passages_by_key(connection, keys)
    found = []
    for key in keys:
        if key in stored:
            text, speaker = texts.read(stored[key], clean, is_for_ranking=True)
            if text:
                found.append(_Found(stored[key], text, speaker))
    return found


def _read_admitted(
    connection: sqlite3.Connection,
    rows: Iterator[Candidate],
    texts: Texts,
    clean: Clean,
    test: _Test,
    limit: int,
) -> tuple[list[_Found], str]:
    """The newest of these passages that the test admits, as many as are ranked, with their texts.

    And where time ran out before all were tried, how far back they were, in words.
    """
    found: list[_Found] = []
    until = perf_counter() + test.patience_s
    most, tried = max(READ_AT_MOST, limit), 0
    size = _BATCH if test.admits else most
    while some := list(islice(rows, size)):
        likely = [row.key for row in some if test.probe is None or texts.may_hold(row, test.probe)]
        read = _read(connection, likely, texts, clean)
        found += [one for one in read if test.admits is None or test.admits(one.text)]
        tried += len(some)
        if len(found) >= (most if tried < _MANY else min(most, limit + limit // 2)):
            break
        if test.admits and perf_counter() > until and next(rows, None) is not None:
            oldest = min((row.at for row in some if row.at), default=0)
            return found, f"back to {datetime.fromtimestamp(oldest, UTC):%Y-%m-%d}" if oldest else "the newest ones"
    return found[:most], ""


def _rank(found: list[_Found], weights: Sequence[Wanted], phrases: Sequence[str]) -> None:
    """Score what was found and put it in order."""
    newest = max((one.passage.at for one in found), default=0)
    for one in found:
        age = 2.0 ** (-(newest - one.passage.at) / _HALF_LIFE_S) if one.passage.at else 0.0
        one.score = score_text(one.text, weights, phrases) * (1 - _RECENCY + _RECENCY * age)
    found.sort(key=lambda one: (-one.score, -one.passage.at, -one.passage.key))


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
    """The name by which a passage is found again.

    `session:<id>#<exchange>`, `session:<id>/<subagent>#<exchange>`, `shell:<id>#<command>`,
    `shell:<id>/output.log#<part>`, `bridge:<channel>#<message>`.
    """
    if channel:
        return f"bridge:{channel}#{passage.number}"
    kind = "shell" if Role(passage.role).source is SourceName.SHELL else "session"
    part = f"/{passage.subagent}" if passage.subagent else ""
    return f"{kind}:{passage.session}{part}#{passage.number}"


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
