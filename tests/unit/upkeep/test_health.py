"""Status, doctor and repair: what is wrong is seen, named with the next command, and put right."""

import gzip
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from knowledge_files import commit, linked_brain, shell, snapshot
from programs import program

from nugget.app import Brain
from nugget.brain.filing import move_unit
from nugget.config import load_settings, read_environment
from nugget.errors import NuggetError
from nugget.index.embedded.connection import find_damage
from nugget.infra import files, git
from nugget.upkeep.doctor import Finding, doctor
from nugget.upkeep.repair import find_leaks, repair, scrub
from nugget.upkeep.status import status


def findings(brain: Path) -> dict[str, Finding]:
    """What doctor finds, by name; of several with one name, the worst."""
    environment = read_environment()
    found = doctor(brain, load_settings(environment, brain), environment, now=datetime.now(UTC))
    order = ("ok", "warning", "error")
    return {one["name"]: one for one in sorted(found, key=lambda one: order.index(one["state"]))}


def status_of(brain: Path) -> dict[str, Any]:
    environment = read_environment()
    return status(brain, load_settings(environment, brain), environment)


@pytest.mark.proves("HEALTH-READS")
def test_status_and_doctor_write_nothing(words, nugget, isolated_home):
    for added in ("", "---\nid: pattern/new\ntype: pattern\n---\n# New\n\nText.\n"):
        if added:
            assert nugget("sync").code == 0
            (words / "domains/coding/patterns/new.md").write_text(added)
        before = snapshot(words, isolated_home)
        for command in (["status"], ["doctor"], ["status", "--json"], ["doctor", "--json"]):
            assert nugget(*command).code == 0
        assert snapshot(words, isolated_home) == before


@pytest.mark.proves("HEALTH-NEXT")
def test_each_fault_is_told_with_its_next_step(words, nugget, isolated_home, monkeypatch):
    (words / "domains/coding/patterns/bad.md").write_text("---\ntags: [unclosed\n---\n")
    assert nugget("sync").code == 0
    assert "Something is wrong: 1 error." in nugget("status").out
    (words / "brain.yaml").write_text("owner: X\nretrival:\n  limit: 3\n")
    files.queue_job(isolated_home / ".nugget", {"session": "s1"})
    queue = isolated_home / ".nugget/queue"
    (queue / "failed").mkdir()
    (job,) = (queue / "pending").iterdir()
    (queue / "failed" / job.name).write_text('{"session": "s1", "reason": "the disk was full", "attempts": 12}')
    found = findings(words)
    assert found["knowledge files"]["state"] == "error" and found["knowledge files"]["next_step"] == "nugget lint"
    assert "bad.md:" in found["knowledge files"]["said"]
    assert found["capture"]["state"] == "error" and found["capture"]["next_step"] == "nugget capture --retry"
    assert "the disk was full" in found["capture"]["said"]
    assert nugget("doctor").code == 1
    full = shutil.disk_usage(words)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: full)
    assert findings(words)["folders"]["said"] == f"the disk of {words} is full"
    shutil.rmtree(words / ".nugget")
    for place in (words / ".nugget", isolated_home / ".nugget/indexes"):
        place.write_text("in the way")
    found = findings(words)["index"]
    assert found["next_step"] == f"make {words} writable" and "indexes cannot be made" in found["said"]


@pytest.mark.proves("HEALTH-NEXT")
def test_a_machine_without_a_brain_that_sends_its_sessions_shows_their_queue(nugget, isolated_home, monkeypatch):
    files.queue_job(isolated_home / ".nugget", {"session": "s1"})
    assert "There is no brain yet" in nugget("status").err
    monkeypatch.setenv("NUGGET_CAPTURE_SERVER", server := "https://nugget.example/s/acme")
    seen, shown = nugget("status", "--json").json, nugget("status")
    assert (seen["server"], seen["sent"], seen["capture"]["queue"]["pending"]) == (server, 0, 1)
    assert shown.code == 0 and "1 pending" in shown.out and "Next: nugget capture" in shown.out
    (isolated_home / ".nugget/config.yaml").write_text("brain: /moved\n")
    assert nugget("status").err.startswith("Error: /moved does not exist.")


@pytest.mark.proves("HEALTH-KEY", "CLI-ERRORS")
def test_a_key_is_told_to_be_there_and_never_shown(words, nugget, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "very-secret-key")
    monkeypatch.setenv("NUGGET_LLM_API", "openai")
    results = [nugget(*command) for command in (["status"], ["status", "--json"], ["doctor"], ["doctor", "--json"])]
    assert not any(result.code for result in results) and "very-secret-key" not in str(results)
    assert all(said in str(results) for said in ("ANTHROPIC_API_KEY is set", '"has_key": true', "finds knowledge"))
    monkeypatch.setenv("NUGGET_HOME", "/dev/null/x")
    assert "index.db cannot be made (File exists)." in nugget("logs", "context", "x").err


