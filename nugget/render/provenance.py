"""Nuggets and their coverage for people at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from nugget.models.nuggets import scope_text
from nugget.models.speech import said_how
from nugget.render import iso_date, origin_text
from nugget.render.terminal import console, explained_score, note, print_facts
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.infra.workspace import Workspace
    from nugget.models import StaleReason
    from nugget.models.nuggets import Nugget, NuggetBundle, NuggetHit
    from nugget.provenance.extraction import ExtractedSession
    from nugget.provenance.inventory import Covered, Gaps, Missing
    from nugget.provenance.transfer import Imported


_PROMPT_CHARS = 2000
_BAR_CHARS = 30


def print_extraction(
    outcomes: Sequence[ExtractedSession], here: Workspace, tunings: int, *, dry_run: bool, everything: bool
) -> None:
    """Print the result of an extraction."""
    out = console()
    for one in outcomes:
        if one.state == "extracted":
            what = f"{counted(one.nuggets, 'nugget')}, {counted(one.touches, 'file')}"
            out.print(f"  {clean(one.session[:8])}  {what:<24} {one_line(one.title)}".rstrip())
        elif one.state == "failed":
            note(f"failed: {clean(one.session)}: {one_line(one.reason)}")
        for line in one.dropped:
            note(f"left out: {clean(one.session[:8])}: {one_line(line)}")
    counts = {state: sum(one.state == state for one in outcomes) for state in ("extracted", "skipped", "failed")}
    if counts["extracted"]:
        out.print("")
    out.print("Would be extracted:" if dry_run else "Extraction Results:")
    for state, count in counts.items():
        out.print(f"  {state.title() + ':':<10} {count}")
    if tunings:
        out.print(f"  Changed by hand since: {counted(tunings, 'file')}")
    if usd := sum(one.usd for one in outcomes):
        out.print(f"  Cost:      ${usd:.4f}")
    if not outcomes and not everything:
        out.print(f"No session worked in {clean(here.name)} ({clean(str(here.root))}).")
        out.print("Next: nugget extract --all reads the sessions of every workspace.")


def print_imported(out: Console, done: Imported, *, dry_run: bool) -> None:
    """Print the result of an import of nuggets."""
    for problem in done.problems[:20]:
        note(f"left out: {one_line(str(problem))}")
    if len(done.problems) > 20:
        note(f"left out: {len(done.problems) - 20} more lines")
    would = "would be " if dry_run else ""
    what = f"{counted(done.new, 'nugget')} {would}new, {done.known} known already"
    out.print(f"{counted(done.sessions, 'session')}: {what}.")


def print_code_answer(out: Console, bundle: NuggetBundle, *, explain: bool = False) -> None:
    """Print nuggets with what is known of each, the notes, and what was left out."""
    query = bundle.query
    asked = query.path or query.text or "the workspace"
    about = f"{asked}#{query.symbol}" if query.symbol and query.path else asked
    size = f"{counted(len(bundle.hits), 'nugget')}, {bundle.budget.used:,} tokens"
    out.print(Text.assemble("Context for ", (one_line(about), "bold"), (f" ({size})", "dim")))
    if not bundle.hits and not bundle.budget.truncated:
        out.print(Text("\n  Nothing is recorded on this.", style="yellow"))
    for hit in bundle.hits:
        out.print()
        _print_nugget_hit(out, hit, explain=explain)
    notes = [text for text in (*bundle.notes, bundle.more_context_hint) if text]
    out.print(Text("\n".join(["", *map(one_line, notes)]), style="dim"), end="\n" if notes else "")


def _print_nugget_hit(out: Console, hit: NuggetHit, *, explain: bool) -> None:
    nugget = hit.nugget
    name = hit.unit.type if hit.unit else str(nugget.type)
    stale = _stale(hit.stale_reason)
    out.print(Text.assemble("  ", (f"[{name}]", "cyan"), " ", (one_line(nugget.summary), "bold"), (stale, "yellow")))
    for line in filter(str.strip, clean(nugget.detail).split("\n")):
        out.print(Text(f"    {line.rstrip()}"))
    if nugget.alternatives:
        out.print(Text(f"    Alternatives: {one_line('; '.join(nugget.alternatives))}"))
    if nugget.source_prompt:
        out.print(Text(f"    Asked: {shorten(clean(nugget.source_prompt), _PROMPT_CHARS)}", style="italic"))
    out.print(Text(f"    {origin_text(hit)}", style="dim"))
    if explain:
        out.print(Text(f"    score {explained_score(hit.score, hit.contributions)}", style="dim"))


def _stale(reason: StaleReason | None) -> str:
    return f"  (stale: {str(reason).replace('_', ' ')})" if reason else ""


def _header(out: Console, columns: str, width: int) -> None:
    out.print(Text(columns, style="bold"))
    out.print(Text("─" * width, style="dim"))


def print_nuggets(out: Console, nuggets: Sequence[Nugget], reasons: Mapping[str, StaleReason], total: int) -> None:
    """Print a table of nuggets, one line each."""
    if not nuggets:
        out.print(Text("No nuggets found.", style="yellow"))
        return
    width = max(len("ID"), *(len(one.id) for one in nuggets)) + 2
    _header(out, f"{'ID':<{width}}{'Type':<13}{'Scope':<31}Summary", 90)
    for one in nuggets:
        scope = scope_text(one) if one.scope.path or one.scope.symbol else "(workspace)"
        line = f"{one.type:<13}{_fitted(scope, 30)} {one_line(one.summary)}"
        out.print(Text.assemble((f"{one.id:<{width}}", "cyan"), line, (_stale(reasons.get(one.id)), "yellow")))
    more = f" Shown are {len(nuggets)}; --limit shows more." if total > len(nuggets) else ""
    out.print(Text(f"\n{total:,} nugget(s) found.{more}", style="dim"))


def print_nugget(out: Console, nugget: Nugget, reason: StaleReason | None) -> None:
    """Print everything that is known about one nugget."""
    facts = [
        ("ID", nugget.id), ("Type", str(nugget.type)), ("Summary", nugget.summary), ("Detail", nugget.detail),
        ("Scope Path", nugget.scope.path or "(workspace)"), ("Symbol", nugget.scope.symbol),
        ("Alternatives", "; ".join(nugget.alternatives)), ("Confidence", f"{nugget.confidence:g}"),
        ("Session", nugget.session), ("Said", said_how(nugget.speaker, nugget.origin)), ("Agent", nugget.agent),
        ("Learned", iso_date(nugget.session_started)), ("Extracted", iso_date(nugget.extracted_at)),
        ("Method", nugget.method), ("Stale after", str(nugget.stale_after or "")),
        ("Stale", str(reason or "").replace("_", " ")), ("Workspace", nugget.scope.repo),
        ("Asked", shorten(clean(nugget.source_prompt), _PROMPT_CHARS)),
        *(("Evidence", f"“{one_line(entry.quote)}”") for entry in nugget.evidence),
    ]  # fmt: skip
    print_facts(out, [(f"{name}:", value) for name, value in facts], width=14)


def print_missing(out: Console, missing: Sequence[Missing], looked_at: int) -> None:
    """Print the names that nuggets and units mention and that no longer exist, by nugget."""
    for ref, found in groupby(missing, key=lambda one: one.ref):
        names = list(found)
        out.print(Text.assemble((one_line(ref), "cyan"), f"  {one_line(names[0].summary)}"))
        for one in names:
            out.print(Text.assemble("  ", (f"no {one.kind}", "yellow"), f" {one_line(one.name)}"))
    verdict = f"{len(missing)} missing." if missing else "Everything that is named exists."
    out.print(Text(f"{chr(10) * bool(missing)}{counted(looked_at, 'nugget')} checked. {verdict}", style="dim"))


def print_coverage(out: Console, covered: Sequence[Covered], limit: int) -> None:
    """Print a bar a file."""
    if not covered:
        out.print(Text("No file has nuggets yet; `nugget extract` makes them from the sessions.", style="yellow"))
        return
    out.print(Text("Nugget coverage by file:\n", style="bold"))
    for one in covered[:limit]:
        bar = "█" * max(1, round(_BAR_CHARS * one.nuggets / covered[0].nuggets))
        out.print(Text.assemble(f"  {_fitted(one.path, 42)} ", (bar, "green"), f" {one.nuggets}"))
    more = f" {len(covered) - limit} more; --limit shows them." if len(covered) > limit else ""
    out.print(Text(f"\n{len(covered):,} file(s) with context nuggets.{more}", style="dim"))


def print_gaps(out: Console, gaps: Gaps, limit: int) -> None:
    """Print questions without answers, and files that change often without a nugget."""
    out.print(Text("Files with high queries but low nugget coverage:\n", style="bold"))
    if gaps.asked:
        _header(out, f"{'Path':<51}{'Queries':<11}Nuggets", 74)
    else:
        out.print(Text("  None: every file that was asked about has nuggets.", style="dim"))
    for one in gaps.asked[:limit]:
        out.print(Text(f"{_fitted(one.path, 50)} {one.queries:<11}{one.nuggets}"))
    if gaps.unexplained:
        out.print(Text("\nFiles that change often and that nothing is known of:\n", style="bold"))
        _header(out, f"{'Path':<51}Commits", 74)
    for one in gaps.unexplained[:limit]:
        out.print(Text(f"{_fitted(one.path, 50)} {one.changes}"))
    for reason in gaps.degraded:
        out.print(Text(f"\nWithout the changes that git knows of ({one_line(reason)}).", style="dim"))


def _fitted(text: str, width: int) -> str:
    """A path in exactly so many columns: of a longer one the end, which tells more."""
    text = one_line(text)
    return f"{text:<{width}}" if len(text) <= width else f"…{text[-(width - 1) :]}"
