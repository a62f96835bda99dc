"""Measure one cold search from start to exit, in elapsed time, against the limit of 300 ms.

Run: `python benchmarks/search.py [--units 300] [--notes 1000] [--sessions 50]`. Searches take turns, so that a slow
moment hits all of them; an empty Python is measured with them, for it tells how fast the machine is just now.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT_MS = 300
ROUNDS = 11
QUESTION = "how do we retry a request after a timeout"
SEARCHES = {
    "the brain alone": ["--source", "brain"],
    "canon alone": ["--source", "canon"],
    "sessions alone": ["--source", "sessions"],
    "everything": [],
    "everything, with operators": ["AND", "timeout*"],
}


def main() -> None:
    """Make a brain, a handbook and sessions; index them with vectors and without; search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=300)
    parser.add_argument("--notes", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=50)
    arguments = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY / "benchmarks"))
    from corpus import write_brain

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        brain = write_brain(folder / "brain", arguments.units)
        _write_notes(folder / "handbook", arguments.notes)
        _write_sessions(folder / ".claude" / "projects" / "-work", arguments.sessions)
        environment = {
            "NUGGET_MODELS": str(folder / "models"), **os.environ, "HOME": place, "NUGGET_HOME": str(folder / "home"),
            "PYTHONPATH": str(REPOSITORY), "NUGGET_CANON_FOLDERS": str(folder / "handbook"), "NO_COLOR": "1",
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        nugget = [sys.executable, "-c", "from nugget.__main__ import console; console()", "--brain", str(brain)]
        empty = statistics.median(_measure({"": [sys.executable, "-c", "pass"]}, environment)[""])
        print(
            f"An empty Python takes {empty:.0f} ms. Each search: median ms, and its share of the limit of {LIMIT_MS}."
        )
        commands = {name: [*nugget, "search", "--quiet", QUESTION, *more] for name, more in SEARCHES.items()}
        _report("by words alone", commands, nugget, environment | {"NUGGET_EMBEDDING_MODEL": "none"})
        _report("with vectors", commands, nugget, environment)
        with _server(nugget, environment):
            _report("with vectors, a server runs", commands, nugget, environment)


def _report(how: str, commands: dict[str, list[str]], nugget: list[str], environment: dict[str, str]) -> None:
    """Build the index for one way of searching and print the duration of each search."""
    subprocess.run([*nugget, "sync"], env=environment, check=True, capture_output=True)
    print(f"\n{how:<34}{'ms':>8}{'of the limit':>14}")
    for name, laps in _measure(commands, environment).items():
        taken = statistics.median(laps)
        print(f"{name:<34}{taken:>8.0f}{taken / LIMIT_MS:>14.2f}")


def _measure(commands: dict[str, list[str]], environment: dict[str, str]) -> dict[str, list[float]]:
    """Return the milliseconds of each command after one round to warm up."""
    laps: dict[str, list[float]] = {name: [] for name in commands}
    for counts in (False, *[True] * ROUNDS):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, env=environment, check=True, capture_output=True)
            laps[name] += [(time.perf_counter() - began) * 1000] if counts else []
    return laps


@contextmanager
def _server(nugget: list[str], environment: dict[str, str]) -> Iterator[None]:
    """Run a warm server of the same NUGGET_HOME."""
    with subprocess.Popen(
        [*nugget, "serve", "--http", "127.0.0.1:0"], env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            while not (Path(environment["NUGGET_HOME"]) / "run" / "serve.sock").exists():
                time.sleep(0.1)
            time.sleep(3)  # until the model is loaded
            yield
        finally:
            process.terminate()


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
