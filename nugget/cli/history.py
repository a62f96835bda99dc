"""Commands about what happened and why code is the way it is: sessions, logs, shell-init, why, nuggets, commit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Literal, get_args

import typer
from typer import Argument, Option

from nugget.cli import (
    BrainOption,
    DryRunOption,
    ExplainOption,
    JsonOption,
    PagerOption,
    listed,
    moment,
    open_brain,
    open_provenance,
    paged,
    progress,
    provenance,
    show,
)
from nugget.cli import logs as app_logs
from nugget.cli import sessions as app_sessions
from nugget.cli.capture import WayOption
from nugget.config import current_folder, expanded, load_settings, read_environment
from nugget.errors import UsageError
from nugget.models import Depth, Filter, KnowledgeType, Query
from nugget.models.nuggets import NuggetType
from nugget.render.json import (
    context_json,
    extraction_json,
    fields,
    gaps_json,
    listed_json,
    session_detail_json,
    session_json,
    whole_json,
)
from nugget.render.terminal import note
from nugget.text import DATE_FORMS, counted

commands = typer.Typer(add_completion=False)
sessions = typer.Typer(
    help="List the sessions of this workspace and their outcomes, newest first.", invoke_without_command=True
)
logs = typer.Typer(help="Show what happened in shells and agent sessions: commands, failures, fixes.",
                   no_args_is_help=True)  # fmt: skip
commands.add_typer(sessions, name="sessions")
nuggets = typer.Typer(help="List nuggets of this workspace, newest session first.", invoke_without_command=True)
commands.add_typer(logs, name="logs")
commands.add_typer(nuggets, name="nuggets")

Intent = Literal["debug", "resume", "what-changed", "status", "general"]
INTENTS = ", ".join(get_args(Intent))
Shell = Literal["bash", "zsh", "fish"]
SinceOption = Annotated[str | None, Option("--since", metavar="DATE", help=f"Only since: {DATE_FORMS}.")]
AllOption = Annotated[bool, Option("--all", help="Sessions of every project, not only of this workspace.")]


@sessions.callback()
def list_sessions(
    ctx: typer.Context, everything: AllOption = False, since: SinceOption = None, as_json: JsonOption = False
) -> None:
    """List the sessions of this workspace and their outcomes, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    workspace, found = app_sessions.list_sessions(open_provenance(), everything=everything, since=moment(since))
    named = None if everything else workspace.identity
    value = {"workspace": named, "sessions": [session_json(one) for one in found]} if as_json else None
    ids = {one.id for one in found}
    told = next((chars for chars in (8, 12, 20, 40) if len({one[:chars] for one in ids}) == len(ids)), None)
    show(value, report="sessions", found=found, workspace=workspace, everything=everything, id_chars=told)


@sessions.command("show")
def show_session(
    session: Annotated[str, Argument(metavar="ID", help="The id of a session, a prefix of it, or a ref.")],
    summary: Annotated[bool, Option("--summary", help="Show prompts, touched files and nuggets only.")] = False,
    full: Annotated[bool, Option("--full", help="Show commands, output and edits in full.")] = False,
    pager: PagerOption = True,
    as_json: JsonOption = False,
) -> None:
    """Show a whole session: its outcome, then the conversation with commands and results folded.

    Secrets are removed. A session that the client deleted is read from Nugget's archive.
    """
    detail = app_sessions.find_session(open_provenance(), session)
    if detail.problem and not (summary and detail.store_file):
        raise detail.problem
    value = session_detail_json(detail, summary=summary) if as_json else None
    with paged(is_wanted=pager and not (summary or as_json)):
        show(value, report="session_detail" if summary or not detail.session else "session", detail=detail, full=full)


@sessions.command(hidden=True)
def inspect(session: Annotated[str, Argument(metavar="ID")], as_json: JsonOption = False) -> None:
    """Show one session as `sessions show --summary` does."""
    show_session(session, summary=True, as_json=as_json)


