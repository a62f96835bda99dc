"""Runs command lines, each in a process of its own that is forked from one with all imports done; some of them die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from paths import REPOSITORY

CHANGES = {f"os.{name}" for name in "rename remove mkdir rmdir link symlink truncate chmod".split()}
"""Python's audit events for calls that change files; opening to write and statements of SQL that write count too."""
_MODULES = [file.relative_to(REPOSITORY).with_suffix("") for file in REPOSITORY.glob("nugget/**/[a-z]*.py")]
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["pytest", *(".".join(module.parts) for module in _MODULES)])


class Ended(NamedTuple):
    """How a command ended: its exit code, or the signal as a negative number, and what it printed."""

    code: int | None
    output: str


def run(arguments: Sequence[str], variables: Mapping[str, str], folder: Path) -> Ended:
    """Run `nugget <arguments>` with exactly these variables; FAULT_CHANGE and FAULT_COUNT among them let it die."""
    with tempfile.NamedTemporaryFile() as output:
        process = _FORKED.Process(target=_become, args=(arguments, variables, folder, output.name))
        process.start()
        process.join()
        return Ended(process.exitcode, output.read().decode("utf-8", "replace"))


def _become(arguments: Sequence[str], variables: Mapping[str, str], folder: Path, output: str) -> None:
    code = 3
    try:
        printed = os.open(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)
        from nugget.cli import run

        if "FAULT_CHANGE" in variables:
            _die_at(int(variables["FAULT_CHANGE"]), variables["FAULT_COUNT"])
        code = run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_at(number: int, counted: str) -> None:
    """Die of SIGKILL at the `number`-th call or statement that changes files; how many there were stands in a file.

    A file that is opened to be written is there by then, and empty.
    """
    seen = 0
    file = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def count(statement: str = "", *, opening: tuple[Any, int] | None = None) -> None:
        nonlocal seen
        if statement.startswith(("SELECT", "PRAGMA", "--")):
            return
        seen += 1
        os.pwrite(file, b"%d" % seen, 0)
        if seen == number:
            with suppress(OSError):
                _ = opening and os.open(*opening, 0o600)
            os.kill(os.getpid(), signal.SIGKILL)

    opened: list[Any] = []

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        while opened:
            with suppress(sqlite3.ProgrammingError):  # it is closed again
                opened.pop().set_trace_callback(count)
        if event == "sqlite3.connect/handle":
            opened.append(arguments[0])  # it cannot be used before the next event
        elif event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            count(opening=(arguments[0], arguments[2]))
        elif event in CHANGES:
            count()

    sys.addaudithook(hear)
