"""Golden questions and the query log: read, asked, measured, compared; recorded, private, bounded, summed up."""

import json
import math
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from knowledge_files import write
from paths import TESTS
from secret_corpus import corpus
from sessions import NOW

import nugget as package
from nugget.app import Brain
from nugget.app.agent_session import AgentSession
from nugget.brain.checks import parse, read_golden
from nugget.config import Settings, read_environment
from nugget.evaluation import evaluate, means, metrics, query_log
from nugget.evaluation.query_log import Asked, uses_in
from nugget.infra import files
from nugget.mcp.answers import answer as answer_question
from nugget.models import Event, EventKind, Filter, Query, Session
from nugget.redaction import redact

DAY = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def opened(brain: Path) -> Iterator[Brain]:
    """tests/brain without vectors."""
    with Brain(brain, settings=Settings(embedding_model="none")) as opened:
        opened.sync()
        yield opened


@pytest.mark.proves("EVAL-METRICS")
def test_metrics_are_those_of_a_worked_example():
    values = metrics(["x", "a", "y", "b", *"0123456", "c"], {"a": 1.0, "b": 1.0, "c": 1.0})
    assert values["recall@5"] == values["recall@10"] == pytest.approx(2 / 3)
    assert values["mrr@10"] == 0.5
    gained = 1 / math.log2(3) + 1 / math.log2(5)
    assert values["ndcg@10"] == pytest.approx(gained / (1 + 1 / math.log2(3) + 1 / math.log2(4)))


@pytest.mark.proves("EVAL-GOLDEN")
def test_questions_are_read_with_every_filter_and_their_lines():
    questions, problems = parse(
        b"""# ours
questions:
  - question: Why   twice?
    expect: [concept/a, brain:bug/b]
    filters: {type: [concept, bug], domain: /coding/, tag: x, since: 2026-01-02, source: brain}
  - expect: concept/c
    question: "one word"
  - {question: nobody knows, expect: []}
""",
        path="evals/x.yaml",
    )
    assert not problems
    first = questions[0]
    assert (first.text, first.expect, first.line) == ("Why twice?", ("concept/a", "bug/b"), 3)
    assert first.filter == replace(
        Filter(), types=("concept", "bug"), domains=("coding",), tags=("x",), since=date(2026, 1, 2),
        sources=first.filter.sources,
    )  # fmt: skip


@pytest.mark.proves("EVAL-GOLDEN")
def test_a_bad_question_stops_no_other_and_a_link_out_of_the_brain_is_refused(brain, tmp_path):
    write(brain, "evals/golden.yaml", "questions:\n  - nonsense\n  - {question: fine, expect: []}\n")
    secret = tmp_path / "secret.yaml"
    secret.write_text("questions: [{question: leaked, expect: []}]")
    (brain / "evals" / "out.yaml").symlink_to(secret)
    questions, problems = read_golden(brain)
    assert [question.text for question in questions] == ["fine"]
    assert {problem.path for problem in problems} == {"evals/golden.yaml", "evals/out.yaml"}


@pytest.mark.proves("EVAL-EXPLAINS")
def test_an_outcome_says_where_the_unit_stands_which_list_missed_it_and_what_came_instead(brain):
    golden = yaml.safe_load((TESTS / "golden/questions.yaml").read_text("utf-8"))["questions"]
    with Brain(brain) as opened:
        opened.sync()
        ids = opened.index.unit_ids()
        asked = [{"question": entry["question"], "expect": [entry["expect"][0], ids[0]]} for entry in golden[:12]]
        questions, _ = parse(yaml.safe_dump({"questions": asked}).encode(), path="g")
        done = evaluate(questions, lambda query: opened.ask(query, fresh=False, now=DAY), known=ids, now=DAY,
                        ranking="calibrated", model=opened.embedder and opened.embedder.model)  # fmt: skip
        for outcome in done["results"]:
            bundle = opened.ask(Query(outcome["question"], limit=50, budget_tokens=10**9), fresh=False, now=DAY)
            order = [hit.unit.id for hit in bundle.hits]
            assert [one["id"] for one in outcome["first"]] == order[:3]
            for placed in outcome["expected"]:
                if placed["rank"] is None:
                    assert placed["id"] not in order and placed["why"] == "neither list holds it"
                    continue
                assert order[placed["rank"] - 1] == placed["id"]
                reasons = bundle.hits[placed["rank"] - 1].reasons
                for name in ("vector", "bm25"):
                    held = any(reason.startswith(f"{name} #") for reason in reasons)
                    assert (f"{name} misses it" in placed["why"]) is not held
    assert done["metrics"] == means([outcome["metrics"] for outcome in done["results"]])


