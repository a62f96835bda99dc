"""Commands that set up, serve and back up a brain: init, clone, trust, serve, web, backup, self-check, token."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from nugget.cli import BrainOption, JsonOption, brains, doctor, open_brain, progress, repair, show, team
from nugget.cli.install import offer_install, prepare
from nugget.config import current_folder, expanded, load_settings, read_environment
from nugget.errors import UsageError
from nugget.models import Severity
from nugget.render.terminal import note, put, put_report
from nugget.text import clean, counted, printable
from nugget.upkeep import clone_brain, distrust, make_brain, trust, trusted, usable_brains

commands = typer.Typer(add_completion=False)


@commands.command()
def init(
    path: Annotated[
        Path | None,
        Argument(
            metavar="PATH", help="The folder; by default the current one if it is empty or a brain, otherwise ~/brain."
        ),
    ] = None,
    remote: Annotated[str | None, Option("--remote", metavar="URL", help="Git remote to push to.")] = None,
    install: Annotated[bool, Option("--install/--no-install", help="Offer to connect Claude Code.")] = True,
    examples: Annotated[bool, Option("--examples", help="Add a folder with examples of good units.")] = False,
    brain: BrainOption = None,
) -> None:
    """Create a brain and make it the default.

    A brain is a git repository of markdown files. Running the command again keeps every existing file.
    """
    environment = read_environment()
    root, is_new = make_brain(environment, path or brain, remote=remote, examples=examples, note=note)
    put(f"{'Made the brain' if is_new else 'The brain is there already:'} {root}")
    put("It is the default brain now; `--brain` and NUGGET_BRAIN choose another.", style="dim")
    prepare(root)
    put_report("next_steps", is_connected=not install or offer_install(environment))


@commands.command()
def clone(
    url: Annotated[str, Argument(metavar="URL", help="Address of the repository, as for git.")],
    path: Annotated[
        Path | None,
        Argument(metavar="PATH", help="The new folder; by default the repository's name in the current folder."),
    ] = None,
) -> None:
    """Clone a brain, check it, trust it and index it.

    It becomes the default brain if you have no other. Its hooks and submodules are not run.
    """
    real, is_new, first = clone_brain(read_environment(), url, path)
    with open_brain(real) as opened, progress():
        problems = opened.lint()
        opened.sync()
    how = "Cloned the brain into" if is_new else "The clone is there already:"
    put(f"{how} {real}; it is trusted{' and the default' * first}.")
    if problems:
        errors = sum(problem.severity is Severity.ERROR for problem in problems)
        warnings = len(problems) - errors
        put(f"It has {counted(errors, 'error')} and {counted(warnings, 'warning')}. Next: nugget lint")


@commands.command("trust")
def trust_brain(
    path: Annotated[Path | None, Argument(metavar="PATH", help="The brain; by default the current folder.")] = None,
    listed: Annotated[bool, Option("--list", help="List trusted brains.")] = False,
    remove: Annotated[bool, Option("--remove", help="Stop trusting this brain.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Trust a brain: commands that you run in its folder use it.

    You must own the folder and its parent folders, and no other user may write to them. The index is rebuilt.
    """
    environment, folder = read_environment(), expanded(path) if path else current_folder()
    if listed:
        named = [str(one["path"]) for one in trusted(environment)]
        text = "\n".join(named) or "No brain is trusted but the default one."
    elif remove:
        if not distrust(environment, folder):
            raise UsageError(f"{printable(str(folder))} is not trusted.", hint="`nugget trust --list` shows what is.")
        named, text = [], f"{folder.absolute()} is no longer trusted."
    else:
        real = trust(environment, folder)
        named, text = [str(real)], f"{real} is trusted: commands that you run in it use it."
    show({"trusted": named} if as_json else None, text)


@commands.command()
def serve(
    address: Annotated[
        str | None, Argument(metavar="HOST:PORT", help="Address to listen on with --http; default 127.0.0.1:5033.")
    ] = None,
    http: Annotated[bool, Option("--http", help="Serve MCP, search, ask and shell logs over HTTP.")] = False,
    compat: Annotated[
        Literal["openqed"] | None, Option("--compat", metavar="NAME", help="Also offer openqed's tools over MCP.")
    ] = None,
    identity: Annotated[
        str | None, Option("--as", metavar="IDENTITY", help="Identity whose memory agents may search; none by default.")
    ] = None,
    no_token: Annotated[
        bool, Option("--no-token", help="With --http: answer any program on this machine without a token.")
    ] = False,
    brain: BrainOption = None,
) -> None:
    """Serve the brain to coding agents over MCP (stdin and stdout), or over HTTP.

    Over HTTP only this machine can connect, unless you give another address. Every request needs a token: the one in
    NUGGET_HTTP_TOKEN, or one that the server creates when it first starts.
    """
    folder, openqed = expanded(brain) if brain else None, compat == "openqed"
    if http:
        from nugget.http import serve as answer_requests
        from nugget.http import serve_team

        environment = read_environment()
        if (settings := load_settings(environment)).http_auth:
            serve_team(environment, settings, address)
            return
        answer_requests(address, brain=folder, openqed=openqed, identity=identity, with_token=not no_token)
    elif address or no_token:
        given = address or "--no-token"
        raise UsageError(f"{given!r} is only used with --http.", hint=f"nugget serve --http {given}")
    else:
        from nugget.mcp import serve as answer_agents

        answer_agents(folder, openqed=openqed, identity=identity)


