"""`nugget install --brief --recall`: what sessions are told, switched on and off in settings that are not ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nugget.cli import run
from nugget.config import read_environment
from nugget.upkeep import install
from nugget.upkeep.client_settings import Scope

PLAIN = ["capture-session"]
BOTH = {"SessionEnd": PLAIN, "SessionStart": [*PLAIN, "--brief"], "UserPromptSubmit": [*PLAIN, "--recall"]}
FOREIGN = """\
{
    "hooks": { "UserPromptSubmit": [ {"hooks": [ {"type": "command", "command": "other --recall"} ]} ] },
    "model": "opus"
}
"""


@pytest.fixture
def command(tmp_path: Path) -> Path:
    file = tmp_path / "bin" / "nugget"
    file.parent.mkdir()
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def settings(isolated_home: Path) -> Path:
    file = isolated_home / ".claude" / "settings.json"
    file.parent.mkdir()
    return file


def put_in(command: Path, **told: bool) -> dict[str, Any]:
    """Install; the arguments of our hooks by event."""
    environment = read_environment()
    install.apply(install.plan_install(Scope.USER, environment, command=command, cwd=Path("/"), **told), environment)
    hooks = json.loads((environment.claude_config / "settings.json").read_text())["hooks"]
    entries = {event: [entry for group in groups for entry in group["hooks"]] for event, groups in hooks.items()}
    return {
        event: entry["args"] for event, found in entries.items() for entry in found if entry["command"] == str(command)
    }


@pytest.mark.proves("BRIEF-INSTALL", "BRIEF-OFF")
def test_sessions_are_told_something_only_where_it_was_asked_for(command: Path, settings: Path) -> None:
    assert put_in(command) == {"SessionEnd": PLAIN, "SessionStart": PLAIN}
    assert put_in(command, brief=True, recall=True) == BOTH
    before = settings.read_text()
    assert put_in(command) == BOTH, "an installation that says nothing of it leaves it as it is"
    assert put_in(command, brief=True, recall=True) == BOTH and settings.read_text() == before
    (found,) = install.inspect(read_environment())
    assert not found.missing and not found.outdated and "UserPromptSubmit hook" in found.present
    assert put_in(command, recall=False) == {name: BOTH[name] for name in ("SessionEnd", "SessionStart")}
    assert put_in(command, brief=False) == {"SessionEnd": PLAIN, "SessionStart": PLAIN}


@pytest.mark.proves("BRIEF-INSTALL")
@pytest.mark.parametrize("content", [None, FOREIGN, '{"hooks":{"Stop":[]}}\r\n'])
def test_uninstalling_takes_out_all_that_was_put_in(command: Path, settings: Path, content: str | None) -> None:
    if content is not None:
        settings.write_bytes(content.encode())
    put_in(command, brief=True)
    put_in(command, recall=True)
    environment = read_environment()
    install.apply(install.plan_uninstall(Scope.USER, environment, cwd=Path("/")), environment)
    left = json.loads(settings.read_bytes()) if settings.exists() else None
    assert left == (json.loads(content) if content else None)


@pytest.mark.proves("BRIEF-INSTALL")
def test_the_command_line_switches_them(
    command: Path, settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(command)])
    assert run(["install", "--brief", "--recall"]) == 0
    written = json.loads(settings.read_text())["hooks"]
    assert {event: groups[0]["hooks"][0]["args"] for event, groups in written.items()} == BOTH
    assert run(["install", "--no-recall", "--dry-run"]) == 0
    assert "--recall" in capsys.readouterr().out
    assert run(["uninstall"]) == 0 and not settings.exists()
