"""The hook's whole process against `python -c pass`, start to exit: at most 4 times, worker start included.

Run: `python benchmarks/hook.py`. Prints a table; ratios of one run, so that the machine does not matter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
ROUNDS = 40
PAYLOAD = {"session_id": "s", "transcript_path": "/nowhere/s.jsonl", "cwd": "/", "hook_event_name": "SessionEnd"}
CONSOLE_SCRIPT = """\
import re
import sys
from nugget.infra import files
from nugget.__main__ import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
"""The script that pip installs as the command `nugget`."""


def main() -> None:
    """Measure each way in turn, so that a slow moment hits all of them."""
    sys.path.insert(0, str(REPOSITORY))
    from nugget.infra import files

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        environment = {**os.environ, "HOME": folder, "NUGGET_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
        script = Path(folder) / "nugget"
        script.write_text(CONSOLE_SCRIPT, "utf-8")
        start = [sys.executable, str(script), "capture-session"]
        end = json.dumps(PAYLOAD).encode()
        begin = json.dumps(PAYLOAD | {"hook_event_name": "SessionStart", "source": "startup"}).encode()
        prompt = json.dumps(
            PAYLOAD | {"hook_event_name": "UserPromptSubmit", "prompt": "how are webhooks signed"}
        ).encode()
        lock = files.try_lock(home / "queue/worker.lock")
        ways = {
            "python -c pass": ([sys.executable, "-c", "pass"], b""),
            "SessionEnd, a worker is at work": (start, end),
            "SessionStart, nothing due": (start, begin),
            "SessionStart, brief": ([*start, "--brief"], begin),
            "UserPromptSubmit, recall": ([*start, "--recall"], prompt),
        }
        times = _measure(ways, environment)
        assert lock is not None
        os.close(lock)
        # The worker that each round starts ends at once: there is no brain. Its own time is not the hook's.
        times |= _measure({"SessionEnd, starts the worker": (start, end)}, environment, settle_s=2.0, rounds=8)
    base = times["python -c pass"]
    print(f"{'process':34} {'wall ms':>8} {'x pass':>7} {'cpu ms':>8} {'x pass':>7}   (least of each)")
    for name, (wall, cpu) in times.items():
        print(f"{name:34} {wall:8.1f} {wall / base[0]:7.2f} {cpu:8.1f} {cpu / base[1]:7.2f}")


def _measure(
    ways: dict[str, tuple[list[str], bytes]],
    environment: dict[str, str],
    *,
    settle_s: float = 0.0,
    rounds: int = ROUNDS,
) -> dict[str, tuple[float, float]]:
    """Return the least elapsed and the least processor time of each way, in milliseconds."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (command, text) in ways.items():
            started = time.perf_counter()
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.close()
            _, status, usage = os.wait4(process.pid, 0)
            wall = (time.perf_counter() - started) * 1000
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            taken[name].append((wall, (usage.ru_utime + usage.ru_stime) * 1000))
            time.sleep(settle_s)
    return {name: (min(wall for wall, _ in values), min(cpu for _, cpu in values)) for name, values in taken.items()}


if __name__ == "__main__":
    main()
