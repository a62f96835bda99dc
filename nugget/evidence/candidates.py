"""Find the rows that a question about a session can be answered from, and the profile of its intent."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from nugget.errors import UsageError
from nugget.evidence.values import INTENTS
from nugget.extraction.fixes import bare_command
from nugget.index import events as store
from nugget.index.events import LogSession
from nugget.index.fulltext import STOP_WORDS
from nugget.models.speech import Speaker, SpeechOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one kind of question is answered.

    `weights` (0..1) say how much each category counts, `caps` how many of each are selected at most; `boosts` are
    added for what stands beside a category: a line that looks like a failure (`failing`), the error stream (`stderr`),
    an incident that nothing has fixed yet (`open`). `plain_share` (0..1) is what is left of the score of a line of
    output that reports no failure.
    """

    weights: Mapping[str, float]
    caps: Mapping[str, int]
    boosts: Mapping[str, float] = field(default_factory=dict)
    plain_share: float = 1.0


CATEGORIES = ("incident", "failure", "output", "edit", "command", "note")


def _profile(weights: str, caps: str, *, plain_share: float = 1.0, **boosts: float) -> Profile:
    return Profile(
        weights=dict(zip(CATEGORIES, map(float, weights.split()), strict=True)),
        caps=dict(zip(CATEGORIES, map(int, caps.split()), strict=True)),
        boosts=boosts,
        plain_share=plain_share,
    )


PROFILES: Mapping[str, Profile] = {
    #                   incident failure output edit command note
    "debug": _profile("1.00 0.95 0.90 0.45 0.30 0.45", "6 10 16 4 4 4", plain_share=0.4, failing=0.2, stderr=0.1,
                      open=0.1),
    "resume": _profile("0.90 0.55 0.40 0.80 0.50 1.00", "5 4 6 10 8 14", failing=0.1, open=0.25),
    "what-changed": _profile("0.40 0.25 0.15 1.00 0.55 0.70", "2 2 3 20 8 10"),
    "status": _profile("0.80 0.60 0.50 0.75 0.60 0.85", "5 5 8 8 8 10", failing=0.1, open=0.2),
    "general": _profile("0.80 0.70 0.65 0.70 0.70 0.75", "5 6 10 8 8 8", failing=0.1, open=0.1),
}  # fmt: skip

_KEYWORDS: Mapping[str, re.Pattern[str]] = {
    "debug": re.compile(
        r"\b(?:errors?|fail(?:ed|s|ing|ures?)?|panic(?:k?ed|s|king)?|debug(?:ged|ging|s)?|fix(?:ed|es|ing)?|wrong"
        r"|broken?|breaks?|crash(?:ed|es|ing)?|exceptions?|traceback|stack ?trace|bugs?|stuck|blocked|blockers?"
        r"|diagnos\w+|root cause|segfault\w*|not work\w*"
        r"|(?:does|did|is|are|wo|ca)n['’]?t (?:work|run|start|build|compil|pass)\w*"
        r"|hangs?(?! on\b)|hung|exit(?:ed)? (?:code|status|with)|went bad|problems?|issues?(?! tracker))\b",
        re.IGNORECASE,
    ),
    "resume": re.compile(
        r"\b(?:resum(?:e|ing)(?!\.\w)|continu(?:e|ing)|where (?:were|was|did) (?:we|i)|left off|leave off"
        r"|pick (?:it |this )?up|carry on|keep going|hand ?-?off|hand ?over|next steps?"
        r"|what(?:['’]s| is| was| comes) next|(?:do|work on) next|what was i|what were we|what now)\b",
        re.IGNORECASE,
    ),
    "what-changed": re.compile(
        r"\b(?:what(?:['’]s| has| have| did (?:we|i|it|you))? (?:been )?chang\w+|which files?|what files?|diffs?"
        r"|changed files?|files? (?:were |was |have been )?(?:changed|edited|modified|touched)|changes"
        r"|(?:did|have) (?:we|i|you) (?:change|modify|edit|touch)|modified|edited|edits)\b",
        re.IGNORECASE,
    ),
    "status": re.compile(
        r"\b(?:status(?! codes?\b| bars?\b)|summar(?:y|ise|ize)\w*|overview|progress|where are we|how far|state of"
        r"|how is it going|tl;?dr|recap)\b",
        re.IGNORECASE,
    ),
}

