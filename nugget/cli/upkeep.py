"""Commands that look after a brain: sync, rebuild, status, doctor, redact, scrub."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from nugget.cli.terminal import (
    BrainOption,
    DryRunOption,
    JsonOption,
    brain_folder,
    listed,
    open_brain,
    print_json,
    progress,
)
from nugget.config import load_settings, read_environment
from nugget.errors import NuggetError, UsageError, reason_of
from nugget.models import SourceName
from nugget.render.json import fields, status_json, sync_json
from nugget.render.reports import print_findings, print_source_sync, print_status, print_sync
from nugget.render.terminal import console, note
from nugget.text import clean, counted, one_line

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.config import Environment
    from nugget.index import SyncResult

commands = typer.Typer(add_completion=False)


@commands.command()
def sync(
    rebuild: Annotated[bool, Option("--rebuild", help="Rebuild the index of the brain.")] = False,
    source: Annotated[
        list[str] | None,
        Option("--source", metavar="S,..", help="Only these sources: brain, canon, provenance, sessions, shell, "
                                                "bridge, or machine for all but the brain."),
    ] = None,
    pull: Annotated[
        bool | None, Option("--pull/--no-pull", help="First bring in what was merged on the remote.")
    ] = None,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Bring the indexes in line with the files: first the brain's, then that of everything else that is searched."""
    obstacle: NuggetError | None = None
    names = _chosen(source)
    result: SyncResult | None = None
    with open_brain(brain) as opened, progress() as tell:
        if opened.embedder_problem:
            note(f"{opened.embedder_problem} Indexing words alone.")
        if SourceName.BRAIN in names:
            if opened.settings.sync.pull if pull is None else pull:
                obstacle = _pull(opened)
            result = opened.sync(rebuild=rebuild, progress=tell)
        others = [name for name in names if name is not SourceName.BRAIN]
        beside = opened.sync_local_sources(others, progress=tell) if others else {}
    if as_json:
        value = sync_json(result) if result else {}
        print_json(value | {"sources": {str(name): sync_json(its) for name, its in beside.items()}})
    else:
        out = console()
        if result:
            print_sync(out, result)
        for name, its in beside.items():
            print_source_sync(out, name, its)
    if obstacle is not None and pull:
        raise obstacle


def _chosen(given: Sequence[str] | None) -> tuple[SourceName, ...]:
    """Return the sources to sync, all but memory by default. Raises UsageError."""
    every = tuple(name for name in SourceName if name is not SourceName.MEMORY)
    chosen: list[SourceName] = []
    for name in (part.lower() for part in listed(given)):
        if name != "machine" and name not in every:
            raise UsageError(f"There is no source {name!r} to sync.", hint=f"Sources are: {', '.join(every)}.")
        chosen += every[1:] if name == "machine" else [SourceName(name)]
    return tuple(dict.fromkeys(chosen)) or every


def _pull(opened: Brain) -> NuggetError | None:
    """Bring in what was merged on the remote; return the error if that fails."""
    from nugget.capture import publish as publishing

    try:
        commit = publishing.pull(opened.path, environment=opened.environment)
        for settled in publishing.sync_pull_requests(
            opened.path, environment=opened.environment, now=datetime.now(UTC)
        ):
            note(f"{settled.reason or settled.state}: {clean(settled.url or settled.branch)}")
    except NuggetError as error:
        note(f"Not pulled: {error}")
        return error
    note(f"Pulled: the brain is at {commit[:10]} now." if commit else "Nothing to pull.")
    return None


