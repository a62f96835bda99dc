"""The records of a Claude Code transcript, one JSON object a line, and the events that they stand for.

Only `user`, `assistant` and `attachment` records carry conversation; the rest is the client's own state.
One assistant record holds one content block; a tool's result stands in a user record that names the call.
Nothing in a record is trusted to have the type that it should have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nugget.models import Event, EventKind, SpeechOrigin
from nugget.sources import speakers
from nugget.sources.event_builder import MAX_TEXT_CHARS, USER_SHELL, Call, EventBuilder, FileChange, call_text
from nugget.sources.files import joined_text, mapping_of, objects_in, parse_record, parse_timestamp, storable, text_of
from nugget.text import MAX_HASHED_CHARS, apply_edit, content_hash

AGENT = "claude-code"
ANSWERED_TOOL = "AskUserQuestion"
SHELL_TOOLS = ("Bash", "PowerShell")

_EXIT_CODE = re.compile(r"\A(?:Error: )?Exit code (\d+)\n?")
_NEVER_RAN = ("<tool_use_error>", "Claude requested permissions", "Permission to use ", "Sibling tool call errored")
_CONVERSATION_TYPES = frozenset(["user", "assistant"])
_STATE_TYPES = frozenset(
    "agent-name ai-title api-request api-request-blob api-request-shape atis-latch attachment bridge-session"
    " content-replacement continued-in cost-state custom-title file-history-delta file-history-snapshot last-prompt"
    " mode permission-mode pr-link progress queue-operation relocated summary system tag tools-used".split()
)


@dataclass(slots=True)
class TranscriptReader(EventBuilder):
    """Collect the events of one file, record by record."""

    agent: str = AGENT
    recognised: int = 0
    session_ids: dict[str, int] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    queued: set[str] = field(default_factory=set)
    titles: dict[str, str] = field(default_factory=dict)
    summaries: list[tuple[str, str]] = field(default_factory=list)

    def live_events(self) -> list[Event]:
        """Return the events without those of dead branches."""
        dead = self.dead_records()
        return [event for event in self.events if event.uuid not in dead] if dead else self.events

    def dead_records(self) -> set[str]:
        """Return the records of dead branches.

        Two prompts with one parent mean that the person went back and asked again: the last one counts.
        """
        followed = {uuid: parent for uuid in self.prompts if (parent := self.parents.get(uuid))}
        last = {parent: uuid for uuid, parent in followed.items()}
        dead = {uuid for uuid, parent in followed.items() if last[parent] != uuid}
        if dead:
            for uuid, parent in self.parents.items():
                if parent in dead:
                    dead.add(uuid)
        return dead

    def session_id(self, path: Path) -> str:
        """Return the file's name if records bear it or none bears any, else the id that most of them bear."""
        if path.stem in self.session_ids or not self.session_ids:
            return path.stem
        return max(self.session_ids, key=lambda name: self.session_ids[name])

    def best_title(self) -> str | None:
        """Return the title given by the person, else by the client, else the last summary of this session."""
        own = [text for leaf, text in self.summaries if leaf in self.parents]
        return self.titles.get("custom-title") or self.titles.get("ai-title") or (own[-1] if own else None)


def read_line(line: bytes, reader: TranscriptReader) -> None:
    """Add the content of one line of a transcript; count a line that is not a record as skipped."""
    record = parse_record(line) or {}
    kind, uuid = text_of(record.get("type")), text_of(record.get("uuid"))
    known = "message" in record if kind in _CONVERSATION_TYPES else kind in _STATE_TYPES or "sessionId" in record
    if not kind or not known:
        reader.skipped += 1
        return
    reader.recognised += 1
    if uuid:
        if uuid in reader.parents:
            return
        reader.parents[uuid] = text_of(record.get("parentUuid")) or None
    reader.uuid, reader.moment = uuid, parse_timestamp(record.get("timestamp"))
    reader.agent_id = (text_of(record.get("agentId")) or "sidechain") if record.get("isSidechain") else None
    if name := text_of(record.get("sessionId")):
        reader.session_ids[name] = reader.session_ids.get(name, 0) + 1
    if folder := text_of(record.get("cwd")):
        reader.folders[folder] = None
    if (branch := text_of(record.get("gitBranch"))) and branch != "HEAD":
        reader.branch = branch
    if handle := _READERS.get(kind):
        handle(record, reader)


