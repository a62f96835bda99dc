"""Read the log of a shell session: what its files have gained becomes rows, redacted, a batch at a time."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from nugget.index import events as store
from nugget.index.connection import write_transaction
from nugget.index.events import Ids, ReadState
from nugget.index.session_rows import IngestRun, workspace_of
from nugget.models import SourceName
from nugget.redaction import MARGIN_CHARS, redact, within
from nugget.sources import FilePlace, Log, LogFile
from nugget.sources.shell_logs import (
    EVENTS,
    INPUT,
    MAX_LINE_CHARS,
    STREAMS,
    LogEvent,
    LogLine,
    read_events,
    read_text,
)

PASSAGE_CHARS = 1200
"""Of output so many characters of lines have one number."""
_MAX_LINES = {"is_failure = 0": 30_000, "is_failure = 1": 10_000}
"""Lines of output that the index holds of one shell session, at most; all stand in the log itself."""
_MAX_TEXT_CHARS, _MAX_PATH_CHARS, _MAX_NAME_CHARS = 2000, 1000, 80
_TEXT_CHARS, _PATH_CHARS = _MAX_TEXT_CHARS + MARGIN_CHARS, _MAX_PATH_CHARS + MARGIN_CHARS
_MOST_OPEN, _MOST_KNOWN = 50, 5000
_ECHO_CHARS = 160
_WRITING_TOOLS = {
    "fs.write": "overwrite", "fs.append": "append", "fs.edit": "edit", "fs.patch": "edit", "write": "overwrite",
    "edit": "edit", "apply_patch": "edit",
}  # fmt: skip
_ESCAPED = re.compile(r'\\(["\\])')
_SPEECH_KEYS = ("text", "message", "prompt", "content", "error", "reason", "title", "name", "path")


class Command(NamedTuple):
    """A command that was started: its row, its text, and when it began or, once that is known, ended."""

    id: int
    text: str
    ts_ms: int


@dataclass(slots=True, kw_only=True)
class ShellSession:
    """A shell session that is being read, with what has to be remembered from one event to the next.

    `states` say how far its files were read, by path; `open` are commands without an end, `ranges` where commands
    printed in a stream, `ts_ms` is the time of the last event.
    """

    run: IngestRun
    ids: Ids
    states: dict[str, ReadState]
    ts_ms: int = 0
    folder: str | None = None
    open: list[Command] = field(default_factory=list)
    known: dict[int, Command] = field(default_factory=dict)
    ranges: list[tuple[str, int, int, Command]] = field(default_factory=list)

    def state(self, file: LogFile) -> ReadState:
        """Return how far a file was read."""
        return self.states.get(file.path) or ReadState(path=file.path, session=self.ids.key)

    def refresh_ids(self) -> None:
        """Count on from the last id that was given: another process may have derived incidents meanwhile."""
        sql = "SELECT last_number FROM log_sessions WHERE key = ?"
        self.ids.number = self.run.connection.execute(sql, (self.ids.key,)).fetchone()[0]

    def write(
        self, file: LogFile, place: FilePlace, exchanges: int, rows: Mapping[str, Sequence[Sequence[Any]]]
    ) -> None:
        """Write rows by table, and how far the file was read for them."""
        connection = self.run.connection
        with write_transaction(connection):
            self.run.put_rows(rows)
            state = self.state(file).moved_to(place, session=self.ids.key, size=-1, exchanges=exchanges)
            self.states[file.path] = replace(state, key=store.put_state(connection, state))
            store.put_session(connection, self.ids, ended_ms=self.ts_ms or None, folder=self.folder)
            sql = "UPDATE log_sessions SET started_ms = coalesce(started_ms, ?) WHERE key = ?"
            connection.execute(sql, (self.ts_ms or None, self.ids.key))


def read_shell(run: IngestRun, log: Log, states: dict[str, ReadState]) -> None:
    """Read what the files of a shell session have gained."""
    with write_transaction(run.connection):
        session = store.claim_session(run.connection, source=SourceName.SHELL, session_id=log.id, path=log.path)
    shell = _resumed(run, session, states)
    before = run.bytes_read
    files = {Path(file.path).name: file for file in log.files}
    typed = INPUT if INPUT in files and files[INPUT].size else EVENTS
    shown = next((name for name in STREAMS if name in files), "")
    searched = {typed, shown, "stderr.log" if shown == "stdout.log" else ""}
    for name in (EVENTS, INPUT, *STREAMS):
        file = files.get(name) or LogFile(path=str(Path(log.path, name)), size=-1, mtime_ns=0)
        read = _read_events if name == EVENTS else _read_text
        read(shell, file, is_searched=name in searched)
    with write_transaction(run.connection):
        if run.bytes_read > before:
            run.sessions[session.key] = None
            _forget_old_output(run, session.key)
            shell.refresh_ids()
            store.put_session(run.connection, shell.ids, workspace=workspace_of(shell.folder))
        for file in log.files:
            state = shell.state(file)
            is_waiting = state.taken < file.size and Path(file.path).name != EVENTS  # for the end of its last line
            state = replace(state, size=-1 if is_waiting else file.size, mtime_ns=file.mtime_ns)
            store.put_state(run.connection, state)


def _resumed(run: IngestRun, session: store.LogSession, states: dict[str, ReadState]) -> ShellSession:
    """Return the session with what the events read before say about those to come: the commands that are known."""
    first, end = store.id_range(session.key)
    starts = store.rows_in(run.connection, "events", first, end, where="kind = 'command.start'", limit=50, newest=True)
    begin = starts[0][0] if starts else end
    ended = {row[7] for row in store.rows_in(run.connection, "events", begin, end, where="kind = 'command.end'")}
    commands = [Command(row[0], row[4], row[1]) for row in starts]
    return ShellSession(
        run=run, ids=Ids(session.key, session.last_number), states=states, ts_ms=session.ended_ms or 0,
        folder=session.folder, open=[command for command in commands if command.id not in ended],
        known={command.id: command for command in commands},
    )  # fmt: skip


def _read_events(shell: ShellSession, file: LogFile, *, is_searched: bool) -> None:
    """Read the events that a file has gained."""
    run = shell.run
    for batch in read_events(Path(file.path), shell.state(file).place):
        shell.refresh_ids()
        events, edits = _event_rows(batch.content, shell)
        _clean(events, 2, _MAX_NAME_CHARS, run)  # also what should be a plain name
        _clean(events, 3, _MAX_NAME_CHARS, run)
        _clean(events, 4, _MAX_TEXT_CHARS, run)
        _clean(edits, 2, _MAX_PATH_CHARS, run)
        if shell.folder:
            shell.folder = within(run.clean(shell.folder), _MAX_PATH_CHARS, was=len(shell.folder))
        number = shell.state(file).exchanges
        for row in events:
            is_said = is_searched and row[2] == "command.start" and bool(row[4])
            number += is_said
            row += [None, None, number if is_said else None, None, None]
        shell.write(file, batch.place, number, {"events": events, "file_edits": edits})
        run.bytes_read += batch.bytes_read
        run.malformed += batch.malformed
        run.reread += [Path(file.path).name] if batch.restarted else []


def _read_text(shell: ShellSession, file: LogFile, *, is_searched: bool) -> None:
    run, name = shell.run, Path(file.path).name
    now_ms = int((run.now or datetime.now(UTC)).timestamp() * 1000)
    part = read_text(Path(file.path), shell.state(file).place, now_ms=now_ms, most_chars=MAX_LINE_CHARS + MARGIN_CHARS)
    if part is None:
        return
    given = [line.text for line in part.content]
    cleaned = redact("\n".join(given), allow=run.allow, keep_lines=True)
    run.redacted.update(cleaned.counts)
    lines = cleaned.text.split("\n") if given else []
    texts = [within(text, MAX_LINE_CHARS, was=len(line)) for line, text in zip(given, lines, strict=True)]
    shell.refresh_ids()
    shell.ts_ms = shell.ts_ms or part.mtime_ms
    if name == INPUT:
        table, rows = "command_inputs", _input_rows(texts, shell)
    else:
        table, rows = "pane_output", _output_rows(STREAMS[name], part.content, texts, shell)
    number, room = shell.state(file).exchanges, 0
    for row in rows:
        text = row[2] if name == INPUT else row[3]
        room -= len(text)
        if is_searched and (room < 0 or name == INPUT):
            number, room = number + 1, PASSAGE_CHARS - len(text)
        row.append(number if is_searched else None)
    shell.write(file, part.place, number, {table: rows})
    run.bytes_read += part.bytes_read
    run.reread += [name] if part.restarted else []


def _clean(rows: list[list[Any]], column: int, most: int, run: IngestRun) -> None:
    """Take secrets out of a column of rows, and what is longer than `most`."""
    given = [row[column] or "" for row in rows]
    texts = run.clean_all(given)
    for row, text, before in zip(rows, texts, given, strict=True):
        if text is not before or len(before) > most:
            row[column] = within(text, most, was=len(before)) or row[column]


def _forget_old_output(run: IngestRun, key: int) -> None:
    """Keep no more than so many lines of a session's output, the newest, of plain ones and of failures."""
    first, end = store.id_range(key)
    for where, most in _MAX_LINES.items():
        oldest_kept = run.connection.execute(
            f"SELECT id FROM pane_output WHERE id >= ? AND id < ? AND {where} ORDER BY id DESC LIMIT 1 OFFSET ?",
            (first, end, most - 1),
        ).fetchone()
        if oldest_kept:
            store.remove_rows(run.connection, "pane_output", first, oldest_kept[0], where=where)


