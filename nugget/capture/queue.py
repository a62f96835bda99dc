"""The capture queue: one JSON file per job in `$NUGGET_HOME/queue/<state>/`, moved between states by rename.

pending -> running -> done | skipped | failed -> pending again for a retry. A job is in exactly one state at any time,
even if a process is killed. The queue's lock shows whether a worker is alive; jobs that are `running` without one are
put back.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints

from nugget.capture import ledger
from nugget.errors import NuggetError, TranscriptError
from nugget.infra import files, system
from nugget.models import SessionFile
from nugget.redaction import redact
from nugget.sources import split_locator

JOB_STATES = ("pending", "running", "failed", "done", "skipped")
MAX_ATTEMPTS = 13
"""Number of attempts, over about a day, after which a job waits for `nugget capture --retry`."""
MAX_DEATHS = 3
"""Number of deaths of the worker after which a job counts as failed."""
FIRST_RETRY = timedelta(minutes=1)
LAST_RETRY = timedelta(hours=6)
KEPT = timedelta(days=30)
"""How long done and skipped jobs are kept."""
PAUSES = "pauses.jsonl"
"""When capture was paused and resumed, for all sessions or one."""
QUIET = timedelta(minutes=10)
"""A transcript that changed this recently may belong to a running session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One session to capture. `attempts` counts starts; `next_try` is when a failed job is due again."""

    name: str
    state: str
    transcript: str | None = None
    session: str | None = None
    cwd: str | None = None
    brain: str | None = None
    queued: int | float = 0.0
    attempts: int = 0
    next_try: int | float | None = None
    reason: str | None = None
    branch: str | None = None


_FIELDS = {name: kind for name, kind in get_type_hints(Job).items() if name not in ("name", "state")}
"""The fields of a job that are stored in its file."""


def jobs(home: Path, state: str) -> list[Job]:
    """Return the jobs in a state, oldest first; files that cannot be read now are skipped.

    A file that is not a job becomes a job whose reason says so.
    """
    return list(filter(None, map(_read, _files(home, state))))


def add(home: Path, *, now: datetime, **job: object) -> None:
    """Add a session to the queue, with these fields of its job."""
    files.queue_job(home, {"queued": now.timestamp(), **job})


def count(home: Path) -> dict[str, int]:
    """Return the number of jobs in each state."""
    return {state: len(_files(home, state)) for state in JOB_STATES}


def claim(home: Path, now: datetime) -> Job | None:
    """Move the oldest pending job to `running`, count the attempt, and return the job."""
    for job in filter(None, map(_read, _files(home, "pending"))):  # only as far as needed: thousands may wait
        if (moved := _move(home, job, "running")) is not None:
            return _rewrite(home, replace(moved, attempts=moved.attempts + 1, next_try=None))
    return None


def finish(home: Path, job: Job, *, branch: str | None, skipped: str | None) -> Job:
    """Move a running job to `done`, or to `skipped` with the reason."""
    ended = _rewrite(home, replace(job, reason=skipped, branch=branch))
    return _move(home, ended, "skipped" if skipped else "done") or ended


def fail(home: Path, job: Job, reason: str, *, now: datetime) -> Job:
    """Postpone a failed job, each time twice as long, up to MAX_ATTEMPTS."""
    wait = min(FIRST_RETRY * 2 ** min(job.attempts - 1, 20), LAST_RETRY)
    due = (now + wait).timestamp() if job.attempts < MAX_ATTEMPTS else None
    ended = _rewrite(home, replace(job, reason=reason, next_try=due))
    return _move(home, ended, "failed") or ended


def recover(home: Path, *, now: datetime) -> None:
    """Put back the jobs of a killed worker. The caller holds the queue's lock."""
    for job in jobs(home, "running"):
        if job.attempts >= MAX_DEATHS:
            fail(home, job, "the worker was killed while it worked on this session", now=now)
        else:
            _move(home, job, "pending")


def release(home: Path, *, now: datetime, everything: bool = False) -> None:
    """Make failed jobs that are due pending again, or (`everything`) all of them with a count of 0."""
    for job in jobs(home, "failed"):
        if everything or (job.next_try is not None and job.next_try <= now.timestamp()):
            fresh = replace(job, attempts=0 if everything else job.attempts, next_try=None)
            _move(home, _rewrite(home, fresh), "pending")


def prune(home: Path, *, now: datetime) -> None:
    """Delete old done and skipped jobs, and leftovers of interrupted writes."""
    for state in JOB_STATES:
        with suppress(FileNotFoundError):
            for entry in (home / "queue" / state).iterdir():
                age = now.timestamp() - entry.stat().st_mtime
                is_old = state in ("done", "skipped") and age > KEPT.total_seconds()
                if is_old or (entry.name.startswith(".") and age > 3600):
                    entry.unlink(missing_ok=True)


def catch_up(home: Path, sessions: Iterable[SessionFile], *, now: datetime, since: datetime | None = None) -> list[str]:
    """Queue sessions that were never captured or grew since; return their locators.

    Skips sessions that are queued already, changed within `QUIET`, or are older than `since`.
    """
    known = ledger.captured_sizes(home)
    queued = {job.transcript for state in ("pending", "running", "failed") for job in jobs(home, state)}
    settled = {job.transcript: job.queued for state in ("done", "skipped") for job in jobs(home, state)}
    oldest, newest = since.timestamp() if since else 0.0, (now - QUIET).timestamp()
    found = [
        file for file in sessions
        if file.size and oldest <= file.mtime <= newest and file.locator not in queued
        and not is_paused(home, file.id, file.mtime)
        and known.get(file.locator, -1) < file.size and settled.get(file.locator, 0.0) < file.mtime
    ]  # fmt: skip
    for file in found:
        add(home, now=now, transcript=file.locator, session=file.id)
    return [file.locator for file in found]


