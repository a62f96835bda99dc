"""Nuggets by an LLM, with the real SDK against a scripted and sometimes hostile API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from loopback_anthropic import AnthropicServer, status, value
from replay import STARTED, Agent, change_by_hand, make_repository

from nugget.config import Environment, Settings
from nugget.infra.llm import LLM, spending
from nugget.models.nuggets import Nugget, NuggetType
from nugget.provenance.extraction import ExtractedSession, Extractor, extract_sessions
from nugget.sources.nugget_store import read_session_file, session_files
from nugget.sources.sessions import find_sessions

NOW = datetime(2026, 3, 5, tzinfo=UTC)
SAID = "We chose JWT instead of session cookies, because the service has to stay stateless behind the balancer."


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    repo = make_repository(tmp_path / "shop", remote="https://github.com/acme/shop")
    change_by_hand(repo, "src/auth.py", "def login():\n    return None\n", at=STARTED - timedelta(days=1))
    agent = Agent(repo=repo, claude_config=tmp_path / ".claude")
    agent.prompt("Add JWT authentication to the login")
    agent.edit("src/auth.py", "    return None", "    return token()")
    agent.reply(SAID)
    return agent


def entry(**changed: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "type": "decision", "summary": "chose JWT over session cookies: the service must stay stateless",
        "detail": "The load balancer keeps no affinity.", "path": "src/auth.py", "symbol": "login", "confidence": 0.9,
        "quotes": ["because the service has to stay stateless"], "alternatives": ["session cookies"],
    }  # fmt: skip
    return {**whole, **changed}


def reply(*entries: Any) -> Any:
    return value({"nuggets": list(entries)})


def extracted(environment: Environment, llm: LLM | None, **changed: Any) -> ExtractedSession:
    given: dict[str, Any] = {"home": environment.home, "settings": Settings(), "now": NOW, "llm": llm}
    found = list(find_sessions(environment, ["claude-code"]))
    [outcome] = extract_sessions(found, Extractor(**{**given, **changed}))
    return outcome


def kept(environment: Environment, method: str = "generative") -> list[Nugget]:
    records = [read_session_file(file)[0] for file in session_files(environment.home)]
    return [nugget for record in records for nugget in record.nuggets if nugget.method == method]


@pytest.mark.proves("PROVENANCE-GENERATIVE")
def test_a_sound_nugget_is_kept_with_scope_evidence_and_cost(
    agent: Agent, llm: LLM, server: AnthropicServer, environment: Environment
) -> None:
    server.script(
        reply(entry(), entry(type="constraint", summary="The service has to stay stateless", path="no/such.py"))
    )
    outcome = extracted(environment, llm)
    assert (outcome.state, outcome.method, outcome.dropped) == ("extracted", "generative", ())
    assert outcome.usd == pytest.approx(1000 * 2e-6 + 200 * 10e-6)
    decision, constraint = kept(environment)
    assert (decision.type, decision.scope.path, decision.scope.symbol) == (NuggetType.DECISION, "src/auth.py", "login")
    assert decision.alternatives == ("session cookies",)
    assert decision.evidence[0].quote == "because the service has to stay stateless"
    assert decision.evidence[0].records
    assert decision.source_prompt == "Add JWT authentication to the login"
    assert (constraint.scope.path, constraint.scope.symbol) == (None, None)
    assert {one.confidence for one in kept(environment, "heuristic")} == {0.6, 0.7}  # Intents stay.
    [request] = server.requests
    assert "modified src/auth.py" in request.prompt
    assert spending(environment.home).usd == pytest.approx(outcome.usd)


@pytest.mark.proves("PROVENANCE-GENERATIVE")
def test_what_cannot_be_taken_is_dropped_with_a_reason(
    agent: Agent, llm: LLM, server: AnthropicServer, environment: Environment
) -> None:
    bad = [
        entry(summary="Invented from nothing", quotes=["this was never said by anybody"]),
        entry(summary="Решение на другом языке, которого никто не просил", detail="Совсем другой язык ответа."),
        entry(summary="Other path of the stateless service", path="../../etc/passwd", symbol="rm -rf /"),
        entry(summary="chose JWT over session cookies, since the service must stay stateless"),
    ]
    server.script(reply(entry(), *bad))
    outcome = extracted(environment, llm)
    assert [one.summary for one in kept(environment)] == [entry()["summary"], "Other path of the stateless service"]
    assert kept(environment)[1].scope.path is None
    assert len(outcome.dropped) == 2
    assert "its quote is not in the session" in outcome.dropped[0]
    assert "not in the language of the session" in outcome.dropped[1]


@pytest.mark.proves("PROVENANCE-GENERATIVE")
def test_a_grown_session_is_asked_about_what_is_new_only_and_an_unchanged_one_not_at_all(
    agent: Agent, llm: LLM, server: AnthropicServer, environment: Environment
) -> None:
    server.script(reply(entry()))
    extracted(environment, llm, now=agent.moment)
    assert extracted(environment, llm).state == "skipped"
    agent.prompt("Now tell me how long a token lives")
    agent.reply("A token lives ten minutes, since the gateway caches keys for that long.")
    extracted(environment, None)  # The heuristics alone, in between.
    lives = entry(type="caveat", summary="tokens live ten minutes", quotes=["A token lives ten minutes"], path="")
    server.script(reply(lives))
    assert extracted(environment, llm, now=agent.moment).state == "extracted"
    assert "Add JWT" not in server.requests[-1].prompt
    assert [one.summary for one in kept(environment)] == [entry()["summary"], "tokens live ten minutes"]
    extracted(environment, None, force=True)
    agent.prompt("And where are the keys kept?")
    server.script(status(400))
    assert extracted(environment, llm).method == "heuristic"
    assert len(kept(environment)) == 2  # What was paid for stays.
