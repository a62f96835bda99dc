"""`nugget eval` and `queries`: how well the brain answers, by golden questions and by what was really asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.asking import day
from nugget.cli.keeping import print_problems
from nugget.cli.terminal import (
    BrainOption,
    JsonOption,
    console,
    current_folder,
    note,
    open_brain,
    print_json,
    progress,
)
from nugget.dates import DATE_FORMS
from nugget.errors import NuggetError, UsageError
from nugget.models import Severity
from nugget.render import clean, one_line
from nugget.text import counted, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.app import Brain
    from nugget.evaluation import Baseline, Comparison, Outcome, Pipeline, Run
    from nugget.evaluation.feedback import Asking, Report

SUGGESTED = 20
_QUESTION_CHARS = 100


def evaluate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE..]", help="Golden questions; else the brain's evals/*.yaml.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Compare with this run (a --json output), not the last one."),
    ] = None,
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="X", min=0, max=1, help="How far a metric may fall.")
    ] = 0.02,
    accept: Annotated[
        bool, typer.Option("--accept", help="Keep this run to compare with, even when it is worse.")
    ] = False,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Propose questions, as YAML, from headings and unanswered questions.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Measure how well golden questions are answered.

    Made for the brain's own CI: the exit code is 1 when a metric fell by more than the threshold since the run that
    is compared with, or when a question expects a unit that never existed or was lost. One that was forgotten on
    purpose is told, and no failure. No LLM is asked.
    """
    from nugget.brain.filing import forgotten
    from nugget.brain.golden import read_golden
    from nugget.config import expanded
    from nugget.evaluation import compare, comparison_json, evaluate, read_baseline, run_json, store
    from nugget.index.sync import index_folder

    if suggest and as_json:
        raise UsageError("What is suggested is YAML.", hint="Leave --json out.")
    here = current_folder()
    with open_brain(brain) as opened:
        golden = read_golden(opened.path, [here / expanded(file) for file in files or ()])
        pipeline = _pipeline(opened)
        if suggest:
            _print_suggestions(opened, [question.text for question in golden.questions])
            return
        gone = forgotten(opened.path).ids
        run = evaluate(golden.questions, pipeline, problems=golden.problems, forgotten=gone)
        kept = index_folder(opened.path, opened.environment) / "evals" / "last.json"
        named = here / expanded(baseline) if baseline else None
        earlier = read_baseline(named) if named else _last_run(kept)
        if named and earlier is None:
            raise NuggetError(f"There is no file {named}.", hint=f"Make it: nugget eval --json > {baseline}")
        found = compare(run, earlier, threshold=threshold) if earlier else None
        is_wrong = any(problem.severity is Severity.ERROR for problem in run.problems)
        failed = is_wrong or bool(found and found.regressed and not accept)
        if run.outcomes and not named and (accept or not (found and found.regressed)):
            store(kept, run, partial=bool(files))
    if as_json:
        print_json(run_json(run) | {"comparison": comparison_json(found) if found else None})
    else:
        _print_run(console(), run, found, threshold=threshold, accepted=accept)
    raise typer.Exit(1 if failed else 0)


