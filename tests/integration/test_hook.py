"""The hook and the worker as real processes: one queue file, one worker, each session once, no secret in any file."""

import gzip
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from commands import hook
from paths import REPOSITORY
from secret_corpus import Example, secrets
from sessions import write_transcript
from waiting import PATIENCE_S, wait_for
from worker_stage import lay_out, variables

from nugget.app import Brain
from nugget.capture import queue, review
from nugget.config import read_environment
from nugget.hooks import NOTICE
from nugget.infra import files, git

PAYLOAD = {"session_id": "abc", "transcript_path": "/x/abc.jsonl", "cwd": "/srv/shop", "hook_event_name": "SessionEnd"}


def around(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **more}


@pytest.mark.proves("HOOK-QUEUES")
def test_a_session_end_leaves_one_whole_job_and_no_output(home, queue_lock):
    done = hook(PAYLOAD | {"reason": "other"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (job,) = queue.jobs(home, "pending")
    assert (job.session, job.transcript, job.cwd) == ("abc", "/x/abc.jsonl", "/srv/shop")
    assert job.queued == pytest.approx(time.time(), abs=30)
    assert [file.name for file in (home / "queue/pending").iterdir()] == [job.name]
    assert (home / "queue/pending" / job.name).stat().st_mode & 0o077 == 0


@pytest.mark.proves("HOOK-NEVER-FAILS")
@pytest.mark.parametrize(
    "payload", [b"", b"not json", b"[]", b'{"session_id": 5, "transcript_path": ["x"]}', b"\xff\xfe{}", b"{" * 100_000]
)
def test_nonsense_on_stdin_is_survived(home, queue_lock, payload):
    done = hook(payload)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    if payload.startswith(b"not"):
        assert "not a JSON object (8 bytes)" in (home / "log/hook.log").read_text()


@pytest.mark.proves("HOOK-RECURSION")
def test_a_session_that_nugget_started_is_not_captured(home):
    done = hook(PAYLOAD, NUGGET_CAPTURING="1")
    assert (done.returncode, done.stdout) == (0, b"") and not home.exists()


@pytest.mark.proves("HOOK-NOTICE")
def test_a_session_start_tells_the_person_where_the_client_shows_it(home, queue_lock):
    start = PAYLOAD | {"hook_event_name": "SessionStart", "source": "startup"}
    assert hook(start).stdout == b"", "without a brain nothing is promised"
    (home / "config.yaml").write_text('brain: "/srv/brain"\n')
    assert json.loads(hook(start).stdout) == {"systemMessage": NOTICE}
    assert NOTICE == "This session will be analyzed for knowledge capture"
    assert hook(start | {"source": "compact"}).stdout == b"" and queue.jobs(home, "pending") == []


@pytest.mark.proves("HOOK-CATCH-UP")
def test_a_session_start_looks_for_missed_sessions_at_most_once_an_hour(home, isolated_home):
    """The worker runs for real: without a brain it fails each found session, and says so in the queue."""
    start = PAYLOAD | {"hook_event_name": "SessionStart", "source": "startup"}
    missed = isolated_home / ".claude/projects/-srv-shop/one.jsonl"
    missed.parent.mkdir(parents=True)
    hook(start)
    wait_for(lambda: not queue.is_working(home))
    os.utime(home / "queue/installed", (time.time() - 9000,) * 2)
    missed.write_text("{}\n")
    os.utime(missed, (time.time() - 3000,) * 2)
    hook(start)
    wait_for(lambda: not queue.is_working(home))
    assert queue.jobs(home, "failed") == [], "not an hour has passed"
    os.utime(home / "queue/catch-up.stamp", (time.time() + 4000,) * 2)  # the clock was wrong
    hook(start)
    wait_for(lambda: queue.jobs(home, "failed"))
    (job,) = queue.jobs(home, "failed")
    assert (job.transcript, job.reason) == (str(missed), "There is no brain yet.") and job.next_try is not None


@pytest.mark.proves("HOOK-DETACHED")
def test_the_worker_outlives_the_hook_and_its_terminal(home):
    import signal

    command = [sys.executable, "-P", "-m", "nugget", "capture-session"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=around(), start_new_session=True)
    process.communicate(json.dumps(PAYLOAD).encode())
    for number in (signal.SIGHUP, signal.SIGTERM):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
    wait_for(lambda: queue.jobs(home, "failed") or queue.jobs(home, "skipped"))
    wait_for(lambda: not queue.is_working(home))


@pytest.mark.proves("HOOK-NOTES")
def test_notes_keep_one_job_for_a_session_and_start_no_worker(home):
    command = [sys.executable, "-P", "-m", "nugget", "capture-session", "--notes"]
    for event in ("Stop", "PreCompact", "Stop"):
        payload = json.dumps(PAYLOAD | {"hook_event_name": event})
        done = subprocess.run(command, input=payload, capture_output=True, text=True, env=around())
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (job,) = queue.jobs(home, "pending")
    assert (job.session, job.transcript) == ("abc", "/x/abc.jsonl")
    assert not queue.is_working(home) and not (home / "queue/running").exists()


RULES = (
    "swallow an exception in a callback of the scheduler|parse timestamps that are not in UTC|put a customer's address "
    "into the key of a cache|rename the temporary file before the upload stream is closed|send an e-mail from inside a "
    "database transaction|search for wildcards that a visitor typed|compare prices as floating point numbers|deploy a "
    "container image without its digest|write passwords to the audit trail|let the signing certificate expire in a "
    "holiday|block the event loop with a synchronous DNS lookup|measure latency in the browser|delete a tenant without "
    "a snapshot of its bucket|export translations unsorted|trust the content type that a webhook claims|run the "
    "thumbnail worker without a memory limit|cache the currency exchange for a day|name feature flags after people|"
    "spawn more threads than the invoice printer has slots"
).split("|")


@pytest.mark.proves("WORKER-MANY-AT-ONCE")
def test_twenty_sessions_that_end_in_the_same_second_are_each_captured_once(tmp_path):
    lay_out(tmp_path)
    home, brain = tmp_path / ".nugget", tmp_path / "brain"
    for number, rule in enumerate(RULES):
        transcript = tmp_path / f".claude/projects/-srv-shop/{number}.jsonl"
        session = write_transcript(transcript, [(f"Repair what I reported. Never {rule}.", "Done, all checks pass.")])
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


PLANTED = 100
SPOKEN = ("prose", "English", "German", "French", "Spanish", "Italian", "Portuguese")


def planted() -> list[Example]:
    """Return a hundred secrets of as many kinds from every context, prose and short passwords among them."""
    kinds = {example.kind: example for which in ("", "_eleventh") for example in secrets(seed=11, which=which)}
    usable = [example for example in kinds.values() if all(len(secret) >= 6 for secret in example.secrets)]
    spoken = [example for example in usable if example.context in SPOKEN]
    return [*spoken, *(example for example in usable if example not in spoken)][:PLANTED]


def plant(transcript: Path, examples: list[Example]) -> None:
    """Put prompts, answers and outputs of commands with these secrets at the end of a transcript."""
    turns = []
    for example in examples:
        said = f"Always remember the setting because it failed before:\n{example.text}\n"
        turns.append((said, said, ("Bash", {"command": example.text}, said, False)))
    write_transcript(transcript, turns, session=json.loads(transcript.read_text().partition("\n")[0])["sessionId"])


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the bytes of every file: as they are, unpacked, and the rows of databases with their logs."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_socket()):
        content = file.read_bytes()
        yield file, content
        if content[:2] == b"\x1f\x8b":
            yield file, gzip.decompress(content)
        elif content[:6] == b"\xfd7zXZ\0":
            yield file, lzma.decompress(content)
        elif content[:4] == b"\x28\xb5\x2f\xfd":
            yield file, subprocess.run(["zstd", "-dc", str(file)], check=True, capture_output=True).stdout
        elif content[:15] == b"SQLite format 3":
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
                for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                    with suppress(sqlite3.OperationalError):
                        yield file, repr(connection.execute(f'SELECT * FROM "{table}"').fetchall()).encode()
        if file.name == "HEAD" and git.is_repository(file.parents[1]):
            yield file, git.run(file.parents[1], "cat-file", "--batch-all-objects", "--batch")


@pytest.mark.proves("RED-KEPT")
def test_of_a_hundred_secrets_none_is_in_any_file(tmp_path, monkeypatch):
    lay_out(tmp_path)
    home, brain = tmp_path / ".nugget", tmp_path / "brain"
    for file in (home / "queue/pending").iterdir():
        file.unlink()
    examples = planted()
    assert len(examples) == PLANTED
    transcript = next((tmp_path / ".claude/projects").glob("*/*.jsonl"))
    plant(transcript, examples)
    payload = {"session_id": "s", "transcript_path": str(transcript), "hook_event_name": "SessionEnd"}
    command = [sys.executable, "-P", "-m", "nugget", "capture-session"]
    environment = variables(tmp_path, NUGGET_BRAIN=str(brain))
    subprocess.run(command, input=json.dumps(payload), env=environment, text=True, check=True, timeout=PATIENCE_S)
    wait_for(lambda: queue.jobs(home, "done") or queue.jobs(home, "failed"))
    assert queue.jobs(home, "failed") == []
    wait_for(lambda: not queue.is_working(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    with Brain(brain, environment=read_environment()) as opened:
        opened.sync()
        opened.sync_local_sources()
    for file, content in (*contents(home), *contents(brain)):
        for example in examples:
            assert not any(secret.encode() in content for secret in example.secrets), (file, example.kind)
    archived = b"".join(gzip.decompress(file.read_bytes()) for file in home.glob("archive/*.gz"))
    assert archived.count(b"[redacted:") >= PLANTED


LIKE_WINDOWS = """
import asyncio, builtins, fcntl, os, signal, socket, subprocess, sys, tempfile, types

MISSING = {"fcntl", "grp", "pwd", "resource", "select", "termios"}
found = builtins.__import__

def import_(name, globals=None, *more, **named):
    if name in MISSING and str((globals or {}).get("__name__")).startswith("nugget"):
        raise ImportError(f"Windows has no {name}")
    return found(name, globals, *more, **named)

def locking(descriptor, mode, length):
    fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if mode == 2 else 0))

builtins.__import__ = import_
pair, family = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *given: pair(*(given or (family,)))
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_LOCK=1, LK_NBLCK=2)
for module, names in {
    os: "fchmod fork getpgid getuid killpg nice posix_spawn pread pwrite setsid",
    signal: "SIGALRM SIGKILL setitimer", socket: "AF_UNIX",
}.items():
    for name in names.split():
        delattr(module, name)
"""


@pytest.mark.proves("HOUSE-SYSTEMS")
def test_a_session_becomes_knowledge_without_the_calls_that_windows_lacks(isolated_home, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LIKE_WINDOWS)
    variables = {**os.environ, "USERNAME": "ada", "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}

    def nugget(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "nugget", *arguments],
            cwd=isolated_home, env=variables, input=stdin, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    probe = "import os; from nugget.infra import system; print(system.IS_POSIX, hasattr(os, 'getuid'))"
    seen = subprocess.run([sys.executable, "-P", "-c", probe], env=variables, capture_output=True, text=True)
    assert seen.stdout == "False False\n", seen.stderr
    nugget("init", str(isolated_home / "brain"))
    nugget("add", "Sourdough rises slowly in a cold kitchen.", "--type", "pattern", "--domain", "cooking")
    session = REPOSITORY / "examples/demo/session.jsonl"
    payload = {"hook_event_name": "SessionEnd", "session_id": session.stem, "transcript_path": str(session)}
    nugget("capture-session", stdin=json.dumps(payload))
    wait_for(lambda: queue.jobs(isolated_home / ".nugget", "done"), "no proposal")
    nugget("review", "accept")
    assert "bytes that were sent" in nugget("ask", "why do webhook signatures fail")
    nugget("doctor")
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
    assert '"id":1' in nugget("serve", stdin=asked).replace(" ", "")
