"""The command line. A command parses, makes one call, renders, and ends with an exit code; nothing is decided here.

Exit codes: 0 done, 1 an expected failure told in one sentence, 2 wrong usage, 3 unexpected, 130 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated

import typer

from nugget import __version__
from nugget.cli.lazily import LazyGroup
from nugget.cli.listing import COMMANDS
from nugget.cli.terminal import GlobalBrainOption, accept_any_text, complain, report
from nugget.errors import NuggetError, UsageError
from nugget.text import printable

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's class of all usage errors, which it does not export by name."""
_FRONTMATTER = re.compile(r"---\r?\n")
_LONE_BYTE = re.compile("[\ud800-\udfff]")
"""How Python keeps a byte of an argument that is no UTF-8."""


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
        code = app(args=_documents_last(arguments), prog_name="nugget", standalone_mode=False)
        sys.stdout.flush()
    except NuggetError as error:
        return report(error)
    except typer.Abort:
        return 130
    except _USAGE_ERROR as error:
        return _wrong_usage(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _refused(error)
    except UnicodeEncodeError:
        named = next((text for text in arguments if _LONE_BYTE.search(text)), None)
        if named is None:
            raise
        return report(UsageError(f"{printable(named)} is no UTF-8 text, so nothing can be called so."))
    return code if isinstance(code, int) else 0


def _documents_last(arguments: Sequence[str]) -> list[str]:
    """The arguments, with texts that begin with frontmatter at the end, where none is taken for an option."""
    before = list(takewhile(lambda text: text != "--", arguments))
    documents = [text for text in before if _FRONTMATTER.match(text)]
    if not documents:
        return list(arguments)
    return [*(text for text in before if text not in documents), "--", *documents, *arguments[len(before) + 1 :]]


def _refused(error: OSError) -> int:
    """Tell what the system refused: to print, or to read or write a file."""
    reason = (error.strerror or str(error)).lower()
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.filename is None:
        return report(NuggetError(f"What there is to say, or a file, cannot be written ({reason})."))
    hint = "Check that it is there, who owns it, and the free space on the disk."
    return report(NuggetError(f"{printable(os.fsdecode(error.filename))} cannot be used ({reason}).", hint=hint))


def _wrong_usage(error: Exception) -> int:
    said = getattr(error, "format_message", error.__str__)().replace(": Value error, ", ": ")
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx else "nugget"
    complain(said, hint=f"`{command} --help` shows how it is used.")
    return 2
