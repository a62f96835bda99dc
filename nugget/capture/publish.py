"""Publishing: proposals become pull requests, and what was decided there comes back.

push -> pull request -> a person merges or closes it on GitHub -> sync_pull_requests -> pull -> sync -> answers.
The local branch is the truth until then: whatever fails, the units wait on it, the ledger says why, and the next
attempt goes on from there. Every step first looks at what is there already, so it can be repeated at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nugget.capture import ledger, review
from nugget.capture.review import ProposalBranch
from nugget.config import Environment, Settings
from nugget.errors import GitError, GitHubError, NuggetError
from nugget.infra import files, git, github
from nugget.infra.github import Repository

PUBLISHED = "published.jsonl"
"""The ledger of what became of each published proposal: the last line about a branch counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A proposal on GitHub. `state` is `failed` (and `reason` says why), `open`, `merged`, `closed` or `settled`.

    `sha` is the commit that we pushed; `merged_as` the commit that the remote has instead; `settled` is what was
    merged or closed and is taken care of here.
    """

    branch: str
    state: str
    sha: str | None = None
    number: int | None = None
    url: str | None = None
    merged_as: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Result of an attempt to publish. `local` says why everything stays local, if it does."""

    publications: tuple[Publication, ...] = ()
    local: str | None = None

    @property
    def failed(self) -> tuple[Publication, ...]:
        """Return the proposals that are still local because something went wrong."""
        return tuple(publication for publication in self.publications if publication.state == "failed")


class _Target(NamedTuple):
    remote: github.Remote
    open: Callable[[], Repository]  # PyGithub takes a while to import


def publications(brain: Path, *, home: Path) -> dict[str, Publication]:
    """Return what is known of each published proposal, by branch. Reads only."""
    own = ledger.brain_key(brain, home)
    kinds = {"branch": str, "state": str, "number": int, "sha": str, "url": str, "merged_as": str, "reason": str}
    known: dict[str, Publication] = {}
    for line in files.read_lines(home / "ledger" / PUBLISHED):
        values: dict[str, Any] = {key: line[key] for key, kind in kinds.items() if isinstance(line.get(key), kind)}
        if line.get("brain") == own and values.keys() >= {"branch", "state"}:
            known[values["branch"]] = Publication(**values)
    return known


def publish(
    brain: Path, *, environment: Environment, settings: Settings, now: datetime, forced: bool = False
) -> Published:
    """Open a pull request for every proposal that waits without one; `forced` overrides `capture.publish: never`.

    Failures are values: each failed proposal says why, and stays where it is.
    """
    target = _find_target(brain, environment, None if forced else settings)
    if isinstance(target, str):
        return Published(local=target)
    with _locked(brain, environment.home):
        known = publications(brain, home=environment.home)
        # Left alone: what is decided on GitHub, and open pull requests of the very commit.
        waiting = [
            proposal for proposal in review.proposals(brain)
            if (one := known.get(proposal.branch)) is None or one.state == "failed"
            or (one.state == "open" and one.sha != proposal.sha)
        ]  # fmt: skip
        if not waiting:
            return Published()
        reached: tuple[tuple[str, str], Repository] | NuggetError
        try:
            reached = _fetched_tip(brain, target.remote), target.open()
        except NuggetError as error:
            reached = error
        done: list[Publication] = []
        for proposal in waiting:
            before = known.get(proposal.branch)
            try:
                if isinstance(reached, NuggetError):
                    raise reached
                done.append(_open(brain, proposal, before, target.remote, *reached, settings.capture.labels))
            except NuggetError as error:
                done.append(_failed(before or Publication(branch=proposal.branch, state="failed"), error))
        for publication in done:
            _note(brain, environment.home, publication, known=known, now=now)
    return Published(publications=tuple(done))


def _open(
    brain: Path, proposal: ProposalBranch, before: Publication | None, remote: github.Remote, tip: tuple[str, str],
    repository: Repository, labels: Sequence[str],
) -> Publication:  # fmt: skip
    """Push a proposal and return its pull request, which is opened unless there is one."""
    sha, reason = proposal.sha, None
    found = repository.find_pull(proposal.branch)
    if found is None or found.state == "open":
        sha = _on_remote_base(brain, proposal, tip, remote)
        # Refused if somebody works on the remote's branch: what they made of it stands.
        replacing = before.sha if before and before.sha != sha else None
        github.push(brain, remote, sha, branch=proposal.branch, replacing=replacing)
    pull = found or repository.open_pull(proposal.branch, base=tip[0], title=proposal.title, body=proposal.body)
    if labels and found is None:
        try:
            repository.label(pull.number, labels)
        except GitHubError as error:
            reason = f"without labels: {error}"
    return Publication(
        branch=proposal.branch, state=pull.state, sha=sha, number=pull.number, url=pull.url, merged_as=pull.merged_as,
        reason=reason,
    )  # fmt: skip


