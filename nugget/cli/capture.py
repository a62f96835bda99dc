"""Commands that learn from sessions: capture-session, capture, review."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from nugget.cli.terminal import BrainOption, DryRunOption, JsonOption, brain_folder, listed, open_brain, print_json
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import UsageError
from nugget.render.json import capture_json, fields, proposal_json
from nugget.render.reports import (
    print_capture,
    print_closed,
    print_diff,
    print_proposed,
    print_proposed_line,
    print_published,
)
from nugget.render.terminal import console, note
from nugget.text import clean, counted, one_line

if TYPE_CHECKING:
    from nugget.capture.queue import Job

commands = typer.Typer(add_completion=False)
review = typer.Typer(help="Accept or reject what capture proposed.", invoke_without_command=True)
commands.add_typer(review, name="review")

BranchArgument = Annotated[
    str | None, Argument(metavar="BRANCH", help="The proposal, or a part of its name; else the only one.")
]
UnitOption = Annotated[list[str] | None, Option("--unit", metavar="ID,..", help="Only these units of it.")]


class Method(StrEnum):
    """How to find knowledge in a session."""

    AUTO = "auto"
    GENERATIVE = "generative"
    HEURISTIC = "heuristic"


@commands.command("capture-session")
def capture_session(
    transcript: Annotated[
        Path | None,
        Option("--transcript", metavar="PATH", help="A transcript of Claude Code, Codex, Gemini CLI, Cursor or "
                                                    "OpenCode."),
    ] = None,
    session: Annotated[str | None, Option("--session", metavar="ID", help="A session, by its id.")] = None,
    method: Annotated[Method | None, Option("--method", help="How to find knowledge in it.")] = None,
    foreground: Annotated[
        bool, Option("--foreground", help="With a hook payload on stdin: capture now instead of queueing.")
    ] = False,
    dry_run: DryRunOption = False,
    explain: Annotated[
        bool, Option("--explain", help="Show each claim that was considered offline, and its fate; write nothing.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Propose what is worth keeping of a session.

    The units are written on a branch of the brain, to be reviewed. With a hook payload on stdin and no options, the
    session is queued and this returns at once.
    """
    from nugget.app.worker import capture_file, explain_claims

    file = _transcript(transcript, session, foreground=foreground)
    with open_brain(brain) as opened:
        if explain:
            name, claims = explain_claims(file, opened)
            if as_json:
                print_json({"session": name, "claims": claims})
            else:
                console().print("\n".join(claims) or "No claim of this session stands alone.")
            return
        result, published = capture_file(file, opened, method=method and str(method), dry_run=dry_run)
    if as_json:
        print_json(capture_json(result) | {"published": [asdict(entry) for entry in published.publications]})
    else:
        print_capture(console(), result, dry_run=dry_run)
        print_published(console(), published, is_requested=False)


