"""Bring the machine's index in line with the logs of sessions, shells and channels.

What changed is known by size and time. A transcript that grew is read on from where reading stopped; what other agents
keep, and the archive, is read whole. Texts are redacted once, on their way in. Incidents and notes are not derived
here: `IngestRun.sessions` says which sessions gained something.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.errors import NuggetError, reason_of
from nugget.index import events as store
from nugget.index.connection import write_transaction
from nugget.index.events import Ids, LogSession, ReadState
from nugget.index.session_rows import (
    IngestRun,
    RowMaker,
    cleaned_events,
    hash_of,
    ms_of,
    put_messages,
    read_calls,
    repeated_records,
    stored_calls,
    workspace_of,
)
from nugget.index.shell_ingest import read_shell
from nugget.index.units import meta, put_meta, select_in
from nugget.infra import files
from nugget.models import EventKind, Problem, Session, SourceName
from nugget.redaction import allow_list, is_excluded_project, rules_stamp
from nugget.sources import Log, LogFile, Reader, place_of, resumed
from nugget.sources.channels import channel_of_session, read_channel
from nugget.sources.claude_code import TranscriptPart, read_part
from nugget.sources.sessions import SessionFile, find_logs, read_any, read_archive

READING_VERSION = 1
"""Raise it when what is read of a file changes: everything is then read again."""
_EXCLUDED = "excluded"
"""The problem of a file of which nothing is kept, because its project is excluded."""
_MEGABYTE = 1_000_000

Progress = Callable[[str, int, int], None]


def ingest_all(
    connection: sqlite3.Connection,
    environment: Environment,
    settings: Settings,
    *,
    brain: Path | None = None,
    now: datetime | None = None,
    wait: bool = True,
    progress: Progress | None = None,
) -> IngestRun:
    """Read what is new in every log into the machine's index.

    One process reads a log at a time; `wait=False` returns at once if another one is reading. Safe to interrupt at any
    point.
    """
    run = IngestRun(connection=connection, settings=settings, allow=allow_list(settings), now=now)
    with _alone(connection, wait=wait) as is_alone:
        if not is_alone:
            run.is_busy = True
            return run
        _forget_other_rules(run)
        before = store.known_files(connection)
        if not settings.history.enabled:
            run.removed = len(before)
            if before:
                with write_transaction(connection):
                    store.remove_everything(connection)
            return run
        logs = find_logs(environment, settings, brain)
        gone = before.keys() - {file.path for log in logs for file in log.files}
        if gone:
            _forget_gone(connection, gone, {log.id for log in logs if log.source is not SourceName.BRIDGE})
        known = store.known_files(connection)
    changed = [log for log in logs if _is_changed(log, known)]
    total = sum(file.size for log in changed for file in log.files)
    done = 0
    for log in changed:
        read = run.bytes_read
        with _alone(connection, wait=True):
            _read_log(run, log)
        is_new = not any(file.path in before for file in log.files)
        run.added += is_new
        run.modified += not is_new and run.bytes_read > read
        done += sum(file.size for file in log.files)
        if progress:
            progress("Reading sessions (MB)", done // _MEGABYTE, -(-total // _MEGABYTE))
    run.removed, run.unchanged = len(gone), len(logs) - run.added - run.modified
    run.problems = tuple(Problem(path=path, reason=why) for path, why in store.file_problems(connection).items())
    return run


def ingest_log(connection: sqlite3.Connection, log: Log, settings: Settings, *, now: datetime) -> IngestRun:
    """Read what is new in one log. Raises NuggetError if it cannot be read."""
    run = IngestRun(connection=connection, settings=settings, allow=allow_list(settings), now=now)
    with _alone(connection, wait=True):
        if _is_changed(log, store.known_files(connection)):
            _read_log(run, log)
    problems = store.file_problems(connection)
    for file in log.files:
        if file.path in problems:
            raise NuggetError(f"{file.path}: {problems[file.path]}")
    return run


def is_outdated(connection: sqlite3.Connection, settings: Settings) -> bool:
    """Return whether files were read by other rules of redaction, so that the next ingest reads all again."""
    return meta(connection, "events_rules") != _rules(settings) and bool(store.known_files(connection))


def changed_logs(
    connection: sqlite3.Connection, environment: Environment, settings: Settings, brain: Path | None
) -> tuple[list[Log], int, int]:
    """Return the logs that ingest would read, how many bytes they gained, and how many known files are gone."""
    logs = find_logs(environment, settings, brain)
    known = store.known_files(connection)
    changed = [log for log in logs if _is_changed(log, known)]
    sizes = [(file.size, known.get(file.path, (0, 0))[0]) for log in changed for file in log.files]
    gained = sum(size - max(0, before) if size >= before else size for size, before in sizes)
    return changed, gained, len(known.keys() - {file.path for log in logs for file in log.files})


@contextmanager
def _alone(connection: sqlite3.Connection, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of whoever reads logs, which lies beside the index; False if it is held and not waited for."""
    index = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    lock = files.try_lock(index.with_name("history.lock"), wait=wait)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _is_changed(log: Log, known: Mapping[str, tuple[int, int]]) -> bool:
    return any(known.get(file.path) != (file.size, file.mtime_ns) for file in log.files)


