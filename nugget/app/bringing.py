"""Import into an opened brain: what `nugget import` and `Brain.import_notes` have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.config import expanded
from nugget.errors import UsageError
from nugget.importing import DEFAULT_LIMIT, Import, ImportResult, import_and_publish

if TYPE_CHECKING:
    from nugget.app import Brain


def bring_in(
    brain: Brain,
    path: Path | str,
    *,
    domain: str | None = None,
    limit: int = DEFAULT_LIMIT,
    dry_run: bool = False,
    now: datetime | None = None,
) -> ImportResult:
    """Propose units from a folder of notes or an export, on a branch, with a pull request as for sessions.

    `domain` files all of it; otherwise folders do. At most `limit` units are proposed; `dry_run` writes nothing.
    Raises UsageError for a path, domain or limit that is none, BrainError and GitError; nothing was proposed then.
    """
    from nugget.app.neighbours import similar_units
    from nugget.brain import validate_domain

    if limit < 1:
        raise UsageError(f"limit must be at least 1, not {limit}.")
    bound = Import(
        brain=brain.path, home=brain.environment.home, settings=brain.settings, similar=similar_units(brain),
        now=now or datetime.now(UTC).astimezone(), domain=validate_domain(domain) if domain else None, limit=limit,
        dry_run=dry_run,
    )  # fmt: skip
    return import_and_publish(expanded(path), bound, brain.environment)
