"""Extract nuggets from a session without an LLM: why its files are the way they are.

Requests become intents, of the session and of each file; changes of manifests become dependencies; sentences that
give a reason become constraints, decisions, rejections, workarounds and caveats. A nugget belongs to the file and
symbol that its evidence names, or to the whole workspace if it names none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nugget.extraction import titles
from nugget.extraction.claims import SessionClaims, claims_of
from nugget.extraction.dependencies import DependencyChange, dependency_changes
from nugget.extraction.drafts import Draft
from nugget.extraction.file_changes import is_made_edit
from nugget.extraction.offline import MAX_UNITS, SHARED_WORDS, is_adopted, is_checked
from nugget.extraction.offline import drafts as judged_drafts
from nugget.extraction.phrases import says
from nugget.extraction.places import Places, is_generated, is_test
from nugget.extraction.requests import aim_of, cleaned, end_of, is_request, one_line, wish_of
from nugget.extraction.speech import Channel
from nugget.models import Event, EventKind, Evidence, KnowledgeType, Scope, Session, Speaker, SpeechOrigin
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, TouchAction
from nugget.sources.condense import Exchange, exchanges, without_recalled
from nugget.sources.speakers import PLAN_OPENING, passes_on
from nugget.text import shorten

INTENT, FILE_INTENT, DEPENDENCY = 0.6, 0.7, 0.7
"""The confidence of nuggets that are not judged."""
MAX_FILE_INTENTS = 40
PROMPT_CHARS, QUOTE_CHARS = 500, 280
_GROUPED_DEPENDENCIES, _FEW_FILES = 4, 4
_READ = (EventKind.PROMPT, EventKind.REPLY, EventKind.SUMMARY, EventKind.COMMAND, EventKind.FILE_EDIT)
_WORDS = re.compile(r"[^\W\d_]{2,}(?![^\W\d_]).*?[^\W\d_]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}", re.DOTALL)
_MENTION = re.compile(r"(?<![\w/])@?((?:~|\.{1,2})?/?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*)")
"""A possible path in prose; only files of the workspace count."""
_SYMBOL = re.compile(
    r"`([A-Za-z_$][\w$.:]*)(?:\([^`]*\))?`|\b([A-Za-z_]\w*(?:_\w+|[a-z][A-Z]\w*))\b|\b([A-Za-z_]\w{2,})\(\)"
)


@dataclass(slots=True)
class _Reading:
    """A redacted session, with what each exchange asked for and which files it touched.

    `aims` holds the wish behind each exchange (empty if unknown) and the event that states it.
    """

    session: Session
    places: Places
    touches: dict[str, FileTouch]
    now: datetime
    exchanges: list[Exchange] = field(default_factory=list)
    aims: list[tuple[str, Event | None]] = field(default_factory=list)
    touched_in: list[list[str]] = field(default_factory=list)
    number_of: dict[int, int] = field(default_factory=dict)
    symbols: dict[str, set[str]] = field(default_factory=dict)
    edited: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.exchanges = exchanges(self.session)
        aim: tuple[str, Event | None] = ("", None)
        for number, exchange in enumerate(self.exchanges):
            if exchange.prompt and is_request(exchange.prompt):  # after `go on` the previous aim still holds
                wanted = aim_of(exchange.prompt)
                aim = (wanted, exchange.events[0]) if wanted and not says("errand").match(wanted) else ("", None)
            self.aims.append(aim)
            touched: dict[str, None] = {}
            for event in exchange.events:
                self.number_of[id(event)] = number
                path = self.places.find(event.path or "") if is_made_edit(event, self.session) else None
                if path is not None:
                    touched[path] = None
                    symbol = self.places.symbol_at(path, event.after or event.before or "")
                    for key in ((path, number), (path, -1)):
                        self.edited.setdefault(key, Counter())[symbol] += 1
                    self.symbols.setdefault(symbol, set()).add(path)
            self.touched_in.append(list(touched))
        for path in self.touches:
            for names, *_ in self.places.functions.get(path, ("", []))[1]:
                self.symbols.setdefault(names[-1], set()).add(path)

    def nugget(
        self, type_: NuggetType, summary: str, confidence: float, *, event: Event | None, quote: str = "",
        path: str | None = None, symbol: str | None = None, detail: str = "",
    ) -> Nugget:  # fmt: skip
        """Return a nugget of this session, with `quote` of `event` as its evidence."""
        number = self.number_of.get(id(event), 0)
        prompt = self.exchanges[number].prompt or self.aims[number][0] if self.exchanges else ""
        touch = self.touches.get(path) if path else None
        if len(quote) > QUOTE_CHARS:
            quote = quote[:QUOTE_CHARS].rsplit(" ", 1)[0]
        speaker, origin = (event.speaker, event.origin) if event else (Speaker.AGENT, SpeechOrigin.WRITTEN)
        if event is not None and speaker is Speaker.USER and event.tool is None and passes_on(quote or event.text):
            speaker = Speaker.QUOTED
        records = (event.uuid,) if event and event.uuid else ()
        evidence = Evidence(session=self.session.id, quote=quote, records=records, speaker=speaker, origin=origin)
        return Nugget(
            id="", type=type_, summary=one_line(summary), confidence=confidence, session=self.session.id,
            detail=detail, scope=Scope(repo=self.places.repo, path=path, symbol=symbol), agent=self.session.agent,
            session_started=self.session.started, extracted_at=self.now,
            source_prompt=shorten(prompt, PROMPT_CHARS), file_hash=touch.after_hash if touch else None,
            evidence=(evidence,) if quote.strip() else (), speaker=speaker, origin=origin,
        )  # fmt: skip

    def files_in(self, text: str) -> list[str]:
        """Return the touched files that a text names by path, by the end of a path, or by a unique name."""
        found: dict[str, None] = {}
        for word in _words_in(text):
            bare = re.sub(r"^(?:\.{0,2}/)+", "", word)
            ending = [path for path in self.touches if f"/{path}".endswith(f"/{bare}") or word.endswith(f"/{path}")]
            if len(ending) == 1:
                found[ending[0]] = None
        return list(found)

    def scope_of(self, draft: Draft) -> tuple[str | None, str | None]:
        """Return the file and symbol that a draft names, else the only file touched when it was said."""
        quote = draft.anchor.sentence.quote
        words = {re.split(r"[.:]+", next(filter(None, match.groups())))[-1] for match in _SYMBOL.finditer(quote)}
        defined = [(word, *self.symbols[word]) for word in words if word in self.symbols]
        inside = {path for word in _words_in(quote) if "/" in word and (path := self.places.find(word))}
        named = self.files_in(quote) or [path for path in inside if self.places.is_file(path)]
        if len(defined) == 1 and len(defined[0]) == 2 and (len(named) != 1 or named == [defined[0][1]]):
            return defined[0][1], defined[0][0]
        number = self.number_of.get(id(draft.anchor.sentence.event), 0)
        if len(named) == 1:
            return named[0], self.symbol_of(named[0], number)
        touched = self.touched_in[number] if self.touched_in else []
        touched = [path for path in touched if path in self.touches and not is_test(path)] or touched
        return (touched[0], self.symbol_of(touched[0], number)) if len(touched) == 1 else (None, None)

    def symbol_of(self, path: str, number: int) -> str | None:
        """Return the symbol with at least half of a file's edits in an exchange, else in the session."""
        edits = self.edited.get((path, number)) or self.edited.get((path, -1)) or Counter()
        symbol, count = max(edits.items(), key=lambda one: one[1], default=("", 0))
        return symbol if symbol and 2 * count >= edits.total() else None


