"""Answer the commands of this machine through the server's socket: vectors of the loaded model, and `recall`.

Only the person that the server runs for can ask (`infra.server_socket`), so the folders they name are used as given.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.app.agent_session import AgentSession
from nugget.brain import is_brain
from nugget.errors import NuggetError
from nugget.infra.embedding import Embedder, vector_for
from nugget.upkeep.briefing import recalled

_MOST_CHARS = 8_000


def answer(question: dict[str, Any], session: AgentSession) -> dict[str, Any]:
    """Return `{"vector": ...}` for a question of `infra.embedding.RemoteEmbedder`, or `{"lines": [...]}` for
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
