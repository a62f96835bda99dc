"""Shell logs become rows: which command an end belongs to, which command printed a line, what a tool wrote."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from nugget.index.events import Ids
from nugget.redaction.batches import MARGIN_CHARS
from nugget.sources.shell_logs import LogEvent, LogLine

MAX_TEXT_CHARS, MAX_PATH_CHARS, MAX_NAME_CHARS = 2000, 1000, 80
_TEXT_CHARS, _PATH_CHARS = MAX_TEXT_CHARS + MARGIN_CHARS, MAX_PATH_CHARS + MARGIN_CHARS
_MOST_OPEN, _MOST_KNOWN = 50, 5000
_WRITING_TOOLS = {
    "fs.write": "overwrite", "fs.append": "append", "fs.edit": "edit", "fs.patch": "edit", "write": "overwrite",
    "edit": "edit", "apply_patch": "edit",
}  # fmt: skip
_ESCAPED = re.compile(r'\\(["\\])')
_SAYING_KEYS = ("text", "message", "prompt", "content", "error", "reason", "title", "name", "path")


class Command(NamedTuple):
    """A command that was started: its row, its text, and when it began or, once that is known, ended."""

    id: int
    text: str
    ts_ms: int


@dataclass(slots=True)
class Running:
    """What has to be remembered from one event to the next: open commands, the last time, where streams belong."""

    ids: Ids
    ts_ms: int
    open: list[Command] = field(default_factory=list)
    known: dict[int, Command] = field(default_factory=dict)
    ranges: list[tuple[str, int, int, Command]] = field(default_factory=list)
    folder: str | None = None


@dataclass(slots=True)
class Rows:
    """Rows for the tables of the same names, in the order of their columns."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    file_edits: list[tuple[Any, ...]] = field(default_factory=list)


def event_rows(events: Sequence[LogEvent], running: Running) -> Rows:
    """The rows of some events, not yet redacted. Times that are missing are taken from the event before."""
    rows = Rows()
    next_id, add = running.ids.next, rows.events.append
    ts_ms = running.ts_ms
    for offset, own_ms, kind, given in events:
        ts_ms = running.ts_ms = own_ms or ts_ms
        tool = code = outcome = started = None
        if given.get("tool"):
            tool = _text(given["tool"])[:_PATH_CHARS] or None
        if kind == "command.start":
            text = (_text(given.get("cmd")) or _text(given.get("command"))).strip()[:_TEXT_CHARS]
            row_id = next_id("events")
            _begin(Command(row_id, text, ts_ms), given, running)
        elif kind == "command.end":
            code = _exit_of(given)
            outcome = None if code is None else int(code == 0)
            named = _text(given["cmd"]).strip()[:_TEXT_CHARS] if given.get("cmd") else ""
            command = _ended(named, given, running)
            text = named
            if command:
                text, started = named or command.text, command.id
            row_id = next_id("events")
        else:
            if kind.startswith("tool."):
                text = _tool_text(kind, tool, given)
                outcome = int(given["ok"]) if isinstance(given.get("ok"), bool) else None
            else:
                text = _said(given)
            text = text.strip()[:_TEXT_CHARS]
            row_id = next_id("events")
        add((row_id, ts_ms, kind, tool, text, outcome, code, started, offset))
        if tool and kind == "tool.start" and tool in _WRITING_TOOLS:
            rows.file_edits += _edit_rows(tool, given, running)
    _forget_old(running)
    return rows


def output_rows(stream: str, lines: Sequence[LogLine], texts: Sequence[str], running: Running) -> list[list[Any]]:
    """The rows of lines of a stream, whose `texts` have been redacted.

    A line belongs to the command whose shell noted the place; else to the command that was echoed above it.
    """
    ranges = sorted((start, end, command.id, command) for name, start, end, command in running.ranges if name == stream)
    starts = [start for start, *_ in ranges]
    echoed: dict[str, list[Command]] = {}
    for command in running.known.values():
        if words := command.text.split():
            echoed.setdefault(words[-1], []).append(command)
    current: Command | None = None
    rows: list[list[Any]] = []
    for line, text in zip(lines, texts, strict=True):
        if not text:
            continue
        place = bisect_right(starts, line.offset) - 1
        owner = ranges[place][3] if place >= 0 and line.offset < ranges[place][1] else None
        if owner is None and stream != "stderr" and not ranges:
            current = _echo_of(text, echoed) or current
            owner = current
        ts_ms, command_id = (owner.ts_ms, owner.id) if owner else (running.ts_ms, None)
        row_id = running.ids.next("pane_output")
        rows.append([row_id, ts_ms, stream, text, int(line.is_failure), command_id, line.offset])
    return rows


