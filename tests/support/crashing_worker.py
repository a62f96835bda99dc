"""Run the capture worker and kill it with SIGKILL at a chosen step, again and again: a program of its own.

`python crashing_worker.py FOLDER FIRST STEP` lays out a brain and a queued session for every crash in
FOLDER/<number>/, has the worker killed at that number of steps (a step is a file opened for writing, renamed, removed
or a process started, seen by an audit hook, so that Nugget knows nothing of it), then runs it again unharmed.
Ends when a worker gets through before its step comes; prints how many steps that takes.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

STEPS = {"os.rename", "os.remove", "os.mkdir", "os.truncate", "subprocess.Popen"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def run_worker(home: Path, *, killed_at: int | None) -> int:
    """A worker in a process of its own; the signal that ended it (0: none)."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = worker(home, killed_at)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0, f"the worker failed in {home}"
    return 0


def worker(home: Path, killed_at: int | None) -> int:
    """The real worker, with an audit hook that kills it at a step."""
    from nugget.app import worker as real

    seen = 0

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
        if event in STEPS or (writes and str(arguments[0]) != os.devnull):
            seen += 1
            if seen == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

    os.environ.update(HOME=str(home), NUGGET_HOME=str(home / ".nugget"), NUGGET_BRAIN=str(home / "brain"))
    sys.addaudithook(audit)
    code = real.main([])
    (home / "steps").write_text(str(seen))
    return code


def main() -> None:
    """Crash at FIRST, FIRST + STEP, ... until a worker gets through."""
    from worker_stage import lay_out

    folder, first, step = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    number = first
    while True:
        home = folder / str(number)
        lay_out(home)
        ended = run_worker(home, killed_at=number)
        if ended == 0:
            print(int((home / "steps").read_text()))
            return
        assert ended == signal.SIGKILL
        assert run_worker(home, killed_at=None) == 0
        number += step


if __name__ == "__main__":
    main()
