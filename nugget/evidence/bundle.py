"""Answer a question with a bundle: candidates, scores, caps, and a text that fits its limits."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from nugget.errors import NuggetError
from nugget.evidence.candidates import (
    PROFILES,
    Candidate,
    Profile,
    SessionView,
    known_intent,
    matching,
    subject_words,
    view_of,
)
from nugget.evidence.values import BundleOptions, EvidenceBundle, Incident, SelectedEvidence, WorkingNote
from nugget.index import events as store
from nugget.index.events import LogSession
from nugget.text import ago, clean, clean_values, shorten

TRUNCATED = "[… truncated]"
_LINE_CHARS = 400
_SHOWN_TAIL = 12


def pack(
    bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]], options: BundleOptions, *, active: str = ""
) -> tuple[str, bool]:
    """Return the text for a model, and whether something was left out for lack of room.

    It opens with session, intent and question; then incidents, working notes and single pieces of evidence in the
    order of the profile, then the latest output.
    """
    lines = list(_lines(bundle, latest, active, room=options.max_chars))
    text = ""
    for number, line in enumerate(lines):
        joined = f"{text}\n{line}" if number else line
        if len(joined) > options.max_chars or number >= options.max_lines:
            return _cut(text, line, options, is_full=number >= options.max_lines), True
        text = joined
    return text, False


def _cut(text: str, line: str, options: BundleOptions, *, is_full: bool) -> str:
    """Return the text with as much of the next line as there is room for, and the mark that it was cut."""
    if options.max_lines < 1 or options.max_chars < 1:
        return ""
    room = options.max_chars - len(TRUNCATED) - 1
    if room <= 0:
        return (text or line)[: options.max_chars]
    if is_full:
        kept = text.split("\n")[: options.max_lines - 1]
        return "\n".join([*kept, TRUNCATED])[: options.max_chars]
    left = room - len(text) - 1
    if left > 24:
        return f"{text}\n{line[:left]}{TRUNCATED}" if text else f"{line[:left]}{TRUNCATED}"
    return f"{text[:room].rstrip()}\n{TRUNCATED}"


def _lines(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]], active: str, *, room: int) -> Iterator[str]:
    is_tight = room < 400
    head = [f"session: {bundle.session}" if bundle.session else "sessions: all of this workspace"]
    head += [f"intent: {bundle.intent}", f"query: {shorten(bundle.query, max(16, min(300, room // 6)))}"]
    yield from [" | ".join(head)] if is_tight else head
    if active and not is_tight:
        yield f"last active: {active}"
    for section in _ORDER[bundle.intent]:
        yield from _SECTIONS[section](bundle, latest)


def _incidents(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if bundle.incidents:
        yield "incidents:"
    for one in bundle.incidents:
        where = f" [{one.session}]" if bundle.session is None else ""
        yield f"- {one.title}{where}"
        yield from (f"    {shorten(line, _LINE_CHARS)}" for line in one.summary)


def _notes(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield working notes, without blockers shown as incidents and edits shown as evidence."""
    known = {one.title for one in bundle.incidents}
    has_edits = bundle.intent == "what-changed"
    shown = [one for one in bundle.notes if one.text not in known and not (has_edits and one.type == "edit")]
    if shown:
        yield "working notes:"
    for one in shown:
        done = "" if one.is_open or one.type in ("edit", "decision") else " (done)"
        yield f"- {one.type}{done}: {shorten(one.text, _LINE_CHARS)}"


