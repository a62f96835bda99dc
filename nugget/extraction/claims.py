"""Claims: sentences that may be knowledge, with the features that the judge weighs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nugget.extraction import titles
from nugget.extraction.episodes import Episode, Turn, episodes_of, picked
from nugget.extraction.phrases import WIDE, WORD, features, says, words_of
from nugget.extraction.speech import Channel, Sentence, sentences_of
from nugget.models import Event, EventKind, Speaker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TRIED = 9
"""Number of events after a claim in which to look for the agent saying that its attempt did not help."""
_LATER_EDITS = 50
"""Number of later edits of a file in which to look for one that reverts an edit."""
TELLING = ("must", "instead", "because", "cause", "fix", "intent", "decided", "risk", "contrast")
_NO_SUPPORT = ("question", "colon", "very short", "next_step", "offer")


@dataclass(slots=True)
class Claim:
    """A sentence with its context. `features` are what the judge weighs, `size` is the length of its word vector."""

    sentence: Sentence
    episode: Episode
    number: int
    features: dict[str, float] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    size: float = 1.0
    vector: NDArray[np.float32] | None = None
    is_refuted: bool = False

    @property
    def is_agreed(self) -> bool:
        """True if the claim is an offer that the person accepted, or the option that they chose."""
        return bool(self.features["offer accepted"] or self.features["option chosen"])

    @property
    def speaker(self) -> Speaker:
        """The speaker; text that the user passes on counts as quoted."""
        return Speaker.QUOTED if self.sentence.channel is Channel.QUOTED else self.sentence.event.speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClaims:
    """All claims of a session; `holders` are the numbers of the claims with a word, `weights` how rare it is."""

    events: Sequence[Event]
    episodes: Sequence[Episode]
    claims: Sequence[Claim]
    holders: Mapping[str, Sequence[int]]
    weights: Mapping[str, float]

    def near(self, one: Claim) -> Iterator[tuple[Claim, float, bool]]:
        """Yield the claims that share a word with one or stand close to it, with their likeness and closeness."""
        numbers = {number for word in one.words for number in self.holders[word]}
        numbers.update(range(max(0, one.number - 2), min(one.number + 3, len(self.claims))))
        for other in (self.claims[number] for number in sorted(numbers - {one.number})):
            yield other, self.likeness(one, other), _is_close(one, other)

    def likeness(self, one: Claim, other: Claim) -> float:
        """Return the cosine similarity of two claims' words, weighted by how rare they are in the session."""
        shared = one.words & other.words
        return math.fsum(map(self.weights.__getitem__, shared)) / (one.size * other.size) if shared else 0.0


def claims_of(events: Sequence[Event]) -> SessionClaims:
    """Return the sentences of a session with the features that the judge weighs."""
    episodes = episodes_of(events)
    starts = [one.first for one in episodes]
    claims: list[Claim] = []
    at = 0
    for sentence in sentences_of(events):
        while at + 1 < len(starts) and sentence.place >= starts[at + 1]:
            at += 1
        claims.append(Claim(sentence, episodes[at], len(claims), words=words_of(sentence.text)))
    holders: dict[str, list[int]] = {}
    for claim in claims:
        for word in claim.words:
            holders.setdefault(word, []).append(claim.number)
    weights = {word: math.log(1 + len(claims) / len(numbers)) ** 2 for word, numbers in holders.items()}
    for claim in claims:
        claim.size = math.sqrt(math.fsum(map(weights.__getitem__, claim.words))) or 1.0
    session = SessionClaims(events=events, episodes=episodes, claims=claims, holders=holders, weights=weights)
    _add_features(session)
    return session


