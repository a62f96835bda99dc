"""`nugget sync` and `rebuild`: the indexes in line with the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.asking import listed
from nugget.cli.background import MACHINE_LOCK
from nugget.cli.keeping import print_problems, problem_json
from nugget.cli.terminal import BrainOption, JsonOption, console, note, open_brain, print_json, progress
from nugget.errors import NuggetError, UsageError
from nugget.infra import files
from nugget.models import Severity, SourceName
from nugget.render import clean, one_line
from nugget.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.app import Brain
    from nugget.index.sync.result import Progress, SyncResult

_MACHINE = "machine"
"""A name for all sources beside the brain, but memory, which is synced when it is asked for."""
_SHOWN_PROBLEMS = 20


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
        beside = _sync_beside(opened, others, tell) if others else {}
    if as_json:
        value = _result_json(result) if result else {}
        print_json(value | {"sources": {str(name): _result_json(its) for name, its in beside.items()}})
    else:
        out = console()
        if result:
            _print_sync(out, result)
        for name, its in beside.items():
            _print_beside(out, name, its)
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


def _sync_beside(opened: Brain, sources: Sequence[SourceName], tell: Progress) -> dict[SourceName, SyncResult]:
    """Sync what is beside the brain; one process at a time, the others wait."""
    with files.locked(opened.environment.home / MACHINE_LOCK):
        return opened.sync_machine(sources, progress=tell)


def _result_json(result: SyncResult) -> dict[str, object]:
    value = {name: count for name, count in asdict(result).items() if name != "problems"}
    return value | {"problems": [problem_json(problem) for problem in result.problems]}


def _pull(opened: Brain) -> NuggetError | None:
    """Bring in what was merged on the remote; what stands in the way, where something does."""
    from nugget.capture import publish as publishing

    try:
        commit = publishing.pull(opened.path, environment=opened.environment)
        for settled in publishing.settle(opened.path, environment=opened.environment, now=datetime.now(UTC)):
            note(f"{settled.reason or settled.state}: {clean(settled.url or settled.branch)}")
    except NuggetError as error:
        note(f"Not pulled: {error}")
        return error
    note(f"Pulled: the brain is at {commit[:10]} now." if commit else "Nothing to pull.")
    return None


def rebuild(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Rebuild the index.

    The old one answers until the new one is ready, and vectors already made are used again.
    """
    sync(rebuild=True, pull=False, as_json=as_json, brain=brain)


def _print_beside(out: Console, source: SourceName, result: SyncResult) -> None:
    """Print one line for a source, if it has anything."""
    counts = [(result.added, "added"), (result.modified, "changed"), (result.removed, "removed"),
              (result.unchanged, "as before")]  # fmt: skip
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    if said:
        out.print(f"{_named(source)}: {said}.", style="" if result.changed else "dim")
    if result.without_vectors:
        note(f"{_named(source)} without vectors: {result.without_vectors}")
    print_problems(out, result.problems)


def _named(source: SourceName) -> str:
    """Return the noun for what a source holds: sessions stand for all logs."""
    return "Sessions, shells and channels" if source is SourceName.SESSIONS else str(source).capitalize()


def _print_sync(out: Console, result: SyncResult) -> None:
    counts = [
        (result.added, "added"), (result.modified, "changed"), (result.moved, "moved"), (result.removed, "removed"),
        (result.unchanged, "as before"),
    ]  # fmt: skip
    said = ", ".join(f"{count} {what}" for count, what in counts if count) or "no files"
    made = f"Index made anew ({one_line(result.rebuilt)})" if result.rebuilt else "Index in line"
    out.print(f"{made}: {said}.")
    if result.embedded or result.cached:
        out.print(f"{counted(result.embedded, 'text')} embedded, {result.cached} taken from the cache.", style="dim")
    if result.without_vectors:
        note(f"Without vectors: {result.without_vectors}")
    if result.problems:
        left_out = sum(problem.severity is Severity.ERROR for problem in result.problems)
        out.print(f"\n{counted(len(result.problems), 'problem')}; left out: {counted(left_out, 'file')}.")
        print_problems(out, result.problems[:_SHOWN_PROBLEMS])
        if len(result.problems) > _SHOWN_PROBLEMS:
            out.print(f"… and {len(result.problems) - _SHOWN_PROBLEMS:,} more. Next: nugget lint")
