"""How provenance looks in a terminal. Whatever comes from sessions is cleaned and never read as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nugget.cli.layout import explained_score
from nugget.nuggets import NuggetBundle, NuggetHit
from nugget.render import clean, one_line
from nugget.render_nuggets import origin_text
from nugget.text import counted, shorten

if TYPE_CHECKING:
    from rich.console import Console

_PROMPT_CHARS = 2000


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
