"""Taking in the logs of sessions and shells: only what is new, redacted, a batch at a time."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.errors import NuggetError
from nugget.evidence.cleaning import MARGIN_CHARS, redacted_all, redacted_lines, within
from nugget.evidence.derive import derive
from nugget.evidence.session_rows import kept_chars, session_rows, trimmed
from nugget.evidence.shell_rows import (
    MAX_NAME_CHARS,
    MAX_PATH_CHARS,
    MAX_TEXT_CHARS,
    Command,
    Rows,
    Running,
    event_rows,
    input_rows,
    output_rows,
)
from nugget.evidence.values import Ingested
from nugget.index import evidence as store
from nugget.index.connection import write_transaction
from nugget.index.evidence import Ids
from nugget.infra.workspace import find_workspace, vanished_workspace
from nugget.models import Problem, Session, SourceName
from nugget.redaction import allow_list, is_excluded_project, redact, redact_session
from nugget.sources.log_lines import MAX_LINE_CHARS
from nugget.sources.sessions import SessionFile, find_session_by_id, find_sessions, read_any
from nugget.sources.shell_logs import (
    EVENTS,
    INPUT,
    STREAMS,
    FilePlace,
    ShellLog,
    find_shell_session,
    read_events,
    read_text,
    require_session_id,
    rotated_rest,
    shell_sessions,
)

Log = ShellLog | SessionFile
Progress = Callable[[str, int, int], None]
_WHOLE = "transcript"
_MAX_PLAIN_LINES, _MAX_FAILURE_LINES = 30_000, 10_000
"""Lines of output that the index holds of one shell session, at most."""


@dataclass(slots=True)
class _Tally:
    rows: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    bytes_read: int = 0
    anew: list[str] = field(default_factory=list)

    def result(self, session: str, source: str) -> Ingested:
        return Ingested(
            session=session, source=source, malformed=self.malformed, bytes_read=self.bytes_read,
            anew=tuple(self.anew), redacted=dict(self.redacted),
            **{table: self.rows[table] for table in store.TABLES},
        )  # fmt: skip


def find_log(environment: Environment, session_id: str) -> Log | None:
    """The logs of a session: a shell's folder, else an agent's transcript. Raises UsageError for what is no id."""
    require_session_id(session_id)
    return find_shell_session(environment.shell_logs, session_id) or find_session_by_id(environment, session_id)


def all_logs(environment: Environment) -> Iterator[Log]:
    """Every session of shells and agents that has logs, those of shells first, each oldest first."""
    yield from shell_sessions(environment.shell_logs)
    yield from find_sessions(environment)


def ingest(connection: sqlite3.Connection, log: Log, *, settings: Settings, now: datetime) -> Ingested:
    """Take in what is new in the logs of a session. Doing so again finds nothing; two at once do each part once.

    Raises TranscriptError for a transcript that cannot be read.
    """
    if isinstance(log, ShellLog):
        return _ingest_shell(connection, log, allow=allow_list(settings), now_ms=int(now.timestamp() * 1000))
    return _ingest_transcript(connection, log, settings=settings)


def ingest_all(
    connection: sqlite3.Connection,
    environment: Environment,
    *,
    settings: Settings,
    now: datetime,
    progress: Progress | None = None,
) -> tuple[list[Ingested], list[Problem]]:
    """Take in every session's logs; a session that cannot be read is a problem and stops no other."""
    logs = list(all_logs(environment))
    done: list[Ingested] = []
    problems: list[Problem] = []
    for number, log in enumerate(logs):
        if progress:
            progress("Reading logs", number, len(logs))
        try:
            result = ingest(connection, log, settings=settings, now=now)
        except (NuggetError, OSError) as error:
            problems.append(Problem(path=str(log.path), reason=str(error)))
            continue
        if not result.is_empty:
            done.append(result)
    return done, problems


def _ingest_shell(
    connection: sqlite3.Connection, log: ShellLog, *, allow: Sequence[re.Pattern[str]], now_ms: int
) -> Ingested:
    tally = _Tally()
    session = store.find_log_session(connection, log.id, SourceName.SHELL)
    if session is None:
        with write_transaction(connection):
            session, _ = store.claim_session(connection, source=SourceName.SHELL, session_id=log.id, path=str(log.path))
    running = _resumed(connection, session)
    for name in (EVENTS, INPUT, *STREAMS):
        rest = rotated_rest(log.path / name, _place_of(connection, session.key, name))
        for file in (rest, log.path / name):
            if file is None:
                continue
            if name == EVENTS:
                _take_events(connection, file, name, running, tally, allow)
            else:
                _take_text(connection, file, name, running, tally, allow, now_ms=now_ms)
    if tally.bytes_read or session.derived < _last_number(connection, session.key):
        _finish(connection, running, tally)
    return tally.result(log.id, SourceName.SHELL)


