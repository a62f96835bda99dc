"""Every command that writes is killed at the calls that change files; the next command finds all of it, or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from forking import Commands
from laboratory import WRITINGS, Stage, Writing, killing, steps_of, traced

Step = TypeVar("Step")
ALL = os.environ.get("NUGGET_FAULTS") == "all"
"""Set by `make faults`: every command is tried at every call, instead of a few commands at a few calls."""
NAMES = [*WRITINGS] if ALL else ["add", "mv", "accept"]
SAMPLES = 1
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


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: commands cannot be killed at their system calls")
    running = Commands()
    yield running
    running.close()


@pytest.fixture(scope="module")
def built(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    stage = Stage(folder=tmp_path_factory.mktemp("faults") / "stage", commands=commands)
    stage.folder.mkdir()
    stage.build()
    stage.keep()
    original = stage.template.with_name("original")
    stage.template.rename(original)
    return stage


@pytest.fixture
def stage(built: Stage) -> Stage:
    shutil.rmtree(built.template, ignore_errors=True)
    shutil.copytree(built.template.with_name("original"), built.template, symlinks=True)
    built.reset()
    return built


def some(steps: list[Step], samples: int) -> list[Step]:
    """All steps in a long run; in a short one a few of them, evenly spread."""
    if ALL or len(steps) <= samples:
        return steps
    return [steps[(2 * number + 1) * len(steps) // (2 * samples)] for number in range(samples)]


def prepare(stage: Stage, writing: Writing) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    """The state before the command, the one after it, and what can be derived after it."""
    for line in writing.before:
        stage.must(*line)
    stage.keep()
    before = stage.state()
    stage.must(*writing.arguments)
    after = stage.state()
    stage.must("sync", "--source", "brain")
    derived = stage.derived()
    stage.reset()
    return before, after, derived


def survives(stage: Stage, writing: Writing, states: tuple[dict[str, object], ...]) -> None:
    """Another command puts everything in order: all was done, or nothing, and then it can be done."""
    before, after, derived = states
    arguments = [stage.fill(argument) for argument in writing.arguments]
    ended = stage.run("sync", "--source", "brain")
    assert ended.code == 0, ended
    stage.check()
    between = None if writing.again else stage.state()
    assert between in (None, before, after), "neither before nor after"
    if between != after:
        again = stage.run(*arguments)
        assert again.code == 0, again
        assert stage.state() == after, "done again, it is not what it would have been"
    stage.must("sync", "--source", "brain")
    assert stage.derived() == derived
    stage.check()


def attempts(stage: Stage, writing: Writing, log: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """What can be tried: Nugget killed at one of its calls, or git with it at one of git's."""
    assert stage.run(*writing.arguments, strace=traced(log)).code == 0
    own = list(steps_of(log))
    stage.reset()
    for name, number in some(own, SAMPLES):
        yield (
            f"nugget {name} {number}",
            lambda name=name, number=number: stage.run(*writing.arguments, strace=killing(name, number)).code,
        )
    folder = log.with_name("shim")
    logs = log.with_name("logs")
    for made in (folder, logs):
        made.mkdir()
    (folder / "git").write_text(SHIM.replace("{git}", str(shutil.which("git"))))
    (folder / "git").chmod(0o755)
    shim = {"PATH": f"{folder}:{os.environ['PATH']}", "FAULT_COUNT": str(log.with_name("count"))}
    stage.reset()
    calls = traced(log)[5].removeprefix("trace=")
    assert stage.run(*writing.arguments, more={**shim, "FAULT_LOGS": str(logs), "FAULT_CALLS": calls}).code == 0
    stage.reset()
    steps = [(int(file.name), *step) for file in logs.iterdir() for step in steps_of(file)]
    for at, name, number in some(sorted(steps), SAMPLES):
        variables = {**shim, "FAULT_AT": str(at), "FAULT_CALL": name, "FAULT_NUMBER": str(number)}
        yield f"git {at} {name} {number}", lambda variables=variables: _counted(stage, writing, variables)


def _counted(stage: Stage, writing: Writing, variables: dict[str, str]) -> int:
    Path(variables["FAULT_COUNT"]).unlink(missing_ok=True)
    return stage.run(*writing.arguments, more=variables).code


@pytest.mark.proves("FAULT-KILL")
@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_was_killed_is_done_or_not_begun(
    name: str, stage: Stage, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    writing = WRITINGS[name]
    states = prepare(stage, writing)
    tried, wrong = 0, []
    for label, attempt in attempts(stage, writing, tmp_path / "log"):
        stage.reset()
        if attempt() != -9:
            continue
        tried += 1
        try:
            survives(stage, writing, states)
        except AssertionError as error:
            wrong.append(f"{label}: {str(error)[:600]}")
    record_property("faults", f"killed: {name}: tried {tried}, survived {tried - len(wrong)}")
    assert tried and not wrong, "\n".join([f"{len(wrong)} of {tried}", *wrong[:20]])
