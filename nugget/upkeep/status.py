"""Status of a brain, its index and its capture: what is indexed, queued, failed, proposed. Reads only."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from nugget import __version__
from nugget.brain import knowledge_paths
from nugget.capture import queue
from nugget.config import Environment, Settings, read_brain_file
from nugget.errors import IndexUnavailable, NuggetError
from nugget.index import Index
from nugget.index.connection import index_folder
from nugget.index.sync import pending_changes
from nugget.infra import git
from nugget.models import Problem, SourceName
from nugget.upkeep.trust import default_brain


class State(StrEnum):
    """State of a part of Nugget."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
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
class CaptureState:
    """Capture: the queue by state, when something was captured last, what failed and why, what LLM calls cost."""

    queue: Mapping[str, int]
    working: bool
    last_captured: str | None
    failures: tuple[str, ...]
    calls: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """The brain's repository; `unsettled` is, for example, `in the middle of a merge`. Empty without a repository.

    `problem` says why nothing can be known of the one there is: git is not installed, or refuses.
    """

    branch: str | None = None
    head: str | None = None
    uncommitted: int = 0
    unsettled: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingState:
    """Proposals on GitHub, as the last look at it left them.

    `remote` is the address that the brain is pushed to; `open` are the addresses of pull requests; `merged` counts
    those whose commit is not pulled yet, `local` the proposals without one, `failures` say what went wrong.
    """

    remote: str | None = None
    open: tuple[str, ...] = ()
    merged: int = 0
    local: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything that `nugget status` shows. `misplaced` are keys that brain.yaml may not set, and that are ignored."""

    version: str
    brain: Path
    is_default: bool
    configured_model: str
    has_key: bool
    index: IndexState
    repository: GitState | None
    proposals: int
    capture: CaptureState
    publishing: PublishingState
    misplaced: tuple[str, ...]


def status(brain: Path, settings: Settings, environment: Environment) -> Status:
    """Return the status of the brain and of capture. Writes and loads nothing."""
    usual = default_brain(environment)
    return Status(
        version=__version__, brain=brain, is_default=usual is not None and usual.resolve() == brain.resolve(),
        configured_model=settings.embedding.model, has_key=bool(environment.anthropic_api_key),
        index=index_state(brain, environment), repository=_git_state(brain), proposals=proposals(brain),
        capture=capture_state(environment.home), publishing=publishing_state(brain, environment.home),
        misplaced=tuple(read_brain_file(brain)[2]),
    )  # fmt: skip


def index_state(brain: Path, environment: Environment) -> IndexState:
    """Return how the index relates to the files."""
    file = index_file(brain, environment)
    if file is None or not file.is_file():
        files = sum(1 for _ in knowledge_paths(brain))
        return IndexState(state="absent", reason="there is no index yet", files=files)
    try:
        with closing(Index(file)) as index:
            counts = index.counts()
            behind = pending_changes(brain, environment) or 0
            states = index.file_states(SourceName.BRAIN)
            return IndexState(
                state="behind" if behind else "ready", behind=behind, units=counts["units"], chunks=counts["chunks"],
                vectors=counts["vectors"], relations=counts["relationships"], files=counts["files"],
                bytes=file.stat().st_size, model=index.embedding_model, model_problem=index.model_problem(),
                vector_search=index.vector_search if index.embedding_model else None,
                problems=tuple(problem for path in sorted(states) for problem in states[path].problems),
            )  # fmt: skip
    except (IndexUnavailable, sqlite3.DatabaseError) as error:
        return IndexState(state="unusable", reason=str(error))


def index_file(brain: Path, environment: Environment) -> Path | None:
    """Return the path of the index, without making its folder in a brain that has none yet."""
    if not (brain / ".nugget").is_dir() and os.access(brain, os.W_OK):
        return None
    return index_folder(brain, environment) / "index.db"


def _git_state(brain: Path) -> GitState | None:
    if not git.is_repository(brain):
        return None
    try:
        state = git.state(brain)
        unsettled = found[0] if state.head and (found := git.unsettled(brain)) else None
        branch = git.current_branch(brain)
    except NuggetError as error:
        return GitState(problem=str(error).rstrip("."))
    return GitState(branch=branch, head=state.head, uncommitted=len(state.dirty), unsettled=unsettled)


def proposals(brain: Path) -> int:
    """Count the proposals that wait for review."""
    from nugget.capture.review import proposals

    try:
        return len(proposals(brain))
    except NuggetError:
        return 0


def publishing_state(brain: Path, home: Path) -> PublishingState:
    """Return the state of the proposals that go out as pull requests."""
    from nugget.capture.publish import publications
    from nugget.capture.review import proposals

    try:
        remote = git.find_remote(brain) if git.is_repository(brain) else None
        known = publications(brain, home=home) if remote else {}
        waiting = {proposal.branch for proposal in proposals(brain)} if remote else set()
    except NuggetError:
        return PublishingState()
    failed = [entry for entry in known.values() if entry.state == "failed" and entry.branch in waiting]
    return PublishingState(
        remote=re.sub(r"(?<=://)[^/@]+@", "", remote.url) if remote else None,
        open=tuple(entry.url or entry.branch for entry in known.values() if entry.state == "open"),
        merged=sum(entry.state == "merged" for entry in known.values()),
        local=sum(branch not in known or known[branch].state == "failed" for branch in waiting),
        failures=tuple(f"{entry.branch}: {entry.reason}" for entry in failed),
    )


def capture_state(home: Path) -> CaptureState:
    """Return the state of capture: the queue, its failures and what was spent."""
    from nugget.infra.llm import spending

    seen, spent = queue.overview(home), spending(home)
    failures = [f"{job.session or job.transcript or job.name}: {job.reason or 'unknown'}" for job in seen.failed]
    return CaptureState(
        queue=dict(seen.counts), working=seen.working, last_captured=seen.last_captured, failures=tuple(failures),
        calls=spent.calls, usd=spent.usd,
    )  # fmt: skip


def when(stamp: str | None) -> str:
    """Return a stored time as people read it, `never` for none."""
    try:
        return datetime.fromisoformat(stamp or "").strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return "never"
