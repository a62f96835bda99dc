"""Turn the log of a shell session into redacted rows."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from nugget.index.embedded.events import Ids
from nugget.index.embedded.session_rows import IngestRun
from nugget.redaction import MARGIN_CHARS, redact, within
from nugget.sources import Log, storable, text_of
from nugget.sources.shell_logs import EVENTS, INPUT, MAX_LINE_CHARS, STREAMS, LogEvent, LogLine, read_events, read_text

PASSAGE_CHARS = 1200
"""The number of characters of output that share one number."""
_MAX_TEXT_CHARS, _MAX_PATH_CHARS, _MAX_NAME_CHARS = 2000, 1000, 80
_EVENT_TEXTS = ((2, _MAX_NAME_CHARS), (3, _MAX_NAME_CHARS), (4, _MAX_TEXT_CHARS))
"""Columns of events that may hold text, even those meant for plain names, and their maximum length."""
_TEXT_CHARS, _PATH_CHARS = _MAX_TEXT_CHARS + MARGIN_CHARS, _MAX_PATH_CHARS + MARGIN_CHARS
_MOST_OPEN = 50
_ECHO_CHARS = 160
_WRITING_TOOLS = {
    "fs.write": "overwrite", "fs.append": "append", "fs.edit": "edit", "fs.patch": "edit", "write": "overwrite",
    "edit": "edit", "apply_patch": "edit",
}  # fmt: skip
_SPEECH_KEYS = ("text", "message", "prompt", "content", "error", "reason", "title", "name", "path")


class Command(NamedTuple):
    """A command that was started: its row, its text, and its start or (once known) end time."""

    id: int
    text: str
    ts_ms: int


@dataclass(slots=True, kw_only=True)
class ShellSession:
    """A shell session with its rows by table, and the state between events.

    `open` are commands without an end, `ranges` the places in a stream where commands printed, `started_ms` and `ts_ms`
    the times of the first and last event, `waiting` the files whose last line is incomplete.
    """

    run: IngestRun
    ids: Ids
    rows: dict[str, list[list[Any]]] = field(default_factory=dict)
    started_ms: int = 0
    ts_ms: int = 0
    folder: str | None = None
    open: list[Command] = field(default_factory=list)
    known: dict[int, Command] = field(default_factory=dict)
    ranges: list[tuple[str, int, int, Command]] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)


def read_shell(run: IngestRun, log: Log, key: int) -> ShellSession:
    """Read all files of a shell session; `key` is its row's key."""
    shell = ShellSession(run=run, ids=Ids(key, 0))
    files = {file.path.name: file for file in log}
    typed = INPUT if INPUT in files and files[INPUT].size else EVENTS
    shown = next((name for name in STREAMS if name in files), "")
    searched = {typed, shown, "stderr.log" if shown == "stdout.log" else ""}
    for name in (EVENTS, INPUT, *STREAMS):
        if name in files:
            read = _read_events if name == EVENTS else _read_text
            read(shell, files[name].path, is_searched=name in searched)
    run.bytes_read += sum(file.size for file in log)
    return shell


def _read_events(shell: ShellSession, file: Path, *, is_searched: bool) -> None:
    run = shell.run
    given, malformed = read_events(file)
    events, edits = _event_rows(given, shell)
    run.malformed += malformed
    cells = [(row, at, most) for row in events for at, most in _EVENT_TEXTS]
    _clean([*cells, *((row, 2, _MAX_PATH_CHARS) for row in edits)], run)
    if shell.folder:
        shell.folder = within(run.clean(shell.folder), _MAX_PATH_CHARS, was=len(shell.folder))
    number = 0
    for row in events:
        is_said = is_searched and row[2] == "command.start" and bool(row[4])
        number += is_said
        row += [None, None, number if is_said else None, None, None]
    shell.rows |= {"events": events, "file_edits": edits}


