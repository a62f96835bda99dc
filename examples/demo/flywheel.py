"""Play the way from a session to the answer that the next agent gets, then questions about the code, and a team.

Every step is the real command, run as a person would run it, in a temporary HOME, without keys and without network.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from code_acts import DAY, RECORDED, play_code, yesterday
from stage import Stage, run, title
from team import play_team

from nugget.config import Environment, read_environment
from nugget.errors import NuggetError
from nugget.sources.claude_code import read_session
from nugget.sources.sessions import CLAUDE_CODE, find_sessions
from nugget.text import clean

if TYPE_CHECKING:
    from rich.console import Console

QUESTION = "Some webhooks fail the signature check although the secret is right. What should I look at?"
"""As the next person would ask, who has not seen the session."""

_CONFIGURED_BY = ("NUGGET_", "ANTHROPIC_", "GITHUB_", "CLAUDE", "GIT_", "OPENAI_", "VOYAGE_")
_SHOWN_LINES = 24


def main() -> int:
    """Run the demo; 0 when every step did what it says."""
    from rich.console import Console

    screen = Console(highlight=False, emoji=False)
    real = read_environment()
    home = Path(mkdtemp(prefix="nugget-demo-")).resolve()
    try:
        _play(set_up(home, screen))
    except (NuggetError, subprocess.CalledProcessError) as error:
        screen.print(f"[bold red]The demo stopped.[/] What it left behind is in {home}")
        screen.print(str(error), markup=False)
        return 1
    shutil.rmtree(home)
    _say_what_next(screen, real)
    return 0


def set_up(home: Path, screen: Console) -> Stage:
    """Make a new HOME without keys and settings; NUGGET_MODELS may name the folder of the converted model."""
    real = read_environment()
    variables = {name: value for name, value in real.variables.items() if not name.startswith(_CONFIGURED_BY)}
    variables |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "GIT_CONFIG_NOSYSTEM": "1"}
    if "NUGGET_MODELS" in real.variables:
        variables["NUGGET_MODELS"] = real.variables["NUGGET_MODELS"]
    beside = Path(sysconfig.get_path("scripts")) / "nugget"
    command = str(beside) if beside.exists() else shutil.which("nugget")
    if command is None:
        raise NuggetError("The command `nugget` is not installed.", hint="`make demo` installs it first.")
    return Stage(home=home, variables=variables, command=command, screen=screen)


def _play(stage: Stage) -> None:
    transcript = place_transcript(stage)
    session = read_session(transcript)
    folder, worked_on = transcript.parent.name, Path(session.cwd or "?").name
    stage.screen.print(
        "\n[bold]Nugget[/]: what a coding agent learns in one session, the next one knows.\n"
        f"This plays in a temporary HOME, offline and without any key: {stage.home}\n"
    )
    title(stage, 1, "Make a brain", "a git repository of markdown files; yours, readable without Nugget")
    run(stage, "init", "~/brain")
    title(
        stage, 2, "Capture a session", f"a recorded Claude Code session in {worked_on} ({len(session.events)} events): "
        "secrets are redacted first, then lessons are found, here without an LLM"
    )  # fmt: skip
    run(stage, "capture-session", "--transcript", f"~/.claude/projects/{folder}/{transcript.name}",
         "--with", "offline")  # fmt: skip
    title(stage, 3, "Review", "what was found waits on a git branch until you have looked at it")
    run(stage, "review", "list", at_most_lines=6)
    run(stage, "review", "show", at_most_lines=_SHOWN_LINES)
    run(stage, "review", "accept", *_waiting_branches(stage), at_most_lines=4)
    title(
        stage, 4, "Ask", "as the next person would, who has not seen the session; words and meaning are both searched"
    )
    run(stage, "sync")
    run(stage, "ask", QUESTION, "--no-llm", "--limit", "3")
    title(stage, 5, "What the next agent gets", "the same question, by a real MCP client over stdio")
    _ask_over_mcp(stage)
    play_code(stage, transcript, number=6)
    play_team(stage, transcript, number=9, question=QUESTION)


def place_transcript(stage: Stage) -> Path:
    """Put the bundled session where Claude Code would have written it."""
    bundled = Path(__file__).with_name("session.jsonl")
    repository = str(stage.home / "src" / Path(RECORDED).name)
    project = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in repository)
    placed = stage.home / ".claude" / "projects" / project / f"{read_session(bundled).id}.jsonl"
    placed.parent.mkdir(parents=True)
    placed.write_text(bundled.read_text("utf-8").replace(RECORDED, repository).replace(DAY, yesterday()), "utf-8")
    return placed


def _waiting_branches(stage: Stage) -> list[str]:
    listed = subprocess.run(
        ["git", "-C", str(stage.brain), "branch", "--list", "nugget/*", "--format=%(refname:short)"],
        env=stage.variables, check=True, capture_output=True, text=True,
    )  # fmt: skip
    branches = listed.stdout.split()
    if not branches:
        raise NuggetError("Capture proposed nothing.", hint="This is a bug of Nugget's: the session holds lessons.")
    return branches


def _ask_over_mcp(stage: Stage) -> None:
    """Ask through an MCP client and show the server's instructions and its answer."""
    from rich.panel import Panel
    from rich.text import Text

    told, answer, took_ms = asyncio.run(_call(stage))
    first = told.strip().split("\n\n")[0]
    stage.screen.print(Panel(Text(clean(first)), title="what the agent is told when it starts", style="dim"))
    stage.screen.print(f"[bold green]→[/] [bold]get_relevant_context[/](task_description={QUESTION!r})", soft_wrap=True)
    lines = clean(answer).splitlines()
    shown = "\n".join(lines[:_SHOWN_LINES]) + (f"\n… and {len(lines) - _SHOWN_LINES} more lines" if
                                               len(lines) > _SHOWN_LINES else "")  # fmt: skip
    stage.screen.print(Panel(Text(shown), title=f"what it gets: {len(answer):,} characters, {took_ms:.0f} ms"))
    stage.screen.print()


