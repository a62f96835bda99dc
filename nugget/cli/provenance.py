"""`nugget context`, `nuggets`, `coverage` and `promote`: why code is the way it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.asking import listed, moment
from nugget.cli.terminal import BrainOption, JsonOption, brain_folder, console, current_folder, note, print_json
from nugget.config import Environment, load_settings, read_environment
from nugget.dates import DATE_FORMS
from nugget.errors import BrainError
from nugget.models import Depth
from nugget.nuggets import NuggetType

if TYPE_CHECKING:
    from nugget.index import Index
    from nugget.infra.embedding import Embedder
    from nugget.models import StaleReason
    from nugget.nuggets import Nugget
    from nugget.provenance.checking import Missing

TYPE_NAMES = ", ".join(NuggetType)
NuggetTypeOption = Annotated[
    list[str] | None, typer.Option("--type", metavar="T,..", help=f"Only these types: {TYPE_NAMES}.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help=f"Only sessions since then: {DATE_FORMS}."),
]


def code_context(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="A file or folder of the repository.")] = None,
    symbol: Annotated[
        str | None, typer.Option("--symbol", metavar="NAME", help="A function, class or variable.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", metavar="TEXT", help="What you want to know.")] = None,
    budget: Annotated[int, typer.Option("--budget", metavar="TOKENS", help="Tokens in the answer.")] = 2000,
    types: NuggetTypeOption = None,
    depth: Annotated[Depth, typer.Option("--depth", help="How much of each nugget.")] = Depth.STANDARD,
    since: SinceOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how each score came about.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Say why code is the way it is.

    Give a path, a --query, or both: what matches both then comes first. The answer holds what earlier sessions decided,
    tried and turned down, and what a person reviewed and kept in the brain.
    """
    from nugget.infra.query_log import Face
    from nugget.provenance.answering import answer_code, code_query, log_answer
    from nugget.render.nuggets import context_json

    environment, now = read_environment(), datetime.now(UTC)
    asked = code_query(
        path=path, symbol=symbol, text=query, types=[name.lower() for name in listed(types)],
        since=moment(since, now=now), depth=depth, budget_tokens=budget,
    )  # fmt: skip
    place = brain_if_any(brain, environment)
    answer = answer_code(
        asked, home=environment.home, folder=current_folder(), now=now, brain_index=_brain_index(place),
        embedder=lambda: _embedder(environment, place),
    )  # fmt: skip
    if as_json:
        for text in answer.bundle.notes:
            note(text)
        print_json(context_json(answer.bundle, explain=explain))
    else:
        from nugget.cli.provenance_layout import print_code_answer

        print_code_answer(console(), answer.bundle, explain=explain)
    log_answer(answer, environment, load_settings(environment, place), face=Face.CLI, now=now)


def brain_if_any(flag: Path | None, environment: Environment) -> Path | None:
    """Open the brain in use; return None if there is none and none was named."""
    try:
        return brain_folder(flag, environment)
    except BrainError:
        if flag is not None:
            raise
        return None


def _brain_index(brain: Path | None) -> Index | None:
    """The brain's index as it is: an answer about code does not wait for a sync of the brain."""
    if brain is None:
        return None
    from nugget.index import Index, Unusable

    file = brain / ".nugget" / "index.db"
    if not file.is_file():  # of a read-only brain it lies elsewhere
        from nugget.index.sync import index_folder

        file = index_folder(brain, read_environment()) / "index.db"
    try:
        return Index(file)
    except Unusable:
        return None


def _embedder(environment: Environment, brain: Path | None) -> Embedder | None:
    from nugget.errors import EmbeddingUnavailable
    from nugget.infra.embedding import open_embedder

    try:
        return open_embedder(load_settings(environment, brain), environment)
    except EmbeddingUnavailable as error:
        note(f"{error} Searching by words alone.")
        return None


nuggets = typer.Typer(
    help="What is known of this workspace, newest session first.", invoke_without_command=True, no_args_is_help=False
)


@nuggets.callback()
def list_nuggets(
    ctx: typer.Context,
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="Only of this file, or below this folder.")
    ] = None,
    types: NuggetTypeOption = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only stale ones.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="List paths and symbols that are named and do not exist any more.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Nuggets, at most.")] = 50,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """List nuggets of this workspace, newest session first.

    With --check the exit code is 1 where something named is missing.
    """
    if ctx.invoked_subcommand is not None:
        return
    from nugget.cli import provenance_layout as layout

    environment = read_environment()
    if check:
        missing, looked_at = _check(environment, brain)
        if as_json:
            print_json({"checked": looked_at, "missing": [_missing_json(one) for one in missing]})
        else:
            layout.print_missing(console(), missing, looked_at)
        raise typer.Exit(1 if missing else 0)
    listed_nuggets, reasons, total = _chosen(environment, file, [name.lower() for name in listed(types)], stale, limit)
    if as_json:
        shown = [layout.listed_json(one, reasons.get(one.id)) for one in listed_nuggets]
        print_json({"nuggets": shown, "total": total})
    else:
        layout.print_nuggets(console(), listed_nuggets, reasons, total)


