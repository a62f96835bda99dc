"""Status of a brain, its index and its capture, and checks of every part that name the next command. Reads only."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path

from nugget import __version__
from nugget.brain import knowledge_paths
from nugget.capture import queue
from nugget.config import RENAMED, Environment, Settings, is_known, read_brain_file, read_user_file, renamed_keys
from nugget.errors import IndexUnavailable, NuggetError, reason_of
from nugget.index import Index
from nugget.index.connection import find_damage, index_folder
from nugget.index.sync import pending_changes
from nugget.index.units import file_states
from nugget.infra import files, git, github
from nugget.models import Problem, Severity, SourceName
from nugget.sources.sessions import outdated_archives
from nugget.text import ago, counted
from nugget.upkeep.trust import default_brain

_COMMIT_TAKES = timedelta(seconds=10)


class State(StrEnum):
    """State of a part of Nugget."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was checked. `next_step` is what to do if it is not in order."""

    state: State
    name: str
    message: str
    next_step: str | None = None


_good, _odd, _wrong = (partial(CheckResult, state) for state in State)


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
    """Pull requests: addresses of the `open` ones; how many are not pulled yet, how many proposals have none."""

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
        index=_index_status(brain, environment), repository=_git_status(brain), proposals=len(waiting),
        capture=CaptureStatus(
            queue=dict(captured.counts), working=captured.working, last_captured=captured.last_captured,
            failures=tuple(map(queue.failure_of, captured.failed)), calls=spent.calls, usd=spent.usd,
        ),
        publishing=_publishing_status(brain, environment.home, waiting), misplaced=tuple(read_brain_file(brain)[2]),
    )  # fmt: skip


def _index_status(brain: Path, environment: Environment) -> IndexStatus:
    file = _index_file(brain, environment)
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


def _index_file(brain: Path, environment: Environment) -> Path | None:
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
        remote = github.find_remote(brain) if git.is_repository(brain) else None
        known = publications(brain, home=home) if remote else {}
    except NuggetError:
        remote = None
    if remote is None:
        return PublishingStatus()
    failed = [entry for entry in known.values() if entry.state == "failed" and entry.branch in waiting]
    return PublishingStatus(
        remote=re.sub(r"(?<=://)[^/@]+@", "", remote.url),
        open=tuple(entry.url or entry.branch for entry in known.values() if entry.state == "open"),
        merged=sum(entry.state == "merged" for entry in known.values()),
        local=sum(branch not in known or known[branch].state == "failed" for branch in waiting),
        failures=tuple(f"{entry.branch}: {entry.reason}" for entry in failed),
    )


def doctor(brain: Path, settings: Settings, environment: Environment, *, now: datetime) -> list[CheckResult]:
    """Look at every part, deeper than `status`; an ERROR among the findings means that something does not work."""

    def of_status() -> Iterator[CheckResult]:
        seen = status(brain, settings, environment)
        yield from _check_git(seen, now)
        yield from _check_index(seen, environment)
        yield from _check_capture(seen, settings, environment)

    found: list[CheckResult] = []
    for check in (
        of_status, partial(_check_files, brain, settings), partial(_check_canon, brain, settings, environment),
        partial(_check_model, brain, settings, environment), partial(_check_settings, brain, environment),
        partial(_check_folders, brain, environment), partial(_check_clients, environment),
    ):  # fmt: skip
        try:
            found += check()
        except Exception as error:
            found.append(_wrong("check", reason_of(error), getattr(error, "hint", None)))
    return found


def _check_git(seen: Status, now: datetime) -> Iterator[CheckResult]:
    """Check the repository, and the locks in it: a young one belongs to a commit under way and is fine."""
    brain, state = seen.brain, seen.repository
    if state is None:
        yield _wrong("git", f"{brain} is no git repository: no history, no proposals", f"nugget init {brain}")
        return
    if state.problem:
        yield _wrong("git", state.problem, f"git -C {brain} status tells more")
    elif state.head is None:
        yield _wrong("git", "the brain has no commit yet", f"nugget init {brain}")
    elif found := git.unsettled(brain):
        yield _odd("git", f"the brain is {found[0]}: nothing can be added or accepted", f"{found[1]} in {brain}")
    elif state.uncommitted:
        yield _good("git", f"{counted(state.uncommitted, 'uncommitted file')} under domains/")
    else:
        yield _good("git", f"{state.branch}, everything committed")
    for lock in git.lock_files(brain):
        with suppress(FileNotFoundError):
            since = datetime.fromtimestamp(lock.lstat().st_mtime, UTC)
            if now - since > _COMMIT_TAKES:
                message = f"{lock} was made {ago(since, now)}: while it is there, git refuses to commit"
                step = "end the git that is at work there; if there is none, nugget doctor --repair"
                yield _wrong("git lock", message, step)


