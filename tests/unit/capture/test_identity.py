"""The name of a brain in the ledgers: kept by clones, moves and a rewritten history, never gained by copying an id."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from knowledge_files import commit, shell, write
from sessions import NOW, ScriptedExtraction, capture_into, unit, write_transcript

from nugget import brain as brains
from nugget.capture import capture_transcript, review
from nugget.capture.ledger import brain_key, declared_id, remember_brain
from nugget.infra import git

RETRY = unit("Retry idempotent calls only", "Retry a payment only with an idempotency key, or it charges twice.")


def make_brain(tmp_path: Path, *, has_id: bool) -> Path:
    """A new brain, or one from before brains had an id."""
    folder = brains.init_brain(tmp_path / "own", owner="Ada", now=NOW)[0]
    if not has_id:
        text = (folder / "brain.yaml").read_text()
        write(folder, "brain.yaml", "".join(line for line in text.splitlines(True) if not line.startswith("id:")))
        commit(folder, ["brain.yaml"], "As it was")
    write(folder, "domains/x.md", "# X\n")
    commit(folder, ["domains/x.md"], "More")
    return folder


def shallow_clone(brain: Path) -> Path:
    """A clone without the first commits."""
    copy = brain.with_name("shallow")
    shell(brain.parent, "clone", "-q", "--depth", "1", brain.as_uri(), str(copy))
    return copy


def rewrite_history(brain: Path) -> Path:
    """The brain with one new commit in the place of all others."""
    shell(brain, "checkout", "-q", "--orphan", "rewritten")
    shell(brain, "commit", "-qam", "Rewritten")
    shell(brain, "branch", "-qf", "main")
    shell(brain, "switch", "-q", "main")
    return brain


def move(brain: Path) -> Path:
    return brain.rename(brain.with_name("moved"))


@pytest.mark.proves("BRAIN-ID")
@pytest.mark.parametrize(
    ("has_id", "change"),
    [(True, shallow_clone), (True, rewrite_history), (False, shallow_clone), (False, move)],
)
def test_what_was_rejected_is_not_proposed_again(
    home: Path, tmp_path: Path, has_id: bool, change: Callable[[Path], Path]
) -> None:
    own = make_brain(tmp_path, has_id=has_id)
    transcript = write_transcript_of(tmp_path, "one")
    assert capture_transcript(transcript, *capture_into(own, home, ScriptedExtraction([RETRY]))).branch
    review.reject(own, home=home, now=NOW)
    changed = change(own)
    again = capture_transcript(transcript, *capture_into(changed, home, ScriptedExtraction([RETRY])))
    assert again.skipped == "nothing new since it was captured"
    other = write_transcript_of(tmp_path, "two")
    result = capture_transcript(other, *capture_into(changed, home, ScriptedExtraction([RETRY])))
    assert result.dropped == (f"{RETRY.title}: turned down before",)


def write_transcript_of(folder: Path, name: str) -> Path:
    write_transcript(folder / f"{name}.jsonl", [("Why?", f"{RETRY.title} {name}")])
    return folder / f"{name}.jsonl"


@pytest.mark.proves("BRAIN-ID")
@pytest.mark.parametrize("has_id", [True, False])
def test_a_copied_id_gives_nothing(home: Path, tmp_path: Path, has_id: bool) -> None:
    own = make_brain(tmp_path, has_id=has_id)
    key = remember_brain(own, home)
    copy = tmp_path / "copy"
    shutil.copytree(own, copy)
    assert brain_key(copy, home) not in (key, declared_id(own))
    stranger = brains.init_brain(tmp_path / "stranger", owner="Eve", now=datetime.now(UTC))[0]
    write(stranger, "brain.yaml", f"id: {git.run(own, 'rev-list', '--max-parents=0', 'HEAD').decode()}owner: Eve\n")
    assert brain_key(stranger, home) != key
    assert brain_key(own, home) == key
