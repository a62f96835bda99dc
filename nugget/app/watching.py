"""Capture without a hook: look for sessions that have ended, and have the system start that at login."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.app.worker import queue_ended, work
from nugget.config import Environment, config_home, user_home
from nugget.errors import NuggetError
from nugget.infra import files
from nugget.upkeep.client_settings import read_text, write_text

if TYPE_CHECKING:
    from nugget.capture.queue import Job

EVERY_S = 120.0
_NAME = "nugget-watch"
_KEPT = ("NUGGET_HOME", "NUGGET_BRAIN", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
"""Variables of this shell that the service needs to look at the same places."""


def watch(environment: Environment, *, report: Callable[[Job], None]) -> None:
    """Queue and capture sessions that have ended, again and again; `report` gets each job as it ended."""
    files.make_queue(environment.home)
    while True:
        with suppress(NuggetError):  # another worker is at work: it takes what is queued
            queue_ended(environment, ("all",), background=True)
            work(environment, background=True, report=report)
        time.sleep(EVERY_S)


def set_up(environment: Environment, command: Path, *, remove: bool) -> Iterator[str]:
    """Write the user's service that runs `nugget watch` and start it, or stop and remove it; yield what was done.

    Raises InstallError if the file cannot be written.
    """
    is_mac = sys.platform == "darwin"
    agents = user_home(environment) / "Library" / "LaunchAgents" / f"{_NAME}.plist"
    file = agents if is_mac else config_home(environment) / "systemd" / "user" / f"{_NAME}.service"
    control = ["launchctl"] if is_mac else ["systemctl", "--user"]
    start = [["load", "-w", str(file)]] if is_mac else [["daemon-reload"], ["enable", "--now", _NAME]]
    stop = [["unload", "-w", str(file)]] if is_mac else [["disable", "--now", _NAME]]
    if remove:
        if read_text(file) is None:
            yield "There is no service of Nugget's; nothing to change."
            return
        yield from _controlled(control, stop)
        write_text(file, None)
        yield f"Removed {file}"
        return
    files.make_queue(environment.home)
    kept = {name: environment.variables[name] for name in _KEPT if environment.variables.get(name)}
    text = _launchd(command, kept) if is_mac else _systemd(command, kept)
    write_text(file, text, mode=0o644)
    yield f"Wrote {file}"
    yield from _controlled(control, start)


def _controlled(control: list[str], calls: list[list[str]]) -> Iterator[str]:
    """Run the system's own command; yield what a person has to run if that is not possible."""
    for arguments in calls:
        line = [*control, *arguments]
        is_done = False
        if shutil.which(line[0]):
            with suppress(OSError, subprocess.TimeoutExpired):
                is_done = subprocess.run(line, capture_output=True, timeout=30, check=False).returncode == 0
        if not is_done:
            yield f"Run this yourself: {' '.join(line)}"


def _systemd(command: Path, variables: dict[str, str]) -> str:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
        return f'"{escaped}"'

    lines = [f"Environment={quoted(f'{name}={value}')}" for name, value in variables.items()]
    start = f"ExecStart={quoted(str(command)).replace('$', '$$')} watch"
    return "\n".join([
        "[Unit]", "Description=Nugget: capture the sessions of coding agents", "", "[Service]", start, *lines,
        "Nice=10", "Restart=on-failure", "RestartSec=60", "", "[Install]", "WantedBy=default.target", "",
    ])  # fmt: skip


def _launchd(command: Path, variables: dict[str, str]) -> str:
    job = {
        "Label": _NAME, "ProgramArguments": [str(command), "watch"], "EnvironmentVariables": variables, "Nice": 10,
        "RunAtLoad": True, "KeepAlive": {"SuccessfulExit": False},
    }  # fmt: skip
    return plistlib.dumps(job).decode()
