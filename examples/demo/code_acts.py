"""The code that the recorded session worked on: why it is so, where reasons are missing, what failed, and a commit."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stage import Stage, run, title

RECORDED = "/home/robin/src/payments-api"
"""Where the session was recorded."""
DAY = "2026-11-04"
"""When it was recorded; in the demo it was yesterday."""


def play_code(stage: Stage, transcript: Path, *, number: int) -> None:
    """Ask about the code: failure and fix, why a file is as it is, coverage, and a commit with its reasons."""
    repository = make_repository(stage, transcript)
    title(stage, number, "What failed, and what fixed it", "read from the session; nobody wrote it down")
    run(stage, "logs", "context", "what went wrong", "--last", at_most_lines=16, folder=repository)
    title(stage, number + 1, "Why is this code as it is?", "in the repository that the session worked in")
    run(stage, "extract", at_most_lines=4, folder=repository)
    run(stage, "why", "payments/webhooks.py", at_most_lines=20, folder=repository)
    run(stage, "coverage", at_most_lines=6, folder=repository)
    title(stage, number + 2, "Commit", "the message comes from the session, with the shares of agent and person")
    run(stage, "commit", "--dry-run", "--offline", at_most_lines=24, folder=repository)


def yesterday() -> str:
    """Return the day before today as transcripts write it."""
    return (datetime.now(UTC) - timedelta(days=1)).date().isoformat()


def make_repository(stage: Stage, transcript: Path) -> Path:
    """Make the repository as the session found it, committed, and what the session changed, staged."""
    repository = stage.home / "src" / Path(RECORDED).name
    before, after = _files(transcript, repository)
    _write(repository, before)
    for arguments in (["init", "--quiet", "-b", "main"], ["add", "."], ["commit", "--quiet", "-m", "Take payments"]):
        _git(stage, repository, *arguments)
    _write(repository, after)
    _git(stage, repository, "add", ".")
    return repository


def _files(transcript: Path, repository: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files as the session first read them, and as it left them."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    reads: dict[str, str] = {}
    for block in _blocks(transcript):
        given = block.get("input", {})
        path = str(given.get("file_path", "")).removeprefix(f"{repository}/")
        if block.get("name") == "Read":
            reads[block["id"]] = path
        elif block.get("name") == "Write":
            after[path] = given["content"]
        elif block.get("name") == "Edit" and path in after:
            after[path] = after[path].replace(given["old_string"], given["new_string"])
        elif block.get("tool_use_id") in reads:
            path, shown = reads[block["tool_use_id"]], str(block["content"]).split("<system-reminder>")[0]
            text = "\n".join(re.findall(r"^ *\d+[\t→](.*)$", shown, re.MULTILINE)) + "\n"
            before[path] = after[path] = text
    return before, after


def _blocks(transcript: Path) -> list[dict[str, Any]]:
    records = (json.loads(line) for line in transcript.read_text("utf-8").splitlines())
    contents = ((record.get("message") or {}).get("content") for record in records)
    return [block for content in contents if isinstance(content, list) for block in content]


def _write(repository: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text, "utf-8")


def _git(stage: Stage, repository: Path, *arguments: str) -> None:
    person = ["-c", "user.name=Robin", "-c", "user.email=robin@payments.example"]
    before = f"{yesterday()}T08:00:00Z"
    dates = {"GIT_AUTHOR_DATE": before, "GIT_COMMITTER_DATE": before}
    subprocess.run(["git", "-C", str(repository), *person, *arguments], env=stage.variables | dates, check=True)
