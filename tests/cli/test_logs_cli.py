"""`nugget logs` and `nugget shell-init`, as a person runs them; the hook in a real shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from logs import NOW, Logs, logs_in

from nugget import cli
from nugget.config import Settings
from nugget.evidence import BundleOptions, bundle_json, put_evidence_units, workspace_bundle
from nugget.index import read_home
from nugget.index.embed import embed_missing
from nugget.infra.embedding import open_embedder
from nugget.infra.files import resource

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
    (session,) = json.loads(run("logs", "sessions", "--json").stdout)["sessions"]
    assert (session["session_id"], session["commands"], session["open"]) == ("s1", 1, 1)
    assert "s1" in run("logs", "sessions").stdout
    explained = run("logs", "context", "why did it fail", "--explain").stdout
    assert "caps: incident 6" in explained and "pane_output" in explained


@pytest.mark.proves("EVI-CLI")
def test_options_reach_the_bundle(logs: Logs, run: Run) -> None:
    logs.walkthrough("s1")
    shown = json.loads(run("logs", "context", "what failed", "--last", "--intent", "status", "--json").stdout)
    assert shown["intent"] == "status"
    shown = json.loads(run("logs", "context", "what failed", "--max-chars", "180", "--no-artifacts", "--json").stdout)
    assert len(shown["context_text"]) <= 180 and shown["artifacts"] == []


@pytest.mark.proves("EVI-CLI")
def test_what_cannot_be_done_is_told_in_one_sentence(logs: Logs, run: Run) -> None:
    for arguments, code, said in (
        (("ingest",), 2, "Name a session, or give --all."),
        (("ingest", "../x"), 2, "'../x' is not a session id."),
        (("ingest", "absent"), 1, "There are no logs of a session absent."),
        (("context", "why"), 1, "There are no logs of any session yet."),
        (("context", "why", "--session", "absent"), 1, "Nothing is known of a session 'absent'."),
        (("context", "why", "--last", "--workspace"), 2, "Give one of --session, --last and --workspace."),
        (("context", "why", "--intent", "other"), 2, "'other' is not one of"),
    ):
        done = run("logs", *arguments)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert done.stdout == ""


@pytest.mark.proves("EVI-CLI")
def test_one_session_that_cannot_be_read_stops_no_other(logs: Logs, run: Run, isolated_home: Path) -> None:
    logs.walkthrough("s1")
    project = isolated_home / ".claude" / "projects" / "p"
    project.mkdir(parents=True)
    (project / "broken.jsonl").write_text("no transcript\n")
    done = run("logs", "ingest", "--all", "--json")
    shown = json.loads(done.stdout)
    assert [one["session_id"] for one in shown["sessions"]] == ["s1"]
    assert len(shown["problems"]) == 1 and "broken.jsonl" in shown["problems"][0]


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


@pytest.mark.proves("EVI-ACROSS")
def test_incidents_of_other_sessions_are_found_by_meaning(logs: Logs, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    work(
        logs, "old", folder, "psql -c 'select 1'", code=2, stderr="FATAL: password authentication refused for user app"
    )
    for number in range(30):
        work(logs, f"new{number}", folder, f"make part{number}", code=1, stderr=f"error: part{number} has no rule")
    for session in ["old", *(f"new{number}" for number in range(30))]:
        logs.ingest(session)
    settings, environment = Settings(), logs.environment
    embedder = open_embedder(settings, read_models(environment))
    assert put_evidence_units(logs.index) == 31 and put_evidence_units(logs.index) == 0
    assert embedder is not None
    embed_missing(logs.index, embedder=embedder, cache_folder=tmp_path / "embeddings")
    workspace = logs.index.execute("SELECT workspace FROM log_sessions").fetchone()[0]
    index = read_home(logs.home)
    asked = "cannot log in to the database"
    found = workspace_bundle(index, asked, workspace=workspace, options=BundleOptions(), embedder=embedder, now=NOW)
    index.close()
    assert found.incidents[0].session == "old" and "near in meaning" in found.incidents[0].reasons
    assert not found.degraded


def read_models(environment: Any) -> Any:
    """The environment with the embedding model that tests share."""

    return replace(environment, models=Path(os.environ["NUGGET_MODELS"]))


@pytest.mark.proves("EVI-HOOK")
def test_shell_init_prints_and_does_nothing_else(logs: Logs, run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        done = run("shell-init", shell)
        assert done.returncode == 0 and done.stdout == resource(f"shell_hooks/nugget.{shell}").read_text("utf-8")
        if program := shutil.which(shell):
            subprocess.run([program, "-n"], input=done.stdout, text=True, check=True, timeout=120)
    assert not logs.folder.exists()
    assert run("shell-init", "tcsh").returncode == 2
