"""Answers, search results and units for people at a terminal, and the words that every report is printed with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from nugget.models import Bundle, Contribution, Depth, Hit, SourceName, Unit
from nugget.models.sessions import said_how
from nugget.render import degraded_sentences, question_spans, stale_words, without_title
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.retrieval.refs import Excerpt

IN_FULL = 3
"""So many of the best hits are shown with their passages, the rest in two lines each (all of them with `deep`)."""
EXCERPT_CHARS = 520
"""Longer than the summary of a hit."""
LINE_CHARS = 150
MAX_WIDTH = 110
"""Longer lines are hard to read, however wide the terminal is."""

_INDENT = "   "
_SPEAKERS = {
    "you": "You", "agent": "Agent", "quoted": "Quoted", "tool": "Tool",
    "message": "Message", "command": "Command", "output": "Output",
}  # fmt: skip
_SPOKEN = frozenset({SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE})

Piece = str | tuple[str, str]
"""A text, or a text and its style."""


def console(*, stderr: bool = False) -> Console:
    """Return the console of a command. It takes text as it is: no markup, no emoji codes, no guessed highlights."""
    return console_of(stderr)


@cache
def console_of(stderr: bool) -> Console:
    """Return the one console of a stream: what a pager holds back has to be all that is printed."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)


def put(*pieces: Piece, style: str = "", stderr: bool = False) -> None:
    """Print pieces on one line, without what a terminal would obey."""
    parts = [(piece, "") if isinstance(piece, str) else piece for piece in pieces]
    put_text(Text.assemble(*((clean(text), own) for text, own in parts), style=style), stderr=stderr)


def put_text(text: Text, *, stderr: bool = False) -> None:
    """Print a line, wrapped below its own indent on a terminal."""
    out = console(stderr=stderr)
    if not out.is_terminal:
        out.print(text)
        return
    indent = len(text.plain) - len(text.plain.lstrip(" "))
    _put_indented(text[indent:], " " * indent, width=out.width, stderr=stderr)


def note(text: str) -> None:
    """Print one line for the person on stderr."""
    put(text, style="dim", stderr=True)


def put_facts(facts: Iterable[tuple[str, str | None]], *, width: int = 13) -> None:
    """Print the facts that are known, one a line, their names in a column."""
    for name, value in facts:
        if value:
            put((f"{name:<{width}}", "dim"), one_line(value))


def put_answer(bundle: Bundle, *, explain: bool = False) -> None:
    """Print the passages of a bundle, or say that nothing answers."""
    full = len(bundle.hits) if bundle.query.depth is Depth.DEEP else 0 if bundle.weak else IN_FULL
    _put_head(bundle)
    for position, hit in enumerate(bundle.hits, 1):
        if position == full + 1 > 1:
            put("Also:\n", style="dim")
        put((f"{bundle.query.offset + position}. ", "dim"), (one_line(hit.unit.title), "bold"))
        _put_unit_facts(hit)
        if position <= full:
            _put_chunks(hit, bundle.query.text)
            if explain:
                put("")
        else:
            text = shorten(clean(without_title(hit.chunks[0], hit.unit.title).text), LINE_CHARS)
            _put_indented(highlighted(text, bundle.query.text))
        _put_reasons(hit, explain=explain)
        put("")
    put_footer(bundle, explain=explain)


def _put_head(bundle: Bundle) -> None:
    """Print that nothing was found, or nothing likely to answer, and what to do then."""
    if not bundle.hits and bundle.more_context_hint:
        put(f"Nothing that matches fits into {counted(bundle.budget.requested, 'token')}.", style="bold yellow")
        put("Allow more with --budget.")
    elif not bundle.hits:
        put("No more results." if bundle.query.offset else "Nothing matches.", style="bold yellow")
        if bundle.query.offset:
            return
        is_open = bundle.query.filter.is_empty
        fewer = "Try other words, or fewer of --type, --domain, --tag, --since and --source."
        put("Try other words. What you find out can be kept with `nugget add`." if is_open else fewer)
    elif bundle.weak:
        put("Nothing that is indexed seems to answer this.", style="bold yellow")
        put("Nearest, probably not it:\n", style="dim")


def put_sources(hits: Sequence[Hit], cited: Sequence[str]) -> None:
    """Print the units that an answer cites, in its order; all that it was written from if it cites none."""
    by_name = {hit.name: hit for hit in hits}
    put("\nSources" if cited else "\nThe answer cites nothing; it was written from", style="bold")
    for hit in [by_name[name] for name in cited] or hits:
        _put_unit_facts(hit, before=f"{one_line(hit.unit.title)}  ")


