"""Pack hits into a budget, in passes: a little of each as far as there is room, then more of each, the best first.

Tokens are estimated at four characters each. The budget covers everything that is shown of a hit, the lines around
its text included.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from nugget.models import Budget, Chunk, Depth, Hit
from nugget.models.nuggets import NuggetHit, scope_text
from nugget.text import counted, estimate_tokens, shorten

FRAME_TOKENS = 60
"""What the frame of one unit costs when it is shown: title, id, path, dates and the fence around it."""
NUGGET_FRAME_TOKENS = 30
"""Type, confidence, date and agent of one nugget, with their keys."""
SUMMARY_CHARS = 480

_NONE: Mapping[tuple[str | None, str], Chunk] = {}
_Item = TypeVar("_Item")
_Shown = TypeVar("_Shown")
_Chunks = tuple[Chunk, ...]


def fill(
    items: Sequence[_Item],
    room: int,
    *,
    cost: Callable[[_Shown], int],
    passes: Sequence[Callable[[_Item, _Shown | None, int], _Shown | None]],
) -> tuple[list[_Shown], int, list[int]]:
    """Return what is shown of the items that fit, the room that is left, and how many each later pass left as it was.

    A pass is given an item, what is shown of it so far (None at first) and the room for it; it returns what to show, or
    None if that does not fit. The first pass admits items until one does not fit.
    """
    shown: list[_Shown] = []
    for item in items:
        first = passes[0](item, None, room)
        if first is None or cost(first) > room:
            break
        shown.append(first)
        room -= cost(first)
    left_out = []
    for widen in passes[1:]:
        left_out.append(0)
        for at, now in enumerate(shown):
            wider = widen(items[at], now, room + cost(now))
            if wider is None or cost(wider) > room + cost(now):
                left_out[-1] += 1
                continue
            room += cost(now) - cost(wider)
            shown[at] = wider
    return shown, room, left_out


def pack(
    hits: Sequence[Hit],
    *,
    budget_tokens: int,
    depth: Depth,
    summaries: Mapping[tuple[str | None, str], Chunk] = _NONE,
) -> tuple[tuple[Hit, ...], Budget, str | None]:
    """Return the hits that fit, best first, with the budget used and a hint at what was left out.

    Each hit comes with all its matching chunks, best first. First every unit is shown with its summary (the
    beginning of its best chunk by default); then (`standard`, `deep`) the matching passages take the place of the
    summaries, and whole units that of the passages; then (`deep`) the evidence that a unit rests on is added.
    """

    def summarised(hit: Hit, now: _Chunks | None, room: int) -> _Chunks:
        best = hit.chunks[0]
        # On one line a heading would run into its text.
        text = re.sub(r"^#{1,6}[ \t].*$", "", best.text, flags=re.MULTILINE).strip() or best.text
        return (summaries.get((hit.brain, hit.ref)) or replace(best, text=shorten(text, SUMMARY_CHARS), position=0),)

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
    return tuple(sorted(fitting, key=lambda chunk: chunk.position)) or None  # chosen by match, read in order


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
    """Return the nuggets that fit, in order, with the budget used and a hint at what was left out.

    First every nugget is shown with its summary; then (`standard`, `deep`) details and alternatives are added, then
    (`deep`) the prompts that they came from. `candidates` is how many nuggets there are, if `hits` are only the best.
    """
    count = {Depth.SUMMARY: 1, Depth.STANDARD: 2, Depth.DEEP: 3}[depth]
    passes = [_nugget_summary, _with_detail, _with_prompt][:count]
    packed, room, left = fill(hits, budget_tokens, cost=_nugget_cost, passes=passes)
    parts = zip(("details", "prompts"), left, strict=False)
    missing = [f"the {name} of {counted(count, 'nugget')}" for name, count in parts if count]
    total = max(len(hits), candidates or 0)
    if total > len(packed):
        missing.insert(0, _left_out(hits[len(packed) :], total - len(packed)))
    hint = f"Left out for lack of room: {'; '.join(missing)}. A larger budget shows more." if missing else None
    return tuple(packed), Budget(requested=budget_tokens, used=budget_tokens - room, truncated=bool(missing)), hint


def _nugget_summary(hit: NuggetHit, now: NuggetHit | None, room: int) -> NuggetHit:
    return replace(hit, nugget=replace(hit.nugget, detail="", alternatives=(), source_prompt=""))


def _with_detail(hit: NuggetHit, now: NuggetHit | None, room: int) -> NuggetHit:
    return replace(hit, nugget=replace(hit.nugget, source_prompt=""))


def _with_prompt(hit: NuggetHit, now: NuggetHit | None, room: int) -> NuggetHit:
    assert now is not None
    return replace(now, nugget=replace(now.nugget, source_prompt=hit.nugget.source_prompt))


def _nugget_cost(hit: NuggetHit) -> int:
    nugget = hit.nugget
    texts = (nugget.summary, scope_text(nugget), nugget.detail, *nugget.alternatives, nugget.source_prompt)
    return NUGGET_FRAME_TOKENS + sum(map(estimate_tokens, texts))


def _left_out(hits: Sequence[NuggetHit], total: int) -> str:
    """Return `12 nuggets (3 constraint, 9 intent)`; the types only if all of them are known."""
    if len(hits) < total:
        return counted(total, "nugget")
    types = Counter(hit.unit.type if hit.unit else str(hit.nugget.type) for hit in hits)
    return f"{counted(total, 'nugget')} ({', '.join(f'{count} {name}' for name, count in types.most_common())})"
