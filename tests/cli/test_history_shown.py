"""`nugget sessions show`: a whole session, read nicely."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_events import CLAUDE_ID, call, lines, record, result
from commands import Nugget

from nugget.sources.claude_code import read_session
from nugget.sources.sessions import write_archive

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def transcript(isolated_home: Path) -> Path:
    records = [
        record("user", f"Why does the suite fail with {SECRET}?"),
        record("assistant", [{"type": "text", "text": "Let me run it.\x1b[2J"}]),
        call("1", "Bash", command="pytest -q"),
        result("1", "Exit code 1\nline one\nline two\nE   KeyError: 'total'\n1 failed", error=True),
        call("2", "Edit", file_path="/srv/shop/sum.py", old_string="a", new_string="b\nc"),
        result("2", "done"),
        call("3", "Bash", command="pytest -q"),
        result("3", "12 passed\nin 3 s"),
        record("user", "Thanks, that is the lighthouse"),
        record("assistant", [{"type": "text", "text": "You are welcome."}]),
    ]
    for at, one in enumerate(records):
        one |= {"uuid": f"u{at}", "parentUuid": f"u{at - 1}" if at else None, "timestamp": f"2026-05-01T10:0{at}:00Z"}
    return lines(isolated_home / ".claude" / "projects" / "-srv-shop" / f"{CLAUDE_ID}.jsonl", *records)


@pytest.mark.proves("HIS-SHOW")
def test_a_session_reads_as_a_conversation_with_what_was_run_folded(transcript: Path, nugget: Nugget) -> None:
    code, out, _ = nugget("sessions", "show", CLAUDE_ID[:8])
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines() if line.strip()]
    assert lines[3] == "came to: not captured"
    assert lines[4:] == [
        "─── 1 " + "─" * 54, "You  10:00", "Why does the suite fail with [redacted:github-token]?", "Agent  10:01",
        "Let me run it.", "  $ pytest -q", "    failed with exit code 1", "    line two", "    E KeyError: 'total'",
        "    1 failed", "  * /srv/shop/sum.py (−1 +2 lines)", "  $ pytest -q", "    12 passed … 2 lines",
        "─── 2 " + "─" * 54, "You  10:08", "Thanks, that is the lighthouse", "Agent  10:09", "You are welcome.",
    ]  # fmt: skip
    assert "2 exchanges" in lines[1]
    unfolded = nugget("sessions", "show", f"session:{CLAUDE_ID}#2", "--full").out
    assert "    line one" in unfolded and "    + c" in unfolded and SECRET not in unfolded


@pytest.mark.proves("HIS-SHOW")
def test_a_deleted_session_is_read_from_the_archive(transcript: Path, nugget: Nugget, isolated_home: Path) -> None:
    write_archive(isolated_home / ".nugget", read_session(transcript))
    transcript.unlink()
    code, out, _ = nugget("sessions", "show", CLAUDE_ID[:8])
    assert code == 0 and "archived:" in out and "that is the lighthouse" in out
    assert SECRET not in out
