"""Parameters of a question, validated: filters, numbers and depth, as people and agents write them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from nugget.errors import UsageError
from nugget.models import Depth, Filter, SourceName


def as_sources(names: Sequence[SourceName | str]) -> tuple[SourceName, ...]:
    """The sources of these names. Raises UsageError for one that does not exist."""
    try:
        return tuple(map(SourceName, names))
    except ValueError as error:
        raise UsageError(f"{error}.", hint=f"Sources are: {', '.join(SourceName)}.") from None


def as_filter(
    types: Sequence[str],
    domains: Sequence[str],
    tags: Sequence[str],
    sources: Sequence[SourceName | str],
    since: date | None,
    sessions: Sequence[str] = (),
) -> Filter:
    """Build the filter of a question from its parameters. Raises UsageError for a source that does not exist."""
    return Filter(
        sources=as_sources(sources),
        types=tuple(types),
        domains=tuple(domain.strip("/") for domain in domains),
        tags=tuple(tags),
        since=since,
        sessions=tuple(sessions),
    )


def at_least_one(name: str, value: int) -> int:
    """The value. Raises UsageError for one below 1."""
    if value < 1:
        raise UsageError(f"{name} must be at least 1, not {value}.")
    return value


def as_depth(depth: Depth | str) -> Depth:
    """Return the depth of this name. Raises UsageError if there is no such depth."""
    try:
        return Depth(depth)
    except ValueError:
        raise UsageError(f"There is no depth {depth!r}.", hint=f"Choose one of: {', '.join(Depth)}.") from None
