"""The archive follows stricter rules: what they take out is taken out of what was kept before, too."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nugget.cli import run
from nugget.config import CaptureSettings, Settings, load_settings, read_environment
from nugget.models import Event, EventKind, Session
from nugget.redaction import redact_session, rules_stamp
from nugget.sources import sessions as archive
from nugget.upkeep.doctor import doctor

STRICT = Settings(capture=CaptureSettings(exclude_paths=("hr/*",), exclude_projects=("/srv/secret",)))


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
def test_stricter_settings_take_out_of_the_archive_what_they_exclude(home: Path) -> None:
    file = kept(home, "one", *PAY)
    gone = kept(home, "two", *PAY, cwd="/srv/secret/deep")
    assert "90000" in text_of(file) and archive.outdated_archives(home, Settings()) == []
    assert archive.outdated_archives(home, STRICT) == [file, gone]
    assert archive.redact_again(home, STRICT) == {"rewritten": [str(file)], "removed": [str(gone)], "failed": []}
    assert "90000" not in text_of(file) and not gone.exists()
    assert archive.read_archive(file).events[2] == PAY[2]
    assert archive.outdated_archives(home, STRICT) == []
    assert not any(archive.redact_again(home, STRICT).values())


@pytest.mark.proves("RED-EXCLUDE")
@pytest.mark.parametrize(
    ("command", "output", "kept"),
    [
        ("grep -rn salary .", "src/a.py:3:salary = 1\nhr/pay.csv:7:ann,90000\n./hr/pay.csv:8:bo,90000", "src/a.py:3"),
        ("grep -rnC1 salary .", "hr/pay.csv-6-90000\nhr/pay.csv:7:90000\n--\nsrc/a.py-3-ok", "src/a.py-3-ok"),
        (
            "rg --heading salary",
            "src/a.py\n3:salary\n\nhr/pay.csv\n7:ann,90000\n8-bo,90000\n\nz.py\n1:ok",
            "z.py\n1:ok",
        ),
        ("head -3 *", "==> a.txt <==\nfine\n\n==> hr/pay.csv <==\nann,90000\n\n==> z.txt <==\nlast", "last"),
        ("git diff", "diff --git a/hr/p.csv b/hr/p.csv\n@@ -1 +1 @@\n-90000\ndiff --git a/b.py b/b.py\n+ok", "+ok"),
        ("cd hr && cat pay.csv", "ann,90000", None),
        ("cat hr/*.csv", "ann,90000", None),
        ("cat ./hr/pay.csv", "ann,90000", None),
        ("cat .env*", "SALARY=90000", None),
        ("cat conf/.en?", "SALARY=90000", None),
    ],
)
def test_what_a_command_shows_of_an_excluded_file_is_dropped(command: str, output: str, kept: str | None) -> None:
    events = (
        Event(kind=EventKind.COMMAND, text=command, call_id="1"),
        Event(kind=EventKind.OUTPUT, text=output, call_id="1"),
        Event(kind=EventKind.OUTPUT, text="http://localhost:8080/hr/pay: ok", call_id="2"),
    )
    settings = Settings(capture=CaptureSettings(exclude_paths=("hr/*", ".env")))
    session, _ = redact_session(Session(id="s", agent="a", path="p", events=events), settings=settings)
    assert "90000" not in repr(session)
    assert kept is None or kept in session.events[1].text
    assert session.events[2] == events[2]


KEY = "ghp_" + "a1B2c3D4e5F6" * 3


@pytest.mark.proves("CAPTURE-RE-REDACT", "HEALTH-NEXT")
def test_doctor_names_it_and_the_command_does_it(
    home: Path, brain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert run(["scrub"]) == 0 and "rewritten: " in capsys.readouterr().out
    assert told() == []
