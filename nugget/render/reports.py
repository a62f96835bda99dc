"""Reports for people at a terminal: captures, proposals, syncs, status, findings, evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.models import Problem, Severity, SourceName
from nugget.models.speech import said_how
from nugget.render.terminal import note, put, put_markdown, without_heading
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.capture import CaptureResult
    from nugget.capture.publish import Published
    from nugget.capture.review import ProposedFile
    from nugget.evaluation import Run, RunComparison
    from nugget.evaluation.feedback import Asking, Report
    from nugget.importing import ImportResult
    from nugget.index import SyncResult
    from nugget.upkeep.doctor import CheckResult, Status

_SHOWN_PROBLEMS = 20
_QUESTION_CHARS = 100


def note_redacted(counts: Mapping[str, int], hint: str = "") -> None:
    """Say on stderr what redaction took out, by kind, if it took out anything."""
    if counts:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
        note(f"redacted before anything was kept: {kinds}{hint}")


def put_capture(result: CaptureResult, *, dry_run: bool) -> None:
    """Print what a capture proposed."""
    if result.skipped:
        put(f"Nothing to propose: {one_line(result.skipped)}.")
    else:
        where = "would be proposed" if dry_run else f"on {result.branch or ''}"
        put(f"{counted(len(result.changes), 'unit')} {where} ({result.method}):\n")
    for change in result.changes:
        put(f"   {'new' if change.is_new else 'edit':<5} {change.unit.id}  {one_line(change.unit.title)}")
        put(f"         {one_line(change.reason)}", style="dim")
    _put_rest(result.dropped, result.redacted, result.branch)


def put_import(result: ImportResult, *, dry_run: bool) -> None:
    """Print what an import proposed."""
    if result.changes:
        where = "would be proposed" if dry_run else f"on {result.branch or ''}"
        put(f"{counted(len(result.changes), 'unit')} of {counted(result.files, 'file')} {where}:\n")
    else:
        put(f"Nothing new to propose in {counted(result.files, 'file')}.")
    for change in result.changes:
        put(f"   {change.unit.id}  {one_line(change.unit.title)}")
        put(f"      {change.unit.evidence[0].session}: {one_line(change.reason)}", style="dim")
        if change.note:
            put(f"      look: {one_line(change.note)}", style="yellow")
    if result.known:
        note(f"{counted(result.known, 'note')} imported before.")
    if result.waiting:
        note(f"{counted(result.waiting, 'note')} more than --limit; import again once these are decided.")
    _put_rest([*result.dropped, *map(str, result.left_out)], result.redacted, result.branch)


def _put_rest(left_out: Sequence[str], redacted: Mapping[str, int], branch: str | None) -> None:
    for reason in left_out[:_SHOWN_PROBLEMS]:
        note(f"left out: {one_line(reason)}")
    if len(left_out) > _SHOWN_PROBLEMS:
        note(f"left out: {len(left_out) - _SHOWN_PROBLEMS:,} more (--json names all)")
    note_redacted(redacted)
    if branch:
        put(f"\nNext: nugget review show {branch}")


def put_published(published: Published, *, is_requested: bool) -> None:
    """Print what became of the pull requests; unless it was requested, only what changed."""
    for publication in published.publications:
        if publication.state == "failed":
            note(f"not published: {publication.branch}: {one_line(publication.reason or '')}")
        else:
            put(f"{publication.state}: {publication.url or ''} ({publication.branch})")
            if publication.reason:
                note(one_line(publication.reason))
    if published.local and is_requested:
        note(f"Nothing was published: {one_line(published.local)}.")
    elif is_requested and not published.publications:
        put("Every proposal that waits has its pull request.")


def note_closed(closings: Published) -> None:
    """Print on stderr what became of the pull request of a rejected proposal."""
    for entry in closings.publications:
        if entry.state == "settled":
            note(f"{one_line(entry.reason or 'closed')}: {one_line(entry.url or entry.branch)}")
    for obstacle in filter(None, [closings.local, *(entry.reason for entry in closings.failed)]):
        note(f"Its pull request is still open: {one_line(obstacle)}")
        note("`nugget capture --publish` closes it.")


def put_proposed_line(file: ProposedFile) -> None:
    """Print one proposed file on a line, with its problems below."""
    title = one_line(file.unit.title) if file.unit else ""
    put("   ", (f"{file.status:<8}", "dim"), (file.id, "cyan"), f"  {title}")
    for problem in file.problems:
        put(f"            {one_line(str(problem))}", style="yellow")


def put_proposed(file: ProposedFile) -> None:
    """Print one proposed file with its evidence and flags."""
    from nugget.capture.proposals import flags_of

    put_proposed_line(file)
    put(f"   {file.path}", style="dim")
    unit = file.unit
    if file.before is not None and file.after is not None:
        changes = unified_diff(file.before.splitlines(), file.after.splitlines(), "now", "proposed", n=2, lineterm="")
        put_diff("\n".join(changes))
    elif unit is None:
        put_markdown(file.after or file.before or "")
    else:
        put(f"   confidence {unit.confidence:g}, tags: {one_line(', '.join(unit.tags)) or 'none'}\n", style="dim")
        put_markdown(without_heading(unit))
        for entry in unit.evidence:
            put(f"\n   Evidence, {said_how(entry.speaker, entry.origin)}:", style="dim")
            put_markdown(f"“{entry.quote}”", indent="      ")
    for flag in flags_of(unit, before=file.before, after=file.after) if unit else ():
        put(f"   look: {one_line(flag)}", style="yellow")
    put("")


def put_diff(diff: str) -> None:
    """Print a diff in colour."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in clean(diff).split("\n"):
        put(f"   {line}".rstrip(), style=styles.get(line[:1], ""))


