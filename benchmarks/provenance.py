"""Measure the extraction of provenance against its limits, and check that only touched files are hashed.

Heuristic extraction is everything from the transcript's bytes to the nuggets: reading, file touches, redaction and
the heuristics; at least 20 MB of transcript a second of processor time. Looking for changes by hand hashes the files
that sessions touched and no others, however many the repository has.

Run: python benchmarks/provenance.py
"""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from nugget.config import Settings
from nugget.extraction import tuning
from nugget.extraction.file_changes import file_touches
from nugget.extraction.places import Places
from nugget.extraction.reasons import heuristic_nuggets, readable
from nugget.infra.workspace import find_workspace
from nugget.models.nuggets import FileTouch, SessionRecord, TouchAction
from nugget.redaction import redact_session
from nugget.sources.claude_code import read_session
from nugget.text import content_hash

TRANSCRIPTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
LEAST_MB_PER_S = 20.0
ROUNDS = 3
FILES, TOUCHED = 3000, 30


def extract(files: list[Path]) -> dict[str, float]:
    """Return the processor seconds of each part of extraction over these transcripts."""
    for cached in gc.get_objects():  # forget the texts of the round before
        if isinstance(cached, functools._lru_cache_wrapper) and cached.cache_parameters()["maxsize"]:
            cached.cache_clear()
    spent = dict.fromkeys(("read", "touches", "heuristics"), 0.0)
    for file in files:
        times = [time.process_time()]
        session = read_session(file)
        times.append(time.process_time())
        places = Places(session=session, roots=[find_workspace(Path(session.cwd or "/gone"))])
        touched = file_touches(session, places)
        times.append(time.process_time())
        redacted, _ = redact_session(readable(session), settings=Settings())
        heuristic_nuggets(redacted, touched, places, now=NOW)
        times.append(time.process_time())
        for name, started, ended in zip(spent, times, times[1:], strict=False):
            spent[name] += ended - started
    return spent


def hashed_files() -> int:
    """Return how many files of a repository of FILES are read when TOUCHED of them were touched."""
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder)
        subprocess.run(["git", "-C", folder, "init", "-q"], check=True)
        for number in range(FILES):
            (repo / f"file{number}.py").write_text(f"value = {number}\n", "utf-8")
        touches = tuple(
            FileTouch(
                path=f"file{number}.py", action=TouchAction.MODIFIED, after_hash=content_hash(f"value = {number}\n")
            )
            for number in range(TOUCHED)
        )
        workspace = find_workspace(repo)
        assert workspace is not None
        opened: list[str] = []

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            if event == "open" and isinstance(arguments[0], (str, Path)) and str(arguments[0]).startswith(folder):
                opened.append(str(arguments[0]))

        sys.addaudithook(watch)
        record = SessionRecord(session="s", workspace=workspace.identity, touches=touches, started=NOW, ended=NOW)
        tuning.find_tunings([record], workspace, now=NOW)
        return len(set(opened))


def main() -> None:
    """Print the table."""
    files = sorted((TRANSCRIPTS / "claude-code").glob("*.jsonl"))
    files += [
        file for file in sorted((TRANSCRIPTS / "episodic-memory").glob("*.jsonl")) if file.stat().st_size > 10_000
    ]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    rounds = [extract(files) for _ in range(ROUNDS)]
    best = min(rounds, key=lambda one: sum(one.values()))
    speed = megabytes / sum(best.values())
    print(f"{len(files)} transcripts, {megabytes:.1f} MB")
    for name, seconds in best.items():
        print(f"  {name:<12} {seconds * 1000:7.0f} ms  {seconds / sum(best.values()):4.0%}")
    print(f"heuristic extraction  {speed:6.1f} MB/s  limit >= {LEAST_MB_PER_S:g}  ratio {LEAST_MB_PER_S / speed:.2f}")
    hashed = hashed_files()
    print(f"files hashed          {hashed:6d} of {FILES}  limit <= {TOUCHED}  ratio {hashed / TOUCHED:.2f}")
    raise SystemExit(0 if speed >= LEAST_MB_PER_S and hashed <= TOUCHED else 1)


if __name__ == "__main__":
    main()
