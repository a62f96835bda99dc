"""`nugget install` and `uninstall`: Nugget in Claude Code's settings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.terminal import console, current_folder
from nugget.config import Environment, read_environment
from nugget.render import clean
from nugget.upkeep.client_settings import Scope

if TYPE_CHECKING:
    from nugget.upkeep.install import FileChange


class Place(StrEnum):
    """Places Nugget can be installed into."""

    CLAUDE_CODE = "claude-code"
    GIT_HOOK = "git-hook"


PlaceArgument = Annotated[
    Place,
    typer.Argument(
        metavar="[claude-code|git-hook]",
        help="Claude Code's settings, or the prepare-commit-msg hook of the repository in the current folder.",
    ),
]
ScopeOption = Annotated[
    Scope, typer.Option("--scope", help="Your own settings, or those of the project in the current folder.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be changed; write nothing.")]


def install(
    place: PlaceArgument = Place.CLAUDE_CODE,
    scope: ScopeOption = Scope.USER,
    brief: Annotated[
        bool | None,
        typer.Option("--brief/--no-brief", help="Tell each session at its start what is known of where it works."),
    ] = None,
    recall: Annotated[
        bool | None,
        typer.Option("--recall/--no-recall", help="Give each prompt the few units that are likely to help with it."),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Have Claude Code capture its sessions and ask the brain by itself.

    Adds a hook at the start and the end of a session, the MCP server and the permission to ask it. Whatever else is
    in the settings stays as it is; safe to run again. Nothing is put into a session unasked: --brief and --recall do.
    With git-hook: have git propose the messages of commits.
    """
    from nugget.upkeep.install import own_command, plan_install

    environment = read_environment()
    if place is Place.GIT_HOOK:
        _install_git_hook(own_command(environment), dry_run=dry_run)
        return
    command = own_command(environment)
    changes = plan_install(scope, environment, command=command, cwd=current_folder(), brief=brief, recall=recall)
    if _carry_out(changes, environment, dry_run=dry_run):
        out = console()
        out.print("New sessions are captured when they end, and can ask the brain. `nugget uninstall` undoes this.")
        if scope is Scope.PROJECT:
            out.print(f"These files start {clean(str(command))}, the place on this machine: think before you commit "
                      "them. Claude Code asks once whether the server of a project may start: say yes.")  # fmt: skip
    elif not changes:
        console().print("Claude Code is connected already; nothing to change.")


def uninstall(
    place: PlaceArgument = Place.CLAUDE_CODE, scope: ScopeOption = Scope.USER, dry_run: DryRunOption = False
) -> None:
    """Take Nugget out of Claude Code's settings again.

    Only Nugget's entries go; the rest keeps its order and indent.
    The brain stays. With git-hook: take the hook out of the repository in the current folder.
    """
    from nugget.upkeep.install import plan_uninstall

    if place is Place.GIT_HOOK:
        _uninstall_git_hook(dry_run=dry_run)
        return
    environment = read_environment()
    changes = plan_uninstall(scope, environment, cwd=current_folder())
    if not _carry_out(changes, environment, dry_run=dry_run) and not changes:
        console().print("Nugget is not in these settings; nothing to change.")


def _install_git_hook(command: Path, *, dry_run: bool) -> None:
    from nugget.upkeep.git_hook import KEPT, inspect_hook, install_hook

    out, here = console(), current_folder()
    state = inspect_hook(here, command)
    path = clean(str(state.path))
    if state.is_current:
        out.print(f"{path} is there already; nothing to change.")
        return
    if dry_run:
        kept = f"keep the hook that is there as {KEPT} and " if state.path.exists() and not state.is_ours else ""
        out.print(f"Would {kept}write {path}")
        return
    state = install_hook(here, command=command)
    out.print(f"Wrote {path}")
    if state.keeps_other:
        out.print(f"The hook that was there is kept as {KEPT} beside it, and runs first.")
    if state.folder.scope in ("global", "system"):
        out.print(f"core.hooksPath is set for all repositories ({state.folder.scope}): the hook runs in each of them.")
    out.print("`git commit` proposes a message where an agent had a part. `nugget uninstall git-hook` undoes this.")


def _uninstall_git_hook(*, dry_run: bool) -> None:
    from nugget.upkeep.git_hook import inspect_hook, uninstall_hook

    out, here = console(), current_folder()
    if dry_run:
        state = inspect_hook(here)
        out.print(f"Would remove {clean(str(state.path))}" if state.is_ours else "Nugget's hook is not there.")
        return
    removed = uninstall_hook(here)
    if removed is None:
        out.print("Nugget's hook is not in this repository; nothing to change.")
        return
    back = "; the hook that was there before is back" if removed.keeps_other else ""
    out.print(f"Removed {clean(str(removed.path))}{back}.")


def offer_install(environment: Environment) -> bool:
    """Ask the person at the terminal whether to install now; return False without a terminal or on no.

    Nothing is asked where Nugget is installed already.
    """
    from nugget.upkeep.install import own_command, plan_install

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    changes = plan_install(Scope.USER, environment, command=own_command(environment), cwd=current_folder())
    if changes and typer.confirm("Connect Claude Code now (two hooks, the MCP server, one permission)?"):
        return _carry_out(changes, environment, dry_run=False)
    return not changes


def _carry_out(changes: Sequence[FileChange], environment: Environment, *, dry_run: bool) -> bool:
    """Write the changes, or show them; whether anything was written."""
    from nugget.upkeep.install import apply, diff

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
