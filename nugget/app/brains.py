"""Several brains as one: those of `brains.folders` are searched together with the one in use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nugget.errors import IndexUnavailable, NuggetError, ReviewError, UsageError, reason_of
from nugget.index import IndexReader, Unusable
from nugget.index.connection import discard_damaged, find_damage, is_damage
from nugget.models import Bundle
from nugget.upkeep.brains import brain_for_session, usable_brains

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.capture.review import ProposalBranch

T = TypeVar("T")


def join(brain: Brain) -> Brain:
    """Connect a brain with the user's others, which share its embedding model; return it."""
    from nugget.app import Brain

    known, brain.left_out = usable_brains(brain.environment, brain.settings)
    brain.name = next((name for name, path in known.items() if path == brain.path), brain.name)
    brain.others = tuple(Brain(path, environment=brain.environment) for path in known.values() if path != brain.path)
    for other in brain.others:
        other.name, other._model = next(name for name, path in known.items() if path == other.path), brain._model
    brain.is_chosen = False
    return brain


def ask_all(brain: Brain, ask: Callable[[dict[str, IndexReader]], Bundle], *, alone: bool = False) -> Bundle:
    """Ask a brain and, by name, the indexes of the others; one that cannot be read is named in `degraded`."""
    if alone or not (brain.others or brain.left_out):
        return guarded(brain, lambda: ask({}))
    indexes: dict[str, IndexReader] = {}
    left_out: list[str] = [*brain.left_out]
    for other in brain.others:
        try:
            indexes[other.name] = other.index
        except (NuggetError, OSError, sqlite3.Error) as error:
            left_out.append(f"{other.name}: {reason_of(error)}")
    try:
        answer = ask(indexes)
    except UsageError:
        raise
    except (
        Exception
    ) as error:  # an index is damaged: ask this brain alone, and rebuild its index if that one is damaged
        left_out += [f"{name}: {reason_of(error)}" for name in indexes]
        answer = guarded(brain, lambda: ask({}))
    return replace(answer, degraded=(*answer.degraded, *(f"brain_left_out: {one}" for one in left_out)))


def guarded(brain: Brain, ask: Callable[[], T]) -> T:
    """Ask; if the brain's index turns out to be damaged, rebuild it and ask once more."""
    try:
        return ask()
    except Exception as error:  # damage also shows as missing rows or values of another type
        if isinstance(error, NuggetError) and not isinstance(error, Unusable):
            raise
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            raise IndexUnavailable(f"The index could not be read ({error}).", hint="Try again.") from error
        if discard_damaged(brain.environment.home):  # the files are the truth
            brain._local = None
        elif isinstance(error, (sqlite3.Error, Unusable)) or find_damage(brain.index_folder / "index.db"):
            brain._index = None
            brain.sync(rebuild=True)
        else:
            raise
        return ask()


def reviewed_in(brain: Brain, name: str | None) -> Brain:
    """Return the brain in which a proposal of this name waits, else this one. Raises ReviewError if several do."""
    found = [one for one, waiting in waiting_in(brain) if any((name or "") in proposal.branch for proposal in waiting)]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise ReviewError(f"Proposals wait in several brains ({names}).", hint="Name one, or choose with --brain.")
    return found[0] if found else brain


def waiting_in(brain: Brain) -> Iterator[tuple[Brain, list[ProposalBranch]]]:
    """Yield a brain and the others, each with the proposals that wait in it, without others that cannot be read."""
    yield brain, brain.proposals()
    for other in brain.others:
        with suppress(NuggetError, OSError):
            yield other, other.proposals()


def capturing(brain: Brain, folder: Path | None, *, transcript: Path | None = None) -> Brain:
    """Return the brain that `brains.captures` names for sessions in a folder; this one if no rule matches.

    Without a folder, that of the transcript counts. Raises NuggetError if the rule's brain cannot be used, so that its
    sessions go nowhere else.
    """
    from nugget.sources.sessions import read_any

    if brain.is_chosen or not brain.settings.brains.captures:
        return brain
    if folder is None and transcript is not None and (cwd := read_any(transcript).cwd):
        folder = Path(cwd)
    path = brain_for_session(brain.environment, brain.settings, folder) if folder else None
    return next((one for one in brain.others if one.path == path), brain)
