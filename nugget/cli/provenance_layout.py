"""Provenance in a terminal. Text from sessions is cleaned and never read as markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nugget.cli.layout import explained_score
from nugget.models import StaleReason
from nugget.nuggets import Nugget, NuggetBundle, NuggetHit
from nugget.render import clean, one_line
from nugget.render.nuggets import iso_date, origin_text
from nugget.retrieval.nugget_packing import scope_text
from nugget.speech import said_how
from nugget.text import counted, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.provenance.checking import Missing
    from nugget.provenance.coverage import Covered, Gap, Gaps

_PROMPT_CHARS = 2000
_BAR_CHARS = 30


def print_code_answer(out: Console, bundle: NuggetBundle, *, explain: bool = False) -> None:
    """Nuggets with what is known of each, the notes, and what was left out."""
    from rich.text import Text

    query = bundle.query
    asked = query.path or query.text or "the workspace"
    about = f"{asked}#{query.symbol}" if query.symbol and query.path else asked
    size = f"{counted(len(bundle.hits), 'nugget')}, {bundle.budget.used:,} tokens"
    out.print(Text.assemble(("Context for ", ""), (one_line(about), "bold"), (f" ({size})", "dim")))
    if not bundle.hits and not bundle.budget.truncated:
        out.print(Text("\n  Nothing is recorded on this.", style="yellow"))
    for hit in bundle.hits:
        out.print()
        _print_hit(out, hit, explain=explain)
    if bundle.notes or bundle.more_context_hint:
        out.print()
    for text in (*bundle.notes, bundle.more_context_hint):
        if text:
            out.print(Text(one_line(text), style="dim"))


def _print_hit(out: Console, hit: NuggetHit, *, explain: bool) -> None:
    from rich.text import Text

    nugget = hit.nugget
    stale = f"  (stale: {str(hit.stale_reason).replace('_', ' ')})" if hit.stale_reason else ""
    name = hit.unit.type if hit.unit else str(nugget.type)
    out.print(Text.assemble("  ", (f"[{name}]", "cyan"), " ", (one_line(nugget.summary), "bold"), (stale, "yellow")))
    for line in clean(nugget.detail).split("\n"):
        if line.strip():
            out.print(Text(f"    {line.rstrip()}"))
    if nugget.alternatives:
        out.print(Text(f"    Alternatives: {one_line('; '.join(nugget.alternatives))}"))
    if nugget.source_prompt:
        out.print(Text(f"    Asked: {shorten(clean(nugget.source_prompt), _PROMPT_CHARS)}", style="italic"))
    out.print(Text(f"    {origin_text(hit)}", style="dim"))
    if explain:
        out.print(Text(f"    score {explained_score(hit.score, hit.contributions)}", style="dim"))


def print_nuggets(out: Console, nuggets: Sequence[Nugget], reasons: Mapping[str, StaleReason], total: int) -> None:
    """A table of nuggets, one line each."""
    from rich.text import Text

    if not nuggets:
        out.print(Text("No nuggets found.", style="yellow"))
        return
    width = max(len("ID"), *(len(one.id) for one in nuggets)) + 2
    out.print(Text(f"{'ID':<{width}}{'Type':<13}{'Scope':<31}Summary", style="bold"))
    out.print(Text("─" * 90, style="dim"))
    for one in nuggets:
        scope = scope_text(one) if one.scope.path or one.scope.symbol else "(workspace)"
        reason = reasons.get(one.id)
        stale = f"  (stale: {str(reason).replace('_', ' ')})" if reason else ""
        out.print(
            Text.assemble(
                (f"{one.id:<{width}}", "cyan"), f"{one.type:<13}", f"{_fitted(scope, 30)} ", one_line(one.summary),
                (stale, "yellow"),
            )
        )  # fmt: skip
    more = f" Shown are {len(nuggets)}; --limit shows more." if total > len(nuggets) else ""
    out.print(Text(f"\n{total:,} nugget(s) found.{more}", style="dim"))


def print_nugget(out: Console, nugget: Nugget, reason: StaleReason | None) -> None:
    """Everything that is known about one nugget."""
    from rich.text import Text

    facts = [
        ("ID", nugget.id), ("Type", str(nugget.type)), ("Summary", nugget.summary), ("Detail", nugget.detail),
        ("Scope Path", nugget.scope.path or "(workspace)"), ("Symbol", nugget.scope.symbol or ""),
        ("Alternatives", "; ".join(nugget.alternatives)), ("Confidence", f"{nugget.confidence:g}"),
        ("Session", nugget.session), ("Said", said_how(nugget.speaker, nugget.origin)), ("Agent", nugget.agent),
        ("Learned", iso_date(nugget.session_started) or ""),
        ("Extracted", iso_date(nugget.extracted_at) or ""), ("Method", nugget.method),
        ("Stale after", str(nugget.stale_after or "")), ("Stale", str(reason or "").replace("_", " ")),
        ("Workspace", nugget.scope.repo or ""), ("Asked", shorten(clean(nugget.source_prompt), _PROMPT_CHARS)),
    ]  # fmt: skip
    for name, value in facts:
        if value:
            out.print(Text.assemble((f"{name + ':':<14}", "dim"), one_line(value)))
    for entry in nugget.evidence:
        out.print(Text.assemble((f"{'Evidence:':<14}", "dim"), f"“{one_line(entry.quote)}”"))


def listed_json(nugget: Nugget, reason: StaleReason | None) -> dict[str, Any]:
    """One nugget of `nugget nuggets --json`."""
    value: dict[str, Any] = {
        "id": nugget.id, "type": str(nugget.type), "summary": nugget.summary, "detail": nugget.detail or None,
        "scopePath": nugget.scope.path, "scopeSymbol": nugget.scope.symbol, "confidence": nugget.confidence,
        "session": nugget.session, "sessionDate": iso_date(nugget.session_started), "sessionAgent": nugget.agent,
        "speaker": nugget.speaker, "origin": nugget.origin, "reviewed": False,
        "stale": reason is not None, "staleReason": str(reason) if reason else None,
    }  # fmt: skip
    return value


def whole_json(nugget: Nugget, reason: StaleReason | None) -> dict[str, Any]:
    """`nugget nuggets inspect --json`."""
    return listed_json(nugget, reason) | {
        "alternatives": list(nugget.alternatives), "extractedAt": iso_date(nugget.extracted_at),
        "method": nugget.method, "staleAfter": str(nugget.stale_after) if nugget.stale_after else None,
        "sourcePrompt": nugget.source_prompt or None, "workspace": nugget.scope.repo, "fileHash": nugget.file_hash,
        "evidence": [
            {"session": entry.session, "quote": entry.quote, "speaker": entry.speaker, "origin": entry.origin}
            for entry in nugget.evidence
        ],
    }  # fmt: skip


def print_missing(out: Console, missing: Sequence[Missing], looked_at: int) -> None:
    """Print the names that nuggets and units mention and that no longer exist, by nugget."""
    from rich.text import Text

    last = ""
    for one in missing:
        if one.ref != last:
            out.print(Text.assemble((one_line(one.ref), "cyan"), f"  {one_line(one.summary)}"))
            last = one.ref
        out.print(Text.assemble("  ", (f"no {one.kind}", "yellow"), f" {one_line(one.name)}"))
    verdict = f"{len(missing)} missing." if missing else "Everything that is named exists."
    out.print(Text(f"{'' if not missing else chr(10)}{counted(looked_at, 'nugget')} checked. {verdict}", style="dim"))


def print_coverage(out: Console, covered: Sequence[Covered], limit: int) -> None:
    """A bar a file."""
    from rich.text import Text

    if not covered:
        out.print(Text("No file has nuggets yet; `nugget extract` makes them from the sessions.", style="yellow"))
        return
    out.print(Text("Nugget coverage by file:\n", style="bold"))
    most = covered[0].nuggets
    for one in covered[:limit]:
        bar = "█" * max(1, round(_BAR_CHARS * one.nuggets / most))
        out.print(Text.assemble(f"  {_fitted(one.path, 42)} ", (bar, "green"), f" {one.nuggets}"))
    more = f" {len(covered) - limit} more; --limit shows them." if len(covered) > limit else ""
    out.print(Text(f"\n{len(covered):,} file(s) with context nuggets.{more}", style="dim"))


def print_gaps(out: Console, gaps: Gaps, limit: int) -> None:
    """Print questions without answers, and files that change often without a nugget."""
    from rich.text import Text

    out.print(Text("Files with high queries but low nugget coverage:\n", style="bold"))
    if gaps.asked:
        out.print(Text(f"{'Path':<51}{'Queries':<11}Nuggets", style="dim"))
        out.print(Text("─" * 74, style="dim"))
    for one in gaps.asked[:limit]:
        out.print(Text(f"{_fitted(one.path, 50)} {one.queries:<11}{one.nuggets}"))
    if not gaps.asked:
        out.print(Text("  None: every file that was asked about has nuggets.", style="dim"))
    if gaps.unexplained:
        out.print(Text("\nFiles that change often and that nothing is known of:\n", style="bold"))
        out.print(Text(f"{'Path':<51}Commits", style="dim"))
        out.print(Text("─" * 74, style="dim"))
    for one in gaps.unexplained[:limit]:
        out.print(Text(f"{_fitted(one.path, 50)} {one.changes}"))
    for reason in gaps.degraded:
        out.print(Text(f"\nWithout the changes that git knows of ({one_line(reason)}).", style="dim"))


def gaps_json(gaps: Gaps, limit: int) -> dict[str, Any]:
    """`nugget coverage --gaps --json`."""

    def entries(found: Sequence[Gap]) -> list[dict[str, Any]]:
        return [
            {"path": one.path, "queryCount": one.queries, "nuggetCount": one.nuggets, "changes": one.changes}
            for one in found[:limit]
        ]

    return {
        "gaps": entries(gaps.asked), "unexplained": entries(gaps.unexplained), "degraded": list(gaps.degraded)
    }  # fmt: skip


def _fitted(text: str, width: int) -> str:
    """A path in exactly so many columns: of a longer one the end, which tells more."""
    text = one_line(text)
    return f"{text:<{width}}" if len(text) <= width else f"…{text[-(width - 1) :]}"
