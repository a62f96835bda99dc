"""Atomic changes to a repository.

Commits are first built as unreferenced objects. Under one lock, `change_refs` then holds git's `index.lock`,
makes sure that no work of the user is overwritten, stages everything that the checkout will need in
`.git/nugget/work`, writes the intent there, moves the branches, and updates checkout and index. A killed process
leaves that folder, and the next command drops the change (if no branch has moved) or finishes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from nugget.config import read_environment
from nugget.errors import BrainError, ConflictError, GitError, NuggetError
from nugget.infra import files, git
from nugget.infra.git.process import PATIENCE_S, Setting, locked, run, start
from nugget.text import printable

_PATIENCE_MS = f"{PATIENCE_S * 1000:.0f}"
DURABLE: tuple[Setting, ...] = (
    ("core.fsync", "added"), ("core.filesRefLockTimeout", _PATIENCE_MS), ("core.packedRefsTimeout", _PATIENCE_MS),
)  # fmt: skip
"""Settings that make git sync its files to disk, and wait for its locks."""
_UPDATE_TAKES_S = 1.0
"""The time after which a `git update-ref` that outlived its killed parent has ended."""
_BLOCKED = "blocked"
"""Marks a path that does not lead to a plain file of the checkout: a folder, a link, or a path through a link."""

_held = threading.local()
"""The locks of this thread, by the work folder of the repository."""

LedgerLine = tuple[str, Mapping[str, Any]]
"""A line for one of `_LEDGERS` in `$NUGGET_HOME/ledger`: its name and content."""
_LEDGERS = ("captures.jsonl", "rejected.jsonl")
"""The ledgers that an intent may name, since whoever made the folder may have written it."""


class RefChange(NamedTuple):
    """A branch to create (`expect` None), move, or delete (`new` None) if it still points at `expect`."""

    ref: str
    new: str | None
    expect: str | None


@contextmanager
def only_writer(repo: Path, *, wait_s: float = 60.0) -> Iterator[Path]:
    """Hold the lock for all changes to a repository, after finishing the work of a killed writer.

    Yields the folder for temporary files. May be nested. Raises ConflictError if another process holds the lock for
    `wait_s` seconds, BrainError if the folder is not a git repository or cannot be written.
    """
    if not git.is_repository(repo):
        raise BrainError(f"{repo} is not a git repository; nothing was changed.", hint="Run `nugget init` in it.")
    work, held, deadline = _work(repo), _held.__dict__, time.monotonic() + wait_s
    if files.has_links(work.parent):
        raise GitError(f"{work.parent} is or holds a link, which Nugget never makes.", hint="Remove it.")
    if str(work) in held:
        with clear_errors(repo):
            work.mkdir(mode=0o700, exist_ok=True)
        yield work
        return
    with clear_errors(work.parent):
        while (lock := files.try_lock(work.parent / "lock")) is None:
            if time.monotonic() >= deadline:
                hint = "Try again when it is done; `ps` shows what it is."
                raise ConflictError(f"Another nugget has been writing in {repo} for {wait_s:g} s.", hint=hint)
            time.sleep(0.05)
    held[str(work)] = lock
    try:
        with clear_errors(repo):
            _finish(repo)
            work.mkdir(mode=0o700, exist_ok=True)
        yield work
    finally:
        if not (work / "intent.json").exists():
            _drop(repo)
        os.close(held.pop(str(work)))


def finish_pending(repo: Path) -> None:
    """Finish the change of a killed command; cheap without one.

    It is left for later if another command is at work, or the disk is full.
    """
    if _work(repo).exists():
        with suppress(NuggetError, OSError), only_writer(repo, wait_s=0):
            pass


def change_refs(
    repo: Path, refs: Sequence[RefChange], *, message: str, checkout: bool = False, lines: Sequence[LedgerLine] = ()
) -> None:
    """Make, move and delete branches in one step; with `checkout`, the first is checked out, and its files are updated.

    Once the first branch has moved, `lines` are added to their ledgers.

    Raises ConflictError if a branch moved or a file that would change has uncommitted work, GitError if git is locked
    or fails: then nothing was changed, or the message says that only the checkout has to be updated.
    """
    with only_writer(repo) as work, clear_errors(repo):
        wait_until_free(repo)
        try:
            if checkout:
                _hold_index(repo, work)
                at = f"refs/heads/{git.current_branch(repo)}", git.resolve(repo, refs[0].ref)
                if at != (refs[0].ref, refs[0].expect):
                    raise _moved(refs[0])
                changed = _changed_files(repo, refs[0])
                _refuse_uncommitted(repo, changed)
                _stage(repo, work, changed)
                _stage_index(repo, work, changed)
            _write(work, "intent.json", json.dumps([refs, checkout, lines]).encode())
            _move_ref(repo, refs[0], message)
        except BaseException:
            with suppress(NuggetError, OSError):
                _finish(repo)
            raise
        try:
            _finish(repo)
        except (NuggetError, OSError) as error:
            raise GitError(
                f"{message.rstrip('.')}: this is committed, but not every file in {repo} is updated yet ({error}).",
                hint="Fix that; the next nugget command does the rest.",
            ) from error


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a BrainError that names the file."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "Check the permissions of the folder and the free space on the disk."
        raise BrainError(f"{error.filename or path} cannot be written ({reason}).", hint=hint) from error


def wait_until_free(repo: Path) -> None:
    """Wait until no other git process changes index or branches. Raises GitError if one still does after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while held := [lock for lock in git.lock_files(repo) if lock.name != "config.lock"]:
        if time.monotonic() > deadline:
            raise locked(repo, held[0])
        time.sleep(0.1)


