"""Shared by all commands: the brain in use, the two consoles, progress, JSON and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.errors import NuggetError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.app import Brain
    from nugget.config import Environment
    from nugget.index.sync import Progress

BAR_FROM = 10
"""Shorter work is over before a bar could be read."""
ANNOUNCED_FROM = 200
"""Work of this size is announced in a line where no bar can be drawn."""


def _local_or_global(ctx: typer.Context, value: Path | None) -> Path | None:
    """`nugget --brain X ask` and `nugget ask --brain X` are the same; the nearest one counts."""
    above = ctx.parent
    while value is None and above is not None:
        value, above = above.params.get("brain"), above.parent
    return value


GlobalBrainOption = Annotated[
    Path | None,
    typer.Option("--brain", metavar="FOLDER", help="The brain to use, instead of NUGGET_BRAIN, the current folder's "
                                                   "or the default one."),
]  # fmt: skip
BrainOption = Annotated[
    Path | None,
    typer.Option("--brain", metavar="FOLDER", help="The brain to use.", callback=_local_or_global),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def current_folder() -> Path:
    """Return the folder the command was called in. Raises UsageError if it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("The current folder does not exist any more.", hint="Change to another folder.") from error


def brain_folder(flag: Path | None, environment: Environment | None = None) -> Path:
    """Return the brain in use, after finishing a change that a killed command left. Raises BrainError if none."""
    from nugget.config import expanded, read_environment
    from nugget.infra import git
    from nugget.infra.brain_in_use import find_brain

    named = None if flag is None else expanded(flag)
    found = find_brain(environment or read_environment(), flag=named, cwd=current_folder())
    git.finish_pending(found)
    return found


def open_brain(flag: Path | None) -> Brain:
    """Open the brain in use. Raises BrainError if there is none, UsageError for settings it cannot take."""
    from nugget.app import Brain
    from nugget.config import read_environment
    from nugget.infra.query_log import Face

    environment = read_environment()
    return Brain(brain_folder(flag, environment), environment=environment, face=Face.CLI)


def console(*, stderr: bool = False) -> Console:
    """A rich console that takes text as it is: no markup, no emoji codes, no guessed highlights."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """The one JSON document of a command."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=not is_unicode, indent=2) + "\n")


def accept_any_text() -> None:
    """Let stdout and stderr show `?` for what their encoding does not have, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def note(text: str) -> None:
    """One line for the person, on stderr."""
    from nugget.render import clean

    console(stderr=True).print(clean(text), style="dim")


def complain(message: str, *, hint: str | None = None) -> None:
    """An error as one sentence on stderr, with what to do about it on the next line."""
    from rich.text import Text

    from nugget.render import clean

    out = console(stderr=True)
    out.print(Text.assemble(("Error: ", "bold red"), clean(message)))
    if hint:
        out.print(Text(clean(hint)))


def report(error: NuggetError) -> int:
    """Tell an expected failure; returns its exit code."""
    complain(str(error), hint=error.hint)
    return error.exit_code


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on stderr: a bar on a terminal, one line for long work elsewhere, nothing for short work."""
    with _bar() if sys.stderr.isatty() else _announcement() as tell:
        yield tell


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    tasks: dict[str, Any] = {}

    def tell(what: str, done: int, total: int) -> None:
        if total < BAR_FROM:
            return
        if not tasks:
            bar.start()
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


@contextmanager
def _announcement() -> Iterator[Progress]:
    told: set[str] = set()

    def tell(what: str, done: int, total: int) -> None:
        if total >= ANNOUNCED_FROM and what not in told:
            told.add(what)
            print(f"{what} {total:,} files…", file=sys.stderr, flush=True)

    yield tell
