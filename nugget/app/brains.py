"""Check the parameters of a question, and ask several brains as one: the one in use with those of `brains.folders`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nugget.errors import IndexUnavailable, NuggetError, ReviewError, UsageError, reason_of
from nugget.index import IndexReader, Unusable
from nugget.index.connection import discard_damaged, find_damage, is_damage
from nugget.models import Bundle, Depth, Query, SourceName
from nugget.upkeep.trust import brain_for_session, usable_brains

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.capture.review import ProposalBranch

T = TypeVar("T")


def checked(question: Query | str, usual: Query) -> Query:
    """Return a validated query; what it leaves open is taken from `usual`.

    Raises UsageError for an invalid source, depth or identity, and for a number below 1.
    """
    query = Query(question) if isinstance(question, str) else question
    check_identity(query.identity)
    given = query.filter
    return replace(
        query,
        text=query.text.encode("utf-8", "replace").decode("utf-8"),  # lone surrogates cannot be stored
        filter=replace(
            given, sources=source_names(given.sources), types=tuple(given.types), tags=tuple(given.tags),
            domains=tuple(domain.strip("/") for domain in given.domains), sessions=tuple(given.sessions),
        ),
        limit=_at_least_one("limit", usual.limit if query.limit is None else query.limit),
        budget_tokens=_at_least_one(
            "budget", usual.budget_tokens if query.budget_tokens is None else query.budget_tokens
        ),
        depth=depth_named(query.depth or usual.depth or Depth.STANDARD),
        profile=query.profile or usual.profile,
        offset=max(query.offset, 0),
    )  # fmt: skip


def check_identity(identity: str | None) -> None:
    """Raise UsageError for an invalid identity."""
    if identity is not None:
        from nugget.sources import notes

        notes.check_identity(identity)


def source_names(names: Sequence[SourceName | str]) -> tuple[SourceName, ...]:
    """Return the sources of these names. Raises UsageError for one that does not exist."""
    try:
        return tuple(map(SourceName, names))
    except ValueError as error:
        raise UsageError(f"{error}.", hint=f"Sources are: {', '.join(SourceName)}.") from None


def _at_least_one(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise UsageError(f"{name} must be at least 1, not {value}.")
    return value


def depth_named(depth: Depth | str) -> Depth:
    """Return the depth of a name. Raises UsageError if it does not exist."""
    try:
        return Depth(depth)
    except ValueError:
        raise UsageError(f"There is no depth {depth!r}.", hint=f"Choose one of: {', '.join(Depth)}.") from None


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
