"""The capture worker: turn queued sessions into proposals. The hook, `nugget capture` and `nugget watch` start it.

One worker holds the queue's lock and exits when the queue is empty. Its log holds no text of sessions.
"""

from __future__ import annotations

import os
import plistlib
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from nugget.app import Brain, brains
from nugget.app.team import send_session
from nugget.app.writing import proposal_target
from nugget.capture import CaptureResult, Extract, capture_transcript, queue, read_redacted
from nugget.capture import publish as publishing
from nugget.capture.compare import ProposalTarget, compare, known_brain
from nugget.capture.publish import Published
from nugget.capture.queue import Job
from nugget.config import Environment, config_home, load_settings, read_environment, user_home
from nugget.errors import NuggetError, TranscriptError
from nugget.evaluation.query_log import note_uses
from nugget.extraction import extract
from nugget.extraction.offline import explain
from nugget.infra import files, system
from nugget.infra.llm import open_extractor
from nugget.models import Session
from nugget.models.sessions import said_how
from nugget.provenance.extraction import extract_captured
from nugget.redaction import redact
from nugget.sources.sessions import archive_file, erased_sessions, find_session_by_id, find_sessions
from nugget.text import one_line, shorten
from nugget.upkeep import default_brain, find_brain
from nugget.upkeep.client_settings import read_text, write_text

MAX_JOB_S = 1800
MAX_MEMORY_BYTES = 2 * 1024**3
MAX_LOG_BYTES = 2_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a detached worker: `python -m nugget.app.worker [--catch-up]`. Return 0; failures are kept in the queue."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    environment = read_environment()
    # Beyond the memory limit, a job fails with MemoryError instead of slowing down the machine.
    system.leave_session(MAX_MEMORY_BYTES)
    with suppress(OSError):
        os.chdir(environment.home)
    lock: int | None = None
    with suppress(ValueError, OSError):
        inherited = int(environment.variables.get(files.WORKER_LOCK, ""))
        os.fstat(inherited)
        lock = inherited
    try:
        work(environment, catch_up="--catch-up" in given, background=True, lock=lock)
    except Exception:
        write_log(environment.home, traceback.format_exc())
    return 0


def work(
    environment: Environment,
    *,
    catch_up: bool = False,
    retry: bool = False,
    background: bool = False,
    lock: int | None = None,
    flag: Path | None = None,
    publish: bool = False,
    report: Callable[[Job, int], None] = lambda job, left: None,
) -> tuple[int, list[Job], dict[Path, Published]]:
    """Process queued sessions until none is left. `flag` is `--brain`; a job that names its own brain goes there.

    Returns how many transcripts were caught up, each job as it ended, and what was published by brain.

    `catch_up` first queues transcripts that were never captured; in the `background` only those written since the
    installation. `retry` also queues what failed. `publish` opens pull requests even if the settings say never. `lock`
    is the queue's lock if the caller holds it. Raises NuggetError if another worker is running.
    """
    home, folder = environment.home, environment.home / "queue"
    held = lock if lock is not None else files.try_lock(folder / "worker.lock")
    if held is None:
        raise NuggetError("A capture worker is already running.", hint="`nugget status` shows how far it is.")
    if lock is None:
        files.sign(held, os.getpid())
    found, now = 0, datetime.now(UTC)
    try:
        queue.recover(home, now=now)
        queue.release(home, now=now, everything=retry)
        queue.prune(home, now=now)
        if catch_up:
            settings = load_settings(environment, flag or environment.brain or default_brain(environment))
            found = queue_ended(environment, settings.capture_agents, background=background)
        with ExitStack() as stack:
            opened: dict[Path, Brain] = {}
            brain_for = partial(_brain_for, environment, flag, opened, stack)
            ended = queue.drain(
                home, lambda job: _capture_job(job, environment, brain_for), now=partial(datetime.now, UTC),
                report=report, log=partial(write_log, home),
            )  # fmt: skip
            with suppress(NuggetError):
                brain_for(None)
            # The status line shows the last one.
            published = {
                brain.path: _keep_up(brain, publish=publish, background=background)
                for brain in sorted(opened.values(), key=lambda one: not one.is_chosen)
            }
    finally:
        os.close(held)
    # The lock was taken for jobs queued in the meantime.
    if queue.jobs(home, "pending"):
        files.start_worker(home)
    return found, ended, published


