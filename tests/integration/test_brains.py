"""Several brains: searched together, each hit with its brain, captures filed by rule, one that is broken left out."""

import json
import shutil
import time
from pathlib import Path

import pytest
from cli_stage import write_unit
from knowledge_files import commit
from mcp_wire import asked_over_mcp
from sessions import write_transcript
from worker_stage import LESSONS

from nugget.app.worker import work
from nugget.config import read_environment
from nugget.infra import files, git

QUESTION = "users still see old prices after we changed them, how do we refresh stored copies"
TEAM_UNIT = "decision/refresh-prices"
TEAM_TEXT = """# Refresh stored copies of prices by events

Users still saw old prices after we changed them. Stored copies are refreshed by an event for each changed price, not by
a timer, because a timer left old prices in front of users for an hour.
"""


@pytest.fixture
def brains(nugget, brain, tmp_path, monkeypatch, request):
    """The default brain, that of the tests, as `personal`; and a brain of a team, with a unit of its own."""
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", getattr(request, "param", "none"))
    team = tmp_path / "team-brain"
    assert nugget("init", team).code == 0
    (team / "domains/coding/decisions").mkdir(parents=True)
    write_unit(team, TEAM_UNIT, TEAM_TEXT)
    shutil.copytree(brain / "domains/management", team / "domains/management")
    commit(team, ["domains/management", "domains/coding/decisions/refresh-prices.md"], "Prices")
    assert nugget("init", brain).code == 0
    assert nugget("config", "set", "brains.folders", f"personal={brain}", f"team={team}").code == 0
    return brain, team


def branches(*folders: Path) -> list[int]:
    return [len(git.branches(folder, "nugget/")) for folder in folders]


@pytest.mark.proves("BRAINS-SEARCH")
@pytest.mark.parametrize("brains", ["all-MiniLM-L6-v2"], indirect=True)
def test_all_brains_answer_each_hit_with_its_brain_and_with_the_score_it_has_alone(nugget, brains):
    _, team = brains
    found = nugget("ask", QUESTION, "--json", "--budget", "20000").json
    hits = {(hit["brain"], hit["id"]): hit["score"] for hit in found["hits"]}
    assert ("team", TEAM_UNIT) in hits and ("personal", "concept/cache-invalidation") in hits
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True) and found["degraded"] == ["no_llm"]
    alone = nugget("ask", QUESTION, "--json", "--brain", team).json["hits"]
    assert alone[0]["id"] == TEAM_UNIT and "brain" not in alone[0]
    assert alone[0]["score"] == hits["team", TEAM_UNIT]
    assert "team · decision · coding" in nugget("ask", QUESTION).out
    assert nugget("get", TEAM_UNIT).out.startswith("Refresh stored copies")
    answer = asked_over_mcp(task_description=QUESTION)["content"][0]["text"]
    assert TEAM_UNIT in answer and "brain team · decision" in answer
    (team / "domains/coding/decisions/refresh-prices.md").unlink()
    assert TEAM_UNIT not in {hit["id"] for hit in nugget("ask", QUESTION, "--json").json["hits"]}


@pytest.mark.proves("BRAINS-LEFT-OUT")
@pytest.mark.parametrize("fault", ["gone", "untrusted", "blocked"])
def test_a_brain_that_cannot_be_used_is_named_and_never_stops_the_others(fault, nugget, brains):
    _, team = brains
    if fault == "gone":
        shutil.rmtree(team)
        said = "There is no brain in"
    elif fault == "untrusted":
        assert nugget("trust", "--remove", team).code == 0
        said = f"is not trusted; run `nugget trust {team}`"
    else:
        shutil.rmtree(team / ".nugget", ignore_errors=True)
        (team / ".nugget/index.db").mkdir(parents=True)
        said = "team: "
    shown = nugget("ask", QUESTION, "--json")
    assert shown.code == 0 and "concept/cache-invalidation" in {hit["id"] for hit in shown.json["hits"]}
    (reason,) = [one for one in shown.json["degraded"] if one.startswith("brain_left_out: team: ")]
    assert said in reason
    assert "a brain was not searched (team: " in nugget("search", QUESTION).out
    assert nugget("status").code == nugget("review").code == 0
    assert nugget("recall", QUESTION).code == 0


@pytest.mark.proves("BRAINS-CAPTURE")
def test_sessions_are_captured_into_the_brain_whose_rule_matches_else_into_the_default(nugget, brains, home, tmp_path):
    personal, team = brains
    assert nugget("config", "set", "brains.captures", *["team=github.com/acme/*", f"team={tmp_path}/work/*"]).code == 0
    shop = tmp_path / "shop"
    shop.mkdir()
    git.init(shop)
    git.run(shop, "remote", "add", "origin", "git@github.com:Acme/shop.git")
    places = {"remote": shop, "path": tmp_path / "work/deep/er", "other": tmp_path / "elsewhere"}
    lessons = [LESSONS[:1], LESSONS[1:], LESSONS]
    for (name, folder), turns in zip(places.items(), lessons, strict=True):
        transcript = tmp_path / f"{name}.jsonl"
        session = write_transcript(transcript, turns, cwd=str(folder))
        job = {"queued": time.time(), "session": session, "transcript": str(transcript)}
        files.queue_job(home, job | ({"cwd": str(folder)} if name == "remote" else {}))
    assert {job.state for job in work(read_environment())[1]} == {"done"}
    assert branches(personal, team) == [1, 2]
    assert nugget("trust", "--remove", team).code == 0
    session = write_transcript(tmp_path / "late.jsonl", LESSONS, cwd=str(shop))
    files.queue_job(home, {"queued": time.time(), "session": session, "transcript": str(tmp_path / "late.jsonl")})
    _, (job,), _ = work(read_environment())
    assert job.state == "failed" and "is not trusted" in str(job.reason) and branches(personal, team) == [1, 2]


@pytest.mark.proves("BRAINS-REVIEW")
def test_review_status_and_recall_handle_all_brains(nugget, brains, home, tmp_path):
    personal, team = brains
    for name, folder in (("personal", personal), ("team", team)):
        transcript = tmp_path / f"{name}.jsonl"
        write_transcript(transcript, LESSONS[:1] if name == "team" else LESSONS[1:])
        assert nugget("capture-session", "--transcript", transcript, "--brain", folder).code == 0
    waiting = {one["brain"]: one["branch"] for one in nugget("review", "--json").json}
    assert waiting.keys() == {"personal", "team"} and f"{waiting['team']}  team" in nugget("review").out
    assert [one["branch"] for one in nugget("review", "--brain", team, "--json").json] == [waiting["team"]]
    refused = nugget("review", "accept")
    assert refused.code == 1 and "several brains (personal, team)" in refused.err and "--brain" in refused.err
    status = nugget("status", "--json").json
    assert status["brain"] == str(personal) and status["others"]["team"]["proposals"] == 1
    assert "team: review" in nugget("doctor").out
    assert nugget("review", "accept", waiting["team"]).code == 0
    assert json.loads((home / "queue/review.json").read_text())[str(personal)][0] == 1
    recalled = nugget("recall", "are stored copies of prices refreshed by a timer or by an event for each price").out
    assert TEAM_UNIT in recalled and "brain team" in recalled
    assert nugget("review", "reject").code == 0 and nugget("review", "--json").json == []


@pytest.mark.proves("INIT-INDEXES")
def test_init_and_install_index_the_brain_so_that_no_session_waits(nugget, brain):
    index = brain / ".nugget/index.db"
    assert nugget("init", brain).code == 0 and index.is_file()
    index.unlink()
    assert nugget("install", "codex").code == 0 and index.is_file()
