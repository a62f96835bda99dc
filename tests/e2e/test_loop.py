"""The loop closes by itself: a session, a pull request, its merge, and the next session knows it."""

import json
import os
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import commands
import pytest
from mcp_wire import RUN, asked_over_mcp
from paths import REPOSITORY
from publishing_stage import LOCKS, RETRY, Place
from sessions import write_transcript
from waiting import wait_for
from worker_stage import LESSONS, variables

from nugget.app.worker import work
from nugget.capture import queue, review
from nugget.hooks import NOTICE
from nugget.index.embedded import Index
from nugget.infra import files, git
from nugget.text import estimate_tokens

QUESTION = "why was a customer charged twice when a payment was retried"
FAILING = ("Bash", {"command": "pytest tests/test_pay.py"}, "FAILED tests/test_pay.py::test_refund\n1 failed", True)
PASSING = ("Bash", {"command": "pytest tests/test_pay.py"}, "3 passed", False)


@pytest.fixture
def shop(place: Place) -> Path:
    folder = place.folder / "shop"
    folder.mkdir()
    git.init(folder)
    git.run(folder, "remote", "add", "origin", "https://github.com/acme/shop.git")
    return folder


def hook(place: Place, shop: Path, event: str, *flags: str, **payload: str) -> dict[str, Any]:
    """What the client is told by the hook of an event, once the worker that it started is done."""
    said = {"session_id": "next", "cwd": str(shop), "hook_event_name": event, **payload}
    done = commands.hook(said, *flags, **variables(Path.home()))
    wait_for(lambda: not queue.jobs(place.home, "pending") and not queue.is_working(place.home))
    return json.loads(done.stdout) if done.stdout else {}


def briefed(place: Place, shop: Path, *flags: str) -> str:
    """The brief of a session's start."""
    return str(hook(place, shop, "SessionStart", *flags)["hookSpecificOutput"]["additionalContext"])


def five_minutes_pass(place: Place) -> None:
    for stamp in [*place.home.rglob("*follow.stamp")]:
        os.utime(stamp, (time.time() - 301, time.time() - 301))


@pytest.mark.proves("LOOP-CLOSES", "PUBLISH-END-TO-END", "WORKER-END-TO-END")
def test_what_a_session_taught_and_a_reviewer_merged_is_known_to_the_next_session(place, shop, monkeypatch):
    """No patching: hook, worker, git server, REST server, the next session's hook, MCP and ask, each a process."""
    transcript = place.folder / "projects" / "s.jsonl"
    session = write_transcript(transcript, [(*LESSONS[0], FAILING, PASSING), LESSONS[1]], cwd=str(shop))
    hook(place, shop, "SessionEnd", session_id=session, transcript_path=str(transcript))
    assert queue.jobs(place.home, "failed") == []
    ((pull,), (proposal,)) = place.server.pulls, review.proposals(place.brain)
    assert (pull.branch, pull.title, pull.body) == (proposal.branch, proposal.title, proposal.body)
    assert sorted(place.server.files_of(1)) == sorted(file.path for file in proposal.files)
    five_minutes_pass(place)
    started = hook(place, shop, "SessionStart", source="startup")
    assert started == {"systemMessage": f"{NOTICE} · 1 proposal waits"}, "no brief before anything was reviewed"
    place.server.merge(1, squash=True, delete=True)
    five_minutes_pass(place)
    hook(place, shop, "SessionStart", source="startup")
    monkeypatch.chdir(shop)
    assert "idempotency key" in asked_over_mcp(task_description=QUESTION)["content"][0]["text"]
    answer = subprocess.run([*RUN, "ask", QUESTION, "--no-llm"], env=variables(Path.home()), capture_output=True)
    assert b"idempotency key" in answer.stdout
    assert git.head(place.brain) == place.server.head("main") and git.branches(place.brain, "nugget/") == []
    started = hook(place, shop, "SessionStart", source="startup")
    assert started["systemMessage"] == f"{NOTICE} · 1 merged"
    brief = briefed(place, shop)
    assert "Reviewed, from work on this code" in brief and estimate_tokens(brief) <= 150
    assert "no fix yet" not in briefed(place, shop, "--brief"), "the failure of the session was fixed in it"


def known_ids(place: Place) -> set[str]:
    """What the index of the brain holds, without anything being brought in line."""
    with closing(Index(place.brain / ".nugget" / "index.db")) as index:
        return set(index.unit_ids())


DOORS = {
    "add": ("pattern/keep-this", lambda place, nugget: nugget("add", "# Keep this\n\nSome words to keep.")),
    "accept": ("pattern/retry-once", lambda place, nugget: nugget("review", "accept")),
    "merge": (
        "pattern/retry-once",
        lambda place, nugget: (place.publish(), place.server.merge(1), nugget("capture"))[2],
    ),
    "sync": ("pattern/theirs", lambda place, nugget: (place.server.commit("main", THEIRS), nugget("sync"))[1]),
}  # fmt: skip
THEIRS = {
    "domains/coding/patterns/theirs.md": "---\nid: pattern/theirs\ntype: pattern\ndomain: coding\nconfidence: 0.8\n"
    "source: manual\ncreated: 2026-01-01\nlast_modified: 2026-01-01\n---\n# Theirs\n\nWhat a colleague wrote.\n"
}


@pytest.mark.proves("FRESH-AT-ONCE")
@pytest.mark.parametrize("door", DOORS)
def test_whatever_changes_knowledge_leaves_the_index_current(door, place, nugget):
    assert nugget("add", "# First one\n\nThe first words.", "--domain", "coding").code == 0
    assert nugget("sync", "--rebase").code == 0
    if door != "sync":
        place.propose(RETRY)
    expected, change = DOORS[door]
    done = change(place, nugget)
    assert done.code == 0, done.err
    assert expected in known_ids(place)
    assert nugget("forget", expected).code == 0 and expected not in known_ids(place)


@pytest.mark.proves("CAPTURE-HEADLESS")
def test_headless_runs_can_be_left_out(place, monkeypatch):
    for name, entrypoint in (("person", "cli"), ("script", "sdk-cli")):
        file = place.folder / f"{name}.jsonl"
        write_transcript(file, LESSONS[:1] if name == "person" else LESSONS[1:], entrypoint=entrypoint)
        files.queue_job(place.home, {"queued": time.time(), "session": name, "transcript": str(file)})
    monkeypatch.setenv("NUGGET_CAPTURE_HEADLESS", "false")
    done = {job.session: (job.state, job.reason) for job in work(place.environment)[1]}
    assert done["person"][0] == "done" and done["script"] == ("skipped", "a headless run (capture.headless)")


@pytest.mark.proves("HOOK-WAITS")
def test_the_start_line_and_the_status_line_count_what_waits(place, shop, nugget):
    place.propose(RETRY)
    place.propose(LOCKS, name="t")
    assert nugget("add", "# Some note\n\nSome words.").code == 0
    assert hook(place, shop, "SessionStart")["systemMessage"] == f"{NOTICE} · 2 proposals wait"
    page = (REPOSITORY / "docs" / "briefing.md").read_text("utf-8")
    line = json.loads(page.partition("```json\n")[2].partition("```")[0])["statusLine"]["command"]
    command = line.replace("~/.nugget", str(place.home))
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout.strip() == b"nugget: 2 waiting"
