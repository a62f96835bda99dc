"""Incidents: failures stitched together with their output, what was tried and edited, and what fixed them.

Failures of the same target (the same program with shared arguments, the same tool on the same file) that follow each
other are one incident. What was edited behind a failure belongs to it where the failure names the file, or where it
came at once. The command of the same target that then goes well is what it was fixed by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from nugget.evidence.telling import (
    MAX_LINES,
    STARTERS,
    is_masked_failure,
    is_reading,
    may_mask,
    programs_of,
    said_in,
    telling_lines,
)
from nugget.extraction.fixes import bare_command
from nugget.text import shorten

MAX_STEPS_BETWEEN = 150
"""So many steps behind its last failure an incident is neither retried nor fixed any more."""
MAX_MS_BETWEEN = 6 * 3600 * 1000
MOST_INCIDENTS = 5000
"""Of what one reading finds, the latest so many are kept."""
_NEAR_STEPS, _SIMILAR_STEPS = 25, 12
_CHAINED_STEPS, _CHAINED_MS = 4, 10_000
_MAX_EDITS, _MOST_OPEN = 8, 24

_SEARCHES = frozenset(
    "grep egrep fgrep rg ag ack diff cmp test [ [[ which type command pgrep pidof find ls stat file kill pkill "
    "lsof".split()
)
"""Programs whose exit code 1 says "nothing found" and nothing else."""
_TRIVIAL = re.compile(
    r"File has not been read yet|has been modified since read|String to replace not found|No changes to make"
    r"|File does not exist|exceeds maximum allowed|is a directory|EISDIR|InputValidationError|tool_use_error"
    r"|Found \d+ matches of the string",
    re.IGNORECASE,
)
"""Failures of an agent's own tools that it overcomes with its next call."""
_ERROR_TAG = re.compile(r"</?tool_use_error>")
_EVERYTHING = frozenset([".", "./..."])
_JOINS = frozenset(["&&", "||", ";", "|"])
_WORD = re.compile(r"[\w./@:-]+")
_STOPPED_BY_PERSON = 130


class About(NamedTuple):
    """What a command is about.

    `target` is its program and sub-command (or script), without variables, folders and starters; `subjects` are the
    arguments behind these, without flags.
    """

    target: str
    subjects: frozenset[str]


@dataclass(slots=True)
class Stitched:
    """An incident while it is being put together."""

    started: int | None
    first_event: int
    first_ms: int
    last_event: int
    ts_ms: int
    step: int
    command: str
    about: About
    words: frozenset[str]
    tool: str | None
    exit_code: int | None
    severity: float
    failures: int = 1
    is_masked: bool = False
    lines: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    chained: list[str] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    reasons: dict[str, None] = field(default_factory=dict)
    fixed_by: str | None = None
    fixed_ms: int | None = None

    @property
    def title(self) -> str:
        """What failed, on one line."""
        code = f" (exit {self.exit_code})" if self.exit_code is not None and not self.is_masked else ""
        if not self.command:
            named = self.about.target if self.about.target != self.tool else next(iter(self.lines), self.about.target)
            named = named.removeprefix(f"{self.tool}").lstrip(": ") or named
            return f"{self.tool or 'tool'} failed: {shorten(named, 120)}"
        return f"`{shorten(bare_command(self.command) or self.command, 160)}` failed{code}"

    @property
    def summary(self) -> list[str]:
        """What was printed, edited, tried and done, line by line."""
        title = self.title  # of a tool's failure it holds the first line already
        told = [line for line in self.lines if self.command or line not in title]
        told = told[:MAX_LINES]
        told += [f"then: {text}" for text in self.chained[:3]]
        if self.failures > 1:
            told.append(f"failed {self.failures} times")
        if self.edits:
            told.append(f"edited since: {', '.join(self.edits[:_MAX_EDITS])}")
        if self.fixed_by is not None:
            told.append(f"fixed by: {shorten(self.fixed_by, 200)}")
        return told


@dataclass(slots=True)
class _Trail:
    """What is still open, with the steps taken so far."""

    step: int = 0
    open: list[Stitched] = field(default_factory=list)
    done: list[Stitched] = field(default_factory=list)


