"""Answers in a terminal: ranked passages, excerpts by source, one whole unit; plain without colour.

Whatever comes from a brain is cleaned before it is shown and is never read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from nugget.models import Bundle, Contribution, Depth, Hit, Unit
from nugget.render import clean, degraded_sentences, one_line, stale_words, without_title
from nugget.speech import said_how
from nugget.text import counted, shorten

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

IN_FULL = 3
"""So many of the best hits are shown with their passages, the rest in two lines each (all of them with `deep`)."""
EXCERPT_CHARS = 150
MAX_WIDTH = 110
"""Longer lines are hard to read, however wide the terminal is."""
_INDENT = "   "
_CODE = re.compile(r"`+[^`\n]+`+")
_STRONG = re.compile(r"\*\*[^*\n]+\*\*")
_LIST_MARK = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"#{1,6}\s+(.*)")


def print_answer(out: Console, bundle: Bundle, *, explain: bool = False) -> None:
    """The bundle for a person: passages, or an honest word where the brain does not know."""
    if not bundle.hits:
        print_nothing_found(out, bundle)
    elif bundle.weak:
        put_line(out, "The brain does not seem to know this.", "bold yellow")
        put_line(out, "Nearest, probably not it:\n", "dim")
        _print_compact(out, bundle.hits, 1, explain=explain)
    else:
        full = len(bundle.hits) if bundle.query.depth is Depth.DEEP else IN_FULL
        for position, hit in enumerate(bundle.hits[:full], 1):
            _print_hit(out, position, hit, explain=explain)
        if rest := bundle.hits[full:]:
            put_line(out, "Also:\n", "dim")
            _print_compact(out, rest, full + 1, explain=explain)
    print_footer(out, bundle, explain=explain)


def print_nothing_found(out: Console, bundle: Bundle) -> None:
    """Say that there is nothing, or no room for anything, and what to do next."""
    if bundle.more_context_hint:
        put_line(out, f"Nothing that matches fits into {counted(bundle.budget.requested, 'token')}.", "bold yellow")
        put_line(out, "Allow more with --budget.")
        return
    put_line(out, "Nothing in the brain matches.", "bold yellow")
    if bundle.query.filter.is_empty:
        put_line(out, "Try other words. What you find out can be kept with `nugget add`.")
    else:
        put_line(out, "Try other words, or fewer of --type, --domain, --tag, --since and --source.")


def print_sources(out: Console, hits: Sequence[Hit], cited: Sequence[str]) -> None:
    """The units that an answer cites, in its order; all that it was written from where it cites none."""
    by_id = {hit.unit.id: hit for hit in hits}
    put_line(out, "\nSources" if cited else "\nThe answer cites nothing; it was written from", "bold")
    for hit in [by_id[unit_id] for unit_id in cited] or hits:
        _facts(out, hit, before=one_line(hit.unit.title))


def print_unit(out: Console, unit: Unit, *, today: date) -> None:
    """One unit whole, with everything that is known about it."""
    put_line(out, one_line(unit.title), "bold")
    for name, value in unit_facts(unit, today=today):
        put_parts(out, (f"{name:<13}", "dim"), (one_line(value), ""))
    put_line(out, "")
    print_markdown(out, without_heading(unit), indent="")
    for entry in unit.evidence:
        said = f", {said_how(entry.speaker, entry.origin)}" if entry.speaker else ""
        put_line(out, f"\nFrom session {one_line(entry.session)}{said}:", "dim")
        print_markdown(out, f"“{entry.quote}”", indent=_INDENT)


def unit_facts(unit: Unit, *, today: date) -> list[tuple[str, str]]:
    """Name and value of what is known about a unit beside its text."""
    expired = " (expired)" if unit.stale_after and unit.stale_after < today else ""
    scope = unit.scope
    facts = [
        ("ref", unit.ref),
        ("type", unit.type),
        ("domain", unit.domain or ""),
        ("tags", ", ".join(unit.tags)),
        ("confidence", f"{unit.confidence:g}" if unit.is_judged else ""),
        ("from", str(unit.origin or "")),
        ("created", str(unit.created or "")),
        ("changed", str(unit.last_modified or "")),
        ("stale after", f"{unit.stale_after}{expired}" if unit.stale_after else ""),
        ("scope", " ".join(part for part in (scope.repo, scope.path, scope.symbol) if part) if scope else ""),
        ("file", unit.path or ""),
        ("related", "; ".join(f"{edge.relation} {edge.id}" for edge in unit.related)),
        ("alternatives", "; ".join(unit.alternatives)),
    ]
    return [(name, value) for name, value in facts if value]


def without_heading(unit: Unit) -> str:
    """The body without a first heading that repeats the title."""
    first, _, rest = unit.body.lstrip().partition("\n")
    return rest.strip("\n") if first.lstrip("# ").strip() == unit.title.strip() else unit.body.strip("\n")


def print_markdown(out: Console, text: str, *, indent: str = _INDENT) -> None:
    """Markdown as readable text: headings bold, code in colour, nothing rearranged, lines wrapped on a terminal."""
    from rich.text import Text

    in_code = False
    for line in clean(text).split("\n"):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        heading = None if in_code else _HEADING.fullmatch(line.strip())
        if is_fence:
            in_code = not in_code
            shown = Text(line, style="dim")
        elif in_code:
            shown = Text(line, style="cyan")
        elif heading:
            shown = Text(heading[1] if out.is_terminal else line, style="bold")
        else:
            shown = Text(line)
            shown.highlight_regex(_STRONG, "bold")
            shown.highlight_regex(_CODE, "cyan")
        _print_indented(out, shown, indent, wrap=not in_code)


def print_footer(out: Console, bundle: Bundle, *, explain: bool) -> None:
    """Print what is missing from the answer and how to get more, dim, at the end."""
    if missing := degraded_sentences(bundle.degraded):
        put_line(out, f"Note: {'; '.join(missing)}.", "dim")
    if bundle.more_context_hint:
        put_line(out, one_line(bundle.more_context_hint), "dim")
    if explain and bundle.explain:
        put_line(out, explained_stages(bundle.explain), "dim")


def explained_score(score: float, contributions: Iterable[Contribution]) -> str:
    """`0.741 = 0.412 bm25 (#1) + 0.329 vector (#2)`."""
    addends = [
        f"{part.value:.3f} {part.name}" + (f" ({one_line(part.detail)})" if part.detail else "")
        for part in contributions
    ]
    return f"{score:.3f} = {' + '.join(addends)}".replace("+ -", "- ") if addends else f"{score:.3f}"


def explained_stages(explain: Mapping[str, Any]) -> str:
    """Counts and times of the pipeline on one line."""
    profile = explain.get("profile", {})
    counts = ", ".join(f"{count} {name}" for name, count in explain.get("counts", {}).items())
    times = ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in explain.get("timings_ms", {}).items())
    return f"Ranking {profile.get('ranking')}, vectors by {explain.get('vector_search')}: {counts}; {times}."


def _print_hit(out: Console, position: int, hit: Hit, *, explain: bool) -> None:
    unit = hit.unit
    put_parts(out, (f"{position}. ", "dim"), (one_line(unit.title), "bold"))
    _facts(out, hit)
    for chunk in (without_title(chunk, unit.title) for chunk in hit.chunks):
        place = one_line(chunk.breadcrumb)
        put_line(out, "")
        if place and place != one_line(unit.title):
            _print_indented(out, _text(place, "italic dim"), _INDENT)
        print_markdown(out, chunk.text.strip("\n"))
    if explain:
        put_line(out, "")
        put_reasons(out, hit, explain=explain)
    put_line(out, "")


def _print_compact(out: Console, hits: Sequence[Hit], first: int, *, explain: bool) -> None:
    for position, hit in enumerate(hits, first):
        put_parts(out, (f"{position}. ", "dim"), (one_line(hit.unit.title), "bold"))
        _facts(out, hit)
        chunk = without_title(hit.chunks[0], hit.unit.title)
        _print_indented(out, _text(shorten(clean(chunk.text), EXCERPT_CHARS)), _INDENT)
        put_reasons(out, hit, explain=explain)
        put_line(out, "")


def _facts(out: Console, hit: Hit, *, before: str = "") -> None:
    unit = hit.unit
    changed = unit.last_modified or unit.created
    facts = [unit.type, unit.domain or "", f"confidence {unit.confidence:g}", str(changed or "")]
    known = " · ".join(one_line(fact) for fact in facts if fact)
    stale = f"  stale: {stale_words(hit)}" if hit.stale_reason else ""
    named = [(_INDENT, ""), (before + "  " if before else "", ""), (one_line(unit.id), "cyan")]
    put_parts(out, *named, (f"  {known}", "dim"), (stale, "yellow"))


def put_reasons(out: Console, hit: Hit, *, explain: bool) -> None:
    """With `explain`: how a score came about, and by what a hit was found."""
    if not explain:
        return
    put_line(out, f"{_INDENT}score {explained_score(hit.score, hit.contributions)}", "dim")
    if hit.reasons:
        put_line(out, f"{_INDENT}found by {', '.join(one_line(reason) for reason in hit.reasons)}", "dim")


def _print_indented(out: Console, text: Text, indent: str, *, wrap: bool = True) -> None:
    """Wrap on a terminal only: what goes into a file or a pipe keeps its lines."""
    mark = _LIST_MARK.match(text.plain)
    hanging = " " * len(mark[0]) if mark else ""
    width = max(20, min(out.width, MAX_WIDTH) - len(indent + hanging))
    lines = text.wrap(out, width) if wrap and out.is_terminal else [text]
    for number, line in enumerate(lines):
        line.rstrip()
        before = (indent + hanging if number else indent) if line.plain else ""
        out.print(_text(before).append_text(line))


def put_line(out: Console, text: str, style: str = "") -> None:
    """One line in one style."""
    out.print(_text(text, style))


def put_parts(out: Console, *pieces: tuple[str, str]) -> None:
    """One line of pieces, each with its style."""
    from rich.text import Text

    out.print(Text.assemble(*pieces))


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style)
