"""Answers, search results and units for people at a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from nugget.models import Bundle, Contribution, Depth, Hit, SourceName, Unit
from nugget.models.speech import said_how
from nugget.render import degraded_sentences, stale_words, without_title
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.evidence import EvidenceBundle
    from nugget.retrieval.refs import Excerpt
    from nugget.retrieval.search import Group, Results


IN_FULL = 3
"""So many of the best hits are shown with their passages, the rest in two lines each (all of them with `deep`)."""
EXCERPT_CHARS = 150
MAX_WIDTH = 110
"""Longer lines are hard to read, however wide the terminal is."""

_INDENT = "   "
_RESULT_INDENT = "  "
_CODE = r"`+[^`\n]+`+"
_STRONG = r"\*\*[^*\n]+\*\*"
_LIST_MARK = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"#{1,6}\s+(.*)")
_SPEAKERS = {
    "you": "You", "agent": "Agent", "quoted": "Quoted", "tool": "Tool",
    "message": "Message", "command": "Command", "output": "Output",
}  # fmt: skip
_SPOKEN = frozenset({SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE})


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that takes text as it is: no markup, no emoji codes, no guessed highlights."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """Print one line for the person on stderr."""
    console(stderr=True).print(clean(text), style="dim")


def print_facts(out: Console, facts: Iterable[tuple[str, str | None]], *, width: int = 13) -> None:
    """Print the facts that are known, one a line, their names in a column."""
    for name, value in facts:
        if value:
            put_parts(out, (f"{name:<{width}}", "dim"), (one_line(value), ""))


def print_answer(out: Console, bundle: Bundle, *, explain: bool = False) -> None:
    """Print the passages of a bundle, or say that the brain does not know."""
    if not bundle.hits:
        _print_nothing_found(out, bundle)
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


def _print_nothing_found(out: Console, bundle: Bundle) -> None:
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
    """Print one unit whole, with everything that is known about it."""
    expired = " (expired)" if unit.stale_after and unit.stale_after < today else ""
    scope = unit.scope
    put_line(out, one_line(unit.title), "bold")
    print_facts(out, [
        ("ref", unit.ref), ("type", unit.type), ("domain", unit.domain), ("tags", ", ".join(unit.tags)),
        ("confidence", f"{unit.confidence:g}" if unit.is_judged else ""), ("from", unit.origin),
        ("created", str(unit.created or "")), ("changed", str(unit.last_modified or "")),
        ("stale after", f"{unit.stale_after}{expired}" if unit.stale_after else ""),
        ("scope", " ".join(filter(None, (scope.repo, scope.path, scope.symbol))) if scope else ""),
        ("file", unit.path), ("related", "; ".join(f"{edge.relation} {edge.id}" for edge in unit.related)),
        ("alternatives", "; ".join(unit.alternatives)),
    ])  # fmt: skip
    put_line(out, "")
    print_markdown(out, without_heading(unit), indent="")
    for entry in unit.evidence:
        said = f", {said_how(entry.speaker, entry.origin)}" if entry.speaker else ""
        put_line(out, f"\nFrom session {one_line(entry.session)}{said}:", "dim")
        print_markdown(out, f"“{entry.quote}”", indent=_INDENT)


def without_heading(unit: Unit) -> str:
    """The body without a first heading that repeats the title."""
    first, _, rest = unit.body.lstrip().partition("\n")
    return rest.strip("\n") if first.lstrip("# ").strip() == unit.title.strip() else unit.body.strip("\n")


def print_markdown(out: Console, text: str, *, indent: str = _INDENT) -> None:
    """Print markdown readably: headings bold, code in colour, nothing rearranged, lines wrapped on a terminal."""
    in_code = False
    for line in clean(text).split("\n"):
        heading = None if in_code else _HEADING.fullmatch(line.strip())
        if line.lstrip().startswith(("```", "~~~")):
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
    if explain and (known := bundle.explain):
        counts = ", ".join(f"{count} {name}" for name, count in known.get("counts", {}).items())
        times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in known.get("timings_ms", {}).items())
        ranking = f"Ranking {known.get('profile', {}).get('ranking')}, vectors by {known.get('vector_search')}"
        put_line(out, f"{ranking}: {counts}; {times}.", "dim")


def explained_score(score: float, contributions: Iterable[Contribution]) -> str:
    """`0.741 = 0.412 bm25 (#1) + 0.329 vector (#2)`."""
    addends = [
        f"{part.value:.3f} {part.name}" + (f" ({one_line(part.detail)})" if part.detail else "")
        for part in contributions
    ]
    return f"{score:.3f} = {' + '.join(addends)}".replace("+ -", "- ") if addends else f"{score:.3f}"


def _print_hit(out: Console, position: int, hit: Hit, *, explain: bool) -> None:
    title = one_line(hit.unit.title)
    put_parts(out, (f"{position}. ", "dim"), (title, "bold"))
    _facts(out, hit)
    for chunk in (without_title(chunk, hit.unit.title) for chunk in hit.chunks):
        place = one_line(chunk.breadcrumb)
        put_line(out, "")
        if place and place != title:
            _print_indented(out, Text(place, "italic dim"), _INDENT)
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
        _print_indented(out, Text(shorten(clean(chunk.text), EXCERPT_CHARS)), _INDENT)
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
    """Print how a score came about, and by what a hit was found, if `explain` is set."""
    if explain:
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
        out.print(Text(before).append_text(line))


def put_line(out: Console, text: str, style: str = "") -> None:
    """Print one line in one style."""
    out.print(Text(text, style))


def put_parts(out: Console, *pieces: tuple[str, str]) -> None:
    """Print one line of pieces, each with its style."""
    out.print(Text.assemble(*pieces))


def print_results(out: Console, bundle: Bundle, found: Results, *, explain: bool) -> None:
    """Print the results of each source: an excerpt and a ref per result."""
    if not found.groups:
        put_line(out, "Nothing matches.", "bold yellow")
        put_line(out, "Try other words, or fewer of them, of the filters and of the sources.")
    else:
        put_line(out, "## RESULTS\n", "bold")
    for group in found.groups:
        put_line(out, f"{str(group.source).upper()} ({len(group.hits)})", "bold")
        if group.weak:
            put_line(out, f"{_RESULT_INDENT}No good match. Nearest:", "yellow")
        if group.source in _SPOKEN:
            _print_spoken(out, group, explain=explain)
        else:
            _print_hits(out, group.hits, explain=explain)
    print_footer(out, bundle, explain=explain)


def print_timeline(out: Console, found: Results, days: Sequence[tuple[date | None, Hit]]) -> None:
    """Print everything found by the day it was made, the oldest first."""
    if not found.groups:
        put_line(out, "Nothing matches.", "bold yellow")
    if missing := degraded_sentences(found.degraded):
        put_line(out, f"Note: {'; '.join(missing)}.\n", "dim")
    month = ""
    for day, hit in days:
        now = f"{day:%Y-%m}" if day else "without a date"
        if now != month:
            put_line(out, ("\n" if month else "") + now, "bold")
            month = now
        spoken = _SPEAKERS.get(hit.unit.type) if hit.unit.source in _SPOKEN else None
        when = f"{day:%Y-%m-%d}" if day else " " * 10
        put_parts(out, (f"{_RESULT_INDENT}{when}  ", "dim"), (_summary(hit, spoken), ""))
        put_parts(out, (f"{_RESULT_INDENT}{' ' * 10}  ref: ", "dim"), (one_line(hit.ref), "cyan"))


def print_excerpt(out: Console, excerpt: Excerpt) -> None:
    """Print an exchange or message with what stands around it, the one that was asked for marked."""
    put_line(out, one_line(excerpt.title or excerpt.session), "bold")
    facts = [("ref", excerpt.ref), ("agent", excerpt.agent), ("folder", excerpt.folder), ("file", excerpt.path)]
    print_facts(out, facts)
    for passage in excerpt.passages:
        who = one_line(passage.speaker or passage.role.title())
        when = f"  {passage.timestamp:%Y-%m-%d %H:%M}" if passage.timestamp else ""
        mark, style = ("▶ ", "bold") if passage.is_target else ("", "bold dim")
        put_line(out, "")
        put_parts(out, (f"{mark}{who}:", style), (f"{when}  {one_line(passage.ref)}", "dim"))
        print_markdown(out, passage.text, indent=_RESULT_INDENT)


def _print_spoken(out: Console, group: Group, *, explain: bool) -> None:
    """Print who spoke, in this order: You, Agent, messages, commands; and what is known of failures."""
    order = list(_SPEAKERS)
    kinds = dict.fromkeys(hit.unit.type for hit in group.hits)
    for kind in sorted(kinds, key=lambda kind: order.index(kind) if kind in order else len(order)):
        put_line(out, f"{_SPEAKERS.get(kind, one_line(kind).title())}:", "italic")
        _print_hits(out, [hit for hit in group.hits if hit.unit.type == kind], explain=explain)


def _print_hits(out: Console, hits: Sequence[Hit], *, explain: bool) -> None:
    for hit in hits:
        put_line(out, f"{_RESULT_INDENT}{_summary(hit)}")
        put_parts(
            out, (f"{_RESULT_INDENT}ref: ", "dim"), (one_line(hit.ref), "cyan"), (f"  {_result_facts(hit)}", "dim"),
            (f"  stale: {stale_words(hit)}" if hit.stale_reason else "", "yellow"),
        )  # fmt: skip
        put_reasons(out, hit, explain=explain)
        put_line(out, "")


def _summary(hit: Hit, spoken: str | None = None) -> str:
    """Return the name of what was found, and what it says, cut at a sentence."""
    unit, chunk = hit.unit, next(iter(hit.chunks), None)
    text = clean(without_title(chunk, unit.title).text) if chunk else ""
    excerpt = shorten(text, EXCERPT_CHARS)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        speaker = chunk.breadcrumb if chunk and unit.type != "message" else ""
        said = f"[{one_line(speaker)}] {excerpt}" if speaker else excerpt
        return f"{spoken}: {said}" if spoken else said
    named = (unit.path or unit.id) if unit.source is SourceName.CANON else unit.title
    if text.startswith(named):  # an incident and a unit of one sentence begin with the words of their title
        return excerpt
    return f"{one_line(named)}: {excerpt}" if excerpt else one_line(named)


def _result_facts(hit: Hit) -> str:
    unit = hit.unit
    day = unit.last_modified or unit.created
    if unit.source is SourceName.CANON:
        facts = ["file name" if "file name" in hit.reasons else "", unit.type, str(day or "")]
    elif unit.type in _SPEAKERS:
        facts = [shorten(clean(unit.title), 60) if unit.title != unit.session else "", str(day or "")]
    else:
        trust = f"confidence {unit.confidence:g}" if unit.is_judged else ""
        facts = [unit.type, unit.domain or "", trust, str(day or "")]
    return " · ".join(one_line(fact) for fact in facts if fact)


def print_evidence(out: Console, found: EvidenceBundle, *, explain: bool) -> None:
    """Print an evidence bundle, with scores and reasons if `explain` is set."""
    out.print(clean(found.context_text))
    if not explain:
        return
    caps = ", ".join(f"{name} {cap}" for name, cap in found.category_caps.items())
    out.print(f"\n{len(found.selected)} of {counted(found.candidate_count, 'candidate')} selected; caps: {caps}")
    for one in found.selected:
        place = f"{one.source_table} {one.id}, ts_ms {one.ts_ms}"
        out.print(clean(f"{one.score:.2f} {one.kind}: {shorten(one.text, 100)}"))
        out.print(clean(f"     {place}; {', '.join(one.reasons)}"), style="dim")
