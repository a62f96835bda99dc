"""Sync while others read, write or are killed, and from a second process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sync_stage import unit
from waiting import PATIENCE_S

from nugget.app import Brain
from nugget.config import RetrievalSettings, Settings, read_environment
from nugget.index import Index
from nugget.index.sync import SyncResult, index_folder, pending_changes, sync
from nugget.index.sync.preparing import WORTH_A_PROCESS
from nugget.infra.embedding import Embedder, open_embedder
from nugget.models import Query
from nugget.retrieval import profiles, retrieve


def _sync_process(brain: str, home: str, start: Barrier) -> None:
    os.environ["HOME"] = home
    environment = read_environment()
    found = open_embedder(Settings(), environment)
    start.wait()
    sync(Path(brain), environment, embedder=found)


@pytest.mark.proves("SYNC-CONCURRENT")
def test_four_processes_that_sync_at_once_lose_no_update_and_readers_never_fail(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    for number in range(30):
        (brain / f"domains/coding/bugs/parallel-{number}.md").write_text(unit(f"bug/parallel-{number}"))
    spawn = multiprocessing.get_context("spawn")
    arguments = (str(brain), os.environ["HOME"], spawn.Barrier(4, timeout=PATIENCE_S))
    processes = [spawn.Process(target=_sync_process, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    reads = 0
    with closing(Index(brain / ".nugget/index.db")) as index:
        while any(process.is_alive() for process in processes):
            assert index.counts()["units"] >= 44
            reads += 1
    assert [process.exitcode for process in processes] == [0] * 4
    assert reads > 10
    with closing(Index(brain / ".nugget/index.db")) as index:
        assert index.unit("bug/parallel-29") is not None
        assert index.counts()["units"] == len(list(brain.glob("domains/**/*.md")))
    assert not synced().changed


class Interrupted:
    """The real model; something else happens between the two searches of a question, where it is asked."""

    def __init__(self, real: Embedder, meanwhile: Callable[[], object]) -> None:
        self.model = real.model
        self._real = real
        self._meanwhile = meanwhile

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        return self._real.embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self._meanwhile()
        return self._real.embed_query(text)

    def count_tokens(self, text: str) -> int:
        return self._real.count_tokens(text)


@pytest.mark.proves("SYNC-CONCURRENT")
@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("resident", [False, True])
def test_a_question_sees_one_state_of_the_index_while_another_thread_writes_it(
    resident: bool, rebuild: bool, brain: Path, model: Embedder, synced: Callable[..., SyncResult]
) -> None:
    def write() -> None:
        for file in brain.glob("domains/coding/**/*.md"):
            file.unlink()
        assert synced(rebuild=rebuild).changed

    query = Query(text="cache invalidation")
    profile = profiles.configured("task", RetrievalSettings())
    now = datetime(2026, 6, 1, tzinfo=UTC)
    with closing(Index(brain / ".nugget/index.db", resident=resident)) as index:
        before = retrieve(query, profile, index, embedder=Interrupted(model, write), now=now)
        assert before.hits[0].unit.id == "concept/cache-invalidation"
        after = retrieve(query, profile, index, embedder=model, now=now)
        assert not any(hit.unit.domain and hit.unit.domain.startswith("coding") for hit in after.hits)


@pytest.mark.proves("SYNC-KILLED")
def test_a_sync_that_is_killed_leaves_a_whole_index_and_the_next_one_finishes(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    for number in range(300):
        body = " ".join(f"word{number}-{i}" for i in range(60))
        (brain / f"domains/coding/bugs/many-{number}.md").write_text(unit(f"bug/many-{number}", body=body))
    code = (
        "import sys, time; from pathlib import Path; from nugget.app import Brain\n"
        "def told(stage, done, total):\n    if done == 20: print('go', flush=True); time.sleep(600)\n"
        "Brain(Path(sys.argv[1])).sync(progress=told)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(brain)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"go\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with closing(Index(brain / ".nugget/index.db")) as index:
        assert index.counts()["units"] == 44
        assert index.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert pending_changes(brain, read_environment()) == 300
    assert synced().added == 300


@pytest.mark.proves("SYNC-INLINE")
def test_a_question_syncs_a_few_changes_first_and_says_when_many_are_left(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    (brain / "domains/coding/bugs/tiny.md").write_text(unit("bug/tiny", body="The zorblatt overflows at noon."))
    with Brain(brain) as opened:
        bundle = opened.ask("zorblatt")
        assert bundle.hits[0].unit.id == "bug/tiny"
        assert "index_behind" not in bundle.degraded
        for number in range(80):
            (brain / f"domains/coding/bugs/late-{number}.md").write_text(unit(f"bug/late-{number}"))
        bundle = opened.ask("zorblatt")
    assert bundle.hits[0].unit.id == "bug/tiny"
    assert "index_behind" in bundle.degraded


class _CountsWords:
    """Stands for no model at all; without a second process where it cannot be pickled."""

    model = "counts-words"

    def __init__(self, unpicklable: object = None) -> None:
        self.unpicklable = unpicklable
        self.counted = 0

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        yield from (np.full(4, 0.5, dtype=np.float32) for _ in texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return np.full(4, 0.5, dtype=np.float32)

    def count_tokens(self, text: str) -> int:
        self.counted += 1
        return len(text.split())


@pytest.mark.proves("SYNC-SECOND-PROCESS")
@pytest.mark.parametrize("broken", [None, "executable", "pickling"])
def test_a_large_rebuild_reads_in_a_second_process_and_as_well_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str | None
) -> None:
    brain = tmp_path / "brain"
    folder = brain / "domains/coding/concepts"
    folder.mkdir(parents=True)
    (brain / "brain.yaml").write_text("owner: Test\n")
    for number in range(WORTH_A_PROCESS + 300):
        (folder / f"n{number}.md").write_text(unit(f"concept/n{number}", body=f"Widget {number}.\n\n## More\n\nText."))
    (folder / "n7.md").write_text("no knowledge")
    model = _CountsWords(threading.Lock() if broken == "pickling" else None)
    sync(brain, read_environment(), embedder=model)
    first = index_contents(brain)
    if broken == "executable":
        monkeypatch.setattr(sys, "executable", "/bin/false")
    model.counted = 0
    result = sync(brain, read_environment(), embedder=model, rebuild=True)
    assert [problem.path for problem in result.problems] == ["domains/coding/concepts/n7.md"]
    assert (result.added, result.embedded) == (WORTH_A_PROCESS + 299 + 1, 0)
    assert index_contents(brain) == first
    files = WORTH_A_PROCESS + 300  # each has two sections to count
    assert (model.counted < 1.5 * files) is (broken is None), "half is counted here, the rest in the second process"


def index_contents(brain: Path) -> list[tuple[object, ...]]:
    """Every chunk with its unit, in the order of the index."""
    with closing(sqlite3.connect(index_folder(brain, read_environment()) / "index.db")) as connection:
        return connection.execute(
            "SELECT u.id, c.position, c.heading_breadcrumb, c.content, hex(v.embedding) FROM units u "
            "JOIN chunks c ON c.unit_key = u.key JOIN vectors v ON v.chunk_key = c.key ORDER BY c.key"
        ).fetchall()
