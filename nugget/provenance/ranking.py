"""Rank the nuggets and units that explain a place in the code, or answer a question about it.

    place, words -> candidates -> scores -> staleness of the best -> order -> packing -> NuggetBundle

Candidates are the nuggets scoped to the file, to its folders or to paths below a folder, the rules of the whole
workspace, and nuggets that contain words of the question or are near it in meaning; with a question, also those of
files in the same folder. Matches of both place and question come first. Staleness means reading a file, so only
candidates that can be shown are checked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from pathlib import PurePosixPath
from types import MappingProxyType

from nugget.index.embedded import provenance as stored
from nugget.markdown import body_below_title
from nugget.models import Contribution, Depth, Query, Scope, StaleReason, Unit
from nugget.models.nuggets import Nugget, NuggetBundle, NuggetHit, NuggetType, ScopeMatch
from nugget.provenance.checkout import Checkout, Location, follow_renames
from nugget.retrieval.packing import NUGGET_FRAME_TOKENS, pack_nuggets

BUDGET_TOKENS = 2000
"""The default size of an answer."""
TEXT_CANDIDATES = 200
"""The most nuggets taken from the words of a question."""
COUNTS_AS: Mapping[str, NuggetType] = {
    "decision": NuggetType.DECISION, "bug": NuggetType.CAVEAT, "belief": NuggetType.CONSTRAINT,
    "pattern": NuggetType.DECISION, "concept": NuggetType.INTENT,
}  # fmt: skip
"""The type of nugget as which each type of unit is weighed."""

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
"""A unit of the brain, its BM25 as a share of the best (None without words of the question), and its staleness."""


def why(
    query: Query, place: Location, notes: Sequence[str] = (), *, now: datetime,
    cosines: Mapping[str, float] = MappingProxyType({}), symbol_words: Sequence[str] = (),
    reviewed: Sequence[Reviewed] = (),
) -> NuggetBundle:  # fmt: skip
    """Answer a question about code, at a place that was located with `notes`.

    `cosines` are those of the nuggets near the question in meaning, by id. `symbol_words` are other names that make a
    nugget about the symbol. `reviewed` are the units of the brain that are scoped to this workspace.
    """
    units = [one for unit in reviewed if (one := _unit_candidate(unit, query, place, now))]
    promoted = {(one.nugget.session, one.nugget.summary) for one in units}
    nuggets = _candidates(query, place, now, cosines, symbol_words)
    candidates = [one for one in nuggets if (one.nugget.session, one.nugget.summary) not in promoted] + units
    budget_tokens = query.budget_tokens or BUDGET_TOKENS
    chosen = sorted(candidates, key=rank)[: budget_tokens // NUGGET_FRAME_TOKENS + 1]
    hits = [one if one.unit else with_staleness(one, place.stale_reason(one.nugget, now.date())) for one in chosen]
    packed, budget, hint = pack_nuggets(
        sorted(hits, key=rank), budget_tokens=budget_tokens, depth=query.depth or Depth.STANDARD,
        candidates=len(candidates),
    )  # fmt: skip
    paths = dict.fromkeys(hit.nugget.scope.path for hit in packed if hit.nugget.scope.path and not hit.unit)
    moved = [f"{path} is {place.aliases[path]} now." for path in paths if place.aliases.get(path, path) != path]
    return NuggetBundle(
        query=replace(query, path=place.path), hits=packed, budget=budget, candidates=len(candidates),
        more_context_hint=hint, notes=(*notes, *moved),
    )  # fmt: skip


def locate(query: Query, connection: sqlite3.Connection, checkout: Checkout) -> tuple[Location, list[str]]:
    """Return the present place of a query, and notes on it."""
    scoped = stored.scoped_paths(connection, checkout.workspace.identity)
    path = query.path
    aliases = follow_renames(connection, checkout, [path, *scoped] if path else scoped)
    notes: list[str] = []
    if path and path in aliases:
        notes.append(f"{path} was renamed to {aliases[path]}.")
        path = aliases[path]
    is_folder = path is not None and checkout.is_folder(path)
    if path and not is_folder and not checkout.exists(path):
        is_folder = any(scope.startswith(f"{path}/") for scope in scoped)
        notes.append(f"{path} is not in the checkout.")
    place = Location(connection=connection, checkout=checkout, path=path, is_folder=is_folder, aliases=aliases)
    return place, notes


def _candidates(
    query: Query, place: Location, now: datetime, cosines: Mapping[str, float], symbol_words: Sequence[str]
) -> list[NuggetHit]:
    connection, workspace = place.connection, place.workspace
    nuggets = {one.id: one for one in _nuggets_around(query, place)}
    texts: dict[str, float] = {}
    if query.text:
        scores = stored.search_nuggets(
            connection, workspace, query.text, limit=TEXT_CANDIDATES, types=query.filter.types,
            since=_moment(query.filter.since),
        )  # fmt: skip
        best = max(scores.values(), default=0.0) or 1.0
        texts = {id_: score / best for id_, score in scores.items()}
        found = stored.nuggets_by_id(connection, [*texts, *cosines])
        nuggets |= {key: one for key, one in found.items() if one.scope.repo == workspace and _is_wanted(one, query)}
    named: set[str] = set()
    if query.symbol:
        words = {query.symbol, query.symbol.rpartition(".")[2], *symbol_words}
        named = {id_ for id_, one in nuggets.items() if one.scope.symbol in words}
        for word in words:
            named |= stored.naming(connection, workspace, list(nuggets), word)
    return [
        weigh(one, place.match(one.scope.path or ""), now=now, text=texts.get(id_), meaning=cosines.get(id_),
              names_symbol=id_ in named)
        for id_, one in nuggets.items()
    ]  # fmt: skip


def _nuggets_around(query: Query, place: Location) -> list[Nugget]:
    """Return the nuggets at, above and below a place, under the present and former names of files.

    Nuggets next to it are about other files, so they are candidates only for a question in words.
    """
    path = place.path
    if path is None:
        return []
    above = [str(folder) for folder in PurePosixPath(path).parents if folder.name]
    moved_here = [old for old, now in place.aliases.items() if place.match(now) is not ScopeMatch.ELSEWHERE]
    beside = [path.rpartition("/")[0]] if query.text and not place.is_folder else []
    found = stored.nuggets_at(
        place.connection, place.workspace, paths=list(dict.fromkeys([path, *above, "", *moved_here])), folders=beside,
        below=[path] if place.is_folder else [], types=query.filter.types, since=_moment(query.filter.since),
    )  # fmt: skip
    # Of the rules for the whole workspace, only constraints explain a single file.
    kept = [one for one in found if one.scope.path or not path or one.type is NuggetType.CONSTRAINT]
    return [one for one in kept if place.match(one.scope.path or "") is not ScopeMatch.ELSEWHERE]


def _unit_candidate(one: Reviewed, query: Query, place: Location, now: datetime) -> NuggetHit | None:
    """Return a unit of the brain as a candidate, or None if it matches neither the place nor the words."""
    unit, text, stale = one
    changed = unit.last_modified or unit.created
    nugget = Nugget(
        id=unit.ref, type=COUNTS_AS.get(unit.type, NuggetType.INTENT), summary=unit.title, confidence=unit.confidence,
        session=unit.session or "", detail=body_below_title(unit.body).strip(), scope=unit.scope or Scope(),
        agent="reviewed", session_started=datetime.combine(changed, time(), UTC) if changed else None,
        alternatives=unit.alternatives, stale_after=unit.stale_after, evidence=unit.evidence,
    )  # fmt: skip
    path = nugget.scope.path or ""
    match = place.match(path)
    is_elsewhere = match in (ScopeMatch.ELSEWHERE, ScopeMatch.WORKSPACE) and text is None
    is_foreign = path and not nugget.scope.repo and not place.checkout.exists(place.aliases.get(path, path))
    if is_elsewhere or is_foreign or not _is_wanted(nugget, query):
        return None
    names_symbol = bool(query.symbol) and query.symbol in (nugget.scope.symbol, nugget.summary)
    weighed = weigh(nugget, match, now=now, text=text, names_symbol=names_symbol)
    return replace(with_staleness(weighed, stale), unit=unit)


def _is_wanted(nugget: Nugget, query: Query) -> bool:
    learned, since = _learned(nugget), _moment(query.filter.since)
    is_recent = since is None or (learned is not None and learned >= since)
    return is_recent and (not query.filter.types or nugget.type in query.filter.types)


def _moment(day: date | None) -> datetime | None:
    return day if day is None or isinstance(day, datetime) else datetime.combine(day, time(), UTC)


def _learned(nugget: Nugget) -> datetime | None:
    return nugget.session_started or nugget.extracted_at


def rank(hit: NuggetHit) -> tuple[bool, bool, float, float]:
    """Return a sort key: matches of place and words first, then of the file itself, then by score and age."""
    is_found = any(part.name in ("text", "meaning") for part in hit.addends)
    matches_both = is_found and hit.match is not ScopeMatch.ELSEWHERE
    learned = _learned(hit.nugget)
    is_exact, newest = hit.match is ScopeMatch.EXACT, learned.timestamp() if learned else 0.0
    return not matches_both, not is_exact, -hit.score, -newest


def weigh(
    nugget: Nugget, match: ScopeMatch, *, now: datetime, text: float | None = None, meaning: float | None = None,
    names_symbol: bool = False,
) -> NuggetHit:  # fmt: skip
    """Return a nugget, or a unit of the brain treated as one, with the addends of its score for one question.

    `text` is its BM25 as a share of the best match's, None without words of the question; `meaning` is its cosine if it
    was found by meaning.
    """
    kind, learned = nugget.type, _learned(nugget)
    age_days = None if learned is None else max(0.0, (now - learned).total_seconds() / 86400)
    recency = 0.0 if age_days is None else 0.5 ** (age_days / HALF_LIFE_DAYS)
    addends = [
        ("scope", SCOPE_SHARE * SCOPE_VALUES[match], match), ("type", TYPE_SHARE * TYPE_VALUES[kind], kind),
        ("recency", RECENCY_SHARE * recency, "date unknown" if age_days is None else f"{age_days:.0f} days old"),
        ("confidence", CONFIDENCE_SHARE * nugget.confidence, str(nugget.confidence)),
    ]  # fmt: skip
    if text is not None:
        addends += [("text", TEXT_SHARE * text, f"{text:.0%} of the best match"), ("text match", TEXT_BOOST, "")]
    elif meaning is not None:
        addends.append(("meaning", TEXT_SHARE * max(meaning, 0.0), f"cosine {meaning:.3f}"))
    if boost := TYPE_BOOSTS.get(kind):
        addends.append(("boost", boost, kind))
    if names_symbol:
        addends.append(("symbol", SYMBOL_BOOST, ""))
    parts = tuple(Contribution(name=name, value=value, detail=detail) for name, value, detail in addends)
    return NuggetHit(nugget=nugget, match=match, addends=parts)


def with_staleness(hit: NuggetHit, reason: StaleReason | None) -> NuggetHit:
    """Return a hit with the penalty for a stale one."""
    penalty = Contribution(name="stale", value=-STALE_PENALTY)
    return replace(hit, stale_reason=reason, addends=(*hit.addends, penalty)) if reason else hit