_DIAGNOSTIC = re.compile(
    r"\b(?:wrong|errors?|fail(?:ed|s|ing|ures?)?|traceback|stack ?trace|exceptions?|panic(?:k?ed|s|king)?"
    r"|crash(?:ed|es|ing)?|broken?|debug(?:ging)?|segfault\w*|hangs?(?! on\b)|hung|stuck"
    r"|not work\w*|(?:does|did|is|are|wo|ca)n['’]?t (?:work|run|start|build|compil|pass)\w*"
    r"|why (?:do|did|does|is|was|are|were|has|can|wo)(?:n['’]?t| \w+ not)|exit(?:ed)? (?:code|status))\b",
    re.IGNORECASE,
)


def detect_intent(query: str) -> str:
    """The intent that a question shows: the first of debug, resume, what-changed and status whose words stand in it."""
    return next((intent for intent, words in _KEYWORDS.items() if words.search(query)), "general")


def is_diagnostic(query: str) -> bool:
    """Return whether a question asks what went wrong, so that a call in mode `diagnostic` is given evidence."""
    return _DIAGNOSTIC.search(query) is not None


def known_intent(name: str | None, query: str) -> str:
    """Return the intent asked for, else the one detected. Raises UsageError for one that does not exist."""
    if name is None or name == "":
        return detect_intent(query)
    if name not in INTENTS:
        raise UsageError(f"There is no intent {name[:40]!r}.", hint=f"Intents are: {', '.join(INTENTS)}.")
    return name


_LIMITS = {
    "failures": 300, "outputs": 400, "latest": 400, "edits": 250, "notes": 300, "incidents": 200, "commands": 150,
}  # fmt: skip
"""Rows of each sort in a view, the newest."""
_MATCHES_PER_WORD = 60
_MAX_WORDS = 12
_CACHED_SESSIONS = 48
_WORD = re.compile(r"[a-z0-9]+")
_HUMP = re.compile(r"[A-Z][a-z]{2,}")
_UNTELLING = frozenset(
    "went wrong error errors fail failed failing failure failures happened happen happens problem problems issue "
    "issues fix fixed debug broke broken bug bugs crash crashed last latest recent session sessions today tell show "
    "give explain please using use run running ran tried try trying resume continue left off status summary overview "
    "progress changed change changes files file diff edited modified next again still out up there here now".split()
)
"""Words of questions that name no subject."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that may be selected. `words` are its own, `near` those of what it belongs to (an output's command).

    `salience` 0..1 is how much it says whatever the question is; `marks` name boosts of a profile.
    """

    id: int
    kind: str
    category: str
    text: str
    ts_ms: int
    words: frozenset[str]
    near: frozenset[str]
    salience: float
    marks: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    row: tuple[Any, ...] = ()
    said: tuple[Speaker, SpeechOrigin] = (Speaker.AGENT, SpeechOrigin.WRITTEN)


@dataclass(slots=True)
class SessionView:
    """The candidates of a session at one generation, and its latest lines of each stream."""

    session: LogSession
    candidates: list[Candidate] = field(default_factory=list)
    ids: frozenset[int] = frozenset()
    latest: dict[str, list[str]] = field(default_factory=dict)
    is_whole: bool = True


_views: OrderedDict[tuple[str, int], SessionView] = OrderedDict()
_views_lock = threading.Lock()


