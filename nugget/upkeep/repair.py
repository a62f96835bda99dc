"""`nugget doctor --repair`: what killed processes and failing disks left behind, put right, each thing reported."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nugget.capture.identity import write_id
from nugget.errors import GitError, NuggetError
from nugget.index.connection import find_damage, remove_database
from nugget.infra import files, git
from nugget.text import counted, printable

_LEFTOVER = re.compile(r"\..+\.(?:(?P<process>\d+)\.[0-9a-f]{8}|[0-9a-f]{32})(?:\.partial)?")
"""Temporary files of ours, with the process that made them; those of 0.1.0 have none."""
_OF_GIT = ("objects/pack/tmp_*", "objects/??/tmp_obj_*", "fast_import_crash_*")
_GIT_TAKES_S = 10.0
_UNKNOWN_TAKES_S = 3600.0
"""Age from which a lock or temporary file of an unknown process counts as left behind."""


def repair(brain: Path, home: Path) -> list[str]:
    """Finish or drop half changes, remove stale locks and leftovers, and remove databases that are damaged.

    Returns a sentence for each thing done, and for each that could not be. Removed databases are derived: the next
    sync makes them again.
    """
    messages: list[str] = []
    steps = (
        _locks(brain), _half_change(brain), _identity(brain, home), _leftovers(brain, home), _objects(brain),
        _databases(brain, home),
    )  # fmt: skip
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
    for lock in git.lock_files(brain) if git.is_repository(brain) else ():
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
            name = (process / "comm").read_text("utf-8", "replace").strip()
            if name.startswith("git") and (process / "cwd").resolve().is_relative_to(brain):
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
    for root in (home, brain / ".nugget", brain / "domains"):
        for folder, _, names in os.walk(root):
            for name in names:
                found = _LEFTOVER.fullmatch(name)
                file = Path(folder, name)
                with suppress(FileNotFoundError):
                    if found and _is_abandoned(file, found["process"]):
                        file.unlink()
                        whose = f"process {found['process']}, which is gone" if found["process"] else "an older version"
                        yield f"Removed {printable(str(file))}, left by {whose}."
    abandoned = 0
    for pattern in _OF_GIT if git.is_repository(brain) else ():
        for file in git.git_dir(brain).glob(pattern):
            if time.time() - file.stat().st_mtime > _UNKNOWN_TAKES_S:
                file.unlink()
                abandoned += 1
    if abandoned:
        yield f"Removed {counted(abandoned, 'temporary file')} of git's."


def _is_abandoned(file: Path, process: str | None) -> bool:
    if process is None:
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return time.time() - file.stat().st_mtime > _UNKNOWN_TAKES_S


def _objects(brain: Path) -> Iterator[str]:
    """Name what `git fsck` finds: objects that are gone can only come from another clone."""
    if not git.is_repository(brain):
        return
    try:
        git.run(brain, "fsck", "--no-dangling", "--no-progress", timeout_s=600)
    except GitError as error:
        hint = "fetch what is missing from a clone or the remote (`git fetch`), or clone the brain again"
        yield f"Not repaired: {str(error).rstrip('.')}; {hint}."


def _databases(brain: Path, home: Path) -> Iterator[str]:
    """Remove every index with damage in it, and what an interrupted rebuild left."""
    folders = [home, *(folder for folder in (home / "indexes").glob("*")), home / "memory-indexes", brain / ".nugget"]
    for folder in folders:
        for file in sorted(folder.glob("*.db")):
            if damage := find_damage(file):
                remove_database(file)
                yield f"Removed {printable(str(file))}, which was damaged ({printable(damage)}); it is made again."
        for file in sorted(folder.glob("*.db.new")):
            remove_database(file)
            yield f"Removed {printable(str(file))}, left by an interrupted rebuild."
