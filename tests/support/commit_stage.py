"""What tests of `nugget commit` and of its hook share: the command, a repository, and an agent at work in it."""

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from replay import Agent, change_by_hand, git, make_repository

CLIENT = """import time


def call(send):
    for attempt in range(3):
        try:
            return send()
        except OSError:
            time.sleep(2 ** attempt)
    raise TimeoutError
"""
SUBJECT = "feat(client): add a retry with backoff to the payment client"


def make_shop(folder: Path) -> Path:
    """A repository with one old commit."""
    make_repository(folder)
    change_by_hand(folder, "README.md", "# Shop\n", at=datetime.now(UTC) - timedelta(days=30))
    return folder


def recent_agent(repo: Path, home: Path) -> Agent:
    """An agent that worked in the repository half an hour ago."""
    return Agent(repo=repo, claude_config=home / ".claude", started=datetime.now(UTC) - timedelta(minutes=30))


def work(agent: Agent, path: str = "src/client.py") -> None:
    """A session of one request, that writes a file of eight lines that count; all is staged."""
    agent.prompt("Can you please add a retry with backoff to the payment client?")
    agent.write(path, CLIENT)
    agent.reply("Done.")
    git(agent.repo, "add", "-A")


def run(command: Path, repo: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    return subprocess.run(
        [str(command), *arguments], cwd=repo, capture_output=True, text=True, env=os.environ | variables, timeout=60
    )


def last_message(repo: Path) -> str:
    """The message of the last commit."""
    return git(repo, "log", "-1", "--format=%B").strip()


def trailer(repo: Path, key: str) -> list[str]:
    """The values of a trailer as git itself reads the last commit's message."""
    return git(repo, "log", "-1", f"--format=%(trailers:key={key},valueonly)").split("\n\n")[0].splitlines()
