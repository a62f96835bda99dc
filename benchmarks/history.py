"""History against its limits: `python benchmarks/history.py [--size MB] [--passages N] [--folder DIR]`.

The corpus is made of real transcripts where they are at hand (tests/../shared/data), of small ones of our own else:
each copy has ids of its own and what was said in it is said in other words, drawn from a large vocabulary by Zipf's
law. What tools printed stays as it was. The default run is small; the limits are those for 5 GB and a million
passages, which `--size 5000 --passages 1000000` measures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

from nugget.config import Settings, read_environment
from nugget.index.embedded.connection import home_index_file, open_home
from nugget.index.embedded.events import SEARCHED
from nugget.index.embedded.ingest import changed_logs, ingest_all
from nugget.index.embedded.passages import passage_count
from nugget.index.fulltext import STOP_WORDS
from nugget.models import SourceName
from nugget.retrieval.history import search_history
from nugget.retrieval.query_language import parse_search

REAL = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "transcripts" / "claude-code"
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
STARTED = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Run the parts and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=60, help="MB of transcripts in the first index")
    parser.add_argument("--passages", type=int, default=20_000, help="passages in the index that is searched")
    parser.add_argument("--folder", help="where the corpus is made; it is deleted afterwards")
    parser.add_argument("--index", metavar="HOME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.index:
        index(Path(options.index))
        return
    print(f"{'what':66} {'ours':>10}  limit")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        root = Path(folder)
        free = shutil.disk_usage(root).free // 1_000_000
        if free < 3 * options.size + options.passages // 500:
            sys.exit(f"{root} has {free} MB free, which is not enough.")
        first_index(root / "first", options.size)
        unchanged(root / "many")
        search(root / "search", options.passages)


def row(what: str, ours: float, unit: str, limit: str) -> None:
    """Print one line of the table."""
    print(f"{what:66} {ours:>10.1f} {unit:5} {limit}", flush=True)


class Wording:
    """Texts of any length with the word frequencies and the repetitions of real ones.

    The words are those of the docstrings of Python's library; one in 60 is made up, so that the vocabulary goes on
    growing with the corpus as names and identifiers make it grow.
    """

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        library = Path(os.__file__).parent
        said = [text for file in sorted(library.glob("*.py")) for text in _DOCSTRING.findall(file.read_text("utf-8"))]
        self.drawn = [word for text in said for word in text.split()]
        self.words = [word for word, _ in Counter(re.findall(r"[a-z]{3,}", " ".join(said).lower())).most_common()]
        self.words = [word for word in self.words if word not in STOP_WORDS]

    def text(self, chars: int) -> str:
        """Return a text of about this many characters."""
        words = self.random.choices(self.drawn, k=max(1, chars // 7))
        for at in range(12, len(words)):
            chance = self.random.random()
            if chance < 0.25:
                words[at] = words[at - self.random.randint(2, 12)]
            elif chance > 1 - 1 / 60:
                words[at] = f"{self.random.choice(self.words)}_{self.random.choice(self.words)}{at}"
        return " ".join(words)


def write_sessions(folder: Path, megabytes: int, wording: Wording) -> int:
    """Write transcripts of about this many megabytes; return how many bytes of them are prose."""
    templates = [file.read_bytes().splitlines() for file in sorted(REAL.glob("*.jsonl"))] if REAL.is_dir() else []
    templates = templates or [list(own_template(wording))]
    folder.mkdir(parents=True)
    written = said = number = 0
    while written < megabytes * 1_000_000:
        lines = templates[number % len(templates)]
        with (folder / f"{uuid.UUID(int=wording.random.getrandbits(128))}.jsonl").open("wb") as file:
            for line in lines:
                made, chars = retold(line, number, wording)
                written += file.write(made + b"\n")
                said += chars
        number += 1
    return said


def own_template(wording: Wording) -> Iterator[bytes]:
    """Yield the lines of a session that consists mostly of tool output, as real ones do."""
    for number in range(40):
        kinds = [("user", wording.text(120)), ("assistant", [{"type": "text", "text": wording.text(300)}])]
        kinds.append(("user", [{"type": "tool_result", "tool_use_id": "t", "content": wording.text(20_000)}]))
        for kind, content in kinds:
            yield json.dumps({
                "type": kind, "uuid": str(uuid.uuid4()), "sessionId": "s", "cwd": "/srv/shop",
                "timestamp": (STARTED + timedelta(minutes=number)).isoformat(), "message": {"content": content},
            }).encode()  # fmt: skip


def retold(line: bytes, copy: int, wording: Wording) -> tuple[bytes, int]:
    """Return a line with fresh ids; prose is replaced by other words of the same length."""
    line = re.sub(rb'"(uuid|parentUuid|sessionId)":"([0-9a-f]{8})', rb'"\1":"%08x' % copy, line)
    if b'"tool_result"' in line or b'"tool_use"' in line or b'"type":"text"' not in line:
        return line, 0
    try:
        record = json.loads(line)
        blocks = record["message"]["content"]
        said = 0
        for block in blocks if isinstance(blocks, list) else []:
            if block.get("type") == "text":
                block["text"] = wording.text(len(block["text"]))
                said += len(block["text"])
        return json.dumps(record, separators=(",", ":")).encode(), said
    except (ValueError, KeyError, TypeError):
        return line, 0


def index(home: Path) -> None:
    """Index in a process of its own and print the measurements as JSON."""
    environment = read_environment({"HOME": str(home)})
    connection = open_home(environment.home)
    before = passage_count(connection)
    size = changed_logs(connection, environment, Settings(), None)[1]
    wall, cpu = time.monotonic(), time.process_time()
    ingest_all(connection, environment, Settings())
    taken = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
    counts = {"before": before, "bytes": size, "passages": passage_count(connection) - before}
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1000 if sys.platform != "darwin" else 1_000_000)
    print(json.dumps(taken | counts | {"peak_mb": peak}))


def index_apart(home: Path, *, kill_after_bytes: float | None = None) -> dict[str, float]:
    """Run `index` in a process; kill it as with `kill -9` when so many bytes are committed, where that is asked for."""
    command = [sys.executable, __file__, "--index", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while kill_after_bytes is not None and process.poll() is None:
            if committed_bytes(home) >= kill_after_bytes:
                process.kill()
                return {}
            time.sleep(0.05)
        printed, _ = process.communicate()
    taken: dict[str, float] = json.loads(printed)
    return taken


def committed_bytes(home: Path) -> int:
    """Return how many bytes of transcripts the index holds, as another process sees it."""
    file = home_index_file(home / ".nugget")
    if not file.is_file():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT coalesce(sum(taken), 0) FROM read_files").fetchone()[0])
    except sqlite3.Error:
        return 0


def first_index(home: Path, megabytes: int) -> None:
    """Index a corpus from nothing, once whole and once killed halfway, and measure the size."""
    projects = home / ".claude" / "projects" / "-srv-shop"
    write_sessions(projects, megabytes, Wording())
    taken = index_apart(home)
    read = taken["bytes"] / 1e6
    row(f"first index, {read:.0f} MB of transcripts", read / taken["wall"], "MB/s", "")
    row("  the same by processor time", read / taken["cpu"], "MB/s", "")
    row("  peak memory", taken["peak_mb"], "MB", "<= 500")
    kept = kept_bytes(home)
    size = grown_bytes(home)
    row(
        f"  index, of {kept / 1e6:.1f} MB of text kept ({taken['passages']:,} passages)",
        100 * size / kept,
        "%",
        "",
    )
    shutil.rmtree(home / ".nugget")
    killed = index_apart(home, kill_after_bytes=0.5 * taken["bytes"])
    again = index_apart(home)
    whole = again["before"] + again["passages"] == taken["passages"]
    stood = "never killed" if killed else f"{again['before']:,} passages stood, {'none' if whole else 'SOME'} lost"
    row(f"  killed in the middle: {stood}; left to read", again["bytes"] / 1e6, "MB", "")
    shutil.rmtree(home)


def kept_bytes(home: Path) -> float:
    """Return the size in bytes of the texts of all rows."""
    with closing(open_home(read_environment({"HOME": str(home)}).home)) as connection:
        sizes = (f"SELECT coalesce(sum(length(text)), 0) FROM {table}" for table in SEARCHED)
        return float(sum(connection.execute(sql).fetchone()[0] for sql in sizes))


def grown_bytes(home: Path) -> int:
    """Return how much larger the index is than an empty one, which has the tables of all sources."""
    with tempfile.TemporaryDirectory() as folder:
        empty = open_home(Path(folder))
        empty.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        bare = home_index_file(Path(folder)).stat().st_size
        empty.close()
    return home_index_file(home / ".nugget").stat().st_size - bare


def unchanged(home: Path, files: int = 5000) -> None:
    """Measure a sync of many transcripts when none has changed."""
    wording = Wording()
    for number in range(files):
        write_text_session(home, number, 1, wording, projects=50)
    environment = read_environment({"HOME": str(home)})
    connection = open_home(environment.home)
    ingest_all(connection, environment, Settings())
    wall, cpu = [], []
    for _ in range(5):
        started, worked = time.monotonic(), time.process_time()
        result = ingest_all(connection, environment, Settings())
        assert result and not result.changed
        wall.append(time.monotonic() - started)
        cpu.append(time.process_time() - worked)
    row(f"nothing-changed sync of {files:,} transcripts", 1000 * statistics.median(wall), "ms", "<= 300")
    row("  the same by processor time", 1000 * statistics.median(cpu), "ms", "<= 300")
    connection.close()
    shutil.rmtree(home)


def write_text_session(home: Path, number: int, exchanges: int, wording: Wording, *, projects: int = 5) -> None:
    """Write a session of text only: exchanges of a prompt of 200 characters and a reply of 700."""
    folder = home / ".claude" / "projects" / f"-srv-project{number % projects}"
    folder.mkdir(parents=True, exist_ok=True)
    session = str(uuid.UUID(int=wording.random.getrandbits(128)))
    lines = []
    for turn in range(exchanges):
        moment = (STARTED + timedelta(minutes=number * 7 + turn)).isoformat()
        for kind, chars in (("user", 200), ("assistant", 700)):
            content = [{"type": "text", "text": wording.text(chars)}]
            record = {
                "type": kind, "uuid": f"{session}{turn}{kind}", "sessionId": session, "timestamp": moment,
                "cwd": "/nowhere/shop", "message": {"role": kind, "content": content},
            }  # fmt: skip
            lines.append(json.dumps(record))
    (folder / f"{session}.jsonl").write_text("\n".join(lines) + "\n")


def search(home: Path, passages: int) -> None:
    """Measure queries over an index of this many passages, in a long-lived process and in a fresh one."""
    wording = Wording()
    for number in range(passages // 200):
        write_text_session(home, number, 100, wording)
    taken = index_apart(home)
    read = taken["bytes"] / 1e6
    row(f"index of {taken['passages']:,} passages, {read:.0f} MB of nothing but text", read / taken["cpu"], "MB/s", "")
    environment = read_environment({"HOME": str(home)})
    connection = open_home(environment.home)
    row("  size of the index, of the text", 100 * grown_bytes(home) / kept_bytes(home), "%", "")
    every: list[float] = []
    for what, queries in sorted(queries_of(wording).items()):
        times = []
        for query in queries:
            started = time.process_time()
            parsed = parse_search(query, today=STARTED.date())
            search_history(connection, parsed, SourceName.SESSIONS, today=STARTED.date())
            times.append(1000 * (time.process_time() - started))
        p95 = sorted(times)[int(len(times) * 0.95)]
        row(f"  search, {what}: p50", statistics.median(times), "ms", "<= 60")
        row(f"  search, {what}: p95", p95, "ms", "")
        every += times
    row("  search, all of these together: p50", statistics.median(every), "ms", "<= 60")
    connection.close()
    ask_server(home, queries_of(wording))
    code = (
        "import sys,time; from nugget.config import read_environment;"
        "from nugget.index.embedded.connection import open_home;"
        "from nugget.retrieval.history import search_history;"
        "from nugget.retrieval.query_language import parse_search; from datetime import date;"
        "home = open_home(read_environment({'HOME': sys.argv[1]}).home);"
        "from nugget.models import SourceName;"
        "search_history(home, parse_search(sys.argv[2], today=date.today()), SourceName.SESSIONS, today=date.today())"
    )
    cold = []
    for query in queries_of(wording)["mixed"][:5]:
        before = os.times()
        subprocess.run([sys.executable, "-c", code, str(home), query], check=True)
        after = os.times()
        cold.append(
            1000 * (after.children_user + after.children_system - before.children_user - before.children_system)
        )
    row("  search in a new process, with the interpreter's start", statistics.median(cold), "ms", "<= 300")


def ask_server(home: Path, queries: dict[str, list[str]]) -> None:
    """Measure the same queries over HTTP to a running server, in elapsed time."""
    variables = {
        "HOME": str(home), "PATH": os.environ["PATH"], "NUGGET_HTTP_BACKFILL": "false",
        "NUGGET_MODELS": str(Path(__file__).resolve().parent.parent / ".models"),
    }  # fmt: skip
    start = [sys.executable, "-c", "import sys; from nugget.__main__ import console; sys.argv[0] = 'nugget'; console()"]
    subprocess.run([*start, "init", str(home / "brain")], env=variables, check=True, capture_output=True)
    command = [*start, "serve", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE) as process:
        assert process.stderr
        address = re.search(rb"http://(\S+:\d+)", process.stderr.readline())
        assert address
        asking = HTTPConnection(address[1].decode(), timeout=600)
        for _ in range(3):  # the first ones load the model, and catch up
            ask(asking, "hello world", "")
        for what, sources in (("of sessions", "sessions"), ("of every source", "")):
            times = []
            for query in [query for some in queries.values() for query in some[::4]]:
                started = time.perf_counter()
                ask(asking, query, sources)
                times.append(1000 * (time.perf_counter() - started))
            row(f"  search {what} by a server, over HTTP, all of these: p50", statistics.median(times), "ms", "<= 60")
        process.terminate()


def ask(asking: HTTPConnection, query: str, sources: str) -> None:
    """Send one search over an open connection."""
    asking.request("GET", "/v1/search?" + urlencode({"q": query, "limit": 10, "sources": sources}))
    answer = asking.getresponse()
    document = answer.read()
    assert answer.status == 200, document


def queries_of(wording: Wording, count: int = 60) -> dict[str, list[str]]:
    """Return queries of three words each: rare ones, common ones, and both."""
    drawn = random.Random(7)
    common, rare = wording.words[:100], wording.words[1000:6000]
    return {
        "mixed": [" ".join([*drawn.sample(common, 2), *drawn.sample(rare, 2)]) for _ in range(count)],
        "rare words": [" ".join(drawn.sample(rare, 3)) for _ in range(count)],
        "common words": [" ".join(drawn.sample(common, 3)) for _ in range(count)],
        "a phrase": [f'"{drawn.choice(common)} {drawn.choice(rare)}"' for _ in range(count)],
        "a phrase of common words": [f'"{" ".join(drawn.sample(common, 2))}"' for _ in range(count)],
        "NEAR of common words": [f"NEAR({' '.join(drawn.sample(common, 2))}, 5)" for _ in range(count)],
        "one common word": drawn.sample(common, min(count, len(common))),
        "a question": [f"why did the {drawn.choice(common)} of {drawn.choice(rare)} not work" for _ in range(count)],
    }


if __name__ == "__main__":
    main()
