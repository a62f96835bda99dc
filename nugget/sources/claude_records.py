"""The records of a Claude Code transcript, one JSON object a line, and the events that they stand for.

Only `user`, `assistant` and `attachment` records carry conversation; the rest is the client's own state.
One assistant record holds one content block; a tool's result stands in a user record that names the call.
Nothing in a record is trusted to have the type that it should have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from nugget.models import Event, EventKind, Speaker, SpeechOrigin
from nugget.sources import injected_text as injected
from nugget.sources.contents import edited_hashes
from nugget.sources.speakers import SAID_BY, prompt_parts

ANSWERED_TOOL = "AskUserQuestion"
USER_SHELL = "user-shell"
"""The `tool` of a command that the person ran with `!` in the client."""

SHELL_TOOLS = ("Bash", "PowerShell")

_EXIT_CODE = re.compile(r"\A(?:Error: )?Exit code (\d+)\n?")
_RAW_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")
"""Half of a surrogate pair as bytes: no UTF-8, but json.loads takes it."""
_NEVER_RAN = ("<tool_use_error>", "Claude requested permissions", "Permission to use ", "Sibling tool call errored")
_CONVERSATION_TYPES = frozenset(["user", "assistant"])
_STATE_TYPES = frozenset(
    "agent-name ai-title api-request api-request-blob api-request-shape atis-latch attachment bridge-session"
    " content-replacement continued-in cost-state custom-title file-history-delta file-history-snapshot last-prompt"
    " mode permission-mode pr-link progress queue-operation relocated summary system tag tools-used".split()
)


@dataclass(slots=True)
class Reading:
    """State of reading one file."""

    events: list[Event] = field(default_factory=list)
    records: int = 0
    skipped: int = 0
    recognised: int = 0
    folders: dict[str, None] = field(default_factory=dict)
    branch: str | None = None
    agent_id: str | None = None
    session_ids: dict[str, int] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    calls: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    queued: set[str] = field(default_factory=set)
    titles: dict[str, str] = field(default_factory=dict)
    summaries: list[tuple[str, str]] = field(default_factory=list)
    has_surrogates: bool = False

    def add(self, kind: EventKind, text: str, record: Mapping[str, Any], **values: Any) -> None:
        """Append an event with the uuid and the time of the record that it stands in."""
        if "\0" in text or self.has_surrogates:
            text = storable(text)
        speaker, origin = SAID_BY[kind]
        if speaker is Speaker.USER and record.get("isSidechain"):
            speaker, origin = Speaker.AGENT, SpeechOrigin.WRITTEN
        self.events.append(
            Event(
                kind=kind,
                text=text,
                speaker=values.pop("speaker", speaker),
                origin=values.pop("origin", origin),
                uuid=text_of(record.get("uuid")),
                timestamp=parse_timestamp(record.get("timestamp")),
                agent_id=_agent_of(record),
                **values,
            )
        )

    def live_events(self) -> list[Event]:
        """Return the events without those of dead branches."""
        dead = self.dead_records()
        return [event for event in self.events if event.uuid not in dead] if dead else self.events

    def dead_records(self) -> set[str]:
        """Return the records of dead branches.

        Two prompts with one parent mean that the person went back and asked again: the last one counts.
        """
        last: dict[str, str] = {}
        for uuid in self.prompts:
            if parent := self.parents.get(uuid):
                last[parent] = uuid
        dead = {uuid for uuid in self.prompts if (parent := self.parents.get(uuid)) and last[parent] != uuid}
        if dead:
            for uuid, parent in self.parents.items():
                if parent in dead:
                    dead.add(uuid)
        return dead

    def session_id(self, path: Path) -> str:
        """The file's name where the records bear it, else the id that most of them bear, else the name."""
        if path.stem in self.session_ids or not self.session_ids:
            return path.stem
        return max(self.session_ids, key=lambda name: self.session_ids[name])

    def title(self) -> str | None:
        """A name given by the person, else by the client; an old summary only when it is of this session."""
        own = [text for leaf, text in self.summaries if leaf in self.parents]
        return self.titles.get("custom-title") or self.titles.get("ai-title") or (own[-1] if own else None)


