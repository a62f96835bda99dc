"""What other memories export, and the databases that they keep."""

from __future__ import annotations

import gzip
import json
from datetime import date
from pathlib import Path

import pytest
from import_stage import bring_in
from paths import TESTS

EXPORTS = TESTS / "exports"
"""Written by the programs themselves: claude-mem 13.25.3, mem0ai 2.2.1, basic-memory 0.24.1."""


@pytest.mark.proves("IMPORT-FORMATS")
@pytest.mark.parametrize("form", ["results", "list", "lines"])
def test_memories_of_mem0_become_units_where_they_say_enough(
    brain: Path, home: Path, tmp_path: Path, form: str
) -> None:
    memories = [
        {"id": "1", "memory": "Likes\u2028tea", "user_id": "ann", "metadata": None, "categories": ["food"]},
        {"id": "2", "memory": "The staging database is reset every night, so long imports fail there",
         "metadata": {"category": "gotcha"}, "categories": None, "created_at": "2025-11-02T08:00:00Z"},
        {"id": "3", "memory": "Prefers integration tests with a real database", "categories": ["preferences"]},
    ]  # fmt: skip
    file = tmp_path / ("m.jsonl" if form == "lines" else "m.json")
    texts = {"results": json.dumps({"results": memories}), "list": json.dumps(memories),
             "lines": "\n".join(json.dumps(one, ensure_ascii=False) for one in memories)}  # fmt: skip
    file.write_text(texts[form])
    result = bring_in(file, brain, home)
    assert [(change.unit.type, change.unit.confidence) for change in result.changes] == [("bug", 0.4), ("belief", 0.4)]
    assert "filed under gotcha" in result.changes[0].reason
    assert [entry.reason for entry in result.left_out] == ["says too little to stand alone"]


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
