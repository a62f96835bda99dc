"""An agent's session becomes rows: commands with their outcome, output, edits, failures, todos, subagents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nugget.evidence.cleaning import MARGIN_CHARS
from nugget.index.evidence import Ids
from nugget.models import Event, EventKind, Session
from nugget.sources.condense import plain, without_recalled
from nugget.sources.injected_text import is_refusal
from nugget.sources.log_lines import MAX_LINE_CHARS, is_opaque, looks_failed

_OUTPUT_CHARS = 200_000
_TEXT_CHARS = {
    EventKind.PROMPT: 4000, EventKind.PASTE: 4000, EventKind.REPLY: 1500, EventKind.SUMMARY: 4000,
    EventKind.COMMAND: 2000, EventKind.TOOL_CALL: 1500, EventKind.TOOL_RESULT: 1500, EventKind.FILE_EDIT: 500,
    EventKind.OUTPUT: _OUTPUT_CHARS,
}  # fmt: skip
_WHOLE_LINES, _HEAD_LINES, _FAILING_LINES, _TAIL_LINES = 60, 10, 40, 25
_TODO = re.compile(r"\[(?P<status>\w+)\] (?P<text>.+)")


@dataclass(slots=True)
class SessionRows:
    """Rows for the tables of the same names; `todos` are (event id, time, text, is open) of the last to-do list."""

    events: list[list[Any]] = field(default_factory=list)
    pane_output: list[list[Any]] = field(default_factory=list)
    file_edits: list[list[Any]] = field(default_factory=list)
    todos: list[tuple[int, int, str, bool]] = field(default_factory=list)


def trimmed(session: Session) -> Session:
    """The session with little more of each text than is kept, and without what Nugget itself recalled in it."""
    events = []
    for event in without_recalled(session.events):
        text = event.text[: kept_chars(event.kind) + MARGIN_CHARS]
        if event.kind is EventKind.OUTPUT:
            text = "\n".join(_kept(plain(_end_of(event.text)).split("\n")))
        events.append(replace(event, text=text, before=None, after=None))
    return replace(session, events=tuple(events))


def kept_chars(kind: EventKind) -> int:
    """How much of the text of such an event is kept."""
    return _TEXT_CHARS[kind]


def _end_of(text: str) -> str:
    """The last lines of an output; of one that is all one line, the last characters."""
    if len(text) <= _OUTPUT_CHARS:
        return text
    _, border, lines = text[-_OUTPUT_CHARS:].partition("\n")
    return lines if border else text[MARGIN_CHARS - _OUTPUT_CHARS :]


def session_rows(session: Session, ids: Ids) -> SessionRows:
    """The rows of a session that has been trimmed and redacted."""
    rows = SessionRows()
    started: dict[str, tuple[int, str]] = {}
    ts_ms = _ms(session.started)
    for event in session.events:
        ts_ms = _ms(event.timestamp) or ts_ms
        if event.kind is EventKind.FILE_EDIT:
            action = "overwrite" if event.tool == "Write" else "edit"
            outcome = None if event.ok is None else int(event.ok)
            path = _inside(event.path or event.text, session.cwd)
            rows.file_edits.append([ids.next("file_edits"), ts_ms, path, action, outcome])
            started[event.call_id or ""] = (0, f"{event.tool} {path}".strip())
        elif event.kind is EventKind.OUTPUT:
            _add_output(event, ts_ms, started.get(event.call_id or ""), rows, ids)
        else:
            _add_event(event, ts_ms, started, rows, ids)
    return rows


def _add_event(event: Event, ts_ms: int, started: dict[str, tuple[int, str]], rows: SessionRows, ids: Ids) -> None:
    row_id = ids.next("events")
    kind, text, ok, begun = event.kind.value, event.text, None, None
    if event.kind is EventKind.COMMAND:
        kind = "command.start"
        started[event.call_id or ""] = (row_id, text)
    elif event.kind is EventKind.TOOL_CALL:
        kind = "tool.start"
        started[event.call_id or ""] = (row_id, f"{event.tool} {event.path or ''}".strip())
        if event.tool == "TodoWrite":
            rows.todos = _todos(row_id, ts_ms, text) or rows.todos
        text = f"{event.tool} {text}".strip()
    elif event.kind is EventKind.TOOL_RESULT:
        kind = "tool.end"
        begun, target = started.get(event.call_id or "", (None, ""))
        ok = None if event.ok is None or is_refusal(text) else int(event.ok)
        text = f"{target}: {text}" if ok == 0 and target else text
    rows.events.append([row_id, ts_ms, kind, event.tool, text, ok, None, begun or None, None])


def _add_output(event: Event, ts_ms: int, command: tuple[int, str] | None, rows: SessionRows, ids: Ids) -> None:
    begun, text = command or (None, "")
    for line in event.text.split("\n"):
        if shown := line.rstrip()[:MAX_LINE_CHARS]:
            row_id = ids.next("pane_output")
            rows.pane_output.append([row_id, ts_ms, "merged", shown, int(looks_failed(shown)), begun, None])
    was_stopped = event.ok is False and event.exit_code is None and "[Request interrupted" in event.text
    ok = None if event.ok is None or was_stopped else int(event.ok)
    row_id = ids.next("events")
    rows.events.append([row_id, ts_ms, "command.end", event.tool, text, ok, event.exit_code, begun, None])


def _inside(path: str, folder: str | None) -> str:
    """A path below the folder that the session worked in as seen from there; any other as it is."""
    return path.removeprefix(f"{folder.rstrip('/')}/") if folder else path


def _kept(lines: Sequence[str]) -> Sequence[str]:
    """Of a long output the beginning, what looks like failures, and the end."""
    lines = [line for line in lines if line.strip() and not is_opaque(line)]
    if len(lines) <= _WHOLE_LINES:
        return lines
    middle = lines[_HEAD_LINES:-_TAIL_LINES]
    failing = [line for line in middle if looks_failed(line[:MAX_LINE_CHARS])][:_FAILING_LINES]
    return [*lines[:_HEAD_LINES], *failing, *lines[-_TAIL_LINES:]]


def _todos(row_id: int, ts_ms: int, text: str) -> list[tuple[int, int, str, bool]]:
    found = [_TODO.fullmatch(line.strip()) for line in text.split("\n")]
    return [(row_id, ts_ms, todo["text"], todo["status"] != "completed") for todo in found if todo]


def _ms(moment: datetime | None) -> int:
    return int(moment.timestamp() * 1000) if moment else 0
