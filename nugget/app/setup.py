"""Make a brain, get a copy of one, and prepare this machine."""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.brain import is_brain
from nugget.config import Environment, current_folder, expanded, load_settings
from nugget.errors import BrainError, GitError, UsageError
from nugget.infra import files, git, github
from nugget.text import printable
from nugget.upkeep.trust import brain_around, default_brain, refuse_unsafe_parent, set_default_brain, trust

if TYPE_CHECKING:
    from nugget.brain import InitResult


def make_brain(
    environment: Environment, path: Path | None, *, remote: str | None, examples: bool, note: Callable[[str], None]
) -> InitResult:
    """Make a brain from the template, trust it, and make it the default one. What is there already stays.

    Without a path it is the current folder if that is empty or a brain, else ~/brain.
    """
    from nugget.brain import init_brain

    before = default_brain(environment)  # a config.yaml that cannot be read is reported before anything is made
    folder = expanded(path or environment.brain or _usual_folder(environment))
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
    return result


def prepare_machine(environment: Environment, note: Callable[[str], None]) -> None:
    """Compile the rules of redaction and convert the embedding model, so that no session waits for them."""
    from nugget.infra.embedding import ConfiguredModel
    from nugget.redaction.engine import is_prepared, prepare

    if not is_prepared():
        note("Preparing redaction: its rules are compiled once, which takes up to half a minute ...")
    prepare()
    if problem := ConfiguredModel(load_settings(environment), environment).problem:
        note(f"There is no search by meaning yet: {problem}")


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


def clone_brain(environment: Environment, url: str, path: Path | None) -> tuple[Path, bool]:
    """Clone and trust a brain; return its folder, and whether it became the default, as the first one does.

    A clone that is there already is used. Raises UsageError, BrainError, GitError.
    """
    first = default_brain(environment) is None
    name = url.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2]
    folder = Path(os.path.abspath(expanded(path or current_folder() / name)))  # noqa: PTH100 - links stay links
    address = url if ":" in url or url.startswith("-") else os.path.abspath(expanded(url))  # noqa: PTH100
    with files.locked(environment.home / "locks" / "clone.lock"):
        remote = github.find_remote(folder) if is_brain(folder) and git.is_repository(folder) else None
        if remote is None or remote.url != address:
            _fetch(address, folder)
    real = trust(environment, folder)
    if first:
        set_default_brain(environment, real)
    return real, first


def _fetch(url: str, folder: Path) -> None:
    """Clone a brain into a new folder, whole or not at all."""
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