def queries(
    zero: Annotated[bool, typer.Option("--zero", help="Only questions that nothing came back for.")] = False,
    weak: Annotated[bool, typer.Option("--weak", help="Only questions with weak answers.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help=f"Asked since then: {DATE_FORMS}.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Questions, at most.")] = 10,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Show what was asked of the brain, most often first.

    What came back, what found nothing, how long it took, and how much of the brain was ever of use.
    """
    from nugget.evaluation.feedback import report, report_json
    from nugget.infra import query_log

    with open_brain(brain) as opened:
        home = opened.environment.home
        entries = query_log.read(home, brain=opened.path, since=day(since))
        found = report(entries, list(query_log.read_uses(home)), unit_ids=opened.index.unit_ids())
        is_kept = opened.settings.retrieval.log_queries
    chosen = [
        asking
        for asking in found.askings
        if not (zero or weak) or (zero and asking.is_zero) or (weak and asking.weak and not asking.is_zero)
    ][:limit]
    if as_json:
        print_json(report_json(found, chosen))
    else:
        _print_report(console(), found, chosen, is_kept=is_kept)


def _pipeline(brain: Brain) -> Pipeline:
    """The pipeline as `ask` uses it, with the index brought in line first; an LLM re-ranker is left out."""
    from nugget.evaluation import Pipeline
    from nugget.retrieval import profiles
    from nugget.retrieval.reranking import choose_reranker

    with progress() as tell:
        brain.sync(progress=tell)
    if brain.embedder_problem:
        note(f"{brain.embedder_problem} Searching by words alone.")
    is_local = brain.settings.retrieval.reranker.startswith("cross-encoder:")
    return Pipeline(
        index=brain.index,
        profile=profiles.configured("task", brain.settings.retrieval),
        embedder=brain.embedder,
        reranker=choose_reranker(brain.settings, None, brain.environment) if is_local else None,
        now=datetime.now(UTC),
    )


def _last_run(file: Path) -> Baseline | None:
    """Return the run to compare with by default; None if it cannot be read, since it is derived."""
    from nugget.evaluation import read_baseline

    try:
        return read_baseline(file)
    except NuggetError:
        return None


def _print_suggestions(brain: Brain, known: Sequence[str]) -> None:
    from nugget.evaluation.feedback import suggestions
    from nugget.infra import query_log

    entries = query_log.read(brain.environment.home, brain=brain.path)
    text = suggestions(brain.index, entries, known=known, limit=SUGGESTED)
    if text:
        typer.echo(clean(text), nl=False)
    else:
        note("There is nothing to suggest: every heading and every unanswered question is a golden one already.")


def _print_run(out: Console, run: Run, found: Comparison | None, *, threshold: float, accepted: bool) -> None:
    print_problems(out, run.problems)
    if not run.outcomes:
        out.print("There are no golden questions to ask.", style="yellow")
        out.print("`nugget eval --suggest` proposes some; they belong into evals/*.yaml of the brain.")
        return
    how = f"{run.model or 'words alone'}, {run.ranking}"
    out.print(f"{counted(len(run.answerable), 'question')} ({one_line(how)})\n", style="bold")
    _print_metrics(out, run)
    below = [outcome for outcome in run.answerable if outcome.rank != 1]
    for outcome in sorted(below, key=lambda outcome: -(outcome.rank or 1000)):
        _print_outcome(out, outcome)
    alarms = sum(outcome.weak for outcome in run.answerable)
    if alarms:
        out.print(f"Answered, but said to be weak: {alarms} of {len(run.answerable)}.")
    if run.unanswerable:
        flagged = sum(outcome.weak for outcome in run.unanswerable)
        out.print(f"Unanswerable, and said to be weak: {flagged} of {len(run.unanswerable)}.")
    if found:
        _print_comparison(out, run, found, threshold=threshold, accepted=accepted)


def _print_metrics(out: Console, run: Run) -> None:
    from nugget.evaluation import means

    for name, value in means([outcome.values for outcome in run.answerable]).items():
        out.print(f"  {name:<10} {value:.3f}")
    out.print("")


def _print_outcome(out: Console, outcome: Outcome) -> None:
    question = outcome.question
    where = f"{clean(question.path)}:{question.line}"
    out.print(f"{where}: {shorten(clean(question.text), _QUESTION_CHARS)}", style="yellow")
    for placed in outcome.expected:
        place = f"rank {placed.rank}" if placed.rank else "not found"
        out.print(f"   expected {clean(placed.id)}: {place} ({one_line(placed.why)})")
    came = ", ".join(f"{clean(unit_id)} {score:.3f}" for unit_id, score in outcome.first) or "nothing"
    out.print(f"   first came {came}\n", style="dim")


def _print_comparison(out: Console, run: Run, found: Comparison, *, threshold: float, accepted: bool) -> None:
    earlier = found.baseline
    same = "" if (earlier.model, earlier.ranking) == (run.model, run.ranking) else (
        f", made with {one_line(earlier.model or 'words alone')}, {one_line(earlier.ranking)}"
    )  # fmt: skip
    where = f"{clean(earlier.where)} of {one_line(earlier.time)}{same}"
    out.print(f"Compared with {where}, over {counted(found.shared, 'question')} that both have:")
    changed = [name for name in found.now if abs(found.now[name] - found.before[name]) > 1e-6]
    for name in changed:
        style = "red" if name in found.regressed else ""
        out.print(f"   {name:<10} {found.before[name]:.3f} -> {found.now[name]:.3f}", style=style)
    for name, pairs in (("worse", found.worse), ("better", found.better)):
        for outcome, before in pairs:
            change = f"nDCG {before:.3f} -> {outcome.values['ndcg@10']:.3f}"
            out.print(f"   {name}: {shorten(clean(outcome.question.text), _QUESTION_CHARS)} ({change})")
    if not changed:
        out.print("   nothing changed")
    if found.regressed:
        out.print(f"Fell by more than {threshold:g}: {', '.join(found.regressed)}.", style="red")
        if not accepted:
            out.print("If that is as it should be: nugget eval --accept (or write the baseline anew).")


def _print_report(out: Console, found: Report, askings: Sequence[Asking], *, is_kept: bool) -> None:
    if not is_kept:
        note("`retrieval.log_queries` is false: what is asked now is not kept.")
    if not found.asked:
        out.print("Nothing was asked yet." if is_kept else "There is no query log.")
        return
    faces = ", ".join(f"{count} {clean(face)}" for face, count in sorted(found.faces.items()))
    out.print(f"{counted(found.asked, 'question')} ({faces}), {len(found.askings)} different")
    out.print(f"   nothing found: {found.zero}, weak: {found.weak}, used later in the session: {found.used_in}")
    out.print(f"   p50 {found.p50_ms:.1f} ms, p95 {found.p95_ms:.1f} ms")
    out.print(f"   {found.returned} of {counted(found.units, 'unit')} were ever part of an answer")
    for name, (answers, results) in found.sources.items():
        out.print(f"   {clean(name)}: {counted(results, 'result')} in {counted(answers, 'answer')}")
    out.print("")
    for asking in askings:
        mark = " (nothing found)" if asking.is_zero else " (weak)" if asking.weak else ""
        out.print(f"{asking.times:>4} × {shorten(clean(asking.text), _QUESTION_CHARS)}{mark}")
        if asking.units:
            used = f"; used {', '.join(clean(unit) for unit in asking.used)}" if asking.used else ""
            out.print(f"       {clean(asking.units[0][0])} {asking.units[0][1]:.3f}{used}", style="dim")
