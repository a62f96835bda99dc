"""The sentences of a hit that best match a question.

A sentence is worth the idf of the question's words in it, more if it gives the number that was asked for. The best one
is shown with as many of those behind it as there is room for, then the best of what is said elsewhere. With an
embedder, the first few fragments by words are also compared with the question by meaning, which takes as long as
embedding a dozen questions: a person waits for that at a terminal, an agent reads whole passages instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from nugget.errors import EmbeddingUnavailable
from nugget.index import IndexReader, StoredChunk
from nugget.index.fulltext import STOP_WORDS
from nugget.infra.embedding import QuestionEmbedder
from nugget.models import Chunk, Hit, SourceName
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
_ROOM = (0.6, 0.4)
"""Share of the room for the best sentences, and for the best ones elsewhere."""
_SAME = 40
"""Characters by which two fragments are known to overlap."""
_CUT = "[…]"
_LONGEST = 160
"""Characters of a sentence that is taken as one; a longer one is cut behind a comma, else between words."""
_NUMBER_BONUS = 0.4
_LIST_SHARE = 0.7
"""Of its value, what a line without function words keeps: code and lists of names answer less than sentences."""
_AGAIN_SHARE = 0.5
"""Of the value of a word that is shown already, taken off."""
_OTHERS_SHARE = 0.5
_CHUNKS_READ = 48
"""Of a unit, at most."""
_RANK_SHARE = 0.99
_EMBEDDED = 5
"""Fragments of a hit that are compared by meaning."""


class _Sentence(NamedTuple):
    start: int
    end: int
    roots: frozenset[str]
    value: float


class _Fragment(NamedTuple):
    """The sentences of a chunk from a telling one on."""

    chunk: StoredChunk
    sentences: Sequence[_Sentence]
    body: str
    share: float

    @property
    def opening(self) -> str:
        """Return the first sentence on one line."""
        return self.text(self.sentences[:1])

    def text(self, run: Sequence[_Sentence]) -> str:
        """Return sentences that follow each other on one line."""
        return " ".join(self.body[run[0].start : run[-1].end].split())

    def run(self, room: int) -> list[_Sentence]:
        """Return the sentences that fit, the first one in any case."""
        first = self.sentences[0].start
        return [one for one in self.sentences if one is self.sentences[0] or one.end - first <= room]


def chunks_of_hits(hits: Sequence[Hit], index: IndexReader) -> dict[str, list[StoredChunk]]:
    """Return the chunks of the units of hits, by ref."""
    ids: dict[SourceName, dict[str, str]] = {}
    for hit in hits:
        ids.setdefault(hit.unit.source, {})[hit.unit.id] = hit.ref
    keys = {
        key: refs[unit_id] for source, refs in ids.items() for unit_id, key in index.unit_keys(refs, source).items()
    }
    return {keys[key]: its for key, its in index.chunks_of_units(keys).items()}


def summary(
    question: str, idfs: Mapping[str, float], hit: Hit, chunks: Sequence[StoredChunk], max_chars: int,
    embedder: QuestionEmbedder | None = None,
) -> Chunk:  # fmt: skip
    """Return the best sentences of a unit from the chunks that matched and those with most of the words."""
    weights = {word_root(word): idf for word, idf in idfs.items()}

    def held(chunk: StoredChunk) -> float:
        text = f"{chunk.breadcrumb}\n{chunk.text}".lower()
        return sum(weight for root, weight in weights.items() if root in text)

    matched = {chunk.text: rank for rank, chunk in enumerate(hit.chunks)}
    wants_number = _ASKS_NUMBER.search(question) is not None
    nearest = sorted(chunks, key=lambda chunk: (matched.get(chunk.text, len(matched)), -held(chunk)))[:_CHUNKS_READ]
    found: list[_Fragment] = []
    for rank, chunk in enumerate(nearest):
        body = _MARKUP.sub("", chunk.text).strip() or chunk.text
        if len(chunks) == 1 and len(body) <= max_chars:
            return Chunk(breadcrumb=chunk.breadcrumb, text=shorten(body, max_chars), score=hit.score)
        sentences = _sentences(body, weights, wants_number=wants_number)
        found += [_Fragment(chunk, sentences[at:], body, _RANK_SHARE ** min(rank, len(matched)))
                  for at, one in enumerate(sentences) if one.value]  # fmt: skip
    if not found:
        text = _MARKUP.sub("", nearest[0].text).strip() or nearest[0].text
        return Chunk(breadcrumb=nearest[0].breadcrumb, text=shorten(text, max_chars), score=hit.score)
    near = _nearness(question, found, weights, int(_ROOM[0] * max_chars), embedder) if embedder else {}
    kept: list[tuple[int, int, str]] = []
    seen: frozenset[str] = frozenset()
    breadcrumb = ""
    for share in _ROOM:
        runs = [(one, one.run(int(share * max_chars))) for one in found]
        if not runs:
            break
        best, run = max(
            runs, key=lambda pair: _value(pair[1], weights, seen) * pair[0].share + near.get(pair[0].opening, 0.0)
        )
        text = best.text(run)
        breadcrumb = breadcrumb or best.chunk.breadcrumb
        kept.append((best.chunk.position, run[0].start, text))
        seen = seen.union(*(one.roots for one in run))
        found = [one for one in found if (start := one.opening[:_SAME]) not in text and text[:_SAME] not in start]
    shown = f" {_CUT} ".join(text for _, _, text in sorted(kept))
    return Chunk(breadcrumb=breadcrumb, text=f"{shown} {_CUT}", score=hit.score)


def _nearness(
    question: str, found: Sequence[_Fragment], weights: Mapping[str, float], room: int, embedder: QuestionEmbedder
) -> dict[str, float]:
    """Return what their cosine with the question adds to the value of the best fragments, by how they open."""
    runs = [(one, one.run(room)) for one in found]
    best: dict[str, str] = {}
    for one, run in sorted(runs, key=lambda pair: -_value(pair[1], weights, frozenset()) * pair[0].share):
        best.setdefault(one.opening, one.text(run))
        if len(best) == _EMBEDDED:
            break
    mass = sum(weights.values())
    try:
        asked: Any = embedder.embed_query(question)
        vectors: dict[str, Any] = {opening: embedder.embed_query(text) for opening, text in best.items()}
    except EmbeddingUnavailable:
        return {}
    return {opening: mass * max(0.0, float(sum(map(mul, asked, vector)))) for opening, vector in vectors.items()}


def _value(run: Sequence[_Sentence], weights: Mapping[str, float], seen: frozenset[str]) -> float:
    """Return the value of sentences, the best one in full; words that are shown already count less."""
    values = [one.value - _AGAIN_SHARE * sum(weights[root] for root in one.roots & seen) for one in run]
    return max(values) + _OTHERS_SHARE * (sum(values) - max(values))


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
