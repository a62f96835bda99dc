"""What one cold search over every source costs, start to exit, in processor time, against the limit of 300 ms.

Run: `python benchmarks/search.py [--notes 1000] [--sessions 50]`. The limit is for a machine on which an empty Python
takes 12 ms; it is scaled by what an empty Python takes here, so that a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT_MS = 300
EMPTY_PYTHON_MS = 12
ROUNDS = 5
QUESTION = "how do we retry a request after a timeout"


def main() -> None:
    """Make a brain, a handbook and sessions; index them; search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notes", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=50)
    arguments = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY / "benchmarks"))
    from corpus import write_brain

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        brain = write_brain(folder / "brain", 300)
        _write_notes(folder / "handbook", arguments.notes)
        _write_sessions(folder / ".claude" / "projects" / "-work", arguments.sessions)
        environment = {
            **os.environ, "HOME": place, "NUGGET_HOME": str(folder / "home"), "PYTHONPATH": str(REPOSITORY),
            "NUGGET_CANON_FOLDERS": str(folder / "handbook"), "NUGGET_EMBEDDING_MODEL": "none", "NO_COLOR": "1",
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        nugget = [sys.executable, "-c", "from nugget.entry import console; console()", "--brain",
                  str(brain)]  # fmt: skip
        subprocess.run([*nugget, "sync"], env=environment, check=True, capture_output=True)
        empty = _cpu_ms([sys.executable, "-c", "pass"], environment)
        scale = empty / EMPTY_PYTHON_MS
        print(f"An empty Python: {empty:.0f} ms, so the limit of {LIMIT_MS} ms is {LIMIT_MS * scale:.0f} ms here.\n")
        print(f"{'search':<34}{'ms':>8}{'of the limit':>14}")
        for name, more in (
            ("the brain alone", ["--source", "brain"]),
            ("canon alone", ["--source", "canon"]),
            ("sessions alone", ["--source", "sessions"]),
            ("everything", []),
            ("everything, with operators", ["AND", "timeout*"]),
        ):
            taken = _cpu_ms([*nugget, "search", "--quiet", QUESTION, *more], environment)
            print(f"{name:<34}{taken:>8.0f}{taken / (LIMIT_MS * scale):>14.2f}")


def _cpu_ms(command: list[str], environment: dict[str, str]) -> float:
    """The least processor time that a command took."""
    times = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times) * 1000


def _write_notes(folder: Path, count: int) -> None:
    for number in range(count):
        file = folder / f"part{number % 20}" / f"note-{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"# Note {number}\n\nAfter a timeout of {number} ms the request is sent again. " + "Words. " * 80
        )


def _write_sessions(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for session in range(count):
        lines = []
        for number in range(40):
            role = "assistant" if number % 2 else "user"
            text = f"Message {number} of {session}: the request is retried after a timeout. " + "More words. " * 60
            content = text if role == "user" else [{"type": "text", "text": text}]
            lines.append(json.dumps({
                "type": role, "uuid": f"{session}-{number}", "timestamp": f"2026-01-01T00:{number:02d}:00Z",
                "sessionId": f"s{session}", "cwd": "/work", "message": {"role": role, "content": content},
            }))  # fmt: skip
        (folder / f"s{session}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
