"""Status of a brain, its index, its remote and its capture. Reads only."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from nugget import __version__
from nugget.brain import knowledge_paths
from nugget.capture import queue
from nugget.config import Environment, Settings, read_brain_file
from nugget.errors import IndexUnavailable, NuggetError
from nugget.index import Index
from nugget.index.connection import index_folder
from nugget.index.sync import pending_changes
from nugget.index.units import file_states
from nugget.infra import git, remotes
from nugget.models import Problem, SourceName
from nugget.text import counted
from nugget.upkeep.trust import default_brain


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """The index. `state` is `ready`, `behind`, `absent` or `unusable`; `behind` counts files not indexed yet.

    `files` are those that were read for it; while it is absent, those that it will be made from.
    """

    state: str
    reason: str | None = None
    behind: int = 0
    units: int = 0
    chunks: int = 0
    vectors: int = 0
    relations: int = 0
    files: int = 0
    bytes: int = 0
    model: str | None = None
    model_problem: str | None = None
    vector_search: str | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStatus:
    """Capture: the queue by state, when something was captured last, what failed and why, what LLM calls cost."""

    queue: Mapping[str, int]
    working: bool
    last_captured: str | None
    failures: tuple[str, ...]
    calls: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GitStatus:
    """The brain's repository, with `problem` if git is not installed, or refuses."""

    branch: str | None = None
    head: str | None = None
    uncommitted: int = 0
    unsettled: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingStatus:
    """The remote as it was last seen, and pull requests.

    `ahead` and `behind` count the commits that only the brain and only the remote has, None if it was never seen;
    `unpushed` says why what was accepted is not there yet. Addresses of the `open` pull requests; how many are `merged`
    but not pulled yet, how many proposals have none.
    """

    remote: str | None = None
    ahead: int | None = None
    behind: int | None = None
    unpushed: str | None = None
    open: tuple[str, ...] = ()
    merged: int = 0
    local: int = 0
    failures: tuple[str, ...] = ()

    @property
    def drift(self) -> tuple[str, str] | None:
        """How brain and remote differ, and the command that changes that; None if they do not."""
        if self.remote is None or (self.ahead, self.behind) == (0, 0):
            return None
        if self.unpushed:
            return f"accepted, but not pushed ({self.unpushed.rstrip('.')})", "nugget sync"
        if self.ahead is None or self.behind is None:
            return "not compared with the remote yet", "nugget sync --pull"
        if self.ahead and self.behind:
            said = f"{counted(self.ahead, 'commit')} of its own, and {self.behind} behind the remote"
            return f"diverged: {said}", "nugget sync --rebase"
        if self.ahead:
            return f"{counted(self.ahead, 'commit')} ahead of the remote", "nugget sync --rebase, which pushes"
        return f"{counted(self.behind, 'commit')} behind the remote", "nugget sync --pull"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything that `nugget status` shows. `misplaced` are keys that brain.yaml may not set, and that are ignored."""

    version: str
    brain: Path
    is_default: bool
    configured_model: str
    has_key: bool
    index: IndexStatus
    repository: GitStatus | None
    proposals: int
    capture: CaptureStatus
    publishing: PublishingStatus
    misplaced: tuple[str, ...]


def status(brain: Path, settings: Settings, environment: Environment) -> Status:
    """Return the status of the brain and of capture. Writes and loads nothing."""
    from nugget.capture.review import proposals
    from nugget.infra.llm import spending

    captured, spent = queue.overview(environment.home), spending(environment.home)
    usual = default_brain(environment)
    waiting: set[str] = set()
    with suppress(NuggetError):
        waiting = {proposal.branch for proposal in proposals(brain)}
    return Status(
        version=__version__, brain=brain, is_default=usual is not None and usual.resolve() == brain.resolve(),
        configured_model=settings.embedding.model, has_key=bool(environment.anthropic_api_key),
        index=index_status(brain, environment), repository=_git_status(brain), proposals=len(waiting),
        capture=CaptureStatus(
            queue=dict(captured.counts), working=captured.working, last_captured=captured.last_captured,
            failures=tuple(map(queue.failure_of, captured.failed)), calls=spent.calls, usd=spent.usd,
        ),
        publishing=_publishing_status(brain, environment.home, waiting), misplaced=tuple(read_brain_file(brain)[2]),
    )  # fmt: skip


def index_status(brain: Path, environment: Environment) -> IndexStatus:
    """Return the state of a brain's index."""
    file = index_file(brain, environment)
    if file is None or not file.is_file():
        return IndexStatus(state="absent", reason="there is no index yet", files=sum(1 for _ in knowledge_paths(brain)))
    try:
        with closing(Index(file)) as index:
            counts, states = index.counts(), file_states(index.connection, SourceName.BRAIN)
            behind = pending_changes(brain, environment) or 0
            return IndexStatus(
                state="behind" if behind else "ready", behind=behind, units=counts["units"], chunks=counts["chunks"],
                vectors=counts["vectors"], relations=counts["relationships"], files=counts["files"],
                bytes=file.stat().st_size, model=index.embedding_model, model_problem=index.model_problem(),
                vector_search=index.vector_search if index.embedding_model else None,
                problems=tuple(problem for path in sorted(states) for problem in states[path].problems),
            )  # fmt: skip
    except (IndexUnavailable, sqlite3.DatabaseError) as error:
        return IndexStatus(state="unusable", reason=str(error))


def index_file(brain: Path, environment: Environment) -> Path | None:
    """Return the path of the index, without making its folder in a brain that has none yet."""
    if not (brain / ".nugget").is_dir() and os.access(brain, os.W_OK):
        return None
    return index_folder(brain, environment) / "index.db"


def _git_status(brain: Path) -> GitStatus | None:
    if not git.is_repository(brain):
        return None
    try:
        state = git.state(brain)
        unsettled = found[0] if state.head and (found := git.unsettled(brain)) else None
        branch = git.current_branch(brain)
    except NuggetError as error:
        return GitStatus(problem=str(error).rstrip("."))
    return GitStatus(branch=branch, head=state.head, uncommitted=len(state.dirty), unsettled=unsettled)


def _publishing_status(brain: Path, home: Path, waiting: set[str]) -> PublishingStatus:
    from nugget.capture.publish import publications

    try:
        remote = remotes.find_remote(brain) if git.is_repository(brain) else None
        known = publications(brain, home=home) if remote else {}
    except NuggetError:
        remote = None
    if remote is None:
        return PublishingStatus()
    failed = [entry for entry in known.values() if entry.state == "failed" and entry.branch in waiting]
    branch = git.current_branch(brain) or ""
    apart = git.distance(brain, "HEAD", f"refs/remotes/{remote.name}/{branch}")
    main = known.get(branch)
    return PublishingStatus(
        remote=re.sub(r"(?<=://)[^/@]+@", "", remote.url),
        ahead=apart[0] if apart else None,
        behind=apart[1] if apart else None,
        unpushed=main.reason if main and main.state == "unpushed" else None,
        open=tuple(entry.url or entry.branch for entry in known.values() if entry.state == "open"),
        merged=sum(entry.state == "merged" for entry in known.values()),
        local=sum(branch not in known or known[branch].state == "failed" for branch in waiting),
        failures=tuple(f"{entry.branch}: {entry.reason}" for entry in failed),
    )