def _add_features(session: SessionClaims) -> None:
    """Fill in the features of every claim."""
    last_reply = {}
    for claim in session.claims:
        if claim.sentence.channel is Channel.REPLY:
            last_reply[id(claim.episode)] = claim.sentence.place
    chosen = _chosen_options(session)
    reverted = _reverted(session.events)
    for claim in session.claims:
        made = word_features(claim.sentence.text)
        is_first = claim.sentence.place == claim.episode.first and not (claim.sentence.block or claim.sentence.number)
        made["option chosen"] = float(claim.number in chosen or bool(claim.episode.offer and is_first))
        made |= _context_features(claim, last_reply)
        claim.features = made
        claim.is_refuted = _is_refuted(claim, session.events, reverted)


def word_features(text: str) -> dict[str, float]:
    """Return the features of a sentence that depend on its words alone."""
    body = titles.clean(text)
    count = len(WORD.findall(body)) + len(WIDE.findall(body)) / 2
    lowered = body.lower()
    made = {name: float(bool(pattern.search(lowered))) for name, pattern in features().items()}
    made["instead"] = made["instead"] or float(bool(says("stressed_not").search(body)))
    made |= {
        "telling": (sum(made[name] for name in TELLING) - made["next_step"] - made["offer"]) / 4,
        "short": float(count < 7), "very short": float(count < 4), "long": float(count > 32),
        "length": min(count, 30) / 30,
        "colon": float(body.rstrip(" *").endswith((":", "："))), "chore": float(bool(says("chore").search(body))),
    }  # fmt: skip
    return made


def _context_features(claim: Claim, last_reply: Mapping[int, int]) -> dict[str, float]:
    sentence, episode = claim.sentence, claim.episode
    made = {f"channel {channel}": float(sentence.channel is channel) for channel in Channel}
    is_reply, is_user = sentence.channel is Channel.REPLY, sentence.channel is Channel.USER
    closes = is_reply and last_reply.get(id(episode)) == sentence.place
    is_offer = closes and bool(says("offers").search(sentence.text))
    is_advice = closes and episode.accepted and bool(says("recommends").search(sentence.text))
    edits_before = any(place < sentence.place for place in episode.edits)
    edits_after = any(place > sentence.place for place in episode.edits)
    made |= {
        "found then fixed": float(is_reply and edits_after and not edits_before),
        "conceded": float(episode.conceded),
        "failed before": float(any(place < sentence.place for place in episode.failed)),
        "user and objection": float(is_user and episode.turn in (Turn.OBJECTION, Turn.REFUSAL)),
        "offer accepted": float(is_advice or (is_offer and episode.reaction in (Turn.AGREEMENT, Turn.CHOICE))),
    }  # fmt: skip
    return made


def _chosen_options(session: SessionClaims) -> set[int]:
    """Return the numbers of the claims that a person chose from a list by letter or number."""
    found: set[int] = set()
    for episode in session.episodes:
        letter = says("picked").search(episode.prompt.strip())
        if letter is None or episode.turn is not Turn.CHOICE or not (letter[1] or len(episode.prompt) < 24):
            continue
        place = None
        for claim in reversed([one for one in session.claims if one.sentence.place < episode.first]):
            sentence = claim.sentence
            if sentence.channel is not Channel.REPLY or sentence.number:
                continue
            if place not in (None, sentence.place):
                break
            line = sentence.event.text[sentence.event.text.rfind("\n", 0, sentence.start) + 1 : sentence.end]
            if mark := re.match(r"\W{0,6}(?:option )?([A-E1-9])(?:[).:]|\s[—–-]\s)", line, re.IGNORECASE):
                place = sentence.place
                if mark[1].upper() == letter[0][-1].upper():
                    found.add(claim.number)
                    break
    return found


