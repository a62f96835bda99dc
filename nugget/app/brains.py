"""Validate questions, ask several brains as one, compare units with a brain, and evaluate it.

The brains are the one in use and those of `brains.folders`. Also a brain's space in a team's index.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nugget import evaluation
from nugget.brain.checks import read_golden
from nugget.brain.filing import forgotten
from nugget.capture.ledger import declared_id
from nugget.config import Settings
from nugget.errors import (
    EmbeddingUnavailable,
    IndexUnavailable,
    NuggetError,
    ReviewError,
    UsageError,
    reason_of,
    require_known,
)
from nugget.evaluation import query_log
from nugget.index import IndexReader
from nugget.index.embedded.connection import Unusable, discard_damaged, find_damage, is_damage
from nugget.infra import files
from nugget.models import Bundle, Depth, Filter, Hit, Query, SourceName, Unit
from nugget.models.nuggets import TYPES
from nugget.sources.sessions import read_any
from nugget.upkeep import brain_for_session, usable_brains

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.app import Brain
    from nugget.capture.compare import Similar
    from nugget.capture.review import ProposalBranch
    from nugget.index.postgres.writer import PublishedUnits

T = TypeVar("T")
NEIGHBOURS = 5
"""Number of the brain's units that a new one is compared with."""


def checked(question: Query | str, usual: Query) -> Query:
    """Return a validated query with the defaults of `usual`.

    Raises UsageError for an unknown source, type or depth, and for a number below 1.
    """
    query = Query(question) if isinstance(question, str) else question
    given = replace(query.filter, types=tuple(str(name).lower() for name in query.filter.types))
    require_known("type", given.types, TYPES)
    return replace(
        query,
        text=query.text.encode("utf-8", "replace").decode("utf-8"),  # lone surrogates cannot be stored
        filter=replace(
            given, sources=source_names(given.sources), tags=tuple(given.tags),
            domains=tuple(domain.strip("/") for domain in given.domains), sessions=tuple(given.sessions),
        ),
        limit=_at_least_one("limit", usual.limit if query.limit is None else query.limit),
        budget_tokens=_at_least_one(
            "budget", usual.budget_tokens if query.budget_tokens is None else query.budget_tokens
        ),
        depth=depth_named(query.depth or usual.depth or Depth.STANDARD),
        profile=query.profile or usual.profile,
        offset=min(max(query.offset, 0), 2**31),
    )  # fmt: skip


def source_names(names: Sequence[SourceName | str]) -> tuple[SourceName, ...]:
    """Return the sources with these names, in any case. Raises UsageError for an unknown one."""
    known = [str(name).lower() for name in names]
    require_known("source", known, SourceName)
    return tuple(map(SourceName, known))


def serves_team(face: query_log.Face | None, settings: Settings) -> bool:
    """Return True on a team's server: it has the sessions of all its spaces, so that it may tell of none."""
    return face == "http" and bool(settings.http_auth)


