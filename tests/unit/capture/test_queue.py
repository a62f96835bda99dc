"""The capture queue: every job in one state at every moment, nothing lost, nothing captured twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sessions import write_transcript

from nugget.capture import ledger, queue
from nugget.capture.queue import Job
from nugget.config import read_environment
from nugget.errors import GitError
from nugget.infra import files
from nugget.sources.sessions import find_sessions

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
Outcome = tuple[str | None, str | None]


def put(home: Path, session: str = "s", **more: object) -> None:
    job = {"version": 1, "queued": NOW.timestamp(), "session": session, "transcript": f"/x/{session}"}
    files.queue_job(home, job | more)


def states(home: Path) -> dict[str, int]:
    return {state: count for state, count in queue.overview(home)["queue"].items() if count}


def drain(home: Path, capture: Callable[[Job], Outcome], *, now: datetime = NOW) -> int:
    return len(queue.drain(home, capture, now=lambda: now))


def fails(job: Job) -> Outcome:
    raise GitError("the remote said no")


@pytest.mark.proves("QUEUE-STATES")
def test_jobs_end_done_skipped_or_failed_with_the_reason(home: Path) -> None:
    for name in ("good", "dull", "bad", "odd"):
        put(home, name)
    log: list[str] = []

    def capture(job: Job) -> Outcome:
        assert (home / "queue/running" / job.name).exists()
        if job.session == "bad":
            raise GitError("the remote said no")
        if job.session == "odd":
            raise RuntimeError("nobody\nforesaw this hunter2")
        return ("nugget/session-1", None) if job.session == "good" else (None, "nothing new")

    def redact(text: str) -> str:
        return text.replace("hunter2", "[redacted]")

    assert len(queue.drain(home, capture, now=lambda: NOW, log=log.append, redact=redact)) == 4
    assert states(home) == {"done": 1, "skipped": 1, "failed": 2}
    assert queue.jobs(home, "skipped")[0].reason == "nothing new"
    reasons = [job.reason for job in queue.jobs(home, "failed")]
    assert reasons == ["the remote said no", "unexpected RuntimeError: nobody foresaw this [redacted]"]
    assert len(log) == 1 and "Traceback" in log[0] and "hunter2" not in log[0]


@pytest.mark.proves("QUEUE-RETRY")
def test_failures_are_tried_again_each_time_later_until_left_to_a_person(home: Path) -> None:
    put(home)
    waits: list[float] = []
    now = NOW
    for _ in range(queue.MAX_ATTEMPTS):
        assert drain(home, fails, now=now) == 1
        (job,) = queue.jobs(home, "failed")
        if job.next_try is not None:
            waits.append(job.next_try - now.timestamp())
            queue.release(home, now=now)
            assert queue.jobs(home, "pending") == []
            now = datetime.fromtimestamp(job.next_try, UTC)
            queue.release(home, now=now)
    assert waits[:4] == [60, 120, 240, 480]
    assert max(waits) == queue.LAST_RETRY.total_seconds()
    assert queue.jobs(home, "failed")[0].next_try is None
    queue.release(home, now=now + timedelta(days=99))
    assert queue.jobs(home, "pending") == []
    queue.release(home, now=now, everything=True)
    assert queue.jobs(home, "pending")[0].attempts == 0


@pytest.mark.proves("QUEUE-RECOVERY")
def test_what_a_killed_worker_left_is_taken_up_and_a_deadly_job_put_off(home: Path) -> None:
    put(home)
    for attempt in range(1, queue.MAX_DEATHS + 1):
        job = queue.claim(home, NOW)
        assert job is not None and job.attempts == attempt
        queue.recover(home, now=NOW)
        assert states(home) == ({"pending": 1} if attempt < queue.MAX_DEATHS else {"failed": 1})
    (failed,) = queue.jobs(home, "failed")
    assert failed.reason == "the worker was killed while it worked on this session"
    assert failed.next_try is not None


@pytest.mark.proves("QUEUE-CATCH-UP")
def test_catch_up_finds_what_was_never_captured_and_nothing_else(home: Path, isolated_home: Path) -> None:
    folder = isolated_home / ".claude/projects/-srv"
    now = datetime.now(UTC)

    def transcript(name: str, *, minutes_old: float) -> Path:
        file = folder / f"{name}.jsonl"
        write_transcript(file, [("a", "b")], session=name)
        moment = now.timestamp() - minutes_old * 60
        os.utime(file, (moment, moment))
        return file

    never = transcript("never", minutes_old=60)
    transcript("running", minutes_old=1)
    transcript("ancient", minutes_old=60 * 24 * 40)
    captured, grown = (transcript(name, minutes_old=60) for name in ("captured", "grown"))
    waiting = transcript("waiting", minutes_old=60)
    (folder / "empty.jsonl").write_text("")
    for file, less in ((captured, 0), (grown, 10)):
        line = {"event": "captured", "transcript": str(file), "size": file.stat().st_size - less}
        files.append_line(home / "ledger" / ledger.CAPTURES, line)
    put(home, "waiting", transcript=str(waiting), queued=now.timestamp())
    environment = read_environment({"HOME": str(isolated_home)})
    found = queue.catch_up(home, find_sessions(environment), now=now, since=now - timedelta(days=30))
    assert sorted(found) == sorted([str(grown), str(never)])
    assert queue.catch_up(home, find_sessions(environment), now=now, since=now - timedelta(days=30)) == []
    assert queue.catch_up(home, find_sessions(environment), now=now, since=now - timedelta(days=30)) == []
