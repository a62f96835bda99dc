"""Knowledge from a session without an LLM.

Sentences are scored by cue phrases and, where an embedding model is at hand, by their likeness to prototypes of
knowledge and of chatter. The best passages become units; passages that say the same become one. To these come
failures with their fix and decisions of the person. Every unit carries verbatim
quotes of the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from nugget.extraction.fixes import Fix, find_fixes
from nugget.extraction.passages import Passage, passages
from nugget.extraction.proposals import Proposal
from nugget.extraction.scoring import Scored, score_passages, shared_words
from nugget.extraction.units import Finding, Writer
from nugget.models import Event, EventKind, Session
from nugget.sources.condense import without_recalled

if TYPE_CHECKING:
    from nugget.extraction.scoring import Embed

MAX_UNITS = 12
"""Units proposed from one session, at most."""

_THRESHOLD = 0.5
"""Score from which a sentence may lead a unit."""
_LISTED_THRESHOLD = 0.2
"""Score from which a list item joins a unit that another item of its list leads."""
_JOINING_THRESHOLD = 0.0
"""Score from which a sentence joins a unit on the same topic."""
_CHATTER = -0.5
"""Score up to which a sentence ends the passage around it."""

_RUN_SENTENCES = 4
_PARTS = 6
"""Passages in one unit, at most."""
_SAME_TOPIC = 0.6
"""Cosine from which two sentences are about the same; a little less within one reply."""
_SAME_WORDS = 0.45
_REPEATS = 0.8
"""Shared words from which a passage adds nothing to another."""
_CHARS_A_UNIT = 500


def extract_heuristic(session: Session, *, embed: Embed | None, now: datetime) -> list[Proposal]:
    """Propose at most MAX_UNITS units, the most trusted first. `session` must be redacted already.

    `embed` sharpens the choice and merges what says the same in other words; None works with cue phrases alone.
    """
    events = without_recalled(session.events)
    findings = merge(_siblings(_findings(score_passages(list(passages(session)), embed))))
    loose = _attach(findings, find_fixes(events))
    best = sorted(findings, key=lambda one: -(one.score + one.rules))[: _room(events)]
    writer = Writer(session=session, now=now, events=events)
    proposals = [
        *(writer.answer(event) for event in events if event.kind is EventKind.PROMPT and event.call_id),
        *(writer.finding(finding) for finding in best),
        *(writer.fix(fix) for fix in loose if fix.speaks_for_itself),
    ]
    distinct = _distinct(proposal for proposal in proposals if proposal)
    return sorted(distinct, key=lambda one: -one.unit.confidence)[:MAX_UNITS]


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Findings about the same become one, the best of them in front; what is too weak alone only joins."""
    kept: list[Finding] = []
    for finding in sorted(findings, key=lambda one: -one.score):
        twin = next((other for other in kept if any(_same_topic(part, finding) for part in (other, *other.more))), None)
        if twin is None:
            if finding.best.score + finding.rules >= _THRESHOLD and not finding.is_cut_off:
                kept.append(finding)
            continue
        parts = (twin, *twin.more)
        if len(parts) < _PARTS and all(shared_words(finding.text, other.text) < _REPEATS for other in parts):
            twin.more.append(finding)
        twin.score += 0.1
    return kept


def _room(events: Sequence[Event]) -> int:
    """How many units a session can hold: few words, few learnings."""
    said = sum(len(event.text) for event in events if event.kind in (EventKind.REPLY, EventKind.SUMMARY))
    return min(MAX_UNITS, 4 + said // _CHARS_A_UNIT)


def _findings(scored: Iterable[Sequence[Scored]]) -> list[Finding]:
    """The runs of sentences that belong together, each around its best one."""
    found = []
    for row in scored:
        for run in _runs(row):
            best = max(run, key=lambda one: one.score)
            if best.score < _JOINING_THRESHOLD:
                continue
            support = sum(max(0.0, one.score) for one in run) - best.score
            score = best.score + 0.15 * min(support, 4.0)
            found.append(Finding(best.passage, run[0].number, run[-1].number, best, score))
    return found


def _runs(row: Sequence[Scored]) -> Iterable[list[Scored]]:
    """Sentences one after the other that are no chatter, at most _RUN_SENTENCES together."""
    run: list[Scored] = []
    for one in row:
        if run and (one.score <= _CHATTER or len(run) == _RUN_SENTENCES):
            yield run
            run = []
        if one.score > _CHATTER:
            run.append(one)
    if run:
        yield run


def _siblings(findings: Iterable[Finding]) -> list[Finding]:
    """Items of one list become one finding, below the line that introduces it where that is one too."""
    kept: list[Finding] = []
    for finding in findings:
        mate = kept[-1] if kept else None
        if mate is None or not _in_one_list(mate, finding):
            kept.append(finding)
        elif mate.passage.is_listed and finding.best.score > mate.best.score:
            finding.more = [*mate.more, mate]
            mate.more = []
            kept[-1] = finding
        else:
            mate.more.append(finding)
            mate.score = max(mate.score, finding.score)
    return kept


def _in_one_list(one: Finding, other: Finding) -> bool:
    worth_it = max(one.best.score, other.best.score) >= _THRESHOLD and other.best.score >= _LISTED_THRESHOLD
    return worth_it and len(one.more) < _PARTS - 1 and _is_next_to(one.passage, other.passage)


def _is_next_to(one: Passage, other: Passage) -> bool:
    if one.event is not other.event or one.heading != other.heading:
        return False
    return other.is_under(one) or (one.is_listed and other.is_listed and one.lead_in == other.lead_in)


def _same_topic(one: Finding, other: Finding) -> bool:
    if one.best.vector is None or other.best.vector is None:
        return shared_words(one.best.text, other.best.text) >= _SAME_WORDS
    likeness = float(one.best.vector @ other.best.vector)
    return likeness >= _SAME_TOPIC - (0.08 if one.passage.place == other.passage.place else 0.0)


def _attach(findings: Sequence[Finding], fixes: Iterable[Fix]) -> list[Fix]:
    """Give each fix to the finding that explains it; returns those that nobody explained."""
    loose = []
    for fix in fixes:
        said = {id(event) for event in fix.said}
        explaining = [one for one in findings if id(one.passage.event) in said and one.fix is None]
        if explaining:
            owner = max(explaining, key=lambda one: one.score)
            owner.fix, owner.score = fix, owner.score + 0.6
        else:
            loose.append(fix)
    return loose


def _distinct(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Without a second unit of the same id or quote."""
    kept: dict[str, Proposal] = {}
    quotes: set[str] = set()
    for proposal in proposals:
        quote = proposal.unit.evidence[0].quote
        if proposal.unit.id not in kept and quote not in quotes:
            kept[proposal.unit.id] = proposal
            quotes.add(quote)
    return list(kept.values())