def put_unit(unit: Unit, *, today: date) -> None:
    """Print one unit whole, with everything that is known about it."""
    expired = " (expired)" if unit.stale_after and unit.stale_after < today else ""
    scope = unit.scope
    put(one_line(unit.title), style="bold")
    put_facts([
        ("ref", unit.ref), ("type", unit.type), ("domain", unit.domain), ("tags", ", ".join(unit.tags)),
        ("confidence", f"{unit.confidence:g}" if unit.is_judged else ""), ("from", unit.origin),
        ("created", str(unit.created or "")), ("changed", str(unit.last_modified or "")),
        ("stale after", f"{unit.stale_after}{expired}" if unit.stale_after else ""),
        ("scope", " ".join(filter(None, (scope.repo, scope.path, scope.symbol))) if scope else ""),
        ("file", unit.path), ("related", "; ".join(f"{edge.relation} {edge.id}" for edge in unit.related)),
        ("alternatives", "; ".join(unit.alternatives)),
    ])  # fmt: skip
    put("")
    put_markdown(without_heading(unit), indent="")
    for entry in unit.evidence:
        said = f", {said_how(entry.speaker, entry.origin)}" if entry.speaker else ""
        put(f"\nFrom session {one_line(entry.session)}{said}:", style="dim")
        put_markdown(f"“{entry.quote}”")


def without_heading(unit: Unit) -> str:
    """Return the body without a first heading that repeats the title."""
    first, _, rest = unit.body.lstrip().partition("\n")
    return rest.strip("\n") if first.lstrip("# ").strip() == unit.title.strip() else unit.body.strip("\n")


def put_markdown(text: str, *, indent: str = _INDENT, question: str = "") -> None:
    """Print markdown readably: headings bold, code in colour, lines wrapped on a terminal, words of a question marked.

    Nothing is rearranged.
    """
    in_code = False
    for line in clean(text).split("\n"):
        marks, _, heading = line.strip().partition(" ")
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
            shown = Text(line, style="dim")
        elif in_code:
            shown = Text(line, style="cyan")
        elif heading and marks == "#" * len(marks) and len(marks) <= 6:
            shown = Text(heading.strip() if console().is_terminal else line, style="bold")
        else:
            shown = Text(line)
            shown.highlight_regex(r"\*\*[^*\n]+\*\*", "bold")
            shown.highlight_regex(r"`+[^`\n]+`+", "cyan")
        _mark(shown, question)
        _put_indented(shown, indent, wrap=not in_code)


def put_footer(bundle: Bundle, *, explain: bool = False) -> None:
    """Print what is missing from the answer and how to get more, dim, at the end."""
    if missing := degraded_sentences(bundle.degraded):
        put(f"Note: {'; '.join(missing)}.", style="dim")
    if bundle.more_context_hint:
        put(one_line(bundle.more_context_hint), style="dim")
    if bundle.remaining and bundle.query.limit:
        pages = bundle.query.offset // bundle.query.limit + 1
        put(f"For more results, add:{' --more' * pages}", style="dim")
    if explain and (known := bundle.explain):
        counts = ", ".join(f"{count} {name}" for name, count in known.get("counts", {}).items())
        times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in known.get("timings_ms", {}).items())
        ranking = f"Ranking {known.get('profile', {}).get('ranking')}, vectors by {known.get('vector_search')}"
        put(f"{ranking}: {counts}; {times}.", style="dim")


def explained_score(score: float, contributions: Iterable[Contribution]) -> str:
    """Return `0.741 = 0.412 bm25 (#1) + 0.329 vector (#2)`."""
    addends = [
        f"{part.value:.3f} {part.name}" + (f" ({one_line(part.detail)})" if part.detail else "")
        for part in contributions
    ]
    return f"{score:.3f} = {' + '.join(addends)}".replace("+ -", "- ") if addends else f"{score:.3f}"


def _put_chunks(hit: Hit, question: str) -> None:
    title = one_line(hit.unit.title)
    for chunk in (without_title(chunk, hit.unit.title) for chunk in hit.chunks):
        place = one_line(chunk.breadcrumb)
        put("")
        if place and place != title:
            _put_indented(Text(place, "italic dim"))
        put_markdown(chunk.text.strip("\n"), question=question)


def _put_unit_facts(hit: Hit, *, before: str = "") -> None:
    unit = hit.unit
    facts = [hit.brain or "", unit.type, unit.domain or "", f"confidence {unit.confidence:g}" * unit.is_judged]
    put(_INDENT, before, (one_line(hit.name), "cyan"), (f"  {_joined(*facts, _day(unit))}", "dim"), _stale(hit))


def _stale(hit: Hit) -> Piece:
    return (f"  stale: {stale_words(hit)}" if hit.stale_reason else "", "yellow")


def _day(unit: Unit) -> str:
    return str(unit.last_modified or unit.created or "")


def _joined(*facts: str) -> str:
    return " · ".join(one_line(fact) for fact in facts if fact)


def _put_reasons(hit: Hit, *, explain: bool) -> None:
    if explain:
        put(f"{_INDENT}score {explained_score(hit.score, hit.contributions)}", style="dim")
        if hit.reasons:
            put(f"{_INDENT}found by {', '.join(map(one_line, hit.reasons))}", style="dim")


