"""Import notes into an opened brain."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.app.similar_units import similar_units
from nugget.brain import validate_domain
from nugget.errors import UsageError
from nugget.importing import Import, ImportResult, import_and_publish

if TYPE_CHECKING:
    from nugget.app import Brain


def propose(brain: Brain, path: Path, *, domain: str | None, limit: int, dry_run: bool) -> ImportResult:
    """Propose units from notes or an export: `Brain.import_notes`."""
    if limit < 1:
        raise UsageError(f"limit must be at least 1, not {limit}.")
    run = Import(
        brain=brain.path, home=brain.environment.home, settings=brain.settings, similar=similar_units(brain),
        now=datetime.now(UTC).astimezone(), domain=validate_domain(domain) if domain else None, limit=limit,
        dry_run=dry_run,
    )  # fmt: skip
    return import_and_publish(path, run, brain.environment)
