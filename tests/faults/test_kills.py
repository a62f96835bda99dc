"""Every command that writes is killed, or runs out of space; the next command finds all of it, or nothing."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from laboratory import FAULTS, NAMES, Ended, Stage, survives_all
from programs import program

CALLS = (
    "write pwrite64 pwritev rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat link linkat symlink "
    "symlinkat ftruncate fsync fdatasync chmod fchmod fchmodat copy_file_range sendfile"
).split()
"""The calls by which git changes files; a file that was made empty is seen at the next of them."""
GIT = """
count=$(($(cat "$FAULT_COUNT") + 1))
echo $count >"$FAULT_COUNT"
if [ -n "$FAULT_LOGS" ]; then exec strace -f -o "$FAULT_LOGS/$count" -e "trace={calls}" {git} "$@"; fi
if [ $count != "$FAULT_AT" ]; then exec {git} "$@"; fi
$FAULT_WITH {git} "$@"
kill -9 $PPID
"""
"""Runs git; at one of its runs Nugget is killed with it, as by a power cut."""


def some(steps: list[Any]) -> list[Any]:
    """Return all steps in a full run; else a few of them, evenly spread."""
    samples = FAULTS or len(steps)
    if len(steps) <= samples:
        return steps
    return [steps[(2 * number + 1) * len(steps) // (2 * samples)] for number in range(samples)]


def calls_of(log: Path) -> Iterator[tuple[str, int]]:
    """Yield every call in a log of strace as its name, and the how manieth of that name it is."""
    seen = Counter[str]()
    for line in log.read_text(errors="replace").splitlines():
        name = line.split("(", 1)[0].split()[-1] if "(" in line else ""
        if name in CALLS:
            seen[name] += 1
            yield name, seen[name]


def killed(stage: Stage, perform: Callable[..., Ended]) -> Iterator[tuple[str, Ended]]:
    """Kill Nugget at each of its changes, and beside each run of git; with strace, git at each of its calls too."""
    count, logs = stage.folder.with_name("count"), stage.folder.with_name("logs")
    git = GIT.replace("{calls}", ",".join(f"?{name}" for name in CALLS)).replace("{git}", str(shutil.which("git")))
    path = f"{program(stage.folder.with_name('bin') / 'git', git).parent}:{os.environ['PATH']}"
    logs.mkdir()

    def run(**fault: str) -> Ended:
        stage.reset()
        count.write_text("0")
        return perform(FAULT_COUNT=str(count), **fault)

    assert run(FAULT_CHANGE="0").code == 0
    changes = range(1, int(count.read_text()) + 1)
    faults = [(f"nugget change {number}", {"FAULT_CHANGE": str(number)}) for number in some([*changes])]
    assert run(PATH=path, FAULT_LOGS=str(logs) if shutil.which("strace") else "").code == 0
    beside = [(at, f"{when} git {at}", way) for at in range(1, int(count.read_text()) + 1)
              for when, way in (("before", "true"), ("after", ""))]  # fmt: skip
    inside = [
        (int(log.name), f"git {log.name} {name} {number}",
         f"strace -f -o /dev/null -e trace={name} -e inject={name}:signal=SIGKILL:when={number}")
        for log in sorted(logs.iterdir()) for name, number in calls_of(log)
    ]  # fmt: skip
    for at, label, way in some(beside + inside):
        faults.append((label, {"PATH": path, "FAULT_AT": str(at), "FAULT_WITH": way}))
    for label, fault in faults:
        if (ended := run(**fault)).code == -9:
            yield label, ended


@pytest.mark.proves("FAULT-KILL", "WORKER-EXACTLY-ONCE")
@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_was_killed_is_done_or_not_begun(name, tmp_path, record_property):
    survives_all(name, tmp_path / "stage", killed, record_property)


FREE_KB = {0: [0, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024], 1: [24]}.get(FAULTS, [0, 16, 48, 128])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("only root can mount a small file system here")
    folder.chmod(0o755)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def full_disk(stage: Stage, perform: Callable[..., Ended]) -> Iterator[tuple[str, Ended]]:
    """Leave only so much space on the disk of the stage."""
    disk = stage.folder.parent
    for free in FREE_KB:
        stage.reset()
        filler, status = disk / "filler", os.statvfs(disk)
        filler.write_bytes(b"x" * (status.f_bavail * status.f_frsize - free * 1024))
        ended = perform()
        filler.unlink()
        yield f"{free} KB free", ended


@pytest.mark.proves("FAULT-DISK", "WORKER-FULL-DISK")
@pytest.mark.parametrize("name", NAMES)
def test_on_a_full_disk_a_command_is_done_or_not_begun(name, disk, record_property):
    survives_all(name, disk / "stage", full_disk, record_property)
