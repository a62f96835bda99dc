"""Sync while others read, write or are killed, and from a second process."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from sync_stage import unit
from waiting import PATIENCE_S

from nugget.config import Settings, read_environment
from nugget.index import Index, SyncResult
from nugget.index.sync import sync
from nugget.infra.embedding import open_embedder


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
        assert [process.exitcode for process in processes] == [0] * 4 and reads > 10
        assert index.counts()["units"] == len(list(brain.glob("domains/**/*.md")))
    assert not synced().changed
