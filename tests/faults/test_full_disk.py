"""Every command that writes runs out of space; with space again, the next command finds all of it, or nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forking import Ended
from laboratory import FAULTS, NAMES, Stage, survives_all

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
def test_on_a_full_disk_a_command_is_done_or_not_begun(
    name: str, disk: Path, record_property: Callable[[str, object], None]
) -> None:
    survives_all(name, disk / "stage", full_disk, record_property)
