"""The query log and what it tells: written by the faces, private, bounded, harmless; summed up, with what was used."""

from __future__ import annotations

import json
import stat
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from commands import Nugget
from hypothesis import given
from hypothesis import strategies as st
from secret_corpus import corpus
from sessions import NOW

import nugget as package
from nugget.app.agent_session import AgentSession
from nugget.config import Settings, read_environment
from nugget.evaluation import query_log
from nugget.evaluation.query_log import Asked, uses_in
from nugget.infra import files
from nugget.mcp.answers import answer as answer_question
from nugget.models import Event, EventKind, Filter, Query, Session
from nugget.redaction import redact


def entry(text: str = "x", **values: Any) -> Asked:
    known = {"id": text, "time": NOW, "brain": "/b", "face": "cli", "text": text, "duration_ms": 5.0}
    return Asked(**known | values)  # type: ignore[arg-type]


def logged(home: Path) -> list[dict[str, Any]]:
    return list(files.read_lines(home / "ledger" / query_log.QUERIES))


# --- what is recorded ---


@pytest.mark.proves("LOG-RECORDS", "LOG-PRIVATE", "LOG-BOUNDED")
def test_each_face_records_its_questions_with_what_came_back(
    words: Path, nugget: Nugget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")
    environment = read_environment()
    assert nugget("ask", "cache invalidation", "--type", "concept,bug", "--limit", "2")[0] == 0
    assert nugget("search", "retries", "--domain", "coding")[0] == 0
    with package.open() as opened:
        bundle = opened.ask(Query("money", filter=Filter(since=date(2020, 1, 1))))
    session = AgentSession(flag=None, environment=environment, cwd=words)
    answer_question(session, Query("how are errors wrapped"))
    session.close()
    found = query_log.read(environment.home, brain=words)
    assert [(e.face, e.text, e.profile) for e in found] == [
        ("cli", "cache invalidation", "task"), ("cli", "retries", "task"), ("python", "money", "task"),
        ("mcp", "how are errors wrapped", "task"),
    ]  # fmt: skip
    assert [e.filters for e in found[:3]] == [
        {"type": ["concept", "bug"]}, {"domain": ["coding"]}, {"since": "2020-01-01"},
    ]  # fmt: skip
    assert {e.session for e in found} == {"s-1"} and len({e.id for e in found}) == 4
    assert found[2].unit_ids == [hit.unit.id for hit in bundle.hits]
    assert stat.S_IMODE((environment.home / "ledger").stat().st_mode) == 0o700
    nugget("ask", "word " * 5000)
    assert len(query_log.read(environment.home)[-1].text) == query_log.MAX_TEXT_CHARS


@pytest.mark.proves("LOG-PRIVATE")
def test_the_log_can_be_switched_off(words: Path, nugget: Nugget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUGGET_RETRIEVAL_LOG_QUERIES", "false")
    assert nugget("ask", "cache")[0] == 0
    assert logged(read_environment().home) == []
    code, out, err = nugget("queries")
    assert (code, out) == (0, "There is no query log.\n") and "`retrieval.log_queries` is false" in err


# --- privacy ---


@pytest.mark.proves("LOG-PRIVATE")
@pytest.mark.parametrize("name", ["secrets", "lookalikes"])
def test_the_log_keeps_what_redaction_leaves_of_the_corpus(tmp_path: Path, name: str) -> None:
    texts = ["".join(row["text"]) for row in corpus(name)]
    assert all(query_log.record(tmp_path, entry(text), settings=Settings()) for text in texts)
    kept = [line["text"] for line in logged(tmp_path)]
    assert kept == [redact(text).text for text in texts]
    assert name == "lookalikes" or sum("[redacted:" in text for text in kept) >= 0.99 * len(texts)


FRAGMENTS = [
    "password", "token", "secret", "api key", "is", "hunter2", "k8s", "E0425", "AKIA", "ghp_", "sk-", "Bearer", "-p",
    "login", "machine", "a1b2c3d4", "correct", "horse", "12345678", "https", "example.com", "/", "-", "_", ".", " ",
    "private key", "Zx9Qw3", "the", "user", "credential", "pass", "'", "?", "(", ")", ",", "\n",
]  # fmt: skip


@pytest.mark.proves("LOG-PRIVATE")
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12), st.sampled_from(["", " "]))
def test_whatever_is_put_together_redaction_agrees(parts: list[str], between: str) -> None:
    text = between.join(parts)
    assert not query_log.holds_no_secret(text) or redact(text).text == text


# --- harm ---


@pytest.mark.proves("LOG-HARMLESS")
def test_a_log_that_cannot_be_written_fails_no_question(
    words: Path, nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "ledger").write_text("a file, where a folder should be")
    monkeypatch.setenv("NUGGET_HOME", str(blocked))
    code, out, err = nugget("ask", "cache invalidation")
    assert code == 0 and "1. " in out and "rror" not in err
    bad = Settings(redaction_allow=("(",))
    assert not query_log.record(tmp_path, entry("password=hunter2"), settings=bad)
    assert not (tmp_path / "ledger").exists()


# --- what it tells ---


@pytest.mark.proves("QUERIES-REPORT")
def test_queries_shows_top_zero_and_weak_questions_and_the_coverage(words: Path, nugget: Nugget) -> None:
    for text in ("cache invalidation", "retries", "Cache  invalidation", "xyzzy plugh"):
        assert nugget("ask", text)[0] == 0
    code, out, _ = nugget("queries", "--json", "--limit", "1")
    document = json.loads(out)
    assert code == 0 and document["asked"] == 4 and document["zero"] == 1
    assert [(row["text"], row["times"]) for row in document["queries"]] == [("Cache invalidation", 2)]
    assert document["p95_ms"] >= document["p50_ms"] > 0
    coverage = document["coverage"]
    assert 0 < coverage["returned"] <= coverage["units"] == 44
    assert coverage["share"] == pytest.approx(coverage["returned"] / coverage["units"], abs=1e-4)
    shown = nugget("queries")[1]
    assert "4 questions (4 cli), 3 different" in shown and "   2 × Cache invalidation\n" in shown


# --- what was used ---


def event(kind: EventKind, text: str, minutes: float, **values: Any) -> Event:
    return Event(kind=kind, text=text, timestamp=NOW + timedelta(minutes=minutes), **values)


@pytest.mark.proves("USED-LATER")
@pytest.mark.parametrize(
    ("later", "used"),
    [
        (event(EventKind.REPLY, "As pattern/retry says, wait.", 1), [("pattern/retry", "cited")]),
        (event(EventKind.REPLY, "As pattern/retry-twice says", 1), []),
        (event(EventKind.REPLY, "As pattern/retry says", -1), []),
        (event(EventKind.TOOL_RESULT, "### 1. pattern/retry · pattern", 1), []),
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
