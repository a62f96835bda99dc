"""The units of a session, worded for a reader: findings, fixes, decisions, and how the project is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nugget.extraction import cues, wording
from nugget.extraction.fixes import Fix, bare_command, short_path
from nugget.extraction.passages import Passage
from nugget.extraction.proposals import Proposal
from nugget.extraction.scoring import Scored
from nugget.models import Event, EventKind, Evidence, KnowledgeType, Origin, Session, SourceName, Speaker, Unit
from nugget.text import shorten, slugify

_QUOTE_CHARS = 280
_DIFF_LINES = 8
_ANSWER = re.compile(r'"(?P<question>.+?)"="(?P<answer>.+?)"', re.DOTALL)
_ABOUT_THE_WORK = re.compile(r"\b(?:the plan|proceed|continue|go ahead|next step|start with)\b", re.IGNORECASE)
_LABEL = re.compile(r'"label":\s*"((?:[^"\\]|\\.)+)"')
_TASK = re.compile(
    r"(?P<program>mise|make|just|task|npm|pnpm|yarn|bun|rake|tox|nox)(?: run| -e)? (?P<task>[a-z][\w:.-]*)"
)
_WHERE = re.compile(r"^\S+:\d+(?::\d+)?:\s*|^E\s+")
_RECOMMENDED = re.compile(r"\s*\(Recommended\)$")


@dataclass(slots=True)
class Finding:
    """What will be a unit: a run of sentences around the best one, and what else was said about the same."""

    passage: Passage
    first: int
    last: int
    best: Scored
    score: float
    more: list[Finding] = field(default_factory=list)
    fix: Fix | None = None

    @property
    def text(self) -> str:
        """The sentences as prose."""
        return wording.opening(self.quote)

    @property
    def is_cut_off(self) -> bool:
        """Whether it ends in a colon, and nothing of what should follow was found."""
        return not self.more and self.quote.rstrip("*_ ").endswith(":")

    @property
    def rules(self) -> float:
        """1 when the person laid down a rule, which goes before anything that the agent stated; else 0."""
        return float(self.passage.by_user and bool(cues.STRONG_CONSTRAINT.search(self.best.text)))

    @property
    def quote(self) -> str:
        """The sentences verbatim."""
        return self.passage.quote(self.first, self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Words the units of one session. `events` are those of the session that count."""

    session: Session
    now: datetime
    events: Sequence[Event]

    def finding(self, finding: Finding) -> Proposal | None:
        """A unit of something that was said."""
        parts = [finding, *sorted(finding.more, key=lambda one: one.passage.place)]
        body = [finding.text, *([""] if finding.more else []), *(f"- {part.text}" for part in parts[1:])]
        if finding.fix:
            body += ["", "## Seen as", "", *_failure(finding.fix)]
        confidence = min(0.85, 0.35 + 0.1 * min(finding.score, 3.5) + (0.1 if finding.passage.by_user else 0.0))
        cue_names = ", ".join(finding.best.cues[:3]) or "like knowledge"
        return self._proposal(
            _type_of(finding),
            wording.title_from(finding.best.text, prefer=cues.STRONG_CONSTRAINT if finding.rules else None),
            body,
            [self._evidence(part.passage.event, part.quote) for part in parts],
            confidence=confidence,
            reason=_said_by([part.passage.by_user for part in parts], cue_names),
            place=finding.passage.place,
        )

    def fix(self, fix: Fix) -> Proposal | None:
        """A unit of a failure that no sentence explained."""
        error = short_path(fix.signature[0])
        title = wording.balanced(shorten(_WHERE.sub("", error), wording.TITLE_CHARS))
        if fix.changed_command:
            command = shorten(short_path(bare_command(fix.command.text)), 48)
            title = f"`{command.replace('`', '')}` fails: {wording.balanced(shorten(error, 60))}"
        quote = next((line.strip() for line in fix.failure.text.splitlines() if fix.signature[0] in line), "")
        return self._proposal(
            KnowledgeType.BUG,
            title,
            _failure(fix),
            [self._evidence(fix.failure, quote)] if quote else [],
            confidence=0.5,
            reason="A command failed and went well after a change",
            place=self._place(fix.command),
        )

    def answer(self, event: Event) -> Proposal | None:
        """A unit of a decision that the person took when asked; not of how the work of the session should go on."""
        found = _ANSWER.match(event.text)
        if not found:
            return None
        if _ABOUT_THE_WORK.search(found.group("question")):
            return None
        question, answer = found.group("question"), _RECOMMENDED.sub("", found.group("answer"))
        asked = (one for one in self.events if one.call_id == event.call_id and one.kind is EventKind.TOOL_CALL)
        offered = _LABEL.findall(next(asked, event).text)
        labels = dict.fromkeys(_RECOMMENDED.sub("", label) for label in offered)
        others = tuple(label for label in labels if label != answer)[:6]
        body = [f"Asked: {question}", "", f"Decided: **{answer}**."]
        body += ["", "Also considered:", "", *(f"- {other}" for other in others)] if others else []
        made = self._proposal(
            KnowledgeType.DECISION,
            wording.balanced(f"{shorten(answer, 50)}: {shorten(question.rstrip('?'), 70)}"),
            body,
            [self._evidence(event, event.text)],
            confidence=0.7,
            reason="You decided this when asked",
            place=self._place(event),
        )
        return replace(made, unit=replace(made.unit, alternatives=others)) if made else None

    def _place(self, event: Event) -> int:
        return next(place for place, one in enumerate(self.events) if one is event)

    def _evidence(self, event: Event, quote: str) -> Evidence:
        if len(quote) > _QUOTE_CHARS:
            quote = quote[:_QUOTE_CHARS].rsplit(" ", 1)[0]
        return Evidence(
            session=self.session.id, quote=quote, records=(event.uuid,) if event.uuid else (), speaker=event.speaker,
            origin=event.origin,
        )  # fmt: skip

    def _proposal(
        self,
        kind: KnowledgeType,
        title: str,
        body: Sequence[str],
        evidence: Sequence[Evidence],
        *,
        confidence: float,
        reason: str,
        place: int,
    ) -> Proposal | None:
        """The proposal; None without a title that says something, or without evidence."""
        if len(title) < 12 or not evidence:
            return None
        text = "\n".join(body)
        unit = Unit(
            id=f"{kind}/{slugify(title)}",
            source=SourceName.BRAIN,
            type=kind,
            title=title,
            body=f"{text}{self._occasion(text, place)}\n",
            domain=wording.domain_of(self.session),
            tags=wording.tags_of(f"{title} {text}", wording.language_of(self.session)),
            confidence=round(confidence, 2),
            origin=Origin.AI_SESSION,
            session=self.session.id,
            evidence=tuple(evidence),
            created=self.now.date(),
            last_modified=self.now.date(),
        )
        return Proposal(unit=unit, reason=reason)

    def _occasion(self, text: str, place: int) -> str:
        """One line on what was being worked on, so that a reader knows where this holds."""
        place -= self.events[place].kind is EventKind.PROMPT
        prompts = (one for one in reversed(self.events[: place + 1]) if one.kind is EventKind.PROMPT)
        asked = next((one.text for one in prompts if one.speaker is Speaker.USER), "")
        project = wording.project_of(self.session)
        where = f" in {project}" if project else ""
        if len(asked) < 24 or shorten(wording.plain(asked), 40).removesuffix(" […]") in text:
            return f"\n\nCame up{where}." if where else ""
        return f"\n\nCame up{where} while working on: {shorten(wording.plain(asked), 160)}"


