"""What is kept of sessions: the archive, redacted again by stricter rules, and the store of provenance."""

import gzip
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from nugget.cli import run
from nugget.config import Settings, load_settings, read_environment
from nugget.models import Event, EventKind, Evidence, Scope, Session
from nugget.models.nuggets import FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.redaction import redact_session, rules_stamp
from nugget.sources import sessions as archive
from nugget.sources.nugget_store import read_session_file, session_files, unit_of, write_session
from nugget.upkeep.doctor import doctor

STRICT = Settings(capture_exclude_paths=("hr/*",), capture_exclude_projects=("/srv/secret",))


def kept(home: Path, name: str, *events: Event, cwd: str = "/srv/shop", settings: Settings | None = None) -> Path:
    """An archived session, redacted by these settings."""
    session = Session(id=name, agent="claude-code", path=f"/t/{name}.jsonl", events=events, cwd=cwd)
    settings = settings or Settings()
    return archive.write_archive(home, redact_session(session, settings=settings)[0], stamps=[rules_stamp(settings)])


def text_of(file: Path) -> str:
    return gzip.decompress(file.read_bytes()).decode()


PAY = (
    Event(kind=EventKind.COMMAND, text="cat hr/pay.csv", uuid="1", call_id="c"),
    Event(kind=EventKind.OUTPUT, text="ann,90000", uuid="2", call_id="c"),
    Event(kind=EventKind.REPLY, text="Done as asked.", uuid="3"),
)


@pytest.mark.proves("CAPTURE-RE-REDACT")
def test_stricter_settings_take_out_of_the_archive_what_they_exclude(home):
    file = kept(home, "one", *PAY)
    gone = kept(home, "two", *PAY, cwd="/srv/secret/deep")
    assert "90000" in text_of(file) and archive.outdated_archives(home, Settings()) == []
    assert archive.outdated_archives(home, STRICT) == [file, gone]
    assert archive.redact_again(home, STRICT) == {"rewritten": [str(file)], "removed": [str(gone)], "failed": []}
    assert "90000" not in text_of(file) and not gone.exists()
    assert archive.read_archive(file).events[2] == PAY[2] and archive.outdated_archives(home, STRICT) == []
    assert not any(archive.redact_again(home, STRICT).values())


@pytest.mark.proves("RED-EXCLUDE")
@pytest.mark.parametrize(
    ("command", "output", "kept"),
    [
        ("grep -rn salary .", "src/a.py:3:salary = 1\nhr/pay.csv:7:ann,90000\n./hr/pay.csv:8:bo,90000", "src/a.py:3"),
        ("grep -rnC1 salary .", "hr/pay.csv-6-90000\nhr/pay.csv:7:90000\n--\nsrc/a.py-3-ok", "src/a.py-3-ok"),
        ("rg --heading it", "src/a.py\n3:it\n\nhr/pay.csv\n7:ann,90000\n8-bo,90000\n\nz.py\n1:ok", "z.py\n1:ok"),
        ("head -3 *", "==> a.txt <==\nfine\n\n==> hr/pay.csv <==\nann,90000\n\n==> z.txt <==\nlast", "last"),
        ("git diff", "diff --git a/hr/p.csv b/hr/p.csv\n@@ -1 +1 @@\n-90000\ndiff --git a/b.py b/b.py\n+ok", "+ok"),
        ("cd hr && cat pay.csv", "ann,90000", None),
        ("cat hr/*.csv", "ann,90000", None),
        ("cat ./hr/pay.csv", "ann,90000", None),
        ("cat .env*", "SALARY=90000", None),
        ("cat conf/.en?", "SALARY=90000", None),
    ],
)
def test_what_a_command_shows_of_an_excluded_file_is_dropped(command, output, kept):
    events = (
        Event(kind=EventKind.COMMAND, text=command, call_id="1"),
        Event(kind=EventKind.OUTPUT, text=output, call_id="1"),
        Event(kind=EventKind.OUTPUT, text="http://localhost:8080/hr/pay: ok", call_id="2"),
    )
    settings = Settings(capture_exclude_paths=("hr/*", ".env"))
    session, _ = redact_session(Session(id="s", agent="a", path="p", events=events), settings=settings)
    assert "90000" not in repr(session)
    assert kept is None or kept in session.events[1].text
    assert session.events[2] == events[2]


