"""`nugget logs` and `nugget shell-init`: what happened in shells and sessions, and the hook that records a shell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli.terminal import JsonOption, current_folder, print_json, progress
from nugget.config import load_settings, read_environment
from nugget.errors import UsageError
from nugget.render.terminal import console, note, print_evidence
from nugget.text import clean, counted, shorten

if TYPE_CHECKING:
    from nugget.app.logs import Logs
    from nugget.evidence import IngestedSession

commands = typer.Typer(add_completion=False)
logs = typer.Typer(help="What happened in shells and agent sessions: commands, failures, fixes.", no_args_is_help=True)
commands.add_typer(logs, name="logs")


class Intent(StrEnum):
    """Intents of a question, as the option takes them."""

    DEBUG = "debug"
    RESUME = "resume"
    WHAT_CHANGED = "what-changed"
    STATUS = "status"
    GENERAL = "general"


class Shell(StrEnum):
    """Shells that can be recorded."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@logs.command("ingest")
def ingest(
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="The id of a session.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every session of shells and agents.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take in what is new in the logs of a session, or of all."""
    if (session is None) != everything:
        raise UsageError("Name a session, or give --all.", hint="`nugget logs sessions` lists the sessions there are.")
    with _opened() as opened:
        done, problems = opened.ingest(session)
    for problem in problems:
        note(str(problem))
    if as_json:
        results = [_ingested_json(result) for result in done]
        print_json(results[0] if session is not None else {"sessions": results, "problems": [str(p) for p in problems]})
        return
    for result in done:
        typer.echo(clean(_ingested_line(result)))
    if not done:
        typer.echo("Nothing new.")


@logs.command("context")
def bundle(
    question: Annotated[list[str] | None, typer.Argument(metavar="[QUESTION]", help="What you want to know.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="A session, by its id.")] = None,
    last: Annotated[bool, typer.Option("--last", help="The session that was last written to (the default).")] = False,
    workspace: Annotated[bool, typer.Option("--workspace", help="All sessions of this code repository.")] = False,
    intent: Annotated[
        Intent | None, typer.Option("--intent", metavar="INTENT", help=f"One of: {', '.join(Intent)}.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show scores, reasons and positions.")] = False,
    max_chars: Annotated[
        int, typer.Option("--max-chars", metavar="N", min=0, help="Most characters of the text.")
    ] = 12_000,
    max_lines: Annotated[int, typer.Option("--max-lines", metavar="N", min=0, help="Most lines of the text.")] = 120,
    max_incidents: Annotated[int, typer.Option("--max-incidents", metavar="N", min=0, help="Most incidents.")] = 5,
    output_window: Annotated[
        int, typer.Option("--output-window", min=0, metavar="LINES", help="Latest lines of each stream to look at.")
    ] = 40,
    artifacts: Annotated[bool, typer.Option("--artifacts/--no-artifacts", help="With or without notes.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Show evidence for a question: failures with their output and fixes, edits, todos, where you were.

    New logs of the session are taken in first.
    """
    from nugget.evidence import BundleOptions, bundle_json

    if sum((session is not None, last, workspace)) > 1:
        raise UsageError("Give one of --session, --last and --workspace.")
    options = BundleOptions(
        intent=intent, max_lines=max_lines, max_chars=max_chars, output_window=output_window,
        max_incidents=max_incidents, include_artifacts=artifacts, explain=explain,
    )  # fmt: skip
    text = " ".join(question or ())
    with _opened() as opened:
        if workspace:
            found = opened.workspace_evidence(current_folder(), text, options)
        else:
            found = opened.session_evidence(session, text, options)
    if as_json:
        print_json(bundle_json(found, explain=explain))
    else:
        print_evidence(console(), found, explain=explain)


@logs.command("sessions")
def list_logged(
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Most sessions.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the sessions that have been taken in, the latest first, and how many more there are."""
    with _opened() as opened:
        known, counts, total, waiting = opened.sessions(limit)
    if as_json:
        shown = [
            {
                "session_id": one.id, "source": one.source, "agent": one.agent, "folder": one.folder,
                "title": one.title, "workspace": one.workspace, "started_ts_ms": one.started_ms,
                "ended_ts_ms": one.ended_ms, **counts[one.key],
            }
            for one in known
        ]  # fmt: skip
        print_json({"sessions": shown, "known": total, "not_ingested": waiting})
        return
    for one in known:
        about = counts[one.key]
        ended = datetime.fromtimestamp(one.ended_ms / 1000, UTC) if one.ended_ms else None
        facts = [
            counted(about["commands"], "command"),
            counted(about["incidents"], "incident"),
            f"{about['open']} open",
        ]
        line = f"{one.id}  {ended:%Y-%m-%d %H:%M}" if ended else f"{one.id}  -"
        title = shorten(one.title or one.folder or "", 60)
        typer.echo(clean(f"{line}  {one.agent or one.source}  {', '.join(facts)}  {title}".rstrip()))
    if not total:
        typer.echo("Nothing has been taken in yet.")
    if waiting:
        note(f"{counted(waiting, 'session')} not taken in yet: `nugget logs ingest --all`.")


@commands.command()
def shell_init(
    shell: Annotated[Shell, typer.Argument(help="The shell to print the hook for.")],
) -> None:
    """Print a hook that records a shell: each command with its exit code, duration and folder.

    Nothing is recorded until you have your shell read it, as in `eval "$(nugget shell-init bash)"`. A command that
    begins with a space, or that NUGGET_SHELL_IGNORE names, is not recorded.
    """
    from nugget.infra.files import resource

    typer.echo(resource(f"shell_hooks/nugget.{shell.value}").read_text("utf-8"), nl=False)


@contextmanager
def _opened() -> Iterator[Logs]:
    from nugget.app.logs import Logs

    environment = read_environment()
    with progress() as tell:
        yield Logs(environment=environment, settings=load_settings(environment), progress=tell, note=note)


def _ingested_line(result: IngestedSession) -> str:
    parts = [
        counted(result.events, "event"), counted(result.command_inputs, "input"),
        counted(result.pane_output, "line") + " of output", counted(result.file_edits, "edit"),
        counted(result.incidents, "incident"), counted(result.working_notes, "working note"),
    ]  # fmt: skip
    bad = f"; {counted(result.malformed, 'malformed line')}" if result.malformed else ""
    return f"{result.session}: {', '.join(parts)}{bad}"


def _ingested_json(result: IngestedSession) -> dict[str, Any]:
    value = asdict(result)
    return {"session_id": value.pop("session"), **value, "anew": list(result.anew), "redacted": dict(result.redacted)}
