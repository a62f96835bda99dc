"""Find, create, clone, name and trust brains, and write the user's settings."""

from __future__ import annotations

import getpass
import io
import json
import os
import shlex
import shutil
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from nugget.brain import init_brain, is_brain
from nugget.config import (
    Environment,
    Settings,
    current_folder,
    documented_keys,
    expanded,
    is_known,
    load_settings,
    read_user_file,
    validated,
)
from nugget.errors import BrainError, GitError, NuggetError, UsageError, alike, reason_of
from nugget.infra import files, git, remotes, system
from nugget.infra.workspace import remote_address
from nugget.text import printable

_INSIDE = ("brain.yaml", ".git", "domains")


def default_brain(environment: Environment) -> Path | None:
    """Return the user's default brain: `brain:` in `$NUGGET_HOME/config.yaml`."""
    folder, _ = read_user_file(environment).get("brain", ("", 0))
    return expanded(folder) if isinstance(folder, str) and folder else None


def find_brain(environment: Environment, *, flag: Path | None = None, cwd: Path | None) -> Path:
    """Return the brain in use: `--brain` > `NUGGET_BRAIN` > the one that `cwd` is in > the user's default.

    Raises BrainError without a brain or if the named folder is not one, UsageError if `cwd` is in an untrusted one.
    """
    named = flag or environment.brain or (brain_around(environment, cwd) if cwd else None)
    if named is None and cwd and (cwd / "brain.yaml").is_file():
        named = cwd
    named = named or default_brain(environment)
    if named is None:
        raise BrainError("There is no brain yet.", hint="Run `nugget init` to make one.")
    if not is_brain(named):
        reason = "is not a brain: it needs a brain.yaml and a `domains` folder" if named.exists() else "does not exist"
        made = f"`nugget init {shlex.quote(str(named))}` makes one there"
        raise BrainError(f"{named} {reason}.", hint=f"{made}; if it was moved, run `nugget init` in its new folder.")
    return named.resolve()


def brain_around(environment: Environment, cwd: Path) -> Path | None:
    """Return the brain that contains a folder, None if none does. Raises UsageError if it is not trusted.

    A trusted brain is refused too if it belongs to another user or others can write to it.
    """
    place = next(filter(is_brain, (cwd, *cwd.parents)), None)
    if place is None:
        return None
    real = os.path.realpath(place)
    reason = _unsafe(real)
    if reason and _is_recorded(environment, real):
        raise UsageError(f"The brain in {printable(real)} cannot be used from here: {reason}.")
    if is_trusted(environment, place):
        return place
    command = f"nugget trust {shlex.quote(printable(real))}"
    advice = f", and it cannot be: {reason}" if reason else f"; run `{command}` to use it"
    raise UsageError(f"The brain in {printable(real)} is not trusted{advice}.")


def set_values(environment: Environment, values: Mapping[str, Any]) -> None:
    """Set keys such as `embedding.model`; None removes one. Raises UsageError for an unknown key or a bad value."""
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if not is_known(key):
            guess = alike(key, documented_keys())
            raise UsageError(f"There is no setting {key!r}.{guess}", hint="`nugget config` lists them all.")
        try:
            result = None if value is None else validated(key, value)
        except ValueError as error:
            raise UsageError(f"`{key}` {error}.") from None
        checked[key] = list(result) if isinstance(result, tuple) else result
    _write_settings(environment, checked)