def close_pull_requests(
    brain: Path, *, environment: Environment, settings: Settings, now: datetime, forced: bool = False
) -> Published:
    """Close the pull request of every proposal that was rejected here, with a comment, and delete its branch.

    Failures are values: `failed` and `local` say what is still to be done, and why; the next `nugget capture --publish`
    or run of the worker does it. `forced` overrides `capture.publish: never`.
    """
    home = environment.home
    target = _find_target(brain, environment, None if forced else settings)
    done: list[Publication] = []
    with _locked(brain, home):
        known = publications(brain, home=home)
        rejected = ledger.rejected_units(home, brain=ledger.brain_key(brain, home))
        closing = [
            one for one in known.values()
            if one.state in ("open", "failed") and one.number is not None and one.branch in rejected
            and git.resolve(brain, f"refs/heads/{one.branch}") is None
        ]  # fmt: skip
        if not closing or isinstance(target, str):
            return Published(local=str(target) if closing else None)
        repository = target.open()
        for publication in closing:
            try:
                current = _close(brain, publication, target.remote, repository, rejected[publication.branch])
                _note(brain, home, current, known=known, now=now)
            except NuggetError as error:
                current = _failed(publication, error)  # not noted: the ledger still says `open` for the next attempt
            done.append(current)
    return Published(publications=tuple(done))


def _close(
    brain: Path, publication: Publication, remote: github.Remote, repository: Repository, ids: Sequence[str]
) -> Publication:
    named = ", ".join(f"`{name}`" for name in ids) or "Its edits"
    comment = f"Turned down with `nugget review reject`: {named}. It will not be proposed again."
    number, remarks = publication.number or 0, list[str]()
    try:
        pull = repository.close_pull(number, comment=comment)
    except GitHubError as error:
        pull = repository.pull(number)
        if pull.state == "open":
            raise
        remarks.append(f"without a comment: {error}")
    if publication.sha and pull.state == "closed":
        try:
            github.push(brain, remote, None, branch=publication.branch, replacing=publication.sha)
        except GitError as error:
            remarks.append(f"its branch stays on {remote.name}: {error}")
    reason = pull.state if pull.state == "merged" else "; ".join(["closed", *remarks])
    return replace(publication, state="settled", reason=reason, url=pull.url)


def sync_pull_requests(brain: Path, *, environment: Environment, now: datetime) -> list[Publication]:
    """Look at what became of open pull requests, and follow it here; returns those that changed.

    Merged and in the checkout: the local branch goes; files that the reviewer took out are remembered as rejected.
    Merged and not pulled yet: nothing but a note. Closed: rejected. Raises GitError, GitHubError, once all that can
    be followed has been.
    """
    home = environment.home
    states = {publication.state for publication in publications(brain, home=home).values()}
    if states.isdisjoint(("open", "merged", "closed")):
        return []
    target = _find_target(brain, environment) if "open" in states else ""
    changed: list[Publication] = []
    obstacle: NuggetError | None = None
    with _locked(brain, home):
        known, repository = publications(brain, home=home), target.open() if isinstance(target, _Target) else None
        for publication in known.values():
            current = publication
            try:
                if publication.state == "open" and repository is not None and publication.number is not None:
                    found = repository.pull(publication.number)
                    current = replace(publication, state=found.state, merged_as=found.merged_as, url=found.url)
                current = _follow(brain, current, home=home, now=now)
            except NuggetError as error:
                obstacle = error
            if current != publication:
                _note(brain, home, current, known=known, now=now)
                changed.append(current)
    if obstacle is not None and not changed:
        raise obstacle
    return changed


def pull(brain: Path, *, environment: Environment) -> str | None:
    """Fast-forward a clean checkout of the default branch to what the remote holds; the new commit, None for none.

    Raises GitError with what stands in the way, and changes nothing then.
    """
    remote = github.find_remote(brain) if git.is_repository(brain) else None
    if remote is None:
        raise GitError("The brain has no remote to pull from.", hint="`git remote add origin URL` gives it one.")
    branch, here = git.ready_branch(brain)
    if github.repository_name(remote.url, api_url=environment.github_api_url) is not None:
        remote = _with_token(remote, environment)
    there = github.default_branch(brain, remote)
    if there is None:
        return None
    if branch != there:
        raise GitError(
            f"{branch} is checked out in the brain, not {there}; nothing was pulled.",
            hint=f"Run `git switch {there}` there first.",
        )
    tip = github.fetch(brain, remote, there)
    if tip == here or git.merge_base(brain, tip, here) == tip:
        return None
    if git.merge_base(brain, tip, here) != here:
        raise GitError(
            f"{branch} and {remote.name}/{branch} each have commits of their own; nothing was pulled.",
            hint=f"Run `git pull --rebase {remote.name} {branch}` in the brain, then `git push`.",
        )
    git.move_checkout(brain, branch, tip, expect=here, message=f"pull {remote.name}/{branch}")
    return tip


