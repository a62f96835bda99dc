"""Every command that writes is killed at the calls that change files; the next command finds all of it, or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from laboratory import FAULTS, NAMES, WRITINGS, Stage, Writing, killing, prepare, steps_of, survives, traced

Step = TypeVar("Step")
SHIM = """#!/bin/sh
count=$(($(cat "$FAULT_COUNT" 2>/dev/null || echo 0) + 1))
echo $count >"$FAULT_COUNT"
if [ -n "$FAULT_LOGS" ]; then
  exec strace -f -o "$FAULT_LOGS/$count" -s 0 -e "trace=$FAULT_CALLS" -e signal=none {git} "$@"
fi
if [ $count != "$FAULT_AT" ]; then exec {git} "$@"; fi
strace -f -o /dev/null -e "trace=$FAULT_CALL" -e "inject=$FAULT_CALL:signal=SIGKILL:when=$FAULT_NUMBER" {git} "$@"
code=$?
if [ $code -ge 128 ]; then kill -9 $PPID; fi
exit $code
"""
"""Runs git; at one call of one of its runs it is killed, and Nugget with it, as by a power cut."""
PLAIN_SHIM = """#!/bin/sh
count=$(($(cat "$FAULT_COUNT" 2>/dev/null || echo 0) + 1))
echo $count >"$FAULT_COUNT"
if [ "$count $FAULT_WHEN" = "$FAULT_AT before" ]; then kill -9 $PPID; exit 137; fi
{git} "$@"
code=$?
if [ "$count $FAULT_WHEN" = "$FAULT_AT after" ]; then kill -9 $PPID; fi
exit $code
"""
"""The same without strace: Nugget is killed before one of its runs of git, or after it."""
STRACE = bool(shutil.which("strace")) and os.environ.get("NUGGET_FAULTS_STRACE") != "no"
"""Where strace cannot be had, Python counts calls and statements of SQL that write, and git is killed as a whole."""
WITHOUT_STRACE = "" if FAULTS != 1 else "mv"
"""The command that a short run kills in the second way, so that it is tried everywhere."""


def some(steps: list[Step]) -> list[Step]:
    """Return all steps in a full run; else a few of them, evenly spread."""
    samples = FAULTS or len(steps)
    if len(steps) <= samples:
        return steps
    return [steps[(2 * number + 1) * len(steps) // (2 * samples)] for number in range(samples)]


def attempts(stage: Stage, writing: Writing, log: Path, *, strace: bool) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield what can be tried: Nugget killed at one of its calls, or git with it at one of git's."""
    folder, logs = log.with_name("shim"), log.with_name("logs")
    for made in (folder, logs):
        made.mkdir()
    (folder / "git").write_text((SHIM if strace else PLAIN_SHIM).replace("{git}", str(shutil.which("git"))))
    (folder / "git").chmod(0o755)
    count = log.with_name("count")
    shim = {"PATH": f"{folder}:{os.environ['PATH']}", "FAULT_COUNT": str(count)}

    def run(variables: dict[str, str], options: Sequence[str] = ()) -> int:
        stage.reset()
        count.unlink(missing_ok=True)
        ended = stage.perform(writing, strace=options, more=variables)
        assert ended.code in (0, -9) or variables.get("FAULT_CHANGE") != "0", ended
        return ended.code

    if not strace:
        changes = {"FAULT_COUNT": str(count)}
        assert run({**changes, "FAULT_CHANGE": "0"}) == 0
        for number in some([*range(1, int(count.read_text()) + 1)]):
            yield f"nugget change {number}", partial(run, {**changes, "FAULT_CHANGE": str(number)})
        assert run(shim) == 0
        runs = int(count.read_text()) if count.exists() else 0
        calls = [(at, when) for at in range(1, runs + 1) for when in ("before", "after")]
        for at, when in some(calls):
            yield f"{when} git {at}", partial(run, {**shim, "FAULT_AT": str(at), "FAULT_WHEN": when})
        return
    assert run({}, traced(log)) == 0
    for name, number in some([*steps_of(log)]):
        yield f"nugget {name} {number}", partial(run, {}, killing(name, number))
    assert run({**shim, "FAULT_LOGS": str(logs), "FAULT_CALLS": traced(log)[5].removeprefix("trace=")}) == 0
    for at, name, number in some(sorted((int(file.name), *step) for file in logs.iterdir() for step in steps_of(file))):
        variables = {**shim, "FAULT_AT": str(at), "FAULT_CALL": name, "FAULT_NUMBER": str(number)}
        yield f"git {at} {name} {number}", partial(run, variables)


@pytest.mark.proves("FAULT-KILL", "WORKER-EXACTLY-ONCE")
@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_was_killed_is_done_or_not_begun(
    name: str, stage: Stage, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    writing = WRITINGS[name]
    states = prepare(stage, writing)
    tried, wrong = 0, []
    for label, attempt in attempts(stage, writing, tmp_path / "log", strace=bool(STRACE and name != WITHOUT_STRACE)):
        if attempt() != -9:
            continue
        tried += 1
        try:
            survives(stage, writing, states)
        except AssertionError as error:
            wrong.append(f"{label}: {str(error)[:600]}")
    record_property("faults", f"killed: {name}: tried {tried}, survived {tried - len(wrong)}")
    assert tried and not wrong, "\n".join([f"{len(wrong)} of {tried}", *wrong[:20]])
