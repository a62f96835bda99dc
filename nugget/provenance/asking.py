"""A question about code as it comes from a person or an agent: which workspace, which file, which symbol is meant."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from nugget.config import expanded
from nugget.errors import UsageError
from nugget.index import provenance as stored
from nugget.index import queries
from nugget.index.connection import open_home
from nugget.index.documents import document_changes, sync_provenance
from nugget.infra.workspace import Workspace, find_workspace, relative_path, vanished_workspace
from nugget.models import SourceName
from nugget.models.nuggets import Nugget, NuggetBundle, NuggetQuery
from nugget.provenance import Reviewed, why
from nugget.provenance.checkout import Checkout, follow_renames
from nugget.provenance.symbols import Definition, can_read, find_definitions, is_symbol
from nugget.sources.nugget_units import NuggetUnits

MEANT_FROM = 0.35
"""The least cosine at which a nugget is taken to mean the like of a question."""
_MOST_PLACES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLocation:
    """A path as it was named, found: its workspace, and the path relative to it, empty for the root."""

    workspace: Workspace
    path: str | None


@contextmanager
def opened_index(home: Path) -> Iterator[sqlite3.Connection]:
    """Return the machine's index with what the store of provenance says now. Raises IndexUnavailable."""
    with closing(open_home(home)) as connection:
        source = NuggetUnits(home)
        if document_changes(source, connection):
            sync_provenance(home, connection)
        yield connection


def find_place(path: str | None, *, folder: Path, has_nuggets: Callable[[str], bool]) -> CodeLocation:
    """Return the workspace that `path`, or without one `folder`, is in. A relative path is meant from `folder`.

    That is the innermost repository (a submodule, not what it is in), unless nuggets (`has_nuggets` of an identity)
    are known of the outer one only. Raises UsageError for a path that is in no workspace.
    """
    if path is None:
        return CodeLocation(workspace=_workspace(folder, has_nuggets), path=None)
    if "\0" in path or not path.strip():
        raise UsageError("The path is empty or holds a NUL.", hint="Give a file or folder of a repository.")
    whole = Path(os.path.normpath(Path(folder, expanded(path))))
    here = next(place for place in (whole, *whole.parents) if os.path.isdir(place))  # noqa: PTH112 (is_dir raises for a long name)
    inner = _workspace(here, has_nuggets) if here != Path(here.anchor) else _workspace(folder, has_nuggets)
    relative = _relative(inner, whole)
    if relative is not None and has_nuggets(inner.identity):
        return CodeLocation(workspace=inner, path=relative)
    for other in _other_workspaces(inner, here, whole, folder):
        inside = _relative(other, whole)
        if inside is not None and (relative is None or has_nuggets(other.identity)):
            return CodeLocation(workspace=other, path=inside)
    own = find_workspace(folder)
    if relative is None or (inner.common_dir is None and own is not None and own.identity != inner.identity):
        inner = own or inner
        raise UsageError(
            f"{path} is outside of the workspace {inner.name} ({inner.root}).",
            hint="Go to the repository that it is in, or give its path from there.",
        )
    return CodeLocation(workspace=inner, path=relative)


def find_here(connection: sqlite3.Connection, folder: Path) -> Workspace:
    """Return the workspace that a folder is in."""
    return _workspace(folder, partial(has_nuggets, connection))


def has_nuggets(connection: sqlite3.Connection, workspace: str) -> bool:
    """Return whether anything is known of a workspace."""
    return stored.count_nuggets(connection, workspace) > 0


def find_nugget(connection: sqlite3.Connection, prefix: str, *, workspace: str) -> Nugget:
    """Return the nugget of an id, or of the beginning of one: of this workspace, else of any.

    Raises UsageError where none, or more than one, has such an id.
    """
    prefix = prefix.removeprefix("provenance:")
    found = stored.ids_beginning_with(connection, prefix, workspace=workspace) if prefix else []
    found = found or (stored.ids_beginning_with(connection, prefix) if prefix else [])
    if prefix in found:
        found = [prefix]
    if len(found) > 1:
        some = ", ".join(found[:5])
        raise UsageError(f"{len(found)} nuggets have an id that begins with {prefix!r} ({some}…).", hint="Give more.")
    nuggets = stored.nuggets_by_id(connection, found)
    if not nuggets:
        raise UsageError(f"There is no nugget {prefix!r}.", hint="`nugget nuggets` lists them.")
    return nuggets[found[0]]


def nuggets_below(
    nuggets: Sequence[Nugget], path: str, connection: sqlite3.Connection, checkout: Checkout
) -> list[Nugget]:
    """Return the nuggets scoped to a path or to something below it, under their files' present names."""
    aliases = follow_renames(connection, checkout, {one.scope.path for one in nuggets if one.scope.path}, asked=path)
    wanted = aliases.get(path, path)

    def is_below(one: Nugget) -> bool:
        present = aliases.get(one.scope.path or "", one.scope.path or "")
        return present == wanted or present.startswith(f"{wanted}/")

    return [one for one in nuggets if is_below(one)]


