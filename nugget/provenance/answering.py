"""One question about code, answered whole: place found, index brought up to date, the brain's units beside it."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.errors import UsageError
from nugget.index import Index, Unusable
from nugget.index import provenance as stored
from nugget.index.provenance import IndexedSession
from nugget.infra import query_log
from nugget.infra.embedding import Embedder
from nugget.infra.query_log import Face
from nugget.infra.workspace import Workspace, normalised_remote
from nugget.models import Depth, Filter, SourceName
from nugget.models.nuggets import NuggetBundle, NuggetQuery, NuggetType
from nugget.provenance import Reviewed, file_names
from nugget.provenance.asking import ask_code, find_place, has_nuggets, nuggets_meant, opened_index
from nugget.provenance.checkout import Checkout
from nugget.provenance.symbols import Definition
from nugget.retrieval.staleness import stale_reasons

NEAREST = 50
"""Chunks taken from vectors, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAnswer:
    """The answer about a piece of code: nuggets and reviewed units, where a symbol is defined, who touched the file.

    `sessions` are those that touched the asked path, newest first; only filled when asked for.
    """

    bundle: NuggetBundle
    workspace: Workspace
    definitions: tuple[Definition, ...] = ()
    sessions: tuple[IndexedSession, ...] = ()
    duration_ms: float = 0.0


def answer_code(
    query: NuggetQuery,
    *,
    home: Path,
    folder: Path,
    now: datetime,
    brain_index: Index | None = None,
    embedder: Callable[[], Embedder | None] | None = None,
    with_sessions: bool = False,
) -> CodeAnswer:
    """Answer a question whose path is as it was named, meant from `folder`.

    `home` is `$NUGGET_HOME`. `brain_index` adds the brain's units on the same code. `embedder` gives the model by which
    words are compared in meaning too; it is loaded only if there are words and vectors to compare.
    Raises UsageError for a place or symbol that cannot be found, IndexUnavailable if there is no index.
    """
    started = time.perf_counter()
    with opened_index(home) as connection:
        place = find_place(query.path, folder=folder, has_nuggets=partial(has_nuggets, connection))
        asked = _with_path(query, place.path)
        reviewed = _reviewed(brain_index, place.workspace, asked.text, now)
        meant = _meant(home, connection, asked.text, embedder) if asked.text and embedder else {}
        bundle, definitions = ask_code(asked, place.workspace, connection, now=now, reviewed=reviewed, meant=meant)
        sessions: Sequence[IndexedSession] = ()
        if with_sessions and bundle.query.path is not None:
            sessions = sessions_of_path(connection, Checkout(place.workspace), bundle.query.path)
    return CodeAnswer(
        bundle=bundle, workspace=place.workspace, definitions=definitions, sessions=tuple(sessions),
        duration_ms=(time.perf_counter() - started) * 1000,
    )  # fmt: skip


def sessions_of_path(connection: sqlite3.Connection, checkout: Checkout, path: str) -> list[IndexedSession]:
    """Return the sessions that touched a file under any of its names, or anything below a folder, newest first."""
    identity = checkout.workspace.identity
    below = [path] if checkout.is_folder(path) else []
    names = file_names(connection, checkout, path)
    return [known for known, _ in stored.sessions_touching(connection, identity, names, below=below)]


def nugget_types(names: Sequence[str]) -> tuple[NuggetType, ...]:
    """Types of nuggets by name. Raises UsageError for one that does not exist."""
    try:
        return tuple(NuggetType(name) for name in names)
    except ValueError:
        unknown = next(name for name in names if name not in list(NuggetType))
        raise UsageError(
            f"There is no type {unknown!r} of nuggets.", hint=f"Types are: {', '.join(NuggetType)}."
        ) from None


def log_answer(answer: CodeAnswer, environment: Environment, settings: Settings, *, face: Face, now: datetime) -> None:
    """Keep the question in the query log, unless `retrieval.log_queries` is false."""
    if settings.retrieval.log_queries:
        entry = query_log.asked_of_code(
            answer.bundle, workspace=answer.workspace.identity, face=face, session=environment.session,
            duration_ms=answer.duration_ms, now=now,
        )  # fmt: skip
        query_log.record(environment.home, entry, settings=settings)