def _find_target(brain: Path, environment: Environment, settings: Settings | None = None) -> _Target | str:
    """Return where proposals go, or why they stay local, also by settings if given. Makes no network call."""
    if settings is not None and settings.capture.publish == "never":
        return "capture.publish is `never`"
    remote, api_url = github.find_remote(brain) if git.is_repository(brain) else None, environment.github_api_url
    if remote is None:
        return "the brain has no remote"
    if (name := github.repository_name(remote.url, api_url=api_url)) is None:
        return f"{remote.name} is not on {github.web_host(api_url)}"
    if (token := github.find_token(environment)) is None:
        return "there is no GitHub token (GITHUB_TOKEN, or `gh auth login`)"
    connect = partial(Repository, name, token=token, api_url=api_url)
    return _Target(_with_token(remote, environment, token), connect)


def _with_token(remote: github.Remote, environment: Environment, token: str | None = None) -> github.Remote:
    token = token or github.find_token(environment)
    trusted = github.may_see_token(remote.url, api_url=environment.github_api_url)
    return replace(remote, token=token) if token and trusted else remote


def _locked(brain: Path, home: Path) -> AbstractContextManager[None]:
    """Hold the lock for changes to a brain's pull requests."""
    return files.locked(ledger.lock_file(home, ledger.brain_key(brain, home), "-publish"))


def _note(
    brain: Path, home: Path, publication: Publication, *, known: Mapping[str, Publication], now: datetime
) -> None:
    """Add a line to the ledger, unless it says what the last one did."""
    if known.get(publication.branch) != publication:
        values = {name: value for name, value in asdict(publication).items() if value is not None}
        line = {"time": now.isoformat(), "brain": ledger.remember_brain(brain, home)}
        files.append_line(home / "ledger" / PUBLISHED, line | values)


def _failed(publication: Publication, error: NuggetError) -> Publication:
    return replace(publication, state="failed", reason=" ".join(filter(None, [str(error), error.hint])))


def _on_remote_base(brain: Path, proposal: ProposalBranch, tip: tuple[str, str], remote: github.Remote) -> str:
    """Return the proposal's commit on top of what the remote has.

    Commits of the user that were never pushed are not published with a proposal: its files alone are put on the
    last commit that both sides share, and the local branch follows.
    """
    shared = git.merge_base(brain, tip[1], proposal.sha)
    if shared is None:
        raise GitError(
            f"The brain and {remote.name}/{tip[0]} have no commit in common.",
            hint="Look at `git remote -v` in the brain: is it the right repository?",
        )
    if shared == proposal.sha or git.resolve(brain, f"{proposal.sha}^") == shared:
        return proposal.sha
    contents = {file.path: file.theirs for file in proposal.files}
    sha = git.commit_files(brain, files=contents, message=proposal.message, parents=[shared], now=proposal.made)
    git.move_branch(brain, proposal.branch, sha, expect=proposal.sha)
    return sha


def _follow(brain: Path, publication: Publication, *, home: Path, now: datetime) -> Publication:
    """Do here what was decided there, as far as the checkout holds it."""
    branch, state = publication.branch, publication.state
    if state not in ("merged", "closed") or branch == git.current_branch(brain):
        return publication  # a person who looks at the branch right now is not disturbed
    if state == "merged":
        merged = git.resolve(brain, publication.merged_as) if publication.merged_as else None
        if merged is None or git.merge_base(brain, "HEAD", merged) != merged:
            return publication
    if git.resolve(brain, f"refs/heads/{branch}"):
        left = review.show(brain, branch).files
        # New files that did not come with the merge were taken out by the reviewer.
        gone = [file.path for file in left if file.base is None and file.ours is None]
        if state == "closed" or gone:
            review.reject(brain, branch, home=home, now=now, units=None if state == "closed" else gone)
        if rest := git.resolve(brain, f"refs/heads/{branch}"):
            git.move_branch(brain, branch, None, expect=rest)
    return replace(publication, state="settled", reason=state)


def _fetched_tip(brain: Path, remote: github.Remote) -> tuple[str, str]:
    there = github.default_branch(brain, remote)
    if there is None:
        branch = git.current_branch(brain) or "main"
        raise GitError(
            f"{remote.name} is empty: there is no branch to propose anything for.",
            hint=f"Run `git push -u {remote.name} {branch}` in the brain, then `nugget capture --publish`.",
        )
    return there, github.fetch(brain, remote, there)
