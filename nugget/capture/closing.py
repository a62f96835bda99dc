"""Close the pull requests of published proposals that were turned down here, and delete their remote branches.

The ledgers remember what is to be closed, so that it can be done later: without network or token now, the next
`nugget capture --publish` or run of the worker does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from nugget.capture import ledger
from nugget.capture import publish as publishing
from nugget.capture.identity import brain_key
from nugget.capture.publish import Publication, Published, PublishTarget
from nugget.config import Environment, Settings
from nugget.errors import GitError, GitHubError, NuggetError
from nugget.infra import git
from nugget.infra.github import Repository

MAX_NAMED = 20
"""So many ids the comment on a pull request names."""


def close_pull_requests(
    brain: Path, *, environment: Environment, settings: Settings, now: datetime, forced: bool = False
) -> Published:
    """Close the pull request of every proposal that was turned down here, with a comment, and delete its branch.

    Failures are values: `failed` and `local` say what is still to be done, and why. `forced` overrides
    `capture.publish: never`.
    """
    home = environment.home
    if not _to_close(brain, home):
        return Published()
    if settings.capture.publish == "never" and not forced:
        return Published(local="capture.publish is `never`")
    target = publishing.find_target(brain, environment)
    if isinstance(target, str):
        return Published(local=target)
    done: list[Publication] = []
    with publishing.locked(brain, home):
        known = publishing.publications(brain, home=home)
        repository = target.open()
        for publication, ids in _to_close(brain, home):
            try:
                current = _close_one(brain, publication, target=target, repository=repository, ids=ids)
            except NuggetError as error:
                # The last line of the ledger still says `open`, so that the next attempt finds it.
                said = " ".join(filter(None, [str(error), error.hint]))
                done.append(replace(publication, state="failed", reason=said))
                continue
            publishing.note(brain, home, current, known=known, now=now)
            done.append(current)
    return Published(publications=tuple(done))


def _to_close(brain: Path, home: Path) -> list[tuple[Publication, Sequence[str]]]:
    """Return the pull requests to close, each with the ids of its rejected units."""
    known = publishing.publications(brain, home=home)
    open_still = [entry for entry in known.values() if entry.state in ("open", "failed") and entry.number is not None]
    if not open_still:
        return []
    turned_down = ledger.rejected_units(home, brain=brain_key(brain, home))
    return [
        (entry, turned_down[entry.branch])
        for entry in open_still
        if entry.branch in turned_down and git.resolve(brain, f"refs/heads/{entry.branch}") is None
    ]


def _close_one(
    brain: Path, publication: Publication, *, target: PublishTarget, repository: Repository, ids: Sequence[str]
) -> Publication:
    assert publication.number is not None
    remarks: list[str] = []
    try:
        pull = repository.close_pull(publication.number, comment=_comment(ids))
    except GitHubError as error:
        pull = repository.pull(publication.number)
        if pull.state == "open":
            raise
        remarks.append(f"without a comment: {error}")
    if publication.sha and pull.state == "closed":
        try:
            git.delete_remote_branch(brain, target.remote, publication.branch, expect=publication.sha)
        except GitError as error:
            remarks.append(f"its branch stays on {target.remote.name}: {error}")
    reason = pull.state if pull.state == "merged" else "; ".join(["closed", *remarks])
    return replace(publication, state="settled", reason=reason, url=pull.url)


def _comment(ids: Sequence[str]) -> str:
    named = ", ".join(f"`{name}`" for name in ids[:MAX_NAMED]) or "Its edits"
    more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return f"Turned down with `nugget review reject`: {named}{more}. It will not be proposed again."