def input_rows(lines: Sequence[LogLine], texts: Sequence[str], running: Running) -> list[list[Any]]:
    """The rows of lines that were typed."""
    return [
        [running.ids.next("command_inputs"), running.ts_ms, text, line.offset]
        for line, text in zip(lines, texts, strict=True)
        if text
    ]


def _begin(command: Command, given: Mapping[str, Any], running: Running) -> None:
    if given.get("cwd"):
        running.folder = _text(given["cwd"])[:_PATH_CHARS] or running.folder
    running.open.append(command)
    running.known[command.id] = command
    if len(running.open) > _MOST_OPEN:
        del running.open[:-_MOST_OPEN]


def _ended(named: str, given: Mapping[str, Any], running: Running) -> Command | None:
    """The command that an end belongs to: the last one open with its text, where the end names one, else the last."""
    place = len(running.open) - 1
    while place >= 0 and named and running.open[place].text != named:
        place -= 1
    if place < 0:
        return None
    begun = running.open.pop(place)
    ended = Command(begun.id, begun.text, running.ts_ms)
    running.known[begun.id] = ended
    if given.get("streams"):
        for stream, (begin, end) in _streams(given):
            running.ranges.append((stream, begin, end, ended))
    return ended


def _forget_old(running: Running) -> None:
    """Remember no more commands, and places of their output, than are looked for."""
    del running.ranges[:-_MOST_KNOWN]
    if len(running.known) > _MOST_KNOWN:
        running.known = dict(islice(running.known.items(), len(running.known) - _MOST_KNOWN, None))


def _streams(given: Mapping[str, Any]) -> list[tuple[str, tuple[int, int]]]:
    """`{"streams": {"stderr": [from, to]}}`: where in the streams a command's output stands."""
    streams = given.get("streams")
    found = []
    for name, place in streams.items() if isinstance(streams, dict) else ():
        if isinstance(place, list) and len(place) == 2 and all(type(offset) is int for offset in place):
            found.append((name, (place[0], place[1])))
    return found


def _echo_of(line: str, echoed: Mapping[str, Sequence[Command]]) -> Command | None:
    """The command that a line ends with, after a prompt; of equal ones the latest."""
    words = line.rsplit(None, 1)
    for command in reversed(echoed.get(words[-1], ())) if words else ():
        if line.endswith(command.text) and len(line) - len(command.text) <= 160:
            return command
    return None


def _exit_of(given: Mapping[str, Any]) -> int | None:
    for key in ("exit", "exit_code", "code", "status"):
        code = given.get(key)
        if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 1 << 31:
            return code
    return None


def _tool_text(kind: str, tool: str | None, given: Mapping[str, Any]) -> str:
    if kind == "tool.start":
        arguments = given.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        shown = next((value for key in ("command", "cmd", "path", "query") if (value := _text(arguments.get(key)))), "")
        return f"{tool or 'tool'} {shown or _short(arguments)}"
    for key in ("error", "result", "output", "summary"):
        if said := _text(given.get(key)):
            return said
    return tool or "tool"


def _edit_rows(tool: str, given: Mapping[str, Any], running: Running) -> list[tuple[Any, ...]]:
    arguments = given.get("args")
    path = _text(arguments.get("path")) or _text(arguments.get("file_path")) if isinstance(arguments, dict) else ""
    if not path:
        return []
    action = "append" if arguments and arguments.get("append") is True else _WRITING_TOOLS[tool]
    return [(running.ids.next("file_edits"), running.ts_ms, path[:_PATH_CHARS], action, None)]


def _said(given: Mapping[str, Any]) -> str:
    return next((text for key in _SAYING_KEYS if (text := _text(given.get(key)))), "") or _short(given)


def _short(given: Mapping[str, Any]) -> str:
    """All that is given, as JSON to look at: quotes in it are not escaped, so that it can be read and redacted."""
    return _ESCAPED.sub(r"\1", json.dumps(given, ensure_ascii=False, default=str)[: 2 * _TEXT_CHARS]) if given else ""


def _text(value: object) -> str:
    """A text from a log, without what neither UTF-8 nor the index can hold."""
    if not isinstance(value, str):
        return ""
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "�").encode("utf-8", "replace").decode()