def read_line(line: bytes, reading: Reading) -> None:
    """Add the content of one line of a transcript; count a line that is not a record as skipped."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        reading.skipped += 1
        return
    kind, uuid = record["type"], record.get("uuid")
    known = "message" in record if kind in _CONVERSATION_TYPES else kind in _STATE_TYPES or "sessionId" in record
    if not known:
        reading.skipped += 1
        return
    reading.recognised += 1
    if isinstance(uuid, str) and uuid:
        if uuid in reading.parents:
            return
        parent = record.get("parentUuid")
        reading.parents[uuid] = parent if isinstance(parent, str) else None
    reading.has_surrogates = b"\\ud" in line or b"\\uD" in line or _RAW_SURROGATE.search(line) is not None
    _note_envelope(record, reading)
    if reader := _READERS.get(kind):
        reader(record, reading)


def _note_envelope(record: Mapping[str, Any], reading: Reading) -> None:
    if name := text_of(record.get("sessionId")):
        reading.session_ids[name] = reading.session_ids.get(name, 0) + 1
    if folder := text_of(record.get("cwd")):
        reading.folders[folder] = None
    branch = text_of(record.get("gitBranch"))
    if branch and branch != "HEAD":
        reading.branch = branch


def _read_title(record: Mapping[str, Any], reading: Reading) -> None:
    title = next((text for key in ("customTitle", "aiTitle", "title") if (text := text_of(record.get(key)))), "")
    if title:
        reading.titles[record["type"]] = storable(title)


def _read_summary(record: Mapping[str, Any], reading: Reading) -> None:
    if text := text_of(record.get("summary")):
        reading.summaries.append((text_of(record.get("leafUuid")), storable(text)))


def _read_attachment(record: Mapping[str, Any], reading: Reading) -> None:
    """A prompt typed while the agent was working stands in an attachment, and often in no user record."""
    attachment = record.get("attachment")
    if not isinstance(attachment, Mapping) or attachment.get("type") != "queued_command":
        return
    mode = attachment.get("commandMode", "prompt")
    if mode != "prompt" or not injected.is_human(attachment) or not injected.is_human(record):
        return
    text = injected.typed_text(_joined_text(attachment.get("prompt")))
    if text:
        reading.queued.add(text)
        _add_prompt(text, record, reading)


def _read_assistant(record: Mapping[str, Any], reading: Reading) -> None:
    message = record["message"]
    if record.get("isApiErrorMessage") or (isinstance(message, Mapping) and message.get("model") == "<synthetic>"):
        return
    for block in _blocks(message):
        if block.get("type") == "text" and (text := text_of(block.get("text")).strip()):
            reading.add(EventKind.REPLY, text, record)
        elif block.get("type") == "tool_use":
            _read_call(block, record, reading)


def _read_user(record: Mapping[str, Any], reading: Reading) -> None:
    message, said = record["message"], []
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            _read_result(block, record, reading)
        elif block.get("type") == "text":
            said.append(text_of(block.get("text")))
    if not said:
        return
    text = "\n".join(said)
    if record.get("isCompactSummary") or text.startswith(injected.COMPACTION_OPENING):
        reading.add(EventKind.SUMMARY, text, record)
    elif injected.is_human(record):
        _read_prompt(said, text, record, reading)


def _read_prompt(said: list[str], text: str, record: Mapping[str, Any], reading: Reading) -> None:
    if command := injected.shell_input(text):
        reading.add(
            EventKind.COMMAND, command, record, tool=USER_SHELL, speaker=Speaker.USER, origin=SpeechOrigin.TYPED
        )
    elif (printed := injected.shell_output(text)) is not None:
        reading.add(EventKind.OUTPUT, printed, record, tool=USER_SHELL)
    elif typed := "\n".join(part for part in map(injected.typed_text, said) if part):
        if typed in reading.queued:
            reading.queued.remove(typed)
            return
        _add_prompt(typed, record, reading)
        if uuid := text_of(record.get("uuid")):
            reading.prompts.append(uuid)


def _add_prompt(text: str, record: Mapping[str, Any], reading: Reading, **values: Any) -> None:
    for part in prompt_parts(text, is_paste=record.get("promptSource") == "paste"):
        reading.add(part.kind, part.text, record, speaker=part.speaker, origin=part.origin, **values)


def _read_call(block: Mapping[str, Any], record: Mapping[str, Any], reading: Reading) -> None:
    tool, call_id, given = text_of(block.get("name")), text_of(block.get("id")), block.get("input")
    given = given if isinstance(given, Mapping) else {}
    first = len(reading.events)
    if tool in SHELL_TOOLS:
        reading.add(EventKind.COMMAND, text_of(given.get("command")), record, tool=tool, call_id=call_id)
    elif edits := _edits(tool, given):
        path = text_of(given.get("file_path")) or text_of(given.get("notebook_path"))
        for before, after in edits:
            reading.add(
                EventKind.FILE_EDIT,
                f"{tool} {path}",
                record,
                tool=tool,
                call_id=call_id,
                path=storable(path),
                before=None if before is None else storable(before),
                after=storable(after),
            )
    else:
        path = text_of(given.get("file_path")) or text_of(given.get("path"))
        reading.add(EventKind.TOOL_CALL, call_text(tool, given), record, tool=tool, call_id=call_id, path=path or None)
    if call_id:
        reading.calls[call_id] = (tool, list(range(first, len(reading.events))))


def _read_result(block: Mapping[str, Any], record: Mapping[str, Any], reading: Reading) -> None:
    call_id = text_of(block.get("tool_use_id"))
    tool, positions = reading.calls.get(call_id, ("", []))
    text = injected.strip_injected(_joined_text(block.get("content")))
    details = record.get("toolUseResult")
    details = details if isinstance(details, Mapping) else {}
    failed = bool(block.get("is_error"))
    refused = injected.refused_by_person(text, block, record, tool=tool)
    by_hook = injected.refused_by_hook(record)
    origin = SpeechOrigin.HOOK if by_hook else SpeechOrigin.TOOL_RESULT
    if tool in SHELL_TOOLS and not refused and not by_hook and not text.startswith(_NEVER_RAN):
        _read_output(text, details, record, reading, tool=tool, call_id=call_id, failed=failed)
    elif any(reading.events[position].kind is EventKind.FILE_EDIT for position in positions):
        _settle_edits(positions, details, reading, ok=not failed)
        if failed:
            reading.add(EventKind.TOOL_RESULT, text, record, tool=tool, call_id=call_id, ok=False, origin=origin)
    else:
        reading.add(
            EventKind.TOOL_RESULT, text, record, tool=tool or None, call_id=call_id, ok=not failed, origin=origin
        )
    said = injected.refusal_reason(text) if refused else ""
    if tool == ANSWERED_TOOL and not failed:
        said = injected.answer_in(details, text)
    if said and positions and not record.get("isSidechain"):
        del reading.calls[call_id]
        if tool == ANSWERED_TOOL:
            reading.add(EventKind.PROMPT, said, record, tool=tool, call_id=call_id)
        else:
            _add_prompt(said, record, reading, tool=tool, call_id=call_id)


def _read_output(
    text: str,
    details: Mapping[str, Any],
    record: Mapping[str, Any],
    reading: Reading,
    *,
    tool: str,
    call_id: str,
    failed: bool,
) -> None:
    code = _EXIT_CODE.match(text)
    exit_code: int | None = 0
    ok: bool | None = True
    if failed:
        exit_code, ok = (int(code.group(1)[:9]) if code else None), False
        text = text[code.end() :] if code else text
    elif details.get("interrupted"):
        exit_code, ok = None, False
    elif details.get("backgroundTaskId"):
        exit_code, ok = None, None
    reading.add(EventKind.OUTPUT, text, record, tool=tool, call_id=call_id, ok=ok, exit_code=exit_code)


def _settle_edits(positions: list[int], details: Mapping[str, Any], reading: Reading, *, ok: bool) -> None:
    """Note the outcome of a call's edits, and what the file was before and after where the result tells."""
    original = details.get("originalFile")
    is_new = details.get("type") == "create" or ("originalFile" in details and original is None)
    before = original if isinstance(original, str) else "" if is_new else None
    notebook = details.get("original_file")
    edits = [(reading.events[position].before, reading.events[position].after or "") for position in positions]
    whole = notebook if isinstance(notebook, str) else before
    first_hash, last_hash = edited_hashes(whole, edits, details) if ok else (None, None)
    for position in positions:
        event = reading.events[position]
        reading.events[position] = replace(
            event, ok=ok,
            before=storable(before) if event.before is None and before is not None else event.before,
            before_hash=first_hash if position == positions[0] else None,
            after_hash=last_hash if position == positions[-1] else None,
        )  # fmt: skip