def ask_code(
    query: NuggetQuery,
    workspace: Workspace,
    connection: sqlite3.Connection,
    *,
    now: datetime,
    reviewed: Sequence[Reviewed] = (),
    meant: dict[str, float] | None = None,
) -> tuple[NuggetBundle, tuple[Definition, ...]]:
    """Answer a question about a workspace; also says where the symbol that was asked for is defined.

    Raises UsageError where nothing is asked, or a symbol is defined in several files and none was named.
    """
    if query.path is None and not query.text and not query.symbol:
        raise UsageError("Give a path, a --query or a --symbol.", hint="`nugget context src/app.py` asks about a file.")
    checkout = Checkout(workspace)
    definitions: tuple[Definition, ...] = ()
    notes: tuple[str, ...] = ()
    if query.symbol:
        query, definitions, notes = _find_symbol(query, query.symbol, checkout)
    bundle = why(
        query, connection=connection, checkout=checkout, now=now, reviewed=reviewed, meant=meant,
        chunks=int(queries.meta(connection, "chunks") or 0),
        symbol_words=[name for definition in definitions for name in definition.inner],
    )  # fmt: skip
    if not stored.count_nuggets(connection, workspace.identity):
        notes = (*notes, _nothing_known(workspace))
    return replace(bundle, notes=(*notes, *bundle.notes)), definitions


def nuggets_meant(connection: sqlite3.Connection, unit_cosines: dict[int, float]) -> dict[str, float]:
    """Return the nuggets among units (by key) that are near enough to a question: id -> cosine."""
    near = {key: cosine for key, cosine in unit_cosines.items() if cosine >= MEANT_FROM}
    units = queries.units_by_key(connection, list(near))
    return {unit.id: near[key] for key, unit in units.items() if unit.source is SourceName.PROVENANCE}


def _workspace(folder: Path, has_nuggets: Callable[[str], bool]) -> Workspace:
    return find_workspace(folder, is_known=has_nuggets) or vanished_workspace(folder)


def _other_workspaces(inner: Workspace, here: Path, whole: Path, folder: Path) -> Iterator[Workspace]:
    """Yield what a path may belong to beside the innermost repository: the one around it, one that is gone."""
    own = find_workspace(folder)
    if own is not None and own.identity != inner.identity:
        yield own
    around = find_workspace(inner.root.parent) if inner.root.parent != inner.root else None
    if around is not None and around.common_dir is not None and around.identity != inner.identity:
        yield around
    for place in (whole, *whole.parents):
        if place == here:
            break
        yield vanished_workspace(place)


def _relative(workspace: Workspace, whole: Path) -> str | None:
    """Return the path relative to the workspace, empty for its root; None for one outside."""
    if os.path.realpath(whole) == os.path.realpath(workspace.root):
        return ""
    return relative_path(workspace, str(whole))


def _find_symbol(
    query: NuggetQuery, symbol: str, checkout: Checkout
) -> tuple[NuggetQuery, tuple[Definition, ...], tuple[str, ...]]:
    """Return the query with the file of its symbol, where that is defined, and what to say of it."""
    if not is_symbol(symbol):
        raise UsageError(f"{symbol!r} cannot be the name of a symbol.", hint="Write it as in the code: `login`.")
    definitions = tuple(find_definitions(checkout, symbol, path=query.path))
    paths = list(dict.fromkeys(definition.path for definition in definitions))
    if len(paths) > 1:
        places = "; ".join(str(definition) for definition in definitions[:_MOST_PLACES])
        more = f"; and {len(definitions) - _MOST_PLACES} more" if len(definitions) > _MOST_PLACES else ""
        raise UsageError(
            f"{symbol} is defined in {len(paths)} files: {places}{more}.",
            hint=f"Say which: `nugget context {paths[0]} --symbol {symbol}`.",
        )
    if paths:
        notes = tuple(f"{definition}" for definition in definitions)
        return replace(query, path=paths[0]), definitions, notes
    if query.path is None:
        text = query.text or " ".join(part for part in symbol.replace("::", ".").split(".") if part)
        return replace(query, text=text), (), (f"No definition of {symbol} was found; shown is what names it.",)
    if not can_read(query.path) and not checkout.is_folder(query.path):
        return query, (), (f"{query.path} is of a language in which definitions cannot be looked up.",)
    return query, (), (f"{symbol} is not defined in {query.path or 'the workspace'} (any more).",)


def _nothing_known(workspace: Workspace) -> str:
    return f"Nothing is known of {workspace.name} yet; `nugget extract` reads its sessions."
