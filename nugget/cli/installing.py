"""`nugget install` and `uninstall`: Nugget in Claude Code's settings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.terminal import console, current_folder
from nugget.client_settings import Agent, Scope
from nugget.config import Environment, read_environment
from nugget.render import clean

if TYPE_CHECKING:
    from nugget.install import FileChange

AgentArgument = Annotated[Agent, typer.Argument(metavar="[claude-code]", help="The agent: claude-code.")]
ScopeOption = Annotated[
    Scope, typer.Option("--scope", help="Your own settings, or those of the project in the current folder.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be changed; write nothing.")]


def install(
    agent: AgentArgument = Agent.CLAUDE_CODE, scope: ScopeOption = Scope.USER, dry_run: DryRunOption = False
) -> None:
    """Have Claude Code capture its sessions and ask the brain by itself.

    Adds a hook at the start and the end of a session, the MCP server and the permission to ask it. Whatever else is
    in the settings stays as it is; safe to run again.
    """
    from nugget.install import own_command, plan_install

    environment = read_environment()
    command = own_command(environment)
    changes = plan_install(scope, environment, command=command, cwd=current_folder())
    if _carry_out(changes, environment, dry_run=dry_run):
        out = console()
        out.print("New sessions are captured when they end, and can ask the brain. `nugget uninstall` undoes this.")
        if scope is Scope.PROJECT:
            out.print(f"These files start {clean(str(command))}, the place on this machine: think before you commit "
                      "them. Claude Code asks once whether the server of a project may start: say yes.")  # fmt: skip
    elif not changes:
        console().print("Claude Code is connected already; nothing to change.")


def uninstall(
    agent: AgentArgument = Agent.CLAUDE_CODE, scope: ScopeOption = Scope.USER, dry_run: DryRunOption = False
) -> None:
    """Take Nugget out of Claude Code's settings again.

    A file that nobody else changed since becomes what it was, byte for byte; of any other, only Nugget's entries go.
    The brain stays.
    """
    from nugget.install import plan_uninstall

    environment = read_environment()
    changes = plan_uninstall(scope, environment, cwd=current_folder())
    if not _carry_out(changes, environment, dry_run=dry_run) and not changes:
        console().print("Nugget is not in these settings; nothing to change.")


def offer_install(environment: Environment) -> bool:
    """Ask the person at the terminal whether to install now; False where there is nobody to ask, or the answer is no.

    Nothing is asked where Nugget is installed already.
    """
    from nugget.install import own_command, plan_install

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    changes = plan_install(Scope.USER, environment, command=own_command(environment), cwd=current_folder())
    if changes and typer.confirm("Connect Claude Code now (two hooks, the MCP server, one permission)?"):
        return _carry_out(changes, environment, dry_run=False)
    return not changes


def _carry_out(changes: Sequence[FileChange], environment: Environment, *, dry_run: bool) -> bool:
    """Write the changes, or show them; whether anything was written."""
    from nugget.install import apply, diff

    out = console()
    if dry_run:
        for line in diff(changes).splitlines():
            out.print(clean(line))
        return False
    apply(changes, environment)
    for change in changes:
        what = "Removed" if change.after is None else "Made" if change.before is None else "Changed"
        out.print(f"{what} {clean(str(change.path))}")
    return bool(changes)
