"""Publish proposals as pull requests.

push -> pull request -> a person merges or closes it on GitHub -> `nugget.capture.following` -> sync -> answers.
Until then the local branch is the source of truth: if a step fails, the units stay on it, the ledger records why, and
the next attempt continues. Every step checks first what has been done, so it can be repeated at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from nugget.capture import ledger, review
from nugget.capture.proposals import is_digest
from nugget.capture.review import ProposalBranch
from nugget.config import Environment, Settings
from nugget.errors import ForgeError, GitError, NuggetError
from nugget.infra import files, git, remotes
from nugget.infra.forges import Forge, fit_body
from nugget.infra.remotes import Target

PUBLISHED = "published.jsonl"
"""The ledger of published proposals and their outcomes; the last line about a branch counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A proposal on GitHub. `state` is `failed` (and `reason` says why), `open`, `merged`, `closed` or `settled`.

    The main branch is `unpushed` after something was accepted that could not be pushed yet (and `reason` says why).
    `sha` is the pushed commit, `merged_as` the commit of the merge on the remote, `text` a hash of our title and text.
    A publication is `settled` once a merge or rejection has been applied locally.
    """

    branch: str
    state: str
    sha: str | None = None
    number: int | None = None
    url: str | None = None
    merged_as: str | None = None
    reason: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Result of publishing. `local` says why everything stays local, if it does."""

    publications: tuple[Publication, ...] = ()
    local: str | None = None

    @property
    def failed(self) -> tuple[Publication, ...]:
        """Return the publications that failed."""
        return tuple(publication for publication in self.publications if publication.state == "failed")


def publications(brain: Path, *, home: Path) -> dict[str, Publication]:
    """Return the last known state of each published proposal by branch."""
    own = ledger.brain_key(brain, home)
    names, known = Publication.__slots__, files.read_lines(home / "ledger" / PUBLISHED)
    lines = (line for line in known if line.get("brain") == own and line.keys() >= {"branch", "state"})
    return {line["branch"]: Publication(**{name: line[name] for name in names if name in line}) for line in lines}


def publish(
    brain: Path, *, environment: Environment, settings: Settings, now: datetime, forced: bool = False
) -> Published:
    """Open a pull request for each waiting proposal that has none; `forced` overrides `capture.publish: never`.

    A proposal that cannot be published stays local, and its publication says why.
    """
    target = find_target(brain, environment, None if forced else settings)
    if isinstance(target, str):
        return Published(local=target)
    with locked(brain, environment.home):
        known = publications(brain, home=environment.home)
        # Skip proposals decided on GitHub, and open pull requests that are up to date.
        waiting = [
            proposal for proposal in review.proposals(brain)
            if (one := known.get(proposal.branch)) is None or one.state == "failed"
            or (one.state == "open" and one.sha != proposal.sha)
        ]  # fmt: skip
        if not waiting:
            return Published()
        reached: tuple[remotes.Remote, Forge, tuple[str, str]] | NuggetError
        try:
            remote, repository = connect(brain, target)
            if (tip := fetched(brain, remote)) is None:
                hint = "Run `nugget sync --rebase`, which pushes the brain, then `nugget capture --publish`."
                raise GitError(f"{remote.name} is empty: there is no branch to propose anything for.", hint=hint)
            reached = remote, repository, tip
        except NuggetError as error:
            reached = error
        done: list[Publication] = []
        for proposal in waiting:
            before = known.get(proposal.branch)
            try:
                if isinstance(reached, NuggetError):
                    raise reached
                done.append(_open(brain, proposal, before, *reached, settings.capture_labels))
            except NuggetError as error:
                done.append(failed(before or Publication(branch=proposal.branch, state="failed"), error))
        for publication in done:
            note(brain, environment.home, publication, known=known, now=now)
    return Published(publications=tuple(done))


