"""Drafts of units: a claim, what supports it, and how both are worded."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nugget.extraction import titles
from nugget.extraction.claims import Claim, SessionClaims, continued, is_confirmed, is_usable, said_about_pick
from nugget.extraction.phrases import features, says, words_of
from nugget.extraction.requests import symptom_of, wish
from nugget.extraction.speech import Channel
from nugget.models import KnowledgeType

MAX_CLAIMS = 1200
"""The number of claims, from the start of a session, that become drafts."""
REASONS = ("because", "instead", "intent", "cause", "contrast", "not")
"""Features of a sentence that says more than what to do."""

_MAX_SUPPORT = 2
_BODY_CHARS = 480
_NEAR = 0.26
_SAME = 0.62
_NEW = 0.25
_HEADS = {KnowledgeType.BELIEF: "Rule", KnowledgeType.DECISION: "Decision"}
_SLOTS = dict.fromkeys(_HEADS, ("Why", "Instead of")) | {KnowledgeType.BUG: ("Problem", "Cause", "Fix")}
_ORDER = ("", "Rule", "Decision", "Problem", "Cause", "Fix", "Because", "Why", "Instead of")


@dataclass(slots=True)
class Draft:
    """A unit in the making; `support` holds sentences that say why, how, or instead of what.

    `alternatives` were not chosen; `better` is the draft about the same subject that was proposed instead.
    """

    anchor: Claim
    title: str
    statement: str
    support: list[tuple[str, Claim]] = field(default_factory=list)
    kind: KnowledgeType = KnowledgeType.CONCEPT
    features: dict[str, float] = field(default_factory=dict)
    confidence: float = 0.0
    alternatives: tuple[str, ...] = ()
    better: Draft | None = None

    @property
    def claims(self) -> list[Claim]:
        """The anchor and its support."""
        return [self.anchor, *(claim for _, claim in self.support)]

    @property
    def telling(self) -> list[tuple[str, Claim]]:
        """The support without sentences that only report progress."""
        texts = [(one, one[1].sentence.text) for one in self.support]
        return [one for one, text in texts if not (says("status").search(text) or says("idle").search(text))]

    @property
    def half(self) -> str:
        """The part of a bug that its statement tells: `Fix`, `Cause` or `Problem`."""
        found = self.anchor.features
        is_remedy = found["fix"] or re.search(r"\b(?:must|ha(?:s|ve) to) ", self.statement)
        is_fix = says("fixes").match(self.statement) or (is_remedy and not found["cause"])
        return "Fix" if is_fix else "Cause" if found["cause"] else "Problem"

    def completes(self, other: Draft) -> bool:
        """Return whether an agent told the cause of a bug in one of the two, and its fix in the other."""
        ours, theirs = self.anchor.sentence, other.anchor.sentence
        is_one = (ours.place, ours.block) == (theirs.place, theirs.block) and self.kind is other.kind
        return is_one and self.kind is KnowledgeType.BUG and {self.half, other.half} == {"Cause", "Fix"}

    def text(self) -> str:
        """Return the body: a paragraph for each slot of its type, with at most three sentences each."""
        (claim, because), found = titles.split_reason(self.statement), self.anchor.features
        is_agents = self.anchor.sentence.channel is Channel.REPLY and not self.anchor.is_agreed
        is_choice = found["decided"] or found["instead"] or not is_agents
        slots: dict[str, list[str]] = {_HEADS.get(self.kind, "") if is_choice else "": [claim]}
        if self.kind is KnowledgeType.BUG:
            slots = {self.half: [self.statement]}
        elif because:
            slots["Because" if self.kind is KnowledgeType.BELIEF else "Why"] = [because]
        first = next(iter(slots))
        if self.kind is KnowledgeType.BUG and (symptom := symptom_of(self.anchor.episode.prompt)):
            slots.setdefault("Problem", [symptom])
        for role, support in self.telling:
            name = role if role in _SLOTS.get(self.kind, ("Why", "Instead of")) else first
            slots.setdefault(name, []).append(titles.point_of(support.sentence.text))
        said: frozenset[str] = frozenset()
        parts = dict.fromkeys(sorted(slots, key=_ORDER.index), "")
        for name in (first, *(one for one in parts if one != first)):  # the claim goes before any restatement of it
            for told in filter(None, map(titles.sentence, slots[name][:3])):
                words = words_of(told)
                if not said or len(words - said) > _NEW * len(words):
                    parts[name] += f" {told}" if parts[name] and not parts[name].endswith("。") else told
                    said |= words
        return "\n\n".join(f"**{name}:** {text}" if name else text for name, text in parts.items() if text)


def drafts_of(session: SessionClaims) -> list[Draft]:
    """Return a draft for each claim that can be worded to stand alone."""
    made = []
    for claim in session.claims[:MAX_CLAIMS]:
        if (draft := _draft(claim, session)) is not None:
            draft.features = _features(draft)
            made.append(draft)
    _compare(made)
    return made


def with_purpose(draft: Draft, session: SessionClaims) -> Draft:
    """Return a choice such as `Use PostgreSQL` with the purpose for which it was offered, if the offer says so."""
    name = draft.title.removeprefix("Use ")
    offers = session.claims[: draft.anchor.number] if name != draft.title and " " not in name else ()
    for other in reversed(offers):
        offered = says("offered").search(other.sentence.text) if name in other.sentence.text else None
        if offered and len(title := f"{draft.title} {offered['purpose']}") <= titles.TITLE_CHARS:
            return replace(draft, title=title, statement=draft.statement.replace(draft.title, title, 1))
    return draft


def _compare(made: Sequence[Draft]) -> None:
    """Add the length of each draft to its features, and its rank by length."""
    for name, texts in {"statement": [one.statement for one in made], "text": [one.text() for one in made]}.items():
        order = sorted(map(len, texts))
        for draft, text in zip(made, texts, strict=True):
            place = (bisect_left(order, len(text)) + bisect_right(order, len(text))) / 2 / len(order)
            draft.features |= {f"{name} length": math.log(len(text)), f"{name} length rank": place - 0.5}


def _draft(claim: Claim, session: SessionClaims) -> Draft | None:
    sentence = claim.sentence
    if claim.is_refuted or (sentence.channel is Channel.QUOTED and not is_confirmed(claim)):
        return None
    is_user = sentence.channel is Channel.USER
    offers = claim.features["offer accepted"] or bool(says("offers").search(sentence.text))
    said = wish(sentence.text) if is_user or offers else titles.point_of(sentence.text)
    if claim.features["option chosen"]:
        said = _as_choice(said) if is_user else says("recommended").sub("", said)
    if not said or says("question_tag").search(said) or says("subject_pronoun").match(said):
        return None
    said = said.rstrip(" :：")
    if _is_passing(claim, said):
        return None
    whole = _with_rest(said, claim, session) if is_user and len(said) < 160 else said
    title = _title(claim, said) or (_title(claim, whole) if whole != said else "")
    if not title:
        return None
    draft = Draft(anchor=claim, title=title, statement=whole)
    following = said_about_pick if is_user else continued
    draft.support = [("", one) for one in following(claim, session)]
    draft.support += _support(draft, session)[: max(0, 3 - len(draft.support))]
    if not draft.statement.endswith((".", "!", "?", "。")):
        draft.statement = draft.statement.rstrip(" ;,") + "."
    return draft if titles.sentence(draft.statement) else None


def _title(claim: Claim, said: str) -> str:
    """Return a title for a statement, empty if none stands alone."""
    context = claim.sentence.event.text
    is_theirs = claim.is_agreed or claim.sentence.channel is Channel.USER
    whole, is_long = titles.title_of(said, context), len(said) > titles.TITLE_CHARS
    title = whole or (titles.opening_of(said, context) if is_long and is_theirs and "?" not in said else "")
    is_vague = any(says(name).search(title) for name in ("errand", "unsure", "idle", "first_person"))
    is_clear = claim.is_agreed or claim.sentence.event.tool or not whole
    if is_vague or not (is_clear or titles.is_statement(title, context)):
        return ""
    is_short = len(title.split()) < (2 if is_theirs else 3)
    return "" if is_short and not re.search(r"[\u3040-\u9fff]", title) else title


def _as_choice(said: str) -> str:
    """Return a statement of what a person picked, and why."""
    name, *reason = says("opening").split(said, 1)
    if titles.is_statement(name, "the"):
        return said
    name = f"Use {name[:1].lower() if name[1:2].islower() else name[:1]}{name[1:]}"
    more = reason[0].strip() if reason else ""
    return f"{name}{', ' if more[:4] in ('but ', 'and ') else ': '}{more}" if more else name


def _is_passing(claim: Claim, said: str) -> bool:
    """Return whether a sentence only matters now: a question, the next step, or how the agent feels about it."""
    found, text = claim.features, claim.sentence.text
    if says("idle").search(said) or says("errand").match(said):
        return True
    if claim.sentence.channel is Channel.USER:
        return False  # its confidence already takes this into account
    if says("idle").search(text) or text.startswith(("And ", "Now ", "Please ")):
        return True
    is_next = features()["next_step"].search(said.lower()) or says("first_person").search(said)
    if not found["offer accepted"] and (found["question"] or is_next):
        return True
    is_chore = found["task"] or any(says(name).search(said) for name in ("chore", "tests", "status"))
    return bool(is_chore and not any(found[name] for name in REASONS) and not says("purpose").search(said))


def _with_rest(said: str, claim: Claim, session: SessionClaims) -> str:
    """Return what a person said, with the next sentence if it continues the thought."""
    following = next(iter(session.claims[claim.number + 1 : claim.number + 2]), None)
    if following is None or following.features["question"]:
        return said
    if (following.sentence.place, following.sentence.block) != (claim.sentence.place, claim.sentence.block):
        return said
    more = titles.clean(following.sentence.text)
    if len(said) + len(more) > 260 or following.features["very short"] or _is_request(more):
        return said
    if says("subject_pronoun").match(more) or more.startswith("We "):
        return f"{said.rstrip(' .?')}: {more[0].lower()}{more[1:]}"
    return f"{said.rstrip(' .?')}{'. ' if more[:1].isupper() else '; '}{more}"


def _is_request(said: str) -> bool:
    """Return True for a sentence of a person that asks for work."""
    is_asked = re.match(r"(?i)(?:please|bitte|i)(?: |$)", said) or says("one_off").search(said)
    return titles.is_imperative(said) or bool(is_asked)


def _support(draft: Draft, session: SessionClaims) -> list[tuple[str, Claim]]:
    """Return at most three sentences that say why, what fixes it, or what was rejected; settled ones first."""
    anchor = draft.anchor
    rows: list[tuple[float, str, Claim]] = []
    for other, likeness, beside in session.near(anchor):
        if likeness >= _SAME or (likeness < _NEAR and not beside):
            continue
        if (
            titles.clean(other.sentence.text) in draft.statement
            or any(other is one for _, one in draft.support)
            or (other.sentence.channel is Channel.QUOTED and not is_confirmed(other))
            or (other.sentence.channel is Channel.USER and _is_request(titles.clean(other.sentence.text)))
            or not is_usable(other)
        ):
            continue
        role = _role(other)
        value = 0.2 * other.features["telling"] + 0.6 * likeness + 0.12 * beside + 0.08 * (role != "Also")
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


def _role(claim: Claim) -> str:
    found = claim.features
    if found["fix"] and not found["cause"] and says("fixes").match(titles.point_of(claim.sentence.text)):
        return "Fix"
    if found["cause"]:
        return "Cause"
    return "Why" if found["because"] or found["intent"] else "Also"


def _features(draft: Draft) -> dict[str, float]:
    anchor = draft.anchor
    channels = {claim.sentence.channel for claim in draft.claims}
    made = {f"anchor {name}": value for name, value in anchor.features.items()}
    first = draft.title.lower().partition(" ")[0]
    made["title fixes"] = float(first in ("fix", "fixed", "fixes"))
    made["title does"] = float(titles.is_imperative(draft.title) and first != "fix")
    made |= {
        "support": len(draft.support) / 3,
        "channels": len(channels) / 4,
        "tests": float(bool(says("tests").search(draft.statement))),
        "status": float(bool(says("status").search(draft.statement))),
        "cut": float(len(draft.title) + 2 < len(draft.statement)),
    }
    return made