def _put_indented(
    text: Text, indent: str = _INDENT, *, wrap: bool = True, width: int = MAX_WIDTH, stderr: bool = False
) -> None:
    """Wrap on a terminal only: what goes into a file or a pipe keeps its lines."""
    out, mark = console(stderr=stderr), re.match(r"\s*(?:[-*+]|\d{1,3}[.)])\s+", text.plain)
    hanging = " " * len(mark[0]) if mark else ""
    width = max(20, min(out.width, width) - len(indent + hanging))
    lines = text.wrap(out, width) if wrap and out.is_terminal else [text]
    for number, line in enumerate(lines):
        line.rstrip()
        before = (indent + hanging if number else indent) if line.plain else ""
        out.print(Text(before).append_text(line))


def put_results(bundle: Bundle, *, explain: bool) -> None:
    """Print the results by source: an excerpt and a ref per result, those of conversations by who spoke."""
    _put_head(bundle)
    if bundle.hits:
        put("## RESULTS\n", style="bold")
    groups: dict[SourceName, list[Hit]] = {}
    for hit in bundle.hits:
        groups.setdefault(hit.unit.source, []).append(hit)
    order = list(_SPEAKERS)
    for source, hits in groups.items():
        put(f"{str(source).upper()} ({len(hits)})", style="bold")
        if source not in _SPOKEN:
            _put_hits(hits, bundle.query.text, explain=explain)
            continue
        kinds = dict.fromkeys(hit.unit.type for hit in hits)
        for kind in sorted(kinds, key=lambda kind: order.index(kind) if kind in order else len(order)):
            put(f"{_SPEAKERS.get(kind, one_line(kind).title())}:", style="italic")
            _put_hits([hit for hit in hits if hit.unit.type == kind], bundle.query.text, explain=explain)
    put_footer(bundle, explain=explain)


def put_excerpt(excerpt: Excerpt) -> None:
    """Print an exchange or message with its neighbours, and mark the one that was asked for."""
    put(one_line(excerpt.title or excerpt.session), style="bold")
    put_facts([("ref", excerpt.ref), ("agent", excerpt.agent), ("folder", excerpt.folder), ("file", excerpt.path)])
    for passage in excerpt.passages:
        who = one_line(passage.speaker or passage.role.title())
        when = f"  {passage.timestamp:%Y-%m-%d %H:%M}" if passage.timestamp else ""
        mark, style = ("▶ ", "bold") if passage.is_target else ("", "bold dim")
        put("")
        put((f"{mark}{who}:", style), (f"{when}  {one_line(passage.ref)}", "dim"))
        put_markdown(passage.text, indent="  ")


def _put_hits(hits: Sequence[Hit], question: str, *, explain: bool) -> None:
    for hit in hits:
        title = _heading(hit)
        if title:
            put(f"  {title}", style="bold")
        _put_indented(highlighted(_excerpt(hit), question), "  ")
        put(("  ref: ", "dim"), (one_line(hit.ref), "dim cyan"), (f"  {_result_facts(hit)}", "dim"), _stale(hit))
        _put_reasons(hit, explain=explain)
        put("")


def highlighted(text: str, question: str) -> Text:
    """Return a text with the words of a question in bold, whatever their endings."""
    shown = Text(text)
    _mark(shown, question)
    return shown


def _mark(text: Text, question: str) -> None:
    for span in question_spans(text.plain, question) if question else ():
        text.stylize("bold yellow", *span)


def _heading(hit: Hit) -> str:
    """Return `Title › Section › Subsection` of what was found; nothing for what was said."""
    unit, chunk = hit.unit, next(iter(hit.chunks), None)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        return ""
    parts = [one_line(part) for part in (chunk.breadcrumb if chunk else "").split(" > ") if part]
    title = one_line(unit.title)
    return " › ".join(dict.fromkeys([title, *parts]))


def _excerpt(hit: Hit) -> str:
    """Return what the hit says, without its title, cut at a sentence."""
    unit, chunk = hit.unit, next(iter(hit.chunks), None)
    text = shorten(clean(without_title(chunk, unit.title).text) if chunk else "", EXCERPT_CHARS)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        speaker = chunk.breadcrumb if chunk and unit.type != "message" else ""
        return f"[{one_line(speaker)}] {text}" if speaker else text
    return text


def _result_facts(hit: Hit) -> str:
    unit = hit.unit
    if unit.source is SourceName.CANON:
        return _joined("file name" if "file name" in hit.reasons else "", unit.type, _day(unit))
    if unit.type in _SPEAKERS:
        return _joined(shorten(clean(unit.title), 60) if unit.title != unit.session else "", _day(unit))
    judged = f"confidence {unit.confidence:g}" * unit.is_judged
    return _joined(hit.brain or "", unit.type, unit.domain or "", judged, _day(unit))