def _brain_for(
    environment: Environment, flag: Path | None, opened: dict[Path, Brain], stack: ExitStack, job: Job | None
) -> Brain:
    """Return the brain for a job's session; `opened` holds the open brains and `stack` closes them."""
    named = Path(job.brain) if job and job.brain else environment.brain
    place = replace(environment, brain=named)
    path = find_brain(place, flag=flag, cwd=None)
    if path not in opened:
        opened[path] = stack.enter_context(Brain(path, environment=place))
        if not (named or flag):
            opened.update((one.path, one) for one in brains.join(opened[path]).others)
    transcript = Path(job.transcript) if job and job.transcript else None
    return brains.capturing(opened[path], Path(job.cwd) if job and job.cwd else None, transcript=transcript)


def queue_ended(environment: Environment, agents: Sequence[str], *, background: bool) -> int:
    """Queue the sessions of these agents that were never captured; return how many."""
    since = None
    with suppress(FileNotFoundError):  # sessions from before the installation are captured only on request
        installed = environment.home / "queue" / "installed"
        since = datetime.fromtimestamp(installed.stat().st_mtime, UTC) if background else None
    return len(queue.catch_up(environment.home, find_sessions(environment, agents), now=datetime.now(UTC), since=since))


def _keep_up(brain: Brain, *, publish: bool, background: bool) -> Published:
    """Publish waiting proposals, follow the remote, and bring every index up to date."""
    environment, settings, now = brain.environment, brain.settings, datetime.now(UTC)
    done = Published()
    try:
        done = publishing.publish(brain.path, environment=environment, settings=settings, now=now, forced=publish)
        gone = publishing.close_pull_requests(
            brain.path, environment=environment, settings=settings, now=now, forced=publish
        )
        done = replace(done, publications=(*done.publications, *gone.publications))
        if settings.sync_pull and (followed := brain.follow(if_due=background)):
            for problem in followed.problems:
                write_log(environment.home, f"{brain.path}: {problem}")
    except NuggetError as error:
        write_log(environment.home, f"{brain.path}: {error}")
        done = replace(done, local=str(error))
    try:
        brain.make_current()
        brain.sync_local_sources()
    except (NuggetError, OSError, sqlite3.Error) as error:  # the next question syncs them
        write_log(environment.home, f"{brain.path}: {error}")
    return done


def open_extract(brain: Brain, *, now: datetime, way: str | None) -> Extract:
    """Return the extraction function for a brain's settings, index and models."""
    return partial(
        extract, settings=brain.settings, now=now, llm=open_extractor(brain.settings, brain.environment, way),
        nearest=lambda text: [hit.unit for hit in brain.neighbours(text)],
    )  # fmt: skip


def capture_file(transcript: Path, brain: Brain, *, way: str | None, dry_run: bool) -> tuple[CaptureResult, Published]:
    """Capture one transcript now; return what was proposed and what was published."""
    brain = brains.capturing(brain, None, transcript=transcript)
    target = proposal_target(brain, dry_run=dry_run)
    result, _ = _capture(transcript, brain, target, way=way)
    if not result.branch:
        return result, Published()
    done = publishing.publish(brain.path, environment=brain.environment, settings=brain.settings, now=target.now)
    brain.make_current()
    return result, done


