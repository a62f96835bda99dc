"""Answers for the commands of this machine: vectors of the loaded model, and `recall` made with it.

Who asks is the person that the server runs for (nugget/resident.py), so what they name is taken as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.app.agent_session import AgentSession
from nugget.errors import NuggetError
from nugget.infra.brain_in_use import is_brain
from nugget.infra.embedding import Embedder
from nugget.infra.embedding.borrowed import vector_for
from nugget.upkeep.briefing import recalled

_MOST_CHARS = 8_000


def answer(question: dict[str, Any], session: AgentSession) -> dict[str, Any]:
    """Return `{"vector": ...}` for a question of `embedding.borrowed`, or `{"lines": [...]}` for
    `{"recall": prompt, "brain": folder or null, "folder": ...}`; `{}` if that fails.
    """
    try:
        embedder = session.open().embedder
    except NuggetError:
        embedder = None
    try:
        return (
            vector_for(question, embedder)
            if "embed" in question
            else _recall(question, embedder, session.environment.home)
        )
    except Exception:  # who asks then does it alone
        return {}


def _recall(question: dict[str, Any], embedder: Embedder | None, home: Path) -> dict[str, Any]:
    asked, brain, folder = question.get("recall"), question.get("brain"), question.get("folder")
    if not isinstance(asked, str) or not isinstance(folder, str) or not isinstance(brain, str | None):
        return {}
    if len(asked) > _MOST_CHARS or "\0" in f"{brain}{folder}":
        return {}
    place = Path(brain) if brain and is_brain(Path(brain)) else None
    return {"lines": recalled(home, asked, place, Path(folder), embedder=embedder, now=datetime.now(UTC))}
