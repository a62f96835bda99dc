"""Reading Claude Code transcripts: whatever they hold, what was run and edited, subagents, envelopes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from transcript_records import SESSION, call, read, record, result, texts, write

from nugget.errors import TranscriptError
from nugget.models import Event, EventKind, Session
from nugget.sources.claude_code import read_session
from nugget.sources.sessions import read_any


@pytest.mark.proves("SES-READ-ALL")
def test_every_file_at_hand_is_read_or_refused_in_one_sentence(shared_data: Path) -> None:
    files = [file for file in sorted((shared_data / "transcripts").rglob("*")) if file.is_file()]
    with_events = 0
    for file in files:
        try:
            session = read_session(file)
        except TranscriptError as error:
            assert "\n" not in str(error)
            assert str(file) in str(error)
            of_claude = file.suffix == ".jsonl" and file.parent.name.startswith(("claude-code", "episodic"))
            assert not of_claude, f"a real transcript was refused: {error}"
            continue
        with_events += bool(session.events)
        assert session.records >= session.skipped_records
        for event in session.events:
            event.text.encode("utf-8")
    assert with_events >= 60


@pytest.mark.proves("SES-TORN")
def test_lines_that_are_no_records_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record("user", "fix the login", uuid="a"),
        "42",
        '"text"',
        "[1, 2]",
        "null",
        "{}",
        '{"type": 7}',
        '{"type": "user"}',
        "[" * 100_000,
        '{"type":"assistant","message":{"content":[{"type":"text","te',
        record("assistant", [{"type": "text", "text": "done"}], uuid="b"),
        '{"type":"user","message":{"content":"torn la',
    )
    assert texts(session, EventKind.PROMPT) == ["fix the login"]
    assert texts(session, EventKind.REPLY) == ["done"]
    assert session.records == 12
    assert session.skipped_records == 10


@pytest.mark.proves("SES-TORN")
def test_bytes_that_are_no_utf8_and_lone_surrogates_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    good = json.dumps(record("user", "ok \ud83d and \x00 end", uuid="a"))
    raw = json.dumps(record("user", "raw half", uuid="b")).encode().replace(b"half", b"\xed\xa0\x80")
    path.write_bytes(b"\xff\xfe\x00garbage\n" + good.encode() + b'\n{"type":"user","message":"\xff"}\n' + raw)
    session = read_session(path)
    prompt, other = texts(session, EventKind.PROMPT)
    other.encode("utf-8")
    assert prompt.startswith("ok ")
    assert "\x00" not in prompt
    prompt.encode("utf-8")
    assert session.skipped_records == 2


def outputs(session: Session) -> list[Event]:
    return [event for event in session.events if event.kind is EventKind.OUTPUT]


@pytest.mark.proves("SES-COMMANDS")
def test_commands_carry_exit_code_and_output(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        call("c1", "Bash", command="make"),
        result("c1", "Exit code 2\nno rule to make target", error=True, details="Error: Exit code 2\nno rule"),
        call("c2", "Bash", command="make all"),
        result("c2", "ok", details={"stdout": "ok", "stderr": "", "interrupted": False}),
        call("c3", "Bash", command="serve &"),
        result("c3", "Command running in background", details={"backgroundTaskId": "b1"}),
        call("c4", "Bash", command="old client"),
        result("c4", "fatal: not a repository", error=True),
    )
    assert texts(session, EventKind.COMMAND) == ["make", "make all", "serve &", "old client"]
    assert [(event.call_id, event.exit_code, event.ok, event.text) for event in outputs(session)] == [
        ("c1", 2, False, "no rule to make target"),
        ("c2", 0, True, "ok"),
        ("c3", None, None, "Command running in background"),
        ("c4", None, False, "fatal: not a repository"),
    ]


@pytest.mark.proves("SES-COMMANDS")
def test_edits_carry_what_was_there_before_and_after(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        call("e1", "Edit", file_path="/w/a.py", old_string="x = 1", new_string="x = 2"),
        result("e1", "The file was updated"),
        call(
            "e2",
            "MultiEdit",
            file_path="/w/b.py",
            edits=[{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}],
        ),
        result("e2", "2 edits"),
        call("e3", "Write", file_path="/w/c.py", content="new"),
        result("e3", "written", details={"type": "update", "originalFile": "old"}),
        call("e4", "Edit", file_path="/w/d.py", old_string="gone", new_string="y"),
        result("e4", "<tool_use_error>String to replace not found in file.</tool_use_error>", error=True),
    )
    edits = [event for event in session.events if event.kind is EventKind.FILE_EDIT]
    assert [(event.path, event.before, event.after, event.ok) for event in edits] == [
        ("/w/a.py", "x = 1", "x = 2", True),
        ("/w/b.py", "a", "b", True),
        ("/w/b.py", "c", "d", True),
        ("/w/c.py", "old", "new", True),
        ("/w/d.py", "gone", "y", False),
    ]


@pytest.mark.proves("SES-SUBAGENTS")
def test_a_subagents_events_stand_behind_the_call_that_started_it(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "claude-code-2.1.329" / "subagent"
    (file,) = folder.glob("*.jsonl")
    session = read_session(file)
    agents = [event.agent_id for event in session.events]
    assert "a3bee99966853aa97" in agents
    first = agents.index("a3bee99966853aa97")
    assert session.events[first - 1].tool in ("Agent", "Task")
    assert agents[-1] is None, "the main agent has the last word"


@pytest.mark.proves("SES-COMPACTION")
def test_a_compaction_summary_is_no_prompt(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "claude-code-2.1.329" / "compact"
    (file,) = folder.glob("*.jsonl")
    session = read_session(file)
    assert texts(session, EventKind.PROMPT) == ["first question", "second question", "third question"]
    assert len(texts(session, EventKind.SUMMARY)) == 1


@pytest.mark.proves("SES-TITLE")
def test_a_summary_names_the_session_only_if_it_belongs_to_it(tmp_path: Path) -> None:
    foreign = {"type": "summary", "summary": "Another session", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "Fixing the login", "leafUuid": "u1"}
    prompt = record("user", "fix", uuid="u1")
    assert read(tmp_path, foreign, prompt).title is None
    assert read(tmp_path, foreign, own, prompt).title == "Fixing the login"
    named = {"type": "custom-title", "customTitle": "Login", "sessionId": SESSION}
    assert read(tmp_path, own, named, prompt).title == "Login"


@pytest.mark.proves("SES-READ-ALL")
def test_a_missing_or_foreign_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="There is no transcript at"):
        read_session(tmp_path / "gone.jsonl")
    foreign = write(tmp_path / "codex.jsonl", {"type": "session_meta", "payload": {}}, {"type": "turn_context"})
    with pytest.raises(TranscriptError, match="is not a transcript"):
        read_session(foreign)
    with pytest.raises(TranscriptError, match="cannot be read"):
        read_session(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(TranscriptError, match="is not a file but a pipe"):
        read_any(tmp_path / "pipe.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert read_session(empty).events == ()