def view_of(connection: sqlite3.Connection, session: LogSession) -> SessionView:
    """Return the view of a session, kept until the session gains something."""
    file = connection.execute("PRAGMA database_list").fetchone()[2]
    key = (file, session.key)
    with _views_lock:
        view = _views.get(key)
        if view is not None and view.session == session:
            _views.move_to_end(key)
            return view
    view = _load(connection, session)
    with _views_lock:
        _views[key] = view
        _views.move_to_end(key)
        while len(_views) > _CACHED_SESSIONS:
            _views.popitem(last=False)
    return view


def subject_words(query: str) -> tuple[str, ...]:
    """Return the words of a question that name its subject, stemmed; none for a question such as `what went wrong`."""
    words = [word for word in _WORD.findall(query.lower()[:4000]) if word not in STOP_WORDS and word not in _UNTELLING]
    return tuple(dict.fromkeys(stem(word) for word in words if len(word) > 1 or word.isdigit()))[:64]


def question_words(query: str) -> list[str]:
    """Return the words of a question that are worth looking up, the longest first."""
    words = [word for word in _WORD.findall(query.lower()[:4000]) if word not in STOP_WORDS and word not in _UNTELLING]
    distinct = dict.fromkeys(word for word in words if len(word) > 1)
    return sorted(distinct, key=len, reverse=True)[:_MAX_WORDS]


def matching(connection: sqlite3.Connection, view: SessionView, query: str) -> list[Candidate]:
    """Return rows beyond the view in which words of the question stand; none if the view is the whole session."""
    if view.is_whole:
        return []
    found = store.matching_ids(connection, question_words(query), key=view.session.key, limit=_MATCHES_PER_WORD)
    return candidates_of(connection, (row_id for row_id in found if row_id not in view.ids))


def candidates_of(connection: sqlite3.Connection, row_ids: Iterable[int]) -> list[Candidate]:
    """Return the candidates of rows by id, whatever tables they stand in."""
    by_table: dict[str, list[int]] = {}
    for row_id in row_ids:
        by_table.setdefault(store.table_of(row_id), []).append(row_id)
    found: list[Candidate] = []
    for table, ids in by_table.items():
        rows = store.rows_by_id(connection, table, ids)
        found += _made(connection, table, rows)
    return found


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return a word without the endings that questions and output differ in."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=8192)
def words_in(text: str) -> frozenset[str]:
    """Return the stemmed words of a text, also those inside `camelCase`."""
    text = text[:4000]
    parts = _HUMP.findall(text) if not text.islower() else ()
    return frozenset(stem(word) for word in (*_WORD.findall(text.lower()), *map(str.lower, parts)))


def _load(connection: sqlite3.Connection, session: LogSession) -> SessionView:
    first, end = store.id_range(session.key)
    view = SessionView(session=session)
    wanted = (
        ("incidents", "1", "incidents"),
        ("events", "ok = 0", "failures"),
        ("events", "kind IN ('command.start', 'prompt')", "commands"),
        ("command_inputs", "1", "commands"),
        ("pane_output", "is_failure = 1", "outputs"),
        ("pane_output", "1", "latest"),
        ("file_edits", "1", "edits"),
        ("working_notes", "1", "notes"),
    )
    seen: dict[int, Candidate] = {}
    for table, where, limit in wanted:
        rows = store.rows_in(connection, table, first, end, where=where, limit=_LIMITS[limit], newest=True)
        view.is_whole = view.is_whole and len(rows) < _LIMITS[limit]
        for candidate in _made(connection, table, rows):
            seen.setdefault(candidate.id, candidate)
        if limit == "latest":
            for row in rows:
                view.latest.setdefault(row[2], []).append(row[3])
    view.candidates = list(seen.values())
    view.ids = frozenset(seen)
    return view


