"""The store of provenance: JSONL files, redacted, atomic, and no trust in what is read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from nugget.models import Evidence, Scope
from nugget.models.nuggets import FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.sources.nugget_store import read_session_file, session_files, write_session

NOW = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
SESSION = "5e551011-aaaa-4bbb-8ccc-123456789abc"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def nugget(summary: str, **values: object) -> Nugget:
    given = {
        "id": "", "type": NuggetType.DECISION, "summary": summary, "confidence": 0.8, "session": SESSION,
        "extracted_at": NOW,
    }  # fmt: skip
    return Nugget(**(given | values))  # type: ignore[arg-type]


FULL = SessionRecord(
    session=SESSION, workspace="github.com-acme-shop-1a2b3c4d", agent="codex", title="Größe prüfen", records=42,
    first_prompt="Bitte die Größe prüfen", started=NOW, ended=NOW, branch="main", transcript="/home/me/t.jsonl",
    nuggets=(
        nugget(
            "chose JWT over cookies", detail="Stateless.", scope=Scope(repo="r", path="src/auth.ts", symbol="login"),
            session_started=NOW, alternatives=("cookies", "OAuth"), stale_after=date(2027, 1, 1), agent="codex",
            source_prompt="why?", file_hash="a" * 64, method="generative",
            evidence=(Evidence(session=SESSION, quote="we take JWT", records=("r1", "r2")),),
        ),
        nugget("muss Node 18 können", type=NuggetType.CONSTRAINT),
    ),
    touches=(
        FileTouch(
            path="src/auth.ts", action=TouchAction.RENAMED, at=NOW, before_hash="b" * 64, after_hash="c" * 64,
            previous_path="src/login.ts", line_hashes=("0123456789abcdef", "fedcba9876543210"),
        ),
        FileTouch(path="README.md", action=TouchAction.DELETED),
    ),
)  # fmt: skip


def read(file: Path) -> SessionRecord:
    record, problems = read_session_file(file)
    assert problems == ()
    return record


@pytest.mark.proves("PROVENANCE-STORE")
def test_what_is_written_is_read_back_whole_with_ids_made_of_the_session(tmp_path: Path) -> None:
    file = write_session(tmp_path, FULL)
    assert file == tmp_path / "provenance" / FULL.workspace / f"{SESSION}.jsonl"
    record = read(file)
    assert [one.id for one in record.nuggets] == ["5e551011-1", "5e551011-2"]
    assert replace(record, nuggets=tuple(replace(one, id="") for one in record.nuggets)) == FULL
    assert list(session_files(tmp_path)) == list(session_files(tmp_path, FULL.workspace)) == [file]


@pytest.mark.proves("PROVENANCE-REDACTED")
def test_no_secret_is_written_wherever_it_stands(tmp_path: Path) -> None:
    leaky = nugget(
        f"use {SECRET}", detail=f"token {SECRET}", source_prompt=f"<private>{SECRET}</private>",
        alternatives=(SECRET,), scope=Scope(path=f"x/{SECRET}", symbol=SECRET),
        evidence=(Evidence(session=SESSION, quote=f"it is {SECRET}"),),
    )  # fmt: skip
    record = replace(
        FULL, title=SECRET, first_prompt=f"my token {SECRET}", branch=SECRET, transcript=f"/home/{SECRET}.jsonl",
        nuggets=(leaky,), touches=(FileTouch(path=SECRET, action=TouchAction.CREATED, previous_path=SECRET),),
    )  # fmt: skip
    file = write_session(tmp_path, record)
    assert SECRET not in file.read_text("utf-8")
    assert "[redacted:" in file.read_text("utf-8")


@pytest.mark.proves("PROVENANCE-CORRUPT")
def test_lines_that_cannot_be_taken_are_problems_and_the_rest_is_read(tmp_path: Path) -> None:
    file = write_session(tmp_path, FULL)
    good = '{"kind":"nugget","id":"n-%d","type":"caveat","summary":"s %d","confidence":%s,"session":"x"}'
    bad = [
        "{torn",
        "[]",
        '{"no":"kind"}',
        "[" * 100_000,
        good % (1, 1, '"high"'),
        good % (1, 1, "NaN"),
        (good % (1, 1, "1")).replace("caveat", "opinion"),
        (good % (1, 1, "1")).replace('"n-1"', '"../../x"'),
        (good % (1, 1, "1")).replace("}", ',"scope":{"path":"../../etc/passwd"}}'),
        '{"kind":"touch","path":"/etc/passwd","action":"created"}',
        '{"kind":"touch","path":"a/./b","action":"created"}',
        '{"kind":"touch","path":"a","action":"blown up"}',
        '{"kind":"touch","path":"a","action":"created","line_hashes":"xyz"}',
        '{"format":99,"kind":"session","session":"s","workspace":"w"}',
        "x" * (9 * 1024 * 1024),
    ]
    retracted = [good % (8, 8, "8"), '{"kind":"retracted","nugget":"n-8"}']
    fine = ['{"kind":"mood","value":1}', good % (7, 7, "7"), *retracted, ""]
    with file.open("a", encoding="utf-8") as opened:
        opened.write("\n".join([*bad, *fine]))
    record, problems = read_session_file(file)
    assert [one.summary for one in record.nuggets] == [*(one.summary for one in FULL.nuggets), "s 7"]
    first = len(FULL.nuggets) + len(FULL.touches) + 2
    assert [problem.line for problem in problems] == list(range(first, first + len(bad)))
    assert "leads out of the workspace" in problems[9].reason


@pytest.mark.parametrize("session", ["../../escape", "a/b", "", ".hidden", "x" * 300, "con\0", "ünï"])
def test_no_session_id_leads_out_of_the_folder(tmp_path: Path, session: str) -> None:
    file = write_session(tmp_path, replace(FULL, session=session, workspace="../../up", nuggets=()))
    assert file.is_file()
    assert file.parent.parent == tmp_path / "provenance"
    assert list(session_files(tmp_path, "../../up")) == [file]
