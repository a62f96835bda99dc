"""Find the brain in use, and record which folders the user trusts to be one."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shlex
import shutil
import stat
from pathlib import Path

from nugget.brain import is_brain
from nugget.config import Environment, expanded, read_user_file
from nugget.errors import BrainError, UsageError
from nugget.infra import files
from nugget.text import printable

_INSIDE = ("brain.yaml", ".git", "domains")


def default_brain(environment: Environment) -> Path | None:
    """Return the user's default brain: `brain:` in `$NUGGET_HOME/config.yaml`."""
    entry = read_user_file(environment).get("brain")
    return expanded(entry.value) if entry and isinstance(entry.value, str) and entry.value else None


def find_brain(environment: Environment, *, flag: Path | None = None, cwd: Path | None) -> Path:
    """Return the brain in use: `--brain` > `NUGGET_BRAIN` > the one that `cwd` is in > the user's default.

    Raises BrainError if there is none, if the folder named is not a brain, or if `cwd` itself is half a one;
    UsageError if `cwd` is in a brain that the user has not trusted.
    """
    named = flag or environment.brain or (brain_around(environment, cwd) if cwd else None)
    if named is None and cwd and (cwd / "brain.yaml").is_file():
        named = cwd
    if named is None:
        named = default_brain(environment)
    if named is None:
        raise BrainError("There is no brain yet.", hint="Run `nugget init` to make one.")
    if not is_brain(named):
        reason, hint = "does not exist", f"Run `nugget init {named}`, or name another brain."
        if (named / "brain.yaml").is_file():
            reason = "is no brain: it has a brain.yaml, but neither a `domains` folder nor a git repository"
            hint = f"Run `mkdir {named}/domains` and `nugget init {named}` to make it one, or name another brain."
        elif named.exists():
            reason = "is no brain (it has no brain.yaml)"
        raise BrainError(f"{named} {reason}.", hint=hint)
    return named.resolve()


def brain_around(environment: Environment, cwd: Path) -> Path | None:
    """Return the brain that a folder is in, None if it is in none. Raises UsageError if it is not trusted.

    A trusted brain is asked for again when it belongs to another user, or when others can write to it.
    """
    place = next(filter(is_brain, (cwd, *cwd.parents)), None)
    if place is None:
        return None
    real = os.path.realpath(place)
    reason = _unsafe(real)
    if {"path": real, "uid": os.lstat(real).st_uid} in trusted(environment):
        if reason:
            raise UsageError(f"The brain in {printable(real)} cannot be used from here: {reason}.")
        return place
    default = default_brain(environment)
    if default is not None and os.path.realpath(default) == real:
        return place
    command = f"nugget trust {shlex.quote(printable(real))}"
    advice = f", and it cannot be: {reason}" if reason else f"; run `{command}` to use it"
    raise UsageError(f"The brain in {printable(real)} is not trusted{advice}.")


def trusted(environment: Environment) -> list[dict[str, object]]:
    """Return the trusted brains, each with its real `path` and the `uid` of its owner."""
    try:
        found = json.loads((environment.home / "trusted.json").read_text("utf-8"))["brains"]
        return [{"path": str(one["path"]), "uid": int(one["uid"])} for one in found]
    except (OSError, ValueError, TypeError, LookupError):
        return []  # whatever this file is, it trusts nothing


def trust(environment: Environment, folder: Path, *, keep_index: bool = False) -> Path:
    """Record a brain as trusted and return its real path. Raises UsageError if it is none, or not the user's alone.

    Its index is made again unless `keep_index`: whoever made the folder may have made that too.
    """
    real = os.path.realpath(folder)
    if not is_brain(Path(real)):
        raise UsageError(f"{printable(real)} is no brain.", hint="A brain has a brain.yaml beside a `domains` folder.")
    if reason := _unsafe(real):
        raise UsageError(f"{printable(real)} cannot be trusted: {reason}.")
    entry: dict[str, object] = {"path": real, "uid": os.lstat(real).st_uid}
    known = trusted(environment)
    if entry in known:
        return Path(real)
    index = Path(real, ".nugget")
    if not keep_index and os.path.lexists(index):
        try:
            index.unlink() if index.is_symlink() else shutil.rmtree(index)
        except OSError as error:
            raise BrainError(f"{printable(str(index))} cannot be removed ({error.strerror}).") from error
    _record(environment, [*(one for one in known if one["path"] != real), entry])
    return Path(real)


def refuse_unsafe_parent(folder: Path) -> None:
    """Raise UsageError if somebody else could change what is in a new folder below this one."""
    below = Path(os.path.realpath(folder), "new")
    if reason := _unsafe(str(below)):
        raise UsageError(f"A brain in {printable(str(folder))} could not be trusted: {reason}.")


def distrust(environment: Environment, folder: Path) -> bool:
    """Forget that a brain is trusted; False if it was not."""
    real, known = os.path.realpath(folder), trusted(environment)
    kept = [one for one in known if one["path"] != real]
    if len(kept) < len(known):
        _record(environment, kept)
    return len(kept) < len(known)


def _record(environment: Environment, brains: list[dict[str, object]]) -> None:
    files.replace(environment.home / "trusted.json", json.dumps({"version": 1, "brains": brains}, indent=1).encode())


def _unsafe(real: str) -> str | None:
    """Return why somebody else could change a brain; None if nobody else can."""
    folder = Path(real)
    for place in (folder, *(folder / name for name in _INSIDE), *folder.parents):
        try:
            status = place.lstat()
        except OSError:
            continue
        if status.st_uid not in (os.getuid(), 0):
            return f"{printable(str(place))} belongs to another user"
        is_sticky = place in folder.parents and status.st_mode & stat.S_ISVTX
        if stat.S_ISLNK(status.st_mode) or is_sticky:
            continue  # in a folder such as /tmp nobody can rename or remove what is another's
        if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)):
            return f"others can write to {printable(str(place))} (`chmod go-w` takes that away)"
    return None


def _is_private(group: int) -> bool:
    """Return whether a group is the user's own, as many systems give each user one."""
    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}
