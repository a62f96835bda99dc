"""Read the logs of sessions and shells, and derive incidents and working notes from what they gained."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from nugget.config import Environment, Settings
from nugget.errors import reason_of
from nugget.evidence.incidents import OpenIncident, build_incidents, error_lines, words_of
from nugget.evidence.notes import edit_note, notes_of_command, notes_of_speech
from nugget.evidence.values import Ingested
from nugget.index import events as store
from nugget.index import ingest as logs
from nugget.index.connection import write_transaction
from nugget.index.events import Ids, LogSession
from nugget.models import Problem, SourceName
from nugget.sources.logs import log_of
from nugget.sources.sessions import SessionFile, find_session_by_id, find_sessions
from nugget.sources.shell_logs import ShellLog, find_shell_session, require_session_id, shell_sessions
from nugget.text import shorten

Log = ShellLog | SessionFile


def find_log(environment: Environment, session_id: str) -> Log | None:
    """Return the logs of a session: a shell's folder, else an agent's transcript. Raises UsageError for a bad id."""
    require_session_id(session_id)
    return find_shell_session(environment.shell_logs, session_id) or find_session_by_id(environment, session_id)


def all_logs(environment: Environment) -> Iterator[Log]:
    """Return every session of shells and agents that has logs, those of shells first, each oldest first."""
    yield from shell_sessions(environment.shell_logs)
    yield from find_sessions(environment)


def ingest(connection: sqlite3.Connection, log: Log, *, settings: Settings, now: datetime) -> Ingested:
    """Take in what is new in the logs of a session. Doing so again finds nothing; two at once do each part once.

    Raises NuggetError for logs that cannot be read.
    """
    source = SourceName.SHELL if isinstance(log, ShellLog) else SourceName.SESSIONS
    read = logs.ingest_log(connection, log_of(log), settings, now=now)
    session = store.find_log_session(connection, log.id, source)
    incidents, notes = derive_sessions(connection, read.sessions or ([session.key] if session else []))
    counts = {table: max(0, read.rows[table]) for table in store.TABLES[:4]}
    return Ingested(
        session=log.id, source=source, malformed=read.malformed,
        bytes_read=read.bytes_read, anew=read.anew, redacted=dict(read.redacted), incidents=incidents,
        working_notes=notes, **counts,
    )  # fmt: skip


def ingest_all(
    connection: sqlite3.Connection,
    environment: Environment,
    *,
    settings: Settings,
    now: datetime,
    progress: logs.Progress | None = None,
) -> tuple[list[Ingested], list[Problem]]:
    """Take in every session's logs; a session that cannot be read is a problem and stops no other."""
    found = list(all_logs(environment))
    done: list[Ingested] = []
    problems: list[Problem] = []
    for number, log in enumerate(found):
        if progress:
            progress("Reading logs", number, len(found))
        try:
            result = ingest(connection, log, settings=settings, now=now)
        except sqlite3.Error:
            raise
        except Exception as error:
            problems.append(Problem(path=str(log.path), reason=reason_of(error)))
            continue
        if not result.is_empty:
            done.append(result)
    return done, problems


def derive_sessions(connection: sqlite3.Connection, keys: Iterable[int]) -> tuple[int, int]:
    """Derive the incidents and notes of sessions that gained rows; return how many there are more than before."""
    incidents = notes = 0
    for key in keys:
        with write_transaction(connection):
            session = store.log_session(connection, key)
            if session is None or session.derived >= session.last_number:
                continue
            more = derive(connection, session)
            incidents, notes = incidents + more[0], notes + more[1]
    return incidents, notes


_WINDOW_EVENTS = 1200
"""So many events before the first new one are looked at again: what is new may have fixed what failed there."""
_MAX_LINES_OF_COMMAND = 80
_SPEECH_CHARS = 4000
_TODO = re.compile(r"(?:TodoWrite )?\[(?P<status>\w+)\] (?P<text>.+)")


