"""Knowledge that is saved in the session: the tool `propose_knowledge`, and what the user asks to be remembered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from commands import Nugget
from mcp.client import Client
from mcp.types import CallToolResult
from test_mcp_server import text_of, with_client
from waiting import PATIENCE_S

from nugget.capture import review
from nugget.config import read_environment
from nugget.upkeep import trust

TOKEN = "ghp_" + "vK8wQ2nR5tY7mB3xL9cD4fG6hJ1pS0zA8eUi"
NOTE = {
    "title": "Payments are retried with one idempotency key",
    "statement": "The key is made before the loop of retries, and is the same for each attempt of a payment.",
    "type": "decision", "because": "Stripe charged a customer twice.", "paths": ["src/pay.py"],
}  # fmt: skip


async def propose(client: Client, **changed: Any) -> CallToolResult:
    """One proposal; while the brain is still being read for the first time, again, as the reply says."""
    until = time.monotonic() + PATIENCE_S
    while True:
        result = await client.call_tool("propose_knowledge", {**NOTE, **changed})
        if "reading this brain for the first time" not in text_of(result) or time.monotonic() > until:
            return result


@pytest.mark.proves("REMEMBER-TOOL")
def test_a_note_becomes_one_redacted_proposal_and_never_a_unit(brain: Path, tmp_path: Path, nugget: Nugget) -> None:
    trust(read_environment(), brain)
    assert "have the tool" in nugget("install", "--remember").out

    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"get_relevant_context", "propose_knowledge"}
        assert list(tools["propose_knowledge"].input_schema["properties"]) == [*NOTE]
        statement = f"{NOTE['statement']} The token is {TOKEN}."
        first = await propose(client, statement=statement)
        assert text_of(first).startswith("Proposed as decision/payments-are-retried")
        assert "already waits for review" in text_of(await propose(client, statement=statement))
        for wrong, told in (({"type": "story"}, "type"), ({"paths": ["../../etc/passwd"]}, "no file below")):
            refused = await propose(client, **wrong)
            assert refused.is_error and told in text_of(refused), wrong

    folder = tmp_path / "shop"
    folder.mkdir()
    with_client(talk, cwd=folder, NUGGET_BRAIN=str(brain), CLAUDE_CODE_SESSION_ID="session-7")
    [proposal] = review.proposals(brain)
    [file] = proposal.files
    unit = review.show(brain, None).files[0]
    assert proposal.branch.startswith("nugget/note-") and file.id.startswith("decision/payments-are-retried")
    assert TOKEN not in unit.after and "[redacted:" in unit.after
    for kept in ("domain: projects/shop", "src/pay.py", "**Because:** Stripe", "session-7", "speaker: agent"):
        assert kept in unit.after
    assert not list((brain / "domains").rglob("payments-are-retried*")), "only a review makes it a unit"


@pytest.mark.proves("REMEMBER-TOOL")
def test_without_being_switched_on_there_is_one_tool(brain: Path, nugget: Nugget) -> None:
    trust(read_environment(), brain)
    assert nugget("install", "--remember").code == nugget("install", "--no-remember").code == 0
    (brain / "brain.yaml").write_text("owner: test\ncapture: {notes: true}\n")

    async def talk(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["get_relevant_context"]

    with_client(talk, cwd=brain)
