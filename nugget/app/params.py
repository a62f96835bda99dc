"""Parameters of a question, checked once: filters, numbers and depth, as people and agents write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nugget.errors import UsageError
from nugget.models import Depth, Query, SourceName


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