def put_problems(problems: Sequence[Problem]) -> None:
    """Print one line a problem, `path:line: severity: reason`, as editors and CI understand it."""
    for problem in problems:
        where = problem.path if problem.line is None else f"{problem.path}:{problem.line}"
        style = "red" if problem.severity is Severity.ERROR else "yellow"
        put(f"{where}: ", (str(problem.severity), style), f": {one_line(problem.reason)}")


def put_status(seen: Status) -> None:
    """Print the status of a brain."""
    stamp = (seen.capture.last_captured or "").replace("T", " ")
    index, capture, publishing = seen.index, seen.capture, seen.publishing
    sizes = ((index.units, "unit"), (index.chunks, "chunk"), (index.vectors, "vector"), (index.relations, "relation"))
    size = ", ".join(counted(count, noun) for count, noun in sizes)
    stands = {
        "ready": f"{size}; in line with the files",
        "behind": f"{size}; {counted(index.behind, 'file')} changed since. Next: nugget sync",
        "absent": "none yet; the first question makes it. Next: nugget sync",
        "unusable": f"{index.reason}. Next: nugget rebuild",
    }
    errors = sum(problem.severity is Severity.ERROR for problem in index.problems)
    left_out = f"{errors} left out{'. Next: nugget lint' * bool(errors)}"
    published = [
        counted(len(publishing.open), "open pull request"),
        f"{publishing.local} only local" if publishing.local else "",
        f"{publishing.merged} merged on the remote. Next: nugget sync --pull" if publishing.merged else "",
    ]
    queue = ", ".join(f"{count} {state}" for state, count in capture.queue.items() if count) or "empty"
    waiting = f"{counted(seen.proposals, 'proposal')}. Next: nugget review"
    rows = [
        ("Brain", f"{seen.brain}{' (default)' if seen.is_default else ''}"),
        ("Git", _git_words(seen)),
        ("Index", stands[index.state]),
        ("Files", f"{counted(index.files, 'knowledge file')}, "
                  f"{'not read yet' if index.state == 'absent' else left_out}"),
        ("Model", _model_words(seen)),
        ("LLM key", "set" if seen.has_key else "not set: passages instead of answers"),
        ("Review", waiting if seen.proposals else "nothing waits"),
        ("Published", ", ".join(filter(None, published)) if publishing.remote else ""),
        ("Captured", f"last {stamp[:16]}" if stamp else "nothing yet"),
        ("Queue", queue + (", a worker is at work" if capture.working else "")),
        ("Spent", f"${capture.usd:.2f} in {counted(capture.calls, 'LLM call')}"),
        ("Settings", f"brain.yaml may not set {', '.join(seen.misplaced)}. Next: nugget doctor" if seen.misplaced
                     else ""),
    ]  # fmt: skip
    for name, text in rows:
        if text:
            put((f"{name:<10}", "bold"), one_line(text))
    for verb, failures, step in (
        ("failed", capture.failures, "retry"), ("not published", publishing.failures, "publish"),
    ):  # fmt: skip
        for failure in failures:
            put(f"          {verb}: {one_line(failure)}", style="red")
        if failures:
            put(f"          Next: nugget capture --{step}")


