"""Commands about why code is the way it is: why, extract, nuggets, coverage, promote, commit."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer import Argument, Option

from nugget.cli import (
    BrainOption,
    DryRunOption,
    ExplainOption,
    JsonOption,
    listed,
    moment,
    open_brain,
    open_provenance,
    progress,
    show,
)
from nugget.cli.capture import WayOption
from nugget.config import current_folder, expanded, read_environment
from nugget.models import Depth, KnowledgeType
from nugget.models.nuggets import NuggetType
from nugget.render.json import context_json, extraction_json, fields, gaps_json, listed_json, whole_json
from nugget.render.terminal import note
from nugget.text import DATE_FORMS, counted

commands = typer.Typer(add_completion=False)
nuggets = typer.Typer(help="List nuggets of this workspace, newest session first.", invoke_without_command=True)
commands.add_typer(nuggets, name="nuggets")

NuggetTypeOption = Annotated[
    list[str] | None, Option("--type", metavar="T,..", help=f"Only these types: {', '.join(NuggetType)}.")
]
NuggetArgument = Annotated[str, Argument(metavar="ID", help="The id of a nugget, or its beginning.")]


@commands.command()
def extract(
    everything: Annotated[bool, Option("--all", help="Read the sessions of every workspace.")] = False,
    session: Annotated[
        str | None, Option("--session", metavar="ID", help="The id of one session, or its beginning.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Extract sessions again even if they have not changed.")] = False,
    dry_run: DryRunOption = False,
    way: WayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Extract nuggets and touched files from the sessions of this workspace.

    The workspace is the repository of the current folder, with its worktrees and clones. A session that was extracted
    is skipped until it grows.
    """
    with progress():
        outcomes, tunings, here = open_provenance().extract(
            session, way=way, everything=everything, force=force, dry_run=dry_run
        )
    is_all = everything or session is not None
    show(extraction_json(outcomes, here, tunings, dry_run=dry_run, everything=everything) if as_json else None,
         report="extraction", outcomes=outcomes, here=here, tunings=tunings, dry_run=dry_run,
         everything=is_all)  # fmt: skip
    raise typer.Exit(1 if any(outcome.state == "failed" for outcome in outcomes) else 0)


