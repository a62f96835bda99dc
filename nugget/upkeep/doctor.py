"""Check every part and name the next command; `repair` puts right what killed processes and failing disks left."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from nugget.capture.identity import write_id
from nugget.config import Environment, Settings, is_known, read_brain_file, read_user_file
from nugget.errors import GitError, NuggetError, reason_of
from nugget.index.connection import find_damage, remove_database
from nugget.infra import files, git
from nugget.models import Severity
from nugget.sources import archive
from nugget.text import ago, counted, printable
from nugget.upkeep.status import State, capture_state, index_file, index_state, proposals, publishing_state, when

_COMMIT_TAKES = timedelta(seconds=10)
_LEFTOVER = re.compile(r"\..+\.(?:(?P<process>\d+)\.[0-9a-f]{8}|[0-9a-f]{32})(?:\.partial)?")
"""Temporary files of ours, with the process that made them; those of 0.1.0 have none."""
_OF_GIT = ("objects/pack/tmp_*", "objects/??/tmp_obj_*", "fast_import_crash_*")
_GIT_TAKES_S = 10.0
_UNKNOWN_TAKES_S = 3600.0
"""Age from which a lock or temporary file of an unknown process counts as left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was checked. `next_step` is what to do if it is not in order."""

    name: str
    state: State
    message: str
    next_step: str | None = None


def _good(name: str, message: str) -> Finding:
    return Finding(name=name, state=State.OK, message=message)


def _odd(name: str, message: str, next_step: str | None) -> Finding:
    return Finding(name=name, state=State.WARNING, message=message, next_step=next_step)


def _wrong(name: str, message: str, next_step: str | None) -> Finding:
    return Finding(name=name, state=State.ERROR, message=message, next_step=next_step)


def doctor(brain: Path, settings: Settings, environment: Environment, *, now: datetime) -> list[Finding]:
    """Look at every part, deeper than `status`; an ERROR among the findings means that something does not work."""
    found: list[Finding] = []
    for check in (
        partial(_check_git, brain, now), partial(_check_index, brain, environment),
        partial(_check_files, brain, settings), partial(_check_canon, brain, settings, environment),
        partial(_check_model, brain, settings, environment), partial(_check_settings, brain, environment),
        partial(_check_folders, brain, environment),
        partial(_check_capture, brain, settings, environment), partial(_check_claude_code, environment),
    ):  # fmt: skip
        try:
            found += check()
        except Exception as error:
            found.append(_wrong("check", reason_of(error), getattr(error, "hint", None)))
    return found


def _check_git(brain: Path, now: datetime) -> Iterator[Finding]:
    """Check the repository, and the locks in it: a young one belongs to a commit under way and is fine."""
    if not git.is_repository(brain):
        yield _wrong("git", f"{brain} is no git repository: no history, no proposals", f"nugget init {brain}")
        return
    try:
        state = git.state(brain)
    except GitError as error:
        yield _wrong("git", str(error).rstrip("."), error.hint)
    else:
        if state.head is None:
            yield _wrong("git", "the brain has no commit yet", f"nugget init {brain}")
        elif found := git.unsettled(brain):
            yield _odd("git", f"the brain is {found[0]}: nothing can be added or accepted", f"{found[1]} in {brain}")
        elif state.dirty:
            yield _good("git", f"{counted(len(state.dirty), 'uncommitted file')} under domains/")
        else:
            yield _good("git", f"{git.current_branch(brain)}, everything committed")
    for lock in git.lock_files(brain):
        with suppress(FileNotFoundError):
            since = datetime.fromtimestamp(lock.lstat().st_mtime, UTC)
            if now - since > _COMMIT_TAKES:
                message = f"{lock} was made {ago(since, now)}: while it is there, git refuses to commit"
                step = "end the git that is at work there; if there is none, nugget doctor --repair"
                yield _wrong("git lock", message, step)


def _check_index(brain: Path, environment: Environment) -> Iterator[Finding]:
    state, file = index_state(brain, environment), index_file(brain, environment)
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


def _check_files(brain: Path, settings: Settings) -> Iterator[Finding]:
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


def _check_canon(brain: Path, settings: Settings, environment: Environment) -> Iterator[Finding]:
    from nugget.sources.notes import open_canon

    if not settings.canon.folders:
        return
    source = open_canon(environment, settings, brain)
    notes = sum(1 for _ in source.files())
    if problems := (*source.problems, *source.left_out):
        yield from (_odd("canon", str(problem), None) for problem in problems)
    else:
        yield _good("canon", f"{counted(notes, 'note')} in {counted(len(source.folders), 'folder')}")


def _check_model(brain: Path, settings: Settings, environment: Environment) -> Iterator[Finding]:
    from nugget.infra.embedding import open_embedder

    name, model = "embedding model", settings.embedding.model
    try:
        if embedder := open_embedder(settings, environment):
            vector = embedder.embed_query("Does the model answer?")
            index = index_state(brain, environment)
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
    if not settings.llm.enabled:
        yield _good("LLM", "switched off by llm.enabled")
    elif environment.anthropic_api_key:
        yield _good("LLM", "ANTHROPIC_API_KEY is set (not tried: that costs money)")
    else:
        yield _good("LLM", "no ANTHROPIC_API_KEY: passages instead of answers, capture by rules")


def _check_settings(brain: Path, environment: Environment) -> Iterator[Finding]:
    user_file, mine, brain_file = environment.home / "config.yaml", read_user_file(environment), brain / "brain.yaml"
    _, problems, misplaced = read_brain_file(brain)
    unknown = [key for key in mine if not is_known(key) and key not in ("brain", "version")]
    if unknown:
        yield _odd("settings", f"{user_file}: nothing is called {', '.join(unknown)}", f"correct it in {user_file}")
    for problem in problems:
        yield _odd("settings", f"{problem}; it is ignored", f"correct it in {brain_file}")
    if misplaced:
        named = ", ".join(f"{key} (line {entry.line})" for key, entry in misplaced.items())
        move = "" if misplaced.keys() <= mine.keys() else "nugget config move, then "
        message = f"brain.yaml: ignored, because only your own configuration may set {named}"
        yield _odd("settings", message, f"{move}delete {counted(len(misplaced), 'key')} from {brain_file}")
    if not (unknown or problems or misplaced):
        yield _good("settings", ", ".join(map(str, filter(Path.is_file, (brain_file, user_file)))))


def _check_folders(brain: Path, environment: Environment) -> Iterator[Finding]:
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


def _check_capture(brain: Path, settings: Settings, environment: Environment) -> Iterator[Finding]:
    state = capture_state(environment.home)
    if state.failures:
        failed = counted(len(state.failures), "session")
        yield _wrong("capture", f"{failed} failed; {state.failures[0]}", "nugget capture --retry")
    elif state.queue.get("pending") and not state.working:
        waiting = counted(state.queue["pending"], "session")
        yield _odd("capture", f"nobody works on {waiting} in the queue", "nugget capture")
    else:
        yield _good("capture", f"last: {when(state.last_captured)}")
    if old := archive.outdated(environment.home, settings):
        yield _odd("archive", f"{counted(len(old), 'session')} redacted by older rules", "nugget capture --re-redact")
    if count := proposals(brain):
        yield _odd("review", f"waiting for you: {counted(count, 'proposal')}", "nugget review")
    if failures := publishing_state(brain, environment.home).failures:
        yield _wrong("publishing", f"not published: {failures[0]}", "nugget capture --publish")


def _check_claude_code(environment: Environment) -> Iterator[Finding]:
    from nugget.upkeep.client_settings import Scope
    from nugget.upkeep.install import inspect

    name, found = "Claude Code", inspect(environment)
    for seen in found:
        is_mine = seen.scope is Scope.USER
        step = "nugget install" if is_mine else f"cd {seen.folder} && nugget install --scope project"
        where = "" if is_mine else f"{seen.folder}: "
        lacking = [f"no {part}" for part in seen.missing] + [f"an outdated {part}" for part in seen.outdated]
        if seen.broken:
            yield _wrong(name, where + seen.broken, step)
        elif seen.present and lacking:
            yield _odd(name, f"{where}not all is in place: {', '.join(lacking)}", step)
        elif seen.present:
            yield _good(name, f"{where}connected: captures sessions, asks the brain")
    if not any(seen.present or seen.broken for seen in found):
        if environment.claude_config.is_dir():
            yield _odd(name, "not connected: sessions are not captured, nobody asks", "nugget install")
        else:
            yield _good(name, "not on this machine")


def repair(brain: Path, home: Path) -> list[str]:
    """Finish or drop half changes, remove stale locks and leftovers, and remove databases that are damaged.

    Returns a sentence for each thing done, and for each that could not be. Removed databases are derived: the next
    sync rebuilds them.
    """
    messages: list[str] = []
    steps = [_leftovers(brain, home), _databases(brain, home)]
    if git.is_repository(brain):
        steps = [_locks(brain), _half_change(brain), _identity(brain, home), *steps, _objects(brain)]
    for step in steps:
        try:
            messages += step
        except (NuggetError, OSError) as error:
            messages.append(f"Not repaired: {error}")
    if mended := files.make_private(*(folder for folder in (home, brain / ".nugget") if folder.is_dir())):
        messages.append(f"Took the rights of others off {counted(len(mended), 'file')} of Nugget's.")
    return messages


def _locks(brain: Path) -> Iterator[str]:
    """Remove the locks of a git that is gone."""
    for lock in git.lock_files(brain):
        with suppress(FileNotFoundError):
            age_s = time.time() - lock.lstat().st_mtime
            at_work = _git_at_work(brain)
            if at_work:
                yield f"Left {lock}: git (process {at_work[0]}) is at work in {brain}."
            elif age_s > (_UNKNOWN_TAKES_S if at_work is None else _GIT_TAKES_S):
                lock.unlink()
                yield f"Removed {lock}: the git that made it {age_s:.0f} s ago is gone."


def _git_at_work(brain: Path) -> list[int] | None:
    """Return the git processes in a folder; None if this system does not tell."""
    if not Path("/proc/self/cwd").exists():
        return None
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_git = (process / "comm").read_text("utf-8", "replace").startswith("git")
            if is_git and (process / "cwd").resolve().is_relative_to(brain):
                found.append(int(process.name))
    return found


def _half_change(brain: Path) -> Iterator[str]:
    if (git.git_dir(brain) / "nugget" / "work").exists():
        with git.only_writer(brain):
            pass
        yield "Finished or dropped the change that a killed command left."


def _identity(brain: Path, home: Path) -> Iterator[str]:
    """Write the id of a brain that was made before brains had one."""
    if named := write_id(brain, home):
        yield f"Wrote the id of the brain, {named}, to brain.yaml and committed it."


def _leftovers(brain: Path, home: Path) -> Iterator[str]:
    """Remove temporary files of processes that are gone."""
    for file in (file for root in (home, brain / ".nugget", brain / "domains") for file in root.rglob(".*")):
        found = _LEFTOVER.fullmatch(file.name)
        with suppress(FileNotFoundError):
            if found and file.is_file() and _is_abandoned(file, found["process"]):
                file.unlink()
                whose = f"process {found['process']}, which is gone" if found["process"] else "an older version"
                yield f"Removed {printable(str(file))}, left by {whose}."


def _is_abandoned(file: Path, process: str | None) -> bool:
    try:
        os.kill(int(process or ""), 0)
    except (ProcessLookupError, ValueError):
        return True
    except (OSError, OverflowError):
        pass
    return time.time() - file.stat().st_mtime > _UNKNOWN_TAKES_S


def _objects(brain: Path) -> Iterator[str]:
    """Remove git's own leftovers, and name what `git fsck` finds: lost objects can only come from another clone."""
    files_of_git = [file for pattern in _OF_GIT for file in git.git_dir(brain).glob(pattern)]
    abandoned = [file for file in files_of_git if time.time() - file.stat().st_mtime > _UNKNOWN_TAKES_S]
    for file in abandoned:
        file.unlink()
    if abandoned:
        yield f"Removed {counted(len(abandoned), 'temporary file')} of git's."
    try:
        git.run(brain, "fsck", "--no-dangling", "--no-progress", timeout_s=600)
    except GitError as error:
        hint = "fetch what is missing from a clone or the remote (`git fetch`), or clone the brain again"
        yield f"Not repaired: {str(error).rstrip('.')}; {hint}."


def _databases(brain: Path, home: Path) -> Iterator[str]:
    """Remove every index with damage in it, and what an interrupted rebuild left."""
    for folder in [home, *(home / "indexes").glob("*"), home / "memory-indexes", brain / ".nugget"]:
        for file in sorted(folder.glob("*.db")):
            if damage := find_damage(file):
                remove_database(file)
                yield f"Removed {printable(str(file))}, which was damaged ({printable(damage)}); it is rebuilt."
        for file in sorted(folder.glob("*.db.new")):
            remove_database(file)
            yield f"Removed {printable(str(file))}, left by an interrupted rebuild."
