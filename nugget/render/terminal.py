"""Reports for people, from the templates in this folder, wrapped only at a terminal.

A template is Jinja's: a line that begins with `%` is a statement, `[bold]…[/]` is a style of rich's, and a line that
begins with `{{ note }}` goes to stderr. Every value is made safe to show when it is inserted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from difflib import unified_diff
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from nugget.infra.files import resource
from nugget.models import Contribution, Event, EventKind, Hit, SourceName, Speaker, Unit
from nugget.models.nuggets import scope_text, way_of
from nugget.models.sessions import said_how
from nugget.render import (
    body_of,
    degraded_sentences,
    iso_date,
    origin_text,
    question_spans,
    stale_suffix,
    stale_words,
    without_title,
)
from nugget.text import clean, counted, duration, one_line, plain, shorten

if TYPE_CHECKING:
    from jinja2 import Environment

    from nugget.capture.review import ProposedFile
    from nugget.index.embedded.sync import SyncResult

MAX_WIDTH = 110
"""Longer lines of text are hard to read, however wide the terminal is."""
_EXCERPT_CHARS = 520
_SPEAKERS = {
    "you": "You", "agent": "Agent", "quoted": "Quoted", "tool": "Tool",
    "message": "Message", "command": "Command", "output": "Output",
}  # fmt: skip
_SPOKEN = frozenset({SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE})

Piece = str | tuple[str, str]


def console(*, stderr: bool = False) -> Console:
    """Return the console of a command, without markup, emoji codes or automatic highlights."""
    return console_of(stderr)


@cache
def console_of(stderr: bool) -> Console:
    """Return the one console of a stream, so that a pager captures all of its output."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)


def put(*pieces: Piece, style: str = "", stderr: bool = False) -> None:
    """Print pieces on one line, without escape sequences."""
    parts = [(piece, "") if isinstance(piece, str) else piece for piece in pieces]
    put_text(Text.assemble(*((clean(text), own) for text, own in parts), style=style), stderr=stderr)


def put_text(text: Text, *, stderr: bool = False, width: int | None = None) -> None:
    """Print a line. On a terminal it is wrapped below its indent, its first column, or the text of a list item.

    `width` limits it further; 0 leaves it whole.
    """
    out, mark = console(stderr=stderr), re.match(r"[^\x11]*(?=\x11)| *(?:[-*+!]|\d{1,3}[.)])\s+| *", text.plain)
    text = Text().join(text.split(_COLUMN))
    text.rstrip()
    if not out.is_terminal or width == 0:
        out.print(text)
        return
    room = max(20, min(out.width, width or out.width))
    start = min(mark.end() if mark else 0, room - 20)
    for number, line in enumerate(text[start:].wrap(out, room - start)):
        line.rstrip()
        out.print((Text(" " * start if line.plain else "") if number else text[:start]).append_text(line))


def note(text: str) -> None:
    """Print one line for the person on stderr."""
    put(text, style="dim", stderr=True)


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
    """Return a text with the words of a question in bold, also with other endings."""
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
    """Return how vectors were compared, what was counted, and how long each stage took."""
    counts = ", ".join(f"{count} {name}" for name, count in known.get("counts", {}).items())
    times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in known.get("timings_ms", {}).items())
    return f"Vectors by {known.get('vector_search')}: {counts}; {times}."


def grouped(hits: Sequence[Hit]) -> dict[SourceName, dict[str, list[Hit]]]:
    """Return hits grouped by source, and conversations also by speaker."""
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
    """Return `Title › Section › Subsection` of a hit; empty for a part of a conversation."""
    unit, chunk = hit.unit, next(iter(hit.chunks), None)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        return ""
    parts = [plain(part) for part in (chunk.breadcrumb if chunk else "").split(" > ") if part]
    title = plain(unit.title)
    return " › ".join(dict.fromkeys([title, *parts]))


def excerpt_of(hit: Hit) -> str:
    """Return the text of a hit without its title, cut after a sentence."""
    unit, chunk = hit.unit, next(iter(hit.chunks), None)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        text = shorten(clean(chunk.text), _EXCERPT_CHARS) if chunk else ""
        speaker = chunk.breadcrumb if chunk and unit.type != "message" else ""
        return f"[{one_line(speaker)}] {text}" if speaker else text
    text = clean(without_title(chunk.text, unit.title)) if chunk else ""
    rest = text.removeprefix(unit.title)
    return shorten(rest.lstrip(" .\n") if rest[:1] in " .\n" else text, _EXCERPT_CHARS)


