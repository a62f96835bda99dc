"""The command line. A command parses, makes one call, renders, and ends with an exit code; nothing is decided here.

Exit codes: 0 done, 1 an expected failure told in one sentence, 2 wrong usage, 3 unexpected, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from nugget import __version__
from nugget.cli import (
    asking,
    briefing,
    capturing,
    committing,
    evaluating,
    extracting,
    importing,
    installing,
    keeping,
    logs,
    promoting,
    provenance,
    reading,
    reviewing,
    searching,
    sessions,
    syncing,
    travelling,
    upkeep,
)
from nugget.cli.terminal import GlobalBrainOption, accept_any_text, complain, report
from nugget.errors import NuggetError

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's class of all usage errors, which it does not export by name."""

app = typer.Typer(
    name="nugget",
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


ASK, KEEP, LEARN, CARE = "Ask", "Write", "Learn from sessions", "Set up and look after"

app.command(rich_help_panel=ASK)(asking.ask)
app.command(rich_help_panel=ASK)(searching.search)
app.command(rich_help_panel=ASK)(searching.get)
app.command(rich_help_panel=ASK)(searching.suggest)
app.command("context", rich_help_panel=ASK)(provenance.code_context)
provenance.nuggets.command("export")(travelling.export_nuggets)
provenance.nuggets.command("import")(travelling.import_nuggets)
app.add_typer(provenance.nuggets, name="nuggets", rich_help_panel=ASK)
sessions.sessions.command()(reading.show)
app.add_typer(sessions.sessions, name="sessions", rich_help_panel=ASK)
app.command("coverage", rich_help_panel=ASK)(provenance.show_coverage)
app.command(rich_help_panel=ASK)(upkeep.serve)
app.command(rich_help_panel=ASK)(briefing.brief)
app.command(rich_help_panel=ASK)(briefing.recall)
app.command("capture-session", rich_help_panel=LEARN)(capturing.capture_session)
app.command(rich_help_panel=LEARN)(capturing.capture)
app.command(rich_help_panel=LEARN)(extracting.extract)
app.command(rich_help_panel=LEARN)(committing.commit)
app.command("promote", rich_help_panel=LEARN)(promoting.promote_nugget)
app.add_typer(reviewing.review, name="review", rich_help_panel=LEARN)
app.add_typer(logs.logs, name="logs", rich_help_panel=LEARN)
app.command("shell-init", rich_help_panel=LEARN)(logs.shell_init)
app.command(rich_help_panel=KEEP)(keeping.add)
app.command("import", rich_help_panel=KEEP)(importing.import_notes)
app.command(rich_help_panel=KEEP)(keeping.forget)
app.command("mv", rich_help_panel=KEEP)(keeping.move)
app.command(rich_help_panel=KEEP)(keeping.lint)
app.command(rich_help_panel=CARE)(upkeep.init)
app.command(rich_help_panel=CARE)(installing.install)
app.command(rich_help_panel=CARE)(installing.uninstall)
app.command(rich_help_panel=CARE)(syncing.sync)
app.command(rich_help_panel=CARE)(syncing.rebuild)
app.command("eval", rich_help_panel=CARE)(evaluating.evaluate)
app.command(rich_help_panel=CARE)(evaluating.queries)
app.command(rich_help_panel=CARE)(upkeep.status)
app.command(rich_help_panel=CARE)(upkeep.doctor)


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
