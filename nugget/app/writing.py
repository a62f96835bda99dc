"""The methods of `Brain` that write knowledge, decide on proposals, publish, and list and undo changes.

Each change moves the checked-out branch once and is named in git's reflog. Undoing it makes a commit that restores the
files and keeps later changes of other lines.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget import capture, importing
from nugget.app import brains
from nugget.brain import checks, filing, load, validate_domain
from nugget.brain.filing import UnitMove
from nugget.capture import following, ledger, publish, review
from nugget.capture.compare import ProposalTarget
from nugget.config import expanded, load_settings, read_environment
from nugget.errors import ConflictError, NuggetError
from nugget.infra import files, git, remotes
from nugget.models import KnowledgeType, Problem, StaleReason
from nugget.models.nuggets import Nugget
from nugget.redaction import allow_list, redact
from nugget.redaction import secret_lines as find_secrets
from nugget.sources.sessions import redact_again
from nugget.upkeep import is_trusted, repair

if TYPE_CHECKING:
    from nugget.app import Brain

Places = Sequence[tuple[str, int]]
"""Files, each with a line number."""
_DID = {"Accept": "accepted", "Add": "added", "Edit": "edited", "Forget": "forgotten", "Move": "moved", "File": "moved"}
_UNDOES = "Nugget-Undoes"
_LOOKED_AT = 1000
"""Number of reflog entries to read."""


def add(
    brain: Brain, text: str, *, type: str = KnowledgeType.PATTERN, domain: str = "general", tags: Sequence[str] = (),
    title: str | None = None, confidence: float = 0.8,
    report: Callable[[Mapping[str, int]], None] = lambda counts: None,
) -> tuple[str, str]:  # fmt: skip
    """Commit a text as a new unit; return its id and path. `report` receives the counts of redacted kinds."""
    path, counts = filing.add_unit(
        brain.path, f"# {' '.join(title.split())}\n\n{text}" if title else text, type=type, domain=domain, tags=tags,
        confidence=confidence, now=datetime.now(UTC), allow=allow_list(brain.settings),
    )  # fmt: skip
    report(counts)
    make_current(brain)
    unit = load(brain.path, path).unit
    return unit.id if unit else path, path


def forget(brain: Brain, ref: str) -> tuple[UnitMove, Places]:
    """Remove a unit for good; return what changed, and the golden questions that expect it."""
    result = filing.forget_unit(brain.path, ref.removeprefix("brain:"))
    make_current(brain)
    return result, checks.expecting(brain.path, result.old_id)


def move(brain: Brain, ref: str, *, domain: str | None = None, name: str | None = None) -> tuple[UnitMove, Places]:
    """File a unit elsewhere or rename it; return what changed, and the golden questions that expect the old id."""
    result = filing.move_unit(brain.path, ref.removeprefix("brain:"), domain=domain, slug=name)
    make_current(brain)
    return result, checks.expecting(brain.path, result.old_id) if result.new_id != result.old_id else []


def lint(brain: Brain, paths: Sequence[Path] = ()) -> list[Problem]:
    """Check knowledge files, all of them by default."""
    return checks.lint(brain.path, paths, settings=brain.settings)


def import_notes(
    brain: Brain, path: Path | str, *, domain: str | None = None, limit: int = importing.LIMIT, dry_run: bool = False
) -> importing.ImportResult:
    """Propose units from a folder of notes or an export, on a branch, with a pull request as for sessions.

    `domain` is that of all units; by default it follows the folders. `dry_run` writes nothing.
    Raises UsageError for an invalid path or domain, BrainError and GitError; nothing is proposed then.
    """
    target = proposal_target(brain, dry_run=dry_run)
    done = importing.import_notes(
        expanded(path), target, domain=validate_domain(domain) if domain else None, limit=limit
    )
    if done.branch:
        published = publish.publish(brain.path, environment=brain.environment, settings=brain.settings, now=target.now)
        done = replace(done, published=published)
    note_review(brain)
    return done


def promote(
    brain: Brain, nugget: Nugget, *, stale: StaleReason | None, type: str | None, domain: str, dry_run: bool
) -> capture.CaptureResult:
    """Propose a nugget as a unit of the brain, on a branch."""
    return capture.promote(nugget, proposal_target(brain, dry_run=dry_run), type=type, domain=domain, stale=stale)


def propose(brain: Brain, *, folder: Path, **note: Any) -> capture.CaptureResult:
    """Propose a note of an agent that works in `folder`, once, as `capture.propose_note` does.

    Raises UsageError for a note that cannot become a unit.
    """
    brain = brains.capturing(brain, folder)
    home = brain.environment.home
    # A lock of its own: a capture holds the brain's for as long as a model takes to read a session.
    with files.locked(ledger.lock_file(home, ledger.remember_brain(brain.path, home), "-notes")):
        session = brain.environment.session or "unknown"
        return capture.propose_note(proposal_target(brain), session=session, folder=folder, **note)


def proposal_target(brain: Brain, *, dry_run: bool = False) -> ProposalTarget:
    """Return the context of a new proposal for a brain."""
    return ProposalTarget(
        brain=brain.path, home=brain.environment.home, settings=brain.settings, similar=brains.similar_units(brain),
        now=datetime.now(UTC).astimezone(), dry_run=dry_run,
    )  # fmt: skip


def proposals(brain: Brain) -> list[review.ProposalBranch]:
    """Return the proposals that wait, oldest first."""
    return review.proposals(brain.path)


def proposal(brain: Brain, name: str | None) -> review.ProposalBranch:
    """Return one proposal by a part of its branch's name, or the only one. Raises ReviewError."""
    return review.show(brains.reviewed_in(brain, name).path, name)


