"""`nugget config`: show settings with where they come from, set them, and take them over from a brain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from nugget.cli.terminal import BrainOption, JsonOption, brain_folder, console, print_json
from nugget.config import documented_keys, load_settings, read_brain_file, read_environment, read_user_file, variable_of
from nugget.errors import BrainError, UsageError
from nugget.render import one_line
from nugget.text import counted
from nugget.upkeep.user_settings import set_values

config = typer.Typer(help="Show your settings, or change them.", invoke_without_command=True)


@config.callback()
def show_settings(ctx: typer.Context, as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Show your settings, or change them. Alone: list each setting, its value, and where that comes from."""
    if ctx.invoked_subcommand is not None:
        return
    environment = read_environment()
    try:
        folder: Path | None = brain_folder(brain, environment)
    except BrainError:
        if brain:
            raise
        folder = None
    settings = load_settings(environment, folder)
    mine = read_user_file(environment)
    shared = read_brain_file(folder)[0] if folder else {}
    rows = []
    for key in documented_keys():
        value: Any = settings
        for part in key.split("."):
            value = getattr(value, part)
        origins = [
            (variable_of(key), environment.variables.get(variable_of(key))),
            ("config.yaml", key in mine and mine[key].value is not None),
            ("brain.yaml", key in shared),
        ]
        rows.append((key, value, next((name for name, is_set in origins if is_set), "default")))
    if as_json:
        print_json({key: {"value": value, "from": origin} for key, value, origin in rows})
        return
    out = console()
    for key, value, origin in rows:
        text = ", ".join(value) if isinstance(value, tuple) else str("" if value is None else value)
        out.print(f"{key:<28}{one_line(text):<28} {origin}".rstrip())


@config.command("set")
def set_setting(
    key: Annotated[str, typer.Argument(metavar="KEY", help="For example retrieval.limit.")],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="[VALUE..]", help="One, or each entry of a list; none: the default.")
    ] = None,
) -> None:
    """Set one of your settings, or set it back to its default.

    It is written to config.yaml in $NUGGET_HOME, for all your brains.
    """
    environment = read_environment()
    given = values or []
    is_list = key in documented_keys() and isinstance(documented_keys()[key][0], tuple)
    if len(given) > 1 and not is_list:
        raise UsageError(f"`{key}` takes one value, not {len(given)}.", hint="Put a value with spaces in quotes.")
    set_values(environment, {key: given if is_list and given else (given[0] if given else None)})
    done = "is set" if given else "is at its default"
    console().print(f"{key} {done} in {one_line(str(environment.home / 'config.yaml'))}.")


@config.command("move")
def move_settings(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False, brain: BrainOption = None
) -> None:
    """Take over settings that a brain.yaml names but may not set.

    Shows each with its value and asks first. What you have set yourself stays.
    """
    environment = read_environment()
    folder = brain_folder(brain, environment)
    mine = read_user_file(environment)
    found = {key: entry for key, entry in read_brain_file(folder)[2].items() if key not in mine}
    out = console()
    if not found:
        out.print("There is nothing to move.")
        return
    for key, entry in found.items():
        out.print(f"{key}: {one_line(str(entry.value))}   (brain.yaml:{entry.line})")
    if not yes and not sys.stdin.isatty():
        raise UsageError("Nobody can be asked here.", hint="`--yes` moves these settings without asking.")
    if yes or typer.confirm(f"Use these from now on, in {environment.home / 'config.yaml'}?"):
        set_values(environment, {key: entry.value for key, entry in found.items()})
        out.print(f"Moved {counted(len(found), 'setting')}. Now delete what moved from brain.yaml.")
