"""`nugget sync` and `rebuild`: the indexes in line with the files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.terminal import BrainOption, JsonOption, listed, open_brain, print_json, progress
from nugget.errors import NuggetError, UsageError
from nugget.models import SourceName
from nugget.render.json import sync_json
from nugget.render.reports import print_source_sync, print_sync
from nugget.render.terminal import console, note
from nugget.text import clean

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.index.sync import SyncResult

commands = typer.Typer(add_completion=False)


_MACHINE = "machine"
"""A name for all sources beside the brain, but memory, which is synced when it is asked for."""


@commands.command()
def sync(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the index of the brain anew.")] = False,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="S,..",
            help="Only these sources: brain, canon, provenance, sessions, shell, "
            "bridge, or machine for all but the brain.",
        ),
    ] = None,
    pull: Annotated[
        bool | None, typer.Option("--pull/--no-pull", help="First bring in what was merged on the remote.")
    ] = None,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Bring the indexes in line with the files: first the brain's, then that of everything else that is searched."""
    obstacle: NuggetError | None = None
    names = _chosen(source)
    result: SyncResult | None = None
    with open_brain(brain) as opened, progress() as tell:
        if opened.embedder_problem:
            note(f"{opened.embedder_problem} Indexing words alone.")
        if SourceName.BRAIN in names:
            if opened.settings.sync.pull if pull is None else pull:
                obstacle = _pull(opened)
            result = opened.sync(rebuild=rebuild, progress=tell)
        others = [name for name in names if name is not SourceName.BRAIN]
        beside = opened.sync_local_sources(others, progress=tell) if others else {}
    if as_json:
        value = sync_json(result) if result else {}
        print_json(value | {"sources": {str(name): sync_json(its) for name, its in beside.items()}})
    else:
        out = console()
        if result:
            print_sync(out, result)
        for name, its in beside.items():
            print_source_sync(out, name, its)
    if obstacle is not None and pull:
        raise obstacle


def _chosen(given: Sequence[str] | None) -> tuple[SourceName, ...]:
    """The sources to sync, all but memory without a name. Raises UsageError."""
    every = tuple(name for name in SourceName if name is not SourceName.MEMORY)
    chosen: list[SourceName] = []
    for name in (part.lower() for part in listed(given)):
        if name == _MACHINE:
            chosen += [other for other in every if other is not SourceName.BRAIN]
        elif name in every:
            chosen.append(SourceName(name))
        else:
            raise UsageError(f"There is no source {name!r} to sync.", hint=f"Sources are: {', '.join(every)}.")
    return tuple(dict.fromkeys(chosen)) or every


def _pull(opened: Brain) -> NuggetError | None:
    """Bring in what was merged on the remote; what stands in the way, where something does."""
    from nugget.capture import publish as publishing

    try:
        commit = publishing.pull(opened.path, environment=opened.environment)
        for settled in publishing.sync_pull_requests(
            opened.path, environment=opened.environment, now=datetime.now(UTC)
        ):
            note(f"{settled.reason or settled.state}: {clean(settled.url or settled.branch)}")
    except NuggetError as error:
        note(f"Not pulled: {error}")
        return error
    note(f"Pulled: the brain is at {commit[:10]} now." if commit else "Nothing to pull.")
    return None


@commands.command()
def rebuild(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Rebuild the index.

    The old one answers until the new one is ready, and vectors already made are used again.
    """
    sync(rebuild=True, pull=False, as_json=as_json, brain=brain)
