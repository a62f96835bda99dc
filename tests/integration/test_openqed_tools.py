"""Provenance over MCP, with the SDK's client over stdio: Nugget's own tool with a path, and openqed's three."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import provenance_store
import pytest
from mcp.client import Client
from provenance_store import Shop, make_shop
from test_mcp_server import ask, text_of, with_client

from nugget.evaluation import query_log


@pytest.fixture
def shop(tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(provenance_store, "NOW", datetime.now(UTC))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    made = make_shop(tmp_path, isolated_home / ".nugget")
    made.write("src/auth.ts", "export function login() {}\n")
    made.write("src/cache.ts", "export function get() {}\n")
    made.commit()
    made.learn(
        "chose JWT over session cookies", path="src/auth.ts", detail="Stateless.", confidence=0.9, days_ago=3,
        alternatives=("session cookies", "OAuth tokens"), source_prompt="let people log in",
    )  # fmt: skip
    made.learn("must support Node 18", type="constraint", days_ago=3)
    made.learn("add login", path="src/auth.ts", type="intent", days_ago=3)
    made.learn("tuned by hand", path="src/auth.ts", type="tuning", session=2, days_ago=1)
    return made


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return json.loads(text_of(result))


@pytest.mark.proves("OPENQED-TOOLS")
def test_the_three_tools_answer_in_openqeds_shapes(shop: Shop) -> None:
    async def talk(client: Client) -> None:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert [*tools["openqed_context"]["properties"]] == "path symbol query token_budget types depth".split()
        assert tools["openqed_file_history"]["properties"]["token_budget"]["default"] == 1500
        found = await call(client, "openqed_context", path="src/auth.ts", types=["decision"], depth="deep")
        assert list(found) == ["query", "budget", "nuggets", "moreContextHint"]
        (nugget_,) = found["nuggets"]
        assert nugget_["sourcePrompt"] == "let people log in" and nugget_["scope"] == "src/auth.ts"
        assert (nugget_["speaker"], nugget_["reviewed"]) == ("agent", False)
        history = await call(client, "openqed_file_history", path="src/auth.ts")
        assert history["path"] == "src/auth.ts" and (history["total"], history["shown"]) == (2, 2)
        assert [one["sessionId"] for one in history["sessions"]] == [shop.records[n].session for n in (2, 1)]
        assert list(history["sessions"][0]) == ["sessionId", "agent", "startedAt", "endedAt"]
        short = await call(client, "openqed_file_history", path="src/auth.ts", token_budget=70)
        assert (short["total"], short["shown"]) == (2, 1)
        decisions = await call(client, "openqed_decisions")
        assert decisions["scope"] == "workspace" and (decisions["total"], decisions["shown"]) == (2, 2)
        chosen = next(one for one in decisions["decisions"] if one["type"] == "decision")
        assert chosen["id"] == "00000001-1" and chosen["alternatives"] == ["session cookies", "OAuth tokens"]

    with_client(talk, "--compat", "openqed", cwd=shop.repo)


@pytest.mark.proves("PROVENANCE-MCP")
def test_a_task_on_a_file_is_answered_with_its_provenance_beside_the_brain(
    shop: Shop, brain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))

    async def talk(client: Client) -> None:
        answer = text_of(await ask(client, "users still see old prices, refresh the cache", path="src/auth.ts"))
        assert "[decision] chose JWT over session cookies" in answer and "Stateless." in answer
        assert "Sessions that touched it" in answer and "claude-code 00000002: Session 2" in answer
        assert "concept/cache-invalidation" in answer and len(answer) < 10_000
        lost = await ask(client, "cache invalidation", path="/etc/hostname")
        assert not lost.is_error and "outside of the workspace" in text_of(lost)
        assert "concept/cache-invalidation" in text_of(lost)

    with_client(talk, cwd=shop.repo)
    assert "src/auth.ts" in [entry.path for entry in query_log.read(shop.home)]
