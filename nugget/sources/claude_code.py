"""Claude Code transcripts: JSONL files, read whole.

Format (clients 1.0 to 2.1): every line is an object with a `type`. Only `user`, `assistant` and `attachment` records
carry conversation; the rest is the client's own state. One assistant record holds one content block; a tool's result
stands in a user record that names the call. Records form a tree by `parentUuid`: going back to an earlier prompt leaves
a dead branch, whose events are dropped. Unreadable lines are counted in `Session.skipped_records` and skipped; no value
in a record is trusted to have its type. Subagents have transcripts of their own, in a folder beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nugget.errors import TranscriptError
from nugget.models import Event, EventKind, Session, SessionFile, SpeechOrigin
from nugget.sources import (
    Log,
    between,
    blocks_of,
    channels,
    joined_text,
    list_folder,
    mapping_of,
    parse_timestamp,
    read_document,
    records_of,
    session_file,
    speakers,
    storable,
    text_of,
)  # fmt: skip
from nugget.sources.event_builder import (
    MAX_TEXT_CHARS,
    USER_SHELL,
    EventBuilder,
    command,
    first_text,
    read_call,
    text_call,
)
from nugget.text import MAX_HASHED_CHARS, apply_edit, content_hash

AGENT = "claude-code"
ANSWERED_TOOL = "AskUserQuestion"
SHELL_TOOLS = ("Bash", "PowerShell")
_EDIT_TOOLS = ("Edit", "MultiEdit", "Write", "NotebookEdit")

_NEVER_RAN = ("<tool_use_error>", "Claude requested permissions", "Permission to use ", "Sibling tool call errored")


@dataclass(slots=True)
class TranscriptReader(EventBuilder):
    """Collect the events of one file, record by record."""

    agent: str = AGENT
    recognised: int = 0
    session_ids: Counter[str] = field(default_factory=Counter)
    parents: dict[str, str | None] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    queued: set[str] = field(default_factory=set)
    titles: dict[str, str] = field(default_factory=dict)
    summaries: list[tuple[str, str]] = field(default_factory=list)
    messages: list[channels.Message] = field(default_factory=list)

    @property
    def best_title(self) -> str | None:
        """The title given by the person, else by the client, else the last summary of this session."""
        own = [text for leaf, text in self.summaries if leaf in self.parents]
        return self.titles.get("custom-title") or self.titles.get("ai-title") or (own[-1] if own else None)

    def live_events(self) -> list[Event]:
        """Return the events without dead branches.

        Two prompts with one parent mean that the person went back and asked again: the last one counts.
        """
        followed = {uuid: parent for uuid in self.prompts if (parent := self.parents.get(uuid))}
        last = {parent: uuid for uuid, parent in followed.items()}
        dead = {uuid for uuid, parent in followed.items() if last[parent] != uuid}
        for uuid, parent in self.parents.items() if dead else ():
            if parent in dead:
                dead.add(uuid)
        return [event for event in self.events if event.uuid not in dead] if dead else self.events


def _read_record(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    """Add the content of one record of a transcript; count anything else as skipped."""
    kind, uuid = text_of(record.get("type")), text_of(record.get("uuid"))
    if not kind or (kind in ("user", "assistant") and "message" not in record):
        reader.skipped += 1
        return
    reader.recognised += kind in ("user", "assistant") or "sessionId" in record or "leafUuid" in record
    if uuid:
        if uuid in reader.parents:
            return
        reader.parents[uuid] = text_of(record.get("parentUuid")) or None
    reader.uuid, reader.moment = uuid, parse_timestamp(record.get("timestamp"))
    reader.agent_id = (text_of(record.get("agentId")) or "sidechain") if record.get("isSidechain") else None
    if name := text_of(record.get("sessionId")):
        reader.session_ids[name] += 1
    if folder := text_of(record.get("cwd")):
        reader.folders[storable(folder)] = None
    if (branch := storable(text_of(record.get("gitBranch")))) and branch != "HEAD":
        reader.branch = branch
    if kind in ("ai-title", "custom-title"):
        if title := first_text(record, ("customTitle", "aiTitle", "title")):
            reader.titles[kind] = storable(title)
    elif kind == "summary" and record.get("summary"):
        reader.summaries.append((text_of(record.get("leafUuid")), storable(text_of(record.get("summary")))))
    elif read := _READERS.get(kind):
        read(record, reader)
        reader.messages += channels.messages_in_record(record)


def _read_attachment(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    """Add a prompt typed while the agent was working, which often has no user record."""
    attachment = mapping_of(record.get("attachment"))
    is_prompt = attachment.get("type") == "queued_command" and attachment.get("commandMode", "prompt") == "prompt"
    is_typed = is_prompt and speakers.is_human(attachment) and speakers.is_human(record)
    if is_typed and (text := speakers.typed_text(joined_text(attachment.get("prompt")))):
        reader.queued.add(text)
        reader.speech(text, is_paste=record.get("promptSource") == "paste")


def _read_assistant(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    if record.get("isApiErrorMessage") or mapping_of(record["message"]).get("model") == "<synthetic>":
        return
    for block in blocks_of(record):
        if block.get("type") == "text":
            reader.reply(text_of(block.get("text")))
        elif block.get("type") == "tool_use":
            tool, given = text_of(block.get("name")), mapping_of(block.get("input"))
            if tool in SHELL_TOOLS:
                events = [command(text_of(given.get("command")), tool)]
            else:
                events = read_call(tool, given) if tool in _EDIT_TOOLS else [text_call(tool, given)]
            reader.call(events, text_of(block.get("id")))


def _read_user(record: Mapping[str, Any], reader: TranscriptReader) -> None:
    texts = []
    for block in blocks_of(record):
        if block.get("type") == "tool_result":
            _read_result(block, record, reader)
        elif block.get("type") == "text":
            texts.append(text_of(block.get("text")))
    text = "\n".join(texts)
    if texts and (record.get("isCompactSummary") or text.startswith(speakers.COMPACTION_OPENING)):
        reader.add(EventKind.SUMMARY, text)
    elif not texts or not speakers.is_human(record):
        return
    elif command := between(text, "<bash-input>", "</bash-input>").strip():
        reader.shell(command)
    elif (printed := speakers.shell_output(text)) is not None:
        reader.add(EventKind.OUTPUT, printed, tool=USER_SHELL)
    elif typed := "\n".join(part for part in map(speakers.typed_text, texts) if part):
        if typed in reader.queued:
            reader.queued.remove(typed)
            return
        reader.speech(typed, is_paste=record.get("promptSource") == "paste")
        if reader.uuid:
            reader.prompts.append(reader.uuid)


_READERS = {"attachment": _read_attachment, "assistant": _read_assistant, "user": _read_user}


def _read_result(block: Mapping[str, Any], record: Mapping[str, Any], reader: TranscriptReader) -> None:
    call_id = text_of(block.get("tool_use_id"))
    tool, positions = reader.calls.get(call_id, ("", []))
    text = speakers.strip_injected(joined_text(block.get("content")))
    details = mapping_of(record.get("toolUseResult"))
    failed = bool(block.get("is_error"))
    refused = speakers.refused_by_person(text, block, record, tool=tool)
    by_hook = speakers.rejected_by(record) == "hook"
    is_output = tool in SHELL_TOOLS and not refused and not by_hook and not text.startswith(_NEVER_RAN)
    is_edit = any(reader.events[position].kind is EventKind.FILE_EDIT for position in positions)
    text = re.sub(r"</?(?:tool_use_error|persisted-output)>", "", text).strip("\n") if "<" in text else text
    if is_output:
        output, ok, code = _command_outcome(text, details, failed=failed)
        reader.add(EventKind.OUTPUT, output, tool=tool, call_id=call_id, ok=ok, exit_code=code)
    elif is_edit:
        _note_outcome(positions, details, reader, ok=not failed)
    if not is_output and (failed or not is_edit):
        origin = SpeechOrigin.HOOK if by_hook else SpeechOrigin.TOOL_RESULT
        reader.add(EventKind.TOOL_RESULT, text, origin=origin, tool=tool or None, call_id=call_id, ok=not failed)
    answer = speakers.refusal_reason(text) if refused else ""
    if tool == ANSWERED_TOOL and not failed:
        answer = speakers.answer_in(details, text)
    if answer and positions and not record.get("isSidechain"):
        del reader.calls[call_id]
        if tool == ANSWERED_TOOL:
            reader.add(EventKind.PROMPT, answer, tool=tool, call_id=call_id)
        else:
            reader.speech(answer, is_paste=record.get("promptSource") == "paste", tool=tool, call_id=call_id)


def _command_outcome(text: str, details: Mapping[str, Any], *, failed: bool) -> tuple[str, bool | None, int | None]:
    """Return the output of a command, whether it succeeded (None while it runs), and its exit code if known."""
    if failed:
        code = re.match(r"(?:Error: )?Exit code (\d{1,9})\d*\n?", text)
        return (text[code.end() :], False, int(code[1])) if code else (text, False, None)
    if details.get("interrupted"):
        return text, False, None
    return (text, None, None) if details.get("backgroundTaskId") else (text, True, 0)


def _note_outcome(positions: list[int], details: Mapping[str, Any], reader: TranscriptReader, *, ok: bool) -> None:
    """Record whether a call's edits succeeded, and the file's hashes before and after if the result holds them."""
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
    """Return the hashes of a file before and after a call's edits, each as (old, new); None for unknown content.

    `original` is empty for a file that did not exist. An edit without an old text gives the whole file.
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


