"""Answer a question about sessions with a bundle: scored and capped evidence, and a text within its limits."""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import Any

from nugget.errors import NuggetError
from nugget.evidence.candidates import (
    CATEGORIES,
    PROFILES,
    Finding,
    IntentProfile,
    choose_intent,
    evidence_by_id,
    session_evidence,
    strongest,
    subject_words,
)
from nugget.evidence.incidents import bare_command
from nugget.index.embedded import Index
from nugget.index.embedded import events as store
from nugget.index.embedded.events import LogSession
from nugget.infra.embedding import Embedder
from nugget.models import Filter, SourceName
from nugget.retrieval.candidates import embed_question
from nugget.text import clean, clean_values, duration, shorten

TRUNCATED = "[… truncated]"
MAX_CHARS, MAX_LINES, MAX_WINDOW, MAX_INCIDENTS = 400_000, 5000, 400, 50
"""The most that a request over HTTP can ask for."""
_LINE_CHARS = 400
_SHOWN_TAIL = 12

_ABOUT, _SALIENT, _RECENT = 0.5, 0.3, 0.2
"""Weights of relevance, salience and recency; they add up to 1."""
_NEAR_SHARE = 0.8
"""Weight of a word in the command that printed a line, relative to one in the line."""
_OFF_SUBJECT = 0.35
"""Factor on the score of a row without any word of the question's subject."""
_ROWS_A_WORD = 2000
_MATCHES_PER_WORD = 60

