"""The prepare-commit-msg hook of git: `nugget commit --hook FILE [SOURCE [COMMIT]]`.

The hook never stops a commit: the exit code is 0, nothing is printed, and it ends within five seconds. Failures are
logged in `$NUGGET_HOME/log/hook.log`; the message then stays as git made it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from nugget.config import Environment, load_settings, read_environment
from nugget.hooks import note
from nugget.infra import files

_MAX_TRANSCRIPT_BYTES = 24 * 1024 * 1024
_READ_FOR_S = 0.15
"""Processor time for reading sessions."""
_GIVEN_UP_AFTER_S = 5.0
_OF_FILES = ("claude-code", "codex", "gemini-cli")
"""Agents whose sessions are single files; databases are too slow to read while a person waits."""
_HANDED_ON = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
"""The variables by which git describes the commit under way, such as the index of `git commit FILE`."""


def main(arguments: Sequence[str]) -> int:
    """Write a message into git's file if the person gave none; always return 0."""
    environment = read_environment()
    try:
        with files.time_limit(_GIVEN_UP_AFTER_S):
            _write(environment, *arguments[2:4])
    except Exception as error:  # nothing may stop a commit
        note(environment.home, error, hook="commit hook: ")
    return 0


def _write(environment: Environment, file: str = "", source: str = "") -> None:
    if source or not file:
        return
    from dataclasses import replace

    from nugget import commits

    variables = {name: environment.variables[name] for name in _HANDED_ON if environment.variables.get(name)}
    here = Path.cwd()
    settings = load_settings(environment)
    agents = tuple(name for name in _OF_FILES if name in settings.capture.agents or "all" in settings.capture.agents)
    settings = replace(settings, capture=replace(settings.capture, agents=agents))

    def make() -> commits.Commit | None:
        options = commits.CommitOptions(
            now=datetime.now(UTC), variables=variables, only_with_sessions=True, max_bytes=_MAX_TRANSCRIPT_BYTES,
            until=time.process_time() + _READ_FOR_S,
        )  # fmt: skip
        return commits.prepare(here, environment, settings, options)

    commits.write_message(Path(file), make, comment=lambda: _comment_mark(here))


def _comment_mark(repo: Path) -> str:
    """Return the start of comment lines in a commit message: `core.commentString`, `core.commentChar`, else `#`."""
    from nugget.infra import git

    keys = ("core.commentString", "core.commentChar")
    named = (git.run(repo, "config", "--get", key, check=False).decode("utf-8", "replace").strip() for key in keys)
    return next((mark for mark in named if mark and mark != "auto"), "#")