def _write_settings(environment: Environment, values: Mapping[str, Any]) -> None:
    """Write values to the user's configuration, keeping all other lines and comments."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.constructor import DuplicateKeyError

    read_user_file(environment)  # raises if the file cannot be read
    file = environment.home / "config.yaml"
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 100_000
    try:
        document = (yaml.load(file.read_text("utf-8-sig")) if file.is_file() else None) or CommentedMap()
    except DuplicateKeyError as error:
        where = f"{file}:{error.problem_mark.line + 1}"
        raise UsageError(f"{where}: this key is in the file twice.", hint="Join the two, then try again.") from None
    for key, value in values.items():
        json.dumps(value, ensure_ascii=False).encode()  # raises UnicodeEncodeError for what could not be read again
        section, _, name = key.rpartition(".")
        document.pop(key if section else None, None)  # a key may also be written with its dot
        if section and not isinstance(document.get(section), dict):
            document[section] = CommentedMap()
        place = document[section] if section else document
        if value is None:
            place.pop(name, None)
            if section and not place:
                del document[section]
        else:
            place[name] = value
    text = io.StringIO()
    yaml.dump(document, text)
    files.replace(file, text.getvalue().encode())


def trusted(environment: Environment) -> list[dict[str, object]]:
    """Return the trusted brains, each with its real `path` and the `uid` of its owner."""
    try:
        found = json.loads((environment.home / "trusted.json").read_text("utf-8"))["brains"]
        return [{"path": str(one["path"]), "uid": int(one["uid"])} for one in found]
    except (OSError, ValueError, TypeError, LookupError):
        return []  # an invalid file trusts nothing


def is_trusted(environment: Environment, brain: Path) -> bool:
    """Return True if the user trusts a brain or made it the default one."""
    real, default = os.path.realpath(brain), default_brain(environment)
    return _is_recorded(environment, real) or (default is not None and os.path.realpath(default) == real)


def _is_recorded(environment: Environment, real: str) -> bool:
    return {"path": real, "uid": os.lstat(real).st_uid} in trusted(environment)


def trust(environment: Environment, folder: Path, *, keep_index: bool = False) -> Path:
    """Trust a brain; return its real path. Raises UsageError if it is not a brain or others can write to it.

    Its index is removed unless `keep_index`, since whoever made the folder may have made the index too.
    """
    real = os.path.realpath(folder)
    if not is_brain(Path(real)):
        raise UsageError(f"{printable(real)} is not a brain.", hint="A brain has a brain.yaml and a `domains` folder.")
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


def distrust(environment: Environment, folder: Path) -> bool:
    """Stop trusting a brain; return False if it was not trusted."""
    real, known = os.path.realpath(folder), trusted(environment)
    kept = [one for one in known if one["path"] != real]
    if len(kept) < len(known):
        _record(environment, kept)
    return len(kept) < len(known)


def _record(environment: Environment, brains: list[dict[str, object]]) -> None:
    files.replace(environment.home / "trusted.json", json.dumps({"version": 1, "brains": brains}, indent=1).encode())


def _unsafe(real: str) -> str | None:
    """Return why another user could change a brain, or None."""
    folder = Path(real)
    for place in (folder, *(folder / name for name in _INSIDE), *folder.parents):
        try:
            status = place.lstat()
        except OSError:
            continue
        if status.st_uid not in (system.user_id(), 0):
            return f"{printable(str(place))} belongs to another user"
        others = status.st_mode & system.OTHERS
        is_sticky = place in folder.parents and status.st_mode & stat.S_ISVTX
        if stat.S_ISLNK(status.st_mode) or is_sticky:
            continue  # in a sticky folder such as /tmp nobody can rename or remove the files of others
        if others & stat.S_IWOTH or (others & stat.S_IWGRP and not system.is_own_group(status.st_gid)):
            return f"others can write to {printable(str(place))} (`chmod go-w` changes that)"
    return None


def make_brain(
    environment: Environment, path: Path | None, *, remote: str | None, examples: bool, note: Callable[[str], None]
) -> tuple[Path, bool]:
    """Create a brain from the template, trust it, and make it the default; existing files are kept.

    The path defaults to the current folder if that is empty or a brain, else to ~/brain.
    """
    before = default_brain(environment)  # raises for an unreadable config.yaml before anything is created
    folder = path or environment.brain
    if folder is None:
        here = current_folder()
        if is_here := is_brain(here):
            brain_around(environment, here)  # raises if it is not trusted
        folder = here if is_here or not any(here.iterdir()) else Path("~/brain")
    str(folder).encode()  # raises UnicodeEncodeError, since the settings name it
    root, is_new = init_brain(expanded(folder), owner=_owner(), now=datetime.now(UTC), examples=examples)
    if remote:
        known = git.run(root, "remote", check=False).decode().split()
        git.run(root, "remote", "set-url" if "origin" in known else "add", "origin", "--", remote)
        if branch := git.current_branch(root):  # for `git pull` and `git push`
            git.run(root, "config", f"branch.{branch}.remote", "origin")
            git.run(root, "config", f"branch.{branch}.merge", f"refs/heads/{branch}")
    _write_settings(environment, {"brain": str(root)})
    try:
        trust(environment, root, keep_index=is_new or before == root)
    except UsageError as error:
        note(f"{error} It is used as the default brain all the same.")
    if remote:
        _push(environment, root, note)
    return root, is_new


def _push(environment: Environment, brain: Path, note: Callable[[str], None]) -> None:
    """Push a brain to its new remote, unless `capture.publish` is `never`."""
    from nugget.capture import following

    settings = load_settings(environment, brain)
    if settings.capture_publish == "never":
        return
    try:
        problems = following.follow(
            brain, environment=environment, settings=settings, now=datetime.now(UTC), rebase=True
        ).problems
    except NuggetError as error:
        problems = (error,)
    for problem in problems:
        note(f"Not pushed yet: {problem} `nugget sync --rebase` tries again.")


def _owner() -> str:
    """Return the owner's name: git's `user.name`, else the login name."""
    try:
        named = git.run(current_folder(), "config", "--get", "user.name", check=False).decode("utf-8", "replace")
        return named.strip() or getpass.getuser()
    except (GitError, KeyError, OSError):
        return ""


def clone_brain(environment: Environment, url: str, path: Path | None) -> tuple[Path, bool, bool]:
    """Clone and trust a brain; return its folder, whether it is new, and whether it became the default, as the first.

    An existing clone is used. Raises UsageError, BrainError, GitError.
    """
    first = default_brain(environment) is None
    name = url.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2]
    folder = Path(os.path.abspath(expanded(path or current_folder() / name)))  # noqa: PTH100 - links stay links
    address = url if ":" in url or url.startswith("-") else os.path.abspath(expanded(url))  # noqa: PTH100
    str(folder).encode()
    with files.locked(environment.home / "locks" / "clone.lock"):
        remote = remotes.find_remote(folder) if is_brain(folder) else None
        if is_new := remote is None or remote.url != address:
            _fetch(address, folder)
    real = trust(environment, folder)
    if first:
        _write_settings(environment, {"brain": str(real)})
    return real, is_new, first


def _fetch(url: str, folder: Path) -> None:
    """Clone a brain into a new folder; if that fails, leave nothing behind."""
    shown = printable(str(folder))
    if url.startswith("-"):
        raise UsageError("The address may not begin with `-`.")
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{shown} exists already.", hint="Name a folder that is empty or does not exist yet.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if reason := _unsafe(os.path.join(os.path.realpath(folder.parent), "new")):  # noqa: PTH118
        raise UsageError(f"A brain in {shown} could not be trusted: {reason}.")
    beside = folder.with_name(f".{folder.name}.nugget-clone")
    shutil.rmtree(beside, ignore_errors=True)  # left by a clone that was killed
    try:
        files.private_folder(beside)
        remotes.clone(url, beside / "brain")
        if not git.run(beside / "brain", "rev-list", "--all", "--max-count=1"):
            advice = f"`nugget init --remote {shlex.quote(printable(url))}` makes a brain and pushes it there."
            raise BrainError(f"{printable(url)} is an empty repository.", hint=advice)
        if not is_brain(beside / "brain"):
            raise BrainError(f"{printable(url)} is not a brain: it has no brain.yaml.", hint="Nothing of it was kept.")
        if folder.is_dir():
            folder.rmdir()
        (beside / "brain").rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def configured_brains(environment: Environment, settings: Settings) -> dict[str, Path]:
    """Return the default brain and those of `brains.folders` by name, by default the folder's name."""
    found: dict[str, Path] = {}
    for entry in (*settings.brains_folders, str(default_brain(environment) or "")):
        name, is_named, folder = entry.rpartition("=")
        path = expanded(folder)
        if folder and path not in found.values():
            name = name if is_named else path.name
            found[str(path) if name in found else name] = path
    return found


