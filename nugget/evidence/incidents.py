"""Combine failures with their output, retries, edits and fix into incidents.

Consecutive failures of the same target (a program with shared arguments, a tool on a file) are one incident. An edit
belongs to it if the failure names the file or the edit follows at once; the next success of the target is the fix.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import dropwhile
from typing import Any

from nugget.sources.condense import printed
from nugget.sources.shell_logs import looks_failed
from nugget.text import shorten

MAX_LINES = 6
_STARTERS = frozenset("sudo time env command npx bunx uv poetry pipenv run exec nohup".split())
"""Programs that run another program."""

_READERS = frozenset(
    "cat grep egrep rg ag head tail less more sed awk ls find echo printf jq curl wget tree wc git-log git-show "
    "git-diff git-grep git-blame git-status gh-run gh-pr gh-issue gh-api docker-logs kubectl-logs journalctl".split()
)
"""Programs that print files, logs and pages; an `error:` in their output is not a failure of theirs."""
_SIGNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r".*\b(?:unknown|unrecognized|invalid|no such|unsupported) (?:flag|option|argument|command|subcommand|key)\b",
        r"(?:\S+_test\.\w+:\d+: |E   +\w)",
        r".*\b(?:panic|fatal|segmentation fault)\b",
        r".*\((?:gosec|errcheck|staticcheck|revive|nilerr|govet|gocritic|typecheck|unused)\)",
        r".*\berror(?:\s+TS\d+|\[\w+\])?:",
        r"(?:E\s+)?[\w.]*(?:Error|Exception|Warning)\b",
        r".*\b(?:undefined|undeclared|not found|cannot|can't|could not|denied|refused|timed out|mismatch|conflict"
        r"|failed)\b",
    )
)
"""Forms of the line that says why something failed, the clearest first."""
_STRONG = re.compile(
    r"(?:\[[\w:.-]+\] )?(?:error(?:\[\w+\])?:|\w*(?:Error|Exception): \S|FAIL(?:ED)?\b|Traceback \(most recent"
    r"|panic: |fatal: |npm ERR!|✗|✘|×|CONFLICT \(|Automatic merge failed|\s*--- FAIL|E   |thread '.*' panicked"
    r"|make(?:\[\d+\])?: \*\*\*|ERROR\b|Failed to |Cannot find |.*\berror TS\d+:|.*: command not found"
    r"|.*No such file or directory|.*(?:[1-9]\d*) (?:failed|failing|errors?)\b)"
)
_MASKS = frozenset("|;&")
"""Characters of a command line whose exit code may hide that of one of its parts."""
_CD = re.compile(
    r"^(?:\s*(?:cd|export|source|set|timeout)\s+[^&;|]+(?:&&|;)\s*"
    r"|\s*[A-Z_][A-Z0-9_]*=(?:\$\([^()]*\)|\"[^\"]*\"|'[^']*'|[^\s;&|()\"'])*(?:\s*(?:&&|;)\s*|\s+))+"
)
_PLUMBING = re.compile(
    r"\s*(?:\d?>\s*(?:&\d|/dev/null)|\|\s*(?:head|tail|grep|sed|awk|tee|jq|wc|cat)\b.*$|<<-?[\"'\\]?[A-Za-z_].*$|\|\|\s*true\s*$"
    r"|\s--?(?:body|message|m|description|title)[ =]\s*[\"'].*$)",
    re.DOTALL,
)


def _programs_of(command: str) -> list[str]:
    """Return the programs of a command line, each with the sub-command if that says more (`git-log`)."""
    found = []
    for part in re.split(r"\|\||&&|[|;\n]", command[:2000]):
        words = list(dropwhile(lambda word: "=" in word or word in _STARTERS, part.split()))
        if words and words[0] not in ("cd", "export", "source", "set"):
            program = words[0].rsplit("/", 1)[-1]
            compound = program in ("git", "gh", "docker", "kubectl") and len(words) > 1
            found.append(f"{program}-{words[1]}" if compound else program)
    return found


def error_lines(output: Sequence[str]) -> list[str]:
    """Return the lines of an output that name the failure, the clearest first."""
    lines = [line.strip() for line in printed("\n".join(output)).splitlines()]
    telling = [line for line in lines if 8 <= len(line) <= 400]
    signs = next(filter(None, ([line for line in telling if sign.match(line)] for sign in _SIGNS)), [])
    strong = [line for line in telling if _STRONG.match(line)]
    if not signs and not strong:
        strong = [line for line in telling if looks_failed(line)]
    found = [*signs[:4], *strong[:MAX_LINES]] or [line for line in lines[-2:] if line]
    return [shorten(line, 300) for line in dict.fromkeys(found)][:MAX_LINES]


def bare_command(text: str) -> str:
    """Return a command on one line without `cd …`, variables, redirections and filters, unless nothing is left."""
    return " ".join(_PLUMBING.sub("", _CD.sub("", text.strip())).split()) or text


def _is_masked_failure(command: str, lines: Sequence[str]) -> bool:
    """Return True if the output of a command with exit code 0 shows a failure, as after `| tail` or `; echo`."""
    if _MASKS.isdisjoint(command) or is_reading(command):
        return False
    failing = (line for line in lines if _STRONG.match(line.strip()))
    return any(
        not re.search(r"\b0 (?:failed|failing|errors?)\b", line) or re.search(r"\b[1-9]\d* ", line) for line in failing
    )


def is_reading(command: str) -> bool:
    """Return whether a command prints files, logs or pages."""
    return any(program in _READERS for program in _programs_of(command)[:1])


_MAX_STEPS = 150
"""Maximum number of steps between the last failure of an incident and a retry or fix."""
_MAX_MS = 6 * 3600 * 1000
_MOST_INCIDENTS = 5000
"""Maximum number of incidents of a session; the latest are kept."""
_NEAR_STEPS, _SIMILAR_STEPS = 25, 12
_CHAINED_STEPS, _CHAINED_MS = 4, 10_000
_MAX_EDITS, _MOST_OPEN = 8, 24

_SEARCHES = frozenset(
    "grep egrep fgrep rg ag ack diff cmp test [ [[ which type command pgrep pidof find ls stat file kill pkill "
    "lsof".split()
)
"""Programs whose exit code 1 says "nothing found" and nothing else."""
_TRIVIAL = (
    "file has not been read yet", "has been modified since read", "string to replace not found", "no changes to make",
    "file does not exist", "exceeds maximum allowed", "is a directory", "eisdir", "inputvalidationerror",
    "sibling tool call errored", "matches of the string",
)  # fmt: skip
"""Failures of an agent's own tools that its next call overcomes."""
_EVERYTHING = frozenset([".", "./..."])
_JOINS = frozenset(["&&", "||", ";", "|"])
_STOPPED_BY_PERSON = 130


