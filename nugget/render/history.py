"""Sessions, and the nuggets that come from them, for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from nugget.models import Event, EventKind, Speaker
from nugget.models.nuggets import scope_text
from nugget.models.speech import said_how
from nugget.render import iso_date, origin_text, stale_suffix
from nugget.render.terminal import MAX_WIDTH, console, explained_score, note, put, put_facts
from nugget.text import clean, counted, one_line, shorten

if TYPE_CHECKING:
    from nugget.evidence import IngestedSession
    from nugget.index.events import LogSession
    from nugget.infra.workspace import Workspace
    from nugget.models import StaleReason
    from nugget.models.nuggets import Nugget, NuggetBundle
    from nugget.provenance.extraction import ExtractedSession
    from nugget.provenance.inventory import Covered, Gaps, KnownSession, Missing, SessionDetail
    from nugget.provenance.transfer import Imported
    from nugget.sources.sessions import WholeSession

_PROMPT_CHARS = 2000
_BAR_CHARS = 30
_FOLDED_CHARS = 100
_FAILED_LINES = 3


def put_sessions(found: list[KnownSession], workspace: Workspace) -> None:
    """Print the sessions of a workspace, one a line."""
    if not found:
        put(f"No sessions of {one_line(workspace.name)} are known.", style="yellow")
        return
    put(f"{'ID':<10}{'Started':<18}{'Agent':<13}{'Nuggets':>7}{'Files':>7}  Title", style="bold")
    for one in found:
        record, known = one.record, one.indexed
        when = record.started or record.ended
        nuggets, files = (known.nuggets, known.files) if known else ("-", "-")
        title = shorten(one_line(record.title or record.first_prompt), 70) or ("" if known else "(not extracted yet)")
        line = f"{one_line(record.session)[:8]:<10}{f'{when:%Y-%m-%d %H:%M}' if when else '':<18}"
        put(f"{line}{one_line(record.agent)[:12]:<13}{nuggets:>7}{files:>7}  {title}".rstrip())
    waiting = sum(one.indexed is None for one in found)
    next_step = f" {waiting} not extracted yet: `nugget extract` reads them." if waiting else ""
    put(f"\n{counted(len(found), 'session')}.{next_step}", style="dim")


def put_session_detail(detail: SessionDetail) -> None:
    """Print one session: its prompts, files and nuggets."""
    record = detail.known.record
    put_facts([
        ("Session:", record.session), ("Agent:", record.agent), ("Title:", record.title), ("Branch:", record.branch),
        ("Started:", iso_date(record.started)), ("Ended:", iso_date(record.ended)),
    ], width=10)  # fmt: skip
    prompts = [f"{number}. {shorten(clean(prompt), 200)}" for number, prompt in enumerate(detail.prompts, 1)]
    files = [
        f"{touch.action:<9} {one_line(touch.path)}"
        + (f" (from {one_line(touch.previous_path)})" if touch.previous_path else "")
        for touch in detail.touches
    ]
    learned = [f"{one.id}  [{one.type}] {one_line(one.summary)}" for one in detail.nuggets]
    for name, lines, most in (("Prompts", prompts, 20), ("Artifacts", files, 40), ("Learned", learned, 1000)):
        put(f"\n{name} ({len(lines)})", style="bold")
        for line in lines[:most]:
            put(f"  {line}")
        if len(lines) > most:
            put(f"  and {len(lines) - most} more", style="dim")
    events = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(detail.events.items()))
    failed = f"; {detail.failed} failed" if detail.failed else ""
    put(f"\nEvents: {events or 'none known'}{failed}")
    if detail.problem:
        put(one_line(detail.problem), style="yellow")


def put_log_sessions(known: Sequence[LogSession], counts: Mapping[int, Mapping[str, int]]) -> None:
    """Print the sessions whose logs have been read, one a line."""
    for one in known:
        about = counts[one.key]
        ended = f"{datetime.fromtimestamp(one.ended_ms / 1000, UTC):%Y-%m-%d %H:%M}" if one.ended_ms else "-"
        facts = f"{counted(about['commands'], 'command')}, {counted(about['incidents'], 'incident')}"
        title = shorten(one.title or one.folder or "", 60)
        put(f"{one.id}  {ended}  {one.agent or one.source}  {facts}, {about['open']} open  {title}".rstrip())
    if not known:
        put("No logs have been read yet.")


def put_ingested(done: Sequence[IngestedSession]) -> None:
    """Print what was new in the logs of each session."""
    for one in done:
        parts = [
            counted(one.events, "event"), counted(one.command_inputs, "input"),
            counted(one.pane_output, "line") + " of output", counted(one.file_edits, "edit"),
            counted(one.incidents, "incident"), counted(one.working_notes, "working note"),
        ]  # fmt: skip
        bad = f"; {counted(one.malformed, 'malformed line')}" if one.malformed else ""
        put(f"{one.session}: {', '.join(parts)}{bad}")
    if not done:
        put("Nothing new.")


def put_session(whole: WholeSession, *, full: bool = False) -> None:
    """Print the session for a person; `full` unfolds what was run, printed and written."""
    session, out = whole.session, console()
    put(one_line(session.title or session.id), style="bold")
    when = f"{session.started:%Y-%m-%d %H:%M}" if session.started else "at an unknown time"
    exchanges = counted(sum(exchange.number > 0 for exchange in whole.exchanges), "exchange")
    facts = [session.agent, when, session.cwd or "", session.branch or "", exchanges]
    put(" · ".join(one_line(fact) for fact in facts if fact), style="dim")
    put(f"{'archived: ' if whole.is_archived else ''}{one_line(session.path)}", style="dim")
    if session.skipped_records:
        put(f"{counted(session.skipped_records, 'line')} could not be read.", style="yellow")
    for exchange in whole.exchanges:
        put("")
        put(f"─── {exchange.number} ".ljust(60, "─"), style="dim")
        speaker = ""
        for event in exchange.events:
            lines = list(_event_lines(event, full=full))
            name = _speaker(event)
            if name and name != speaker:
                moment = f"  {event.timestamp:%H:%M}" if event.timestamp else ""
                lines.insert(0, (f"\n{name}{moment}", "bold cyan" if name.startswith("You") else "bold green"))
                speaker = name
            for text, style in lines:
                out.print(clean(text), style=style, width=min(out.width, MAX_WIDTH), soft_wrap=False)


_SPEAKERS = {Speaker.USER: "You", Speaker.AGENT: "Agent", Speaker.TOOL: "Tool", Speaker.QUOTED: "Quoted"}
"""Names for who stands behind a prompt."""


def _speaker(event: Event) -> str:
    if event.kind is EventKind.PROMPT and not event.agent_id:
        return _SPEAKERS[event.speaker]
    if event.kind in (EventKind.REPLY, EventKind.COMMAND, EventKind.FILE_EDIT, EventKind.TOOL_CALL):
        return f"Agent ({one_line(event.agent_id)[:40]})" if event.agent_id else "Agent"
    return ""


def _event_lines(event: Event, *, full: bool) -> Iterator[tuple[str, str]]:
    """Yield an event as lines with their styles; what was run, printed and written is folded unless `full`."""
    text = event.text if full else shorten(event.text, _FOLDED_CHARS)
    failed = event.ok is False
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


def put_extraction(
    outcomes: Sequence[ExtractedSession], here: Workspace, tunings: int, *, dry_run: bool, everything: bool
) -> None:
    """Print the result of an extraction."""
    for one in outcomes:
        if one.state == "extracted":
            what = f"{counted(one.nuggets, 'nugget')}, {counted(one.touches, 'file')}"
            put(f"  {one.session[:8]}  {what:<24} {one_line(one.title)}".rstrip())
        elif one.state == "failed":
            note(f"failed: {one.session}: {one_line(one.reason)}")
        for line in one.dropped:
            note(f"left out: {one.session[:8]}: {one_line(line)}")
    counts = {state: sum(one.state == state for one in outcomes) for state in ("extracted", "skipped", "failed")}
    head = "Would be extracted:" if dry_run else "Extraction Results:"
    put(f"\n{head}" if counts["extracted"] else head)
    for state, count in counts.items():
        put(f"  {state.title() + ':':<10} {count}")
    if tunings:
        put(f"  Changed by hand since: {counted(tunings, 'file')}")
    if usd := sum(one.usd for one in outcomes):
        put(f"  Cost:      ${usd:.4f}")
    if not outcomes and not everything:
        put(f"No session worked in {here.name} ({here.root}).")
        put("Next: nugget extract --all reads the sessions of every workspace.")


def put_imported(done: Imported, *, dry_run: bool) -> None:
    """Print the result of an import of nuggets."""
    for problem in done.problems[:20]:
        note(f"left out: {one_line(str(problem))}")
    if len(done.problems) > 20:
        note(f"left out: {len(done.problems) - 20} more lines")
    would = "would be " if dry_run else ""
    what = f"{counted(done.new, 'nugget')} {would}new, {done.known} known already"
    put(f"{counted(done.sessions, 'session')}: {what}.")


def put_code_answer(bundle: NuggetBundle, *, explain: bool = False) -> None:
    """Print nuggets with what is known of each, the notes, and what was left out."""
    query = bundle.query
    place = query.path or query.text or "the workspace"
    about = f"{place}#{query.symbol}" if query.symbol and query.path else place
    size = f"{counted(len(bundle.hits), 'nugget')}, {bundle.budget.used:,} tokens"
    put("Context for ", (one_line(about), "bold"), (f" ({size})", "dim"))
    if not bundle.hits and not bundle.budget.truncated:
        put("\n  Nothing is recorded on this.", style="yellow")
    for hit in bundle.hits:
        nugget, name = hit.nugget, hit.unit.type if hit.unit else hit.nugget.type
        put("\n  ", (f"[{name}]", "cyan"), " ", (one_line(nugget.summary), "bold"), _stale(hit.stale_reason))
        for line in filter(str.strip, clean(nugget.detail).split("\n")):
            put(f"    {line.rstrip()}")
        if nugget.alternatives:
            put(f"    Alternatives: {one_line('; '.join(nugget.alternatives))}")
        if nugget.source_prompt:
            put(f"    Asked: {shorten(clean(nugget.source_prompt), _PROMPT_CHARS)}", style="italic")
        put(f"    {origin_text(hit)}", style="dim")
        if explain:
            put(f"    score {explained_score(hit.score, hit.contributions)}", style="dim")
    if notes := [one_line(text) for text in (*bundle.notes, bundle.more_context_hint) if text]:
        put("\n".join(["", *notes]), style="dim")


def _stale(reason: StaleReason | None) -> tuple[str, str]:
    return f"  {stale_suffix(reason)}" if reason else "", "yellow"


def _put_header(columns: str, width: int) -> None:
    put(columns, style="bold")
    put("─" * width, style="dim")


def put_nuggets(nuggets: Sequence[Nugget], reasons: Mapping[str, StaleReason], total: int) -> None:
    """Print a table of nuggets, one line each."""
    if not nuggets:
        put("No nuggets found.", style="yellow")
        return
    width = max(len("ID"), *(len(one.id) for one in nuggets)) + 2
    _put_header(f"{'ID':<{width}}{'Type':<13}{'Scope':<31}Summary", 90)
    for one in nuggets:
        scope = scope_text(one) if one.scope.path or one.scope.symbol else "(workspace)"
        line = f"{one.type:<13}{_fitted(scope, 30)} {one_line(one.summary)}"
        put((f"{one.id:<{width}}", "cyan"), line, _stale(reasons.get(one.id)))
    more = f" Shown are {len(nuggets)}; --limit shows more." if total > len(nuggets) else ""
    put(f"\n{total:,} nugget(s) found.{more}", style="dim")


def put_nugget(nugget: Nugget, reason: StaleReason | None) -> None:
    """Print everything that is known about one nugget."""
    facts = [
        ("ID", nugget.id), ("Type", str(nugget.type)), ("Summary", nugget.summary), ("Detail", nugget.detail),
        ("Scope Path", nugget.scope.path or "(workspace)"), ("Symbol", nugget.scope.symbol),
        ("Alternatives", "; ".join(nugget.alternatives)), ("Confidence", f"{nugget.confidence:g}"),
        ("Session", nugget.session), ("Said", said_how(nugget.speaker, nugget.origin)), ("Agent", nugget.agent),
        ("Learned", iso_date(nugget.session_started)), ("Extracted", iso_date(nugget.extracted_at)),
        ("Method", nugget.method), ("Stale after", str(nugget.stale_after or "")),
        ("Stale", str(reason or "").replace("_", " ")), ("Workspace", nugget.scope.repo),
        ("Asked", shorten(clean(nugget.source_prompt), _PROMPT_CHARS)),
        *(("Evidence", f"“{one_line(entry.quote)}”") for entry in nugget.evidence),
    ]  # fmt: skip
    put_facts([(f"{name}:", value) for name, value in facts], width=14)


def put_missing(missing: Sequence[Missing], looked_at: int) -> None:
    """Print the names that nuggets and units mention and that no longer exist, by nugget."""
    for ref, found in groupby(missing, key=lambda one: one.ref):
        names = list(found)
        put((one_line(ref), "cyan"), f"  {one_line(names[0].summary)}")
        for one in names:
            put("  ", (f"no {one.kind}", "yellow"), f" {one_line(one.name)}")
    verdict = f"{len(missing)} missing." if missing else "Everything that is named exists."
    put(f"{chr(10) * bool(missing)}{counted(looked_at, 'nugget')} checked. {verdict}", style="dim")


def put_coverage(covered: Sequence[Covered], limit: int) -> None:
    """Print a bar a file."""
    if not covered:
        put("No file has nuggets yet; `nugget extract` makes them from the sessions.", style="yellow")
        return
    put("Nugget coverage by file:\n", style="bold")
    for one in covered[:limit]:
        bar = "█" * max(1, round(_BAR_CHARS * one.nuggets / covered[0].nuggets))
        put(f"  {_fitted(one.path, 42)} ", (bar, "green"), f" {one.nuggets}")
    more = f" {len(covered) - limit} more; --limit shows them." if len(covered) > limit else ""
    put(f"\n{len(covered):,} file(s) with context nuggets.{more}", style="dim")


def put_gaps(gaps: Gaps, limit: int) -> None:
    """Print questions without answers, and files that change often without a nugget."""
    put("Files with high queries but low nugget coverage:\n", style="bold")
    if gaps.asked:
        _put_header(f"{'Path':<51}{'Queries':<11}Nuggets", 74)
    else:
        put("  None: every file that was asked about has nuggets.", style="dim")
    for one in gaps.asked[:limit]:
        put(f"{_fitted(one.path, 50)} {one.queries:<11}{one.nuggets}")
    if gaps.unexplained:
        put("\nFiles that change often and that nothing is known of:\n", style="bold")
        _put_header(f"{'Path':<51}Commits", 74)
    for one in gaps.unexplained[:limit]:
        put(f"{_fitted(one.path, 50)} {one.changes}")
    for reason in gaps.degraded:
        put(f"\nWithout the changes that git knows of ({one_line(reason)}).", style="dim")


def _fitted(text: str, width: int) -> str:
    """Return a path in exactly so many columns: of a longer one the end, which tells more."""
    text = one_line(text)
    return f"{text:<{width}}" if len(text) <= width else f"…{text[-(width - 1) :]}"
