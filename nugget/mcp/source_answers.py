"""Answers to agents from other sources than the brain: the best of each within a budget, or one ref whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nugget.errors import UsageError
from nugget.mcp.agent_code import CodePart, code_part
from nugget.models import Bundle, Depth, Hit, SourceName
from nugget.render import MAX_CHARS, ORDERS, bundle_markdown, clean, degraded_sentences, fence, one_line
from nugget.text import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.provenance.answering import CodeAnswer
    from nugget.retrieval.refs import Shown

LEAST_TOKENS = 100
"""Of a budget; less is not worth an answer."""
BEHIND = frozenset({"index_behind", "vectors_behind"})
"""What an answer lacks that a sync would give it."""
_RESULTS = 8
"""Of each source; the budget decides how many of all of them are shown."""
_NOTHING_ELSE = ("", SourceName.BRAIN)


def is_beyond_the_brain(sources: Sequence[str]) -> bool:
    """Whether a question names another source than the brain."""
    return any(name not in _NOTHING_ELSE for name in sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The code that a question is about, as the agent named it; empty where it is about none."""

    path: str | None = None
    symbol: str | None = None

    @property
    def name(self) -> str:
        """How it is called in an answer."""
        return " in ".join(one_line(part) for part in (self.symbol, self.path) if part)


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
    place: Place,
    code: Callable[..., CodeAnswer],
    catch_up: Callable[[], None],
) -> str:
    """Markdown of what a ref names, else of what these sources know, best first, within the budget.

    A `place` narrows provenance to its nuggets and sessions to those that touched the file (`code` answers for it);
    it is said which sources it cannot narrow. Memory is that of `identity`, the one that the server was started with.
    Where much changed that is not known yet, `catch_up` is to take it in. Raises UsageError where there is no identity.
    """
    from nugget.retrieval.packing import pack

    if ref:
        return answer_ref(brain, ref, budget_tokens=budget_tokens, identity=identity)
    _check_memory(SourceName.MEMORY in sources, identity)
    said = CodePart()
    if place.name and {SourceName.PROVENANCE, SourceName.SESSIONS} & {*sources}:
        share = budget_tokens if set(sources) == {SourceName.PROVENANCE} else budget_tokens // 2
        said = code_part(code, path=place.path, symbol=place.symbol, types=types, depth=depth,
                         budget_tokens=max(share, LEAST_TOKENS), max_chars=max_chars // 2)  # fmt: skip
    narrowed = {SourceName.PROVENANCE} if said.text and said.is_found else set[SourceName]()
    parts = [said.text] if SourceName.PROVENANCE in sources or not said.is_found else []
    rest = [name for name in sources if name not in narrowed]
    if place.name:
        parts.insert(0, _how_narrowed(place, sources, narrowed, said.sessions))
    if rest:
        left = max(budget_tokens - (said.used if SourceName.PROVENANCE in sources else 0), LEAST_TOKENS)
        bundle, results = _searched(brain, text, rest, said.sessions, types=types, identity=identity, depth=depth)
        if BEHIND & {*bundle.degraded}:
            catch_up()
        packed, budget, hint = pack(sorted(results, key=lambda hit: -hit.score), budget_tokens=left, depth=Depth(depth))
        room = max_chars - sum(len(part) + 2 for part in parts if part)
        shown = bundle_markdown(replace(bundle, hits=packed, budget=budget, more_context_hint=hint), room)
        missing = degraded_sentences(bundle.degraded)
        note = f"\nNote: {'; '.join(missing)}." if missing else ""
        parts.append(shown if packed else f"Nothing in {', '.join(rest)} on: {one_line(text)}{note}")
    return "\n\n".join(part for part in parts if part)


def _searched(
    brain: Brain, text: str, sources: Sequence[str], sessions: Sequence[str], *, types: Sequence[str],
    identity: str | None, depth: str,
) -> tuple[Bundle, list[Hit]]:  # fmt: skip
    """What the sources know of a text; of sessions, where some are named, what was said in these."""
    asked: list[tuple[list[str], Sequence[str]]] = [([*sources], ())]
    if sessions and SourceName.SESSIONS in sources:
        others = [name for name in sources if name != SourceName.SESSIONS]
        asked = [*([(others, ())] if others else []), ([SourceName.SESSIONS], sessions)]
    bundles = [
        brain.search_all(text, limit=_RESULTS, sources=names, sessions=ids, types=types, as_identity=identity,
                         profile="task", depth=depth)[0]
        for names, ids in asked
    ]  # fmt: skip
    hits = [hit for bundle in bundles for hit in bundle.hits]
    degraded = tuple(dict.fromkeys(reason for bundle in bundles for reason in bundle.degraded))
    return replace(bundles[0], degraded=degraded, weak=all(bundle.weak for bundle in bundles)), hits


def _how_narrowed(place: Place, sources: Sequence[str], narrowed: set[SourceName], sessions: Sequence[str]) -> str:
    """Which sources a place narrows, and which it cannot, in a line for the agent."""
    told = []
    if SourceName.PROVENANCE in narrowed and SourceName.PROVENANCE in sources:
        told.append(f"provenance is what is known of {place.name}")
    if SourceName.SESSIONS in sources and sessions:
        told.append(f"sessions are those known to have touched it ({len(sessions)})")
    rest = [name for name in sources if name not in narrowed and not (name == SourceName.SESSIONS and sessions)]
    if SourceName.SESSIONS in rest and SourceName.PROVENANCE in narrowed:
        told.append("no session is known to have touched it")
    if rest:
        told.append(
            f"{', '.join(rest)} cannot be narrowed to it and {'are' if len(rest) > 1 else 'is'} searched by words"
        )
    return f"Asked about {place.name}: {'; '.join(told)}."


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