def _read_text(shell: ShellSession, file: Path, *, is_searched: bool) -> None:
    run, name = shell.run, file.name
    now_ms = int((run.now or datetime.now(UTC)).timestamp() * 1000)
    found, mtime_ms, is_waiting = read_text(file, now_ms=now_ms, most_chars=MAX_LINE_CHARS + MARGIN_CHARS)
    given = [text for _, text, _ in found]
    cleaned = redact("\n".join(given), allow=run.allow, keep_lines=True)
    run.redacted.update(cleaned.counts)
    lines = cleaned.text.split("\n") if given else []
    texts = [within(text, MAX_LINE_CHARS, was=len(line)) for line, text in zip(given, lines, strict=True)]
    shell.ts_ms = shell.ts_ms or mtime_ms
    shell.started_ms = shell.started_ms or shell.ts_ms
    if name != INPUT:
        table, rows = "pane_output", _output_rows(STREAMS[name], found, texts, shell)
    else:
        table, rows = "command_inputs", [[shell.ids.next("command_inputs"), shell.ts_ms, one] for one in texts if one]
    number, room = 0, 0
    for row in rows:
        text = row[2] if name == INPUT else row[3]
        room -= len(text)
        if is_searched and (room < 0 or name == INPUT):
            number, room = number + 1, PASSAGE_CHARS - len(text)
        row.append(number if is_searched else None)
    shell.rows.setdefault(table, []).extend(rows)
    if is_waiting:
        shell.waiting.add(str(file))


def _clean(cells: Sequence[tuple[list[Any], int, int]], run: IngestRun) -> None:
    """Redact and shorten cells, given as (row, column, most characters)."""
    given = [row[at] or "" for row, at, _ in cells]
    for (row, at, most), text, before in zip(cells, run.clean_all(given), given, strict=True):
        if text is not before or len(before) > most:
            row[at] = within(text, most, was=len(before))


