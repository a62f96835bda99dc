"""Nuggets from a session by an LLM: window by window, each checked against what was shown, within the cost cap.

Nothing is invented: a nugget without a quote that stands word for word in the session is dropped, and so is one in
another language than the session's. A path that is no file of the workspace scopes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
from nugget.extraction.replies import Shown, bounded, cleaned, proved, well_formed
from nugget.extraction.requests import one_line
from nugget.models import EventKind, Scope, Session, Speaker
from nugget.models.nuggets import FileTouch, Nugget, NuggetType
from nugget.models.sessions import origin_of, speaker_of
from nugget.redaction import allow_list
from nugget.text import shorten

if TYPE_CHECKING:
    from nugget.infra.llm import Model

MAX_NUGGETS = 16
"""Nuggets asked for in one window, at most."""
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
        for entry in well_formed(value, "nugget", NUGGET_SCHEMA):
            outcome = entry if isinstance(entry, str) else _nugget(entry, texts[part - 1], work, places, touches)
            if isinstance(outcome, str):
                work.dropped.append(outcome)
            elif not is_repeated(outcome, found, least=_REPEATS):
                found.append(outcome)
    return GenerativeNuggets(nuggets=tuple(found), dropped=tuple(work.dropped), usd=work.usd)


def _nugget(
    entry: Mapping[str, Any], text: str, work: Work, places: Places, touches: Sequence[FileTouch]
) -> Nugget | str:
    session, allow = work.session, allow_list(work.settings)
    summary = one_line(" ".join(cleaned(entry["summary"], allow).split()))
    detail = shorten(" ".join(cleaned(entry["detail"], allow).split()), 1000)
    is_rule = entry["type"] in _RULES
    found = proved(summary, detail or summary, entry["quotes"], Shown(text=text), session, is_rule=is_rule)
    if isinstance(found, str):
        return f"{shorten(summary, 80) or 'a nugget without a summary'}: {found}"
    evidence, support = found
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
        confidence=bounded(entry["confidence"], support), session=session.id, agent=session.agent,
        scope=Scope(repo=places.repo, path=path, symbol=symbol), session_started=session.started,
        extracted_at=work.now, alternatives=tuple(
            shorten(cleaned(one, allow), 200) for one in entry["alternatives"][:6] if one.strip()
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
