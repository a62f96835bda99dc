"""`nugget logs` and `nugget shell-init`: what happened in shells and sessions, and the hook that records a shell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli.terminal import JsonOption, console, current_folder, note, print_json, progress
from nugget.config import Environment, load_settings, read_environment
from nugget.errors import EmbeddingUnavailable, IndexUnavailable, NuggetError, UsageError
from nugget.render import clean
from nugget.text import counted, shorten

if TYPE_CHECKING:
    import sqlite3

    from nugget.config import Settings
    from nugget.evidence import BundleOptions, EvidenceBundle, Ingested
    from nugget.models import Problem

logs = typer.Typer(help="What happened in shells and agent sessions: commands, failures, fixes.", no_args_is_help=True)


class Intent(StrEnum):
    """The modes of a question, as the option takes them."""

    DEBUG = "debug"
    RESUME = "resume"
    WHAT_CHANGED = "what-changed"
    STATUS = "status"
    GENERAL = "general"


class Shell(StrEnum):
    """The shells that can be recorded."""

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
    from nugget import evidence

    if (session is None) != everything:
        raise UsageError("Name a session, or give --all.", hint="`nugget logs sessions` lists the sessions there are.")
    with _index() as (connection, environment, settings):
        if session is not None:
            log = evidence.find_log(environment, session)
            if log is None:
                raise NuggetError(f"There are no logs of a session {session}.", hint=_where(environment))
            problems: list[Problem] = []
            done = [evidence.ingest(connection, log, settings=settings, now=datetime.now(UTC))]
        else:
            with progress() as tell:
                done, problems = evidence.ingest_all(
                    connection, environment, settings=settings, now=datetime.now(UTC), progress=tell
                )
        _sync_units(connection, environment, settings)
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
    intent: Annotated[Intent | None, typer.Option("--intent", help="Instead of the one the question shows.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show scores, reasons and where it stands.")] = False,
    max_chars: Annotated[int, typer.Option("--max-chars", min=0, help="Characters of the text, at most.")] = 12_000,
    max_lines: Annotated[int, typer.Option("--max-lines", min=0, help="Lines of the text, at most.")] = 120,
    max_incidents: Annotated[int, typer.Option("--max-incidents", min=0, help="Incidents, at most.")] = 5,
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
    from nugget.redaction import allow_list, redact

    if sum((session is not None, last, workspace)) > 1:
        raise UsageError("Give one of --session, --last and --workspace.")
    options = BundleOptions(
        intent=intent, max_lines=max_lines, max_chars=max_chars, output_window=output_window,
        max_incidents=max_incidents, include_artifacts=artifacts, explain=explain,
    )  # fmt: skip
    with _index() as (connection, environment, settings):
        text = redact(" ".join(question or ()), allow=allow_list(settings)).text
        if workspace:
            found = _ask_workspace(connection, environment, settings, text, options)
        else:
            found = _ask_session(connection, environment, settings, session, text, options)
    if as_json:
        print_json(bundle_json(found, explain=explain))
        return
    out = console()
    out.print(clean(found.context_text))
    if explain:
        _print_explanation(found)


@logs.command("sessions")
def sessions(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Sessions, at most.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """The sessions that have been taken in, the latest first, and how many there are beside."""
    from nugget import evidence
    from nugget.index.events import log_sessions
    from nugget.sources.records import parse_moment

    with _index() as (connection, environment, _):
        known = log_sessions(connection)
        waiting = {log.id for log in evidence.all_logs(environment)} - {one.id for one in known}
        counts = evidence.session_counts(connection, known[:limit])
    if as_json:
        shown = [
            {
                "session_id": one.id, "source": one.source, "agent": one.agent, "folder": one.folder,
                "title": one.title, "workspace": one.workspace, "started_ts_ms": one.started_ms,
                "ended_ts_ms": one.ended_ms, **counts[one.key],
            }
            for one in known[:limit]
        ]  # fmt: skip
        print_json({"sessions": shown, "known": len(known), "not_ingested": len(waiting)})
        return
    for one in known[:limit]:
        about = counts[one.key]
        ended = parse_moment(one.ended_ms) if one.ended_ms else None
        when = ended.strftime("%Y-%m-%d %H:%M") if ended else "-"
        told = (
            f"{counted(about['commands'], 'command')}, {counted(about['incidents'], 'incident')}, {about['open']} open"
        )
        named = shorten(one.title or one.folder or "", 60)
        typer.echo(clean(f"{one.id}  {when}  {one.agent or one.source}  {told}  {named}".rstrip()))
    if not known:
        typer.echo("Nothing has been taken in yet.")
    if waiting:
        note(f"{counted(len(waiting), 'session')} not taken in yet: `nugget logs ingest --all`.")


def shell_init(
    shell: Annotated[Shell, typer.Argument(help="The shell to print the hook for.")],
) -> None:
    """Print a hook that records a shell: each command with its exit code, duration and folder.

    Nothing is recorded until you have your shell read it, as in `eval "$(nugget shell-init bash)"`. A command that
    begins with a space, or that NUGGET_SHELL_IGNORE names, is not recorded.
    """
    from nugget.infra.resources import resource

    typer.echo(resource(f"shell_hooks/nugget.{shell.value}").read_text("utf-8"), nl=False)


@contextmanager
def _index() -> Iterator[tuple[sqlite3.Connection, Environment, Settings]]:
    """The machine's index, opened for writing; SQLite's failures as Nugget's."""
    import sqlite3

    from nugget.index.home import open_home

    environment = read_environment()
    settings = load_settings(environment)
    connection = open_home(environment.home)
    try:
        yield connection, environment, settings
    except sqlite3.Error as error:
        raise IndexUnavailable(f"The machine's index could not be used ({error}).", hint="Try again.") from error
    finally:
        connection.close()