def facts_of(hit: Hit, since: date | None = None) -> str:
    """Return the facts of a result: type, domain, confidence and day."""
    unit = hit.unit
    facts = [hit.brain, unit.type, unit.domain, f"confidence {unit.confidence:g}" * unit.is_judged]
    if unit.source is SourceName.CANON:
        facts = ["file name" if "file name" in hit.reasons else "", unit.type]
    elif unit.type in _SPEAKERS:
        is_told = unit.title == unit.session or clean(unit.title)[:40].lower() in excerpt_of(hit).lower()
        facts = ["" if is_told else shorten(plain(unit.title), 60)]
    return " · ".join(one_line(str(fact)) for fact in (*facts, day_of(unit, since)) if fact)


def day_of(unit: Unit, since: date | None) -> str:
    """Return the day when a unit was learned, or was changed if it is asked for since a later day."""
    learned = unit.created or unit.last_modified
    return f"changed {unit.last_modified}" if since and learned and learned < since else str(learned or "")


_FOLDED_CHARS = 100
_FAILED_LINES = 3
_NOTE, _PROSE, _CODE, _COLUMN = "\x0e", "\x0f", "\x10", "\x11"
"""Marks of a line for stderr, of text with limited width, of code, which is not wrapped, and of a column's end; `clean`
removes them."""


