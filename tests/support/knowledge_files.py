"""Files of a brain as a person writes and commits them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path


def write(brain: Path, path: str, text: str) -> None:
    """Write one file, with its folders."""
    (brain / path).parent.mkdir(parents=True, exist_ok=True)
    (brain / path).write_text(text, "utf-8")


IDENTITY = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")


def shell(repo: Path, *args: str) -> str:
    """Run git in a repository; return what it prints."""
    return subprocess.run(["git", "-C", str(repo), *args], check=True, capture_output=True, text=True).stdout


def commit(repo: Path, paths: Iterable[str], message: str) -> str:
    """Commit exactly these paths; the new commit."""
    shell(repo, "--literal-pathspecs", "add", "--force", "--", *paths)
    shell(repo, *IDENTITY, "--literal-pathspecs", "commit", "-qm", message, "--only", "--", *paths)
    return shell(repo, "rev-parse", "HEAD").strip()