@pytest.mark.proves("CAPTURE-RE-REDACT", "HEALTH-NEXT")
def test_doctor_names_it_and_the_command_does_it(home, brain, monkeypatch, capsys):
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    kept(home, "one", *PAY)

    def told() -> list[str | None]:
        environment = read_environment()
        found = doctor(brain, load_settings(environment, brain), environment, now=datetime.now(UTC))
        return [one["next_step"] for one in found if one["name"] == "archive"]

    assert told() == []
    (home / "config.yaml").write_text("capture:\n  exclude_paths: ['hr/*']\n")
    assert told() == ["nugget scrub"]
    assert run(["scrub"]) == 0 and "rewritten: " in capsys.readouterr().out and told() == []


NOW = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
SESSION = "5e551011-aaaa-4bbb-8ccc-123456789abc"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def nugget(summary: str, **values: object) -> Nugget:
    given = {"id": "", "type": NuggetType.DECISION, "confidence": 0.8, "session": SESSION, "extracted_at": NOW}
    return Nugget(summary=summary, **(given | values))  # type: ignore[arg-type]


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


@pytest.mark.proves("SEARCH-SNIPPET")
@pytest.mark.parametrize(("detail", "prompt", "rest"), [
    ("", "Can you add a retry?", ""), ("Calls fail.", "", "\n\nCalls fail."),
    ("Calls fail.", "Calls fail. So now add a retry!", "\n\nAsked: Calls fail. So now add a retry!"),
])  # fmt: skip
def test_a_nugget_says_everything_once(detail, prompt, rest):
    told = nugget("Changed a.py: Add a retry", detail=detail, source_prompt=prompt)
    assert unit_of(told, workspace="w").body == f"# {told.summary}{rest}"


@pytest.mark.proves("PROVENANCE-STORE")
def test_what_is_written_is_read_back_whole_with_ids_made_of_the_session(tmp_path):
    file = write_session(tmp_path, FULL)
    assert file == tmp_path / "provenance" / FULL.workspace / f"{SESSION}.jsonl"
    record = read(file)
    assert [one.id for one in record.nuggets] == ["5e551011-1", "5e551011-2"]
    assert replace(record, nuggets=tuple(replace(one, id="") for one in record.nuggets)) == FULL
    assert list(session_files(tmp_path)) == list(session_files(tmp_path, FULL.workspace)) == [file]


@pytest.mark.proves("PROVENANCE-REDACTED")
def test_no_secret_is_written_wherever_it_stands(tmp_path):
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
    assert SECRET not in file.read_text("utf-8") and "[redacted:" in file.read_text("utf-8")


@pytest.mark.proves("PROVENANCE-CORRUPT")
def test_lines_that_cannot_be_taken_are_problems_and_the_rest_is_read(tmp_path):
    file = write_session(tmp_path, FULL)
    good = '{"kind":"nugget","id":"n-%d","type":"caveat","summary":"s %d","confidence":%s,"session":"x"}'
    one = good % (1, 1, "1")
    bad = [
        "{torn", "[]", '{"no":"kind"}', "[" * 100_000, good % (1, 1, '"high"'), good % (1, 1, "NaN"),
        one.replace("caveat", "opinion"), one.replace('"n-1"', '"../../x"'),
        one.replace("}", ',"scope":{"path":"../../etc/passwd"}}'),
        '{"kind":"touch","path":"/etc/passwd","action":"created"}',
        '{"kind":"touch","path":"a/./b","action":"created"}',
        '{"kind":"touch","path":"a","action":"blown up"}',
        '{"kind":"touch","path":"a","action":"created","line_hashes":"xyz"}',
        '{"format":99,"kind":"session","session":"s","workspace":"w"}',
        "x" * (9 * 1024 * 1024),
    ]  # fmt: skip
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
def test_no_session_id_leads_out_of_the_folder(tmp_path, session):
    file = write_session(tmp_path, replace(FULL, session=session, workspace="../../up", nuggets=()))
    assert file.is_file() and file.parent.parent == tmp_path / "provenance"
    assert list(session_files(tmp_path, "../../up")) == [file]
