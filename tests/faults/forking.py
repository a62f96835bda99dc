"""Runs one command line after the other, each in a process of its own that is forked from one with all imports done.

Driven by JSON lines: a request names `arguments`, `variables`, `folder` and the options of strace; the answer is the
exit code (negative for a signal) with what was printed. Started as `python forking.py`; used through `Commands`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CHANGES = {"open", *(f"os.{name}" for name in "rename remove mkdir rmdir link symlink truncate chmod".split())}
"""Python's audit events for calls that change files; opening to read is left out, and each statement of SQL that writes
counts too."""


class Ended(NamedTuple):
    """How a command ended: its exit code, or the signal as a negative number, and what it printed."""

    code: int
    output: str


class Commands:
    """The process that forks; one for a whole test session."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        )

    def run(
        self, arguments: Sequence[str], variables: Mapping[str, str], folder: Path, *, strace: Sequence[str] = ()
    ) -> Ended:
        """Run `nugget <arguments>` with exactly these variables; `strace` attaches to its main thread."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"arguments": arguments, "variables": variables, "folder": str(folder), "strace": strace}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve() -> None:
    """Answer requests until stdin closes."""
    _import_everything()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as output:
            code = _run(request, output.fileno())
            output.seek(0)
            answers.write(json.dumps([code, output.read().decode("utf-8", "replace")]) + "\n")
        answers.flush()


def _import_everything() -> None:
    import pkgutil

    import nugget

    for module in pkgutil.walk_packages(nugget.__path__, "nugget."):
        if not module.name.startswith(("nugget.http", "nugget.mcp")) and "__main__" not in module.name:
            __import__(module.name)


def _run(request: Mapping[str, Any], output: int) -> int:
    waiting, ready = os.pipe()
    child = os.fork()
    if not child:
        os.close(ready)
        _become(request, output, waiting)
    os.close(waiting)
    tracer = None
    try:
        if request["strace"]:
            tracer = subprocess.Popen(["strace", "-p", str(child), *request["strace"]], stderr=subprocess.PIPE)
            assert tracer.stderr is not None and b"attached" in tracer.stderr.readline()
    finally:
        os.close(ready)
    status = os.waitpid(child, 0)[1]
    if tracer is not None:
        tracer.communicate()
    return os.waitstatus_to_exitcode(status)


def _become(request: Mapping[str, Any], output: int, waiting: int) -> None:
    """Be the command, once the other end of `waiting` is closed."""
    code = 3
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.clear()
        os.environ.update(request["variables"])
        os.chdir(request["folder"])
        os.read(waiting, 1)
        from nugget.cli import run

        if "FAULT_CHANGE" in os.environ:
            _die_at(int(os.environ["FAULT_CHANGE"]), os.environ["FAULT_COUNT"])
        code = run(request["arguments"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_at(number: int, counted: str) -> None:
    """Die of SIGKILL at the `number`-th call or statement that changes files; how many there were stands in a file."""
    seen = 0
    file = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def count(statement: str = "") -> None:
        nonlocal seen
        if statement.startswith(("SELECT", "PRAGMA", "--")):
            return
        seen += 1
        os.pwrite(file, b"%d" % seen, 0)
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    opened: list[Any] = []

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        while opened:
            with suppress(sqlite3.ProgrammingError):  # it is closed again
                opened.pop().set_trace_callback(count)
        if event == "sqlite3.connect/handle":
            opened.append(arguments[0])  # it cannot be used before the next event
        elif event in CHANGES and (event != "open" or (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            count()

    sys.addaudithook(hear)


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    serve()
