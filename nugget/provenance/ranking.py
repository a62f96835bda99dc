"""Rank the nuggets and units that explain a place in the code, or answer a question about it.

    place, words -> candidates -> scores -> staleness of the best -> order -> packing -> NuggetBundle

Candidates are the nuggets scoped to the file, to its folders, to what lies below a folder, beside a file, or to the
whole workspace; and those that hold words of the question, or mean the like. What matches both place and question comes
first. Whether a nugget is stale costs a look at a file, so only those that are shown are looked at.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from heapq import heapify, heappop, heappush

from nugget.index import provenance as stored
from nugget.markdown import body_below_title
from nugget.models import Contribution, Scope, StaleReason, Unit
from nugget.models.nuggets import Nugget, NuggetBundle, NuggetHit, NuggetQuery, NuggetType, ScopeMatch
from nugget.provenance.checkout import Checkout, Location, follow_renames
from nugget.retrieval.packing import NUGGET_FRAME_TOKENS, pack_nuggets

TEXT_CANDIDATES = 200
"""Nuggets taken from the words of a question, at most."""
COUNTS_AS: Mapping[str, NuggetType] = {
    "decision": NuggetType.DECISION,
    "bug": NuggetType.CAVEAT,
    "belief": NuggetType.CONSTRAINT,
    "pattern": NuggetType.DECISION,
    "concept": NuggetType.INTENT,
}
"""Types of nuggets as which the brain's units are weighed, by type of unit."""

