"""Completions for shells: refs, domains, tags and types. Typer calls this while a person types.

It answers within a moment or not at all: the indexes are read as they are, nothing is synced, no error is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.config import read_environment
from nugget.models import KnowledgeType

if TYPE_CHECKING:
    from nugget.app import Brain

_MOST = 100


def complete_ref(incomplete: str) -> list[tuple[str, str]]:
    """Refs that begin so, with their titles. Memory is never among them."""
    from nugget.retrieval.exploring import refs_beginning

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
    return _beginning(KnowledgeType, incomplete.lower())


def complete_any_type(incomplete: str) -> list[str]:
    """The types of the units of any source that begin so."""
    from nugget.retrieval.query_language import TYPES

    return _beginning(TYPES, incomplete.lower())


def _named(kind: str, incomplete: str) -> list[str]:
    from nugget.retrieval.exploring import suggest

    last = incomplete.rpartition(",")[2]
    try:
        with _opened() as opened:
            found = getattr(suggest(last, opened.indexes(), brain=opened.path, limit=_MOST), kind)
            return _beginning([name for name, _ in found], incomplete)
    except Exception:  # as above
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that complete the last of several, separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def _opened() -> Brain:
    """Open the brain in use as it is. Raises NuggetError if there is none."""
    from nugget.app import Brain
    from nugget.infra.brain_in_use import find_brain

    environment = read_environment()
    return Brain(find_brain(environment, cwd=Path.cwd()), environment=environment)