async def _call(stage: Stage) -> tuple[str, str, float]:
    """Return the server's instructions, its answer, and the duration of a call once the server is warm."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    server = StdioServerParameters(command=stage.command, args=["serve"], env=stage.variables, cwd=stage.home)
    async with Client(server) as client:
        question = {"task_description": QUESTION}
        await client.call_tool("get_relevant_context", question)
        began = time.perf_counter()
        result = await client.call_tool("get_relevant_context", question)
        took_ms = (time.perf_counter() - began) * 1000
        instructions = client.instructions or ""
    text = "\n".join(getattr(block, "text", "") for block in result.content)
    if result.is_error:
        raise NuggetError(f"The server answered: {text}")
    return instructions, text, took_ms


def _say_what_next(screen: Console, real: Environment) -> None:
    """Show how to do the same with one's own sessions, of which only the names are read."""
    own = list(find_sessions(real, [CLAUDE_CODE]))
    mine = str(own[-1].path) if own else "~/.claude/projects/<project>/<session>.jsonl"
    have = f" (there are {len(own)} of yours on this machine; this is the newest)" if own else ""
    screen.rule("[bold cyan]Now with your own", align="left", style="cyan")
    steps = (
        ("Install the command", "pipx install .        # or: uv tool install ."),
        ("Make your brain", "nugget init ~/brain"),
        (f"Capture a session{have}", f"nugget capture-session --transcript '{mine}'"),
        ("Look at what was found", "nugget review show    # then: nugget review accept"),
        ("Let Claude Code ask it", "nugget install"),
    )
    for number, (what, command) in enumerate(steps, 1):
        screen.print(f"{number}. {what}", soft_wrap=True)
        screen.print(f"   {command}", style="bold", markup=False, soft_wrap=True)
    screen.print("\n[dim]The temporary HOME is gone; nothing of yours was touched.[/]\n")