@pytest.mark.proves("HEALTH-SOURCES")
def test_what_waits_in_any_source_is_said_by_status_and_doctor(words, nugget, tmp_path, monkeypatch):
    (canon := tmp_path / "handbook").mkdir()
    for number in range(3):
        (canon / f"{number}.md").write_text(f"# Page {number}\n\nThe walrus sleeps.\n")
    monkeypatch.setenv("NUGGET_CANON_FOLDERS", str(canon))
    with Brain(words) as opened:
        opened.sync()
        row = next(row for row in status_of(words)["sources"] if row["name"] == "canon handbook")
        assert (row["files"], row["passages"], row["pending"]) == (0, 0, 3) and row["since"]
        assert findings(words)["canon handbook"]["said"] == "the next question indexes 3 files"
        shown = nugget("status").out
        assert "canon handbook: 0 files, 0 passages, the next question indexes 3 files, the oldest from " in shown
        opened.sync_local_sources()
    row = next(row for row in status_of(words)["sources"] if row["name"] == "canon handbook")
    assert (row["files"], row["passages"], row["pending"], row["since"]) == (3, 3, 0, None)
    assert findings(words)["canon handbook"]["state"] == "ok"


QUESTION = "idempotency keys for retries"


@pytest.mark.proves("REPAIR")
def test_leftovers_and_stale_locks_go_and_each_is_told(words, home, nugget):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        dead = process.pid
    (home / "ledger").mkdir(parents=True)
    left = [home / f"ledger/.brains.jsonl.{dead}.0123abcd.partial", words / ".git/index.lock"]
    kept = [home / f"ledger/.x.jsonl.{os.getpid()}.0123abcd.partial", words / "domains/.hidden.md"]
    for path in (*left, *kept):
        path.write_text("x")
    for path in left:
        os.utime(path, (time.time() - 7200,) * 2)
    told = nugget("--brain", words, "doctor", "--repair")
    assert not any(path.exists() for path in left) and all(path.exists() for path in kept)
    assert f"left by process {dead}, which is gone" in told.out and told.out.count("the git that made it") == 1
    again = json.loads(nugget("--brain", words, "doctor", "--repair", "--json").out)
    assert again["repaired"] == ["There was nothing to repair."]


@pytest.mark.proves("INDEX-DAMAGE")
def test_a_damaged_index_is_healed_by_a_question_or_named_and_repaired(words, home):
    """Bytes and whole pages are overwritten at places that a seed chooses."""
    with Brain(words) as opened:
        opened.sync()
        right = [hit.ref for hit in opened.ask(QUESTION).hits]
    file = words / ".nugget/index.db"
    content, chance, healed, named = file.read_bytes(), random.Random(7), 0, 0

    def lay(content: bytes) -> None:
        for extra in ("-wal", "-shm"):
            file.with_name(file.name + extra).unlink(missing_ok=True)
        file.write_bytes(content)

    for number in range(16):
        damaged = bytearray(content)
        size = (1, 64, 4096, 20_000)[number % 4]
        for _ in range(8 if size == 1 else 1):
            place = chance.randrange(0, len(damaged) - size)
            damaged[place : place + size] = b"\xff" * size if number % 8 < 4 else chance.randbytes(size)
        lay(damaged)
        is_damaged = find_damage(file) is not None
        lay(damaged)
        with Brain(words) as opened:
            opened.ask(QUESTION)
        if is_damaged and find_damage(file) is None:
            healed += 1
        elif is_damaged:
            named += 1
            assert any("index.db, which was damaged" in line for line in repair(words, home))
        with Brain(words) as opened:
            assert not is_damaged or [hit.ref for hit in opened.ask(QUESTION).hits] == right
        assert find_damage(file) is None
    assert healed > 1 and named > 0


GIT = shutil.which("git")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A brain of linked units, and work of the user's under way."""
    return linked_brain(tmp_path / "own")


def move(brain: Path) -> object:
    return move_unit(brain, "concept/keys", slug="idempotency-keys", domain="payments")


def killed(brain: Path, change: Callable[[Path], object], script: str) -> bool:
    """Make a change in a process of its own, in which this stands for git and kills it; whether it got that far."""
    wrapper = program(brain.with_name("bin") / "git", f'{script}\n{GIT} "$@"')
    process = os.fork()
    if process == 0:
        os.environ["PATH"] = f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}"
        with suppress(BaseException):
            change(brain)
        os._exit(0)
    return os.waitpid(process, 0)[1] == signal.SIGKILL


@pytest.fixture
def half_moved(own: Path) -> Path:
    """The brain after a move of a unit that was killed when the branch had moved and no file had followed."""
    head = git.head(own)
    assert killed(own, move, f'case "$*" in *update-ref*) {GIT} "$@"; kill -9 $PPID; exit 1;; esac')
    assert git.head(own) != head
    return own


