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
from secret_corpus import Example, secrets
from sessions import write_transcript
from waiting import PATIENCE_S, wait_for
from worker_stage import lay_out, variables

from nugget.app import Brain
from nugget.capture import queue
from nugget.config import read_environment
from nugget.infra import git

PLANTED = 100
SPOKEN = ("prose", "English", "German", "French", "Spanish", "Italian", "Portuguese")


def planted() -> list[Example]:
    """Return a hundred secrets of as many kinds from every context, prose and short passwords among them."""
    kinds = {example.kind: example for which in ("", "_eleventh") for example in secrets(seed=11, which=which)}
    usable = [example for example in kinds.values() if all(len(secret) >= 6 for secret in example.secrets)]
    spoken = [example for example in usable if example.context in SPOKEN]
    return [*spoken, *(example for example in usable if example not in spoken)][:PLANTED]


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
