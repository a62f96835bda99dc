"""The MCP face with the SDK's client and with raw lines; its brain; notes that agents propose; openqed's tools."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import provenance_store
import pytest
from cli_stage import write_unit
from logs import ShellLogs
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult, TextContent
from mcp_wire import HELLO, asked_over_mcp
from paths import REPOSITORY
from provenance_store import Shop, make_shop
from sessions import write_transcript
from waiting import PATIENCE_S

import nugget
from nugget.app.agent_session import AgentSession, print_traceback
from nugget.capture import ledger, review
from nugget.config import load_settings, read_environment
from nugget.evaluation import query_log
from nugget.infra import files
from nugget.mcp import INSTRUCTIONS
from nugget.render import MAX_CHARS
from nugget.upkeep import trust

MOST_S = 5 * PATIENCE_S
"""When a conversation is given up."""
SERVE = [sys.executable, "-c", "from nugget.__main__ import console; console()", "serve"]
TOOL = "get_relevant_context"
TOKEN = "ghp_" + "vK8wQ2nR5tY7mB3xL9cD4fG6hJ1pS0zA8eUi"

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}


@pytest.fixture(autouse=True)
def trusted(brain: Path, indexed: Path) -> None:
    """The server is started in the brain's folder, which counts only if it is trusted; its index is there."""
    trust(read_environment(), brain)
    shutil.copytree(indexed, brain / ".nugget")


def with_client(
    talk: Callable[[Client], Awaitable[None]], *options: str, cwd: Path, mode: str = "auto", **variables: str
) -> None:
    """Start the server in `cwd`, connect the SDK's client, and let `talk` use it."""
    arguments = [*SERVE[1:], *options]
    parameters = StdioServerParameters(command=SERVE[0], args=arguments, env=environment(**variables), cwd=cwd)

    async def session() -> None:
        async with Client(parameters, mode=mode) as client:  # type: ignore[arg-type]
            await talk(client)

    asyncio.run(asyncio.wait_for(session(), MOST_S))


async def ask(client: Client, task: str, **arguments: Any) -> CallToolResult:
    return await patient(client, TOOL, {"task_description": task, **arguments})


async def patient(client: Client, tool: str, arguments: dict[str, Any]) -> CallToolResult:
    """One call; while the brain is still being read for the first time, again, as the reply says."""
    until = time.monotonic() + PATIENCE_S
    while True:
        result = await client.call_tool(tool, arguments)
        if "reading this brain for the first time" not in text_of(result) or time.monotonic() > until:
            return result


