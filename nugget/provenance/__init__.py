"""Answer why code is the way it is: nuggets for a place, a question, or both.

    place, words -> candidates -> scores -> staleness of the best -> order -> packing -> NuggetBundle

Candidates are the nuggets scoped to the file, to its folders, to what lies below a folder, beside a file, or to the
whole workspace; and those in which words of the question stand, or that mean the like. Where both are asked, those that
match both come first. Whether a nugget is stale costs a look at a file, so it is asked only of those that are shown.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from nugget.index import provenance as stored
from nugget.index.provenance import BriefNugget
from nugget.models import Scope, StaleReason, Unit
from nugget.models.nuggets import Nugget, NuggetBundle, NuggetHit, NuggetQuery, NuggetType, ScopeMatch
from nugget.provenance.checkout import Checkout, follow_renames, stale_reason
from nugget.retrieval.packing import NUGGET_FRAME_TOKENS, pack_nuggets
from nugget.retrieval.relevance import FILE, FileProfile, Signals, contributions_of, relevance, scope_match

TEXT_CANDIDATES = 200
"""Nuggets taken from the words of a question, at most."""

COUNTS_AS: Mapping[str, NuggetType] = {
    "decision": NuggetType.DECISION,
    "bug": NuggetType.CAVEAT,
    "belief": NuggetType.CONSTRAINT,
    "pattern": NuggetType.DECISION,
    "concept": NuggetType.INTENT,
}
"""The type of nugget that a type of knowledge unit is weighed as, if a unit of the brain is about the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """A unit of the brain that is scoped to code of the workspace.

    `text` is its BM25 as a share of the best unit's, None if no word of the question stands in it.
    """

    unit: Unit
    text: float | None = None
    stale_reason: StaleReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Location:
    """The place in question, as it is now: `aliases` lead from old paths to present ones."""

    path: str | None
    is_folder: bool
    aliases: Mapping[str, str]

    def present(self, path: str) -> str:
        """Return the present path of a file."""
        return self.aliases.get(path, path)

    def names(self, present: str) -> list[str]:
        """Return all paths that a file has had, its present one first."""
        return [present, *(old for old, now in self.aliases.items() if now == present)]

    def match(self, path: str) -> ScopeMatch:
        """Return how a scope relates to the place in question."""
        return scope_match(self.path, self.present(path) or None, is_folder=self.is_folder)


class _Candidate(NamedTuple):
    brief: BriefNugget
    signals: Signals

    @property
    def matches_text(self) -> bool:
        return self.signals.text is not None or self.signals.meaning is not None


def why(
    query: NuggetQuery,
    *,
    connection: sqlite3.Connection,
    checkout: Checkout,
    now: datetime,
    chunks: int = 0,
    meant: Mapping[str, float] | None = None,
    symbol_words: Sequence[str] = (),
    reviewed: Sequence[Reviewed] = (),
    profile: FileProfile = FILE,
) -> NuggetBundle:
    """Answer a question about code from the machine's index.

    `chunks` is the size of that index. `meant` are nuggets that mean the like of the question: id -> cosine.
    `symbol_words` are the names by which a nugget is about the symbol that is asked for. `reviewed` are the units
    of the brain that are scoped to this workspace.
    """
    place, notes = _find_place(query, connection, checkout)
    candidates = _candidates(query, place, connection, checkout, now, chunks, meant or {}, symbol_words)
    limit = query.budget_tokens // NUGGET_FRAME_TOKENS + 1
    chosen = _best(candidates, limit, connection, checkout, place, now.date(), profile)
    nuggets = stored.nuggets_by_id(connection, [candidate.brief.id for candidate, _ in chosen])
    hits = [_hit(c, reason, nuggets[c.brief.id], profile) for c, reason in chosen if c.brief.id in nuggets]
    of_brain = [hit for one in reviewed if (hit := _reviewed_hit(one, query, place, now, profile))]
    both = query.path is not None and query.text is not None
    hits = sorted([*hits, *of_brain], key=lambda hit: _order_of(hit, both=both))
    count = len(candidates) + len(of_brain)
    packed, budget, hint = pack_nuggets(hits, budget_tokens=query.budget_tokens, depth=query.depth, candidates=count)
    notes += _notes_on(packed, place, checkout)
    return NuggetBundle(
        query=replace(query, path=place.path), hits=packed, budget=budget, candidates=count, more_context_hint=hint,
        notes=tuple(notes),
    )  # fmt: skip


def file_names(connection: sqlite3.Connection, checkout: Checkout, path: str) -> list[str]:
    """Return all paths that the file at `path` has had, its present one first."""
    place, _ = _find_place(NuggetQuery(path=path), connection, checkout)
    return place.names(place.path or "")


