"""How fast logs are taken in and asked, against what is promised.

    python benchmarks/evidence.py [--events 100000] [--megabytes 64]

Prints what was measured (CPU time of this process), the limit, and their ratio: above 1 is better than promised.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from nugget.config import Settings, read_environment
from nugget.evidence import BundleOptions, evidence_bundle, find_log, ingest
from nugget.index.home import open_home

QUESTIONS = (
    "what went wrong with cargo test", "why did module 17 fail", "resume from where we left off", "what changed",
    "give me an overview", "which step printed E0425", "npm build error in part 99", "status of the deploy",
    "what did I do about payments", "why is foo not in scope",
)  # fmt: skip
COMMANDS = ("cargo test -p module{}", "npm run build -- part{}", "git diff src/part{}.rs", "make step{}")
LIMIT_MB_S, LIMIT_MS, LIMIT_REQUESTS = 40, 30, 200


def events(count: int) -> Iterator[str]:
    """Commands with their ends; one in forty fails."""
    chance = random.Random(1)
    for number in range(count // 2):
        command = chance.choice(
            ("cargo test -p module{}", "npm run build -- part{}", "git diff src/part{}.rs", "make step{}")
        )
        start = {"ts_ms": 1000 * number, "kind": "command.start", "data": {"cmd": command.format(number % 400)}}
        end = {"ts_ms": 1000 * number + 500, "kind": "command.end", "data": {"exit": int(number % 40 == 0)}}
        yield json.dumps(start) + "\n" + json.dumps(end) + "\n"


def output(megabytes: float) -> Iterator[str]:
    """What builds and tests print: mostly dull, now and then an error."""
    chance = random.Random(2)
    words = "compiling checking module finished running test ok passed cached download resolved linking bundle".split()
    written = 0
    while written < megabytes * 1e6:
        line = " ".join(chance.choices(words, k=9)) + f" {chance.randrange(10**6)}\n"
        if chance.random() < 0.002:
            line = f"error[E0425]: cannot find value `foo{chance.randrange(999)}` in this scope\n"
        written += len(line)
        yield line


def write_logs(folder: Path, *, event_count: int, megabytes: float) -> int:
    """A session's log folder; its size in bytes."""
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("".join(events(event_count)), "utf-8")
    for name, share in (("output.log", 0.6), ("stdout.log", 0.3), ("stderr.log", 0.1)):
        (folder / name).write_text("".join(output(megabytes * share)), "utf-8")
    return sum(file.stat().st_size for file in folder.iterdir())


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--megabytes", type=float, default=64)
    given = parser.parse_args()
    rows: list[tuple[str, str, str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        environment = read_environment({"HOME": folder, "AISH_LOG_DIR": str(root / "logs")})
        connection = open_home(root / "home")
        now = datetime.now(UTC)

        def take(session: str, size: int) -> float:
            log = find_log(environment, session)
            assert log is not None
            began = time.process_time()
            ingest(connection, log, settings=Settings(), now=now)
            return size / 1e6 / (time.process_time() - began)

        mixed = take("mixed", write_logs(root / "logs" / "mixed", event_count=6000, megabytes=given.megabytes))
        rows.append(
            ("ingest: a session of mostly output", f"{mixed:.0f} MB/s", f"{LIMIT_MB_S} MB/s", mixed / LIMIT_MB_S)
        )
        many = take("events", write_logs(root / "logs" / "events", event_count=given.events, megabytes=2))
        rows.append((f"ingest: {given.events:,} events", f"{many:.1f} MB/s", "-", 0.0))
        again = time.process_time()
        take("events", 1)
        again = (time.process_time() - again) * 1000
        rows.append(("ingest: nothing new", f"{again:.1f} ms", "-", 0.0))

        def ask(session: str, question: str) -> float:
            began = time.process_time()
            evidence_bundle(connection, session, question, options=BundleOptions(), now=now)
            return (time.process_time() - began) * 1000

        cold = ask("events", QUESTIONS[0])
        rows.append(("bundle: first of a session", f"{cold:.1f} ms", "-", 0.0))
        times = [ask("events", f"{question} {number}") for number in range(20) for question in QUESTIONS]
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        rows.append((f"bundle: p50 of {given.events:,} events", f"{p50:.1f} ms", f"{LIMIT_MS} ms", LIMIT_MS / p50))
        rows.append(("bundle: p99", f"{p99:.1f} ms", "-", 0.0))
        rate = 1000 / statistics.mean(times)
        rows.append(("bundle: a second, on one core", f"{rate:.0f}", f"{LIMIT_REQUESTS}", rate / LIMIT_REQUESTS))
        connection.close()
    width = max(len(row[0]) for row in rows)
    for name, measured, limit, ratio in rows:
        print(f"{name:<{width}}  {measured:>10}  {limit:>8}  {f'{ratio:.1f}x' if ratio else '':>6}")


if __name__ == "__main__":
    main()
