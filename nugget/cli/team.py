"""Commands for a team's server: token, with new, list and revoke."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from typer import Argument, Option

from nugget.cli.terminal import JsonOption, show
from nugget.config import load_settings, read_environment
from nugget.errors import UsageError
from nugget.render.terminal import note, put
from nugget.text import clean

commands = typer.Typer(add_completion=False)
token = typer.Typer(help="Give access to the spaces of a team's server.", no_args_is_help=True)
commands.add_typer(token, name="token")
index = typer.Typer(help="Look after a team's index in PostgreSQL.", no_args_is_help=True)
commands.add_typer(index, name="index")


@index.command()
def migrate() -> None:
    """Create the schema of a team's index, or bring it forward. Run it as the owner of the database."""
    from nugget.app import team_index

    before, after = team_index.migrate_index(load_settings(read_environment()).index)
    put(f"The schema is at version {after}" + ("." if before == after else f"; it was at {before}."))


@token.command("new")
def new_token(
    identity: Annotated[str, Option("--identity", metavar="NAME", help="Whose token it is, such as a login.")],
    space: Annotated[
        list[str], Option("--space", metavar="NAME:RIGHT", help="A space and the right in it: read or write.")
    ],
    expires: Annotated[str | None, Option("--expires", metavar="90d", help="Days until it expires; never.")] = "90d",
) -> None:
    """Create a token and print it. It is stored as a hash and cannot be shown again."""
    from nugget.app import team

    days = re.fullmatch(r"([1-9]\d{0,4})d", expires or "")
    if expires not in (None, "never") and days is None:
        raise UsageError(f"{expires!r} is not a number of days.", hint="Write 90d, or never.")
    environment = read_environment()
    rights, known = team.parse_rights(space), team.spaces(environment)[0]
    for name in rights.keys() - known.keys():
        note(f"There is no space {name} yet. Spaces are your brains: {', '.join(known) or 'none'}.")
    put(team.make_token(environment.home, identity, rights, days=int(days[1]) if days else None, now=datetime.now(UTC)))


@token.command("list")
def list_tokens(as_json: JsonOption = False) -> None:
    """List the tokens with their identity, their rights and their last day."""
    from nugget.app import team

    known = team.tokens(read_environment().home)
    values = [{key: value for key, value in asdict(one).items() if key != "hash"} for one in known]

    def print_tokens() -> None:
        for one in known:
            rights = ", ".join(f"{name}:{right}" for name, right in one.spaces.items())
            put(clean(f"{one.id}  {one.identity}  {rights}  until {(one.expires or 'revoked')[:10]}"))
        if not known:
            put("There are no tokens. `nugget token new` creates one.")

    show({"tokens": values} if as_json else None, print_tokens)


@token.command("revoke")
def revoke_token(token_id: Annotated[str, Argument(metavar="ID", help="The id from `nugget token list`.")]) -> None:
    """Revoke a token at once."""
    from nugget.app import team

    gone = team.revoke_token(read_environment().home, token_id)
    put(f"Revoked {gone.id} of {clean(gone.identity)}.")
