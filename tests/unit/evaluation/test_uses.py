"""Uses: what a session cited or edited after it had asked."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sessions import NOW, STARTED, write_transcript

from nugget.app.worker import work
from nugget.config import Settings, read_environment
from nugget.evaluation import query_log
from nugget.evaluation.query_log import Asked, Face, read_uses, report, uses_in
from nugget.infra import files
from nugget.models import Event, EventKind, Session


def entry(text: str = "x", **values: Any) -> Asked:
    known = {"id": text, "time": NOW, "brain": "/b", "face": Face.CLI, "text": text, "duration_ms": 5.0}
    return Asked(**known | values)  # type: ignore[arg-type]


def event(kind: EventKind, text: str, minutes: float, **values: Any) -> Event:
    return Event(kind=kind, text=text, timestamp=NOW + timedelta(minutes=minutes), **values)


@pytest.mark.proves("USED-LATER")
@pytest.mark.parametrize(
    ("later", "used"),
    [
        (event(EventKind.REPLY, "As pattern/retry says, wait.", 1), [("pattern/retry", "cited")]),
        (event(EventKind.COMMAND, "nugget get brain:pattern/retry", 1), [("pattern/retry", "cited")]),
        (event(EventKind.REPLY, "As pattern/retry-twice says", 1), []),
        (event(EventKind.REPLY, "As pattern/retry says", -1), []),
        (event(EventKind.TOOL_RESULT, "### 1. pattern/retry · pattern", 1), []),
        (event(EventKind.OUTPUT, "pattern/retry", 1), []),
        (event(EventKind.FILE_EDIT, "", 1, path="/srv/shop/src/pay/client.py"), [("bug/pay", "edited")]),
        (event(EventKind.FILE_EDIT, "", 1, path="/srv/shop/src/payment.py"), []),
        (event(EventKind.FILE_EDIT, "", 1, path="x.py", after="# bug/pay"), [("bug/pay", "cited")]),
    ],
)
def test_use_is_a_later_citation_or_an_edit_of_what_the_unit_is_about(later: Event, used: list[Any]) -> None:
    session = Session(id="s", agent="claude-code", path="", events=(later,))
    entries = [entry("q", units=(("pattern/retry", 0.9), ("bug/pay", 0.5)))]
    found = uses_in(session, entries, scope_of={"bug/pay": "src/pay"}.get)
    assert [(unit, how) for _, unit, how in found] == used


@pytest.mark.proves("USED-LATER")
def test_the_worker_notes_use_once_when_it_captures_the_session(tmp_path: Path, words: Path) -> None:
    environment = read_environment()
    home = environment.home
    file = environment.claude_config / "projects/-srv-shop/s.jsonl"
    turns = [
        ("How do we retry?", "I asked the brain."),
        ("Go on.", "As concept/idempotency-keys says: store the key first."),
    ]
    session = write_transcript(file, turns)
    asked = entry(
        "retry", id="q1", brain=str(words), session=session, time=STARTED + timedelta(seconds=12),
        units=(("concept/idempotency-keys", 0.9), ("pattern/other", 0.2)),
    )  # fmt: skip
    assert query_log.record(home, asked, settings=Settings())
    assert query_log.record(home, replace(asked, id="q2", session="another"), settings=Settings())
    for number in range(2):
        files.queue_job(home, {"queued": time.time(), "session": session, "transcript": str(file)})
        work(environment)
        write_transcript(
            file, [(f"And {number}?", "Yes.")], session=session, started=STARTED + timedelta(hours=1 + number)
        )
    assert read_uses(home) == {"q1": ["concept/idempotency-keys"]}
    found = report(query_log.read(home), used=read_uses(home), unit_ids=[])
    assert found["used_in"] == 1 and found["queries"][0]["used"] == ["concept/idempotency-keys"]