@pytest.mark.proves("WRITE-WHOLE")
def test_what_the_user_did_between_the_kill_and_the_next_command_stays(half_moved):
    retry = half_moved / "domains/coding/patterns/retry.md"
    retry.write_text(retry.read_text() + "\nMine.\n")
    git.finish_pending(half_moved)
    assert retry.read_text().endswith("\nMine.\n")
    assert (half_moved / "domains/payments/concepts/idempotency-keys.md").exists()
    assert shell(half_moved, "status", "--porcelain", "--", "domains") == " M domains/coding/patterns/retry.md\n"


@pytest.mark.proves("WRITE-WHOLE")
def test_a_commit_by_hand_cannot_undo_what_was_killed_half_way(half_moved):
    command = ["git", "-C", str(half_moved), "commit", "-qam", "By hand"]
    by_hand = subprocess.run(command, capture_output=True, check=False)
    assert by_hand.returncode != 0 and b"index.lock" in by_hand.stderr
    git.finish_pending(half_moved)
    shell(half_moved, "commit", "-qam", "By hand")
    assert (half_moved / "domains/payments/concepts/idempotency-keys.md").exists()
    assert shell(half_moved, "status", "--porcelain") == ""


@pytest.mark.proves("RED-SCRUB")
def test_a_secret_that_slipped_through_is_found_and_taken_out(tmp_path):
    home, brain = tmp_path / "home", tmp_path / "brain"
    secret, other = "DB_PASSWORD=Winter2026!x", "correct horse is mine"
    for folder in (home / "archive", home / "brain/.git", brain / "domains/cache"):
        folder.mkdir(parents=True)
    (home / "archive/a.jsonl.gz").write_bytes(gzip.compress(f'{{"text": "{secret}"}}\n{other}\n'.encode()))
    (home / "plain.jsonl").write_text(plain := '{"a": "Key: REDACTED", "b": "data\\nCheckpoint \'different12345\'"}\n')
    with closing(sqlite3.connect(home / "index.db")) as connection, connection:
        connection.execute("CREATE TABLE a (text)")
        connection.executemany("INSERT INTO a VALUES (?)", [(secret,), ("Here is the secret:",), ("52ae3f06-1",)])
    for name in ("http-header", "brain/.git/config"):
        (home / name).write_text("Authorization: Bearer hMw8Ar7CCEKm0b8s31AVab-5GbbNiusoLiyxaBHXAyw\n")
    git.init(brain)
    (brain / "domains/cache/a.md").write_text(f"{secret}\n")
    commit(brain, ["domains/cache/a.md"], "Add")
    leaks = [*find_leaks(home, brain)]
    assert [leak["store"] for leak in leaks] == ["home", "home", "brain", "history"]
    assert {leak["kind"] for leak in leaks} == {"password"} and "Winter2026" not in repr(leaks)
    with files.locked(home / "queue/worker.lock"), pytest.raises(NuggetError, match="A worker captures"):
        scrub(home, brain, [other])
    (brain / f"use-{other.replace(' ', '-')}").mkdir()
    (brain / f"use-{other.replace(' ', '-')}/b.md").write_text(other)
    done = scrub(home, brain, [other])
    assert [Path(file).name for file in (*done["rewritten"], *done["removed"])] == ["a.jsonl.gz", "a.md", "index.db"]
    text = gzip.decompress((home / "archive/a.jsonl.gz").read_bytes()).decode()
    assert text == '{"text": "DB_PASSWORD=[redacted:password]"}\n[redacted:scrubbed]\n'
    assert (home / "plain.jsonl").read_text() == plain and "is in its name; rename it" in done["failed"][0]
    assert [leak["store"] for leak in find_leaks(home, brain)] == ["history"]


@pytest.mark.proves("RED-SCRUB")
def test_the_commands_name_places_and_rules_but_no_secret(isolated_home, words, nugget, tmp_path):
    file = tmp_path / "f.txt"
    file.write_text("one\nDB_PASSWORD=Winter2026!x\n")
    shown = nugget("redact", file, "--stats")
    assert (shown.code, f"{file.name}:2: password (name.password)" in shown.out.replace("\n", "")) == (0, True)
    assert nugget("redact", file, "--json").json["found"] == [{"line": 2, "kind": "password", "rule": "name.password"}]
    ledger = isolated_home / ".nugget/ledger/notes.jsonl"
    ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger.write_text("password: Winter2026!x\n")
    brains = ledger.with_name("brains.jsonl")
    brains.write_text(known := '{"key": "8579722971e74f58b70530a230e463ff", "path": "/b"}\n')
    assert nugget("doctor", "--secrets", "--brain", words).code == 1
    file.write_text("Winter2026!x\n")
    assert nugget("scrub", "--secrets", file, "--brain", words).code == 0
    assert "Winter2026" not in ledger.read_text() and brains.read_text() == known
    assert nugget("doctor", "--secrets", "--json").json == {"ok": True, "leaks": []}