def _command_texts(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> dict[int, str]:
    commands = {row[5] for row in rows if row[5] is not None}
    return {row[0]: row[4] for row in store.rows_by_id(connection, "events", commands)} if commands else {}


def _made(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> list[Candidate]:
    if table == "pane_output":
        commands = _command_texts(connection, rows)
        said = (Speaker.TOOL, SpeechOrigin.TOOL_RESULT)
        return [replace(_output(row, commands.get(row[5] or 0, "")), said=said) for row in rows]
    speech = store.speech_of(connection, [row[0] for row in rows])
    make = {
        "incidents": _incident, "events": _event, "command_inputs": _input, "file_edits": _edit, "working_notes": _note,
    }[table]  # fmt: skip
    made = filter(None, map(make, rows))
    return [replace(candidate, said=speech.get(candidate.id, candidate.said)) for candidate in made]


_NOTHING: frozenset[str] = frozenset()


def _incident(row: tuple[Any, ...]) -> Candidate:
    details = json.loads(row[11])
    marks = ("open",) if row[9] is None else ()
    salience = details["severity"] * (1.0 if row[9] is None else 0.85)
    own = words_in("\n".join([bare_command(row[5]), *details["lines"]]))
    near = words_in(" ".join([*details["edits"], *details["words"], row[9] or ""]))
    reasons = tuple(details["reasons"])
    return Candidate(row[0], "incident", "incident", row[6], row[1], own, near, salience, marks, reasons, row)


def _event(row: tuple[Any, ...]) -> Candidate | None:
    row_id, ts_ms, kind, tool, text, ok, code, _, _ = row
    if ok == 0 and kind == "command.end":
        shown = f"{text} (exit {code})" if code is not None else f"{text} (failed)"
        reasons = (f"exit {code}",) if code is not None else ("failed",)
        words = words_in(bare_command(text))
        return Candidate(row_id, "failure.command", "failure", shown, ts_ms, words, _NOTHING, 0.7, (), reasons)
    if ok == 0:
        shown = text if tool and text.startswith(tool) else f"{tool or 'tool'}: {text}"
        reasons = (f"{tool or 'tool'} failed",)
        shown = shown[:1000]
        return Candidate(row_id, "failure.tool", "failure", shown, ts_ms, words_in(shown), _NOTHING, 0.5, (), reasons)
    if kind == "command.start":
        return Candidate(row_id, "command", "command", text, ts_ms, words_in(bare_command(text)), _NOTHING, 0.4)
    if kind == "prompt":
        return Candidate(row_id, "prompt", "command", text[:1000], ts_ms, words_in(text), _NOTHING, 0.5)
    return None


def _input(row: tuple[Any, ...]) -> Candidate:
    return Candidate(row[0], "command", "command", row[2], row[1], words_in(row[2]), _NOTHING, 0.35, (), ("typed",))


def _output(row: tuple[Any, ...], command: str) -> Candidate:
    row_id, ts_ms, stream, text, is_failure, _, _ = row
    marks = (("failing",) if is_failure else ()) + (("stderr",) if stream == "stderr" else ())
    salience = 0.6 if is_failure else 0.15
    near = words_in(bare_command(command)) if command else _NOTHING
    reasons = (stream,) + (("looks like a failure",) if is_failure else ())
    return Candidate(row_id, "output", "output", text, ts_ms, words_in(text), near, salience, marks, reasons)


def _edit(row: tuple[Any, ...]) -> Candidate:
    row_id, ts_ms, path, action, ok = row
    text = f"{path} ({action})" if ok != 0 else f"{path} ({action} failed)"
    return Candidate(row_id, "edit", "edit", text, ts_ms, words_in(path), _NOTHING, 0.6 if ok != 0 else 0.3)


def _note(row: tuple[Any, ...]) -> Candidate:
    row_id, ts_ms, kind, text, is_open, _ = row
    marks = ("open",) if is_open and kind in ("todo", "blocker") else ()
    salience = 0.6 if is_open else 0.25
    reasons = () if is_open else ("done",)
    words = words_in(text)
    return Candidate(row_id, f"note.{kind}", "note", text, ts_ms, words, _NOTHING, salience, marks, reasons, row)