Logged = tuple[Session, Sequence[channels.Message]]
"""A file of a session, and the messages in it."""


def find_logs(projects: Path) -> Iterator[Log]:
    """Yield the sessions of all projects, each as its transcript and those of its subagents.

    Subagent transcripts beside the sessions, as clients before 2.0 wrote them, are left out.
    """
    for project in list_folder(projects):
        entries = list(list_folder(project))
        folders = {entry.name for entry in entries}
        for entry in entries:
            name = entry.name.removesuffix(".jsonl")
            is_own = name != entry.name and not name.startswith("agent-")
            if is_own and (file := session_file(entry, agent=AGENT, name=name)):
                yield (file, *(find_subagents(file.path) if name in folders else ()))


def find_subagents(transcript: Path) -> Iterator[SessionFile]:
    """Yield the transcripts of the subagents of the session with this transcript."""
    for entry in list_folder(transcript.with_suffix("") / "subagents"):
        part = entry.name.removeprefix("agent-").removesuffix(".jsonl")
        is_subagent = entry.name == f"agent-{part}.jsonl"
        if is_subagent and (file := session_file(entry, agent=AGENT, name=transcript.stem, part=part)):
            yield file


def read_session(path: Path) -> Session:
    """Read a transcript, with the transcripts of its subagents.

    Raises TranscriptError if the file is absent, unreadable, or holds no record that Claude Code writes.
    An empty file, or one without conversation, gives a Session without events.
    """
    reader = _read_own(path)
    _add_subagents(reader, path)
    ids = reader.session_ids  # the file has the name of its session, unless it was renamed
    reader.session = path.stem if path.stem in ids or not ids else ids.most_common(1)[0][0]
    return reader.build(path)


