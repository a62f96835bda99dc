"""`nugget sessions show`: read a whole session."""

from __future__ import annotations

from typing import Annotated

import typer

from nugget.cli.paging import PagerOption, paged
from nugget.cli.provenance import brain_if_any
from nugget.cli.sessions import sessions
from nugget.cli.terminal import JsonOption, console, print_json
from nugget.config import load_settings, read_environment


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
    from nugget.cli.session_layout import print_session
    from nugget.sources.whole_session import read_whole_session, whole_session_json

    environment = read_environment()
    settings = load_settings(environment, brain_if_any(None, environment))
    whole = read_whole_session(environment, settings, session)
    if as_json:
        print_json(whole_session_json(whole))
        return
    out = console()
    with paged(out, is_wanted=pager):
        print_session(out, whole, full=full)