def uncommitted(paths: Sequence[str]) -> ConflictError:
    """Return the error for a change that would overwrite uncommitted work."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    has = "has" if len(paths) == 1 else "have"
    return ConflictError(
        f"{', '.join(paths[:3])}{more} {has} uncommitted changes of yours in the brain; nothing was changed.",
        hint="Commit or undo them there, then run this again.",
    )


def update_index(repo: Path, index: Path, entries: Mapping[str, tuple[str, str | None]]) -> None:
    """Set the mode and blob of paths in an index file; without a blob the path is removed.

    Raises GitError for a path that leads out of the checkout or into `.git`, which git would skip silently.
    """
    lines = [
        b"%s %s\t%s\0" % (mode.encode() if blob else b"0", (blob or "0" * 40).encode(), os.fsencode(path))
        for path, (mode, blob) in sorted(entries.items(), key=lambda entry: entry[1][1] is not None)
    ]
    command, variables = ("update-index", "-z", "--index-info"), {"GIT_INDEX_FILE": str(index)}
    done = start(repo, command, stdin=b"".join(lines), settings=DURABLE, variables=variables)
    if done.returncode or b"Ignoring path" in done.stderr:
        reason = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise GitError(f"git cannot change these paths in {repo} ({printable(reason)}); nothing was changed.")


def _work(repo: Path) -> Path:
    return git.git_dir(repo) / "nugget" / "work"


def _finish(repo: Path) -> None:
    """Carry out the rest of the intent if its first branch has moved; drop it if not."""
    intent = _work(repo) / "intent.json"
    if intent.exists():
        (first, *rest), checkout, lines = _read(intent)
        _drop_stale_locks(repo, since=intent.stat().st_mtime)
        if _reached(repo, first):
            for name, line in lines:
                files.append_line(read_environment().home / "ledger" / name, line, once=True)
            if checkout:
                _hold_index(repo, intent.parent)
                changed = _changed_files(repo, first)
                _place(repo, intent.parent, changed)
                _stage_index(repo, intent.parent, changed)
                (intent.parent / "index").replace(git.git_dir(repo) / "index")
            for change in rest:
                if not _reached(repo, change):
                    with suppress(ConflictError):  # moved on by the user meanwhile
                        _move_ref(repo, change, "finish")
    _drop(repo)


def _read(intent: Path) -> tuple[list[RefChange], bool, list[LedgerLine]]:
    """Return the branches of an intent, whether to check out the first, and ledger lines. Raises GitError."""
    with suppress(ValueError, TypeError, RecursionError), files.open_plain(intent) or BytesIO() as opened:
        named, checkout, lines = json.loads(opened.read())
        refs = [RefChange(*ref) for ref in named]
        added: list[LedgerLine] = [(name, dict(line)) for *_, name, line in lines if name in _LEDGERS]
        shown = "".join("{} {} {}\n".format(*ref) for ref in refs)
        if re.fullmatch(r"(refs/heads/\S+( [0-9a-f]{40,64}| None){2}\n)+", shown):  # nothing that looks like an option
            return refs, bool(checkout), added
    raise GitError(f"{intent} is nothing that Nugget wrote; nothing was changed.", hint="Remove it.")


def _drop(repo: Path) -> None:
    """Remove all temporary files: the intent first, and `index.lock` before the file that marks it as ours."""
    work = _work(repo)
    (work / "intent.json").unlink(missing_ok=True)
    lock = git.git_dir(repo) / "index.lock"
    with suppress(FileNotFoundError):
        if lock.samefile(work / "mark"):
            lock.unlink()
    shutil.rmtree(work, ignore_errors=True)


def _changed_files(repo: Path, change: RefChange) -> list[git.Change]:
    return git.changes(repo, change.expect or git.EMPTY_TREE, change.new) if change.new else []


def _reached(repo: Path, change: RefChange) -> bool:
    """Return True if a branch is where a change puts it: at its commit or a descendant of that, or deleted."""
    exists = git.resolve(repo, change.ref) is not None
    if change.new is None or not exists:
        return change.new is None and not exists
    return start(repo, ("merge-base", "--is-ancestor", change.new, change.ref)).returncode == 0


def _drop_stale_locks(repo: Path, *, since: float) -> None:
    """Delete the branch locks that a killed `git update-ref` of ours left."""

    def young() -> set[tuple[Path, int]]:
        kept = ("index.lock", "config.lock")
        found = {(lock, lock.lstat()) for lock in git.lock_files(repo) if lock.name not in kept}
        return {(lock, status.st_ino) for lock, status in found if status.st_mtime >= since}

    with suppress(FileNotFoundError):
        if held := young():
            time.sleep(_UPDATE_TAKES_S)
            for lock, _ in held & young():
                lock.unlink()


def _hold_index(repo: Path, work: Path) -> None:
    """Take git's own index lock as a link to a file of ours, so that a stale one is recognised."""
    mark, lock = work / "mark", git.git_dir(repo) / "index.lock"
    mark.touch()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            os.link(mark, lock)
            return
        except FileExistsError:
            with suppress(FileNotFoundError):
                if lock.samefile(mark):
                    return
            if time.monotonic() > deadline:
                raise locked(repo, lock) from None
            time.sleep(0.1)
        except OSError:  # a file system without hard links: git's lock is not held
            return


