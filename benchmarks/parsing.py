"""Measure reading and condensing of transcripts in MB a second of processor time, against bare json.loads.

Run: python benchmarks/parsing.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nugget.sources.claude_code import read_session
from nugget.sources.condense import windows

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts" / "claude-code"


def seconds(work: Callable[[], object], *, rounds: int = 5) -> float:
    """Return the least processor time of several rounds."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def bare_loads(files: Iterable[Path]) -> None:
    """Load every line with `json`: the least that a reader of this format costs."""
    for file in files:
        for line in file.read_bytes().splitlines():
            try:
                json.loads(line)
            except ValueError:
                continue


def main() -> None:
    """Print a table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    files = sorted(folder.glob("*.jsonl"))
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    floor = seconds(lambda: bare_loads(files))
    rows = {
        "json.loads alone": floor,
        "read_session": seconds(lambda: [read_session(file) for file in files]),
        "read_session + windows": seconds(lambda: [windows(read_session(file), max_chars=200_000) for file in files]),
    }
    print(f"{len(files)} transcripts, {megabytes:.1f} MB")
    for name, taken in rows.items():
        print(f"{name:26} {megabytes / taken:7.0f} MB/s   {taken / floor:5.2f} x json.loads")


if __name__ == "__main__":
    main()
