"""`nugget sessions`: the sessions of the current workspace, and what happened in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.asking import moment
from nugget.cli.provenance import brain_if_any
from nugget.cli.terminal import JsonOption, console, current_folder, print_json
from nugget.config import load_settings, read_environment
from nugget.dates import DATE_FORMS
from nugget.render import clean, one_line
from nugget.text import counted, shorten

if TYPE_CHECKING:
    import sqlite3

    from nugget.infra.workspace import Workspace
    from nugget.provenance.sessions import KnownSession, SessionDetail

SHOWN_PROMPTS = 20
SHOWN_FILES = 40

sessions = typer.Typer(
    help="The agent sessions of this workspace, newest first.", invoke_without_command=True, no_args_is_help=False
)


@sessions.callback()
def list_sessions(
    ctx: typer.Context,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help=f"Only since then: {DATE_FORMS}.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The agent sessions of this workspace, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    from nugget.provenance.sessions import workspace_sessions

    environment, now = read_environment(), datetime.now(UTC)
    with _opened() as (connection, workspace):
        found = workspace_sessions(connection, workspace, environment, since=moment(since, now=now))
    if as_json:
        print_json({"workspace": workspace.identity, "sessions": [_session_json(one) for one in found]})
    else:
        _print_sessions(found, workspace)


@sessions.command()
def inspect(
    session: Annotated[str, typer.Argument(metavar="ID", help="A session's id, or the beginning of it.")],
    as_json: JsonOption = False,
) -> None:
    """Show one session: its prompts, the files that it touched, what was learned, a summary of its events."""
    from nugget.provenance.sessions import session_detail

    environment = read_environment()
    settings = load_settings(environment, brain_if_any(None, environment))
    with _opened() as (connection, workspace):
        detail = session_detail(connection, workspace, environment, settings, session)
    if as_json:
        print_json(_detail_json(detail))
    else:
        _print_detail(detail)


@contextmanager
def _opened() -> Iterator[tuple[sqlite3.Connection, Workspace]]:
    from nugget.provenance.asking import find_here, opened_index

    with opened_index(read_environment().home) as connection:
        yield connection, find_here(connection, current_folder())


def _session_json(one: KnownSession) -> dict[str, object]:
    from nugget.render.nuggets import iso_date

    record = one.record
    return {
        "id": record.session, "agent": record.agent, "title": record.title or None, "branch": record.branch,
        "started": iso_date(record.started), "ended": iso_date(record.ended), "extracted": one.indexed is not None,
        "nuggets": one.indexed.nuggets if one.indexed else 0, "files": one.indexed.files if one.indexed else 0,
    }  # fmt: skip


def _detail_json(detail: SessionDetail) -> dict[str, object]:
    return _session_json(detail.known) | {
        "prompts": list(detail.prompts),
        "artifacts": [
            {"path": touch.path, "action": str(touch.action), "previousPath": touch.previous_path,
             "sha256": touch.after_hash}
            for touch in detail.touches
        ],
        "events": dict(detail.events),
        "failed": detail.failed,
        "learned": [
            {"id": one.id, "type": str(one.type), "summary": one.summary, "scope": one.scope.path or "workspace"}
            for one in detail.nuggets
        ],
        "problem": detail.problem,
    }  # fmt: skip


def _print_sessions(found: list[KnownSession], workspace: Workspace) -> None:
    from rich.text import Text

    out = console()
    if not found:
        out.print(Text(f"No sessions of {one_line(workspace.name)} are known.", style="yellow"))
        return
    out.print(Text(f"{'ID':<10}{'Started':<18}{'Agent':<13}{'Nuggets':>7}{'Files':>7}  Title", style="bold"))
    for one in found:
        record, known = one.record, one.indexed
        when = record.started or record.ended
        counts = f"{known.nuggets:>7}{known.files:>7}" if known else f"{'-':>7}{'-':>7}"
        title = shorten(one_line(record.title or record.first_prompt), 70) or ("" if known else "(not extracted yet)")
        line = f"{one_line(record.session)[:8]:<10}{f'{when:%Y-%m-%d %H:%M}' if when else '':<18}"
        out.print(Text(f"{line}{one_line(record.agent)[:12]:<13}{counts}  {title}".rstrip()))
    waiting = sum(one.indexed is None for one in found)
    out.print(Text(f"\n{counted(len(found), 'session')}." + (
        f" {waiting} not extracted yet: `nugget extract` reads them." if waiting else ""), style="dim"))  # fmt: skip


def _print_detail(detail: SessionDetail) -> None:
    from rich.text import Text

    from nugget.render.nuggets import iso_date

    out, record = console(), detail.known.record
    facts = [
        ("Session", record.session), ("Agent", record.agent), ("Title", record.title), ("Branch", record.branch or ""),
        ("Started", iso_date(record.started) or ""), ("Ended", iso_date(record.ended) or ""),
    ]  # fmt: skip
    for name, value in facts:
        if value:
            out.print(Text.assemble((f"{name + ':':<10}", "dim"), one_line(value)))
    out.print(Text(f"\nPrompts ({len(detail.prompts)})", style="bold"))
    for number, prompt in enumerate(detail.prompts[:SHOWN_PROMPTS], 1):
        out.print(Text(f"  {number}. {shorten(clean(prompt), 200)}"))
    if len(detail.prompts) > SHOWN_PROMPTS:
        out.print(Text(f"  and {len(detail.prompts) - SHOWN_PROMPTS} more", style="dim"))
    out.print(Text(f"\nArtifacts ({len(detail.touches)})", style="bold"))
    for touch in detail.touches[:SHOWN_FILES]:
        came = f" (from {one_line(touch.previous_path)})" if touch.previous_path else ""
        out.print(Text(f"  {touch.action:<9} {one_line(touch.path)}{came}"))
    if len(detail.touches) > SHOWN_FILES:
        out.print(Text(f"  and {len(detail.touches) - SHOWN_FILES} more", style="dim"))
    out.print(Text(f"\nLearned ({len(detail.nuggets)})", style="bold"))
    for one in detail.nuggets:
        out.print(Text(f"  {one.id}  [{one.type}] {one_line(one.summary)}"))
    events = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(detail.events.items()))
    failed = f"; {detail.failed} failed" if detail.failed else ""
    out.print(Text(f"\nEvents: {events or 'none known'}{failed}", style=""))
    if detail.problem:
        out.print(Text(one_line(detail.problem), style="yellow"))
