"""Commands about why code is the way it is: extract, context, nuggets, coverage, promote, commit."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from nugget.cli.capture import Method
from nugget.cli.terminal import (
    BrainOption,
    DryRunOption,
    ExplainOption,
    JsonOption,
    current_folder,
    listed,
    moment,
    open_brain,
    print_json,
    progress,
    provenance,
)
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import GitError
from nugget.models import Depth, KnowledgeType
from nugget.models.nuggets import NuggetType
from nugget.render.json import context_json, extraction_json, fields, gaps_json, listed_json, whole_json
from nugget.render.provenance import (
    print_code_answer,
    print_coverage,
    print_extraction,
    print_gaps,
    print_imported,
    print_missing,
    print_nugget,
    print_nuggets,
)
from nugget.render.terminal import console, note
from nugget.text import DATE_FORMS, counted, one_line
from nugget.upkeep.trust import default_brain

commands = typer.Typer(add_completion=False)
nuggets = typer.Typer(help="List nuggets of this workspace, newest session first.", invoke_without_command=True)
commands.add_typer(nuggets, name="nuggets")

NuggetTypeOption = Annotated[
    list[str] | None, Option("--type", metavar="T,..", help=f"Only these types: {', '.join(NuggetType)}.")
]
NuggetArgument = Annotated[str, Argument(metavar="ID", help="A nugget's id, or the beginning of it.")]


@commands.command()
def extract(
    everything: Annotated[bool, Option("--all", help="The sessions of every workspace.")] = False,
    session: Annotated[
        str | None, Option("--session", metavar="ID", help="One session, by its id or the beginning of it.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Extract again what was extracted already.")] = False,
    dry_run: DryRunOption = False,
    method: Annotated[Method, Option("--method", help="How to find nuggets; auto is generative with a key.")] = (
        Method.AUTO
    ),
    as_json: JsonOption = False,
) -> None:
    """Extract nuggets, and which files were touched, from the sessions of this workspace.

    The workspace is the repository that the current folder is in; any worktree or clone of it counts. A session that
    was extracted is skipped until it has grown.
    """
    with progress() as tell:
        done = provenance().extract(
            session, method=method, everything=everything, force=force, dry_run=dry_run, progress=tell
        )
    outcomes = done.outcomes
    if as_json:
        print_json(extraction_json(outcomes, done.workspace, done.tunings, dry_run=dry_run, everything=everything))
    else:
        is_all = everything or session is not None
        print_extraction(outcomes, done.workspace, done.tunings, dry_run=dry_run, everything=is_all)
    raise typer.Exit(1 if any(outcome.state == "failed" for outcome in outcomes) else 0)


@commands.command("context")
def code_context(
    path: Annotated[str | None, Argument(metavar="PATH", help="A file or folder of the repository.")] = None,
    symbol: Annotated[str | None, Option("--symbol", metavar="NAME", help="A function, class or variable.")] = None,
    query: Annotated[str | None, Option("--query", "-q", help="What you want to know.")] = None,
    budget: Annotated[int, Option("--budget", metavar="TOKENS", help="Tokens in the answer.")] = 2000,
    types: NuggetTypeOption = None,
    depth: Annotated[Depth, Option("--depth", help="How much of each nugget.")] = Depth.STANDARD,
    since: Annotated[
        str | None, Option("--since", metavar="DATE", help=f"Only sessions since then: {DATE_FORMS}.")
    ] = None,
    explain: ExplainOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Say why code is the way it is.

    Give a path, a --query, or both: what matches both then comes first. The answer holds what earlier sessions decided,
    tried and turned down, and what a person reviewed and kept in the brain.
    """
    bundle = provenance(brain).context(
        path=path, symbol=symbol, text=query, types=[name.lower() for name in listed(types)],
        since=moment(since, now=datetime.now(UTC)), depth=depth, budget_tokens=budget,
    )  # fmt: skip
    if as_json:
        for text in bundle.notes:
            note(text)
        print_json(context_json(bundle, explain=explain))
    else:
        print_code_answer(console(), bundle, explain=explain)


@commands.command("coverage")
def show_coverage(
    gaps: Annotated[bool, Option("--gaps", help="Files asked about or changed more than explained.")] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Files, at most.")] = 40,
    as_json: JsonOption = False,
) -> None:
    """Show how many nuggets each file has, or with --gaps where they are missing."""
    if gaps:
        found = provenance().gaps()
        if as_json:
            print_json(gaps_json(found, limit))
        else:
            print_gaps(console(), found, limit)
        return
    covered = provenance().coverage()
    if as_json:
        print_json({"files": [fields(one, "path", "nuggets") for one in covered[:limit]], "total": len(covered)})
    else:
        print_coverage(console(), covered, limit)


