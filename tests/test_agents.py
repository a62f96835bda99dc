"""Sessions of Codex, Gemini CLI, Cursor and OpenCode: real samples, and what their formats also allow."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nugget import queue
from nugget.config import load_settings, read_environment
from nugget.errors import NuggetError, TranscriptError
from nugget.models import Event, EventKind, Session
from nugget.sources.agents import codex
from nugget.sources.agents.calls import patch_changes, read_call
from nugget.sources.sessions import AGENTS, find_session_by_id, find_sessions, read_any

SAMPLES = "transcripts/other-agents"
CODEX_ID = "019c4b43-1451-7af3-be4c-5576369bf1ba"


def counted(session: Session) -> dict[str, int]:
    return dict(Counter(event.kind.value for event in session.events))


def prompts(session: Session) -> list[str]:
    return [event.text for event in session.events if event.kind is EventKind.PROMPT]


def only(session: Session, kind: EventKind) -> list[Event]:
    return [event for event in session.events if event.kind is kind]


def lines(file: Path, *records: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return file


GOLDEN: dict[str, tuple[str, str, dict[str, int]]] = {
    "git-ai-fixtures/codex-session-simple.jsonl": ("codex", CODEX_ID, {"prompt": 1, "file_edit": 1, "reply": 1}),
    "git-ai-fixtures/codex-session-updated.jsonl": (
        "codex",
        CODEX_ID,
        {"prompt": 1, "file_edit": 1, "command": 1, "reply": 1},
    ),
    "git-ai-fixtures/cursor-session-simple.jsonl": (
        "cursor",
        "cursor-session-simple",
        {"prompt": 1, "reply": 3, "tool_call": 9, "file_edit": 1},
    ),
    "git-ai-fixtures/gemini-session-simple.jsonl": (
        "gemini-cli",
        "gemini-session-simple",
        {"prompt": 1, "reply": 5, "file_edit": 2, "tool_call": 2},
    ),
    "git-ai-fixtures/opencode-storage/message/test-session-123": (
        "opencode",
        "test-session-123",
        {"prompt": 1, "reply": 2, "file_edit": 1},
    ),
    "gemini-cli-entire/12cbfeaa512b.json": (
        "gemini-cli",
        "faff42ab-6ea5-4f78-b8c4-f7dd6272af08",
        {"prompt": 2, "reply": 2, "tool_call": 1, "tool_result": 1, "file_edit": 1},
    ),
    "gemini-cli-entire/513fab7adf0b.json": (
        "gemini-cli",
        "fa4593e0-f7e1-4dd1-b656-da95fb4d60fa",
        {"prompt": 1, "file_edit": 1, "reply": 1},
    ),
    "gemini-cli-entire/9c53780d06b7.json": (
        "gemini-cli",
        "f7633853-6663-4dbb-bbf4-6159afa29df8",
        {"prompt": 1, "reply": 5, "file_edit": 1, "command": 3, "output": 3},
    ),
    "gemini-cli-entire/ab2b9748b105.json": (
        "gemini-cli",
        "f7633853-6663-4dbb-bbf4-6159afa29df8",
        {"prompt": 1, "reply": 10, "file_edit": 1, "command": 6, "output": 6, "tool_call": 2, "tool_result": 2},
    ),
    "gemini-cli-entire/c945f262e88d.json": (
        "gemini-cli",
        "f7633853-6663-4dbb-bbf4-6159afa29df8",
        {"prompt": 1, "reply": 2, "file_edit": 1},
    ),
}


@pytest.mark.proves("AGT-GOLDEN")
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_each_sample_gives_the_events_that_are_in_it(name: str, shared_data: Path) -> None:
    session = read_any(shared_data / SAMPLES / name)
    assert (session.agent, session.id, counted(session)) == GOLDEN[name]
    assert session.skipped_records == 0
    assert len({(event.uuid, event.kind, event.text) for event in session.events}) == len(session.events)


@pytest.mark.proves("AGT-FOREIGN")
def test_every_sample_is_read_or_refused_in_one_sentence(shared_data: Path) -> None:
    refused = []
    for file in sorted(path for path in (shared_data / SAMPLES).rglob("*") if path.is_file()):
        try:
            read_any(file)
        except NuggetError as error:
            refused.append(file.name)
            assert str(file) in str(error) and "\n" not in str(error)
    assert {"droid-session.jsonl", "copilot_cli_session_events.jsonl", "schema.sql"} <= set(refused)
    assert not any("gemini" in name or "codex" in name or "cursor" in name for name in refused)


@pytest.mark.proves("AGT-CONTENT")
def test_the_content_tells_whose_a_transcript_is_and_the_name_does_not(shared_data: Path, tmp_path: Path) -> None:
    for name, (agent, _, events) in GOLDEN.items():
        file = shared_data / SAMPLES / name
        if file.is_file():
            copy = tmp_path / "transcript.txt"
            copy.write_bytes(file.read_bytes())
            session = read_any(copy)
            assert (session.agent, counted(session)) == (agent, events)


def codex_call(name: str, arguments: object, output: object, number: int) -> list[dict[str, Any]]:
    call_id, custom = f"call_{number}", isinstance(arguments, str)
    call = (
        {"type": "custom_tool_call", "input": arguments}
        if custom
        else {
            "type": "function_call",
            "arguments": json.dumps(arguments),
        }
    )
    printed = {"type": f"{call['type']}_output", "call_id": call_id, "output": output}
    return [
        {
            "timestamp": "2026-02-11T05:53:34Z",
            "type": "response_item",
            "payload": {"name": name, "call_id": call_id} | call,
        },
        {"timestamp": "2026-02-11T05:53:35Z", "type": "response_item", "payload": printed},
    ]


def said(text: str, role: str = "user") -> dict[str, Any]:
    part = {"type": "input_text" if role == "user" else "output_text", "text": text}
    payload = {"type": "message", "role": role, "content": [part]}
    return {"timestamp": "2026-02-11T05:53:33Z", "type": "response_item", "payload": payload}


META = {
    "timestamp": "2026-02-11T05:53:33Z",
    "type": "session_meta",
    "payload": {"id": CODEX_ID, "cwd": "/srv/shop", "git": {"branch": "feature/retry"}},
}


@pytest.mark.proves("AGT-COMMANDS")
def test_codex_commands_of_every_client_carry_exit_code_and_output(tmp_path: Path) -> None:
    wrapped = json.dumps({"output": "2 failed\n", "metadata": {"exit_code": 1, "duration_seconds": 0.4}})
    file = lines(
        tmp_path / "rollout.jsonl",
        META,
        *codex_call("shell", {"command": ["bash", "-lc", "pytest -q"], "workdir": "/srv/shop/api"}, wrapped, 1),
        *codex_call("shell_command", {"command": "make"}, "Exit code: 2\nWall time: 1 seconds\nOutput:\nno rule\n", 2),
        *codex_call(
            "exec_command", {"cmd": "ls"}, "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\na.py\n", 3
        ),
        *codex_call("exec_command", {"cmd": "serve"}, "Process running with session ID 7\nOutput:\nup\n", 4),
        *codex_call("shell", {"command": ["git", "commit", "-m", "a b"]}, wrapped, 5),
    )
    session = read_any(file)
    assert [event.text for event in only(session, EventKind.COMMAND)] == [
        "pytest -q",
        "make",
        "ls",
        "serve",
        "git commit -m 'a b'",
    ]
    outputs = only(session, EventKind.OUTPUT)
    assert [(event.exit_code, event.ok, event.text) for event in outputs[:4]] == [
        (1, False, "2 failed\n"),
        (2, False, "no rule\n"),
        (0, True, "a.py\n"),
        (None, None, "up\n"),
    ]
    assert {event.tool for event in outputs} == {"Bash"}
    assert (session.cwd, session.branch) == ("/srv/shop", "feature/retry")
    assert session.folders == ("/srv/shop", "/srv/shop/api")


PATCH = """*** Begin Patch
*** Update File: src/main.rs
@@ fn main
 use std;