def _move_ref(repo: Path, change: RefChange, message: str) -> None:
    verb = "delete" if change.new is None else "create" if change.expect is None else "update"
    line = " ".join(filter(None, (verb, *change))) + "\n"
    message = f"nugget: {message.splitlines()[0]}"
    try:
        run(repo, "update-ref", "-m", message, "--stdin", stdin=line.encode(), settings=DURABLE)
    except GitError as error:
        if any(reason in str(error) for reason in ("but expected", "already exists", "unable to resolve")):
            raise _moved(change) from error
        raise


def _moved(change: RefChange) -> ConflictError:
    name = change.ref.removeprefix("refs/heads/")
    return ConflictError(f"{name} moved meanwhile; nothing was changed.", hint="Try again.")


def _refuse_uncommitted(repo: Path, changed: Sequence[git.Change]) -> None:
    """Raise ConflictError if a file matches neither its old nor its new state, or cannot be written."""
    now, index = _files_now(repo, changed), _index_now(repo)
    for path in now:
        folder = next(parent for parent in (repo / path).parents if parent.is_dir())
        if now[path] == _BLOCKED or not os.access(folder, os.W_OK):
            reason = "a folder or a link is in its place" if now[path] == _BLOCKED else "permission denied"
            raise ConflictError(f"{path} cannot be written ({reason}); nothing was changed.")
    wanted = {change.path: (change.before, change.after) for change in changed}
    if dirty := [path for path, ids in wanted.items() if now[path] not in ids or index.get(path) not in ids]:
        raise uncommitted(dirty)


