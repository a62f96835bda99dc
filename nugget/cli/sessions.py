"""`nugget sessions`: list, inspect and read the sessions of a workspace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.terminal import JsonOption, PagerOption, moment, paged, print_json, provenance
from nugget.render.json import session_detail_json, session_json, whole_session_json
from nugget.render.sessions import print_session, print_session_detail, print_sessions
from nugget.render.terminal import console
from nugget.text import DATE_FORMS

if TYPE_CHECKING:
    pass

commands = typer.Typer(add_completion=False)


sessions = typer.Typer(
    help="The agent sessions of this workspace, newest first.", invoke_without_command=True, no_args_is_help=False
)
commands.add_typer(sessions, name="sessions")


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
    workspace, found = provenance().sessions(moment(since, now=datetime.now(UTC)))
    if as_json:
        print_json({"workspace": workspace.identity, "sessions": [session_json(one) for one in found]})
    else:
        print_sessions(found, workspace)


@sessions.command()
def inspect(
    session: Annotated[str, typer.Argument(metavar="ID", help="A session's id, or the beginning of it.")],
    as_json: JsonOption = False,
) -> None:
    """Show one session: its prompts, the files that it touched, what was learned, a summary of its events."""
    detail = provenance().session(session)
    if as_json:
        print_json(session_detail_json(detail))
    else:
        print_session_detail(detail)


@sessions.command()
def show(
    session: Annotated[str, typer.Argument(metavar="ID", help="The session's id, or its beginning, or a ref.")],
    full: Annotated[bool, typer.Option("--full", help="Unfold what was run, printed and written.")] = False,
    pager: PagerOption = True,
    as_json: JsonOption = False,
) -> None:
    """Read a whole session: what you and the agent said, with commands and their results folded.

    Secrets are taken out. A session that the client deleted is read from Nugget's archive.
    """
    whole = provenance().whole_session(session)
    if as_json:
        print_json(whole_session_json(whole))
        return
    out = console()
    with paged(out, is_wanted=pager):
        print_session(out, whole, full=full)
