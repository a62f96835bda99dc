"""Reading log folders: on from the last place, through rotation, torn lines, escape codes, binary and long output."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from nugget.errors import UsageError
from nugget.sources.shell_logs import (
    FilePlace,
    LogEvent,
    LogPart,
    clean_line,
    find_shell_session,
    find_shell_sessions,
    read_events,
    read_text,
    require_session_id,
)

LATER_MS = 4_000_000_000_000


def event(ts_ms: int, kind: str, **given: object) -> str:
    return json.dumps({"ts_ms": ts_ms, "session_id": "s", "kind": kind, "data": given}) + "\n"


def all_events(file: Path, place: FilePlace = FilePlace()) -> tuple[list[LogEvent], int, FilePlace]:  # noqa: B008
    events, malformed = [], 0
    for batch in read_events(file, place):
        events += batch.content
        malformed += batch.malformed
        place = batch.place
    return events, malformed, place


def text_of(file: Path, place: FilePlace = FilePlace(), *, now_ms: int = LATER_MS) -> LogPart:  # noqa: B008
    part = read_text(file, place, now_ms=now_ms)
    assert part is not None
    return part


@pytest.mark.proves("EVI-SHELL-INCREMENTAL")
def test_a_log_is_read_on_from_where_the_last_reading_ended(tmp_path: Path) -> None:
    log, out = tmp_path / "events.jsonl", tmp_path / "stdout.log"
    log.write_text(event(1, "command.start", cmd="make"))
    out.write_text("one\ntwo\n")
    events, _, place = all_events(log)
    part = text_of(out)
    assert [(e.ts_ms, e.kind, e.given) for e in events] == [(1, "command.start", {"cmd": "make"})]
    assert [(line.offset, line.text) for line in part.content] == [(0, "one"), (4, "two")]
    assert all_events(log, place)[0] == [] and read_text(out, part.place, now_ms=LATER_MS) is None
    with log.open("a") as more, out.open("a") as more_out:
        more.write(event(2, "command.end", exit=2))
        more_out.write("three\n")
    assert [e.kind for e in all_events(log, place)[0]] == ["command.end"]
    assert [(line.offset, line.text) for line in text_of(out, part.place).content] == [(8, "three")]


@pytest.mark.proves("EVI-SHELL-ROTATED")
@pytest.mark.parametrize("way", ["moved away", "cut and longer again", "shorter", "same beginning, other rest"])
def test_a_log_that_is_another_one_now_is_read_from_its_beginning(tmp_path: Path, way: str) -> None:
    out = tmp_path / "output.log"
    out.write_text("$ make\n" + "old line\n" * 100)
    place = text_of(out).place
    if way == "moved away":
        out.rename(tmp_path / "output.log.1")
        out.write_text("$ cargo test\n" + "new line\n" * 200)
    elif way == "cut and longer again":
        with out.open("r+") as same:
            same.truncate(0)
            same.write("fresh\n" * 500)
    elif way == "shorter":
        out.write_text("short\n")
    else:
        out.write_text("$ make\n" + "old line\n" * 40 + "another\n" * 200)
    part = text_of(out, place)
    assert part.restarted
    assert part.content[0].offset == 0


@pytest.mark.proves("EVI-SHELL-TORN")
def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    log, out = tmp_path / "events.jsonl", tmp_path / "stderr.log"
    whole = event(5, "command.end", exit=1)
    log.write_text(event(4, "command.start", cmd="x") + whole[:20])
    events, malformed, place = all_events(log)
    assert len(events) == 1 and malformed == 0
    log.write_text(event(4, "command.start", cmd="x") + whole)
    assert [e.kind for e in all_events(log, place)[0]] == ["command.end"]
    out.write_text("done\nerror: half a li")
    now_ms = int(out.stat().st_mtime * 1000)
    assert [line.text for line in text_of(out, now_ms=now_ms).content] == ["done"]
    rested = text_of(out, now_ms=now_ms + 60_000)
    assert [line.text for line in rested.content] == ["done", "error: half a li"]


@pytest.mark.proves("EVI-SHELL-TERMINAL")
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b[1m\x1b[31merror\x1b[0m: no such file\r", "error: no such file"),
        (b"\x1b]0;title\x07make: *** [all] Error 2", "make: *** [all] Error 2"),
        (b"10%\r50%\r100% done", "100% done"),
        (b"abc\b\b\bxyz", "xyz"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ""),
        (b"\xff\xfe\xfa\xfb" * 20, ""),
        (b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", ""),
        ("schön – 時間".encode(), "schön – 時間"),
        (b"x y " * 50_000, "x y " * 250),
    ],
)
def test_of_a_line_what_a_person_could_read_is_kept(raw: bytes, shown: str) -> None:
    assert clean_line(raw) == shown


@pytest.mark.proves("EVI-SHELL-BOUNDED")
def test_of_a_large_log_beginning_end_and_failures_are_kept_and_the_rest_is_found_by_offset(tmp_path: Path) -> None:
    out = tmp_path / "output.log"
    dull = b"".join(b"   Compiling crate-%07d v1.0.0 (registry)\n" % n for n in range(200_000))
    mark = b"error[E0308]: mismatched types in crate-42\n"
    middle = len(dull) // 2
    middle = dull.index(b"\n", middle) + 1
    again = b"".join(b"error: attempt %d failed\n" % n for n in range(5000))
    with out.open("wb") as file:
        for _ in range(4):
            file.write(dull)
        file.write(dull[:middle] + mark + again + dull[middle:])
        file.write(b"the very last line\n")
    tracemalloc.start()
    part = text_of(out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    texts = [line.text for line in part.content]
    assert part.bytes_read == out.stat().st_size > 40_000_000
    assert texts[0] == "   Compiling crate-0000000 v1.0.0 (registry)" and texts[-1] == "the very last line"
    assert "error[E0308]: mismatched types in crate-42" in texts
    assert sum(text.startswith("error: attempt") for text in texts) == 3
    assert sum(len(text) for text in texts) < 500_000
    assert peak < 64_000_000
    found = next(line for line in part.content if "E0308" in line.text)
    with out.open("rb") as opened:
        opened.seek(found.offset)
        assert [opened.readline().decode().strip() for _ in "12"] == [found.text, "error: attempt 0 failed"]


@pytest.mark.proves("EVI-SHELL-PATHS")
def test_no_session_id_and_no_link_leads_out_of_the_log_folder(tmp_path: Path) -> None:
    logs, outside = tmp_path / "logs", tmp_path / "outside"
    for folder in (logs / "good", outside):
        folder.mkdir(parents=True)
        (folder / "stdin.log").write_text("ls\n")
    (logs / "linked").symlink_to(outside)
    (logs / "half").mkdir()
    (logs / "half" / "stderr.log").symlink_to(outside / "stdin.log")
    os.mkfifo(logs / "half" / "stdout.log")
    (logs / "empty").mkdir()
    assert [log.id for log in find_shell_sessions(logs)] == ["good"]
    for name in ("../outside", "linked", "..", ".", "", "a/b", "a\0b", "x" * 200, "half"):
        assert find_shell_session(logs, name) is None
    assert read_text(logs / "half" / "stderr.log", FilePlace(), now_ms=LATER_MS) is None
    assert read_text(logs / "half" / "stdout.log", FilePlace(), now_ms=LATER_MS) is None
    assert list(find_shell_sessions(tmp_path / "absent")) == []
    with pytest.raises(UsageError, match="is not a session id"):
        require_session_id("../../etc")
