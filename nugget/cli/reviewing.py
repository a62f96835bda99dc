"""`nugget review`: a person decides on what capture proposed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.capture.review_flags import flags_of
from nugget.cli import layout
from nugget.cli.asking import listed
from nugget.cli.terminal import BrainOption, JsonOption, brain_folder, console, note, print_json
from nugget.config import read_environment
from nugget.render import clean, one_line
from nugget.speech import said_how

if TYPE_CHECKING:
    from rich.console import Console

    from nugget.capture.publish import Published
    from nugget.capture.review import ProposalBranch, ProposedFile
    from nugget.models import Unit

BranchArgument = Annotated[
    str | None, typer.Argument(metavar="[BRANCH]", help="The proposal, or a part of its name; else the only one.")
]
UnitOption = Annotated[list[str] | None, typer.Option("--unit", metavar="ID,..", help="Only these units of it.")]

review = typer.Typer(help="Accept or reject what capture proposed.", invoke_without_command=True)


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
    from nugget.capture import review as reviewing

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
    from nugget.capture.review import accept

    now = datetime.now(UTC)
    done = accept(brain_folder(brain), branch, now=now, units=listed(units) or None)
    if as_json:
        print_json({
            "into": done.into, "commit": done.commit, "accepted": [file.id for file in done.files],
            "waiting": [file.id for file in done.waiting],
        })  # fmt: skip
        return
    out = console()
    if not done.files:
        out.print(f"Nothing was left to accept: {clean(done.into)} holds all of it. The proposal is gone.")
        return
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
    from nugget.capture.review import reject
    from nugget.capture.withdrawal import withdraw
    from nugget.config import load_settings

    now, environment = datetime.now(UTC), read_environment()
    folder = brain_folder(brain, environment)
    gone = reject(folder, branch, home=environment.home, now=now, units=listed(units) or None)
    withdrawn = withdraw(folder, environment=environment, settings=load_settings(environment, folder), now=now)
    if as_json:
        closed = [entry.url for entry in withdrawn.publications if entry.state == "settled"]
        print_json({"rejected": [file.id for file in gone], "closed": closed})
    else:
        said = ", ".join(clean(file.id) for file in gone)
        console().print(f"Rejected, and not to be proposed again: {said}.")
    _tell_withdrawn(withdrawn)


def _tell_withdrawn(withdrawn: Published) -> None:
    """Print on stderr what became of the pull request of a rejected proposal."""
    for entry in withdrawn.publications:
        if entry.state == "settled":
            note(f"{one_line(entry.reason or 'closed')}: {one_line(entry.url or entry.branch)}")
    obstacles = [withdrawn.local, *(entry.reason for entry in withdrawn.failed)]
    for obstacle in filter(None, obstacles):
        note(f"Its pull request is still open: {one_line(obstacle)}")
        note("`nugget capture --publish` closes it.")


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
                "speaker": file.unit.speaker if file.unit else None,
                "evidence": [asdict(entry) for entry in file.unit.evidence] if file.unit else [],
                "flags": list(flags_of(file.unit, before=file.before, after=file.after)) if file.unit else [],
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
    if file.before is not None and file.after is not None:
        changes = unified_diff(file.before.splitlines(), file.after.splitlines(), "now", "proposed", n=2, lineterm="")
        _print_diff(out, "\n".join(changes))
    elif unit is None:
        layout.print_markdown(out, file.after or file.before or "")
    else:
        out.print(f"   confidence {unit.confidence:g}, tags: {one_line(', '.join(unit.tags)) or 'none'}\n", style="dim")
        layout.print_markdown(out, layout.without_heading(unit))
        _print_quotes(out, unit)
    for flag in flags_of(unit, before=file.before, after=file.after) if unit else ():
        out.print(f"   look: {one_line(flag)}", style="yellow")
    out.print()


def _print_quotes(out: Console, unit: Unit) -> None:
    for entry in unit.evidence:
        out.print(f"\n   Evidence, {said_how(entry.speaker, entry.origin)}:", style="dim")
        layout.print_markdown(out, f"“{entry.quote}”", indent="      ")


def _print_diff(out: Console, diff: str) -> None:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in clean(diff).split("\n"):
        out.print(f"   {line}".rstrip(), style=styles.get(line[:1], ""))