def _forget_gone(connection: sqlite3.Connection, gone: Iterable[str], present: set[str]) -> None:
    """Forget files that are gone. What was said in them is searched no longer, unless it is archived.

    Forks of them are read again: their copies of the records count from now on.
    """
    forks = (
        "SELECT DISTINCT o.id >> 34 FROM events e JOIN events o ON o.record = e.record AND o.file != e.file "
        "WHERE e.file = ? AND e.record IS NOT NULL AND o.number IS NULL"
    )
    states = store.read_states(connection, list(gone)).values()
    with write_transaction(connection):
        for state in states:
            again = [row[0] for row in connection.execute(forks, (state.key,))]
            connection.execute("DELETE FROM read_files WHERE key = ?", (state.key,))
            store.remove_messages(connection, state.key)
            session = store.log_session(connection, state.session) if state.session else None
            if session is not None and session.id in present:
                again.append(session.key)
            elif session is not None:
                sql = "UPDATE log_sessions SET gone = 1, generation = generation + 1 WHERE key = ?"
                connection.execute(sql, (session.key,))
            for key in again:
                store.reset_session(connection, key)


def _forget_other_rules(run: IngestRun) -> None:
    """Forget what was read by other rules, to be read again; sessions whose files are gone are redacted again."""
    connection, rules = run.connection, _rules(run.settings)
    if meta(connection, "events_rules") == rules:
        return
    columns = {"events": 4, "command_inputs": 2, "pane_output": 3, "file_edits": 2}
    with write_transaction(connection):
        for key, is_gone in connection.execute("SELECT key, gone FROM log_sessions").fetchall():
            kept = {}
            for table, column in columns.items() if is_gone else ():
                kept[table] = [[*row] for row in store.whole_rows(connection, table, key)]
                texts = run.clean_all([row[column] for row in kept[table]])
                for row, text in zip(kept[table], texts, strict=True):
                    row[column] = text
            store.remove_session_rows(connection, key)
            for table, rows in kept.items():
                store.put_rows(connection, table, rows)
        connection.execute("DELETE FROM read_files")
        connection.execute("DELETE FROM log_sessions WHERE gone = 0")
        connection.execute("UPDATE log_sessions SET derived = 0, generation = generation + 1")
        put_meta(connection, events_rules=rules)


def _rules(settings: Settings) -> str:
    """Return the version of reading and redaction: when it changes, everything is read again."""
    return f"{READING_VERSION}-{rules_stamp(settings)}"


def _read_log(run: IngestRun, log: Log) -> None:
    """Read what is new in a log; what cannot be read is noted as a problem of its file."""
    paths = [file.path for file in log.files]
    states = store.read_states(run.connection, paths)
    if log.reader is Reader.SHELL:
        read_shell(run, log, states)
        return
    if not all(map(_has_grown, states.values())):
        _begin_again(run, states.values())
        states = store.read_states(run.connection, paths)
    read = {Reader.LINES: _read_transcript, Reader.CHANNEL: _read_channel}.get(log.reader, _read_whole)
    for file in log.files:
        state = states.get(file.path, ReadState(path=file.path, part=file.part))
        if (state.size, state.mtime_ns) == (file.size, file.mtime_ns):
            continue
        state = replace(state, mtime_ns=file.mtime_ns)
        if state.problem == _EXCLUDED:
            _put_state(run, replace(state, size=file.size))
            continue
        try:
            if not read(run, log, file, replace(state, problem="")):
                _read_log(run, log)
                return
        except sqlite3.Error:
            raise
        except Exception as error:
            reason = reason_of(error).removeprefix(f"{file.path} ")  # whoever shows it names the file
            _put_state(run, replace(state, size=file.size, problem=reason))