_Target = tuple[str, frozenset[str]]
"""Program and sub-command (or script) without variables, folders and starters; the other arguments without flags."""


@dataclass(slots=True)
class OpenIncident:
    """An incident under construction; `printers` are the start events of the commands that failed."""

    first_ms: int
    last_event: int
    ts_ms: int
    step: int
    command: str
    target: _Target
    words: frozenset[str]
    severity: float
    tool: str | None = None
    exit_code: int | None = None
    printers: list[int | None] = field(default_factory=list)
    is_masked: bool = False
    lines: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    chained: list[str] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    reasons: dict[str, None] = field(default_factory=dict)
    fixed_by: str | None = None

    @property
    def title(self) -> str:
        """The failure on one line."""
        code = f" (exit {self.exit_code})" if self.exit_code is not None and not self.is_masked else ""
        if not self.command:
            named = self.target[0] if self.target[0] != self.tool else next(iter(self.lines), self.target[0])
            named = named.removeprefix(f"{self.tool}").lstrip(": ") or named
            return f"{self.tool or 'tool'} failed: {shorten(named, 300)}"
        return f"`{shorten(bare_command(self.command), 160)}` failed{code}"

    @property
    def summary(self) -> list[str]:
        """Lines on the output, the edits, the retries and the fix."""
        lines = [line for line in self.lines if self.command or line not in self.title][:MAX_LINES]
        lines += [f"then: {text}" for text in self.chained[:3]]
        if len(self.printers) > 1:
            lines.append(f"failed {len(self.printers)} times")
        if self.edits:
            lines.append(f"edited since: {', '.join(self.edits[:_MAX_EDITS])}")
        fix = "the same command" if self.fixed_by == bare_command(self.command) else shorten(self.fixed_by or "", 200)
        return [*lines, f"fixed by: {fix}"] if fix else lines


