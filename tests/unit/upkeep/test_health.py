"""Status and doctor: they see what is wrong, name the next command, and change nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from commands import Nugget

from nugget.app import Brain
from nugget.config import load_settings, read_environment
from nugget.infra import files
from nugget.upkeep.doctor import Finding, doctor
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


def snapshot(*folders: Path) -> dict[str, bytes | None]:
    """Every file and folder with its content; SQLite's shared memory is no content."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for folder in folders
        for path in folder.rglob("*")
        if not path.name.endswith(("-shm", "-wal"))
    }


@pytest.mark.proves("HEALTH-READS")
def test_status_and_doctor_write_nothing(words: Path, nugget: Nugget, isolated_home: Path) -> None:
    before = snapshot(words, isolated_home)
    for command in (["status"], ["doctor"], ["status", "--json"], ["doctor", "--json"]):
        assert nugget(*command).code == 0
    assert snapshot(words, isolated_home) == before
    with Brain(words) as opened:
        opened.sync()
    (words / "domains/coding/patterns/new.md").write_text("---\nid: pattern/new\ntype: pattern\n---\n# New\n\nText.\n")
    before = snapshot(words, isolated_home)
    for command in (["status"], ["doctor"]):
        assert nugget(*command).code == 0
    assert snapshot(words, isolated_home) == before


@pytest.mark.proves("HEALTH-NEXT")
def test_each_fault_is_told_with_its_next_step(words: Path, nugget: Nugget, isolated_home: Path) -> None:
    (words / "domains/coding/patterns/bad.md").write_text("---\ntags: [unclosed\n---\n")
    assert nugget("sync").code == 0
    assert "Something is wrong: 1 error." in nugget("status").out
    (words / "brain.yaml").write_text("owner: X\nretrival:\n  limit: 3\n")
    files.queue_job(isolated_home / ".nugget", {"session": "s1"})
    pending = isolated_home / ".nugget/queue/pending"
    failed = isolated_home / ".nugget/queue/failed"
    failed.mkdir()
    (job,) = pending.iterdir()
    (failed / job.name).write_text(json.dumps({"session": "s1", "reason": "the disk was full", "attempts": 12}))
    found = findings(words)
    assert found["knowledge files"]["state"] == "error" and found["knowledge files"]["next_step"] == "nugget lint"
    assert "bad.md:" in found["knowledge files"]["said"]
    assert found["capture"]["state"] == "error" and found["capture"]["next_step"] == "nugget capture --retry"
    assert "the disk was full" in found["capture"]["said"]
    assert nugget("doctor").code == 1


@pytest.mark.proves("HEALTH-KEY")
def test_a_key_is_told_to_be_there_and_never_shown(
    words: Path, nugget: Nugget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "very-secret-key")
    results = [nugget(*command) for command in (["status"], ["status", "--json"], ["doctor"], ["doctor", "--json"])]
    assert not any(result.code for result in results) and "very-secret-key" not in str(results)
    assert "ANTHROPIC_API_KEY is set" in str(results) and '"has_key": true' in str(results)


@pytest.mark.proves("HEALTH-SOURCES")
def test_what_waits_in_any_source_is_said_by_status_and_doctor(
    words: Path, nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canon = tmp_path / "handbook"
    canon.mkdir()
    for number in range(3):
        (canon / f"{number}.md").write_text(f"# Page {number}\n\nThe walrus sleeps.\n")
    monkeypatch.setenv("NUGGET_CANON_FOLDERS", str(canon))
    with Brain(words) as opened:
        opened.sync()
        row = next(row for row in status_of(words)["sources"] if row["name"] == "canon handbook")
        assert (row["files"], row["passages"], row["pending"]) == (0, 0, 3) and row["since"]
        assert findings(words)["canon handbook"]["state"] == "warning"
        shown = nugget("status").out
        assert "canon handbook: 0 files, 0 passages, 3 files not indexed, the oldest since " in shown
        opened.sync_local_sources()
    row = next(row for row in status_of(words)["sources"] if row["name"] == "canon handbook")
    assert (row["files"], row["passages"], row["pending"], row["since"]) == (3, 3, 0, None)
    assert findings(words)["canon handbook"]["state"] == "ok"
