"""Commands that set up a brain and serve it: init, clone, trust, serve."""

from __future__ import annotations

import getpass
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from nugget.brain import is_brain
from nugget.cli.install import offer_install, prepare_redaction
from nugget.cli.terminal import BrainOption, JsonOption, current_folder, open_brain, print_json, progress
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import BrainError, GitError, UsageError
from nugget.infra import files, git, github
from nugget.models import Severity
from nugget.render.terminal import console, note
from nugget.text import clean, counted, printable
from nugget.upkeep.trust import (
    brain_around,
    default_brain,
    distrust,
    refuse_unsafe_parent,
    set_default_brain,
    trust,
    trusted,
)

if TYPE_CHECKING:
    from nugget.config import Environment

commands = typer.Typer(add_completion=False)


@commands.command()
def init(
    path: Annotated[
        Path | None,
        Argument(metavar="PATH", help="The folder; else this one when it is empty or a brain, else ~/brain."),
    ] = None,
    remote: Annotated[str | None, Option("--remote", metavar="URL", help="Where the brain is pushed to.")] = None,
    install: Annotated[bool, Option("--install/--no-install", help="Offer to connect Claude Code.")] = True,
    examples: Annotated[bool, Option("--examples", help="Show in a folder what good units look like.")] = False,
    brain: BrainOption = None,
) -> None:
    """Make a brain and use it by default.

    A brain is a git repository of markdown files. Safe to run again: what is there stays.
    """
    from nugget.brain import init_brain

    environment = read_environment()
    before = default_brain(environment)  # a config.yaml that cannot be read is reported before anything is made
    folder = expanded(path or brain or environment.brain or _usual_folder(environment))
    if (shown := printable(str(folder))) != str(folder):
        raise UsageError(f"A brain cannot be in a folder with such a name: {shown}.", hint="Name another folder.")
    result = init_brain(folder, owner=_owner(), now=datetime.now(UTC), examples=examples)
    if remote:
        known = git.run(result.path, "remote", check=False).decode().split()
        git.run(result.path, "remote", "set-url" if "origin" in known else "add", "origin", "--", remote)
    try:
        set_default_brain(environment, result.path)
    except OSError as error:
        message = f"{result.path} is made, but not the default brain: {environment.home}/config.yaml cannot be written"
        raise BrainError(
            f"{message} ({(error.strerror or str(error)).lower()}).", hint=f"Use it by `--brain {result.path}`."
        ) from error
    try:
        trust(environment, result.path, keep_index=result.created or before == result.path)
    except UsageError as error:
        note(f"{error} It is used as the default brain all the same.")
    out = console()
    out.print(f"{'Made the brain' if result.created else 'The brain is there already:'} {clean(str(result.path))}")
    out.print("It is the default brain now; `--brain` and NUGGET_BRAIN choose another.", style="dim")
    if result.problem:
        note(f"Without git: {result.problem}")
    prepare_redaction()
    is_connected = install and offer_install(environment)
    steps = [
        ('nugget add "What you learned, in a sentence or more"', "keep something by hand"),
        ("nugget capture-session --transcript FILE", "learn from a Claude Code session"),
        ('nugget ask "how do we ..."', "ask"),
    ]
    if install and not is_connected:
        steps.append(("nugget install", "let Claude Code ask and be captured by itself"))
    out.print("\nNext:")
    for command, purpose in steps:
        out.print(f"   {command:<56}{purpose}")


def _usual_folder(environment: Environment) -> Path:
    """Return the folder to make a brain in. Raises UsageError if the current one is a brain that is not trusted."""
    here = current_folder()
    if is_brain(here):
        brain_around(environment, here)
        return here
    return Path("~/brain") if any(here.iterdir()) else here


def _owner() -> str:
    """Return the owner's name: as git knows the person, else the login name."""
    try:
        named = git.run(current_folder(), "config", "--get", "user.name", check=False).decode("utf-8", "replace")
        return named.strip() or getpass.getuser()
    except (GitError, KeyError, OSError):
        return ""


@commands.command()
def clone(
    url: Annotated[str, Argument(metavar="URL", help="Where the brain is; as git takes it.")],
    path: Annotated[
        Path | None, Argument(metavar="PATH", help="The new folder; else named as the repository, here.")
    ] = None,
) -> None:
    """Get a copy of a brain, check and trust it, and read it.

    It becomes the default brain if there is none. Nothing of it is run: no hooks, no submodules.
    """
    from nugget.brain.lint import lint

    environment, out = read_environment(), console()
    first = default_brain(environment) is None
    name = url.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2]
    folder = Path(os.path.abspath(expanded(path or current_folder() / name)))  # noqa: PTH100 - links stay links
    address = url if ":" in url or url.startswith("-") else os.path.abspath(expanded(url))  # noqa: PTH100
    with files.locked(environment.home / "locks" / "clone.lock"):
        if not _is_cloned(address, folder):
            _fetch(address, folder)
    real = trust(environment, folder)
    if first:
        set_default_brain(environment, real)
    problems = lint(real, settings=load_settings(environment, real))
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    with open_brain(real) as opened, progress() as tell:
        opened.sync(progress=tell)
    out.print(f"Cloned the brain into {clean(str(real))}; it is trusted{' and the default' * first}.")
    if problems:
        warnings = len(problems) - errors
        out.print(f"It has {counted(errors, 'error')} and {counted(warnings, 'warning')}. Next: nugget lint")