def _capture(
    transcript: Path, brain: Brain, target: ProposalTarget, *, way: str | None = None
) -> tuple[CaptureResult, Session]:
    """Capture a transcript, then extract its nuggets; return the result and the redacted session."""
    read = read_redacted(transcript, target.home, target.settings)
    result = capture_transcript(transcript, target, open_extract(brain, now=target.now, way=way), read)
    if not target.dry_run:
        extract_captured(transcript, read, home=target.home, settings=target.settings, now=target.now)
    return result, read[1]


def explain_session(transcript: Path, brain: Brain, *, way: str | None) -> tuple[str, list[str]]:
    """Return the id of a session and a line for each candidate, with its reasons and its outcome."""
    brain = brains.capturing(brain, None, transcript=transcript)
    target = proposal_target(brain, dry_run=True)
    _, session, _ = read_redacted(transcript, target.home, target.settings)
    found = open_extract(brain, now=target.now, way=way)(session)
    if found.method == "heuristic":
        lines = ["Judged by the bundled judge, offline.", *explain(session)]
    else:
        lines = [f"Judged by {brain.settings.llm_extract_model}."]
    changes, dropped = compare(
        found.proposals, known_brain(target), session=session.id,
        max_units=target.settings.capture_max_units,
    )  # fmt: skip
    for change in changes:
        unit, note = change.unit, f"; {change.note}" if change.note else ""
        quotes = " / ".join(f"“{shorten(one.quote, 80)}” {said_how(one.speaker, one.origin)}" for one in unit.evidence)
        fate = f"proposed as {change.path} ({change.reason}{note})"
        lines.append(f"{unit.confidence:.2f} {unit.type} {unit.title}: {fate}; rests on {quotes}")
    return session.id, [*lines, *(f"left out: {why}" for why in (*found.dropped, *dropped))]


def find_transcript(environment: Environment, session: str | None) -> Path:
    """Return the transcript of a session of any agent. Raises TranscriptError if it cannot be found."""
    if session and (found := find_session_by_id(environment, session)):
        return Path(found.locator)
    if session and (kept := archive_file(environment.home, session)).is_file():
        return kept.with_name(session)  # `read_redacted` falls back to the archive
    raise TranscriptError(f"There is no transcript of session {session}, of Claude Code or of another agent.")


def write_log(home: Path, text: str) -> None:
    """Append a line with the time to `$NUGGET_HOME/log/worker.log`, and rotate a log that is too long."""
    file = home / "log" / "worker.log"
    with suppress(OSError):
        if file.exists() and file.stat().st_size > MAX_LOG_BYTES:
            file.replace(file.with_suffix(".log.old"))
        with files.open_private(file, "a") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {redact(text).text.rstrip()}\n")


def _capture_job(
    job: Job, environment: Environment, brain_for: Callable[[Job], Brain]
) -> tuple[str | None, str | None]:
    """Capture a job's session, or send it to the team's server, within a time limit."""
    transcript = Path(job.transcript) if job.transcript else find_transcript(environment, job.session)
    session_id = job.session or transcript.stem
    if queue.is_paused(environment.home, session_id, job.queued or datetime.now(UTC).timestamp()):
        return None, "capture was paused (nugget pause)"
    if session_id in erased_sessions(environment.home):  # it may have gone on since
        return None, "the session was erased (nugget erase)"
    settings = load_settings(environment)
    if not settings.capture_headless and _is_headless(transcript):
        return None, "a headless run (capture.headless)"
    with files.time_limit(MAX_JOB_S):
        if sent := send_session(transcript, environment, settings):
            return None, sent
    brain = brain_for(job)

    def scope_of(unit_id: str) -> str | None:
        unit = brain.index.unit(unit_id)
        return unit.scope.path if unit and unit.scope else None

    with files.time_limit(MAX_JOB_S):
        target = proposal_target(brain)
        result, session = _capture(transcript, brain, target)
        with suppress(NuggetError, OSError, sqlite3.Error):  # a failure here does not undo the capture
            note_uses(target.home, brain.path, session, scope_of=scope_of, now=target.now)
    return result.branch, result.skipped


