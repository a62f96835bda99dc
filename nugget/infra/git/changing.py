"""The one way in which Nugget changes a repository: whole, or not at all.

Commits are built as objects first, which nobody sees. Under one lock, `change_refs` then holds git's `index.lock`,
makes sure that nothing of the user's would be overwritten, stages everything that the checkout will need in
`.git/nugget/work`, writes the intent there, moves the branches, and brings checkout and index along. Whatever dies on
the way leaves that folder, and the next command drops the change (no branch has moved) or finishes it (one has).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from nugget.errors import BrainError, ConflictError, GitError, NuggetError
from nugget.infra import files
from nugget.infra.git.checkout import DURABLE, place, refuse_uncommitted, stage, stage_index, write
from nugget.infra.git.process import PATIENCE_S, locked, run, start
from nugget.infra.git.reading import (
    EMPTY_TREE,
    Change,
    changes,
    current_branch,
    git_dir,
    head,
    is_repository,
    resolve,
    unsettled,
)

_WAITING = (
    ("core.filesRefLockTimeout", f"{PATIENCE_S * 1000:.0f}"),
    ("core.packedRefsTimeout", f"{PATIENCE_S * 1000:.0f}"),
)
_LOCKS_OF_CHECKOUT = ("index.lock", "HEAD.lock")
_LOCKS_OF_REPOSITORY = ("packed-refs.lock", "reftable/tables.list.lock", "config.lock")
_UPDATE_TAKES_S = 1.0
"""A `git update-ref` that outlived its killed parent has ended after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChange:
    """A branch that is made (`expect` None), moved, or deleted (`new` None) while it still points at `expect`."""

    ref: str
    new: str | None
    expect: str | None


