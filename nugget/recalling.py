"""What the hooks of this machine ask a running server: `recall` with the embedding model that it holds already."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.briefing import recalled
from nugget.config import Environment, is_brain
from nugget.desk import Desk
from nugget.errors import NuggetError

_MOST_CHARS = 8_000


def answer(question: dict[str, Any], desk: Desk, environment: Environment) -> dict[str, Any]:
    """`{"lines": [...]}` for `{"recall": prompt, "brain": folder or null, "folder": ...}`; `{}` where it cannot be had.

    Who asks is the person that the server runs for (nugget/resident.py), so the folders are taken as they are named.
    """
    asked, brain, folder = question.get("recall"), question.get("brain"), question.get("folder")
    if not isinstance(asked, str) or not isinstance(folder, str) or not isinstance(brain, str | None):
        return {}
    if len(asked) > _MOST_CHARS or "\0" in f"{brain}{folder}":
        return {}
    place = Path(brain) if brain and is_brain(Path(brain)) else None
    try:
        embedder = desk.open().embedder
    except NuggetError:
        embedder = None
    try:
        lines = recalled(environment.home, asked, place, Path(folder), embedder=embedder, now=datetime.now(UTC))
    except Exception:  # the hook then looks for itself
        return {}
    return {"lines": lines}
