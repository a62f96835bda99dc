"""Condense a session to exchanges, and to texts that fit a limit.

Injected text was removed on reading. Text that Nugget itself recalled during the session is left out here, so that
memory never feeds on itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from itertools import islice

from nugget.models import Event, EventKind, Session, Speaker
from nugget.text import without_escapes

_CALLS_SHOWN = ("Task", "Agent", "ExitPlanMode", "AskUserQuestion", "WebFetch", "WebSearch", "SendMessage")
_RECALL_TOOLS = ("mcp__nugget__", "mcp__plugin_nugget__", "mcp__nugget_nugget__", "mcp__plugin_nugget_nugget__")
_RECALL_COMMAND = re.compile(
    r"(?:^|[;&|(`\n])[ \t]{0,8}(?:\w{1,40}=\S{0,80}[ \t]{1,8}){0,3}(?:[^\s;&|]{0,200}/)?"
    r"nugget[ \t]{1,8}(?:--brain[= \t]{1,8}\S{1,200}[ \t]{1,8})?"
    r"(?:ask|search|context|get|suggest|brief|recall|logs|nuggets|sessions|review|queries)\b"
)
"""Commands that print remembered text; the pattern is bounded, since a command may be megabytes long."""
_CUT = "[…]"
_EDIT_CHARS, _COMPARED_CHARS = 1_000, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One prompt with everything up to the next; `number` is the one in refs, 0 before the first prompt."""

    events: tuple[Event, ...]
    number: int = 0

    @property
    def prompt(self) -> str:
        """Text of the prompt; empty before the first prompt, or if it was all pasted."""
        first = self.events[0]
        return first.text if first.kind is EventKind.PROMPT and first.speaker is not Speaker.QUOTED else ""

    @property
    def started(self) -> datetime | None:
        """The first known time."""
        return next((event.timestamp for event in self.events if event.timestamp), None)


def exchanges(session: Session) -> list[Exchange]:
    """Return the exchanges of a session, without text that Nugget recalled."""
    return cut_at_prompts(without_recalled(session.events))


def cut_at_prompts(events: Iterable[Event]) -> list[Exchange]:
    """Return the events by exchange."""
    groups: list[list[Event]] = [[]]
    for event in events:
        if event.kind is EventKind.PROMPT and not event.agent_id:
            groups.append([])
        groups[-1].append(event)
    return [Exchange(number=number, events=tuple(own)) for number, own in enumerate(groups) if own]


def without_recalled(events: Iterable[Event]) -> list[Event]:
    """Return the events without calls of Nugget's own tools and commands, and without their results."""
    recalling: set[str] = set()
    kept: list[Event] = []
    for event in events:
        if is_recall(event):
            recalling.add(event.call_id or "")
        elif not event.call_id or event.call_id not in recalling:
            kept.append(event)
    return kept


def is_recall(event: Event) -> bool:
    """Return whether an event calls one of Nugget's own tools or commands, which print remembered text."""
    if event.kind is EventKind.COMMAND:
        return "nugget" in event.text and _RECALL_COMMAND.search(event.text) is not None
    return event.tool is not None and event.tool.startswith(_RECALL_TOOLS)


def windows(session: Session, *, max_chars: int, output_chars: int = 1600) -> list[str]:
    """Return the whole session as texts of at most `max_chars` each, cut between exchanges if possible.

    Output, edits and results have at most `output_chars` characters each. Files are relative to the session's folder.
    """
    folder = f"{session.cwd}/" if session.cwd else ""
    cut: list[str] = []
    for exchange in exchanges(session):
        text = "\n".join(line for event in exchange.events if (line := _event_text(event, output_chars, folder)))
        if cut and text and len(cut[-1]) + 2 + len(text) <= max_chars:
            cut[-1] = f"{cut[-1]}\n\n{text}"
        else:
            cut += cut_at_lines(text, max_chars)
    return cut


def cut_at_lines(text: str, max_chars: int) -> list[str]:
    """Return a text in parts of at most `max_chars` characters, cut at line ends if possible."""
    parts: list[str] = []
    while text:
        parts.append(_head(text, max_chars))
        text = text[len(parts[-1]) :].lstrip()
    return parts


def _event_text(event: Event, max_chars: int, folder: str) -> str:
    """Return one event as text for people and models; empty if it says nothing on its own."""
    kind, by = event.kind, f" ({event.agent_id})" if event.agent_id else ""
    is_typed, has_failed = event.speaker is Speaker.USER, event.ok is False
    match kind:
        case EventKind.PROMPT | EventKind.PASTE:
            return f"{'USER' if is_typed else 'PASTED BY USER'}: {event.text}"
        case EventKind.REPLY:
            return f"AGENT{by}: {event.text}"
        case EventKind.SUMMARY:
            return f"SUMMARY: {clip(event.text, max(16 * max_chars, 400))}"
        case EventKind.COMMAND:
            return f"$ {clip(event.text, max(max_chars, 200))}"
        case EventKind.OUTPUT:
            status = f"[exit code {event.exit_code}]" if event.exit_code is not None else "[failed]"
            # Successes are seldom worth their length; failures are what one learns from.
            shown = clip(printed(event.text), max_chars if has_failed else min(max_chars, 400)) if max_chars else ""
            return f"{status} {shown}".rstrip() if has_failed else shown
        case EventKind.FILE_EDIT:
            return _edit_text(event, max_chars, folder)
        case EventKind.TOOL_CALL if event.tool in _CALLS_SHOWN and max_chars:
            return f"{event.tool}{by}: {clip(event.text, max_chars)}"
        case EventKind.TOOL_RESULT if has_failed and max_chars:
            return f"FAILED {event.tool or 'tool'}: {clip(printed(event.text), min(max_chars, 400))}"
    return ""


def printed(text: str) -> str:
    """Return terminal output without colour codes, progress lines overwritten by a carriage return, and empty runs."""
    text = without_escapes(text)
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return re.sub(r"\n\s*\n(?:\s*\n)+", "\n\n", text) if "\n\n\n" in text else text


def clip(text: str, max_chars: int) -> str:
    """Return a text of at most `max_chars` characters, without its middle if it is longer, cut at near line ends."""
    text = text.strip()
    if len(text) <= max_chars:
        return text
    room = max_chars - len(_CUT) - 2
    if room < 2:
        return _CUT[:max_chars]
    head = _head(text, room // 3)
    start = len(text) - (room - room // 3)
    line = text.find("\n", start, start + room // 3)
    return f"{head}\n{_CUT}\n{text[line + 1 if line > 0 else start :]}"


def _edit_text(event: Event, max_chars: int, folder: str) -> str:
    """Return an edit as its removed and added lines, with one line of context."""
    first = f"{'EDIT REFUSED' if event.ok is False else 'EDIT'} {(event.path or '').removeprefix(folder)}"
    if not max_chars or event.ok is False:
        return first
    before, after = (clip(text or "", _COMPARED_CHARS).splitlines() for text in (event.before, event.after))
    changed = unified_diff([] if event.tool == "Write" else before, after, n=1, lineterm="")
    lines = [f"{line[0]} {line[1:]}" for line in islice(changed, 2, None) if not line.startswith("@@")]
    return clip("\n".join([first, *lines]), min(max_chars, _EDIT_CHARS))


def _head(text: str, max_chars: int) -> str:
    """Return the longest beginning that fits, cut at a line end in its second half if possible."""
    if len(text) <= max_chars:
        return text
    cut = text.rfind("\n", max_chars // 2, max_chars)
    return text[: cut if cut > 0 else max_chars]