def is_paused(home: Path, session: str | None, moment: float) -> bool:
    """Return True if capture was paused at this time, for all sessions or for this one."""
    states: dict[str | None, bool] = {}
    for line in files.read_lines(home / PAUSES):
        if line.get("session") or float(line.get("time") or 0) <= moment:
            states[line.get("session")] = bool(line.get("paused"))
    return states.get(None, False) or (session is not None and states.get(session, False))


def drain(
    home: Path,
    capture: Callable[[Job], tuple[str | None, str | None]],
    *,
    now: Callable[[], datetime],
    report: Callable[[Job, int], None] = lambda job, left: None,
    log: Callable[[str], None] = lambda text: None,
) -> list[Job]:
    """Process pending jobs until none is left; return the finished jobs.

    `capture` returns the branch of a job's proposal, or why there is none; `report` gets each job and how many wait.
    Messages of unexpected errors may quote a session, so they are redacted. A job's failure never stops the rest. The
    caller holds the queue's lock.
    """
    done: list[Job] = []
    while (job := claim(home, now())) is not None:
        try:
            is_job = job.transcript or job.session or not job.reason
            branch, skipped = capture(job) if is_job else (None, job.reason)
            ended = finish(home, job, branch=branch, skipped=skipped)
        except Exception as error:
            is_gone = not (job.transcript and split_locator(Path(job.transcript))[0].exists())
            if isinstance(error, TranscriptError) and is_gone:
                ended = finish(home, job, branch=None, skipped=f"there is no transcript ({error})")
            elif isinstance(error, NuggetError | OSError):
                ended = fail(home, job, str(error), now=now())
            else:
                log(f"{job.name}: {redact(traceback.format_exc()).text}")
                reason = " ".join(redact(f"unexpected {type(error).__name__}: {error}").text.split())[:500]
                ended = fail(home, job, reason, now=now())
        except BaseException:
            # Interrupted by a person or a signal: not the job's fault, so it waits for the next worker.
            _move(home, _rewrite(home, replace(job, attempts=job.attempts - 1)), "pending")
            raise
        report(ended, len(_files(home, "pending")))
        done.append(ended)
    return done


def overview(home: Path) -> dict[str, Any]:
    """Return the queue for `nugget status`: counts by state, failed jobs with reasons, and the last capture."""
    lines = files.read_lines(home / "ledger" / ledger.CAPTURES)
    captured = [str(line.get("time")) for line in lines if line.get("event") == "captured"]
    failures = []
    for job in jobs(home, "failed"):
        again = f" (tried again {datetime.fromtimestamp(job.next_try):%Y-%m-%d %H:%M})" if job.next_try else ""
        failures.append(f"{job.session or job.transcript or job.name}: {job.reason or 'unknown'}{again}")
    last = captured[-1] if captured else None
    known = {"queue": count(home), "working": is_working(home), "last_captured": last, "failures": failures}
    return known | {"paused": is_paused(home, None, datetime.now(UTC).timestamp())}


def is_working(home: Path) -> bool:
    """Return True if a worker holds the queue. Tries the lock only if it names a live process.

    Testing a lock holds it for a moment, and a hook at that moment would not start a worker.
    """
    file, process = home / "queue" / "worker.lock", 0
    with suppress(OSError, ValueError):
        process = int(file.read_bytes())
    if process <= 0 or not system.is_running(process):
        return False
    lock = files.try_lock(file)
    if lock is not None:
        os.close(lock)
    return lock is None


def _files(home: Path, state: str) -> list[Path]:
    return sorted(file for file in (home / "queue" / state).glob("*.json") if not file.name.startswith("."))


def _read(file: Path) -> Job | None:
    name, state = file.name, file.parent.name
    try:
        loaded = json.loads(file.read_bytes())
        if not isinstance(loaded, dict):
            raise ValueError("it holds no object")
    except OSError:
        return None
    except ValueError as error:
        return Job(name=name, state=state, reason=f"the queue file {name} cannot be read ({error})")
    given: dict[str, Any] = {key: loaded[key] for key in _FIELDS.keys() & loaded.keys()}
    known = {key: value for key, value in given.items() if isinstance(value, _FIELDS[key])}
    return Job(name=name, state=state, **known)


def _rewrite(home: Path, job: Job) -> Job:
    """Rewrite a job in place; its state does not change."""
    known = {name: value for name in _FIELDS if (value := getattr(job, name)) is not None}
    files.replace(home / "queue" / job.state / job.name, json.dumps(known).encode())
    return job


def _move(home: Path, job: Job, state: str) -> Job | None:
    """Move a job to a state; return None if another process has moved it."""
    queue = home / "queue"
    files.private_folder(queue / state)
    try:
        (queue / job.state / job.name).rename(queue / state / job.name)
    except FileNotFoundError:
        return None
    # Not synced to disk: after a power cut the job is in its former state, and is processed again.
    return replace(job, state=state)