def _edits(tool: str, given: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    """(before, after) of each replacement that a tool call asks for; `before` is None for a whole file."""
    if tool == "Edit":
        return [(text_of(given.get("old_string")), text_of(given.get("new_string")))]
    if tool == "MultiEdit":
        edits = given.get("edits")
        parts = [part for part in edits if isinstance(part, Mapping)] if isinstance(edits, list) else []
        return [(text_of(part.get("old_string")), text_of(part.get("new_string"))) for part in parts]
    if tool == "Write":
        return [(None, text_of(given.get("content")))]
    if tool == "NotebookEdit":
        return [(None, text_of(given.get("new_source")))]
    return []


def call_text(tool: str, given: Mapping[str, Any]) -> str:
    """Return a tool call as text for people: the to-do list, the plan, the task, else `key: value` lines."""
    todos = given.get("todos")
    if tool == "TodoWrite" and isinstance(todos, list):
        lines = [
            f"[{text_of(todo.get('status'))}] {text_of(todo.get('content'))}"
            for todo in todos
            if isinstance(todo, Mapping)
        ]
        return "\n".join(lines)
    if tool == "ExitPlanMode":
        return text_of(given.get("plan"))
    shown = {key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for key, one in given.items()}
    return "\n".join(f"{key}: {value}" for key, value in shown.items())


def parse_timestamp(value: object) -> datetime | None:
    """Parse an ISO 8601 time as an aware datetime; return None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        stamp = datetime.fromisoformat(value)
    except ValueError:
        return None
    aware = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    return aware if date.min.year < stamp.year < date.max.year else None


def _agent_of(record: Mapping[str, Any]) -> str | None:
    if not record.get("isSidechain"):
        return None
    return text_of(record.get("agentId")) or "sidechain"


def _blocks(message: object) -> list[Mapping[str, Any]]:
    """The content blocks of a message; a plain string is one text block."""
    content = message.get("content") if isinstance(message, Mapping) else message
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _joined_text(content: object) -> str:
    """The text of a tool result or prompt: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    return "\n".join(text_of(block.get("text")) for block in _blocks({"content": content}) if "text" in block)


def text_of(value: object) -> str:
    """The value when it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def storable(text: str) -> str:
    """The text without NUL and lone surrogates, which neither UTF-8 files nor the index can hold."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


_READERS = {
    "user": _read_user,
    "assistant": _read_assistant,
    "attachment": _read_attachment,
    "summary": _read_summary,
    "ai-title": _read_title,
    "custom-title": _read_title,
}