@commands.command()
def capture(
    catch_up: Annotated[bool, Option("--catch-up", help="First find sessions never captured.")] = False,
    retry: Annotated[bool, Option("--retry", help="Also take up what failed.")] = False,
    publish: Annotated[
        bool, Option("--publish", help="Open a pull request for every proposal that is only local yet.")
    ] = False,
    re_redact: Annotated[
        bool, Option("--re-redact", help="Only redact the archived sessions again, by the rules of today.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Process queued sessions now."""
    from nugget.app.worker import work

    environment = read_environment()
    flag = brain_folder(brain, environment)
    if re_redact:
        raise typer.Exit(_re_redact(flag, as_json=as_json))

    def tell(job: Job) -> None:
        text = job.branch or job.reason or ""
        note(f"{job.state}: {job.session or Path(job.transcript or job.name).stem} {one_line(text)}")

    done = work(environment, catch_up=catch_up, retry=retry, flag=flag if brain else None, publish=publish,
                report=tell)  # fmt: skip
    failed = sum(job.state == "failed" for job in done.jobs)
    here = done.published.get(flag)
    unpublished = len(here.failed) + (here.local is not None) if here and publish else 0
    if as_json:
        jobs = [fields(job, "session", "transcript", "state", "branch", "reason") for job in done.jobs]
        published = [asdict(entry) for one in done.published.values() for entry in one.publications]
        print_json({"found": done.found, "jobs": jobs, "published": published})
    else:
        out = console()
        proposed = sum(job.branch is not None for job in done.jobs)
        found = f"{done.found} found by catch-up, " if catch_up else ""
        worked = counted(len(done.jobs), "session")
        out.print(f"{found}{worked} worked: {counted(proposed, 'proposal')}, {failed} failed.")
        for one in done.published.values():
            print_published(out, one, is_requested=publish)
        if proposed:
            out.print("Next: nugget review")
    raise typer.Exit(1 if failed or unpublished else 0)


def _re_redact(folder: Path, *, as_json: bool) -> int:
    """Redact the archive again; return the exit code."""
    from nugget.app.worker import redact_archive

    done = redact_archive(read_environment(), folder)
    if as_json:
        print_json(asdict(done) | {"unreadable": [str(file) for file in done.unreadable]})
    else:
        looked_at = counted(done.looked_at, "archived session")
        removed = f"{done.removed} of excluded projects removed"
        console().print(f"{looked_at} looked at: more was taken out of {done.rewritten}, {removed}.")
        for file in done.unreadable:
            note(f"cannot be read, and stays as it is: {clean(str(file))}")
    return 1 if done.unreadable else 0


def _transcript(transcript: Path | None, session: str | None, *, foreground: bool) -> Path:
    """Return the transcript that was meant: by its path, its session's id, or the payload on stdin."""
    from nugget.app.worker import find_transcript

    if transcript is None and session is None and foreground:
        payload = _payload()
        named, known = payload.get("transcript_path"), payload.get("session_id")
        transcript = Path(named) if isinstance(named, str) else None
        session = known if isinstance(known, str) else None
    if transcript is not None:
        return expanded(transcript)
    if session is None:
        raise UsageError(
            "Say which session: --transcript PATH, --session ID, or a hook payload on stdin.",
            hint="Transcripts are under ~/.claude/projects/.",
        )
    return find_transcript(read_environment(), session)


def _payload() -> Mapping[str, object]:
    try:
        payload = {} if sys.stdin.isatty() else json.loads(sys.stdin.read(4_000_000) or "{}")
    except ValueError as error:
        raise UsageError(f"The payload on stdin is not JSON ({error}).") from None
    return payload if isinstance(payload, dict) else {}


@review.callback()
def review_default(ctx: typer.Context, brain: BrainOption = None, as_json: JsonOption = False) -> None:
    """Accept or reject what capture proposed. Alone: list what waits."""
    if ctx.invoked_subcommand is None:
        review_list(brain=brain, as_json=as_json)


@review.command("list")
def review_list(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """List the proposals that wait, oldest first."""
    from nugget.capture.review import proposals

    waiting = proposals(brain_folder(brain))
    if as_json:
        print_json([proposal_json(proposal) for proposal in waiting])
        return
    out = console()
    for proposal in waiting:
        out.print(clean(proposal.branch), style="bold cyan")
        out.print(f"   {one_line(proposal.title)}", style="dim")
        for file in proposal.files:
            print_proposed_line(out, file)
        out.print()
    if waiting:
        out.print("Next: nugget review show BRANCH, then accept or reject (a part of the name is enough).")
    else:
        out.print("Nothing waits for review. Sessions are proposed when they end; `nugget capture` works the queue.")


@review.command("show")
def review_show(
    branch: BranchArgument = None,
    diff: Annotated[bool, Option("--diff", help="Show the change as a diff.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Show a proposal: every unit with the evidence behind it."""
    from nugget.capture import review as reviewing

    folder = brain_folder(brain)
    proposal = reviewing.show(folder, branch)
    if as_json:
        value = proposal_json(proposal)
        for line, file in zip(value["files"], proposal.files, strict=True):
            line["text"] = file.after
        print_json(value)
        return
    out = console()
    out.print(clean(proposal.branch), style="bold cyan")
    out.print(f"{one_line(proposal.title)}\n")
    if diff:
        print_diff(out, reviewing.diff(folder, proposal))
    else:
        for file in proposal.files:
            print_proposed(out, file)
    name = clean(proposal.branch)
    out.print(f"Next: nugget review accept {name}\n      nugget review reject {name}")


@review.command("accept")
def review_accept(
    branch: BranchArgument = None, units: UnitOption = None, as_json: JsonOption = False, brain: BrainOption = None
) -> None:
    """Merge a proposal, or some units of it, into the brain."""
    from nugget.capture.review import accept

    done = accept(brain_folder(brain), branch, now=datetime.now(UTC), units=listed(units) or None)
    accepted, waiting = [file.id for file in done.files], [file.id for file in done.waiting]
    if as_json:
        print_json({"into": done.into, "commit": done.commit, "accepted": accepted, "waiting": waiting})
        return
    out = console()
    if not accepted:
        out.print(f"Nothing was left to accept: {clean(done.into)} holds all of it. The proposal is gone.")
        return
    out.print(f"Accepted into {clean(done.into)} ({done.commit[:10]}):")
    for file in done.files:
        print_proposed_line(out, file)
    if waiting:
        out.print(f"Still waiting: {clean(', '.join(waiting))}.")


@review.command("reject")
def review_reject(
    branch: BranchArgument = None, units: UnitOption = None, as_json: JsonOption = False, brain: BrainOption = None
) -> None:
    """Turn down a proposal, or some units of it, for good."""
    from nugget.capture.publish import close_pull_requests
    from nugget.capture.review import reject

    now, environment = datetime.now(UTC), read_environment()
    folder = brain_folder(brain, environment)
    gone = reject(folder, branch, home=environment.home, now=now, units=listed(units) or None)
    settings = load_settings(environment, folder)
    closings = close_pull_requests(folder, environment=environment, settings=settings, now=now)
    ids = [file.id for file in gone]
    if as_json:
        closed = [entry.url for entry in closings.publications if entry.state == "settled"]
        print_json({"rejected": ids, "closed": closed})
    else:
        console().print(f"Rejected, and not to be proposed again: {clean(', '.join(ids))}.")
    print_closed(closings)
