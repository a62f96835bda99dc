"""Sessions for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from nugget.models import Event, EventKind, Speaker
from nugget.render import iso_date
from nugget.render.terminal import console, print_facts
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.evidence import IngestedSession
    from nugget.index.events import LogSession
    from nugget.infra.workspace import Workspace
    from nugget.provenance.inventory import KnownSession, SessionDetail
    from nugget.sources.sessions import NumberedExchange, WholeSession


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
    next_step = f" {waiting} not extracted yet: `nugget extract` reads them." if waiting else ""
    out.print(Text(f"\n{counted(len(found), 'session')}.{next_step}", style="dim"))


def print_session_detail(detail: SessionDetail) -> None:
    """Print one session: its prompts, files and nuggets."""
    out, record = console(), detail.known.record
    facts = [
        ("Session", record.session), ("Agent", record.agent), ("Title", record.title), ("Branch", record.branch),
        ("Started", iso_date(record.started)), ("Ended", iso_date(record.ended)),
    ]  # fmt: skip
    print_facts(out, [(f"{name}:", value) for name, value in facts], width=10)
    prompts = [f"{number}. {shorten(clean(prompt), 200)}" for number, prompt in enumerate(detail.prompts, 1)]
    files = [
        f"{touch.action:<9} {one_line(touch.path)}"
        + (f" (from {one_line(touch.previous_path)})" if touch.previous_path else "")
        for touch in detail.touches
    ]
    learned = [f"{one.id}  [{one.type}] {one_line(one.summary)}" for one in detail.nuggets]
    for name, lines, most in (("Prompts", prompts, 20), ("Artifacts", files, 40), ("Learned", learned, 1000)):
        out.print(Text(f"\n{name} ({len(lines)})", style="bold"))
        for line in lines[:most]:
            out.print(Text(f"  {line}"))
        if len(lines) > most:
            out.print(Text(f"  and {len(lines) - most} more", style="dim"))
    events = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(detail.events.items()))
    failed = f"; {detail.failed} failed" if detail.failed else ""
    out.print(Text(f"\nEvents: {events or 'none known'}{failed}"))
    if detail.problem:
        out.print(Text(one_line(detail.problem), style="yellow"))


def print_log_sessions(out: Console, known: Sequence[LogSession], counts: Mapping[int, Mapping[str, int]]) -> None:
    """Print the sessions whose logs have been read, one a line."""
    for one in known:
        about = counts[one.key]
        ended = f"{datetime.fromtimestamp(one.ended_ms / 1000, UTC):%Y-%m-%d %H:%M}" if one.ended_ms else "-"
        facts = f"{counted(about['commands'], 'command')}, {counted(about['incidents'], 'incident')}"
        title = shorten(one.title or one.folder or "", 60)
        line = f"{one.id}  {ended}  {one.agent or one.source}  {facts}, {about['open']} open  {title}"
        out.print(clean(line.rstrip()))
    if not known:
        out.print("No logs have been read yet.")


def print_ingested(out: Console, done: Sequence[IngestedSession]) -> None:
    """Print what was new in the logs of each session."""
    for one in done:
        parts = [
            counted(one.events, "event"), counted(one.command_inputs, "input"),
            counted(one.pane_output, "line") + " of output", counted(one.file_edits, "edit"),
            counted(one.incidents, "incident"), counted(one.working_notes, "working note"),
        ]  # fmt: skip
        bad = f"; {counted(one.malformed, 'malformed line')}" if one.malformed else ""
        out.print(clean(f"{one.session}: {', '.join(parts)}{bad}"))
    if not done:
        out.print("Nothing new.")


_FOLDED_CHARS = 100


_FAILED_LINES = 3


_MAX_WIDTH = 110


_RUN = (EventKind.COMMAND, EventKind.FILE_EDIT, EventKind.TOOL_CALL)


Line = tuple[str, str]
"""A text and its style."""


def print_session(out: Console, whole: WholeSession, *, full: bool = False) -> None:
    """Print the session for a person; `full` unfolds what was run, printed and written."""
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
    exchanges = counted(sum(exchange.number > 0 for exchange in whole.exchanges), "exchange")
    facts = [session.agent, when, session.cwd or "", session.branch or "", exchanges]
    yield " · ".join(one_line(fact) for fact in facts if fact), "dim"
    yield f"{'archived: ' if whole.is_archived else ''}{one_line(session.path)}", "dim"
    if session.skipped_records:
        yield f"{counted(session.skipped_records, 'line')} could not be read.", "yellow"


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
    text = event.text if full else shorten(event.text, _FOLDED_CHARS)
    if event.kind in (EventKind.PROMPT, EventKind.REPLY):
        yield event.text.strip(), ""
    elif event.kind is EventKind.PASTE:
        yield f"  pasted: {text}", "dim"
    elif event.kind is EventKind.SUMMARY:
        yield "\nThe conversation was compacted here." + (f"\n{event.text}" if full else ""), "dim italic"
    elif event.kind is EventKind.COMMAND:
        yield f"  $ {text}", "magenta"
    elif event.kind is EventKind.FILE_EDIT:
        before, after = (event.before or "").splitlines(), (event.after or "").splitlines()
        failed = "" if event.ok is not False else ", failed"
        yield f"  * {one_line(event.path or event.text)} (−{len(before)} +{len(after)} lines{failed})", "magenta"
        if full:
            yield from ((f"    - {line}", "red") for line in before)
            yield from ((f"    + {line}", "green") for line in after)
    elif event.kind is EventKind.TOOL_CALL:
        yield f"  > {one_line(event.tool or 'tool')}: {text}", "magenta"
    else:
        yield from _result(event, full=full)


def _result(event: Event, *, full: bool) -> Iterator[Line]:
    lines = [line for line in event.text.splitlines() if line.strip()]
    failed = event.ok is False
    if full:
        yield from ((f"    {line}", "red" if failed else "dim") for line in lines)
    elif failed:
        code = f" with exit code {event.exit_code}" if event.exit_code is not None else ""
        yield f"    failed{code}", "red"
        # The last lines say why a command failed.
        yield from ((f"    {shorten(line, _FOLDED_CHARS)}", "red") for line in lines[-_FAILED_LINES:])
    elif event.kind is EventKind.OUTPUT and lines:
        more = f" … {counted(len(lines), 'line')}" if len(lines) > 1 else ""
        yield f"    {shorten(lines[0], _FOLDED_CHARS)}{more}", "dim"