def _resumed(connection: sqlite3.Connection, session: store.LogSession) -> Running:
    """What the events before said about those to come: commands still open, those known, the last time."""
    first, end = store.id_range(session.key)
    starts = store.rows_in(connection, "events", first, end, where="kind = 'command.start'", limit=50, newest=True)
    ended = {
        row[7]
        for row in store.rows_in(
            connection, "events", starts[0][0] if starts else end, end, where="kind = 'command.end'"
        )
    }
    commands = [Command(row[0], row[4], row[1]) for row in starts]
    return Running(
        ids=Ids(session.key, _last_number(connection, session.key)),
        ts_ms=session.ended_ms or 0,
        open=[command for command in commands if command.id not in ended],
        known={command.id: command for command in commands},
        folder=session.folder,
    )


def _take_events(
    connection: sqlite3.Connection,
    file: Path,
    name: str,
    running: Running,
    tally: _Tally,
    allow: Sequence[re.Pattern[str]],
) -> None:
    """Take in the events that a file has gained; `name` is the log's, also where the file was moved away."""
    place = _place_of(connection, running.ids.key, name)
    for batch in read_events(file, place):
        with write_transaction(connection):
            if _place_of(connection, running.ids.key, name) != place:
                return  # another process has taken this batch in
            running.ids.number = _last_number(connection, running.ids.key)
            rows = event_rows(batch.events, running)
            _clean(rows, running, allow, tally)
            for table, made in (("events", rows.events), ("file_edits", rows.file_edits)):
                store.put_rows(connection, table, made)
                tally.rows[table] += len(made)
            _remember(connection, running, name, batch.place, malformed=batch.malformed)
        place = batch.place
        tally.malformed += batch.malformed
        tally.bytes_read += batch.bytes_read
        tally.anew += [name] if batch.anew else []


def _clean(rows: Rows, running: Running, allow: Sequence[re.Pattern[str]], tally: _Tally) -> None:
    """Take secrets out of rows and of what else is stored, also out of what should be a plain name."""
    columns = (
        (rows.events, 2, MAX_NAME_CHARS), (rows.events, 3, MAX_NAME_CHARS), (rows.events, 4, MAX_TEXT_CHARS),
        (rows.file_edits, 2, MAX_PATH_CHARS),
    )  # fmt: skip
    for made, column, most in columns:
        given = [row[column] or "" for row in made]
        texts = redacted_all(given, allow=allow, counts=tally.redacted)
        if texts is not given or max(map(len, given), default=0) > most:
            made[:] = [
                (*row[:column], within(text, most, was=len(row[column] or "")) or row[column], *row[column + 1 :])
                for row, text in zip(made, texts, strict=True)
            ]
    if running.folder:
        cleaned = redact(running.folder, allow=allow).text
        running.folder = within(cleaned, MAX_PATH_CHARS, was=len(running.folder))


def _take_text(
    connection: sqlite3.Connection,
    file: Path,
    name: str,
    running: Running,
    tally: _Tally,
    allow: Sequence[re.Pattern[str]],
    *,
    now_ms: int,
) -> None:
    place = _place_of(connection, running.ids.key, name)
    part = read_text(file, place, now_ms=now_ms, most_chars=MAX_LINE_CHARS + MARGIN_CHARS)
    if part is None:
        return
    given = [line.text for line in part.lines]
    cleaned = redacted_lines(given, allow=allow, counts=tally.redacted)
    texts = [within(text, MAX_LINE_CHARS, was=len(line)) for line, text in zip(given, cleaned, strict=True)]
    with write_transaction(connection):
        if _place_of(connection, running.ids.key, name) != place:
            return
        running.ids.number = _last_number(connection, running.ids.key)
        running.ts_ms = running.ts_ms or part.mtime_ms
        if name == INPUT:
            table, rows = "command_inputs", input_rows(part.lines, texts, running)
        else:
            table, rows = "pane_output", output_rows(STREAMS[name], part.lines, texts, running)
        store.put_rows(connection, table, rows)
        _remember(connection, running, name, part.place)
    tally.rows[table] += len(rows)
    tally.bytes_read += part.bytes_read
    tally.anew += [name] if part.anew else []


def _remember(
    connection: sqlite3.Connection, running: Running, name: str, place: FilePlace, *, malformed: int = 0
) -> None:
    store.put_file(connection, running.ids.key, name, (place.offset, place.head, place.before))
    store.put_session(connection, running.ids, ended_ms=running.ts_ms or None, folder=running.folder)
    connection.execute(
        "UPDATE log_sessions SET started_ms = coalesce(started_ms, ?), malformed = malformed + ? WHERE key = ?",
        (running.ts_ms or None, malformed, running.ids.key),
    )


def _finish(connection: sqlite3.Connection, running: Running, tally: _Tally) -> None:
    """Derive incidents and notes from what has been added since this was last done."""
    workspace = _workspace_of(running.folder)
    with write_transaction(connection):
        ids = Ids(running.ids.key, _last_number(connection, running.ids.key))
        session = store.log_session(connection, ids.key)
        assert session is not None
        first_new = Ids(ids.key, session.derived).next("events")
        _add_derived(tally, derive(connection, ids, first_new=first_new))
        _forget_old_output(connection, ids.key)
        store.put_session(connection, ids, workspace=workspace, derived=ids.number)


