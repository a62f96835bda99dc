"""The hooks of Claude Code: queue the session, start the worker and return.

At its start a session gets a short brief if there is reviewed knowledge about its repository, the whole brief with
`--brief`, none with `--no-brief`; with `--recall` each prompt gets related units.

Standard library only, and as little of it as possible: all SessionEnd hooks together have 1.5 s. Failures
must not disturb the client: the exit code is always 0, only the notice that the client shows at a session's start is
printed, and errors go to `$NUGGET_HOME/log/hook.log`.

Git's prepare-commit-msg hook, `nugget commit --hook FILE [SOURCE [COMMIT]]`, is just as quiet and ends within five
seconds; if it fails, git's message stays as it is. It needs more than the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nugget.infra import files, system

if TYPE_CHECKING:
    from nugget import commits

NOTICE = "This session will be analyzed for knowledge capture"
CATCH_UP_EVERY_S = 3600
_STDIN_WAIT_S = 1.0
_MAX_PAYLOAD_BYTES = 4_000_000
FLAGS = ("--brief", "--no-brief", "--recall", "--notes")
SHORT_BRIEF_TOKENS = 150
_CONTEXT_S = 1.5
"""Time limit; on an overloaded machine a session starts without a brief."""
_BRIEFED_ALREADY = ("resume", "fork")
"""Ways to start a session whose conversation already has the brief."""
_QUEUED_EVENTS = ("SessionEnd", "PreCompact", "")
_JOB_FIELDS = {"session_id": "session", "transcript_path": "transcript", "cwd": "cwd"}

_READ_FOR_S = 0.15
"""Processor time for reading sessions before a commit."""
_COMMIT_S = 5.0
_OF_FILES = ("claude-code", "codex", "gemini-cli")
"""Agents that keep each session in a file; databases are too slow to read while a person waits."""
_HANDED_ON = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
"""The variables in which git describes the commit under way, such as the index of `git commit FILE`."""


def is_hook_call(arguments: Sequence[str]) -> bool:
    """Return True for a hook call: `capture-session` without other arguments, and the payload on stdin."""
    is_ours = list(arguments[:1]) == ["capture-session"] and all(flag in FLAGS for flag in arguments[1:])
    return is_ours and sys.stdin is not None and not sys.stdin.isatty()


def main(arguments: Sequence[str] = ()) -> int:
    """Act on the hook payload on stdin; return 0.

    SessionEnd (and PreCompact) queue the session; SessionStart prints the notice and, at most every five minutes, has
    the worker follow the remote and sync the indexes, and once an hour also look for sessions that were never captured.
    With `--notes` any event only notes the session for the next worker. A session that Nugget itself started is
    ignored. NUGGET_BRIEF=1 is `--brief`, NUGGET_BRIEF=0 `--no-brief`, NUGGET_RECALL=1 `--recall`.
    """
    if os.environ.get(files.GUARD):
        return 0
    home = home_folder()
    try:
        payload = _read_payload()
        event = payload.get("hook_event_name") or ""
        if "--notes" in arguments:
            _session_ends(home, payload, notes=True)
        elif event == "SessionStart":
            _session_starts(home, payload, brief=_brief_tokens(arguments))
        elif event == "UserPromptSubmit" and _wants(arguments, "--recall", "NUGGET_RECALL"):
            _say(_context(payload, "recall"))
        elif event in _QUEUED_EVENTS and (payload.get("transcript_path") or payload.get("session_id")):
            _session_ends(home, payload)
    except Exception as error:
        note(home, error)
    return 0


def home_folder() -> str:
    """Return `$NUGGET_HOME` as `config.read_environment` reads it."""
    return os.path.abspath(os.path.expanduser(os.environ.get("NUGGET_HOME") or os.path.join("~", ".nugget")))


def _read_payload() -> dict[str, object]:
    """Return the JSON object on stdin, complete or not closed; empty if none arrives within a second.

    Reading stops where the object ends, because some clients keep the pipe open.
    """
    received = b""
    deadline = time.monotonic() + _STDIN_WAIT_S
    while len(received) < _MAX_PAYLOAD_BYTES and system.has_input(max(0.0, deadline - time.monotonic())):
        part = os.read(0, 65536)
        received += part
        if not part or part.rstrip().endswith(b"}"):
            with suppress(ValueError):
                payload = json.loads(received)
                return payload if isinstance(payload, dict) else {}
        if not part:
            break
    if received.strip():
        raise ValueError(f"the payload on stdin is not a JSON object ({len(received)} bytes)")
    return {}


def _session_ends(home: str, payload: dict[str, object], *, notes: bool = False) -> None:
    """Queue the session and start a worker; with `notes`, only queue one job for the next worker."""
    job: dict[str, object] = {"queued": time.time()}
    for theirs, ours in _JOB_FIELDS.items():
        value = payload.get(theirs)
        if isinstance(value, str):
            job[ours] = value
    if os.environ.get("NUGGET_BRAIN"):
        job["brain"] = os.path.abspath(os.path.expanduser(os.environ["NUGGET_BRAIN"]))
    if notes and job.keys() & {"session", "transcript"}:
        name = "".join(letter if letter.isalnum() else "-" for letter in str(job.get("session") or job["transcript"]))
        files.queue_job(home, job, name=f"noted-{name[-80:]}.json")
    elif not notes:
        files.queue_job(home, job)
        files.start_worker(home)


def _session_starts(home: str, payload: dict[str, object], *, brief: int | None) -> None:
    source, brain = payload.get("source"), _brain(home)
    output: dict[str, object] = {}
    if brain and source != "compact":
        output["systemMessage"] = " · ".join([NOTICE, *_review_state(home, brain)])
    if brief != 0 and source not in _BRIEFED_ALREADY:
        try:
            output |= _context(payload, "brief", unasked=brief)
        except Exception as error:
            note(home, error)
    _say(output)
    queue = files.make_queue(home)
    stamps = [os.path.join(queue, f"{name}.stamp") for name in ("follow", "catch-up")]
    follows, catches_up = map(files.is_due, stamps, (files.FOLLOW_EVERY_S, CATCH_UP_EVERY_S))
    if (catches_up or (follows and brain)) and files.start_worker(home, *(["--catch-up"] if catches_up else [])):
        for stamp in stamps if catches_up else stamps[:1]:
            files.replace(stamp, b"")


def _review_state(home: str, brain: str) -> list[str]:
    """Return the number of waiting proposals and of those merged since the last session, as recorded by the worker."""
    queue = files.make_queue(home)
    try:
        with open(os.path.join(queue, files.REVIEW_STATE), "rb") as file:
            waiting, merged = json.load(file)[os.path.realpath(brain)]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    shown = os.path.join(queue, "merged.shown")
    before = merged
    with suppress(OSError, ValueError), open(shown, "rb") as file:
        before = int(file.read())
    files.replace(shown, b"%d" % merged)
    said = f"{waiting} proposal{'' if waiting == 1 else 's'} wait{'s' if waiting == 1 else ''}"
    return [*([said] if waiting else []), *([f"{merged - before} merged"] if merged > before else [])]


def _brief_tokens(arguments: Sequence[str]) -> int | None:
    """Return the limit of the brief in tokens: None for the whole brief, 0 for none."""
    if _wants(arguments, "--brief", "NUGGET_BRIEF"):
        return None
    is_off = "--no-brief" in arguments or os.environ.get("NUGGET_BRIEF", "").lower() in ("0", "false", "no")
    return 0 if is_off else SHORT_BRIEF_TOKENS


def _wants(arguments: Sequence[str], flag: str, variable: str) -> bool:
    return flag in arguments or os.environ.get(variable, "").lower() in ("1", "true", "yes")


def _context(payload: dict[str, object], what: str, *, unasked: int | None = None) -> dict[str, object]:
    """Return the output that the client adds to the conversation; empty if nothing was found in time.

    `unasked` is the limit in tokens of a brief that was not asked for.
    """
    from datetime import UTC, datetime
    from pathlib import Path

    with files.time_limit(_CONTEXT_S):
        from nugget.config import read_environment
        from nugget.errors import UsageError
        from nugget.upkeep import briefing

        environment, now = read_environment(), datetime.now(UTC)
        folder, session = Path(str(payload.get("cwd") or os.getcwd())), str(payload.get("session_id") or "")
        try:
            if what == "brief":
                text = briefing.brief(environment, folder, session=session, now=now, unasked=unasked)
            else:
                text = briefing.recall(environment, str(payload.get("prompt") or ""), folder, now=now)
        except UsageError as error:  # the brain here is not trusted
            return {"systemMessage": str(error)} if unasked is None else {}
    if not text:
        return {}
    return {"hookSpecificOutput": {"hookEventName": payload["hook_event_name"], "additionalContext": text}}


def _say(output: dict[str, object]) -> None:
    if output:
        with suppress(OSError):
            os.write(1, json.dumps(output).encode() + b"\n")


def _brain(home: str) -> str:
    """Return the folder of the brain in use, or ""."""
    if os.environ.get("NUGGET_BRAIN"):
        return os.path.expanduser(os.environ["NUGGET_BRAIN"])
    with suppress(OSError), open(os.path.join(home, "config.yaml"), encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("brain:"):
                return os.path.expanduser(line[6:].strip().strip("\"'"))
    return ""


def note(home: str | os.PathLike[str], error: BaseException, *, hook: str = "") -> None:
    """Write one line to the log that `nugget status` and `nugget doctor` read; failures to write are ignored."""
    text = ""
    with suppress(Exception):  # the message may quote the payload
        from nugget.redaction import redact

        text = redact(str(error)[:2000]).text
    with suppress(OSError):
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {hook}{type(error).__name__}: {text}"[:500]
        with files.open_private(os.path.join(home, "log", "hook.log"), "a") as log:
            log.write(" ".join(line.split()) + "\n")


def prepare_commit_message(file: str, source: str = "", *_: str) -> int:
    """Write a message into git's file if the person gave none (`source` is empty); always return 0."""
    try:
        with files.time_limit(_COMMIT_S):
            if not source:
                _write_message(file)
    except Exception as error:  # nothing may stop a commit
        note(home_folder(), error, hook="commit hook: ")
    return 0


def _write_message(file: str) -> None:
    from dataclasses import replace
    from datetime import UTC, datetime
    from pathlib import Path

    from nugget import commits
    from nugget.config import load_settings, read_environment

    environment = read_environment()
    variables = {name: environment.variables[name] for name in _HANDED_ON if environment.variables.get(name)}
    here = Path.cwd()
    settings = load_settings(environment)
    agents = tuple(name for name in _OF_FILES if {name, "all"} & {*settings.capture_agents})
    settings = replace(settings, capture_agents=agents)  # type: ignore[arg-type]

    def make() -> commits.Commit | None:
        until = time.process_time() + _READ_FOR_S
        return commits.prepare(here, environment, settings, now=datetime.now(UTC), variables=variables, until=until)

    commits.write_message(here, Path(file), make)