def heuristic_nuggets(
    session: Session, touches: Sequence[FileTouch], places: Places, *, now: datetime, reasons: bool = True
) -> tuple[Nugget, ...]:
    """Return the nuggets (without ids) of a redacted session; without `reasons`, only intents and dependencies."""
    read = _Reading(session=readable(session), places=places, now=now, touches={touch.path: touch for touch in touches})
    claims = claims_of(read.session.events)
    return *_intents(read), *_dependencies(read, claims), *(_reasons(read, claims) if reasons else ())


def readable(session: Session) -> Session:
    """Return a session with only the text that the heuristics read, since redaction takes time."""
    return replace(session, events=tuple(
        event if event.kind in _READ or event.tool == "AskUserQuestion"
        else replace(event, text="", before=None, after=None)
        for event in without_recalled(session.events)
    ))  # fmt: skip


def _intents(read: _Reading) -> Iterator[Nugget]:
    """Yield the aim of the session (its first, else its title) and of each changed file, once each."""
    aim, event = next(((aim, event) for aim, event in read.aims if aim), (one_line(read.session.title or ""), None))
    if len(aim) >= 8:
        yield read.nugget(NuggetType.INTENT, aim, INTENT, event=event, quote=event.text.strip() if event else "")
    wishes = _wishes(read)
    began = {path: number for number, touched in reversed([*enumerate(read.touched_in)]) for path in touched}
    for path, touch in [one for one in read.touches.items() if not is_generated(one[0])][:MAX_FILE_INTENTS]:
        number = began.get(path, 0)
        if path not in began and touch.at is not None:  # touched by a command: the last exchange begun by then
            begun = (n for n, one in enumerate(read.exchanges) if one.started and one.started <= touch.at)
            number = max(begun, default=0)
        asked, event = read.aims[number] if read.aims else ("", None)
        together = read.touched_in[number] if event else []
        if event and path not in wishes and (len(together) <= _FEW_FILES or event.text.startswith(PLAN_OPENING)):
            wishes[path] = asked, event.text.strip(), event
        if path not in wishes:
            continue
        wish, quote, event = wishes[path]
        name, previous = path.rpartition("/")[2], (touch.previous_path or "").rpartition("/")[2]
        verb = "Changed" if touch.action is TouchAction.MODIFIED else touch.action.capitalize()
        what = f"{verb} {f'{previous} to ' if previous else ''}{name}: {wish}"
        yield read.nugget(
            NuggetType.INTENT, what, FILE_INTENT, event=event, quote=quote, path=path,
            symbol=read.symbol_of(path, number), detail=wish if len(what) > SUMMARY_CHARS else "",
        )  # fmt: skip


