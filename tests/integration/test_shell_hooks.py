"""The hook that records a shell, in bash, zsh and fish at a terminal, set up by the line that docs/evidence.md has."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logs import Logs, logs_in
from terminals import terminal

from nugget.sources.shell_logs import read_events

SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed"))
    for shell in ("bash", "zsh", "fish")
]
pytestmark = pytest.mark.parametrize("shell", SHELLS)


@pytest.fixture
def logs(isolated_home: Path) -> Iterator[Logs]:
    with logs_in(isolated_home) as made:
        yield made


def typed(shell: str, logs: Logs, *lines: str, **variables: str) -> list[dict[str, Any]]:
    """What is recorded while somebody types these lines, each when the shell has shown its next prompt."""
    home = logs.folder.parent
    with terminal(shell, home, {"AISH_LOG_DIR": str(logs.folder), **variables}) as at:
        for line in lines:
            at.run(line)
    return recorded(logs)


def recorded(logs: Logs) -> list[dict[str, Any]]:
    """The commands that were recorded: start and end as one."""
    found: list[dict[str, Any]] = []
    for file in logs.folder.glob("*/events.jsonl"):
        events, malformed = read_events(file)
        assert malformed == 0
        assert [kind for _, kind, _ in events] == ["command.start", "command.end"] * (len(events) // 2)
        for (began, _, start), (ended, _, end) in zip(events[::2], events[1::2], strict=True):
            found.append({"session": file.parent.name, "began": began, "ended": ended, **start, **end})
    return [one for one in found if one["cmd"] != "exit"]


@pytest.mark.proves("EVI-HOOK", "EVI-HOOK-OTHERS")
def test_commands_are_recorded_with_exit_code_duration_and_folder(shell, logs):
    (logs.folder.parent / "a place").mkdir(parents=True)
    odd = "echo 'a\"b\\c' 'schön 時間\ntwo'"
    found = typed(shell, logs, "false", odd, "cd 'a place'", "sh -c 'sleep 0.3; exit 7'")
    assert [(one["cmd"], one["exit"]) for one in found] == [
        ("false", 1), (odd, 0), ("cd 'a place'", 0), ("sh -c 'sleep 0.3; exit 7'", 7),
    ]  # fmt: skip
    last = found[-1]
    assert last["cwd"] == f"{logs.folder.parent}/a place" and 300 <= last["duration_ms"] < 20_000
    assert abs(last["ended"] / 1000 - time.time()) < 120
    folder = logs.folder / last["session"]
    assert not any(path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())), "nobody else can read"


@pytest.mark.proves("EVI-HOOK", "EVI-HOOK-OTHERS")
def test_what_is_to_be_left_out_is_not_recorded(shell, logs):
    pause = "set -g NUGGET_SHELL_OFF 1" if shell == "fish" else "NUGGET_SHELL_OFF=1"
    found = typed(
        shell, logs, " echo hidden", "export API_TOKEN=abc", "pass show mail; true", "echo seen", pause, "echo paused",
        "logged echo paused",
    )  # fmt: skip
    assert [one["cmd"] for one in found if one["cmd"] != pause] == ["echo seen"]
    assert "paused" not in "".join(file.read_text() for file in logs.folder.glob("*/stdout.log"))


@pytest.mark.proves("EVI-HOOK", "EVI-HOOK-OTHERS")
def test_output_is_recorded_where_asked_and_belongs_to_its_command(shell, logs):
    told = "sh -c 'echo fine; echo \"error: disk is full\" >&2; exit 3'"
    found = typed(shell, logs, "echo not kept", "logged seq 20000", f"logged {told}", "echo after")
    assert [(one["cmd"], one["exit"]) for one in found] == [
        ("echo not kept", 0), ("seq 20000", 0), (told, 3), ("echo after", 0),
    ]  # fmt: skip
    session = found[0]["session"]
    out = (logs.folder / session / "stdout.log").read_bytes()
    assert out == b"".join(b"%d\n" % n for n in range(1, 20_001)) + b"fine\n"
    assert found[1]["streams"] == {"stdout": [0, len(out) - 5], "stderr": [0, 0]}
    assert found[2]["streams"] == {"stdout": [len(out) - 5, len(out)], "stderr": [0, 20]}
    assert "streams" not in found[0] and "streams" not in found[3]
    logs.ingest(session)
    (incident,) = logs.ask(session, "what went wrong").incidents
    assert incident.facts["summary"][0] == "error: disk is full"


@pytest.mark.proves("EVI-HOOK", "EVI-HOOK-OTHERS")
def test_an_interrupted_command_is_recorded_and_an_abandoned_line_is_not(shell, logs):
    waiting = "sh -c 'echo wait''ing; sleep 50'"
    with terminal(shell, logs.folder.parent, {"AISH_LOG_DIR": str(logs.folder)}) as at:
        at.run(waiting, interrupt_at=b"waiting")
        at.type("rm -r abandoned")
        at.type("\x15")
        at.run("")
        at.run("echo after")
    assert [(one["cmd"], one["exit"]) for one in recorded(logs)] == [(waiting, 130), ("echo after", 0)]