def _said_by(by_user: Sequence[bool], cue_names: str) -> str:
    if all(by_user):
        return "You said so"
    return "You said so, and the agent added to it" if by_user[0] else f"The agent stated it ({cue_names})"


def _type_of(finding: Finding) -> KnowledgeType:
    if finding.fix:
        return KnowledgeType.BUG
    if cues.DECIDED.search(finding.best.text):
        return KnowledgeType.DECISION
    if finding.rules:
        return KnowledgeType.PATTERN
    return finding.best.type or KnowledgeType.CONCEPT


def _failure(fix: Fix) -> list[str]:
    """How the failure looks and what ended it."""
    lines = [f"`{shorten(short_path(bare_command(fix.command.text)), 160)}` failed:", "", "```"]
    lines += [*map(short_path, fix.signature), "```", ""]
    if fix.changed_command:
        return [*lines, f"What worked instead: `{shorten(short_path(bare_command(fix.success.text)), 200)}`"]
    return [*lines, "It went well after this change:", "", *_diff(fix.edits[-1])]


def _diff(edit: Event) -> list[str]:
    """An edit as a short diff block."""
    before = [line for line in (edit.before or "").splitlines() if line.strip()] if edit.tool != "Write" else []
    after = [line for line in (edit.after or "").splitlines() if line.strip()]
    removed = [f"- {line}" for line in before if line not in after][:_DIFF_LINES]
    added = [f"+ {line}" for line in after if line not in before][:_DIFF_LINES]
    name = (edit.path or "").rsplit("/", 1)[-1]
    return [f"In `{name}`:", "", "```diff", *removed, *added, "```"]
