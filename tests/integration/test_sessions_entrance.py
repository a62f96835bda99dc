"""The one entrance to the sessions of every agent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nugget.config import Environment, read_environment
from nugget.errors import TranscriptError
from nugget.sources.sessions import find_session_by_id, find_sessions, read_any

FIRST, SECOND = "11111111-aaaa-4000-8000-000000000001", "11112222-aaaa-4000-8000-000000000002"
LINE = '{"type":"user","uuid":"u1","sessionId":"%s","message":{"role":"user","content":"hello"}}\n'


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    folder = tmp_path / ".claude/projects/-srv-shop"
    folder.mkdir(parents=True)
    for age, name in ((20, FIRST), (10, SECOND)):
        file = folder / f"{name}.jsonl"
        file.write_text(LINE % name)
        os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    (folder / "agent-9.jsonl").write_text(LINE % FIRST)
    return read_environment({"HOME": str(tmp_path)})


@pytest.mark.proves("AGT-ENTRANCE")
def test_sessions_are_found_oldest_first_with_agent_id_time_and_size(environment: Environment) -> None:
    found = list(find_sessions(environment))
    assert [(file.id, file.agent, file.mtime) for file in found] == [
        (FIRST, "claude-code", 1_699_999_980.0),
        (SECOND, "claude-code", 1_699_999_990.0),
    ]
    assert found[0].size == len(LINE % FIRST)
    assert read_any(found[0]).events[0].text == "hello"
    assert read_any(found[1].path).id == SECOND
    assert list(find_sessions(environment, agents=["codex"])) == []


@pytest.mark.proves("AGT-PREFIX")
def test_a_session_is_found_by_the_beginning_of_its_id_when_that_is_unambiguous(environment: Environment) -> None:
    found = find_session_by_id(environment, "11112")
    assert found is not None and found.id == SECOND
    assert find_session_by_id(environment, "ffff") is None
    assert find_session_by_id(environment, "../*") is None
    with pytest.raises(TranscriptError, match="2 sessions have an id that begins with 1111"):
        find_session_by_id(environment, "1111")