def usable_brain(environment: Environment, folder: Path) -> Path:
    """Return the real path of a configured brain. Raises BrainError if it is not one, UsageError if it is not trusted.

    Naming a folder does not make it trusted, since others may have written to it.
    """
    if not is_brain(folder):
        raise BrainError(f"There is no brain in {printable(str(folder))}.", hint="See `nugget config`.")
    brain_around(environment, folder)
    return folder.resolve()


def usable_brains(environment: Environment, settings: Settings) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the configured brains that can be used, by name, and a sentence for each of the others."""
    found, left_out = dict[str, Path](), list[str]()
    for name, folder in configured_brains(environment, settings).items():
        try:
            found[name] = usable_brain(environment, folder)
        except (NuggetError, OSError) as error:
            left_out.append(f"{name}: {reason_of(error)}")
    return found, tuple(left_out)


def brain_for_session(environment: Environment, settings: Settings, folder: Path) -> Path | None:
    """Return the brain that a rule of `brains.captures` names for sessions in a folder; None if no rule does.

    A glob matches the path of the folder or of one above it, or the address of its repository, such as
    `github.com/acme/*`. Raises UsageError for an unknown brain, and what `usable_brain` raises.
    """
    brains, address = configured_brains(environment, settings), None
    for rule in settings.brains_captures:
        name, _, pattern = rule.partition("=")
        if name not in brains:
            raise UsageError(f"`brains.captures` has {rule!r}: no brain has that name.")
        if pattern.startswith(("/", "~")):
            is_meant = any(fnmatchcase(str(place), str(expanded(pattern))) for place in (folder, *folder.parents))
        else:
            place = next(filter(Path.is_dir, (folder, *folder.parents)))
            address = remote_address(place) or "" if address is None else address
            is_meant = fnmatchcase(address.lower(), pattern.lower())
        if is_meant:
            return usable_brain(environment, brains[name])
    return None
