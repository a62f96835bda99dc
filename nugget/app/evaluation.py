"""Golden questions and asked questions of a brain: measure, compare, suggest, report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget import evaluation
from nugget.brain.filing import forgotten
from nugget.brain.golden import read_golden
from nugget.errors import NuggetError
from nugget.evaluation import Pipeline, Run, RunComparison, feedback, query_log
from nugget.models import Severity
from nugget.retrieval import profiles

if TYPE_CHECKING:
    from nugget.app import Brain

_SUGGESTED = 20


def evaluate(
    brain: Brain, files: Sequence[Path], *, baseline: Path | None, threshold: float, accept: bool
) -> tuple[Run, RunComparison | None, bool]:
    """Ask the golden questions as `ask` does, without an LLM; return the run, its comparison, and whether it failed.

    A run that is not worse than the last one, or is accepted, is kept for the next comparison. Raises NuggetError if
    the named baseline cannot be read.
    """
    golden, kept = read_golden(brain.path, files), brain.index_folder / "evals" / "last.json"
    is_local = brain.settings.retrieval.reranker.startswith("cross-encoder:")
    pipeline = Pipeline(
        index=brain.index, profile=profiles.configured("task", brain.settings.retrieval), embedder=brain.embedder,
        reranker=brain.reranker(None) if is_local else None, now=datetime.now(UTC),
    )  # fmt: skip
    gone = forgotten(brain.path).ids
    run = evaluation.evaluate(golden.questions, pipeline, problems=golden.problems, forgotten=gone)
    earlier = None
    if baseline:
        earlier = evaluation.read_baseline(baseline)
        if earlier is None:
            raise NuggetError(f"There is no file {baseline}.", hint=f"Make it: nugget eval --json > {baseline}")
    else:
        with suppress(NuggetError):  # the last run is derived: one that cannot be read is no loss
            earlier = evaluation.read_baseline(kept)
    found = evaluation.compare(run, earlier, threshold=threshold) if earlier else None
    is_worse = bool(found and found.regressed)
    if run.outcomes and not baseline and (accept or not is_worse):
        evaluation.store(kept, run, partial=bool(files))
    is_wrong = any(problem.severity is Severity.ERROR for problem in run.problems)
    return run, found, is_wrong or (is_worse and not accept)


def suggest_questions(brain: Brain, files: Sequence[Path]) -> str:
    """Return golden questions as YAML, from headings and from questions that found nothing."""
    known = [question.text for question in read_golden(brain.path, files).questions]
    entries = query_log.read(brain.environment.home, brain=brain.path)
    return feedback.suggestions(brain.index, entries, known=known, limit=_SUGGESTED)


def asked_questions(brain: Brain, since: date | None) -> feedback.Report:
    """Return what was asked of the brain, and how much of it was ever of use."""
    home = brain.environment.home
    entries = query_log.read(home, brain=brain.path, since=since)
    return feedback.report(entries, list(query_log.read_uses(home)), unit_ids=brain.index.unit_ids())