def stale_reasons(
    nuggets: Sequence[Nugget], *, connection: sqlite3.Connection, checkout: Checkout, today: date
) -> dict[str, StaleReason]:
    """Return id -> reason for each of these nuggets that is stale. Hashes every file they are about, once."""
    aliases = follow_renames(connection, checkout, {nugget.scope.path for nugget in nuggets if nugget.scope.path})
    place = _Location(path=None, is_folder=False, aliases=aliases)
    found: dict[str, StaleReason] = {}
    for nugget in nuggets:
        brief = BriefNugget(
            nugget.id, nugget.type, nugget.scope.path or "", nugget.scope.symbol, nugget.confidence,
            nugget.session_started, nugget.stale_after, nugget.file_hash,
        )  # fmt: skip
        if reason := _stale_reason(brief, connection, checkout, place, today):
            found[nugget.id] = reason
    return found


def _find_place(query: NuggetQuery, connection: sqlite3.Connection, checkout: Checkout) -> tuple[_Location, list[str]]:
    scoped = stored.scoped_paths(connection, checkout.workspace.identity)
    asked = query.path
    aliases = follow_renames(connection, checkout, scoped, asked=asked)
    notes: list[str] = []
    if asked and asked in aliases:
        notes.append(f"{asked} was renamed; shown is {aliases[asked]}.")
        asked = aliases[asked]
    is_folder = asked is not None and checkout.is_folder(asked)
    if asked and not is_folder and not checkout.exists(asked):
        is_folder = any(path.startswith(f"{asked}/") for path in scoped)
        notes.append(f"{asked} is not in the checkout (any more).")
    return _Location(path=asked, is_folder=is_folder, aliases=aliases), notes


def _candidates(
    query: NuggetQuery, place: _Location, connection: sqlite3.Connection, checkout: Checkout, now: datetime,
    chunks: int, meant: Mapping[str, float], symbol_words: Sequence[str],
) -> list[_Candidate]:  # fmt: skip
    workspace = checkout.workspace.identity
    briefs: dict[str, BriefNugget] = {}
    if place.path is not None:
        for brief in _at(place, workspace, connection, query):
            if place.match(brief.path) is not ScopeMatch.ELSEWHERE:
                briefs[brief.id] = brief
    texts: dict[str, float] = {}
    if query.text:
        found = stored.search_brief(
            connection, workspace, query.text, chunks=chunks, limit=TEXT_CANDIDATES, types=query.types,
            since=query.since,
        )  # fmt: skip
        best = max((score for _, score in found.values()), default=0.0) or 1.0
        texts = {id_: score / best for id_, (_, score) in found.items()}
        briefs |= {id_: brief for id_, (brief, _) in found.items()}
        briefs |= stored.brief_of_ids(connection, list(meant), workspace, types=query.types, since=query.since)
    named = _naming_symbol(briefs, connection, workspace, query.symbol, symbol_words)
    return [
        _Candidate(
            brief,
            Signals(
                type=brief.type, match=place.match(brief.path), confidence=brief.confidence,
                age_days=_age_days(brief.learned, now), text=texts.get(brief.id), meaning=meant.get(brief.id),
                names_symbol=brief.id in named,
            ),
        )
        for brief in briefs.values()
    ]  # fmt: skip


def _at(place: _Location, workspace: str, connection: sqlite3.Connection, query: NuggetQuery) -> list[BriefNugget]:
    """Return the nuggets at, above, below and beside a place, under the names that files have and had."""
    path = place.path or ""
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    moved_here = [old for old, now in place.aliases.items() if place.match(now) is not ScopeMatch.ELSEWHERE]
    paths = list(dict.fromkeys([path, *above, "", *moved_here]))
    return stored.brief_at(
        connection, workspace, paths=paths, folders=[] if place.is_folder else [path.rpartition("/")[0]],
        below=[path] if place.is_folder else [], types=query.types, since=query.since,
    )  # fmt: skip


def _naming_symbol(
    briefs: Mapping[str, BriefNugget], connection: sqlite3.Connection, workspace: str, symbol: str | None,
    words: Sequence[str],
) -> set[str]:  # fmt: skip
    """Return the nuggets that are scoped to the symbol or name it, or what is defined inside it."""
    if not symbol:
        return set()
    names = {symbol, symbol.rpartition(".")[2], *words}
    found = {id_ for id_, brief in briefs.items() if brief.symbol in names}
    for word in names:
        found |= stored.naming(connection, workspace, [id_ for id_ in briefs if id_ not in found], word)
    return found


