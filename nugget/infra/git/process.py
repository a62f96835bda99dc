"""Starting git: a cleaned environment, no prompts, no hooks, and one way of failing."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from nugget.config import read_environment
from nugget.errors import GitError

_KEPT_VARIABLES = frozenset(
    {
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_ASKPASS",
        "GIT_EXEC_PATH",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_GLOBAL",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_NO_VERIFY",
        "GIT_PROXY_COMMAND",
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
    }
)
_NO_HOOKS = f"core.hooksPath={os.devnull}"
ALWAYS = ("--literal-pathspecs", "-c", _NO_HOOKS, "-c", "gc.auto=0", "-c", "maintenance.auto=false")

_INDEX_IS_TAKEN = b"index.lock': File exists"
"""What git says when it finds the index being written by another; it has changed nothing then."""
_TAKEN = re.compile(rb"'([^'\n]+\.lock)': File exists")
PATIENCE_S = 4.0
"""So long other git processes are waited for."""


def environment() -> dict[str, str]:
    """The variables for a git process: ours without GIT_DIR and its like, and with every prompt switched off."""
    kept = {
        name: value
        for name, value in read_environment().variables.items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": ":", "GIT_PAGER": "cat", "LC_ALL": "C"}


def run(
    repo: Path,
    *args: str,
    stdin: bytes | None = None,
    check: bool = True,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> bytes:
    """Standard output of `git <args>` in `repo`; `variables` are set on top of the cleaned environment.

    Where another git process holds the index for the moment, it is tried again for `PATIENCE_S` seconds. Raises
    GitError when git is missing, does not end in time, or (with `check`) fails.
    """
    completed = start(repo, args, stdin=stdin, variables=variables, timeout_s=timeout_s)
    given_up = time.monotonic() + PATIENCE_S
    while check and completed.returncode != 0 and _INDEX_IS_TAKEN in completed.stderr and time.monotonic() < given_up:
        time.sleep(0.1)
        completed = start(repo, args, stdin=stdin, variables=variables, timeout_s=timeout_s)
    if check and completed.returncode != 0 and (taken := _TAKEN.search(completed.stderr)):
        raise locked(repo, repo / os.fsdecode(taken[1]))
    if check and completed.returncode != 0:
        raise GitError(f"git {_verb(args)} failed in {repo}: {_complaint(completed)}", hint=_hint(completed.stderr))
    return completed.stdout


def start(
    repo: Path,
    args: Sequence[str],
    *,
    stdin: bytes | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[bytes]:
    """The ended process of `git <args>`, whatever its exit code. Raises GitError when there was none."""
    try:
        return subprocess.run(
            ["git", *ALWAYS, *args],
            cwd=repo,
            env=environment() | dict(variables or {}),
            input=stdin if stdin is not None else b"",
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        if not repo.is_dir():
            raise GitError(f"{repo} does not exist.") from error
        raise GitError("git is not installed, or not on the PATH.", hint="Install git and run this again.") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git {_verb(args)} did not end within {timeout_s:g} s in {repo}.") from error
    except (OSError, ValueError) as error:
        raise GitError(f"git {_verb(args)} could not be started in {repo} ({error}).") from error


def locked(repo: Path, lock: Path) -> GitError:
    """The error of finding a lock file of git in a repository: whose it may be, and since when it is there."""
    since = ""
    with suppress(OSError):
        since = f", which is there since {datetime.fromtimestamp(lock.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"
    return GitError(
        f"git holds {repo} locked by {lock}{since}.",
        hint="Another git process is at work there; where there is none any more, delete that file.",
    )


def _verb(args: Sequence[str]) -> str:
    remaining = iter(args)
    for word in remaining:
        if word == "-c":
            next(remaining, None)
        elif not word.startswith("-"):
            return word
    return ""


def _complaint(completed: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line.strip() for line in completed.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (marked or lines or [f"exit code {completed.returncode}"])[0]
    return chosen.removeprefix("fatal: ").removeprefix("error: ")


def _hint(stderr: bytes) -> str | None:
    if b"dubious ownership" in stderr:
        return "The folder belongs to another user; `git config --global --add safe.directory <folder>` trusts it."
    return None
