"""Commands that learn from sessions and decide on proposals: capture-session, capture, review, pause, erase."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click
import typer
from typer import Argument, Option

from nugget.cli import (
    BrainOption,
    DryRunOption,
    JsonOption,
    PagerOption,
    library,
    listed,
    open_brain,
    open_provenance,
    paged,
    print_json,
    progress,
    sessions,
    show,
    team,
    worker,
)
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import ForgeError, PushRefused, UsageError
from nugget.render.json import capture_json, fields, proposal_json
from nugget.render.terminal import note, put, put_report
from nugget.text import counted, on_progress, one_line

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.capture.queue import Job
    from nugget.capture.review import Decided, ProposalBranch, ProposedFile

commands = typer.Typer(add_completion=False)

Way = Literal["auto", "claude-code", "api", "openai", "offline"]
"""Ways to find knowledge in a session: the values of `extraction.with`."""
OldMethodOption = Annotated[Literal["auto", "generative", "heuristic"] | None, Option("--method", hidden=True)]
WayOption = Annotated[Way | None, Option("--with", help="How to find knowledge, instead of `extraction.with`.")]


@commands.command("capture-session")
def capture_session(
    transcript: Annotated[
        Path | None,
        Option("--transcript", metavar="PATH", help="A transcript of Claude Code, Codex, Gemini CLI, Cursor or "
                                                    "OpenCode."),
    ] = None,
    session: Annotated[str | None, Option("--session", metavar="ID", help="The id of a session.")] = None,
    way: WayOption = None,
    method: OldMethodOption = None,
    dry_run: DryRunOption = False,
    explain: Annotated[
        bool, Option("--explain", help="Show each candidate with its reasons and outcome; write nothing.")
    ] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Propose what is worth keeping from a session.

    The proposed units are committed on a branch of the brain for review. With a hook payload on stdin and no options,
    the session is queued and the command returns at once.
    """
    chosen = way or ("offline" if method == "heuristic" else method)
    if not (transcript or session):
        raise UsageError("Name one: --transcript PATH or --session ID.", hint="`nugget sessions --all` lists them.")
    environment = read_environment()
    file = expanded(transcript) if transcript else worker.find_transcript(environment, session)
    if not (brain or explain or dry_run) and (sent := team.send_session(file, environment, load_settings(environment))):
        show({"session": file.stem, "sent": sent} if as_json else None, f"{sent[0].upper()}{sent[1:]}.")
        return
    with open_brain(brain) as opened:
        if explain:
            name, claims = worker.explain_session(file, opened, way=chosen)
            show({"session": name, "claims": claims} if as_json else None, "\n".join(claims))
            return
        result, published = worker.capture_file(file, opened, way=chosen, dry_run=dry_run)
    value = capture_json(result) | {"published": [asdict(entry) for entry in published.publications]}
    show(value if as_json else None, report="capture", result=result, dry_run=dry_run, published=published)


