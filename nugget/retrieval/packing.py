"""Choose the parts of hits to show: the sentences that answer the question, within a budget.

The value of a sentence is the idf of the question's words in it, more if it gives the requested number. The best one is
shown with as many of the next ones as fit, then the best ones elsewhere. With an embedder, the first few fragments by
words are also compared with the question by meaning, which takes as long as embedding a dozen questions: a person at a
terminal waits for that, an agent reads whole passages instead.

Hits are packed in passes: a little of each while there is room, then more of each, best first. Tokens are estimated at
four characters each. The budget covers everything shown of a hit, including the lines around its text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import Any, NamedTuple, TypeVar

from nugget.errors import EmbeddingUnavailable
from nugget.index import StoredChunk
from nugget.index.fulltext import STOP_WORDS
from nugget.infra.embedding import QuestionEmbedder
from nugget.models import Budget, Chunk, Depth, Hit
from nugget.models.nuggets import NuggetHit, scope_text
from nugget.text import counted, estimate_tokens, shorten, word_root

FRAME_TOKENS = 60
"""The cost of a unit's frame: title, id, path, dates and the fence around it."""
NUGGET_FRAME_TOKENS = 30
"""The cost of a nugget's type, confidence, date and agent, with their keys."""
SUMMARY_CHARS = 480