def text_of(result: CallToolResult) -> str:
    """The one text block of a result, which is all that there is."""
    assert result.structured_content is None, "clients show structured content as escaped JSON"
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@contextmanager
def raw_server(
    cwd: Path, *, code: str = SERVE[2], stderr: int = subprocess.DEVNULL, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*SERVE[:2], code, *SERVE[3:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=cwd,
        env=environment(**variables),
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send(process: subprocess.Popen[bytes], message: dict[str, Any] | bytes) -> None:
    assert process.stdin
    process.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[bytes], number: int | str = 1) -> dict[str, Any]:
    """The reply to the request of this number; replies to others may come before it."""
    assert process.stdout
    while True:
        message: dict[str, Any] = json.loads(process.stdout.readline())
        if message.get("id") == number:
            return message


@pytest.mark.proves("MCP-CONTRACT", "MCP-INSTRUCTIONS")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_offers_one_tool_with_the_parameters_of_the_contract(brain, mode):
    async def talk(client: Client) -> None:
        assert client.server_info is not None and client.server_info.name == "nugget"
        assert client.instructions == INSTRUCTIONS and len(INSTRUCTIONS) <= 1500
        (tool,) = (await client.list_tools()).tools
        assert tool.name == TOOL and tool.output_schema is None
        assert tool.input_schema["required"] == ["task_description"]
        assert list(tool.input_schema["properties"]) == [
            "task_description", "path", "symbol", "types", "sources", "ref", "profile", "depth", "token_budget",
            "limit",
        ]  # fmt: skip
        assert tool.input_schema["properties"]["token_budget"]["default"] == 2000
        assert all(entry.get("description") for entry in tool.input_schema["properties"].values())
        assert tool.annotations and tool.annotations.read_only_hint

    with_client(talk, cwd=brain, mode=mode, NUGGET_EMBEDDING_MODEL="none")


@pytest.mark.proves("MCP-LENGTH")
def test_no_answer_to_the_default_budget_is_longer_than_a_client_shows(brain):
    wall = " ".join(f"retry{n} payments with idempotency" for n in range(4000))
    for n in range(6):
        write_unit(brain, f"pattern/wall-{n}", f"# Wall {n}\n\n{wall}")

    async def talk(client: Client) -> None:
        assert 200 < len(text_of(await ask(client, "retry payments with idempotency", depth="deep"))) < MAX_CHARS
        assert len(text_of(await ask(client, "retry payments", token_budget=300))) < 3_000

    with_client(talk, cwd=brain, NUGGET_EMBEDDING_MODEL="none")


@pytest.mark.proves("MCP-ERRORS")
def test_without_a_brain_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "nugget init" in asked_over_mcp(task_description="anything")["content"][0]["text"]


@pytest.mark.proves("MCP-ERRORS")
def test_arguments_that_cannot_be_taken_are_answered_with_what_can(brain):
    cases: list[tuple[dict[str, Any], str]] = [
        ({"task_description": "  "}, "about to do"),
        ({"types": ["pattern", "recipe"]}, "pattern, concept, decision, bug, belief"),
        ({}, "`task_description` is missing (the task or question in plain words, with"),
        ({"tokens": 9}, "get_relevant_context has no argument `tokens`; it has task_description, path, symbol,"),
        ({"token_budget": 0}, "`token_budget` must be at least 100, not 0 (length of the answer"),
        ({"types": {"a": 1}, "path": 3}, "`path` must be text, not 3 (the file that the task is about)."),
        ({"path": "x" * 200_000}, "`path` must have at most 1000 characters, not 'xxx"),
        ({"ref": "two\nlines\x1b[1m"}, "There is no unit two\\nlines\\x1b[1m in the brain."),
    ]

    async def talk(client: Client) -> None:
        for arguments, expected in cases:
            result = await client.call_tool(TOOL, arguments and {"task_description": "cache", **arguments})
            assert result.is_error and expected in text_of(result), arguments
            assert "Traceback" not in text_of(result) and len(text_of(result)) < 1_000
        assert not (
            await ask(client, "cache", types=["concept", "pattern"], path="src/cache.py", symbol="get")
        ).is_error
        for path in ("x" * 999, "two\nlines\0"):  # longer than any file name, and what none can be
            said = text_of(await ask(client, "cache invalidation", path=path))
            assert "concept/cache-invalidation" in said and "\0" not in said and "two\nlines" not in said

    with_client(talk, cwd=brain, NUGGET_EMBEDDING_MODEL="none")


@pytest.mark.proves("SEARCH-MCP-PLACE", "MCP-FAILURES")
def test_a_path_narrows_other_sources_or_it_is_said_where_not(brain, isolated_home, tmp_path, monkeypatch, request):
    shop = make_shop(tmp_path, isolated_home / ".nugget")
    for number, name in enumerate(("retry", "cart"), start=1):
        shop.write(f"{name}/code.py", f"def {name}(): ...\n")
        shop.learn(f"Payments in {name} wait for jitter", session=number, path=f"{name}/code.py")
        session = f"{number:08x}-0000-4000-8000-000000000000"
        file = isolated_home / f".claude/projects/-work-shop/{session}.jsonl"
        write_transcript(
            file, [(f"please fix payments jitter of {name}", "Done.")], session=session, cwd=str(shop.repo)
        )
    shop.commit()
    logs = ShellLogs(isolated_home / ".local/share/aish/logs")
    logs.run("demo", 1_772_366_400_000, "npm run lint", 1, stderr="cart.ts:3: error: total is never reassigned")
    handbook = tmp_path / "handbook"
    handbook.mkdir()
    (handbook / "jitter.md").write_text("# Jitter\n\nPayments wait for jitter everywhere.")
    with nugget.open(brain) as opened:
        opened.sync_local_sources()

    async def talk(client: Client) -> None:
        async def told(**arguments: Any) -> str:
            return text_of(await ask(client, "payments jitter", **arguments))

        of_one = await told(sources=["provenance"], path="retry/code.py")
        assert "Payments in retry" in of_one and "Payments in cart" not in of_one
        said = await told(sources=["sessions"], path="retry/code.py")
        assert said.startswith("Asked about retry/code.py: only its sessions.")
        both = await told(sources=["sessions", "canon"], path="cart/code.py")
        assert "session:00000002" in both and "session:00000001" not in both and "canon:handbook/jitter.md" in both
        assert "canon cannot be narrowed to it: searched by words" in both
        failed = text_of(await ask(client, "what went wrong with lint"))
        assert "`npm run lint` failed (exit 1)" in failed and "total is never" in failed and "session:" not in failed
        resumed = text_of(await ask(client, "Where did we leave off?"))
        assert resumed.startswith("The latest sessions of this repository on: Where did we leave off?\nNot reviewed. ")
        assert "last prompt: please fix payments jitter of cart\n" in resumed and "of retry\n" in resumed
        assert "Nothing failed." in text_of(await ask(client, "what went wrong"))
        unknown = await told(sources=["sessions"], path="new/code.py")
        assert "sessions cannot be narrowed to it" in unknown and "session:00000001" in unknown

    with_client(talk, cwd=shop.repo, NUGGET_EMBEDDING_MODEL="none", NUGGET_BRAIN=str(brain),
                NUGGET_CANON_FOLDERS=str(handbook))  # fmt: skip
    monkeypatch.chdir(shop.repo)
    typed = (run := request.getfixturevalue("nugget"))("ask", "Where did we leave off?", "--brain", brain).out
    assert "of cart\n" in typed and "of retry\n" in typed and "leave off" not in run("queries", "--brain", brain).out


@pytest.mark.proves("MCP-START")
def test_initialize_is_answered_before_anything_heavy_is_imported(brain):
    # What is imported is told where the replies are, so a reply must not be on its way when the warm-up begins.
    later = "from nugget import __main__; import nugget.mcp; nugget.mcp.WARM_UP_DELAY_S = 2; __main__.console()"
    with raw_server(
        brain, code=later, stderr=subprocess.STDOUT, PYTHONPROFILEIMPORTTIME="1", NUGGET_RESIDENT_S="0"
    ) as process:
        send(process, INITIALIZE)
        assert process.stdout
        imported: set[str] = set()
        for line in process.stdout:
            if line.startswith(b"{"):
                assert json.loads(line)["result"]["serverInfo"]["name"] == "nugget"
                break
            imported.add(line.decode().rpartition("|")[2].strip())
        assert "mcp.server.mcpserver" in imported, "the imports were watched"
        assert imported & {"numpy", "onnxruntime", "fastembed", "anthropic", "git", "github", "markdown_it"} == set()
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        for line in process.stdout:
            if line.decode().rpartition("|")[2].strip() == "onnxruntime":
                break
        else:
            pytest.fail("nothing was warmed up after the reply")


@pytest.mark.proves("MCP-END")
@pytest.mark.parametrize("is_warming", [True, False])
def test_it_ends_when_its_client_goes_away(brain, is_warming):
    with raw_server(brain, stderr=subprocess.PIPE) as process:
        send(process, INITIALIZE)
        receive(process)
        if not is_warming:
            send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            call = {"name": TOOL, "arguments": {"task_description": "cache"}}
            send(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
            receive(process, 2)
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, output) == (0, b""), "stdout belongs to the protocol"
        assert b"Traceback" not in errors


@pytest.mark.proves("MCP-STDERR")
def test_what_goes_wrong_beside_the_answers_is_told_on_stderr_without_secrets(tmp_path, capsys):
    AgentSession(flag=tmp_path / TOKEN, environment=read_environment(), cwd=tmp_path).warm()
    try:
        raise ValueError(TOKEN)
    except ValueError as error:
        print_traceback(error)
    told = capsys.readouterr().err
    assert told.startswith("nugget: ") and "does not exist." in told and "\nnugget: Traceback " in told
    assert TOKEN not in told and told.count("[redacted:github-token]") == 3


NOTE = {
    "title": "Payments are retried with one idempotency key",
    "statement": "The key is made before the loop of retries, and is the same for each attempt of a payment.",
    "type": "decision", "because": "Stripe charged a customer twice.", "paths": ["src/pay.py"],
}  # fmt: skip


@pytest.mark.proves("REMEMBER-TOOL")
def test_a_note_becomes_one_redacted_proposal_and_never_a_unit(brain, tmp_path, nugget):
    assert "have the tool" in nugget("install", "--remember").out

    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"get_relevant_context", "propose_knowledge"}
        assert list(tools["propose_knowledge"].input_schema["properties"]) == [*NOTE]
        statement = f"{NOTE['statement']} The token is {TOKEN}."
        first, again = [await patient(client, "propose_knowledge", {**NOTE, "statement": statement}) for _ in "12"]
        assert text_of(first).startswith("Proposed as decision/payments-are-retried")
        assert "already waits for review" in text_of(again)
        for wrong, told in (({"type": "story"}, "type"), ({"paths": ["../../etc/passwd"]}, "is not a file below")):
            refused = await patient(client, "propose_knowledge", {**NOTE, **wrong})
            assert refused.is_error and told in text_of(refused), wrong

    (folder := tmp_path / "shop").mkdir()
    home = read_environment().home
    with files.locked(ledger.lock_file(home, ledger.brain_key(brain, home))):  # as a capture under way does
        with_client(talk, cwd=folder, NUGGET_BRAIN=str(brain), CLAUDE_CODE_SESSION_ID="session-7")
    [proposal] = review.proposals(brain)
    [file] = proposal.files
    unit = review.show(brain, None).files[0]
    assert proposal.branch.startswith("nugget/note-") and file.id.startswith("decision/payments-are-retried")
    assert TOKEN not in unit.after and "[redacted:" in unit.after
    for kept in ("domain: projects/shop", "src/pay.py", "**Because:** Stripe", "session-7", "speaker: agent"):
        assert kept in unit.after
    assert not list((brain / "domains").rglob("payments-are-retried*")), "only a review makes it a unit"
    assert nugget("install", "--no-remember").code == 0 and not load_settings(read_environment()).capture_notes


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
def test_the_three_tools_answer_in_openqeds_shapes(shop):
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
def test_a_task_on_a_file_is_answered_with_its_provenance_beside_the_brain(shop, brain, monkeypatch):
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
