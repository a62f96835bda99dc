"""The console entry as a process: exit codes, the hook's short way, crashes, and what starting imports."""

import json
import os
import subprocess
import sys

import pytest
from paths import REPOSITORY

from nugget.__main__ import main

FAKE_KEY = "gh" + "p_" + "x7Kq2LmN9vRt4WbZ8cYd1FgH5jPs3QaU6eTi"


RUN = "import sys; from nugget.__main__ import main; sys.argv[0] = 'nugget'; sys.exit(main())"
HEAVY = (
    "anthropic", "apsw", "fastembed", "github", "httpx", "httpx2", "huggingface_hub", "kingfisher_sdk", "mcp",
    "numpy", "onnxruntime", "pydantic", "starlette", "tokenizers", "uvicorn",
)  # fmt: skip


def start(*arguments: str, code: str = RUN) -> subprocess.Popen[str]:
    """`nugget <arguments>` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def nugget(*arguments: str, stdin: str = "", code: str = RUN) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `nugget <arguments>`."""
    with start(*arguments, code=code) as process:
        out, err = process.communicate(stdin, timeout=120)
    return process.returncode, out, err


def modules_after(code: str, *arguments: str, stdin: str = "") -> set[str]:
    """The modules that a Python process has imported when `code` is done."""
    report = "import atexit, sys; atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr))"
    done, _, err = nugget(*arguments, stdin=stdin, code=f"{report}\n{code}")
    assert done == 0, err
    return set(eval(err.splitlines()[-1]))


@pytest.mark.proves("CLI-EXIT", "CLI-ERRORS")
def test_exit_codes_tell_done_and_failed_apart():
    assert nugget("--version")[::2] == nugget("version")[::2] == (0, "")
    closed = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'nugget', 'config'])"
    assert nugget(code=closed) == (0, "", "")
    for command in ("status", "web"):
        assert nugget(command) == (1, "", "Error: There is no brain yet.\nRun `nugget init` to make one.\n")


class Odd(str):
    """A text that fails in the hands of whoever looks into it."""

    def __getitem__(self, key: object) -> str:
        raise RuntimeError(f"failed with key {FAKE_KEY}")


@pytest.mark.proves("CLI-CRASH", "CLI-EXIT")
def test_what_nobody_foresaw_points_to_a_log_without_secrets(isolated_home, capsys):
    assert main([Odd("ask")]) == 3
    shown = capsys.readouterr()
    (log,) = (isolated_home / ".nugget/log").iterdir()
    assert shown.err == f"Error: something unexpected went wrong (RuntimeError). Details are in {log}.\n"
    text = log.read_text("utf-8")
    assert "Traceback" in text and "RuntimeError: failed with key [redacted:" in text
    assert FAKE_KEY not in text and log.stat().st_mode & 0o077 == 0


@pytest.mark.proves("CLI-PIPE")
@pytest.mark.parametrize("limit", ["1", "40"])
def test_a_reader_that_leaves_early_is_no_failure(brain, monkeypatch, limit):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    with start("--brain", str(brain), "search", "--json", "-n", limit, "the error in a test of the cache") as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, "")


@pytest.mark.proves("CLI-HOOK", "HOUSE-STARTUP")
def test_a_hook_call_is_queued_without_the_command_line(home, queue_lock):
    payload = {"hook_event_name": "SessionEnd", "session_id": "s1", "transcript_path": "/nowhere/s1.jsonl"}
    modules = modules_after(RUN, "capture-session", stdin=json.dumps(payload))
    assert modules.isdisjoint({*HEAVY, "typer", "rich", "nugget.cli", "nugget.config", "dataclasses", "pathlib"})
    (job,) = (home / "queue/pending").iterdir()
    assert json.loads(job.read_text())["session"] == "s1"


@pytest.mark.proves("HOUSE-STARTUP")
def test_importing_nugget_imports_nothing_heavy_and_no_command_line():
    assert modules_after("import nugget") & {*HEAVY, "git", "typer", "rich", "yaml", "markdown_it", "sqlite3"} == set()
    assert modules_after(RUN, "--help") & {*HEAVY, "yaml", "sqlite3", "asyncio"} == set()
