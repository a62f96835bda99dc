"""Accept or reject what capture proposed on local branches.

Accepting makes a commit from the repository's objects and lets git fast-forward the checkout to it: uncommitted work in
the same files stops it before anything changes, and all other files of the user stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget.brain import is_knowledge_path
from nugget.brain import knowledge_file as knowledge
from nugget.capture import ledger
from nugget.capture.compare import BRANCH_PREFIX
from nugget.capture.proposals import WORD_JOINER, digest_text, is_digest, parse_message, reasons_in, titled
from nugget.errors import ConflictError, KnowledgeError, ReviewError
from nugget.infra import git
from nugget.models import Problem, Severity, Unit
from nugget.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedFile:
    """One file of a proposal that the checked-out branch does not have yet.

    `ours` is its content on the checked-out branch, `base` at the start of the proposal, `theirs` in the proposal; each
    is None where the file is missing. `unit` is parsed from `theirs`, else from `base`.
    """

    path: str
    ours: bytes | None
    base: bytes | None
    theirs: bytes | None
    unit: Unit | None
    problems: tuple[Problem, ...] = ()

    @property
    def before(self) -> str | None:
        """The text that the proposal started from, None for a new file."""
        return None if self.base is None else self.base.decode("utf-8", "replace")

    @property
    def after(self) -> str | None:
        """The proposed text, None for a deleted file."""
        return None if self.theirs is None else self.theirs.decode("utf-8", "replace")

    @property
    def fault(self) -> Problem | None:
        """The error that keeps the proposed text from being indexed, which a reviewer may have made, or None."""
        is_broken = self.theirs is not None and self.unit is None and is_knowledge_path(self.path)
        return next(one for one in self.problems if one.severity is Severity.ERROR) if is_broken else None

    def edited(self, text: str) -> ProposedFile:
        """Return the file with a person's text instead of the proposed one."""
        parsed = knowledge.parse_bytes(text.encode(), path=self.path)
        return replace(self, theirs=text.encode(), unit=parsed.unit, problems=parsed.problems)

    @property
    def texts(self) -> tuple[str, str]:
        """The bodies before and after, or the whole texts if only their frontmatter differs."""
        units = [knowledge.parse_bytes(side or b"", path=self.path).unit for side in (self.base, self.theirs)]
        whole = (self.before or "", self.after or "")
        before, after = (unit.body.strip() if unit else text for unit, text in zip(units, whole, strict=True))
        return whole if before == after else (before, after)

    @property
    def status(self) -> str:
        """`new`, `edited` or `deleted`."""
        return "new" if self.base is None else "deleted" if self.theirs is None else "edited"

    @property
    def id(self) -> str:
        """The name of the file for people: the id of its unit, else its path."""
        return self.unit.id if self.unit else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalBranch:
    """A proposal that waits for review; title, body and trailers are those of its commit's message."""

    branch: str
    message: str
    sha: str
    base: str
    made: datetime
    title: str
    body: str
    trailers: Mapping[str, str]
    files: tuple[ProposedFile, ...]

    @property
    def session(self) -> str | None:
        """The id of the session that it comes from."""
        return self.trailers.get("Nugget-Session")

    @property
    def prompt(self) -> str:
        """The session's title or first request."""
        return self.trailers.get("Nugget-Title", "").replace(WORD_JOINER, "")

    @property
    def reasons(self) -> dict[str, str]:
        """The reason for each file, by its path."""
        return reasons_in(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's decision on a proposal: the ids or paths of units to accept and to reject, None for all.

    `edits` are new texts of accepted files by id or path. `expect_sha` is the commit that the person looked at.
    """

    accept: Sequence[str] | None = ()
    reject: Sequence[str] | None = ()
    edits: Mapping[str, str] = field(default_factory=dict)
    expect_sha: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The result of `decide`: the branch and commit with the accepted units, and the files by outcome.

    `pending` says what is left to do to align remote and brain, and why; `closed` says how pull requests were closed.
    """

    into: str = ""
    commit: str = ""
    files: tuple[ProposedFile, ...] = ()
    rejected: tuple[ProposedFile, ...] = ()
    waiting: tuple[ProposedFile, ...] = ()
    pending: str | None = None
    closed: Mapping[str, str] = field(default_factory=dict)


def proposals(brain: Path) -> list[ProposalBranch]:
    """Return the proposals that still wait for a decision, oldest first."""
    tip = git.require_commit(brain)
    held = git.files_at(brain, tip)
    read = [_read(brain, branch, tip=tip, held=held) for branch in git.branches(brain, BRANCH_PREFIX)]
    return [proposal for proposal in read if proposal.files]


def show(brain: Path, name: str | None = None) -> ProposalBranch:
    """Return one proposal: by its branch or a unique part of its name, or the only one there is.

    Raises ReviewError if there is not exactly one.
    """
    tip = git.require_commit(brain)
    branches = git.branches(brain, BRANCH_PREFIX)
    found = [one for one in branches if one.name == name] or [one for one in branches if not name or name in one.name]
    if len(found) == 1:
        return _read(brain, found[0], tip=tip, held=git.files_at(brain, tip))
    if not branches:
        raise ReviewError("Nothing waits for review.", hint="Sessions are proposed when they end.")
    several = f"{len(found)} proposals wait{f' that match {name}' if name else ''}: name one."
    hint = "Run `nugget review list` to see what waits."
    raise ReviewError(several if found else f"There is no proposal {name}.", hint=hint)


def decide(
    brain: Path, name: str | None, decision: Decision, *, home: Path, now: datetime,
    share: Callable[[str, str], None] = lambda into, commit: None,
) -> Decided:  # fmt: skip
    """Accept, reject and edit units of a proposal atomically, with one lock and one commit.

    Accepted units are merged into the checked-out branch, rejected ones are not proposed again, the rest wait. `share`
    gets the branch and the new commit before anything moves, and may raise to prevent it. Errors leave all unchanged:
    BrainError during a merge or without a branch, ReviewError for an invalid file, GitError if the proposal is checked
    out elsewhere or git is locked, ConflictError if the proposal moved since it was looked at, or if a file changed on
    both sides or has uncommitted work.
    """
    if decision.accept == decision.reject == ():
        raise ReviewError("Nothing was decided.", hint="Name units to accept or to reject.")
    with git.only_writer(brain):
        if decision.accept != ():
            into, tip = git.ready_branch(brain)
        else:
            into, tip = git.current_branch(brain) or "", git.require_commit(brain)
            git.wait_until_free(brain)
        if into.startswith(BRANCH_PREFIX) and decision.accept != ():
            raise ReviewError(f"The proposal {into} itself is checked out.", hint="Run `git switch main` in the brain.")
        proposal = show(brain, name)
        if decision.expect_sha not in (None, proposal.sha):
            raise ConflictError(f"{proposal.branch} moved since you looked at it; nothing was changed.",
                                hint="Look at it again, then decide.")  # fmt: skip
        git.refuse_checked_out(brain, proposal.branch)
        kept, gone = choose(proposal, decision.accept), choose(proposal, decision.reject)
        if both := [file.id for file in kept if file in gone]:
            raise ReviewError(f"{', '.join(both)} cannot be both accepted and rejected.", hint="Name each once.")
        rest = tuple(file for file in proposal.files if file not in kept and file not in gone)
        edited = _with_edits(kept, decision.edits)
        if problem := next(filter(None, (file.fault for file in edited)), None):
            hint = f"Correct it (`git switch {proposal.branch}` in the brain), or accept others with `--unit ID`."
            raise ReviewError(f"{problem}; nothing was accepted.", hint=hint)
        is_whole = not rest and not gone and edited == kept
        commit = tip
        if kept or (is_whole and decision.accept is None):
            contents = {file.path: _merged(file, proposal, into=into) for file in edited}
            commit = _merge_commit(brain, proposal, edited, contents, tip=tip, whole=is_whole, now=now)
        left = _remainder(brain, proposal, rest, tip=commit, now=now)
        lines = _rejections(brain, proposal, gone, home=home, now=now)
        if commit == tip:
            message = f"Reject {counted(len(gone), 'unit')} of {proposal.branch}"
            git.change_refs(brain, [left], message=message, lines=lines)
        else:
            share(into, commit)
            first = git.RefChange(ref=f"refs/heads/{into}", new=commit, expect=tip)
            message = f"Accept {counted(len(edited), 'unit')} of {proposal.branch}"
            git.change_refs(brain, [first, left], message=message, checkout=True, lines=lines)
    return Decided(into=into, commit=commit, files=edited, rejected=gone, waiting=rest)


def _with_edits(kept: Sequence[ProposedFile], edits: Mapping[str, str]) -> tuple[ProposedFile, ...]:
    """Return the accepted files with a person's edits. Raises ReviewError for an unknown name."""
    known = {name for file in kept for name in (file.id, file.path)}
    if unknown := [name for name in edits if name not in known]:
        raise ReviewError(f"{', '.join(unknown)} is edited but not accepted.", hint="Accept it too.")
    new = [edits.get(file.id, edits.get(file.path, file.after)) for file in kept]
    return tuple(file if text == file.after else file.edited(text or "") for file, text in zip(kept, new, strict=True))


def _rejections(
    brain: Path, proposal: ProposalBranch, gone: Sequence[ProposedFile], *, home: Path, now: datetime
) -> list[tuple[str, dict[str, Any]]]:
    """Return the ledger lines for rejected files."""
    if not gone:
        return []
    key, time = ledger.remember_brain(brain, home), {"time": now.isoformat()}
    lines = [(ledger.REJECTED, time | _rejection_line(file, key, proposal.branch)) for file in gone]
    if capture := proposal.trailers.get("Nugget-Records"):
        closing = time | {"event": "captured", "brain": key, "capture": capture, "branch": proposal.branch}
        lines.append((ledger.CAPTURES, closing | {"reason": "rejected"}))
    return lines


def _read(brain: Path, branch: git.Branch, *, tip: str, held: Mapping[str, str]) -> ProposalBranch:
    base = git.merge_base(brain, tip, branch.sha) or git.EMPTY_TREE
    title, body, trailers = parse_message(branch.message)
    waiting = [change for change in git.changes(brain, base, branch.sha) if held.get(change.path) != change.after]
    sides = [(held.get(change.path), change.before, change.after) for change in waiting]
    blobs = [blob for blobs in sides for blob in blobs if blob]
    contents = dict(zip(blobs, git.read_objects(brain, blobs), strict=True))
    files: list[ProposedFile] = []
    for change, side in zip(waiting, sides, strict=True):
        ours, before, after = (contents.get(blob or "") for blob in side)
        parsed = knowledge.parse_bytes(after if after is not None else before or b"", path=change.path)
        files.append(ProposedFile(path=change.path, ours=ours, base=before, theirs=after, unit=parsed.unit,
                                  problems=parsed.problems))  # fmt: skip
    if is_digest(branch.name):
        title, body = digest_text([(file.unit, file.status) for file in files if file.unit])
    places = {path: place for place, path in enumerate(reasons_in(body))}  # as proposed; git sorts by path
    files.sort(key=lambda file: places.get(file.path, len(places)))
    return ProposalBranch(
        branch=branch.name, sha=branch.sha, base=base, made=branch.committed, message=branch.message,
        title=title, body=body, trailers=trailers, files=tuple(files),
    )  # fmt: skip


def choose(proposal: ProposalBranch, units: Sequence[str] | None) -> tuple[ProposedFile, ...]:
    """Return the files of the named units, all by default. Raises ReviewError for an unknown name."""
    if units is None:
        return proposal.files
    names = {name for file in proposal.files for name in (file.id, file.path)}
    if unknown := [name for name in units if name not in names]:
        there = ", ".join(file.id for file in proposal.files) or "nothing any more"
        raise ReviewError(f"{proposal.branch} does not propose {', '.join(unknown)}.", hint=f"It proposes {there}.")
    return tuple(file for file in proposal.files if file.id in units or file.path in units)


def _merged(file: ProposedFile, proposal: ProposalBranch, *, into: str) -> bytes | None:
    """Return the content of a file after the merge, None if deleted. Raises ConflictError if both sides differ."""
    try:
        return merge_sides(file.path, file.ours, file.base, file.theirs)
    except ConflictError as error:
        raise ConflictError(
            f"{file.path} was changed on {into} since {proposal.branch} was made, and both changed the same lines.",
            hint=f"Run `git merge {proposal.branch}` in the brain to settle it by hand, or accept the other files with "
            "`--unit ID`.",
        ) from error


def merge_sides(path: str, ours: bytes | None, before: bytes | None, theirs: bytes | None) -> bytes | None:
    """Return the merge of two changes of a file, or None if it is deleted. Raises ConflictError."""
    if ours in (before, theirs):
        return theirs
    if theirs == before:
        return ours
    if ours is not None and before is not None and theirs is not None:
        merged = git.merge_files(ours, before, theirs) or _merge_knowledge(path, ours, before, theirs)
        if merged is not None:
            return merged
    raise ConflictError(f"{path} was changed on both sides, in the same lines.")


def _merge_knowledge(path: str, ours: bytes, before: bytes, theirs: bytes) -> bytes | None:
    """Merge two edits that each only add to the end of a unit, as capture proposes them."""
    mine, base, other = (knowledge.parse_bytes(content, path=path).unit for content in (ours, before, theirs))
    if mine is None or base is None or other is None or not other.body.startswith(base.body.rstrip()):
        return None
    merged = {
        "confidence": max(mine.confidence, other.confidence),
        "evidence": tuple(dict.fromkeys((*mine.evidence, *other.evidence))),
        "last_modified": max(filter(None, (mine.last_modified, other.last_modified)), default=None),
    }
    changed = {key: one for key, one in merged.items() if {getattr(unit, key) for unit in (mine, base, other)} != {one}}
    body = mine.body.rstrip() + other.body[len(base.body.rstrip()) :]
    with suppress(KnowledgeError):  # the three sides now differ in other keys only
        return git.merge_files(*(knowledge.edit(side.decode(), changes=changed, body=body).encode()
                                 for side in (ours, before, theirs)))  # fmt: skip
    return None


def _merge_commit(
    brain: Path, proposal: ProposalBranch, accepted: Sequence[ProposedFile], contents: Mapping[str, bytes | None],
    *, tip: str, whole: bool, now: datetime,
) -> str:  # fmt: skip
    """Return the commit of the merge: the proposal's own if that is a fast-forward, else a new one on `tip`."""
    if whole and proposal.base == tip:
        return proposal.sha
    trailers = "\n".join(f"{name}: {value}" for name, value in proposal.trailers.items())
    listed = "\n".join(f"- {path}" for path in contents)
    title = titled([one.unit for one in accepted if one.unit]) or proposal.title
    message = f"{title}\n\nAccepted from {proposal.branch}:\n{listed}\n\n{trailers}\n"
    parents = [tip, proposal.sha] if whole else [tip]
    return git.commit_files(brain, files=contents, message=message, parents=parents, now=now)


def _remainder(
    brain: Path, proposal: ProposalBranch, rest: Sequence[ProposedFile], *, tip: str, now: datetime
) -> git.RefChange:
    """Return the change that leaves only waiting files on the branch, based on `tip` if possible, or deletes it."""
    ref = f"refs/heads/{proposal.branch}"
    if not rest:
        return git.RefChange(ref=ref, new=None, expect=proposal.sha)
    contents = {file.path: file.theirs for file in rest}
    base = (git.resolve(brain, tip) if all(file.ours == file.base for file in rest) else None) or proposal.base
    sha = git.commit_files(brain, files=contents, message=_retitled(proposal, contents), parents=[base], now=now)
    return git.RefChange(ref=ref, new=sha, expect=proposal.sha)


def _retitled(proposal: ProposalBranch, files: Mapping[str, bytes | None]) -> str:
    """Return the message of a proposal for these files: a session's is titled by its units."""
    units = [knowledge.parse_bytes(content or b"", path=path).unit for path, content in files.items()]
    title = titled([unit for unit in units if unit and "Nugget-Session" in proposal.trailers])
    return proposal.message.replace(proposal.title, title or proposal.title, 1)


def proposed_again(
    brain: Path, branch: str, accepted: str, files: Mapping[str, bytes | None], base: str
) -> git.RefChange:
    """Return the change that adds files of an accepting commit to the rest of their proposal, on `base`.

    Without a rest they get a branch of their own, since the first may be settled on the server.
    """
    if rest := next((one for one in proposals(brain) if one.branch == branch), None):
        git.refuse_checked_out(brain, branch)
        files = {file.path: file.theirs for file in rest.files} | dict(files)
        message = _retitled(rest, files)
    else:
        branch = f"{branch}-{base[:7]}"
        message = git.run(brain, "log", "-1", "--format=%B", accepted).decode("utf-8", "replace")
        message = re.sub(r"^Accepted from .*:\n(?:- .*\n)+\n?", "", message, flags=re.MULTILINE)
    sha = git.commit_files(brain, files=files, message=message, parents=[base])
    return git.RefChange(ref=f"refs/heads/{branch}", new=sha, expect=rest.sha if rest else None)


def _rejection_line(file: ProposedFile, brain: str, branch: str) -> dict[str, Any]:
    """Return the ledger line of a rejected file; for an edit, with only its additions."""
    line: dict[str, Any] = {"brain": brain, "branch": branch, "id": file.path, "quotes": []}
    if file.unit is None:
        return line | {"body": ledger.text_key(file.after or "")}
    before = knowledge.parse_bytes(file.base, path=file.path).unit if file.base is not None else None
    quotes = [ledger.text_key(one.quote) for one in file.unit.evidence if before is None or one not in before.evidence]
    return line | {"id": "" if before else file.unit.id, "body": ledger.text_key(file.unit.body), "quotes": quotes}
