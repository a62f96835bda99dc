"""`nugget sessions show`: a whole session, read nicely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Nugget

from nugget.sources.claude_code import read_session
from nugget.sources.sessions import write_archive

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
SESSION = "5e551011-0000-4000-8000-000000000001"


def record(kind: str, content: Any, number: int, **more: Any) -> dict[str, Any]:
    return {
        "type": kind, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None, "sessionId": SESSION,
        "cwd": "/srv/shop", "timestamp": f"2026-05-01T10:{number:02}:00Z", "isSidechain": False,
        "message": {"role": kind, "content": content},
    } | more  # fmt: skip


def call(name: str, number: int, **given: Any) -> dict[str, Any]:
    return record("assistant", [{"type": "tool_use", "id": f"t{number}", "name": name, "input": given}], number)


def result(text: str, number: int, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": f"t{number - 1}", "content": text} | more
    return record("user", [block], number)


@pytest.fixture
def transcript(isolated_home: Path) -> Path:
    records = [
        record("user", f"Why does the suite fail with {SECRET}?", 0),
        record("assistant", [{"type": "text", "text": "Let me run it.\x1b[2J"}], 1),
        call("Bash", 2, command="pytest -q"),
        result("Exit code 1\nline one\nline two\nE   KeyError: 'total'\n1 failed", 3, is_error=True),
        call("Edit", 4, file_path="/srv/shop/sum.py", old_string="a", new_string="b\nc"),
        result("done", 5),
        call("Bash", 6, command="pytest -q"),
        result("12 passed\nin 3 s", 7),
        record("user", "Thanks, that is the lighthouse", 8),
        record("assistant", [{"type": "text", "text": "You are welcome."}], 9),
    ]
    file = isolated_home / ".claude" / "projects" / "-srv-shop" / f"{SESSION}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in records), "utf-8")
    return file


@pytest.mark.proves("HIS-SHOW")
def test_a_session_reads_as_a_conversation_with_what_was_run_folded(transcript: Path, nugget: Nugget) -> None:
    code, out, _ = nugget("sessions", "show", SESSION[:8])
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
    unfolded = nugget("sessions", "show", f"session:{SESSION}#2", "--full").out
    assert "    line one" in unfolded and "    + c" in unfolded and SECRET not in unfolded


@pytest.mark.proves("HIS-SHOW")
def test_a_deleted_session_is_read_from_the_archive(transcript: Path, nugget: Nugget, isolated_home: Path) -> None:
    write_archive(isolated_home / ".nugget", read_session(transcript))
    transcript.unlink()
    code, out, _ = nugget("sessions", "show", SESSION[:8])
    assert code == 0 and "archived:" in out and "that is the lighthouse" in out
    assert SECRET not in out