_NONE: Mapping[tuple[str | None, str], Chunk] = {}
_Item = TypeVar("_Item")
_Shown = TypeVar("_Shown")
_Chunks = tuple[Chunk, ...]
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]++|[.!?](?!\s|$)|\n(?!\s*(?:\n|[-*+#|]\s|\d+[.)]\s)))++[.!?。！？]*")
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s.*|```\S*|[-=~^*_+.]{3,}\s*)$", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.:/-])\d{1,5}(?:[.,]\d+)?(?![\w-])")
_ROOM = (0.6, 0.4)
"""The shares of the room for the best sentences, and for the best ones elsewhere."""
_SAME = 40
"""The number of characters by which to recognise overlapping fragments."""
_CUT = "[…]"
_LONGEST = 160
"""The longest sentence kept whole; longer ones are cut after a comma, else between words."""
_NUMBER_BONUS = 0.4
_LIST_SHARE = 0.7
"""The share of its value that a line without function words keeps: code and lists answer less than sentences."""
_AGAIN_SHARE = 0.5
"""The share of a word's value that it loses if it is already shown."""
_OTHERS_SHARE = 0.5
_CHUNKS_READ = 48
"""The most chunks read of a unit."""
_RANK_SHARE = 0.99
_EMBEDDED = 8
"""The most fragments of a hit that are compared by meaning."""


def fill(
    items: Sequence[_Item],
    room: int,
    *,
    cost: Callable[[_Shown], int],
    passes: Sequence[Callable[[_Item, _Shown | None, int], _Shown | None]],
) -> tuple[list[_Shown], int, list[int]]:
    """Return what to show of the items that fit, the room left, and how many items each later pass did not change.

    A pass gets an item, what is shown of it so far (None at first) and the room for it; it returns what to show, or
    None if that does not fit. The first pass admits items until one does not fit.
    """
    shown: list[_Shown] = []
    for item in items:
        first = passes[0](item, None, room)
        if first is None or (needed := cost(first)) > room:
            break
        shown.append(first)
        room -= needed
    left_out = []
    for widen in passes[1:]:
        left_out.append(0)
        for at, now in enumerate(shown):
            most = room + cost(now)
            wider = widen(items[at], now, most)
            if wider is None or (needed := cost(wider)) > most:
                left_out[-1] += 1
            else:
                room, shown[at] = most - needed, wider
    return shown, room, left_out


def pack(
    hits: Sequence[Hit], *, budget_tokens: int, depth: Depth, summaries: Mapping[tuple[str | None, str], Chunk] = _NONE
) -> tuple[tuple[Hit, ...], Budget, str | None]:
    """Return the hits that fit, best first, with the budget used and a hint about what was left out.

    Each hit comes with all its matching chunks, best first. First every unit is shown with its summary (the
    beginning of its best chunk by default); then (`standard`, `deep`) the matching passages replace the
    summaries, and whole units the passages; then (`deep`) the evidence for a unit is added.
    """

    def summarised(hit: Hit, now: _Chunks | None, room: int) -> _Chunks:
        if known := summaries.get((hit.brain, hit.ref)):
            return (known,)
        best = hit.chunks[0]
        # On one line a heading would run into its text.
        text = re.sub(r"^#{1,6}[ \t].*$", "", best.text, flags=re.MULTILINE).strip() or best.text
        return (replace(best, text=shorten(text, SUMMARY_CHARS), position=0),)

    passes = [summarised, _passages, _whole, _with_evidence]
    count = {Depth.SUMMARY: 1, Depth.STANDARD: 3, Depth.DEEP: 4}[depth]
    shown, room, shortened = fill(hits, budget_tokens, cost=_cost, passes=passes[:count])
    packed = tuple(replace(hit, chunks=chunks) for hit, chunks in zip(hits, shown, strict=False))
    left_out = [hit.unit.id for hit in hits[len(packed) :]]
    parts = []
    if left_out:
        names = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
        parts.append(f"{len(left_out)} more relevant: {names}")
    if shortened and shortened[0]:
        parts.append(f"{shortened[0]} shown as a summary only")
    hint = f"{'; '.join(parts)}. Ask again with a larger token budget." if parts else None
    return packed, Budget(requested=budget_tokens, used=budget_tokens - room, truncated=bool(parts)), hint


def _passages(hit: Hit, now: _Chunks | None, room: int) -> _Chunks | None:
    fitting: list[Chunk] = []
    for chunk in hit.chunks:
        if _cost((*fitting, chunk)) > room:
            break
        fitting.append(chunk)
    return tuple(sorted(fitting, key=lambda chunk: chunk.position)) or None  # chosen by match, shown in order


def _whole(hit: Hit, now: _Chunks | None, room: int) -> _Chunks:
    return (Chunk(breadcrumb=hit.unit.title, text=hit.unit.body.strip(), score=hit.score),)


def _with_evidence(hit: Hit, now: _Chunks | None, room: int) -> _Chunks:
    quotes = "\n".join(f"- {entry.session}: “{entry.quote}”" for entry in hit.unit.evidence)
    evidence = Chunk(breadcrumb=f"{hit.unit.title} > Evidence", text=quotes, score=0.0)
    return (*(now or ()), *([evidence] if quotes else []))


def _cost(chunks: Sequence[Chunk]) -> int:
    return FRAME_TOKENS + sum(estimate_tokens(chunk.breadcrumb) + estimate_tokens(chunk.text) for chunk in chunks)


def pack_nuggets(
    hits: Sequence[NuggetHit], *, budget_tokens: int, depth: Depth, candidates: int | None = None
) -> tuple[tuple[NuggetHit, ...], Budget, str | None]:
    """Return the nuggets that fit, in order, with the budget used and a hint about what was left out.

    First every nugget is shown with its summary; then (`standard`, `deep`) details and alternatives are added, then
    (`deep`) the prompts behind them. `candidates` is the number of all nuggets if `hits` are only the best.
    """
    count = {Depth.SUMMARY: 1, Depth.STANDARD: 2, Depth.DEEP: 3}[depth]
    passes: list[Callable[[NuggetHit, NuggetHit | None, int], NuggetHit | None]] = [
        lambda hit, now, room: _changed(hit, detail="", alternatives=(), source_prompt=""),
        lambda hit, now, room: _changed(hit, source_prompt=""),
        lambda hit, now, room: now and _changed(now, source_prompt=hit.nugget.source_prompt),
    ]
    packed, room, left = fill(hits, budget_tokens, cost=_nugget_cost, passes=passes[:count])
    parts = zip(("details", "prompts"), left, strict=False)
    missing = [f"the {name} of {counted(count, 'nugget')}" for name, count in parts if count]
    total = max(len(hits), candidates or 0)
    if total > len(packed):
        missing.insert(0, _left_out(hits[len(packed) :], total - len(packed)))
    hint = f"Left out for lack of room: {'; '.join(missing)}. A larger budget shows more." if missing else None
    return tuple(packed), Budget(requested=budget_tokens, used=budget_tokens - room, truncated=bool(missing)), hint


def _changed(hit: NuggetHit, **values: Any) -> NuggetHit:
    return replace(hit, nugget=replace(hit.nugget, **values))


def _nugget_cost(hit: NuggetHit) -> int:
    nugget = hit.nugget
    texts = (nugget.summary, scope_text(nugget), nugget.detail, *nugget.alternatives, nugget.source_prompt)
    return NUGGET_FRAME_TOKENS + sum(map(estimate_tokens, texts))


def _left_out(hits: Sequence[NuggetHit], total: int) -> str:
    """Return `12 nuggets (3 constraint, 9 intent)`, with the types only if all are known."""
    if len(hits) < total:
        return counted(total, "nugget")
    types = Counter(hit.unit.type if hit.unit else str(hit.nugget.type) for hit in hits)
    return f"{counted(total, 'nugget')} ({', '.join(f'{count} {name}' for name, count in types.most_common())})"


class _Sentence(NamedTuple):
    start: int
    end: int
    roots: frozenset[str]
    value: float


class _Fragment(NamedTuple):
    """The sentences of a chunk, beginning with a valuable one."""

    chunk: StoredChunk
    sentences: Sequence[_Sentence]
    body: str
    share: float

    @property
    def opening(self) -> str:
        """Return the first sentence on one line."""
        return self.text(self.sentences[:1])

    def text(self, run: Sequence[_Sentence]) -> str:
        """Return consecutive sentences on one line."""
        return " ".join(self.body[run[0].start : run[-1].end].split())

    def run(self, room: int) -> list[_Sentence]:
        """Return the sentences that fit, and always the first one."""
        first = self.sentences[0].start
        return [one for one in self.sentences if one is self.sentences[0] or one.end - first <= room]


def summary(
    question: str, idfs: Mapping[str, float], hit: Hit, chunks: Sequence[StoredChunk],
    embedder: QuestionEmbedder | None = None,
) -> Chunk:  # fmt: skip
    """Return the best sentences of a unit, from matching chunks and those with most of the words."""
    weights = {word_root(word): idf for word, idf in idfs.items()}
    matched = {chunk.text: rank for rank, chunk in enumerate(hit.chunks)}
    asks_number = (
        r"\bhow (?:many|much|long|often|old|big|large|far|high)\b"
        r"|\b(?:port|percent|default|limit|size|maximum|minimum|threshold|priority|number|code|version|date|year|when)\b"
    )
    bonus = _NUMBER_BONUS * sum(weights.values()) if re.search(asks_number, question, re.IGNORECASE) else 0.0
    held = {chunk.key: {root: weight for root, weight in weights.items() if root in text}
            for chunk in chunks for text in [chunk.text.lower()]}  # fmt: skip

    def order(chunk: StoredChunk) -> tuple[int, float]:
        inside, named = held[chunk.key], chunk.breadcrumb.lower()
        mass = sum(weight for root, weight in weights.items() if root in inside or root in named)
        return matched.get(chunk.text, len(matched)), -mass

    nearest = sorted(chunks, key=order)[:_CHUNKS_READ]
    found: list[_Fragment] = []
    for rank, chunk in enumerate(nearest):
        if len(chunks) > 1 and not held[chunk.key]:
            continue
        body = _MARKUP.sub("", chunk.text).strip() or chunk.text
        if len(chunks) == 1 and len(body) <= SUMMARY_CHARS:
            return Chunk(breadcrumb=chunk.breadcrumb, text=shorten(body, SUMMARY_CHARS), score=hit.score)
        sentences = _sentences(body, held[chunk.key], bonus)
        found += [_Fragment(chunk, sentences[at:], body, _RANK_SHARE ** min(rank, len(matched)))
                  for at, one in enumerate(sentences) if one.value]  # fmt: skip
    if not found:
        text = _MARKUP.sub("", nearest[0].text).strip() or nearest[0].text
        return Chunk(breadcrumb=nearest[0].breadcrumb, text=shorten(text, SUMMARY_CHARS), score=hit.score)
    near = _nearness(question, found, weights, int(_ROOM[0] * SUMMARY_CHARS), embedder) if embedder else {}
    kept: list[tuple[int, int, str]] = []
    seen: frozenset[str] = frozenset()
    breadcrumb = ""
    for share in _ROOM:
        runs = [(one, one.run(int(share * SUMMARY_CHARS))) for one in found]
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
    """Return the value that the cosine with the question adds to each of the best fragments."""
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
    """Return the value of sentences, the best one in full; words already shown count less."""
    values = [one.value - _AGAIN_SHARE * sum(weights[root] for root in one.roots & seen) for one in run]
    return max(values) + _OTHERS_SHARE * (sum(values) - max(values))


def _roots(text: str) -> set[str]:
    """Return the roots of the words of a text, without those in addresses."""
    words = re.findall(r"\S+://\S+|([^\W_]+)" if "://" in text else r"[^\W_]+", text)
    return {word_root(word) for word in words if word}


def _sentences(text: str, weights: Mapping[str, float], number_bonus: float) -> list[_Sentence]:
    found = []
    for start, end in _spans(text):
        lowered = text[start:end].lower()
        # A root begins its word, so most sentences need not be split.
        holds_any = any(root in lowered for root in weights)
        roots = frozenset(_roots(text[start:end]) & weights.keys()) if holds_any else frozenset()
        value = sum(weights[root] for root in roots)
        if number_bonus and value and _NUMBER.search(text, start, end):
            value += number_bonus
        if value and STOP_WORDS.isdisjoint(lowered.split()):
            value *= _LIST_SHARE
        found.append(_Sentence(start, end, roots, value))
    return found


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sentence, or of each part of a long one."""
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
