"""Rank the nuggets and units that explain a place in the code, or answer a question about it.

    place, words -> candidates -> scores -> staleness of the best -> order -> packing -> NuggetBundle

Candidates are the nuggets scoped to the file, to its folders, to what lies below a folder, and the rules of the whole
workspace; and those that hold words of the question, or are near to it in meaning. With a question, those of files in
the same folder too. What matches both place and question comes first. Staleness costs a look at a file, so only the
candidates that can be shown are checked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time

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

Reviewed = tuple[Unit, float | None, StaleReason | None]
"""A unit of the brain, its BM25 as a share of the best unit's (None without a word of the question), and staleness."""


@dataclass(slots=True, kw_only=True)
class NuggetCandidate:
    """A nugget, or a unit of the brain weighed as one, with its signals for one question.

    `age_days` is the age of its session, None if unknown. `text` is its BM25 as a share of the best match's, None if it
    holds no word of the question; `meaning` is the cosine of one that was found by meaning.
    """

    nugget: Nugget
    match: ScopeMatch
    age_days: float | None = None
    text: float | None = None
    meaning: float | None = None
    names_symbol: bool = False
    stale: StaleReason | None = None
    unit: Unit | None = None

    @property
    def rank(self) -> tuple[bool, bool, bool, float, float]:
        """Sort key: matches of place and words first, then of the very file, then by score, then the newest.

        A change by hand of which nothing is known but that it was made comes after what says more of the same file.
        """
        is_found = self.text is not None or self.meaning is not None
        matches_both = is_found and self.match is not ScopeMatch.ELSEWHERE
        learned = _learned(self.nugget)
        is_exact, newest = self.match is ScopeMatch.EXACT, learned.timestamp() if learned else 0.0
        is_bare = self.nugget.type is NuggetType.TUNING and not self.nugget.detail
        return not matches_both, not is_exact, is_bare, -relevance(self), -newest


def why(
    query: NuggetQuery,
    place: Location,
    notes: Sequence[str] = (),
    *,
    now: datetime,
    meant: Mapping[str, float] | None = None,
    symbol_words: Sequence[str] = (),
    reviewed: Sequence[Reviewed] = (),
) -> NuggetBundle:
    """Answer a question about code, of a place that was located with `notes`.

    `meant` are the nuggets near to the question in meaning: id -> cosine. `symbol_words` are further names by which a
    nugget is about the symbol. `reviewed` are the units of the brain that are scoped to this workspace.
    """
    candidates = _candidates(query, place, now, meant or {}, symbol_words)
    kept = [one for unit in reviewed if (one := _of_brain(unit, query, place, now))]
    told = {(one.nugget.session, one.nugget.summary) for one in kept}
    candidates = [one for one in candidates if (one.nugget.session, one.nugget.summary) not in told] + kept
    limit = query.budget_tokens // NUGGET_FRAME_TOKENS + 1
    chosen = sorted(candidates, key=lambda one: one.rank)[:limit]
    for one in chosen:
        one.stale = one.stale if one.unit else place.stale_reason(one.nugget, now.date())
    hits = [
        NuggetHit(nugget=one.nugget, score=relevance(one), match=one.match, unit=one.unit, stale_reason=one.stale,
                  contributions=contributions_of(one))
        for one in sorted(chosen, key=lambda one: one.rank)
    ]  # fmt: skip
    packed, budget, hint = pack_nuggets(
        hits, budget_tokens=query.budget_tokens, depth=query.depth, candidates=len(candidates)
    )
    paths = dict.fromkeys(hit.nugget.scope.path for hit in packed if hit.nugget.scope.path and not hit.unit)
    moved = [f"{path} is {place.aliases[path]} now." for path in paths if place.aliases.get(path, path) != path]
    return NuggetBundle(
        query=replace(query, path=place.path), hits=packed, budget=budget, candidates=len(candidates),
        more_context_hint=hint, notes=(*notes, *moved),
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
) -> list[NuggetCandidate]:
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
            id_: one for id_, one in found.items() if one.scope.repo == workspace and _is_wanted(one, query)
        }  # fmt: skip
    named: set[str] = set()
    if query.symbol:
        words = {query.symbol, query.symbol.rpartition(".")[2], *symbol_words}
        named = {id_ for id_, one in nuggets.items() if one.scope.symbol in words}
        for word in words:
            named |= stored.naming(connection, workspace, list(nuggets), word)
    return [
        NuggetCandidate(
            nugget=one, match=place.match(one.scope.path or ""), age_days=_age_days(one, now), text=texts.get(id_),
            meaning=meant.get(id_), names_symbol=id_ in named,
        )
        for id_, one in nuggets.items()
    ]  # fmt: skip