def _is_refuted(claim: Claim, events: Sequence[Event], reverted: Sequence[tuple[int, int, frozenset[str]]]) -> bool:
    """Return whether the session later took back what the agent said or planned."""
    channel, place, episode = claim.sentence.channel, claim.sentence.place, claim.episode
    if channel in (Channel.USER, Channel.QUOTED, Channel.SUMMARY):
        return False
    is_refused = channel is Channel.PLAN and episode.reaction is Turn.REFUSAL
    if is_refused or (channel in (Channel.PLAN, Channel.REPLY) and episode.undone):
        return True
    for edit, later, words in reverted:
        if episode.first <= edit <= episode.last and edit - 1 <= place < later and claim.words & words:
            return True
    tried = False
    for event in events[place + 1 : min(place + _TRIED, episode.last + 1)]:
        tried = tried or event.kind in (EventKind.FILE_EDIT, EventKind.COMMAND)
        taken_back = says("still_wrong") if tried else says("on_second_thought")
        if event.kind is EventKind.REPLY and taken_back.match(event.text):
            return True
    return False


def _reverted(events: Sequence[Event]) -> list[tuple[int, int, frozenset[str]]]:
    """Return the places of each reverted edit and of the edit that reverts it, with the words of both."""
    edits: dict[str, list[tuple[int, set[str], set[str]]]] = {}
    for place, event in enumerate(events):
        if event.kind is EventKind.FILE_EDIT and event.ok is not False and event.path:
            before, after = (
                {*map(str.strip, (text or "")[:20000].splitlines())} - {""} for text in (event.before, event.after)
            )
            edits.setdefault(event.path, []).append((place, after - before, before - after))
    found = []
    for made in edits.values():
        for number, (place, came, went) in enumerate(made):
            for later, back, gone in made[number + 1 : number + _LATER_EDITS]:
                if came and went and 2 * len(came & gone) >= len(came) and 2 * len(went & back) >= len(went):
                    found.append((place, later, words_of("\n".join(came | went))))
                    break
    return found


def continued(claim: Claim, session: SessionClaims) -> list[Claim]:
    """Return the sentences after a claim in its paragraph that continue its thought."""
    found: list[Claim] = []
    for other in session.claims[claim.number + 1 : claim.number + 3]:
        near = claim.sentence
        if other.sentence.place != near.place or other.sentence.block != near.block:
            break
        if other.is_refuted or any(other.features[name] for name in _NO_SUPPORT):
            break
        said = titles.clean(other.sentence.text)
        linked = says("links_back").match(said) or session.likeness(claim, other) >= 0.15
        if not linked or says("first_person").search(said) or len(said) > 320:
            break
        found.append(other)
    return found


def said_about_pick(claim: Claim, session: SessionClaims) -> list[Claim]:
    """Return what the offer says about the option that a person picked in a few words."""
    episode = claim.episode
    if not (claim.features["option chosen"] and claim.features["short"]):
        return []
    names = [name.lower() for name in picked(episode.prompt, episode.offer)]
    before = session.claims[: claim.number]
    said = [one for one in before if episode.offer.endswith(one.sentence.event.text) and is_usable(one)]
    return [one for one in said if any(name in one.sentence.text.lower() for name in names)][:2]


def is_usable(claim: Claim) -> bool:
    """Return whether a sentence may stand in a body beside the claim."""
    text = claim.sentence.text
    if claim.is_refuted or any(claim.features[name] for name in _NO_SUPPORT):
        return False
    said = titles.point_of(text)
    if len(words_of(said)) < 3 or said[:1] in "=\"'>":
        return False
    return not says("first_person").search(said) and not says("subject_pronoun").match(said) and len(said) <= 320


def _is_close(one: Claim, other: Claim) -> bool:
    """Return whether two claims stand next to each other, and not as two items of a list."""
    ours, theirs = one.sentence, other.sentence
    is_near = ours.place == theirs.place and 0 < abs(one.number - other.number) <= 2
    return is_near and (ours.block == theirs.block or not (ours.is_listed and theirs.is_listed))


def is_confirmed(claim: Claim) -> bool:
    """Return whether the agent agreed with a pasted text and then edited something."""
    return claim.episode.conceded and bool(claim.episode.edits)