# Relevance = clamp(scope + type + recency + confidence + text + boosts - penalty), each addend a share times 0..1.
SCOPE_SHARE, TYPE_SHARE, RECENCY_SHARE, CONFIDENCE_SHARE, TEXT_SHARE = 0.30, 0.20, 0.15, 0.10, 0.10
HALF_LIFE_DAYS = 30.0
TEXT_BOOST, SYMBOL_BOOST, STALE_PENALTY = 0.15, 0.10, 0.30
SCOPE_VALUES = {
    ScopeMatch.EXACT: 1.0, ScopeMatch.DIRECTORY: 0.6, ScopeMatch.SAME_DIRECTORY: 0.5, ScopeMatch.WORKSPACE: 0.2,
    ScopeMatch.ELSEWHERE: 0.0,
}  # fmt: skip
TYPE_VALUES = {
    NuggetType.CONSTRAINT: 1.0, NuggetType.CAVEAT: 0.9, NuggetType.TUNING: 0.8, NuggetType.DECISION: 0.7,
    NuggetType.REJECTION: 0.6, NuggetType.WORKAROUND: 0.5, NuggetType.INTENT: 0.4, NuggetType.DEPENDENCY: 0.3,
}  # fmt: skip
TYPE_BOOSTS = {NuggetType.CONSTRAINT: 0.20, NuggetType.CAVEAT: 0.20, NuggetType.TUNING: 0.15}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Signals of one nugget for one question.

    `age_days` is that of its session, None if it is not known. `text` is its BM25 as a share of the best match's,
    None if it holds no word of the question; `meaning` is the cosine of one that was found by that alone.
    """

    type: NuggetType
    match: ScopeMatch
    confidence: float
    age_days: float | None = None
    text: float | None = None
    meaning: float | None = None
    names_symbol: bool = False
    is_stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """A unit of the brain that is scoped to code of the workspace.

    `text` is its BM25 as a share of the best unit's, None if it holds no word of the question.
    """

    unit: Unit
    text: float | None = None
    stale_reason: StaleReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    signals: Signals
    nugget: Nugget
    unit: Unit | None = None
    stale: StaleReason | None = None

    @property
    def matches_text(self) -> bool:
        return self.signals.text is not None or self.signals.meaning is not None

    @property
    def rank(self) -> tuple[bool, bool, float, float]:
        """Sort key: what matches place and words first, then what is about the very file, by score, then the newest."""
        matches_both = self.matches_text and self.signals.match is not ScopeMatch.ELSEWHERE
        score = relevance(replace(self.signals, is_stale=self.stale is not None))
        is_exact, learned = self.signals.match is ScopeMatch.EXACT, _learned(self.nugget)
        return not matches_both, not is_exact, -score, -(learned.timestamp() if learned else 0.0)


def why(
    query: NuggetQuery,
    *,
    connection: sqlite3.Connection,
    checkout: Checkout,
    now: datetime,
    meant: Mapping[str, float] | None = None,
    symbol_words: Sequence[str] = (),
    reviewed: Sequence[Reviewed] = (),
) -> NuggetBundle:
    """Answer a question about code from the machine's index.

    `meant` are nuggets that mean the like of the question: id -> cosine. `symbol_words` are further names by which a
    nugget is about the symbol. `reviewed` are the units of the brain that are scoped to this workspace.
    """
    place, notes = locate(query, connection, checkout)
    candidates = _candidates(query, place, now, meant or {}, symbol_words)
    candidates += [one for unit in reviewed if (one := _of_brain(unit, query, place, now))]
    chosen = _best(candidates, query.budget_tokens // NUGGET_FRAME_TOKENS + 1, place, now.date())
    hits = [
        NuggetHit(nugget=one.nugget, score=relevance(one.signals), match=one.signals.match, unit=one.unit,
                  stale_reason=one.stale, contributions=contributions_of(one.signals))
        for one in (replace(one, signals=replace(one.signals, is_stale=one.stale is not None)) for one in chosen)
    ]  # fmt: skip
    packed, budget, hint = pack_nuggets(
        hits, budget_tokens=query.budget_tokens, depth=query.depth, candidates=len(candidates)
    )
    for path in dict.fromkeys(hit.nugget.scope.path for hit in packed if hit.nugget.scope.path and not hit.unit):
        if (present := place.aliases.get(path, path)) != path:
            notes.append(f"{path} is {present} now.")
    return NuggetBundle(
        query=replace(query, path=place.path), hits=packed, budget=budget, candidates=len(candidates),
        more_context_hint=hint, notes=tuple(notes),
    )  # fmt: skip


def as_nugget(unit: Unit) -> Nugget:
    """Return a unit of the brain as it is weighed and shown beside nuggets."""
    changed = unit.last_modified or unit.created
    return Nugget(
        id=unit.ref, type=COUNTS_AS.get(unit.type, NuggetType.INTENT), summary=unit.title, confidence=unit.confidence,
        session=unit.session or "", detail=body_below_title(unit.body).strip(), scope=unit.scope or Scope(),
        agent="reviewed", session_started=datetime.combine(changed, time(), UTC) if changed else None,
        alternatives=unit.alternatives, stale_after=unit.stale_after, evidence=unit.evidence,
    )  # fmt: skip


def locate(query: NuggetQuery, connection: sqlite3.Connection, checkout: Checkout) -> tuple[Location, list[str]]:
    """Return the place of a query as it is now, and notes on it."""
    scoped = stored.scoped_paths(connection, checkout.workspace.identity)
    path = query.path
    aliases = follow_renames(connection, checkout, scoped, asked=path)
    notes: list[str] = []
    if path and path in aliases:
        notes.append(f"{path} was renamed; shown is {aliases[path]}.")
        path = aliases[path]
    is_folder = path is not None and checkout.is_folder(path)
    if path and not is_folder and not checkout.exists(path):
        is_folder = any(scope.startswith(f"{path}/") for scope in scoped)
        notes.append(f"{path} is not in the checkout (any more).")
    place = Location(connection=connection, checkout=checkout, path=path, is_folder=is_folder, aliases=aliases)
    return place, notes


def _candidates(
    query: NuggetQuery, place: Location, now: datetime, meant: Mapping[str, float], symbol_words: Sequence[str]
) -> list[_Candidate]:
    connection, workspace = place.connection, place.workspace
    nuggets = {one.id: one for one in _at(query, place)}
    texts: dict[str, float] = {}
    if query.text:
        scores = stored.search_nuggets(
            connection, workspace, query.text, limit=TEXT_CANDIDATES, types=query.types, since=query.since
        )
        best = max(scores.values(), default=0.0) or 1.0
        texts = {id_: score / best for id_, score in scores.items()}
        found = stored.nuggets_by_id(connection, [*texts, *meant])
        nuggets |= {
            id_: found[id_] for id_ in (*texts, *meant)
            if id_ in found and found[id_].scope.repo == workspace and _is_wanted(found[id_], query)
        }  # fmt: skip
    named: set[str] = set()
    if query.symbol:
        words = {query.symbol, query.symbol.rpartition(".")[2], *symbol_words}
        named = {id_ for id_, one in nuggets.items() if one.scope.symbol in words}
        for word in words:
            named |= stored.naming(connection, workspace, list(nuggets), word)
    return [
        _Candidate(
            nugget=one,
            signals=Signals(
                type=one.type, match=place.match(one.scope.path or ""), confidence=one.confidence,
                names_symbol=id_ in named, age_days=_age_days(_learned(one), now), text=texts.get(id_),
                meaning=meant.get(id_),
            ),
        )
        for id_, one in nuggets.items()
    ]  # fmt: skip


def _at(query: NuggetQuery, place: Location) -> list[Nugget]:
    """Return the nuggets at, above, below and beside a place, under the names that files have and had."""
    path = place.path
    if path is None:
        return []
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    moved_here = [old for old, now in place.aliases.items() if place.match(now) is not ScopeMatch.ELSEWHERE]
    found = stored.nuggets_at(
        place.connection, place.workspace, paths=list(dict.fromkeys([path, *above, "", *moved_here])),
        folders=[] if place.is_folder else [path.rpartition("/")[0]], below=[path] if place.is_folder else [],
        types=query.types, since=query.since,
    )  # fmt: skip
    return [one for one in found if place.match(one.scope.path or "") is not ScopeMatch.ELSEWHERE]


def _of_brain(one: Reviewed, query: NuggetQuery, place: Location, now: datetime) -> _Candidate | None:
    """Return a unit of the brain as a candidate; None if it is neither about the place nor matches the words."""
    nugget = as_nugget(one.unit)
    match = place.match(nugget.scope.path or "")
    is_elsewhere = match in (ScopeMatch.ELSEWHERE, ScopeMatch.WORKSPACE) and one.text is None
    if is_elsewhere or not _is_wanted(nugget, query):
        return None
    signals = Signals(
        type=nugget.type, match=match, confidence=nugget.confidence, age_days=_age_days(_learned(nugget), now),
        text=one.text, names_symbol=bool(query.symbol) and query.symbol in (nugget.scope.symbol, nugget.summary),
    )  # fmt: skip
    return _Candidate(signals=signals, nugget=nugget, unit=one.unit, stale=one.stale_reason)


def _best(candidates: Sequence[_Candidate], limit: int, place: Location, today: date) -> list[_Candidate]:
    """Return the best `limit` candidates in order.

    A penalty only lowers a score: whatever leads is looked at once, put back if it is stale, and is in its place when
    it leads again.
    """
    waiting = [(one.rank, number, one, one.unit is not None) for number, one in enumerate(candidates)]
    heapify(waiting)
    chosen: list[_Candidate] = []
    while waiting and len(chosen) < limit:
        _, number, one, is_looked_at = heappop(waiting)
        if not is_looked_at and (reason := place.stale_reason(one.nugget, today)):
            one = replace(one, stale=reason)
            heappush(waiting, (one.rank, number, one, True))
        else:
            chosen.append(one)
    return chosen


def _is_wanted(nugget: Nugget, query: NuggetQuery) -> bool:
    learned = _learned(nugget)
    is_recent = query.since is None or (learned is not None and learned >= query.since)
    return is_recent and (not query.types or nugget.type in query.types)


def _learned(nugget: Nugget) -> datetime | None:
    return nugget.session_started or nugget.extracted_at


def _age_days(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else (now - moment).total_seconds() / 86400


def recency(age_days: float | None) -> float:
    """Return 1 for today, halved with every half-life; 0 if the age is not known."""
    return 0.0 if age_days is None else float(0.5 ** (max(age_days, 0.0) / HALF_LIFE_DAYS))


def relevance(signals: Signals) -> float:
    """Return the score of a nugget, 0 to 1."""
    return min(max(sum(value for _, value, _ in _addends(signals)), 0.0), 1.0)


def contributions_of(signals: Signals) -> tuple[Contribution, ...]:
    """Return the addends of a nugget's score; what the clamp takes away or gives is one of them."""
    parts = [Contribution(name=name, value=value, detail=_words(name, of)) for name, value, of in _addends(signals)]
    total = sum(part.value for part in parts)
    clamped = min(max(total, 0.0), 1.0)
    if clamped != total:
        parts.append(Contribution(name="clamp", value=clamped - total, detail="scores lie between 0 and 1"))
    return tuple(parts)