@commands.command()
def capture(
    catch_up: Annotated[bool, Option("--catch-up", help="Also find sessions that were never captured.")] = False,
    retry: Annotated[bool, Option("--retry", help="Also retry sessions that failed.")] = False,
    publish: Annotated[bool, Option("--publish", help="Open a pull request for every proposal that has none.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Process queued sessions now."""
    folder, numbers = library.brain_or_server(brain, environment := read_environment()), count(1)

    def tell(job: Job, left: int) -> None:
        text = job.branch or job.reason or ""
        note(f"{job.state}: {job.session or Path(job.transcript or job.name).stem} {one_line(text)}")
        number = next(numbers)
        on_progress.get()("Capturing", number, number + left)

    with progress():
        found, done, by_brain = worker.work(environment, catch_up=catch_up, retry=retry, flag=folder if brain else None,
                                     publish=publish, report=tell)  # fmt: skip
    failed = sum(job.state == "failed" for job in done)
    here = by_brain.get(folder) if folder else None
    unpublished = len(here.failed) + (here.local is not None) if here and publish else 0
    jobs = [fields(job, "session", "transcript", "state", "branch", "reason") for job in done]
    published = [asdict(entry) for one in by_brain.values() for entry in one.publications]
    show({"found": found, "jobs": jobs, "published": published} if as_json else None,
         report="worked", found=found, jobs=done, by_brain=by_brain, failed=failed, is_caught_up=catch_up,
         is_requested=publish)  # fmt: skip
    raise typer.Exit(1 if failed or unpublished else 0)


review = typer.Typer(help="Accept or reject what capture proposed.", invoke_without_command=True)
commands.add_typer(review, name="review")

BranchArgument = Annotated[
    str | None, Argument(metavar="BRANCH", help="The proposal, or part of its name; optional if there is only one.")
]
UnitOption = Annotated[list[str] | None, Option("--unit", metavar="ID,..", help="Only these units.")]
KEYS = """\
a accept · e edit and accept · r reject · s skip · n next proposal · q stop
t accept all of this type · d accept all of this domain · T, D reject them"""


@review.callback()
def review_default(
    ctx: typer.Context,
    interactive: Annotated[bool, Option("--interactive", "-i", help="Decide unit by unit, with single keys.")] = False,
    brain: BrainOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accept or reject what capture proposed. Without a subcommand: list waiting proposals."""
    if interactive:
        _review_by_keys(brain)
    elif ctx.invoked_subcommand is None:
        review_list(brain=brain, as_json=as_json)


@review.command("list")
def review_list(pager: PagerOption = True, as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """List waiting proposals, oldest first."""
    with open_brain(brain) as opened:
        waiting = [(one.name if opened.others else "", found) for one, its in opened.waiting() for found in its]
    values = [proposal_json(found) | ({"brain": name} if name else {}) for name, found in waiting]
    with paged(is_wanted=pager and not as_json):
        show(values if as_json else None, report="proposals", waiting=waiting)


@review.command("show")
def review_show(
    branch: BranchArgument = None,
    diff: Annotated[bool, Option("--diff", help="Show the change as a diff.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Show a proposal: every unit with the evidence behind it."""
    with open_brain(brain) as opened:
        proposal = opened.proposal(branch)
        changes = opened.proposal_diff(proposal) if diff else ""
    if as_json:
        value = proposal_json(proposal)
        for line, file in zip(value["files"], proposal.files, strict=True):
            line["text"] = file.after
        print_json(value)
        return
    put_report("proposal", proposal=proposal, changes=changes)


@review.command("accept")
def review_accept(
    branch: BranchArgument = None, units: UnitOption = None,
    everything: Annotated[bool, Option("--all", help="Merge every proposal that waits, one after the other.")] = False,
    as_json: JsonOption = False, brain: BrainOption = None,
) -> None:  # fmt: skip
    """Merge a proposal, or some of its units, into the brain.

    If GitHub does not allow the merge, its page is opened at a terminal.
    """
    if everything and (branch or units or as_json):
        raise UsageError("--all takes no BRANCH, --unit or --json.")
    with open_brain(brain) as opened:
        waiting = [proposal.branch for _, its in opened.waiting() for proposal in its] if everything else [branch]
        try:
            for name in waiting:
                _show_decided(opened.accept(name, units=listed(units) or None), as_json=as_json)
        except (ForgeError, PushRefused) as error:
            page = re.search(r"https?://\S+/pull/\d+", error.hint or "")
            if page and sys.stdin.isatty() and sys.stdout.isatty():
                typer.launch(page[0])
            raise
    if not waiting:
        put("Nothing waits for review.")


@review.command("reject")
def review_reject(
    branch: BranchArgument = None, units: UnitOption = None, as_json: JsonOption = False, brain: BrainOption = None
) -> None:
    """Reject a proposal, or some of its units, for good."""
    with open_brain(brain) as opened:
        _show_decided(opened.reject(branch, units=listed(units) or None), as_json=as_json)


def _show_decided(done: Decided, *, as_json: bool = False) -> None:
    ids = {"accepted": done.files, "rejected": done.rejected, "waiting": done.waiting}
    named = {what: [file.id for file in files] for what, files in ids.items()}
    value = {"into": done.into, "commit": done.commit, **named, "closed": [*done.closed], "pending": done.pending}
    show(value if as_json else None, report="decided", done=done)
    for url, how in done.closed.items():
        note(f"{how}: {url}")
    if done.pending:
        note(one_line(done.pending))


def _review_by_keys(brain: BrainOption) -> None:
    """Walk through the proposals and apply the decisions on each in one commit, after a confirmation."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("`nugget review -i` needs a terminal.", hint="`nugget review accept` and `reject` do not.")
    with open_brain(brain) as opened:
        waiting = [(one, proposal) for one, its in opened.waiting() for proposal in its]
        if not waiting:
            put("Nothing waits for review.")
        all(_decide_by_keys(one, proposal) for one, proposal in waiting)  # until the person stops


def _decide_by_keys(opened: Brain, proposal: ProposalBranch) -> bool:
    """Ask for a decision on each unit, then apply all; return False if the person stopped."""
    put(f"\n{proposal.branch}", style="bold cyan")
    put(f"{one_line(proposal.prompt or proposal.title)}\n")
    chosen: dict[str, str] = {}
    edits: dict[str, str] = {}
    key = ""
    for number, file in enumerate(proposal.files, 1):
        if file.path in chosen:
            continue
        put_report("review", file=file)
        put(f"{number} of {len(proposal.files)}", style="dim")
        put(KEYS, style="dim")
        while (key := _key("aersnqtdTD")) == "e" and (fault := _edit(file, edits)):
            put(f"{fault}. Press e to edit it again.", style="red")
        if key != "e":
            edits.pop(file.path, None)
        if key in "nq":
            break
        for one in _meant_by(key, file, proposal):
            chosen.setdefault(one, "accept" if key in "aetd" else "reject" if key in "rTD" else "skip")
    accept, reject = ([path for path, what in chosen.items() if what == wanted] for wanted in ("accept", "reject"))
    if not accept and not reject:
        return key != "q"
    left = len(proposal.files) - len(accept) - len(reject)
    put(f"Apply: accept {counted(len(accept), 'unit')}, reject {len(reject)}, leave {left}? (y/n)")
    if _key("yn") == "y":
        _show_decided(
            opened.decide(proposal.branch, expect_sha=proposal.sha, accept=accept, reject=reject, edits=edits)
        )
    return key != "q"


def _edit(file: ProposedFile, edits: dict[str, str]) -> str:
    """Open a unit in the person's editor, and keep the text in `edits`; return what is wrong with it, or nothing."""
    try:
        text = click.edit(edits.get(file.path, file.after or ""), extension=".md", require_save=False) or ""
    except (click.ClickException, UnicodeDecodeError) as error:
        return f"The editor failed ({error}); EDITOR chooses another"
    edits[file.path] = text
    return str(file.edited(text).fault or "")


def _key(known: str) -> str:
    """Return the next known key that is pressed. Ctrl-C ends the review without changing this proposal."""
    while (key := typer.getchar()) not in [*known]:  # several keys typed at once are none
        if not key or key in "\x03\x04":
            raise typer.Abort
    return key


def _meant_by(key: str, file: ProposedFile, proposal: ProposalBranch) -> list[str]:
    """Return the paths that a key applies to: this file, all of its type, or all of its domain."""
    if key in "tT" and file.unit:
        return [one.path for one in proposal.files if one.unit and one.unit.type == file.unit.type]
    folder = file.path.rsplit("/", 2)[0]
    return [one.path for one in proposal.files if one is file or (key in "dD" and one.path.startswith(f"{folder}/"))]


@commands.command()
def pause(
    session: Annotated[str | None, Option("--session", metavar="ID", help="Only this session.")] = None,
    end: Annotated[bool, Option("--end", help="Capture again from now on.")] = False,
) -> None:
    """Capture nothing until `nugget pause --end`.

    Sessions that end meanwhile are never captured, unless you name one with `capture-session`.
    """
    sessions.pause(read_environment().home, session=session, end=end)
    what, once_more = (f"Session {session} is", f" --session {session}") if session else ("Sessions are", "")
    put(f"{what} captured again." if end else f"{what} not captured until `nugget pause{once_more} --end`.")


@commands.command()
def erase(
    session: Annotated[str, Option("--session", metavar="ID", help="Its id, or at least the first 4 characters.")],
    as_json: JsonOption = False,
) -> None:
    """Remove a session from everything that Nugget keeps: archive, index, provenance, queue and ledger.

    The client's own transcript stays, and is not read again. What was accepted into the brain stays too.
    """
    name, removed = sessions.erase_session(open_provenance(), session)
    text = f"Session {name} is erased: {', '.join(removed) or 'nothing was kept of it'}."
    show({"session": name, "removed": removed} if as_json else None, text)
    note("Units that it proposed stay in the brain and in review: `nugget forget ID`, `nugget review reject`.")