def _git_words(seen: Status) -> str:
    repository = seen.repository
    if repository is None:
        return f"no repository. Next: nugget init {seen.brain}"
    if repository.problem:
        return repository.problem
    uncommitted = counted(repository.uncommitted, "uncommitted file") if repository.uncommitted else ""
    parts = [repository.branch or "detached HEAD", (repository.head or "no commit yet")[:10], uncommitted]
    return ", ".join(filter(None, [*parts, repository.unsettled if repository.branch else ""]))


def _model_words(seen: Status) -> str:
    """Return the model of the index; if another one is configured and cannot be had, why."""
    if problem := seen.index.model_problem:
        kept = f"the index keeps vectors of {seen.index.model}" if seen.index.model else "words alone are searched"
        return f"{seen.configured_model} cannot be had ({problem.rstrip('.')}); {kept}. Next: nugget sync"
    return ", ".join(filter(None, [seen.index.model or seen.configured_model, seen.index.vector_search]))


def put_findings(brain: Path, found: list[CheckResult], wrong: int) -> None:
    """Print the findings of `nugget doctor`."""
    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
    put(f"{brain}\n", style="bold")
    for finding in found:
        put(marks[finding.state], f" {finding.name:<16}", one_line(finding.message))
        if finding.next_step:
            put(f"                  Next: {one_line(finding.next_step)}", style="dim")
    warnings = sum(finding.state == "warning" for finding in found)
    if wrong:
        put("\nSomething is wrong.", style="bold red")
    elif warnings:
        put(f"\nIt works; {counted(warnings, 'warning')} above.", style="bold yellow")
    else:
        put("\nNothing is wrong.", style="bold green")


def _sync_words(result: SyncResult) -> str:
    counts = ((result.added, "added"), (result.modified, "changed"), (result.moved, "moved"),
              (result.removed, "removed"), (result.unchanged, "as before"))  # fmt: skip
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def put_source_sync(source: SourceName, result: SyncResult) -> None:
    """Print one line for a source, if it has anything."""
    noun = "Sessions, shells and channels" if source is SourceName.SESSIONS else str(source).capitalize()
    if words := _sync_words(result):
        put(f"{noun}: {words}.", style="" if result.changed else "dim")
    if result.without_vectors:
        note(f"{noun} without vectors: {result.without_vectors}")
    put_problems(result.problems)


def put_sync(result: SyncResult) -> None:
    """Print the result of a sync of the brain."""
    made = f"Index rebuilt ({one_line(result.rebuilt)})" if result.rebuilt else "Index up to date"
    put(f"{made}: {_sync_words(result) or 'no files'}.")
    if result.embedded or result.cached:
        put(f"{counted(result.embedded, 'text')} embedded, {result.cached} taken from the cache.", style="dim")
    if result.without_vectors:
        note(f"Without vectors: {result.without_vectors}")
    if result.problems:
        left_out = sum(problem.severity is Severity.ERROR for problem in result.problems)
        put(f"\n{counted(len(result.problems), 'problem')}; left out: {counted(left_out, 'file')}.")
        put_problems(result.problems[:_SHOWN_PROBLEMS])
        if len(result.problems) > _SHOWN_PROBLEMS:
            put(f"… and {len(result.problems) - _SHOWN_PROBLEMS:,} more. Next: nugget lint")


