"""Sessions for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from nugget.models import Event, EventKind, Speaker
from nugget.render import iso_date
from nugget.render.terminal import console
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.infra.workspace import Workspace
    from nugget.provenance.inventory import KnownSession, SessionDetail
    from nugget.sources.sessions import NumberedExchange, WholeSession


SHOWN_PROMPTS = 20


SHOWN_FILES = 40


def print_sessions(found: list[KnownSession], workspace: Workspace) -> None:
    """Print the sessions of a workspace, one a line."""
    out = console()
    if not found:
        out.print(Text(f"No sessions of {one_line(workspace.name)} are known.", style="yellow"))
        return
    out.print(Text(f"{'ID':<10}{'Started':<18}{'Agent':<13}{'Nuggets':>7}{'Files':>7}  Title", style="bold"))
    for one in found:
        record, known = one.record, one.indexed
        when = record.started or record.ended
        counts = f"{known.nuggets:>7}{known.files:>7}" if known else f"{'-':>7}{'-':>7}"
        title = shorten(one_line(record.title or record.first_prompt), 70) or ("" if known else "(not extracted yet)")
        line = f"{one_line(record.session)[:8]:<10}{f'{when:%Y-%m-%d %H:%M}' if when else '':<18}"
        out.print(Text(f"{line}{one_line(record.agent)[:12]:<13}{counts}  {title}".rstrip()))
    waiting = sum(one.indexed is None for one in found)
    out.print(Text(f"\n{counted(len(found), 'session')}." + (
        f" {waiting} not extracted yet: `nugget extract` reads them." if waiting else ""), style="dim"))  # fmt: skip


def print_session_detail(detail: SessionDetail) -> None:
    """Print one session: its prompts, files and nuggets."""
    out, record = console(), detail.known.record
    facts = [
        ("Session", record.session), ("Agent", record.agent), ("Title", record.title), ("Branch", record.branch or ""),
        ("Started", iso_date(record.started) or ""), ("Ended", iso_date(record.ended) or ""),
    ]  # fmt: skip
    for name, value in facts:
        if value:
            out.print(Text.assemble((f"{name + ':':<10}", "dim"), one_line(value)))
    out.print(Text(f"\nPrompts ({len(detail.prompts)})", style="bold"))
    for number, prompt in enumerate(detail.prompts[:SHOWN_PROMPTS], 1):
        out.print(Text(f"  {number}. {shorten(clean(prompt), 200)}"))
    if len(detail.prompts) > SHOWN_PROMPTS:
        out.print(Text(f"  and {len(detail.prompts) - SHOWN_PROMPTS} more", style="dim"))
    out.print(Text(f"\nArtifacts ({len(detail.touches)})", style="bold"))
    for touch in detail.touches[:SHOWN_FILES]:
        came = f" (from {one_line(touch.previous_path)})" if touch.previous_path else ""
        out.print(Text(f"  {touch.action:<9} {one_line(touch.path)}{came}"))
    if len(detail.touches) > SHOWN_FILES:
        out.print(Text(f"  and {len(detail.touches) - SHOWN_FILES} more", style="dim"))
    out.print(Text(f"\nLearned ({len(detail.nuggets)})", style="bold"))
    for one in detail.nuggets:
        out.print(Text(f"  {one.id}  [{one.type}] {one_line(one.summary)}"))
    events = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(detail.events.items()))
    failed = f"; {detail.failed} failed" if detail.failed else ""
    out.print(Text(f"\nEvents: {events or 'none known'}{failed}", style=""))
    if detail.problem:
        out.print(Text(one_line(detail.problem), style="yellow"))


_FOLDED_CHARS = 100


_FAILED_LINES = 3


_MAX_WIDTH = 110


_RUN = (EventKind.COMMAND, EventKind.FILE_EDIT, EventKind.TOOL_CALL)


Line = tuple[str, str]
"""A text and its style."""


def print_session(out: Console, whole: WholeSession, *, full: bool = False) -> None:
    """The session for a person; `full` unfolds what was run, printed and written."""
    for text, style in _head(whole):
        out.print(clean(text), style=style)
    for exchange in whole.exchanges:
        out.print()
        out.print(f"─── {exchange.number} ".ljust(60, "─"), style="dim")
        for text, style in _lines_of(exchange, full=full):
            out.print(clean(text), style=style, width=min(out.width, _MAX_WIDTH), soft_wrap=False)


def _head(whole: WholeSession) -> Iterator[Line]:
    session = whole.session
    yield one_line(session.title or session.id), "bold"
    when = f"{session.started:%Y-%m-%d %H:%M}" if session.started else "at an unknown time"
    facts = [session.agent, when, session.cwd or "", session.branch or "", counted(_prompts(whole), "exchange")]
    yield " · ".join(one_line(fact) for fact in facts if fact), "dim"
    yield f"{'archived: ' if whole.is_archived else ''}{one_line(session.path)}", "dim"
    if session.skipped_records:
        yield f"{counted(session.skipped_records, 'line')} could not be read.", "yellow"


def _prompts(whole: WholeSession) -> int:
    return sum(exchange.number > 0 for exchange in whole.exchanges)


def _lines_of(exchange: NumberedExchange, *, full: bool) -> Iterator[Line]:
    speaker = ""
    for event in exchange.events:
        name = _speaker(event)
        if name and name != speaker:
            moment = f"  {event.timestamp:%H:%M}" if event.timestamp else ""
            yield f"\n{name}{moment}", "bold cyan" if name.startswith("You") else "bold green"
            speaker = name
        yield from _shown(event, full=full)


_OTHERS = {Speaker.AGENT: "Agent", Speaker.TOOL: "Tool", Speaker.QUOTED: "Quoted"}
"""Names for who stands behind a prompt that the user did not type."""


def _speaker(event: Event) -> str:
    if event.kind is EventKind.PROMPT and not event.agent_id:
        return "You" if event.speaker is Speaker.USER else _OTHERS[event.speaker]
    if event.kind is EventKind.REPLY or event.kind in _RUN:
        return f"Agent ({one_line(event.agent_id)[:40]})" if event.agent_id else "Agent"
    return ""


def _shown(event: Event, *, full: bool) -> Iterator[Line]:
    if event.kind in (EventKind.PROMPT, EventKind.REPLY):
        yield event.text.strip(), ""
    elif event.kind is EventKind.PASTE:
        yield f"  pasted: {_folded(event.text, full=full)}", "dim"
    elif event.kind is EventKind.SUMMARY:
        yield "\nThe conversation was compacted here." + (f"\n{event.text}" if full else ""), "dim italic"
    elif event.kind is EventKind.COMMAND:
        yield f"  $ {_folded(event.text, full=full)}", "magenta"
    elif event.kind is EventKind.FILE_EDIT:
        yield from _edit(event, full=full)
    elif event.kind is EventKind.TOOL_CALL:
        yield f"  > {one_line(event.tool or 'tool')}: {_folded(event.text, full=full)}", "magenta"
    else:
        yield from _result(event, full=full)


def _edit(event: Event, *, full: bool) -> Iterator[Line]:
    before, after = (event.before or "").splitlines(), (event.after or "").splitlines()
    failed = "" if event.ok is not False else ", failed"
    yield f"  * {one_line(event.path or event.text)} (−{len(before)} +{len(after)} lines{failed})", "magenta"
    if full:
        yield from ((f"    - {line}", "red") for line in before)
        yield from ((f"    + {line}", "green") for line in after)


def _result(event: Event, *, full: bool) -> Iterator[Line]:
    lines = [line for line in event.text.splitlines() if line.strip()]
    failed = event.ok is False
    if full:
        yield from ((f"    {line}", "red" if failed else "dim") for line in lines)
    elif failed:
        code = f" with exit code {event.exit_code}" if event.exit_code is not None else ""
        yield f"    failed{code}", "red"
        yield from ((f"    {shorten(line, _FOLDED_CHARS)}", "red") for line in _telling(lines))
    elif event.kind is EventKind.OUTPUT and lines:
        more = f" … {counted(len(lines), 'line')}" if len(lines) > 1 else ""
        yield f"    {shorten(lines[0], _FOLDED_CHARS)}{more}", "dim"


def _telling(lines: Sequence[str]) -> Sequence[str]:
    """The last lines of what a failed command printed: there it says why."""
    return lines[-_FAILED_LINES:]


def _folded(text: str, *, full: bool) -> str:
    return text if full else shorten(text, _FOLDED_CHARS)