_LATEST_SESSIONS = 24
_BY_WORDS, _BY_MEANING = 40, 40
_LEAST_COSINE, _FULL_COSINE = 0.3, 0.75
"""Cosines that count as no match, and as a match of all words of the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOptions:
    """The limits of an answer. If `intent` is None, it is detected from the question.

    `max_chars` and `max_lines` bound the whole `context_text`; `output_window` is how many of the latest lines of each
    stream of a shell are shown, 12 at most. The rest is for a model that chooses from the whole history: how that is
    split (the latest chunks are kept), whether events are included, and the model (default: `llm.select_model`).
    """

    intent: str | None = None
    max_lines: int = 120
    max_chars: int = 12_000
    output_window: int = 40
    max_incidents: int = 5
    include_artifacts: bool = True
    explain: bool = False
    chunk_tokens: int = 128_000
    max_chunks: int = 16
    include_events: bool = True
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBundle:
    """Evidence for a question. `context_text` is never longer than `max_chars`.

    `session` is None if it covers several sessions.
    """

    session: str | None
    query: str
    intent: str
    incidents: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    selected: tuple[Finding, ...]
    context_text: str
    truncated: bool
    candidate_count: int
    degraded: tuple[str, ...] = ()


def ingested_session(connection: sqlite3.Connection, session: str) -> store.LogSession:
    """Return an ingested session by its id. Raises NuggetError for an unknown id."""
    known = store.find_log_session(connection, session)
    if known is None:
        raise NuggetError(f"The index has no session {session[:80]!r}.", hint="Add it with `nugget logs ingest`.")
    return known


def evidence_bundle(
    connection: sqlite3.Connection, session: str, query: str, *, options: BundleOptions, now: datetime
) -> EvidenceBundle:
    """Return the evidence for a question in a session that has been ingested.

    Raises NuggetError for an unknown session, UsageError for an unknown intent.
    """
    known = ingested_session(connection, session)
    found = session_evidence(connection, known)
    matches = store.matching_ids(connection, subject_words(query), key=known.key, limit=_ROWS_A_WORD)
    beyond = ([row for row in rows if row not in found][:_MATCHES_PER_WORD] for rows in matches.values())
    found |= evidence_by_id(connection, set(chain.from_iterable(beyond)), {known.key: known.id})
    return _bundle(
        found, query, options=options, matches={word: set(rows) for word, rows in matches.items()}, session=known,
        head=[*_last_activity(connection, known, now)],
    )  # fmt: skip


def workspace_bundle(
    index: Index, query: str, *, workspace: str, options: BundleOptions, embedder: Embedder | None
) -> EvidenceBundle:
    """Return the evidence for a question in all sessions of a workspace, of shells and agents.

    The latest sessions are always searched, older ones only for rows with a word of the question, and for incidents,
    todos and decisions near in meaning. Without vectors the search is by words only, and `degraded` says so. Raises
    UsageError for an unknown intent.
    """
    connection, words = index.connection, subject_words(query)
    names = {one.key: one.id for one in store.log_sessions(connection, workspace=workspace)}
    latest = store.log_sessions(connection, workspace=workspace, limit=_LATEST_SESSIONS)
    by_word = store.matching_ids(connection, words, limit=_BY_WORDS)
    matches = {word: set(rows) for word, rows in by_word.items()}
    found: dict[int, Finding] = {}
    for one in latest:
        found |= strongest(session_evidence(connection, one).values())
        for word, rows in store.matching_ids(connection, words, key=one.key, limit=_ROWS_A_WORD).items():
            matches[word].update(rows)
    vector, degraded = embed_question(query[:2000], index, embedder)
    near = {} if vector is None else _near_in_meaning(index, vector, workspace)
    wanted = {row for rows in (*by_word.values(), near) for row in rows if store.session_key_of(row) in names}
    found |= evidence_by_id(connection, wanted - found.keys(), names)
    return _bundle(found, query, options=options, matches=matches, near=near, degraded=tuple(degraded))


def _near_in_meaning(index: Index, vector: Any, workspace: str) -> dict[int, float]:
    """Return the rows of units near a question with their relevance (0..1), nearest first."""
    filter_ = Filter(sources=(SourceName.SESSIONS, SourceName.SHELL))
    with index.reading():
        nearest = index.nearest_units(vector, _BY_MEANING * 4, filter_)
        units = index.units(nearest)
    near: dict[int, float] = {}
    for key, (_, cosine) in nearest.items():
        share = (cosine - _LEAST_COSINE) / (_FULL_COSINE - _LEAST_COSINE)
        number, scope = units[key].id.rsplit("-", 1)[-1], units[key].scope
        if share > 0 and number.isdecimal() and scope and scope.repo == workspace:
            near[int(number)] = min(1.0, share)
    return dict(list(near.items())[:_BY_MEANING])


def _bundle(
    found: Mapping[int, Finding], query: str, *, options: BundleOptions, matches: Mapping[str, set[int]],
    near: Mapping[int, float] = {}, session: LogSession | None = None, head: Sequence[str] = (),
    degraded: tuple[str, ...] = (),
) -> EvidenceBundle:  # fmt: skip
    """Return the bundle of these rows. `matches` are the rows by word of the question, `near` those near in meaning."""
    intent = choose_intent(options.intent, query)
    profile = PROFILES[intent]
    candidates = [one for one in found.values() if options.include_artifacts or one.category != "note"]
    scored = [
        one
        for one in _scored(candidates, matches, near, profile)
        if (one.is_asked or not profile.unasked.isdisjoint((one.category, *one.marks)))
        # Text that a command merely displays is not evidence of a failure.
        and not (intent == "debug" and one.category == "output" and one.command and not one.marks)
    ]
    by_category = {category: tuple(one for one in scored if one.category == category) for category in CATEGORIES}
    caps = {**profile.caps, "incident": min(profile.caps["incident"], options.max_incidents)}
    bundle = EvidenceBundle(
        session=session.id if session else None, query=query, intent=intent, candidate_count=len(candidates),
        incidents=by_category["incident"][: options.max_incidents], notes=by_category["note"][: profile.caps["note"]],
        selected=tuple(_selected(scored, caps)), context_text="", truncated=False, degraded=degraded,
    )  # fmt: skip
    is_shell = session is not None and session.source == SourceName.SHELL  # an agent reports its own progress
    streams = _latest(found.values(), min(_SHOWN_TAIL, options.output_window)) if is_shell else {}
    text, truncated = fit_lines(list(_lines(bundle, streams, head, room=options.max_chars)), options)
    return replace(bundle, context_text=text, truncated=truncated)


def fit_lines(lines: Sequence[str], options: BundleOptions, *, last: Sequence[str] = ()) -> tuple[str, bool]:
    """Return as many lines as fit as text, followed by `last`, and whether any was left out."""
    ends = "\n".join(map(clean, last)).split("\n") if last else []
    given = "\n".join(map(clean, lines)).split("\n")
    lengths = list(accumulate(len(line) + 1 for line in given))
    most_lines = options.max_lines - len(ends)
    most_chars = options.max_chars - sum(len(line) + 1 for line in ends)

    def fitting(most_lines: int, most_chars: int) -> list[str]:
        return given[: max(0, min(most_lines, bisect_right(lengths, most_chars + 1)))]

    shown = fitting(most_lines, most_chars)
    is_cut = len(shown) < len(given)
    if is_cut:
        shown = [*fitting(most_lines - 1, most_chars - len(TRUNCATED) - 1), TRUNCATED]
    return "\n".join([*shown, *ends][: options.max_lines])[: options.max_chars], is_cut


def _scored(
    candidates: Sequence[Finding], matches: Mapping[str, set[int]], near: Mapping[int, float], profile: IntentProfile
) -> list[Finding]:
    """Set the scores and reasons of all candidates; return them by score, then newest first."""
    frequencies = {
        word: sum(one.id in rows or one.command in rows for one in candidates) for word, rows in matches.items()
    }
    weights = {  # the inverse frequency of a word; one without matches counts little
        word: math.log(1 + (len(candidates) + 1) / found) if found else 0.5 for word, found in frequencies.items()
    }
    total_weight = sum(weights.values()) or 1.0
    times = [one.ts_ms for one in candidates]
    begin, span = min(times, default=0), max(1, max(times, default=0) - min(times, default=0))
    for one in candidates:
        own = [word for word, rows in matches.items() if one.id in rows]
        of_command = [word for word, rows in matches.items() if one.command in rows and one.id not in rows]
        weight = sum(weights[word] for word in own) + _NEAR_SHARE * sum(weights[word] for word in of_command)
        about = max(weight / total_weight if matches else 0.5, near.get(one.id, 0.0))
        salience = min(1.0, one.salience + sum(profile.boosts.get(mark, 0.0) for mark in one.marks))
        recency = (one.ts_ms - begin) / span
        value = profile.weights[one.category] * (_ABOUT * about + _SALIENT * salience + _RECENT * recency)
        value *= 1.0 if about else _OFF_SUBJECT
        one.is_asked = bool(own or one.id in near or (of_command and one.category != "output"))
        one.score = round(min(1.0, value), 4)
        one.reasons = (
            *(f"matches {word}" for word in own), *one.reasons, *(f"belongs to {word}" for word in of_command),
            *(["near in meaning"] if one.id in near else []),
        )  # fmt: skip
    return sorted(candidates, key=lambda one: (-one.score, -one.ts_ms, -one.id))


def _selected(scored: Sequence[Finding], caps: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the best findings of each category up to its cap, without repeated texts, in order of score."""
    taken: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for one in scored:
        text = (one.category, one.text)
        if taken[one.category] < caps[one.category] and text not in seen and one.text.strip():
            seen.add(text)
            taken[one.category] += 1
            yield one


