"""Answer why code is the way it is: find the place, bring the index up to date, add the brain's units, rank."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from pathlib import Path

from nugget.errors import UsageError, only_id, require_known
from nugget.index.embedded import Index, read_home
from nugget.index.embedded import provenance as stored
from nugget.index.embedded.connection import Unusable, open_home
from nugget.index.embedded.sync import sync_provenance
from nugget.infra.embedding import Embedder
from nugget.infra.workspace import Workspace, normalised_remote
from nugget.models import Filter, Query, SourceName, StaleReason
from nugget.models.nuggets import Nugget, NuggetBundle, NuggetType
from nugget.provenance.checkout import (
    Checkout,
    Definition,
    Location,
    find_definitions,
    find_workspace_of,
    follow_renames,
    is_symbol,
)
from nugget.provenance.ranking import TEXT_CANDIDATES, Reviewed, locate, why
from nugget.retrieval.candidates import embed_question
from nugget.retrieval.scoring import stale_reasons as stale_units
from nugget.text import content_hash

NEAREST = 50
"""The most chunks taken from vectors."""
LEAST_COSINE = 0.35
"""Minimum cosine for a nugget to count as near a question in meaning."""
_NAMED_DEFINITIONS = 5


def nugget_types(names: Sequence[str]) -> tuple[NuggetType, ...]:
    """Return types of nuggets by name. Raises UsageError for one that does not exist."""
    require_known("type", names, NuggetType)
    return tuple(map(NuggetType, names))


@contextmanager
def open_index(home: Path) -> Iterator[sqlite3.Connection]:
    """Open the machine's index, brought in line with the store of provenance. Raises IndexUnavailable."""
    with closing(open_home(home)) as connection:
        sync_provenance(home, connection)
        yield connection


def answer_code(
    query: Query,
    *,
    home: Path,
    folder: Path,
    now: datetime,
    brain_index: Index | None = None,
    embedder: Callable[[], Embedder | None] | None = None,
) -> NuggetBundle:
    """Answer a question about code; its path is relative to `folder`.

    `home` is `$NUGGET_HOME`. `brain_index` adds the brain's units on the same code. `embedder` gives the model that
    also compares words by meaning; it is loaded only if there are words and vectors to compare.
    Raises UsageError if nothing is asked, or a place or symbol cannot be found; IndexUnavailable without an index.
    """
    with open_index(home) as connection:
        is_known = partial(stored.is_known, connection)
        workspace, path = find_workspace_of(query.path, folder=folder, is_known=is_known)
        checkout = Checkout(workspace)
        query = replace(query, path=path)
        if query.path is None and not query.text and not query.symbol:
            hint = "`nugget why src/app.py` asks about a file."
            raise UsageError("Give a path, a --query or a --symbol.", hint=hint)
        reviewed: list[Reviewed] = []
        with suppress(sqlite3.Error, Unusable):  # the brain's own commands report what is wrong with its index
            reviewed = reviewed_units(brain_index, workspace, text=query.text, today=now.date()) if brain_index else []
        cosines = _near_in_meaning(home, connection, query.text, embedder) if query.text and embedder else {}
        query, definitions, notes = _find_symbol(query, checkout)
        place, located = locate(query, connection, checkout)
        bundle = why(
            query, place, (*notes, *located), now=now, reviewed=reviewed, cosines=cosines,
            symbol_words=[name for definition in definitions for name in definition.inner],
        )  # fmt: skip
        if not is_known(workspace.identity):
            hint = f"Nothing is known about {workspace.name} yet; `nugget extract` reads its sessions."
            bundle = replace(bundle, notes=(hint, *bundle.notes))
        if place.path is not None:
            names, below = place.names(place.path), [place.path] if place.is_folder else []
            touching = stored.sessions_touching(connection, workspace.identity, names, below=below)
            bundle = replace(bundle, sessions=tuple(touching))
    return replace(bundle, workspace=workspace.identity)


def stale_reasons(
    nuggets: Sequence[Nugget], *, connection: sqlite3.Connection, checkout: Checkout, today: date
) -> dict[str, StaleReason]:
    """Return id -> reason for each stale nugget. Hashes every file that they are about once."""
    aliases = follow_renames(connection, checkout, {nugget.scope.path for nugget in nuggets if nugget.scope.path})
    place = Location(connection=connection, checkout=checkout, aliases=aliases)
    own = [one for one in nuggets if one.scope.repo == place.workspace]
    return {one.id: reason for one in own if (reason := place.stale_reason(one, today))}


