"""A brain's place in a team's index, as the setting `index` names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nugget.errors import UsageError
from nugget.index import IndexReader
from nugget.index.postgres.connection import migrate, place_of
from nugget.settings import YAMLRefused, read_entries

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.index.postgres.writer import Published


def open_index(brain: Brain) -> IndexReader:
    """Open the brain's space for reading. Connects with the first question."""
    from nugget.index.postgres import PostgresIndex

    return PostgresIndex(*place_of(brain.settings, brain.path))


def publish_index(brain: Brain, *, rebuild: bool = False) -> Published | None:
    """Bring the brain's space in line with its embedded index; None if the settings name no team's index.

    Raises IndexUnavailable if the database cannot be written.
    """
    if not brain.settings.index:
        return None
    from nugget.index.postgres.writer import publish

    try:
        origin = str(read_entries(brain.path / "brain.yaml")["id"].value)
    except (OSError, KeyError, YAMLRefused):
        origin = ""
    return publish(brain.embedded_index, *place_of(brain.settings, brain.path), origin=origin, rebuild=rebuild)


def migrate_index(address: str) -> tuple[int, int]:
    """Bring the schema of a team's index forward and return its version before and after.

    Raises UsageError without an address.
    """
    if not address:
        raise UsageError("No team's index is set.", hint="Set it: nugget config set index postgresql://HOST/DATABASE")
    return migrate(address.partition("#")[0])
