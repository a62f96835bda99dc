"""Reports for people at a terminal: captures, proposals, syncs, status, findings."""

from __future__ import annotations

from collections.abc import Sequence
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
    from nugget.capture.review import ProposedFile
    from nugget.importing import ImportResult
    from nugget.index.sync import SyncResult
    from nugget.models import Unit
    from nugget.upkeep.doctor import Finding
    from nugget.upkeep.status import Status


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
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.redacted.items()))
        note(f"redacted before anything was kept: {kinds}")
    if result.branch:
        out.print(f"\nNext: nugget review show {clean(result.branch)}")


def print_proposed_line(out: Console, file: ProposedFile) -> None:
    """Print one proposed file on a line, with its problems below."""
    title = one_line(file.unit.title) if file.unit else ""
    line = Text.assemble("   ", (f"{file.status:<8}", "dim"), (clean(file.id), "cyan"), f"  {title}")
    out.print(line)
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
        _print_quotes(out, unit)
    for flag in flags_of(unit, before=file.before, after=file.after) if unit else ():
        out.print(f"   look: {one_line(flag)}", style="yellow")
    out.print()


def _print_quotes(out: Console, unit: Unit) -> None:
    for entry in unit.evidence:
        out.print(f"\n   Evidence, {said_how(entry.speaker, entry.origin)}:", style="dim")
        print_markdown(out, f"“{entry.quote}”", indent="      ")


