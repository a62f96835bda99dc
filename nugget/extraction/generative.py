"""Knowledge from a session by an LLM: window by window, checked, merged, within a cap on tokens and money.

Nothing is invented: a unit without a quote that stands word for word in the session is dropped (see replies.py).
A malformed reply is asked for once more; what is sound in it is kept all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nugget.config import Settings
from nugget.errors import LLMUnavailable
from nugget.extraction.proposals import Extraction, Proposal
from nugget.extraction.replies import WINDOW_SCHEMA, Shown, read_units
from nugget.infra.llm.gate import BadReply, CostCapReached, Request, estimate_cost_usd
from nugget.models import Session, Unit
from nugget.redaction import allow_list
from nugget.sources.condense import clip, windows
from nugget.text import shorten

if TYPE_CHECKING:
    from nugget.infra.llm import Model

_T = TypeVar("_T")

METHOD = "generative"
MAX_WINDOWS = 8

Nearest = Callable[[str], Sequence[Unit]]
"""The brain's units nearest to a text, best first."""

_PROMPTS = Path(__file__).parent / "prompts"
MAX_OUTPUT_TOKENS = 10_000
_EXPECTED_OUTPUT_TOKENS = 4_000
_MERGE_OUTPUT_TOKENS = 4_000
_LEAST_WINDOW_CHARS = 4_000
_OVERHEAD_CHARS = 20_000
_OUTPUT_CHARS = (1600, 600, 200)
_EXISTING_SHOWN = 12
_EXISTING_CHARS = 700
_QUERIES = 8
_QUERY_CHARS = 400
_REPLY_CHARS = 30_000
CAP_WINDOW = timedelta(days=1)

_MERGE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary", "groups"],
    "properties": {
        "summary": {"type": "string"},
        "groups": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    },
}


