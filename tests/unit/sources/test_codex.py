"""Sessions of Codex: its calls, its patches, and what it weaves into prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent_events import CODEX_ID, META, lines, only, prompts, said
from backports import zstd

from nugget.errors import TranscriptError
from nugget.models import EventKind
from nugget.sources import codex
from nugget.sources.event_builder import patch_changes
from nugget.sources.sessions import read_any


def codex_call(name: str, given: object, output: object, number: int) -> list[dict[str, Any]]:
    call_id = f"call_{number}"
    custom = {"type": "custom_tool_call", "input": given}
    call = custom if isinstance(given, str) else {"type": "function_call", "arguments": json.dumps(given)}
    printed = {"type": f"{call['type']}_output", "call_id": call_id, "output": output}
    about = {"timestamp": "2026-02-11T05:53:34Z", "type": "response_item"}
    return [about | {"payload": {"name": name, "call_id": call_id} | call}, about | {"payload": printed}]


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


def test_compressed_codex_rollouts_are_read(tmp_path: Path) -> None:
    packed = tmp_path / f"rollout-2026-02-11T05-53-33-{CODEX_ID}.jsonl.zst"
    plain = lines(tmp_path / "new.jsonl", META, said("add a retry"))
    packed.write_bytes(zstd.compress(plain.read_bytes()))
    assert prompts(read_any(packed)) == ["add a retry"]
    packed.write_bytes(packed.read_bytes()[:30])
    assert read_any(packed).events == (), "torn: what can be unpacked counts"
    packed.write_bytes(codex.ZSTD_MAGIC + b"\xff" * 40)
    with pytest.raises(TranscriptError, match="damaged"):
        read_any(packed)
