"""`nugget capture-session`, `capture` and `review`: from sessions to knowledge that a person has accepted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli import layout
from nugget.cli.asking import listed
from nugget.cli.terminal import BrainOption, JsonOption, brain_folder, console, note, open_brain, print_json
from nugget.config import read_environment
from nugget.errors import TranscriptError, UsageError
from nugget.render import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.capture import CaptureResult
    from nugget.queue import Job
    from nugget.review import ProposalBranch, ProposedFile


class Method(StrEnum):
    """How knowledge is found in a session."""

    AUTO = "auto"
    GENERATIVE = "generative"
    HEURISTIC = "heuristic"


BranchArgument = Annotated[
    str | None, typer.Argument(metavar="[BRANCH]", help="The proposal, or a part of its name; else the only one.")
]
UnitOption = Annotated[list[str] | None, typer.Option("--unit", metavar="ID,..", help="Only these units of it.")]


def capture_session(
    transcript: Annotated[
        Path | None, typer.Option("--transcript", metavar="PATH", help="A Claude Code transcript (JSONL).")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="A session, by its id.")] = None,
    method: Annotated[Method | None, typer.Option("--method", help="How to find knowledge in it.")] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="With a hook payload on stdin: capture now instead of queueing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be proposed; write nothing.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Propose what is worth keeping of a session.

    The units are written on a branch of the brain, to be reviewed. With a hook payload on stdin and no options, the
    session is queued and this returns at once.
    """
    from nugget.capture import capture_transcript
    from nugget.worker import open_capture

    environment = read_environment()
    file = _transcript(transcript, session, foreground=foreground)
    with open_brain(brain) as opened:
        capture = open_capture(
            environment, opened, now=datetime.now(UTC).astimezone(), method=method and str(method), dry_run=dry_run
        )
        result = capture_transcript(file, capture)
    if as_json:
        print_json(_capture_json(result))
    else:
        _print_capture(console(), result, dry_run=dry_run)


