"""Commands about what happened: sessions, logs, shell-init."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer
from typer import Argument, Option

from nugget.cli import ExplainOption, JsonOption, PagerOption, moment, open_provenance, paged, progress, show
from nugget.config import current_folder, load_settings, read_environment
from nugget.errors import UsageError
from nugget.render.json import session_detail_json, session_json, sync_json
from nugget.render.terminal import note, put
from nugget.text import DATE_FORMS

if TYPE_CHECKING:
    from nugget.app.logs import Logs

commands = typer.Typer(add_completion=False)
sessions = typer.Typer(
    help="List the sessions of this workspace, newest first, with what came of each.", invoke_without_command=True
)
logs = typer.Typer(help="Show what happened in shells and agent sessions: commands, failures, fixes.",
                   no_args_is_help=True)  # fmt: skip
commands.add_typer(sessions, name="sessions")
commands.add_typer(logs, name="logs")

Intent = Literal["debug", "resume", "what-changed", "status", "general"]
INTENTS = ", ".join(get_args(Intent))
Shell = Literal["bash", "zsh", "fish"]
SinceOption = Annotated[str | None, Option("--since", metavar="DATE", help=f"Only since: {DATE_FORMS}.")]
AllOption = Annotated[bool, Option("--all", help="Sessions of every project, not only of this workspace.")]


@sessions.callback()
def list_sessions(
    ctx: typer.Context, everything: AllOption = False, since: SinceOption = None, as_json: JsonOption = False
) -> None:
    """List the sessions of this workspace, newest first, with what came of each."""
    from nugget.app.sessions import list_sessions as known_sessions

    if ctx.invoked_subcommand is not None:
        return
    workspace, found = known_sessions(open_provenance(), everything=everything, since=moment(since))
    named = None if everything else workspace.identity
    value = {"workspace": named, "sessions": [session_json(one) for one in found]} if as_json else None
    ids = {one.id for one in found}
    told = next((chars for chars in (8, 12, 20, 40) if len({one[:chars] for one in ids}) == len(ids)), None)
    show(value, report="sessions", found=found, workspace=workspace, everything=everything, id_chars=told)


@sessions.command("show")
def show_session(
    session: Annotated[str, Argument(metavar="ID", help="The id of a session, its beginning, or a ref.")],
    summary: Annotated[bool, Option("--summary", help="Show prompts, touched files and nuggets only.")] = False,
    full: Annotated[bool, Option("--full", help="Show commands, output and edits in full.")] = False,
    pager: PagerOption = True,
    as_json: JsonOption = False,
) -> None:
    """Show a whole session: what came of it, then the conversation with commands and results folded.

    Secrets are removed. A session that the client deleted is read from Nugget's archive.
    """
    from nugget.app.sessions import find_session

    detail = find_session(open_provenance(), session)
    if detail.problem and not (summary and detail.known.store_file):
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
            show(sync_json(result) if as_json else None, report="sync", result=result, published=None, beside={})
        else:
            done = opened.ingest(session)
            show(done if as_json else None, report="ingested", done=done)


@logs.command("context")
def bundle(
    question: Annotated[list[str] | None, Argument(metavar="QUESTION", help="The question.")] = None,
    session: Annotated[str | None, Option("--session", metavar="ID", help="The id of a session.")] = None,
    last: Annotated[bool, Option("--last", help="The most recent session (the default).")] = False,
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
        int,
        Option("--output-window", min=0, metavar="LINES", help="How many of each stream's latest lines to read."),
    ] = 40,
    artifacts: Annotated[bool, Option("--artifacts/--no-artifacts", help="Include notes.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Show evidence for a question: failures with output and fixes, edits, todos, and where you left off.

    New logs of the session are read first.
    """
    from nugget.app.logs import BundleOptions, evidence_json

    if sum((session is not None, last, workspace)) > 1:
        raise UsageError("Give one of --session, --last and --workspace.")
    options = BundleOptions(
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
    show(evidence_json(found, explain=explain) if as_json else None, report="evidence", found=found, explain=explain)


@logs.command("sessions", hidden=True)
def list_logged(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List sessions as `nugget sessions --all` does."""
    list_sessions(ctx, everything=True, as_json=as_json)


@contextmanager
def _opened() -> Iterator[Logs]:
    from nugget.app.logs import Logs

    environment = read_environment()
    with progress():
        yield Logs(environment=environment, settings=load_settings(environment), note=note)


@commands.command()
def shell_init(shell: Annotated[Shell, Argument(help="The shell to print the hook for.")]) -> None:
    """Print a hook that records a shell: each command with its exit code, duration and folder.

    Nothing is recorded until your shell evaluates it, as in `eval "$(nugget shell-init bash)"`. Commands that begin
    with a space or match NUGGET_SHELL_IGNORE are not recorded.
    """
    from nugget.app.logs import shell_hook

    typer.echo(shell_hook(shell), nl=False)


@commands.command()
def pause(
    session: Annotated[str | None, Option("--session", metavar="ID", help="Only this session.")] = None,
    end: Annotated[bool, Option("--end", help="Capture again from now on.")] = False,
) -> None:
    """Capture nothing until `nugget pause --end`.

    Sessions that end meanwhile are not captured later either, unless you ask for one with `capture-session`.
    """
    from nugget.app import sessions as known

    known.pause(read_environment().home, session=session, end=end)
    what = f"session {session}" if session else "sessions"
    put(f"{what.capitalize()}: captured again." if end else f"{what.capitalize()}: not captured until you say --end.")


@commands.command()
def erase(
    session: Annotated[str, Option("--session", metavar="ID", help="The session, or the beginning of its id.")],
    as_json: JsonOption = False,
) -> None:
    """Remove a session from everything that Nugget keeps: archive, index, provenance, queue and ledger.

    The client's own transcript stays, and is not read again. What was accepted into the brain stays too.
    """
    from nugget.app.sessions import erase_session

    name, removed = erase_session(open_provenance(), session)
    text = f"Session {name} is erased: {', '.join(removed) or 'nothing was kept of it'}."
    show({"session": name, "removed": removed} if as_json else None, text)
    note("Units that it proposed stay in the brain and in review: `nugget forget ID`, `nugget review reject`.")