def _event_rows(events: Sequence[LogEvent], shell: ShellSession) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the rows of events and file edits, not yet redacted; a missing time is that of the previous event."""
    rows: list[list[Any]] = []
    edits: list[list[Any]] = []
    ts_ms = shell.ts_ms
    for own_ms, kind, given in events:
        ts_ms = shell.ts_ms = own_ms or ts_ms
        shell.started_ms = shell.started_ms or ts_ms
        tool = _text(given["tool"])[:_PATH_CHARS] or None if given.get("tool") else None
        code = outcome = started = None
        row_id = shell.ids.next("events")
        if kind == "command.start":
            text = (_text(given.get("cmd")) or _text(given.get("command"))).strip()[:_TEXT_CHARS]
            _begin(Command(row_id, text, ts_ms), given, shell)
        elif kind == "command.end":
            codes = (given.get(key) for key in ("exit", "exit_code", "code", "status"))
            code = next((one for one in codes if type(one) is int and abs(one) < 1 << 31), None)
            outcome = None if code is None else int(code == 0)
            text = _text(given["cmd"]).strip()[:_TEXT_CHARS] if given.get("cmd") else ""
            if command := _ended(text, given, shell):
                text, started = text or command.text, command.id
        elif kind.startswith("tool."):
            text = _tool_text(kind, tool, given)
            outcome = int(given["ok"]) if isinstance(given.get("ok"), bool) else None
        else:
            text = next((said for key in _SPEECH_KEYS if (said := _text(given.get(key)))), "") or _as_json(given)
        rows.append([row_id, ts_ms, kind, tool, text.strip()[:_TEXT_CHARS], outcome, code, started])
        if tool and kind == "tool.start" and tool in _WRITING_TOOLS:
            edits += _edit_rows(tool, given, shell)
    return rows, edits


def _output_rows(stream: str, lines: Sequence[LogLine], texts: Sequence[str], shell: ShellSession) -> list[list[Any]]:
    """Return the rows for lines of a stream with their redacted `texts`.

    A line belongs to the command for which the shell noted the place, else to the command echoed above it.
    """
    ranges = sorted((start, end, command.id, command) for name, start, end, command in shell.ranges if name == stream)
    starts = [start for start, *_ in ranges]
    echoed: dict[str, list[Command]] = {}
    for command in shell.known.values():
        if words := command.text.split():
            echoed.setdefault(words[-1], []).append(command)
    current: Command | None = None
    rows: list[list[Any]] = []
    for (offset, _, is_failure), text in zip(lines, texts, strict=True):
        if not text:
            continue
        place = bisect_right(starts, offset) - 1
        owner = ranges[place][3] if place >= 0 and offset < ranges[place][1] else None
        if owner is None and stream != "stderr" and not ranges:
            current = _echoed_command(text, echoed) or current
            owner = current
        ts_ms, command_id = (owner.ts_ms, owner.id) if owner else (shell.ts_ms, None)
        row_id = shell.ids.next("pane_output")
        rows.append([row_id, ts_ms, stream, text, int(is_failure), command_id])
    return rows


def _begin(command: Command, given: Mapping[str, Any], shell: ShellSession) -> None:
    if given.get("cwd"):
        shell.folder = _text(given["cwd"])[:_PATH_CHARS] or shell.folder
    shell.open.append(command)
    shell.known[command.id] = command
    del shell.open[:-_MOST_OPEN]


def _ended(named: str, given: Mapping[str, Any], shell: ShellSession) -> Command | None:
    """Return the command that an end belongs to: the last open one with the text that it names, else the last."""
    place = len(shell.open) - 1
    while place >= 0 and named and shell.open[place].text != named:
        place -= 1
    if place < 0:
        return None
    begun = shell.open.pop(place)
    ended = shell.known[begun.id] = Command(begun.id, begun.text, shell.ts_ms)
    streams = given.get("streams")  # {"stderr": [from, to]}: the place of its output in the streams
    for name, span in streams.items() if isinstance(streams, dict) else ():
        if isinstance(span, list) and len(span) == 2 and all(type(offset) is int for offset in span):
            shell.ranges.append((name, span[0], span[1], ended))
    return ended


def _echoed_command(line: str, echoed: Mapping[str, Sequence[Command]]) -> Command | None:
    """Return the command at the end of a line, after a prompt; the latest if several match."""
    words = line.rsplit(None, 1)
    for command in reversed(echoed.get(words[-1], ())) if words else ():
        if line.endswith(command.text) and len(line) - len(command.text) <= _ECHO_CHARS:
            return command
    return None


def _tool_text(kind: str, tool: str | None, given: Mapping[str, Any]) -> str:
    if kind == "tool.start":
        arguments = given.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        shown = next((value for key in ("command", "cmd", "path", "query") if (value := _text(arguments.get(key)))), "")
        return f"{tool or 'tool'} {shown or _as_json(arguments)}"
    return next((text for key in ("error", "result", "output", "summary") if (text := _text(given.get(key)))), "") or (
        tool or "tool"
    )


def _edit_rows(tool: str, given: Mapping[str, Any], shell: ShellSession) -> list[list[Any]]:
    arguments = given.get("args")
    path = _text(arguments.get("path")) or _text(arguments.get("file_path")) if isinstance(arguments, dict) else ""
    if not path:
        return []
    action = "append" if arguments and arguments.get("append") is True else _WRITING_TOOLS[tool]
    return [[shell.ids.next("file_edits"), shell.ts_ms, path[:_PATH_CHARS], action, None]]


def _as_json(given: Mapping[str, Any]) -> str:
    """Return arguments as JSON without escaped quotes, so that it can be read and redacted."""
    shown = json.dumps(given, ensure_ascii=False, default=str)[: 2 * _TEXT_CHARS] if given else ""
    return re.sub(r'\\(["\\])', r"\1", shown)


def _text(value: object) -> str:
    return storable(text_of(value))