def build_incidents(
    events: Iterable[Sequence[Any]], edits: Iterable[Sequence[Any]], lines_of: Callable[[int], Sequence[str]]
) -> list[OpenIncident]:
    """Return the incidents in rows of events and file_edits (each sorted by id), ordered by first failure.

    `lines_of` gives the output lines of the command that was started by an event.
    """
    pending: list[OpenIncident] = []
    found: dict[int, OpenIncident] = {}
    steps = (((False, row) for row in events), ((True, row) for row in edits))
    for step, (is_edit, row) in enumerate(heapq.merge(*steps, key=lambda step: step[1][0]), 1):
        pending = [one for one in pending if step - one.step <= _MAX_STEPS][-_MOST_OPEN:]
        if is_edit:
            _note_edit(row, step, pending)
        elif row[2] == "command.end":
            _note_command(row, step, pending, lines_of)
        else:
            _note_tool(row, step, pending)
        found |= {id(one): one for one in pending[-1:]}
    return list(found.values())[-_MOST_INCIDENTS:]


def _note_command(
    row: Sequence[Any], step: int, pending: list[OpenIncident], lines_of: Callable[[int], Sequence[str]]
) -> None:
    _, ts_ms, _, _, command, ok, code, started = row
    if not command or ok is None or code == _STOPPED_BY_PERSON or (ok and not pending and _MASKS.isdisjoint(command)):
        return
    lines = lines_of(started) if started else ()
    errors = error_lines(lines)
    if ok and not _is_masked_failure(command, lines):
        for one in () if "--abort" in command else _tried_before(command, ts_ms, step, pending):
            if not one.lines or one.lines[0] not in (line.strip() for line in lines):
                _close(one, bare_command(command), pending)
        return
    programs = _programs_of(command)
    # `exit` returns the code of the command before it.
    if programs == ["exit"] or (code == 1 and not errors and programs and programs[-1] in _SEARCHES):
        return
    severity = 0.9 if errors else 0.55
    severity += (-0.15 if ok else 0.0) + (-0.35 if is_reading(command) else 0.0) + (0.05 if (code or 0) > 1 else 0.0)
    known = next(reversed(_tried_before(command, ts_ms, step, pending)), None)
    if known is None:
        known = _opened(row, step, pending, command=command, target=_target_of(command), severity=severity)
        known.is_masked = bool(ok)
    _add_failure(known, row, step, errors)
    failing = [line for line in lines if looks_failed(line)][:30]
    known.said |= {word.lower() for line in failing for word in re.findall(r"[^\W_]{3,40}", line)}
    known.exit_code = code if not ok else known.exit_code
    known.severity = max(known.severity, severity)
    known.reasons["output tells of a failure" if ok else f"exit {code}" if code is not None else "failed"] = None


