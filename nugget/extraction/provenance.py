"""Nuggets from a session without an LLM: why its files are the way they are.

What was asked for becomes intents, of the whole session and of each file; what was added to manifests becomes
dependencies; sentences that give a reason become constraints, decisions, rejections, workarounds and caveats. Each
nugget belongs to the file, and the symbol, that its evidence names; to the whole workspace where it names none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from nugget.config import Settings
from nugget.extraction import file_nuggets, phrases, titles
from nugget.extraction.claims import SessionClaims, claims_of
from nugget.extraction.dependencies import MANIFESTS, DependencyChange, dependency_changes
from nugget.extraction.drafts import Draft
from nugget.extraction.offline import alternatives_of, is_adopted, is_checked
from nugget.extraction.offline import drafts as judged_drafts
from nugget.extraction.places import Mentions, Places, definitions
from nugget.extraction.requests import cleaned, is_request, is_wish, one_line, shared_words
from nugget.extraction.speech import Channel
from nugget.extraction.touches import TouchedFiles, is_made_edit
from nugget.models import Event, EventKind, Evidence, KnowledgeType, Scope, Session, Speaker, SpeechOrigin
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType
from nugget.redaction import redact_session
from nugget.sources.condense import Exchange, exchanges, without_recalled
from nugget.sources.speakers import passes_on
from nugget.text import shorten

INTENT, DEPENDENCY = 0.6, 0.7
"""Confidence of an intent, and of a dependency."""
LEAST = 0.45
"""Confidence from which a sentence tells why code is as it is."""
PER_TYPE = 5
"""Decisions, rules or warnings from one session, at most."""
PROMPT_CHARS = 500
QUOTE_CHARS = 280
_GROUPED_DEPENDENCIES = 4
_COMMAND_CHARS = 300
_REPEATS = 0.9
_NEXT_STEP = phrases.any_of(r"(?:test|check|verify|run|add|write|update|create|implement)\b")
"""How an agent begins what it does next, which is no choice between ways to do it."""
_WORTH_READING = ("git commit", "gh pr ", " install", " i ", " add ", " get ", " rem")
"""Parts of commands that say why, or change a dependency."""


@dataclass(slots=True)
class Reading:
    """A session as the heuristics read it: redacted, with its exchanges and the files touched in each."""

    session: Session
    places: Places
    touches: dict[str, FileTouch]
    edited_between: Sequence[str]
    now: datetime
    exchanges: list[Exchange] = field(default_factory=list)
    requests: list[tuple[str, Event | None]] = field(default_factory=list)
    touched_in: list[list[str]] = field(default_factory=list)
    place_of: dict[int, int] = field(default_factory=dict)
    mentions: Mentions = field(init=False)

    def __post_init__(self) -> None:
        self.exchanges = exchanges(self.session)
        edits: list[tuple[str, Event]] = []
        asked: tuple[str, Event | None] = ("", None)
        for number, exchange in enumerate(self.exchanges):
            if exchange.prompt and is_request(exchange.prompt):
                wanted = cleaned(exchange.prompt)
                asked = (wanted, exchange.events[0]) if is_wish(wanted) else asked
            self.requests.append(asked)
            touched: dict[str, None] = {}
            for event in exchange.events:
                self.place_of[id(event)] = number
                path = self.places.find(event.path or "") if is_made_edit(event, self.session) else None
                if path is not None:
                    touched[path] = None
                    edits.append((path, event))
            self.touched_in.append(list(touched))
        self.mentions = Mentions(self.places, list(self.touches), edits)

    def nugget(
        self, type_: NuggetType, summary: str, confidence: float, *, event: Event | None, quote: str = "",
        path: str | None = None, symbol: str | None = None, detail: str = "",
    ) -> Nugget:  # fmt: skip
        """A nugget of this session, with `quote` of `event` as its evidence."""
        number = self.place_of.get(id(event), 0)
        prompt = self.exchanges[number].prompt or self.requests[number][0] if self.exchanges else ""
        touch = self.touches.get(path) if path else None
        records = (event.uuid,) if event is not None and event.uuid else ()
        if len(quote) > QUOTE_CHARS:
            quote = quote[:QUOTE_CHARS].rsplit(" ", 1)[0]
        speaker, origin = (event.speaker, event.origin) if event else (Speaker.AGENT, SpeechOrigin.WRITTEN)
        if event is not None and speaker is Speaker.USER and event.tool is None and passes_on(quote or event.text):
            speaker = Speaker.QUOTED
        evidence = Evidence(
            session=self.session.id, quote=quote, records=records, speaker=speaker, origin=origin
        )  # fmt: skip
        return Nugget(
            id="", type=type_, summary=one_line(summary), confidence=confidence, session=self.session.id,
            detail=detail, scope=Scope(repo=self.places.repo, path=path, symbol=symbol), agent=self.session.agent,
            session_started=self.session.started, extracted_at=self.now,
            source_prompt=shorten(prompt, PROMPT_CHARS), file_hash=touch.after_hash if touch else None,
            evidence=(evidence,) if quote.strip() else (), speaker=speaker, origin=origin,
        )  # fmt: skip


def heuristic_nuggets(
    session: Session, touched: TouchedFiles, places: Places, *, settings: Settings, now: datetime, reasons: bool = True
) -> tuple[Nugget, ...]:
    """Return the nuggets of a session that is not redacted yet, without ids.

    What the heuristics do not read is left out, the rest redacted. Without `reasons` only intents and dependencies.
    """
    slim = replace(session, events=tuple(map(_slim, without_recalled(session.events))))
    reading = Reading(
        session=redact_session(slim, settings=settings)[0], places=places, now=now,
        touches={touch.path: touch for touch in touched.touches}, edited_between=touched.edited_between,
    )  # fmt: skip
    claims = claims_of(reading.session.events)
    found = [
        *_intent(reading),
        *file_nuggets.of_files(reading),
        *_dependencies(reading, claims),
        *(_reasons(reading, claims) if reasons else ()),
    ]
    return tuple(_distinct(found))


def _slim(event: Event) -> Event:
    """Return an event with as much of its text as the heuristics read."""
    kind = event.kind
    if kind in (EventKind.PROMPT, EventKind.REPLY, EventKind.SUMMARY) or event.tool == "AskUserQuestion":
        return event
    if kind is EventKind.COMMAND:
        is_worth_it = any(word in event.text for word in _WORTH_READING)
        return event if is_worth_it else replace(event, text=event.text[:_COMMAND_CHARS])
    if kind is EventKind.FILE_EDIT:
        name = (event.path or "").replace("\\", "/").rpartition("/")[2]
        if any(fnmatchcase(name, entry[0]) for entry in MANIFESTS):
            return event
        return replace(event, text="", before=None, after=definitions(event.after or ""))
    return replace(event, text="", before=None, after=None)


def _intent(reading: Reading) -> Iterator[Nugget]:
    """What the session was for: the first prompt that asks for something, else the session's title."""
    request, event = next(((text, event) for text, event in reading.requests if event is not None), ("", None))
    if not request:
        request = reading.session.title or ""
        if len(request) < 8:
            return
    detail = shorten(request, 400) if len(request) > SUMMARY_CHARS else ""
    quote = event.text.strip() if event is not None else ""
    yield reading.nugget(NuggetType.INTENT, request, INTENT, event=event, quote=quote, detail=detail)


