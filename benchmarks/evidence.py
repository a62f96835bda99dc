"""Measure how fast logs are ingested and questions about them answered, against stated limits.

    python benchmarks/evidence.py [--events 100000] [--megabytes 64]
    python benchmarks/evidence.py --gigabyte

Prints what was measured (CPU time of this process), the limit, and their ratio: above 1 is better than promised. With
`--gigabyte` one session of a gigabyte is taken in, in two halves, and asked; that needs 1.2 GB of disk and a minute.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from nugget.app.logs import ingest
from nugget.config import Settings, read_environment
from nugget.evidence import BundleOptions, evidence_bundle
from nugget.index.embedded.connection import open_home
from nugget.sources.sessions import find_log

QUESTIONS = (
    "what went wrong with cargo test", "why did module 17 fail", "resume from where we left off", "what changed",
    "give me an overview", "which step printed E0425", "npm build error in part 99", "status of the deploy",
    "what did I do about payments", "why is foo not in scope",
)  # fmt: skip
COMMANDS = ("cargo test -p module{}", "npm run build -- part{}", "git diff src/part{}.rs", "make step{}")
LIMIT_MB_S, LIMIT_MS, LIMIT_REQUESTS = 40, 30, 200


def events(count: int) -> Iterator[str]:
    """Yield commands and their ends; one in forty fails."""
    chance = random.Random(1)
    for number in range(count // 2):
        command = chance.choice(
            ("cargo test -p module{}", "npm run build -- part{}", "git diff src/part{}.rs", "make step{}")
        )
        start = {"ts_ms": 1000 * number, "kind": "command.start", "data": {"cmd": command.format(number % 400)}}
        end = {"ts_ms": 1000 * number + 500, "kind": "command.end", "data": {"exit": int(number % 40 == 0)}}
        yield json.dumps(start) + "\n" + json.dumps(end) + "\n"


def hook_events(count: int) -> Iterator[str]:
    """Yield commands as `nugget shell-init` records them, nearly all different."""
    chance = random.Random(3)
    commands = ("git commit -m 'fix part {} of it'", "cargo test -p module{}", "vim src/part{}.tsx", "npm test part{}")
    head = {"ts_ms": 0, "session_id": "zsh-20270101-120000-12345"}
    for number in range(count // 2):
        head["ts_ms"] = 1_800_000_000_000 + 1000 * number
        command = chance.choice(commands).format(chance.randrange(10**5))
        start = {**head, "kind": "command.start", "data": {"cmd": command, "cwd": "/home/anna/work/shop"}}
        end = {**head, "kind": "command.end", "data": {"exit": int(number % 40 == 0), "duration_ms": 500}}
        yield json.dumps(start) + "\n" + json.dumps(end) + "\n"


def tool_events(count: int) -> Iterator[str]:
    """Yield the calls of an agent's tools that write files, with their content."""
    chance = random.Random(4)
    words = "return function value const import export async await test render state props user order total".split()
    for number in range(count // 2):
        content = "\n".join(" ".join(chance.choices(words, k=8)) for _ in range(40))
        arguments = {"path": f"src/part{number % 300}.ts", "content": content}
        start = {"ts_ms": 1000 * number, "kind": "tool.start", "data": {"tool": "fs.write", "args": arguments}}
        end = {"ts_ms": 1000 * number + 5, "kind": "tool.end", "data": {"tool": "fs.write", "ok": True}}
        yield json.dumps(start) + "\n" + json.dumps(end) + "\n"


def output(megabytes: float) -> Iterator[str]:
    """Yield the output of builds and tests: mostly dull, now and then an error."""
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
    """Write the log folder of a session and return its size in bytes."""
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("".join(events(event_count)), "utf-8")
    for name, share in (("output.log", 0.6), ("stdout.log", 0.3), ("stderr.log", 0.1)):
        (folder / name).write_text("".join(output(megabytes * share)), "utf-8")
    return sum(file.stat().st_size for file in folder.iterdir())


def append(file: Path, lines: Iterable[str]) -> None:
    """Write lines at the end of a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(lines)


class Bench:
    """A fresh index and the rows of the table."""

    def __init__(self, root: Path) -> None:
        self.logs = root / "logs"
        self.environment = read_environment({"HOME": str(root), "AISH_LOG_DIR": str(self.logs)})
        self.connection = open_home(root / "home")
        self.rows: list[tuple[str, str, str, float]] = []

    def add(self, name: str, measured: str, limit: str = "-", ratio: float = 0.0) -> None:
        """Add a row to the table."""
        self.rows.append((name, measured, limit, ratio))

    def take(self, name: str, session: str, limit: float) -> None:
        """Ingest what is new in a session and record the speed."""
        log = find_log(self.environment, session)
        assert log is not None
        began = time.process_time()
        read = ingest(self.connection, log, settings=Settings(), now=datetime.now(UTC))["bytes_read"]
        rate = read / 1e6 / (time.process_time() - began)
        self.add(
            f"ingest: {name}", f"{rate:.1f} MB/s", f"{limit:.0f} MB/s" if limit else "-", rate / limit if limit else 0
        )

    def ask(self, session: str, question: str) -> float:
        """Return the duration of an answer in milliseconds."""
        began = time.process_time()
        evidence_bundle(self.connection, session, question, options=BundleOptions(), now=datetime.now(UTC))
        return (time.process_time() - began) * 1000


def usual(bench: Bench, *, event_count: int, megabytes: float) -> None:
    """Measure what has a stated limit."""
    write_logs(bench.logs / "mixed", event_count=6000, megabytes=megabytes)
    bench.take("a session of mostly output", "mixed", LIMIT_MB_S)
    append(bench.logs / "tools" / "events.jsonl", tool_events(event_count // 5))
    bench.take(f"{event_count // 5:,} events of 1.1 kB, files written", "tools", LIMIT_MB_S)
    append(bench.logs / "hook" / "events.jsonl", hook_events(event_count))
    bench.take(f"{event_count:,} events of 150 B, all different", "hook", LIMIT_MB_S)
    write_logs(bench.logs / "events", event_count=event_count, megabytes=2)
    bench.take(f"{event_count:,} events of 75 B", "events", LIMIT_MB_S)
    log = find_log(bench.environment, "events")
    assert log is not None
    began = time.process_time()
    ingest(bench.connection, log, settings=Settings(), now=datetime.now(UTC))
    bench.add("ingest: nothing new", f"{(time.process_time() - began) * 1000:.1f} ms")
    bench.add("bundle: first of a session", f"{bench.ask('events', QUESTIONS[0]):.1f} ms")
    times = [bench.ask("events", f"{question} {number}") for number in range(20) for question in QUESTIONS]
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    bench.add(f"bundle: p50 of {event_count:,} events", f"{p50:.1f} ms", f"{LIMIT_MS} ms", LIMIT_MS / p50)
    bench.add("bundle: p99", f"{p99:.1f} ms")
    rate = 1000 / statistics.mean(times)
    bench.add("bundle: a second, on one core", f"{rate:.0f}", f"{LIMIT_REQUESTS}", rate / LIMIT_REQUESTS)


def gigabyte(bench: Bench) -> None:
    """Ingest a session of a gigabyte in two halves, and find an error far from either end."""
    folder = bench.logs / "long"
    last_of = "error[E9999]: the needle in {} is not in scope\n"
    for half in ("the first half", "the second half"):
        append(folder / "events.jsonl", hook_events(100_000))
        for name, megabytes in (("output.log", 300), ("stdout.log", 150), ("stderr.log", 50)):
            block = list(output(10))
            for number in range(megabytes // 10):
                append(folder / name, block)
                if name == "stderr.log" and number == 2:
                    append(folder / name, [last_of.format(half)])
        before = _peak_mb()
        bench.take(half, "long", LIMIT_MB_S)
        bench.add(f"memory: most while taking in {half}", f"+{_peak_mb() - before:.0f} MB", "200 MB")
    found = evidence_bundle(
        bench.connection, "long", "why is the needle not in scope", options=BundleOptions(), now=datetime.now(UTC)
    )
    shown = sum(f"needle in {half}" in found.context_text for half in ("the first half", "the second half"))
    bench.add("bundle: needles found", f"{shown} of 2")
    bench.add(
        "bundle: of a gigabyte", f"{bench.ask('long', 'why is the needle not in scope'):.1f} ms", f"{LIMIT_MS} ms"
    )
    size = sum(file.stat().st_size for file in folder.iterdir())
    kept = sum(file.stat().st_size for file in bench.logs.parent.joinpath("home").iterdir() if file.is_file())
    bench.add("size: log, index", f"{size / 1e6:.0f} MB, {kept / 1e6:.0f} MB")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--gigabyte", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        if given.gigabyte:
            gigabyte(bench)
        else:
            usual(bench, event_count=given.events, megabytes=given.megabytes)
        bench.connection.close()
    width = max(len(row[0]) for row in bench.rows)
    for name, measured, limit, ratio in bench.rows:
        print(f"{name:<{width}}  {measured:>14}  {limit:>8}  {f'{ratio:.1f}x' if ratio else '':>6}")


if __name__ == "__main__":
    main()