def stitch(
    events: Iterable[Sequence[Any]], edits: Iterable[Sequence[Any]], lines_of: Callable[[int], Sequence[str]]
) -> list[Stitched]:
    """The incidents in these rows of events and file_edits (each in order of ids), in order of their first failure.

    `lines_of` gives the output lines of the command that was started by an event.
    """
    trail = _Trail()
    for is_edit, row in _in_order(events, edits):
        trail.step += 1
        if is_edit:
            _note_edit(row, trail)
        elif row[2] == "command.end":
            _note_command(row, trail, lines_of)
        elif row[2] == "tool.end":
            _note_tool(row, trail)
        if trail.step % 64 == 0:
            trail.open = [one for one in trail.open if trail.step - one.step <= MAX_STEPS_BETWEEN]
    return trail.done[-MOST_INCIDENTS:]


def _in_order(events: Iterable[Sequence[Any]], edits: Iterable[Sequence[Any]]) -> Iterator[tuple[bool, Sequence[Any]]]:
    """(is an edit, row) in the order of ids, in which both come; of each no more than one is held."""
    coming = iter(edits)
    edit = next(coming, None)
    for event in events:
        while edit is not None and edit[0] < event[0]:
            yield True, edit
            edit = next(coming, None)
        yield False, event
    while edit is not None:
        yield True, edit
        edit = next(coming, None)


def _note_command(row: Sequence[Any], trail: _Trail, lines_of: Callable[[int], Sequence[str]]) -> None:
    row_id, ts_ms, _, _, command, ok, code, started, _ = row
    if not command or ok is None or code == _STOPPED_BY_PERSON:
        return
    if ok and not trail.open and not may_mask(command):
        return
    lines = lines_of(started) if started and (not ok or trail.open or may_mask(command)) else ()
    telling = telling_lines(lines) if lines else []
    if ok and not is_masked_failure(command, lines):
        _settle(command, ts_ms, lines, trail)
        return
    if code == 1 and not telling and programs_of(command)[-1:] and programs_of(command)[-1] in _SEARCHES:
        return
    known = next(reversed(_tried_before(command, ts_ms, trail)), None)
    severity = _severity(code, telling, is_masked=bool(ok), is_reader=is_reading(command))
    if known is None:
        known = Stitched(
            started=started, first_event=row_id, first_ms=ts_ms, last_event=row_id, ts_ms=ts_ms, step=trail.step,
            command=command, about=about_of(command), words=words_of(command), tool=None, exit_code=code,
            severity=severity, is_masked=bool(ok), failures=0,
        )  # fmt: skip
        _open(known, trail)
    _add_failure(known, row_id, ts_ms, trail.step, telling)
    known.said |= said_in(lines)
    known.exit_code = code if not ok else known.exit_code
    known.severity = max(known.severity, severity)
    known.reasons["output tells of a failure" if ok else f"exit {code}" if code is not None else "failed"] = None


def _note_tool(row: Sequence[Any], trail: _Trail) -> None:
    row_id, ts_ms, _, tool, text, ok, _, _, _ = row
    if ok is None:
        return
    target = _tool_target(tool, text)
    if ok:
        for one in list(trail.open):
            if not one.command and one.tool == tool and one.about.target == target:
                _close(one, f"{tool} went well", ts_ms, trail)
        return
    last = trail.open[-1] if trail.open else None
    is_shell = (tool or "").lower() in ("shell", "bash", "exec", "command", "terminal")
    is_near = last is not None and trail.step - last.step <= _CHAINED_STEPS and ts_ms - last.ts_ms <= _CHAINED_MS
    if last is not None and last.command and is_near and is_shell:
        last.chained.append(f"{tool} failed: {shorten(text, 200)}")
        last.events.append(row_id)
        last.last_event = row_id
        last.reasons[f"tool {tool} failed too"] = None
        return
    known = next(
        (one for one in trail.open if not one.command and one.tool == tool and one.about.target == target), None
    )
    if known is None:
        severity = 0.15 if _TRIVIAL.search(text) else 0.5
        known = Stitched(
            started=None, first_event=row_id, first_ms=ts_ms, last_event=row_id, ts_ms=ts_ms, step=trail.step,
            command="", about=About(target, frozenset()), words=words_of(text), tool=tool, exit_code=None,
            severity=severity, failures=0,
        )  # fmt: skip
        _open(known, trail)
    told = _ERROR_TAG.sub("", text.removeprefix(f"{target}: "))
    lines = [shorten(line, 300) for line in told.split("\n")[:3] if line.strip()]
    _add_failure(known, row_id, ts_ms, trail.step, lines)
    known.reasons[f"tool {tool} failed"] = None


