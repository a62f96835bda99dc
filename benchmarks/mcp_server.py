"""What the MCP face costs: the reply to `initialize` against a bare server of one tool, and a call against the asking.

Run: `python benchmarks/mcp_server.py`. Prints a table; ratios of one run, so that the machine does not matter. Target:
`nugget serve` answers `initialize` in 1.3 x the time of a bare server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parent.parent
ROUNDS = 11
CALLS = 200
QUESTION = "users still see old prices after we changed them, how do we refresh stored copies"
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"benchmark","version":"1"}}}\n'
)
BARE = [
    sys.executable,
    "-c",
    """\
from mcp.server.mcpserver import MCPServer
server = MCPServer("bare", instructions="Says what it is told.")
@server.tool(structured_output=False)
def echo(text: str) -> str:
    "Say it again."
    return text
server.run()
""",
]
NUGGET = [sys.executable, "-c", "from nugget.__main__ import console; console()", "serve"]


def time_to_reply_s(command: list[str], environment: dict[str, str], cwd: Path) -> float:
    """Seconds from the start of a server process to its reply to `initialize`."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=cwd
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(INITIALIZE)
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"jsonrpc"')
        took = time.perf_counter() - began
        process.kill()
    return took


async def call_times_s(
    command: list[str], tool: str, arguments: dict[str, str], environment: dict[str, str], cwd: Path
) -> tuple[float, list[float]]:
    """Seconds from the start of a server to its first answer, and of each later call."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    began = time.perf_counter()
    server = StdioServerParameters(command=command[0], args=command[1:], env=environment, cwd=cwd)
    async with Client(server) as client:
        await client.call_tool(tool, arguments)
        first = time.perf_counter() - began
        times = []
        for _ in range(CALLS):
            before = time.perf_counter()
            result = await client.call_tool(tool, arguments)
            times.append(time.perf_counter() - before)
            assert not result.is_error
    return first, times


def ask_times_s(brain: Path) -> list[float]:
    """Seconds of each question in this process, without any protocol."""
    from nugget.app import Brain

    with Brain(brain) as opened:
        opened.ask(QUESTION)
        times = []
        for _ in range(CALLS):
            before = time.perf_counter()
            opened.ask(QUESTION)
            times.append(time.perf_counter() - before)
    return times


def main() -> None:
    """Measure in turn, so that a slow moment hits both sides."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        brain = folder / "brain"
        shutil.copytree(REPOSITORY / "tests" / "brain", brain)
        identity = ["-c", "user.name=Benchmark", "-c", "user.email=benchmark@example.invalid"]
        for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "Knowledge"]):
            subprocess.run(["git", "-C", brain, *arguments], check=True)
        models = os.environ.get("NUGGET_MODELS") or str(REPOSITORY / ".models")
        os.environ |= {"HOME": place, "NUGGET_HOME": str(folder / "home"), "NUGGET_MODELS": models,
                       "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}  # fmt: skip
        os.environ.pop("ANTHROPIC_API_KEY", None)
        environment = dict(os.environ)
        asked = ask_times_s(brain)
        bare_starts, own_starts = [], []
        for _ in range(ROUNDS):
            bare_starts.append(time_to_reply_s(BARE, environment, brain))
            own_starts.append(time_to_reply_s(NUGGET, environment, brain))
        _, bare_calls = asyncio.run(call_times_s(BARE, "echo", {"text": "x"}, environment, brain))
        first, own_calls = asyncio.run(
            call_times_s(NUGGET, "get_relevant_context", {"task_description": QUESTION}, environment, brain)
        )
    print(f"{'':<44}{'ms':>8}{'ratio':>8}{'target':>8}")
    row("bare server: start to initialize", min(bare_starts))
    row("nugget serve: start to initialize", min(own_starts), min(own_starts) / min(bare_starts), 1.3)
    row("nugget serve: start to first answer", first)
    row("bare server: a call, p50", median(bare_calls))
    row("a question in this process, p50", median(asked))
    row("get_relevant_context: a call, p50", median(own_calls), median(own_calls) / median(asked))


def row(name: str, seconds: float, ratio: float | None = None, target: float | None = None) -> None:
    """One line of the table."""
    shown = f"{ratio:>7.2f}x" if ratio else ""
    print(f"{name:<44}{seconds * 1000:>8.1f}{shown:>8}{f'{target:.1f}x' if target else '':>8}")


if __name__ == "__main__":
    main()
