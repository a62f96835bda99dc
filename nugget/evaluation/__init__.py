"""Evaluation: ask a brain's index its golden questions, measure the answers, and compare them with an earlier run.

No LLM is used, so that a run costs nothing and two runs can be compared. The metrics are the usual ones:

    recall@k = expected units among the first k / expected units
    MRR@10   = 1 / rank of the first expected unit, 0 beyond rank 10
    nDCG@10  = sum of (2^gain - 1) / log2(rank + 1) over the first ten / the largest possible sum
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget import __version__
from nugget.brain.checks import GoldenQuestion
from nugget.errors import NuggetError, reason_of
from nugget.models import Bundle, Depth, Filter, Hit, Problem, Query, Severity, SourceName

METRICS = ("recall@1", "recall@5", "recall@10", "mrr@10", "ndcg@10")
LISTED = 50
"""Number of hits in which to look for an expected unit."""
SHOWN = 3
"""Number of first hits that a result names."""
_DEPTH = 10

Ask = Callable[[Query], Bundle]


def evaluate(
    questions: Sequence[GoldenQuestion], ask: Ask, *, known: Collection[str], ranking: str, model: str | None,
    now: datetime, problems: Sequence[Problem] = (), forgotten: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return a run of all questions, as `nugget eval --json` prints it and a baseline file stores it.

    A question that expects a unit outside `known` is left out and reported with its line. A unit in `forgotten` was
    removed on purpose: that is a warning, and the question is asked for its other units.
    """
    found, results = list(problems), list[dict[str, Any]]()
    for question in questions:
        absent = [unit_id for unit_id in question.expect if unit_id not in known]
        for unit_id in absent:
            reason, severity = f"the brain has no unit {unit_id}", Severity.ERROR
            if unit_id in forgotten:
                reason = f"expects {unit_id}, which was forgotten; remove it, or name another unit"
                severity = Severity.WARNING
            found.append(Problem(path=question.path, line=question.line, severity=severity, reason=reason))
        left = tuple(unit_id for unit_id in question.expect if unit_id in known)
        if {*absent} <= {*forgotten} and (left or not question.expect):
            results.append(_result(replace(question, expect=left), ask, has_vectors=model is not None))
    answerable = [one for one in results if one["expected"]]
    unanswerable = [one for one in results if not one["expected"]]
    return {
        "version": __version__, "time": now.isoformat(timespec="seconds"), "model": model, "ranking": ranking,
        "questions": len(answerable), "metrics": means([one["metrics"] for one in answerable]),
        "false_alarms": sum(one["weak"] for one in answerable),
        "unanswerable": {"questions": len(unanswerable), "flagged": sum(one["weak"] for one in unanswerable)},
        "results": results,
        "problems": [asdict(one) for one in found],
    }  # fmt: skip


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
    return {name: round(sum(row[name] for row in rows) / len(rows), 4) for name in METRICS} if rows else {}


def compare(run: Mapping[str, Any], baseline: Mapping[str, Any], *, threshold: float) -> dict[str, Any] | None:
    """Return the comparison with an earlier run over the questions in both, or None if they share none.

    `regressed` are metrics that fell by more than the threshold, `worse` and `better` questions whose nDCG changed.
    """
    rows = {row["key"]: row["metrics"] for row in baseline["results"]}
    shared = [one for one in run["results"] if one["expected"] and one["key"] in rows]
    if not shared:
        return None
    before, now = means([rows[one["key"]] for one in shared]), means([one["metrics"] for one in shared])
    moves = [
        {"question": one["question"], "before": rows[one["key"]]["ndcg@10"], "now": one["metrics"]["ndcg@10"]}
        for one in shared
    ]  # fmt: skip
    moves.sort(key=lambda one: one["now"] - one["before"])
    return {
        "with": baseline["where"], "time": baseline["time"], "model": baseline["model"],
        "ranking": baseline["ranking"], "questions": len(shared), "before": before, "now": now,
        "regressed": [name for name in METRICS if before[name] - now[name] > threshold + 1e-9],
        "worse": [one for one in moves if one["now"] < one["before"]],
        "better": [one for one in reversed(moves) if one["now"] > one["before"]],
    }  # fmt: skip


def read_baseline(file: Path) -> dict[str, Any]:
    """Read the run in a file. Raises NuggetError if the file is missing or is not a run."""
    try:
        loaded = json.loads(file.read_text("utf-8"))
        results = [
            {"key": str(row["key"]), "metrics": {name: float(row["metrics"][name]) for name in METRICS}}
            for row in loaded["results"]
            if row["metrics"]
        ]
        made = {"time": str(loaded["time"]), "model": loaded["model"], "ranking": str(loaded["ranking"])}
        return {"where": str(file), "results": results, **made}
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = f"Create one: nugget eval --json > {file}"
        raise NuggetError(f"{file} holds no run of `nugget eval` ({reason_of(error)}).", hint=hint) from error


def _result(question: GoldenQuestion, ask: Ask, *, has_vectors: bool) -> dict[str, Any]:
    """Return the result of a question: the rank of each expected unit, and the reason for it."""
    bundle = ask(_query(question.text, question.filter))
    ranks = {hit.unit.id: (rank, _found_by(hit, bundle)) for rank, hit in enumerate(bundle.hits, start=1)}
    expected = []
    for unit_id in question.expect:
        rank, why = ranks.get(unit_id) or (None, _why_absent(unit_id, question, ask, has_vectors=has_vectors))
        expected.append({"id": unit_id, "rank": rank, "why": why})
    values = metrics(list(ranks), dict.fromkeys(question.expect, 1.0)) if question.expect else {}
    return {
        "key": question.key, "question": question.text, "filters": question.filter.named(), "path": question.path,
        "line": question.line, "rank": min((ranks[one][0] for one in question.expect if one in ranks), default=None),
        "weak": bundle.weak, "metrics": {name: round(value, 6) for name, value in values.items()},
        "expected": expected,
        "first": [{"id": hit.unit.id, "score": round(hit.score, 4)} for hit in bundle.hits[:SHOWN]],
    }  # fmt: skip


def _query(text: str, filter_: Filter) -> Query:
    """Return a query for the first `LISTED` units of the brain, without a token limit."""
    filter_ = replace(filter_, sources=(SourceName.BRAIN,))
    return Query(text=text, filter=filter_, limit=LISTED, budget_tokens=10**9, depth=Depth.SUMMARY)


def _found_by(hit: Hit, bundle: Bundle) -> str:
    """Return the unit's ranks in the lists, and the lists without it: `vector #9, bm25 misses it`."""
    lists = ["bm25"] if "no_vectors" in bundle.degraded else ["vector", "bm25"]
    missed = [name for name in lists if not any(reason.startswith(f"{name} #") for reason in hit.reasons)]
    return ", ".join([*hit.reasons, *(f"{name} misses it" for name in missed)])


def _why_absent(unit_id: str, question: GoldenQuestion, ask: Ask, *, has_vectors: bool) -> str:
    unfiltered = ask(_query(question.text, Filter())) if question.filter.named() else None
    if unfiltered and any(hit.unit.id == unit_id for hit in unfiltered.hits):
        return "the filters keep it out"
    return "neither list holds it" if has_vectors else "bm25 misses it"
