"""Evidence of many sessions at once: those of a code repository, by words and by meaning.

Incidents, todos and decisions are units of the machine's index too, so that search finds them by meaning. A blocker is
the same failure as its incident, and an edit says nothing but a path, so neither is a unit of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from nugget.evidence.bundle import bundle_of
from nugget.evidence.candidates import Candidate, SessionView, candidates_of, question_words, view_of
from nugget.evidence.values import BundleOptions, EvidenceBundle
from nugget.index import Index, queries, writes
from nugget.index import events as store
from nugget.index.connection import write_transaction
from nugget.index.documents import chunks_of
from nugget.index.events import LogSession
from nugget.infra.embedding import Embedder
from nugget.models import Filter, Scope, SourceName, Unit
from nugget.retrieval.candidates import embed_question

_UNITS_A_SESSION = 100
_LATEST_SESSIONS = 24
_PER_SESSION = {"incident": 20, "failure": 10, "note": 20, "edit": 20, "output": 10, "command": 5}
_BY_WORDS, _BY_MEANING = 40, 40
_LEAST_COSINE, _FULL_COSINE = 0.3, 0.75
"""Cosines below the one say nothing, from the other on they count like all words of a question."""


def put_evidence_units(connection: sqlite3.Connection) -> int:
    """Bring the units of incidents and notes in line with what has been ingested; how many sessions had changed.

    They have no vectors yet: `sync.missing_vectors.embed_missing` gives them theirs.
    """
    changed = [row[0] for row in connection.execute("SELECT key FROM log_sessions WHERE generation <> unit_generation")]
    for key in changed:
        with write_transaction(connection):
            session = store.log_session(connection, key)
            if session is not None:
                _put_units(connection, session)
    return len(changed)


def workspace_bundle(
    index: Index,
    query: str,
    *,
    workspace: str,
    options: BundleOptions = BundleOptions(),  # noqa: B008
    embedder: Embedder | None,
    now: datetime,
) -> EvidenceBundle:
    """Return the evidence for a question in all sessions of a workspace, of shells and agents.

    The latest sessions are looked at as they are, older ones if a word of the question stands in them or if an
    incident, a todo or a decision of theirs is near in meaning. Without vectors words alone are asked, and `degraded`
    says so. Raises UsageError for an intent that does not exist.
    """
    connection = index.connection
    sessions = {one.key: one for one in store.log_sessions(connection, workspace=workspace)}
    views = [view_of(connection, one) for one in list(sessions.values())[:_LATEST_SESSIONS]]
    found = {one.id: one for view in views for one in _strongest(view)}
    words = store.matching_ids(connection, question_words(query), limit=_BY_WORDS)
    degraded: list[str] = []
    meant = _near_in_meaning(index, query, workspace, embedder, degraded)
    wanted = [row_id for row_id in (*words, *meant) if row_id not in found and store.session_key_of(row_id) in sessions]
    found |= {one.id: one for one in candidates_of(connection, wanted)}
    shown = {store.session_key_of(row_id) for row_id in found}
    known = {view.session.key for view in views}
    views += [SessionView(session=sessions[key]) for key in shown - known]
    return bundle_of(
        list(found.values()), query, options=options, views=views, session=None, degraded=tuple(degraded), extra=meant
    )


def _strongest(view: SessionView) -> Iterator[Candidate]:
    """Yield of each category of a session the latest that tell most."""
    left = dict(_PER_SESSION)
    for one in sorted(view.candidates, key=lambda one: (-one.salience, -one.ts_ms)):
        if left[one.category] > 0 and (one.category != "output" or "failing" in one.marks):
            left[one.category] -= 1
            yield one


def _near_in_meaning(
    index: Index, query: str, workspace: str, embedder: Embedder | None, degraded: list[str]
) -> dict[int, float]:
    """Return rows whose units are near a question: row id -> relevance (0..1)."""
    vector, missing = embed_question(query[:2000], index, embedder)
    degraded += missing
    if vector is None:
        return {}
    filter_ = Filter(sources=(SourceName.SESSIONS, SourceName.SHELL))
    cosines = dict(index.search_vectors(vector, _BY_MEANING * 4, filter_))
    units = index.units_of_chunks(list(cosines))
    stored = index.units(set(units.values()))
    near: dict[int, float] = {}
    for chunk, cosine in cosines.items():
        unit = stored.get(units[chunk])
        share = (cosine - _LEAST_COSINE) / (_FULL_COSINE - _LEAST_COSINE)
        if unit is None or share <= 0 or unit.scope is None or unit.scope.repo != workspace:
            continue
        number = unit.id.rsplit("-", 1)[-1]
        if not number.isdecimal():
            continue
        row_id = int(number)
        near[row_id] = max(near.get(row_id, 0.0), min(1.0, share))
    return dict(sorted(near.items(), key=lambda row: -row[1])[:_BY_MEANING])


def _put_units(connection: sqlite3.Connection, session: LogSession) -> None:
    source = SourceName(session.source)
    for unit_id in queries.unit_ids_of_path(connection, source, session.id):
        writes.remove_unit(connection, source, unit_id)
    first, end = store.id_range(session.key)
    rows = store.rows_in(connection, "incidents", first, end, limit=_UNITS_A_SESSION, newest=True)
    said = "type IN ('todo', 'decision')"
    notes = store.rows_in(connection, "working_notes", first, end, where=said, limit=_UNITS_A_SESSION, newest=True)
    made = [_unit(session, row[0], "incident", row[5], row[6], row[1]) for row in rows]
    made += [_unit(session, row[0], row[2], row[3], row[3], row[1]) for row in notes]
    for unit in made:
        writes.put_unit(connection, unit, chunks_of(unit))
    connection.execute("UPDATE log_sessions SET unit_generation = generation WHERE key = ?", (session.key,))
    writes.put_statistics(connection)


def _unit(session: LogSession, row_id: int, kind: str, title: str, body: str, ts_ms: int) -> Unit:
    day = datetime.fromtimestamp(ts_ms / 1000, UTC).date() if 0 < ts_ms < 1 << 42 else None
    return Unit(
        id=f"{session.id}/{kind}-{row_id}", source=SourceName(session.source), type=kind, title=title, body=body,
        path=session.id, session=session.id, scope=Scope(repo=session.workspace), created=day, last_modified=day,
    )  # fmt: skip


def session_counts(connection: sqlite3.Connection, sessions: Sequence[LogSession]) -> dict[int, dict[str, Any]]:
    """For each session how many commands, incidents and open incidents it has."""
    counts: dict[int, dict[str, Any]] = {}
    for session in sessions:
        first, end = store.id_range(session.key)
        commands = connection.execute(
            "SELECT count(*) FROM events WHERE kind = 'command.start' AND id >= ? AND id < ?", (first, end)
        ).fetchone()[0]
        incidents, unfixed = connection.execute(
            "SELECT count(*), count(*) - count(fixed_by) FROM incidents WHERE id >= ? AND id < ?", (first, end)
        ).fetchone()
        counts[session.key] = {"commands": commands, "incidents": incidents, "open": unfixed}
    return counts
