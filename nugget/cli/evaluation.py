"""`nugget eval` and `queries`: how well the brain answers, by golden questions and by what was really asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.terminal import BrainOption, JsonOption, current_folder, day, open_brain, print_json, progress
from nugget.errors import NuggetError, UsageError
from nugget.models import Severity
from nugget.render.evaluation import print_query_report, print_run
from nugget.render.terminal import console, note
from nugget.text import DATE_FORMS, clean

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.evaluation import Baseline

commands = typer.Typer(add_completion=False)


SUGGESTED = 20


@commands.command("eval")
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
    purpose is reported and is not a failure. No LLM is asked.
    """
    from nugget.app.evaluation import pipeline_of
    from nugget.brain.filing import forgotten
    from nugget.brain.golden import read_golden
    from nugget.config import expanded
    from nugget.evaluation import compare, comparison_json, evaluate, read_baseline, run_json, store

    if suggest and as_json:
        raise UsageError("What is suggested is YAML.", hint="Leave --json out.")
    here = current_folder()
    with open_brain(brain) as opened:
        golden = read_golden(opened.path, [here / expanded(file) for file in files or ()])
        with progress() as tell:
            opened.sync(progress=tell)
        if opened.embedder_problem:
            note(f"{opened.embedder_problem} Searching by words alone.")
        pipeline = pipeline_of(opened)
        if suggest:
            _print_suggestions(opened, [question.text for question in golden.questions])
            return
        gone = forgotten(opened.path).ids
        run = evaluate(golden.questions, pipeline, problems=golden.problems, forgotten=gone)
        kept = opened.index_folder / "evals" / "last.json"
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
        print_run(console(), run, found, threshold=threshold, accepted=accept)
    raise typer.Exit(1 if failed else 0)


@commands.command()
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
        print_query_report(console(), found, chosen, is_kept=is_kept)


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