def derive(connection: sqlite3.Connection, session: LogSession) -> tuple[int, int]:
    """Bring incidents and notes of a session in line with its rows; return how many there are more than before.

    Called inside a transaction. Only what the rows since the last time can have changed is looked at.
    """
    ids = Ids(session.key, session.last_number)
    first, end = store.id_range(ids.key)
    first_new = Ids(ids.key, session.derived).next("events")
    before = _counts(connection, first, end)
    begin = _window_begin(connection, first, first_new)
    stale = [row[0] for row in store.rows_in(connection, "incidents", first, end) if row[4] >= begin]
    if stale:
        begins = [row[3] for row in store.rows_by_id(connection, "incidents", stale)]
        begin = min(begin, *begins)
    for incident in stale:
        store.remove_rows(connection, "incidents", incident, incident + 1)
    events: Iterable[tuple[Any, ...]]
    events = store.each_row_in(connection, "events", begin, end, where="kind IN ('command.end', 'tool.end')")
    edits: Iterable[tuple[Any, ...]] = store.each_row_in(connection, "file_edits", begin, end)
    if session.source != SourceName.SHELL:  # a subagent's events are read behind those of the session itself
        events, edits = (sorted(rows, key=lambda row: (row[1], row[0])) for rows in (events, edits))
    found = build_incidents(events, edits, _lines_of(connection, first, end))
    _allot_loose_lines(connection, found, begin, end)
    store.put_rows(connection, "incidents", [_incident_row(one, ids) for one in found])
    _derive_notes(connection, ids, first_new=first_new)
    after = _counts(connection, first, end)
    store.put_session(connection, ids, derived=ids.number)
    return max(0, after[0] - before[0]), max(0, after[1] - before[1])


def _counts(connection: sqlite3.Connection, first: int, end: int) -> tuple[int, int]:
    incidents, notes = (
        connection.execute(f"SELECT count(*) FROM {table} WHERE id >= ? AND id < ?", (first, end)).fetchone()[0]
        for table in ("incidents", "working_notes")
    )
    return incidents, notes


def _window_begin(connection: sqlite3.Connection, first: int, first_new: int) -> int:
    rows = connection.execute(
        "SELECT id FROM events WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?", (first, first_new, _WINDOW_EVENTS)
    ).fetchall()
    return rows[-1][0] if rows else first


def _lines_of(connection: sqlite3.Connection, first: int, end: int) -> Callable[[int], Sequence[str]]:
    """Return a function that gives the output of a command by its event, stderr first: failures are reported there."""
    query = "SELECT DISTINCT command FROM pane_output WHERE command >= ? AND command < ?"
    with_output = {row[0] for row in connection.execute(query, (first, end))}

    def lines(started: int) -> Sequence[str]:
        if started not in with_output:
            return ()
        rows = connection.execute(
            "SELECT text FROM pane_output WHERE command = ? AND id >= ? AND id < ? "
            "ORDER BY stream = 'stderr' DESC, is_failure DESC, id LIMIT ?",
            (started, first, end, _MAX_LINES_OF_COMMAND),
        )
        return [row[0] for row in rows]

    return lines


def _allot_loose_lines(connection: sqlite3.Connection, found: Sequence[OpenIncident], begin: int, end: int) -> None:
    """Give lines that no command is known to have printed to the incident whose words they share, else to the last."""
    commands = [one for one in found if one.command and len(one.lines) < 2]
    if not commands:
        return
    loose = store.rows_in(
        connection, "pane_output", begin, end, where="is_failure = 1 AND command IS NULL", limit=400, newest=True
    )
    loose = [row for row in loose if row[2] == "stderr"] or loose
    for line in error_lines([row[3] for row in loose]):
        words = words_of(line)
        best = max(commands, key=lambda one: (len(words & one.words), _speaks(one.command, line), one.last_event))
        if line not in best.lines:
            best.lines.append(line)
            best.reasons["printed in the same session"] = None
            connection.executemany(
                "UPDATE pane_output SET command = ?, ts_ms = ? WHERE id = ?",
                [(best.started, best.ts_ms, row[0]) for row in loose if row[3] == line],
            )


_TOOL_SIGNS = {
    "cargo": ("error[E", "rustc", ".rs"), "go": (".go:", "--- FAIL"), "npm": ("npm ERR", "npm error"),
    "pytest": ("E  ", ".py", "AssertionError"), "python": ("Traceback", "Error:", ".py"),
    "python3": ("Traceback", "Error:", ".py"),
    "tsc": ("error TS",), "git": ("fatal:",), "make": ("make:", "***"), "docker": ("docker", "daemon"),
    "node": ("Error:", ".js"), "pip": ("ERROR: ",),
}  # fmt: skip
"""Text that the programs that fail most print when they do."""