LedgerLine = tuple[Path, str, Mapping[str, Any]]
"""A line for a ledger: `$NUGGET_HOME`, name and content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intent:
    """A change under way: its branches, whether the checkout follows the first, and the lines for ledgers."""

    refs: list[RefChange]
    checkout: bool
    lines: list[LedgerLine]


@contextmanager
def only_writer(repo: Path, *, wait_s: float = 60.0) -> Iterator[Path]:
    """Hold the lock of everything that changes a repository, after finishing what a killed writer left half done.

    Yields the folder for temporary files. May be nested. Raises ConflictError if another process holds the lock for
    `wait_s` seconds, BrainError if the folder is no git repository or cannot be written.
    """
    from filelock import FileLock, Timeout  # a tenth of a second, which commands that only read need not wait

    if not is_repository(repo):
        raise BrainError(f"{repo} is no git repository; nothing was changed.", hint=f"Run `nugget init {repo}`.")
    work = _work(repo)
    with clear_errors(work.parent):
        work.parent.mkdir(mode=0o700, exist_ok=True)
        lock = FileLock(work.parent / "lock", is_singleton=True)
        nested = lock.is_locked
        try:
            lock.acquire(timeout=wait_s)
        except Timeout:
            hint = "Try again when it is done; `ps` shows what it is."
            raise ConflictError(f"Another nugget has been writing in {repo} for {wait_s:g} s.", hint=hint) from None
    try:
        with clear_errors(repo):
            if not nested:
                _finish(repo)
            work.mkdir(mode=0o700, exist_ok=True)
        yield work
    finally:
        if not nested and not (work / "intent.json").exists():
            _drop(repo)
        lock.release()


def finish_pending(repo: Path) -> None:
    """Finish the change that a killed command left half done; cheap if there is none.

    Left for later if another command is at work, or the disk is full.
    """
    if _work(repo).exists():
        with suppress(NuggetError, OSError), only_writer(repo, wait_s=0):
            pass


def ready_branch(repo: Path) -> tuple[str, str]:
    """Return the checked-out branch and its commit. Raises BrainError if the user is in the middle of something."""
    if not is_repository(repo) or (tip := head(repo)) is None:
        raise BrainError(f"{repo} is no git repository with a commit.", hint=f"Run `nugget init {repo}`.")
    branch = current_branch(repo)
    if (found := unsettled(repo)) or branch is None:
        state, step = found or ("on a detached HEAD", "`git switch <branch>`")
        raise BrainError(f"The brain is {state}; nothing was changed.", hint=f"{step} ends that; then run this again.")
    return branch, tip


def change_refs(
    repo: Path, refs: Sequence[RefChange], *, message: str, checkout: bool = False, lines: Sequence[LedgerLine] = ()
) -> None:
    """Make, move and delete branches in one step; with `checkout`, the first is checked out, and its files follow.

    Once the first branch has moved, `lines` are added to their ledgers.

    Raises ConflictError if a branch moved or a file that would change has uncommitted work in it, GitError if git is
    locked or fails: nothing was changed then, or the message says that only the checkout is left to be brought along.
    """
    with only_writer(repo) as work, clear_errors(repo):
        wait_until_free(repo)
        try:
            if checkout:
                _hold_index(repo, work)
                if (f"refs/heads/{current_branch(repo)}", resolve(repo, refs[0].ref)) != (refs[0].ref, refs[0].expect):
                    raise _moved(refs[0])
                changed = _changed_files(repo, refs[0])
                refuse_uncommitted(repo, changed)
                stage(repo, work, [change.after for change in changed if change.after])
                stage_index(repo, work, changed)
            named = [(str(home), name, dict(line)) for home, name, line in lines]
            write(work, "intent.json", json.dumps([[astuple(ref) for ref in refs], checkout, named]).encode())
            _move_ref(repo, refs[0], message)
        except BaseException:
            with suppress(NuggetError, OSError):
                _finish(repo)
            raise
        try:
            _finish(repo)
        except (NuggetError, OSError) as error:
            raise GitError(
                f"{message.rstrip('.')}: this is committed, but not every file in {repo} follows yet ({error}).",
                hint="See to that; the next nugget command brings the rest along.",
            ) from error


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a BrainError that names the file and what to look at."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "Check the permissions of the folder and the free space on the disk."
        raise BrainError(f"{error.filename or path} cannot be written ({reason}).", hint=hint) from error


def _work(repo: Path) -> Path:
    return git_dir(repo) / "nugget" / "work"


def _finish(repo: Path) -> None:
    """Carry out the rest of the intent if its first branch has moved; drop it if not."""
    work = _work(repo)
    if (intent := _read_intent(work)) is not None:
        _drop_stale_locks(repo, since=(work / "intent.json").stat().st_mtime)
        if _reached(repo, intent.refs[0]):
            for home, name, line in intent.lines:
                files.append_line(home / "ledger" / name, line, once=True)
            if intent.checkout:
                _hold_index(repo, work)
                changed = _changed_files(repo, intent.refs[0])
                place(repo, work, changed)
                stage_index(repo, work, changed)
                (work / "index").replace(git_dir(repo) / "index")
            for change in intent.refs[1:]:
                if not _reached(repo, change):
                    with suppress(ConflictError):  # moved on by the user meanwhile
                        _move_ref(repo, change, "finish")
    _drop(repo)


def _drop(repo: Path) -> None:
    """Remove everything temporary; the intent first, and `index.lock` before the file by which it is known as ours."""
    work = _work(repo)
    (work / "intent.json").unlink(missing_ok=True)
    lock = git_dir(repo) / "index.lock"
    with suppress(FileNotFoundError):
        if lock.samefile(work / "mark"):
            lock.unlink()
    shutil.rmtree(work, ignore_errors=True)


def _read_intent(work: Path) -> _Intent | None:
    """Return the change under way; None if there is none."""
    try:
        refs, checkout, *lines = json.loads((work / "intent.json").read_bytes())
    except FileNotFoundError:
        return None
    return _Intent(
        refs=[RefChange(ref=ref, new=new, expect=expect) for ref, new, expect in refs],
        checkout=checkout,
        lines=[(Path(home), name, line) for home, name, line in (lines[0] if lines else ())],
    )


def _changed_files(repo: Path, change: RefChange) -> list[Change]:
    return changes(repo, change.expect or EMPTY_TREE, change.new) if change.new else []


def _reached(repo: Path, change: RefChange) -> bool:
    """Return whether a branch is where the change wanted it, or was there and went on."""
    if change.new is None or resolve(repo, change.ref) is None:
        return change.new is None and resolve(repo, change.ref) is None
    return start(repo, ("merge-base", "--is-ancestor", change.new, change.ref)).returncode == 0


def _drop_stale_locks(repo: Path, *, since: float) -> None:
    """Delete the locks of branches that a killed `git update-ref` of ours left."""
    held: dict[Path, os.stat_result] = {}
    for lock in lock_files(repo):
        with suppress(FileNotFoundError):
            if lock.name not in ("index.lock", "config.lock") and (status := lock.lstat()).st_mtime >= since:
                held[lock] = status
    if held:
        time.sleep(_UPDATE_TAKES_S)
    for lock, status in held.items():
        with suppress(FileNotFoundError):
            if os.path.samestat(lock.lstat(), status):
                lock.unlink()


def _hold_index(repo: Path, work: Path) -> None:
    """Take git's own lock of the index, as a link to a file of ours: a stale one can be told from another's."""
    mark, lock = work / "mark", git_dir(repo) / "index.lock"
    mark.touch()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            os.link(mark, lock)
        except FileExistsError:
            with suppress(FileNotFoundError):
                if lock.samefile(mark):
                    return
            if time.monotonic() > deadline:
                raise locked(repo, lock) from None
            time.sleep(0.1)
        except OSError:  # a file system without hard links: git's lock is not held
            return
        else:
            return


def _move_ref(repo: Path, change: RefChange, message: str) -> None:
    if change.new is None:
        line = f"delete {change.ref} {change.expect}\n"
    elif change.expect is None:
        line = f"create {change.ref} {change.new}\n"
    else:
        line = f"update {change.ref} {change.new} {change.expect}\n"
    log = f"nugget: {message.splitlines()[0]}"
    try:
        run(repo, "update-ref", "-m", log, "--stdin", stdin=line.encode(), settings=(*DURABLE, *_WAITING))
    except GitError as error:
        if re.search(r"but expected|already exists|unable to resolve", str(error)):
            raise _moved(change) from error
        raise


def _moved(change: RefChange) -> ConflictError:
    name = change.ref.removeprefix("refs/heads/")
    return ConflictError(f"{name} moved meanwhile; nothing was changed.", hint="Try again.")


def lock_files(repo: Path) -> list[Path]:
    """Return the lock files of git's own that are in its folder now (gitrepository-layout(5)).

    git deletes them when it has done its work; the lock of a git that was killed stays, and refuses every later one.
    """
    folder = git_dir(repo)
    shared = folder
    with suppress(OSError):  # a worktree of its own shares all but index and HEAD
        shared = Path(os.path.normpath(folder / (folder / "commondir").read_text("utf-8").strip()))
    named = [*(folder / name for name in _LOCKS_OF_CHECKOUT), *(shared / name for name in _LOCKS_OF_REPOSITORY)]
    return [*filter(os.path.lexists, named), *sorted((shared / "refs").rglob("*.lock"))]


def wait_until_free(repo: Path, *, wait_s: float = PATIENCE_S) -> None:
    """Wait until no other git process changes index or branches. Raises GitError if one still does after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while held := [lock for lock in lock_files(repo) if lock.name != "config.lock"]:
        if time.monotonic() > deadline:
            raise locked(repo, held[0])
        time.sleep(0.1)
