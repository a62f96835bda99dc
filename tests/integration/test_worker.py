"""The worker as a real process: from a payload to a proposal, through crashes, exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import reviewing
from sessions import NOW, write_transcript
from waiting import PATIENCE_S, wait_for
from worker_stage import lay_out, variables

import nugget
from nugget.capture import queue, review
from nugget.infra import files, git


@pytest.mark.proves("WORKER-END-TO-END")
def test_from_a_payload_on_stdin_to_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No patching: the hook's process, the worker's process, review, sync and ask."""
    lay_out(tmp_path)
    home, brain = tmp_path / ".nugget", tmp_path / "brain"
    for file in (home / "queue/pending").iterdir():
        file.unlink()
    monkeypatch.setenv("NUGGET_HOME", str(home))
    transcript = next((tmp_path / ".claude/projects").glob("*/*.jsonl"))
    payload = {"session_id": "s", "transcript_path": str(transcript), "hook_event_name": "SessionEnd"}
    command = [sys.executable, "-P", "-m", "nugget", "capture-session"]
    environment = variables(tmp_path, NUGGET_BRAIN=str(brain))
    subprocess.run(command, input=json.dumps(payload), env=environment, text=True, check=True, timeout=PATIENCE_S)
    wait_for(lambda: queue.jobs(home, "done") or queue.jobs(home, "failed"))
    assert queue.jobs(home, "failed") == []
    wait_for(lambda: not queue.is_working(home))
    (proposal,) = review.proposals(brain)
    reviewing.accept(brain, now=NOW)
    with nugget.open(brain) as opened:
        bundle = opened.ask("why was a customer charged twice by a payment retry")
    assert bundle.hits[0].unit.id in {file.id for file in proposal.files}
    assert "idempotency" in bundle.hits[0].unit.body
    subprocess.run(command, input=json.dumps(payload), env=environment, text=True, check=True, timeout=PATIENCE_S)
    wait_for(lambda: queue.jobs(home, "skipped"))
    assert queue.jobs(home, "skipped")[0].reason == "nothing new since it was captured"
    assert review.proposals(brain) == []


RULES = """
Never swallow an exception in a callback of the scheduler.
Always convert timestamps to UTC before they reach the parser.
Never put a customer's address into the key of a cache.
Always close the upload stream before the temporary file is renamed.
Never send an e-mail from inside a database transaction.
Always escape wildcards in what a visitor searches for.
Never compare prices as floating point numbers.
Always pin the version of the container image by its digest.
Never write passwords to the audit trail.
Always rotate the signing certificate a week before it expires.
Never block the event loop with a synchronous DNS lookup.
Always measure latency at the proxy, not in the browser.
Never delete a tenant without a snapshot of its bucket.
Always sort translations by locale when you export them.
Never trust the content type that a webhook claims.
Always run the thumbnail worker with a memory limit.
Never cache the answer of the currency exchange for longer than an hour.
Always name feature flags after the ticket that removes them.
Never spawn more threads than the invoice printer has slots.
""".strip().splitlines()


@pytest.mark.proves("WORKER-MANY-AT-ONCE")
def test_twenty_sessions_that_end_in_the_same_second_are_each_captured_once(tmp_path: Path) -> None:
    lay_out(tmp_path)
    home, brain = tmp_path / ".nugget", tmp_path / "brain"
    for number, rule in enumerate(RULES):
        transcript = tmp_path / f".claude/projects/-srv-shop/{number}.jsonl"
        session = write_transcript(transcript, [(f"Repair what I reported. {rule}", "Done, all checks pass.")])
        files.queue_job(home, {"queued": time.time(), "session": session, "transcript": str(transcript)})
    command = [sys.executable, "-P", "-m", "nugget.app.worker"]
    environment = variables(tmp_path, NUGGET_HOME=str(home), NUGGET_BRAIN=str(brain))
    workers = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [worker.wait(timeout=600) for worker in workers] == [0, 0, 0]
    wait_for(lambda: not queue.jobs(home, "pending") and not queue.is_working(home))
    assert queue.overview(home)["queue"]["done"] == 20, queue.jobs(home, "skipped") + queue.jobs(home, "failed")
    assert len(review.proposals(brain)) == 20
    paths = [path for _, path, _ in git.unmerged_files(brain, "nugget/")]
    assert len(paths) == len(set(paths))