@nuggets.command("inspect")
def inspect_nugget(
    nugget: Annotated[str, typer.Argument(metavar="ID", help="A nugget's id, or the beginning of it.")],
    as_json: JsonOption = False,
) -> None:
    """Show one nugget with everything that is known about it."""
    from nugget.cli import provenance_layout as layout
    from nugget.provenance import stale_reasons
    from nugget.provenance.asking import find_here, find_nugget, opened_index
    from nugget.provenance.checkout import Checkout

    environment = read_environment()
    with opened_index(environment.home) as connection:
        workspace = find_here(connection, current_folder())
        found = find_nugget(connection, nugget, workspace=workspace.identity)
        reason = None
        if found.scope.repo == workspace.identity:  # of another workspace the files are not here
            today = datetime.now(UTC).date()
            reasons = stale_reasons([found], connection=connection, checkout=Checkout(workspace), today=today)
            reason = reasons.get(found.id)
    if as_json:
        print_json(layout.whole_json(found, reason))
    else:
        layout.print_nugget(console(), found, reason)


def show_coverage(
    gaps: Annotated[bool, typer.Option("--gaps", help="Files asked about or changed more than explained.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Files, at most.")] = 40,
    as_json: JsonOption = False,
) -> None:
    """Show how many nuggets each file has, or with --gaps where they are missing."""
    from nugget.cli import provenance_layout as layout
    from nugget.infra import query_log
    from nugget.provenance import coverage
    from nugget.provenance.asking import find_here, opened_index
    from nugget.provenance.checkout import Checkout

    environment, now = read_environment(), datetime.now(UTC)
    with opened_index(environment.home) as connection:
        checkout = Checkout(find_here(connection, current_folder()))
        if gaps:
            found = coverage.find_gaps(connection, checkout, query_log.read(environment.home), now=now)
        else:
            covered = coverage.coverage(connection, checkout)
    if gaps and as_json:
        print_json(layout.gaps_json(found, limit))
    elif gaps:
        layout.print_gaps(console(), found, limit)
    elif as_json:
        print_json({"files": [{"path": one.path, "nuggets": one.nuggets} for one in covered[:limit]],
                    "total": len(covered)})  # fmt: skip
    else:
        layout.print_coverage(console(), covered, limit)


def _chosen(
    environment: Environment, file: str | None, types: list[str], stale: bool, limit: int
) -> tuple[list[Nugget], dict[str, StaleReason], int]:
    """The nuggets to list with the reasons of those that are stale, and how many there are in all."""
    from functools import partial

    from nugget.index import provenance as stored
    from nugget.provenance import stale_reasons
    from nugget.provenance.answering import nugget_types
    from nugget.provenance.asking import find_place, has_nuggets, nuggets_below, opened_index
    from nugget.provenance.checkout import Checkout

    chosen = nugget_types(types)
    with opened_index(environment.home) as connection:
        place = find_place(file, folder=current_folder(), has_nuggets=partial(has_nuggets, connection))
        checkout = Checkout(place.workspace)
        found = list(stored.nugget_list(connection, place.workspace.identity, types=chosen))
        if place.path:
            found = nuggets_below(found, place.path, connection, checkout)
        asked = found if stale else found[:limit]
        reasons = stale_reasons(asked, connection=connection, checkout=checkout, today=datetime.now(UTC).date())
    if stale:
        found = [one for one in found if one.id in reasons]
    return found[:limit], reasons, len(found)


def _check(environment: Environment, brain: Path | None) -> tuple[list[Missing], int]:
    from nugget.provenance.asking import find_here, opened_index
    from nugget.provenance.checking import check_names
    from nugget.provenance.checkout import Checkout
    from nugget.provenance.reviewed import reviewed_units

    index = _brain_index(brain_if_any(brain, environment))
    with opened_index(environment.home) as connection:
        workspace = find_here(connection, current_folder())
        today = datetime.now(UTC).date()
        units = [one.unit for one in reviewed_units(index, workspace, text=None, today=today)] if index else []
        return check_names(connection, Checkout(workspace), units)


def _missing_json(one: Missing) -> dict[str, str]:
    return {"ref": one.ref, "summary": one.summary, "kind": one.kind, "name": one.name}