def _speaks(command: str, line: str) -> bool:
    return any(sign in line for word in command.split()[:3] for sign in _TOOL_SIGNS.get(word.rsplit("/", 1)[-1], ()))


def _incident_row(one: OpenIncident, ids: Ids) -> list[Any]:
    details = {
        "lines": one.lines[:8], "edits": one.edits[:8], "reasons": list(one.reasons), "events": one.events[-20:],
        "words": sorted(one.said)[:120],
        "severity": round(one.severity, 3), "exit_code": one.exit_code, "tool": one.tool, "summary": one.summary,
    }  # fmt: skip
    text = "\n".join([one.title, *one.summary])
    return [
        ids.next("incidents"), one.ts_ms, one.first_ms, one.first_event, one.last_event, one.title, text, one.command,
        one.failures, one.fixed_by, one.fixed_ms, json.dumps(details, ensure_ascii=False),
    ]  # fmt: skip


def _derive_notes(connection: sqlite3.Connection, ids: Ids, *, first_new: int) -> None:
    first, end = store.id_range(ids.key)
    known = {(row[2], row[3]): row for row in store.rows_in(connection, "working_notes", first, end)}
    wanted: dict[tuple[str, str], tuple[int, bool, int]] = {}
    for row in store.rows_in(connection, "incidents", first, end, limit=200, newest=True):
        severity = json.loads(row[11])["severity"]
        if severity >= 0.3:
            wanted["blocker", shorten(row[5], 300)] = (row[1], row[9] is None, row[0])
    for row in store.each_row_in(connection, "file_edits", first_new, end):
        if row[4] != 0:
            wanted["edit", edit_note(row[2], row[3])] = (row[1], True, row[0])
    said = "(kind = 'command.start' OR (kind = 'prompt' AND coalesce(speaker, 'user') = 'user'))"
    for row in store.each_row_in(connection, "events", first_new, end, where=said):
        find = notes_of_speech if row[2] == "prompt" else notes_of_command
        for kind, text in find(row[4][:_SPEECH_CHARS]):
            wanted[kind, text] = (row[1], True, row[0])
    for row in store.each_row_in(connection, "command_inputs", first_new, end):
        for kind, text in notes_of_command(row[2]):
            wanted.setdefault((kind, text), (row[1], True, row[0]))
    listed = store.rows_in(
        connection, "events", first, end, where="kind = 'tool.start' AND tool = 'TodoWrite'", limit=1, newest=True
    )
    for row in listed:
        for todo in filter(None, map(_TODO.fullmatch, map(str.strip, row[4].split("\n")))):
            wanted["todo", shorten(todo["text"], 300)] = (row[1], todo["status"] != "completed", row[0])
    _put_notes(connection, ids, known, wanted)


def _put_notes(
    connection: sqlite3.Connection,
    ids: Ids,
    known: dict[tuple[str, str], tuple[Any, ...]],
    wanted: dict[tuple[str, str], tuple[int, bool, int]],
) -> None:
    """Add what is new, and bring time and state of what is known up to date."""
    rows = []
    for (kind, text), (ts_ms, is_open, about) in sorted(wanted.items(), key=lambda note: (note[1][0], note[1][2])):
        if (kind, text) in known:
            connection.execute(
                "UPDATE working_notes SET ts_ms = ?, is_open = ?, about = ? WHERE id = ?",
                (ts_ms, int(is_open), about, known[kind, text][0]),
            )
        else:
            rows.append([ids.next("working_notes"), ts_ms, kind, text, int(is_open), about])
    store.put_rows(connection, "working_notes", rows)
    first, end = store.id_range(ids.key)
    for (kind, text), row in known.items():
        if (kind, text) not in wanted and _is_obsolete(connection, kind, text, row[5], first, end):
            store.remove_rows(connection, "working_notes", row[0], row[0] + 1)


def _is_obsolete(connection: sqlite3.Connection, kind: str, text: str, about: int | None, first: int, end: int) -> bool:
    """Return whether a note no longer holds: a blocker without its incident, an entry gone from the agent's list."""
    if kind == "blocker":
        sql = "SELECT 1 FROM incidents WHERE id >= ? AND id < ? AND title = ?"
        return connection.execute(sql, (first, end, text)).fetchone() is None
    sql = "SELECT 1 FROM events WHERE id = ? AND tool = 'TodoWrite'"
    return kind == "todo" and connection.execute(sql, (about,)).fetchone() is not None
