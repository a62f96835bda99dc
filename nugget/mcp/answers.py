"""Answers of the MCP tools: a question in, markdown out, and openqed's three tools as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nugget.app.brains import checked
from nugget.errors import BrainError, NuggetError, UsageError
from nugget.models import Filter, KnowledgeType, Query, SourceName
from nugget.models.nuggets import NuggetType
from nugget.render import MAX_CHARS, ORDERS, bundle_markdown, fenced, provenance_markdown
from nugget.render.json import file_history_json
from nugget.text import CHARS_PER_TOKEN, clean, estimate_tokens, one_line, printable

if TYPE_CHECKING:
    from nugget.app.agent_session import AgentSession
    from nugget.models.nuggets import NuggetBundle
    from nugget.retrieval.refs import Shown

LARGEST_CHARS = 49_000
"""Claude Code puts results of more than 50,000 characters into a file and shows the first 2 KB of it."""
DEFAULT_TOKENS, _MIN_TOKENS = 2000, 100


def answer(session: AgentSession, question: Query, *, ref: str | None = None) -> str:
    """Answer one question in markdown, or show what `ref` names. Raises NuggetError."""
    if ref:
        shown = session.ready().get(ref, identity=session.identity)
        head = f"{one_line(shown.ref)}\n{ORDERS}\n"
        return fenced(head, clean(_text_of(shown)), len(head) + _budget(question) * CHARS_PER_TOKEN)
    if not question.text.strip():
        raise UsageError("task_description is empty.", hint="Say in a sentence what you are about to do.")
    return _answer_question(session, checked(question, question))


def propose(session: AgentSession, **given: Any) -> str:
    """Propose an agent's note; return a sentence on the outcome."""
    done = session.ready().propose(folder=session.cwd, **given)
    if done.skipped:
        return f"Nothing new was proposed: {one_line(done.skipped)}."
    return f"Proposed as {done.changes[0].unit.id}, on {done.branch}: a person decides on it (`nugget review`)."


def openqed_file_history(session: AgentSession, *, path: str, budget: float) -> dict[str, Any]:
    """Return as many of the sessions that touched a file as fit in the budget. Raises NuggetError."""
    found = session.explain_code(Query("", path=path, budget_tokens=1))
    place = found.query.path or path
    room, shown = int(budget) - estimate_tokens(json.dumps(file_history_json(place, (), shown=0))), 0
    for known in found.sessions:
        room -= estimate_tokens(json.dumps(file_history_json("", [known], shown=1)["sessions"]))
        if room < 0:
            break
        shown += 1
    return file_history_json(place, found.sessions, shown=shown)


def _answer_question(session: AgentSession, question: Query) -> str:
    """Answer from the known facts about the code in question, then from the sources.

    If sources are named, a path or symbol narrows provenance to its nuggets, and sessions to those that touched the
    file; the answer says which sources are not narrowed. Raises UsageError for memory without an identity.
    """
    sources, types, place = question.filter.sources, question.filter.types, _place(question)
    if told := session.latest_sessions(question):
        head = f"The latest sessions of this repository on: {one_line(question.text)}\nNot reviewed. {ORDERS}\n"
        return fenced(head, told, _max_chars(question)) if "\n" in told else told
    wants_code = not sources or SourceName.PROVENANCE in sources
    text, code = "", None
    if place and (wants_code or SourceName.SESSIONS in sources):
        share = 1 if set(sources) == {SourceName.PROVENANCE} else 2
        text, code = _code_part(session, question, budget_tokens=_budget(question) // share)
    parts = [_narrowing(place, sources, code)] if place and sources else []
    if text and (wants_code or not code):
        parts.append(text)
    is_answered = bool(text and wants_code)
    rest = tuple(name for name in sources if not (code and name is SourceName.PROVENANCE))
    touched = tuple(one.session for one in code.sessions) if code and SourceName.SESSIONS in rest else ()
    name = PurePath(question.path.replace("\\", "/")).name if question.path else ""
    query = replace(
        question, text=" ".join(filter(None, (question.text.strip(), question.symbol, name))), path=None, symbol=None,
        filter=replace(question.filter, sources=rest, sessions=touched),
        budget_tokens=max(_budget(question) - (code.budget.used if code and wants_code else 0), _MIN_TOKENS),
    )  # fmt: skip
    room = _max_chars(question) - sum(len(part) + 2 for part in parts)
    try:
        if not is_answered or rest or not (sources or (types and {*types}.isdisjoint(KnowledgeType))):
            parts.append(bundle_markdown(session.consult(query), room))
    except BrainError:
        if not is_answered:
            raise
    return "\n\n".join(parts)


def _narrowing(place: str, sources: Sequence[SourceName], code: NuggetBundle | None) -> str:
    """Return a sentence on which of the named sources were narrowed to a place."""
    narrowed = [name for name in sources if code and (name is SourceName.PROVENANCE or (
        name is SourceName.SESSIONS and code.sessions))]  # fmt: skip
    said = [f"only its {', '.join(narrowed)}"] if narrowed else []
    if unnarrowed := [name for name in sources if name not in narrowed]:
        said.append(f"{', '.join(unnarrowed)} cannot be narrowed to it: searched by words")
    return f"Asked about {place}: {'; '.join(said)}."


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


def _budget(question: Query) -> int:
    return question.budget_tokens or DEFAULT_TOKENS


def _max_chars(question: Query) -> int:
    """Return the maximum length of the answer."""
    return min(max(MAX_CHARS, 5 * _budget(question)), LARGEST_CHARS)


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
