"""Records of Claude Code, Codex and Gemini CLI, and the events that each gives; what is injected gives none."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from agent_events import CLAUDE_ID, CODEX_ID, META, call, codex_call, lines, record, refusal, result, said, shown
from backports import zstd
from paths import TESTS

from nugget.errors import TranscriptError
from nugget.models import EventKind
from nugget.sources import codex
from nugget.sources.claude_code import read_session
from nugget.sources.sessions import read_any


def attachment(prompt: object, **values: Any) -> dict[str, Any]:
    queued = {"type": "queued_command", "prompt": prompt} | values
    return {"type": "attachment", "uuid": "q", "sessionId": CLAUDE_ID, "attachment": queued}


def reply(text: str, **values: Any) -> dict[str, Any]:
    return record("assistant", [{"type": "text", "text": text}], **values)


def queued_and_typed(*more: Any) -> list[Any]:
    return [attachment([{"type": "text", "text": "also update the docs"}], commandMode="prompt"), *more]


INJECTED = [
    record("user", "Caveat: read this", isMeta=True), record("user", "<command-name>/clear</command-name>"),
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
    record("user", "subagent task", isSidechain=True), record("user", "typed by a program", promptSource="system"),
    record("assistant", [{"type": "text", "text": "API Error: 529"}], isApiErrorMessage=True),
    {"type": "api-request-blob", "message": {"role": "user", "content": "whole prompt"}, "sessionId": CLAUDE_ID},
    attachment("BRIDGE", origin={"kind": "coordinator"}), attachment("x", commandMode="task-notification"),
]  # fmt: skip
ONCE = record("user", "once", uuid="a")
PROGRESS = {"type": "agent_progress", "message": {"type": "assistant", "message": {"content": "again"}}}
REFUSED = refusal("", "use the v2 API")["message"]["content"][0]["content"]
ANSWERED = 'User has answered your questions: "Which?"="B". You can now continue with these.'
BY_HOOK = {"permissionDecision": {"decision": "reject", "source": "hook"}}
WRAPPED = json.dumps({"output": "2 failed\n", "metadata": {"exit_code": 1, "duration_seconds": 0.4}})
IDE = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nadd a retry\n"
RAN = "<result>\nExit code: 0\nDuration: 1s\nOutput:\nok\n</result>"
SHELL = f"<user_shell_command>\n<command>\nmake\n</command>\n{RAN}"
CASES: dict[str, tuple[list[Any], list[str]]] = {
    "injected": ([record("user", "a real one", origin={"kind": "human"}, promptSource="typed"), *INJECTED],
                 ["prompt user: a real one"]),
    "reminders": ([
        record("user", [
            {"type": "text", "text": "<ide_opened_file>The user opened a.py</ide_opened_file>"},
            {"type": "text", "text": "always use tabs<system-reminder>\nsecret plan\n</system-reminder>"},
            {"type": "image", "source": {"data": "iVBOR"}},
        ]),
        record("user", "<user-memory-input>never push to main</user-memory-input>"),
    ], ["prompt user: always use tabs", "prompt user: never push to main"]),
    "dialogs": ([
        call("c1", "Edit", file_path="/w/a.py", old_string="x", new_string="y"), refusal("c1", "use the v2 API"),
        call("c2", "AskUserQuestion"),
        result("c2", ANSWERED, details={"questions": [], "answers": {"Which?": "B"}}),
    ], ["Edit /w/a.py: 'x' -> 'y' False", f"tool_result Edit tool: {REFUSED}", "prompt user: use the v2 API",
        "tool_call AskUserQuestion agent: ", f"tool_result AskUserQuestion tool: {ANSWERED}",
        'prompt user: "Which?"="B"']),
    "refused by a hook": ([call("c1", "Bash", command="make"), refusal("c1", "use the v2 API") | BY_HOOK],
                          ["command Bash agent: make", f"tool_result Bash hook: {REFUSED}"]),
    "pasted": ([record("user", "why?\n```\nboom\n```"), record("user", "> only this")],
               ["prompt user: why?", "paste quoted: ```\nboom\n```", "prompt quoted: > only this"]),
    "run by the person": ([
        record("user", "<bash-input>git log -1</bash-input>"),
        record("user", "<bash-stdout>commit abc</bash-stdout><bash-stderr></bash-stderr>"),
    ], ["command user-shell user: git log -1", "output of user-shell None None: commit abc"]),
    "queued": (queued_and_typed(), ["prompt user: also update the docs"]),
    "queued and typed": (queued_and_typed(record("user", "also update the docs", uuid="u2")),
                         ["prompt user: also update the docs"]),
    "twice": ([ONCE, ONCE, {"type": "progress", "uuid": "p", "sessionId": CLAUDE_ID, "data": PROGRESS}],
              ["prompt user: once"]),
    "gone back on": ([
        record("user", "start", uuid="u1"), reply("started", uuid="a1", parent="u1"),
        record("user", "use redis", uuid="u2", parent="a1"), reply("redis it is", uuid="a2", parent="u2"),
        record("user", "more redis", uuid="u3", parent="a2"),
        record("user", "use sqlite", uuid="u4", parent="a1"), reply("sqlite it is", uuid="a4", parent="u4"),
    ], ["prompt user: start", "reply agent: started", "prompt user: use sqlite", "reply agent: sqlite it is"]),
    "parallel calls": ([
        record("user", "go", uuid="u"),
        call("x", "Bash", uuid="cx", command="x") | {"parentUuid": "u"},
        result("x", "1") | {"uuid": "rx", "parentUuid": "cx"},
        call("y", "Bash", uuid="cy", command="y") | {"parentUuid": "u"},
        result("y", "2") | {"uuid": "ry", "parentUuid": "cy"},
    ], ["prompt user: go", "command Bash agent: x", "output of Bash 0 True: 1",
        "command Bash agent: y", "output of Bash 0 True: 2"]),
    "commands": ([
        call("c1", "Bash", command="make"),
        result("c1", "Exit code 2\nno rule to make target", error=True, details="Error: Exit code 2\nno rule"),
        call("c2", "Bash", command="all"), result("c2", "ok", details={"stdout": "ok", "interrupted": False}),
        call("c3", "Bash", command="serve &"), result("c3", "in background", details={"backgroundTaskId": "b1"}),
        call("c4", "Bash", command="old"), result("c4", "fatal: not a repository", error=True),
    ], ["command Bash agent: make", "output of Bash 2 False: no rule to make target",
        "command Bash agent: all", "output of Bash 0 True: ok",
        "command Bash agent: serve &", "output of Bash None None: in background",
        "command Bash agent: old", "output of Bash None False: fatal: not a repository"]),
    "edits": ([
        call("e1", "Edit", file_path="/w/a.py", old_string="x = 1", new_string="x = 2"), result("e1", "updated"),
        call("e2", "MultiEdit", file_path="/w/b.py",
             edits=[{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}]),
        result("e2", "2 edits"),
        call("e3", "Write", file_path="/w/c.py", content="new"),
        result("e3", "written", details={"type": "update", "originalFile": "old"}),
        call("e4", "Edit", file_path="/w/d.py", old_string="gone", new_string="y"),
        result("e4", "<tool_use_error>String to replace not found in file.</tool_use_error>", error=True),
    ], ["Edit /w/a.py: 'x = 1' -> 'x = 2' True", "Edit /w/b.py: 'a' -> 'b' True", "Edit /w/b.py: 'c' -> 'd' True",
        "Write /w/c.py: 'old' -> 'new' True", "Edit /w/d.py: 'gone' -> 'y' False",
        "tool_result Edit tool: String to replace not found in file."]),
    "Codex commands": ([
        META,
        *codex_call("shell", {"command": ["bash", "-lc", "pytest -q"], "workdir": "/srv/shop/api"}, WRAPPED, 1),
        *codex_call("shell_command", {"command": "make"}, "Exit code: 2\nWall time: 1 seconds\nOutput:\nno rule\n", 2),
        *codex_call("exec_command", {"cmd": "ls"}, "Process exited with code 0\nOutput:\na.py\n", 3),
        *codex_call("exec_command", {"cmd": "serve"}, "Process running with session ID 7\nOutput:\nup\n", 4),
        *codex_call("shell", {"command": ["git", "commit", "-m", "a b"]}, WRAPPED, 5),
    ], ["command Bash agent: pytest -q", "output of Bash 1 False: 2 failed\n",
        "command Bash agent: make", "output of Bash 2 False: no rule\n",
        "command Bash agent: ls", "output of Bash 0 True: a.py\n",
        "command Bash agent: serve", "output of Bash None None: up\n",
        "command Bash agent: git commit -m 'a b'", "output of Bash 1 False: 2 failed\n"]),
    "Codex prompts": ([
        META,
        said("# AGENTS.md instructions for /srv/shop\n\n<INSTRUCTIONS>\nbe terse\n</INSTRUCTIONS>"),
        said("<environment_context>\n  <cwd>/srv/shop</cwd>\n</environment_context>"),
        said("<turn_aborted>\nstopped\n</turn_aborted>"), said(IDE), said(SHELL),
        said("you are an agent", role="developer"),
        {"timestamp": "2026-02-11T05:53:36Z", "type": "event_msg",
         "payload": {"type": "user_message", "message": "add"}},
    ], ["prompt user: add a retry", "command user-shell user: make", "output of user-shell None None: ok"]),
    "Gemini CLI": ([(TESTS / "fixtures" / "gemini.json").read_text("utf-8")], [
        "prompt user: explain @a.py", "command Bash agent: make", "output of Bash 2 False: no rule",
        "tool_call TodoWrite agent: [pending] retry", "Edit /srv/my shop/a.py: 'x' -> 'y' False",
        "tool_result Edit tool: "]),
}  # fmt: skip


@pytest.mark.proves(
    "SES-HUMAN", "SES-QUEUED", "SES-REWIND", "SES-COMMANDS", "SPEAKER-REFUSAL", "SPEAKER-PASTED", "AGT-COMMANDS",
    "AGT-INJECTED",
)  # fmt: skip
@pytest.mark.parametrize("name", CASES)
def test_records_give_the_events_that_are_in_them(tmp_path, name):
    records, events = CASES[name]
    session = read_any(lines(tmp_path / "session.json", *records))
    assert shown(session) == events
    if name == "Codex commands":
        assert (session.folders, session.branch) == (("/srv/shop", "/srv/shop/api"), "feature/retry")
    if name == "Gemini CLI":
        assert session.cwd == "/srv/my shop"


@pytest.mark.proves("SES-READ-ALL")
def test_every_file_at_hand_is_read_or_refused_in_one_sentence(shared_data):
    with_events = 0
    for file in filter(Path.is_file, sorted((shared_data / "transcripts").rglob("*"))):
        try:
            session = read_session(file)
        except TranscriptError as error:
            assert "\n" not in str(error) and str(file) in str(error)
            of_claude = file.suffix == ".jsonl" and file.parent.name.startswith(("claude-code", "episodic"))
            assert not of_claude, f"a real transcript was refused: {error}"
            continue
        with_events += bool(session.events)
        assert session.records >= session.skipped_records
        for event in session.events:
            event.text.encode("utf-8")
    assert with_events >= 60


@pytest.mark.proves("SES-TORN")
def test_torn_lines_odd_bytes_and_lone_surrogates_are_counted_and_stop_nothing(tmp_path):
    odd = ["42", '"text"', "[1, 2]", "null", "{}", '{"type": 7}', '{"type": "user"}', "[" * 100_000,
           '{"type":"assistant","message":{"content":[{"type":"text","te']  # fmt: skip
    good = json.dumps(record("user", "ok \ud83d and \x00 end", uuid="a", cwd="/a\ud83d\x00"))
    raw = json.dumps(record("user", "raw half", uuid="b")).encode().replace(b"half", b"\xed\xa0\x80")
    path = lines(tmp_path / "torn.jsonl", good, *odd, reply("done", uuid="c"))
    with path.open("ab") as file:
        file.write(b"\xff\xfe\x00garbage\n" + raw + b'\n{"type":"user","message":{"content":"torn la')
    session = read_session(path)
    texts = [event.text for event in session.events]
    assert texts[0].startswith("ok ") and texts[1] == "done" and texts[2].startswith("raw ") and len(texts) == 3
    assert "\x00" not in "".join(texts).encode("utf-8").decode()
    assert (session.records, session.skipped_records, session.cwd) == (14, 11, "/a?�")


@pytest.mark.proves("SES-SUBAGENTS")
def test_a_subagents_events_stand_behind_the_call_that_started_it(shared_data):
    (file,) = (shared_data / "transcripts/claude-code-2.1.329/subagent").glob("*.jsonl")
    session = read_session(file)
    agents = [event.agent_id for event in session.events]
    assert session.events[agents.index("a3bee99966853aa97") - 1].tool in ("Agent", "Task")
    assert agents[-1] is None, "the main agent has the last word"


@pytest.mark.proves("SES-COMPACTION")
def test_a_compaction_summary_is_no_prompt(shared_data):
    (file,) = (shared_data / "transcripts/claude-code-2.1.329/compact").glob("*.jsonl")
    events = read_session(file).events
    prompts = [event.text for event in events if event.kind is EventKind.PROMPT]
    assert prompts == ["first question", "second question", "third question"]
    assert sum(event.kind is EventKind.SUMMARY for event in events) == 1


@pytest.mark.proves("SES-TITLE")
def test_a_summary_names_the_session_only_if_it_belongs_to_it(tmp_path):
    foreign = {"type": "summary", "summary": "Another session", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "Fixing the login", "leafUuid": "u1"}
    named = {"type": "custom-title", "customTitle": "Login", "sessionId": CLAUDE_ID}
    for records, title in (((foreign,), None), ((foreign, own), "Fixing the login"), ((own, named), "Login")):
        assert read_session(lines(tmp_path / "a.jsonl", *records, record("user", "fix", uuid="u1"))).title == title


@pytest.mark.proves("SES-READ-ALL", "AGT-FOREIGN")
def test_a_missing_or_foreign_file_is_told_in_one_sentence(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    foreign = lines(tmp_path / "codex.jsonl", {"type": "session_meta", "payload": {}}, {"type": "turn_context"})
    for path, reason in ((tmp_path / "gone.jsonl", "There is no transcript at"), (foreign, "is not a transcript"),
                         (tmp_path, "cannot be read")):  # fmt: skip
        with pytest.raises(TranscriptError, match=reason):
            read_session(path)
    with pytest.raises(TranscriptError, match="is not a file but a pipe"):
        read_any(tmp_path / "pipe.jsonl")
    assert read_session(lines(tmp_path / "empty.jsonl")).events == ()


PATCH = (TESTS / "fixtures" / "codex.patch").read_text("utf-8")
PATCHED = [
    r"Edit src/main.rs: 'use std;\nfn main() {}' -> 'use std;\nfn main() { greet(); }'",
    "Edit src/main.rs: 'old' -> 'new'",
    r"Write docs/a.md: None -> '# A\n\ntext\n'", "Delete gone.rs: None -> ''", "Edit to.rs: 'a' -> 'b'",
]  # fmt: skip


@pytest.mark.proves("AGT-PATCH")
@pytest.mark.parametrize("form", ["text", "argument", "heredoc"])
def test_every_form_of_apply_patch_becomes_its_edits(tmp_path, form):
    heredoc = {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"]}
    name, given = {"text": ("apply_patch", PATCH), "argument": ("apply_patch", {"patch": PATCH}),
                   "heredoc": ("shell", heredoc)}[form]  # fmt: skip
    done = json.dumps({"output": "Success. Updated the following files:", "metadata": {"exit_code": 0}})
    session = read_any(lines(tmp_path / "a.jsonl", META, *codex_call(name, given, done)))
    edits = [line for line in shown(session) if " -> " in line]
    assert edits == [f"{edit} True" for edit in PATCHED]
    refused = codex_call("apply_patch", PATCH, "apply_patch verification failed: no such line")
    *edits, said_why = shown(read_any(lines(tmp_path / "b.jsonl", META, *refused)))
    assert edits == [f"{edit} False" for edit in PATCHED]
    assert said_why == "tool_result Edit tool: apply_patch verification failed: no such line"


def test_compressed_codex_rollouts_are_read(tmp_path):
    packed = tmp_path / f"rollout-2026-02-11T05-53-33-{CODEX_ID}.jsonl.zst"
    packed.write_bytes(zstd.compress(lines(tmp_path / "new.jsonl", META, said("add a retry")).read_bytes()))
    assert shown(read_any(packed)) == ["prompt user: add a retry"]
    packed.write_bytes(packed.read_bytes()[:30])
    assert read_any(packed).events == (), "torn: what can be unpacked counts"
    packed.write_bytes(codex.ZSTD_MAGIC + b"\xff" * 40)
    with pytest.raises(TranscriptError, match="damaged"):
        read_any(packed)