def _is_headless(transcript: Path) -> bool:
    """Return True if a program ran the session, by `claude -p` or the SDK: each record says so."""
    with suppress(OSError), transcript.open("rb") as file:
        return b'"entrypoint":"sdk-' in file.read(64_000).replace(b'": "', b'":"')
    return False


EVERY_S = 120.0
_NAME = "nugget-watch"
_KEPT = ("NUGGET_HOME", "NUGGET_BRAIN", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
"""Environment variables that the service needs to find the same folders."""


def watch(environment: Environment, *, report: Callable[[Job], None]) -> None:
    """Queue and capture ended sessions in an endless loop; `report` receives each finished job."""
    files.make_queue(environment.home)
    while True:
        with suppress(NuggetError):  # another worker is running and takes the queued jobs
            queue_ended(environment, ("all",), background=True)
            work(environment, background=True, report=lambda job, left: report(job))
        time.sleep(EVERY_S)


def service_file(environment: Environment) -> Path:
    """Return the file of the service that runs `nugget watch`."""
    agents = user_home(environment) / "Library" / "LaunchAgents" / f"{_NAME}.plist"
    units = config_home(environment) / "systemd" / "user"
    return agents if sys.platform == "darwin" else units / f"{_NAME}.service"


def set_up(environment: Environment, command: Path, *, remove: bool) -> Iterator[str]:
    """Install a user service that runs `nugget watch`, or remove it; yield what was done. Raises NuggetError."""
    is_mac, file = sys.platform == "darwin", service_file(environment)
    control = ["launchctl"] if is_mac else ["systemctl", "--user"]
    start = [["load", "-w", str(file)]] if is_mac else [["daemon-reload"], ["enable", "--now", _NAME]]
    stop = [["unload", "-w", str(file)]] if is_mac else [["disable", "--now", _NAME]]
    if remove:
        if read_text(file) is None:
            yield "No service of Nugget is installed; nothing to change."
            return
        yield from _controlled(control, stop)
        write_text(file, None)
        yield f"Removed {file}"
        return
    files.make_queue(environment.home)
    kept = {name: environment.variables[name] for name in _KEPT if environment.variables.get(name)}
    write_text(file, _launchd(command, kept) if is_mac else _systemd(command, kept), mode=0o644)
    yield f"Wrote {file}"
    failed = [*_controlled(control, start)]
    yield from (*failed, "If that is not possible, start `nugget watch` at each login.") if failed else ()


def _controlled(control: list[str], calls: list[list[str]]) -> Iterator[str]:
    """Run the service manager's commands; yield those that the person has to run instead, and why."""
    for line in ([*control, *arguments] for arguments in calls):
        why = "it is not available here"
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
            why = "" if done.returncode == 0 else one_line(done.stderr).rstrip(".")[:200] or "no reason was given"
        if why:
            yield f"`{' '.join(line)}` failed: {why}. Run it yourself."


def _systemd(command: Path, variables: dict[str, str]) -> str:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
        return f'"{escaped}"'

    lines = [f"Environment={quoted(f'{name}={value}')}" for name, value in variables.items()]
    start = f"ExecStart={quoted(str(command)).replace('$', '$$')} watch"
    return "\n".join([
        "[Unit]", "Description=Nugget: capture the sessions of coding agents", "", "[Service]", start, *lines,
        "Nice=10", "Restart=on-failure", "RestartSec=60", "", "[Install]", "WantedBy=default.target", "",
    ])  # fmt: skip


def _launchd(command: Path, variables: dict[str, str]) -> str:
    return plistlib.dumps({
        "Label": _NAME, "ProgramArguments": [str(command), "watch"], "EnvironmentVariables": variables, "Nice": 10,
        "RunAtLoad": True, "KeepAlive": {"SuccessfulExit": False},
    }).decode()  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