def _at(query: NuggetQuery, place: Location) -> list[Nugget]:
    """Return the nuggets at, above and below a place, under the present and former names of files.

    Those next to it are about other files, so only a question in words makes them candidates.
    """
    path = place.path
    if path is None:
        return []
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    moved_here = [old for old, now in place.aliases.items() if place.match(now) is not ScopeMatch.ELSEWHERE]
    beside = [path.rpartition("/")[0]] if query.text and not place.is_folder else []
    found = stored.nuggets_at(
        place.connection, place.workspace, paths=list(dict.fromkeys([path, *above, "", *moved_here])), folders=beside,
        below=[path] if place.is_folder else [], types=query.types, since=query.since,
    )  # fmt: skip
    return [one for one in found if place.match(one.scope.path or "") is not ScopeMatch.ELSEWHERE
            and (one.scope.path or not path or one.type is NuggetType.CONSTRAINT)]  # fmt: skip


def _of_brain(one: Reviewed, query: NuggetQuery, place: Location, now: datetime) -> NuggetCandidate | None:
    """Return a unit of the brain as a candidate; None if it is neither about the place nor matches the words."""
    unit, text, stale = one
    changed = unit.last_modified or unit.created
    nugget = Nugget(
        id=unit.ref, type=COUNTS_AS.get(unit.type, NuggetType.INTENT), summary=unit.title, confidence=unit.confidence,
        session=unit.session or "", detail=body_below_title(unit.body).strip(), scope=unit.scope or Scope(),
        agent="reviewed", session_started=datetime.combine(changed, time(), UTC) if changed else None,
        alternatives=unit.alternatives, stale_after=unit.stale_after, evidence=unit.evidence,
    )  # fmt: skip
    match = place.match(nugget.scope.path or "")
    is_elsewhere = match in (ScopeMatch.ELSEWHERE, ScopeMatch.WORKSPACE) and text is None
    if is_elsewhere or not _is_wanted(nugget, query):
        return None
    names_symbol = bool(query.symbol) and query.symbol in (nugget.scope.symbol, nugget.summary)
    return NuggetCandidate(nugget=nugget, match=match, age_days=_age_days(nugget, now), text=text, stale=stale,
                           names_symbol=names_symbol, unit=unit)  # fmt: skip


def _is_wanted(nugget: Nugget, query: NuggetQuery) -> bool:
    learned = _learned(nugget)
    is_recent = query.since is None or (learned is not None and learned >= query.since)
    return is_recent and (not query.types or nugget.type in query.types)


def _learned(nugget: Nugget) -> datetime | None:
    return nugget.session_started or nugget.extracted_at


def _age_days(nugget: Nugget, now: datetime) -> float | None:
    learned = _learned(nugget)
    return None if learned is None else max(0.0, (now - learned).total_seconds() / 86400)


def relevance(one: NuggetCandidate) -> float:
    """Return the score of a candidate, 0 to 1."""
    return min(max(sum(value for _, value, _ in _addends(one)), 0.0), 1.0)


def contributions_of(one: NuggetCandidate) -> tuple[Contribution, ...]:
    """Return the addends of a score; the part that the clamp takes away or adds is one of them."""
    parts = [Contribution(name=name, value=value, detail=detail) for name, value, detail in _addends(one)]
    if clamped := relevance(one) - sum(part.value for part in parts):
        parts.append(Contribution(name="clamp", value=clamped, detail="scores lie between 0 and 1"))
    return tuple(parts)


def _addends(one: NuggetCandidate) -> Iterator[tuple[str, float, str]]:
    """Yield the name, value and detail of each addend of a score."""
    kind, age = one.nugget.type, one.age_days
    yield "scope", SCOPE_SHARE * SCOPE_VALUES[one.match], one.match
    yield "type", TYPE_SHARE * TYPE_VALUES[kind], kind
    recency = 0.0 if age is None else 0.5 ** (age / HALF_LIFE_DAYS)
    yield "recency", RECENCY_SHARE * recency, "date unknown" if age is None else f"{age:.0f} days old"
    yield "confidence", CONFIDENCE_SHARE * one.nugget.confidence, str(one.nugget.confidence)
    if one.text is not None:
        yield "text", TEXT_SHARE * one.text, f"{one.text:.0%} of the best match"
        yield "text match", TEXT_BOOST, ""
    elif one.meaning is not None:
        yield "meaning", TEXT_SHARE * max(one.meaning, 0.0), f"cosine {one.meaning:.3f}"
    if boost := TYPE_BOOSTS.get(kind):
        yield "boost", boost, kind
    if one.names_symbol:
        yield "symbol", SYMBOL_BOOST, ""
    if one.stale:
        yield "stale", -STALE_PENALTY, ""