def _dependencies(reading: Reading, claims: SessionClaims) -> Iterator[Nugget]:
    events = [event for event in reading.session.events if id(event) in reading.place_of]
    outputs = {one.call_id: one for one in reading.session.events if one.kind is EventKind.OUTPUT and one.call_id}
    by_event: dict[int, list[DependencyChange]] = {}
    for change in dependency_changes(events, outputs):
        by_event.setdefault(id(change.event), []).append(change)
    for together in by_event.values():
        first = together[0]
        path = reading.places.find(first.manifest) if first.manifest else _manifest(reading, first)
        if first.manifest and path is None:
            continue
        if len(together) > _GROUPED_DEPENDENCIES:
            verbs = {titles.capitalised(one.summary).partition(" ")[0] for one in together}
            verb = verbs.pop() if len(verbs) == 1 else "Changed"
            summary = f"{verb} {len(together)} dependencies: {', '.join(one.name for one in together)}"
            detail = "\n".join(f"- {change.summary}" for change in together[:40])
            yield _dependency(reading, first, summary, detail, path)
            continue
        for change in together:
            why, summary = _why(reading, change, claims), titles.capitalised(change.summary)
            fits = why and len(summary) + 2 + len(why) <= SUMMARY_CHARS
            said = f"{summary}: {why}" if fits else summary
            yield _dependency(reading, change, said, "" if fits else shorten(why, 400), path)


def _dependency(reading: Reading, change: DependencyChange, summary: str, detail: str, path: str | None) -> Nugget:
    event = change.event
    text = event.text if change.manifest is None else (event.after or event.before or "")
    quote = next((line.strip() for line in text.splitlines() if change.name in line), "")
    kind = NuggetType.DEPENDENCY
    return reading.nugget(kind, summary, DEPENDENCY, event=event, quote=quote, path=path, detail=detail)