def _latest(found: Iterable[Finding], window: int) -> dict[str, list[str]]:
    """Return the last `window` lines of each stream."""
    streams: dict[str, list[str]] = {}
    for one in sorted((one for one in found if one.category == "output"), key=lambda one: one.id):
        streams.setdefault(one.reasons[0], []).append(one.text)
    return {stream: lines[-window:] for stream, lines in sorted(streams.items())} if window else {}


def _last_activity(connection: sqlite3.Connection, session: LogSession, now: datetime) -> Iterator[str]:
    """Yield the time, the last prompt and the last reply of a session as lines."""
    if session.ended_ms is not None and 1 << 39 < session.ended_ms < 1 << 42:  # otherwise the times are not clock times
        moment = datetime.fromtimestamp(session.ended_ms / 1000, UTC)
        yield f"last active: {moment:%Y-%m-%d %H:%M} UTC, {duration(now - moment)} ago"
    bounds = store.id_range(session.key)
    for kind in ("prompt", "reply"):
        for row in store.rows_in(connection, "events", *bounds, where=f"kind = '{kind}'", limit=1, newest=True):
            yield f"last {kind}: {shorten(row[4], _LINE_CHARS)}"


_ORDER = {
    "debug": ("incidents", "evidence", "", "edited"),
    "what-changed": ("edited", "evidence"),
    "resume": ("incidents", "working notes", "edited", "evidence", ""),
    "status": ("incidents", "working notes", "edited", "evidence", ""),
    "general": ("incidents", "evidence", "edited", "working notes", ""),
}  # fmt: skip
"""The sections by intent; the empty name stands for the latest output."""


