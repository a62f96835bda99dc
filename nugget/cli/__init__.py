"""The command line. A command parses, makes one call, renders, and ends with an exit code; nothing is decided here.

Exit codes: 0 done, 1 an expected failure told in one sentence, 2 wrong usage, 3 unexpected, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from nugget import __version__
from nugget.cli.lazily import LazyGroup
from nugget.cli.listing import COMMANDS
from nugget.cli.terminal import GlobalBrainOption, accept_any_text, complain, report
from nugget.errors import NuggetError

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's class of all usage errors, which it does not export by name."""


class _Nugget(LazyGroup):
    listed = COMMANDS


app = typer.Typer(
    name="nugget",
    cls=_Nugget,
    help="The memory layer for coding agents: sessions become reviewed markdown in git, and come back when they "
    "matter.",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def nugget(
    ctx: typer.Context,
    brain: GlobalBrainOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """The memory layer for coding agents: sessions become reviewed markdown in git, and come back when they matter."""
    if version:
        typer.echo(f"nugget {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; expected failures and wrong usage are told on stderr."""
    accept_any_text()
    try:
        code = app(args=list(arguments), prog_name="nugget", standalone_mode=False)
    except NuggetError as error:
        return report(error)
    except typer.Abort:
        return 130
    except _USAGE_ERROR as error:
        return _wrong_usage(error)
    return code if isinstance(code, int) else 0


def _wrong_usage(error: Exception) -> int:
    said = getattr(error, "format_message", error.__str__)()
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx else "nugget"
    complain(said, hint=f"`{command} --help` shows how it is used.")
    return 2