def _check_index(seen: Status, environment: Environment) -> Iterator[CheckResult]:
    state, file = seen.index, _index_file(seen.brain, environment)
    if state.state == "absent":
        yield _odd("index", "there is none yet; the first question makes it", "nugget sync")
    elif state.state == "unusable":
        yield _wrong("index", state.reason or "it cannot be used", "nugget rebuild")
    elif damage := find_damage(file) if file else None:
        yield _wrong("index", f"it is damaged ({damage})", "nugget rebuild")
    elif state.behind:
        yield _odd("index", f"not in it yet: {counted(state.behind, 'changed file')}", "nugget sync")
    else:
        sizes = ((state.units, "unit"), (state.chunks, "chunk"), (state.vectors, "vector"))
        yield _good("index", ", ".join(counted(count, noun) for count, noun in sizes))
    if state.model and state.vectors < state.chunks:
        yield _odd("vectors", f"missing for {counted(state.chunks - state.vectors, 'chunk')}", "nugget sync")
    elif state.vector_search:
        yield _good("vectors", f"searched with {state.vector_search}")


def _check_files(brain: Path, settings: Settings) -> Iterator[CheckResult]:
    from nugget.brain.lint import lint

    problems = lint(brain, settings=settings)
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if errors:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        yield _wrong("knowledge files", f"{errors[0]}{more}", "nugget lint")
    elif problems:
        yield _odd("knowledge files", counted(len(problems), "warning"), "nugget lint")
    else:
        yield _good("knowledge files", "all can be read")


def _check_canon(brain: Path, settings: Settings, environment: Environment) -> Iterator[CheckResult]:
    from nugget.sources.notes import open_canon

    if not settings.canon.folders:
        return
    source = open_canon(environment, settings, brain)
    notes = sum(1 for _ in source.files())
    if problems := (*source.problems, *source.left_out):
        yield from (_odd("canon", str(problem), None) for problem in problems)
    else:
        yield _good("canon", f"{counted(notes, 'note')} in {counted(len(source.folders), 'folder')}")


def _check_model(brain: Path, settings: Settings, environment: Environment) -> Iterator[CheckResult]:
    from nugget.infra.embedding import open_embedder

    name, model = "embedding model", settings.embedding.model
    try:
        if embedder := open_embedder(settings, environment):
            vector = embedder.embed_query("Does the model answer?")
            index = _index_status(brain, environment)
            if index.units and index.model != embedder.model:
                made = f"with vectors of {index.model}" if index.model else "without vectors"
                yield _odd(name, f"{embedder.model} answers, but the index was made {made}", "nugget sync")
            else:
                yield _good(name, f"{embedder.model} answers, {len(vector)} dimensions")
        else:
            yield _good(name, "none: questions are answered by words alone")
    except NuggetError as error:
        step = error.hint or "correct `embedding.model` with `nugget config set`; until then words alone are searched"
        yield _wrong(name, f"{model} cannot be used: {error}", step)
    key = "ANTHROPIC_API_KEY is set (not tried: that costs money)"
    has_key = key if environment.anthropic_api_key else "no ANTHROPIC_API_KEY: passages instead of answers"
    yield _good("LLM", has_key if settings.llm.enabled else "switched off by llm.enabled")


