"""Every command that writes is killed at the calls that change files; the next command finds all of it, or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from laboratory import FAULTS, NAMES, WRITINGS, Stage, Writing, prepare, survives

Step = TypeVar("Step")
SHIM = """#!/bin/sh
count=$(($(cat "$FAULT_COUNT" 2>/dev/null || echo 0) + 1))
echo $count >"$FAULT_COUNT"
if [ "$count $FAULT_WHEN" = "$FAULT_AT before" ]; then kill -9 $PPID; exit 137; fi
{git} "$@"
code=$?
if [ "$count $FAULT_WHEN" = "$FAULT_AT after" ]; then kill -9 $PPID; fi
exit $code
"""
"""Runs git; Nugget is killed before one of its runs of git, or after it."""


def some(steps: list[Step]) -> list[Step]:
    """Return all steps in a full run; else a few of them, evenly spread."""
    samples = FAULTS or len(steps)
    if len(steps) <= samples:
        return steps
    return [steps[(2 * number + 1) * len(steps) // (2 * samples)] for number in range(samples)]


def attempts(stage: Stage, writing: Writing, folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield what can be tried: Nugget killed at a call that changes files, or beside one of its runs of git."""
    count, shim = folder / "count", folder / "shim"
    shim.mkdir()
    (shim / "git").write_text(SHIM.replace("{git}", str(shutil.which("git"))))
    (shim / "git").chmod(0o755)
    counted = {"FAULT_COUNT": str(count)}
    shimmed = {**counted, "PATH": f"{shim}:{os.environ['PATH']}"}

    def run(variables: dict[str, str]) -> int:
        stage.reset()
        count.unlink(missing_ok=True)
        ended = stage.perform(writing, more=variables)
        assert ended.code in (0, -9), ended
        return ended.code

    assert run({**counted, "FAULT_CHANGE": "0"}) == 0
    for number in some([*range(1, int(count.read_text()) + 1)]):
        yield f"nugget change {number}", partial(run, {**counted, "FAULT_CHANGE": str(number)})
    assert run(shimmed) == 0
    runs = int(count.read_text()) if count.exists() else 0
    for at, when in some([(at, when) for at in range(1, runs + 1) for when in ("before", "after")]):
        yield f"{when} git {at}", partial(run, {**shimmed, "FAULT_AT": str(at), "FAULT_WHEN": when})


@pytest.mark.proves("FAULT-KILL", "WORKER-EXACTLY-ONCE")
@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_was_killed_is_done_or_not_begun(
    name: str, stage: Stage, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    writing = WRITINGS[name]
    states = prepare(stage, writing)
    tried, wrong = 0, []
    for label, attempt in attempts(stage, writing, tmp_path):
        if attempt() != -9:
            continue
        tried += 1
        try:
            survives(stage, writing, states)
        except AssertionError as error:
            wrong.append(f"{label}: {str(error)[:600]}")
    record_property("faults", f"killed: {name}: tried {tried}, survived {tried - len(wrong)}")
    assert tried and not wrong, "\n".join([f"{len(wrong)} of {tried}", *wrong[:20]])
