"""Failing command -> fix: a command that failed, what was changed, and the run that then went well."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nugget.extraction.cues import TOOL_OUTPUT
from nugget.models import Event, EventKind
from nugget.sources.condense import plain
from nugget.text import shorten

MAX_EVENTS_BETWEEN = 60
"""How far behind a failure its fix is looked for."""

_EXPECTED = re.compile(
    r"fails? (?:as )?expected|expected to fail|failing test|red phase|\bTDD\b|should fail"
    r"|(?:confirm|verify|see|ensure|check|make sure) (?:that )?(?:it|the test|they|this) fails",
    re.IGNORECASE,
)
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
"""What the telling line of a failure looks like, the most telling first."""

_PLACE = re.compile(r"^\S+?:\d+(?::\d+)?:?\s*")
_TEST_SIGN = re.compile(r"_test\.\w+:\d+: (?!.*\(\w+\)$)|^E\s|\btest_\w+\.py\b|AssertionError")
_NOISE = re.compile(
    r"^\s*(?:--- FAIL|FAIL\b|=== |ok\s|PASS|exit status|\d+ (?:failed|passed)|npm ERR!? code|error: script|traceback)"
    r"|task failed|could not apply|\bCONFLICT\b|automatic merge failed|merge conflict",
    re.IGNORECASE,
)
_CD = re.compile(
    r"^(?:\s*(?:cd|export|source|set|timeout)\s+[^&;|]+(?:&&|;)\s*"
    r"|\s*[A-Z_][A-Z0-9_]*=(?:\$\([^()]*\)|\"[^\"]*\"|'[^']*'|[^\s;&|()\"'])*(?:\s*(?:&&|;)\s*|\s+))+"
)
_PLUMBING = re.compile(
    r"\s*(?:2>&1|\|\s*(?:head|tail|grep|sed|awk|tee|jq|wc|cat)\b.*$|>\s*/dev/null|<<.*$|\|\|\s*true\s*$"
    r"|\s--?(?:body|message|m|description|title)[ =]\s*[\"'].*$)",
    re.DOTALL,
)
_PATH = re.compile(r"(?<![\w.])~?(?:/[\w.@-]+){2,}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A failure and what ended it.

    `signature` are the telling lines of the failure; `edits` the file edits in between; `said` the replies in
    between; `success` the command that went well, which may differ from `command`.
    """

    command: Event
    failure: Event
    signature: tuple[str, ...]
    edits: tuple[Event, ...]
    said: tuple[Event, ...]
    success: Event

    @property
    def speaks_for_itself(self) -> bool:
        """Whether the failure and the change say enough without an explanation.

        Another command does; so does an edit of the file that a compiler named. A failed test does not, nor the
        remark of a linter, which says it again to whoever makes the same mistake.
        """
        if self.changed_command:
            return True
        edited = {(edit.path or "").rsplit("/", 1)[-1] for edit in self.edits}
        if any(TOOL_OUTPUT.search(_PLACE.sub("", line).strip()) for line in self.signature[:1]):
            return False
        is_test = any(_TEST_SIGN.search(line) for line in self.signature)
        return not is_test and any(name and name in line for name in edited for line in self.signature)

    @property
    def changed_command(self) -> bool:
        """Whether it was the command that had to change, not the code."""
        return not self.edits and bare_command(self.command.text) != bare_command(self.success.text)


def find_fixes(events: Sequence[Event]) -> list[Fix]:
    """Every failure that was fixed in the session, in order; a failure that was wanted (a test first) is none."""
    outputs = {event.call_id: event for event in events if event.kind is EventKind.OUTPUT and event.call_id}
    fixes: list[Fix] = []
    done: set[str] = set()
    for place, command in enumerate(events):
        failure = outputs.get(command.call_id or "") if command.kind is EventKind.COMMAND else None
        if failure is None or failure.ok is not False:
            continue
        signature = signature_of(failure.text)
        if not signature or signature[0] in done or _was_expected(events, place):
            continue
        fix = _fix_of(events, place, failure, signature, outputs)
        if fix:
            done.add(signature[0])
            fixes.append(fix)
    return fixes


def signature_of(output: str, *, limit: int = 3) -> tuple[str, ...]:
    """The lines of a failure that say what went wrong, the most telling kind first."""
    lines = [line.strip() for line in plain(output).splitlines()]
    lines = [line for line in lines if 8 <= len(line) <= 400 and not _NOISE.search(line)]
    for sign in _SIGNS:
        found = [line for line in lines if sign.match(line)]
        if found:
            return tuple(dict.fromkeys(shorten(line, 300) for line in found))[:limit]
    return ()


def bare_command(text: str) -> str:
    """A command without `cd …`, variables, redirections and filters, on one line."""
    first = _CD.sub("", text.strip())
    return " ".join(_PLUMBING.sub("", first).split())


def short_path(text: str) -> str:
    """The text with absolute folders cut off paths."""
    return _PATH.sub("", text)


def _fix_of(
    events: Sequence[Event], place: int, failure: Event, signature: tuple[str, ...], outputs: Mapping[str, Event]
) -> Fix | None:
    command = events[place]
    edits: list[Event] = []
    said: list[Event] = []
    for event in events[place + 1 : place + MAX_EVENTS_BETWEEN]:
        if event.kind is EventKind.FILE_EDIT and event.ok is not False:
            edits.append(event)
        elif event.kind is EventKind.REPLY:
            said.append(event)
        elif event.kind is EventKind.PROMPT and not edits:
            return None
        elif event.kind is EventKind.COMMAND:
            output = outputs.get(event.call_id or "")
            if output is None or not output.ok or not _same_target(command.text, event.text, strict=not edits):
                continue
            if signature_of(output.text)[:1] == signature[:1]:
                continue
            if not edits and bare_command(command.text) == bare_command(event.text):
                return None
            return Fix(
                command=command,
                failure=failure,
                signature=signature,
                edits=tuple(edits),
                said=tuple(said),
                success=event,
            )
    return None


def _was_expected(events: Sequence[Event], place: int) -> bool:
    near = [event.text[-600:] for event in events[max(0, place - 4) : place + 5] if event.kind is EventKind.REPLY]
    return any(_EXPECTED.search(text) for text in near)


def _same_target(one: str, other: str, *, strict: bool) -> bool:
    """Whether two commands are about the same: same program (and sub-command), and shared arguments."""
    ours, theirs = bare_command(one).split(), bare_command(other).split()
    if not ours or not theirs:
        return False
    if strict:
        return ours[:2] == theirs[:2] and len(set(ours) & set(theirs)) >= min(3, len(ours))
    shared = set(ours) & set(theirs)
    return ours[0] in theirs and (ours[:2] == theirs[:2] or len(shared) * 2 >= min(len(set(ours)), len(set(theirs))))