def put_run(run: Run, found: RunComparison | None, *, threshold: float, accepted: bool) -> None:
    """Print how golden questions were answered, and the comparison with an earlier run."""
    from nugget.evaluation import means

    put_problems(run.problems)
    if not run.outcomes:
        put("There are no golden questions to ask.", style="yellow")
        put("`nugget eval --suggest` proposes some; they belong into evals/*.yaml of the brain.")
        return
    how = f"{run.model or 'words alone'}, {run.ranking}"
    put(f"{counted(len(run.answerable), 'question')} ({one_line(how)})\n", style="bold")
    for name, value in means([outcome.values for outcome in run.answerable]).items():
        put(f"  {name:<10} {value:.3f}")
    put("")
    below = [outcome for outcome in run.answerable if outcome.rank != 1]
    for outcome in sorted(below, key=lambda outcome: -(outcome.rank or 1000)):
        question = outcome.question
        put(f"{question.path}:{question.line}: {shorten(clean(question.text), _QUESTION_CHARS)}", style="yellow")
        for placed in outcome.expected:
            place = f"rank {placed['rank']}" if placed["rank"] else "not found"
            put(f"   expected {placed['id']}: {place} ({one_line(placed['why'])})")
        came = ", ".join(f"{unit_id} {score:.3f}" for unit_id, score in outcome.first) or "nothing"
        put(f"   first came {came}\n", style="dim")
    if alarms := sum(outcome.weak for outcome in run.answerable):
        put(f"Answered, but said to be weak: {alarms} of {len(run.answerable)}.")
    if run.unanswerable:
        flagged = sum(outcome.weak for outcome in run.unanswerable)
        put(f"Unanswerable, and said to be weak: {flagged} of {len(run.unanswerable)}.")
    if found:
        _put_comparison(run, found, threshold=threshold, accepted=accepted)


def _put_comparison(run: Run, found: RunComparison, *, threshold: float, accepted: bool) -> None:
    earlier = found.baseline
    same = (earlier["model"], earlier["ranking"]) == (run.model, run.ranking)
    made = "" if same else f", made with {one_line(earlier['model'] or 'words alone')}, {one_line(earlier['ranking'])}"
    where = f"{earlier['where']} of {one_line(earlier['time'])}{made}"
    put(f"Compared with {where}, over {counted(found.shared, 'question')} that both have:")
    changed = [name for name in found.now if abs(found.now[name] - found.before[name]) > 1e-6]
    for name in changed:
        style = "red" if name in found.regressed else ""
        put(f"   {name:<10} {found.before[name]:.3f} -> {found.now[name]:.3f}", style=style)
    for name, pairs in (("worse", found.worse), ("better", found.better)):
        for outcome, before in pairs:
            change = f"nDCG {before:.3f} -> {outcome.values['ndcg@10']:.3f}"
            put(f"   {name}: {shorten(clean(outcome.question.text), _QUESTION_CHARS)} ({change})")
    if not changed:
        put("   nothing changed")
    if found.regressed:
        put(f"Fell by more than {threshold:g}: {', '.join(found.regressed)}.", style="red")
        if not accepted:
            put("If that is as it should be: nugget eval --accept (or write a new baseline).")


def put_query_report(found: Report, askings: Sequence[Asking], *, is_kept: bool) -> None:
    """Print what was asked of the brain, most often first."""
    if not is_kept:
        note("`retrieval.log_queries` is false: what is asked now is not kept.")
    if not found.asked:
        put("Nothing was asked yet." if is_kept else "There is no query log.")
        return
    faces = ", ".join(f"{count} {face}" for face, count in sorted(found.faces.items()))
    put(f"{counted(found.asked, 'question')} ({faces}), {len(found.askings)} different")
    put(f"   nothing found: {found.zero}, weak: {found.weak}, used later in the session: {found.used_in}")
    put(f"   p50 {found.p50_ms:.1f} ms, p95 {found.p95_ms:.1f} ms")
    put(f"   {found.returned} of {counted(found.units, 'unit')} were ever part of an answer")
    for name, (answers, results) in found.sources.items():
        put(f"   {name}: {counted(results, 'result')} in {counted(answers, 'answer')}")
    put("")
    for asking in askings:
        mark = " (nothing found)" if not asking.units else " (weak)" if asking.weak else ""
        put(f"{asking.times:>4} × {shorten(clean(asking.text), _QUESTION_CHARS)}{mark}")
        if asking.units:
            used = f"; used {', '.join(asking.used)}" if asking.used else ""
            put(f"       {asking.units[0][0]} {asking.units[0][1]:.3f}{used}", style="dim")