def _forget_old_output(connection: sqlite3.Connection, key: int) -> None:
    """Keep of a session's output no more than so many lines: plain ones go first, the oldest before the others.

    They still stand in the log itself.
    """
    first, end = store.id_range(key)
    for where, most in (("is_failure = 0", _MAX_PLAIN_LINES), ("is_failure = 1", _MAX_FAILURE_LINES)):
        oldest_kept = connection.execute(
            f"SELECT id FROM pane_output WHERE id >= ? AND id < ? AND {where} ORDER BY id DESC LIMIT 1 OFFSET ?",
            (first, end, most - 1),
        ).fetchone()
        if oldest_kept:
            store.remove_rows(connection, "pane_output", first, oldest_kept[0], where=where)


def _add_derived(tally: _Tally, counts: tuple[int, int]) -> None:
    tally.rows["incidents"], tally.rows["working_notes"] = counts


def _ingest_transcript(connection: sqlite3.Connection, file: SessionFile, *, settings: Settings) -> Ingested:
    """A transcript that has grown is read whole again: going back to an earlier prompt can undo what came before."""
    state = (file.size, str(file.mtime), _subagents_state(file.path))
    known = store.find_log_session(connection, file.id, SourceName.SESSIONS)
    if known is not None and store.file_places(connection, known.key).get(_WHOLE) == state:
        return Ingested(session=file.id, source=SourceName.SESSIONS)
    session = trimmed(read_any(file))
    if is_excluded_project(session, settings=settings):
        session = replace(session, events=(), title=None)
    session, redacted = _redacted(session, settings)
    tally = _Tally(redacted=Counter(redacted), malformed=session.skipped_records, bytes_read=file.size)
    with write_transaction(connection):
        _put_session_rows(connection, session, file, tally)
        key = store.claim_session(connection, source=SourceName.SESSIONS, session_id=file.id, path=str(file.path))[
            0
        ].key
        store.put_file(connection, key, _WHOLE, state)
    return tally.result(file.id, SourceName.SESSIONS)


def _redacted(session: Session, settings: Settings) -> tuple[Session, dict[str, int]]:
    """The session, trimmed, without secrets: texts, paths, title, and what should be plain names."""
    allow = allow_list(settings)
    known: dict[str | None, str | None] = {None: None}

    def clean(name: str | None) -> str | None:
        if name not in known:
            known[name] = redact(name or "", allow=allow).text
        return known[name]

    lengths = [len(event.text) for event in session.events]
    session, counts = redact_session(session, settings=settings)
    events = [
        replace(event, tool=clean(event.tool), text=within(event.text, kept_chars(event.kind), was=was))
        for event, was in zip(session.events, lengths, strict=True)
    ]
    return replace(session, events=tuple(events), cwd=clean(session.cwd)), counts


def _put_session_rows(connection: sqlite3.Connection, session: Session, file: SessionFile, tally: _Tally) -> None:
    log, _ = store.claim_session(connection, source=SourceName.SESSIONS, session_id=file.id, path=str(file.path))
    before = store.row_counts(connection, log.key)
    store.remove_session_rows(connection, log.key)
    ids = Ids(log.key, 0)  # counted anew, so that what stays where it was in the transcript keeps its id
    rows = session_rows(session, ids)
    for table in ("events", "pane_output", "file_edits"):
        store.put_rows(connection, table, getattr(rows, table))
    derive(connection, ids, first_new=store.id_range(log.key)[0], todos=rows.todos)
    store.put_session(
        connection, ids, derived=ids.number, agent=session.agent, folder=session.cwd, title=session.title,
        workspace=_workspace_of(session.cwd), malformed=session.skipped_records,
        started_ms=_ms(session.started), ended_ms=_ms(session.ended),
    )  # fmt: skip
    for table, count in store.row_counts(connection, log.key).items():
        tally.rows[table] = max(0, count - before[table])


def _subagents_state(path: Path) -> str:
    """The sizes of the transcripts of subagents, which are part of the session."""
    try:
        return ",".join(str(file.stat().st_size) for file in sorted(path.with_suffix("").glob("subagents/*.jsonl")))
    except OSError:
        return ""


def _place_of(connection: sqlite3.Connection, key: int, name: str) -> FilePlace:
    offset, head, before = store.file_places(connection, key).get(name, (0, "", ""))
    return FilePlace(offset=offset, head=head, before=before)


def _last_number(connection: sqlite3.Connection, key: int) -> int:
    number: int = connection.execute("SELECT last_number FROM log_sessions WHERE key = ?", (key,)).fetchone()[0]
    return number


@lru_cache(maxsize=256)
def _workspace_of(folder: str | None) -> str | None:
    """The identity of the code repository of a folder, also where the folder is gone."""
    if not folder or not folder.startswith("/"):
        return None
    place = Path(folder)
    return (find_workspace(place) or vanished_workspace(place)).identity


def _ms(moment: datetime | None) -> int | None:
    return int(moment.timestamp() * 1000) if moment else None