def _note_tool(row: Sequence[Any], step: int, pending: list[OpenIncident]) -> None:
    row_id, ts_ms, _, tool, text, ok, _, _ = row
    if ok is None:
        return
    target = shorten(text.split("\n", 1)[0].split(": ", 1)[0], 200) or (tool or "")
    same = [one for one in pending if not one.command and (one.tool, one.target[0]) == (tool, target)]
    if ok:
        for one in same:
            _close(one, f"a later {tool}", pending)
        return
    last = pending[-1] if pending else None
    is_shell = (tool or "").lower() in ("shell", "bash", "exec", "command", "terminal")
    is_near = last is not None and step - last.step <= _CHAINED_STEPS and ts_ms - last.ts_ms <= _CHAINED_MS
    if last is not None and last.command and is_near and is_shell:
        last.chained.append(f"{tool} failed: {shorten(text, 200)}")
        last.last_event = row_id
        last.reasons[f"tool {tool} failed too"] = None
        return
    if same:
        known = same[0]
    else:
        severity = 0.15 if any(said in text.lower() for said in _TRIVIAL) else 0.5
        known = _opened(row, step, pending, command="", target=(target, frozenset()), severity=severity)
        known.tool = tool
    said = text.removeprefix(f"{target}: ").split("\n")[:3]
    _add_failure(known, row, step, [shorten(line, 300) for line in said if line.strip()])
    known.reasons[f"tool {tool} failed"] = None


def _note_edit(row: Sequence[Any], step: int, pending: list[OpenIncident]) -> None:
    _, _, path, _, ok = row
    name = path.rsplit("/", 1)[-1]
    for one in list(pending):
        if ok == 0:
            continue
        if not one.command and one.target[0].endswith(path):
            _close(one, f"a later {one.tool}", pending)
            continue
        since = step - one.step
        is_named = name in one.command or any(name in line for line in one.lines)
        is_near = since <= _NEAR_STEPS and one is pending[-1]
        if one.command and since <= _MAX_STEPS and (is_named or is_near) and path not in one.edits:
            one.edits.append(path)
            one.reasons["the failure names an edited file" if is_named else "edited right after"] = None


def _opened(
    row: Sequence[Any], step: int, pending: list[OpenIncident], *, command: str, target: _Target, severity: float
) -> OpenIncident:
    """Return a new incident that begins with a row, without its first failure."""
    one = OpenIncident(
        first_ms=row[1], last_event=row[0], ts_ms=row[1], step=step, command=command, target=target,
        words=words_of(row[4]), severity=severity,
    )  # fmt: skip
    pending.append(one)
    return one


def _close(one: OpenIncident, by: str, pending: list[OpenIncident]) -> None:
    one.fixed_by = by
    one.reasons["fixed later"] = None
    pending.remove(one)


def _add_failure(one: OpenIncident, row: Sequence[Any], step: int, lines: Sequence[str]) -> None:
    one.printers.append(row[7])
    one.last_event, one.ts_ms, one.step = row[0], row[1], step
    one.lines = list(dict.fromkeys([*(line for line in lines if line not in one.lines), *one.lines]))[: 2 * MAX_LINES]


def _tried_before(command: str, ts_ms: int, step: int, pending: list[OpenIncident]) -> list[OpenIncident]:
    """Return the open incidents with nearly the same command, unless too long ago."""
    name, subjects = _target_of(command)

    def is_same(one: OpenIncident) -> bool:
        theirs = one.target[1]
        if name == one.target[0]:
            least = min(len(subjects), len(theirs))
            return not least or 2 * len(subjects & theirs) > least
        words = words_of(command)
        is_near = step - one.step <= _SIMILAR_STEPS
        return is_near and 5 * len(words & one.words) >= 3 * len(words | one.words)

    recent = [one for one in pending if one.command and one.ts_ms >= ts_ms - _MAX_MS]
    return [one for one in recent if command == one.command or is_same(one)]


@lru_cache(maxsize=4096)
def _target_of(command: str) -> _Target:
    words = list(dropwhile(_STARTERS.__contains__, bare_command(command)[:2000].lower().split()))
    if words and words[0].startswith(("/", "./", "~")):
        words[0] = words[0].rsplit("/", 1)[-1]
    arguments = [word.strip("\"'") for word in words if not word.startswith("-") and word not in _JOINS]
    return " ".join(arguments[:2]), frozenset(arguments[2:]) - _EVERYTHING


@lru_cache(maxsize=4096)
def words_of(text: str) -> frozenset[str]:
    """Return the words, flags and paths of a command."""
    return frozenset(re.findall(r"[\w./@:-]+", bare_command(text)[:2000].lower()))
