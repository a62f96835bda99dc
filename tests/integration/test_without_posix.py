"""The way from a session to an answer in processes that have none of the calls that Windows lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import REPOSITORY
from waiting import wait_for

LIKE_WINDOWS = """
import asyncio, builtins, fcntl, os, signal, socket, subprocess, sys, tempfile, types

MISSING = {"fcntl", "grp", "pwd", "resource", "select", "termios"}
found = builtins.__import__

def import_(name, globals=None, *more, **named):
    if name in MISSING and str((globals or {}).get("__name__")).startswith("nugget"):
        raise ImportError(f"Windows has no {name}")
    return found(name, globals, *more, **named)

def locking(descriptor, mode, length):
    fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if mode == 2 else 0))

builtins.__import__ = import_
pair, family = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *given: pair(*(given or (family,)))
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_LOCK=1, LK_NBLCK=2)
for module, names in {
    os: "fchmod fork getpgid getuid killpg nice posix_spawn pread pwrite setsid",
    signal: "SIGALRM SIGKILL setitimer", socket: "AF_UNIX",
}.items():
    for name in names.split():
        delattr(module, name)
"""


@pytest.mark.proves("HOUSE-SYSTEMS")
def test_a_session_becomes_knowledge_without_the_calls_that_windows_lacks(isolated_home: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LIKE_WINDOWS)
    variables = {**os.environ, "USERNAME": "ada", "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}

    def nugget(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nugget", *arguments],
            cwd=isolated_home, env=variables, input=stdin, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    probe = "import os; from nugget.infra import system; print(system.IS_POSIX, hasattr(os, 'getuid'))"
    seen = subprocess.run([sys.executable, "-P", "-c", probe], env=variables, capture_output=True, text=True)
    assert seen.stdout == "False False\n", seen.stderr
    nugget("init", str(isolated_home / "brain"))
    nugget("trust", str(isolated_home / "brain"))
    nugget("add", "Sourdough rises slowly in a cold kitchen.", "--type", "pattern", "--domain", "cooking")
    session = REPOSITORY / "examples/demo/session.jsonl"
    payload = {"hook_event_name": "SessionEnd", "session_id": session.stem, "transcript_path": str(session)}
    nugget("capture-session", stdin=json.dumps(payload))
    wait_for(lambda: json.loads(nugget("review", "list", "--json")) != [], "no proposal")
    nugget("review", "accept")
    assert "bytes that were sent" in nugget("ask", "why do webhook signatures fail")
    nugget("doctor")
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
    assert '"id":1' in nugget("serve", stdin=asked).replace(" ", "")