def _at_least_one(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise UsageError(f"{name} must be at least 1, not {value}.")
    return value and min(value, 2**31)  # SQLite refuses larger integers than 2**63


def depth_named(depth: Depth | str) -> Depth:
    """Return the depth with this name. Raises UsageError for an unknown one."""
    require_known("depth", [depth], Depth)
    return Depth(depth)


def join(brain: Brain) -> Brain:
    """Connect a brain with the user's others, which share its embedding model; return it."""
    from nugget.app import Brain

    known, brain.left_out = usable_brains(brain.environment, brain.settings)
    brain.name = next((name for name, path in known.items() if path == brain.path), brain.name)
    brain.others = tuple(Brain(path, environment=brain.environment) for path in known.values() if path != brain.path)
    for other in brain.others:
        other.name, other._model = next(name for name, path in known.items() if path == other.path), brain._model
    brain.is_chosen = False
    return brain


def ask_all(brain: Brain, ask: Callable[[dict[str, IndexReader]], Bundle], *, alone: bool) -> Bundle:
    """Ask a brain together with the others' indexes; `degraded` names those that cannot be read."""
    if alone or not (brain.others or brain.left_out):
        return guarded(brain, lambda: ask({}))
    indexes: dict[str, IndexReader] = {}
    left_out: list[str] = [*brain.left_out]
    for other in brain.others:
        try:
            indexes[other.name] = other.index
        except (NuggetError, OSError, sqlite3.Error) as error:
            left_out.append(f"{other.name}: {reason_of(error)}")
    try:
        answer = ask(indexes)
    except UsageError:
        raise
    except Exception as error:  # an index is damaged: ask this brain alone, and rebuild its index if it is that one
        left_out += [f"{name}: {reason_of(error)}" for name in indexes]
        answer = guarded(brain, lambda: ask({}))
    return replace(answer, degraded=(*answer.degraded, *(f"brain_left_out: {one}" for one in left_out)))


def guarded(brain: Brain, ask: Callable[[], T]) -> T:
    """Ask or sync; if an index turns out to be damaged, rebuild it and try again."""
    try:
        return ask()
    except Exception as error:  # damage also shows as missing rows or values of another type
        if isinstance(error, NuggetError) and not isinstance(error, Unusable):
            raise
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            raise IndexUnavailable(f"The index could not be used ({error}).", hint="Try again.") from error
        if discard_damaged(brain.environment.home):  # the files are the source of truth
            brain._local = None
        elif isinstance(error, (sqlite3.Error, Unusable)) or find_damage(brain.index_folder / "index.db"):
            brain._index = None
            brain.sync(rebuild=True)
        else:
            raise
        return ask()


def reviewed_in(brain: Brain, name: str | None) -> Brain:
    """Return the brain that holds a proposal of this name, else this brain. Raises ReviewError if several do."""
    found = [one for one, waiting in waiting_in(brain) if any((name or "") in proposal.branch for proposal in waiting)]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise ReviewError(f"Proposals wait in several brains ({names}).", hint="Name one, or choose with --brain.")
    return found[0] if found else brain


def waiting_in(brain: Brain) -> Iterator[tuple[Brain, list[ProposalBranch]]]:
    """Yield each readable brain with its waiting proposals, this one first."""
    yield brain, brain.proposals()
    for other in brain.others:
        with suppress(NuggetError, OSError):
            yield other, other.proposals()


def capturing(brain: Brain, folder: Path | None, *, transcript: Path | None = None) -> Brain:
    """Return the brain that `brains.captures` names for sessions in a folder, or this one.

    `folder` defaults to the transcript's. Raises NuggetError if the rule's brain cannot be used.
    """
    if brain.is_chosen or not brain.settings.brains_captures:
        return brain
    if folder is None and transcript is not None and (cwd := read_any(transcript).cwd):
        folder = Path(cwd)
    path = brain_for_session(brain.environment, brain.settings, folder) if folder else None
    return next((one for one in brain.others if one.path == path), brain)


def evaluate(
    brain: Brain, golden: Sequence[Path], *, baseline: Path | None, threshold: float, accept: bool
) -> tuple[dict[str, Any], dict[str, Any] | None, bool]:
    """Ask the golden questions without an LLM; return the run, the comparison, and whether it failed.

    A run that is accepted, or no worse than the last, becomes the next baseline. Raises NuggetError for a bad baseline.
    """
    (questions, problems), kept = read_golden(brain.path, golden), brain.index_folder / "evals" / "last.json"
    is_local = brain.settings.retrieval_reranker.startswith("cross-encoder:")
    reranker, now = brain.reranker(None) if is_local else None, datetime.now(UTC)
    run = evaluation.evaluate(
        questions, lambda query: brain.ask(query, reranker=reranker, now=now, fresh=False, log=False),
        known=set(brain.index.unit_ids()), model=brain.embedder.model if brain.embedder else None, now=now,
        ranking=reranker.name if reranker else "calibrated", problems=problems,
        forgotten=forgotten(brain.path),
    )  # fmt: skip
    earlier = evaluation.read_baseline(baseline) if baseline else None
    with suppress(NuggetError):  # the last run is derived and may be lost
        earlier = earlier or evaluation.read_baseline(kept)
    found = evaluation.compare(run, earlier, threshold=threshold) if earlier else None
    is_worse = bool(found and found["regressed"])
    if run["results"] and not (baseline or golden) and (accept or not is_worse):
        files.replace(kept, json.dumps(run, ensure_ascii=False).encode())
    is_wrong = any(problem["severity"] == "error" for problem in run["problems"])
    return run, found, is_wrong or (is_worse and not accept)


def asked_questions(brain: Brain, since: date | None = None) -> dict[str, Any]:
    """Return a report on the questions asked of the brain, the units used after them, and the brain's coverage."""
    entries = query_log.read(brain.environment.home, brain=brain.path, since=since, with_code=True)
    return query_log.report(entries, used=query_log.read_uses(brain.environment.home), unit_ids=brain.index.unit_ids())


def similar_units(brain: Brain) -> Similar:
    """Return a function that compares a unit with the brain by the cosine of its nearest candidates.

    Without an embedding model every candidate has similarity 0, and the shared words decide.
    """

    @cache  # units of one session share neighbours
    def vector(text: str) -> NDArray[np.float32]:
        assert brain.embedder is not None
        return next(iter(brain.embedder.embed([text])))

    def similar(unit: Unit) -> list[tuple[Unit, float]]:
        text = f"{unit.title}\n{unit.body[:2000]}"
        hits = neighbours(brain, text)
        found = [brain.index.unit(hit.unit.id) or hit.unit for hit in hits]
        best = [0.0] * len(found)
        # A short new unit is often close to one part of a long one, so both the whole and its best part are compared.
        wholes = [f"{near.title}\n{near.body[:2000]}" for near in found]
        parts = [f"{hit.unit.title}\n{hit.chunks[0].text if hit.chunks else ''}" for hit in hits]
        if brain.embedder is not None and found:
            with suppress(EmbeddingUnavailable):
                ours = vector(text)
                pairs = zip(wholes, parts, strict=True)
                best = [max(float(ours @ vector(whole)), float(ours @ vector(part))) for whole, part in pairs]
        return sorted(zip(found, best, strict=True), key=lambda pair: -pair[1])

    return similar


def neighbours(brain: Brain, text: str) -> Sequence[Hit]:
    """Return the brain's units nearest to a text."""
    query = Query(text, filter=Filter(sources=(SourceName.BRAIN,)), limit=NEIGHBOURS, budget_tokens=100_000)
    return brain.ask(query, log=False, alone=True).hits


def publish_index(brain: Brain, *, rebuild: bool = False) -> PublishedUnits | None:
    """Publish the embedded index to the brain's space; None if no team's index is configured.

    Raises IndexUnavailable if the database cannot be written.
    """
    if not brain.settings.index:
        return None
    from nugget.index.postgres.connection import place_of
    from nugget.index.postgres.writer import publish

    origin = declared_id(brain.path) or ""
    return publish(brain.embedded_index, *place_of(brain.settings, brain.path), origin=origin, rebuild=rebuild)


def migrate_index(address: str) -> tuple[int, int]:
    """Upgrade the schema of a team's index; return its version before and after.

    Raises UsageError without an address.
    """
    if not address:
        raise UsageError("No team's index is set.", hint="Set it: nugget config set index postgresql://HOST/DATABASE")
    from nugget.index.postgres.connection import migrate

    return migrate(address.partition("#")[0])
