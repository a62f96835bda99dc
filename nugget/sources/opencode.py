"""OpenCode: `$XDG_DATA_HOME/opencode/storage/{session,message,part}` as JSON files, newer ones in `opencode.db`.

`session/PROJECT/ID.json` tells title, folder and times; `message/ID/*.json` the role; `part/MESSAGE/*.json` what was
said and done: `text`, `tool` (with `state: {status, input, output, metadata}`), `reasoning`, ... The database has the
tables session, message and part, the latter two with the same objects as JSON in `data`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nugget.errors import TranscriptError
from nugget.models import EventKind, Session, SessionFile
from nugget.sources.claude_records import text_of
from nugget.sources.event_builder import Gathering, parse_record, read_document
from nugget.sources.files import session_file
from nugget.sources.sqlite_snapshot import has_table, open_snapshot
from nugget.sources.tool_calls import EDIT, SHELL, Call, FileChange, read_call

AGENT = "opencode"

_STATUS = {"completed": True, "error": False}


def find(folder: Path) -> Iterator[SessionFile]:
    """The sessions in the files below `storage`, and those that only `opencode.db` holds. Subagents' are left out."""
    told = set()
    storage = folder / "storage"
    described = {file.stem: file for file in storage.glob("session/*/*.json")}
    for messages in storage.glob("message/*/"):
        about = described.get(messages.name)
        found = session_file(messages, agent=AGENT, name=messages.name)
        if found and not (about and text_of(_document(about).get("parentID"))):
            told.add(found.id)
            yield found
    for database in sorted(folder.glob("opencode*.db")):
        try:
            yield from (found for found in stored(database) if found.id not in told)
        except TranscriptError:
            continue


def recognises(document: Mapping[str, Any]) -> bool:
    """Whether a document is one that OpenCode keeps about a session or a message."""
    is_session = isinstance(document.get("time"), Mapping) and ("projectID" in document or "directory" in document)
    return "id" in document and (is_session or ("sessionID" in document and "role" in document))


def stored(database: Path) -> list[SessionFile]:
    """The sessions that a database holds. Raises TranscriptError when it cannot be read."""
    with open_snapshot(database) as connection:
        if not has_table(connection, "message"):
            return []
        subagents: set[str] = set()
        if has_table(connection, "session") and "parent_id" in _columns(connection):
            subagents = {row[0] for row in connection.execute("SELECT id FROM session WHERE parent_id IS NOT NULL")}
        rows = connection.execute(
            "SELECT session_id, max(time_updated), sum(length(data)) FROM part GROUP BY session_id"
        ).fetchall()
    return [
        SessionFile(path=database, agent=AGENT, id=str(name), mtime=_seconds(moment), size=size or 0, is_shared=True)
        for name, moment, size in rows
        if name not in subagents
    ]


def read(path: Path) -> Session:
    """Read a session by its own file, one of its messages, or the folder of its messages. Raises TranscriptError."""
    about: dict[str, Any] = {}
    if path.is_dir():
        name, storage = path.name, path.parent.parent
        about = next((_document(file) for file in storage.glob(f"session/*/{name}.json")), {})
    else:
        document = read_document(path) or {}
        name = text_of(document.get("sessionID")) or text_of(document.get("id")) or path.stem
        storage = path.parent.parent.parent
        about = document if "sessionID" not in document else {}
    if not _is_plain(name):
        raise TranscriptError(f"{path} names a session that no file can be called ({name[:60]!r}).")
    gathering = Gathering(agent=AGENT, session=name)
    _read_about(about, gathering)
    files = [(file, read_document(file)) for file in (storage / "message" / name).glob("*.json")]
    messages = [({"id": file.stem} | message, file) for file, message in files if message is not None]
    gathering.skipped += sum(message is None for _, message in files)
    for message, file in sorted(messages, key=lambda pair: (_created(pair[0]), str(pair[0]["id"]))):
        parts = sorted((storage / "part" / file.stem).glob("*.json"))
        _read_message(message, ({"id": part.stem} | _document(part) for part in parts), gathering)
    return gathering.make(path)