def _is_cloned(url: str, folder: Path) -> bool:
    """Return whether the folder holds a clone of this brain already, as after a clone that was killed."""
    if not is_brain(folder) or not git.is_repository(folder):
        return False
    remote = github.find_remote(folder)
    return remote is not None and remote.url == url


def _fetch(url: str, folder: Path) -> None:
    """Clone a brain into a new folder, whole or not at all. Raises UsageError, BrainError, GitError."""
    if url.startswith("-") or (shown := printable(str(folder))) != str(folder):
        raise UsageError("Neither the address nor the folder may begin with `-` or hold unprintable characters.")
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{shown} exists already.", hint="Name a folder that is empty or does not exist yet.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    refuse_unsafe_parent(folder.parent)
    beside = folder.with_name(f".{folder.name}.nugget-clone")
    shutil.rmtree(beside, ignore_errors=True)  # left by a clone that was killed
    try:
        files.private_folder(beside)
        github.clone(url, beside / "brain")
        if not is_brain(beside / "brain"):
            raise BrainError(f"{printable(url)} is no brain: it has no brain.yaml.", hint="Nothing was kept of it.")
        if folder.is_dir():
            folder.rmdir()
        (beside / "brain").rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@commands.command("trust")
def trust_brain(
    path: Annotated[Path | None, Argument(metavar="PATH", help="The brain; else the current folder.")] = None,
    listed: Annotated[bool, Option("--list", help="Show the trusted brains.")] = False,
    remove: Annotated[bool, Option("--remove", help="Trust this one no longer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Use a brain whenever you work in its folder.

    The folder, and those above it, must belong to you and be writable by nobody else. Its index is rebuilt.
    """
    environment, folder = read_environment(), expanded(path) if path else current_folder()
    if listed:
        brains = [str(one["path"]) for one in trusted(environment)]
        text = "\n".join(map(clean, brains)) or "No brain is trusted but the default one."
    elif remove:
        if not distrust(environment, folder):
            raise UsageError(f"{printable(str(folder))} is not trusted.", hint="`nugget trust --list` shows what is.")
        brains, text = [], f"{clean(str(folder))} is not trusted any more."
    else:
        real = trust(environment, folder)
        brains, text = [str(real)], f"{clean(str(real))} is trusted: commands that you run in it use it."
    if as_json:
        print_json({"trusted": brains})
    else:
        console().print(text)


@commands.command()
def serve(
    address: Annotated[
        str | None, Argument(metavar="HOST:PORT", help="With --http: where to listen, by default 127.0.0.1:5033.")
    ] = None,
    http: Annotated[bool, Option("--http", help="Answer over HTTP: MCP, search, ask and shell logs.")] = False,
    compat: Annotated[
        str | None, Option("--compat", metavar="NAME", help="Over MCP, also offer the tools of: openqed.")
    ] = None,
    identity: Annotated[
        str | None, Option("--as", metavar="IDENTITY", help="Whose memory agents may ask for; by default nobody's.")
    ] = None,
    no_token: Annotated[
        bool, Option("--no-token", help="With --http: answer every program and user of this machine without a token.")
    ] = False,
    brain: BrainOption = None,
) -> None:
    """Answer coding agents over MCP on stdin and stdout, or everybody over HTTP.

    Over HTTP only this machine can ask, unless you give another address. Every request needs the token of
    NUGGET_HTTP_TOKEN, or the one that the server makes at its first start.
    """
    if compat not in (None, "openqed"):
        raise UsageError(f"There is no --compat {compat!r}.", hint="The one there is: openqed.")
    if identity is not None:
        from nugget.app.params import check_identity

        check_identity(identity)
    folder, openqed = expanded(brain) if brain else None, compat == "openqed"
    if http:
        from nugget.http import serve as answer_requests

        answer_requests(address, brain=folder, openqed=openqed, identity=identity, with_token=not no_token)
    elif address or no_token:
        given = address or "--no-token"
        raise UsageError(f"{given!r} is only used with --http.", hint=f"nugget serve --http {given}")
    else:
        from nugget.mcp import serve as answer_agents

        answer_agents(folder, openqed=openqed, identity=identity)
