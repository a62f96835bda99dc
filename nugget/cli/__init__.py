"""The command line. A command parses, makes one call, renders, and ends with an exit code; nothing is decided here.

Exit codes: 0 done, 1 an expected failure, in one sentence, 2 wrong usage, 3 unexpected, 130 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nugget import __version__
from nugget.cli.terminal import GlobalBrainOption, accept_any_text, complain, report
from nugget.errors import NuggetError, UsageError
from nugget.text import printable

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's class of all usage errors, which it does not export by name."""
_FRONTMATTER = re.compile(r"---\r?\n")
_LONE_BYTE = re.compile("[\ud800-\udfff]")
"""A byte of an argument that is not UTF-8, as Python keeps it."""


_COMMANDS = {
    "Ask": {"ask": "ask", "search": "ask", "get": "ask", "suggest": "ask", "serve": "admin"},
    "Learn from sessions": {
        "capture-session": "capture", "capture": "capture", "review": "capture", "import": "knowledge",
    },
    "Why code is as it is": {
        "extract": "provenance", "context": "provenance", "nuggets": "nuggets", "coverage": "provenance",
        "commit": "provenance", "promote": "provenance",
    },
    "What happened": {
        "sessions": "sessions", "logs": "logs", "shell-init": "logs", "brief": "ask", "recall": "ask",
    },
    "Write": {"add": "knowledge", "forget": "knowledge", "mv": "knowledge", "lint": "knowledge"},
    "Set up and look after": {
        "init": "admin", "clone": "admin", "trust": "admin", "install": "install", "uninstall": "install",
        "sync": "sync", "rebuild": "sync", "eval": "evaluation", "queries": "evaluation", "config": "install",
        "status": "admin", "doctor": "admin", "redact": "secrets", "scrub": "secrets",
    },
}  # fmt: skip
"""The commands by panel of `nugget --help`, each with the module below nugget.cli that defines it."""
_VALUES = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}
_PLACES = {name: (panel, module) for panel, commands in _COMMANDS.items() for name, module in commands.items()}


class _Nugget(TyperGroup):
    """The commands by name; a module is imported when one of its commands is looked up."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(_PLACES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _PLACES and self.commands[cmd_name] is None:
            panel, module = _PLACES[cmd_name]
            defined: Any = typer.main.get_group(import_module(f"nugget.cli.{module}").commands)
            self.commands[cmd_name] = defined.commands[cmd_name]
            self.commands[cmd_name].rich_help_panel = panel
            _name_values_plainly(self.commands[cmd_name])
        return self.commands.get(cmd_name)


def _name_values_plainly(command: Any) -> None:
    """Let the help of a command name values as TEXT, N or PATH instead of by their Python types."""
    for entry in command.params:
        is_named = entry.param_type_name == "argument" or entry.type_descriptor.annotation is bool
        shown = "" if is_named else entry.metavar or _VALUES.get(entry.type_descriptor.annotation)
        if shown is not None:
            entry.display_type_rich = lambda ctx, shown=shown: shown or None
    for inner in getattr(command, "commands", {}).values():
        _name_values_plainly(inner)


app = typer.Typer(name="nugget", cls=_Nugget, pretty_exceptions_enable=False)


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
    """Run a command line and return its exit code; expected failures and wrong usage go to stderr."""
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
        return report(UsageError(f"{printable(named)} is not UTF-8 text, so nothing can have that name."))
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