def _wishes(read: _Reading) -> dict[str, tuple[str, str, Event]]:
    """Return the wish for each file that a request names, by path, with its quote and event.

    The first sentence that names code counts, else the first. A line of file names only, such as a heading in a plan,
    belongs to the sentence below it.
    """
    found: dict[str, tuple[str, str, Event]] = {}
    for exchange in read.exchanges:
        above: list[str] = []
        event = exchange.events[0]
        lines = event.text[:6000].split("\n") if exchange.prompt and is_request(exchange.prompt) else []
        for quote in (part for line in lines for part in says("part_ends").split(line.strip())):
            sentence = cleaned(quote)
            if not sentence or says("errand").match(sentence):
                continue
            named = read.files_in(sentence)
            if not _WORDS.search(re.sub(r"\S*[/.:`]\S+", " ", sentence)):  # nothing but paths
                above = named
                continue
            wish = wish_of(sentence, event.text)
            for path in (named or above) if wish else ():
                if path not in found or ("`" in wish and "`" not in found[path][0]):
                    found[path] = wish, quote, event
            above = []
    return found


def _dependencies(read: _Reading, claims: SessionClaims) -> Iterator[Nugget]:
    by_event: dict[int, list[DependencyChange]] = {}
    for change in dependency_changes([event for event in read.session.events if id(event) in read.number_of]):
        by_event.setdefault(id(change.event), []).append(change)
    for together in by_event.values():
        first = together[0]
        path = read.places.find(first.event.path or "")
        if path is None:
            continue
        told = [(change, titles.capitalised(change.summary), _why(read, change, claims)) for change in together]
        if len(together) > _GROUPED_DEPENDENCIES:
            verbs = {summary.partition(" ")[0] for _, summary, _ in told}
            verb = verbs.pop() if len(verbs) == 1 else "Changed"
            names = ", ".join(one.name for one in together)
            told = [(first, f"{verb} {len(together)} dependencies: {names}", "")]
        for change, summary, why in told:
            fits = why and len(summary) + 2 + len(why) <= SUMMARY_CHARS
            lines = (change.event.after or change.event.before or "").splitlines()
            quote = next((line.strip() for line in lines if change.name in line), "")
            yield read.nugget(
                NuggetType.DEPENDENCY, f"{summary}: {why}" if fits else summary, DEPENDENCY, event=change.event,
                quote=quote, path=path, detail="" if fits else shorten(why, 400),
            )  # fmt: skip


def _why(read: _Reading, change: DependencyChange, claims: SessionClaims) -> str:
    """Return the nearest sentence that names the dependency, at most two exchanges away, or nothing."""
    number = read.number_of[id(change.event)]
    short = change.name.rpartition("/")[2].lower()
    if len(short) < 3 and short != change.name:
        return ""
    near: list[tuple[int, str]] = []
    for sentence in (claim.sentence for claim in claims.claims):
        away, text = abs(number - read.number_of.get(id(sentence.event), number + 9)), sentence.text
        if away <= 2 and short in text.lower() and len(text) > len(short) + 12 and text.rstrip()[-1:] not in "?:":
            near.append((away, text))
    return min(near, key=lambda one: one[0], default=(0, ""))[1]


