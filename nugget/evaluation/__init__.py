"""Evaluation: the golden questions of a brain, asked of its own index, measured, and compared with an earlier run.

No LLM takes part, so that a run costs nothing and two runs can be compared. Metrics are those of the literature:

    recall@k = expected units among the first k / expected units
    MRR@10   = 1 / rank of the first expected unit, 0 beyond rank 10
    nDCG@10  = sum of (2^gain - 1) / log2(rank + 1) over the first ten / the most that this could be
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget import __version__
from nugget.brain.golden import GoldenQuestion
from nugget.errors import NuggetError
from nugget.index import Index
from nugget.infra import files
from nugget.infra.embedding import Embedder
from nugget.models import Bundle, Depth, Filter, Hit, Problem, Query, Severity
from nugget.retrieval import retrieve
from nugget.retrieval.candidates import Profile
from nugget.retrieval.reranking import Reranker

METRICS = ("recall@1", "recall@5", "recall@10", "mrr@10", "ndcg@10")
LISTED = 50
"""Units looked at to say where an expected one stands."""
SHOWN = 3
"""Units named that came instead."""
_DEPTH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The pipeline to measure: an index with everything that answers from it. `now` decides what is stale."""

    index: Index
    profile: Profile
    embedder: Embedder | None
    reranker: Reranker | None = None
    now: datetime

    def ask(self, text: str, filter_: Filter) -> Bundle:
        """Return the first `LISTED` units for a question, whatever their length."""
        query = Query(text=text, filter=filter_, limit=LISTED, budget_tokens=10**9, depth=Depth.SUMMARY)
        return retrieve(
            query, self.profile, self.index, embedder=self.embedder, reranker=self.reranker, now=self.now
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionResult:
    """Result of one question. `first` are the best units with their scores; `values` has every metric.

    `expected` has the `id` of each expected unit, its `rank` (None: not among the first `LISTED`), and `why`.
    """

    question: GoldenQuestion
    expected: tuple[Mapping[str, Any], ...]
    first: tuple[tuple[str, float], ...]
    weak: bool
    values: Mapping[str, float]

    @property
    def rank(self) -> int | None:
        """The best rank of an expected unit."""
        return min((placed["rank"] for placed in self.expected if placed["rank"]), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One evaluation: `problems` are what was wrong with the questions, which were then left out."""

    time: datetime
    model: str | None
    ranking: str
    outcomes: tuple[QuestionResult, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def answerable(self) -> tuple[QuestionResult, ...]:
        """The questions that the brain is expected to answer; the metrics are means over these."""
        return tuple(outcome for outcome in self.outcomes if outcome.question.expect)

    @property
    def unanswerable(self) -> tuple[QuestionResult, ...]:
        """The questions with `expect: []`."""
        return tuple(outcome for outcome in self.outcomes if not outcome.question.expect)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A run against a baseline, over the questions that both have.

    The baseline says `where` it is from, its `time`, `model` and `ranking`; its `rows` are the metrics of each question
    by `GoldenQuestion.key`. `regressed` names the metrics that fell by more than the threshold; `worse` and `better`
    are the questions whose nDCG changed, with the one before.
    """

    baseline: Mapping[str, Any]
    shared: int
    before: Mapping[str, float]
    now: Mapping[str, float]
    regressed: tuple[str, ...]
    worse: tuple[tuple[QuestionResult, float], ...]
    better: tuple[tuple[QuestionResult, float], ...]


def evaluate(
    questions: Sequence[GoldenQuestion],
    pipeline: Pipeline,
    *,
    problems: Sequence[Problem] = (),
    forgotten: Collection[str] = (),
) -> Run:
    """Ask every question. One that expects a unit that does not exist is a problem, with its line, and is left out.

    A unit among the `forgotten` was taken out on purpose: that is a warning, and the question is asked for the other
    units that it expects, if there are any.
    """
    known = set(pipeline.index.unit_ids())
    found, outcomes = list(problems), list[QuestionResult]()
    for question in questions:
        expected = list(zip(question.expect, question.lines, strict=True))
        absent = [(unit_id, line) for unit_id, line in expected if unit_id not in known]
        for unit_id, line in absent:
            reason, severity = f"the brain has no unit {unit_id}", Severity.ERROR
            if unit_id in forgotten:
                reason = f"expects {unit_id}, which was forgotten; take it out, or name another unit"
                severity = Severity.WARNING
            found.append(Problem(path=question.path, line=line, severity=severity, reason=reason))
        left = tuple(unit_id for unit_id, _ in expected if unit_id in known)
        if all(unit_id in forgotten for unit_id, _ in absent) and (left or not expected):
            outcomes.append(_outcome(replace(question, expect=left, lines=()), pipeline))
    return Run(
        time=pipeline.now, model=pipeline.embedder.model if pipeline.embedder else None, outcomes=tuple(outcomes),
        ranking=pipeline.reranker.name if pipeline.reranker else pipeline.profile.ranking, problems=tuple(found),
    )  # fmt: skip


def metrics(found: Sequence[str], gains: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of one ranked list; `gains` are the relevant ids with their gain (by default 1)."""
    found = list(found)[:_DEPTH]
    gained = sum((2 ** gains.get(id_, 0) - 1) / math.log2(rank + 1) for rank, id_ in enumerate(found, start=1))
    best = sorted(gains.values(), reverse=True)[:_DEPTH]
    most = sum((2**gain - 1) / math.log2(rank + 1) for rank, gain in enumerate(best, start=1))
    first = next((1 / rank for rank, id_ in enumerate(found, start=1) if id_ in gains), 0.0)
    recalls = {f"recall@{k}": sum(id_ in gains for id_ in found[:k]) / len(gains) for k in (1, 5, 10)}
    return {**recalls, "mrr@10": first, "ndcg@10": gained / most}


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over questions; empty without questions."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in METRICS} if rows else {}


def compare(run: Run, baseline: Mapping[str, Any], *, threshold: float) -> RunComparison | None:
    """Return the run against an earlier one, over the questions that both have; None if they have none in common."""
    shared = [outcome for outcome in run.answerable if outcome.question.key in baseline["rows"]]
    if not shared:
        return None
    rows = [baseline["rows"][outcome.question.key] for outcome in shared]
    before, now = means(rows), means([outcome.values for outcome in shared])
    was = [row["ndcg@10"] for row in rows]
    changes = [(one, old, one.values["ndcg@10"] - old) for one, old in zip(shared, was, strict=True)]
    changes.sort(key=lambda entry: entry[2])
    return RunComparison(
        baseline=baseline, shared=len(shared), before=before, now=now,
        regressed=tuple(name for name in METRICS if before[name] - now[name] > threshold + 1e-9),
        worse=tuple((one, old) for one, old, change in changes if change < -1e-6),
        better=tuple((one, old) for one, old, change in reversed(changes) if change > 1e-6),
    )  # fmt: skip


def run_json(run: Run) -> dict[str, Any]:
    """Return a run as JSON: what `nugget eval --json` prints, what is stored, and what a baseline file holds."""
    return {
        "version": __version__, "time": run.time.isoformat(timespec="seconds"), "model": run.model,
        "ranking": run.ranking, "questions": len(run.answerable),
        "metrics": {name: round(value, 4) for name, value in means([o.values for o in run.answerable]).items()},
        "false_alarms": sum(outcome.weak for outcome in run.answerable),
        "unanswerable": {"questions": len(run.unanswerable), "flagged": sum(o.weak for o in run.unanswerable)},
        "results": [_outcome_json(outcome) for outcome in run.outcomes],
        "problems": [
            {"path": found.path, "line": found.line, "severity": str(found.severity), "reason": found.reason}
            for found in run.problems
        ],
    }  # fmt: skip


def read_baseline(file: Path) -> dict[str, Any] | None:
    """Read the run in a file; None if there is no such file. Raises NuggetError for a file that is not a run."""
    try:
        loaded = json.loads(file.read_text("utf-8"))
        rows = {
            str(row["key"]): {name: float(row["metrics"][name]) for name in METRICS}
            for row in loaded["results"]
            if row["metrics"]
        }
        made = {"time": str(loaded["time"]), "model": loaded["model"], "ranking": str(loaded["ranking"])}
        return {"where": str(file), "rows": rows, **made}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NuggetError(
            f"{file} is not a run of `nugget eval`.", hint="Make one: nugget eval --json > evals/baseline.json"
        ) from error


def store(file: Path, run: Run, *, partial: bool) -> None:
    """Keep a run to compare the next one with. One of some files only replaces the rows of its own questions.

    Raises NuggetError where the file cannot be written.
    """
    kept = run_json(run)
    if partial:
        own = {row["key"] for row in kept["results"]}
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept["results"] += [row for row in json.loads(file.read_text("utf-8"))["results"] if row["key"] not in own]
    try:
        files.replace(file, json.dumps(kept, ensure_ascii=False).encode())
    except OSError as error:
        raise NuggetError(f"The run cannot be kept in {file} ({error.strerror or error}).") from error


def comparison_json(found: RunComparison) -> dict[str, Any]:
    """Return a comparison as JSON."""
    worse, better = (
        [
            {"question": outcome.question.text, "before": before, "now": round(outcome.values["ndcg@10"], 6)}
            for outcome, before in pairs
        ]
        for pairs in (found.worse, found.better)
    )
    earlier = found.baseline
    return {
        "with": earlier["where"], "time": earlier["time"], "model": earlier["model"], "ranking": earlier["ranking"],
        "questions": found.shared, "before": {name: round(value, 4) for name, value in found.before.items()},
        "now": {name: round(value, 4) for name, value in found.now.items()}, "regressed": list(found.regressed),
        "worse": worse, "better": better,
    }  # fmt: skip


def _outcome(question: GoldenQuestion, pipeline: Pipeline) -> QuestionResult:
    bundle = pipeline.ask(question.text, question.filter)
    ranks = {hit.unit.id: (rank, _found_by(hit, bundle)) for rank, hit in enumerate(bundle.hits, start=1)}
    expected = [
        {"id": unit_id, "rank": rank, "why": why}
        for unit_id in question.expect
        for rank, why in [ranks.get(unit_id) or (None, _why_absent(unit_id, question, pipeline))]
    ]
    return QuestionResult(
        question=question, expected=tuple(expected), weak=bundle.weak,
        first=tuple((hit.unit.id, round(hit.score, 4)) for hit in bundle.hits[:SHOWN]),
        values=metrics(list(ranks), dict.fromkeys(question.expect, 1.0)) if question.expect else {},
    )  # fmt: skip


def _found_by(hit: Hit, bundle: Bundle) -> str:
    """Return the ranks that the unit has in the lists, and the lists without it: `vector #9, bm25 misses it`."""
    lists = ["bm25"] if "no_vectors" in bundle.degraded else ["vector", "bm25"]
    missed = [name for name in lists if not any(reason.startswith(f"{name} #") for reason in hit.reasons)]
    return ", ".join([*hit.reasons, *(f"{name} misses it" for name in missed)])


def _why_absent(unit_id: str, question: GoldenQuestion, pipeline: Pipeline) -> str:
    unfiltered = pipeline.ask(question.text, Filter()) if question.filter.named() else None
    if unfiltered and any(hit.unit.id == unit_id for hit in unfiltered.hits):
        return "the filters keep it out"
    return "neither list holds it" if pipeline.embedder else "bm25 misses it"


def _outcome_json(outcome: QuestionResult) -> dict[str, Any]:
    question = outcome.question
    return {
        "key": question.key, "question": question.text, "filters": question.filter.named(), "path": question.path,
        "line": question.line, "rank": outcome.rank, "weak": outcome.weak,
        "metrics": {name: round(value, 6) for name, value in outcome.values.items()},
        "expected": list(outcome.expected),
        "first": [{"id": unit_id, "score": score} for unit_id, score in outcome.first],
    }  # fmt: skip
