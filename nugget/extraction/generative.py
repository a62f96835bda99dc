"""Extract knowledge and nuggets from a session with an LLM, window by window, within a cap on tokens and money.

A unit or nugget is dropped if it quotes nothing verbatim from the session or is in another language (see replies.py).
A malformed reply is requested once more, and its valid parts are kept. A path must be a file of the workspace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from nugget.config import Settings
from nugget.errors import LLMUnavailable
from nugget.extraction.places import Places
from nugget.extraction.proposals import Extraction, Proposal, project_of
from nugget.extraction.reasons import is_repeated
from nugget.extraction.replies import WINDOW_SCHEMA, bounded, cleaned, filled, proposal_of, proved, well_formed
from nugget.extraction.requests import one_line
from nugget.infra.llm import prompt_text
from nugget.infra.llm.gate import BadReply, CostCapReached, Request, estimate_cost_usd, object_schema
from nugget.models import EventKind, RelationType, Scope, Session, Speaker, Unit
from nugget.models.nuggets import FileTouch, Nugget, NuggetType
from nugget.models.sessions import origin_of, speaker_of
from nugget.redaction import allow_list
from nugget.sources.condense import clip, cut_at_lines, windows
from nugget.text import shorten, slugify

if TYPE_CHECKING:
    from nugget.infra.llm import Model

METHOD = "generative"
MAX_WINDOWS = 8
MAX_UNITS, MAX_NUGGETS = 5, 16
"""The most units and nuggets to ask for in one window."""

Nearest = Callable[[str], Sequence[Unit]]
"""A function that returns the units of the brain nearest to a text, best first."""

MAX_OUTPUT_TOKENS = 10_000
_EXPECTED_OUTPUT_TOKENS = 4_000
_LEAST_WINDOW_CHARS = 4_000
_OVERHEAD_CHARS = 20_000
_OUTPUT_CHARS = (1600, 600, 200)
_EXISTING_SHOWN, _EXISTING_CHARS = 12, 400
_QUERIES, _QUERY_CHARS = 8, 400
_MAX_FILES = 200
_REPEATS = 0.8
CAP_WINDOW = timedelta(days=1)

_TEXT: dict[str, Any] = {"type": "string"}
_FIELDS: dict[str, Any] = {
    "type": _TEXT | {"enum": [kind.value for kind in NuggetType]},
    "summary": _TEXT | {"minLength": 8, "maxLength": 300},
    "detail": _TEXT | {"maxLength": 2000}, "path": _TEXT | {"maxLength": 500}, "symbol": _TEXT | {"maxLength": 200},
    "confidence": {"type": "number", "description": "0 to 1"},
    "quotes": {"type": "array", "items": _TEXT, "minItems": 1}, "alternatives": {"type": "array", "items": _TEXT},
}  # fmt: skip
_NUGGETS_SCHEMA = object_schema({"nuggets": {"type": "array", "items": object_schema(_FIELDS)}})


@dataclass(slots=True, kw_only=True)
class Work:
    """The state of one extraction: its cost so far, and why candidates were dropped."""

    session: Session
    llm: Model
    settings: Settings
    now: datetime
    usd: float = 0.0
    dropped: list[str] = field(default_factory=list)

    @property
    def left_usd(self) -> float:
        """The dollars that this session may still cost; retries within a day share one cap."""
        return self.settings.llm_max_usd_per_session - self.llm.spent_usd(self.session.id, within=CAP_WINDOW)

    @property
    def max_tokens(self) -> int:
        """The most tokens that a reply may have, fewer for a model with a small context."""
        return min(MAX_OUTPUT_TOKENS, self.settings.extraction_window_chars // 4)

    def cost_usd(self, chars: int, max_output_tokens: int) -> float:
        """Return the highest cost, in dollars, of a request of `chars` characters."""
        price = self.llm.price(self.settings.llm_extract_model)
        return estimate_cost_usd(price, "x" * chars, max_output_tokens=max_output_tokens)


def extract_generative(
    session: Session, *, llm: Model, settings: Settings, nearest: Nearest | None = None, now: datetime
) -> Extraction:
    """Propose units from a redacted session; `nearest` finds units of the brain to relate them to.

    If the cap is reached between two windows, the units found so far are proposed, and `dropped` says so. Raises
    LLMUnavailable if a call fails for any other reason, or if no reply could be used.
    """
    work = Work(session=session, llm=llm, settings=settings, now=now)
    system = prompt_text(__file__, "window", max_units=min(MAX_UNITS, settings.capture_max_units))
    project = slugify(project_of(session) or "")
    task = f"Find the units of knowledge in {{}}{f' of the project `{project}`' if project else ''}."
    found: list[Proposal] = []
    summaries: list[str] = []

    def read(text: str, where: str) -> None:
        earlier = [one.unit for one in found[-_EXISTING_SHOWN:]]
        existing = [*(_existing(nearest, text) if nearest else ()), *earlier]
        fenced = [
            llm.fence(
                unit.body[:_EXISTING_CHARS], "unit", number=number, type=unit.type, domain=unit.domain or "",
                title=unit.title,
            )
            for number, unit in enumerate(existing, start=1)
        ]  # fmt: skip
        relations = [prompt_text(__file__, "relations")] if fenced else []
        prompt = "\n\n".join([*fenced, *relations, llm.fence(text, "session"), task.format(where)])
        value = ask_model(work, system=system, prompt=prompt, schema=WINDOW_SCHEMA)
        if isinstance(value["summary"], str):
            summaries.append(shorten(value["summary"], 400))
        for place, entry in enumerate(well_formed(value, WINDOW_SCHEMA)):
            outcome = entry if isinstance(entry, str) else proposal_of(entry, text, existing, session, settings, now)
            if isinstance(outcome, str):
                work.dropped.append(outcome)
            else:
                found[:] = _joined(found, replace(outcome, rank=place))

    read_each(work, read)
    summary = shorten(" ".join(summaries), 600)
    return Extraction(proposals=tuple(found), method=METHOD, dropped=tuple(work.dropped), summary=summary, usd=work.usd)


def extract_nuggets(
    session: Session, *, llm: Model, settings: Settings, places: Places, touches: Sequence[FileTouch], now: datetime
) -> tuple[tuple[Nugget, ...], tuple[str, ...], float]:
    """Return the nuggets (without ids) of a redacted session, why others were dropped, and the cost in dollars.

    If the cap is reached between two windows, the nuggets found so far are kept. Raises LLMUnavailable if a call fails
    for any other reason, or if no reply could be used.
    """
    work = Work(session=session, llm=llm, settings=settings, now=now)
    system = prompt_text(__file__, "nuggets", max_nuggets=MAX_NUGGETS)
    listed = "\n".join(f"{touch.action} {touch.path}" for touch in touches[:_MAX_FILES]) or "(none)"
    files = llm.fence(f"Files that the session touched:\n{listed}", "passage")
    found: list[Nugget] = []

    def read(text: str, where: str) -> None:
        prompt = "\n\n".join([files, llm.fence(text, "session"), f"Find the nuggets in {where}."])
        value = ask_model(work, system=system, prompt=prompt, schema=_NUGGETS_SCHEMA, purpose="provenance")
        for entry in well_formed(value, _NUGGETS_SCHEMA):
            outcome = entry if isinstance(entry, str) else _nugget(entry, text, work, places, touches)
            if isinstance(outcome, str):
                work.dropped.append(outcome)
            elif not is_repeated(outcome, found, least=_REPEATS):
                found.append(outcome)

    read_each(work, read)
    return tuple(found), tuple(work.dropped), work.usd


def read_each(work: Work, read: Callable[[str, str], None]) -> None:
    """Call `read` with the text and the name of each window.

    A window that could not be read is noted in `work.dropped`. Raises LLMUnavailable if none could be read, or if a
    later attempt may succeed.
    """
    failures: list[LLMUnavailable] = []
    texts = plan_windows(work)
    for part, text in enumerate(texts, start=1):
        where = f"part {part} of {len(texts)} of the session" if len(texts) > 1 else "the session"
        try:
            read(text, where)
        except (BadReply, CostCapReached) as error:  # a later attempt would not help
            failures.append(error)
            work.dropped.append(f"{where}: {error}")
    if len(failures) == len(texts):
        raise failures[-1]


def plan_windows(work: Work) -> list[str]:
    """Return the session as windows within the cap; speech is kept before the output of programs."""
    chars = _affordable_chars(work)
    if chars < _LEAST_WINDOW_CHARS:
        raise CostCapReached(
            f"A session may cost ${work.settings.llm_max_usd_per_session:.2f}, of which ${max(work.left_usd, 0):.2f} "
            "are left: too little to read this one.",
            hint="Raise `llm.max_usd_per_session`, or capture with `--with offline`.",
        )
    each_usd = work.cost_usd(chars + _OVERHEAD_CHARS, min(_EXPECTED_OUTPUT_TOKENS, work.max_tokens))
    most = max(1, min(MAX_WINDOWS, int(work.left_usd / each_usd))) if each_usd else MAX_WINDOWS
    for output_chars in _OUTPUT_CHARS:
        texts = windows(work.session, max_chars=chars, output_chars=output_chars)
        if len(texts) <= most:
            return texts
    work.dropped.append(f"the middle of the session, which is longer than the {most} parts that may be read")
    said = windows(work.session, max_chars=chars, output_chars=0)
    return cut_at_lines(clip("\n\n".join(said), most * chars * 9 // 10), chars)


def _affordable_chars(work: Work) -> int:
    """Return the length of the longest window that one request can read with the money left."""
    most = work.settings.extraction_window_chars
    bare = work.cost_usd(_OVERHEAD_CHARS, work.max_tokens)
    full = work.cost_usd(_OVERHEAD_CHARS + most, work.max_tokens)
    return int(min(1.0, (work.left_usd - bare) / (full - bare)) * most) if full else most


def ask_model(work: Work, *, system: str, prompt: str, schema: Mapping[str, Any], purpose: str = "extract") -> Any:
    """Return the value of a reply; if it is malformed, of a second one, or the readable part of either.

    Raises BadReply if neither holds the requested list, so that the caller can try again.
    """
    kind, first, kept = schema["required"][-1], None, None
    for name in (purpose, f"{purpose}-repair"):
        problems = "\n".join(f"- {problem}" for problem in first.problems) if first else ""
        again = f"\n\n{prompt_text(__file__, 'repair', problems=problems, kind=kind)}" if first else ""
        request = Request(
            purpose=name, model=work.settings.llm_extract_model, system=system, prompt=prompt + again,
            max_tokens=work.max_tokens, timeout_s=work.settings.llm_timeout_s, max_usd=work.left_usd,
            effort="medium", session=work.session.id,
        )  # fmt: skip
        try:
            reply = work.llm.structured(request, schema)
            work.usd += reply.usd
            return reply.value
        except BadReply as bad:
            work.usd += bad.usd
            first, kept = first or bad, filled(bad.value, schema) or kept
        except CostCapReached:
            if first is None:
                raise
        if kept and (not kept[kind] or not all(isinstance(one, str) for one in well_formed(kept, schema))):
            return kept
    if first and kept is None:
        raise first
    return kept


def _joined(found: Sequence[Proposal], fresh: Proposal) -> list[Proposal]:
    """Return the proposals with a new one, which replaces those that it completes or takes back.

    It inherits the evidence of a unit that it completes, and has no relations to its session, which may be rejected.
    """
    replaced = {one.id for one in fresh.unit.related if one.relation is RelationType.SUPERSEDES} | {fresh.updates}
    known = {one.unit.id: one for one in found}
    completed = known.get(fresh.updates or "")
    unit = replace(fresh.unit, related=tuple(one for one in fresh.unit.related if one.id not in known))
    if completed is not None:
        evidence = dict.fromkeys((*unit.evidence, *completed.unit.evidence))
        fresh = replace(fresh, updates=completed.updates)
        unit = replace(unit, evidence=tuple(evidence))
    return [*(one for one in found if one.unit.id not in replaced), replace(fresh, unit=unit)]


def _existing(nearest: Nearest, text: str) -> list[Unit]:
    """Return the units of the brain nearest to the person's requests in this window, nearest first."""
    asked = [line.removeprefix("USER: ")[:_QUERY_CHARS] for line in text.split("\n") if line.startswith("USER: ")]
    queries = [text[:_QUERY_CHARS], *asked[:: max(1, len(asked) // _QUERIES)][:_QUERIES]]
    scores: Counter[str] = Counter()
    units: dict[str, Unit] = {}
    for query in filter(str.strip, queries):
        for rank, unit in enumerate(nearest(query), start=1):
            units.setdefault(unit.id, unit)
            # Reciprocal ranks, in thousandths: near several prompts counts more than nearest to one.
            scores[unit.id] += 1000 // rank
    return [units[unit_id] for unit_id, _ in scores.most_common(_EXISTING_SHOWN)]


def _nugget(
    entry: Mapping[str, Any], text: str, work: Work, places: Places, touches: Sequence[FileTouch]
) -> Nugget | str:
    session, allow = work.session, allow_list(work.settings)
    whole, detail = (" ".join(cleaned(entry[name], allow).split()) for name in ("summary", "detail"))
    found = proved(whole, detail or whole, entry, text, session)
    if isinstance(found, str):
        return f"{shorten(whole, 80) or 'a nugget without a summary'}: {found}"
    summary = one_line(whole)
    detail = shorten(detail if summary == whole else f"{whole} {detail}".strip(), 1000)
    evidence, support = found
    touched, path = {touch.path: touch for touch in touches}, entry["path"].strip()
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
    """Return the last request of the person before the first of these records."""
    asked = ""
    for event in session.events:
        is_own = event.kind is EventKind.PROMPT and event.speaker is not Speaker.QUOTED
        if is_own and (len(event.text) > 20 or not asked):
            asked = event.text
        if event.uuid in records:
            break
    return shorten(asked, 500)