@pytest.mark.proves("EVAL-COMPARES", "EVAL-UNANSWERABLE")
def test_eval_compares_with_the_last_run_and_with_a_baseline(words, nugget):
    first, *_, last = unit_ids(words)
    golden = (
        "questions:\n- {{question: idempotency keys for retries, expect: [{}]}}\n- {{question: xyzzy, expect: []}}\n"
    )
    write(words, "evals/golden.yaml", golden.format(first))
    code, out, _ = nugget("eval", "--json")
    document = json.loads(out)
    assert code == 0 and document["comparison"] is None
    assert (document["questions"], document["unanswerable"]) == (1, {"questions": 1, "flagged": 1})
    good = words.parent / "good.json"
    raised = json.loads(out)
    for row in raised["results"]:
        row["metrics"] = dict.fromkeys(row["metrics"], 1.0)
    write(words, "evals/golden.yaml", golden.format(last))
    raised["results"][0]["key"] = json.dumps(["idempotency keys for retries", [last], {}])
    good.write_text(json.dumps(raised))
    code, out, _ = nugget("eval", "--baseline", good)
    assert code == 1 and "Fell by more than 0.02: recall@1" in out and f"expected {last}" in out
    code, out, _ = nugget("eval", "--json")
    assert code == 0 and json.loads(out)["comparison"] is None, "the question is another one now"
    code, out, _ = nugget("eval", "--json")
    assert json.loads(out)["comparison"]["questions"] == 1


@pytest.mark.proves("EVAL-UNKNOWN-ID", "EVAL-GOLDEN")
def test_eval_names_the_file_and_line_of_what_is_wrong_and_fails(words, nugget):
    write(
        words,
        "evals/golden.yaml",
        "questions:\n- question: a\n  expect: [concept/gone]\n- {question: retries, expect: []}\n",
    )
    code, out, _ = nugget("eval")
    assert code == 1 and out.startswith("evals/golden.yaml:2: error: the brain has no unit concept/gone\n")


def unit_ids(brain: Path) -> list[str]:
    with Brain(brain, settings=Settings(embedding_model="none")) as opened:
        opened.sync()
        return opened.index.unit_ids()


def entry(text: str = "x", **values: Any) -> Asked:
    known = {"id": text, "time": NOW, "brain": "/b", "face": "cli", "text": text, "duration_ms": 5.0}
    return Asked(**known | values)  # type: ignore[arg-type]


def logged(home: Path) -> list[dict[str, Any]]:
    return list(files.read_lines(home / "ledger" / query_log.QUERIES))


@pytest.mark.proves("LOG-RECORDS", "LOG-PRIVATE", "LOG-BOUNDED")
def test_each_face_records_its_questions_with_what_came_back(words, nugget, monkeypatch):
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
def test_the_log_can_be_switched_off(words, nugget, monkeypatch):
    monkeypatch.setenv("NUGGET_RETRIEVAL_LOG_QUERIES", "false")
    assert nugget("ask", "cache")[0] == 0
    assert logged(read_environment().home) == []
    code, out, err = nugget("queries")
    assert (code, out) == (0, "There is no query log.\n") and "`retrieval.log_queries` is false" in err


@pytest.mark.proves("LOG-PRIVATE")
@pytest.mark.parametrize("name", ["secrets", "lookalikes"])
def test_the_log_keeps_what_redaction_leaves_of_the_corpus(tmp_path, name):
    for text in (texts := ["".join(row["text"]) for row in corpus(name)]):
        query_log.record(tmp_path, entry(text), settings=Settings())
    kept = [line["text"] for line in logged(tmp_path)]
    assert kept == [redact(text).text for text in texts]
    assert name == "lookalikes" or sum("[redacted:" in text for text in kept) >= 0.99 * len(texts)


@pytest.mark.proves("LOG-HARMLESS")
def test_a_log_that_cannot_be_written_fails_no_question(words, nugget, tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "ledger").write_text("a file, where a folder should be")
    monkeypatch.setenv("NUGGET_HOME", str(blocked))
    code, out, err = nugget("ask", "cache invalidation")
    assert code == 0 and "1. " in out and "rror" not in err


@pytest.mark.proves("QUERIES-REPORT")
def test_queries_shows_top_zero_and_weak_questions_and_the_coverage(words, nugget):
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
def test_use_is_a_later_citation_or_an_edit_of_what_the_unit_is_about(later, used):
    session = Session(id="s", agent="claude-code", path="", events=(later,))
    entries = [entry("q", units=(("pattern/retry", 0.9), ("bug/pay", 0.5)))]
    assert [(unit, how) for _, unit, how in uses_in(session, entries, scope_of={"bug/pay": "src/pay"}.get)] == used
