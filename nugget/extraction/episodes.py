"""Cut a session into episodes, each with a request, its findings and changes, and its outcome."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from nugget.extraction.phrases import ANSWERED, COMMITS, says
from nugget.models import Event, EventKind, Speaker

_NAME = re.compile(r"[\w.+#-]*\w[+#]*")
_PICKING = frozenset("a an and both das den die go i'd i just let's nimm ok okay please the then use with yes".split())
"""Words that may stand beside the names in a pick."""
_MOST_PICKED = 6
_TEST = re.compile(r"\b(?:test|lint|check|build|vet|typecheck|tsc|pytest|ruff|mypy|make|mise)\b")

_UNDO_CHARS, _REPORT_CHARS = 240, 600


class Turn(StrEnum):
    """The kind of a person's turn."""

    CHOICE = "choice"
    REFUSAL = "refusal"
    AGREEMENT = "agreement"
    OBJECTION = "objection"
    REQUEST = "request"
    PASTED = "pasted"
    PLAN = "plan"


@dataclass(slots=True)
class Episode:
    """One turn of a person, and everything up to the next.

    `first` and `last` are the numbers of its events; `offer` is the question and reply that the person picked from;
    `reaction` is the kind of the turn that follows, None at the end. `conceded` means that the agent's first reply
    gives way to the person, `denied` that it begins with a no, `accepted` that the person then agreed, and `undone`
    that they refused it, had it undone, or still saw the fault, then or after the next attempts.
    """

    turn: Turn
    first: int
    last: int
    prompt: str = ""
    edits: list[int] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    failed: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    reaction: Turn | None = None
    offer: str = ""
    conceded: bool = False
    denied: bool = False
    undone: bool = False
    accepted: bool = False


def episodes_of(events: Sequence[Event]) -> list[Episode]:
    """Cut the events into episodes at the turns of the person."""
    made = [Episode(turn=Turn.REQUEST, first=0, last=max(0, len(events) - 1))]
    outcome = {event.call_id: event.ok for event in events if event.kind is EventKind.OUTPUT and event.call_id}
    replied, reply = True, ""
    for place, event in enumerate(events):
        if event.kind is EventKind.PROMPT and event.agent_id is None:
            offer = f"{made[-1].prompt}\n{reply}" if reply and event.speaker is Speaker.USER else ""
            offer = offer if picked(event.text, offer) else ""
            turn = Turn.CHOICE if offer else turn_of(event)
            made[-1].last, made[-1].reaction = place - 1, turn
            is_refused = says("refuses").match(event.text) and not reply.rstrip().endswith("?")
            is_broken = turn is not Turn.PLAN and says("still_broken").search(event.text[:_REPORT_CHARS])
            made[-1].undone = bool(is_refused or is_broken)
            for one in made[:-1] if is_broken else ():  # an earlier attempt at the same
                is_same = not one.files.isdisjoint(made[-1].files)
                one.undone |= is_same and says("still_broken").search(one.prompt[:_REPORT_CHARS]) is not None
            made.append(Episode(turn=turn, first=place, last=len(events) - 1, prompt=event.text, offer=offer))
            replied = False
            continue
        now = made[-1]
        if event.kind is EventKind.REPLY and event.agent_id is None:
            reply = event.text
            if not replied:
                replied = True
                now.denied = bool(says("denies").match(event.text))
                now.conceded = bool(says("concedes").search(event.text[:160].replace("*", "")))
        elif event.kind is EventKind.FILE_EDIT and event.ok is not False:
            now.edits.append(place)
            now.files.update(filter(None, [event.path]))
        elif event.kind is EventKind.COMMAND:
            ok = outcome.get(event.call_id or "")
            if COMMITS.search(event.text):
                now.commits += [place] if ok is not False else []
            elif _TEST.search(event.text):
                (now.failed if ok is False else now.passed).append(place)
    for before, one, following in zip([made[0], *made], made, made[1:], strict=False):
        asked = len(following.prompt) <= _UNDO_CHARS and bool(says("undo").search(following.prompt))
        opening = re.split(r"(?<=[.!])\s", following.prompt.strip(), maxsplit=1)[0]
        one.accepted = (
            len(opening) < 60 and bool(says("agrees").search(opening)) and following.turn is not Turn.OBJECTION
        )
        is_objection = following.turn in (Turn.OBJECTION, Turn.REFUSAL)
        one.undone |= asked or (is_objection and following.conceded)
        before.undone |= is_objection and following.conceded and not (one.edits or before.edits or before.accepted)
    return [one for one in made if one.last >= one.first]


def picked(prompt: str, reply: str) -> tuple[str, ...]:
    """Return the opening words of a prompt if each names something that the question and reply before it offer."""
    opening = says("opening").split(prompt.strip(), 1)[0]
    is_question = re.search(r"^\W*(?:if|when)\b|[?？]", prompt.split("\n", 1)[0], re.IGNORECASE)
    is_offered = says("offers_options").search(reply) or says("recommends").search(reply)
    if is_question or not is_offered or says("errand").match(opening):
        return ()
    words = [word for word in _NAME.findall(opening) if word.lower() not in _PICKING]
    offered = {word.lower() for word in _NAME.findall(reply)}
    initials = "".join(word[0] for word in re.findall(r"[A-Za-z]+", reply)).lower()
    are_named = all(
        word.lower() in offered or (word.isupper() and len(word) > 2 and word.lower() in initials) for word in words
    )
    is_name = len(words) <= _MOST_PICKED and not says("english").search(" ".join(words))
    return tuple(words) if are_named and is_name else ()


def turn_of(event: Event) -> Turn:
    """Return the kind of turn that a prompt is."""
    text = event.text.strip()
    if event.speaker is not Speaker.USER:
        return Turn.PLAN if event.speaker is Speaker.AGENT else Turn.PASTED
    if event.tool and ANSWERED.match(text):
        return Turn.CHOICE
    if event.tool:
        return Turn.REFUSAL
    if says("choice").match(text):
        return Turn.CHOICE
    if len(text) < 80 and says("agrees").search(text):
        return Turn.AGREEMENT
    return Turn.OBJECTION if says("objects").search(text) else Turn.REQUEST
