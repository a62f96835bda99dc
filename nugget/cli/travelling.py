"""`nugget nuggets export` and `import`: nuggets on their way between machines."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from nugget.cli.extracting import settings_here, workspace_here
from nugget.cli.provenance import nuggets
from nugget.cli.terminal import JsonOption, console, note, print_json
from nugget.config import expanded, read_environment
from nugget.errors import UsageError
from nugget.infra import files
from nugget.render import clean, one_line
from nugget.text import counted

_HELD_OPEN = ("/dev/stdin", "/dev/fd/")
"""What the shell already holds open for us: a redirection, or `<(ssh there nugget nuggets export)`."""


@nuggets.command("export")
def export_nuggets(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to write; standard output else.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="The nuggets of every workspace.")] = False,
) -> None:
    """Write the nuggets and file touches of this workspace as JSON lines, to be imported on another machine."""
    from nugget.provenance.transfer import export_lines

    environment = read_environment()
    workspace = None if everything else workspace_here(environment).identity
    told = list(export_lines(environment.home, workspace))
    text = "".join(f"{line}\n" for line in told)
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
    sessions = sum('"kind": "session"' in line[:60] for line in told)
    note(f"{counted(sessions, 'session')}, {counted(len(told) - sessions, 'line')} exported")
    if not told:
        note("Next: nugget extract")


@nuggets.command("import")
def import_nuggets(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What an export wrote; `-` is standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be new; write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take in exported nuggets. What is known already is left as it is."""
    from nugget.provenance.transfer import import_lines

    environment = read_environment()
    settings = settings_here(environment)
    try:
        with _opened(file) as stream:
            done = import_lines(environment.home, stream, name=str(file), settings=settings, dry_run=dry_run)
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


def _opened(file: Path) -> BinaryIO:
    """Open the file to import. Raises UsageError for a pipe or device, which may never end; OSError."""
    if str(file) == "-":
        return sys.stdin.buffer
    source = expanded(file)
    if source.exists() and not (source.is_file() or source.is_dir() or str(source).startswith(_HELD_OPEN)):
        raise UsageError(f"{file} is not a file but a pipe or a device.", hint="`-` reads what is on standard input.")
    return source.open("rb")
