"""Nuggets between machines: exported, imported, nothing twice, and nothing hostile taken."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nugget.cli import run
from nugget.config import Settings
from nugget.models import Evidence, Scope
from nugget.models.nuggets import FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.provenance.inventory import import_lines
from nugget.sources.nugget_store import read_session_file, session_files, write_session

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
SHOP = "github.com-acme-shop-1a2b3c4d"


def nugget(summary: str, session: str, **values: object) -> Nugget:
    given = {"id": "", "type": NuggetType.DECISION, "summary": summary, "confidence": 0.8, "session": session}
    return Nugget(**(given | values))  # type: ignore[arg-type]


def record(session: str = "aaaaaaaa-1111", *summaries: str) -> SessionRecord:
    scope = Scope(repo=SHOP, path="src/auth.py", symbol="login")
    return SessionRecord(
        session=session, workspace=SHOP, title="Login", started=NOW, ended=NOW, records=7,
        transcript="/home/me/.claude/t.jsonl",
        nuggets=tuple(
            nugget(one, session, scope=scope, evidence=(Evidence(session=session, quote="said"),)) for one in summaries
        ),
        touches=(FileTouch(path="src/auth.py", action=TouchAction.MODIFIED, after_hash="a" * 64),),
    )  # fmt: skip


def take_in(home: Path, text: str, *, dry_run: bool = False) -> dict[str, Any]:
    return import_lines(home, io.BytesIO(text.encode()), name="in.jsonl", settings=Settings(), dry_run=dry_run)


def stored(home: Path) -> list[SessionRecord]:
    return [read_session_file(file)[0] for file in session_files(home)]


@pytest.mark.proves("PROVENANCE-TRAVEL")
def test_hostile_lines_are_reported_and_nothing_of_them_lands_anywhere_else(tmp_path: Path) -> None:
    lines = [
        {"kind": "nugget", "id": "x-1", "type": "caveat", "summary": "homeless", "confidence": 1, "session": "s"},
        {"kind": "session", "session": "../../../escape", "workspace": "../../etc", "records": 10**9},
        {"kind": "nugget", "id": "x-1", "type": "caveat", "summary": f"key {SECRET}", "confidence": 1, "session": "z"},
        {"kind": "nugget", "id": "x-1", "type": "caveat", "summary": "same id", "confidence": 1, "session": "z"},
        {"kind": "touch", "path": "../up", "action": "created"},
    ]
    text = "\n".join(["{torn", *map(json.dumps, lines), "[]", "\0"])
    done = take_in(tmp_path / "home", text)
    assert (done["sessions"], done["new"], len(done["problems"])) == (1, 2, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    [kept] = stored(tmp_path / "home")
    assert kept.records == 0
    assert {one.session for one in kept.nuggets} == {"../../../escape"}
    assert len({one.id for one in kept.nuggets}) == 2
    assert SECRET not in next(session_files(tmp_path / "home")).read_text("utf-8")


@pytest.mark.proves("PROVENANCE-TRAVEL")
def test_the_commands_write_a_file_and_read_it_back(
    isolated_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_session(isolated_home / ".nugget", record("aaaaaaaa-1111", "chose JWT"))
    monkeypatch.chdir(tmp_path)
    assert run(["nuggets", "export", "out.jsonl", "--all"]) == 0
    assert run(["nuggets", "export", "--all"]) == 0
    shown = capsys.readouterr()
    assert shown.out == (tmp_path / "out.jsonl").read_text("utf-8")
    monkeypatch.setenv("NUGGET_HOME", str(tmp_path / "other"))
    assert run(["nuggets", "import", "out.jsonl"]) == 0
    assert capsys.readouterr().out == "1 session: 1 nugget new, 0 known already.\n"
    assert run(["nuggets", "import", "none.jsonl"]) == 2
    (tmp_path / "bad.jsonl").write_text("no\n")
    assert run(["nuggets", "import", "bad.jsonl"]) == 1