def proposal_diff(brain: Brain, shown: review.ProposalBranch) -> str:
    """Return a proposal as a diff."""
    paths = [file.path for file in shown.files]
    return git.diff(brains.reviewed_in(brain, shown.branch).path, shown.base, shown.sha, paths)


def decide(
    brain: Brain, name: str | None = None, *, expect_sha: str | None = None, accept: Sequence[str] | None = (),
    reject: Sequence[str] | None = (), edits: Mapping[str, str] | None = None,
) -> review.Decided:  # fmt: skip
    """Accept, edit and reject units of a proposal at once, and push; merge its pull request if it has one.

    Units are named by id or path; None means all. `edits` are new texts of accepted units, which are redacted. Raises
    ConflictError if the proposal is no longer at `expect_sha`. If it raises, nothing was changed.
    """
    now, one = datetime.now(UTC), brains.reviewed_in(brain, name)
    environment, settings = brain.environment, one.settings
    allow = allow_list(settings)
    texts = {unit: redact(text, allow=allow).text for unit, text in (edits or {}).items()}
    accept, reject = (None if units is None else tuple(units) for units in (accept, reject))
    decision = review.Decision(accept=accept, reject=reject, edits=texts, expect_sha=expect_sha)
    if accept != () and is_trusted(environment, one.path):
        done = following.decide(one.path, name, decision, environment=environment, settings=settings, now=now)
    else:
        done = review.decide(one.path, name, decision, home=environment.home, now=now)
    if accept != ():
        make_current(one)
    note_review(brain)
    if done.rejected:
        closings = publish.close_pull_requests(one.path, environment=environment, settings=settings, now=now)
        obstacle = closings.local or next((each.reason for each in closings.failed), None)
        pending = f"Its pull request is still open: {obstacle} `nugget capture --publish` closes it."
        settled = [each for each in closings.publications if each.state == "settled"]
        closed = {each.url or each.branch: each.reason or "closed" for each in settled}
        done = replace(done, closed=closed, pending=done.pending or (pending if obstacle else None))
    return done


def accept(brain: Brain, name: str | None = None, *, units: Sequence[str] | None = None) -> review.Decided:
    """Merge a proposal, or some units of it, as `decide` does."""
    return decide(brain, name, accept=units)


def reject(brain: Brain, name: str | None = None, *, units: Sequence[str] | None = None) -> review.Decided:
    """Reject a proposal, or some units of it, as `decide` does."""
    return decide(brain, name, reject=units)


def follow(brain: Brain, *, rebase: bool = False, if_due: bool = False) -> following.Followed | None:
    """Pull decisions from the remote, push what waits, and update the index.

    Returns None without a remote, for an untrusted brain, and with `if_due` if this was done recently. Raises GitError.
    """
    now, environment = datetime.now(UTC), brain.environment
    if not (remotes.find_remote(brain.path) and is_trusted(environment, brain.path)):
        return None
    if if_due:
        key = ledger.brain_key(brain.path, environment.home)
        stamp = ledger.lock_file(environment.home, key, "-follow").with_suffix(".stamp")
        if not files.is_due(stamp, files.FOLLOW_EVERY_S):
            return None
        files.replace(stamp, b"")
    done = following.follow(brain.path, environment=environment, settings=brain.settings, now=now, rebase=rebase)
    make_current(brain)
    return done


def make_current(brain: Brain) -> None:
    """Sync the brain's index after a change of its files.

    If the index cannot be written now, the next question syncs it.
    """
    with suppress(NuggetError, OSError, sqlite3.Error):
        brain.sync(in_passing=True)
    note_review(brain)