def _reasons(read: _Reading, claims: SessionClaims) -> Iterator[Nugget]:
    """Yield the decisions, rules and warnings of a session, each with its file or symbol.

    Those about no file are kept only if the user stated them for the whole project.
    """
    kept: list[Draft] = []
    for draft in sorted(judged_drafts(claims), key=lambda one: -one.confidence):
        sentence = draft.anchor.sentence
        kind = _kind(draft)
        is_said = any(claims.likeness(draft.anchor, other.anchor) >= SHARED_WORDS for other in kept)
        if kind is None or is_said or len(kept) == MAX_UNITS:
            continue
        path, symbol = read.scope_of(draft)
        is_general = sentence.channel is Channel.USER and (kind is not NuggetType.DECISION or draft.anchor.is_agreed)
        if path is None and not is_general:
            continue
        kept.append(draft)
        moment = sentence.event.timestamp or read.session.started or read.now
        whole, text = draft.statement.rstrip(".。"), draft.text()
        summary = one_line(whole)  # whole sentences, unless the first is too long
        title, found = draft.title if summary.endswith("…") else summary, draft.anchor.features
        is_choice = kind in (NuggetType.DECISION, NuggetType.REJECTION)
        is_mended = found["risk"] and (found["found then fixed"] or found["fix"])
        is_over = (found["past"] or is_mended) and not found["must"]
        if kind is NuggetType.CAVEAT and is_over:  # the danger is over
            kind, title = NuggetType.DECISION, f"Fixed: {draft.title}"
        nugget = read.nugget(
            kind, title, round(draft.confidence, 2), event=sentence.event, quote=sentence.quote, path=path,
            symbol=symbol, detail=text if text.rstrip(".。") != summary else "",
        )  # fmt: skip
        alternatives = draft.alternatives if is_choice else ()
        yield replace(nugget, alternatives=alternatives, stale_after=end_of(sentence.text, moment.date()))


def _kind(draft: Draft) -> NuggetType | None:
    """Return the type of nugget for a draft, or None unless the user said it or the session confirmed it."""
    text, found = draft.anchor.sentence.text, draft.anchor.features
    is_user = draft.anchor.sentence.channel is Channel.USER
    if is_user and says("rejects").search(text):
        return NuggetType.REJECTION
    has_reason = found["because"] or ": " in draft.statement
    is_rule = draft.kind is KnowledgeType.BELIEF and says("rules").search(text)
    if is_user and (is_rule or (has_reason and says("binds").search(text))):
        return None if says("passing").search(text) or says("first_person").search(text) else NuggetType.CONSTRAINT
    is_choice = found["decided"] or found["instead"] or draft.anchor.is_agreed
    is_passing = says("no_aim").match(draft.title) or (
        not (is_user or is_choice) and says("of_now").search(draft.title)
    )
    if is_passing or draft.kind is KnowledgeType.BELIEF or found["question"] or found["colon"]:
        return None
    if says("workaround").search(draft.statement):
        return NuggetType.WORKAROUND if is_user or is_adopted(draft) else None
    is_change = not found["risk"] and any(map((found | draft.features).get, ("intent", "title does", "title fixes")))
    if draft.kind is KnowledgeType.DECISION and (is_user or is_choice or is_change):
        is_stated = is_choice or says("chosen").search(text) or wish_of(draft.title, text)  # not a report of a defect
        is_meant = is_stated if is_user else is_adopted(draft) and not says("begins_step").match(draft.title)
        return NuggetType.DECISION if is_meant else None
    is_warning = is_checked(draft) and (found["risk"] or found["not"] or found["must"])
    return NuggetType.CAVEAT if is_warning and not (is_user or titles.is_imperative(draft.title)) else None


def is_repeated(nugget: Nugget, kept: Sequence[Nugget], *, least: float) -> bool:
    """Return whether a nugget and another of its type and scope share `least` of the words of the shorter (0 to 1)."""
    alike = (one for one in kept if one.type is nugget.type and one.scope == nugget.scope)
    ours, *others = (set(re.findall(r"[a-z_]\w{2,}", one.summary.lower())) for one in (nugget, *alike))
    return any(len(ours & theirs) >= least * max(1, min(len(ours), len(theirs))) for theirs in others)


def _words_in(text: str) -> list[str]:
    return [match[1].rstrip(".") for match in _MENTION.finditer(text)]
