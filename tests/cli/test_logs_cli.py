"""`nugget logs` and `nugget shell-init`, as a person runs them; the hook in a real shell."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from logs import Logs, logs_in

from nugget import cli
from nugget.evidence import bundle_json

Run = Callable[..., "Done"]


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    with logs_in(tmp_path) as made:
        yield made


@dataclass
class Done:
    """What a command came to."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(logs: Logs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Commands as the command line runs them, without an embedding model."""
    monkeypatch.setenv("AISH_LOG_DIR", str(logs.folder))
    monkeypatch.setenv("NUGGET_HOME", str(logs.home))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")

    def started(*arguments: str) -> Done:
        code = cli.run(arguments)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return started


@pytest.mark.proves("EVI-CLI")
def test_ingest_context_and_sessions_say_what_the_functions_say(logs: Logs, run: Run) -> None:
    logs.walkthrough("s1")
    done = run("logs", "ingest", "s1", "--json")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["session_id"], counts["events"], counts["incidents"]) == ("s1", 4, 1)
    assert json.loads(run("logs", "ingest", "s1", "--json").stdout)["events"] == 0
    asked = run("logs", "context", "why", "did", "it", "fail", "--session", "s1", "--explain", "--json")
    bundle = logs.ask("s1", "why did it fail", explain=True)
    assert json.loads(asked.stdout) == json.loads(json.dumps(bundle_json(bundle, explain=True)))
    told = run("logs", "context", "why did it fail")
    assert told.stdout.rstrip("\n") == bundle.context_text
    (session,) = json.loads(run("sessions", "--all", "--json").stdout)["sessions"]
    assert (session["id"], session["commands"], session["open"]) == ("s1", 1, 1)
    assert "s1" in run("logs", "sessions").stdout and "1 open failure" in run("sessions", "--all").stdout
    explained = run("logs", "context", "why did it fail", "--explain").stdout
    assert "caps: incident 6" in explained and "pane_output" in explained


@pytest.mark.proves("EVI-CLI")
def test_what_cannot_be_done_is_told_in_one_sentence(logs: Logs, run: Run) -> None:
    for arguments, code, said in (
        (("ingest",), 2, "Name a session, or give --all."),
        (("ingest", "../x"), 2, "'../x' is not a session id."),
        (("ingest", "absent"), 1, "There are no logs of a session absent."),
        (("context", "why"), 1, "There are no logs of any session yet."),
        (("context", "why", "--session", "absent"), 1, "There are no logs of a session absent."),
        (("context", "why", "--last", "--workspace"), 2, "Give one of --session, --last and --workspace."),
        (("context", "why", "--intent", "other"), 2, "'other' is not one of"),
    ):
        done = run("logs", *arguments)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert done.stdout == ""


def work(logs: Logs, session: str, folder: Path, command: str, *, code: int = 0, stderr: str = "") -> None:
    logs.happen(session, 1000, "command.start", cmd=command, cwd=str(folder))
    logs.happen(session, 2000, "command.end", exit=code)
    if stderr:
        logs.write(session, "stderr.log", stderr + "\n")


@pytest.mark.proves("EVI-ACROSS")
def test_all_sessions_of_a_code_repository_are_asked_at_once_and_no_others(
    logs: Logs, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, blog = tmp_path / "shop", tmp_path / "blog"
    for folder in (shop, blog):
        folder.mkdir()
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    work(logs, "monday", shop, "make deploy", code=2, stderr="error: the registry refused the image")
    work(logs, "tuesday", shop, "npm test", code=1, stderr="error: payments.test.ts failed")
    work(logs, "other", blog, "hugo build", code=1, stderr="error: template is broken")
    monkeypatch.chdir(shop)
    done = run("logs", "context", "what went wrong with the deploy", "--workspace", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["session_id"] is None and "no_vectors" in shown["degraded"]
    assert shown["incidents"][0]["session_id"] == "monday"
    assert {one["session_id"] for one in shown["selected_evidence"]} == {"monday", "tuesday"}
    assert "hugo" not in shown["context_text"]