@logs.command("ingest")
def ingest(
    session: Annotated[str | None, Argument(metavar="SESSION", help="The id of a session.")] = None,
    everything: Annotated[bool, Option("--all", help="Read the logs of every shell and agent session.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read new log entries of one session, or of all."""
    if (session is None) != everything:
        raise UsageError("Name a session, or give --all.", hint="`nugget sessions --all` lists them.")
    with _opened() as opened:
        if session is None:
            result = opened.ingest_all()
            show(asdict(result) if as_json else None, report="sync", result=result, published=None, beside={})
        else:
            done = opened.ingest(session)
            show(done if as_json else None, report="ingested", done=done)


@logs.command("context")
def bundle(
    question: Annotated[list[str] | None, Argument(metavar="QUESTION", help="The question.")] = None,
    session: Annotated[str | None, Option("--session", metavar="ID", help="The id of a session.")] = None,
    last: Annotated[bool, Option("--last", help="The latest session of this code repository (the default).")] = False,
    workspace: Annotated[bool, Option("--workspace", help="All sessions of this code repository.")] = False,
    intent: Annotated[Intent | None, Option("--intent", metavar="INTENT", help=f"One of: {INTENTS}.")] = None,
    select: Annotated[
        bool, Option("--select", help="Let a model choose the evidence from the whole history; needs a key.")
    ] = False,
    explain: ExplainOption = False,
    max_chars: Annotated[int, Option("--max-chars", min=0, help="Maximum characters of the text.")] = 12_000,
    max_lines: Annotated[int, Option("--max-lines", min=0, help="Maximum lines of the text.")] = 120,
    max_incidents: Annotated[int, Option("--max-incidents", min=0, help="Maximum number of incidents.")] = 5,
    output_window: Annotated[
        int, Option("--output-window", min=0, metavar="LINES", help="Latest lines of each stream to show, 12 at most.")
    ] = 12,
    artifacts: Annotated[bool, Option("--artifacts/--no-artifacts", help="Include notes.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Show evidence for a question: failures with output and fixes, edits, todos, and where you left off.

    New logs of the session are read first.
    """
    if sum((session is not None, last, workspace)) > 1:
        raise UsageError("Give one of --session, --last and --workspace.")
    options = app_logs.BundleOptions(
        intent=intent, max_lines=max_lines, max_chars=max_chars, output_window=output_window,
        max_incidents=max_incidents, include_artifacts=artifacts, explain=explain,
    )  # fmt: skip
    text = " ".join(question or ())
    if select and workspace:
        raise UsageError("--select reads the history of one session.", hint="Leave out --workspace.")
    with _opened() as opened:
        if select:
            chosen = opened.selected(session, text, options)
            show(chosen if as_json else None, chosen["context_text"])
            return
        if workspace:
            found = opened.workspace_evidence(current_folder(), text, options)
        else:
            found = opened.session_evidence(session, text, options)
    value = app_logs.evidence_json(found, explain=explain)
    show(value if as_json else None, report="evidence", found=value)


@logs.command("sessions", hidden=True)
def list_logged(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List sessions as `nugget sessions --all` does."""
    list_sessions(ctx, everything=True, as_json=as_json)


@contextmanager
def _opened() -> Iterator[app_logs.Logs]:
    environment = read_environment()
    with progress():
        yield app_logs.Logs(environment=environment, settings=load_settings(environment), note=note)


@commands.command()
def shell_init(shell: Annotated[Shell, Argument(metavar="bash|zsh|fish", help="Your shell.")]) -> None:
    """Print a hook that records a shell: each command with its exit code, duration and folder.

    Nothing is recorded until your shell evaluates it, as in `eval "$(nugget shell-init bash)"`. Commands that begin
    with a space or match NUGGET_SHELL_IGNORE are not recorded.
    """
    typer.echo(app_logs.shell_hook(shell), nl=False)


NuggetTypeOption = Annotated[
    list[str] | None, Option("--type", metavar="T,..", help=f"Only these types: {', '.join(NuggetType)}.")
]
NuggetArgument = Annotated[str, Argument(metavar="ID", help="The id of a nugget, or a prefix of it.")]


@commands.command()
def extract(
    everything: Annotated[bool, Option("--all", help="Read the sessions of every workspace.")] = False,
    session: Annotated[
        str | None, Option("--session", metavar="ID", help="The id of one session, or a prefix of it.")
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

    Give a path, a --query, or both; what matches both comes first. The answer says what earlier sessions decided,
    tried and rejected, with the brain's reviewed units about this code.
    """
    filter_ = Filter(types=listed(types), since=moment(since))
    asked = Query(query or "", path=path, symbol=symbol, filter=filter_, depth=depth, budget_tokens=budget)
    answer = open_provenance(brain).explain(asked)
    for text in answer.notes if as_json else ():
        note(text)
    show(context_json(answer, explain=explain) if as_json else None, report="code_answer", bundle=answer,
         explain=explain)  # fmt: skip


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
    """Commit the staged changes, with a message from the sessions that wrote them.

    The message is a conventional commit message; trailers name the sessions and who wrote the lines. The editor opens
    as with git; your hooks run, and the commit is signed as git is configured.
    """
    here = current_folder()
    made = provenance.prepare_commit(read_environment(), here, offline=offline)
    for text in made.notes:
        note(text)
    if dry_run:
        typer.echo(made.message, nl=False)
    elif file := provenance.commit_staged(here, made.message, edit=not auto):
        note(f"Nothing was committed. The message is in {file}")
        raise typer.Exit(1)


@commands.command("promote")
def promote_nugget(
    nugget: NuggetArgument,
    type: Annotated[
        KnowledgeType | None, Option("--type", metavar="T", help=f"Type of the unit: {', '.join(KnowledgeType)}.")
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
        result = opened.promote(found, stale=stale, type=type, domain=domain, dry_run=dry_run)
    changes = [fields(one, "path", "unit.id", "reason") for one in result.changes]
    show({"nugget": found.id, "branch": result.branch, "changes": changes} if as_json else None,
         report="promoted", nugget=found, result=result)  # fmt: skip


@nuggets.callback()
def list_nuggets(
    ctx: typer.Context,
    file: Annotated[
        str | None, Option("--file", metavar="PATH", help="Only nuggets of this file, or below this folder.")
    ] = None,
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
    chosen, reasons, total = known.nuggets(file, [name.lower() for name in listed(types)], stale=stale, limit=limit)
    value = {"nuggets": [listed_json(one, reasons.get(one.id)) for one in chosen], "total": total}
    show(value if as_json else None, report="nuggets", nuggets=chosen, reasons=reasons, total=total)


@nuggets.command("inspect")
def inspect_nugget(nugget: NuggetArgument, as_json: JsonOption = False) -> None:
    """Show everything known about a nugget."""
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
    """Import exported nuggets. Existing nuggets are not changed."""
    done = open_provenance().import_lines(file, name=file.name, dry_run=dry_run)
    show(done | {"dry_run": dry_run} if as_json else None, report="imported", done=done, dry_run=dry_run)
    raise typer.Exit(1 if done["problems"] and not done["sessions"] else 0)
