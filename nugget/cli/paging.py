"""The pager: what is longer than the terminal is shown in one, as git does."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.terminal import note
from nugget.config import read_environment

if TYPE_CHECKING:
    from rich.console import Console

PagerOption = Annotated[bool, typer.Option("--pager/--no-pager", help="Page long output on a terminal.")]

_LESS = "FRX"
"""What `less` is told where the person told it nothing: leave when it fits, keep colours, keep the screen. As git."""


@contextmanager
def paged(out: Console, *, is_wanted: bool = True) -> Iterator[None]:
    """Show what is printed to `out` in a pager where a terminal is too small for it; as it is otherwise.

    `PAGER` names the pager with its arguments, which no shell reads; `PAGER=cat` or an empty one is none. Without it
    that is `less`, else `more`.
    """
    if not (is_wanted and sys.stdout.isatty() and sys.stdin.isatty()):
        yield
        return
    with out.capture() as captured:
        yield
    text = captured.get()
    environment = dict(read_environment().variables)
    command = _pager(environment.get("PAGER"))
    if command and _is_longer(text, width=out.width, height=out.height):
        try:
            _run(command, text, {"LESS": _LESS, "LV": "-c"} | environment)
            return
        except OSError as error:
            note(f"PAGER={command[0]} cannot be run ({error.strerror}).")
    with suppress(BrokenPipeError):
        out.file.write(text)
        out.file.flush()


def _pager(named: str | None) -> list[str]:
    """The command of the pager; empty for none. One that cannot be taken apart counts as a name."""
    if named is None:
        found = next(filter(None, map(shutil.which, ("less", "more"))), None)
        return [found] if found else []
    try:
        command = shlex.split(named)
    except ValueError:
        command = [named]
    return [] if command in ([], ["cat"]) else command


def _is_longer(text: str, *, width: int, height: int) -> bool:
    """Return whether a text needs more rows than a terminal has, with one for the prompt."""
    from rich.text import Text

    rows = 0
    for line in text.splitlines():
        rows += max(1, -(-Text.from_ansi(line).cell_len // max(1, width)))
        if rows >= height:
            return True
    return False


def _run(command: list[str], text: str, environment: Mapping[str, str]) -> None:
    """Let the pager show the text until the person leaves it; Ctrl-C is the pager's. Raises OSError."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.communicate(text.encode("utf-8", "replace"))
        finally:
            signal.signal(signal.SIGINT, before)
