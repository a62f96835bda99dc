"""Reading Claude Code transcripts."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.errors import TranscriptError
from nugget.models import Event, EventKind, Session
from nugget.sources.sessions import read_any
from nugget.sources.transcripts import find_transcripts, read_session

SESSION = "11111111-2222-3333-4444-555555555555"


def record(kind: str, content: Any = None, *, uuid: str = "", parent: str | None = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "cwd": "/work/shop",
        "gitBranch": "main",
        "timestamp": "2026-05-01T10:00:00.000Z",
        "isSidechain": False,
    }
    if content is not None:
        made["message"] = {"role": kind, "content": content}
    return made | more


def call(call_id: str, name: str, /, *, uuid: str = "", **given: Any) -> dict[str, Any]:
    return record("assistant", [{"type": "tool_use", "id": call_id, "name": name, "input": given}], uuid=uuid)


def result(call_id: str, text: str, *, error: bool = False, details: Any = None) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": error}
    return record("user", [block], toolUseResult=details)


def write(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


def read(tmp_path: Path, *lines: Any) -> Session:
    return read_session(write(tmp_path / f"{SESSION}.jsonl", *lines))


def texts(session: Session, kind: EventKind) -> list[str]:
    return [event.text for event in session.events if event.kind is kind]


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


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "content", "message", "input", "id", "name", "edits", "todos", "tool_use_id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.proves("SES-TORN")
@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(["user", "assistant", "attachment", "system", "summary", "ai-title", "progress"]),
    fields=st.dictionaries(
        st.sampled_from(
            [
                "message",
                "uuid",
                "parentUuid",
                "timestamp",
                "sessionId",
                "cwd",
                "gitBranch",
                "attachment",
                "isMeta",
                "origin",
                "toolUseResult",
                "summary",
                "leafUuid",
                "agentId",
                "isSidechain",
                "aiTitle",
                "promptSource",
            ]
        ),
        JUNK,
    ),
    block=st.fixed_dictionaries(
        {"type": st.sampled_from(["tool_use", "tool_result", "text"])},
        optional={
            "name": st.sampled_from(["Bash", "Edit", "MultiEdit", "Write", "TodoWrite", "Task"]),
            "input": JUNK,
            "id": JUNK,
            "tool_use_id": JUNK,
            "content": JUNK,
            "text": JUNK,
            "is_error": JUNK,
        },
    ),
)
def test_no_shape_of_a_record_raises(
    tmp_path_factory: pytest.TempPathFactory, kind: str, fields: dict[str, Any], block: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    shaped = {"type": kind, **fields}
    with_block = {"type": kind, "message": {"content": [block]}, **{k: v for k, v in fields.items() if k != "message"}}
    session = read(folder, record("user", "hello", uuid="a"), shaped, with_block)
    assert session.records == 3


@pytest.mark.proves("SES-HUMAN")
@pytest.mark.parametrize(
    "injected",
    [
        record("user", "Caveat: read this", isMeta=True),
        record("user", "<command-name>/clear</command-name>"),
        record("user", "<command-message>review is running</command-message>"),
        record("user", "<local-command-stdout>ok</local-command-stdout>"),
        record("user", "<local-command-caveat>Caveat: The messages below</local-command-caveat>"),
        record("user", "<task-notification>done</task-notification>", origin={"kind": "task-notification"}),
        record("user", "<system-reminder>be careful</system-reminder>"),
        record("user", [{"type": "text", "text": "[Request interrupted by user for tool use]"}]),
        record("user", '<teammate-message teammate_id="scout">look</teammate-message>'),
        record("user", 'Another Claude session sent a message:\n<teammate-message x="1">look</teammate-message>'),
        record("user", "<cross-session-message from='uds:1'>hi</cross-session-message>", isMeta=True),
        record("user", "from a peer", origin={"kind": "peer", "body": "from a peer"}),
        record("user", "subagent task", isSidechain=True),
        record("user", "typed by a program", promptSource="system"),
        record("assistant", [{"type": "text", "text": "API Error: 529"}], isApiErrorMessage=True),
        {"type": "api-request-blob", "message": {"role": "user", "content": "whole prompt"}, "sessionId": SESSION},
        {
            "type": "attachment",
            "uuid": "q",
            "sessionId": SESSION,
            "attachment": {"type": "queued_command", "prompt": "BRIDGE", "origin": {"kind": "coordinator"}},
        },
        {
            "type": "attachment",
            "uuid": "q",
            "sessionId": SESSION,
            "attachment": {"type": "queued_command", "prompt": "x", "commandMode": "task-notification"},
        },
    ],
)
def test_injected_text_is_no_prompt_and_no_reply(tmp_path: Path, injected: dict[str, Any]) -> None:
    session = read(tmp_path, record("user", "a real one", origin={"kind": "human"}, promptSource="typed"), injected)
    assert texts(session, EventKind.PROMPT) == ["a real one"]
    assert texts(session, EventKind.REPLY) == []


@pytest.mark.proves("SES-HUMAN")
def test_reminders_and_editor_notices_are_cut_out_of_a_prompt(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record(
            "user",
            [
                {"type": "text", "text": "<ide_opened_file>The user opened a.py</ide_opened_file>"},
                {"type": "text", "text": "always use tabs<system-reminder>\nsecret plan\n</system-reminder>"},
                {"type": "image", "source": {"data": "iVBOR"}},
            ],
        ),
        record("user", "<user-memory-input>never push to main</user-memory-input>"),
    )
    assert texts(session, EventKind.PROMPT) == ["always use tabs", "never push to main"]


@pytest.mark.proves("SES-HUMAN")
def test_what_the_person_says_in_a_dialog_is_theirs(tmp_path: Path) -> None:
    refusal = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, "
        "the new_string was NOT written to the file). To tell you how to proceed, the user said:\nuse the v2 API"
    )
    session = read(
        tmp_path,
        call("c1", "Bash", command="rm -rf build"),
        result("c1", refusal, error=True),
        call("c2", "AskUserQuestion", questions=[]),
        result("c2", 'User has answered your questions: "Which?"="The second". You can now continue with these.'),
    )
    assert texts(session, EventKind.PROMPT) == ["use the v2 API", '"Which?"="The second"']
    assert texts(session, EventKind.OUTPUT) == [], "a refused command printed nothing"


@pytest.mark.proves("SES-HUMAN")
def test_a_command_the_person_ran_is_a_command_and_no_prompt(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record("user", "<bash-input>git log -1</bash-input>"),
        record("user", "<bash-stdout>commit abc</bash-stdout><bash-stderr></bash-stderr>"),
    )
    assert [(event.kind, event.text, event.tool) for event in session.events] == [
        (EventKind.COMMAND, "git log -1", "user-shell"),
        (EventKind.OUTPUT, "commit abc", "user-shell"),
    ]


@pytest.mark.proves("SES-QUEUED")
def test_a_queued_prompt_is_read_once(tmp_path: Path) -> None:
    queued = {
        "type": "attachment",
        "uuid": "q1",
        "sessionId": SESSION,
        "timestamp": "2026-05-01T10:01:00Z",
        "attachment": {
            "type": "queued_command",
            "prompt": [{"type": "text", "text": "also update the docs"}],
            "commandMode": "prompt",
        },
    }
    assert texts(read(tmp_path, queued), EventKind.PROMPT) == ["also update the docs"]
    both = read(tmp_path, queued, record("user", "also update the docs", uuid="u2"))
    assert texts(both, EventKind.PROMPT) == ["also update the docs"]


@pytest.mark.proves("SES-QUEUED")
def test_a_record_that_occurs_twice_counts_once(tmp_path: Path) -> None:
    line = record("user", "once", uuid="a")
    progress = {
        "type": "progress",
        "uuid": "p",
        "sessionId": SESSION,
        "data": {
            "type": "agent_progress",
            "message": {"type": "assistant", "message": {"content": [{"type": "text", "text": "again"}]}},
        },
    }
    session = read(tmp_path, line, line, progress)
    assert [event.text for event in session.events] == ["once"]


@pytest.mark.proves("SES-REWIND")
def test_the_branch_that_the_person_left_is_left_out(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record("user", "start", uuid="u1"),
        record("assistant", [{"type": "text", "text": "started"}], uuid="a1", parent="u1"),
        record("user", "use redis", uuid="u2", parent="a1"),
        record("assistant", [{"type": "text", "text": "redis it is"}], uuid="a2", parent="u2"),
        record("user", "more redis", uuid="u3", parent="a2"),
        record("user", "use sqlite", uuid="u4", parent="a1"),
        record("assistant", [{"type": "text", "text": "sqlite it is"}], uuid="a4", parent="u4"),
    )
    assert [event.text for event in session.events] == ["start", "started", "use sqlite", "sqlite it is"]


@pytest.mark.proves("SES-REWIND")
def test_parallel_calls_are_no_dead_branches(tmp_path: Path) -> None:
    lines = [record("user", "go", uuid="u")]
    for name in ("x", "y"):
        lines.append(call(name, "Bash", uuid=f"call-{name}", command=f"echo {name}") | {"parentUuid": "u"})
        lines.append(result(name, name) | {"uuid": f"result-{name}", "parentUuid": f"call-{name}"})
    assert texts(read(tmp_path, *lines), EventKind.OUTPUT) == ["x", "y"]


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
    alone = read_session(file, subagents=False)
    assert {event.agent_id for event in alone.events} == {None}


@pytest.mark.proves("SES-SUBAGENTS")
def test_old_clients_put_the_subagent_beside_the_session(tmp_path: Path) -> None:
    line = record("assistant", [{"type": "text", "text": "found it"}], uuid="s1", isSidechain=True, agentId="abc")
    write(tmp_path / "agent-abc.jsonl", line)
    write(tmp_path / "agent-other.jsonl", line | {"sessionId": "another"})
    session = read(tmp_path, record("user", "look", uuid="u1"))
    assert [(event.text, event.agent_id) for event in session.events] == [("look", None), ("found it", "abc")]


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


def test_the_envelope_becomes_the_session(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record("user", "a", uuid="u1"),
        record("user", "b", uuid="u2", cwd="/elsewhere", gitBranch="topic", timestamp="2026-05-01T12:30:00.000Z"),
    )
    assert (session.id, session.agent, session.cwd, session.branch) == (SESSION, "claude-code", "/work/shop", "topic")
    assert session.started == datetime(2026, 5, 1, 10, 0, tzinfo=UTC)
    assert session.ended == datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


@pytest.mark.proves("SES-READ-ALL")
def test_a_missing_or_foreign_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="There is no transcript at"):
        read_session(tmp_path / "gone.jsonl")
    foreign = write(tmp_path / "codex.jsonl", {"type": "session_meta", "payload": {}}, {"type": "turn_context"})
    with pytest.raises(TranscriptError, match="is no transcript that can be read"):
        read_session(foreign)
    with pytest.raises(TranscriptError, match="cannot be read"):
        read_session(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(TranscriptError, match="is no file but a pipe"):
        read_any(tmp_path / "pipe.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert read_session(empty).events == ()


def test_transcripts_are_found_without_subagents(tmp_path: Path) -> None:
    project = tmp_path / "projects" / "-work-shop"
    mine = write(project / f"{SESSION}.jsonl", record("user", "a"))
    write(project / "agent-1.jsonl", record("user", "b"))
    write(project / SESSION / "subagents" / "agent-2.jsonl", record("user", "c"))
    assert list(find_transcripts(tmp_path)) == [mine]
    assert list(find_transcripts(tmp_path / "absent")) == []
