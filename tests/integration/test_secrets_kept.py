"""A hundred secrets of a session that the hook and the worker capture are in no file, however that is packed."""

from __future__ import annotations

import gzip
import json
import lzma
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from commands import Nugget
from knowledge_files import commit
from secret_corpus import Example, secrets
from sessions import write_transcript
from waiting import PATIENCE_S, wait_for
from worker_stage import lay_out, variables

from nugget.app import Brain
from nugget.capture import queue
from nugget.config import read_environment
from nugget.errors import NuggetError
from nugget.infra import files, git
from nugget.upkeep.repair import find_leaks, scrub

PLANTED = 100


def planted() -> list[Example]:
    """Return a hundred secrets of as many kinds, long enough to be told from any other text."""
    kinds = {example.kind: example for example in secrets(seed=11)}
    long = [example for example in kinds.values() if all(len(secret) >= 10 for secret in example.secrets)]
    return [example for example in long if example.context != "prose"][:PLANTED]


def plant(transcript: Path, examples: list[Example]) -> None:
    """Put prompts, answers and outputs of commands with these secrets at the end of a transcript."""
    turns = []
    for example in examples:
        said = f"Always remember the setting because it failed before:\n{example.text}\n"
        turns.append((said, said, ("Bash", {"command": example.text}, said, False)))
    write_transcript(transcript, turns, session=json.loads(transcript.read_text().partition("\n")[0])["sessionId"])


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the bytes of every file: as they are, unpacked, and the rows of databases with their logs."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_socket()):
        content = file.read_bytes()
        yield file, content
        if content[:2] == b"\x1f\x8b":
            yield file, gzip.decompress(content)
        elif content[:6] == b"\xfd7zXZ\0":
            yield file, lzma.decompress(content)
        elif content[:4] == b"\x28\xb5\x2f\xfd":
            yield file, subprocess.run(["zstd", "-dc", str(file)], check=True, capture_output=True).stdout
        elif content[:15] == b"SQLite format 3":
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
                for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                    with suppress(sqlite3.OperationalError):
                        yield file, repr(connection.execute(f'SELECT * FROM "{table}"').fetchall()).encode()
        if file.name == "HEAD" and git.is_repository(file.parents[1]):
            yield file, git.run(file.parents[1], "cat-file", "--batch-all-objects", "--batch")


@pytest.mark.proves("RED-KEPT")
def test_of_a_hundred_secrets_none_is_in_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    home, brain = tmp_path / ".nugget", tmp_path / "brain"
    for file in (home / "queue/pending").iterdir():
        file.unlink()
    examples = planted()
    assert len(examples) == PLANTED
    transcript = next((tmp_path / ".claude/projects").glob("*/*.jsonl"))
    plant(transcript, examples)
    payload = {"session_id": "s", "transcript_path": str(transcript), "hook_event_name": "SessionEnd"}
    command = [sys.executable, "-P", "-m", "nugget", "capture-session"]
    environment = variables(tmp_path, NUGGET_BRAIN=str(brain))
    subprocess.run(command, input=json.dumps(payload), env=environment, text=True, check=True, timeout=PATIENCE_S)
    wait_for(lambda: queue.jobs(home, "done") or queue.jobs(home, "failed"))
    assert queue.jobs(home, "failed") == []
    wait_for(lambda: not queue.is_working(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    with Brain(brain, environment=read_environment()) as opened:
        opened.sync()
        opened.sync_local_sources()
    for file, content in (*contents(home), *contents(brain)):
        for example in examples:
            assert not any(secret.encode() in content for secret in example.secrets), (file, example.kind)
    archived = b"".join(gzip.decompress(file.read_bytes()) for file in home.glob("archive/*.gz"))
    assert archived.count(b"[redacted:") >= PLANTED


@pytest.mark.proves("RED-SCRUB")
def test_a_secret_that_slipped_through_is_found_and_taken_out(tmp_path: Path) -> None:
    home, brain = tmp_path / "home", tmp_path / "brain"
    secret, other = "DB_PASSWORD=Winter2026!x", "correct horse is mine"
    (home / "archive").mkdir(parents=True)
    (home / "archive/a.jsonl.gz").write_bytes(gzip.compress(f'{{"text": "{secret}"}}\n{other}\n'.encode()))
    (home / "plain.jsonl").write_text("nothing here\n")
    with closing(sqlite3.connect(home / "index.db")) as connection:
        connection.execute("CREATE TABLE a (text)")
        connection.execute("INSERT INTO a VALUES (?)", (secret,))
        connection.commit()
    brain.mkdir()
    git.init(brain)
    (brain / "a.md").write_text(f"{secret}\n")
    commit(brain, ["a.md"], "Add")
    leaks = [*find_leaks(home, brain)]
    assert [leak["store"] for leak in leaks] == ["home", "home", "brain", "history"]
    assert {leak["kind"] for leak in leaks} == {"password"}
    assert "Winter2026" not in repr(leaks)
    files.private_folder(home / "queue")
    with files.locked(home / "queue/worker.lock"), pytest.raises(NuggetError, match="A worker captures"):
        scrub(home, brain, [other])
    done = scrub(home, brain, [other])
    assert [Path(file).name for file in (*done["rewritten"], *done["removed"])] == ["a.jsonl.gz", "a.md", "index.db"]
    text = gzip.decompress((home / "archive/a.jsonl.gz").read_bytes()).decode()
    assert text == '{"text": "DB_PASSWORD=[redacted:password]"}\n[redacted:scrubbed]\n'
    assert (home / "plain.jsonl").read_text() == "nothing here\n"
    assert [leak["store"] for leak in find_leaks(home, brain)] == ["history"]


@pytest.mark.proves("RED-SCRUB")
def test_the_commands_name_places_and_rules_but_no_secret(
    isolated_home: Path, words: Path, nugget: Nugget, tmp_path: Path
) -> None:
    file = tmp_path / "f.txt"
    file.write_text("one\nDB_PASSWORD=Winter2026!x\n")
    shown = nugget("redact", file, "--stats")
    assert (shown.code, f"{file.name}:2: password" in shown.out.replace("\n", "")) == (0, True)
    assert nugget("redact", file, "--json").json["counts"] == {"password": 1}
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
