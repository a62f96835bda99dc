"""What an agent that names a file or symbol gets to read about it, beside what the brain says of its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.config import Environment, load_settings
from nugget.errors import NuggetError
from nugget.infra.query_log import Face
from nugget.nuggets import NuggetQuery, NuggetType
from nugget.text import printable

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.provenance.answering import CodeAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePart:
    """What is said of a path or symbol: markdown, the tokens that it takes, and the sessions that touched the file.

    `is_found` is False where there is no such place.
    """

    text: str = ""
    used: int = 0
    sessions: tuple[str, ...] = ()
    is_found: bool = True


def answer_agent(
    query: NuggetQuery, *, brain: Brain | None, environment: Environment, folder: Path, with_sessions: bool = False
) -> CodeAnswer:
    """What is known of a piece of code, logged; the brain's units are among it where there is a brain.

    Paths are meant from `folder`. Raises NuggetError.
    """
    from nugget.provenance.answering import answer_code, log_answer

    now = datetime.now(UTC)
    answer = answer_code(
        query, home=environment.home, folder=folder, now=now, with_sessions=with_sessions,
        brain_index=brain.index if brain else None, embedder=(lambda: brain.embedder) if brain else None,
    )  # fmt: skip
    settings = brain.settings if brain else load_settings(environment)
    log_answer(answer, environment, settings, face=Face.MCP, now=now)
    return answer


def code_part(
    answer: Callable[..., CodeAnswer], *, path: str | None, symbol: str | None, types: Sequence[str], depth: str,
    budget_tokens: int, max_chars: int,
) -> CodePart:  # fmt: skip
    """What is to be said of a path or symbol; nothing where neither is named.

    One that cannot be found is told: the rest of the answer does not depend on it. `types` may name types of
    knowledge units too; where they name no type of nugget, there is nothing.
    """
    from nugget.provenance.answering import code_query
    from nugget.render.nuggets import provenance_markdown

    of_nuggets = [name for name in types if name in list(NuggetType)]
    if not (path or symbol) or (types and not of_nuggets):
        return CodePart()
    try:
        query = code_query(path=path, symbol=symbol, types=of_nuggets, depth=depth, budget_tokens=budget_tokens)
        found = answer(query, with_sessions=True)
    except NuggetError as error:
        return CodePart(text=f"Nothing can be said of {printable(path or symbol or '')}: {error}", is_found=False)
    return CodePart(
        text=provenance_markdown(found.bundle, found.sessions, max_chars), used=found.bundle.budget.used,
        sessions=tuple(session.record.session for session in found.sessions),
    )  # fmt: skip
