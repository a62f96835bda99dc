"""`nugget logs` and `nugget sessions show` as a person runs them; what went wrong in real sessions comes first."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from agent_events import CLAUDE_ID, call, lines, record, result
from logs import Logs, logs_in
from paths import TESTS

from nugget.evidence import bundle_json


@pytest.fixture
def logged(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> Logs:
    """The logs that commands read, without an embedding model."""
    monkeypatch.setenv("AISH_LOG_DIR", str(logs.folder))
    monkeypatch.setenv("NUGGET_HOME", str(logs.home))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    return logs


@pytest.mark.proves("EVI-CLI")
def test_ingest_context_and_sessions_say_what_the_functions_say(logged, nugget):
    logged.walkthrough("s1")
    counts = nugget("logs", "ingest", "s1", "--json").json
    assert (counts["session_id"], counts["events"], counts["incidents"]) == ("s1", 4, 1)
    assert nugget("logs", "ingest", "s1", "--json").json["events"] == 0
    asked = "logs", "context", "why", "did", "it", "fail", "--explain"
    bundle = logged.ask("s1", "why did it fail", explain=True)
    assert nugget(*asked, "--json").json == json.loads(json.dumps(bundle_json(bundle, explain=True)))
    assert (out := nugget(*asked).out).startswith(bundle.context_text)
    assert f"incidents {bundle.incidents[0].id}, ts_ms " in out
    assert nugget("logs", "context", "why", "--session", "absent").err.startswith("Error: There are no logs")
    assert nugget("sessions", "show", "s1").err.startswith("Error: s1 is the log of a shell.")
    assert "s1" in nugget("logs", "sessions").out and "1 open failure" in nugget("sessions", "--all").out


def work(logs: Logs, session: str, folder: Path, command: str, *, code: int = 0, stderr: str = "") -> None:
    logs.happen(session, 1000, "command.start", cmd=command, cwd=str(folder))
    logs.happen(session, 2000, "command.end", exit=code)
    if stderr:
        logs.write(session, "stderr.log", stderr + "\n")


@pytest.mark.proves("EVI-ACROSS")
def test_all_sessions_of_a_code_repository_are_asked_at_once_and_no_others(logged, nugget, tmp_path, monkeypatch):
    shop, blog = tmp_path / "shop", tmp_path / "blog"
    for folder in (shop, blog):
        folder.mkdir()
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    work(logged, "monday", shop, "make deploy", code=2, stderr="error: the registry refused the image")
    work(logged, "tuesday", shop, "npm test", code=1, stderr="error: payments.test.ts failed")
    work(logged, "other", blog, "hugo build", code=1, stderr="error: template is broken")
    monkeypatch.chdir(shop)
    assert nugget("logs", "context", "what went wrong", "--json").json["session_id"] == "tuesday", "the last one here"
    shown = nugget("logs", "context", "what went wrong with the deploy", "--workspace", "--json").json
    assert shown["session_id"] is None and "no_vectors" in shown["degraded"]
    assert shown["incidents"][0]["session_id"] == "monday"
    assert {one["session_id"] for one in shown["selected_evidence"]} == {"monday", "tuesday"}
    assert "hugo" not in shown["context_text"]
    for day in ("wednesday", "thursday", "friday"):
        work(logged, day, shop, "make test")
    assert nugget("init", tmp_path / "brain").code == 0
    assert "payments.test.ts failed" in nugget("ask", "what went wrong").out, "though it is not of the last three"


QUESTIONS: list[dict[str, str]] = yaml.safe_load((TESTS / "golden" / "incidents.yaml").read_text("utf-8"))


def is_found(logs: Logs, session: str, question: dict[str, str]) -> bool:
    top = "\n".join(one.text for one in logs.ask(session, question["question"]).selected[:3])
    return question["command"] in top and question["line"] in top


@pytest.mark.proves("EVI-GOLDEN")
def test_the_failing_command_and_its_line_are_in_the_first_three_for_85_of_100_questions(shared_data, tmp_path):
    assert len(QUESTIONS) >= 40 and len({question["transcript"] for question in QUESTIONS}) >= 20
    with logs_in(tmp_path) as logs:
        for file in sorted({shared_data / "transcripts" / question["transcript"] for question in QUESTIONS}):
            logs.ingest(file.stem, file)
        missed = [q for q in QUESTIONS if not is_found(logs, Path(q["transcript"]).stem, q)]
    assert len(missed) <= 0.15 * len(QUESTIONS), missed


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
def test_a_session_reads_as_a_conversation_with_what_was_run_folded(transcript, nugget):
    code, out, _ = nugget("sessions", "show", CLAUDE_ID[:8])
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines() if line.strip()]
    assert lines[3] == "outcome: not captured"
    assert lines[4:] == [
        "─── 1 " + "─" * 54, "You  10:00", "Why does the suite fail with [redacted:github-token]?", "Agent  10:01",
        "Let me run it.", "  $ pytest -q", "    failed with exit code 1", "    line two", "    E KeyError: 'total'",
        "    1 failed", "  * /srv/shop/sum.py (−1 +2 lines)", "  $ pytest -q", "    12 passed … 2 lines",
        "─── 2 " + "─" * 54, "You  10:08", "Thanks, that is the lighthouse", "Agent  10:09", "You are welcome.",
    ]  # fmt: skip
    assert "2 exchanges" in lines[1]
    unfolded = nugget("sessions", "show", f"session:{CLAUDE_ID}/a1#2", "--full").out
    assert "    line one" in unfolded and "    + c" in unfolded and SECRET not in unfolded