def _addends(signals: Signals) -> Iterator[tuple[str, float, object]]:
    """Yield (name, value, source) of each addend, not worded yet: a question needs thousands."""
    yield "scope", SCOPE_SHARE * SCOPE_VALUES[signals.match], signals.match
    yield "type", TYPE_SHARE * TYPE_VALUES[signals.type], signals.type
    yield "recency", RECENCY_SHARE * recency(signals.age_days), signals.age_days
    yield "confidence", CONFIDENCE_SHARE * signals.confidence, signals.confidence
    if signals.text is not None:
        yield "text", TEXT_SHARE * signals.text, signals.text
        yield "text match", TEXT_BOOST, ""
    elif signals.meaning is not None:
        yield "meaning", TEXT_SHARE * max(signals.meaning, 0.0), signals.meaning
    if boost := TYPE_BOOSTS.get(signals.type):
        yield "boost", boost, signals.type
    if signals.names_symbol:
        yield "symbol", SYMBOL_BOOST, ""
    if signals.is_stale:
        yield "stale", -STALE_PENALTY, ""


def _words(name: str, of: object) -> str:
    if name == "recency":
        return f"{max(of, 0):.0f} days old" if isinstance(of, float | int) else "date unknown"
    if name == "text":
        return f"{of:.0%} of the best match"
    return f"cosine {of:.3f}" if name == "meaning" else str(of)
