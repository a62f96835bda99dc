"""The one entrance to sessions; those of Codex, Gemini CLI, Cursor and OpenCode: real samples, odd forms."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agent_events import CODEX_ID, META, SAMPLES, counted, lines, said, shown

from nugget.capture import queue
from nugget.config import Environment, load_settings, read_environment
from nugget.errors import TranscriptError
from nugget.sources.sessions import find_session_by_id, find_sessions, read_any

GIT_AI, ENTIRE, LONG = "git-ai-fixtures", "gemini-cli-entire", "f7633853-6663-4dbb-bbf4-6159afa29df8"
GOLDEN: dict[str, tuple[str, str, dict[str, int]]] = {
    f"{GIT_AI}/codex-session-simple.jsonl": ("codex", CODEX_ID, {"prompt": 1, "file_edit": 1, "reply": 1}),
    f"{GIT_AI}/cursor-session-simple.jsonl": (
        "cursor", "cursor-session-simple", {"prompt": 1, "reply": 3, "tool_call": 9, "file_edit": 1}),
    f"{GIT_AI}/gemini-session-simple.jsonl": (
        "gemini-cli", "gemini-session-simple", {"prompt": 1, "reply": 5, "file_edit": 2, "tool_call": 2}),
    f"{GIT_AI}/opencode-storage/message/test-session-123": (
        "opencode", "test-session-123", {"prompt": 1, "reply": 2, "file_edit": 1}),
    f"{ENTIRE}/12cbfeaa512b.json": (
        "gemini-cli", "faff42ab-6ea5-4f78-b8c4-f7dd6272af08",
        {"prompt": 2, "reply": 2, "tool_call": 1, "tool_result": 1, "file_edit": 1}),
    f"{ENTIRE}/ab2b9748b105.json": (
        "gemini-cli", LONG,
        {"prompt": 1, "reply": 10, "file_edit": 1, "command": 6, "output": 6, "tool_call": 2, "tool_result": 2}),
}  # fmt: skip


@pytest.mark.proves("AGT-GOLDEN", "AGT-CONTENT")
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_each_sample_gives_the_events_that_are_in_it_whatever_it_is_called(name, shared_data, tmp_path):
    file = shared_data / SAMPLES / name
    session = read_any(file)
    assert (session.agent, session.id, counted(session)) == GOLDEN[name]
    if file.is_file():
        renamed = read_any(Path(shutil.copy(file, tmp_path / "transcript.txt")))
        assert (renamed.agent, counted(renamed)) == (session.agent, counted(session))
    assert session.skipped_records == 0
    assert len({(event.uuid, event.kind, event.text) for event in session.events}) == len(session.events)


@pytest.mark.proves("AGT-FOLDERS", "AGT-ENTRANCE")
def test_each_agents_variable_and_setting_says_where_to_look(tmp_path):
    def rollout(folder: str, last: int) -> None:
        name = f"{CODEX_ID[:-1]}{last}"
        lines(tmp_path / folder / f"sessions/2026/02/11/rollout-2026-02-11T05-53-33-{name}.jsonl", META, said("hi"))

    for last, folder in enumerate([".codex", "moved", "set"]):
        rollout(folder, last)
    lines(tmp_path / "g/.gemini/tmp/ab/chats/session-1.json", {"sessionId": "g1", "projectHash": "x", "messages": []})
    message = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 10**400}}
    lines(tmp_path / "x/opencode/storage/message/ses_1/msg_1.json", message)

    def ids(**variables: str) -> list[str]:
        found = find_sessions(read_environment({"HOME": str(tmp_path), **variables}))
        return [file.id[-1] for file in found if read_any(file)]

    assert ids() == ["0"] and ids(CODEX_HOME=str(tmp_path / "moved")) == ["1"]
    assert ids(CODEX_HOME=str(tmp_path / "moved"), NUGGET_AGENTS_CODEX=str(tmp_path / "set")) == ["2"]
    assert sorted(ids(GEMINI_CLI_HOME=str(tmp_path / "g"), XDG_DATA_HOME=str(tmp_path / "x"))) == ["0", "1", "1"]
    environment = read_environment({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "x")})
    (before,) = find_sessions(environment, ["opencode"])
    lines(tmp_path / "x/opencode/storage/message/ses_1/msg_1.json", message | {"finish": "stop"})
    assert [file.size for file in find_sessions(environment, ["opencode"])] != [before.size]


@pytest.mark.proves("AGT-CATCH-UP")
def test_catch_up_looks_at_other_agents_only_where_it_is_switched_on(tmp_path):
    lines(tmp_path / f".codex/sessions/2026/02/11/rollout-2026-02-11T05-53-33-{CODEX_ID}.jsonl", META, said("hi"))
    now = datetime.now(UTC) + timedelta(hours=1)

    def queued(**variables: str) -> int:
        environment = read_environment({"HOME": str(tmp_path), **variables})
        agents = load_settings(environment).capture_agents
        return len(queue.catch_up(tmp_path / "home", find_sessions(environment, agents), now=now))

    assert queued() == 0 and queued(NUGGET_CAPTURE_AGENTS="claude-code, codex") == 1


@pytest.mark.proves("AGT-CAPTURE")
def test_capture_session_takes_a_transcript_of_any_agent(brain, tmp_path):
    ruled = "never log a webhook payload: it contains card holder names"
    file = lines(tmp_path / "anything.txt", META, said(f"From now on, {ruled}."), said("Understood.", role="assistant"))
    nugget = [sys.executable, "-m", "nugget", "capture-session", "--with", "offline", "--json"]
    command = [*nugget, "--brain", str(brain), "--transcript", str(file)]
    captured = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert any("webhook" in unit["title"].lower() for unit in captured["units"])


FIRST, SECOND = "11111111-aaaa-4000-8000-000000000001", "11112222-aaaa-4000-8000-000000000002"
LINE = '{"type":"user","uuid":"u1","sessionId":"%s","message":{"role":"user","content":"hello"}}\n'


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    folder = tmp_path / ".claude/projects/-srv-shop"
    folder.mkdir(parents=True)
    for age, name in ((20, FIRST), (10, SECOND)):
        file = folder / f"{name}.jsonl"
        file.write_text(LINE % name)
        os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    (folder / "agent-9.jsonl").write_text(LINE % FIRST)
    return read_environment({"HOME": str(tmp_path)})


@pytest.mark.proves("AGT-ENTRANCE")
def test_sessions_are_found_oldest_first_with_agent_id_time_and_size(environment):
    found = list(find_sessions(environment))
    ages = [(file.id, file.agent, file.mtime - 1_700_000_000) for file in found]
    assert ages == [(FIRST, "claude-code", -20), (SECOND, "claude-code", -10)]
    assert found[0].size == len(LINE % FIRST)


@pytest.mark.proves("AGT-PREFIX")
def test_a_session_is_found_by_the_beginning_of_its_id_when_that_is_unambiguous(environment):
    found = find_session_by_id(environment, "11112")
    assert found is not None and found.id == SECOND and find_session_by_id(environment, "ffff") is None
    assert find_session_by_id(environment, "../*") is None
    with pytest.raises(TranscriptError, match="2 sessions have an id that begins with '1111'"):
        find_session_by_id(environment, "1111")


def used(tool: str, number: int, **values: Any) -> dict[str, Any]:
    call = {"name": tool, "toolCallId": f"t{number}", "status": "completed", "result": "{}"} | values
    return {"bubbleId": f"b{number + 2}", "type": 2, "text": "", "toolFormerData": call}


DIFF = '{"diff": {"chunks": [{"diffString": " x\\n-y\\n+z = 1"}]}}'
SKETCH = '{"target_file": "/srv/shop/pay.py", "code_edit": "# ... existing code ...\\nz = 1"}'
CONTENTS = '{"beforeContentId": "composer.content.1", "afterContentId": "composer.content.2"}'
REPLACED = '{"file_path": "/srv/shop/pay.py", "old_string": "a", "new_string": "b"}'
TYPED = "<user_query>\nretry the payment\n</user_query>"
BUBBLES: list[dict[str, Any]] = [
    {"bubbleId": "b1", "type": 1, "text": TYPED, "createdAt": "2026-03-01T10:00:00Z"},
    {"bubbleId": "b2", "type": 2, "text": "On it.", "createdAt": "2026-03-01T10:00:05Z"},
    used("run_terminal_cmd", 1, rawArgs='{"command": "pytest -q"}', result='{"output": "1 failed", "exitCode": 1}'),
    used("search_replace", 2, params=REPLACED),
    used("edit_file", 3, rawArgs=SKETCH, result=DIFF),
    used("edit_file_v2", 4, params='{"relativeWorkspacePath": "c.py"}', result=CONTENTS),
    used("delete_file", 5, userDecision="rejected", params='{"target_file": "old.py"}'),
]


def cursor_database(file: Path, *, wal: bool = False) -> sqlite3.Connection:
    file.parent.mkdir(parents=True)
    connection = sqlite3.connect(file)
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    for table in ("ItemTable", "cursorDiskKV"):
        connection.execute(f"CREATE TABLE {table} (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
    about = {
        "name": "Retry payments", "createdAt": 1772359200000, "lastUpdatedAt": 1772359260000,
        "fullConversationHeadersOnly": [*BUBBLES, {"bubbleId": "lost", "type": 2}],
    }  # fmt: skip
    rows = {
        "composerData:c1": json.dumps(about), "composerData:empty": "{}", "composerData:null": None,
        "composerData:c2": json.dumps({"conversation": [{"type": 1, "text": "why"}, {"type": 2, "text": "because"}]}),
        "composerData:5": 5, "composer.content.1": "one\n", "composer.content.2": "one\ntwo\n",
    }  # fmt: skip
    rows |= {f"bubbleId:c1:{bubble['bubbleId']}": json.dumps(bubble) for bubble in BUBBLES}
    connection.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", rows.items())
    connection.commit()
    return connection


@pytest.mark.proves("AGT-COMMANDS")
def test_sessions_in_cursors_database_are_found_and_read(tmp_path):
    user = tmp_path / ".config/Cursor/User"
    cursor_database(user / "globalStorage/state.vscdb").close()
    workspace = user / "workspaceStorage/abc/workspace.json"
    lines(workspace, {"folder": "file:///srv/my%20shop"})
    with closing(sqlite3.connect(workspace.with_name("state.vscdb"))) as own:
        own.execute("CREATE TABLE ItemTable (key TEXT, value BLOB)")
        listed = json.dumps({"allComposers": [{"composerId": "c1"}]})
        own.execute("INSERT INTO ItemTable VALUES ('composer.composerData', ?)", (listed,))
        own.commit()
    found = {file.id: file for file in find_sessions(read_environment({"HOME": str(tmp_path)}))}
    assert sorted(found) == ["c1", "c2"]
    session = read_any(found["c1"])
    assert (session.agent, session.title, session.cwd) == ("cursor", "Retry payments", "/srv/my shop")
    assert shown(session) == [
        "prompt user: retry the payment", "reply agent: On it.",
        "command Bash agent: pytest -q", "output of Bash 1 False: 1 failed",
        "Edit /srv/shop/pay.py: 'a' -> 'b' True",
        r"Edit /srv/shop/pay.py: 'x\ny' -> 'x\nz = 1' True",
        r"Edit c.py: 'one\n' -> 'one\ntwo\n' True",
        "Delete old.py: None -> '' False", "tool_result Delete tool: {}",
    ]  # fmt: skip
    assert [event.text for event in read_any(found["c2"]).events] == ["why", "because"]
    with pytest.raises(TranscriptError, match="holds 2 sessions"):
        read_any(found["c1"].path)


@pytest.mark.proves("AGT-UNTOUCHED")
@pytest.mark.parametrize("wal", [False, True])
def test_a_database_in_use_is_read_without_a_lock_or_a_trace(tmp_path, wal):
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
