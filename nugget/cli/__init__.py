"""The command line: a command parses its arguments, makes one call, prints the result and returns an exit code.

Exit codes: 0 done, 1 an expected failure, 2 wrong usage, 3 unexpected, 130 interrupted. This module lists the commands
and holds what they share: options, the brain in use, JSON, errors, progress, pager.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click
import typer
from typer import Option
from typer.core import TyperGroup

from nugget import __version__
from nugget.config import current_folder, read_environment
from nugget.errors import BrainError, NuggetError, UsageError, complaint
from nugget.models import SourceName
from nugget.render.terminal import console, console_of, note, put, put_report
from nugget.text import DATE_FORMS, counted, on_progress, one_line, parse_day, parse_moment, printable


def _on_use(name: str) -> Any:
    """Return a stand-in for a module that is imported on first use."""
    module = ModuleType(name)
    module.__getattr__ = lambda attribute: getattr(import_module(name), attribute)  # type: ignore[method-assign]
    return module


__all__ = [
    "brains", "briefing", "doctor", "install", "library", "logs", "provenance", "repair", "sessions", "status", "team",
    "worker", "writing",
]  # fmt: skip
if TYPE_CHECKING:
    from nugget import app as library
    from nugget.app import Brain, brains, logs, provenance, sessions, team, worker, writing
    from nugget.upkeep import briefing, doctor, install, repair, status
else:  # imports take half a second, which `--help` and completion avoid
    library = _on_use("nugget.app")
    brains, logs, provenance, sessions, team, worker, writing = map(
        _on_use, (f"nugget.app.{name}" for name in "brains logs provenance sessions team worker writing".split())
    )
    briefing, doctor, install, repair, status = map(
        _on_use, (f"nugget.upkeep.{name}" for name in "briefing doctor install repair status".split())
    )

BAR_FROM = 10
"""The least number of steps for a progress bar."""
Day = TypeVar("Day", date, datetime)
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's class of all usage errors, which it does not export by name."""
_COMMANDS = {
    "Ask": {"ask": "ask", "search": "ask", "get": "ask", "suggest": "ask", "serve": "admin", "web": "admin"},
    "Learn from sessions": {
        "capture-session": "capture", "capture": "capture", "review": "capture", "import": "knowledge",
    },
    "Why code is the way it is": {
        "why": "history", "context": "history", "extract": "history", "nuggets": "history",
        "coverage": "history", "commit": "history", "promote": "history",
    },
    "What happened": {
        "sessions": "history", "logs": "history", "shell-init": "history",
        "pause": "capture", "erase": "capture", "brief": "ask", "recall": "ask",
    },
    "Write": {"add": "knowledge", "forget": "knowledge", "mv": "knowledge", "lint": "knowledge",
        "log": "knowledge", "undo": "knowledge"},
    "Set up and maintain": {
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


def _local_or_global(ctx: typer.Context, value: Path | None) -> Path | None:
    """Return the command's own option, else the one given before the command (`nugget --brain X ask`)."""
    above = ctx.parent
    while value is None and above is not None:
        value, above = above.params.get("brain"), above.parent
    return value


GlobalBrainOption = Annotated[
    Path | None,
    Option("--brain", metavar="FOLDER", help="The brain to use, instead of NUGGET_BRAIN, the current folder's or the "
                                             "default one."),
]  # fmt: skip
BrainOption = Annotated[
    Path | None, Option("--brain", metavar="FOLDER", help="The brain to use.", callback=_local_or_global)
]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON document.")]
PagerOption = Annotated[bool, Option("--pager/--no-pager", help="Page long output on a terminal.")]
ExplainOption = Annotated[bool, Option("--explain", help="Show how each score is made up.")]
DryRunOption = Annotated[bool, Option("--dry-run", help="Show what would be done; write nothing.")]


def open_brain(flag: Path | None) -> Brain:
    """Open the brain in use. Raises BrainError without a brain, UsageError for invalid settings."""
    return library.open(flag, face="cli")


def open_provenance(flag: Path | None = None) -> provenance.Provenance:
    """Return the provenance of the current folder, with the brain in use, if any."""
    try:
        brain: Brain | None = open_brain(flag)
    except BrainError:
        if flag is not None:
            raise
        brain = None
    return provenance.Provenance(
        environment=read_environment(), folder=current_folder(), brain=brain, face="cli", note=note
    )


def print_json(value: Any) -> None:
    """Print the one JSON document of a command."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=not is_unicode, indent=2) + "\n")


def show(value: Any, text: str = "", *, report: str = "", **values: Any) -> None:
    """Print a value as the command's JSON document; if it is None, a text, or the report of this name."""
    if value is not None:
        print_json(value)
    elif report:
        put_report(report, **values)
    else:
        put(text)


def accept_any_text() -> None:
    """Print `?` for characters that the encoding of stdout or stderr lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def complain(message: str, *, hint: str | None = None) -> None:
    """Print an error as one sentence on stderr, with its hint on the next line."""
    put(("Error: ", "bold red"), message, stderr=True)
    if hint:
        put(hint, stderr=True)


def report_error(error: NuggetError) -> int:
    """Print an expected failure and return its exit code."""
    complain(str(error), hint=error.hint)
    return error.exit_code


@contextmanager
def progress() -> Iterator[None]:
    """Show a progress bar on stderr if that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    tasks: dict[str, Any] = {}

    def tell(what: str, done: int, total: int) -> None:
        if total >= BAR_FROM:
            if what not in tasks:
                bar.start()
                if what == "Embedding" and not bar.disable:
                    bar.console.print("Found by words now, and by meaning once its vectors are made.")
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

    token = on_progress.set(tell)
    try:
        yield
    finally:
        on_progress.reset(token)
        bar.stop()


@contextmanager
def paged(*, is_wanted: bool = True) -> Iterator[None]:
    """Show the output in the person's pager if stdin and stdout are terminals."""
    if not (is_wanted and sys.stdout.isatty() and sys.stdin.isatty()):
        yield
        return
    os.environ.setdefault("LESS", "FRX")  # as git does: quit if it fits, keep colours, keep the screen
    with console().capture() as shown:
        yield
    click.echo_via_pager(shown.get(), color=True)


def words(given: Sequence[str], what: str) -> str:
    """Join the words of an argument. Raises UsageError if they are empty."""
    text = " ".join(given).strip()
    if not text:
        raise UsageError(f"Give {what}.")
    return text


def listed(values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the values of an option that may be repeated and may hold several, separated by commas."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def day(text: str | None) -> date | None:
    """Parse the day given by --since. Raises UsageError if it is not a date."""
    return None if text is None else _date(text, parse_day(text.strip(), today=datetime.now(UTC).date()))


def moment(text: str | None) -> datetime | None:
    """Parse the moment given by --since. Raises UsageError if it is not a date."""
    return None if text is None else _date(text, parse_moment(text.strip(), now=datetime.now(UTC)))


def _date(text: str, found: Day | None) -> Day:
    if found is None:
        raise UsageError(f"{text!r} is not a date.", hint=f"Write {DATE_FORMS}.")
    return found


def refresh(brain: Brain, sources: Sequence[SourceName] = (SourceName.BRAIN,), *, is_quiet: bool = False) -> str:
    """Index a few changes of these sources; return `index_behind` if there are more, else an empty text.

    A background process indexes the rest and embeds it, also after a change of the configured model. `is_quiet`
    suppresses notes on sources outside the brain.
    """
    with progress():
        state = brain.refresh(sources)
    waiting = dict(state.files)
    ours = waiting.pop(SourceName.BRAIN, 0)
    if SourceName.BRAIN in sources and brain.embedder_problem:
        note(f"{brain.embedder_problem} Searching by words alone.")
    if state.rebuilt:
        note(f"The index was rebuilt ({one_line(state.rebuilt)}).")
    if ours:
        note(f"{counted(ours, 'file')} changed; {_indexing(brain.sync_in_background())}")
    elif state.model_problem:
        note(f"{state.model_problem} Searching by words alone; `nugget sync` tries the model again.")
    elif state.other_model and brain.embedder:
        brain.sync_in_background()
        note(f"The index is being rebuilt for {brain.embedder.model}; until then words alone are searched.")
    for problem in () if is_quiet else state.problems:
        note(str(problem))
    if waiting or state.lacks_vectors:
        started, total = brain.sync_in_background(source="machine"), sum(waiting.values())
        if total and not is_quiet:
            parts = ", ".join(f"{count} of {source}" for source, count in waiting.items())
            note(f"{counted(total, 'file')} changed outside the brain ({parts}); {_indexing(started)}")
    if sources == (SourceName.CANON,) and not brain.settings.canon_folders:
        note(f"No folder is canon yet: name some as `canon.folders` in {brain.environment.home / 'config.yaml'}.")
    return "index_behind" if state.files else ""


def _indexing(started: bool) -> str:
    doing = "they are being indexed in the background" if started else "another process is indexing them"
    return f"{doing}, and this answer is from before."


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
                formatter.write_dl([(name, command.short_help) for name, command in shown])


def _with_plain_help(command: Any) -> Any:
    """Print help as plain text, which is faster than rich, with TEXT, N and PATH for types."""
    command.rich_markup_mode = None
    command.short_help = command.help.partition("\n\n")[0].replace("\n", " ")  # typer's own is cut short
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
    if arguments[:1] in (["help"], ["version"]):
        arguments = [*arguments[1:], f"--{arguments[0]}"]
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
    except UnicodeEncodeError as error:
        return report_error(UsageError(f"{printable(error.object)} is not UTF-8 text, so nothing can have that name."))
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
    if (reported := getattr(error.__cause__, "errors", None)) and "Input should" in message:
        message = f"{error.param.opts[0]} {complaint(reported()[0])}."  # type: ignore[attr-defined]
    if message.startswith("Usage: "):  # a group without a command
        typer.echo(message, err=True)
        return 2
    complain(message, hint=f"`{ctx.command_path if ctx else 'nugget'} --help` shows how it is used.")
    return 2
