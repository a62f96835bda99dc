"""Reports for people at a terminal: captures, proposals, syncs, status, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from nugget.models import Problem, Severity, SourceName
from nugget.models.speech import said_how
from nugget.render.terminal import note, print_markdown, without_heading
from nugget.text import clean, counted, one_line

if TYPE_CHECKING:
    from nugget.capture import CaptureResult
    from nugget.capture.publish import Published
    from nugget.capture.review import ProposedFile
    from nugget.importing import ImportResult
    from nugget.index import SyncResult
    from nugget.upkeep.doctor import Finding, Status

_SHOWN_PROBLEMS = 20


def redacted_words(counts: Mapping[str, int]) -> str:
    """Return what redaction took out, by kind."""
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
    return f"redacted before anything was kept: {kinds}"


def print_capture(out: Console, result: CaptureResult, *, dry_run: bool) -> None:
    """Print what a capture proposed."""
    if result.skipped:
        out.print(f"Nothing to propose: {one_line(result.skipped)}.")
    else:
        where = "would be proposed" if dry_run else f"on {clean(result.branch or '')}"
        out.print(f"{counted(len(result.changes), 'unit')} {where} ({result.method}):\n")
    for change in result.changes:
        kind = "new" if change.is_new else "edit"
        out.print(f"   {kind:<5} {clean(change.unit.id)}  {one_line(change.unit.title)}")
        out.print(f"         {one_line(change.reason)}", style="dim")
    for reason in result.dropped:
        note(f"left out: {one_line(reason)}")
    if result.redacted:
        note(redacted_words(result.redacted))
    if result.branch:
        out.print(f"\nNext: nugget review show {clean(result.branch)}")


def print_published(out: Console, published: Published, *, is_requested: bool) -> None:
    """Print what became of the pull requests; unless it was requested, only what changed."""
    for publication in published.publications:
        if publication.state == "failed":
            note(f"not published: {clean(publication.branch)}: {one_line(publication.reason or '')}")
        else:
            out.print(f"{publication.state}: {clean(publication.url or '')} ({clean(publication.branch)})")
            if publication.reason:
                note(one_line(publication.reason))
    if published.local and is_requested:
        note(f"Nothing was published: {one_line(published.local)}.")
    elif is_requested and not published.publications:
        out.print("Every proposal that waits has its pull request.")


def print_closed(closings: Published) -> None:
    """Print on stderr what became of the pull request of a rejected proposal."""
    for entry in closings.publications:
        if entry.state == "settled":
            note(f"{one_line(entry.reason or 'closed')}: {one_line(entry.url or entry.branch)}")
    for obstacle in filter(None, [closings.local, *(entry.reason for entry in closings.failed)]):
        note(f"Its pull request is still open: {one_line(obstacle)}")
        note("`nugget capture --publish` closes it.")


def print_proposed_line(out: Console, file: ProposedFile) -> None:
    """Print one proposed file on a line, with its problems below."""
    title = one_line(file.unit.title) if file.unit else ""
    out.print(Text.assemble("   ", (f"{file.status:<8}", "dim"), (clean(file.id), "cyan"), f"  {title}"))
    for problem in file.problems:
        out.print(f"            {one_line(str(problem))}", style="yellow")


def print_proposed(out: Console, file: ProposedFile) -> None:
    """Print one proposed file with its evidence and flags."""
    from nugget.capture.proposals import flags_of

    print_proposed_line(out, file)
    out.print(f"   {clean(file.path)}", style="dim")
    unit = file.unit
    if file.before is not None and file.after is not None:
        changes = unified_diff(file.before.splitlines(), file.after.splitlines(), "now", "proposed", n=2, lineterm="")
        print_diff(out, "\n".join(changes))
    elif unit is None:
        print_markdown(out, file.after or file.before or "")
    else:
        out.print(f"   confidence {unit.confidence:g}, tags: {one_line(', '.join(unit.tags)) or 'none'}\n", style="dim")
        print_markdown(out, without_heading(unit))
        for entry in unit.evidence:
            out.print(f"\n   Evidence, {said_how(entry.speaker, entry.origin)}:", style="dim")
            print_markdown(out, f"“{entry.quote}”", indent="      ")
    for flag in flags_of(unit, before=file.before, after=file.after) if unit else ():
        out.print(f"   look: {one_line(flag)}", style="yellow")
    out.print()


def print_diff(out: Console, diff: str) -> None:
    """Print a diff in colour."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in clean(diff).split("\n"):
        out.print(f"   {line}".rstrip(), style=styles.get(line[:1], ""))


