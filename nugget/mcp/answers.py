"""Answers of the MCP tools: a question in, markdown out, and openqed's three tools as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nugget.errors import BrainError, NuggetError, UsageError
from nugget.models import Filter, KnowledgeType, Query, SourceName
from nugget.models.nuggets import TYPES, NuggetType
from nugget.render import MAX_CHARS, ORDERS, bundle_markdown, degraded_sentences, fence, provenance_markdown
from nugget.render.json import context_json, decisions_json, file_history_json
from nugget.text import CHARS_PER_TOKEN, clean, estimate_tokens, one_line, printable

if TYPE_CHECKING:
    from nugget.app.agent_session import AgentSession
    from nugget.models.nuggets import NuggetBundle
    from nugget.retrieval.refs import Shown

LARGEST_CHARS = 49_000
"""Claude Code puts results of more than 50,000 characters into a file and shows the first 2 KB of it."""
DECISIVE = (NuggetType.DECISION, NuggetType.REJECTION, NuggetType.CONSTRAINT)
"""The types that `openqed_decisions` returns."""

REVIEWED = (SourceName.BRAIN, SourceName.CANON)
"""The sources of an answer if none is named: what people wrote or reviewed."""
DEFAULT_TOKENS, _MIN_TOKENS = 2000, 100
_HITS_A_SOURCE = 8


def answer(session: AgentSession, question: Query, *, ref: str | None = None) -> str:
    """Answer one question in markdown, or show what `ref` names. Raises NuggetError."""
    _check(question, ref=ref)
    if ref:
        return _answer_ref(session, ref, budget_tokens=_budget(question))
    return _answer_sources(session, question) if _is_beyond_the_brain(question) else _answer_brain(session, question)


def propose(session: AgentSession, **given: Any) -> str:
    """Propose an agent's note; return a sentence on the outcome."""
    done = session.ready().propose(folder=session.cwd, **given)
    if done.skipped:
        return f"Nothing new was proposed: {one_line(done.skipped)}."
    return f"Proposed as {done.changes[0].unit.id}, on {done.branch}: a person decides on it (`nugget review`)."


def openqed_context(session: AgentSession, query: Query) -> dict[str, Any]:
    """Return openqed's `ContextResponse`. Raises NuggetError."""
    return context_json(session.explain_code(query), strict=True)


def openqed_file_history(session: AgentSession, *, path: str, budget: float) -> dict[str, Any]:
    """Return the sessions that touched a file, as many as fit into the budget. Raises NuggetError."""
    found = session.explain_code(Query("", path=path, budget_tokens=1))
    place = found.query.path or path
    room, shown = int(budget) - estimate_tokens(json.dumps(file_history_json(place, (), shown=0))), 0
    for known in found.sessions:
        room -= estimate_tokens(json.dumps(file_history_json("", [known], shown=1)["sessions"]))
        if room < 0:
            break
        shown += 1
    return file_history_json(place, found.sessions, shown=shown)


def openqed_decisions(session: AgentSession, *, path: str | None, budget: float) -> dict[str, Any]:
    """Return decisions, rejections and constraints of a path or of the workspace. Raises NuggetError."""
    query = Query("", path=path or ".", filter=Filter(types=DECISIVE), budget_tokens=int(budget))
    return decisions_json(session.explain_code(query))


