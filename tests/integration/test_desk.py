"""The desk: one brain that stays open for agents, whatever happens to its files meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from nugget.app import Brain
from nugget.app.agent_session import AgentSession, print_traceback
from nugget.config import read_environment
from nugget.errors import BrainError
from nugget.mcp.answers import answer as answer_question
from nugget.models import Query


@pytest.fixture
def session(brain: Path) -> Iterator[AgentSession]:
    with Brain(brain) as first:  # a slow machine reads it longer than an agent waits
        first.sync()
    opened = AgentSession(flag=brain, environment=read_environment(), cwd=brain)
    yield opened
    for thread in threading.enumerate():  # what it says must not end up in another test
        if thread.name in ("nugget-warm-up", "nugget-catch-up"):
            thread.join(PATIENCE_S)
    opened.close()


def answer(session: AgentSession, text: str = "cache invalidation", **options: int) -> str:
    return answer_question(session, Query(text, **options))


@pytest.mark.proves("MCP-FRESH")
def test_a_brain_that_was_moved_away_is_missed_and_answers_again_when_it_is_back(
    session: AgentSession, brain: Path
) -> None:
    assert "concept/cache-invalidation" in answer(session)
    away = brain.rename(brain.with_name("away"))
    for _ in range(2):
        with pytest.raises(BrainError, match="is not there any more"):
            answer(session)
    assert not brain.exists()
    away.rename(brain)
    assert "concept/cache-invalidation" in answer(session)


@pytest.mark.proves("MCP-STDERR")
def test_what_goes_wrong_beside_the_answers_is_told_on_stderr_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    AgentSession(flag=tmp_path / token, environment=read_environment(), cwd=tmp_path).warm()
    try:
        raise ValueError(token)
    except ValueError as error:
        print_traceback(error)
    told = capsys.readouterr().err
    assert told.startswith("nugget: ") and "does not exist." in told and "\nnugget: Traceback " in told
    assert token not in told and told.count("[redacted:github-token]") == 2