ArchiveArgument = Annotated[Path, Argument(metavar="FILE", help="The archive, such as nugget-backup.tar.gz.")]


@commands.command("backup")
def make_backup(file: ArchiveArgument) -> None:
    """Archive what Nugget cannot derive again: sessions, ledgers, nuggets, settings.

    The brain, a git repository, is not included. The archive holds what you said in sessions: keep it private.
    """
    put(f"{counted(repair.backup(read_environment().home, expanded(file)), 'file')} in {file}.")


@commands.command("restore")
def restore_backup(file: ArchiveArgument) -> None:
    """Restore a backup into NUGGET_HOME, which must be empty."""
    put(f"{counted(repair.restore(read_environment().home, expanded(file)), 'file')} restored. Next: nugget sync")


@commands.command("self-check")
def check_itself(as_json: JsonOption = False) -> None:
    """Check that this installation works: from a session to an answer, in a temporary home, offline.

    Your brain and settings are neither read nor changed. The exit code is 1 if something does not work.
    """
    found = []
    for finding in doctor.self_check():
        found.append(finding)
        if not as_json:
            put("{state:7} {name:10} {said}".format(**finding))
    works = all(finding["state"] == "ok" for finding in found)
    show({"ok": works, "findings": found} if as_json else None, "It works." if works else "It does not work.")
    raise typer.Exit(0 if works else 1)


@commands.command()
def web(
    port: Annotated[int | None, Option("--port", metavar="N", min=0, max=65535, help="Port; default 5034.")] = None,
    opens: Annotated[bool, Option("--open/--no-open", help="Open the page in the browser.")] = True,
    identity: Annotated[
        str | None, Option("--as", metavar="IDENTITY", help="Identity whose memory is searched; none by default.")
    ] = None,
    brain: BrainOption = None,
) -> None:
    """Show the brain in the browser: review, search, read and edit.

    Only this machine can connect, by an address that works once; run the command again for a new one.
    """
    from nugget import web as page

    page.serve(expanded(brain) if brain else None, port=port, opens=opens, identity=identity)


token = typer.Typer(help="Give access to the spaces of a team's server.", no_args_is_help=True)
commands.add_typer(token, name="token")
index = typer.Typer(help="Manage a team's index in PostgreSQL.", no_args_is_help=True)
commands.add_typer(index, name="index")


@index.command()
def migrate() -> None:
    """Create or upgrade the schema of a team's index. Run this as the owner of the database."""
    before, after = brains.migrate_index(load_settings(read_environment()).index)
    put(f"The schema is at version {after}" + ("." if before == after else f"; it was at {before}."))


@token.command("new")
def new_token(
    identity: Annotated[str, Option("--identity", metavar="NAME", help="Whose token it is, such as a login.")],
    space: Annotated[
        list[str], Option("--space", metavar="NAME:RIGHT", help="A space and the right in it: read or write.")
    ],
    expires: Annotated[str | None, Option("--expires", metavar="90d", help="Days until it expires, or never.")] = "90d",
) -> None:
    """Create a token and print it. It is stored as a hash and cannot be shown again."""
    days = re.fullmatch(r"([1-9]\d{0,4})d", expires or "")
    if expires not in (None, "never") and days is None:
        raise UsageError(f"{expires!r} is not a number of days.", hint="Write 90d, or never.")
    environment = read_environment()
    rights, (known, _) = team.parse_rights(space), usable_brains(environment, load_settings(environment))
    for name in rights.keys() - known.keys():
        note(f"There is no space {name} yet. Spaces are your brains: {', '.join(known) or 'none'}.")
    put(team.make_token(environment.home, identity, rights, days=int(days[1]) if days else None, now=datetime.now(UTC)))


@token.command("list")
def list_tokens(as_json: JsonOption = False) -> None:
    """List the tokens with their identities, rights and expiry dates."""
    known = team.tokens(read_environment().home)
    values = [{key: value for key, value in asdict(one).items() if key != "hash"} for one in known]
    show({"tokens": values} if as_json else None, report="tokens", tokens=known)


@token.command("revoke")
def revoke_token(token_id: Annotated[str, Argument(metavar="ID", help="The id from `nugget token list`.")]) -> None:
    """Revoke a token immediately."""
    gone = team.revoke_token(read_environment().home, token_id)
    put(f"Revoked {gone.id} of {clean(gone.identity)}.")