def code_query(
    *, path: str | None = None, symbol: str | None = None, text: str | None = None, types: Sequence[str] = (),
    since: datetime | None = None, depth: Depth | str = Depth.STANDARD, budget_tokens: int = 2000,
) -> NuggetQuery:  # fmt: skip
    """Return a query from what a face was given. Raises UsageError for what it cannot take."""
    if budget_tokens < 1:
        raise UsageError(f"budget must be at least 1, not {budget_tokens}.")
    try:
        chosen = Depth(depth)
    except ValueError:
        raise UsageError(f"There is no depth {depth!r}.", hint=f"Choose one of: {', '.join(Depth)}.") from None
    text = (text or "").encode("utf-8", "replace").decode("utf-8").strip()
    return NuggetQuery(
        path=path, symbol=symbol or None, text=text or None, types=nugget_types(types), since=since, depth=chosen,
        budget_tokens=budget_tokens,
    )  # fmt: skip


def _with_path(query: NuggetQuery, path: str | None) -> NuggetQuery:
    return replace(query, path=path)


def _reviewed(index: Index | None, workspace: Workspace, text: str | None, now: datetime) -> list[Reviewed]:
    if index is None:
        return []
    try:
        return reviewed_units(index, workspace, text=text, today=now.date())
    except (sqlite3.Error, Unusable):
        return []  # the brain's own commands tell what is wrong with its index


def _meant(
    home: Path, connection: sqlite3.Connection, text: str, embedder: Callable[[], Embedder | None]
) -> dict[str, float]:
    """Return the nuggets that mean the like of a text, by the vectors of the machine's index: id -> cosine."""
    if connection.execute("SELECT 1 FROM unit_vectors LIMIT 1").fetchone() is None:
        return {}
    from nugget.index import read_home
    from nugget.retrieval.candidates import embed_question

    index = read_home(home)
    try:
        vector, _ = embed_question(text, index, embedder())
        if vector is None:
            return {}
        nearest = index.search_vectors(vector, NEAREST, Filter(sources=(SourceName.PROVENANCE,)))
        units = index.units_of_chunks([key for key, _ in nearest])
        best: dict[int, float] = {}
        for key, cosine in nearest:
            best[units[key]] = max(cosine, best.get(units[key], 0.0))
        return nuggets_meant(connection, best)
    finally:
        index.close()


_TEXT_CANDIDATES = 200


def reviewed_units(index: Index, workspace: Workspace, *, text: str | None, today: date) -> list[Reviewed]:
    """Return the units of a brain's index that are scoped to a path or symbol of the workspace.

    A unit whose scope names no repository is about any that has the path.
    """
    rows = index.connection.execute(
        """SELECT key, scope_repo FROM units WHERE source = 'brain'
           AND (scope_path IS NOT NULL OR scope_symbol IS NOT NULL)"""
    )
    keys = [key for key, repo in rows if is_about(repo, workspace)]
    if not keys:
        return []
    matches: dict[int, float] = {}
    if text:
        matches = dict(index.search_unit_text(index.terms(text), _TEXT_CANDIDATES, Filter()))
    best = max(matches.values(), default=0.0) or 1.0
    units = index.units(keys)
    stale = stale_reasons(units, index, today=today)
    return [
        Reviewed(unit=unit, text=matches[key] / best if key in matches else None, stale_reason=stale.get(key))
        for key, unit in units.items()
    ]


def is_about(repo: str | None, workspace: Workspace) -> bool:
    """Return whether a unit's `scope.repo` means this workspace: its identity, its remote's address, or its name.

    An address may be written any way that git takes it, `acme/shop` and `shop` are enough.
    """
    if not repo:
        return True
    named = repo.strip().rstrip("/").removesuffix(".git").lower()
    if named in (workspace.identity.lower(), workspace.name.lower()):
        return True
    address = normalised_remote(repo) or named
    digest = hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    slug, _, own = workspace.identity.rpartition("-")
    return own == digest or ("/" in named and slug.endswith("-" + named.replace("/", "-")))