def _ask_session(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    session: str | None,
    text: str,
    options: BundleOptions,
) -> EvidenceBundle:
    from nugget import evidence

    if session is None:
        log = max(evidence.all_logs(environment), key=lambda log: (log.mtime, log.id), default=None)
        if log is None:
            raise NuggetError("There are no logs of any session yet.", hint=_where(environment))
    else:
        log = evidence.find_log(environment, session)
    now = datetime.now(UTC)
    name = session or (log.id if log else "")
    if log is not None:
        name = log.id
        evidence.ingest(connection, log, settings=settings, now=now)
    return evidence.evidence_bundle(connection, name, text, options=options, now=now)


def _where(environment: Environment) -> str:
    return f"Shell logs are looked for in {environment.shell_logs}, transcripts where agents keep them."


def _ask_workspace(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, text: str, options: BundleOptions
) -> EvidenceBundle:
    from nugget import evidence
    from nugget.index.events import log_sessions
    from nugget.index.home import read_home
    from nugget.infra.workspace import find_workspace

    now = datetime.now(UTC)
    with progress() as tell:
        evidence.ingest_all(connection, environment, settings=settings, now=now, progress=tell)

    def is_known(identity: str) -> bool:
        return bool(log_sessions(connection, workspace=identity, limit=1))

    here = find_workspace(current_folder(), is_known=is_known)
    if here is None or not is_known(here.identity):
        raise NuggetError(
            f"No session with logs has worked in {current_folder()}.",
            hint="`nugget logs sessions` shows those there are; ask one with --session.",
        )
    embedder = _sync_units(connection, environment, settings)
    index = read_home(environment.home)
    try:
        return evidence.workspace_bundle(
            index, text, workspace=here.identity, options=options, embedder=embedder, now=now
        )
    finally:
        index.close()


def _sync_units(connection: sqlite3.Connection, environment: Environment, settings: Settings) -> Any:
    """Make incidents and notes searchable by meaning, as far as there is a model; returns it."""
    from nugget import evidence
    from nugget.index.sync.missing_vectors import embed_missing
    from nugget.infra.embedding import open_embedder

    evidence.put_evidence_units(connection)
    try:
        embedder = open_embedder(settings, environment)
    except EmbeddingUnavailable as error:
        note(f"{error} Searching by words alone.")
        return None
    if embedder is not None:
        with progress() as tell:
            done = embed_missing(
                connection, embedder=embedder, cache_folder=environment.home / "embeddings", progress=tell
            )
        if done.unavailable:
            note(f"{done.unavailable} Searching by words alone.")
    return embedder


def _print_explanation(found: EvidenceBundle) -> None:
    out = console()
    caps = ", ".join(f"{name} {cap}" for name, cap in found.category_caps.items())
    out.print(f"\n{len(found.selected)} of {counted(found.candidate_count, 'candidate')} selected; caps: {caps}")
    for one in found.selected:
        reasons = ", ".join(one.reasons)
        place = f"{one.source_table} {one.source_id}, ts_ms {one.ts_ms}"
        out.print(clean(f"{one.score:.2f} {one.kind}: {shorten(one.text, 100)}"))
        out.print(clean(f"     {place}; {reasons}"), style="dim")


def _ingested_line(result: Ingested) -> str:
    parts = [
        counted(result.events, "event"), counted(result.command_inputs, "input"),
        counted(result.pane_output, "line") + " of output", counted(result.file_edits, "edit"),
        counted(result.incidents, "incident"), counted(result.working_notes, "working note"),
    ]  # fmt: skip
    bad = f"; {counted(result.malformed, 'malformed line')}" if result.malformed else ""
    return f"{result.session}: {', '.join(parts)}{bad}"


def _ingested_json(result: Ingested) -> dict[str, Any]:
    value = asdict(result)
    return {"session_id": value.pop("session"), **value, "anew": list(result.anew), "redacted": dict(result.redacted)}