-fn main() {}
+fn greet() {}
+fn main() { greet(); }
@@
-old
+new
*** Add File: docs/a.md
+# A
+
+text
*** Delete File: gone.rs
*** Update File: from.rs
*** Move to: to.rs
@@
-a
+b
*** End Patch"""


@pytest.mark.proves("AGT-PATCH")
def test_every_form_of_apply_patch_becomes_its_edits(tmp_path: Path) -> None:
    expected = [
        ("src/main.rs", "use std;\nfn main() {}", "use std;\nfn greet() {}\nfn main() { greet(); }", "Edit"),
        ("src/main.rs", "old", "new", "Edit"),
        ("docs/a.md", None, "# A\n\ntext\n", "Write"),
        ("gone.rs", None, "", "Delete"),
        ("to.rs", "a", "b", "Edit"),
    ]
    assert [(change.path, change.before, change.after, change.tool) for change in patch_changes(PATCH)] == expected
    heredoc = {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"]}
    for number, (name, asked) in enumerate(
        [("apply_patch", PATCH), ("apply_patch", {"patch": PATCH}), ("shell", heredoc)]
    ):
        done = json.dumps({"output": "Success. Updated the following files:", "metadata": {"exit_code": 0}})
        session = read_any(lines(tmp_path / f"{number}.jsonl", META, *codex_call(name, asked, done, 1)))
        edits = only(session, EventKind.FILE_EDIT)
        assert [(edit.path, edit.before, edit.after, edit.tool) for edit in edits] == expected
        assert all(edit.ok for edit in edits)
    refused = codex_call("apply_patch", PATCH, "apply_patch verification failed: no such line", 1)
    session = read_any(lines(tmp_path / "refused.jsonl", META, *refused))
    assert [edit.ok for edit in only(session, EventKind.FILE_EDIT)] == [False] * 5
    assert only(session, EventKind.TOOL_RESULT)[0].text.startswith("apply_patch verification failed")


@pytest.mark.proves("AGT-PATCH")
@given(st.text(alphabet="*+- @\nabEeginPtchUdFl:", max_size=200))
def test_any_text_is_a_patch_that_can_be_read(text: str) -> None:
    for change in patch_changes(f"*** Begin Patch\n{text}"):
        assert isinstance(change.after, str)


@pytest.mark.proves("AGT-INJECTED")
def test_what_codex_weaves_in_is_no_prompt(tmp_path: Path) -> None:
    ran = "<result>\nExit code: 0\nDuration: 1s\nOutput:\nok\n</result>"
    shell = f"<user_shell_command>\n<command>\nmake\n</command>\n{ran}"
    file = lines(
        tmp_path / "a.jsonl",
        META,
        said("# AGENTS.md instructions for /srv/shop\n\n<INSTRUCTIONS>\nbe terse\n</INSTRUCTIONS>"),
        said("<environment_context>\n  <cwd>/srv/shop</cwd>\n</environment_context>"),
        said("<turn_aborted>\nstopped\n</turn_aborted>"),
        said("# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nadd a retry\n"),
        said(shell),
        said("you are an agent", role="developer"),
        {
            "timestamp": "2026-02-11T05:53:36Z",
            "type": "event_msg",
            "payload": {"type": "user_message", "message": "add"},
        },
    )
    session = read_any(file)
    assert prompts(session) == ["add a retry"]
    assert [(event.text, event.tool) for event in only(session, EventKind.COMMAND)] == [("make", "user-shell")]
    assert only(session, EventKind.OUTPUT)[0].text == "ok"


def test_codex_rollouts_without_envelope_and_compressed_ones_are_read(tmp_path: Path) -> None:
    old = [
        {"id": CODEX_ID, "timestamp": "2025-08-01T10:00:00Z", "instructions": None, "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
        {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls", "-l"]}},
    ]
    session = read_any(lines(tmp_path / "old.jsonl", *old))
    assert (session.id, session.branch, prompts(session)) == (CODEX_ID, "main", ["fix it"])
    assert only(session, EventKind.COMMAND)[0].text == "ls -l"
    packed = tmp_path / f"rollout-2026-02-11T05-53-33-{CODEX_ID}.jsonl.zst"
    plain = lines(tmp_path / "new.jsonl", META, said("add a retry"))
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    assert prompts(read_any(packed)) == ["add a retry"]
    packed.write_bytes(packed.read_bytes()[:30])
    assert read_any(packed).events == (), "torn: what can be unpacked counts"
    packed.write_bytes(codex.ZSTD_MAGIC + b"\xff" * 40)
    with pytest.raises(TranscriptError, match="damaged"):
        read_any(packed)


@pytest.mark.proves("AGT-TORN")
@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if name.endswith(".jsonl")))
def test_torn_and_unknown_lines_stop_nothing(name: str, shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / SAMPLES / name).read_bytes().splitlines()
    junk = [b'{"torn": ', b"[1, 2]", b"\xff\xfe\x00", b'"text"']
    file = tmp_path / "torn.jsonl"
    file.write_bytes(b"\n".join([whole[0], *junk, *whole[1:], whole[-1][: len(whole[-1]) // 2]]))
    session = read_any(file)
    expected = GOLDEN[name][2]
    assert session.skipped_records >= len(junk)
    assert counted(session) == expected


@pytest.mark.proves("AGT-TORN")
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "payload",
                        "content",
                        "role",
                        "message",
                        "text",
                        "name",
                        "arguments",
                        "output",
                        "git",
                        "toolCalls",
                        "args",
                        "result",
                        "input",
                        "call_id",
                        "id",
                        "time",
                        "state",
                        "plan",
                        "edits",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_records_of_any_shape_are_read_without_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("shapes")
    codex_line = {
        "type": "response_item",
        "payload": value if isinstance(value, dict) else {"type": "message", "x": value},
    }
    gemini_line = {"type": "gemini", "content": value, "toolCalls": [value]}
    cursor_line = {
        "role": "assistant",
        "message": {"content": [value, {"type": "tool_use", "name": "Write", "input": value}]},
    }
    for number, first in enumerate((META, {"sessionId": "s", "projectHash": "x"}, {"role": "user", "message": {}})):
        for line in (codex_line, gemini_line, cursor_line, value):
            read_any(lines(folder / f"{number}.jsonl", first, line))


@pytest.mark.proves("AGT-COMMANDS")
def test_gemini_commands_and_edits_carry_their_outcome(shared_data: Path) -> None:
    session = read_any(shared_data / SAMPLES / "gemini-cli-entire/ab2b9748b105.json")
    commands, outputs = only(session, EventKind.COMMAND), only(session, EventKind.OUTPUT)
    assert commands[0].text == "ls -l docs/blue.md" and commands[2].text == "rm docs/blue.md"
    assert all((output.exit_code, output.ok) == (0, True) for output in outputs)
    assert outputs[2].text == "" and outputs[1].text.startswith("On branch feat/gemini-cli-agent")
    (edit,) = only(session, EventKind.FILE_EDIT)
    assert (edit.tool, edit.path, edit.ok, edit.before) == ("Write", "docs/blue.md", True, None)
    assert (edit.after or "").startswith("# Blue\n")
    assert session.started is not None and session.started.isoformat().startswith("2026-01-15T20:51:48")
    assert not any("update available" in event.text for event in session.events)


@pytest.mark.proves("AGT-INJECTED")
def test_what_gemini_weaves_in_is_no_prompt_and_its_folder_is_found_by_its_hash(tmp_path: Path) -> None:
    woven_in = "--- Content from referenced files ---\nx = 1\n--- End of content ---"
    failed = "Command: make\nDirectory: (root)\nOutput: (empty)\nError: no rule\nExit Code: 2\nSignal: 0"
    messages = [
        {"type": "user", "content": "System: Please continue."},
        {"type": "user", "content": [{"text": f"explain @a.py\n{woven_in}"}]},
        {
            "type": "gemini",
            "content": "",
            "toolCalls": [
                {
                    "id": "1",
                    "name": "run_shell_command",
                    "args": {"command": "make"},
                    "status": "success",
                    "result": [{"functionResponse": {"response": {"output": failed}}}],
                },
                {"id": "2", "name": "write_todos", "args": {"todos": [{"description": "retry", "status": "pending"}]}},
                {
                    "id": "3",
                    "name": "replace",
                    "status": "error",
                    "args": {"file_path": "/srv/my shop/a.py", "old_string": "x", "new_string": "y"},
                    "result": [],
                },
            ],
        },
    ]
    project = hashlib.sha256(b"/srv/my shop").hexdigest()
    file = tmp_path / "session.json"
    file.write_text(json.dumps({"sessionId": "g1", "projectHash": project, "messages": messages}, indent=1))
    session = read_any(file)
    assert prompts(session) == ["explain @a.py"]
    (output,) = only(session, EventKind.OUTPUT)
    assert (output.exit_code, output.ok, output.text) == (2, False, "no rule")
    (todos,) = only(session, EventKind.TOOL_CALL)
    assert (todos.tool, todos.text) == ("TodoWrite", "[pending] retry")
    assert [edit.ok for edit in only(session, EventKind.FILE_EDIT)] == [False]
    assert session.cwd == "/srv/my shop"


BUBBLES: list[dict[str, Any]] = [
    {
        "bubbleId": "b1",
        "type": 1,
        "text": "<user_query>\nretry the payment\n</user_query>",
        "createdAt": "2026-03-01T10:00:00Z",
    },
    {"bubbleId": "b2", "type": 2, "text": "On it.", "createdAt": "2026-03-01T10:00:05Z"},
    {
        "bubbleId": "b3",
        "type": 2,
        "text": "",
        "toolFormerData": {
            "name": "run_terminal_cmd",
            "toolCallId": "t1",
            "status": "completed",
            "rawArgs": '{"command": "pytest -q"}',
            "result": '{"output": "1 failed", "exitCode": 1}',
        },
    },
    {
        "bubbleId": "b4",
        "type": 2,
        "toolFormerData": {
            "name": "search_replace",
            "toolCallId": "t2",
            "status": "completed",
            "params": '{"file_path": "/srv/shop/pay.py", "old_string": "a", "new_string": "b"}',
            "result": "{}",
        },
    },
    {
        "bubbleId": "b5",
        "type": 2,
        "toolFormerData": {
            "name": "edit_file",
            "toolCallId": "t3",
            "status": "completed",
            "rawArgs": '{"target_file": "/srv/shop/pay.py", "code_edit": "# ... existing code ...\\nz = 1"}',
            "result": '{"diff": {"chunks": [{"diffString": " x\\n-y\\n+z = 1"}]}}',
        },
    },
    {
        "bubbleId": "b6",
        "type": 2,
        "toolFormerData": {
            "name": "edit_file_v2",
            "toolCallId": "t4",
            "status": "completed",
            "params": '{"relativeWorkspacePath": "c.py"}',
            "result": '{"beforeContentId": "composer.content.1", "afterContentId": "composer.content.2"}',
        },
    },
    {
        "bubbleId": "b7",
        "type": 2,
        "toolFormerData": {
            "name": "delete_file",
            "toolCallId": "t5",
            "status": "completed",
            "userDecision": "rejected",
            "params": '{"target_file": "old.py"}',
            "result": "{}",
        },
    },
]


def cursor_database(file: Path, *, wal: bool = False) -> sqlite3.Connection:
    file.parent.mkdir(parents=True)
    connection = sqlite3.connect(file)
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    for table in ("ItemTable", "cursorDiskKV"):
        connection.execute(f"CREATE TABLE {table} (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
    headers = [
        {"bubbleId": bubble["bubbleId"], "type": bubble["type"]}
        for bubble in [*BUBBLES, {"bubbleId": "lost", "type": 2}]
    ]
    about = {
        "composerId": "c1",
        "name": "Retry payments",
        "createdAt": 1772359200000,
        "lastUpdatedAt": 1772359260000,
        "fullConversationHeadersOnly": headers,
    }
    rows = {
        "composerData:c1": json.dumps(about),
        "composerData:empty": "{}",
        "composerData:null": None,
        "composer.content.1": "one\n",
        "composer.content.2": "one\ntwo\n",
    }
    rows |= {f"bubbleId:c1:{bubble['bubbleId']}": json.dumps(bubble) for bubble in BUBBLES}
    connection.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", rows.items())
    chats = {
        "tabs": [
            {
                "tabId": "tab1",
                "chatTitle": "Old chat",
                "bubbles": [{"type": "user", "text": "why"}, {"type": "ai", "rawText": "because"}],
            }
        ]
    }
    connection.execute(
        "INSERT INTO ItemTable VALUES (?, ?)", ("workbench.panel.aichat.view.aichat.chatdata", json.dumps(chats))
    )
    connection.commit()
    return connection


@pytest.mark.proves("AGT-COMMANDS")
def test_sessions_in_cursors_database_are_found_and_read(tmp_path: Path) -> None:
    user = tmp_path / ".config/Cursor/User"
    cursor_database(user / "globalStorage/state.vscdb").close()
    workspace = user / "workspaceStorage/abc/workspace.json"
    with closing(
        sqlite3.connect(lines(workspace, {"folder": "file:///srv/my%20shop"}).with_name("state.vscdb"))
    ) as own:
        own.execute("CREATE TABLE ItemTable (key TEXT, value BLOB)")
        listed = json.dumps({"allComposers": [{"composerId": "c1"}]})
        own.execute("INSERT INTO ItemTable VALUES ('composer.composerData', ?)", (listed,))
        own.commit()
    environment = read_environment({"HOME": str(tmp_path)})
    found = {file.id: file for file in find_sessions(environment)}
    assert sorted(found) == ["c1", "tab1"]
    assert found["c1"].mtime == 1772359260.0
    session = read_any(found["c1"])
    assert (session.agent, session.title, session.cwd) == ("cursor", "Retry payments", "/srv/my shop")
    assert prompts(session) == ["retry the payment"]
    assert [(event.exit_code, event.ok, event.text) for event in only(session, EventKind.OUTPUT)] == [
        (1, False, "1 failed")
    ]
    edits = [(edit.path, edit.before, edit.after, edit.ok) for edit in only(session, EventKind.FILE_EDIT)]
    assert edits == [
        ("/srv/shop/pay.py", "a", "b", True),
        ("/srv/shop/pay.py", "x\ny", "x\nz = 1", True),
        ("c.py", "one\n", "one\ntwo\n", True),
        ("old.py", None, "", False),
    ]
    assert [event.text for event in read_any(found["tab1"]).events] == ["why", "because"]
    assert read_any(Path(found["c1"].locator)) == session
    assert read_any(replace(found["c1"], is_shared=False)) == session, "a database is known by its content"
    with pytest.raises(TranscriptError, match="holds 2 sessions"):
        read_any(found["c1"].path)
    with pytest.raises(TranscriptError, match="holds no session nope"):
        read_any(Path(f"{found['c1'].path}#nope"))


@pytest.mark.proves("AGT-UNTOUCHED")
@pytest.mark.parametrize("wal", [False, True])
def test_a_database_in_use_is_read_without_a_lock_or_a_trace(tmp_path: Path, wal: bool) -> None:
    database = tmp_path / ".config/Cursor/User/globalStorage/state.vscdb"
    writer = cursor_database(database, wal=wal)
    writer.execute("BEGIN EXCLUSIVE")

    def state() -> dict[str, tuple[int, bytes]]:
        return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in sorted(database.parent.iterdir())}

    before = state()
    assert ("state.vscdb-wal" in before) == wal
    files = list(find_sessions(read_environment({"HOME": str(tmp_path)})))
    assert [len(read_any(file).events) for file in files if file.id == "c1"] == [9]
    assert state() == before
    writer.rollback()
    writer.close()


def test_a_damaged_database_is_refused_and_hides_no_other_session(tmp_path: Path) -> None:
    database = tmp_path / ".config/Cursor/User/globalStorage/state.vscdb"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    lines(tmp_path / f".codex/sessions/2026/02/11/rollout-2026-02-11T05-53-33-{CODEX_ID}.jsonl", META, said("hi"))
    assert [file.agent for file in find_sessions(read_environment({"HOME": str(tmp_path)}))] == ["codex"]
    with pytest.raises(TranscriptError, match="cannot be read as a database"):
        read_any(database)


def test_opencodes_database_gives_what_its_files_give(shared_data: Path, tmp_path: Path) -> None:
    database = tmp_path / ".local/share/opencode/opencode.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript((shared_data / SAMPLES / "git-ai-fixtures/opencode-sqlite/schema.sql").read_text())
    (found,) = find_sessions(read_environment({"HOME": str(tmp_path)}))
    session = read_any(found)
    assert (found.agent, found.id, session.cwd) == ("opencode", "test-session-123", "/Users/test/project")
    assert counted(session) == {"prompt": 1, "reply": 2, "file_edit": 1}
    assert read_any(database) == session


@pytest.mark.proves("AGT-COMMANDS", "AGT-INJECTED")
def test_opencodes_tools_carry_their_outcome_and_its_synthetic_text_is_left_out(tmp_path: Path) -> None:
    storage = tmp_path / ".local/share/opencode/storage"
    lines(
        storage / "session/p1/ses_1.json",
        {
            "id": "ses_1",
            "projectID": "p1",
            "directory": "/srv/shop",
            "title": "Retry",
            "time": {"created": 1, "updated": 2},
        },
    )
    lines(storage / "session/p1/ses_2.json", {"id": "ses_2", "projectID": "p1", "parentID": "ses_1", "time": {}})
    lines(storage / "message/ses_2/msg_9.json", {"id": "msg_9", "sessionID": "ses_2", "role": "user"})
    for number, role in enumerate(["user", "assistant"]):
        message = {
            "id": f"msg_{number}",
            "sessionID": "ses_1",
            "role": role,
            "time": {"created": 1772359200000 + number},
        }
        lines(storage / f"message/ses_1/msg_{number}.json", message)
    lines(storage / "message/ses_1/msg_torn.json", '{"id": ')
    parts: dict[str, dict[str, Any]] = {
        "msg_0/prt_1": {"type": "text", "text": "retry the payment"},
        "msg_0/prt_2": {"type": "text", "text": "Called the Read tool", "synthetic": True},
        "msg_1/prt_1": {"type": "reasoning", "text": "hm"},
        "msg_1/prt_2": {
            "type": "tool",
            "tool": "bash",
            "callID": "c1",
            "state": {
                "status": "completed",
                "input": {"command": "pytest"},
                "output": "1 failed",
                "metadata": {"exit": 1},
            },
        },
        "msg_1/prt_3": {
            "type": "tool",
            "tool": "edit",
            "callID": "c2",
            "state": {
                "status": "error",
                "input": {"filePath": "a.py", "oldString": "x", "newString": "y"},
                "error": "no match",
            },
        },
        "msg_1/prt_4": {
            "type": "tool",
            "tool": "todowrite",
            "callID": "c3",
            "state": {
                "status": "completed",
                "input": {"todos": [{"content": "retry", "status": "pending"}]},
                "output": "ok",
            },
        },
    }
    for name, part in parts.items():
        lines(storage / f"part/{name}.json", part)
    (found,) = find_sessions(read_environment({"HOME": str(tmp_path)}))
    session = read_any(found)
    assert (session.id, session.title, session.cwd, session.skipped_records) == ("ses_1", "Retry", "/srv/shop", 1)
    assert prompts(session) == ["retry the payment"]
    (output,) = only(session, EventKind.OUTPUT)
    assert (output.exit_code, output.ok, output.text) == (1, False, "1 failed")
    (edit,) = only(session, EventKind.FILE_EDIT)
    assert (edit.path, edit.before, edit.after, edit.ok) == ("a.py", "x", "y", False)
    assert only(session, EventKind.TOOL_CALL)[0].tool == "TodoWrite"
    assert read_any(storage / "session/p1/ses_1.json").events == session.events
    hostile = lines(tmp_path / "m/ses/x.json", {"id": "m", "sessionID": "../../../etc", "role": "user"})
    with pytest.raises(TranscriptError, match="no file can be called"):
        read_any(hostile)


@pytest.mark.proves("AGT-FOLDERS", "AGT-ENTRANCE")
def test_each_agents_variable_and_setting_says_where_to_look(tmp_path: Path) -> None:
    def rollout(folder: str, last: int) -> None:
        name = f"{CODEX_ID[:-1]}{last}"
        lines(tmp_path / folder / f"sessions/2026/02/11/rollout-2026-02-11T05-53-33-{name}.jsonl", META, said("hi"))

    for last, folder in enumerate([".codex", "moved", "set"]):
        rollout(folder, last)
    lines(tmp_path / "g/.gemini/tmp/ab/chats/session-1.json", {"sessionId": "g1", "projectHash": "x", "messages": []})
    lines(
        tmp_path / "x/opencode/storage/message/ses_1/msg_1.json", {"id": "msg_1", "sessionID": "ses_1", "role": "user"}
    )

    def ids(**variables: str) -> list[str]:
        return [file.id[-1] for file in find_sessions(read_environment({"HOME": str(tmp_path), **variables}))]

    assert ids() == ["0"]
    assert ids(CODEX_HOME=str(tmp_path / "moved")) == ["1"]
    assert ids(CODEX_HOME=str(tmp_path / "moved"), NUGGET_AGENTS_CODEX=str(tmp_path / "set")) == ["2"]
    assert sorted(ids(GEMINI_CLI_HOME=str(tmp_path / "g"), XDG_DATA_HOME=str(tmp_path / "x"))) == ["0", "1", "1"]
    found = find_session_by_id(read_environment({"HOME": str(tmp_path)}), CODEX_ID[:9])
    assert found is not None and found.agent == codex.AGENT


@pytest.mark.proves("AGT-CATCH-UP")
def test_catch_up_looks_at_other_agents_only_where_it_is_switched_on(tmp_path: Path) -> None:
    lines(tmp_path / f".codex/sessions/2026/02/11/rollout-2026-02-11T05-53-33-{CODEX_ID}.jsonl", META, said("hi"))
    now = datetime.now(UTC) + timedelta(hours=1)

    def queued(**variables: str) -> int:
        environment = read_environment({"HOME": str(tmp_path), **variables})
        agents = load_settings(environment).capture.agents
        return len(queue.catch_up(tmp_path / "home", find_sessions(environment, agents), now=now))

    assert queued() == 0
    assert queued(NUGGET_CAPTURE_AGENTS="claude-code, codex") == 1
    assert queued(NUGGET_CAPTURE_AGENTS="all") == 0, "it waits in the queue already"


@pytest.mark.proves("AGT-CAPTURE")
def test_capture_session_takes_a_transcript_of_any_agent(brain: Path, tmp_path: Path) -> None:
    ruled = "never log a webhook payload: it contains card holder names"
    file = lines(tmp_path / "anything.txt", META, said(f"From now on, {ruled}."), said("Understood.", role="assistant"))
    nugget = [sys.executable, "-m", "nugget.entry", "capture-session", "--method", "heuristic", "--json"]
    done = subprocess.run(
        [*nugget, "--brain", str(brain), "--transcript", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    captured = json.loads(done.stdout)
    assert captured["session"] == CODEX_ID
    assert any("webhook" in unit["title"].lower() for unit in captured["units"])


def test_calls_of_unknown_tools_keep_what_was_asked() -> None:
    call = read_call("mcp__weather__lookup", {"city": "Berlin", "path": "a.txt"})
    assert (call.tool, call.path, call.text) == ("mcp__weather__lookup", "a.txt", "city: Berlin\npath: a.txt")
    assert read_call("Write", {"path": "a"}).changes == ()
    assert AGENTS == ("claude-code", "codex", "gemini-cli", "cursor", "opencode")