def _event_rows(events: Sequence[LogEvent], shell: ShellSession) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the rows of events and of file edits, not yet redacted. A missing time is that of the event before."""
    rows: list[list[Any]] = []
    edits: list[list[Any]] = []
    ts_ms = shell.ts_ms
    for own_ms, kind, given in events:
        ts_ms = shell.ts_ms = own_ms or ts_ms
        tool = _text(given["tool"])[:_PATH_CHARS] or None if given.get("tool") else None
        code = outcome = started = None
        row_id = shell.ids.next("events")
        if kind == "command.start":
            text = (_text(given.get("cmd")) or _text(given.get("command"))).strip()[:_TEXT_CHARS]
            _begin(Command(row_id, text, ts_ms), given, shell)
        elif kind == "command.end":
            code = _exit_code(given)
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
    del shell.ranges[:-_MOST_KNOWN]
    if len(shell.known) > _MOST_KNOWN:
        shell.known = dict(islice(shell.known.items(), len(shell.known) - _MOST_KNOWN, None))
    return rows, edits


def _output_rows(stream: str, lines: Sequence[LogLine], texts: Sequence[str], shell: ShellSession) -> list[list[Any]]:
    """Return the rows of lines of a stream, whose `texts` have been redacted.

    A line belongs to the command whose shell noted the place; else to the command that was echoed above it.
    """
    ranges = sorted((start, end, command.id, command) for name, start, end, command in shell.ranges if name == stream)
    starts = [start for start, *_ in ranges]
    echoed: dict[str, list[Command]] = {}
    for command in shell.known.values():
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
            current = _echoed_command(text, echoed) or current
            owner = current
        ts_ms, command_id = (owner.ts_ms, owner.id) if owner else (shell.ts_ms, None)
        row_id = shell.ids.next("pane_output")
        rows.append([row_id, ts_ms, stream, text, int(line.is_failure), command_id])
    return rows


def _input_rows(texts: Sequence[str], shell: ShellSession) -> list[list[Any]]:
    return [[shell.ids.next("command_inputs"), shell.ts_ms, text] for text in texts if text]


def _begin(command: Command, given: Mapping[str, Any], shell: ShellSession) -> None:
    if given.get("cwd"):
        shell.folder = _text(given["cwd"])[:_PATH_CHARS] or shell.folder
    shell.open.append(command)
    shell.known[command.id] = command
    del shell.open[:-_MOST_OPEN]


def _ended(named: str, given: Mapping[str, Any], shell: ShellSession) -> Command | None:
    """Return the command that an end belongs to: the last open one with its text if the end names it, else the last."""
    place = len(shell.open) - 1
    while place >= 0 and named and shell.open[place].text != named:
        place -= 1
    if place < 0:
        return None
    begun = shell.open.pop(place)
    ended = shell.known[begun.id] = Command(begun.id, begun.text, shell.ts_ms)
    streams = given.get("streams")  # {"stderr": [from, to]}: where in the streams its output stands
    for name, span in streams.items() if isinstance(streams, dict) else ():
        if isinstance(span, list) and len(span) == 2 and all(type(offset) is int for offset in span):
            shell.ranges.append((name, span[0], span[1], ended))
    return ended


def _echoed_command(line: str, echoed: Mapping[str, Sequence[Command]]) -> Command | None:
    """Return the command that a line ends with, behind a prompt; of equal ones the latest."""
    words = line.rsplit(None, 1)
    for command in reversed(echoed.get(words[-1], ())) if words else ():
        if line.endswith(command.text) and len(line) - len(command.text) <= _ECHO_CHARS:
            return command
    return None


def _exit_code(given: Mapping[str, Any]) -> int | None:
    codes = (given.get(key) for key in ("exit", "exit_code", "code", "status"))
    return next((code for code in codes if type(code) is int and abs(code) < 1 << 31), None)


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
    """Return all that is given as JSON to look at, without escaped quotes, so that it can be read and redacted."""
    return _ESCAPED.sub(r"\1", json.dumps(given, ensure_ascii=False, default=str)[: 2 * _TEXT_CHARS]) if given else ""


def _text(value: object) -> str:
    """Return a text from a log, without what neither UTF-8 nor the index can hold."""
    return value.replace("\0", "�").encode("utf-8", "replace").decode() if isinstance(value, str) else ""
