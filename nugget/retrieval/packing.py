"""Packing hits into a token budget, in three passes: summaries, then passages, then whole units.

Tokens are estimated at four characters each. The budget covers everything that is shown of a unit, the lines
around its text included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from nugget.models import Budget, Depth, Hit, HitChunk
from nugget.text import estimate_tokens, shorten

FRAME_TOKENS = 60
"""What the frame of one unit costs when it is shown: title, id, path, dates and the fence around it."""

SUMMARY_CHARS = 240

_HEADING = re.compile(r"^#{1,6}[ \t].*$", re.MULTILINE)


def pack(hits: Sequence[Hit], *, budget_tokens: int, depth: Depth) -> tuple[tuple[Hit, ...], Budget, str | None]:
    """The hits that fit, best first, with the budget used and a hint at what was left out.

    Each hit comes with all its matching chunks, best first. Pass 1 admits as many units as fit with a summary each.
    Pass 2 (`standard`, `deep`) puts the matching passages in place of the summaries, then whole units in place of
    the passages, best unit first, as far as there is room. Pass 3 (`deep`) adds the evidence that a unit rests on.
    """
    shown: list[tuple[HitChunk, ...]] = []
    room = budget_tokens
    for hit in hits:
        summary = (_summary(hit),)
        cost = FRAME_TOKENS + _cost(summary)
        if cost > room:
            break
        shown.append(summary)
        room -= cost
    shortened = 0
    if depth is not Depth.SUMMARY:
        room, shortened = _widen(hits, shown, room, _passages)
        room, _ = _widen(hits, shown, room, _whole)
    if depth is Depth.DEEP:
        room, _ = _widen(hits, shown, room, _with_evidence)
    packed = tuple(replace(hit, chunks=chunks) for hit, chunks in zip(hits, shown, strict=False))
    left_out = [hit.unit.id for hit in hits[len(packed) :]]
    budget = Budget(requested=budget_tokens, used=budget_tokens - room, truncated=bool(left_out or shortened))
    return packed, budget, _hint(left_out, shortened)


def _widen(
    hits: Sequence[Hit],
    shown: list[tuple[HitChunk, ...]],
    room: int,
    choose: Callable[[Hit, tuple[HitChunk, ...], int], tuple[HitChunk, ...]],
) -> tuple[int, int]:
    """Show more of each unit, best first; gives the room that is left and how many got less than they would like."""
    shortened = 0
    for position, hit in enumerate(hits[: len(shown)]):
        now = shown[position]
        chosen = choose(hit, now, room + _cost(now))
        shortened += chosen is now
        room += _cost(now) - _cost(chosen)
        shown[position] = chosen
    return room, shortened


def _passages(hit: Hit, now: tuple[HitChunk, ...], room: int) -> tuple[HitChunk, ...]:
    fitting: list[HitChunk] = []
    for chunk in hit.chunks:
        if _cost([*fitting, chunk]) > room:
            break
        fitting.append(chunk)
    return tuple(sorted(fitting, key=lambda chunk: chunk.position)) or now  # chosen by match, read in order


def _whole(hit: Hit, now: tuple[HitChunk, ...], room: int) -> tuple[HitChunk, ...]:
    whole = (HitChunk(breadcrumb=hit.unit.title, text=hit.unit.body.strip(), score=hit.score),)
    return whole if _cost(whole) <= room else now


def _with_evidence(hit: Hit, now: tuple[HitChunk, ...], room: int) -> tuple[HitChunk, ...]:
    quotes = "\n".join(f"- {entry.session}: “{entry.quote}”" for entry in hit.unit.evidence)
    if not quotes:
        return now
    wider = (*now, HitChunk(breadcrumb=f"{hit.unit.title} > Evidence", text=quotes, score=0.0))
    return wider if _cost(wider) <= room else now


def _summary(hit: Hit) -> HitChunk:
    best = hit.chunks[0]
    text = _HEADING.sub("", best.text).strip() or best.text  # on one line a heading would run into its text
    return HitChunk(breadcrumb=best.breadcrumb, text=shorten(text, SUMMARY_CHARS), score=best.score)


def _cost(chunks: Sequence[HitChunk]) -> int:
    return sum(estimate_tokens(chunk.breadcrumb) + estimate_tokens(chunk.text) for chunk in chunks)


def _hint(left_out: Sequence[str], shortened: int) -> str | None:
    parts = []
    if left_out:
        names = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
        parts.append(f"{len(left_out)} more relevant: {names}")
    if shortened:
        parts.append(f"{shortened} shown as a summary only")
    return f"{'; '.join(parts)}. Ask again with a larger token budget." if parts else None