def _begin_again(run: IngestRun, states: Iterable[ReadState]) -> None:
    """Forget what was read of files that are others now."""
    with write_transaction(run.connection):
        for state in states:
            session = store.log_session(run.connection, state.session) if state.session else None
            if session is not None and session.source != SourceName.BRIDGE:
                store.reset_session(run.connection, session.key)
            else:
                store.remove_messages(run.connection, state.key)
                store.put_state(run.connection, ReadState(key=state.key, path=state.path, session=state.session))


def _has_grown(state: ReadState) -> bool:
    """Return whether what was read of a file still stands at its beginning."""
    if state.taken:
        with suppress(OSError), Path(state.path).open("rb") as file:
            return not resumed(file, state.place, file.seek(0, 2))[1]
    return True


def _read_transcript(run: IngestRun, log: Log, file: LogFile, state: ReadState) -> bool:
    """Read a transcript of Claude Code on, a part at a time.

    Return False if its session has to be read again: the person went back behind what was read before.
    """
    path = Path(file.path)
    session, is_last = None, False
    while not is_last:
        waiting = [call.event for call in read_calls(state.waiting).values()]
        part = read_part(path, taken=state.taken, exchanges=state.exchanges, waiting=waiting)
        is_last = part.is_last
        if session is None:
            session, state = _claimed(run, log, state)
            if state.taken and _went_back(run, session, state, part):
                with write_transaction(run.connection):
                    store.reset_session(run.connection, session.key)
                return False
        if _is_excluded(run, session, part.folders, replace(state, size=file.size)):
            return True
        run.bytes_read += part.taken - state.taken
        run.malformed += part.skipped
        with path.open("rb") as opened:
            place = place_of(opened, part.taken)
        with write_transaction(run.connection):
            session = store.log_session(run.connection, session.key) or session
            state = _put_part(run, session, state, part)
            # A file that is not finished has no size yet, so that an interrupted ingest is known to go on with it.
            state = state.moved_to(place, size=file.size if is_last else -1, exchanges=part.exchanges)
            store.put_state(run.connection, state)
    return True


def _went_back(run: IngestRun, session: LogSession, state: ReadState, part: TranscriptPart) -> bool:
    """Return whether a prompt follows the same record as an earlier prompt, which the person went back on."""
    typed = {hash_of(parent): hash_of(uuid) for uuid, parent in part.parents.items()}
    sql = "SELECT parent, record FROM events WHERE kind = 'prompt' AND file = ? AND id >= ? AND id < ? AND parent IN"
    rows = select_in(run.connection, sql, list(typed), (state.key, *store.id_range(session.key)))
    return any(typed[parent] != record for parent, record in rows)


def _put_part(run: IngestRun, session: LogSession, state: ReadState, part: TranscriptPart) -> ReadState:
    """Write the rows of a part of a transcript; return the state with the calls that wait for a result."""
    calls = read_calls(state.waiting)
    moments = [ms for event in part.events if (ms := ms_of(event.timestamp))]
    ids = Ids(session.key, session.last_number)
    cwd = session.folder or run.clean(next(iter(part.folders), ""))
    maker = RowMaker(
        ids=ids, file=state.key, ts_ms=(moments[0] if moments else session.ended_ms or 0), cwd=cwd or None,
        parents=part.parents, dead=part.dead, repeated=repeated_records(run, state, part.events), calls=calls,
    )  # fmt: skip
    for call in part.settled:
        maker.settle(call)
    events = cleaned_events(run, part.events, calls=[call.event for call in calls.values()])
    for event, number in zip(events, part.numbers, strict=True):
        maker.add(event, number)
    maker.write(run)
    store.put_session(
        run.connection, ids, agent="claude-code", folder=cwd or None, workspace=workspace_of(cwd),
        title=run.clean(part.title) or None,
        started_ms=min([*moments, *([session.started_ms] if session.started_ms else [])], default=None),
        ended_ms=max([*moments, session.ended_ms or 0]) or None,
    )  # fmt: skip
    put_messages(run, channel_of_session(session.id), part.messages, state)
    return replace(state, waiting=stored_calls(maker.calls))