def _open(
    brain: Path, proposal: ProposalBranch, before: Publication | None, remote: remotes.Remote, repository: Forge,
    tip: tuple[str, str], labels: Sequence[str],
) -> Publication:  # fmt: skip
    """Push a proposal, open a pull request for it unless it has one, and return the publication."""
    sha, reason = proposal.sha, None
    found, is_pushed = repository.find_pull(proposal.branch), False
    if found is None or found.state == "open":
        sha = _on_remote_base(brain, proposal, tip, remote)
        # The push is refused if somebody else pushed to the branch; their commits stay.
        replacing = before.sha if before and before.sha != sha else None
        is_pushed = remotes.push(brain, remote, sha, branch=proposal.branch, replacing=replacing)
    is_new = before is None or before.sha is None
    if is_new and not is_pushed and _is_foreign(brain, remote, proposal.branch, sha):
        hint = f"Rename it in the brain: `git branch -m {proposal.branch} {proposal.branch}-2`."
        raise GitError(f"{remote.name} has another branch {proposal.branch}.", hint=hint)
    if before and before.sha and not is_pushed:
        sha = before.sha
    pull = found or repository.open_pull(proposal.branch, base=tip[0], title=proposal.title, body=proposal.body)
    text = before.text if before else None
    try:
        if found is None:
            text = _text_key(proposal.title, proposal.body)
        elif before and is_pushed and sha != before.sha and _text_key(found.title, found.body) == before.text:
            repository.edit_pull(found.number, title=proposal.title, body=proposal.body)  # nobody has edited it
            text = _text_key(proposal.title, proposal.body)
        if is_digest(proposal.branch):
            units = [file.unit for file in proposal.files if file.unit]
            labels = list(dict.fromkeys([*labels, *(one.type for one in units), *(one.domain or "" for one in units)]))
        if labels and (found is None or is_digest(proposal.branch)):
            repository.label(pull.number, [label[:50] for label in labels if label])
    except ForgeError as error:
        reason = f"without labels: {error}" if found is None else str(error)
    return Publication(
        branch=proposal.branch, state=pull.state, sha=sha, number=pull.number, url=pull.url, merged_as=pull.merged_as,
        reason=reason, text=text,
    )  # fmt: skip


def _text_key(title: str, body: str) -> str:
    return ledger.text_key(f"{title[:250]}\n{fit_body(body)}")


def _is_foreign(brain: Path, remote: remotes.Remote, branch: str, sha: str) -> bool:
    """Return True if the remote has an unrelated branch of this name."""
    try:
        theirs = remotes.fetch(brain, remote, branch)
    except GitError:  # it is gone
        return False
    return git.merge_base(brain, theirs, sha) not in (theirs, sha)


def close_pull_requests(
    brain: Path, *, environment: Environment, settings: Settings, now: datetime, forced: bool = False
) -> Published:
    """Close the pull request of every proposal that was rejected here, with a comment, and delete its branch.

    `failed` and `local` say what could not be done and why; the next `nugget capture --publish` or worker tries
    again. `forced` overrides `capture.publish: never`.
    """
    home = environment.home
    target = find_target(brain, environment, None if forced else settings)
    done: list[Publication] = []
    with locked(brain, home):
        known = publications(brain, home=home)
        rejected = ledger.rejected_units(home, brain=ledger.brain_key(brain, home))
        closing = [
            one for one in known.values()
            if one.state in ("open", "failed") and one.number is not None and one.branch in rejected
            and git.resolve(brain, f"refs/heads/{one.branch}") is None
        ]  # fmt: skip
        if not closing or isinstance(target, str):
            return Published(local=str(target) if closing else None)
        remote, repository = target.remote, target.open(target.name)
        for publication in closing:
            try:
                current = _close(brain, publication, remote, repository, rejected[publication.branch])
                note(brain, home, current, known=known, now=now)
            except NuggetError as error:
                current = failed(publication, error)  # not recorded, so that the next attempt finds it open
            done.append(current)
    return Published(publications=tuple(done))


