"""The console entry as a process: exit codes, the hook's short way, and what happens when nothing was foreseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import REPOSITORY

from nugget.__main__ import main

FAKE_KEY = "gh" + "p_" + "x7Kq2LmN9vRt4WbZ8cYd1FgH5jPs3QaU6eTi"
MODULES = (
    "import atexit, sys; atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr));"
    "from nugget.__main__ import main; sys.exit(main())"
)


def start(*arguments: str, code: str | None = None, **options: object) -> subprocess.Popen[str]:
    """`nugget <arguments>` as a process of its own."""
    program = ["-c", code] if code else ["-m", "nugget"]
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def nugget(*arguments: str, stdin: str = "", code: str | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `nugget <arguments>`."""
    with start(*arguments, code=code) as process:
        out, err = process.communicate(stdin, timeout=120)
    return process.returncode, out, err


@pytest.mark.proves("CLI-EXIT", "CLI-ERRORS")
def test_exit_codes_tell_done_failed_and_wrong_usage_apart() -> None:
    code, out, err = nugget("--version")
    assert (code, err) == (0, "") and out.startswith("nugget ")
    code, out, err = nugget("status")
    assert (code, out) == (1, "")
    assert err == "Error: There is no brain yet.\nRun `nugget init` to make one.\n"
    code, out, err = nugget("ask")
    assert (code, out) == (2, "")
    assert err == "Error: Missing argument 'QUESTION'.\n`nugget ask --help` shows how it is used.\n"


class Odd(str):
    """A text that fails in the hands of whoever looks into it."""

    def __getitem__(self, key: object) -> str:
        raise RuntimeError(f"failed with key {FAKE_KEY}")


@pytest.mark.proves("CLI-CRASH", "CLI-EXIT")
def test_what_nobody_foresaw_points_to_a_log_without_secrets(
    isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([Odd("ask")]) == 3
    shown = capsys.readouterr()
    (log,) = (isolated_home / ".nugget/log").iterdir()
    assert shown.err == f"Error: something unexpected went wrong (RuntimeError). Details are in {log}.\n"
    text = log.read_text("utf-8")
    assert "Traceback" in text and "RuntimeError: failed with key [redacted:" in text
    assert FAKE_KEY not in text
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.proves("CLI-PIPE")
@pytest.mark.parametrize("limit", ["1", "40"])
def test_a_reader_that_leaves_early_is_no_failure(brain: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    with start("--brain", str(brain), "search", "--json", "-n", limit, "the error in a test of the cache") as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, "")


@pytest.mark.proves("CLI-HOOK")
def test_a_hook_call_is_queued_without_the_command_line(home: Path, queue_lock: None) -> None:
    payload = {"hook_event_name": "SessionEnd", "session_id": "s1", "transcript_path": "/nowhere/s1.jsonl"}
    code, out, err = nugget("capture-session", stdin=json.dumps(payload), code=MODULES)
    assert (code, out) == (0, "")
    modules = set(eval(err.splitlines()[-1]))
    assert modules.isdisjoint({"typer", "rich", "nugget.cli", "nugget.config", "dataclasses", "pathlib"})
    (job,) = (home / "queue/pending").iterdir()
    assert json.loads(job.read_text())["session"] == "s1"
