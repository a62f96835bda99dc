"""`nugget logs` and `nugget shell-init`, as a person runs them; the hook in a real shell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import Nugget
from logs import Logs

from nugget.evidence import bundle_json


@pytest.fixture
def logged(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> Logs:
    """The logs that commands read, without an embedding model."""
    monkeypatch.setenv("AISH_LOG_DIR", str(logs.folder))
    monkeypatch.setenv("NUGGET_HOME", str(logs.home))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    return logs


@pytest.mark.proves("EVI-CLI")
def test_ingest_context_and_sessions_say_what_the_functions_say(logged: Logs, nugget: Nugget) -> None:
    logged.walkthrough("s1")
    counts = nugget("logs", "ingest", "s1", "--json").json
    assert (counts["session_id"], counts["events"], counts["incidents"]) == ("s1", 4, 1)
    assert nugget("logs", "ingest", "s1", "--json").json["events"] == 0
    asked = nugget("logs", "context", "why", "did", "it", "fail", "--session", "s1", "--explain", "--json")
    bundle = logged.ask("s1", "why did it fail", explain=True)
    assert asked.json == json.loads(json.dumps(bundle_json(bundle, explain=True)))
    assert nugget("logs", "context", "why", "--session", "absent").err.startswith("Error: There are no logs")
    told = nugget("logs", "context", "why did it fail")
    assert told.out.rstrip("\n") == bundle.context_text
    assert "s1" in nugget("logs", "sessions").out and "1 open failure" in nugget("sessions", "--all").out


def work(logs: Logs, session: str, folder: Path, command: str, *, code: int = 0, stderr: str = "") -> None:
    logs.happen(session, 1000, "command.start", cmd=command, cwd=str(folder))
    logs.happen(session, 2000, "command.end", exit=code)
    if stderr:
        logs.write(session, "stderr.log", stderr + "\n")


@pytest.mark.proves("EVI-ACROSS")
def test_all_sessions_of_a_code_repository_are_asked_at_once_and_no_others(
    logged: Logs, nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, blog = tmp_path / "shop", tmp_path / "blog"
    for folder in (shop, blog):
        folder.mkdir()
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    work(logged, "monday", shop, "make deploy", code=2, stderr="error: the registry refused the image")
    work(logged, "tuesday", shop, "npm test", code=1, stderr="error: payments.test.ts failed")
    work(logged, "other", blog, "hugo build", code=1, stderr="error: template is broken")
    monkeypatch.chdir(shop)
    done = nugget("logs", "context", "what went wrong with the deploy", "--workspace", "--json")
    assert done.code == 0, done.err
    shown = done.json
    assert shown["session_id"] is None and "no_vectors" in shown["degraded"]
    assert shown["incidents"][0]["session_id"] == "monday"
    assert {one["session_id"] for one in shown["selected_evidence"]} == {"monday", "tuesday"}
    assert "hugo" not in shown["context_text"]