@commands.command("context", hidden=True)
@commands.command("why")
def why(
    path: Annotated[str | None, Argument(metavar="PATH", help="A file or folder of the repository.")] = None,
    symbol: Annotated[str | None, Option("--symbol", metavar="NAME", help="A function, class or variable.")] = None,
    query: Annotated[str | None, Option("--query", "-q", help="The question.")] = None,
    budget: Annotated[int, Option("--budget", metavar="TOKENS", help="Maximum size of the answer, in tokens.")] = 2000,
    types: NuggetTypeOption = None,
    depth: Annotated[Depth, Option("--depth", help="How much of each nugget to show.")] = Depth.STANDARD,
    since: Annotated[str | None, Option("--since", metavar="DATE", help=f"Only sessions since: {DATE_FORMS}.")] = None,
    explain: ExplainOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Explain why code is the way it is.

    Give a path, a --query, or both; what matches both comes first. The answer holds what earlier sessions decided,
    tried and rejected, and the brain's reviewed units about this code.
    """
    answer = open_provenance(brain).explain({
        "path": path, "symbol": symbol, "text": query, "types": [name.lower() for name in listed(types)],
        "since": moment(since), "depth": depth, "budget_tokens": budget,
    })  # fmt: skip
    for text in answer.bundle.notes if as_json else ():
        note(text)
    show(context_json(answer.bundle, explain=explain) if as_json else None, report="code_answer",
         bundle=answer.bundle, sessions=answer.sessions, explain=explain)  # fmt: skip


@commands.command("coverage")
def show_coverage(
    gaps: Annotated[
        bool, Option("--gaps", help="List files that are often asked about or changed but have few nuggets.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number of files.")] = 40,
    as_json: JsonOption = False,
) -> None:
    """Show how many nuggets each file has, or with --gaps where they are missing."""
    if gaps:
        found = open_provenance().gaps()
        show(gaps_json(found, limit) if as_json else None, report="gaps", gaps=found, limit=limit)
        return
    covered = open_provenance().coverage()
    value = {"files": [fields(one, "path", "nuggets") for one in covered[:limit]], "total": len(covered)}
    show(value if as_json else None, report="coverage", covered=covered, limit=limit)


@commands.command()
def commit(
    auto: Annotated[bool, Option("--auto", help="Commit at once, without opening the editor.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the message; commit nothing.")] = False,
    offline: Annotated[bool, Option("--offline", help="Write the message by rules, without a model.")] = False,
) -> None:
    """Commit what is staged, with a message from the sessions that wrote it.

    The message is a conventional commit message; trailers name the sessions and who wrote the lines. The editor opens
    as with git; your hooks run, and the commit is signed as git is configured.
    """
    from nugget.app.provenance import commit_staged, prepare_commit

    here = current_folder()
    made = prepare_commit(read_environment(), here, offline=offline)
    for text in made.notes:
        note(text)
    if dry_run:
        typer.echo(made.message, nl=False)
    elif file := commit_staged(here, made.message, edit=not auto):
        note(f"Nothing was committed. The message is in {file}")
        raise typer.Exit(1)


@commands.command("promote")
def promote_nugget(
    nugget: NuggetArgument,
    type: Annotated[
        str | None, Option("--type", metavar="T", help=f"Type of the unit: {', '.join(KnowledgeType)}.")
    ] = None,
    domain: Annotated[str, Option("--domain", metavar="D", help="Domain to file it under.")] = "coding",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Propose a nugget as a knowledge unit of the brain.

    The proposal waits on a branch; `nugget review` shows, accepts or rejects it.
    """
    with open_brain(brain) as opened:
        found, stale = open_provenance(opened.path).nugget(nugget)
        result = opened.promote(found, stale=stale, type=type.lower() if type else None, domain=domain, dry_run=dry_run)
    changes = [fields(one, "path", "unit.id", "reason") for one in result.changes]
    show({"nugget": found.id, "branch": result.branch, "changes": changes} if as_json else None,
         report="promoted", nugget=found, result=result)  # fmt: skip


@nuggets.callback()
def list_nuggets(
    ctx: typer.Context,
    file: Annotated[
        str | None, Option("--file", metavar="PATH", help="Only nuggets of this file, or below this folder.")
    ] = (None),
    types: NuggetTypeOption = None,
    stale: Annotated[bool, Option("--stale", help="Only stale nuggets.")] = False,
    check: Annotated[
        bool, Option("--check", help="List paths and symbols that nuggets mention and that no longer exist.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number of nuggets.")] = 50,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """List nuggets of this workspace, newest session first.

    With --check, the exit code is 1 if something is missing.
    """
    if ctx.invoked_subcommand is not None:
        return
    known = open_provenance(brain)
    if check:
        missing, looked_at = known.missing()
        value = {"checked": looked_at, "missing": missing}
        show(value if as_json else None, report="missing", missing=missing, looked_at=looked_at)
        raise typer.Exit(1 if missing else 0)
    names = [name.lower() for name in listed(types)]
    chosen, reasons, total = known.nuggets(file, names, stale=stale, limit=limit)
    value = {"nuggets": [listed_json(one, reasons.get(one.id)) for one in chosen], "total": total}
    show(value if as_json else None, report="nuggets", nuggets=chosen, reasons=reasons, total=total)


@nuggets.command("inspect")
def inspect_nugget(nugget: NuggetArgument, as_json: JsonOption = False) -> None:
    """Show one nugget with everything that is known about it."""
    found, reason = open_provenance().nugget(nugget)
    show(whole_json(found, reason) if as_json else None, report="nugget", nugget=found, reason=reason)


@nuggets.command("export")
def export_nuggets(
    file: Annotated[str, Argument(metavar="FILE", help="Output file; standard output by default.")] = "-",
    everything: Annotated[bool, Option("--all", help="Export every workspace.")] = False,
) -> None:
    """Export the nuggets and file touches of this workspace as JSON lines, to import on another machine."""
    lines = list(open_provenance().export_lines(everything=everything))
    text = "".join(f"{line}\n" for line in lines)
    if file == "-":
        sys.stdout.write(text)
    else:
        expanded(file).write_text(text, "utf-8", "replace")
    sessions = sum('"kind": "session"' in line[:60] for line in lines)
    note(f"{counted(sessions, 'session')}, {counted(len(lines) - sessions, 'line')} exported")
    if not lines:
        note("Next: nugget extract")


@nuggets.command("import")
def import_nuggets(
    file: Annotated[typer.FileBinaryRead, Argument(metavar="FILE", help="An exported file; `-` is standard input.")],
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Import exported nuggets. Nuggets that exist already are not changed."""
    done = open_provenance().import_lines(file, name=file.name, dry_run=dry_run)
    show(done | {"dry_run": dry_run} if as_json else None, report="imported", done=done, dry_run=dry_run)
    raise typer.Exit(1 if done["problems"] and not done["sessions"] else 0)
