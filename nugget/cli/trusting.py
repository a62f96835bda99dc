"""`nugget trust` and `nugget clone`: which folders may be used as brains because one works in them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from nugget.cli.terminal import JsonOption, console, current_folder, open_brain, print_json, progress
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import BrainError, UsageError
from nugget.infra.brain_in_use import default_brain, distrust, is_brain, refuse_unsafe_parent, trust, trusted
from nugget.models import Severity
from nugget.render import clean
from nugget.text import counted, printable


def trust_brain(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="The brain; else the current folder.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the trusted brains.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Trust this one no longer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Use a brain whenever you work in its folder.

    The folder, and those above it, must belong to you and be writable by nobody else. Its index is made again.
    """
    environment, out = read_environment(), console()
    if listed:
        brains = [str(one["path"]) for one in trusted(environment)]
        if as_json:
            print_json({"trusted": brains})
        else:
            out.print("\n".join(map(clean, brains)) or "No brain is trusted but the default one.")
        return
    folder = expanded(path) if path else current_folder()
    if remove:
        if not distrust(environment, folder):
            raise UsageError(f"{printable(str(folder))} is not trusted.", hint="`nugget trust --list` shows what is.")
        out.print(f"{clean(str(folder))} is not trusted any more.")
        return
    real = trust(environment, folder)
    if as_json:
        print_json({"trusted": [str(real)]})
    else:
        out.print(f"{clean(str(real))} is trusted: commands that you run in it use it.")


def clone(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the brain is; as git takes it.")],
    path: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="The new folder; else named as the repository, here.")
    ] = None,
) -> None:
    """Get a copy of a brain, check and trust it, and read it.

    It becomes the default brain if there is none. Nothing of it is run: no hooks, no submodules.
    """
    from nugget.brain.lint import lint
    from nugget.upkeep.user_settings import set_default_brain

    environment, out = read_environment(), console()
    first = default_brain(environment) is None
    name = url.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2]
    folder = Path(os.path.abspath(expanded(path or current_folder() / name)))  # noqa: PTH100 - links stay links
    _fetch(url, folder)
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


def _fetch(url: str, folder: Path) -> None:
    """Clone a brain into a new folder, whole or not at all. Raises UsageError, BrainError, GitError."""
    from nugget.infra import git

    if url.startswith("-") or (shown := printable(str(folder))) != str(folder):
        raise UsageError("Neither the address nor the folder may begin with `-` or hold unprintable characters.")
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{shown} exists already.", hint="Name a folder that is empty or does not exist yet.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    refuse_unsafe_parent(folder.parent)
    with tempfile.TemporaryDirectory(prefix=".nugget-clone-", dir=folder.parent) as beside:
        made = Path(beside, "brain")
        git.clone(url if ":" in url else os.path.abspath(expanded(url)), made)  # noqa: PTH100
        if not is_brain(made):
            raise BrainError(f"{printable(url)} is no brain: it has no brain.yaml.", hint="Nothing was kept of it.")
        if folder.is_dir():
            folder.rmdir()
        made.rename(folder)
