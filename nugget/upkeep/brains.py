"""Find the user's brains by name, and the one that a session is captured into."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from nugget.brain import is_brain
from nugget.config import Environment, Settings, expanded
from nugget.errors import BrainError, NuggetError, UsageError, reason_of
from nugget.infra.workspace import remote_address
from nugget.text import printable
from nugget.upkeep.trust import brain_around, default_brain


def configured_brains(environment: Environment, settings: Settings) -> dict[str, Path]:
    """Return the default brain and those of `brains.folders` by name, by default the folder's name."""
    found: dict[str, Path] = {}
    for entry in (*settings.brains.folders, str(default_brain(environment) or "")):
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
    `github.com/acme/*`. Raises UsageError for a rule without a brain, and what `usable_brain` raises.
    """
    brains, address = configured_brains(environment, settings), None
    for rule in settings.brains.captures:
        name, _, pattern = rule.partition("=")
        if name not in brains or not pattern:
            raise UsageError(
                f"`brains.captures` has {rule!r}, which names none of your brains.", hint="Write it as `name=glob`."
            )
        if pattern.startswith(("/", "~")):
            is_meant = any(fnmatchcase(str(place), str(expanded(pattern))) for place in (folder, *folder.parents))
        else:
            if address is None:
                address = remote_address(next(filter(Path.is_dir, (folder, *folder.parents)))) or ""
            is_meant = fnmatchcase(address.lower(), pattern.lower())
        if is_meant:
            return usable_brain(environment, brains[name])
    return None
