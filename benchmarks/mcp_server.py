"""Measure the reply to `initialize` against a bare server of one tool, and a call against the question alone.

Run: `python benchmarks/mcp_server.py`. Prints a table; ratios of one run, so that the machine does not matter. Targets:
a window beside others takes .2 x the processor time and .4 x the memory of a bare server, the first one answers
`initialize` in 2 x its time, and eight that open at once in 4 x.
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


def start(command: list[str], environment: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    """Start a server process and send it `initialize`."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=cwd
    )
    assert process.stdin
    process.stdin.write(INITIALIZE)
    process.stdin.flush()
    return process


def window(command: list[str], environment: dict[str, str], cwd: Path) -> tuple[float, float, float]:
    """Return the seconds until a new server replies to `initialize`, its processor seconds, and its megabytes."""
    began = time.perf_counter()
    process = start(command, environment, cwd)
    assert process.stdout
    assert process.stdout.readline().startswith(b'{"jsonrpc"')
    took = time.perf_counter() - began
    times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    spent = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    process.kill()
    process.communicate()
    return took, spent, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def windows_at_once_s(environment: dict[str, str], cwd: Path) -> float:
    """Return the seconds until the last of eight servers that start at once has replied."""
    began = time.perf_counter()
    processes = [start(NUGGET, environment, cwd) for _ in range(8)]
    for process in processes:
        assert process.stdout and process.stdout.readline().startswith(b'{"jsonrpc"')
    took = time.perf_counter() - began
    for process in processes:
        process.kill()
        process.communicate()
    return took


async def call_times_s(
    command: list[str], tool: str, arguments: dict[str, str], environment: dict[str, str], cwd: Path
) -> tuple[float, list[float]]:
    """Return the seconds from the start of a server to its first answer, and those of each later call."""
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
            assert not result.is_error, result.content
    return first, times


def ask_times_s(brain: Path) -> list[float]:
    """Return the seconds of each question in this process, without a protocol."""
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
        os.environ |= {
            "HOME": place, "NUGGET_HOME": str(folder / "home"), "NUGGET_MODELS": models, "NUGGET_BRAIN": str(brain),
            "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY),
        }  # fmt: skip
        os.environ.pop("ANTHROPIC_API_KEY", None)
        environment = dict(os.environ)
        asked = ask_times_s(brain)
        at_once = windows_at_once_s({**environment, "NUGGET_HOME": str(folder / "eight")}, brain)
        first_start = window(NUGGET, environment, brain)[0]
        turns = [(window(BARE, environment, brain), window(NUGGET, environment, brain)) for _ in range(ROUNDS)]
        bare, own = ([min(turn[side][what] for turn in turns) for what in range(3)] for side in range(2))
        _, bare_calls = asyncio.run(call_times_s(BARE, "echo", {"text": "x"}, environment, brain))
        first, own_calls = asyncio.run(
            call_times_s(NUGGET, "get_relevant_context", {"task_description": QUESTION}, environment, brain)
        )
    print(f"{'':<44}{'ms':>8}{'ratio':>8}{'target':>8}")
    row("bare server: start to initialize", bare[0])
    row("nugget serve, first window: the same", first_start, first_start / bare[0], 2.0)
    row("nugget serve, eight at once: the last", at_once, at_once / bare[0], 4.0)
    row("nugget serve, a further window: the same", own[0], own[0] / bare[0], 0.3)
    row("  its processor time", own[1], own[1] / bare[1], 0.2)
    print(f"{'  its memory, in MB':<44}{own[2]:>8.1f}{own[2] / bare[2]:>7.2f}x{'0.4x':>8}")
    row("nugget serve: start to first answer", first)
    row("bare server: a call, p50", median(bare_calls))
    row("a question in this process, p50", median(asked))
    row("get_relevant_context: a call, p50", median(own_calls), median(own_calls) / median(asked))


def row(name: str, seconds: float, ratio: float | None = None, target: float | None = None) -> None:
    """Print one line of the table."""
    shown = f"{ratio:>7.2f}x" if ratio else ""
    print(f"{name:<44}{seconds * 1000:>8.1f}{shown:>8}{f'{target:.1f}x' if target else '':>8}")


if __name__ == "__main__":
    main()
