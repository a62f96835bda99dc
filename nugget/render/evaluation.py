"""Evaluation runs and asked questions for people at a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from nugget.render.reports import print_problems
from nugget.render.terminal import note
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.evaluation import QuestionResult, Run, RunComparison
    from nugget.evaluation.feedback import Asking, Report


_QUESTION_CHARS = 100


def print_run(out: Console, run: Run, found: RunComparison | None, *, threshold: float, accepted: bool) -> None:
    """Print how golden questions were answered, and the comparison with an earlier run."""
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


def _print_outcome(out: Console, outcome: QuestionResult) -> None:
    question = outcome.question
    where = f"{clean(question.path)}:{question.line}"
    out.print(f"{where}: {shorten(clean(question.text), _QUESTION_CHARS)}", style="yellow")
    for placed in outcome.expected:
        place = f"rank {placed.rank}" if placed.rank else "not found"
        out.print(f"   expected {clean(placed.id)}: {place} ({one_line(placed.why)})")
    came = ", ".join(f"{clean(unit_id)} {score:.3f}" for unit_id, score in outcome.first) or "nothing"
    out.print(f"   first came {came}\n", style="dim")


def _print_comparison(out: Console, run: Run, found: RunComparison, *, threshold: float, accepted: bool) -> None:
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
            out.print("If that is as it should be: nugget eval --accept (or write a new baseline).")


def print_query_report(out: Console, found: Report, askings: Sequence[Asking], *, is_kept: bool) -> None:
    """Print what was asked of the brain, most often first."""
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
        mark = " (nothing found)" if not asking.units else " (weak)" if asking.weak else ""
        out.print(f"{asking.times:>4} × {shorten(clean(asking.text), _QUESTION_CHARS)}{mark}")
        if asking.units:
            used = f"; used {', '.join(clean(unit) for unit in asking.used)}" if asking.used else ""
            out.print(f"       {clean(asking.units[0][0])} {asking.units[0][1]:.3f}{used}", style="dim")
