"""Reading log folders: torn lines, escape codes, binary and long output."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from nugget.sources.shell_logs import (
    LogLine,
    clean_line,
    find_shell_session,
    find_shell_sessions,
    read_events,
    read_text,
)

LATER_MS = 4_000_000_000_000


def event(ts_ms: int, kind: str, **given: object) -> str:
    return json.dumps({"ts_ms": ts_ms, "session_id": "s", "kind": kind, "data": given}) + "\n"


def lines_of(file: Path, *, now_ms: int = LATER_MS) -> list[LogLine]:
    return read_text(file, now_ms=now_ms)[0]


@pytest.mark.proves("EVI-SHELL-TORN")
def test_a_torn_last_line_waits_for_its_end(tmp_path):
    log, out = tmp_path / "events.jsonl", tmp_path / "stderr.log"
    log.write_text(event(4, "command.start", cmd="x") + event(5, "command.end", exit=1)[:20])
    events, malformed = read_events(log)
    assert events == [(4, "command.start", {"cmd": "x"})] and malformed == 0
    out.write_text("done\nerror: half a li")
    now_ms = int(out.stat().st_mtime * 1000)
    assert [text for _, text, _ in lines_of(out, now_ms=now_ms)] == ["done"]
    assert [text for _, text, _ in lines_of(out, now_ms=now_ms + 60_000)] == ["done", "error: half a li"]


@pytest.mark.proves("EVI-SHELL-TERMINAL")
@pytest.mark.parametrize(("raw", "shown"), [
    (b"\x1b[1m\x1b[31merror\x1b[0m: no such file\r", "error: no such file"),
    (b"\x1b]0;title\x07make: *** [all] Error 2", "make: *** [all] Error 2"), (b"10%\r50%\r100% done", "100% done"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ""), (b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", ""),
    ("schön – 時間".encode(), "schön – 時間"), (b"x y " * 50_000, "x y " * 250),
])  # fmt: skip
def test_of_a_line_what_a_person_could_read_is_kept(raw, shown):
    assert clean_line(raw) == shown


@pytest.mark.proves("EVI-SHELL-BOUNDED")
def test_of_a_large_log_beginning_end_and_failures_are_kept_and_the_rest_is_found_by_offset(tmp_path):
    out = tmp_path / "output.log"
    dull = b"".join(b"   Compiling crate-%07d v1.0.0 (registry)\n" % n for n in range(8_000))
    mark = b"error[E0308]: mismatched types in crate-42\n"
    middle = len(dull) // 2
    middle = dull.index(b"\n", middle) + 1
    again = b"".join(b"error: attempt %d failed\n" % n for n in range(1000))
    with out.open("wb") as file:
        for _ in range(4):
            file.write(dull)
        file.write(dull[:middle] + mark + again + dull[middle:])
        file.write(b"the very last line\n")
    tracemalloc.start()
    found = lines_of(out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    texts = [text for _, text, _ in found]
    assert out.stat().st_size > 1_600_000
    assert texts[0] == "   Compiling crate-0000000 v1.0.0 (registry)" and texts[-1] == "the very last line"
    assert "error[E0308]: mismatched types in crate-42" in texts
    assert sum(text.startswith("error: attempt") for text in texts) == 3
    assert sum(len(text) for text in texts) < 500_000
    assert peak < 1_600_000, "not the whole file"
    offset, told, _ = next(line for line in found if "E0308" in line[1])
    with out.open("rb") as opened:
        opened.seek(offset)
        assert [opened.readline().decode().strip() for _ in "12"] == [told, "error: attempt 0 failed"]


@pytest.mark.proves("EVI-SHELL-PATHS")
def test_no_session_id_and_no_link_leads_out_of_the_log_folder(tmp_path):
    logs, outside = tmp_path / "logs", tmp_path / "outside"
    for folder in (logs / "good", outside):
        folder.mkdir(parents=True)
        (folder / "stdin.log").write_text("ls\n")
    (logs / "linked").symlink_to(outside)
    (logs / "half").mkdir()
    (logs / "half" / "stderr.log").symlink_to(outside / "stdin.log")
    os.mkfifo(logs / "half" / "stdout.log")
    (logs / "empty").mkdir()
    assert [log[0].id for log in find_shell_sessions(logs)] == ["good"]
    for name in ("../outside", "linked", "..", ".", "", "a/b", "a\0b", "x" * 200, "half"):
        assert find_shell_session(logs, name) is None
    assert read_text(logs / "half" / "stderr.log", now_ms=LATER_MS)[0] == []
    assert read_text(logs / "half" / "stdout.log", now_ms=LATER_MS)[0] == []
    assert list(find_shell_sessions(tmp_path / "absent")) == []
