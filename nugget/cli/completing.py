"""What a shell completes: refs, domains, tags and types. Typer asks here while a person types.

It answers within a moment or not at all: the indexes are read as they are, nothing is synced, no error is shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nugget.config import read_environment
from nugget.models import KnowledgeType

if TYPE_CHECKING:
    from nugget.api import Brain

_MOST = 100


def complete_ref(incomplete: str) -> list[tuple[str, str]]:
    """Refs that begin so, with their titles. Memory is never among them."""
    from nugget.exploring import refs_beginning

    try:
        with _opened() as opened:
            return refs_beginning(incomplete, opened.indexes(), limit=_MOST)
    except Exception:  # whatever is wrong, a person who types is not told here
        return []


def complete_domain(incomplete: str) -> list[str]:
    """Domains that begin so."""
    return _named("domains", incomplete)


def complete_tag(incomplete: str) -> list[str]:
    """Tags that begin so."""
    return _named("tags", incomplete)


def complete_type(incomplete: str) -> list[str]:
    """The types of knowledge that begin so."""
    return [name for name in KnowledgeType if name.startswith(incomplete.lower())]


def _named(kind: str, incomplete: str) -> list[str]:
    """Names of a kind for the last of several with commas between."""
    from nugget.exploring import suggest

    before, comma, last = incomplete.rpartition(",")
    try:
        with _opened() as opened:
            found = getattr(suggest(last, opened.indexes(), brain=opened.path, limit=_MOST), kind)
            return [f"{before}{comma}{name}" for name, _ in found if name.startswith(last)]
    except Exception:  # as above
        return []


def _opened() -> Brain:
    """The brain in use, opened as it is. Raises NuggetError where there is none."""
    from nugget.api import Brain
    from nugget.config import find_brain

    environment = read_environment()
    return Brain(find_brain(environment, cwd=Path.cwd()), environment=environment)