def _lines(bundle: EvidenceBundle, latest: Mapping[str, Any], head: Sequence[str], *, room: int) -> Iterator[str]:
    """Yield the lines of the text: its head, then the sections in the intent's order."""
    yield f"session: {bundle.session}" if bundle.session else "sessions: all of this workspace"
    yield f"intent: {bundle.intent}"
    yield f"query: {shorten(bundle.query, max(16, min(300, room // 6)))}"
    head = [] if room <= _LINE_CHARS else head if bundle.intent in ("resume", "status") else head[:1]
    yield from head
    shown, incidents = {line.partition(": ")[2] for line in head}, list[str]()
    for one in bundle.incidents:
        title, summary = one.facts["title"], one.facts["summary"]
        shown |= {title, *summary, bare_command(one.facts["command"] or "")}
        incidents.append(f"- {title}" if bundle.session else f"- {title} [{one.session}]")
        incidents += (f"    {shorten(line, _LINE_CHARS)}" for line in summary)
    notes = [one for one in bundle.notes if one.text not in shown and (one.facts["open"] or one.kind != "note.blocker")]
    edits = [one.text.removeprefix("Edited ") for one in (*notes, *bundle.selected) if one.kind.endswith("edit")]
    kinds = ("output", "failure") if not bundle.incidents else ()  # incidents already contain the failures
    rest = [
        (one.kind, shorten(bare_command(one.text) if one.kind == "command" else one.text, _LINE_CHARS))
        for one in bundle.selected
        if one.category in ("command", *kinds) or (one.category == "output" and one.is_asked)
    ]
    sections = {
        "incidents": incidents,
        "edited": [f"- {path.removesuffix(' (edit)')}" for path in dict.fromkeys(edits) if "failed)" not in path],
        "working notes": [
            f"- {one.facts['kind']}{'' if one.facts['open'] else ' (done)'}: {shorten(one.text, _LINE_CHARS)}"
            for one in notes
            if one.kind != "note.edit"
        ],
        "evidence": [*dict.fromkeys(f"- [{kind}] {text}" for kind, text in rest if text not in shown)],
        "": output_lines(latest),
    }
    for section in _ORDER[bundle.intent]:
        if sections[section]:
            yield from [f"{section}:"] if section else []
            yield from sections[section]
    if not any(map(sections.get, _ORDER[bundle.intent])):
        yield "Nothing failed." if bundle.intent == "debug" else "Nothing else is known about it."


def output_lines(latest: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the latest lines of each stream, under the stream's name."""
    return [
        shown for stream, lines in latest.items()
        for shown in (f"latest {stream}:", *(f"    {shorten(line, _LINE_CHARS)}" for line in lines))
    ]  # fmt: skip


def bundle_json(bundle: EvidenceBundle, *, explain: bool = False) -> dict[str, Any]:
    """Return the JSON of a bundle, as HTTP and `--json` give it."""

    def item(one: Finding, facts: Mapping[str, Any]) -> dict[str, Any]:
        where = {"session_id": one.session} if bundle.session is None else {}  # else it is stated once, for all
        return {
            **facts, "score": one.score, "source_table": store.table_of(one.id), "source_id": one.id,
            "ts_ms": one.ts_ms, "speaker": one.speaker.value, "origin": one.origin.value, **where,
        }  # fmt: skip

    shown: dict[str, Any] = {
        "session_id": bundle.session, "query": bundle.query, "intent": bundle.intent,
        "incidents": [item(one, {**one.facts, "reasons": one.reasons}) for one in bundle.incidents],
        "artifacts": [item(one, one.facts) for one in bundle.notes],
        "selected_evidence": [
            item(one, {"kind": one.kind, "text": one.text, "reasons": one.reasons}) for one in bundle.selected
        ],
        "context_text": bundle.context_text, "truncated": bundle.truncated, "degraded": bundle.degraded,
    }  # fmt: skip
    if explain:
        profile = PROFILES[bundle.intent]
        shown["explain"] = {
            "intent": bundle.intent, "selected_count": len(bundle.selected),
            "candidate_count": bundle.candidate_count,
            "profile": {
                "name": bundle.intent, "category_caps": profile.caps, "weights": profile.weights,
                "boosts": profile.boosts,
            },
        }  # fmt: skip
    return clean_values(shown)