@dataclass(slots=True, kw_only=True)
class Work:
    """One extraction under way."""

    session: Session
    llm: Model
    settings: Settings
    nearest: Nearest | None
    now: datetime
    spent_before_usd: float
    usd: float = 0.0
    dropped: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)

    @property
    def left_usd(self) -> float:
        """What may still be spent on this session."""
        return self.settings.llm.max_usd_per_session - self.spent_before_usd - self.usd

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.settings.llm.extract_model

    @property
    def max_tokens(self) -> int:
        """The longest reply that is asked for, which a small context has no room for."""
        return min(MAX_OUTPUT_TOKENS, self.settings.extraction.window_chars // 4)

    def cost_usd(self, chars: int, max_output_tokens: int) -> float:
        """Return the most that a request of so many characters can cost."""
        return estimate_cost_usd(self.llm.price(self.model), "x" * chars, max_output_tokens=max_output_tokens)


def extract_generative(
    session: Session, *, llm: Model, settings: Settings, nearest: Nearest | None = None, now: datetime
) -> Extraction:
    """Propose units from a redacted session. `nearest` knows the brain, so that units can relate to it.

    A retry within a day counts what was spent before against `llm.max_usd_per_session`. When the cap is reached
    between two windows, what was found until then is proposed, and `dropped` says so.
    Raises LLMUnavailable when a call fails for any other reason, or when no reply could be used at all.
    """
    work = Work(
        session=session, llm=llm, settings=settings, nearest=nearest, now=now,
        spent_before_usd=llm.spent_usd(session.id, within=CAP_WINDOW),
    )  # fmt: skip
    texts = plan_windows(work)
    read = read_each(work, texts, lambda text, part: _read_window(work, text, part=part, parts=len(texts)))
    found = [(part, proposal) for part, proposals in read for proposal in proposals]
    kept = _merge(work, found) if len(texts) > 1 and len(found) > 1 else [proposal for _, proposal in found]
    return Extraction(
        proposals=tuple(kept),
        method=METHOD,
        dropped=tuple(work.dropped),
        summary=shorten(" ".join(work.summaries), 600),
        usd=work.usd,
    )


def plan_windows(work: Work) -> list[str]:
    """The session as texts that the cap can pay for. What was said comes before what programs printed."""
    chars = _affordable_chars(work)
    if chars < _LEAST_WINDOW_CHARS:
        raise CostCapReached(
            f"A session may cost ${work.settings.llm.max_usd_per_session:.2f}, of which ${max(work.left_usd, 0):.2f} "
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
    said = "\n\n".join(windows(work.session, max_chars=chars, output_chars=0))
    return _split(clip(said, most * chars * 9 // 10), chars)


def _affordable_chars(work: Work) -> int:
    """Return the length of the longest window of which one request stays within what is left."""
    most = work.settings.extraction.window_chars
    bare = work.cost_usd(_OVERHEAD_CHARS, work.max_tokens)
    full = work.cost_usd(_OVERHEAD_CHARS + most, work.max_tokens)
    return int(min(1.0, (work.left_usd - bare) / (full - bare)) * most) if full else most


def _split(text: str, max_chars: int) -> list[str]:
    parts: list[str] = []
    while text:
        cut = len(text) if len(text) <= max_chars else (text.rfind("\n", max_chars // 2, max_chars) + 1) or max_chars
        parts.append(text[:cut])
        text = text[cut:]
    return parts


def _read_window(work: Work, text: str, *, part: int, parts: int) -> list[Proposal]:
    existing = _existing(work, text)
    fenced = [
        work.llm.fence(
            unit.body[:_EXISTING_CHARS], "unit", number=number, type=unit.type, domain=unit.domain or "",
            title=unit.title,
        )
        for number, unit in enumerate(existing, start=1)
    ]  # fmt: skip
    ending = "Find the units of knowledge in the session."
    if parts > 1:
        ending = f"This is part {part} of {parts} of the session. Find the units of knowledge in it."
    prompt = "\n\n".join([*fenced, work.llm.fence(text, "session"), ending])
    system = prompt_text("window", max_units=work.settings.capture.max_units)
    value = ask_model(work, system=system, prompt=prompt, schema=WINDOW_SCHEMA, max_tokens=work.max_tokens)
    if isinstance(value, dict) and isinstance(value.get("summary"), str):
        work.summaries.append(shorten(value["summary"], 400))
    shown = Shown(text=text, existing=existing)
    proposals: list[Proposal] = []
    for outcome in read_units(value, shown, work.session, allow=allow_list(work.settings), now=work.now):
        if isinstance(outcome, str):
            work.dropped.append(outcome)
        else:
            proposals.append(outcome)
    return proposals


def ask_model(
    work: Work, *, system: str, prompt: str, schema: Mapping[str, Any], max_tokens: int, purpose: str = "extract"
) -> object:
    """Return the value of a reply; if it breaks the schema, of a second one; else what can be read of either.

    Raises BadReply if neither holds the list that was asked for: then nothing was read, and it is to be tried again.
    """

    def ask(purpose: str, asked: str) -> object:
        try:
            request = Request(
                purpose=purpose, model=work.model, system=system, prompt=asked, max_tokens=max_tokens,
                timeout_s=work.settings.llm.timeout_s, max_usd=work.left_usd, effort="medium", session=work.session.id,
            )  # fmt: skip
            reply = work.llm.structured(request, schema)
        except BadReply as bad:
            work.usd += bad.usd
            raise
        work.usd += reply.usd
        return reply.value

    try:
        return ask(purpose, prompt)
    except BadReply as bad:
        first = bad
    problems = "\n".join(f"- {problem}" for problem in first.problems)
    repair = prompt_text("repair", problems=problems)
    try:
        return ask(f"{purpose}-repair", f"{prompt}\n\n{work.llm.fence(first.text[:_REPLY_CHARS], 'reply')}\n\n{repair}")
    except (BadReply, CostCapReached) as error:
        values = [error.value if isinstance(error, BadReply) else None, first.value]
    wanted = schema["required"][-1]
    for value in values:
        if isinstance(value, dict) and isinstance(value.get(wanted), list):
            return value
    raise first


def read_each(work: Work, texts: Sequence[str], read: Callable[[str, int], _T]) -> Iterator[tuple[int, _T]]:
    """The number of each window, from 1, with what `read(text, number)` makes of it.

    A window that could not be read is noted in `work.dropped`, as long as another one could. Raises LLMUnavailable
    where none could, or where asking again later may.
    """
    failure: LLMUnavailable | None = None
    readable = 0
    for part, text in enumerate(texts, start=1):
        try:
            value = read(text, part)
        except LLMUnavailable as error:
            if not isinstance(error, (BadReply, CostCapReached)):  # asking again later may change it
                raise
            failure = error
            work.dropped.append(f"part {part} of {len(texts)} of the session: {error}")
            continue
        readable += 1
        yield part, value
    if failure is not None and not readable:
        raise failure


def _merge(work: Work, found: Sequence[tuple[int, Proposal]]) -> list[Proposal]:
    """The candidates of all windows, those that say the same as one, in the order of their worth.

    The model only groups numbers: no text of a unit is written anew, and every unit keeps its own evidence. Without
    a usable reply all candidates stand; comparing them with each other is then left to the review.
    """
    candidates = [
        work.llm.fence(
            f"{proposal.unit.title}\n\n{proposal.unit.body}", "candidate", number=number, part=part,
            type=proposal.unit.type, confidence=f"{proposal.unit.confidence:.2f}",
        )
        for number, (part, proposal) in enumerate(found, start=1)
    ]  # fmt: skip
    summaries = work.llm.fence("\n".join(work.summaries), "session")
    system = prompt_text("merge", max_units=work.settings.capture.max_units)
    prompt = "\n\n".join([summaries, *candidates, f"Group the {len(found)} candidates."])
    proposals = [proposal for _, proposal in found]
    try:
        value = ask_model(
            work,
            system=system,
            prompt=prompt,
            schema=_MERGE_SCHEMA,
            max_tokens=min(_MERGE_OUTPUT_TOKENS, work.max_tokens),
        )
    except LLMUnavailable as error:
        work.dropped.append(f"the parts of the session were not merged: {error}")
        return proposals
    groups = _groups(value, len(found))
    if not groups:
        work.dropped.append("the parts of the session were not merged: the reply names no candidates")
        return proposals
    if isinstance(value, dict) and isinstance(value.get("summary"), str):
        work.summaries[:] = [value["summary"]]
    named = {number for group in groups for number in group}
    for number, proposal in enumerate(proposals, start=1):
        if number not in named:
            work.dropped.append(f"{shorten(proposal.unit.title, 80)}: left out when the parts were merged")
    return [_joined([proposals[number - 1] for number in group]) for group in groups]


def _groups(value: object, count: int) -> list[list[int]]:
    """Groups of numbers from 1 to `count`, each number once; anything else in the reply is passed over."""
    groups = value.get("groups") if isinstance(value, dict) else None
    taken: set[int] = set()
    kept: list[list[int]] = []
    for group in groups if isinstance(groups, list) else []:
        numbers = group if isinstance(group, list) else []
        fresh = [n for n in dict.fromkeys(n for n in numbers if type(n) is int) if 1 <= n <= count and n not in taken]
        taken.update(fresh)
        if fresh:
            kept.append(fresh)
    return kept


def _joined(group: Sequence[Proposal]) -> Proposal:
    """Return the first of a group with the evidence and relations of all; its claim and confidence are its own."""
    first = group[0]
    units = [proposal.unit for proposal in group]
    unit = replace(
        first.unit,
        evidence=tuple(dict.fromkeys(one for unit in units for one in unit.evidence)),
        related=tuple(dict.fromkeys(one for unit in units for one in unit.related)),
        tags=tuple(dict.fromkeys(tag for unit in units for tag in unit.tags))[:8],
    )
    return replace(first, unit=unit)


def _existing(work: Work, text: str) -> list[Unit]:
    """The units of the brain that are near to what the person asked for in this window, the nearest first."""
    if work.nearest is None:
        return []
    asked = [line.removeprefix("USER: ")[:_QUERY_CHARS] for line in text.split("\n") if line.startswith("USER: ")]
    queries = [text[:_QUERY_CHARS], *asked[:: max(1, len(asked) // _QUERIES)][:_QUERIES]]
    scores: Counter[str] = Counter()
    units: dict[str, Unit] = {}
    for query in filter(str.strip, queries):
        for rank, unit in enumerate(work.nearest(query), start=1):
            units.setdefault(unit.id, unit)
            # Reciprocal ranks, in thousandths: near to several prompts counts more than nearest to one.
            scores[unit.id] += 1000 // rank
    return [units[unit_id] for unit_id, _ in scores.most_common(_EXISTING_SHOWN)]


def prompt_text(name: str, **values: object) -> str:
    """A prompt file with its `{{places}}` filled."""
    text = (_PROMPTS / f"{name}.md").read_text("utf-8")
    for key, value in values.items():
        text = text.replace(f"{{{{{key}}}}}", str(value))
    return text
