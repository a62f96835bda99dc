"""Cursor: agent transcripts (`~/.cursor/projects/SLUG/agent-transcripts/ID/ID.jsonl`) and its databases.

A line of a transcript is `{role, message: {content: [text | tool_use {name, input} | tool_result]}}`, without ids and
times. The databases are `state.vscdb` in `User/globalStorage` and `User/workspaceStorage/*`: two tables of key and
value. In `cursorDiskKV`, `composerData:ID` lists the bubbles of a session (or, older, holds them), `bubbleId:ID:BUBBLE`
is one: `type` 1 is the person, 2 the agent, `toolFormerData` a tool call with its result.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nugget.errors import TranscriptError
from nugget.models import Event, Session, SessionFile
from nugget.sources import (
    blocks_of,
    columns_of,
    joined_text,
    mapping_of,
    objects_in,
    open_database,
    parse_record,
    parse_timestamp,
    read_document,
    records_of,
    session_file,
    text_of,
)
from nugget.sources.event_builder import EventBuilder, arguments, file_edit

AGENT = "cursor"

_COMPOSER = "composerData:"
_WOVEN_IN = re.compile(
    r"<(?P<tag>user_info|attached_files|open_and_recently_viewed_files|additional_data|system_reminder|rules|timestamp|"
    r"agent_transcripts|git_status|project_layout|manually_attached_skills|external_links|image_files)\b[^>]*>"
    r".*?(?:</(?P=tag)>|\Z)",
    re.DOTALL,
)
_HIDDEN = "[REDACTED]"
"""The placeholder for the agent's thoughts at the end of a reply."""


def find(folders: Mapping[str, Path]) -> Iterator[SessionFile]:
    """Yield the transcripts below `~/.cursor/projects`, and the sessions in the databases of Cursor's `User` folder."""
    user, known = folders["cursor"], set()
    for file in folders["cursor_projects"].glob("*/agent-transcripts/**/*.jsonl"):
        if "subagents" not in file.parts and (found := session_file(file, agent=AGENT, name=file.stem)):
            known.add(found.id)
            yield found
    for database in (user / "globalStorage/state.vscdb", *sorted(user.glob("workspaceStorage/*/state.vscdb"))):
        with suppress(TranscriptError):
            yield from (found for found in stored(database) if found.id not in known)


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a line of an agent transcript."""
    message = record.get("message")
    return "type" not in record and record.get("role") in ("user", "assistant") and isinstance(message, Mapping)


def stored(database: Path) -> list[SessionFile]:
    """Return the sessions that a database holds. Raises TranscriptError if it cannot be read."""
    if not database.is_file():
        return []
    found = []
    with open_database(database) as connection:
        sql = "SELECT key, value FROM cursorDiskKV WHERE key >= ? AND key < ?"
        keys = (_COMPOSER, f"{_COMPOSER[:-1]};")
        for key, value in connection.execute(sql, keys) if columns_of(connection, "cursorDiskKV") else ():
            about = parse_record(value or "") or {}
            if about.get("fullConversationHeadersOnly") or about.get("conversation"):
                moment = parse_timestamp(about.get("lastUpdatedAt")) or parse_timestamp(about.get("createdAt"))
                mtime_ns = int(moment.timestamp() * 1e9) if moment else database.stat().st_mtime_ns
                found.append(
                    SessionFile(
                        path=database, agent=AGENT, id=key.removeprefix(_COMPOSER), mtime_ns=mtime_ns, size=len(value),
                        is_shared=True,
                    )
                )  # fmt: skip
    return found


def read(path: Path) -> Session:
    """Read an agent transcript. Raises TranscriptError when it cannot be read."""
    builder = EventBuilder(agent=AGENT, session=path.stem)
    for record in records_of(path):
        builder.begin(moment=(record or {}).get("timestamp"))
        if record is not None and recognises(record):
            _read_line(record, builder)
        else:
            builder.skipped += 1
    builder.work_in(_folder_by_slug(path, builder))
    return builder.build(path)


def read_stored(database: Path, name: str) -> Session:
    """Read one session of a database. Raises TranscriptError if it is not there or cannot be read."""
    builder = EventBuilder(agent=AGENT, session=name)
    with open_database(database) as connection:
        about = parse_record(_value(connection, f"{_COMPOSER}{name}") or "")
        if about is None:
            raise TranscriptError(f"{database} holds no session {name}.")
        bubbles = objects_in(about.get("conversation"))
        for header in objects_in(about.get("fullConversationHeadersOnly")):
            if bubble := parse_record(_value(connection, f"bubbleId:{name}:{header.get('bubbleId')}") or ""):
                bubbles.append({"bubbleId": header.get("bubbleId"), **bubble})
        for bubble in bubbles:
            builder.begin(moment=bubble.get("createdAt") or about.get("createdAt"), uuid=bubble.get("bubbleId"))
            _read_bubble(bubble, builder, connection)
    builder.title = text_of(about.get("name")) or None
    if not builder.folders:
        builder.work_in(_folder_of_workspace(database, name))
    return builder.build(f"{database}#{name}")


def _read_line(record: Mapping[str, Any], builder: EventBuilder) -> None:
    for block in blocks_of(record):
        kind, text, given = block.get("type"), text_of(block.get("text")), block.get("input")
        if kind == "text" and record["role"] == "user":
            _read_prompt(text, builder)
        elif kind == "text":
            builder.reply(text.rstrip().removesuffix(_HIDDEN))
        elif kind == "tool_use":
            given = given if isinstance(given, Mapping) else {"input": given}
            builder.tool(block.get("name"), given, text_of(block.get("id")))
        elif kind == "tool_result":
            printed = joined_text(block.get("content"))
            builder.result(text_of(block.get("tool_use_id")), printed, ok=not block.get("is_error"))


def _read_prompt(text: str, builder: EventBuilder) -> None:
    queries = re.findall(r"<user_query>\n?(.*?)\n?</user_query>", text, re.DOTALL)
    builder.prompt("\n".join(queries) if queries else _WOVEN_IN.sub("", text))


def _read_bubble(bubble: Mapping[str, Any], builder: EventBuilder, connection: sqlite3.Connection) -> None:
    uris, text = bubble.get("workspaceUris"), text_of(bubble.get("text"))
    for uri in uris if isinstance(uris, list) else []:
        builder.work_in(_path_of(text_of(uri)))
    if bubble.get("type") in (1, "user"):
        _read_prompt(text, builder)
        return
    builder.reply(text.rstrip().removesuffix(_HIDDEN))
    call = mapping_of(bubble.get("toolFormerData"))
    if not call.get("name"):
        return
    given = {**arguments(call.get("params")), **arguments(call.get("rawArgs"))}
    printed, result = text_of(call.get("result")), arguments(call.get("result"))
    call_id, first = text_of(call.get("toolCallId")) or builder.uuid, len(builder.events)
    is_command = builder.tool(call.get("name"), given, call_id)
    if edits := _edits(builder.events[first].path, result, connection):
        del builder.events[first:]
        builder.call(edits, call_id)
    ok = {"completed": True, "error": False, "cancelled": False, "rejected": False}.get(text_of(call.get("status")))
    if call.get("userDecision") == "rejected" or call.get("error"):
        ok = False
    if printed or ok is not None:
        code = next((result[key] for key in ("exitCode", "exitCodeV2") if isinstance(result.get(key), int)), None)
        if is_command:
            printed = text_of(result.get("output")) or text_of(result.get("contents")) or printed
        printed = printed or text_of(call.get("error"))
        builder.result(call_id, printed, ok=ok, exit_code=code if is_command else None)


def _edits(path: str | None, result: Mapping[str, Any], connection: sqlite3.Connection) -> list[Event]:
    """Return the edits of a file from the call's result, which is more exact than the requested sketch."""
    if not path:
        return []
    if chunks := objects_in(mapping_of(result.get("diff")).get("chunks")):
        return [_edit(path, diff) for chunk in chunks if (diff := text_of(chunk.get("diffString")))]
    before, after = (text_of(result.get(key)) for key in ("beforeContentId", "afterContentId"))
    new = _value(connection, after)
    return [] if new is None else [file_edit(path, new, _value(connection, before))]


