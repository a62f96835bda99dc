"""Read one log into rows: a transcript of Claude Code part by part, a channel, or a session that is read whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nugget.errors import NuggetError, reason_of
from nugget.index import events as store
from nugget.index.connection import write_transaction
from nugget.index.events import Ids, LogSession, ReadState
from nugget.index.session_rows import (
    LEFT,
    RECALLED,
    RowMaker,
    Run,
    cleaned_events,
    hash_of,
    message_hash,
    message_row,
    ms_of,
    read_calls,
    stored_calls,
)
from nugget.index.shell_ingest import read_shell
from nugget.index.units import select_in
from nugget.infra.workspace import find_workspace, vanished_workspace
from nugget.models import Event, EventKind, Session, SourceName
from nugget.redaction import is_excluded_project
from nugget.sources.channels import Message, channel_of_session, read_channel
from nugget.sources.claude_code import SAID, TranscriptPart, read_part
from nugget.sources.files import LogFile, place_of, resumed
from nugget.sources.sessions import Log, Reader, SessionFile, read_any

EXCLUDED = "excluded"
"""The problem of a file of which nothing is kept, because its project is excluded."""


def read_log(run: Run, log: Log) -> None:
    """Read what is new in a log; what cannot be read is noted as a problem of its file."""
    paths = [file.path for file in log.files]
    states = store.read_states(run.connection, paths)
    if log.reader is Reader.SHELL:
        read_shell(run, log, states, workspace_of=_workspace_of)
        return
    if not all(map(_has_grown, states.values())):
        for state in states.values():
            _begin_again(run, state)
        states = store.read_states(run.connection, paths)
    read = {Reader.LINES: _read_transcript, Reader.CHANNEL: _read_channel}.get(log.reader, _read_whole)
    for file in log.files:
        state = states.get(file.path, ReadState(path=file.path, part=file.part))
        if (state.size, state.mtime_ns) == (file.size, file.mtime_ns):
            continue
        state = replace(state, mtime_ns=file.mtime_ns)
        if state.problem == EXCLUDED:
            _put_state(run, replace(state, size=file.size))
            continue
        try:
            read(run, log, file, replace(state, problem=""))
        except sqlite3.Error:
            raise
        except Exception as error:
            _put_state(run, replace(state, size=file.size, problem=reason_of(error)))


def reset_session(connection: sqlite3.Connection, key: int) -> None:
    """Forget what was read of a session, so that its files are read again."""
    for (file,) in connection.execute("SELECT key FROM read_files WHERE session = ?", (key,)).fetchall():
        remove_messages(connection, file)
    store.remove_session_rows(connection, key)
    connection.execute(
        "UPDATE log_sessions SET derived = 0, malformed = 0, generation = generation + 1 WHERE key = ?", (key,)
    )
    connection.execute(
        "UPDATE read_files SET size = -1, taken = 0, head = '', before = '', exchanges = 0, waiting = '[]' "
        "WHERE session = ?",
        (key,),
    )


def remove_messages(connection: sqlite3.Connection, file: int) -> None:
    """Take out the messages that were read from a file, whatever channel they are of."""
    sql = "SELECT DISTINCT id >> 34 FROM events WHERE file = ? AND kind = 'message'"
    for (channel,) in connection.execute(sql, (file,)).fetchall():
        store.remove_session_rows(connection, channel, where=f"file = {int(file)}")


def _has_grown(state: ReadState) -> bool:
    """Return whether what was read of a file still stands at its beginning."""
    if not state.taken:
        return True
    with suppress(OSError), Path(state.path).open("rb") as file:
        return not resumed(file, state.place, file.seek(0, 2))[1]
    return True


def _begin_again(run: Run, state: ReadState) -> None:
    """Forget what was read of a file that is another one now."""
    with write_transaction(run.connection):
        session = store.log_session(run.connection, state.session) if state.session else None
        if session is not None and session.source != SourceName.BRIDGE:
            reset_session(run.connection, session.key)
            return
        remove_messages(run.connection, state.key)
        store.put_state(run.connection, ReadState(key=state.key, path=state.path, session=state.session))


def _read_transcript(run: Run, log: Log, file: LogFile, state: ReadState) -> None:
    """Read a transcript of Claude Code on, a part at a time."""
    path = Path(file.path)
    session, is_last = None, False
    while not is_last:
        waiting = [call.event for call in read_calls(state.waiting).values()]
        part = read_part(path, taken=state.taken, exchanges=state.exchanges, waiting=waiting)
        is_last = part.is_last
        if session is None:
            session = _claimed(run, log, file, log.id)
            state = _put_state(run, replace(state, session=session.key))
        if _is_excluded(run, session, part.folders):
            _exclude(run, session, replace(state, size=file.size))
            return
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


def _put_part(run: Run, session: LogSession, state: ReadState, part: TranscriptPart) -> ReadState:
    """Write the rows of a part of a transcript; return the state with the calls that wait for a result."""
    calls = read_calls(state.waiting)
    dead = _forget_dead_branch(run, session, state, part) if state.taken else None
    derived = min(session.derived, store.number_of(dead) - 1) if dead else None
    if dead:  # the results of what was run there may stand in this part
        calls = {name: call if call.row < dead else replace(call, row=RECALLED) for name, call in calls.items()}
    moments = [ms for event in part.events if (ms := ms_of(event.timestamp))]
    ids = Ids(session.key, session.last_number)
    cwd = session.folder or run.clean(next(iter(part.folders), ""))
    maker = RowMaker(
        ids=ids, file=state.key, ts_ms=(moments[0] if moments else session.ended_ms or 0), cwd=cwd or None,
        parents=part.parents, dead=part.dead, repeated=_repeated(run, state, part.events), calls=calls,
    )  # fmt: skip
    for call in part.settled:
        maker.settle(call)
    events = cleaned_events(run, part.events, calls=[call.event for call in calls.values()])
    for event, number in zip(events, part.numbers, strict=True):
        maker.add(event, number)
    _put_made(run, session, maker)
    store.put_session(
        run.connection, ids, agent="claude-code", folder=cwd or None, workspace=_workspace_of(cwd),
        title=run.clean(part.title) or None, derived=derived,
        started_ms=min([*moments, *([session.started_ms] if session.started_ms else [])], default=None),
        ended_ms=max([*moments, session.ended_ms or 0]) or None,
        malformed=session.malformed + part.skipped,
    )  # fmt: skip
    _put_messages(run, channel_of_session(session.id), part.messages, state)
    return replace(state, waiting=stored_calls(maker.calls))


def _put_made(run: Run, session: LogSession, maker: RowMaker) -> None:
    run.put_rows(maker.rows)
    run.connection.executemany("UPDATE file_edits SET ok = ? WHERE id = ?", maker.settled)
    run.sessions[session.key] = None


def _forget_dead_branch(run: Run, session: LogSession, state: ReadState, part: TranscriptPart) -> int | None:
    """Keep only what was said of what the person has gone back on since; return its first row."""
    typed = {hash_of(parent): hash_of(uuid) for uuid, parent in part.parents.items()}
    sql = (
        "SELECT id, parent, record FROM events "
        "WHERE file = ? AND kind = 'prompt' AND parent IS NOT NULL AND id >= ? AND id < ?"
    )
    bounds = store.id_range(session.key)
    rows = run.connection.execute(sql, (state.key, *bounds)).fetchall() if typed else []
    dead = [int(row[0]) for row in rows if row[1] in typed and row[2] != typed[row[1]]]
    if not dead:
        return None
    begin, end = min(dead), bounds[1]
    store.remove_rows(run.connection, "events", begin, end, where="number IS NULL")
    run.connection.execute("UPDATE events SET kind = kind || ? WHERE id >= ? AND id < ?", (LEFT, begin, end))
    for table in ("pane_output", "file_edits", "working_notes"):
        store.remove_rows(run.connection, table, begin, end)
    return begin


def _repeated(run: Run, state: ReadState, events: Sequence[Event]) -> set[int]:
    """Return the records of these events that search finds in another file: what a fork repeats."""
    records = {hash_of(event.uuid) for event in events if event.uuid and event.kind in SAID}
    sql = (
        "SELECT e.record FROM events e JOIN log_sessions s ON s.key = e.id >> 34 AND s.gone = 0 "
        "WHERE e.number IS NOT NULL AND e.file IS NOT ? AND e.record IN"
    )
    return {row[0] for row in select_in(run.connection, sql, list(records), (state.key,))}


def _put_messages(run: Run, channel: str, messages: Sequence[Message], state: ReadState) -> None:
    """Write messages of a channel, but for those that it has: sender and receiver both record them."""
    if not messages:
        return
    session = store.claim_session(run.connection, source=SourceName.BRIDGE, session_id=channel, path=state.path)
    sql = "SELECT record, number FROM events WHERE id >= ? AND id < ?"
    known = dict(run.connection.execute(sql, store.id_range(session.key)))
    number = max(known.values(), default=0)
    ids = Ids(session.key, session.last_number)
    rows = []
    for message in messages:
        text = run.clean(message.shown)
        if message_hash(text) not in known:
            number += 1
            known[message_hash(text)] = number
            rows.append(message_row(message, text, run.clean(message.sender), ids, number, state.key))
    store.put_rows(run.connection, "events", rows)
    ended = max([session.ended_ms or 0, *(row[1] for row in rows)])
    store.put_session(run.connection, ids, ended_ms=ended or None)


def _read_channel(run: Run, log: Log, file: LogFile, state: ReadState) -> None:
    path = Path(file.path)
    messages, taken = read_channel(path, taken=state.taken)
    run.bytes_read += taken - state.taken
    with path.open("rb") as opened:
        place = place_of(opened, taken)
    with write_transaction(run.connection):
        session = store.claim_session(run.connection, source=SourceName.BRIDGE, session_id=log.id, path=file.path)
        state = state.moved_to(place, session=session.key, size=file.size)
        _put_messages(run, log.id, messages, replace(state, key=store.put_state(run.connection, state)))


def _read_whole(run: Run, log: Log, file: LogFile, state: ReadState) -> None:
    """Read a session of another agent, or from the archive: it has no lines to go on from."""
    read = _whole_session(log)
    run.bytes_read += file.size
    run.malformed += read.skipped_records
    session = _claimed(run, log, file, log.id)
    state = _put_state(run, replace(state, session=session.key))
    if _is_excluded(run, session, read.folders or ((read.cwd,) if read.cwd else ())):
        _exclude(run, session, replace(state, size=file.size))
        return
    events = cleaned_events(run, read.events)
    cwd = run.clean(read.cwd or "")
    with write_transaction(run.connection):
        before = store.row_counts(run.connection, session.key)
        store.remove_session_rows(run.connection, session.key)
        ids = Ids(session.key, 0)  # counted again, so that what stays where it was keeps its id
        written_ms = file.mtime_ns // 1_000_000
        maker = RowMaker(
            ids=ids, file=state.key, ts_ms=ms_of(read.started) or written_ms, cwd=cwd or None,
            repeated=_repeated(run, state, read.events),
        )  # fmt: skip
        number = 0
        for event in events:
            number += event.kind is EventKind.PROMPT
            maker.add(event, max(1, number))
        _put_made(run, session, maker)
        run.rows.subtract({table: count for table, count in before.items() if table in run.rows})
        store.put_session(
            run.connection, ids, derived=0, agent=read.agent, folder=cwd or None, workspace=_workspace_of(cwd),
            title=run.clean(read.title or "") or None, malformed=read.skipped_records,
            started_ms=ms_of(read.started) or None, ended_ms=ms_of(read.ended) or written_ms,
        )  # fmt: skip
        store.put_state(run.connection, replace(state, size=file.size, exchanges=number))


def _whole_session(log: Log) -> Session:
    if log.reader is Reader.ARCHIVE:
        from nugget.sources.archive import read_archive

        return read_archive(Path(log.path))
    file = log.files[0]
    return read_any(SessionFile(
        path=Path(log.path), agent=log.agent, id=log.id, mtime=file.mtime_ns / 1e9, size=file.size,
        is_shared=file.path != log.path,
    ))  # fmt: skip


def _claimed(run: Run, log: Log, file: LogFile, session_id: str) -> LogSession:
    """Return the session of a file; one that had been gone is begun again."""
    with write_transaction(run.connection):
        known = store.find_log_session(run.connection, session_id, SourceName.SESSIONS)
        if known is not None and known.gone:
            reset_session(run.connection, known.key)
        path = known.path if known is not None and file.part else log.path
        return store.claim_session(run.connection, source=SourceName.SESSIONS, session_id=session_id, path=path)


def _put_state(run: Run, state: ReadState) -> ReadState:
    with write_transaction(run.connection):
        return replace(state, key=store.put_state(run.connection, state))


def _is_excluded(run: Run, session: LogSession, folders: Iterable[str]) -> bool:
    about = Session(
        id=session.id, agent=session.agent or "", path=session.path, events=(), cwd=session.folder,
        folders=tuple(folders),
    )  # fmt: skip
    return is_excluded_project(about, settings=run.settings)


def _exclude(run: Run, session: LogSession, state: ReadState) -> None:
    """Keep nothing of a session in an excluded project but that it is one."""
    with write_transaction(run.connection):
        store.remove_session_rows(run.connection, session.key)
        run.connection.execute("UPDATE log_sessions SET title = NULL WHERE key = ?", (session.key,))
        store.put_state(run.connection, replace(state, problem=EXCLUDED))


@lru_cache(maxsize=256)
def _workspace_of(folder: str | None) -> str | None:
    """Return the identity of the code repository of a folder, also if the folder is gone."""
    if not folder or not folder.startswith("/"):
        return None
    with suppress(OSError, NuggetError, ValueError):
        place = Path(folder)
        return (find_workspace(place) or vanished_workspace(place)).identity
    return None