def _files_now(repo: Path, changed: Sequence[git.Change]) -> dict[str, str | None]:
    """Return the blob id of each file in the checkout, None for absent ones."""
    found: dict[str, str | None] = dict.fromkeys(change.path for change in changed)
    regular: list[str] = []
    for path, file in [(path, repo / path) for path in found]:
        is_direct = Path(os.path.realpath(file)) == Path(os.path.realpath(repo)).joinpath(*path.split("/"))
        if is_direct and file.is_file():
            regular.append(path)
        elif not is_direct or file.exists() or any(one.exists() and not one.is_dir() for one in file.parents):
            found[path] = _BLOCKED
    for first in range(0, len(regular), 500):
        part = regular[first : first + 500]
        found.update(zip(part, run(repo, "hash-object", "--", *part).decode().split(), strict=True))
    return found


def _index_now(repo: Path) -> dict[str, str]:
    """Return the blob id of each path in the index; a path with conflicts has none."""
    found: dict[str, str] = {}
    for record in run(repo, "ls-files", "--stage", "-z").split(b"\0"):
        details, _, path = record.partition(b"\t")
        if path:
            _, blob, number = details.decode().split(" ")
            found[os.fsdecode(path)] = blob if number == "0" else _BLOCKED
    return found


def _stage(repo: Path, work: Path, changed: Sequence[git.Change]) -> None:
    """Write the contents of the new files, by their ids, into the work folder."""
    named = {change.after: change for change in changed if change.after and not (work / change.after).exists()}
    for (blob, change), content in zip(named.items(), git.read_objects(repo, [*named]), strict=True):
        if content is None or change.mode not in ("100644", "100755"):
            hint = "`git pull` in the brain brings it in."
            raise GitError(f"{change.path} is not a plain file in the new commit; nothing was changed.", hint=hint)
        _write(work, blob, content)


def _stage_index(repo: Path, work: Path, changed: Sequence[git.Change]) -> None:
    """Write the new index into the work folder; entries that the user changed meanwhile stay."""
    index = _index_now(repo)
    known = [change for change in changed if index.get(change.path) in (change.before, change.after)]
    (work / "index.lock").unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        shutil.copy(git.git_dir(repo) / "index", work / "index")
    update_index(repo, work / "index", {change.path: (change.mode, change.after) for change in known})
    # Without this, git would read each of these files again to compare it.
    variables = {"GIT_INDEX_FILE": str(work / "index")}
    start(repo, ("update-index", "-q", "--refresh"), variables=variables, settings=DURABLE)


def _place(repo: Path, work: Path, changed: Sequence[git.Change]) -> None:
    """Update the files of the checkout, deletions first; files that the user changed meanwhile stay."""
    now = _files_now(repo, changed)
    behind = [change for change in changed if now[change.path] == change.before]
    for change in sorted(behind, key=lambda change: change.after is not None):
        target = repo / change.path
        if change.after is None:
            target.unlink()
            folder = target.parent
            while folder not in (repo, repo / "domains") and not any(folder.iterdir()):
                folder.rmdir()
                folder = folder.parent
            continue
        _stage(repo, work, [change])
        staged = work / change.after
        allowed = stat.S_IMODE((target if change.before else staged).stat().st_mode)
        staged.chmod(allowed | 0o111 if change.mode == "100755" else allowed & ~0o111)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(staged, target)  # a rename, unless the git folder is on another file system


def _write(work: Path, name: str, content: bytes) -> None:
    """Write one file of the work folder to the checkout, with fsync."""
    with (work / "new").open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    (work / "new").replace(work / name)
