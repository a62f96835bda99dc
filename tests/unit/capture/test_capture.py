"""Capture on real repositories: once, beside the user's work, without repeating what is known; the queue."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from knowledge_files import KNOWN_PATH, commit, known_unit, shell, write
from sessions import NOW, ScriptedExtraction, capture_into, fork, unit, write_transcript

from nugget import brain as brains
from nugget.brain import knowledge_file as knowledge
from nugget.capture import CaptureResult, capture_transcript, ledger, queue, review
from nugget.capture.compare import KnownBrain, ProposedChange, compare
from nugget.capture.ledger import brain_key, declared_id, remember_brain
from nugget.capture.proposals import parse_message
from nugget.capture.queue import Job
from nugget.config import Settings, read_environment
from nugget.errors import GitError, TranscriptError
from nugget.extraction.proposals import Proposal
from nugget.infra import files, git
from nugget.infra.workspace import find_workspace
from nugget.models import Evidence, KnowledgeType, Relation, RelationType, Scope, SourceName, Unit
from nugget.sources import sessions as archive
from nugget.sources.sessions import find_sessions

RETRY = unit(
    "Retry only idempotent calls", "Retry a payment call only with an idempotency key. Otherwise it charges twice."
)
CACHE = unit(
    "Expire caches by event", "Invalidate the cache when the event arrives, not by time to live.", type="concept"
)


@pytest.fixture
def projects(isolated_home: Path) -> Path:
    return isolated_home / ".claude/projects/-srv-shop"


def files_on(brain: Path, result: CaptureResult) -> dict[str, str]:
    assert result.branch is not None
    return {
        change.path: (git.read_blob(brain, result.branch, change.path) or b"").decode()
        for change in git.changes(brain, "HEAD", result.branch)
    }


@pytest.mark.proves("CAPTURE-BRANCH", "CAPTURE-UNTOUCHED")
def test_a_session_becomes_one_commit_on_a_branch_named_after_it(brain, home, projects):
    transcript = projects / "s.jsonl"
    turns = [("go on", ""), ("Fix #4 please", f"{RETRY.title}. {CACHE.title}.")]
    session = write_transcript(transcript, turns, cwd=str(brain / "evals"))
    retry = replace(RETRY, scope=Scope(path="../brain.yaml"))
    (brain / "brain.yaml").write_text("owner: half typed\n")
    before = shell(brain, "status", "-sb"), git.head(brain)
    result = capture_transcript(transcript, *capture_into(brain, home, ScriptedExtraction([retry, CACHE])))
    assert (shell(brain, "status", "-sb"), git.head(brain)) == before
    assert result.branch == f"nugget/session-20260301-120030-{session[:8]}"
    named = {"patterns/retry-only-idempotent-calls.md", "concepts/expire-caches-by-event.md"}
    assert set(files_on(brain, result)) == {f"domains/coding/{name}" for name in named}
    for path, text in files_on(brain, result).items():
        parsed = knowledge.parse(text, path=path)
        assert parsed.unit is not None and not parsed.problems
        assert (parsed.unit.session, parsed.unit.origin) == (session, "ai-session")
        scope = Scope(repo=find_workspace(brain).identity, path="brain.yaml") if "retry" in path else None
        assert parsed.unit.scope == scope
    made = review.show(brain)
    assert (made.title, made.prompt, made.session) == (f"{RETRY.title}, and 1 more", "Fix #4 please", session)
    assert "| `domains/coding/patterns/retry-only-idempotent-calls.md` | pattern | coding | 0.70 | because" in made.body


@pytest.mark.proves("CAPTURE-ONCE")
def test_a_fork_repeats_nothing_and_adds_what_it_added(brain, home, projects):
    transcript = projects / "s.jsonl"
    write_transcript(transcript, [("Why?", RETRY.title), ("More", "Nothing of note.")])
    extract = ScriptedExtraction([RETRY, CACHE])
    capture_transcript(transcript, *capture_into(brain, home, extract))
    session = fork(transcript, forked := projects / "fork.jsonl")
    again = capture_transcript(forked, *capture_into(brain, home, extract))
    assert again.skipped == "nothing new since it was captured"
    write_transcript(forked, [("And?", CACHE.title)], session=session)
    added = capture_transcript(forked, *capture_into(brain, home, extract))
    assert list(files_on(brain, added)) == ["domains/coding/concepts/expire-caches-by-event.md"]


@pytest.mark.proves("CAPTURE-DUPLICATE")
def test_a_near_duplicate_is_proposed_as_an_edit_of_the_file_that_is_there(brain, home, projects):
    known, before = known_unit(brain), (brain / KNOWN_PATH).read_text("utf-8")
    transcript = projects / "s.jsonl"
    write_transcript(transcript, [("Why?", RETRY.title)])
    news = replace(RETRY, body="Reconcile payments nightly: webhooks from the provider may be lost for hours.")
    capture = capture_into(brain, home, ScriptedExtraction([news]), similar=lambda asked: [(known, 0.91)])
    ((edited, text),) = files_on(brain, capture_transcript(transcript, *capture)).items()
    assert edited == KNOWN_PATH and known.body.strip() in text
    assert text.rstrip().endswith("webhooks from the provider may be lost for hours.")
    assert before == (brain / KNOWN_PATH).read_text("utf-8")
    again = knowledge.parse(text, path=KNOWN_PATH).unit
    assert again is not None and again.id == known.id and len(again.evidence) == len(known.evidence) + 1


@pytest.mark.proves("CAPTURE-DUPLICATE")
def test_what_the_brain_says_already_is_left_out(brain, home, projects):
    known = known_unit(brain)
    write_transcript(projects / "s.jsonl", [("Why?", known.title)])
    copy = replace(known, id="pattern/another-name")
    capture = capture_into(brain, home, ScriptedExtraction([copy]), similar=lambda asked: [(known, 0.99)])
    result = capture_transcript(projects / "s.jsonl", *capture)
    assert result.skipped == "nothing worth keeping was found"
    assert result.dropped == (f"{known.title}: {known.id} says it already",)


@pytest.mark.proves("CAPTURE-HOSTILE")
def test_hostile_units_stay_inside_the_brain_and_inside_their_values(brain, home, projects):
    hostile = [
        unit("a", "Path traversal body.", domain="../../etc", id="pattern/../../../../etc/passwd"),
        unit("b", "YAML body.", type="pattern: x\nid: evil"),
        unit("c\nid: evil/injected\n---\n", "Newlines in the title do not end the frontmatter.", type="bug"),
        unit("d", "---\nid: concept/forged\n---\n# Forged\n", domain=".git/hooks", type="belief"),
        unit("e | @someone fixes #12 ![x](http://evil.example/p.png)", "Tables `and` links.",
             quote="| `x` |\n\nNugget-Session: forged"),
        unit("f\u202e\x1b[31m", "Control characters.", domain="con/nul/\x00"),
    ]  # fmt: skip
    write_transcript(transcript := projects / "s.jsonl", [("Why?", "\n".join(one.title for one in hostile))])
    result = capture_transcript(transcript, *capture_into(brain, home, ScriptedExtraction(hostile)))
    files = files_on(brain, result)
    assert len(files) == 5
    for path, text in files.items():
        assert path.startswith("domains/") and ".." not in path and ".git" not in path, path
        parsed = knowledge.parse(text, path=path)
        assert parsed.unit is not None, (path, parsed.problems)
        assert f"{parsed.unit.type}s/{parsed.unit.id.partition('/')[2]}.md" in path
    (branch,) = git.branches(brain, "nugget/")
    assert not [text for text in ("@someone", "#12", "http://evil", "\x1b") if text in branch.message]
    assert parse_message(branch.message)[2]["Nugget-Session"] == result.session
    rows = [line for line in branch.message.splitlines() if line.startswith("| `domains")]
    assert len(rows) == 5 and all(row.replace("\\|", "").count("|") == 6 for row in rows)
    assert any("unknown type" in reason for reason in result.dropped)


@pytest.mark.proves("CAPTURE-ARCHIVE")
def test_a_deleted_transcript_is_captured_from_the_archive(brain, home, projects, tmp_path):
    name = "0b9f8a52-1f9b-4b53-9f5b-0d3f4f5a6c7d"
    transcript = projects / f"{name}.jsonl"
    write_transcript(transcript, [("Why?", RETRY.title)], session=name)

    def broken(session: object) -> None:
        raise GitError("the disk was full")

    with pytest.raises(GitError):
        capture_transcript(transcript, capture_into(brain, home, ScriptedExtraction([]))[0], broken)  # type: ignore[arg-type]
    transcript.unlink()
    assert capture_transcript(transcript, *capture_into(brain, home, ScriptedExtraction([RETRY]))).branch is not None
    with pytest.raises(TranscriptError):
        capture_transcript(projects / "never-there.jsonl", *capture_into(brain, home, ScriptedExtraction([])))


@pytest.mark.proves("RED-EXCLUDE")
def test_excluded_projects_and_empty_sessions_are_skipped_with_a_reason(brain, home, projects):
    transcript = projects / "s.jsonl"
    session = write_transcript(transcript, [("Why?", RETRY.title)], cwd="/srv/secret/deep")
    settings = Settings(capture_exclude_projects=("/srv/secret",))
    extract = ScriptedExtraction([RETRY])
    result = capture_transcript(transcript, *capture_into(brain, home, extract, settings=settings))
    assert result.skipped == "sessions in /srv/secret/deep are excluded (capture.exclude_projects)"
    assert not archive.archive_file(home, session).exists()
    moved = projects / "moved.jsonl"
    write_transcript(moved, [("Why?", RETRY.title)], cwd="/srv/open")
    with moved.open("a") as lines:  # later in the session the agent went into the excluded folder
        lines.write(transcript.read_text().replace(session, "s-moved"))
    result = capture_transcript(moved, *capture_into(brain, home, extract, settings=settings))
    assert "excluded" in (result.skipped or "")
    own = projects / "own.jsonl"
    write_transcript(own, [("Why?", RETRY.title)], cwd=str(home / "llm"))
    assert capture_transcript(own, *capture_into(brain, home, extract)).skipped == "Nugget itself ran it"
    assert extract.calls == 0


TODAY = date(2026, 6, 1)


def unit_of(title: str, body: str = "", *, instead_of: str = "", kind: str = KnowledgeType.DECISION) -> Unit:
    slug = "-".join(title.lower().replace("`", "").split()[:6])
    return Unit(
        id=f"{kind}/{slug}", source=SourceName.BRAIN, type=kind, title=title, body=f"# {title}\n\n{body or title}.\n",
        path=brains.unit_path(kind, "projects/shop", slug), domain="projects/shop", confidence=0.7,
        alternatives=(instead_of,) if instead_of else (), created=date(2026, 5, 2),
        evidence=(Evidence(session="s", quote=body or title),),
    )  # fmt: skip


def compared(known: Unit, *units: Unit, likeness: float = 0.0) -> tuple[tuple[ProposedChange, ...], tuple[str, ...]]:
    files = {known.path or "": knowledge.serialise(known)}
    near = [(known, likeness)] if likeness else []
    brain = KnownBrain(files=files, read=files.get, similar=lambda unit: near, today=TODAY)
    proposals = [Proposal(unit=one, reason="You said so") for one in units]
    return compare(proposals, brain, session="s", max_units=2)


@pytest.mark.proves("CAP-SUPERSEDES")
@pytest.mark.parametrize("likeness", [0.0, 0.9])
@pytest.mark.parametrize(
    ("before", "after", "rejected"),
    [
        ("Use Redis for the sessions", "Use Postgres for the sessions instead of Redis", "Redis"),
        ("We use Redis for sessions", "We no longer use Redis for sessions", "Redis"),
        ("Redis keeps the sessions of users", "Keep the sessions in Postgres", "Redis"),
    ],
)
def test_a_later_choice_that_rejects_an_earlier_one_supersedes_it(before, after, rejected, likeness):
    known = unit_of(before)
    new, marked = compared(known, unit_of(after, instead_of=rejected), likeness=likeness)[0]
    assert new.is_new and new.unit.related == (Relation(id=known.id, relation=RelationType.SUPERSEDES),)
    assert marked.path == known.path and f"superseded_by: {new.unit.id}" in marked.text


@pytest.mark.proves("CAP-ANOTHER")
def test_another_decision_is_another_unit_however_alike_it_reads():
    known = unit_of("Store timestamps in UTC", "All tables of the shop hold times in UTC, because users travel")
    other = unit_of("Show timestamps in the zone of the user", "All pages of the shop show times in the user's zone")
    twin = unit_of(other.title, "Every mail names the zone it was written in", kind=KnowledgeType.CONCEPT)
    made = compared(known, other, twin, likeness=0.9)  # of one session and title, the first is proposed
    assert [(one.is_new, one.unit.title) for one in made[0]] == [(True, "Show timestamps in the zone of the user")]


CHARGE = unit("Retry idempotent calls only", "Retry a payment only with an idempotency key, or it charges twice.")


def make_brain(tmp_path: Path, *, has_id: bool) -> Path:
    """A new brain, or one from before brains had an id."""
    folder = brains.init_brain(tmp_path / "own", owner="Ada", now=NOW)[0]
    if not has_id:
        text = (folder / "brain.yaml").read_text()
        write(folder, "brain.yaml", "".join(line for line in text.splitlines(True) if not line.startswith("id:")))
        commit(folder, ["brain.yaml"], "As it was")
    write(folder, "domains/x.md", "# X\n")
    commit(folder, ["domains/x.md"], "More")
    return folder


def shallow_clone(brain: Path) -> Path:
    """A clone without the first commits."""
    copy = brain.with_name("shallow")
    shell(brain.parent, "clone", "-q", "--depth", "1", brain.as_uri(), str(copy))
    return copy


def rewrite_history(brain: Path) -> Path:
    """The brain with one new commit in the place of all others."""
    shell(brain, "checkout", "-q", "--orphan", "rewritten")
    shell(brain, "commit", "-qam", "Rewritten")
    shell(brain, "branch", "-qf", "main")
    shell(brain, "switch", "-q", "main")
    return brain


@pytest.mark.proves("BRAIN-ID")
@pytest.mark.parametrize(("has_id", "change"), [
    (True, shallow_clone), (True, rewrite_history), (False, shallow_clone),
    (False, lambda brain: brain.rename(brain.with_name("moved"))),
])  # fmt: skip
def test_what_was_rejected_is_not_proposed_again(home, tmp_path, has_id, change):
    own = make_brain(tmp_path, has_id=has_id)
    transcript = write_transcript_of(tmp_path, "one")
    assert capture_transcript(transcript, *capture_into(own, home, ScriptedExtraction([CHARGE]))).branch
    review.decide(own, None, review.Decision(reject=None), home=home, now=NOW)
    changed = change(own)
    again = capture_transcript(transcript, *capture_into(changed, home, ScriptedExtraction([CHARGE])))
    assert again.skipped == "nothing new since it was captured"
    other = write_transcript_of(tmp_path, "two")
    result = capture_transcript(other, *capture_into(changed, home, ScriptedExtraction([CHARGE])))
    assert result.dropped == (f"{CHARGE.title}: turned down before",)


def write_transcript_of(folder: Path, name: str) -> Path:
    write_transcript(folder / f"{name}.jsonl", [("Why?", f"{CHARGE.title} {name}")])
    return folder / f"{name}.jsonl"


@pytest.mark.proves("BRAIN-ID")
@pytest.mark.parametrize("has_id", [True, False])
def test_a_copied_id_gives_nothing(home, tmp_path, has_id):
    own = make_brain(tmp_path, has_id=has_id)
    key = remember_brain(own, home)
    copy = tmp_path / "copy"
    shutil.copytree(own, copy)
    assert brain_key(copy, home) not in (key, declared_id(own))
    stranger = brains.init_brain(tmp_path / "stranger", owner="Eve", now=datetime.now(UTC))[0]
    write(stranger, "brain.yaml", f"id: {git.run(own, 'rev-list', '--max-parents=0', 'HEAD').decode()}owner: Eve\n")
    assert brain_key(stranger, home) != key and brain_key(own, home) == key


NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
Outcome = tuple[str | None, str | None]


def put(home: Path, session: str = "s", **more: object) -> None:
    job = {"version": 1, "queued": NOON.timestamp(), "session": session, "transcript": f"/x/{session}"}
    files.queue_job(home, job | more)


def states(home: Path) -> dict[str, int]:
    return {state: count for state, count in queue.overview(home)["queue"].items() if count}


def drain(home: Path, capture: Callable[[Job], Outcome], *, now: datetime = NOON) -> int:
    return len(queue.drain(home, capture, now=lambda: now))


def fails(job: Job) -> Outcome:
    raise GitError("the remote said no")


@pytest.mark.proves("QUEUE-STATES")
def test_jobs_end_done_skipped_or_failed_with_the_reason(home):
    for name in ("good", "dull", "bad", "odd", "lost"):
        put(home, name)
    put(home, "held", transcript=f"{__file__}#held")  # as in a database
    log: list[str] = []
    secret = "ghp_" + "a1B2c3D4e5F6" * 3

    def capture(job: Job) -> Outcome:
        assert (home / "queue/running" / job.name).exists()
        if job.session == "bad":
            raise GitError("the remote said no")
        if job.session in ("held", "lost"):
            raise TranscriptError("It cannot be read now.")
        if job.session == "odd":
            raise RuntimeError(f"nobody\nforesaw this {secret}")
        return ("nugget/session-1", None) if job.session == "good" else (None, "nothing new")

    assert len(queue.drain(home, capture, now=lambda: NOON, log=log.append)) == 6
    assert states(home) == {"done": 1, "skipped": 2, "failed": 3}
    assert [job.session for job in queue.jobs(home, "skipped")] == ["dull", "lost"]
    reasons = [job.reason for job in queue.jobs(home, "failed")]
    odd = "unexpected RuntimeError: nobody foresaw this [redacted:github-token]"
    assert reasons == ["the remote said no", odd, "It cannot be read now."]
    assert len(log) == 1 and "Traceback" in log[0] and secret not in log[0]


@pytest.mark.proves("QUEUE-RETRY")
def test_failures_are_tried_again_each_time_later_until_left_to_a_person(home):
    put(home)
    waits: list[float] = []
    now = NOON
    for _ in range(queue.MAX_ATTEMPTS):
        assert drain(home, fails, now=now) == 1
        (job,) = queue.jobs(home, "failed")
        if job.next_try is not None:
            waits.append(job.next_try - now.timestamp())
            queue.release(home, now=now)
            assert queue.jobs(home, "pending") == []
            now = datetime.fromtimestamp(job.next_try, UTC)
            queue.release(home, now=now)
    assert waits[:4] == [60, 120, 240, 480] and max(waits) == queue.LAST_RETRY.total_seconds()
    assert queue.jobs(home, "failed")[0].next_try is None
    queue.release(home, now=now + timedelta(days=99))
    assert queue.jobs(home, "pending") == []
    queue.release(home, now=now, everything=True)
    assert queue.jobs(home, "pending")[0].attempts == 0


@pytest.mark.proves("QUEUE-RECOVERY")
def test_what_a_killed_worker_left_is_taken_up_and_a_deadly_job_put_off(home):
    put(home)
    for attempt in range(1, queue.MAX_DEATHS + 1):
        job = queue.claim(home, NOON)
        assert job is not None and job.attempts == attempt
        queue.recover(home, now=NOON)
        assert states(home) == ({"pending": 1} if attempt < queue.MAX_DEATHS else {"failed": 1})
    (failed,) = queue.jobs(home, "failed")
    assert failed.reason == "the worker was killed while it worked on this session"
    assert failed.next_try is not None


@pytest.mark.proves("QUEUE-CATCH-UP")
def test_catch_up_finds_what_was_never_captured_and_nothing_else(home, isolated_home):
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
