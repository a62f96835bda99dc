"""Sync against real brains: what changed is indexed, nothing is lost, by any model and several processes at once."""

import multiprocessing
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sync_stage import CACHE_FILE, unit
from waiting import PATIENCE_S

from nugget.app import Brain
from nugget.config import Settings, read_environment
from nugget.errors import EmbeddingUnavailable
from nugget.index.embedded import Index
from nugget.index.embedded.connection import index_folder
from nugget.index.embedded.sync import sync
from nugget.infra.embedding import Embedder, open_embedder
from nugget.models import Bundle, Filter
from nugget.text import on_progress


def ids_for(brain: Path, question: str) -> list[str]:
    with Brain(brain) as opened:
        return [hit.unit.id for hit in opened.ask(question, fresh=False).hits]


@pytest.mark.proves("SYNC-FIRST", "BRAIN-CODING-NOT-COOKING")
def test_a_first_sync_indexes_every_unit_and_finds_coding_not_cooking(brain, model):
    result = sync(brain, read_environment(), embedder=model)
    assert (result.added, result.unchanged, result.problems) == (len(list(brain.glob("domains/**/*.md"))), 0, ())
    with Brain(brain) as opened:
        bundle = opened.ask("cache invalidation")
    assert bundle.hits[0].unit.id == "concept/cache-invalidation"
    assert not [hit.unit.id for hit in bundle.hits if (hit.unit.domain or "").startswith("cooking")]


@pytest.mark.proves("SYNC-INCREMENTAL", "SYNC-NOTHING")
def test_added_modified_moved_and_removed_files_are_followed_and_only_new_text_is_embedded(brain, model):
    run = lambda: sync(brain, read_environment(), embedder=model)  # noqa: E731
    run()
    with closing(Index(index_folder(brain, read_environment().home) / "index.db")) as index:
        version = index.connection.execute("PRAGMA data_version").fetchone()
        assert not run().changed
        assert index.connection.execute("PRAGMA data_version").fetchone() == version, "nothing is written"
    new = brain / "domains/coding/concepts/flux-capacitor.md"
    new.write_text(unit("concept/flux-capacitor", body="The flux capacitor needs 1.21 gigawatts."))
    result = run()
    assert (result.added, result.embedded) == (1, 2), "the chunk, which is the whole, and the title"
    assert ids_for(brain, "how many gigawatts")[0] == "concept/flux-capacitor"
    new.write_text(unit("concept/flux-capacitor", body="The flux capacitor needs plutonium or lightning."))
    result = run()
    assert (result.modified, result.added) == (1, 0)
    with Brain(brain) as opened:
        assert "gigawatts" not in opened.ask("flux capacitor", fresh=False).hits[0].unit.body
    elsewhere = brain / "domains/operations/concepts/flux-capacitor.md"
    elsewhere.parent.mkdir(parents=True, exist_ok=True)
    new.rename(elsewhere)
    result = run()
    assert (result.moved, result.added, result.removed, result.embedded) == (1, 0, 0, 0)
    with Brain(brain) as opened:
        moved = opened.ask("flux capacitor", fresh=False).hits[0].unit
    assert moved.path == "domains/operations/concepts/flux-capacitor.md"
    elsewhere.unlink()
    assert run().removed == 1
    assert "concept/flux-capacitor" not in ids_for(brain, "flux capacitor")


@pytest.mark.proves("SYNC-LOST-INDEX")
def test_a_deleted_index_gives_the_same_answers_after_and_embeds_nothing_twice(brain, synced):
    questions = ["cache invalidation", "payment retry", "scaling bread dough"]

    def answers() -> list[Bundle]:
        with Brain(brain) as opened:
            return [opened.ask(question) for question in questions]

    before = answers()
    for file in (brain / ".nugget").glob("index.db*"):
        file.unlink()
    assert synced().embedded == 0
    for old, new in zip(before, answers(), strict=True):
        assert [(h.unit, h.score, h.chunks) for h in old.hits] == [(h.unit, h.score, h.chunks) for h in new.hits]


