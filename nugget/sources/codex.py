"""Codex: `$CODEX_HOME/sessions/YYYY/MM/DD/rollout-TIME-UUID.jsonl`, compressed (`.zst`) when old.

A line is `{timestamp, type, payload}`. `response_item` carries the conversation (messages, function calls and their
outputs); `event_msg` repeats it for the screen; `session_meta` and `turn_context` say where it ran.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nugget.errors import TranscriptError
from nugget.models import EventKind, Session, SessionFile
from nugget.sources import (
    MAX_LINE_BYTES,
    between,
    joined_text,
    mapping_of,
    parse_record,
    records_of,
    session_file,
    text_of,
    unreadable,
)
from nugget.sources.event_builder import USER_SHELL, EventBuilder, arguments, command, shell_words

AGENT = "codex"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
_TYPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state")
_INJECTED = (
    "# AGENTS.md instructions", "<environment_context", "<user_instructions", "<permissions instructions",
    "<INSTRUCTIONS", "<turn_aborted", "<subagent_notification", "<skill", "<collaboration_mode", "<model_switch",
    "<personality_spec", "<apps_instructions", "<plugins_instructions", "<hook_prompt", "<codex_internal_context",
)  # fmt: skip
_REQUEST = "# My request for Codex:\n"
_EXIT_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d{1,9})[ \t]*$", re.MULTILINE)
_RUNNING = "Process running with session ID "
_HEAD_CHARS = 600
"""The exit code is in the first lines of a command's output."""


def find(folders: Mapping[str, Path]) -> Iterator[SessionFile]:
    """Yield the rollouts below `sessions` and `archived_sessions` of Codex' folder."""
    for kept in ("sessions", "archived_sessions"):
        for file in (folders["codex"] / kept).rglob("rollout-*"):
            is_rollout = file.name.endswith((".jsonl", ".jsonl.zst"))
            if is_rollout and (found := session_file(file, agent=AGENT, name=_id_in(file))):
                yield found


def _id_in(path: Path) -> str:
    return path.name.partition(".")[0][-36:]


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record is one that Codex writes."""
    return isinstance(record.get("payload"), Mapping) and record.get("type") in _TYPES


def read(path: Path) -> Session:
    """Read a rollout. Raises TranscriptError if it cannot be read or decompressed."""
    builder = EventBuilder(agent=AGENT, session=_id_in(path))
    for record in _records(path):
        builder.begin(moment=(record or {}).get("timestamp"))
        if record is None:
            builder.skipped += 1
        else:
            _read_record(record, builder)
    return builder.build(path)


def _records(path: Path) -> Iterator[dict[str, Any] | None]:
    try:
        with path.open("rb") as file:
            is_packed = file.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC
    except OSError as error:
        raise unreadable(path, error) from error
    if not is_packed:
        yield from records_of(path)
        return
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    left = _MAX_UNPACKED_BYTES
    try:
        with zstd.ZstdFile(path) as lines:
            while left > 0 and (line := lines.readline(MAX_LINE_BYTES)):
                left -= len(line)
                if line.strip():
                    yield parse_record(line)
    except EOFError:
        return  # cut off: keep the complete part
    except zstd.ZstdError as error:
        raise TranscriptError(f"{path} is damaged and cannot be decompressed ({error}).") from error


def _read_record(record: Mapping[str, Any], builder: EventBuilder) -> None:
    kind, payload = record.get("type"), mapping_of(record.get("payload"))
    builder.skipped += not isinstance(record.get("payload"), Mapping)
    if kind == "response_item":
        _read_response(payload, builder)
    elif kind in ("session_meta", "turn_context"):
        builder.work_in(payload.get("cwd"))
        if builder.records == 1:
            builder.session = text_of(payload.get("id")) or builder.session
        builder.branch = builder.branch or text_of(mapping_of(payload.get("git")).get("branch")) or None
    elif kind == "compacted" and (text := text_of(payload.get("message"))):
        builder.add(EventKind.SUMMARY, text)


def _read_response(payload: Mapping[str, Any], builder: EventBuilder) -> None:
    kind, call_id = payload.get("type"), text_of(payload.get("call_id"))
    if kind == "message":
        _read_message(payload, builder)
    elif kind in ("function_call", "custom_tool_call"):
        given = arguments(payload.get("arguments") if kind == "function_call" else payload.get("input"))
        builder.tool(payload.get("name"), given, call_id)
    elif kind == "local_shell_call":
        builder.call([command(shell_words(mapping_of(payload.get("action")).get("command")))], call_id)
    elif kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        _read_output(payload, call_id, builder)


def _read_message(payload: Mapping[str, Any], builder: EventBuilder) -> None:
    role, content = payload.get("role"), payload.get("content")
    if role == "assistant":
        builder.reply(joined_text(content))
    elif role == "user":
        parts = content if isinstance(content, list) else [content]
        texts = [text for part in parts if (text := joined_text([part])) and not text.lstrip().startswith(_INJECTED)]
        text = "\n".join(texts)
        if text.lstrip().startswith("<user_shell_command>"):
            builder.shell(between(text, "<command>", "</command>").strip("\n"))
            printed = between(text, "<result>", "</result>").strip("\n")
            builder.add(EventKind.OUTPUT, _printed(printed), tool=USER_SHELL)
        elif text:
            builder.prompt(text.rpartition(_REQUEST)[2])


def _read_output(payload: Mapping[str, Any], call_id: str, builder: EventBuilder) -> None:
    output, ok = payload.get("output"), None
    if isinstance(output, Mapping):
        ok = output.get("success") if isinstance(output.get("success"), bool) else None
        output = output.get("content")
    text = joined_text(output)
    wrapped = (parse_record(text) or {}) if text.startswith("{") else {}
    if isinstance(wrapped.get("output"), str):  # of `{output, metadata: {exit_code}}`
        text = wrapped["output"]
    code, found = mapping_of(wrapped.get("metadata")).get("exit_code"), _EXIT_CODE.search(text[:_HEAD_CHARS])
    if not isinstance(code, int):
        code = int(found[1]) if found else None
    if ok is None and _RUNNING not in text[:_HEAD_CHARS]:
        ok = not text.startswith(("execution error", "apply_patch verification failed", "failed to", "aborted"))
    builder.result(call_id, _printed(text), ok=ok, exit_code=code)


def _printed(text: str) -> str:
    """Return the output of a command without the lines about its run above `Output:`."""
    head, mark, rest = text.partition("Output:\n")
    is_head = mark and len(head) <= _HEAD_CHARS and (_EXIT_CODE.search(head) or _RUNNING in head)
    return rest if is_head else text
