"""Sessions that Cursor and OpenCode keep in a database: read without a lock, refused when damaged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agent_events import CODEX_ID, META, lines, said, shown

from nugget.config import read_environment
from nugget.errors import TranscriptError
from nugget.sources.sessions import find_sessions, read_any


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
        "composerData:c2": json.dumps({"conversation": [{"type": 1, "text": "why"}, {"type": 2, "text": "because"}]}),
        "composerData:empty": "{}",
        "composerData:null": None,
        "composer.content.1": "one\n",
        "composer.content.2": "one\ntwo\n",
    }
    rows |= {f"bubbleId:c1:{bubble['bubbleId']}": json.dumps(bubble) for bubble in BUBBLES}
    connection.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", rows.items())
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
