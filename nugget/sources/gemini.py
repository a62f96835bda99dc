"""Gemini CLI: `$GEMINI_CLI_HOME/.gemini/tmp/<project>/chats/session-*.json`, newer ones `.jsonl`.

A document is `{sessionId, projectHash, startTime, lastUpdated, messages}`; the JSONL form has a message a line, and
lines `{"$set": ...}`. A message is `{id, timestamp, type: user | gemini | info | ..., content, toolCalls}`. Its folder
is known only by a SHA-256 (`projectHash`), which is compared with those of the folders above the files that it named,
or by the file `.project_root` beside `chats`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nugget.models import Session, SessionFile
from nugget.sources import joined_text, mapping_of, objects_in, read_document, records_of, session_file, text_of
from nugget.sources.event_builder import EventBuilder
from nugget.text import content_hash

AGENT = "gemini-cli"

_KINDS = ("user", "gemini", "info", "error", "warning", "model")
_ID = re.compile(rb'"sessionId"\s*:\s*"([A-Za-z0-9_.-]{1,128})"')
_HEAD_BYTES = 4096
_INJECTED = ("System: Please continue.", "<session_context>", "This is the Gemini CLI. We are setting up the context")
_REFERENCED, _END = "--- Content from referenced files ---", "--- End of content ---"
_SHELL_RESULT = re.compile(
    r"(?:\A|\n)Output: (?P<output>.*?)\n(?:Error: (?P<error>.*?)\n)?Exit Code: (?P<code>-?\d{1,9}|\(none\))", re.DOTALL
)


def find(folders: Mapping[str, Path]) -> Iterator[SessionFile]:
    """Yield the chats of every project below `.gemini`; the id is in the first bytes of each."""
    for file in (folders["gemini"] / "tmp").glob("*/chats/session-*.json*"):
        with suppress(OSError):
            with file.open("rb") as opened:
                name = _ID.search(opened.read(_HEAD_BYTES))
            if found := session_file(file, agent=AGENT, name=name.group(1).decode() if name else file.stem):
                yield found


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a document, or a line, is one that Gemini CLI writes."""
    is_document = (isinstance(record.get("messages"), list) and "sessionId" in record) or "projectHash" in record
    is_message = record.get("type") in _KINDS and "content" in record and not record.keys() & {"message", "uuid"}
    return is_document or "$set" in record or is_message


def read(path: Path) -> Session:
    """Read a chat in either form. Raises TranscriptError when it cannot be read."""
    builder = EventBuilder(agent=AGENT, session=path.stem)
    about = (read_document(path) if path.suffix != ".jsonl" else None) or {}
    messages = about.get("messages")
    about = about if isinstance(messages, list) else {}
    _read_messages(messages if isinstance(messages, list) else records_of(path), builder, about)
    builder.session = text_of(about.get("sessionId")) or builder.session
    builder.title = text_of(about.get("summary")) or None
    if folder := _folder(path, text_of(about.get("projectHash")), builder):
        builder.folders = {folder: None, **builder.folders}
    return builder.build(path)


def _read_messages(messages: Iterable[object], builder: EventBuilder, about: dict[str, Any]) -> None:
    for message in messages:
        if isinstance(message, dict) and message.get("type") in _KINDS:
            builder.begin(moment=message.get("timestamp"), uuid=message.get("id"))
            _read_message(message, builder)
            continue
        builder.records += 1
        changed = message.get("$set") if isinstance(message, dict) else None
        builder.skipped += not isinstance(changed, dict) and not (isinstance(message, dict) and recognises(message))
        about.update(changed if isinstance(changed, dict) else mapping_of(message))


def _read_message(message: Mapping[str, Any], builder: EventBuilder) -> None:
    kind, text = message["type"], joined_text(message.get("content"))
    if kind == "user":
        shown = joined_text(message.get("displayContent")) or text
        if not shown.lstrip().startswith(_INJECTED):
            typed, _, referenced = shown.partition(_REFERENCED)
            builder.prompt(typed.rstrip("\n") + referenced.partition(_END)[2])
    elif kind in ("gemini", "model"):
        builder.reply(text)
        for call in objects_in(message.get("toolCalls")):
            _read_call(call, builder)


def _read_call(call: Mapping[str, Any], builder: EventBuilder) -> None:
    call_id, status = text_of(call.get("id")), text_of(call.get("status"))
    is_command = builder.tool(call.get("name"), mapping_of(call.get("args")), call_id)
    if "result" not in call and "resultDisplay" not in call:
        return
    text = _result_text(call.get("result")) or joined_text(call.get("resultDisplay"))
    ok = {"success": True, "error": False, "cancelled": False}.get(status)
    code = None
    if is_command and (found := _SHELL_RESULT.search(text)):
        code = int(found["code"]) if found["code"] != "(none)" else None
        text = "\n".join(part for part in found.group("output", "error") if part not in (None, "", "(empty)", "(none)"))
    builder.result(call_id, text, ok=ok, exit_code=code)


def _result_text(result: object) -> str:
    """Return the texts of `[{functionResponse: {response: {output | error}}}, ...]`."""
    texts = []
    for part in result if isinstance(result, list) else [result]:
        response = mapping_of(mapping_of(mapping_of(part).get("functionResponse")).get("response"))
        texts.append(joined_text(response, ("output", "error")) if response else joined_text(part))
    return "\n".join(filter(None, texts))


def _folder(path: Path, project_hash: str, builder: EventBuilder) -> str | None:
    """Return the folder that a chat ran in, from its project's note or by hash."""
    with suppress(OSError, ValueError):
        noted = (path.parent.parent / ".project_root").read_text("utf-8")[:4096].strip()
        if noted.startswith("/"):
            return noted
    named = (Path(event.path) for event in builder.events if project_hash and event.path)
    folders = dict.fromkeys(str(folder) for file in named for folder in file.parents)
    return next((one for one in folders if content_hash(one) == project_hash), None)