def print_problems(out: Console, problems: Sequence[Problem]) -> None:
    """Print one line a problem, `path:line: severity: reason`, as editors and CI understand it."""
    for problem in problems:
        where = problem.path if problem.line is None else f"{problem.path}:{problem.line}"
        style = "red" if problem.severity is Severity.ERROR else "yellow"
        out.print(Text.assemble(f"{clean(where)}: ", (str(problem.severity), style), f": {one_line(problem.reason)}"))


def print_import(out: Console, result: ImportResult, *, dry_run: bool) -> None:
    """Print what an import proposed."""
    if result.changes:
        where = "would be proposed" if dry_run else f"on {clean(result.branch or '')}"
        out.print(f"{counted(len(result.changes), 'unit')} of {counted(result.files, 'file')} {where}:\n")
    else:
        out.print(f"Nothing new to propose in {counted(result.files, 'file')}.")
    for change in result.changes:
        out.print(f"   {clean(change.unit.id)}  {one_line(change.unit.title)}")
        out.print(f"      {clean(change.unit.evidence[0].session)}: {one_line(change.reason)}", style="dim")
        if change.note:
            out.print(f"      look: {one_line(change.note)}", style="yellow")
    if result.known:
        note(f"{counted(result.known, 'note')} imported before.")
    left_out = [*result.dropped, *map(str, result.left_out)]
    for reason in left_out[:_SHOWN_PROBLEMS]:
        note(f"left out: {one_line(reason)}")
    if len(left_out) > _SHOWN_PROBLEMS:
        note(f"left out: {len(left_out) - _SHOWN_PROBLEMS:,} more (--json names all)")
    if result.redacted:
        note(redacted_words(result.redacted))
    if result.waiting:
        note(f"{counted(result.waiting, 'note')} more than --limit; import again once these are decided.")
    if result.branch:
        out.print(f"\nNext: nugget review show {clean(result.branch)}")


def print_status(out: Console, seen: Status) -> None:
    """Print the status of a brain."""
    index, capture, publishing = seen.index, seen.capture, seen.publishing
    stamp = (capture.last_captured or "").replace("T", " ")
    sizes = ((index.units, "unit"), (index.chunks, "chunk"), (index.vectors, "vector"), (index.relations, "relation"))
    size = ", ".join(counted(count, noun) for count, noun in sizes)
    stands = {
        "ready": f"{size}; in line with the files",
        "behind": f"{size}; {counted(index.behind, 'file')} changed since. Next: nugget sync",
        "absent": "none yet; the first question makes it. Next: nugget sync",
        "unusable": f"{index.reason}. Next: nugget rebuild",
    }
    queue = ", ".join(f"{count} {state}" for state, count in capture.queue.items() if count) or "empty"
    rows = [
        ("Brain", f"{seen.brain}{' (default)' if seen.is_default else ''}"),
        ("Git", _git_words(seen)),
        ("Index", stands[index.state]),
        ("Files", _files_words(seen)),
        ("Model", _model_words(seen)),
        ("LLM key", "set" if seen.has_key else "not set: passages instead of answers"),
        ("Review", f"{counted(seen.proposals, 'proposal')}. Next: nugget review" if seen.proposals else
                   "nothing waits"),
        ("Published", _publishing_words(seen)),
        ("Captured", f"last {stamp[:16]}" if stamp else "nothing yet"),
        ("Queue", queue + (", a worker is at work" if capture.working else "")),
        ("Spent", f"${capture.usd:.2f} in {counted(capture.calls, 'LLM call')}"),
        ("Settings", f"brain.yaml may not set {', '.join(seen.misplaced)}. Next: nugget doctor"),
    ]  # fmt: skip
    left_out = {"Published" if not publishing.remote else "", "Settings" if not seen.misplaced else ""}
    for name, text in rows:
        if name not in left_out:
            out.print(Text.assemble((f"{name:<10}", "bold"), one_line(text)))
    for verb, failures, step in (
        ("failed", capture.failures, "retry"), ("not published", publishing.failures, "publish"),
    ):  # fmt: skip
        for failure in failures:
            out.print(Text(f"          {verb}: {one_line(failure)}", style="red"))
        if failures:
            out.print(f"          Next: nugget capture --{step}")


