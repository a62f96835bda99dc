"""Golden questions: read, asked of a real index, measured, explained, compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Nugget
from paths import TESTS

from nugget.app import Brain
from nugget.brain.checks import parse, read_golden
from nugget.config import EmbeddingSettings, Settings
from nugget.evaluation import evaluate, means, metrics
from nugget.models import Filter, Query

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def opened(brain: Path) -> Iterator[Brain]:
    """tests/brain without vectors."""
    with Brain(brain, settings=Settings(embedding=EmbeddingSettings(model="none"))) as opened:
        opened.sync()
        yield opened


def run_of(opened: Brain, golden: str) -> dict[str, Any]:
    model = opened.embedder.model if opened.embedder else None
    return evaluate(
        parse(golden.encode(), path="g")[0], lambda query: opened.ask(query, fresh=False, now=NOW),
        known=opened.index.unit_ids(), ranking="calibrated", model=model, now=NOW,
    )  # fmt: skip


def write_golden(brain: Path, text: str, name: str = "golden.yaml") -> Path:
    file = brain / "evals" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8")
    return file


# --- metrics ---


@pytest.mark.proves("EVAL-METRICS")
def test_metrics_are_those_of_a_worked_example() -> None:
    found = ["x", "a", "y", "b", *"0123456", "c"]
    values = metrics(found, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert values["recall@5"] == values["recall@10"] == pytest.approx(2 / 3)
    assert values["mrr@10"] == 0.5
    gained = 1 / math.log2(3) + 1 / math.log2(5)
    assert values["ndcg@10"] == pytest.approx(gained / (1 + 1 / math.log2(3) + 1 / math.log2(4)))


# --- golden questions ---


@pytest.mark.proves("EVAL-GOLDEN")
def test_questions_are_read_with_every_filter_and_their_lines() -> None:
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
def test_a_bad_question_stops_no_other_and_a_link_out_of_the_brain_is_refused(brain: Path, tmp_path: Path) -> None:
    write_golden(brain, "questions:\n  - nonsense\n  - {question: fine, expect: []}\n")
    secret = tmp_path / "secret.yaml"
    secret.write_text("questions: [{question: leaked, expect: []}]")
    (brain / "evals" / "out.yaml").symlink_to(secret)
    questions, problems = read_golden(brain)
    assert [question.text for question in questions] == ["fine"]
    assert {problem.path for problem in problems} == {"evals/golden.yaml", "evals/out.yaml"}


# --- runs ---


@pytest.mark.proves("EVAL-EXPLAINS")
def test_an_outcome_says_where_the_unit_stands_which_list_missed_it_and_what_came_instead(brain: Path) -> None:
    golden = yaml.safe_load((TESTS / "golden/questions.yaml").read_text("utf-8"))["questions"]
    with Brain(brain) as opened:
        opened.sync()
        ids = opened.index.unit_ids()
        asked = [{"question": entry["question"], "expect": [entry["expect"][0], ids[0]]} for entry in golden[:12]]
        done = run_of(opened, yaml.safe_dump({"questions": asked}))
        for outcome in done["results"]:
            bundle = opened.ask(Query(outcome["question"], limit=50, budget_tokens=10**9), fresh=False, now=NOW)
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


# --- the command ---


@pytest.mark.proves("EVAL-COMPARES", "EVAL-UNANSWERABLE")
def test_eval_compares_with_the_last_run_and_with_a_baseline(words: Path, nugget: Nugget) -> None:
    write_golden(
        words,
        "questions:\n- {question: idempotency keys for retries, expect: [UNIT]}\n"
        "- {question: xyzzy plugh, expect: []}\n".replace("UNIT", first_unit(words)),
    )
    code, out, _ = nugget("eval", "--json")
    document = json.loads(out)
    assert code == 0 and document["comparison"] is None
    assert (document["questions"], document["unanswerable"]) == (1, {"questions": 1, "flagged": 1})
    good = words.parent / "good.json"
    raised = json.loads(out)
    for row in raised["results"]:
        row["metrics"] = dict.fromkeys(row["metrics"], 1.0)
    write_golden(words, (words / "evals/golden.yaml").read_text().replace(first_unit(words), last_unit(words)))
    key = json.dumps(["idempotency keys for retries", [last_unit(words)], {}])
    raised["results"][0]["key"] = key
    good.write_text(json.dumps(raised))
    code, out, _ = nugget("eval", "--baseline", good)
    assert code == 1 and "Fell by more than 0.02: recall@1" in out and f"expected {last_unit(words)}" in out
    code, out, _ = nugget("eval", "--json")
    assert code == 0 and json.loads(out)["comparison"] is None, "the question is another one now"
    code, out, _ = nugget("eval", "--json")
    assert json.loads(out)["comparison"]["questions"] == 1


@pytest.mark.proves("EVAL-UNKNOWN-ID", "EVAL-GOLDEN")
def test_eval_names_the_file_and_line_of_what_is_wrong_and_fails(words: Path, nugget: Nugget) -> None:
    write_golden(words, "questions:\n- question: a\n  expect: [concept/gone]\n- {question: retries, expect: []}\n")
    code, out, _ = nugget("eval")
    assert code == 1 and out.startswith("evals/golden.yaml:2: error: the brain has no unit concept/gone\n")


def first_unit(brain: Path) -> str:
    return unit_ids(brain)[0]


def last_unit(brain: Path) -> str:
    return unit_ids(brain)[-1]


def unit_ids(brain: Path) -> list[str]:
    with Brain(brain, settings=Settings(embedding=EmbeddingSettings(model="none"))) as opened:
        opened.sync()
        return opened.index.unit_ids()