def _note_edit(row: Sequence[Any], trail: _Trail) -> None:
    _, ts_ms, path, _, ok = row
    name = path.rsplit("/", 1)[-1]
    for one in list(trail.open):
        if ok == 0:
            continue
        if not one.command and one.about.target.endswith(path):
            _close(one, f"{one.tool} {path} went well", ts_ms, trail)
            continue
        since = trail.step - one.step
        is_named = name in one.command or any(name in line for line in one.lines)
        is_near = since <= _NEAR_STEPS and one is trail.open[-1]
        if one.command and since <= MAX_STEPS_BETWEEN and (is_named or is_near) and path not in one.edits:
            one.edits.append(path)
            one.reasons["the failure names an edited file" if is_named else "edited right after"] = None


def _settle(command: str, ts_ms: int, lines: Sequence[str], trail: _Trail) -> None:
    """Close the incidents that this command, which went well, is the end of."""
    for one in _tried_before(command, ts_ms, trail):
        if one.lines and one.lines[0] in (line.strip() for line in lines):
            continue
        _close(one, bare_command(command) or command, ts_ms, trail)


def _open(one: Stitched, trail: _Trail) -> None:
    trail.open.append(one)
    trail.done.append(one)
    if len(trail.open) > _MOST_OPEN:
        del trail.open[:-_MOST_OPEN]
    if len(trail.done) > 2 * MOST_INCIDENTS:
        del trail.done[:-MOST_INCIDENTS]


def _close(one: Stitched, by: str, ts_ms: int, trail: _Trail) -> None:
    one.fixed_by, one.fixed_ms = by, ts_ms
    one.reasons["fixed later"] = None
    trail.open.remove(one)


def _add_failure(one: Stitched, row_id: int, ts_ms: int, step: int, lines: Sequence[str]) -> None:
    one.failures += 1
    one.last_event, one.ts_ms, one.step = row_id, ts_ms, step
    one.events.append(row_id)
    del one.events[20:-1]
    fresh = [line for line in lines if line not in one.lines]
    one.lines = [*fresh[:MAX_LINES], *one.lines][: 2 * MAX_LINES]
    if one.failures > 1:
        one.reasons[f"failed {one.failures} times"] = None
        one.reasons.pop(f"failed {one.failures - 1} times", None)


def _tried_before(command: str, ts_ms: int, trail: _Trail) -> list[Stitched]:
    """The open incidents whose command was about the same as this one, and not too long ago."""
    if not trail.open:
        return []
    about, oldest_step, oldest_ms = about_of(command), trail.step - MAX_STEPS_BETWEEN, ts_ms - MAX_MS_BETWEEN
    return [
        one
        for one in trail.open
        if one.step >= oldest_step
        and one.ts_ms >= oldest_ms
        and one.command
        and (
            command == one.command
            or (
                _has_same_subjects(about, one.about)
                if about.target == one.about.target
                else trail.step - one.step <= _SIMILAR_STEPS and _is_similar(words_of(command), one.words)
            )
        )
    ]


def _has_same_subjects(ours: About, theirs: About) -> bool:
    least = min(len(ours.subjects), len(theirs.subjects))
    return not least or 2 * len(ours.subjects & theirs.subjects) > least


def _is_similar(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    return 5 * len(ours & theirs) >= 3 * len(ours | theirs)


@lru_cache(maxsize=4096)
def about_of(command: str) -> About:
    """What a command is about."""
    arguments = _arguments(bare_command(command) or command)
    return About(" ".join(arguments[:2]), frozenset(arguments[2:]) - _EVERYTHING)


@lru_cache(maxsize=4096)
def words_of(text: str) -> frozenset[str]:
    """The words, flags and paths of a command."""
    return frozenset(_WORD.findall(bare_command(text)[:2000].lower()))


def _arguments(command: str) -> list[str]:
    words = command[:2000].lower().split()
    while words and words[0] in STARTERS:
        words = words[1:]
    if words and words[0].startswith(("/", "./", "~")):
        words[0] = words[0].rsplit("/", 1)[-1]
    return [word.strip("\"'") for word in words if not word.startswith("-") and word not in _JOINS]


def _tool_target(tool: str | None, text: str) -> str:
    return shorten(text.split("\n", 1)[0].split(": ", 1)[0], 200) or (tool or "")


def _severity(code: int | None, telling: Sequence[str], *, is_masked: bool, is_reader: bool) -> float:
    value = 0.9 if telling else 0.55
    if is_masked:
        value -= 0.15
    if is_reader:
        value -= 0.35
    if code is not None and code > 1:
        value += 0.05
    return min(1.0, max(0.1, value))