@pytest.mark.proves("SYNC-CORRUPT")
@pytest.mark.parametrize("damage", ["garbage", "foreign", "older", "inner"])
def test_a_damaged_or_foreign_index_is_rebuilt_and_told_in_one_line(damage, brain, synced):
    file = brain / ".nugget/index.db"
    if damage == "garbage":
        file.write_bytes(os.urandom(200_000))
    elif damage == "foreign":
        file.unlink()
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE recipes (name TEXT)")
    elif damage == "older":
        with closing(sqlite3.connect(file)) as other:
            other.execute("UPDATE meta SET value = '0' WHERE key = 'schema_version'")
            other.commit()
    else:
        content = bytearray(file.read_bytes())
        content[8192 : len(content) // 2] = b"\xff" * (len(content) // 2 - 8192)
        file.write_bytes(content)
    with Brain(brain) as opened:
        assert opened.ask("cache invalidation").hits[0].unit.id == "concept/cache-invalidation"
    assert not synced().changed
    if damage != "inner":
        return
    with closing(sqlite3.connect(file)) as healed:
        assert healed.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.proves("SYNC-DUPLICATE")
def test_of_two_files_with_one_id_the_first_path_has_it_and_the_other_is_named(brain, synced):
    first, second = (brain / f"domains/coding/concepts/{name}-copy.md" for name in ("aa", "zz"))
    for copies, path in (([second], CACHE_FILE), ([first, second], str(first.relative_to(brain))), ([], CACHE_FILE)):
        for file in (first, second):
            file.unlink(missing_ok=True)
        for file in copies:
            file.write_text(unit("concept/cache-invalidation", body=f"A copy by mistake: {file.name}."))
        named = [problem.reason for problem in synced().problems]
        assert len(named) == len(copies) and all(Path(path).name in reason for reason in named)
        with Brain(brain) as opened:
            found = opened.index.unit("concept/cache-invalidation")
            assert found is not None and found.path == path


@pytest.mark.proves("SYNC-READ-ONLY")
def test_a_brain_that_cannot_be_written_gets_its_index_elsewhere(brain, model):
    (brain / ".nugget").write_text("a file where the folder would be: nothing can be written below it")
    assert sync(brain, read_environment(), embedder=model).added
    folder = index_folder(brain, read_environment().home)
    assert folder.is_relative_to(read_environment().home)
    assert folder.stat().st_mode & 0o077 == folder.parent.stat().st_mode & 0o077 == 0
    assert ids_for(brain, "cache invalidation")[0] == "concept/cache-invalidation"


class OtherModel:
    """Another embedding model: the real one with its axes reversed; `fail_after` texts it has no more vectors."""

    def __init__(
        self, real: Embedder, *, fail_after: int | None = None, gate: Callable[[], None] | None = None
    ) -> None:
        self.model = "reversed"
        self._real = real
        self._left = fail_after
        self._gate = gate

    def embed(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        for vector in self._real.embed(texts):
            if self._gate:
                self._gate()
            if self._left is not None:
                if self._left == 0:
                    raise EmbeddingUnavailable("no more vectors")
                self._left -= 1
            yield np.ascontiguousarray(vector[::-1])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return np.ascontiguousarray(self._real.embed_query(text)[::-1])

    def count_tokens(self, text: str) -> int:
        return self._real.count_tokens(text)


@pytest.mark.proves("SYNC-MODEL-SWITCH")
def test_a_model_switch_embeds_everything_again_while_the_old_index_serves(brain, model, synced):
    file = brain / ".nugget/index.db"
    served: list[str | None] = []
    steps: list[tuple[int, int]] = []

    def look() -> None:
        with closing(Index(file)) as index:
            served.append(index.embedding_model)
            assert index.search_vectors(model.embed_query("cache"), 3, Filter())

    other = OtherModel(model, gate=look)
    token = on_progress.set(lambda stage, done, total: steps.append((done, total)))
    result = sync(brain, read_environment(), embedder=other)
    on_progress.reset(token)
    assert result.rebuilt == "the embedding model is reversed now"
    assert result.embedded > 100 and result.cached == 0 and set(served) == {model.model}
    assert steps[-1] == (result.added, result.added)
    with closing(Index(file)) as index:
        assert index.embedding_model == "reversed"
    assert synced().embedded == 0, "the first model's vectors are still cached"


@pytest.mark.proves("SYNC-NO-VECTORS")
def test_when_vectors_cannot_be_had_text_is_indexed_and_vectors_follow_later(brain, model):
    result = sync(brain, read_environment(), embedder=OtherModel(model, fail_after=20))
    assert result.without_vectors == "no more vectors"
    with Brain(brain, settings=Settings(embedding_model="none")) as opened:
        bundle = opened.ask("cache invalidation", fresh=False)
    assert bundle.hits[0].unit.id == "concept/cache-invalidation"
    assert bundle.degraded == ("no_vectors",)
    result = sync(brain, read_environment(), embedder=OtherModel(model))
    assert result.without_vectors is None
    with closing(Index(brain / ".nugget/index.db")) as index:
        counts = index.counts()
        assert counts["vectors"] == counts["chunks"] > 100


def _sync_process(brain: str, home: str, start: Barrier) -> None:
    os.environ["HOME"] = home
    environment = read_environment()
    found = open_embedder(Settings(), environment)
    start.wait()
    sync(Path(brain), environment, embedder=found)


@pytest.mark.proves("SYNC-CONCURRENT")
def test_four_processes_that_sync_at_once_lose_no_update_and_readers_never_fail(brain, synced):
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
