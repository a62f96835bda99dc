"""Packing nuggets into a token budget in three passes: summaries, then details, then the prompts that they came from.

Tokens are estimated at four characters each. What a nugget costs is its text, its scope, and `FRAME_TOKENS` for the
names and values around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from nugget.models import Budget, Depth
from nugget.models.nuggets import Nugget, NuggetHit, scope_text
from nugget.text import counted, estimate_tokens

FRAME_TOKENS = 30
"""Type, confidence, date and agent of one nugget, with their keys."""


def pack(
    hits: Sequence[NuggetHit], *, budget_tokens: int, depth: Depth, candidates: int | None = None
) -> tuple[tuple[NuggetHit, ...], Budget, str | None]:
    """The nuggets that fit, in order, with the budget used and a hint at what was left out.

    Pass 1 admits as many nuggets as fit with their summaries. Pass 2 (`standard`, `deep`) adds details and
    alternatives, best nugget first, where they fit. Pass 3 (`deep`) adds the source prompts. `candidates` is how many
    nuggets there are, where `hits` are only the best of them.
    """
    room = budget_tokens
    packed: list[NuggetHit] = []
    for hit in hits:
        bare = replace(hit, nugget=replace(hit.nugget, detail="", alternatives=(), source_prompt=""))
        cost = _summary_cost(bare.nugget)
        if cost > room:
            break
        packed.append(bare)
        room -= cost
    missing: list[str] = []
    if depth is not Depth.SUMMARY:
        room, left = _add(hits, packed, room, _with_detail, _detail_cost)
        missing += [f"the details of {counted(left, 'nugget')}"] if left else []
    if depth is Depth.DEEP:
        room, left = _add(hits, packed, room, _with_prompt, _prompt_cost)
        missing += [f"the prompts of {counted(left, 'nugget')}"] if left else []
    total = max(len(hits), candidates or 0)
    if total > len(packed):
        missing.insert(0, _left_out(hits[len(packed) :], total - len(packed)))
    hint = f"Left out for lack of room: {'; '.join(missing)}. A larger budget shows more." if missing else None
    return tuple(packed), Budget(requested=budget_tokens, used=budget_tokens - room, truncated=bool(missing)), hint


def _add(
    hits: Sequence[NuggetHit],
    packed: list[NuggetHit],
    room: int,
    widen: Callable[[NuggetHit, Nugget], NuggetHit],
    cost_of: Callable[[Nugget], int],
) -> tuple[int, int]:
    """Show more of each packed nugget, best first; the room that is left, and how many got nothing more."""
    left = 0
    for position, now in enumerate(packed):
        cost = cost_of(hits[position].nugget)
        if cost > room:
            left += 1
        elif cost:
            packed[position] = widen(now, hits[position].nugget)
            room -= cost
    return room, left


def _with_detail(hit: NuggetHit, whole: Nugget) -> NuggetHit:
    return replace(hit, nugget=replace(hit.nugget, detail=whole.detail, alternatives=whole.alternatives))


def _with_prompt(hit: NuggetHit, whole: Nugget) -> NuggetHit:
    return replace(hit, nugget=replace(hit.nugget, source_prompt=whole.source_prompt))


def _summary_cost(nugget: Nugget) -> int:
    return FRAME_TOKENS + estimate_tokens(nugget.summary) + estimate_tokens(scope_text(nugget))


def _detail_cost(nugget: Nugget) -> int:
    return estimate_tokens(nugget.detail) + sum(map(estimate_tokens, nugget.alternatives))


def _prompt_cost(nugget: Nugget) -> int:
    return estimate_tokens(nugget.source_prompt)


def _left_out(hits: Sequence[NuggetHit], total: int) -> str:
    """`12 nuggets (3 constraint, 9 intent)`; the types only where all of them are known."""
    if len(hits) < total:
        return counted(total, "nugget")
    types = Counter(hit.unit.type if hit.unit else str(hit.nugget.type) for hit in hits)
    return f"{counted(total, 'nugget')} ({', '.join(f'{count} {name}' for name, count in types.most_common())})"