def put_report(name: str, **values: Any) -> None:
    """Print a report by its template."""
    for line in _templates().get_template(f"{name}.txt").render(values).splitlines():
        text = Text.from_markup(line.lstrip(_NOTE + _PROSE + _CODE), emoji=False)
        if line.startswith(_NOTE):
            note(text.plain)
        else:
            put_text(text, width={_PROSE: MAX_WIDTH, _CODE: 0}.get(line[:1]))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def read(name: str) -> str:
        lines = (resource("render/templates") / name).read_text("utf-8").splitlines()
        return "\n".join(line or "{{ '' }}" for line in lines) + "\n"  # Jinja drops empty lines after a statement

    made = Environment(
        loader=FunctionLoader(read), finalize=_shown, autoescape=True,
        undefined=StrictUndefined, line_statement_prefix="%", trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    made.filters |= {
        "col": lambda text, width: Markup(escape(f"{one_line(text):<{width}}") + _COLUMN), "counted": counted,
        "diff": _diff, "duration": lambda seconds: duration(timedelta(seconds=seconds)), "fitted": _fitted,
        "iso": iso_date, "plain": plain,
        "lines": lambda text: [line.rstrip() for line in clean(text).split("\n") if line.strip()],
        "moment": lambda moment: f"{moment.astimezone():%Y-%m-%d %H:%M}" if moment else "",
        "prose": lambda text, indent=3, question="": _marked(_PROSE, indent, highlighted(Text(clean(text)), question)),
        "shorten": lambda text, most: shorten(clean(text or ""), most), "markdown": _markdown, "way_of": way_of,
    }  # fmt: skip
    made.globals |= {
        "note": Markup(_NOTE), "degraded_sentences": degraded_sentences, "diff_of": _diff_of, "excerpt_of": excerpt_of,
        "explained_score": explained_score, "explained_stages": explained_stages, "facts": _facts, "body_of": body_of,
        "day_of": day_of, "facts_of": facts_of, "flags_of": _flags_of, "grouped": grouped, "heading_of": heading_of,
        "lines_of": _event_lines, "origin_text": origin_text, "said_how": said_how, "stale_words": stale_words,
        "scope_text": scope_text, "speaker_of": _speaker, "sync_words": _sync_words, "without_title": without_title,
        "stale": lambda reason: Markup(f"[yellow]  {escape(stale_suffix(reason))}[/]" if reason else ""),
    }  # fmt: skip
    return made


def _shown(value: object) -> Markup:
    """Return a value on one line as rich's markup; markup made by a template is kept."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(clean("" if value is None else str(value)).replace("\n", " ")))


def _facts(rows: Iterable[tuple[str, object]], width: int) -> Markup:
    """Return the known facts, one per line, with their names in a column."""
    known = [(name, one_line(str(value))) for name, value in rows if value]
    return Markup("\n".join(f"[dim]{name:<{width}}{_COLUMN}[/]{escape(value)}" for name, value in known))


def _markdown(text: str, indent: int = 3, question: str = "") -> Markup:
    lines = (_marked(_CODE if in_code else _PROSE, indent, line) for line, in_code in markdown_lines(text, question))
    return Markup("\n".join(lines))


def _marked(mark: str, indent: int, line: Text) -> Markup:
    return Markup(f"{mark}{' ' * indent}{line.markup}")


def _diff(text: str) -> Markup:
    """Return a diff in colour."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines = clean(text).split("\n")
    return Markup("\n".join(f"{_CODE}[{styles.get(line[:1], 'none')}]   {escape(line)}[/]" for line in lines))


def _diff_of(file: ProposedFile) -> str:
    before, after = (file.before or "").splitlines(), (file.after or "").splitlines()
    return "\n".join(unified_diff(before, after, "now", "proposed", n=2, lineterm=""))


def _flags_of(unit: Unit, **sides: str | None) -> tuple[str, ...]:
    from nugget.capture.proposals import flags_of

    return flags_of(unit, **sides)


def _fitted(text: str, width: int) -> str:
    """Return a path padded to a width, or the end of a longer one."""
    text = one_line(text)
    return f"{text:<{width}}" if len(text) <= width else f"…{text[-(width - 1) :]}"


def _speaker(event: Event) -> str:
    if event.kind is EventKind.PROMPT and not event.agent_id:
        return "You" if event.speaker is Speaker.USER else str(event.speaker).title()
    if event.kind in (EventKind.REPLY, EventKind.COMMAND, EventKind.FILE_EDIT, EventKind.TOOL_CALL):
        return f"Agent ({one_line(event.agent_id)[:40]})" if event.agent_id else "Agent"
    return ""


def _event_lines(event: Event, full: bool) -> Iterator[tuple[str, str]]:
    """Yield an event as lines with styles; commands, output and edits are folded unless `full`."""
    text = event.text if full else shorten(event.text, _FOLDED_CHARS)
    failed = event.ok is False
    if event.kind in (EventKind.PROMPT, EventKind.REPLY):
        yield event.text.strip(), "none"
    elif event.kind is EventKind.PASTE:
        yield f"  pasted: {text}", "dim"
    elif event.kind is EventKind.SUMMARY:
        yield "\nThe conversation was compacted here." + (f"\n{event.text}" if full else ""), "dim italic"
    elif event.kind is EventKind.COMMAND:
        yield f"  $ {text}", "magenta"
    elif event.kind is EventKind.FILE_EDIT:
        before, after = (event.before or "").splitlines(), (event.after or "").splitlines()
        size = f"−{len(before)} +{len(after)} lines{', failed' if failed else ''}"
        yield f"  * {one_line(event.path or event.text)} ({size})", "magenta"
        if full:
            yield from ((f"    - {line}", "red") for line in before)
            yield from ((f"    + {line}", "green") for line in after)
    elif event.kind is EventKind.TOOL_CALL:
        yield f"  > {one_line(event.tool or 'tool')}: {text}", "magenta"
    else:
        lines = [line for line in event.text.splitlines() if line.strip()]
        if full:
            yield from ((f"    {line}", "red" if failed else "dim") for line in lines)
        elif failed:
            yield f"    failed{f' with exit code {event.exit_code}' if event.exit_code is not None else ''}", "red"
            # The last lines say why a command failed.
            yield from ((f"    {shorten(line, _FOLDED_CHARS)}", "red") for line in lines[-_FAILED_LINES:])
        elif event.kind is EventKind.OUTPUT and lines:
            more = f" … {counted(len(lines), 'line')}" if len(lines) > 1 else ""
            yield f"    {shorten(lines[0], _FOLDED_CHARS)}{more}", "dim"


def _sync_words(result: SyncResult) -> str:
    counts = ((result.added, "added"), (result.modified, "changed"), (result.moved, "moved"),
              (result.removed, "removed"), (result.unchanged, "as before"))  # fmt: skip
    return ", ".join(f"{count} {what}" for count, what in counts if count)