def print_diff(out: Console, diff: str) -> None:
    """Print a diff in colour."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in clean(diff).split("\n"):
        out.print(f"   {line}".rstrip(), style=styles.get(line[:1], ""))


def print_problems(out: Console, problems: Sequence[Problem]) -> None:
    """One line a problem, `path:line: severity: reason`, as editors and CI understand it."""
    for problem in problems:
        where = problem.path if problem.line is None else f"{problem.path}:{problem.line}"
        style = "red" if problem.severity is Severity.ERROR else "yellow"
        reason = " ".join(clean(problem.reason).split())
        out.print(Text.assemble(f"{clean(where)}: ", (str(problem.severity), style), f": {reason}"))


_SHOWN_LEFT_OUT = 20


def print_import(out: Console, result: ImportResult, *, dry_run: bool) -> None:
    """Print what an import proposed."""
    if result.changes:
        where = "would be proposed" if dry_run else f"on {clean(result.branch or '')}"
        out.print(f"{counted(len(result.changes), 'unit')} of {counted(result.files, 'file')} {where}:\n")
    else:
        out.print(f"Nothing new to propose in {counted(result.files, 'file')}.")
    for change in result.changes:
        (evidence,) = change.unit.evidence[:1]
        out.print(f"   {clean(change.unit.id)}  {one_line(change.unit.title)}")
        out.print(f"      {clean(evidence.session)}: {one_line(change.reason)}", style="dim")
        if change.note:
            out.print(f"      look: {one_line(change.note)}", style="yellow")
    if result.known:
        note(f"{counted(result.known, 'note')} imported before.")
    for reason in [*result.dropped, *map(str, result.left_out)][:_SHOWN_LEFT_OUT]:
        note(f"left out: {one_line(reason)}")
    more = len(result.dropped) + len(result.left_out) - _SHOWN_LEFT_OUT
    if more > 0:
        note(f"left out: {more:,} more (--json names all)")
    if result.redacted:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.redacted.items()))
        note(f"redacted before anything was kept: {kinds}")
    if result.waiting:
        note(f"{counted(result.waiting, 'note')} more than --limit; import again once these are decided.")
    if result.branch:
        out.print(f"\nNext: nugget review show {clean(result.branch)}")


def print_status(out: Console, seen: Status) -> None:
    """Print the status of a brain."""
    from nugget.upkeep.status import when

    index, capture, repository = seen.index, seen.capture, seen.repository
    sizes = ((index.units, "unit"), (index.chunks, "chunk"), (index.vectors, "vector"), (index.relations, "relation"))
    size = ", ".join(counted(count, noun) for count, noun in sizes)
    stands = {
        "ready": f"{size}; in line with the files",
        "behind": f"{size}; {counted(index.behind, 'file')} changed since. Next: nugget sync",
        "absent": "none yet; the first question makes it. Next: nugget sync",
        "unusable": f"{index.reason}. Next: nugget rebuild",
    }
    queue = ", ".join(f"{count} {state}" for state, count in capture.queue.items() if count) or "empty"
    errors = sum(problem.severity is Severity.ERROR for problem in index.problems)
    waiting = counted(seen.proposals, "proposal")
    rows = [
        ("Brain", f"{seen.brain}{' (default)' if seen.is_default else ''}"),
        ("Git", _git_words(seen)),
        ("Index", stands[index.state]),
        ("Files", _files_words(index.files, errors, is_read=index.state != "absent")),
        ("Model", _model_words(seen)),
        ("LLM key", "set" if seen.has_key else "not set: passages instead of answers"),
        ("Review", f"{waiting}. Next: nugget review" if seen.proposals else "nothing waits"),
        ("Captured", f"last {when(capture.last_captured)}" if capture.last_captured else "nothing yet"),
        ("Queue", queue + (", a worker is at work" if capture.working else "")),
        ("Spent", f"${capture.usd:.2f} in {counted(capture.calls, 'LLM call')}"),
    ]
    if seen.publishing.remote:
        rows.insert(7, ("Published", _publishing_words(seen)))
    if seen.misplaced:
        rows.append(("Settings", f"brain.yaml may not set {', '.join(seen.misplaced)}. Next: nugget doctor"))
    if repository is None:
        rows[1] = ("Git", f"no repository. Next: nugget init {seen.brain}")
    for name, said in rows:
        out.print(Text.assemble((f"{name:<10}", "bold"), one_line(said)))
    for failure in capture.failures:
        out.print(Text(f"          failed: {one_line(failure)}", style="red"))
    if capture.failures:
        out.print("          Next: nugget capture --retry")
    for failure in seen.publishing.failures:
        out.print(Text(f"          not published: {one_line(failure)}", style="red"))
    if seen.publishing.failures:
        out.print("          Next: nugget capture --publish")


def _files_words(files: int, errors: int, *, is_read: bool) -> str:
    left_out = f"{errors} left out{'. Next: nugget lint' * bool(errors)}" if is_read else "not read yet"
    return f"{counted(files, 'knowledge file')}, {left_out}"


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
        return ""
    if repository.problem:
        return repository.problem
    parts = [repository.branch or "detached HEAD", (repository.head or "no commit yet")[:10]]
    if repository.uncommitted:
        parts.append(counted(repository.uncommitted, "uncommitted file"))
    if repository.unsettled and repository.branch:
        parts.append(repository.unsettled)
    return ", ".join(parts)


def print_findings(out: Console, brain: Path, found: list[Finding], wrong: int) -> None:
    """Print the findings of `nugget doctor`."""
    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
    out.print(f"{clean(str(brain))}\n", style="bold")
    for finding in found:
        mark = marks[finding.state]
        out.print(Text.assemble(mark, f" {finding.name:<16}", one_line(finding.message)))
        if finding.next_step:
            out.print(Text(f"                  Next: {one_line(finding.next_step)}", style="dim"))
    open_checks = sum(finding.state == "warning" for finding in found)
    if wrong:
        out.print("\nSomething is wrong.", style="bold red")
    elif open_checks:
        out.print(f"\nIt works; {counted(open_checks, 'warning')} above.", style="bold yellow")
    else:
        out.print("\nNothing is wrong.", style="bold green")


def _model_words(seen: Status) -> str:
    """The model of the index; where another one is configured and cannot be had, why."""
    if problem := seen.index.model_problem:
        kept = f"the index keeps vectors of {seen.index.model}" if seen.index.model else "words alone are searched"
        return f"{seen.configured_model} cannot be had ({problem.rstrip('.')}); {kept}. Next: nugget sync"
    return ", ".join(filter(None, [seen.index.model or seen.configured_model, seen.index.vector_search]))


_SHOWN_PROBLEMS = 20


def print_source_sync(out: Console, source: SourceName, result: SyncResult) -> None:
    """Print one line for a source, if it has anything."""
    counts = [(result.added, "added"), (result.modified, "changed"), (result.removed, "removed"),
              (result.unchanged, "as before")]  # fmt: skip
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    if said:
        out.print(f"{source_noun(source)}: {said}.", style="" if result.changed else "dim")
    if result.without_vectors:
        note(f"{source_noun(source)} without vectors: {result.without_vectors}")
    print_problems(out, result.problems)


def source_noun(source: SourceName) -> str:
    """Return the noun for what a source holds: sessions stand for all logs."""
    return "Sessions, shells and channels" if source is SourceName.SESSIONS else str(source).capitalize()


def print_sync(out: Console, result: SyncResult) -> None:
    """Print the result of a sync of the brain."""
    counts = [
        (result.added, "added"), (result.modified, "changed"), (result.moved, "moved"), (result.removed, "removed"),
        (result.unchanged, "as before"),
    ]  # fmt: skip
    said = ", ".join(f"{count} {what}" for count, what in counts if count) or "no files"
    made = f"Index rebuilt ({one_line(result.rebuilt)})" if result.rebuilt else "Index up to date"
    out.print(f"{made}: {said}.")
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