def read_stored(database: Path, name: str) -> Session:
    """Read one session of a database. Raises TranscriptError when it is not there or cannot be read."""
    gathering = Gathering(agent=AGENT, session=name)
    with open_snapshot(database) as connection:
        if has_table(connection, "session"):
            _read_about(_session_row(connection, name), gathering)
        messages = connection.execute(
            "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (name,)
        ).fetchall()
        for message_id, text in messages:
            rows = connection.execute("SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (message_id,))
            parts = ({"id": part_id} | (parse_record(part) or {}) for part_id, part in rows.fetchall())
            _read_message({"id": message_id} | (parse_record(text) or {}), parts, gathering)
    if not messages:
        raise TranscriptError(f"{database} holds no session {name}.")
    return gathering.make(f"{database}#{name}")


def _read_about(about: Mapping[str, Any], gathering: Gathering) -> None:
    gathering.title = text_of(about.get("title")) or None
    if folder := text_of(about.get("directory")):
        gathering.folders.setdefault(folder)


def _read_message(message: Mapping[str, Any], parts: Iterable[Mapping[str, Any]], gathering: Gathering) -> None:
    gathering.begin(moment=_created(message) or None, uuid=message.get("id"))
    for key in ("path", "root"):
        place = message.get(key)
        if isinstance(place, Mapping) and (folder := text_of(place.get("cwd"))):
            gathering.folders.setdefault(folder)
    role = message.get("role")
    if role not in ("user", "assistant"):
        gathering.skipped += 1
        return
    for part in parts:
        if "type" not in part:
            gathering.skipped += 1
        elif part["type"] == "text" and not part.get("synthetic") and not part.get("ignored"):
            gathering.begin(moment=_started(part), uuid=part.get("id"))
            if message.get("summary") is True and role == "assistant":
                gathering.add(EventKind.SUMMARY, text_of(part.get("text")))
            else:
                (gathering.prompt if role == "user" else gathering.reply)(text_of(part.get("text")))
        elif part["type"] == "tool":
            _read_tool(part, gathering)


def _read_tool(part: Mapping[str, Any], gathering: Gathering) -> None:
    state = part.get("state")
    state = state if isinstance(state, Mapping) else {}
    gathering.begin(moment=_started(part) or _started(state), uuid=part.get("id"))
    given, details = state.get("input"), state.get("metadata")
    details = details if isinstance(details, Mapping) else {}
    asked = read_call(text_of(part.get("tool")), given if isinstance(given, Mapping) else {})
    if change := _whole_change(asked, details):
        asked = Call(tool=EDIT, changes=(change,))
    call_id = text_of(part.get("callID")) or gathering.uuid
    gathering.call(asked, call_id)
    ok = _STATUS.get(text_of(state.get("status")))
    if ok is None:
        return
    code = details.get("exit") if asked.tool == SHELL else None
    code = code if isinstance(code, int) and not isinstance(code, bool) else None
    text = text_of(state.get("output")) if ok else text_of(state.get("error"))
    gathering.result(call_id, text, ok=code == 0 if code is not None else ok, exit_code=code)


def _whole_change(asked: Call, details: Mapping[str, Any]) -> FileChange | None:
    """The file before and after an edit, where the tool noted it."""
    noted = details.get("filediff")
    if len(asked.changes) != 1 or not isinstance(noted, Mapping):
        return None
    before, after = noted.get("before"), noted.get("after")
    if not isinstance(before, str) or not isinstance(after, str):
        return None
    return FileChange(path=asked.changes[0].path, before=before, after=after)


def _session_row(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    columns = [column for column in ("title", "directory") if column in _columns(connection)]
    if not columns:
        return {}
    row = connection.execute(f"SELECT {', '.join(columns)} FROM session WHERE id = ?", (name,)).fetchone()
    return dict(zip(columns, row, strict=True)) if row else {}


def _columns(connection: sqlite3.Connection) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(session)")}


def _document(file: Path) -> dict[str, Any]:
    try:
        return read_document(file) or {}
    except TranscriptError:
        return {}


def _created(message: Mapping[str, Any]) -> float:
    time = message.get("time")
    made = time.get("created") if isinstance(time, Mapping) else None
    return float(made) if isinstance(made, int | float) else 0.0


def _started(part: Mapping[str, Any]) -> object:
    time = part.get("time")
    return time.get("start") if isinstance(time, Mapping) else None


def _seconds(milliseconds: object) -> float:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else 0.0


def _is_plain(name: str) -> bool:
    return bool(name) and all(letter.isalnum() or letter in "_-." for letter in name) and not name.startswith(".")