def find_nugget(connection: sqlite3.Connection, prefix: str, *, workspace: str) -> Nugget:
    """Return the nugget with an id or id prefix, in this workspace or else in any.

    Raises UsageError if there is not exactly one.
    """
    prefix = prefix.removeprefix("provenance:")
    here = stored.ids_beginning_with(connection, prefix, workspace=workspace)
    found = here or stored.ids_beginning_with(connection, prefix)
    named = only_id(prefix, found if prefix else (), "nugget")
    if named is None:
        raise UsageError(f"There is no nugget {prefix!r}.", hint="`nugget nuggets` lists them.")
    return stored.nuggets_by_id(connection, [named])[named]


def nuggets_below(
    nuggets: Sequence[Nugget], path: str, connection: sqlite3.Connection, checkout: Checkout
) -> list[Nugget]:
    """Return the nuggets scoped to a path or below it, under the present names of their files."""
    aliases = follow_renames(connection, checkout, [path, *(one.scope.path for one in nuggets if one.scope.path)])
    wanted = aliases.get(path, path)

    def is_below(scoped: str) -> bool:
        return f"{aliases.get(scoped, scoped)}/".startswith(f"{wanted}/")

    return [one for one in nuggets if is_below(one.scope.path or "")]


def reviewed_units(index: Index, workspace: Workspace, *, text: str | None, today: date) -> list[Reviewed]:
    """Return the units of a brain's index that are scoped to a path or symbol of the workspace.

    A unit whose scope names no repository applies to any that has the path.
    """
    rows = index.connection.execute(
        """SELECT key, scope_repo FROM units WHERE source = 'brain'
           AND (scope_path IS NOT NULL OR scope_symbol IS NOT NULL)"""
    )
    keys = [key for key, repo in rows if is_about(repo, workspace)]
    if not keys:
        return []
    matches = dict(index.search_text("units", index.terms(text), TEXT_CANDIDATES, Filter())) if text else {}
    best = max(matches.values(), default=0.0) or 1.0
    units = index.units(keys)
    stale = stale_units(units, index, today=today)
    return [(unit, matches[key] / best if key in matches else None, stale.get(key)) for key, unit in units.items()]


def is_about(repo: str | None, workspace: Workspace) -> bool:
    """Return whether a unit's `scope.repo` means this workspace, by identity, remote address or name.

    An address may be in any form that git accepts; `acme/shop` and `shop` are enough.
    """
    if not repo:
        return True
    named = repo.strip().rstrip("/").removesuffix(".git").lower()
    if named in (workspace.identity.lower(), workspace.name.lower()):
        return True
    digest = content_hash(normalised_remote(repo) or named)[:8]
    slug, _, own = workspace.identity.rpartition("-")
    return own == digest or ("/" in named and slug.endswith("-" + named.replace("/", "-")))


def _near_in_meaning(
    home: Path, connection: sqlite3.Connection, text: str, embedder: Callable[[], Embedder | None]
) -> dict[str, float]:
    """Return id -> cosine of the nuggets near a text in meaning, by the vectors of the machine's index."""
    if connection.execute("SELECT 1 FROM unit_vectors LIMIT 1").fetchone() is None:
        return {}
    with closing(read_home(home)) as index:
        vector, _ = embed_question(text, index, embedder())
        if vector is None:
            return {}
        nearest = index.nearest_units(vector, NEAREST, Filter(sources=(SourceName.PROVENANCE,)))
        cosines = {unit.id: nearest[key][1] for key, unit in index.units(nearest).items()}
        return {id_: cosine for id_, cosine in cosines.items() if cosine > LEAST_COSINE}


def _find_symbol(query: Query, checkout: Checkout) -> tuple[Query, tuple[Definition, ...], tuple[str, ...]]:
    """Return the query with the file of its symbol, the symbol's definitions, and notes on them."""
    symbol = query.symbol
    if not symbol:
        return query, (), ()
    if not is_symbol(symbol):
        raise UsageError(f"{symbol!r} cannot be the name of a symbol.", hint="Write it as in the code: `login`.")
    definitions = tuple(find_definitions(checkout, symbol, path=query.path))
    paths = list(dict.fromkeys(definition.path for definition in definitions))
    if len(paths) > 1:
        places = "; ".join(map(str, definitions[:_NAMED_DEFINITIONS]))
        left = len(definitions) - _NAMED_DEFINITIONS
        raise UsageError(
            f"{symbol} is defined in {len(paths)} files: {places}{f'; and {left} more' if left > 0 else ''}.",
            hint=f"Say which: `nugget why {paths[0]} --symbol {symbol}`.",
        )
    if paths:
        return replace(query, path=paths[0]), definitions, tuple(map(str, definitions))
    if query.path is None:
        text = query.text or " ".join(part for part in symbol.replace("::", ".").split(".") if part)
        return replace(query, text=text), (), (f"No definition of {symbol} was found; nuggets that name it are shown.",)
    return query, (), (f"No definition of {symbol} was found in {query.path or 'the workspace'}.",)