def _close(
    brain: Path, publication: Publication, remote: remotes.Remote, repository: Forge, ids: Sequence[str]
) -> Publication:
    named = ", ".join(f"`{name}`" for name in ids) or "Its edits"
    comment = f"Turned down with `nugget review reject`: {named}. It will not be proposed again."
    number, remarks = publication.number or 0, list[str]()
    try:
        pull = repository.close_pull(number, comment=comment)
    except ForgeError as error:
        pull = repository.pull(number)
        if pull.state == "open":
            raise
        remarks.append(f"without a comment: {error}")
    if publication.sha and pull.state == "closed":
        try:
            remotes.push(brain, remote, None, branch=publication.branch, replacing=publication.sha)
        except GitError as error:
            remarks.append(f"its branch stays on {remote.name}: {error}")
    reason = pull.state if pull.state == "merged" else "; ".join(["closed", *remarks])
    return replace(publication, state="settled", reason=reason, url=pull.url)


def find_target(brain: Path, environment: Environment, settings: Settings | None = None) -> Target | str:
    """Return the target of proposals, or the reason why they stay local. Makes no network call."""
    if settings is not None and settings.capture_publish == "never":
        return "capture.publish is `never`"
    if (remote := remotes.find_remote(brain)) is None:
        return "the brain has no remote"
    return remotes.find_target(remote, environment)


def connect(brain: Path, target: Target) -> tuple[remotes.Remote, Forge]:
    """Return a remote and its repository on the forge; the address of a renamed one is updated."""
    repository, remote = target.open(target.name), target.remote
    if (name := repository.current_name()).lower() != target.name.lower():
        remote = replace(remote, url=remote.url.replace(target.name, name))
        git.run(brain, "remote", "set-url", "--", remote.name, remote.url)
        repository = target.open(name)
    return remote, repository


def locked(brain: Path, home: Path) -> AbstractContextManager[None]:
    """Hold the lock for changes to a brain's pull requests."""
    return files.locked(ledger.lock_file(home, ledger.brain_key(brain, home), "-publish"))


def note(brain: Path, home: Path, publication: Publication, *, known: Mapping[str, Publication], now: datetime) -> None:
    """Add a publication to the ledger, unless it is unchanged."""
    if known.get(publication.branch) != publication:
        values = {name: value for name, value in asdict(publication).items() if value is not None}
        line = {"time": now.isoformat(), "brain": ledger.remember_brain(brain, home)}
        files.append_line(home / "ledger" / PUBLISHED, line | values)


def failed(publication: Publication, error: NuggetError) -> Publication:
    """Return a publication as failed, with the reason and the hint."""
    return replace(publication, state="failed", reason=error.with_hint)


def _on_remote_base(brain: Path, proposal: ProposalBranch, tip: tuple[str, str], remote: remotes.Remote) -> str:
    """Return the proposal's commit based on a commit that the remote has.

    Unpushed commits of the user are not published with a proposal: its files are committed on the merge base, and the
    local branch moves there.
    """
    shared = git.merge_base(brain, tip[1], proposal.sha)
    if shared is None:
        hint = "Look at `git remote -v` in the brain: is it the right repository?"
        raise GitError(f"The brain and {remote.name}/{tip[0]} have no commit in common.", hint=hint)
    if git.merge_base(brain, proposal.base, tip[1]) == proposal.base:
        return proposal.sha
    contents = {file.path: file.theirs for file in proposal.files}
    sha = git.commit_files(brain, files=contents, message=proposal.message, parents=[shared], now=proposal.made)
    git.move_branch(brain, proposal.branch, sha, expect=proposal.sha)
    return sha


def fetched(brain: Path, remote: remotes.Remote) -> tuple[str, str] | None:
    """Fetch the remote's default branch; return its name and commit, None for an empty remote."""
    there = remotes.default_branch(brain, remote)
    return None if there is None else (there, remotes.fetch(brain, remote, there))