def _edit(path: str, diff: str) -> Event:
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@", "\\"))]
    old = [line[1:] for line in lines if not line.startswith("+")]
    new = [line[1:] for line in lines if not line.startswith("-")]
    return file_edit(path, "\n".join(new), "\n".join(old))


def _value(connection: sqlite3.Connection, key: str, table: str = "cursorDiskKV") -> str | None:
    """Return the value of a key as text; None for an unknown key."""
    sql = f"SELECT CAST(value AS TEXT) FROM {table} WHERE key = ?"
    row = connection.execute(sql, (key,)).fetchone() if columns_of(connection, table) else None
    return row[0] if row else None


def _path_of(uri: str) -> str:
    if uri.startswith("file://"):
        return unquote(urlsplit(uri).path)
    return uri if uri.startswith("/") else ""


def _folder_of_workspace(database: Path, name: str) -> str | None:
    """Return the folder of the workspace whose own database lists the session, or is the database itself."""
    above = database.parent.parent
    user = above.parent if above.name == "workspaceStorage" else above
    for file in sorted(user.glob("workspaceStorage/*/workspace.json")):
        beside = file.with_name("state.vscdb")
        with suppress(TranscriptError):
            folder = _path_of(text_of((read_document(file) or {}).get("folder")))
            if beside == database:
                return folder
            with open_database(beside) as connection:
                listed = parse_record(_value(connection, "composer.composerData", "ItemTable") or "") or {}
            if folder and any(one.get("composerId") == name for one in objects_in(listed.get("allComposers"))):
                return folder
    return None


def _folder_by_slug(path: Path, builder: EventBuilder) -> str | None:
    """Return the folder above a file named in the session that matches the project's slug."""
    named = [event.path for event in builder.events if event.path]
    slugs = {rest.partition("/")[0] for text in (str(path), *named) for rest in text.split("/projects/")[1:]}
    folders = (folder for text in named if text.startswith("/") for folder in map(str, Path(text).parents))
    return next((folder for folder in folders if re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-") in slugs), None)
