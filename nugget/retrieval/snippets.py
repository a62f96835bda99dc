"""The sentences of a hit that best match a question.

A sentence is worth the idf of the question's words in it, more if it gives the number that was asked for; words of its
heading count half. The best sentence is shown with as much of what stands around it as there is room for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nugget.index import IndexReader, StoredChunk
from nugget.index.fulltext import STOP_WORDS
from nugget.models import Hit, HitChunk, SourceName
from nugget.text import shorten, word_root

_WORD = re.compile(r"\S+://\S+|([^\W_]+)")  # an address says nothing by the words in it
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|[.!?](?!\s|$)|\n(?!\s*(?:\n|[-*+#|]\s|\d+[.)]\s)))+[.!?。！？]*")
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s.*|```\S*|[-=~^*_+.]{3,}\s*)$", re.MULTILINE)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|often|old|big|large|far|high)\b"
    r"|\b(?:port|percent|default|limit|size|maximum|minimum|threshold|priority|number|code|version|date|year|when)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.:/-])\d{1,5}(?:[.,]\d+)?(?![\w-])")
_FRAGMENTS = 2
_SAME = 40
"""Characters by which two fragments are known to overlap."""
_CUT = "[…]"
_LONGEST = 160
"""Characters of a sentence that is taken as one; a longer one is cut behind a comma, else between words."""
_NUMBER_BONUS = 0.4
_LIST_SHARE = 0.7
"""Of its value, what a line without function words keeps: code and lists of names answer less than sentences."""
_AGAIN_SHARE = 0.5
_TOGETHER_SHARE = 0.5
_HEADING_SHARE = 0.5
_CHUNKS_READ = 48
"""Of a unit, at most."""
_RANK_SHARE = 0.99


class _Sentence(NamedTuple):
    start: int
    end: int
    roots: frozenset[str]
    value: float


class _Fragment(NamedTuple):
    value: float
    roots: frozenset[str]
    position: int
    start: int
    text: str
    breadcrumb: str


def chunks_of_hits(hits: Sequence[Hit], index: IndexReader) -> dict[str, list[StoredChunk]]:
    """Return the chunks of the units of hits, by ref."""
    ids: dict[SourceName, dict[str, str]] = {}
    for hit in hits:
        ids.setdefault(hit.unit.source, {})[hit.unit.id] = hit.ref
    keys = {
        key: refs[unit_id] for source, refs in ids.items() for unit_id, key in index.unit_keys(refs, source).items()
    }
    return {keys[key]: its for key, its in index.chunks_of_units(keys).items()}


def summaries(
    question: str,
    idfs: Mapping[str, float],
    hits: Sequence[Hit],
    chunks: Mapping[str, Sequence[StoredChunk]],
    max_chars: int,
) -> dict[tuple[str | None, str], HitChunk]:
    """Return for each hit, by its brain and ref, the sentences of its unit that answer the question best."""
    weights = {word_root(word): idf for word, idf in idfs.items()}
    return {
        (hit.brain, hit.ref): _summary(question, weights, hit, chunks[hit.ref], max_chars)
        for hit in hits
        if hit.ref in chunks
    }


def _summary(
    question: str, weights: Mapping[str, float], hit: Hit, chunks: Sequence[StoredChunk], max_chars: int
) -> HitChunk:
    """Return the best sentences of a unit from the chunks that matched and those with most of the words."""

    def held(chunk: StoredChunk) -> float:
        text = f"{chunk.breadcrumb}\n{chunk.text}".lower()
        return sum(weight for root, weight in weights.items() if root in text)

    matched = {chunk.text: rank for rank, chunk in enumerate(hit.chunks)}
    wants_number = _ASKS_NUMBER.search(question) is not None
    nearest = sorted(chunks, key=lambda chunk: (matched.get(chunk.text, len(matched)), -held(chunk)))[:_CHUNKS_READ]
    found: list[_Fragment] = []
    for chunk in nearest:
        body = _MARKUP.sub("", chunk.text).strip() or chunk.text
        if len(chunks) == 1 and len(body) <= max_chars:
            return HitChunk(breadcrumb=chunk.breadcrumb, text=shorten(body, max_chars), score=hit.score)
        of_heading = _HEADING_SHARE * sum(weights[root] for root in _roots(chunk.breadcrumb) & weights.keys())
        share = _RANK_SHARE ** matched.get(chunk.text, len(matched))
        for value, roots, start, end in _fragments(
            _sentences(body, weights, wants_number=wants_number), weights, max_chars
        ):
            text = " ".join(body[start:end].split())
            found.append(_Fragment((value + of_heading) * share, roots, chunk.position, start, text, chunk.breadcrumb))
    if not found:
        text = _MARKUP.sub("", nearest[0].text).strip() or nearest[0].text
        return HitChunk(breadcrumb=nearest[0].breadcrumb, text=shorten(text, max_chars), score=hit.score)
    kept: list[tuple[int, int, str]] = []
    best = max(found, key=lambda one: one.value)
    while found and len(kept) < _FRAGMENTS:
        next_ = max(found, key=lambda one: one.value)
        kept.append((next_.position, next_.start, next_.text))
        found = [
            one._replace(value=one.value - _AGAIN_SHARE * sum(weights[root] for root in one.roots & next_.roots))
            for one in found
            if one.text[:_SAME] not in next_.text and next_.text[:_SAME] not in one.text
        ]
    shown = f" {_CUT} ".join(text for _, _, text in sorted(kept))
    return HitChunk(breadcrumb=best.breadcrumb, text=f"{shown} {_CUT}", score=hit.score)


def _roots(text: str) -> set[str]:
    return {word_root(word) for word in _WORD.findall(text) if word}


def _sentences(text: str, weights: Mapping[str, float], *, wants_number: bool) -> list[_Sentence]:
    mass = sum(weights.values())
    found = []
    for start, end in _spans(text):
        roots = frozenset(_roots(text[start:end]) & weights.keys())
        value = sum(weights[root] for root in roots)
        if wants_number and value and _NUMBER.search(text, start, end):
            value += _NUMBER_BONUS * mass
        if STOP_WORDS.isdisjoint(text[start:end].lower().split()):
            value *= _LIST_SHARE
        found.append(_Sentence(start, end, roots, value))
    return found


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence, or each part of a long one, begins and ends."""
    for match in _SENTENCE.finditer(text):
        start, end = match.span()
        while end - start > _LONGEST:
            limit = start + _LONGEST
            comma = max(text.rfind(mark, start + _LONGEST // 3, limit) for mark in (", ", "; ", ": ", "\n"))
            at = comma + 1 if comma > 0 else text.rfind(" ", start + 1, limit) + 1 or limit
            yield start, at
            start = at
        if text[start:end].strip():
            yield start, end


def _fragments(
    sentences: Sequence[_Sentence], weights: Mapping[str, float], max_chars: int
) -> Iterator[tuple[float, frozenset[str], int, int]]:
    """Yield each longest run of sentences that fits from a sentence on, as (value, roots, start, end)."""
    room = max_chars // _FRAGMENTS
    for first, one in enumerate(sentences):
        if not one.value:
            continue
        run = [one]
        for other in sentences[first + 1 :]:
            if other.end - one.start > room:
                break
            run.append(other)
        roots: frozenset[str] = frozenset().union(*(each.roots for each in run))
        value = max(each.value for each in run) + _TOGETHER_SHARE * sum(weights[root] for root in roots)
        yield value, roots, one.start, run[-1].end
