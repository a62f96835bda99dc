"""Find the rows that can answer a question about sessions, and the profile of its intent."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nugget.errors import require_known
from nugget.index.embedded import events as store
from nugget.index.embedded.events import LogSession
from nugget.index.fulltext import STOP_WORDS, question_words
from nugget.models.sessions import Speaker, SpeechOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentProfile:
    """Weights and limits for one kind of question.

    `weights` (0..1) by category and `boosts` by property add up to a score; at most `caps` of each category are
    selected. `unasked` are the categories and properties of rows that are shown without a word of the question.
    Properties: `failing` (its command failed), `stderr` (the error stream), `open` and `fixed`.
    """

    weights: Mapping[str, float]
    caps: Mapping[str, int]
    unasked: frozenset[str]
    boosts: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Finding:
    """A row of a session's logs that may answer a question, later with its score (0..1) for that question.

    Kinds: `incident`, `failure.command`, `failure.tool`, `output`, `edit`, `command`, `prompt`, `note.<type>`.
    `salience` (0..1) is its weight whatever the question is, `is_asked` whether the question's words or meaning
    are in it; `marks` are its properties. `command` is the event of the command that printed a line. `facts` are
    JSON fields of an incident (title, summary, command, failures, fixed_by, first_ts_ms) or note (kind, text, open).
    """

    id: int
    kind: str
    text: str
    ts_ms: int
    salience: float
    marks: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    command: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""
    speaker: Speaker = Speaker.AGENT
    origin: SpeechOrigin = SpeechOrigin.WRITTEN
    score: float = 0.0
    is_asked: bool = False

    @property
    def category(self) -> str:
        """The category that decides its weight and cap in a profile."""
        kind = self.kind.partition(".")[0]
        return "command" if kind == "prompt" else kind


CATEGORIES = ("incident", "failure", "output", "edit", "command", "note")


def _profile(weights: str, caps: str, unasked: str, **boosts: float) -> IntentProfile:
    return IntentProfile(
        weights=dict(zip(CATEGORIES, map(float, weights.split()), strict=True)),
        caps=dict(zip(CATEGORIES, map(int, caps.split()), strict=True)),
        unasked=frozenset(unasked.split()),
        boosts=boosts,
    )


PROFILES: Mapping[str, IntentProfile] = {
    # weights and caps of: incident failure output edit command note
    "debug": _profile("1 .95 .9 .45 .3 .45", "6 10 16 4 4 4", "open fixed failing", failing=0.2, stderr=0.1, open=0.1),
    "resume": _profile(".9 .55 .4 .8 .5 1", "5 4 6 10 8 14", "open note edit command", failing=0.1, open=0.25),
    "what-changed": _profile(".4 .25 .15 1 .55 .7", "2 2 3 20 8 10", "edit note"),
    "status": _profile(".8 .6 .5 .75 .6 .85", "5 5 8 8 8 10", "open fixed note edit command", failing=0.1, open=0.2),
    "general": _profile(".8 .7 .65 .7 .7 .75", "5 6 10 8 8 8", "open fixed note edit command", failing=0.1, open=0.1),
}  # fmt: skip

INTENTS = tuple(PROFILES)
_FAILURE = (
    r"wrong|(?:errors?|fail(?:ures?)?|exceptions?|crash)(?![ -](?:handl|messag|page|code|type|class|screen|mode"
    r"|report|view|state|path|case|polic|polit|hook))|fail(?:ed|s|ing)|panic(?:k?ed|s|king)?|broken?|crash(?:ed|es"
    r"|ing)|traceback|stack ?trace|segfault\w*|stuck|hangs?(?! on\b)|hung|not work\w*|(?:does|did|is|are|wo"
    r"|ca)n['’]?t (?:work|run|start|build|compil|pass)\w*|exit(?:ed)? (?:code|status)"
)
_DIAGNOSTIC = re.compile(
    rf"\b(?:{_FAILURE}|debug(?:ging)?|why (?:do|did|does|is|was|are|were|has|can|wo)(?:n['’]?t| \w+ not))\b",
    re.IGNORECASE,
)
_KEYWORDS: Mapping[str, re.Pattern[str]] = {
    intent: re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for intent, words in {
        "debug": rf"{_FAILURE}|debug(?:ged|ging|s)?|fix(?:ed|es|ing)?|breaks?|bugs?|blocked|blockers?|diagnos\w+"
        r"|root cause|exit(?:ed)? with|went bad|problems?|issues?(?! tracker)",
        "resume": r"resum(?:e|ing)(?!\.\w)|continu(?:e|ing)|where (?:were|was|did) (?:we|i)|left off|leave off"
        r"|pick (?:it |this )?up|carry on|keep going|hand ?-?off|hand ?over|next steps?"
        r"|what(?:['’]s| is| was| comes) next|(?:do|work on) next|what was i|what were we|what now",
        "what-changed": r"what(?:['’]s| has| have| did (?:we|i|it|you))? (?:been )?chang\w+|which files?|what files?"
        r"|diffs?|changed files?|files? (?:were |was |have been )?(?:changed|edited|modified|touched)|changes"
        r"|(?:did|have) (?:we|i|you) (?:change|modify|edit|touch)|modified|edited|edits",
        "status": r"status(?! codes?\b| bars?\b)|summar(?:y|ise|ize)\w*|overview|progress|where are we|how far"
        r"|state of|how is it going|tl;?dr|recap",
    }.items()
}


def is_diagnostic(query: str) -> bool:
    """Return whether a question asks what went wrong; the mode `diagnostic` adds evidence only then."""
    return _DIAGNOSTIC.search(query) is not None


def choose_intent(name: str | None, query: str) -> str:
    """Return the named intent, or the first one with a word in the question.

    Raises UsageError for an unknown name.
    """
    if not name:
        return next((intent for intent, words in _KEYWORDS.items() if words.search(query)), "general")
    require_known("intent", [name], INTENTS)
    return name


MINOR = 0.2
"""Less severe incidents are shown only if asked for."""
_VIEW = (
    ("incidents", "1", 200), ("events", "ok = 0", 300), ("events", "kind IN ('command.start', 'prompt')", 150),
    ("command_inputs", "1", 150), ("pane_output", "is_failure = 1", 400), ("pane_output", "1", 400),
    ("file_edits", "1", 250), ("working_notes", "1", 300),
)  # fmt: skip
"""The rows of a session considered for every question: the newest of each kind, up to a number."""
_PER_SESSION = {"incident": 20, "failure": 10, "note": 20, "edit": 20, "output": 10, "command": 5}
_MAX_WORDS = 16
_UNTELLING = STOP_WORDS.union(
    "went wrong error errors fail failed failing failure failures happened happen happens problem problems issue "
    "issues fix fixed debug broke broken bug bugs crash crashed last latest recent session sessions today tell show "
    "give explain please using use run running ran tried try trying resume continue left off status summary overview "
    "summarize summarise yesterday progress recap changed change changes files file diff edited modified next again "
    "still out here now leave stand stopped doing working resuming continuing handoff handover steps time".split()
)
"""Words in questions that do not name a subject."""


def subject_words(query: str) -> tuple[str, ...]:
    """Return the words that name the subject of a question; `what went wrong` has none."""
    words = dict.fromkeys(word.lower() for word in question_words(query[:4000]))
    telling = [word for word in words if word not in _UNTELLING and (len(word) > 1 or word.isdigit())]
    return tuple(sorted(telling, key=len, reverse=True)[:_MAX_WORDS])


def session_evidence(connection: sqlite3.Connection, session: LogSession) -> dict[int, Finding]:
    """Return the rows of a session that are considered for every question, by id."""
    found: dict[int, Finding] = {}
    for table, where, limit in _VIEW:
        rows = store.rows_in(connection, table, *store.id_range(session.key), where=where, limit=limit, newest=True)
        found |= _findings(connection, table, rows, {session.key: session.id})
    return found


def evidence_by_id(
    connection: sqlite3.Connection, row_ids: Collection[int], names: Mapping[int, str]
) -> dict[int, Finding]:
    """Return rows of any table by id. `names` are the ids of sessions by key."""
    found: dict[int, Finding] = {}
    for table, own in store.ids_by_table(row_ids).items():
        found |= _findings(connection, table, store.rows_by_id(connection, table, own), names)
    return found


def strongest(candidates: Iterable[Finding]) -> dict[int, Finding]:
    """Return the strongest and latest candidates of each category of a session, by id."""
    left = dict(_PER_SESSION)
    kept = {}
    for one in sorted(candidates, key=lambda one: (-one.salience, -one.ts_ms)):
        if left[one.category] > 0 and (one.category != "output" or "failing" in one.marks):
            left[one.category] -= 1
            kept[one.id] = one
    return kept


def _findings(
    connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]], names: Mapping[int, str]
) -> dict[int, Finding]:
    speech = store.speech_of(connection, [row[0] for row in rows])
    findings = {}
    for one in filter(None, (_finding(table, *row) for row in rows)):
        one.speaker, one.origin = speech[one.id]
        one.session = names.get(store.session_key_of(one.id), "")
        findings[one.id] = one
    return findings


def _finding(table: str, row_id: int, ts_ms: int, *row: Any) -> Finding | None:
    """Return a row of a table as a finding, or None for an event that answers nothing."""

    def made(kind: str, text: str, salience: float, **values: Any) -> Finding:
        return Finding(id=row_id, ts_ms=ts_ms, kind=kind, text=text, salience=salience, **values)

    if table == "events":
        return _event(made, *row)
    if table == "command_inputs":
        return made("command", row[0], 0.35, reasons=("typed",))
    if table == "file_edits":
        path, action, ok = row
        is_done = ok != 0
        return made("edit", f"{path} ({action}{'' if is_done else ' failed'})", 0.6 if is_done else 0.3)
    if table == "pane_output":
        stream, text, is_failure, command = row
        marks = {"failing": is_failure, "stderr": stream == "stderr"}
        return made(
            "output", text, 0.6 if is_failure else 0.15, command=command,
            marks=tuple(mark for mark, is_met in marks.items() if is_met),
            reasons=(stream, *(["looks like a failure"] if is_failure else [])),
        )  # fmt: skip
    if table == "working_notes":
        kind, text, is_open, _ = row
        return made(
            f"note.{kind}", text, 0.6 if is_open else 0.25, reasons=() if is_open else ("done",),
            marks=("open",) if is_open and kind in ("todo", "blocker") else (),
            facts={"kind": kind, "text": text, "open": bool(is_open)},
        )  # fmt: skip
    first_ms, _, title, text, command, failures, fixed_by, details = row
    about, state = json.loads(details), "open" if fixed_by is None else "fixed"
    facts = {
        "title": title, "summary": tuple(about["summary"]), "command": command or None, "failures": failures,
        "fixed_by": fixed_by, "first_ts_ms": first_ms,
    }  # fmt: skip
    return made(
        "incident", text, about["severity"] * (1.0 if fixed_by is None else 0.85), facts=facts,
        marks=(state,) if about["severity"] >= MINOR else (), reasons=tuple(about["reasons"]),
    )  # fmt: skip


def _event(
    made: Callable[..., Finding], kind: str, tool: str | None, text: str, ok: int | None, code: int | None, _: Any
) -> Finding | None:
    if ok == 0 and kind == "command.end":
        outcome = f"exit {code}" if code is not None else "failed"
        return made("failure.command", f"{text} ({outcome})", 0.7, reasons=(outcome,))
    if ok == 0:
        shown = text if tool and text.startswith(tool) else f"{tool or 'tool'}: {text}"
        return made("failure.tool", shown[:1000], 0.5, reasons=(f"{tool or 'tool'} failed",))
    if kind == "command.start":
        return made("command", text, 0.4)
    return made("prompt", text[:1000], 0.5) if kind == "prompt" else None
