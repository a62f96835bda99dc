"""`nugget nuggets`: list, inspect, export and import nuggets."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from nugget.cli.provenance import NuggetTypeOption
from nugget.cli.terminal import BrainOption, JsonOption, listed, print_json, provenance
from nugget.config import expanded
from nugget.errors import UsageError
from nugget.infra import files
from nugget.render.json import fields, listed_json, whole_json
from nugget.render.provenance import print_missing, print_nugget, print_nuggets
from nugget.render.terminal import console, note
from nugget.text import clean, counted, one_line

if TYPE_CHECKING:
    pass

commands = typer.Typer(add_completion=False)


nuggets = typer.Typer(
    help="List nuggets of this workspace, newest session first.", invoke_without_command=True, no_args_is_help=False
)
commands.add_typer(nuggets, name="nuggets")


@nuggets.callback()
def list_nuggets(
    ctx: typer.Context,
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="Only of this file, or below this folder.")
    ] = None,
    types: NuggetTypeOption = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only stale ones.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="List paths and symbols that are named and do not exist any more.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Nuggets, at most.")] = 50,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """List nuggets of this workspace, newest session first.

    With --check the exit code is 1 where something named is missing.
    """
    if ctx.invoked_subcommand is not None:
        return
    known = provenance(brain)
    if check:
        missing, looked_at = known.missing()
        if as_json:
            print_json(
                {"checked": looked_at, "missing": [fields(one, "ref", "summary", "kind", "name") for one in missing]}
            )
        else:
            print_missing(console(), missing, looked_at)
        raise typer.Exit(1 if missing else 0)
    names = [name.lower() for name in listed(types)]
    listed_nuggets, reasons, total = known.nuggets(file, names, stale=stale, limit=limit)
    if as_json:
        shown = [listed_json(one, reasons.get(one.id)) for one in listed_nuggets]
        print_json({"nuggets": shown, "total": total})
    else:
        print_nuggets(console(), listed_nuggets, reasons, total)


@nuggets.command("inspect")
def inspect_nugget(
    nugget: Annotated[str, typer.Argument(metavar="ID", help="A nugget's id, or the beginning of it.")],
    as_json: JsonOption = False,
) -> None:
    """Show one nugget with everything that is known about it."""
    found, reason = provenance().nugget(nugget)
    if as_json:
        print_json(whole_json(found, reason))
    else:
        print_nugget(console(), found, reason)


_HELD_OPEN = ("/dev/stdin", "/dev/fd/")
"""What the shell already holds open for us: a redirection, or `<(ssh there nugget nuggets export)`."""


@nuggets.command("export")
def export_nuggets(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to write; standard output else.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="The nuggets of every workspace.")] = False,
) -> None:
    """Write the nuggets and file touches of this workspace as JSON lines, to be imported on another machine."""
    lines = list(provenance().export_lines(everything=everything))
    text = "".join(f"{line}\n" for line in lines)
    if file is None or str(file) == "-":
        sys.stdout.write(text)
    else:
        target, content = expanded(file), text.encode("utf-8", "replace")
        try:
            if target.exists() and not target.is_file():  # a device or a pipe is written to, never replaced
                target.write_bytes(content)
            else:
                files.replace(Path(os.path.realpath(target)), content)
        except OSError as error:
            raise UsageError(f"{file} cannot be written ({error.strerror or error}).") from error
    sessions = sum('"kind": "session"' in line[:60] for line in lines)
    note(f"{counted(sessions, 'session')}, {counted(len(lines) - sessions, 'line')} exported")
    if not lines:
        note("Next: nugget extract")


@nuggets.command("import")
def import_nuggets(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What an export wrote; `-` is standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be new; write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take in exported nuggets. What is known already is left as it is."""
    try:
        with _import_stream(file) as stream:
            done = provenance().import_lines(stream, name=str(file), dry_run=dry_run)
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror or error}).") from error
    if as_json:
        print_json(asdict(done) | {"dry_run": dry_run, "problems": [str(problem) for problem in done.problems]})
    else:
        for problem in done.problems[:20]:
            note(f"left out: {one_line(clean(str(problem)))}")
        if len(done.problems) > 20:
            note(f"left out: {len(done.problems) - 20} more lines")
        would = "would be " if dry_run else ""
        what = f"{counted(done.new, 'nugget')} {would}new, {done.known} known already"
        console().print(f"{counted(done.sessions, 'session')}: {what}.")
    raise typer.Exit(1 if done.problems and not done.sessions else 0)


def _import_stream(file: Path) -> BinaryIO:
    """Open the file to import. Raises UsageError for a pipe or device, which may never end; OSError."""
    if str(file) == "-":
        return sys.stdin.buffer
    source = expanded(file)
    if source.exists() and not (source.is_file() or source.is_dir() or str(source).startswith(_HELD_OPEN)):
        raise UsageError(f"{file} is not a file but a pipe or a device.", hint="`-` reads what is on standard input.")
    return source.open("rb")
