"""Drafts of units: a claim, what supports it, and how both are worded."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from nugget.extraction import phrases, titles
from nugget.extraction.claims import (
    CHORE,
    FIRST_PERSON,
    SUBJECT_PRONOUN,
    Claim,
    SessionClaims,
    continued,
    is_close,
    is_confirmed,
    is_usable,
    words_of,
)  # fmt: skip
from nugget.extraction.requests import symptom_of, wish
from nugget.extraction.speech import Channel
from nugget.models import KnowledgeType

MAX_CLAIMS = 1200
"""Claims of a session that are worked out as drafts: the first ones."""

_MAX_SUPPORT = 2
_BODY_CHARS = 480
_NEAR = 0.26
_SAME = 0.62
_NEW = 0.25
_TAG = phrases.any_of(r"</[a-z_-]+>|<[a-z]+[_-][a-z_-]+>")
_PURPOSE = phrases.any_of(r"\bto (?:avoid|prevent|protect|ensure|support|keep|allow|preserve|guard|handle|end)\b")
_TESTS = phrases.any_of(r"\bTest[A-Z]\w+|^test\b|^(?:documentation|docs|(?:added|integration|unit) .*tests)\b")
_UNSURE = phrases.any_of(r"\b(?:likely|probably|maybe|perhaps|might|seems?)\b")


@dataclass(slots=True)
class Draft:
    """A unit in the making. `support` are sentences near it that say more.

    `alternatives` are what was not chosen, `better` is the draft about the same subject that was proposed in its place.
    """

    anchor: Claim
    title: str
    statement: str
    support: list[Claim] = field(default_factory=list)
    kind: KnowledgeType = KnowledgeType.CONCEPT
    features: dict[str, float] = field(default_factory=dict)
    confidence: float = 0.0
    alternatives: tuple[str, ...] = ()
    better: Draft | None = None

    @property
    def claims(self) -> list[Claim]:
        """The anchor and its support."""
        return [self.anchor, *self.support]

    @property
    def telling(self) -> list[Claim]:
        """The support without sentences that only tell how far the work is."""
        texts = [(one, one.sentence.text) for one in self.support]
        return [one for one, text in texts if not (phrases.STATUS.search(text) or phrases.IDLE.search(text))]

    def text(self) -> str:
        """The body: the statement, and what its support adds to it; of a bug, first how it showed."""
        text, known = titles.sentence(self.statement), words_of(self.statement)
        for told in (titles.sentence(titles.point_of(claim.sentence.text)) for claim in self.telling):
            words = words_of(told)
            if len(words - known) > _NEW * len(words):
                text += told if text.endswith("。") else f" {told}"
                known |= words
        symptom = symptom_of(self.anchor.episode.prompt) if self.kind is KnowledgeType.BUG else ""
        return f"**Problem:** {titles.sentence(symptom)}\n\n{text}" if titles.sentence(symptom) else text


def drafts_of(session: SessionClaims) -> list[Draft]:
    """Return a draft for each claim that can be worded so that it stands alone."""
    made = []
    for claim in session.claims[:MAX_CLAIMS]:
        draft = _draft(claim, session)
        if draft is not None:
            draft.features = _features(draft)
            made.append(draft)
    _compare(made)
    return made


def _compare(made: Sequence[Draft]) -> None:
    """Add how long each draft is, and where it ranks among the others by that."""
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
    offers = claim.is_agreed or bool(phrases.FEATURES["offer"].search(sentence.text))
    said = wish(sentence.text) if is_user or offers else titles.point_of(sentence.text)
    if not said or _TAG.search(said) or SUBJECT_PRONOUN.match(said):
        return None
    said = said.rstrip(" :：")
    if _is_passing(claim, said):
        return None
    whole = _with_rest(said, claim, session) if is_user and len(said) < 160 else said
    title = _title(claim, said) or _title(claim, whole)
    if not title:
        return None
    draft = Draft(anchor=claim, title=title, statement=whole)
    draft.support = [] if is_user else continued(claim, session)
    draft.support += _support(draft, session)[: max(0, 3 - len(draft.support))]
    if not draft.statement.endswith((".", "!", "?", "。")):
        draft.statement = draft.statement.rstrip(" ;,") + "."
    return draft if titles.sentence(draft.statement) else None


def _title(claim: Claim, said: str) -> str:
    """Return a title for a statement, empty if none stands alone."""
    context = claim.sentence.event.text
    title = titles.title_of(said, context)
    is_vague = any(pattern.search(title) for pattern in (phrases.ERRAND, _UNSURE, phrases.IDLE, FIRST_PERSON))
    is_clear = claim.is_agreed or claim.sentence.event.tool
    if is_vague or not (is_clear or titles.is_statement(title, context)):
        return ""
    is_theirs = claim.is_agreed or claim.sentence.channel is Channel.USER
    is_short = len(title.split()) < (2 if is_theirs else 3)
    return "" if is_short and not re.search(r"[\u3040-\u9fff]", title) else title


def _is_passing(claim: Claim, said: str) -> bool:
    """Return whether a sentence is about the moment: a question, the next step, or how the agent feels about it."""
    found, text = claim.features, claim.sentence.text
    if phrases.IDLE.search(said) or phrases.ERRAND.match(said):
        return True
    if claim.sentence.channel is Channel.USER:
        return False  # its confidence leaves out what holds for the moment only
    if phrases.IDLE.search(text) or text.startswith(("And ", "Now ")) or (found["question"] and not claim.is_agreed):
        return True
    if phrases.FEATURES["next_step"].search(said) and not claim.is_agreed:
        return True
    has_reason = any(found[name] for name in ("because", "instead", "intent", "cause", "contrast", "not"))
    is_chore = (
        found["chore"] or found["task"] or CHORE.search(said) or _TESTS.search(said) or phrases.STATUS.search(said)
    )
    if is_chore and not has_reason and not _PURPOSE.search(said):
        return True
    return bool(FIRST_PERSON.search(said) and not claim.is_agreed)


def _with_rest(said: str, claim: Claim, session: SessionClaims) -> str:
    """Return what a person said with the sentence behind it, if that goes on with the same thought."""
    following = next(iter(session.claims[claim.number + 1 : claim.number + 2]), None)
    if following is None or following.features["question"]:
        return said
    if (following.sentence.place, following.sentence.block) != (claim.sentence.place, claim.sentence.block):
        return said
    more = titles.clean(following.sentence.text)
    first = more.lower().split(" ", 1)[0]
    is_request = first in (*titles.IMPERATIVES, "please", "bitte", "i") or phrases.ONE_OFF.search(more)
    if len(said) + len(more) > 260 or following.features["very short"] or is_request:
        return said
    if SUBJECT_PRONOUN.match(more) or more.startswith("We "):
        return f"{said.rstrip(' .?')}: {more[0].lower()}{more[1:]}"
    if phrases.WIDE.search(said[-2:]):
        return said + more
    return f"{said.rstrip(' .?')}{'. ' if more[:1].isupper() else '; '}{more}"


def _support(draft: Draft, session: SessionClaims) -> list[Claim]:
    """Return a few sentences near a claim that say more of the same matter, the most telling first."""
    anchor = draft.anchor
    rows: list[tuple[float, Claim]] = []
    for other in session.claims:
        likeness, beside = session.likeness(anchor, other), is_close(anchor, other)
        if other is anchor or likeness >= _SAME or (likeness < _NEAR and not beside):
            continue
        if (
            titles.clean(other.sentence.text) in draft.statement
            or any(other is one for one in draft.support)
            or (other.sentence.channel is Channel.QUOTED and not is_confirmed(other))
            or not is_usable(other)
        ):
            continue
        rows.append((0.2 * other.features["telling"] + 0.6 * likeness + 0.12 * beside, other))
    chosen: list[Claim] = []
    room = _BODY_CHARS - len(draft.statement)
    for _, other in sorted(rows, key=lambda row: -row[0]):
        if len(chosen) == _MAX_SUPPORT:
            break
        length = len(other.sentence.text)
        if length <= room and all(session.likeness(other, kept) < 0.5 for kept in chosen):
            chosen.append(other)
            room -= length
    return chosen


def _features(draft: Draft) -> dict[str, float]:
    anchor = draft.anchor
    channels = {claim.sentence.channel for claim in draft.claims}
    made = {f"anchor {name}": value for name, value in anchor.features.items()}
    first = draft.title.lower().partition(" ")[0]
    made["title fixes"] = float(first in ("fix", "fixed", "fixes"))
    made["title does"] = float(first in titles.IMPERATIVES and first != "fix")
    made |= {
        "support": len(draft.support) / 3,
        "channels": len(channels) / 4,
        "with user": float(Channel.USER in channels),
        "with commit": float(bool(channels & {Channel.COMMIT, Channel.PUBLISHED, Channel.SUMMARY})),
        "tests": float(bool(_TESTS.search(draft.statement))),
        "status": float(bool(phrases.STATUS.search(draft.statement))),
        "purpose": float(bool(_PURPOSE.search(draft.statement))),
        "cut": float(len(draft.title) + 2 < len(draft.statement)),
    }
    return made