def _why(reading: Reading, change: DependencyChange, claims: SessionClaims) -> str:
    """Return the nearest sentence that names the dependency, in its exchange or one before or after; else nothing."""
    number = reading.place_of[id(change.event)]
    short = change.name.rpartition("/")[2].lower()
    if len(short) < 3 and short != change.name:
        return ""
    near: list[tuple[int, str]] = []
    for sentence in (claim.sentence for claim in claims.claims):
        away, text = abs(number - reading.place_of.get(id(sentence.event), number + 9)), sentence.text
        if away <= 2 and short in text.lower() and len(text) > len(short) + 12 and not text.rstrip().endswith("?"):
            near.append((away, text))
    return min(near, key=lambda one: one[0], default=(0, ""))[1]


def _manifest(reading: Reading, change: DependencyChange) -> str | None:
    """Return the manifest that a package program changed: the one of its kind that was touched or the root holds."""
    globs = [entry[0] for entry in MANIFESTS if entry[1] == change.ecosystem]
    touched = [path for path in reading.touches if any(PurePosixPath(path).match(glob) for glob in globs)]
    if len(touched) == 1:
        return touched[0]
    return next((glob for glob in globs if "*" not in glob and reading.places.is_file(glob)), None)


def _reasons(reading: Reading, claims: SessionClaims) -> Iterator[Nugget]:
    """Yield the decisions, rules and warnings of a session, each at the file or symbol that it is about.

    What is about no file is kept only if the user said it of the whole project.
    """
    counts: Counter[NuggetType] = Counter()
    for draft in sorted(judged_drafts(claims, least=LEAST), key=lambda one: -one.confidence):
        sentence = draft.anchor.sentence
        kind = _kind(draft)
        if kind is None or counts[kind] == PER_TYPE:
            continue
        path, symbol = _scope(reading, draft)
        if path is None and sentence.channel is not Channel.USER:
            continue
        counts[kind] += 1
        moment = sentence.event.timestamp or reading.session.started or reading.now
        nugget = reading.nugget(
            kind, draft.title, round(draft.confidence, 2), event=sentence.event, quote=sentence.quote, path=path,
            symbol=symbol, detail=draft.text() if draft.text().rstrip(".") != draft.title else "",
        )  # fmt: skip
        is_choice = kind in (NuggetType.DECISION, NuggetType.REJECTION)
        alternatives = alternatives_of(draft, claims) if is_choice else ()
        stale_after = phrases.end_of(sentence.text, moment.date())
        yield replace(nugget, alternatives=alternatives, stale_after=stale_after)


def _kind(draft: Draft) -> NuggetType | None:
    """Return the type of nugget that a draft is; None unless the user said it or the session confirmed it."""
    text, found = draft.anchor.sentence.text, draft.anchor.features
    is_user = draft.anchor.sentence.channel is Channel.USER
    if is_user and phrases.REJECTS.search(text):
        return NuggetType.REJECTION
    if draft.kind is KnowledgeType.BELIEF:
        return NuggetType.CONSTRAINT if is_user else None
    if phrases.WORKAROUND.search(draft.statement):
        return NuggetType.WORKAROUND if is_user or is_adopted(draft) else None
    if draft.kind is KnowledgeType.DECISION:
        is_meant = is_user or (is_adopted(draft) and not _NEXT_STEP.match(draft.title))
        return NuggetType.DECISION if is_meant else None
    if not is_user and is_checked(draft) and (found["risk"] or found["not"] or found["must"]):
        return NuggetType.CAVEAT
    return None


def _scope(reading: Reading, draft: Draft) -> tuple[str | None, str | None]:
    """Return the file and the symbol that a draft is about: named by it, or the only file touched where it was said."""
    quote = draft.anchor.sentence.quote
    defined = reading.mentions.symbol(quote)
    named = reading.mentions.any_file(quote)
    if defined is not None and named in (None, defined[1]):
        return defined[1], defined[0]
    if named is not None:
        return named, None
    touched = reading.touched_in[reading.place_of.get(id(draft.anchor.sentence.event), 0)] if reading.touched_in else []
    touched = [path for path in touched if path in reading.touches and not file_nuggets.is_test(path)] or touched
    return (touched[0], None) if len(touched) == 1 else (None, None)


def _distinct(nuggets: Sequence[Nugget]) -> Iterator[Nugget]:
    """Yield nuggets without those that repeat another of their type and scope."""
    kept: list[Nugget] = []
    for nugget in nuggets:
        said = [one.summary for one in kept if one.type is nugget.type and one.scope == nugget.scope]
        least = 2.0 if nugget.type is NuggetType.INTENT else _REPEATS
        is_same = any(one == nugget.summary or shared_words(one, nugget.summary) >= least for one in said)
        if nugget.summary and not is_same:
            kept.append(nugget)
            yield nugget