@commands.command()
def commit(
    auto: Annotated[bool, Option("--auto", help="Commit at once, without opening the editor.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the message; commit nothing.")] = False,
    offline: Annotated[bool, Option("--offline", help="Write the message by rules, without a model.")] = False,
    model: Annotated[str | None, Option("--model", metavar="MODEL", help="The model that writes it.")] = None,
    hook: Annotated[
        Path | None, Option("--hook", metavar="FILE", help="As git's hook: write the message into this file.")
    ] = None,
) -> None:
    """Commit what is staged, with a message from the sessions that wrote it.

    A conventional commit message, and trailers that say which sessions it comes from and whose the lines are. The
    editor opens as with git; the commit runs your hooks and is signed as your git is set up.
    """
    if hook is not None:
        from nugget.hooks import commit as commit_hook

        raise typer.Exit(commit_hook.main(["commit", "--hook", str(hook)]))
    from nugget import commits
    from nugget.infra import git
    from nugget.infra.llm import open_llm

    environment, here = read_environment(), current_folder()
    settings = load_settings(environment, environment.brain or default_brain(environment))
    llm = None if offline else open_llm(settings, environment)
    if model and llm is None and not offline:
        note("There is no key for a model (ANTHROPIC_API_KEY): the message is made by rules.")
    options = commits.CommitOptions(now=datetime.now(UTC), llm=llm, model=model)
    made = commits.prepare(here, environment, settings, options)
    assert made is not None
    for text in made.notes:
        note(text)
    if dry_run:
        typer.echo(made.message, nl=False)
        return
    top = git.top_folder(here)
    if (git.git_dir(top) / "MERGE_MSG").exists():
        hint = "Finish it with git; --dry-run shows ours."
        raise GitError("A merge, cherry-pick or rebase is under way: git has a message for it.", hint=hint)
    file = git.git_dir(top) / "NUGGET_EDITMSG"
    file.write_text(made.message, "utf-8")
    if git.commit_staged(top, file, edit=not auto):
        note(f"Nothing was committed. The message is in {file}")
        raise typer.Exit(1)
    file.unlink(missing_ok=True)


@commands.command("promote")
def promote_nugget(
    nugget: NuggetArgument,
    type: Annotated[
        str | None, Option("--type", metavar="T", help=f"Become this type: {', '.join(KnowledgeType)}.")
    ] = None,
    domain: Annotated[str, Option("--domain", metavar="D", help="File it under this domain.")] = "coding",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Propose a nugget as a knowledge unit of the brain.

    It waits on a branch, as what capture finds does; `nugget review` shows, accepts or rejects it.
    """
    from nugget.app.similar_units import similar_units
    from nugget.capture.promotion import Promotion, promote

    with open_brain(brain) as opened:
        home, now = opened.environment.home, datetime.now(UTC)
        found, stale = provenance(opened.path).nugget(nugget)
        bound = Promotion(
            brain=opened.path, home=home, settings=opened.settings, similar=similar_units(opened), now=now,
            type=type.lower() if type else None, domain=domain, dry_run=dry_run,
        )  # fmt: skip
        result = promote(found, bound, stale=stale)
    if as_json:
        changes = [fields(one, "path", "unit.id", "reason") for one in result.changes]
        print_json({"nugget": result.nugget, "branch": result.branch, "changes": changes})
        return
    out = console()
    for one in result.changes:
        verb = "would be proposed" if dry_run else "is proposed"
        out.print(f"{one_line(found.id)} {verb} as {one_line(one.unit.id)} ({one_line(one.path)}).")
    if result.branch:
        out.print(f"It waits on {result.branch}; `nugget review show` shows it.")


@nuggets.callback()
def list_nuggets(
    ctx: typer.Context,
    file: Annotated[str | None, Option("--file", metavar="PATH", help="Only of this file, or below this folder.")] = (
        None
    ),
    types: NuggetTypeOption = None,
    stale: Annotated[bool, Option("--stale", help="Only stale ones.")] = False,
    check: Annotated[
        bool, Option("--check", help="List paths and symbols that are named and do not exist any more.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Nuggets, at most.")] = 50,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """List nuggets of this workspace, newest session first.

    With --check the exit code is 1 if something named is missing.
    """
    if ctx.invoked_subcommand is not None:
        return
    known = provenance(brain)
    if check:
        missing, looked_at = known.missing()
        if as_json:
            found = [fields(one, "ref", "summary", "kind", "name") for one in missing]
            print_json({"checked": looked_at, "missing": found})
        else:
            print_missing(console(), missing, looked_at)
        raise typer.Exit(1 if missing else 0)
    names = [name.lower() for name in listed(types)]
    chosen, reasons, total = known.nuggets(file, names, stale=stale, limit=limit)
    if as_json:
        print_json({"nuggets": [listed_json(one, reasons.get(one.id)) for one in chosen], "total": total})
    else:
        print_nuggets(console(), chosen, reasons, total)


@nuggets.command("inspect")
def inspect_nugget(nugget: NuggetArgument, as_json: JsonOption = False) -> None:
    """Show one nugget with everything that is known about it."""
    found, reason = provenance().nugget(nugget)
    if as_json:
        print_json(whole_json(found, reason))
    else:
        print_nugget(console(), found, reason)


@nuggets.command("export")
def export_nuggets(
    file: Annotated[str, Argument(metavar="FILE", help="Where to write; by default standard output.")] = "-",
    everything: Annotated[bool, Option("--all", help="The nuggets of every workspace.")] = False,
) -> None:
    """Write the nuggets and file touches of this workspace as JSON lines, to be imported on another machine."""
    lines = list(provenance().export_lines(everything=everything))
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
    file: Annotated[
        typer.FileBinaryRead, Argument(metavar="FILE", help="What an export wrote; `-` is standard input.")
    ],
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Import exported nuggets. What is known already is left as it is."""
    done = provenance().import_lines(file, name=file.name, dry_run=dry_run)
    if as_json:
        print_json(asdict(done) | {"dry_run": dry_run, "problems": [str(problem) for problem in done.problems]})
    else:
        print_imported(console(), done, dry_run=dry_run)
    raise typer.Exit(1 if done.problems and not done.sessions else 0)
