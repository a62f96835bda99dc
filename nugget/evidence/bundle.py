"""From a question to a bundle: candidates, scores, caps, and a text that fits its limits."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from nugget.errors import NuggetError
from nugget.evidence.candidates import Candidate, SessionView, matching, subject_words, view_of
from nugget.evidence.packing import pack
from nugget.evidence.profiles import PROFILES, Profile, known_intent
from nugget.evidence.values import BundleOptions, EvidenceBundle, Incident, SelectedEvidence, WorkingNote
from nugget.index import events as store
from nugget.index.events import LogSession
from nugget.text import ago, clean, clean_values

MAX_CHARS, MAX_LINES, MAX_WINDOW, MAX_INCIDENTS = 400_000, 5000, 400, 50
"""The most that options can ask for."""

_ABOUT, _SALIENT, _RECENT = 0.5, 0.3, 0.2
"""What relevance, salience and recency count for; they add up to 1."""
_NEAR_SHARE = 0.8
"""A word of what a row belongs to counts this much of a word of its own."""
_OFF_SUBJECT = 0.35
"""What is left of the score of a row without any word of the question's subject."""
_YEAR_2000_MS = 946_684_800_000
_LATEST = 0.95
"""What is more recent than this is called the latest."""


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
    """What speaks to a question in a session that has been ingested.

    From `now` comes how long ago the session was last active. Raises NuggetError where the session is not known,
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
    """The bundle of these candidates.

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
        session=session,
        query=query,
        intent=intent,
        incidents=tuple(_incident(one, names, why(one)) for one in incidents),
        notes=tuple(_note(one, names) for one in notes),
        selected=tuple(_selected(one, names, why(one)) for one in selected),
        context_text="",
        truncated=False,
        candidate_count=len(candidates),
        category_caps=profile.caps,
        degraded=degraded,
    )
    text, truncated = pack(bundle, _latest(views, options.output_window), options, active=active)
    shown = clean(text)
    return replace(
        bundle, context_text=shown[: options.max_chars], truncated=truncated or len(shown) > options.max_chars
    )


def bounded(options: BundleOptions) -> BundleOptions:
    """The options cut to what there can be."""
    return replace(
        options,
        max_chars=min(max(0, options.max_chars), MAX_CHARS),
        max_lines=min(max(0, options.max_lines), MAX_LINES),
        output_window=min(max(0, options.output_window), MAX_WINDOW),
        max_incidents=min(max(0, options.max_incidents), MAX_INCIDENTS),
    )


def score(candidates: Sequence[Candidate], query: str, profile: Profile, *, extra: Mapping[int, float]) -> list[Scored]:
    """All candidates with their scores, the best first; of equal ones the later, then the one read later."""
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
    """Why a candidate scores as it does."""
    candidate = one.candidate
    reasons = [*(f"matches {word}" for word in subject if word in candidate.words), *candidate.reasons]
    reasons += [f"belongs to {word}" for word in subject if word in candidate.near and word not in candidate.words]
    reasons += ["near in meaning"] if is_meant else []
    reasons += ["latest"] if one.recency > _LATEST else []
    return tuple(reasons)


def select(scored: Iterable[Scored], profile: Profile, *, max_incidents: int) -> list[Scored]:
    """The best of each category up to its cap, each text once, in the order of their scores."""
    caps = {**profile.caps, "incident": min(profile.caps["incident"], max_incidents)}
    taken: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    selected = []
    for one in scored:
        candidate = one.candidate
        told = (candidate.category, candidate.text)
        if taken[candidate.category] >= caps[candidate.category] or told in seen or not candidate.text.strip():
            continue
        seen.add(told)
        taken[candidate.category] += 1
        selected.append(one)
    return selected


def bundle_json(bundle: EvidenceBundle, *, explain: bool = False) -> dict[str, Any]:
    """The JSON of a bundle, as HTTP and `--json` give it."""
    shown: dict[str, Any] = {
        "session_id": bundle.session,
        "query": bundle.query,
        "intent": bundle.intent,
        "incidents": [_incident_json(one, many=bundle.session is None) for one in bundle.incidents],
        "artifacts": [_note_json(one, many=bundle.session is None) for one in bundle.notes],
        "selected_evidence": [_selected_json(one, many=bundle.session is None) for one in bundle.selected],
        "context_text": bundle.context_text,
        "truncated": bundle.truncated,
        "degraded": list(bundle.degraded),
    }
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
    """When a session was last active, for people; empty where its times are not those of a clock."""
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


def _incident_json(one: Incident, *, many: bool) -> dict[str, Any]:
    shown = {
        "title": one.title, "summary": list(one.summary), "reasons": list(one.reasons), "score": one.score,
        "command": one.command or None, "failures": one.failures, "fixed_by": one.fixed_by,
        "source_table": "incidents", "source_id": one.id, "first_ts_ms": one.first_ms, "ts_ms": one.ts_ms,
        "speaker": one.speaker.value, "origin": one.origin.value,
    }  # fmt: skip
    return {**shown, "session_id": one.session} if many else shown


def _note_json(one: WorkingNote, *, many: bool) -> dict[str, Any]:
    shown = {
        "kind": one.type, "text": one.text, "open": one.is_open, "score": one.score,
        "source_table": "working_notes", "source_id": one.id, "ts_ms": one.ts_ms,
        "speaker": one.speaker.value, "origin": one.origin.value,
    }  # fmt: skip
    return {**shown, "session_id": one.session} if many else shown


def _selected_json(one: SelectedEvidence, *, many: bool) -> dict[str, Any]:
    shown = {
        "kind": one.kind, "text": one.text, "score": one.score, "reasons": list(one.reasons),
        "source_table": one.source_table, "source_id": one.source_id, "ts_ms": one.ts_ms,
        "speaker": one.speaker.value, "origin": one.origin.value,
    }  # fmt: skip
    return {**shown, "session_id": one.session} if many else shown
