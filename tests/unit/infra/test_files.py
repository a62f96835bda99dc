"""What Nugget keeps is its owner's alone, whatever the umask is."""

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sessions import write_transcript

from nugget.cli import run
from nugget.index.embedded.connection import connect, open_home
from nugget.infra import files


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=lambda mask: f"umask-{mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The test runs with this umask."""
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """What is neither 0700 (folders) nor 0600 (everything else) in and under a folder, with its mode."""
    found = {}
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found[path.relative_to(root).as_posix()] = f"{mode:03o}"
    return found


@pytest.mark.proves("FILES-PRIVATE")
def test_every_way_of_making_a_file_is_private_under_any_umask(tmp_path, umask):
    home = tmp_path / "a" / "home"
    files.replace(home / "one" / "whole", b"text")
    with files.open_private(home / "log" / "lines.log", "a") as log:
        log.write("line\n")
    with files.locked(home / "locks" / "one.lock"):
        assert files.try_lock(home / "locks" / "one.lock") is None
    files.append_line(home / "ledger" / "captures.jsonl", {"event": "planned"})
    files.queue_job(home, {"session": "s"})
    with closing(open_home(home)) as database:
        database.execute("CREATE TABLE kept (x)")
        assert (home / "index.db-wal").is_file() and modes(tmp_path / "a") == {}
    with closing(connect(home / "other.db")) as database:
        database.execute("PRAGMA journal_mode = PERSIST")
        database.execute("CREATE TABLE kept (x)")
        assert (home / "other.db-journal").is_file()


@pytest.mark.proves("FILES-PRIVATE")
def test_a_tour_of_the_commands_leaves_nothing_that_others_can_read(isolated_home, tmp_path, nugget, monkeypatch):
    monkeypatch.setenv("NUGGET_HISTORY_ENABLED", "true")
    brain, home, transcript = tmp_path / "brain", isolated_home / ".nugget", tmp_path / "t.jsonl"
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Retry\n\nAlways retry with an idempotency key.\n")
    write_transcript(transcript, [("We decided to always use uv, never pip.", "Noted: uv it is from now on.")])
    before = os.umask(0)
    try:
        payload = {"hook_event_name": "SessionEnd", "session_id": "s", "transcript_path": str(transcript)}
        hook = [sys.executable, "-m", "nugget", "capture-session"]
        lock = files.try_lock(home / "queue" / "worker.lock")
        subprocess.run(hook, input=json.dumps(payload).encode(), check=True)
        os.close(lock or 0)
        assert run(["init", str(brain), "--no-install"]) == 0
        monkeypatch.setenv("NUGGET_BRAIN", str(brain))
        for line in (
            ["add", "Use uv, not pip", "--type", "decision"],
            ["capture-session", "--transcript", str(transcript), "--with", "offline"], ["capture"],
            ["import", str(tmp_path / "notes")], ["sync"], ["ask", "which package installer?", "--no-llm"],
            ["search", "uv"], ["install"], ["extract", "--all"], ["logs", "ingest", "--all"],
        ):  # fmt: skip
            assert nugget(*line).code in (0, 1), line
        assert (home / "archive").is_dir() and (brain / ".nugget" / "embeddings").is_dir()
        assert modes(home) == {} and modes(brain / ".nugget") == {}
    finally:
        os.umask(before)


@pytest.mark.proves("FILES-PRIVATE")
def test_wider_modes_are_mended_and_nothing_foreign_is_touched(tmp_path):
    home, foreign = tmp_path / "home", tmp_path / "foreign"
    foreign.write_text("not ours")
    foreign.chmod(0o644)
    files.replace(home / "run" / "token", b"x")
    (home / "link").symlink_to(foreign)
    (home / "run").chmod(0o755)
    (home / "run" / "token").chmod(0o644)
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(home / "run" / "s"))
        (home / "run" / "s").chmod(0o666)
        named = {str(home / "run"), str(home / "run" / "token"), str(home / "run" / "s")}
        assert {*files.make_private(home)} == named and modes(home / "run") == {}
    assert files.make_private(home) == [] and stat.S_IMODE(foreign.stat().st_mode) == 0o644
