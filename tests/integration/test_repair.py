"""`nugget doctor --repair`: what was left behind is put right and told; a damaged index is healed or named."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Nugget

from nugget.app import Brain
from nugget.index.connection import find_damage
from nugget.upkeep.repair import repair

QUESTION = "idempotency keys for retries"


def age(*paths: Path, seconds: float) -> None:
    for path in paths:
        os.utime(path, (time.time() - seconds,) * 2)


def gone() -> int:
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.proves("REPAIR")
def test_leftovers_and_stale_locks_go_and_each_is_told(words: Path, home: Path, nugget: Nugget) -> None:
    dead = gone()
    (home / "ledger").mkdir(parents=True)
    left = [home / f"ledger/.brains.jsonl.{dead}.0123abcd.partial", words / ".git/index.lock"]
    kept = [home / f"ledger/.x.jsonl.{os.getpid()}.0123abcd.partial", words / "domains/.hidden.md"]
    for path in (*left, *kept):
        path.write_text("x")
    age(*left, seconds=7200)
    told = nugget("--brain", words, "doctor", "--repair")
    assert not any(path.exists() for path in left) and all(path.exists() for path in kept)
    assert f"left by process {dead}, which is gone" in told.out
    assert told.out.count("the git that made it") == 1
    again = json.loads(nugget("--brain", words, "doctor", "--repair", "--json").out)
    assert again["repaired"] == ["There was nothing to repair."]


@pytest.mark.proves("INDEX-DAMAGE")
def test_a_damaged_index_is_healed_by_a_question_or_named_and_repaired(words: Path, home: Path) -> None:
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