def _evidence(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    known = {line for one in bundle.incidents for line in one.summary}
    shown = [one for one in bundle.selected if one.kind != "incident" and not one.kind.startswith("note.")]
    noted = {one.text for one in bundle.notes} if bundle.intent != "what-changed" else set()
    shown = [one for one in shown if one.text not in known and f"Edited {one.text}" not in noted]
    if shown:
        yield "evidence:"
    for one in shown:
        yield f"- [{one.kind}] {shorten(one.text, _LINE_CHARS)}"


def _output(bundle: EvidenceBundle, latest: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for stream, lines in latest.items():
        if lines:
            yield f"latest {stream}:"
        yield from (f"    {shorten(line, _LINE_CHARS)}" for line in lines[-_SHOWN_TAIL:])


_SECTIONS = {"incidents": _incidents, "notes": _notes, "evidence": _evidence, "output": _output}
_ORDER = {
    "debug": ("incidents", "evidence", "output", "notes"),
    "resume": ("incidents", "notes", "evidence", "output"),
    "what-changed": ("evidence", "notes", "incidents"),
    "status": ("incidents", "notes", "evidence", "output"),
    "general": ("incidents", "evidence", "notes", "output"),
}


MAX_CHARS, MAX_LINES, MAX_WINDOW, MAX_INCIDENTS = 400_000, 5000, 400, 50
"""The most that options can ask for."""

_ABOUT, _SALIENT, _RECENT = 0.5, 0.3, 0.2
"""Weights of relevance, salience and recency; they add up to 1."""
_NEAR_SHARE = 0.8
"""A word of what a row belongs to counts this much of a word of its own."""
_OFF_SUBJECT = 0.35
"""Factor on the score of a row without any word of the question's subject."""
_YEAR_2000_MS = 946_684_800_000
_LATEST = 0.95
"""Rows more recent than this are called the latest."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate with its score and how recent it is (both 0..1)."""

    candidate: Candidate
    score: float
    recency: float


def evidence_bundle(
    connection: sqlite3.Connection,
    session: str,
    query: str,
    *,
    options: BundleOptions = BundleOptions(),  # noqa: B008
    now: datetime,
) -> EvidenceBundle:
    """Return the evidence for a question in a session that has been ingested.

    From `now` comes how long ago the session was last active. Raises NuggetError if the session is not known,
    UsageError for an intent that does not exist.
    """
    known = store.find_log_session(connection, session)
    if known is None:
        raise NuggetError(
            f"Nothing is known of a session {session[:80]!r}.", hint="`nugget logs ingest` takes its logs in."
        )
    view = view_of(connection, known)
    candidates = [*view.candidates, *matching(connection, view, query)]
    return bundle_of(candidates, query, options=options, views=[view], session=session, active=_active(known, now))


def bundle_of(
    candidates: Sequence[Candidate],
    query: str,
    *,
    options: BundleOptions,
    views: Sequence[SessionView],
    session: str | None,
    degraded: tuple[str, ...] = (),
    extra: Mapping[int, float] | None = None,
    active: str = "",
) -> EvidenceBundle:
    """Return the bundle of these candidates.

    `extra` adds to the relevance (0..1) of rows that are near in meaning; `active` says when the session last was.
    """
    options = bounded(options)
    intent = known_intent(options.intent, query)
    profile = PROFILES[intent]
    if not options.include_artifacts:
        candidates = [candidate for candidate in candidates if candidate.category != "note"]
    candidates = _within_window(candidates, views, options.output_window)
    scored = score(candidates, query, profile, extra=extra or {})
    names = {view.session.key: view.session.id for view in views}
    selected = select(scored, profile, max_incidents=options.max_incidents)
    subject, meant = subject_words(query), extra or {}

    def why(one: Scored) -> tuple[str, ...]:
        return reasons_of(one, subject, is_meant=one.candidate.id in meant)

    incidents = [one for one in scored if one.candidate.kind == "incident"][: options.max_incidents]
    notes = [one for one in scored if one.candidate.category == "note"][: profile.caps["note"]]
    bundle = EvidenceBundle(
        session=session, query=query, intent=intent, candidate_count=len(candidates), category_caps=profile.caps,
        incidents=tuple(_incident(one, names, why(one)) for one in incidents),
        notes=tuple(_note(one, names) for one in notes),
        selected=tuple(_selected(one, names, why(one)) for one in selected), context_text="", truncated=False,
        degraded=degraded,
    )  # fmt: skip
    text, truncated = pack(bundle, _latest(views, options.output_window), options, active=active)
    shown = clean(text)
    return replace(
        bundle, context_text=shown[: options.max_chars], truncated=truncated or len(shown) > options.max_chars
    )


def bounded(options: BundleOptions) -> BundleOptions:
    """Return the options cut to what there can be."""
    return replace(
        options,
        max_chars=min(max(0, options.max_chars), MAX_CHARS),
        max_lines=min(max(0, options.max_lines), MAX_LINES),
        output_window=min(max(0, options.output_window), MAX_WINDOW),
        max_incidents=min(max(0, options.max_incidents), MAX_INCIDENTS),
    )


def score(candidates: Sequence[Candidate], query: str, profile: Profile, *, extra: Mapping[int, float]) -> list[Scored]:
    """Return all candidates with their scores, the best first; of equal ones the later, then the one read later."""
    subject = subject_words(query)
    weights = _word_weights(subject, candidates)
    mass = sum(weights.values()) or 1.0
    times = [candidate.ts_ms for candidate in candidates]
    begin, span = min(times, default=0), max(1, max(times, default=0) - min(times, default=0))
    wanted = frozenset(subject)
    boosts = {
        marks: sum(profile.boosts.get(mark, 0.0) for mark in marks) for marks in {one.marks for one in candidates}
    }
    scored = []
    for one in candidates:
        about = 0.0 if subject else 0.5
        for word in wanted & one.words:
            about += weights[word] / mass
        for word in wanted & one.near:
            about += 0.0 if word in one.words else _NEAR_SHARE * weights[word] / mass
        about = max(about, extra.get(one.id, 0.0))
        salience = min(1.0, one.salience + boosts[one.marks])
        recency = (one.ts_ms - begin) / span
        value = profile.weights[one.category] * (_ABOUT * about + _SALIENT * salience + _RECENT * recency)
        if not about:
            value *= _OFF_SUBJECT
        if one.category == "output" and "failing" not in one.marks:
            value *= profile.plain_share
        scored.append(Scored(one, round(min(1.0, value), 4), recency))
    scored.sort(key=lambda one: (-one.score, -one.candidate.ts_ms, -one.candidate.id))
    return scored


def reasons_of(one: Scored, subject: Sequence[str], *, is_meant: bool) -> tuple[str, ...]:
    """Return why a candidate scores as it does."""
    candidate = one.candidate
    reasons = [*(f"matches {word}" for word in subject if word in candidate.words), *candidate.reasons]
    reasons += [f"belongs to {word}" for word in subject if word in candidate.near and word not in candidate.words]
    reasons += ["near in meaning"] if is_meant else []
    reasons += ["latest"] if one.recency > _LATEST else []
    return tuple(reasons)


def select(scored: Iterable[Scored], profile: Profile, *, max_incidents: int) -> list[Scored]:
    """Return the best of each category up to its cap, each text once, in the order of their scores."""
    caps = {**profile.caps, "incident": min(profile.caps["incident"], max_incidents)}
    taken: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    selected = []
    for one in scored:
        candidate = one.candidate
        text = (candidate.category, candidate.text)
        if taken[candidate.category] >= caps[candidate.category] or text in seen or not candidate.text.strip():
            continue
        seen.add(text)
        taken[candidate.category] += 1
        selected.append(one)
    return selected


def bundle_json(bundle: EvidenceBundle, *, explain: bool = False) -> dict[str, Any]:
    """Return the JSON of a bundle, as HTTP and `--json` give it."""
    shown: dict[str, Any] = {
        "session_id": bundle.session, "query": bundle.query, "intent": bundle.intent,
        "incidents": [_incident_json(one) for one in bundle.incidents],
        "artifacts": [_note_json(one) for one in bundle.notes],
        "selected_evidence": [_selected_json(one) for one in bundle.selected],
        "context_text": bundle.context_text, "truncated": bundle.truncated, "degraded": list(bundle.degraded),
    }  # fmt: skip
    if bundle.session is not None:  # said once, for all
        for one in (*shown["incidents"], *shown["artifacts"], *shown["selected_evidence"]):
            del one["session_id"]
    if explain:
        shown["explain"] = {
            "intent": bundle.intent,
            "selected_count": len(bundle.selected),
            "candidate_count": bundle.candidate_count,
            "profile": {
                "name": bundle.intent,
                "category_caps": dict(bundle.category_caps),
                "weights": dict(PROFILES[bundle.intent].weights),
                "boosts": dict(PROFILES[bundle.intent].boosts),
            },
        }
    return clean_values(shown)


def _active(session: LogSession, now: datetime) -> str:
    """Return when a session was last active, for people; empty where its times are not those of a clock."""
    if session.ended_ms is None or not _YEAR_2000_MS < session.ended_ms < 1 << 42:
        return ""
    moment = datetime.fromtimestamp(session.ended_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC, {ago(moment, now)}"


def _word_weights(subject: Sequence[str], candidates: Sequence[Candidate]) -> dict[str, float]:
    """The inverse frequency of each word of the subject among the candidates; one that stands nowhere counts little."""
    counts = dict.fromkeys(subject, 0)
    for one in candidates:
        for word in counts:
            if word in one.words or word in one.near:
                counts[word] += 1
    total = len(candidates) + 1
    return {word: math.log(1 + total / counts[word]) if counts[word] else 0.5 for word in subject}


def _within_window(candidates: Sequence[Candidate], views: Sequence[SessionView], window: int) -> list[Candidate]:
    """Without plain lines of output older than the last `window` of their stream, unless a failure stands in them."""
    allowed = {text for lines in _latest(views, window).values() for text in lines}
    return [one for one in candidates if one.category != "output" or "failing" in one.marks or one.text in allowed]


def _latest(views: Sequence[SessionView], window: int) -> dict[str, list[str]]:
    if len(views) != 1 or not window:
        return {}
    return {stream: lines[-window:] for stream, lines in views[0].latest.items()}


def _incident(one: Scored, names: Mapping[int, str], reasons: tuple[str, ...]) -> Incident:
    row, details = one.candidate.row, json.loads(one.candidate.row[11])
    return Incident(
        id=row[0], title=row[5], summary=tuple(details["summary"]), reasons=reasons, score=one.score, ts_ms=row[1],
        first_ms=row[2], command=row[7], failures=row[8], fixed_by=row[9], session=names.get(row[0] >> 34, ""),
        speaker=one.candidate.said[0], origin=one.candidate.said[1],
    )  # fmt: skip


def _note(one: Scored, names: Mapping[int, str]) -> WorkingNote:
    row = one.candidate.row
    return WorkingNote(
        id=row[0], type=row[2], text=row[3], is_open=bool(row[4]), ts_ms=row[1], score=one.score,
        session=names.get(store.session_key_of(row[0]), ""),
        speaker=one.candidate.said[0], origin=one.candidate.said[1],
    )  # fmt: skip


def _selected(one: Scored, names: Mapping[int, str], reasons: tuple[str, ...]) -> SelectedEvidence:
    candidate = one.candidate
    return SelectedEvidence(
        kind=candidate.kind, text=candidate.text, score=one.score, reasons=reasons,
        source_table=store.table_of(candidate.id), source_id=candidate.id, ts_ms=candidate.ts_ms,
        session=names.get(store.session_key_of(candidate.id), ""),
        speaker=candidate.said[0], origin=candidate.said[1],
    )  # fmt: skip


def _incident_json(one: Incident) -> dict[str, Any]:
    return {
        "title": one.title, "summary": list(one.summary), "reasons": list(one.reasons), "command": one.command or None,
        "failures": one.failures, "fixed_by": one.fixed_by, "first_ts_ms": one.first_ms,
        **_source_json(one, "incidents", one.id),
    }  # fmt: skip


def _note_json(one: WorkingNote) -> dict[str, Any]:
    shown = {"kind": one.type, "text": one.text, "open": one.is_open}
    return shown | _source_json(one, "working_notes", one.id)


def _selected_json(one: SelectedEvidence) -> dict[str, Any]:
    shown = {"kind": one.kind, "text": one.text, "reasons": list(one.reasons)}
    return shown | _source_json(one, one.source_table, one.source_id)


def _source_json(one: Incident | WorkingNote | SelectedEvidence, table: str, row_id: int) -> dict[str, Any]:
    return {
        "score": one.score, "source_table": table, "source_id": row_id, "ts_ms": one.ts_ms,
        "speaker": one.speaker.value, "origin": one.origin.value, "session_id": one.session,
    }  # fmt: skip