def capture(
    catch_up: Annotated[bool, typer.Option("--catch-up", help="First find sessions never captured.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Also take up what failed.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Work the queue of ended sessions, here and now."""
    from nugget.worker import work

    environment = read_environment()
    flag = brain_folder(brain, environment)

    def tell(job: Job) -> None:
        said = job.branch or job.reason or ""
        note(f"{job.state}: {job.session or Path(job.transcript or job.name).stem} {one_line(said)}")

    done = work(environment, catch_up=catch_up, retry=retry, flag=flag if brain else None, report=tell)
    failed = sum(job.state == "failed" for job in done.jobs)
    if as_json:
        jobs = [
            {"session": job.session, "transcript": job.transcript, "state": job.state, "branch": job.branch,
             "reason": job.reason} for job in done.jobs
        ]  # fmt: skip
        print_json({"found": done.found, "jobs": jobs})
    else:
        out = console()
        proposed = sum(job.branch is not None for job in done.jobs)
        found = f"{done.found} found by catch-up, " if catch_up else ""
        out.print(f"{found}{len(done.jobs)} sessions worked: {proposed} proposals, {failed} failed.")
        if proposed:
            out.print("Next: nugget review")
    raise typer.Exit(1 if failed else 0)


review = typer.Typer(help="Accept or reject what capture proposed.", invoke_without_command=True)


@review.callback()
def review_default(ctx: typer.Context, brain: BrainOption = None, as_json: JsonOption = False) -> None:
    """Accept or reject what capture proposed. Alone: list what waits."""
    if ctx.invoked_subcommand is None:
        review_list(brain=brain, as_json=as_json)


@review.command("list")
def review_list(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """List the proposals that wait, oldest first."""
    from nugget.review import proposals

    waiting = proposals(brain_folder(brain))
    if as_json:
        print_json([_proposal_json(proposal) for proposal in waiting])
        return
    out = console()
    for proposal in waiting:
        out.print(clean(proposal.branch), style="bold cyan")
        out.print(f"   {one_line(proposal.title)}", style="dim")
        for file in proposal.files:
            _print_file_line(out, file)
        out.print()
    if waiting:
        out.print("Next: nugget review show BRANCH, then accept or reject (a part of the name is enough).")
    else:
        out.print("Nothing waits for review. Sessions are proposed when they end; `nugget capture` works the queue.")


@review.command("show")
def review_show(
    branch: BranchArgument = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show the change as a diff.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Show a proposal: every unit with the evidence behind it."""
    from nugget import review as reviewing

    folder = brain_folder(brain)
    proposal = reviewing.show(folder, branch)
    if as_json:
        texts = {file.path: file.after for file in proposal.files}
        value = _proposal_json(proposal)
        print_json(value | {"files": [line | {"text": texts[str(line["path"])]} for line in value["files"]]})
        return
    out = console()
    out.print(clean(proposal.branch), style="bold cyan")
    out.print(f"{one_line(proposal.title)}\n")
    if diff:
        _print_diff(out, reviewing.diff(folder, proposal))
    else:
        for file in proposal.files:
            _print_file(out, file)
    name = clean(proposal.branch)
    out.print(f"Next: nugget review accept {name}\n      nugget review reject {name}")


@review.command("accept")
def review_accept(
    branch: BranchArgument = None, units: UnitOption = None, as_json: JsonOption = False, brain: BrainOption = None
) -> None:
    """Merge a proposal, or some units of it, into the brain."""
    from nugget.review import accept

    now = datetime.now(UTC)
    done = accept(brain_folder(brain), branch, home=read_environment().home, now=now, units=listed(units) or None)
    if as_json:
        print_json({
            "into": done.into, "commit": done.commit, "accepted": [file.id for file in done.files],
            "waiting": [file.id for file in done.waiting],
        })  # fmt: skip
        return
    out = console()
    out.print(f"Accepted into {clean(done.into)} ({done.commit[:10]}); found from now on:")
    for file in done.files:
        _print_file_line(out, file)
    if done.waiting:
        out.print(f"Still waiting: {', '.join(clean(file.id) for file in done.waiting)}.")


@review.command("reject")
def review_reject(
    branch: BranchArgument = None, units: UnitOption = None, as_json: JsonOption = False, brain: BrainOption = None
) -> None:
    """Turn down a proposal, or some units of it, for good."""
    from nugget.review import reject

    now = datetime.now(UTC)
    gone = reject(brain_folder(brain), branch, home=read_environment().home, now=now, units=listed(units) or None)
    if as_json:
        print_json({"rejected": [file.id for file in gone]})
    else:
        said = ", ".join(clean(file.id) for file in gone)
        console().print(f"Rejected, and not to be proposed again: {said}.")


def _transcript(transcript: Path | None, session: str | None, *, foreground: bool) -> Path:
    """The transcript that was meant: its path, its session's id, or what the payload on stdin names."""
    from nugget.sources.transcripts import find_session

    if transcript is None and session is None and foreground:
        payload = _payload()
        named, known = payload.get("transcript_path"), payload.get("session_id")
        transcript = Path(named) if isinstance(named, str) else None
        session = known if isinstance(known, str) else None
    if transcript is not None:
        return transcript.expanduser()
    if session is None:
        raise UsageError(
            "Say which session: --transcript PATH, --session ID, or a hook payload on stdin.",
            hint="Transcripts are under ~/.claude/projects/.",
        )
    folder = read_environment().claude_config
    found = find_session(folder, session)
    if found is None:
        raise TranscriptError(f"There is no transcript of session {session} under {folder}.")
    return found


def _payload() -> Mapping[str, object]:
    import json

    if sys.stdin.isatty():
        return {}
    try:
        payload = json.loads(sys.stdin.read(4_000_000) or "{}")
    except ValueError as error:
        raise UsageError(f"The payload on stdin is no JSON ({error}).") from None
    return payload if isinstance(payload, dict) else {}


def _print_capture(out: Console, result: CaptureResult, *, dry_run: bool) -> None:
    if result.skipped:
        out.print(f"Nothing to propose: {one_line(result.skipped)}.")
    else:
        where = "would be proposed" if dry_run else f"on {clean(result.branch or '')}"
        out.print(f"{len(result.changes)} units {where} ({result.method}):\n")
    for change in result.changes:
        kind = "new" if change.is_new else "edit"
        out.print(f"   {kind:<5} {clean(change.unit.id)}  {one_line(change.unit.title)}")
        out.print(f"         {one_line(change.reason)}", style="dim")
    for reason in result.dropped:
        note(f"left out: {one_line(reason)}")
    if result.redacted:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.redacted.items()))
        note(f"redacted before anything was kept: {kinds}")
    if result.branch:
        out.print(f"\nNext: nugget review show {clean(result.branch)}")


def _capture_json(result: CaptureResult) -> dict[str, Any]:
    return {
        "session": result.session,
        "branch": result.branch,
        "skipped": result.skipped,
        "method": result.method,
        "summary": result.summary,
        "units": [
            {
                "id": change.unit.id,
                "path": change.path,
                "title": change.unit.title,
                "type": change.unit.type,
                "domain": change.unit.domain,
                "confidence": change.unit.confidence,
                "new": change.is_new,
                "reason": change.reason,
            }
            for change in result.changes
        ],
        "dropped": list(result.dropped),
        "redacted": dict(result.redacted),
        "usd": result.usd,
    }


def _proposal_json(proposal: ProposalBranch) -> dict[str, Any]:
    return {
        "branch": proposal.branch,
        "made": proposal.made.isoformat(),
        "title": proposal.title,
        "files": [
            {
                "id": file.id,
                "path": file.path,
                "status": file.status,
                "title": file.unit.title if file.unit else None,
                "confidence": file.unit.confidence if file.unit else None,
            }
            for file in proposal.files
        ],
    }


def _print_file_line(out: Console, file: ProposedFile) -> None:
    from rich.text import Text

    title = one_line(file.unit.title) if file.unit else ""
    line = Text.assemble("   ", (f"{file.status:<8}", "dim"), (clean(file.id), "cyan"), f"  {title}")
    out.print(line)
    for problem in file.problems:
        out.print(f"            {one_line(str(problem))}", style="yellow")


def _print_file(out: Console, file: ProposedFile) -> None:
    _print_file_line(out, file)
    out.print(f"   {clean(file.path)}", style="dim")
    unit = file.unit
    if unit is None:
        layout.print_markdown(out, file.after or file.before or "")
    else:
        out.print(f"   confidence {unit.confidence:g}, tags: {one_line(', '.join(unit.tags)) or 'none'}\n", style="dim")
        layout.print_markdown(out, layout.without_heading(unit))
        _print_quotes(out, [entry.quote for entry in unit.evidence])
    out.print()


def _print_quotes(out: Console, quotes: Sequence[str]) -> None:
    for quote in quotes:
        out.print("\n   Evidence:", style="dim")
        layout.print_markdown(out, f"“{quote}”", indent="      ")


def _print_diff(out: Console, diff: str) -> None:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in clean(diff).split("\n"):
        out.print(line, style=styles.get(line[:1], ""))