def _files_words(seen: Status) -> str:
    errors = sum(problem.severity is Severity.ERROR for problem in seen.index.problems)
    left_out = f"{errors} left out{'. Next: nugget lint' * bool(errors)}"
    files = counted(seen.index.files, "knowledge file")
    return f"{files}, {'not read yet' if seen.index.state == 'absent' else left_out}"


def _publishing_words(seen: Status) -> str:
    state = seen.publishing
    parts = [
        counted(len(state.open), "open pull request"),
        f"{state.local} only local" if state.local else "",
        f"{state.merged} merged on the remote. Next: nugget sync --pull" if state.merged else "",
    ]
    return ", ".join(filter(None, parts))


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


def print_findings(out: Console, brain: Path, found: list[Finding], wrong: int) -> None:
    """Print the findings of `nugget doctor`."""
    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
    out.print(f"{clean(str(brain))}\n", style="bold")
    for finding in found:
        out.print(Text.assemble(marks[finding.state], f" {finding.name:<16}", one_line(finding.message)))
        if finding.next_step:
            out.print(Text(f"                  Next: {one_line(finding.next_step)}", style="dim"))
    warnings = sum(finding.state == "warning" for finding in found)
    if wrong:
        out.print("\nSomething is wrong.", style="bold red")
    elif warnings:
        out.print(f"\nIt works; {counted(warnings, 'warning')} above.", style="bold yellow")
    else:
        out.print("\nNothing is wrong.", style="bold green")


def _sync_words(result: SyncResult) -> str:
    counts = ((result.added, "added"), (result.modified, "changed"), (result.moved, "moved"),
              (result.removed, "removed"), (result.unchanged, "as before"))  # fmt: skip
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def print_source_sync(out: Console, source: SourceName, result: SyncResult) -> None:
    """Print one line for a source, if it has anything."""
    noun = "Sessions, shells and channels" if source is SourceName.SESSIONS else str(source).capitalize()
    if words := _sync_words(result):
        out.print(f"{noun}: {words}.", style="" if result.changed else "dim")
    if result.without_vectors:
        note(f"{noun} without vectors: {result.without_vectors}")
    print_problems(out, result.problems)


def print_sync(out: Console, result: SyncResult) -> None:
    """Print the result of a sync of the brain."""
    made = f"Index rebuilt ({one_line(result.rebuilt)})" if result.rebuilt else "Index up to date"
    out.print(f"{made}: {_sync_words(result) or 'no files'}.")
    if result.embedded or result.cached:
        out.print(f"{counted(result.embedded, 'text')} embedded, {result.cached} taken from the cache.", style="dim")
    if result.without_vectors:
        note(f"Without vectors: {result.without_vectors}")
    if result.problems:
        left_out = sum(problem.severity is Severity.ERROR for problem in result.problems)
        out.print(f"\n{counted(len(result.problems), 'problem')}; left out: {counted(left_out, 'file')}.")
        print_problems(out, result.problems[:_SHOWN_PROBLEMS])
        if len(result.problems) > _SHOWN_PROBLEMS:
            out.print(f"… and {len(result.problems) - _SHOWN_PROBLEMS:,} more. Next: nugget lint")
