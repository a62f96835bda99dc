"""Find the brain in use, and tell whether a folder is a brain."""

from __future__ import annotations

from pathlib import Path

from nugget.config import Environment, expanded, read_user_file
from nugget.errors import BrainError


def is_brain(folder: Path) -> bool:
    """Return whether the folder is a brain: it has a brain.yaml beside a `domains` folder or a `.git`."""
    return (folder / "brain.yaml").is_file() and ((folder / "domains").is_dir() or (folder / ".git").exists())


def default_brain(environment: Environment) -> Path | None:
    """Return the user's default brain: `brain:` in `$NUGGET_HOME/config.yaml`."""
    entry = read_user_file(environment).get("brain")
    return expanded(entry.value) if entry and isinstance(entry.value, str) and entry.value else None


def find_brain(environment: Environment, *, flag: Path | None = None, cwd: Path) -> Path:
    """Return the brain in use: `--brain` > `NUGGET_BRAIN` > the one that `cwd` is in > the user's default.

    Raises BrainError if there is none, if the folder named is not a brain, or if `cwd` itself is half a one.
    """
    named = flag or environment.brain or next(filter(is_brain, (cwd, *cwd.parents)), None)
    if named is None and (cwd / "brain.yaml").is_file():
        named = cwd
    if named is None:
        named = default_brain(environment)
    if named is None:
        raise BrainError("There is no brain yet.", hint="Run `nugget init` to make one.")
    if not is_brain(named):
        if (named / "brain.yaml").is_file():
            missing = "is no brain: it has a brain.yaml, but neither a `domains` folder nor a git repository"
            hint = f"Run `mkdir {named}/domains` and `nugget init {named}` to make it one, or name another brain."
            raise BrainError(f"{named} {missing}.", hint=hint)
        missing = "does not exist" if not named.exists() else "is no brain (it has no brain.yaml)"
        raise BrainError(f"{named} {missing}.", hint=f"Run `nugget init {named}`, or name another brain.")
    return named.resolve()
