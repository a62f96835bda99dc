"""A person at a terminal: an interactive shell in a pty, with Nugget's hook in its start-up file."""

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

STARTED_S = 60
"""How long a shell may take to show its next prompt: the machine may be busy with other tests."""

_START_UP = {
    "bash": (".bashrc", 'eval "$(nugget shell-init bash)"\nPROMPT_COMMAND+="; printf x >>~/prompts"\n'),
    "zsh": (".zshrc", 'eval "$(nugget shell-init zsh)"\nprompted() { printf x >>~/prompts }\n'
            "precmd_functions+=(prompted)\n"),
    "fish": (".config/fish/config.fish", "nugget shell-init fish | source\n"
             "function prompted --on-event fish_prompt; printf x >>~/prompts; end\n"),
}  # fmt: skip
"""For each shell its start-up file, with the line that docs/evidence.md gives; a letter for each prompt it shows."""

_IN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Makes its stdin the terminal of the program that follows. (`pty.fork` is not for programs with threads.)"""


class Terminal:
    """An interactive shell; `prompts` counts the prompts it has shown."""

    def __init__(self, descriptor: int, home: Path) -> None:
        self._descriptor = descriptor
        self._prompts = home / "prompts"
        self._seen = 0
        self.shown = b""

    def run(self, line: str, *, interrupt_at: bytes = b"") -> None:
        """Type a command and wait for the next prompt; press Ctrl-C when the command has printed `interrupt_at`."""
        self.type(line + "\n")
        if interrupt_at:
            self.answer(interrupt_at, "\x03")
        self.wait()

    def answer(self, question: bytes, keys: str) -> None:
        """Wait until a program has printed this, then press these keys; what was shown before is forgotten."""
        until = time.monotonic() + STARTED_S
        while question not in self.shown:
            if time.monotonic() > until or not self._read_for(0.02):
                pytest.fail(f"{question!r} was never shown, but {self.shown!r}.")
        self._read_for(0.3)  # until the program waits for a key
        self.shown = b""
        self.type(keys)

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._descriptor, text.replace("\n", "\r").encode())

    def wait(self) -> None:
        """Wait for the next prompt."""
        until = time.monotonic() + STARTED_S
        while not self._prompts.exists() or self._prompts.stat().st_size <= self._seen:
            if time.monotonic() > until or not self._read_for(0.02):
                pytest.fail(f"The shell shows no prompt; it said {self.shown!r}.")
        self._seen += 1

    def end(self) -> None:
        """Leave the shell."""
        with suppress(OSError):
            self.type("exit\n")
        until = time.monotonic() + STARTED_S
        while time.monotonic() < until and self._read_for(1):
            pass

    def _read_for(self, seconds: float) -> bool:
        """Take what the shell prints for so long; False where it has ended."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._descriptor], [], [], left)
            if not ready:
                break
            try:
                shown = os.read(self._descriptor, 1 << 16)
            except OSError:  # what Linux says where the other end is closed
                return False
            if not shown:
                return False
            self.shown += shown
        return True


@contextmanager
def terminal(shell: str, home: Path, variables: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """A shell that has read its start-up file and waits at its first prompt."""
    file, lines = _START_UP[shell]
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(lines)
    programs = Path(sys.executable).parent
    environment = {
        **os.environ, "HOME": str(home), "ZDOTDIR": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8",
        "PATH": f"{programs}:{os.environ['PATH']}", **(variables or {}),
    }  # fmt: skip
    descriptor, inner = pty.openpty()
    termios.tcsetwinsize(descriptor, (24, 120))
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, shell, "-i"], cwd=home, env=environment, stdin=inner, stdout=inner,
        stderr=inner,
    )  # fmt: skip
    os.close(inner)
    at = Terminal(descriptor, home)
    try:
        at.wait()
        yield at
        at.end()
    finally:
        os.close(descriptor)
        try:
            process.wait(timeout=STARTED_S)
        finally:
            process.kill()


def at_terminal(command: Sequence[str], variables: Mapping[str, str], *, typed: bytes = b"", columns: int = 80) -> str:
    """What a terminal shows when a command is typed into it, and then this."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        os.write(ours, typed)
        shown = b""
        while select.select([ours], [], [], STARTED_S)[0]:
            try:
                some = os.read(ours, 1 << 16)
            except OSError:  # what Linux says when the other end is closed
                break
            if not some:
                break
            shown += some
        else:
            process.kill()  # it waits for keys
        assert process.wait(STARTED_S) == 0, shown
    os.close(ours)
    return shown.decode()