def _read_title(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    title = next((text for key in ("customTitle", "aiTitle", "title") if (text := text_of(record.get(key)))), "")
    if title:
        reader.titles[record["type"]] = storable(title)


def _read_summary(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    if text := text_of(record.get("summary")):
        reader.summaries.append((text_of(record.get("leafUuid")), storable(text)))


def _read_attachment(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    """Add a prompt typed while the agent was working: it stands in an attachment, and often in no user record."""
    attachment = mapping_of(record.get("attachment"))
    if attachment.get("type") != "queued_command" or attachment.get("commandMode", "prompt") != "prompt":
        return
    if not speakers.is_human(attachment) or not speakers.is_human(record):
        return
    if text := speakers.typed_text(joined_text(attachment.get("prompt"))):
        reader.queued.add(text)
        reader.said(text, is_paste=_is_paste(record))


def _read_assistant(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    if record.get("isApiErrorMessage") or mapping_of(record["message"]).get("model") == "<synthetic>":
        return
    for block in blocks_of(record):
        if block.get("type") == "text":
            reader.reply(text_of(block.get("text")))
        elif block.get("type") == "tool_use":
            tool, given = text_of(block.get("name")), mapping_of(block.get("input"))
            reader.call(_call_of(tool, given), text_of(block.get("id")))


def _call_of(tool: str, given: Mapping[str, Any]) -> Call:
    path = text_of(given.get("file_path")) or text_of(given.get("notebook_path")) or text_of(given.get("path"))
    if tool in SHELL_TOOLS:
        return Call(tool=tool, command=text_of(given.get("command")))
    if tool in ("Edit", "MultiEdit"):
        parts = objects_in(given.get("edits")) if tool == "MultiEdit" else [given]
        texts = [(text_of(part.get("old_string")), text_of(part.get("new_string"))) for part in parts]
        changes = tuple(FileChange(path=path, before=old, after=new, tool=tool) for old, new in texts)
        return Call(tool=tool, changes=changes, path=path or None)
    if tool in ("Write", "NotebookEdit"):
        after = text_of(given.get("content" if tool == "Write" else "new_source"))
        return Call(tool=tool, changes=(FileChange(path=path, after=after, tool=tool),))
    return Call(tool=tool, text=call_text(tool, given), path=path or None)


def _read_user(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    texts = []
    for block in blocks_of(record):
        if block.get("type") == "tool_result":
            _read_result(block, record, reader)
        elif block.get("type") == "text":
            texts.append(text_of(block.get("text")))
    text = "\n".join(texts)
    if not texts:
        return
    if record.get("isCompactSummary") or text.startswith(speakers.COMPACTION_OPENING):
        reader.add(EventKind.SUMMARY, text)
    elif not speakers.is_human(record):
        return
    elif command := speakers.shell_input(text):
        reader.shell(command)
    elif (printed := speakers.shell_output(text)) is not None:
        reader.add(EventKind.OUTPUT, printed, tool=USER_SHELL)
    elif typed := "\n".join(part for part in map(speakers.typed_text, texts) if part):
        if typed in reader.queued:
            reader.queued.remove(typed)
            return
        reader.said(typed, is_paste=_is_paste(record))
        if reader.uuid:
            reader.prompts.append(reader.uuid)


def _is_paste(record: Mapping[str, Any]) -> bool:
    return record.get("promptSource") == "paste"


def _read_result(block: Mapping[str, Any], record: Mapping[str, Any], reader: TranscriptReader) -> None:
    call_id = text_of(block.get("tool_use_id"))
    tool, positions = reader.calls.get(call_id, ("", []))
    text = speakers.strip_injected(joined_text(block.get("content")))
    details = mapping_of(record.get("toolUseResult"))
    failed = bool(block.get("is_error"))
    refused = speakers.refused_by_person(text, block, record, tool=tool)
    by_hook = speakers.refused_by_hook(record)
    about: dict[str, Any] = {"tool": tool or None, "call_id": call_id, "ok": not failed}
    is_output = tool in SHELL_TOOLS and not refused and not by_hook and not text.startswith(_NEVER_RAN)
    is_edit = any(reader.events[position].kind is EventKind.FILE_EDIT for position in positions)
    if is_output:
        code = _EXIT_CODE.match(text) if failed else None
        about["exit_code"] = int(code[1][:9]) if code else None if failed else 0
        if not failed and (details.get("interrupted") or details.get("backgroundTaskId")):
            about |= {"ok": False if details.get("interrupted") else None, "exit_code": None}
        reader.add(EventKind.OUTPUT, text[code.end() :] if code else text, **about)
    elif is_edit:
        _note_outcome(positions, details, reader, ok=not failed)
    if not is_output and (failed or not is_edit):
        origin = SpeechOrigin.HOOK if by_hook else SpeechOrigin.TOOL_RESULT
        reader.add(EventKind.TOOL_RESULT, text, origin=origin, **about)
    answer = speakers.refusal_reason(text) if refused else ""
    if tool == ANSWERED_TOOL and not failed:
        answer = speakers.answer_in(details, text)
    if answer and positions and not record.get("isSidechain"):
        del reader.calls[call_id]
        if tool == ANSWERED_TOOL:
            reader.add(EventKind.PROMPT, answer, tool=tool, call_id=call_id)
        else:
            reader.said(answer, is_paste=_is_paste(record), tool=tool, call_id=call_id)


def _note_outcome(positions: list[int], details: Mapping[str, Any], reader: TranscriptReader, *, ok: bool) -> None:
    """Note the outcome of a call's edits, and the file's hashes before and after if the result tells them."""
    original, notebook = details.get("originalFile"), details.get("original_file")
    is_new = details.get("type") == "create" or ("originalFile" in details and original is None)
    before = original if isinstance(original, str) else "" if is_new else None
    edits = [(reader.events[position].before, reader.events[position].after or "") for position in positions]
    whole = notebook if isinstance(notebook, str) else before
    first_hash, last_hash = _edited_hashes(whole, edits, details) if ok else (None, None)
    for position in positions:
        event = reader.events[position]
        reader.events[position] = replace(
            event, ok=ok,
            before=storable(before) if event.before is None and before is not None else event.before,
            before_hash=first_hash if position == positions[0] else None,
            after_hash=last_hash if position == positions[-1] else None,
        )  # fmt: skip


def _edited_hashes(
    original: str | None, edits: Sequence[tuple[str | None, str]], details: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """Return the hashes of a file before and after a call's edits; None for a content that is not known.

    `original` is the file's content, empty if it did not exist, None if unknown. An edit without a text to replace
    gives the whole file. `details` is the tool's structured result.
    """
    if original is not None and len(original) > MAX_HASHED_CHARS:
        return None, None
    content = original
    for before, after in edits:
        if before is None:
            content = after if "cell_type" not in details and "new_source" not in details else None
        elif content is not None:
            content = apply_edit(content, before, after, everywhere=details.get("replaceAll") is True)
    if any(len(after) > MAX_TEXT_CHARS for _, after in edits):  # the event holds the beginning only
        content = None
    if isinstance(whole := details.get("updated_file"), str):
        content = whole
    known = content is not None and len(content) <= MAX_HASHED_CHARS
    return content_hash(original) if original else None, content_hash(content or "") if known else None


def blocks_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content blocks of a record's message; a plain string is one text block."""
    message = record.get("message")
    content = message.get("content") if isinstance(message, Mapping) else message
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects_in(content)


_READERS = {
    "user": _read_user,
    "assistant": _read_assistant,
    "attachment": _read_attachment,
    "summary": _read_summary,
    "ai-title": _read_title,
    "custom-title": _read_title,
}