def _check_settings(brain: Path, environment: Environment) -> Iterator[CheckResult]:
    user_file, mine, brain_file = environment.home / "config.yaml", read_user_file(environment), brain / "brain.yaml"
    _, problems, misplaced = read_brain_file(brain)
    unknown = [key for key in mine if not is_known(key) and key not in ("brain", "version", *RENAMED)]
    if old := renamed_keys(environment):
        yield _odd("settings", f"{', '.join(old)}: called `extraction.with` now", "nugget config set extraction.with …")
    if unknown:
        yield _odd("settings", f"{user_file}: nothing is called {', '.join(unknown)}", f"correct it in {user_file}")
    for problem in problems:
        yield _odd("settings", f"{problem}; it is ignored", f"correct it in {brain_file}")
    if misplaced:
        named = ", ".join(f"{key} (line {entry.line})" for key, entry in misplaced.items())
        move = "" if misplaced.keys() <= mine.keys() else "nugget config move, then "
        message = f"brain.yaml: ignored, because only your own configuration may set {named}"
        yield _odd("settings", message, f"{move}delete {counted(len(misplaced), 'key')} from {brain_file}")
    if not (unknown or problems or misplaced or old):
        yield _good("settings", ", ".join(map(str, filter(Path.is_file, (brain_file, user_file)))))


def _check_folders(brain: Path, environment: Environment) -> Iterator[CheckResult]:
    home = environment.home
    nearest = next(folder for folder in [home, *home.parents] if folder.exists())
    if not os.access(nearest, os.W_OK):
        yield _wrong("folders", f"{home} cannot be written: nothing can be captured", f"make {nearest} writable")
    elif not os.access(brain, os.W_OK):
        yield _odd("folders", f"{brain} is read-only: questions work, capture does not", f"make {brain} writable")
    else:
        yield _good("folders", f"{brain} and {home} can be written")
    roots = [folder for folder in (home, brain / ".nugget") if folder.is_dir()]
    if exposed := files.exposed(*roots):
        more = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
        step = f"chmod -R go-rwx {shlex.join(map(str, roots))}"
        yield _odd("privacy", f"others on this machine have rights to {exposed[0]}{more}", step)
    else:
        yield _good("privacy", "what Nugget keeps is readable by you alone")


def _check_capture(seen: Status, settings: Settings, environment: Environment) -> Iterator[CheckResult]:
    state = seen.capture
    if state.failures:
        failed = counted(len(state.failures), "session")
        yield _wrong("capture", f"{failed} failed; {state.failures[0]}", "nugget capture --retry")
    elif state.queue.get("pending") and not state.working:
        waiting = counted(state.queue["pending"], "session")
        yield _odd("capture", f"nobody works on {waiting} in the queue", "nugget capture")
    else:
        yield _good("capture", f"last: {(state.last_captured or 'never')[:16].replace('T', ' ')}")
    if old := outdated_archives(environment.home, settings):
        yield _odd("archive", f"{counted(len(old), 'session')} redacted by older rules", "nugget capture --re-redact")
    if seen.proposals:
        yield _odd("review", f"waiting for you: {counted(seen.proposals, 'proposal')}", "nugget review")
    if failures := seen.publishing.failures:
        yield _wrong("publishing", f"not published: {failures[0]}", "nugget capture --publish")


def _check_clients(environment: Environment) -> Iterator[CheckResult]:
    from nugget.upkeep import clients
    from nugget.upkeep.install import SettingsScope, inspect

    name, found = "Claude Code", inspect(environment)
    for seen in found:
        is_mine = seen.scope is SettingsScope.USER
        step = "nugget install" if is_mine else f"cd {seen.folder} && nugget install --scope project"
        where = "" if is_mine else f"{seen.folder}: "
        lacking = [f"no {part}" for part in seen.missing] + [f"an outdated {part}" for part in seen.outdated]
        if seen.broken:
            yield _wrong(name, where + seen.broken, step)
        elif seen.present and lacking:
            yield _odd(name, f"{where}not all is in place: {', '.join(lacking)}", step)
        elif seen.present:
            yield _good(name, f"{where}connected: captures sessions, asks the brain")
    if not environment.claude_config.is_dir():
        yield _good(name, "not on this machine")
    elif not any(seen.present or seen.broken for seen in found):
        yield _odd(name, "not connected: sessions are not captured, nobody asks", "nugget install")
    yield from (_good(title, said) for title, said in clients.connections(environment))
