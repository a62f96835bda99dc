"""OpenCode: `$XDG_DATA_HOME/opencode/storage/{session,message,part}` as JSON files, newer ones in `opencode.db`.

`session/PROJECT/ID.json` has title, folder and times, `message/ID/*.json` the role, and `part/MESSAGE/*.json` the
content: `text`, `tool` (with `state: {status, input, output, metadata}`), `reasoning`, ... The database has the
tables session, message and part, the latter two with the same objects as JSON in `data`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nugget.errors import TranscriptError
from nugget.models import EventKind, Session, SessionFile
from nugget.sources import (
    columns_of,
    list_folder,
    mapping_of,
    open_database,
    parse_record,
    read_document,
    session_file,
    text_of,
)
from nugget.sources.event_builder import EventBuilder, file_edit

AGENT = "opencode"


def find(folders: Mapping[str, Path]) -> Iterator[SessionFile]:
    """Yield the sessions in the files below `storage`, then those only in `opencode.db`, without subagents' own."""
    known = set()
    storage = folders["opencode"] / "storage"
    described = {file.stem: file for file in storage.glob("session/*/*.json")}
    for messages in storage.glob("message/*/"):
        about = described.get(messages.name)
        # A reply is written into its file as it comes, which the time of the folder does not show.
        last = max(list_folder(messages), key=lambda entry: entry.name, default=None)
        found = session_file(last, agent=AGENT, name=messages.name) if last else None
        if found and not (about and text_of(_document(about).get("parentID"))):
            known.add(messages.name)
            yield replace(found, path=messages)
    for database in sorted(folders["opencode"].glob("opencode*.db")):
        with suppress(TranscriptError):
            yield from (found for found in stored(database) if found.id not in known)


def recognises(document: Mapping[str, Any]) -> bool:
    """Return whether a document is OpenCode's record of a session or a message."""
    is_session = isinstance(document.get("time"), Mapping) and ("projectID" in document or "directory" in document)
    return "id" in document and (is_session or ("sessionID" in document and "role" in document))


def stored(database: Path) -> list[SessionFile]:
    """Return the sessions in a database, without subagents. Raises TranscriptError."""
    with open_database(database) as connection:
        if not columns_of(connection, "message"):
            return []
        has_parents = "parent_id" in columns_of(connection, "session")
        subagents = "SELECT id FROM session WHERE parent_id IS NOT NULL" if has_parents else "SELECT NULL WHERE 0"
        rows = connection.execute(
            "SELECT session_id, coalesce(max(time_updated), 0) * 1000000, coalesce(sum(length(data)), 0) FROM part"
            f" WHERE session_id NOT IN ({subagents}) GROUP BY session_id"
        ).fetchall()
    return [SessionFile(path=database, agent=AGENT, id=name, mtime_ns=int(mtime_ns), size=size, is_shared=True)
            for name, mtime_ns, size in rows]  # fmt: skip


def read(path: Path) -> Session:
    """Read a session by its own file, one of its messages, or the folder of its messages. Raises TranscriptError."""
    if path.is_dir():
        name, storage = path.name, path.parent.parent
        about = next((_document(file) for file in storage.glob(f"session/*/{name}.json")), {})
    else:
        about, storage = read_document(path) or {}, path.parent.parent.parent
        name = text_of(about.get("sessionID")) or text_of(about.get("id")) or path.stem
    if not name or name.startswith(".") or not all(letter.isalnum() or letter in "_-." for letter in name):
        raise TranscriptError(f"{path} names a session whose id is not a valid file name ({name[:60]!r}).")
    builder = EventBuilder(agent=AGENT, session=name)
    _read_about(about, builder)
    files = [(file, read_document(file)) for file in (storage / "message" / name).glob("*.json")]
    messages = [({"id": file.stem} | message, file) for file, message in files if message is not None]
    builder.skipped += len(files) - len(messages)
    for message, file in sorted(messages, key=lambda pair: (_time(pair[0], "created"), str(pair[0]["id"]))):
        parts = sorted((storage / "part" / file.stem).glob("*.json"))
        _read_message(message, ({"id": part.stem} | _document(part) for part in parts), builder)
    return builder.build(path)


def read_stored(database: Path, name: str) -> Session:
    """Read one session of a database. Raises TranscriptError if it is not there or cannot be read."""
    builder = EventBuilder(agent=AGENT, session=name)
    with open_database(database) as connection:
        if columns := sorted({"title", "directory"} & columns_of(connection, "session")):
            row = connection.execute(f"SELECT {', '.join(columns)} FROM session WHERE id = ?", (name,)).fetchone()
            _read_about(dict(zip(columns, row or (), strict=False)), builder)
        messages = connection.execute(
            "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (name,)
        ).fetchall()
        for message_id, text in messages:
            rows = connection.execute("SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (message_id,))
            parts = ({"id": part_id} | (parse_record(part) or {}) for part_id, part in rows)
            _read_message({"id": message_id} | (parse_record(text) or {}), parts, builder)
    if not messages:
        raise TranscriptError(f"{database} holds no session {name}.")
    return builder.build(f"{database}#{name}")


def _read_about(about: Mapping[str, Any], builder: EventBuilder) -> None:
    builder.title = text_of(about.get("title")) or None
    builder.work_in(about.get("directory"))


def _read_message(message: Mapping[str, Any], parts: Iterable[Mapping[str, Any]], builder: EventBuilder) -> None:
    builder.begin(moment=_time(message, "created") or None, uuid=message.get("id"))
    for key in ("path", "root"):
        builder.work_in(mapping_of(message.get(key)).get("cwd"))
    is_agent = message.get("role") == "assistant"
    if not is_agent and message.get("role") != "user":
        builder.skipped += 1
        return
    for part in parts:
        kind, text = part.get("type"), text_of(part.get("text"))
        state = mapping_of(part.get("state"))
        builder.skipped += kind is None
        is_said = kind == "text" and not (part.get("synthetic") or part.get("ignored"))
        if not is_said and kind != "tool":
            continue
        builder.begin(moment=_time(part, "start") or _time(state, "start"), uuid=part.get("id"))
        if kind == "tool":
            _read_tool(part, state, builder)
        elif is_agent and message.get("summary") is True:
            builder.add(EventKind.SUMMARY, text)
        elif is_agent:
            builder.reply(text)
        else:
            builder.prompt(text)


def _read_tool(part: Mapping[str, Any], state: Mapping[str, Any], builder: EventBuilder) -> None:
    details = mapping_of(state.get("metadata"))
    call_id, first = text_of(part.get("callID")) or builder.uuid, len(builder.events)
    is_command = builder.tool(part.get("tool"), mapping_of(state.get("input")), call_id)
    noted = mapping_of(details.get("filediff"))  # the file before and after an edit
    before, after, path = noted.get("before"), noted.get("after"), builder.events[first].path
    if path and len(builder.events) == first + 1 and isinstance(before, str) and isinstance(after, str):
        del builder.events[first:]
        builder.call([file_edit(path, after, before)], call_id)
    ok = {"completed": True, "error": False}.get(text_of(state.get("status")))
    if ok is not None:
        code = details.get("exit") if is_command and type(details.get("exit")) is int else None
        builder.result(call_id, text_of(state.get("output" if ok else "error")), ok=ok, exit_code=code)


def _document(file: Path) -> dict[str, Any]:
    with suppress(TranscriptError):
        return read_document(file) or {}
    return {}


def _time(record: Mapping[str, Any], name: str) -> float:
    value = mapping_of(record.get("time")).get(name)
    return value if isinstance(value, int | float) else 0.0  # an int may be too large for a float
