"""The console of the command line: lines wrapped on a terminal, markdown, and the words that reports are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from rich.console import Console
from rich.text import Text

from nugget.models import Contribution, Hit, SourceName, Unit
from nugget.render import question_spans, without_title
from nugget.text import clean, one_line, shorten

MAX_WIDTH = 110
"""Longer lines of text are hard to read, however wide the terminal is."""
_EXCERPT_CHARS = 520
"""Longer than the summary of a hit."""
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


def put_text(text: Text, *, stderr: bool = False, width: int | None = None) -> None:
    """Print a line; on a terminal it is wrapped below its own indent, and below the text of a list's item."""
    out, mark = console(stderr=stderr), re.match(r" *(?:[-*+]|\d{1,3}[.)])\s+| *", text.plain)
    text.rstrip()
    if not out.is_terminal or width == 0:
        out.print(text)
        return
    first, start = len(text.plain) - len(text.plain.lstrip(" ")), mark.end() if mark else 0
    room = max(20, min(out.width, width or out.width) - start)
    for number, line in enumerate(text[first:].wrap(out, room)):
        line.rstrip()
        out.print(Text(" " * (start if number else first) if line.plain else "").append_text(line))


def note(text: str) -> None:
    """Print one line for the person on stderr."""
    put(text, style="dim", stderr=True)


def without_heading(unit: Unit) -> str:
    """Return the body without a first heading that repeats the title."""
    first, _, rest = unit.body.lstrip().partition("\n")
    return rest.strip("\n") if first.lstrip("# ").strip() == unit.title.strip() else unit.body.strip("\n")


def markdown_lines(text: str, question: str = "") -> Iterator[tuple[Text, bool]]:
    """Yield markdown as readable lines, each with whether it is code; words of the question are marked.

    Headings are bold, code is coloured; nothing is rearranged.
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
        yield highlighted(shown, question), in_code


def highlighted(text: Text, question: str) -> Text:
    """Return a text with the words of a question in bold, whatever their endings."""
    for span in question_spans(text.plain, question) if question else ():
        text.stylize("bold yellow", *span)
    return text


def explained_score(score: float, contributions: Iterable[Contribution]) -> str:
    """Return `0.741 = 0.412 bm25 (#1) + 0.329 vector (#2)`."""
    addends = [
        f"{part.value:.3f} {part.name}" + (f" ({one_line(part.detail)})" if part.detail else "")
        for part in contributions
    ]
    return f"{score:.3f} = {' + '.join(addends)}".replace("+ -", "- ") if addends else f"{score:.3f}"


def explained_stages(known: Mapping[str, Any]) -> str:
    """Return how an answer was ranked, what was counted, and how long each stage took."""
    counts = ", ".join(f"{count} {name}" for name, count in known.get("counts", {}).items())
    times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in known.get("timings_ms", {}).items())
    ranking = f"Ranking {known.get('profile', {}).get('ranking')}, vectors by {known.get('vector_search')}"
    return f"{ranking}: {counts}; {times}."


def grouped(hits: Sequence[Hit]) -> dict[SourceName, dict[str, list[Hit]]]:
    """Return hits by source, those of conversations also by who spoke."""
    found: dict[SourceName, dict[str, list[Hit]]] = {}
    order = list(_SPEAKERS)
    for hit in hits:
        kind = hit.unit.type if hit.unit.source in _SPOKEN else ""
        found.setdefault(hit.unit.source, {}).setdefault(kind, []).append(hit)
    for source, kinds in found.items():
        known = sorted(kinds, key=lambda kind: order.index(kind) if kind in order else len(order))
        found[source] = {_SPEAKERS.get(kind, one_line(kind).title()): kinds[kind] for kind in known}
    return found


def heading_of(hit: Hit) -> str:
    """Return `Title › Section › Subsection` of what was found; nothing for what was said."""
    unit, chunk = hit.unit, next(iter(hit.chunks), None)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        return ""
    parts = [one_line(part) for part in (chunk.breadcrumb if chunk else "").split(" > ") if part]
    title = one_line(unit.title)
    return " › ".join(dict.fromkeys([title, *parts]))


def excerpt_of(hit: Hit) -> str:
    """Return what the hit says, without its title, cut at a sentence."""
    unit, chunk = hit.unit, next(iter(hit.chunks), None)
    text = shorten(clean(without_title(chunk, unit.title).text) if chunk else "", _EXCERPT_CHARS)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        speaker = chunk.breadcrumb if chunk and unit.type != "message" else ""
        return f"[{one_line(speaker)}] {text}" if speaker else text
    return text


def facts_of(hit: Hit) -> str:
    """Return what is known of a result beside its text: type, domain, confidence and day."""
    unit = hit.unit
    facts = [hit.brain, unit.type, unit.domain, f"confidence {unit.confidence:g}" * unit.is_judged]
    if unit.source is SourceName.CANON:
        facts = ["file name" if "file name" in hit.reasons else "", unit.type]
    elif unit.type in _SPEAKERS:
        facts = [shorten(clean(unit.title), 60) if unit.title != unit.session else ""]
    return " · ".join(one_line(str(fact)) for fact in (*facts, unit.last_modified or unit.created) if fact)
