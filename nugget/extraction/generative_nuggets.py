"""Nuggets from a session by an LLM: window by window, each checked against what was shown, within the cost cap.

Nothing is invented: a nugget without a quote that stands word for word in the session is dropped, and so is one in
another language than the session's. A path that is no file of the workspace scopes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nugget.config import Settings
from nugget.extraction.generative import (
    CAP_WINDOW,
    METHOD,
    Work,
    ask_model,
    plan_windows,
    prompt_text,
    read_each,
)
from nugget.extraction.places import Places
from nugget.extraction.reasons import is_repeated
from nugget.extraction.replies import Shown, bounded, find_quote, is_foreign, support_of, without_invisible
from nugget.extraction.requests import one_line
from nugget.infra.llm.gate import problems_in
from nugget.models import EventKind, Scope, Session, Speaker
from nugget.models.nuggets import FileTouch, Nugget, NuggetType
from nugget.models.sessions import is_own_words, origin_of, speaker_of
from nugget.redaction import allow_list, redact
from nugget.text import shorten

if TYPE_CHECKING:
    from nugget.infra.llm import Model

MAX_NUGGETS = 16
"""Nuggets asked for in one window, at most."""
_MAX_READ = 40
_MAX_FILES = 200
_REPEATS = 0.8
_RULES = (NuggetType.CONSTRAINT, NuggetType.DECISION, NuggetType.REJECTION)

_TEXT: dict[str, Any] = {"type": "string"}
_FIELDS: dict[str, Any] = {
    "type": _TEXT | {"enum": [kind.value for kind in NuggetType]},
    "summary": _TEXT | {"minLength": 8, "maxLength": 300},
    "detail": _TEXT | {"maxLength": 2000}, "path": _TEXT | {"maxLength": 500}, "symbol": _TEXT | {"maxLength": 200},
    "confidence": {"type": "number", "description": "0 to 1"},
    "quotes": {"type": "array", "items": _TEXT, "minItems": 1}, "alternatives": {"type": "array", "items": _TEXT},
}  # fmt: skip
NUGGET_SCHEMA: Mapping[str, Any] = {
    "type": "object", "additionalProperties": False, "required": list(_FIELDS), "properties": _FIELDS
}  # fmt: skip
_WINDOW_SCHEMA: Mapping[str, Any] = {
    "type": "object", "additionalProperties": False, "required": ["nuggets"],
    "properties": {"nuggets": {"type": "array", "items": NUGGET_SCHEMA}},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeNuggets:
    """What an LLM found: the nuggets (without ids), why others were dropped, and what it cost."""

    nuggets: tuple[Nugget, ...]
    dropped: tuple[str, ...] = ()
    usd: float = 0.0


def extract_nuggets(
    session: Session, *, llm: Model, settings: Settings, places: Places, touches: Sequence[FileTouch],
    now: datetime,
) -> GenerativeNuggets:  # fmt: skip
    """Find nuggets in a session that is redacted already.

    What was spent on the session within a day counts against `llm.max_usd_per_session`. When the cap is reached
    between two windows, what was found until then is kept. Raises LLMUnavailable when a call fails for any other
    reason, or when no reply could be used at all.
    """
    work = Work(
        session=session, llm=llm, settings=settings, nearest=None, now=now,
        spent_before_usd=llm.spent_usd(session.id, within=CAP_WINDOW),
    )  # fmt: skip
    texts = plan_windows(work)
    system = prompt_text("nuggets", max_nuggets=MAX_NUGGETS)
    listed = "\n".join(f"{touch.action} {touch.path}" for touch in touches[:_MAX_FILES]) or "(none)"
    files = llm.fence(f"Files that the session touched:\n{listed}", "passage")

    def ask(text: str, part: int) -> object:
        ending = "Find the nuggets in the session."
        if len(texts) > 1:
            ending = f"This is part {part} of {len(texts)} of the session. Find the nuggets in it."
        prompt = "\n\n".join([files, llm.fence(text, "session"), ending])
        return ask_model(
            work, system=system, prompt=prompt, schema=_WINDOW_SCHEMA, max_tokens=work.max_tokens,
            purpose="provenance",
        )  # fmt: skip

    found: list[Nugget] = []
    for part, value in read_each(work, texts, ask):
        for outcome in _read(value, texts[part - 1], work, places, touches):
            if isinstance(outcome, str):
                work.dropped.append(outcome)
            elif not is_repeated(outcome, found, least=_REPEATS):
                found.append(outcome)
    return GenerativeNuggets(nuggets=tuple(found), dropped=tuple(work.dropped), usd=work.usd)


def _read(value: object, text: str, work: Work, places: Places, touches: Sequence[FileTouch]) -> Iterator[Nugget | str]:
    """Yield the nugget, or why it is dropped, for each entry of a reply. `value` may be anything at all."""
    listed = value.get("nuggets") if isinstance(value, dict) else None
    for entry in listed[:_MAX_READ] if isinstance(listed, list) else ():
        if problems := problems_in(entry, NUGGET_SCHEMA, where="nugget"):
            named = entry.get("summary") if isinstance(entry, dict) else None
            name = shorten(named, 80) if isinstance(named, str) and named.strip() else "a nugget without a summary"
            yield f"{name}: {shorten('; '.join(problems), 200)}"
        else:
            yield _nugget(entry, text, work, places, touches)


def _nugget(
    entry: Mapping[str, Any], text: str, work: Work, places: Places, touches: Sequence[FileTouch]
) -> Nugget | str:
    session, allow = work.session, allow_list(work.settings)

    def clean(said: str) -> str:
        return " ".join(redact(without_invisible(said), allow=allow).text.split())

    summary, detail = one_line(clean(entry["summary"])), shorten(clean(entry["detail"]), 1000)
    shown = Shown(text=text)
    quotes = [find_quote(quote, shown, session) for quote in entry["quotes"][:5]]
    evidence = tuple(dict.fromkeys(one for one in quotes if one is not None))
    support = support_of(summary, detail, evidence, shown) if evidence else None
    problems = {
        "it has no summary": not summary,
        "its quote is not in the session": not evidence,
        "not in the language of the session": is_foreign(f"{summary}\n{detail}", session),
        "rests only on what was printed, pasted or quoted": entry["type"] in _RULES and not is_own_words(evidence),
        "its quotes do not say it": bool(evidence) and support is None,
    }
    if problem := next((problem for problem, is_met in problems.items() if is_met), ""):
        return f"{shorten(summary, 80)}: {problem}"
    touched = {touch.path: touch for touch in touches}
    path = entry["path"].strip()
    if path not in touched:
        path = places.find(path)
        path = path if path in touched or (path and places.is_file(path)) else None
    symbol = entry["symbol"].strip().removesuffix("()")
    symbol = symbol if path and re.fullmatch(r"[A-Za-z_$][\w$.:<>-]{0,199}", symbol) else None
    records = {name for one in evidence for name in one.records}
    return Nugget(
        id="", type=NuggetType(entry["type"]), summary=summary, detail="" if detail == summary else detail,
        confidence=bounded(entry["confidence"], support or 0), session=session.id, agent=session.agent,
        scope=Scope(repo=places.repo, path=path, symbol=symbol), session_started=session.started,
        extracted_at=work.now, alternatives=tuple(
            shorten(clean(one), 200) for one in entry["alternatives"][:6] if one.strip()
        ),
        source_prompt=_prompt_before(session, records),
        file_hash=touched[path].after_hash if path in touched else None, method=METHOD, evidence=evidence,
        speaker=speaker_of(evidence), origin=origin_of(evidence),
    )  # fmt: skip


def _prompt_before(session: Session, records: set[str]) -> str:
    """Return the last request of the person before the first of these records was written."""
    asked = ""
    for event in session.events:
        is_own = event.kind is EventKind.PROMPT and event.speaker is not Speaker.QUOTED
        if is_own and (len(event.text) > 20 or not asked):
            asked = event.text
        if event.uuid in records:
            break
    return shorten(asked, 500)
