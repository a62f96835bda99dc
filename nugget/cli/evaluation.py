"""`nugget eval` and `queries`: how well the brain answers, by golden questions and by what was really asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from nugget.cli.terminal import BrainOption, JsonOption, current_folder, day, open_brain, print_json, progress
from nugget.config import expanded
from nugget.errors import UsageError
from nugget.render.evaluation import print_query_report, print_run
from nugget.render.terminal import console, note
from nugget.text import DATE_FORMS, clean

commands = typer.Typer(add_completion=False)


@commands.command("eval")
def evaluate(
    files: Annotated[
        list[Path] | None, Argument(metavar="FILE..", help="Golden questions; else the brain's evals/*.yaml.")
    ] = None,
    baseline: Annotated[
        Path | None,
        Option("--baseline", metavar="FILE", help="Compare with this run (a --json output), not the last one."),
    ] = None,
    threshold: Annotated[
        float, Option("--threshold", metavar="X", min=0, max=1, help="How far a metric may fall.")
    ] = 0.02,
    accept: Annotated[bool, Option("--accept", help="Keep this run to compare with, even when it is worse.")] = False,
    suggest: Annotated[
        bool, Option("--suggest", help="Propose questions, as YAML, from headings and unanswered questions.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Measure how well golden questions are answered.

    Made for the brain's own CI: the exit code is 1 when a metric fell by more than the threshold since the run that
    is compared with, or when a question expects a unit that never existed or was lost. One that was forgotten on
    purpose is reported and is not a failure. No LLM is asked.
    """
    from nugget.app import evaluation
    from nugget.evaluation import comparison_json, run_json

    if suggest and as_json:
        raise UsageError("What is suggested is YAML.", hint="Leave --json out.")
    here = current_folder()
    named, compared = [here / expanded(file) for file in files or ()], here / expanded(baseline) if baseline else None
    with open_brain(brain) as opened:
        with progress() as tell:
            opened.sync(progress=tell)
        if opened.embedder_problem:
            note(f"{opened.embedder_problem} Searching by words alone.")
        if suggest:
            text = evaluation.suggest_questions(opened, named)
            typer.echo(clean(text), nl=False)
            if not text:
                note("There is nothing to suggest: every heading and unanswered question is a golden one already.")
            return
        run, found, failed = evaluation.evaluate(
            opened, named, baseline=compared, threshold=threshold, accept=accept
        )  # fmt: skip
    if as_json:
        print_json(run_json(run) | {"comparison": comparison_json(found) if found else None})
    else:
        print_run(console(), run, found, threshold=threshold, accepted=accept)
    raise typer.Exit(1 if failed else 0)


@commands.command()
def queries(
    zero: Annotated[bool, Option("--zero", help="Only questions that nothing came back for.")] = False,
    weak: Annotated[bool, Option("--weak", help="Only questions with weak answers.")] = False,
    since: Annotated[
        str | None, Option("--since", metavar="DATE", help=f"Asked since then: {DATE_FORMS}.")
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Questions, at most.")] = 10,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Show what was asked of the brain, most often first.

    What came back, what found nothing, how long it took, and how much of the brain was ever of use.
    """
    from nugget.app.evaluation import asked_questions
    from nugget.evaluation.feedback import report_json

    with open_brain(brain) as opened:
        found = asked_questions(opened, day(since))
        is_kept = opened.settings.retrieval.log_queries
    chosen = [
        one
        for one in found.askings
        if not (zero or weak) or (zero and not one.units) or (weak and one.weak and one.units)
    ][:limit]
    if as_json:
        print_json(report_json(found, chosen))
    else:
        print_query_report(console(), found, chosen, is_kept=is_kept)
