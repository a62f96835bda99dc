"""Follow the remote: pull decisions made there and push units accepted here, in one linear history.

The checked-out main branch only moves forward, to the remote's commit. Accepted units that could not be pushed are
pushed later, on top of what the remote received meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from nugget.capture import publish as publishing
from nugget.capture import review
from nugget.capture.compare import BRANCH_PREFIX
from nugget.capture.proposals import is_digest
from nugget.capture.publish import Publication
from nugget.capture.review import Decided, Decision, ProposalBranch
from nugget.config import Environment, Settings
from nugget.errors import ConflictError, GitError, NuggetError, PushRefused, ReviewError
from nugget.infra import git, remotes
from nugget.infra.forges import Forge
from nugget.infra.remotes import Target
from nugget.text import numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Result of following the remote: the new commit of main, if any, settled publications, and problems."""

    commit: str | None = None
    changed: tuple[Publication, ...] = ()
    problems: tuple[NuggetError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run against the remote, with the lock held. `repository` is None if it is not on a forge or unreachable."""

    brain: Path
    home: Path
    now: datetime
    remote: remotes.Remote
    repository: Forge | None
    known: Mapping[str, Publication]
    may_push: bool

    def note(self, publication: Publication) -> None:
        publishing.note(self.brain, self.home, publication, known=self.known, now=self.now)


def follow(
    brain: Path, *, environment: Environment, settings: Settings, now: datetime, rebase: bool = False
) -> Followed:
    """Pull from the remote, and apply the outcome of its pull requests.

    Only a clean checkout of the default branch is moved, and only forward; with `rebase`, local commits are put on top
    of the remote's and pushed. Raises GitError without a remote; other failures are returned in `problems`.
    """
    with publishing.locked(brain, environment.home):
        problems: list[NuggetError] = []
        run = _reach(brain, environment, settings, now=now, problems=problems)
        return _follow(run, problems, replay=rebase, push=rebase)


def decide(
    brain: Path, name: str | None, decision: Decision, *, environment: Environment, settings: Settings, now: datetime
) -> Decided:
    """Decide on a proposal: merge its pull request if all of it is accepted, else decide locally and push.

    Raises the errors of `review.decide`, and ForgeError or PushRefused if the remote refuses; then nothing was changed.
    If the remote is unreachable, a proposal without a pull request is accepted locally and pushed later.
    """
    if settings.capture_publish == "never" or remotes.find_remote(brain) is None:
        return review.decide(brain, name, decision, home=environment.home, now=now)
    home = environment.home
    with publishing.locked(brain, home):
        proposal = review.show(brain, name)
        publication = publishing.publications(brain, home=home).get(proposal.branch)
        is_open = publication is not None and publication.state in ("open", "failed") and publication.number is not None
        is_whole = len(review.choose(proposal, decision.accept)) == len(proposal.files) and not decision.edits
        is_whole = is_whole and decision.expect_sha in (None, proposal.sha)
        problems: list[NuggetError] = []
        run = _reach(brain, environment, settings, now=now, problems=problems)
        if publication is not None and is_open and is_whole and (run.repository or problems):
            if problems:
                raise problems[0]
            return _merge_there(run, proposal, publication)
        return _decide_here(run, proposal.branch, decision, page=publication.url if publication and is_open else None)


def _reach(
    brain: Path, environment: Environment, settings: Settings, *, now: datetime, problems: list[NuggetError]
) -> _Run:
    if (found := remotes.find_remote(brain)) is None:
        raise GitError("The brain has no remote to follow.", hint="`nugget init --remote URL` gives it one.")
    remote, repository = found, None
    target = publishing.find_target(brain, environment)
    if isinstance(target, Target):
        remote = target.remote
        try:
            remote, repository = publishing.connect(brain, target)
        except NuggetError as error:
            problems.append(error)
    return _Run(
        brain=brain, home=environment.home, now=now, remote=remote, repository=repository,
        known=publishing.publications(brain, home=environment.home), may_push=settings.capture_publish != "never",
    )  # fmt: skip


def _follow(run: _Run, problems: list[NuggetError], *, replay: bool, push: bool) -> Followed:
    seen: dict[str, Publication] = {}
    commit: str | None = None
    try:
        for publication in run.known.values():
            if run.repository is not None and publication.state == "open" and publication.number is not None:
                seen[publication.branch] = _seen(run, run.repository, publication)
    except NuggetError as error:
        problems.append(error)
    try:
        commit = _bring_main(run, publishing.fetched(run.brain, run.remote), replay=replay, push=push)
    except NuggetError as error:
        problems.append(error)
    changed: list[Publication] = []
    for publication in run.known.values():
        current = seen.get(publication.branch, publication)
        try:
            current = _settle(run, current)
        except NuggetError as error:
            problems.append(error)
        if current != publication:
            run.note(current)
            changed.append(current)
    return Followed(commit=commit, changed=tuple(changed), problems=tuple(problems))


def _seen(run: _Run, repository: Forge, publication: Publication) -> Publication:
    """Return the current state of a pull request; edits made there are fetched into the local branch."""
    found = repository.pull(publication.number or 0)
    current = replace(publication, state=found.state, merged_as=found.merged_as, url=found.url)
    if found.state != "open" or found.head == publication.sha:
        return current
    brain, branch = run.brain, publication.branch
    theirs = remotes.fetch(brain, run.remote, branch)
    ours = git.resolve(brain, f"refs/heads/{branch}")
    if ours is None or ours != publication.sha or branch == git.current_branch(brain):
        return current  # also changed here, or checked out: leave both sides alone
    paths = git.files_at(brain, theirs)
    gone = [file.path for file in review.show(brain, branch).files if file.base is None and file.path not in paths]
    if gone:  # the reviewer removed them
        review.decide(brain, branch, Decision(reject=gone), home=run.home, now=run.now)
    if left := git.resolve(brain, f"refs/heads/{branch}"):
        git.move_branch(brain, branch, theirs, expect=left)
    return replace(current, sha=theirs)


def _bring_main(run: _Run, tip: tuple[str, str] | None, *, replay: bool, push: bool) -> str | None:
    """Move main to the remote's commit and push accepted units; return its new commit, if it moved.

    Raises GitError, with nothing changed, if that is not possible.
    """
    brain, name = run.brain, run.remote.name
    branch, here = git.ready_branch(brain)
    waits = run.known.get(branch)
    is_unpushed = bool(
        waits and waits.state == "unpushed" and waits.sha and git.merge_base(brain, here, waits.sha) == waits.sha
    )
    if tip is not None and branch != tip[0]:
        hint = f"Run `git switch {tip[0]}` there first."
        raise GitError(f"{branch} is checked out in the brain, not {tip[0]}; nothing was pulled.", hint=hint)
    if tip is None and not (push or is_unpushed):
        raise GitError(f"{name} is empty.", hint="`nugget sync --rebase` pushes the brain.")
    there = tip[1] if tip else None
    new = _united(run, branch, here, there, may_replay=replay or is_unpushed) if there else here
    if new != here:
        moved = git.RefChange(ref=f"refs/heads/{branch}", new=new, expect=here)
        git.change_refs(brain, [moved], message=f"pull {name}/{branch}", checkout=True)
    if (is_unpushed or push) and run.may_push and new != there:
        _push_main(run, branch, new)
    elif is_unpushed and waits:
        run.note(replace(waits, state="settled", reason=None))
    return new if new != here else None


def _united(run: _Run, branch: str, here: str, there: str, *, may_replay: bool) -> str:
    """Return the commit with the history of both sides: one of them if it holds the other, else a replay."""
    name = run.remote.name
    base = git.merge_base(run.brain, there, here)
    if base is None:
        raise GitError(f"The brain and {name}/{branch} have no commit in common.", hint="Look at `git remote -v`.")
    if base in (here, there):
        return there if base == here else here
    if not may_replay:
        hint = "`nugget sync --rebase` puts those of this brain on top of the others, and pushes them."
        raise GitError(f"{branch} and {name}/{branch} each have commits of their own; nothing was pulled.", hint=hint)
    return _replayed(run, base, here, there)


def _push_main(run: _Run, branch: str, commit: str) -> None:
    """Push main; a failure is recorded for `nugget status` and retried the next time the remote is followed."""
    current = Publication(branch=branch, state="unpushed", sha=commit)
    try:
        if not remotes.push(run.brain, run.remote, commit, branch=branch):
            raise GitError(f"{run.remote.name}/{branch} moved meanwhile.", hint="`nugget sync` tries again.")
    except GitError as error:
        run.note(replace(publishing.failed(current, error), state="unpushed"))
        raise
    run.note(replace(current, state="settled"))


def _replayed(run: _Run, base: str, here: str, there: str) -> str:
    """Return a commit that replays the commits from `base` to `here` on top of `there`."""
    brain, new = run.brain, there
    for commit in git.run(brain, "rev-list", "--reverse", "--first-parent", f"{base}..{here}").decode().split():
        changes = git.changes(brain, f"{commit}^", commit)
        sides = git.read_objects(brain, [f"{at}:{one.path}" for one in changes for at in (new, f"{commit}^", commit)])
        ours, before, theirs = sides[0::3], sides[1::3], sides[2::3]
        contents: dict[str, bytes | None] = {}
        for change, *three in zip(changes, ours, before, theirs, strict=True):
            try:
                merged = review.merge_sides(change.path, *three)
            except ConflictError as error:
                raise ConflictError(
                    f"{error} Nothing was changed.",
                    hint=f"`git pull --rebase {run.remote.name}` in the brain settles it by hand, then `git push`.",
                ) from error
            if merged != three[0]:
                contents[change.path] = merged
        if contents:
            message = git.run(brain, "log", "-1", "--format=%B", commit).decode("utf-8", "replace")
            new = git.commit_files(brain, files=contents, message=message, parents=[new], now=run.now)
    return new


def _settle(run: _Run, publication: Publication) -> Publication:
    """Apply a decision made on the remote, once the checkout contains it."""
    brain, branch, state = run.brain, publication.branch, publication.state
    if state not in ("merged", "closed") or branch == git.current_branch(brain):
        return publication  # do not disturb a person who has checked out the branch
    if state == "merged":
        merged = git.resolve(brain, publication.merged_as) if publication.merged_as else None
        if merged is None or git.merge_base(brain, "HEAD", merged) != merged:
            return publication
    if git.resolve(brain, f"refs/heads/{branch}"):
        shown = review.show(brain, branch)
        pushed = git.changes(brain, shown.base, publication.sha) if publication.sha else []
        # Units added to a digest after its last push were not decided on; they wait on another branch.
        late = [file for file in shown.files if is_digest(branch) and file.path not in {one.path for one in pushed}]
        # New files that are missing from the merge were removed by the reviewer.
        gone = [file.path for file in shown.files if file not in late and
                (state == "closed" or (file.base is None and file.ours is None))]  # fmt: skip
        if late:
            name = numbered(branch, {one.name for one in git.branches(brain, BRANCH_PREFIX)})
            contents = {file.path: file.theirs for file in late}
            git.create_branch(brain, name, files=contents, message=shown.message, now=run.now)
        if gone:
            review.decide(brain, branch, Decision(reject=gone), home=run.home, now=run.now)
        if rest := git.resolve(brain, f"refs/heads/{branch}"):
            git.move_branch(brain, branch, None, expect=rest)
    return replace(publication, state="settled", reason=state)


def _merge_there(run: _Run, proposal: ProposalBranch, publication: Publication) -> Decided:
    """Merge a proposal's pull request on GitHub, and pull the merge."""
    brain, repository, branch = run.brain, run.repository, proposal.branch
    assert repository is not None
    if proposal.sha != publication.sha:
        remotes.push(brain, run.remote, proposal.sha, branch=branch, replacing=publication.sha)
    found = repository.pull(publication.number or 0)
    if found.state == "open" and found.head == proposal.sha:
        merged = repository.merge_pull(found.number, head=proposal.sha)
        run.note(replace(publication, state="merged", sha=proposal.sha, merged_as=merged, reason=None))
        with suppress(GitError):  # already deleted by GitHub, or protected
            remotes.push(brain, run.remote, None, branch=branch, replacing=proposal.sha)
    run = replace(run, known=publishing.publications(brain, home=run.home))
    followed = _follow(run, [], replay=True, push=False)
    if found.state == "closed" or (found.state == "open" and found.head != proposal.sha):
        said = "was turned down" if found.state == "closed" else "was edited"
        raise ReviewError(f"{branch} {said} on GitHub meanwhile; nothing was accepted.", hint="See `nugget review`.")
    into = git.current_branch(brain) or "the brain"
    pending = f"It is merged on GitHub, but not here yet: {followed.problems[0]}" if followed.problems else None
    return Decided(into=into, commit=git.head(brain) or "", files=proposal.files, pending=pending)


def _decide_here(run: _Run, branch: str, decision: Decision, *, page: str | None) -> Decided:
    """Accept on top of the remote's commit, and push before anything moves locally."""
    brain, name = run.brain, run.remote.name
    unreachable: GitError | None = None
    tip: tuple[str, str] | None = None
    try:
        tip = publishing.fetched(brain, run.remote)
    except GitError as error:
        if page is not None:  # accepted here and merged there, it would be in two histories
            raise
        unreachable = error
    into, _ = git.ready_branch(brain)
    if unreachable is None and tip is not None and tip[0] == into:
        _bring_main(run, tip, replay=False, push=False)
    pending: list[str] = []

    def share(into: str, commit: str) -> None:
        nonlocal unreachable
        if tip is not None and tip[0] != into:
            pending.append(f"It is on {into} alone, not on {name}/{tip[0]}.")
            return
        try:
            if unreachable is None and not remotes.push(brain, run.remote, commit, branch=into):
                raise ConflictError(f"{name}/{into} moved meanwhile; nothing was accepted.", hint="Try again.")
        except PushRefused as error:
            instead = "`nugget capture --publish` opens a pull request instead."
            where = f"Merge it there: {page}" if page else instead if run.repository else "Ask for the right to push."
            raise PushRefused(f"{error} Nothing was accepted.", hint=where) from error
        except GitError as error:
            unreachable = error
        current = Publication(branch=into, state="settled", sha=commit)
        if unreachable is not None:
            pending.append(f"It is not pushed yet: {unreachable} The next `nugget sync` tries again.")
            current = replace(current, state="unpushed", reason=str(unreachable))
        run.note(current)

    done = review.decide(brain, branch, decision, home=run.home, now=run.now, share=share)
    return replace(done, pending=pending[0] if pending else None)
