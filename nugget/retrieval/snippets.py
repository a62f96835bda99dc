"""The sentences of a hit that best match a question.

A sentence is worth the idf of the question's words in it, more if it gives the number that was asked for; words of its
heading count half. The best sentence is shown with as much of what stands around it as there is room for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nugget.index import Index, StoredChunk
from nugget.models import Hit, HitChunk, SourceName
from nugget.text import shorten, word_root

_WORD = re.compile(r"\S*/\S*/\S*|([^\W_]+)")  # an address or a path says nothing by the words in it
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|[.!?](?!\s|$)|\n(?!\s*(?:\n|[-*+#|]\s|\d+[.)]\s)))+[.!?。！？]*")
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s.*|```\S*|[-=~^*_+.]{3,}\s*)$", re.MULTILINE)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|often|old|big|large|far|high)\b"
    r"|\b(?:port|percent|default|limit|size|maximum|minimum|threshold|priority|number|code|version|date|year|when)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.:/-])\d{1,5}(?:[.,]\d+)?(?![\w-])")
_CUT = "[…]"
_LONGEST = 160
"""Characters of a sentence that is taken as one; a longer one is cut behind a comma, else between words."""
_NUMBER_BONUS = 0.3
_TOGETHER_SHARE = 0.5
_HEADING_SHARE = 0.5
_CHUNKS_READ = 12
"""Of a unit, at most."""
_RANK_SHARE = 0.99


class _Sentence(NamedTuple):
    start: int
    end: int
    roots: frozenset[str]
    value: float


def summaries(
    question: str, idfs: Mapping[str, float], hits: Sequence[Hit], index: Index, max_chars: int
) -> dict[str, HitChunk]:
    """Return for each hit, by its ref, the sentences of its unit that answer the question best."""
    ids: dict[SourceName, dict[str, str]] = {}
    for hit in hits:
        ids.setdefault(hit.unit.source, {})[hit.unit.id] = hit.ref
    keys = {
        key: refs[unit_id] for source, refs in ids.items() for unit_id, key in index.unit_keys(refs, source).items()
    }
    chunks = {keys[key]: its for key, its in index.chunks_of_units(keys).items()}
    weights = {word_root(word): idf for word, idf in idfs.items()}
    return {
        hit.ref: _summary(question, weights, hit, chunks[hit.ref], max_chars) for hit in hits if hit.ref in chunks
    }  # fmt: skip


def _summary(
    question: str, weights: Mapping[str, float], hit: Hit, chunks: Sequence[StoredChunk], max_chars: int
) -> HitChunk:
    """Return the best sentences of a unit from the chunks that matched and those with most of the words."""

    def held(chunk: StoredChunk) -> float:
        text = f"{chunk.breadcrumb}\n{chunk.text}".lower()
        return sum(weight for root, weight in weights.items() if root in text)

    matched = {chunk.text: rank for rank, chunk in enumerate(hit.chunks)}
    wants_number = _ASKS_NUMBER.search(question) is not None
    best, shown, most = hit.chunks[0], "", -1.0
    nearest = sorted(chunks, key=lambda chunk: (matched.get(chunk.text, len(matched)), -held(chunk)))[:_CHUNKS_READ]
    for chunk in nearest:
        body = _MARKUP.sub("", chunk.text).strip() or chunk.text
        of_heading = _HEADING_SHARE * sum(weights[root] for root in _roots(chunk.breadcrumb) & weights.keys())
        sentences = _sentences(body, weights, wants_number=wants_number)
        value, excerpt = _excerpt(body, sentences, weights, max_chars)
        value = (value + of_heading) * _RANK_SHARE ** matched.get(chunk.text, len(matched))
        if value > most:
            best, most = HitChunk(breadcrumb=chunk.breadcrumb, text="", score=hit.score), value
            shown = excerpt
    return replace(best, text=shown)


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


def _excerpt(
    text: str, sentences: Sequence[_Sentence], weights: Mapping[str, float], max_chars: int
) -> tuple[float, str]:
    """Return the value of the best run of sentences that fits, and the run, with marks where something is left out."""
    best, most, room = (0, 0), -1.0, max_chars - 2 * len(f" {_CUT}")
    for first in range(len(sentences)):
        roots: frozenset[str] = frozenset()
        highest = 0.0
        for last in range(first, len(sentences)):
            if sentences[last].end - sentences[first].start > room:
                break
            roots |= sentences[last].roots
            highest = max(highest, sentences[last].value)
            value = highest + _TOGETHER_SHARE * sum(weights[root] for root in roots)
            if value > most + 1e-9 or (value > most - 1e-9 and first == best[0]):  # the longer one of equals
                best, most = (first, last), value
    if not sentences or len(text) <= max_chars or not most:
        return max(most, 0.0), shorten(text, max_chars)
    start, end = sentences[best[0]].start, sentences[best[1]].end
    shown = " ".join(text[start:end].split())
    parts = (text[:start].strip() and _CUT, shown, text[end:].strip() and _CUT)
    return most, " ".join(filter(None, parts))