def read_logged(path: Path) -> Logged:
    """Read one transcript for search, without its subagents. Raises TranscriptError."""
    reader = _read_own(path)
    return reader.build(path), reader.messages


def _read_own(path: Path) -> TranscriptReader:
    reader = _read_file(path)
    if reader.records and not reader.recognised:
        raise TranscriptError(
            f"{path} is not a transcript: no line of it is a record of one.",
            hint="Those of Claude Code are .jsonl files below ~/.claude/projects; docs/agents.md lists other agents. "
            "An export of ChatGPT or Claude is read by `nugget import`.",
        )
    reader.events, reader.title = reader.live_events(), reader.best_title
    return reader


def _read_file(path: Path) -> TranscriptReader:
    reader = TranscriptReader()
    for record in records_of(path):
        reader.records += 1
        _read_record(record or {}, reader)
    return reader


def _add_subagents(reader: TranscriptReader, path: Path) -> None:
    """Insert each subagent's events after the call that started it, else at the end."""
    for found in find_subagents(path):
        try:
            own = _read_file(found.path)
            described = read_document(meta) if (meta := found.path.with_suffix(".meta.json")).is_file() else None
        except TranscriptError:
            continue
        # Only another agent speaks to a subagent, and the call that started it contains its task.
        live = (event for event in own.live_events() if event.kind not in (EventKind.PROMPT, EventKind.PASTE))
        call_id = text_of((described or {}).get("toolUseId"))
        calls = (n for n, event in enumerate(reader.events, 1) if call_id and event.call_id == call_id)
        place = next(calls, len(reader.events))
        reader.events[place:place] = [replace(event, agent_id=event.agent_id or found.part) for event in live]
