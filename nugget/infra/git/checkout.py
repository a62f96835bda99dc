"""Bringing files and index of a checkout from one commit to another, without harm to the user's own work.

Everything is prepared in a work folder inside the git folder, so that nothing temporary is ever among the files.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nugget.errors import ConflictError, GitError
from nugget.infra.git.process import Setting, run, start
from nugget.infra.git.reading import Change, git_dir, read_objects
from nugget.text import printable

DURABLE: tuple[Setting, ...] = (("core.fsync", "added"),)
"""Settings by which git writes what it makes to the disk before it goes on."""
_BLOCKED = "blocked"
"""Stands for what is in the place of a file and is not one: a folder, or a path through a link."""


def refuse_uncommitted(repo: Path, changed: Sequence[Change]) -> None:
    """Raise ConflictError if a file is neither as it was committed nor as it will be, or cannot be written."""
    files, index = _files_now(repo, changed), _index_now(repo)
    for path in files:
        folder = next(parent for parent in (repo / path).parents if parent.is_dir())
        if files[path] == _BLOCKED or not os.access(folder, os.W_OK):
            reason = "a folder or a link is in its place" if files[path] == _BLOCKED else "permission denied"
            raise ConflictError(f"{path} cannot be written ({reason}); nothing was changed.")
    wanted = {change.path: (change.before, change.after) for change in changed}
    dirty = [path for path, ids in wanted.items() if files[path] not in ids or index.get(path) not in ids]
    if dirty:
        raise uncommitted(dirty)


def uncommitted(paths: Sequence[str]) -> ConflictError:
    """Return the error of a change that would overwrite what the user has not committed."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    has = "has" if len(paths) == 1 else "have"
    return ConflictError(
        f"{', '.join(paths[:3])}{more} {has} uncommitted changes of yours in the brain; nothing was changed.",
        hint="Commit or undo them there, then run this again.",
    )


def _files_now(repo: Path, changed: Sequence[Change]) -> dict[str, str | None]:
    """Return the blob id that each file in the checkout has, None for one that is absent."""
    found: dict[str, str | None] = {}
    regular: list[str] = []
    for path in (change.path for change in changed):
        parents = [repo.joinpath(*path.split("/")[:depth]) for depth in range(1, path.count("/") + 1)]
        try:
            mode = (repo / path).lstat().st_mode
        except FileNotFoundError:
            found[path] = _BLOCKED if any(map(os.path.islink, parents)) else None
        except OSError:  # a file in the place of a folder
            found[path] = _BLOCKED
        else:
            found[path] = _BLOCKED
            if not any(map(os.path.islink, parents)) and stat.S_ISREG(mode):
                regular.append(path)
            elif stat.S_ISLNK(mode):
                target = os.fsencode((repo / path).readlink())
                found[path] = run(repo, "hash-object", "--stdin", stdin=target).decode().strip()
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


def stage(repo: Path, work: Path, blobs: Sequence[str]) -> None:
    """Write the contents of blobs, by their ids, into the work folder."""
    missing = [blob for blob in dict.fromkeys(blobs) if not (work / blob).exists()]
    for blob, content in zip(missing, read_objects(repo, missing), strict=True):
        if content is None:
            raise GitError(f"{blob} is no file of {repo}: it is missing, or of a submodule; nothing was changed.")
        write(work, blob, content)


def stage_index(repo: Path, work: Path, changed: Sequence[Change]) -> None:
    """Write the index as it is to be into the work folder; entries that the user changed meanwhile stay."""
    index = _index_now(repo)
    known = [change for change in changed if index.get(change.path) in (change.before, change.after)]
    (work / "index.lock").unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        shutil.copy(git_dir(repo) / "index", work / "index")
    update_index(repo, work / "index", {change.path: (change.mode, change.after) for change in known})
    # Without this git would read each of these files again to see that it is as committed.
    variables = {"GIT_INDEX_FILE": str(work / "index")}
    start(repo, ("update-index", "-q", "--refresh"), variables=variables, settings=DURABLE)


def update_index(repo: Path, index: Path, entries: Mapping[str, tuple[str, str | None]]) -> None:
    """Set the mode and blob of paths in an index file; without a blob the path is removed.

    Raises GitError for a path that leads out of the checkout or into `.git`, which git only passes over.
    """
    lines = [
        b"%s %s\t%s\0" % (mode.encode() if blob else b"0", (blob or "0" * 40).encode(), os.fsencode(path))
        for path, (mode, blob) in sorted(entries.items(), key=lambda entry: entry[1][1] is not None)
    ]
    done = start(
        repo, ("update-index", "-z", "--index-info"), stdin=b"".join(lines), settings=DURABLE,
        variables={"GIT_INDEX_FILE": str(index)},
    )  # fmt: skip
    if done.returncode or b"Ignoring path" in done.stderr:
        reason = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise GitError(f"git cannot change these paths in {repo} ({printable(reason)}); nothing was changed.")


def place(repo: Path, work: Path, changed: Sequence[Change]) -> None:
    """Bring the checkout along: deletions first. What is neither as before nor as wanted is work of the user's."""
    files = _files_now(repo, changed)
    behind = [change for change in changed if files[change.path] == change.before]
    for change in sorted(behind, key=lambda change: change.after is not None):
        target = repo / change.path
        if change.after is None:
            target.unlink()
            _remove_empty(target.parent, repo)
            continue
        stage(repo, work, [change.after])
        staged = work / change.after
        if change.mode == "120000":
            (work / "link").unlink(missing_ok=True)
            (work / "link").symlink_to(os.fsdecode(staged.read_bytes()))
            staged = work / "link"
        else:
            allowed = stat.S_IMODE(target.stat().st_mode) if change.before else stat.S_IMODE(staged.stat().st_mode)
            staged.chmod(allowed | 0o111 if change.mode == "100755" else allowed & ~0o111)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(staged, target)  # a rename, unless the git folder is on another file system


def _remove_empty(folder: Path, repo: Path) -> None:
    while folder not in (repo, repo / "domains") and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def write(work: Path, name: str, content: bytes) -> None:
    """Write one file of the work folder, whole and on the disk."""
    with (work / "new").open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    (work / "new").replace(work / name)