def note_review(brain: Brain) -> None:
    """Record how many proposals wait and were merged in all brains, for the line at a session's start."""
    home = brain.environment.home
    file = home / "queue" / files.REVIEW_STATE
    with suppress(NuggetError, OSError):
        found = list(brains.waiting_in(brain))
        waiting = sum(len(proposed) for _, proposed in found)
        known = [one for its, _ in found for one in publish.publications(its.path, home=home).values()]
        merged = sum((one.state, one.reason) == ("settled", "merged") for one in known)
        with files.locked(file.with_suffix(".lock")):
            try:
                state = dict(json.loads(file.read_bytes()))
            except (OSError, ValueError, TypeError):
                state = {}
            state.pop(str(brain.path), None)  # the latest comes last, where status lines look
            files.replace(file, json.dumps(state | {str(brain.path): [waiting, merged]}).encode())


def secret_lines(text: str) -> list[tuple[int, str, str]]:
    """Return the line, kind and rule of each secret that redaction would remove from a text."""
    return find_secrets(text, allow=allow_list(load_settings(read_environment())))


def leaks(brain: Brain) -> Iterator[dict[str, Any]]:
    """Yield the places where Nugget's stores hold a secret."""
    return repair.find_leaks(brain.environment.home, brain.path, allow=allow_list(brain.settings))


def scrub(brain: Brain, known: Sequence[str]) -> dict[str, list[str]]:
    """Remove secrets from everything that Nugget keeps: those that rules find, and the `known` ones.

    Archived sessions that were redacted by older rules are first redacted again.
    """
    home = brain.environment.home
    again = redact_again(home, brain.settings)
    done = repair.scrub(home, brain.path, known, allow=allow_list(brain.settings))
    return {name: [*again.get(name, ()), *found] for name, found in done.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainChange:
    """A change that Nugget made: the commits before and after it, and the commit that undid it, if any."""

    kind: str
    title: str
    time: datetime
    before: str
    commit: str
    undone_by: str | None = None


def changes(brain: Brain, *, limit: int = 20) -> list[BrainChange]:
    """Return the changes made by Nugget in this clone, newest first."""
    branch, _ = git.ready_branch(brain.path)
    form = f"--format=%H%x00%gs%x00%ct%x00%(trailers:key={_UNDOES},valueonly)%x01"
    shown = git.run(brain.path, "log", "-g", form, "-n", str(_LOOKED_AT), f"refs/heads/{branch}", "--")
    entries = [os.fsdecode(one).strip("\n").split("\0") for one in shown.split(b"\1") if one.strip()]
    undone = {undoes.strip(): sha for sha, _, _, undoes in entries if undoes.strip()}
    held = set(git.run(brain.path, "rev-list", "HEAD").decode().split())
    found = []
    for (sha, subject, seconds, _), older in pairwise(entries):
        title = subject.removeprefix("nugget: ")
        kind = "undone" if title.startswith("Undo: ") else _DID.get(title.partition(" ")[0].capitalize())
        if title != subject and kind and sha in held:
            made = datetime.fromtimestamp(int(seconds), UTC)
            found.append(BrainChange(kind=kind, title=title, time=made, before=older[0], commit=sha,
                                     undone_by=undone.get(sha)))  # fmt: skip
    return found[:limit]


def undo(brain: Brain, commit: str | None = None) -> BrainChange:
    """Undo the change of a commit, by default the last change that is not undone, in a new commit; return the change.

    What was accepted waits for review again. Raises NuggetError without such a change, ConflictError if its lines
    changed since or a file has uncommitted work.
    """
    with git.only_writer(brain.path):
        branch, tip = git.ready_branch(brain.path)
        undoable = (one for one in changes(brain, limit=_LOOKED_AT) if one.kind != "undone" and not one.undone_by)
        last = next((one for one in undoable if commit in (None, one.commit)), None)
        if last is None:
            raise NuggetError("There is nothing to undo.", hint="`nugget log` lists what was changed here.")
        restored, undone = dict[str, bytes | None](), dict[str, bytes | None]()
        for change in git.changes(brain.path, last.before, last.commit):
            sides = (f"{tip}:{change.path}", f"{last.commit}:{change.path}", f"{last.before}:{change.path}")
            ours, after, before = git.read_objects(brain.path, sides)
            undone[change.path] = ours
            try:
                restored[change.path] = review.merge_sides(change.path, ours, after, before)
            except ConflictError as error:
                raise ConflictError(
                    f"{change.path} was changed since `{last.title}`; nothing was undone.",
                    hint=f"`git revert {last.commit[:10]}` in the brain lets you settle it.",
                ) from error
        message = f"Undo: {last.title}\n\n{_UNDOES}: {last.commit}\n"
        again = partial(review.proposed_again, brain.path, last.title.rpartition(" of ")[2], last.commit, undone)
        beside = again if last.kind == "accepted" else None
        git.commit_change(brain.path, restored, message, branch=branch, expect_head=tip, beside=beside)
    make_current(brain)
    return last
