"""Commands that decide on proposals: review, with list, show, accept and reject."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from nugget.cli.terminal import BrainOption, JsonOption, listed, open_brain, print_json
from nugget.config import read_environment
from nugget.errors import ForgeError, PushRefused, UsageError
from nugget.render import reports
from nugget.render.json import proposal_json
from nugget.render.terminal import note, put
from nugget.text import counted, one_line

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.capture.review import Decided, ProposalBranch, ProposedFile

commands = typer.Typer(add_completion=False)
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
def review_list(as_json: JsonOption = False, brain: BrainOption = None) -> None:
    """List waiting proposals, oldest first."""
    with open_brain(brain) as opened:
        waiting = [(one.name if opened.others else "", found) for one, its in opened.waiting() for found in its]
    if as_json:
        print_json([proposal_json(found) | ({"brain": name} if name else {}) for name, found in waiting])
        return
    for name, proposal in waiting:
        put((proposal.branch, "bold cyan"), f"  {name}" if name else "")
        put(f"   {one_line(proposal.title)}", style="dim")
        for file in proposal.files:
            reports.put_proposed_line(file)
        put("")
    if waiting:
        put("Next: nugget review show BRANCH, then accept or reject (a part of the name is enough).")
    else:
        put("Nothing waits for review. Sessions are proposed when they end; `nugget capture` works the queue.")


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
    put(proposal.branch, style="bold cyan")
    put(f"{one_line(proposal.title)}\n")
    if diff:
        reports.put_diff(changes)
    else:
        for file in proposal.files:
            reports.put_proposed(file)
    put(f"Next: nugget review accept {proposal.branch}\n      nugget review reject {proposal.branch}")


@review.command("accept")
def review_accept(
    branch: BranchArgument = None, units: UnitOption = None, as_json: JsonOption = False, brain: BrainOption = None
) -> None:
    """Merge a proposal, or some of its units, into the brain.

    If GitHub does not allow the merge, its page is opened at a terminal.
    """
    with open_brain(brain) as opened:
        try:
            done = opened.accept(branch, units=listed(units) or None)
        except (ForgeError, PushRefused) as error:
            page = re.search(r"https?://\S+/pull/\d+", error.hint or "")
            if page and sys.stdin.isatty() and sys.stdout.isatty():
                typer.launch(page[0])
            raise
    _show_decided(done, as_json=as_json)


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
    if as_json:
        facts = {"into": done.into, "commit": done.commit, **named}
        print_json(facts | {"closed": [*done.closed], "pending": done.pending})
    elif not (done.files or done.rejected):
        put(f"Nothing was left to decide: {done.into} holds all of it. The proposal is gone.")
    elif done.files:
        put(f"Accepted into {done.into} ({done.commit[:10]}):")
        for file in done.files:
            reports.put_proposed_line(file)
    if done.rejected and not as_json:
        put(f"Rejected, and not to be proposed again: {', '.join(named['rejected'])}.")
    if done.files and done.waiting and not as_json:
        put(f"Still waiting: {', '.join(named['waiting'])}.")
    for url, how in done.closed.items():
        note(f"{how}: {url}")
    if done.pending:
        note(one_line(done.pending))


def _review_by_keys(brain: BrainOption) -> None:
    """Walk through the proposals; each is decided in one commit, after a confirmation."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("`nugget review -i` needs a terminal.", hint="`nugget review accept` and `reject` do not.")
    with open_brain(brain) as opened:
        waiting = [(one, proposal) for one, its in opened.waiting() for proposal in its]
        if not waiting:
            put("Nothing waits for review.")
        for one, proposal in waiting:
            if not _decide_by_keys(one, proposal):
                break


def _decide_by_keys(opened: Brain, proposal: ProposalBranch) -> bool:
    """Ask for a key for each unit, then apply the choices; return False if the person stopped."""
    put(f"\n{proposal.branch}", style="bold cyan")
    put(f"{one_line(proposal.title)}\n")
    chosen: dict[str, str] = {}
    edits: dict[str, str] = {}
    key = ""
    for number, file in enumerate(proposal.files, 1):
        if file.path in chosen:
            continue
        reports.put_proposed(file)
        put(f"{number} of {len(proposal.files)}", style="dim")
        put(KEYS, style="dim")
        key = _key("aersnqtdTD")
        if key == "e":
            edits[file.path] = _edited(file.after or "")
        elif key in "nq":
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


def _edited(text: str) -> str:
    """Return the text as edited in the person's editor. Raises UsageError if that cannot be run."""
    variables = read_environment().variables
    editor = shlex.split(variables.get("VISUAL") or variables.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "unit.md"
        file.write_text(text, "utf-8")
        try:
            subprocess.run([*editor, str(file)], check=True)
        except (OSError, subprocess.CalledProcessError, IndexError) as error:
            raise UsageError(f"The editor failed ({error}); nothing was changed.", hint="Set EDITOR.") from error
        return file.read_text("utf-8", "replace")


def _key(known: str) -> str:
    """Return the next known key that is pressed. Ctrl-C ends the review without changing this proposal."""
    while (key := typer.getchar()) not in known:
        if not key or key in "\x03\x04":
            raise typer.Abort
    return key


def _meant_by(key: str, file: ProposedFile, proposal: ProposalBranch) -> list[str]:
    """Return the paths that a key applies to: this file, all of its type, or all of its domain."""
    if key in "tT" and file.unit:
        return [one.path for one in proposal.files if one.unit and one.unit.type == file.unit.type]
    folder = file.path.rsplit("/", 2)[0]
    return [one.path for one in proposal.files if one is file or (key in "dD" and one.path.startswith(f"{folder}/"))]
