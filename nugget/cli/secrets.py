"""Commands about secrets: redact, scrub."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from nugget.cli.install import DryRunOption
from nugget.cli.terminal import BrainOption, JsonOption, brain_folder, print_json
from nugget.config import load_settings, read_environment
from nugget.errors import UsageError, reason_of
from nugget.render.terminal import console
from nugget.text import counted, one_line

commands = typer.Typer(add_completion=False)


@commands.command()
def redact(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The file to read; - is standard input.")],
    stats: Annotated[bool, typer.Option("--stats", help="Show how many secrets of each kind, and the speed.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Show what redaction would take out of a file, and by which rule; the secret itself is not shown.

    Changes nothing. `redaction.allow` in your settings keeps what only looks like a secret.
    """
    from nugget.redaction import allow_list, secret_lines
    from nugget.redaction import redact as redacted

    environment = read_environment()
    allow = allow_list(load_settings(environment, brain_folder(brain, environment)))
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{file} {reason_of(error)}.") from error
    text = content.decode("utf-8", "replace")
    redacted("")  # the rules are opened before the time is taken
    begin = time.perf_counter()
    found = secret_lines(text, allow=allow)
    seconds = time.perf_counter() - begin
    counts = Counter(kind for _, kind in found)
    if as_json:
        print_json({
            "file": file, "found": [{"line": line, "rule": kind} for line, kind in found], "counts": dict(counts),
        })  # fmt: skip
        return
    out = console()
    for line, kind in found:
        out.print(f"{file}:{line}: {kind}", highlight=False, markup=False)
    if stats:
        for kind, number in counts.most_common():
            out.print(f"{number:6} {kind}", highlight=False)
        rate = len(content) / 1e6 / seconds if seconds else 0.0
        out.print(f"{counted(len(found), 'secret')} in {len(content) / 1e6:.1f} MB, {rate:.0f} MB/s", highlight=False)
    elif not found:
        out.print("Nothing would be taken out.")


@commands.command()
def scrub(
    secret_file: Annotated[
        str | None,
        typer.Option(
            "--secrets", metavar="FILE|-", help="Secrets that slipped through, one a line; - is standard input."
        ),
    ] = None,
    dry_run: DryRunOption = False,
    brain: BrainOption = None,
) -> None:
    """Take secrets that slipped through out of everything that Nugget keeps.

    Rewrites the files below NUGGET_HOME and those of the brain; an index that holds a secret is removed, `nugget sync`
    makes it again. The history of the brain is yours to rewrite: the command says how. Revoke the secret first.
    """
    from nugget.redaction import allow_list
    from nugget.upkeep import secrets

    environment = read_environment()
    folder = brain_folder(brain, environment)
    try:
        given = (
            "" if not secret_file else sys.stdin.read() if secret_file == "-" else Path(secret_file).read_text("utf-8")
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{secret_file} {reason_of(error)}.") from error
    known = [line.strip() for line in given.splitlines() if line.strip()]
    if short := [line for line in known if len(line) < 6]:
        raise UsageError(f"{counted(len(short), 'secret')} of fewer than 6 characters would be found in any text.")
    allow = allow_list(load_settings(environment, folder))
    done = secrets.scrub(environment.home, folder, known, allow=allow, dry_run=dry_run)
    out = console()
    for verb, places in (("rewritten", done.rewritten), ("removed", done.removed)):
        for place in places:
            out.print(one_line(f"{'to be ' if dry_run else ''}{verb}: {place}"), highlight=False, markup=False)
    for failure in done.failed:
        out.print(one_line(failure), style="red", highlight=False, markup=False)
    if done.history:
        out.print(_HISTORY.format(objects=counted(len(done.history), "object"), brain=folder), highlight=False)
    if not (done.rewritten or done.removed or done.failed or done.history):
        out.print("Nothing to take out.")
    raise typer.Exit(1 if done.failed or done.history else 0)


_HISTORY = """
{objects} of the brain's history hold a secret. Once `nugget review list` is empty:

  cd {brain}
  git commit -am "Take out a secret"
  git filter-repo --replace-text FILE     (FILE: one `SECRET==>[redacted]` a line; delete it afterwards)
  git push --force --all

The ledger names units by their ids, so captured and rejected units stay known."""
