"""Search results in a terminal: grouped by source, in the order of time, or one part of history whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nugget.cli import layout
from nugget.models import Bundle, Hit, SourceName
from nugget.render import clean, degraded_sentences, one_line, stale_words, without_title
from nugget.retrieval.exploring import timeline
from nugget.retrieval.search import Group, Results
from nugget.text import shorten

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.retrieval.refs import Excerpt

_INDENT = "  "
_SPEAKERS = {"you": "You", "agent": "Agent", "message": "Message", "command": "Command", "output": "Output"}
_SPOKEN = frozenset({SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE})


def print_results(out: Console, bundle: Bundle, found: Results, *, explain: bool) -> None:
    """Print the results of each source: an excerpt and a ref per result."""
    if not found.groups:
        layout.put_line(out, "Nothing matches.", "bold yellow")
        layout.put_line(out, "Try other words, or fewer of them, of the filters and of the sources.")
    else:
        layout.put_line(out, "## RESULTS\n", "bold")
    for group in found.groups:
        layout.put_line(out, f"{str(group.source).upper()} ({len(group.hits)})", "bold")
        if group.weak:
            layout.put_line(out, f"{_INDENT}No good match. Nearest:", "yellow")
        if group.source in _SPOKEN:
            _print_spoken(out, group, explain=explain)
        else:
            _print_hits(out, group.hits, explain=explain)
    layout.print_footer(out, bundle, explain=explain)


def print_timeline(out: Console, found: Results) -> None:
    """Everything found by the day it was made, the oldest first."""
    if not found.groups:
        layout.put_line(out, "Nothing matches.", "bold yellow")
    if missing := degraded_sentences(found.degraded):
        layout.put_line(out, f"Note: {'; '.join(missing)}.\n", "dim")
    month = ""
    for day, hit in timeline(found):
        now = f"{day:%Y-%m}" if day else "without a date"
        if now != month:
            layout.put_line(out, ("\n" if month else "") + now, "bold")
            month = now
        spoken = _SPEAKERS.get(hit.unit.type) if hit.unit.source in _SPOKEN else None
        when = f"{day:%Y-%m-%d}" if day else "          "
        layout.put_parts(out, (f"{_INDENT}{when}  ", "dim"), (_summary(hit, spoken), ""))
        layout.put_parts(out, (f"{_INDENT}            ref: ", "dim"), (one_line(hit.ref), "cyan"))


def in_time(found: Results) -> list[Hit]:
    """The hits in the order of time."""
    return [hit for _, hit in timeline(found)]


def timeline_json(found: Results) -> list[dict[str, Any]]:
    """Day and ref of everything found, in the order of time."""
    return [{"day": day.isoformat() if day else None, "ref": hit.ref} for day, hit in timeline(found)]


def print_excerpt(out: Console, excerpt: Excerpt) -> None:
    """An exchange or message with what stands around it; the one that was asked for is marked."""
    layout.put_line(out, one_line(excerpt.title or excerpt.session), "bold")
    facts = [("ref", excerpt.ref), ("agent", excerpt.agent), ("folder", excerpt.folder), ("file", excerpt.path)]
    for name, value in facts:
        if value:
            layout.put_parts(out, (f"{name:<13}", "dim"), (one_line(value), ""))
    for passage in excerpt.passages:
        who = passage.speaker or passage.role.title()
        when = f"  {passage.timestamp:%Y-%m-%d %H:%M}" if passage.timestamp else ""
        mark = "▶ " if passage.is_target else ""
        layout.put_line(out, "")
        layout.put_parts(
            out, (f"{mark}{one_line(who)}:", "bold" if passage.is_target else "bold dim"),
            (f"{when}  {one_line(passage.ref)}", "dim"),
        )  # fmt: skip
        layout.print_markdown(out, passage.text, indent=_INDENT)


def _print_spoken(out: Console, group: Group, *, explain: bool) -> None:
    """Print who spoke, each in the order of the best: You, Agent, messages, commands; and what is known of failures."""
    kinds = dict.fromkeys(hit.unit.type for hit in group.hits)
    for kind in sorted(kinds, key=lambda kind: list(_SPEAKERS).index(kind) if kind in _SPEAKERS else len(_SPEAKERS)):
        layout.put_line(out, f"{_SPEAKERS.get(kind, one_line(kind).title())}:", "italic")
        _print_hits(out, [hit for hit in group.hits if hit.unit.type == kind], explain=explain)


def _print_hits(out: Console, hits: Sequence[Hit], *, explain: bool) -> None:
    for hit in hits:
        layout.put_line(out, f"{_INDENT}{_summary(hit)}")
        stale = f"  stale: {stale_words(hit)}" if hit.stale_reason else ""
        layout.put_parts(
            out, (f"{_INDENT}ref: ", "dim"), (one_line(hit.ref), "cyan"), (f"  {_facts(hit)}", "dim"), (stale, "yellow")
        )
        layout.put_reasons(out, hit, explain=explain)
        layout.put_line(out, "")


def _summary(hit: Hit, spoken: str | None = None) -> str:
    """The name of what was found, and what it says, cut at a sentence."""
    unit = hit.unit
    text = clean(without_title(hit.chunks[0], unit.title).text) if hit.chunks else ""
    excerpt = shorten(text, layout.EXCERPT_CHARS)
    if unit.source in _SPOKEN and unit.type in _SPEAKERS:
        speaker = hit.chunks[0].breadcrumb if hit.chunks and unit.type != "message" else ""
        said = f"[{one_line(speaker)}] {excerpt}" if speaker else excerpt
        return f"{spoken}: {said}" if spoken else said
    named = (unit.path or unit.id) if unit.source is SourceName.CANON else unit.title
    if text.startswith(named):  # an incident and a unit of one sentence begin with the words of their title
        return excerpt
    return f"{one_line(named)}: {excerpt}" if excerpt else one_line(named)


def _facts(hit: Hit) -> str:
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
