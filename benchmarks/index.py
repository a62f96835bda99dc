"""Index and query speed as ratios to their floors: `python benchmarks/index.py [--quick] [--large]`.

Everything is measured in one run on one machine, so that the ratios hold where the milliseconds do not.
--quick uses smaller brains; --large adds the 100,000-chunk index (vectors there are random: they cost the same).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from corpus import questions, write_brain

from nugget.app import Brain
from nugget.config import Environment, Settings, read_environment
from nugget.index.embedded.connection import open_existing
from nugget.index.embedded.sync import pending_changes, sync
from nugget.infra.embedding import Embedder, open_embedder
from nugget.models import Query


def main() -> None:
    """Run the parts and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    environment = read_environment()
    embedder = open_embedder(Settings(), environment)
    assert embedder is not None
    next(iter(embedder.embed(["warm", "up"])))
    print(f"{'what':58} {'ours':>12} {'floor':>12} {'ratio':>7}  limit")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        build(root, environment, embedder, files=150 if options.quick else 600)
        many = 2_000 if options.quick else 10_000
        unchanged(root, environment, embedder, files=many)
        sizes = [1_000, 10_000] + ([100_000] if options.large else [])
        for chunks in sizes[:1] if options.quick else sizes:
            ask(root, environment, embedder, chunks=chunks)


def row(what: str, ours: float, floor: float, limit: str, *, unit: str = "ms", higher: bool = False) -> None:
    """Print one line of the table; `higher` is for rates."""
    ratio = ours / floor if floor else float("nan")
    print(f"{what:58} {ours:>9.1f} {unit:<3}{floor:>9.1f} {unit:<3}{ratio:>6.2f}  {'>=' if higher else '<='} {limit}")


def build(root: Path, environment: Environment, embedder: Embedder, *, files: int) -> None:
    """Measure a full build against the bare model on the same texts, then a rebuild with cached vectors."""
    brain = write_brain(root / "build", files)
    started = time.perf_counter()
    result = sync(brain, environment, embedder=embedder)
    ours = result.embedded / (time.perf_counter() - started)
    with closing(open_existing(brain / ".nugget/index.db")) as connection:
        texts = [
            f"{b}\n{t}" if b else t for b, t in connection.execute("SELECT heading_breadcrumb, content FROM chunks")
        ]
    started = time.perf_counter()
    for _ in embedder.embed(texts):
        pass
    bare = len(texts) / (time.perf_counter() - started)
    row(f"full build of {len(texts)} chunks against the bare model", ours, bare, "0.90", unit="c/s", higher=True)
    started = time.perf_counter()
    sync(brain, environment, embedder=embedder, rebuild=True)
    rate = files / (time.perf_counter() - started)
    row(f"rebuild of {files} files of 2 KB, vectors cached", rate, 800, "1.00", unit="f/s", higher=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row("peak memory so far", peak, 500, "1.00", unit="MB")


def unchanged(root: Path, environment: Environment, embedder: Embedder, *, files: int) -> None:
    """Measure a sync that finds no change, and one that finds one changed file among many."""
    brain = write_brain(root / "many", files)
    fill_cache(brain, environment, embedder)
    sync(brain, environment, embedder=embedder)
    status = median(
        lambda: subprocess.run(["git", "status", "--porcelain"], cwd=brain, check=True, capture_output=True)
    )
    walk = median(lambda: walk_and_stat(brain / "domains"))
    look = median(lambda: pending_changes(brain, environment))
    whole = median(lambda: sync(brain, environment, embedder=embedder))
    row(f"look for changes among {files} files", look, min(status, walk), "2.00")
    row(f"sync of {files} files, nothing changed", whole, min(status, walk), "2.00")
    file = brain / "domains/area0/concepts/note-0.md"
    spent, alone = [], []
    for number in range(5):
        sentence = f"Sentence {number} that changes."
        file.write_text(file.read_text() + f"\n{sentence}\n")
        spent.append(timed(lambda: sync(brain, environment, embedder=embedder)))
        alone.append(timed(lambda: list(embedder.embed(["x " * 100]))))
    more = statistics.median(spent) - statistics.median(alone)
    row(f"one changed file among {files}, beyond its embedding", more, 150, "1.00")


def ask(root: Path, environment: Environment, embedder: Embedder, *, chunks: int) -> None:
    """Measure questions to a resident brain against the embedding of the question alone."""
    brain = write_brain(root / f"ask{chunks}", chunks // 5, commit=chunks <= 10_000)
    fill_cache(brain, environment, embedder)
    sync(brain, environment, embedder=embedder)
    asked = questions(60)
    with Brain(brain, environment=environment) as opened:
        held = opened.index.chunk_count
        opened.ask(asked[0], fresh=False)
        times = [timed(partial(opened.ask, question, fresh=False)) for question in asked]
        alone = [timed(partial(embedder.embed_query, question)) for question in asked]
        stages = [opened.ask(Query(question, explain=True), fresh=False).explain for question in asked[:20]]
    limit = {True: "6.00", False: "12.00"}[chunks <= 10_000]
    row(f"question to a server, {held} chunks, p50", statistics.median(times), statistics.median(alone), limit)
    names = stages[0]["timings_ms"] if stages[0] else {}
    parts = {name: statistics.median(s["timings_ms"][name] for s in stages if s) for name in names}
    print("    stages, ms: " + ", ".join(f"{name} {value:.1f}" for name, value in parts.items()))
    size = (brain / ".nugget/index.db").stat().st_size / 1e6
    print(
        f"    index {size:.0f} MB, {size * 1e6 / held:.0f} bytes a chunk; "
        f"memory {server_memory(brain):.0f} MB (limit 600)"
    )


def fill_cache(brain: Path, environment: Environment, embedder: Embedder) -> None:
    """Put a random unit vector in the cache for every text of the brain, so that building costs no embedding."""
    import numpy as np

    class Collect:
        """An embedder that only collects the texts to embed."""

        model = embedder.model
        count_tokens = staticmethod(embedder.count_tokens)

        def embed(self, texts):  # type: ignore[no-untyped-def]
            chance = np.random.default_rng(len(texts))
            for _ in texts:
                vector = chance.standard_normal(384).astype(np.float32)
                yield vector / np.linalg.norm(vector)

        embed_query = embedder.embed_query

    sync(brain, environment, embedder=Collect())


def server_memory(brain: Path) -> float:
    """Return the resident megabytes of a process that has answered questions from this brain."""
    code = (
        "import sys, resource; from pathlib import Path; from nugget.app import Brain\n"
        "b = Brain(Path(sys.argv[1]))\n"
        "for q in sys.argv[2:]: b.ask(q, fresh=False)\n"
        'print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024)'
    )
    command = [sys.executable, "-c", code, str(brain), *questions(10)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def walk_and_stat(folder: Path) -> int:
    """Walk and stat the files: the least that any change detection without git costs."""
    count = 0
    for entry in os.scandir(folder):
        count += walk_and_stat(Path(entry.path)) if entry.is_dir() else bool(entry.stat())
    return count


def timed(call: Callable[[], object]) -> float:
    """Return the milliseconds of one call."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def median(call: Callable[[], object], *, times: int = 7) -> float:
    """Return the median milliseconds of several calls after one to warm up."""
    call()
    return statistics.median(timed(call) for _ in range(times))


if __name__ == "__main__":
    main()
