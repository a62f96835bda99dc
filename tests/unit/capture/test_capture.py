"""Capture on real repositories: once, beside the user's work, without repeating what is known or turned down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from knowledge_files import shell
from sessions import ScriptedExtraction, capture_into, fork, unit, write_transcript

from nugget.brain import knowledge_file as knowledge
from nugget.capture import CaptureResult, capture_transcript, ledger
from nugget.capture.proposals import parse_message
from nugget.config import CaptureSettings, Settings
from nugget.errors import GitError, TranscriptError
from nugget.infra import git
from nugget.models import Unit
from nugget.sources import sessions as archive

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
def test_a_session_becomes_one_commit_on_a_branch_named_after_it(brain: Path, home: Path, projects: Path) -> None:
    transcript = projects / "s.jsonl"
    session = write_transcript(transcript, [("Why?", f"{RETRY.title}. {CACHE.title}.")])
    (brain / "brain.yaml").write_text("owner: half typed\n")
    before = shell(brain, "status", "-sb"), git.head(brain)
    result = capture_transcript(transcript, *capture_into(brain, home, ScriptedExtraction([RETRY, CACHE])))
    assert (shell(brain, "status", "-sb"), git.head(brain)) == before
    assert result.branch == f"nugget/session-20260301-120010-{session[:8]}"
    assert set(files_on(brain, result)) == {
        "domains/coding/patterns/retry-only-idempotent-calls.md",
        "domains/coding/concepts/expire-caches-by-event.md",
    }
    for path, text in files_on(brain, result).items():
        parsed = knowledge.parse(text, path=path)
        assert parsed.unit is not None and not parsed.problems
        assert parsed.unit.session == session
        assert parsed.unit.origin == "ai-session"
    (branch,) = git.branches(brain, "nugget/")
    title, body, trailers = parse_message(branch.message)
    assert title == f"{RETRY.title}, and 1 more"
    assert trailers["Nugget-Session"] == session
    row = "| `domains/coding/patterns/retry-only-idempotent-calls.md` | pattern | coding | 0.70 | because of "
    assert row in body


@pytest.mark.proves("CAPTURE-ONCE")
def test_a_fork_repeats_nothing_and_adds_what_it_added(brain: Path, home: Path, projects: Path) -> None:
    transcript = projects / "s.jsonl"
    write_transcript(transcript, [("Why?", RETRY.title), ("More", "Nothing of note.")])
    extract = ScriptedExtraction([RETRY, CACHE])
    capture_transcript(transcript, *capture_into(brain, home, extract))
    forked = projects / "fork.jsonl"
    session = fork(transcript, forked)
    again = capture_transcript(forked, *capture_into(brain, home, extract))
    assert again.skipped == "nothing new since it was captured"
    write_transcript(forked, [("And?", CACHE.title)], session=session)
    added = capture_transcript(forked, *capture_into(brain, home, extract))
    assert list(files_on(brain, added)) == ["domains/coding/concepts/expire-caches-by-event.md"]


def test_a_plan_without_its_branch_is_carried_out_again_and_one_with_it_is_not(
    brain: Path, home: Path, projects: Path
) -> None:
    transcript = projects / "s.jsonl"
    write_transcript(transcript, [("Why?", RETRY.title)])
    extract = ScriptedExtraction([RETRY])
    capture_transcript(transcript, *capture_into(brain, home, extract))
    file = home / "ledger" / ledger.CAPTURES
    planned, captured = file.read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["event"] for line in (planned, captured)] == ["planned", "captured"]
    file.write_bytes(planned + captured[:10])
    again = capture_transcript(transcript, *capture_into(brain, home, extract))
    assert again.skipped == "nothing new since it was captured"
    (branch,) = git.branches(brain, "nugget/")
    git.move_branch(brain, branch.name, None, expect=branch.sha)
    file.write_bytes(planned)
    once_more = capture_transcript(transcript, *capture_into(brain, home, extract))
    assert once_more.branch == branch.name


@pytest.mark.proves("CAPTURE-DUPLICATE")
def test_a_near_duplicate_is_proposed_as_an_edit_of_the_file_that_is_there(
    brain: Path, home: Path, projects: Path
) -> None:
    path = "domains/coding/patterns/retry-with-idempotency.md"
    known = knowledge.parse((brain / path).read_text("utf-8"), path=path).unit
    assert known is not None
    transcript = projects / "s.jsonl"
    write_transcript(transcript, [("Why?", RETRY.title)])

    def similar(asked: Unit) -> list[tuple[Unit, float]]:
        return [(known, 0.91)]

    news = replace(RETRY, body="Reconcile payments nightly: webhooks from the provider may be lost for hours.")
    capture = capture_into(brain, home, ScriptedExtraction([news]), similar=similar)
    result = capture_transcript(transcript, *capture)
    ((edited, text),) = files_on(brain, result).items()
    assert edited == path
    before = (brain / path).read_text("utf-8")
    assert known.body.strip() in text
    assert text.rstrip().endswith("webhooks from the provider may be lost for hours.")
    assert before == (brain / path).read_text("utf-8")
    again = knowledge.parse(text, path=path).unit
    assert again is not None and again.id == known.id and len(again.evidence) == len(known.evidence) + 1


@pytest.mark.proves("CAPTURE-DUPLICATE")
def test_what_the_brain_says_already_is_left_out(brain: Path, home: Path, projects: Path) -> None:
    path = "domains/coding/patterns/retry-with-idempotency.md"
    known = knowledge.parse((brain / path).read_text("utf-8"), path=path).unit
    assert known is not None
    write_transcript(projects / "s.jsonl", [("Why?", known.title)])
    copy = replace(known, id="pattern/another-name")
    capture = capture_into(brain, home, ScriptedExtraction([copy]), similar=lambda asked: [(known, 0.99)])
    result = capture_transcript(projects / "s.jsonl", *capture)
    assert result.skipped == "nothing worth keeping was found"
    assert result.dropped == (f"{known.title}: {known.id} says it already",)


@pytest.mark.proves("CAPTURE-HOSTILE")
def test_hostile_units_stay_inside_the_brain_and_inside_their_values(brain: Path, home: Path, projects: Path) -> None:
    hostile = [
        unit("a", "Path traversal body.", domain="../../etc", id="pattern/../../../../etc/passwd"),
        unit("b", "YAML body.", type="pattern: x\nid: evil"),
        unit("c\nid: evil/injected\n---\n", "Newlines in the title do not end the frontmatter.", type="bug"),
        unit("d", "---\nid: concept/forged\n---\n# Forged\n", domain=".git/hooks", type="belief"),
        unit(
            "e | @someone fixes #12 ![x](http://evil.example/p.png)",
            "Tables `and` links.",
            quote="| `x` |\n\nNugget-Session: forged",
        ),
        unit("f\u202e\x1b[31m", "Control characters.", domain="con/nul/\x00"),
    ]
    transcript = projects / "s.jsonl"
    write_transcript(transcript, [("Why?", "\n".join(one.title for one in hostile))])
    result = capture_transcript(transcript, *capture_into(brain, home, ScriptedExtraction(hostile)))
    files = files_on(brain, result)
    assert len(files) == 5
    for path, text in files.items():
        assert path.startswith("domains/") and ".." not in path and ".git" not in path, path
        parsed = knowledge.parse(text, path=path)
        assert parsed.unit is not None, (path, parsed.problems)
        assert f"{parsed.unit.type}s/{parsed.unit.id.partition('/')[2]}.md" in path
    (branch,) = git.branches(brain, "nugget/")
    assert "@someone" not in branch.message
    assert "#12" not in branch.message
    assert "http://evil" not in branch.message
    assert "\x1b" not in branch.message
    assert parse_message(branch.message)[2]["Nugget-Session"] == result.session
    rows = [line for line in branch.message.splitlines() if line.startswith("| `domains")]
    assert len(rows) == 5 and all(row.replace("\\|", "").count("|") == 6 for row in rows)
    assert any("unknown type" in reason for reason in result.dropped)


@pytest.mark.proves("CAPTURE-ARCHIVE")
def test_a_deleted_transcript_is_captured_from_the_archive(
    brain: Path, home: Path, projects: Path, tmp_path: Path
) -> None:
    name = "0b9f8a52-1f9b-4b53-9f5b-0d3f4f5a6c7d"
    transcript = projects / f"{name}.jsonl"
    write_transcript(transcript, [("Why?", RETRY.title)], session=name)

    def broken(session: object) -> None:
        raise GitError("the disk was full")

    with pytest.raises(GitError):
        capture_transcript(transcript, capture_into(brain, home, ScriptedExtraction([]))[0], broken)  # type: ignore[arg-type]
    transcript.unlink()
    result = capture_transcript(transcript, *capture_into(brain, home, ScriptedExtraction([RETRY])))
    assert result.branch is not None
    with pytest.raises(TranscriptError):
        capture_transcript(projects / "never-there.jsonl", *capture_into(brain, home, ScriptedExtraction([])))


@pytest.mark.proves("RED-EXCLUDE")
def test_excluded_projects_and_empty_sessions_are_skipped_with_a_reason(
    brain: Path, home: Path, projects: Path
) -> None:
    transcript = projects / "s.jsonl"
    session = write_transcript(transcript, [("Why?", RETRY.title)], cwd="/srv/secret/deep")
    settings = Settings(capture=CaptureSettings(exclude_projects=("/srv/secret",)))
    extract = ScriptedExtraction([RETRY])
    result = capture_transcript(transcript, *capture_into(brain, home, extract, settings=settings))
    assert result.skipped == "sessions in /srv/secret/deep are excluded (capture.exclude_projects)"
    assert not archive.archive_file(home, session).exists()
    moved = projects / "moved.jsonl"
    write_transcript(moved, [("Why?", RETRY.title)], cwd="/srv/open")
    with moved.open("a") as lines:  # later in the session the agent went into the excluded folder
        lines.write(transcript.read_text().replace(session, "s-moved"))
    assert "excluded" in (
        capture_transcript(moved, *capture_into(brain, home, extract, settings=settings)).skipped or ""
    )
    own = projects / "own.jsonl"
    write_transcript(own, [("Why?", RETRY.title)], cwd=str(home / "llm"))
    assert "excluded" in (capture_transcript(own, *capture_into(brain, home, extract)).skipped or "")
    assert extract.calls == 0
