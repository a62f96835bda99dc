"""Sync against real brains: what changed is indexed, nothing else is touched, nothing is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from commands import Nugget
from numpy.typing import NDArray

from nugget.api import Brain
from nugget.config import EmbeddingSettings, RetrievalSettings, Settings, read_environment
from nugget.embedding import Embedder, open_embedder
from nugget.errors import EmbeddingUnavailable
from nugget.index import Index
from nugget.models import Bundle, Filter, Query
from nugget.retrieval import profiles, retrieve
from nugget.sync import SyncResult, index_folder, pending_changes, sync
from nugget.sync.preparing import WORTH_A_PROCESS

CACHE_FILE = "domains/coding/concepts/cache-invalidation.md"


@pytest.fixture(scope="module")
def model() -> Embedder:
    found = open_embedder(Settings(), read_environment())
    assert found is not None
    return found


@pytest.fixture
def synced(brain: Path, model: Embedder) -> Callable[..., SyncResult]:
    def run(**options: bool) -> SyncResult:
        return sync(brain, read_environment(), embedder=model, **options)

    run()
    return run


def ids_for(brain: Path, question: str) -> list[str]:
    with Brain(brain) as opened:
        return [hit.unit.id for hit in opened.ask(question, fresh=False).hits]


def unit(id_: str, *, domain: str = "coding", body: str = "Some knowledge about widgets.") -> str:
    return f"---\nid: {id_}\ntype: {id_.split('/')[0]}\ndomain: {domain}\n---\n# {id_}\n\n{body}\n"


def commit(brain: Path) -> None:
    for command in (["add", "-A"], ["commit", "-q", "-m", "Change"]):
        subprocess.run(["git", "-C", str(brain), *command], check=True)


@pytest.mark.proves("SYNC-FIRST", "BRAIN-CODING-NOT-COOKING")
def test_a_first_sync_indexes_every_unit_and_finds_coding_not_cooking(brain: Path, model: Embedder) -> None:
    result = sync(brain, read_environment(), embedder=model)
    files = len(list(brain.glob("domains/**/*.md")))
    assert (result.added, result.unchanged, result.problems) == (files, 0, ())
    with Brain(brain) as opened:
        bundle = opened.ask("cache invalidation")
    assert bundle.hits[0].unit.id == "concept/cache-invalidation"
    assert not [hit.unit.id for hit in bundle.hits if (hit.unit.domain or "").startswith("cooking")]


@pytest.mark.proves("SYNC-NOTHING")
@pytest.mark.parametrize("with_git", [True, False])
def test_a_second_sync_changes_nothing_and_writes_nothing(brain: Path, model: Embedder, with_git: bool) -> None:
    if not with_git:
        shutil.rmtree(brain / ".git")
    sync(brain, read_environment(), embedder=model)
    file = index_folder(brain, read_environment()) / "index.db"
    with closing(Index(file)) as index:
        generation = index.generation
    result = sync(brain, read_environment(), embedder=model)
    assert not result.changed
    assert result.unchanged == len(list(brain.glob("domains/**/*.md")))
    with closing(Index(file)) as index:
        assert index.generation == generation


@pytest.mark.proves("SYNC-INCREMENTAL")
@pytest.mark.parametrize("with_git", [True, False])
def test_added_modified_moved_and_removed_files_are_followed_and_only_new_text_is_embedded(
    brain: Path, model: Embedder, with_git: bool
) -> None:
    if not with_git:
        shutil.rmtree(brain / ".git")
    run = lambda: sync(brain, read_environment(), embedder=model)  # noqa: E731
    run()
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


@pytest.mark.proves("SYNC-INCREMENTAL")
def test_commits_checkouts_and_resets_are_followed(brain: Path, synced: Callable[..., SyncResult]) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(brain), "-c", "advice.detachedHead=false", *arguments], check=True)

    git("checkout", "-q", "-b", "other")
    (brain / CACHE_FILE).unlink()
    (brain / "domains/coding/bugs/new-bug.md").write_text(unit("bug/new-bug"))
    commit(brain)
    result = synced()
    assert (result.added, result.removed) == (1, 1)
    git("checkout", "-q", "-")
    result = synced()
    assert (result.added, result.removed, result.embedded) == (1, 1, 0)
    assert not synced().changed


@pytest.mark.proves("SYNC-INCREMENTAL")
@pytest.mark.parametrize("how", ["an ignored folder", "an ignored file", "a repository of its own"])
def test_files_that_git_does_not_watch_are_followed_too(
    brain: Path, synced: Callable[..., SyncResult], how: str
) -> None:
    file = brain / "domains/private/concepts/walrus.md"
    file.parent.mkdir(parents=True)
    if how == "a repository of its own":
        subprocess.run(["git", "init", "-q", str(brain / "domains/private")], check=True)
    else:
        ignored = "domains/private/" if "folder" in how else "walrus.md"
        (brain / ".gitignore").write_text(f".nugget/\n{ignored}\n")
        commit(brain)
    file.write_text(unit("concept/walrus", domain="private", body="The walrus is new."))
    assert synced().added == 1
    assert synced().changed is False
    file.write_text(unit("concept/walrus", domain="private", body="The walrus has changed."))
    assert synced().modified == 1
    other = file.with_name("narwhal.md")
    other.write_text(unit("concept/narwhal", domain="private"))
    assert synced().added == 1
    shutil.rmtree(brain / "domains/private")
    assert synced().removed == 2
    assert synced().changed is False


@pytest.mark.proves("SYNC-BAD-FILES")
def test_a_file_that_is_refused_is_told_each_time_and_read_again_only_when_it_changes(
    brain: Path, synced: Callable[..., SyncResult], tmp_path: Path
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("Secret.")
    (brain / "domains/coding/bugs/link.md").symlink_to(outside)
    (brain / "domains/coding/bugs/two\nlines.md").write_text(unit("bug/lines"))
    (brain / "domains/coding/bugs/huge.md").write_bytes(b"x" * 51_000_000)
    name = os.fsdecode(b"domains/coding/bugs/no-utf8-\xff.md")
    (brain / name).write_text(unit("bug/latin"))
    before = {problem.path for problem in synced().problems}
    assert {"domains/coding/bugs/link.md", "domains/coding/bugs/two\\nlines.md", "domains/coding/bugs/huge.md"} < before
    assert any(path.endswith("no-utf8-\\udcff.md") for path in before)
    assert pending_changes(brain, read_environment()) == 0
    result = synced()
    assert not result.changed and {problem.path for problem in result.problems} == before
    (brain / "domains/coding/bugs/huge.md").write_text(unit("bug/huge"))
    assert synced().modified == 1
    assert ids_for(brain, "cache invalidation")[0] == "concept/cache-invalidation"


@pytest.mark.proves("SYNC-LOST-INDEX")
def test_a_deleted_index_gives_the_same_answers_after_and_embeds_nothing_twice(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    questions = ["cache invalidation", "payment retry", "scaling bread dough"]

    def answers() -> list[Bundle]:
        with Brain(brain) as opened:
            return [opened.ask(question) for question in questions]

    before = answers()
    for file in (brain / ".nugget").glob("index.db*"):
        file.unlink()
    result = synced()
    assert result.rebuilt == "there is no index yet"
    assert result.embedded == 0
    for old, new in zip(before, answers(), strict=True):
        assert [(h.unit, h.score, h.chunks) for h in old.hits] == [(h.unit, h.score, h.chunks) for h in new.hits]


@pytest.mark.proves("SYNC-CORRUPT")
@pytest.mark.parametrize("damage", ["garbage", "truncated", "foreign", "older", "empty", "inner"])
def test_a_damaged_or_foreign_index_is_rebuilt_and_told_in_one_line(
    damage: str, brain: Path, synced: Callable[..., SyncResult]
) -> None:
    file = brain / ".nugget/index.db"
    if damage == "garbage":
        file.write_bytes(os.urandom(200_000))
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:5000])
    elif damage == "foreign":
        file.unlink()
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE recipes (name TEXT)")
    elif damage == "older":
        with closing(sqlite3.connect(file)) as other:
            other.execute("UPDATE meta SET value = '0' WHERE key = 'schema_version'")
            other.commit()
    elif damage == "empty":
        file.write_bytes(b"")
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


@pytest.mark.proves("SYNC-CORRUPT")
def test_damage_that_shows_only_while_syncing_is_healed_by_that_sync(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    file = brain / ".nugget/index.db"
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = opened.execute("SELECT rootpage FROM sqlite_master WHERE name = 'files'").fetchone()[0]
        size = opened.execute("PRAGMA page_size").fetchone()[0]
    with file.open("r+b") as broken:
        broken.seek((page - 1) * size)
        broken.write(b"\xff" * 200)
    (brain / CACHE_FILE).write_text(unit("concept/cache-invalidation", body="Changed meanwhile."))
    assert "corrupt" in (synced().rebuilt or "")
    assert not synced().changed


@pytest.mark.proves("SYNC-CORRUPT")
def test_a_rebuild_that_was_interrupted_leaves_the_old_index_serving(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    (brain / ".nugget/index.db.new").write_bytes(b"half written")
    assert not synced().changed
    assert synced(rebuild=True).rebuilt == "asked for"
    assert not (brain / ".nugget/index.db.new").exists()


@pytest.mark.proves("SYNC-DUPLICATE")
def test_of_two_files_with_one_id_the_first_path_has_it_and_the_other_is_named(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    second = brain / "domains/coding/concepts/zz-copy.md"
    second.write_text(unit("concept/cache-invalidation", body="A copy by mistake."))
    result = synced()
    assert [problem.path for problem in result.problems] == ["domains/coding/concepts/zz-copy.md"]
    assert "cache-invalidation.md" in result.problems[0].reason
    first = brain / "domains/coding/concepts/aa-copy.md"
    first.write_text(unit("concept/cache-invalidation", body="Another copy, earlier in the alphabet."))
    assert len(synced().problems) == 2
    with Brain(brain) as opened:
        found = opened.index.unit("concept/cache-invalidation")
        assert found is not None and found.path == "domains/coding/concepts/aa-copy.md"
    first.unlink()
    second.unlink()
    assert synced().problems == ()
    with Brain(brain) as opened:
        found = opened.index.unit("concept/cache-invalidation")
        assert found is not None and found.path == CACHE_FILE


@pytest.mark.proves("SYNC-BAD-FILES")
def test_bad_files_are_named_with_line_and_reason_and_everything_else_still_works(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    folder = brain / "domains/coding/bugs"
    (folder / "broken-yaml.md").write_text("---\nid: bug/x\ntags: [a\ntype: bug\n---\n# X\n")
    (folder / "binary.md").write_bytes(b"\x00\x01\x02" * 1000)
    (folder / "wrong-type.md").write_text("---\nid: bug/y\ntype: poem\ndomain: coding\n---\n# Y\n")
    (folder / "huge.md").write_bytes(b"# big\n" * 9_000_000)
    (folder / "folder.md").mkdir()
    (folder / "out.md").symlink_to("/etc/passwd")
    (folder / "line\nbreak.md").write_text(unit("bug/line-break"))
    (folder / "ünï 漢字.md").write_text(unit("bug/odd-name", body="The zorblatt is found."))
    result = synced()
    named = {problem.path.rsplit("/", 1)[1]: problem for problem in result.problems}
    assert {"broken-yaml.md", "binary.md", "wrong-type.md", "huge.md", "line\\nbreak.md"} <= named.keys()
    assert named["line\\nbreak.md"].reason.startswith("has a line break")
    assert named["broken-yaml.md"].line is not None
    assert named["wrong-type.md"].line == 3
    assert "root:" not in json.dumps([problem.reason for problem in result.problems])
    assert ids_for(brain, "zorblatt")[0] == "bug/odd-name"
    assert ids_for(brain, "cache invalidation")[0] == "concept/cache-invalidation"
    (folder / "broken-yaml.md").write_text(unit("bug/x"))
    assert "broken-yaml.md" not in {p.path.rsplit("/", 1)[1] for p in synced().problems}


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
def test_a_model_switch_embeds_everything_anew_while_the_old_index_serves(
    brain: Path, model: Embedder, synced: Callable[..., SyncResult]
) -> None:
    file = brain / ".nugget/index.db"
    served: list[str | None] = []
    steps: list[tuple[int, int]] = []

    def look() -> None:
        with closing(Index(file)) as index:
            served.append(index.embedding_model)
            assert index.search_vectors(model.embed_query("cache"), 3, Filter())

    other = OtherModel(model, gate=look)
    result = sync(
        brain, read_environment(), embedder=other, progress=lambda stage, done, total: steps.append((done, total))
    )
    assert result.rebuilt == "the embedding model is reversed now"
    assert result.embedded > 100 and result.cached == 0
    assert set(served) == {model.model}
    assert steps[-1] == (result.added, result.added)
    with closing(Index(file)) as index:
        assert index.embedding_model == "reversed"
    assert synced().embedded == 0, "the first model's vectors are still cached"


@pytest.mark.proves("SYNC-NO-VECTORS")
def test_when_vectors_cannot_be_had_text_is_indexed_and_vectors_follow_later(brain: Path, model: Embedder) -> None:
    failing = OtherModel(model, fail_after=20)
    result = sync(brain, read_environment(), embedder=failing)
    assert result.without_vectors == "no more vectors"
    with Brain(brain, settings=Settings(embedding=EmbeddingSettings(model="none"))) as opened:
        bundle = opened.ask("cache invalidation", fresh=False)
    assert bundle.hits[0].unit.id == "concept/cache-invalidation"
    assert bundle.degraded == ("no_vectors",)
    result = sync(brain, read_environment(), embedder=OtherModel(model))
    assert result.without_vectors is None
    with closing(Index(brain / ".nugget/index.db")) as index:
        counts = index.counts()
        assert counts["vectors"] == counts["chunks"] > 100


@pytest.mark.proves("SYNC-NO-VECTORS")
def test_a_model_that_cannot_be_had_is_said_by_every_command_until_it_can(
    brain: Path, synced: Callable[..., SyncResult], nugget: Nugget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "BAAI/bge-small-en-v1.5")
    said = "The embedding model BAAI/bge-small-en-v1.5 could not be loaded"
    result = nugget("sync", "--source", "brain")
    assert result.code == 0 and "Index in line" in result.out and said in result.err
    result = nugget("ask", "cache invalidation", "--no-llm", "--json")
    assert result.json["hits"][0]["id"] == "concept/cache-invalidation"
    assert result.json["degraded"] == ["no_vectors", "no_llm"]
    assert said in result.err and "made anew" not in result.err
    assert "BAAI/bge-small-en-v1.5 cannot be had" in nugget("status").out
    written = (brain / ".nugget/index.db").stat().st_mtime_ns
    assert said in nugget("sync", "--source", "brain").err
    assert (brain / ".nugget/index.db").stat().st_mtime_ns == written, "what is noted is not noted again"
    monkeypatch.delenv("NUGGET_EMBEDDING_MODEL")
    assert nugget("ask", "cache invalidation", "--no-llm", "--json").json["degraded"] == ["no_llm"]
    nugget("sync", "--source", "brain")
    assert "cannot be had" not in nugget("status").out


@pytest.mark.proves("SYNC-CORRUPT")
def test_an_index_that_lacks_a_table_is_made_anew_and_that_is_told(
    brain: Path, synced: Callable[..., SyncResult], nugget: Nugget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    with closing(sqlite3.connect(brain / ".nugget/index.db")) as connection:
        connection.execute("DROP TABLE relationships")
    result = nugget("ask", "cache invalidation", "--no-llm")
    assert "concept/cache-invalidation" in result.out
    assert "The index was made anew (the index lacks the table relationships)." in result.err


@pytest.mark.proves("SYNC-NO-VECTORS")
def test_vectors_that_failed_for_a_changed_file_are_made_by_the_next_sync(
    brain: Path, model: Embedder, synced: Callable[..., SyncResult]
) -> None:
    sync(brain, read_environment(), embedder=OtherModel(model))
    (brain / CACHE_FILE).write_text((brain / CACHE_FILE).read_text() + "\nA new closing remark on caches.\n")
    result = sync(brain, read_environment(), embedder=OtherModel(model, fail_after=0))
    assert result.without_vectors
    assert sync(brain, read_environment(), embedder=OtherModel(model)).embedded >= 1
    with closing(Index(brain / ".nugget/index.db")) as index:
        counts = index.counts()
        assert counts["vectors"] == counts["chunks"]


@pytest.mark.proves("SYNC-READ-ONLY")
def test_a_brain_that_cannot_be_written_gets_its_index_elsewhere(brain: Path, model: Embedder) -> None:
    (brain / ".nugget").write_text("a file where the folder would be: nothing can be written below it")
    assert sync(brain, read_environment(), embedder=model).added
    folder = index_folder(brain, read_environment())
    assert folder.is_relative_to(read_environment().home)
    assert folder.stat().st_mode & 0o077 == folder.parent.stat().st_mode & 0o077 == 0
    assert ids_for(brain, "cache invalidation")[0] == "concept/cache-invalidation"


def _sync_process(brain: str, home: str, start: float) -> None:
    os.environ["HOME"] = home
    time.sleep(max(0.0, start - time.time()))
    environment = read_environment()
    found = open_embedder(Settings(), environment)
    sync(Path(brain), environment, embedder=found)


@pytest.mark.proves("SYNC-CONCURRENT")
def test_four_processes_that_sync_at_once_lose_no_update_and_readers_never_fail(
    brain: Path, synced: Callable[..., SyncResult]
) -> None:
    for number in range(30):
        (brain / f"domains/coding/bugs/parallel-{number}.md").write_text(unit(f"bug/parallel-{number}"))
    start = time.time() + 1.0
    spawn = multiprocessing.get_context("spawn")
    arguments = (str(brain), os.environ["HOME"], start)
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
        "import sys; from pathlib import Path; from nugget.api import Brain\n"
        "def told(stage, done, total):\n    if done == 20: print('go', flush=True)\n"
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
