"""What other memories export, and the databases that they keep."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

import pytest
from import_stage import bring_in
from paths import TESTS

EXPORTS = TESTS / "exports"
"""Written by the programs themselves: claude-mem 13.25.3, mem0ai 2.2.1, basic-memory 0.24.1."""


LEARNED = {
    ("bug", "Captures were doubled by a retry without an idempotency key", "payments-api"),
    ("decision", "Keys are made of order id and attempt day", "payments-api"),
    ("concept", "Settlement runs as a nightly batch", "payments-api"),
    ("bug", "Webhook signatures are not compared in constant time", "payments-api"),
    ("concept", "Staging gateway hours", "payments-api"),
}


@pytest.mark.proves("IMPORT-REAL")
@pytest.mark.parametrize("form", ["export.json", "observations.json", "claude-mem.db", "folder"])
def test_what_claude_mem_itself_wrote_is_read_in_each_of_its_forms(
    brain: Path, home: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "home" / form
    file.parent.mkdir()
    if form in ("export.json", "observations.json"):
        file.write_bytes((EXPORTS / "claude-mem" / form).read_bytes())
    else:
        database = tmp_path / "home" / ".claude-mem" / "claude-mem.db"
        database.parent.mkdir()
        database.write_bytes(gzip.decompress((EXPORTS / "claude-mem" / "claude-mem.db.gz").read_bytes()))
        file = database.parent if form == "folder" else database
    before = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*")}
    result = bring_in(file, brain, home)
    found = {(change.unit.type, change.unit.title, change.unit.domain) for change in result.changes}
    assert found == LEARNED and result.files == 1
    assert sorted(entry.reason for entry in result.left_out) == ["is marked as sensitive",
                                                                 "only says what was done (feature)"]  # fmt: skip
    bug = next(change.unit for change in result.changes if "doubled" in change.unit.title)
    assert "- The gateway keeps keys for 24 hours" in bug.body and bug.created == date(2026, 5, 2)
    now = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*")}
    assert now == before, "not even a file of SQLite's is left"


@pytest.mark.proves("IMPORT-REAL")
@pytest.mark.parametrize(
    ("form", "beginnings"),
    [
        ("get_all.json", ["Migrations", "Team", "The"]),
        ("history.db", ["Migrations", "Team", "The"]),
        ("history.json", ["The"]),
        ("search.json", ["The"]),
    ],
)
def test_what_mem0_itself_wrote_is_read_in_each_of_its_forms(
    brain: Path, home: Path, form: str, beginnings: list[str]
) -> None:
    result = bring_in(EXPORTS / "mem0" / form, brain, home)
    said = sorted(change.unit.body.removeprefix("#").strip() for change in result.changes)
    assert [text.split()[0] for text in said] == beginnings
    assert "at most five times" in said[-1] and "at most three" not in "".join(said), "what an update replaced is gone"
    assert {entry.reason for entry in result.left_out} <= {"says too little to stand alone"}


@pytest.mark.proves("IMPORT-REAL")
def test_what_basic_memory_itself_wrote_is_read_with_its_types_and_relations(brain: Path, home: Path) -> None:
    result = bring_in(EXPORTS / "basic-memory", brain, home)
    found = {change.unit.title: change.unit for change in result.changes}
    assert {title: (unit.type, unit.domain) for title, unit in found.items()} == {
        "Webhook signatures": ("bug", "general"), "Settlement": ("concept", "general"),
        "Payment retries": ("decision", "payments"),
    }  # fmt: skip
    assert "- implements Payment API" in found["Payment retries"].body
    assert found["Webhook signatures"].tags == ("webhooks", "security")
    assert [entry.path for entry in result.left_out] == ["basic-memory/journal/Morning notes.md"]