def _best(
    candidates: Sequence[_Candidate], limit: int, connection: sqlite3.Connection, checkout: Checkout, place: _Location,
    today: date, profile: FileProfile,
) -> list[tuple[_Candidate, StaleReason | None]]:  # fmt: skip
    """Return the best `limit` candidates in order, each with why it is stale.

    A penalty only lowers a score: whatever leads is looked at once, put back with its penalty if it has one, and is
    in its place when it leads again.
    """
    both = place.path is not None and any(candidate.matches_text for candidate in candidates)
    waiting: list[tuple[tuple[float, ...], int]] = []
    reasons: dict[int, StaleReason | None] = {}
    for number, candidate in enumerate(candidates):
        waiting.append((_key(candidate, relevance(candidate.signals, profile), both=both), number))
    heapify(waiting)
    chosen: list[tuple[_Candidate, StaleReason | None]] = []
    while waiting and len(chosen) < limit:
        _, number = heappop(waiting)
        candidate = candidates[number]
        if number not in reasons:
            reasons[number] = _stale_reason(candidate.brief, connection, checkout, place, today)
            if reasons[number]:
                score = relevance(replace(candidate.signals, is_stale=True), profile)
                heappush(waiting, (_key(candidate, score, both=both), number))
                continue
        chosen.append((candidate, reasons[number]))
    return chosen


def _stale_reason(
    brief: BriefNugget, connection: sqlite3.Connection, checkout: Checkout, place: _Location, today: date
) -> StaleReason | None:
    present = place.present(brief.path)
    return stale_reason(
        brief, connection=connection, checkout=checkout, present_path=present, names=place.names(present), today=today
    )


def _key(candidate: _Candidate, score: float, *, both: bool) -> tuple[float, ...]:
    """Return the sort key of a candidate: those that match place and words first, then by score, then the newest."""
    matches_both = both and candidate.matches_text and candidate.signals.match is not ScopeMatch.ELSEWHERE
    learned = candidate.brief.learned
    return -float(matches_both), -score, -(learned.timestamp() if learned else 0.0)


def _order_of(hit: NuggetHit, *, both: bool) -> tuple[float, ...]:
    matches_both = both and hit.matched_text and hit.match is not ScopeMatch.ELSEWHERE
    started = hit.nugget.session_started
    return -float(matches_both), -hit.score, -(started.timestamp() if started else 0.0)


def _hit(candidate: _Candidate, reason: StaleReason | None, nugget: Nugget, profile: FileProfile) -> NuggetHit:
    signals = replace(candidate.signals, is_stale=reason is not None)
    return NuggetHit(
        nugget=nugget, score=relevance(signals, profile), match=signals.match, matched_text=candidate.matches_text,
        stale_reason=reason, contributions=contributions_of(signals, profile),
    )  # fmt: skip


def _reviewed_hit(
    one: Reviewed, query: NuggetQuery, place: _Location, now: datetime, profile: FileProfile
) -> NuggetHit | None:
    """Return a unit of the brain as a hit; None if it is neither about the place nor matches the words."""
    unit, nugget = one.unit, as_nugget(one.unit)
    match = place.match(nugget.scope.path or "")
    is_elsewhere = match in (ScopeMatch.ELSEWHERE, ScopeMatch.WORKSPACE)
    if (is_elsewhere and one.text is None) or (query.types and nugget.type not in query.types):
        return None
    if query.since and (nugget.session_started is None or nugget.session_started < query.since):
        return None
    signals = Signals(
        type=nugget.type, match=match, confidence=unit.confidence, age_days=_age_days(nugget.session_started, now),
        text=one.text, names_symbol=bool(query.symbol) and query.symbol in (nugget.scope.symbol, unit.title),
        is_stale=one.stale_reason is not None,
    )  # fmt: skip
    return NuggetHit(
        nugget=nugget, score=relevance(signals, profile), match=match, matched_text=one.text is not None,
        stale_reason=one.stale_reason, contributions=contributions_of(signals, profile), unit=unit,
    )  # fmt: skip


def as_nugget(unit: Unit) -> Nugget:
    """Return a unit of the brain as it is weighed and shown beside nuggets."""
    from nugget.markdown import body_below_title

    changed = unit.last_modified or unit.created
    return Nugget(
        id=unit.ref,
        type=COUNTS_AS.get(unit.type, NuggetType.INTENT),
        summary=unit.title,
        confidence=unit.confidence,
        session=unit.session or "",
        detail=body_below_title(unit.body).strip(),
        scope=unit.scope or Scope(),
        agent="reviewed",
        session_started=datetime.combine(changed, time(), UTC) if changed else None,
        alternatives=unit.alternatives,
        stale_after=unit.stale_after,
        evidence=unit.evidence,
    )


def _notes_on(hits: Sequence[NuggetHit], place: _Location, checkout: Checkout) -> list[str]:
    """Return what a reader should know of the files behind an answer."""
    notes = []
    paths = dict.fromkeys(hit.nugget.scope.path for hit in hits if hit.nugget.scope.path and not hit.unit)
    for path in paths:
        present = place.present(path)
        if present != path:
            notes.append(f"{path} is {present} now.")
        elif place.path == path and (unread := checkout.file(path).why_unread) and not place.is_folder:
            notes.append(f"Whether {path} changed since is not known: {unread}.")
    return notes


def _age_days(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else (now - moment).total_seconds() / 86400
