"""Drafts of units: a claim, what supports it, and how both are worded."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nugget.extraction import phrases, titles
from nugget.extraction.claims import CHORE, Claim, SessionClaims, words_of
from nugget.extraction.episodes import Turn
from nugget.extraction.speech import Channel
from nugget.models import KnowledgeType

MAX_CLAIMS = 1200
"""Claims of a session that are worked out as drafts: the first ones."""

_MAX_SUPPORT = 2
_BODY_CHARS = 480
_NEAR = 0.26
_SAME = 0.62
_PRONOUN = phrases.any_of(r"^(?:It|This|That|These|They|Those|Both|Its)\b(?P<is>'s)?\s*")
_SUBJECT = re.compile(r"`[^`\n]{3,60}`|\*\*[^*\n]{3,40}\*\*")
_FIRST_PERSON = phrases.any_of(r"(?:^|[^`\w])(?:I|I'm|I've|I'll|I'd|me|my|you're)(?=[^`\w']|$)")
_PURPOSE = phrases.any_of(r"\bto (?:avoid|prevent|protect|ensure|support|keep|allow|preserve|guard|handle|end)\b")
_INTERIM = phrases.any_of(
    r"\bstill (?:slow|fail|there|~|not|the same|\d|show|need)|\bthere(?:'s| is| are) still\b|\bso far\b|^still\b"
)
_STATUS = phrases.any_of(
    r"\b(?:tests?|lint\w*|builds?|checks?|ci)\b.{0,30}\b(?:pass\w*|fail\w*|green|red|clean|ok)\b",
    r"\b\d+ (?:new |more |test |lint |real |other )*(?:failures?|errors?|issues?|warnings?|commits|files"
    r"|conflicts?|lines)\b",
    r"\b(?:updated|opened|created|pushed|merged) (?:the |a |your )?(?:pr|branch|pull request)\b|\bcommit"
    r" `?[0-9a-f]{7,}",
    r"\bstraightforward\b|\bchanges? needed\b|\b(?:just|only) one real\b|\bwill display as\b|^here(?:'s| is| are)\b",
    r"\b(?:remaining|so far|no longer needed now|as requested|as expected)\b|^(?:scroll|click|run) ",
)
_TESTS = phrases.any_of(r"\bTest[A-Z]\w+|^(?:documentation|docs|(?:added|integration|unit) .*tests)\b")
_IDLE = phrases.any_of(
    r"\bstraightforward\b|\bknow what you'd like\b|\blet me know\b|^should i\b"
    r"|^(?:the )?(?:approach|plan|resolution|fix) (?:would be|will be|is):"
)
_PROPOSES = phrases.any_of(
    r"\b(?:can|could|should|shouldn't|why (?:don't|aren't|isn't|not)) (?:we|you|it|this|that)?\b|\binstead\b"
)
_CHAT = phrases.any_of(
    r"\bi (?:remember|had|was|am|see|noticed|just|tried|ran|got|checked|looked|pushed|merged|wonder|assume"
    r"|don't know)\b",
    r"\bi'(?:m|ve)\b|^(?:check|look|see|show|tell|explain|help|what|why|how|where|like)\b|\blet me know\b|\bdo we\b",
    r"\bwhat (?:do you think|you think)\b|\bthere is a (?:pr|review)\b|\breview comments?\b|\bmight be\b",
)
_SYMPTOM = phrases.any_of(
    r"\b(?:fail\w*|errors?|wrong|broken|breaks?|crash\w*|refused|rejected|hangs?|time[sd]? ?out|twice|missing|leak\w*"
    r"|slow|stuck|cannot|can't|doesn't|does not|invalid|exceptions?|panics?)\b"
)
_SYMPTOM_CHARS = 240
_PLEASE = phrases.any_of(r"(?:please|bitte|can you|could you|s'il|por favor)\b")
_OPENING = phrases.any_of(r"^(?:good|ok(?:ay)?|great|thanks|next|also|and|so|now)\b[.,:;]?\s*")
_UNDONE = phrases.any_of(r"\b(?:let me|i'll|i need to|need to|should be|we need|want me to|would you like)\b")
_HEADS = {KnowledgeType.BELIEF: "Rule", KnowledgeType.DECISION: "Decision"}
_SLOTS = {
    KnowledgeType.BUG: ("Problem", "Cause", "Fix"),
    KnowledgeType.BELIEF: ("Why", "Instead of"),
    KnowledgeType.DECISION: ("Why", "Instead of"),
}
_ORDER = ("", "Rule", "Decision", "Problem", "Cause", "Fix", "Because", "Why", "Instead of")


@dataclass(slots=True)
class Draft:
    """A unit in the making. `support` are sentences that say why, how, or instead of what."""

    anchor: Claim
    title: str
    statement: str
    support: list[tuple[str, Claim]] = field(default_factory=list)
    kind: KnowledgeType = KnowledgeType.CONCEPT
    features: dict[str, float] = field(default_factory=dict)
    confidence: float = 0.0
    merged: Claim | None = None

    @property
    def claims(self) -> list[Claim]:
        """The anchor and its support."""
        return [self.anchor, *([self.merged] if self.merged else []), *(claim for _, claim in self.support)]

    def text(self) -> str:
        """The body: a paragraph for each slot of its type, at most three sentences each."""
        claim, because = titles.split_reason(self.statement)
        slots: dict[str, list[str]] = {_HEADS.get(self.kind, ""): [claim]}
        if self.kind is KnowledgeType.BUG:
            found = self.anchor.features
            slots = {"Cause" if found["cause"] else "Fix" if found["fix"] else "Problem": [self.statement]}
        elif because:
            slots["Because" if self.kind is KnowledgeType.BELIEF else "Why"] = [because]
        first = next(iter(slots))
        if self.kind is KnowledgeType.BUG and (symptom := _symptom_of(self.anchor.episode.prompt)):
            slots.setdefault("Problem", [symptom])
        for role, support in self.support:
            name = role if role in _SLOTS.get(self.kind, ("Why", "Instead of")) else first
            slots.setdefault(name, []).append(titles.point_of(support.sentence.text))
        order = sorted(slots, key=lambda name: _ORDER.index(name))
        return "\n\n".join(_paragraph(name, slots[name]) for name in order)


def _symptom_of(prompt: str) -> str:
    """Return the sentence of a request that says what goes wrong; nothing if there is none."""
    lines = [titles.clean(line) for line in prompt.splitlines() if not line.lstrip().startswith(("#", "<"))]
    for sentence in (one for line in lines for one in re.split(r"(?<=[.!?])\s+", line)):
        if _SYMPTOM.search(sentence) and not sentence.endswith("?") and len(sentence) <= _SYMPTOM_CHARS:
            return titles.capitalised(_OPENING.sub("", sentence))
    return ""


def _paragraph(name: str, sentences: Sequence[str]) -> str:
    """Return the sentences of a slot as a paragraph under its name."""
    ended = [one if one.endswith((".", "!", "?", "。")) else one.rstrip(" :;,") + "." for one in sentences[:3]]
    text = " ".join(ended)
    return f"**{name}:** {text[:1].upper() + text[1:]}" if name else text


def drafts_of(session: SessionClaims) -> list[Draft]:
    """Return a draft for each claim that can be worded so that it stands alone."""
    made = []
    for claim in session.claims[:MAX_CLAIMS]:
        draft = _draft(claim, session)
        if draft is not None:
            draft.features = _features(draft, session)
            is_told = _is_told(claim)
            is_adopted = claim.episode.conceded or bool(claim.episode.edits)
            draft.features |= {"told": float(is_told), "told and adopted": float(is_told and is_adopted)}
            made.append(draft)
    _compare(made, session)
    return made


def _compare(made: Sequence[Draft], session: SessionClaims) -> None:
    """Add where each draft ranks among the others by its length and by how much of the session it is about.

    The more often the words of a draft occur in the session, the more the session is about it.
    """
    seen = Counter(word for claim in session.claims for word in claim.words)
    weight = {word: math.log(count) for word, count in seen.items()}
    measures: dict[str, list[float]] = {}
    for draft in made:
        words, text = words_of(draft.statement), draft.text()
        central = sum(weight.get(word, 0.0) for word in words)
        made_of = {
            "central": central,
            "central text": sum(weight.get(word, 0.0) for word in words_of(f"{draft.title} {text}")),
            "mean central": central / max(1, len(words)),
            "central names": sum(weight.get(word, 0.0) for word in words if not word.isalpha()),
            "statement length": math.log(len(draft.statement)),
            "text length": math.log(len(text)),
        }
        draft.features |= {name: value for name, value in made_of.items() if "length" in name}
        for name, value in made_of.items():
            measures.setdefault(name, []).append(value)
    for name, values in measures.items():
        order = sorted(values)
        for draft, value in zip(made, values, strict=True):
            place = (bisect_left(order, value) + bisect_right(order, value)) / 2 / len(order)
            draft.features[f"{name} rank"] = place - 0.5


def _is_told(claim: Claim) -> bool:
    """Return whether the person said it as more than a request, or accepted it."""
    found = claim.features
    if found["offer accepted"] or found["option chosen"]:
        return True
    if claim.sentence.channel is not Channel.USER or phrases.REPORTS_BUG.search(claim.sentence.text):
        return False
    if found["very short"]:
        return bool(phrases.RULES.search(claim.sentence.text))
    if claim.episode.turn in (Turn.CHOICE, Turn.REFUSAL):
        return True
    return any(found[name] for name in ("must", "not", "instead", "because", "decided", "remember"))


def _draft(claim: Claim, session: SessionClaims) -> Draft | None:
    sentence = claim.sentence
    if claim.is_refuted or (sentence.channel is Channel.QUOTED and not is_confirmed(claim)):
        return None
    wished = (
        sentence.channel is Channel.USER
        or claim.features["offer accepted"]
        or bool(phrases.FEATURES["offer"].search(sentence.text))
    )
    said = titles.wish(sentence.text) if wished else titles.point_of(sentence.text)
    said = _with_subject(said, claim, session)
    if not said:
        return None
    if said.rstrip().endswith(":"):
        said = said.rstrip(" :")
        if claim.features["short"] or not titles.is_statement(said):
            return None
    if _is_passing(claim, said):
        return None
    if sentence.channel is Channel.USER and len(said) < 160:
        said = _with_rest(said, claim, session)
    draft = Draft(anchor=claim, title="", statement=said)
    draft.support = _support(draft, session)
    draft.title = _title(titles.split_reason(said)[0], draft, session)
    if not draft.title and _is_told(claim):
        draft.title = titles.title_of(said)  # what is wanted is too short to say it without the reason
    if not titles.stands_alone(draft.title):
        return None
    if not titles.is_statement(draft.title) and not (
        claim.features["option chosen"] or claim.features["offer accepted"] or sentence.event.tool
    ):
        return None
    if not draft.title or (
        len(draft.title.split()) < (2 if _is_told(claim) else 3) and not re.search(r"[\u3040-\u9fff]", draft.title)
    ):
        return None
    # The words of a person are not joined with those of the agent.
    if draft.support and sentence.channel is not Channel.USER:
        other = draft.support[0][1]
        more = titles.point_of(other.sentence.text)
        if len(said) + len(more) < 320:
            draft.statement, draft.support = titles.joined(said, more), draft.support[1:]
            draft.merged = other
    if not draft.statement.endswith((".", "!", "?", "。")):
        draft.statement = draft.statement.rstrip(" ;,") + "."
    return draft


def is_confirmed(claim: Claim) -> bool:
    """Return whether the agent agreed with a pasted text and changed something for it."""
    return claim.episode.conceded and bool(claim.episode.edits)


def _is_passing(claim: Claim, said: str) -> bool:
    """Return whether a sentence is about the moment: a question, the next step, or how the agent feels about it."""
    found = claim.features
    is_user = claim.sentence.channel is Channel.USER
    if found["question"] and not (is_user or found["offer accepted"]):
        return True
    if _IDLE.search(said):
        return True
    if is_user:
        rules = phrases.RULES.search(said) or phrases.CHOSEN.search(said) or claim.sentence.event.tool
        asks = found["question"] and not _PROPOSES.search(claim.sentence.text)
        return bool((asks or _CHAT.search(said)) and not rules and not _is_told(claim))
    if (found["next_step"] and not found["offer accepted"]) or (_INTERIM.search(said) and found["replies after"]):
        return True
    has_reason = any(found[name] for name in ("because", "instead", "intent", "cause", "contrast", "not"))
    is_chore = found["chore"] or found["task"] or CHORE.search(said) or _TESTS.search(said) or _STATUS.search(said)
    if is_chore and not has_reason and not _PURPOSE.search(said):
        return True
    return bool(_FIRST_PERSON.search(said) and not found["offer accepted"])


def _title(said: str, draft: Draft, session: SessionClaims) -> str:
    """Return a title from the claim; if it must be cut, from what says the same in fewer words."""
    if titles.fits(said):
        return titles.title_of(said)
    shorter = []
    for other in session.claims:
        likeness = session.likeness(draft.anchor, other)
        if likeness >= 0.45 and other is not draft.anchor and _is_usable(other) and not other.features["report"]:
            text = titles.point_of(other.sentence.text)
            if titles.fits(text) and len(text) >= 30:
                shorter.append((likeness, text))
    return titles.title_of(max(shorter)[1]) if shorter else titles.title_of(said)


def _with_rest(said: str, claim: Claim, session: SessionClaims) -> str:
    """Return what a person said with the sentence behind it, if that goes on with the same thought."""
    following = next(iter(_neighbours(claim, session, 1)), None)
    if following is None or following.sentence.block != claim.sentence.block or following.features["question"]:
        return said
    more = titles.clean(following.sentence.text)
    first = more.lower().split(" ", 1)[0]
    is_request = first in titles.IMPERATIVES or _PLEASE.match(more)
    if len(said) + len(more) > 260 or following.features["very short"] or is_request:
        return said
    return f"{said.rstrip(' .?')}; {more}"


def _with_subject(said: str, claim: Claim, session: SessionClaims) -> str:
    """Return the claim with a noun for `It` or `This` at its head; nothing if none is at hand."""
    found = _PRONOUN.match(said)
    if not found:
        return said
    rest = said[found.end() :]
    if re.match(r"\w+ing\b|[a-z]+ (?:is|was|are|means)\b", rest) and said.lower().startswith(
        ("this ", "that ", "these ", "those ")
    ):
        return said
    before = next((other for other in _neighbours(claim, session, -1)), None)
    context = f"{claim.sentence.heading} {claim.sentence.lead_in} {before.sentence.text if before else ''}"
    names = _SUBJECT.findall(context)
    if not names:
        return ""
    subject = titles.clean(names[-1])
    return f"{subject} {'is ' if found.group('is') else ''}{rest}"


def _neighbours(claim: Claim, session: SessionClaims, step: int) -> list[Claim]:
    """The next claims of the same event in one direction."""
    numbers = range(claim.number + step, claim.number + 4 * step, step)
    nearby = [session.claims[number] for number in numbers if 0 <= number < len(session.claims)]
    return [one for one in nearby if one.sentence.place == claim.sentence.place]


def _support(draft: Draft, session: SessionClaims) -> list[tuple[str, Claim]]:
    """Return at most three sentences that say why, how it is fixed, or what was rejected; the settled ones first."""
    anchor = draft.anchor
    rows: list[tuple[float, str, Claim]] = []
    close = {id(one) for step in (-1, 1) for one in _neighbours(anchor, session, step)[:2] if _goes_on(anchor, one)}
    for other in session.claims:
        if (
            other is anchor
            or titles.clean(other.sentence.text) in draft.statement
            or (other.sentence.channel is Channel.QUOTED and not is_confirmed(other))
        ):
            continue
        likeness = session.likeness(anchor, other)
        is_close = id(other) in close
        is_answer = anchor.sentence.channel is Channel.USER and other.sentence.channel is Channel.REPLY
        is_answer = is_answer and other.episode is anchor.episode
        if likeness < _NEAR and not is_close and not (is_answer and likeness >= 0.12):
            continue
        if likeness >= _SAME or not _is_usable(other):
            continue
        role = _role(other)
        value = 0.2 * other.features["telling"] + 0.6 * likeness + 0.12 * is_close + 0.1 * is_answer
        value += 0.08 * (role != "Also")
        rows.append((value, role, other))
    chosen: list[tuple[str, Claim]] = []
    room = _BODY_CHARS - len(draft.statement)
    for _, role, other in sorted(rows, key=lambda row: -row[0]):
        if len(chosen) == _MAX_SUPPORT:
            break
        length = len(other.sentence.text)
        if length <= room and all(session.likeness(other, kept) < 0.5 for _, kept in chosen):
            chosen.append((role, other))
            room -= length
    return chosen


def _goes_on(one: Claim, other: Claim) -> bool:
    """Return whether two neighbouring claims are one thought: a paragraph, but not two items of a list."""
    return one.sentence.block == other.sentence.block or not (one.sentence.is_listed and other.sentence.is_listed)


def _is_usable(claim: Claim) -> bool:
    text = claim.sentence.text
    features = claim.features
    if claim.is_refuted or any(features[name] for name in ("question", "colon", "very short", "next_step", "offer")):
        return False
    said = titles.point_of(text)
    return not _FIRST_PERSON.search(said) and not _PRONOUN.match(said) and len(said) <= 320


def _role(claim: Claim) -> str:
    found = claim.features
    text = claim.sentence.text
    if found["fix"] and not found["cause"]:
        return "Fix"
    if found["cause"]:
        return "Cause"
    if found["because"] or found["intent"]:
        return "Why"
    if re.search(r"\b(?:but|however|unless|only)\b", text, re.IGNORECASE):
        return "But"
    return "Also"


def _features(draft: Draft, session: SessionClaims) -> dict[str, float]:
    anchor = draft.anchor
    scores = [claim.features["telling"] for claim in draft.claims]
    channels = {claim.sentence.channel for claim in draft.claims}
    made = {f"anchor {name}": value for name, value in anchor.features.items()}
    made |= {
        "best telling": max(scores),
        "support": len(draft.support) / 3,
        "mean telling": sum(scores) / len(scores),
        "channels": len(channels) / 4,
        "with user": float(Channel.USER in channels),
        "with commit": float(bool(channels & {Channel.COMMIT, Channel.PUBLISHED, Channel.SUMMARY})),
        "has why": float(any(role == "Why" for role, _ in draft.support)),
        "has cause": float(any(role == "Cause" for role, _ in draft.support)),
        "has fix": float(any(role == "Fix" for role, _ in draft.support)),
        "title first person": float(bool(_FIRST_PERSON.search(draft.title))),
        "title to do": float(bool(_UNDONE.search(draft.statement))),
        "tests": float(bool(_TESTS.search(draft.statement))),
        "status": float(bool(_STATUS.search(draft.statement))),
        "purpose": float(bool(_PURPOSE.search(draft.statement))),
        "cut": float(len(draft.title) + 2 < len(draft.statement)),
    }
    return made
