"""Answers to agents from other sources than the brain: the best of each within a budget, or one ref whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nugget.errors import UsageError
from nugget.models import Depth, SourceName
from nugget.render import MAX_CHARS, ORDERS, bundle_markdown, clean, fence, one_line
from nugget.text import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from nugget.api import Brain
    from nugget.refs import Shown

_RESULTS = 8
"""Of each source; the budget decides how many of all of them are shown."""
_NOTHING_ELSE = ("", SourceName.BRAIN)


def is_beyond_the_brain(sources: Sequence[str]) -> bool:
    """Whether a question names another source than the brain."""
    return any(name not in _NOTHING_ELSE for name in sources)


def answer_beyond(
    brain: Brain,
    text: str,
    *,
    ref: str | None,
    sources: Sequence[str],
    types: Sequence[str] = (),
    depth: str = Depth.STANDARD,
    budget_tokens: int,
    max_chars: int = MAX_CHARS,
    identity: str | None = None,
) -> str:
    """Markdown of what a ref names, else of what these sources know, best first, within the budget.

    Memory is that of `identity`, the one that the server was started with. Raises UsageError where there is none.
    """
    from nugget.retrieval.packing import pack

    if ref:
        return answer_ref(brain, ref, budget_tokens=budget_tokens, identity=identity)

    _check_memory(SourceName.MEMORY in sources, identity)
    bundle, results = brain.search_all(
        text, limit=_RESULTS, sources=sources, types=types, as_identity=identity, profile="task", depth=depth
    )
    hits = sorted(results.hits, key=lambda hit: -hit.score)
    packed, budget, hint = pack(hits, budget_tokens=budget_tokens, depth=Depth(depth))
    return bundle_markdown(replace(bundle, hits=packed, budget=budget, more_context_hint=hint), max_chars)


def answer_ref(brain: Brain, ref: str, *, budget_tokens: int, identity: str | None = None) -> str:
    """Markdown of what a ref names, whole as far as the budget goes, fenced as reference material.

    Raises UsageError for what is no ref, NuggetError where nothing is known by it.
    """
    _check_memory(ref.strip().startswith(f"{SourceName.MEMORY}:"), identity)
    shown = brain.get(ref, as_identity=identity)
    body = clean(_text_of(shown))
    room = budget_tokens * CHARS_PER_TOKEN
    if len(body) > room:
        body = f"{body[:room].rpartition(chr(10))[0] or body[:room]}\n[…]"
    marks = fence(body)
    return f"{one_line(shown.ref)}\n{ORDERS}\n\n{marks}text reference\n{body}\n{marks}"


def _check_memory(is_wanted: bool, identity: str | None) -> None:
    if is_wanted and identity is None:
        raise UsageError(
            "Memory is private to an identity, and this server was started without one.",
            hint="Go on without it, or ask the person you work for to start `nugget serve --as IDENTITY`.",
        )


def _text_of(shown: Shown) -> str:
    if shown.unit is not None:
        unit = shown.unit
        day = unit.last_modified or unit.created
        facts = " · ".join(str(fact) for fact in (unit.type, unit.domain, day) if fact)
        return f"{one_line(unit.title)}\n{facts}\n\n{unit.body}"
    assert shown.stretch is not None
    stretch = shown.stretch
    said = [
        f"{'> ' if passage.is_asked_for else ''}{passage.speaker or passage.role.label}"
        f"{f' ({passage.timestamp:%Y-%m-%d %H:%M})' if passage.timestamp else ''}:\n{passage.text}"
        for passage in stretch.passages
    ]
    return "\n\n".join([one_line(stretch.title or stretch.session), *said])