def _read_channel(run: IngestRun, log: Log, file: LogFile, state: ReadState) -> bool:
    path = Path(file.path)
    messages, taken = read_channel(path, taken=state.taken)
    run.bytes_read += taken - state.taken
    with path.open("rb") as opened:
        place = place_of(opened, taken)
    with write_transaction(run.connection):
        session = store.claim_session(run.connection, source=SourceName.BRIDGE, session_id=log.id, path=file.path)
        state = state.moved_to(place, session=session.key, size=file.size)
        put_messages(run, log.id, messages, replace(state, key=store.put_state(run.connection, state)))
    return True


def _read_whole(run: IngestRun, log: Log, file: LogFile, state: ReadState) -> bool:
    """Read a session of another agent, or from the archive: it has no lines to go on from."""
    if log.reader is Reader.ARCHIVE:
        read = read_archive(Path(log.path))
    else:
        read = read_any(SessionFile(
            path=Path(log.path), agent=log.agent, id=log.id, mtime=file.mtime_ns / 1e9, size=file.size,
            is_shared=file.path != log.path,
        ))  # fmt: skip
    run.bytes_read += file.size
    run.malformed += read.skipped_records
    session, state = _claimed(run, log, state)
    folders = read.folders or ((read.cwd,) if read.cwd else ())
    if _is_excluded(run, session, folders, replace(state, size=file.size)):
        return True
    events = cleaned_events(run, read.events)
    cwd = run.clean(read.cwd or "")
    with write_transaction(run.connection):
        before = store.row_counts(run.connection, session.key)
        store.remove_session_rows(run.connection, session.key)
        ids = Ids(session.key, 0)  # counted again, so that what stays where it was keeps its id
        written_ms = file.mtime_ns // 1_000_000
        maker = RowMaker(
            ids=ids, file=state.key, ts_ms=ms_of(read.started) or written_ms, cwd=cwd or None,
            repeated=repeated_records(run, state, read.events),
        )  # fmt: skip
        number = 0
        for event in events:
            number += event.kind is EventKind.PROMPT
            maker.add(event, max(1, number))
        maker.write(run)
        run.rows.subtract({table: count for table, count in before.items() if table in run.rows})
        store.put_session(
            run.connection, ids, derived=0, agent=read.agent, folder=cwd or None, workspace=workspace_of(cwd),
            title=run.clean(read.title or "") or None,
            started_ms=ms_of(read.started) or None, ended_ms=ms_of(read.ended) or written_ms,
        )  # fmt: skip
        store.put_state(run.connection, replace(state, size=file.size, exchanges=number))
    return True


def _claimed(run: IngestRun, log: Log, state: ReadState) -> tuple[LogSession, ReadState]:
    """Return the session of a file, and the state of the file with its keys."""
    with write_transaction(run.connection):
        session = store.claim_session(run.connection, source=SourceName.SESSIONS, session_id=log.id, path=log.path)
        state = replace(state, session=session.key)
        return session, replace(state, key=store.put_state(run.connection, state))


def _put_state(run: IngestRun, state: ReadState) -> None:
    with write_transaction(run.connection):
        store.put_state(run.connection, state)


def _is_excluded(run: IngestRun, session: LogSession, folders: tuple[str, ...], state: ReadState) -> bool:
    """Return whether a session's project is excluded; of such a session nothing is kept but that it is one."""
    about = Session(
        id=session.id, agent=session.agent or "", path=session.path, events=(), cwd=session.folder, folders=folders
    )
    if not is_excluded_project(about, settings=run.settings):
        return False
    with write_transaction(run.connection):
        store.remove_session_rows(run.connection, session.key)
        run.connection.execute("UPDATE log_sessions SET title = NULL WHERE key = ?", (session.key,))
        store.put_state(run.connection, replace(state, problem=_EXCLUDED))
    return True
