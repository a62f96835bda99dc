"""The command line: a command parses its arguments, makes one call, prints the result and returns an exit code.

Exit codes: 0 done, 1 an expected failure, in one sentence, 2 wrong usage, 3 unexpected, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nugget import __version__
from nugget.cli.terminal import GlobalBrainOption, accept_any_text, complain, report_error
from nugget.errors import NuggetError
from nugget.render.terminal import console_of
from nugget.text import printable

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's class of all usage errors, which it does not export by name."""
_COMMANDS = {
    "Ask": {"ask": "ask", "search": "ask", "get": "ask", "suggest": "ask", "serve": "admin", "web": "admin"},
    "Learn from sessions": {
        "capture-session": "capture", "capture": "capture", "review": "capture", "import": "knowledge",
    },
    "Why code is as it is": {
        "why": "provenance", "context": "provenance", "extract": "provenance", "nuggets": "provenance",
        "coverage": "provenance", "commit": "provenance", "promote": "provenance",
    },
    "What happened": {
        "sessions": "sessions", "logs": "sessions", "shell-init": "sessions",
        "pause": "sessions", "erase": "sessions", "brief": "ask", "recall": "ask",
    },
    "Write": {"add": "knowledge", "forget": "knowledge", "mv": "knowledge", "lint": "knowledge",
        "log": "knowledge", "undo": "knowledge"},
    "Set up and look after": {
        "init": "admin", "clone": "admin", "trust": "admin", "install": "install", "uninstall": "install",
        "watch": "install", "sync": "upkeep", "rebuild": "upkeep", "eval": "upkeep", "queries": "upkeep",
        "config": "install", "status": "upkeep", "doctor": "upkeep", "redact": "upkeep", "scrub": "upkeep",
        "backup": "admin", "restore": "admin", "self-check": "admin", "token": "admin",
        "index": "admin",
    },
}  # fmt: skip
"""The commands by section of `nugget --help`, each with the module below nugget.cli that defines it."""
_MODULES = {name: module for commands in _COMMANDS.values() for name, module in commands.items()}
_VALUES = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


class _Nugget(TyperGroup):
    """The commands by name; their modules are imported on first use."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _MODULES and self.commands[cmd_name] is None:
            defined: Any = typer.main.get_group(import_module(f"nugget.cli.{_MODULES[cmd_name]}").commands)
            self.commands[cmd_name] = _with_plain_help(defined.commands[cmd_name])
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for section, names in _COMMANDS.items():
            with formatter.section(section):
                shown = [(name, command) for name in names if not (command := self.get_command(ctx, name)).hidden]
                formatter.write_dl([
                    (name, command.help.partition("\n\n")[0].replace("\n", " ")) for name, command in shown
                ])  # fmt: skip


def _with_plain_help(command: Any) -> Any:
    """Print help as plain text, which is faster than with rich, with TEXT, N and PATH for types."""
    command.rich_markup_mode = None
    for entry in command.params:
        if entry.param_type_name == "argument":
            entry.display_type_rich = lambda ctx: None
        elif entry.metavar is None:
            entry.metavar = _VALUES.get(entry.type_descriptor.annotation)
    for inner in getattr(command, "commands", {}).values():
        _with_plain_help(inner)
    return command


app = typer.Typer(name="nugget", cls=_Nugget, pretty_exceptions_enable=False, rich_markup_mode=None)


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
    console_of.cache_clear()
    try:
        code = app(args=list(arguments), prog_name="nugget", standalone_mode=False)
        sys.stdout.flush()
    except NuggetError as error:
        return report_error(error)
    except typer.Abort:
        return 130
    except _USAGE_ERROR as error:
        return _wrong_usage(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _refused(error)
    return code if isinstance(code, int) else 0


def _refused(error: OSError) -> int:
    """Report that the system refused to print, or to read or write a file."""
    reason = (error.strerror or str(error)).lower()
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.filename is None:
        return report_error(NuggetError(f"The output, or a file, cannot be written ({reason})."))
    hint = "Check that it is there, who owns it, and the free space on the disk."
    return report_error(NuggetError(f"{printable(os.fsdecode(error.filename))} cannot be used ({reason}).", hint=hint))


def _wrong_usage(error: Exception) -> int:
    message = getattr(error, "format_message", error.__str__)().replace(": Value error, ", ": ")
    ctx = getattr(error, "ctx", None)
    if message.startswith("Usage: "):  # a group without a command
        typer.echo(message, err=True)
        return 2
    complain(message, hint=f"`{ctx.command_path if ctx else 'nugget'} --help` shows how it is used.")
    return 2