def _answer_brain(session: AgentSession, question: Query) -> str:
    """Answer from the brain and, by default, canon, after known facts about the code in question."""
    given, budget = question.filter, _budget(question)
    text, code = _code_part(session, question, budget_tokens=budget // 2)
    types = tuple(name for name in given.types if name in list(KnowledgeType))
    if text and given.types and not types:
        return text
    try:
        brain = session.ready()
    except BrainError:
        if text:
            return text
        raise
    query = replace(
        question, text=_words(question), path=None, symbol=None, only_helpful=True,
        filter=Filter(types=types, sources=given.sources or REVIEWED),
        budget_tokens=max(budget - (code.budget.used if code else 0), _MIN_TOKENS),
    )  # fmt: skip
    bundle = session.caught_up(brain.ask(query, reranker=brain.reranker(session.llm(brain))))
    if not text:
        return bundle_markdown(bundle, _max_chars(question))
    return f"{text}\n\n{bundle_markdown(bundle, _max_chars(question) - len(text) - 2)}"


def _answer_sources(session: AgentSession, question: Query) -> str:
    """Answer from the named sources, best first.

    A path or symbol narrows provenance to its nuggets, and sessions to those that touched the file; the answer says
    which sources are not narrowed. Raises UsageError for memory without an identity.
    """
    sources, budget, place = question.filter.sources, _budget(question), _place(question)
    wants_code = SourceName.PROVENANCE in sources
    text, code = "", None
    if place and (wants_code or SourceName.SESSIONS in sources):
        share = budget if set(sources) == {SourceName.PROVENANCE} else budget // 2
        text, code = _code_part(session, question, budget_tokens=share)
    narrowed = [SourceName.PROVENANCE] * bool(wants_code and code)
    rest = tuple(name for name in sources if name not in narrowed)
    narrowed += [SourceName.SESSIONS] * bool(SourceName.SESSIONS in rest and code and code.sessions)
    parts = []
    if place:
        said = [f"only its {', '.join(narrowed)}"] if narrowed else []
        if unnarrowed := [name for name in sources if name not in narrowed]:
            said.append(f"{', '.join(unnarrowed)} cannot be narrowed to it: searched by words")
        parts.append(f"Asked about {place}: {'; '.join(said)}.")
    parts += [text] if wants_code or not code else []
    if rest:
        words = _words(question)
        query = Query(
            words, filter=Filter(sources=rest, types=question.filter.types), profile="task",
            limit=question.limit or _HITS_A_SOURCE, depth=question.depth,
        )  # fmt: skip
        left = max(budget - (code.budget.used if code and wants_code else 0), _MIN_TOKENS)
        bundle = session.search(query, [one.session for one in code.sessions] if code else [], budget_tokens=left)
        if bundle.hits:
            room = _max_chars(question) - sum(len(part) + 2 for part in parts if part)
            parts.append(bundle_markdown(bundle, room))
        else:
            missing = degraded_sentences(bundle.degraded)
            note = f"\nNote: {'; '.join(missing)}." if missing else ""
            parts.append(f"Nothing in {', '.join(rest)} on: {one_line(words)}{note}")
    return "\n\n".join(part for part in parts if part)


def _code_part(session: AgentSession, question: Query, *, budget_tokens: int) -> tuple[str, NuggetBundle | None]:
    """Return provenance of the question's path or symbol, as markdown and as a value.

    If it cannot be found, the markdown says so and the rest of the answer goes on. If `types` name no type of nugget,
    the markdown is empty.
    """
    types = tuple(name for name in question.filter.types if name in list(NuggetType))
    if not _place(question) or (question.filter.types and not types):
        return "", None
    try:
        asked = replace(question, text="", filter=Filter(types=types), budget_tokens=max(budget_tokens, _MIN_TOKENS))
        found = session.explain_code(asked)
    except NuggetError as error:
        named = printable(question.path or question.symbol or "")
        return f"Nothing is known about {named}: {error}", None
    return provenance_markdown(found, _max_chars(question) // 2), found


def _place(question: Query) -> str:
    """Return the symbol and path of the question on one line; empty if it has none."""
    return " in ".join(one_line(part) for part in (question.symbol, question.path) if part)


def _words(question: Query) -> str:
    """Return the task followed by the symbol and the file's name."""
    name = PurePath(question.path.replace("\\", "/")).name if question.path else ""
    return " ".join(part for part in (question.text.strip(), question.symbol, name) if part)


def _is_beyond_the_brain(question: Query) -> bool:
    """Return whether a question names another source than the brain."""
    return any(name is not SourceName.BRAIN for name in question.filter.sources)


def _budget(question: Query) -> int:
    return question.budget_tokens or DEFAULT_TOKENS


def _max_chars(question: Query) -> int:
    """Return the maximum length of the answer."""
    return min(max(MAX_CHARS, 5 * _budget(question)), LARGEST_CHARS)


def _answer_ref(session: AgentSession, ref: str, *, budget_tokens: int) -> str:
    """Return what a ref names, cut at the budget and fenced as reference material."""
    shown = session.ready().get(ref, identity=session.identity)
    body, room = clean(_text_of(shown)), budget_tokens * CHARS_PER_TOKEN
    if len(body) > room:
        body = f"{body[:room].rpartition(chr(10))[0] or body[:room]}\n[…]"
    marks = fence(body)
    return f"{one_line(shown.ref)}\n{ORDERS}\n\n{marks}text reference\n{body}\n{marks}"


def _text_of(shown: Shown) -> str:
    if shown.unit is not None:
        unit = shown.unit
        facts = " · ".join(str(fact) for fact in (unit.type, unit.domain, unit.created or unit.last_modified) if fact)
        return f"{one_line(unit.title)}\n{facts}\n\n{unit.body}"
    assert shown.excerpt is not None
    said = [
        f"{'> ' if passage.is_target else ''}{passage.speaker or passage.role.title()}"
        f"{f' ({passage.timestamp:%Y-%m-%d %H:%M})' if passage.timestamp else ''}:\n{passage.text}"
        for passage in shown.excerpt.passages
    ]
    return "\n\n".join([one_line(shown.excerpt.title or shown.excerpt.session), *said])


def _check(question: Query, *, ref: str | None) -> None:
    """Check arguments that neither the tool's schema nor the brain checks. Raises UsageError."""
    if not question.text.strip() and not ref:
        raise UsageError("task_description is empty.", hint="Say in a sentence what you are about to do.")
    named: Sequence[str] = TYPES if _is_beyond_the_brain(question) else list(KnowledgeType)
    known = [*named, *(NuggetType if _place(question) else ())]
    if unknown := [name for name in question.filter.types if name not in known]:
        raise UsageError(f"There is no type {unknown[0]!r}.", hint=f"Types are: {', '.join(named)}.")