@commands.command()
def rebuild(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Rebuild the index.

    The old one answers until the new one is ready, and vectors already made are used again.
    """
    sync(rebuild=True, pull=False, as_json=as_json, brain=brain)


@commands.command()
def status(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """Show what is indexed, captured, queued, failed and spent."""
    from nugget.upkeep.doctor import status as status_of

    environment = read_environment()
    folder = brain_folder(brain, environment)
    seen = status_of(folder, load_settings(environment, folder), environment)
    if as_json:
        print_json(status_json(seen))
    else:
        print_status(console(), seen)


@commands.command()
def doctor(
    mend: Annotated[bool, Option("--repair", help="Put right what can be; say what was done.")] = False,
    secrets: Annotated[bool, Option("--secrets", help="Look for secrets in all that is kept instead.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Look for what is wrong and name the next command.

    Changes nothing, unless with --repair: that removes stale locks, leftovers and damaged indexes, and rebuilds these.
    The exit code is 1 when something is wrong.
    """
    from nugget.upkeep.doctor import State
    from nugget.upkeep.doctor import doctor as diagnose

    environment = read_environment()
    folder = brain_folder(brain, environment)
    if secrets:
        _show_leaks(folder, environment, as_json=as_json)
    repaired: list[str] = []
    if mend:
        with open_brain(brain) as opened:
            repaired = opened.repair() or ["There was nothing to repair."]
    found = diagnose(folder, load_settings(environment, folder), environment, now=datetime.now(UTC))
    wrong = sum(finding.state is State.ERROR for finding in found)
    if as_json:
        findings = [{**fields(one, "name", "state"), "said": one.message, "next_step": one.next_step} for one in found]
        more = {"repaired": repaired} if mend else {}
        print_json({"ok": not wrong, "brain": str(folder), "findings": findings, **more})
    else:
        for line in repaired:
            console().print(one_line(line))
        print_findings(console(), folder, found, wrong)
    raise typer.Exit(1 if wrong else 0)


def _show_leaks(folder: Path, environment: Environment, *, as_json: bool) -> None:
    """Print where secrets are kept, and end with 1 if there are any."""
    from nugget.redaction import allow_list
    from nugget.upkeep.repair import find_leaks

    leaks = [*find_leaks(environment.home, folder, allow=allow_list(load_settings(environment, folder)))]
    if as_json:
        print_json({"ok": not leaks, "leaks": [fields(leak, "store", "place", "line", "kind") for leak in leaks]})
    else:
        for leak in leaks:
            console().print(one_line(f"{leak.store}: {leak.place}:{leak.line}: {leak.kind}"))
        console().print(f"{counted(len(leaks), 'secret')} found." + (" Next: nugget scrub" if leaks else ""))
    raise typer.Exit(1 if leaks else 0)


def _read(file: str) -> bytes:
    """Return what a file holds, or standard input for `-`. Raises UsageError."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{file} {reason_of(error)}.") from error


@commands.command()
def redact(
    file: Annotated[str, Argument(metavar="FILE|-", help="The file to read; - is standard input.")],
    stats: Annotated[bool, Option("--stats", help="Show how many secrets of each kind, and the speed.")] = False,
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
    content = _read(file)
    redacted("")  # the rules are opened before the time is taken
    begin = time.perf_counter()
    found = secret_lines(content.decode("utf-8", "replace"), allow=allow)
    seconds = time.perf_counter() - begin
    counts = Counter(kind for _, kind in found)
    if as_json:
        lines = [{"line": line, "rule": kind} for line, kind in found]
        print_json({"file": file, "found": lines, "counts": dict(counts)})
        return
    out = console()
    for line, kind in found:
        out.print(f"{file}:{line}: {kind}")
    if stats:
        for kind, number in counts.most_common():
            out.print(f"{number:6} {kind}")
        rate = len(content) / 1e6 / seconds if seconds else 0.0
        out.print(f"{counted(len(found), 'secret')} in {len(content) / 1e6:.1f} MB, {rate:.0f} MB/s")
    elif not found:
        out.print("Nothing would be taken out.")


@commands.command()
def scrub(
    secret_file: Annotated[
        str | None,
        Option("--secrets", metavar="FILE|-", help="Secrets that slipped through, one a line; - is standard input."),
    ] = None,
    dry_run: DryRunOption = False,
    brain: BrainOption = None,
) -> None:
    """Take secrets that slipped through out of everything that Nugget keeps.

    Rewrites the files below NUGGET_HOME and those of the brain; an index that holds a secret is removed, `nugget sync`
    rebuilds it. The history of the brain is yours to rewrite: the command says how. Revoke the secret first.
    """
    from nugget.redaction import allow_list
    from nugget.upkeep import repair

    environment = read_environment()
    folder = brain_folder(brain, environment)
    given = _read(secret_file).decode("utf-8", "replace") if secret_file else ""
    known = [line.strip() for line in given.splitlines() if line.strip()]
    if short := [line for line in known if len(line) < 6]:
        raise UsageError(f"{counted(len(short), 'secret')} of fewer than 6 characters would be found in any text.")
    allow = allow_list(load_settings(environment, folder))
    done = repair.scrub(environment.home, folder, known, allow=allow, dry_run=dry_run)
    out = console()
    for verb, places in (("rewritten", done.rewritten), ("removed", done.removed)):
        for place in places:
            out.print(one_line(f"{'to be ' if dry_run else ''}{verb}: {place}"))
    for failure in done.failed:
        out.print(one_line(failure), style="red")
    if done.history:
        out.print(_HISTORY.format(objects=counted(len(done.history), "object"), brain=folder))
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
