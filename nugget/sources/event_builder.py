"""Build a session's events from the records of any agent, whatever the names of its tools.

Agents name the same things differently (`command`, `cmd`, `script`; `old_string`, `oldString`; ...). Patches are in
the format of Codex' apply_patch: `*** Begin Patch`, then `*** Add File:`, `*** Update File:` (with `*** Move to:`
and hunks after `@@`) or `*** Delete File:`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget.models import Event, EventKind, Session, Speaker, SpeechOrigin
from nugget.sources import objects_in, parse_record, parse_timestamp, speakers, storable, text_of
from nugget.sources.speakers import SAID_BY, prompt_parts

MAX_TEXT_CHARS = 1_000_000
"""The most characters of one event; only the beginning of a longer text is kept."""

SHELL, WRITE, EDIT, TODOS, DELETE = "Bash", "Write", "Edit", "TodoWrite", "Delete"
USER_SHELL = "user-shell"
"""The `tool` of a command that the person ran with `!` in the client."""

_TOOLS = {
    name: kind
    for kind, names in {
        SHELL: "bash shell shell_command exec_command local_shell run_shell_command run_terminal_cmd execute"
        " run_terminal_command run_terminal_command_v2 container.exec unified_exec",
        EDIT: "write edit multiedit write_file replace edit_file edit_file_v2 search_replace strreplace str_replace"
        " multi_edit create create_file notebookedit edit_notebook write_to_file",
        "patch": "apply_patch applypatch patch",
        TODOS: "update_plan todowrite todo_write write_todos",
        DELETE: "delete_file delete",
    }.items()
    for name in names.split()
}
_PATHS = ("file_path", "filePath", "filepath", "path", "target_file", "targetFile", "relativeWorkspacePath",
          "notebook_path", "target_notebook")  # fmt: skip
_OLD = ("old_string", "oldString", "old_str", "oldText")
_NEW = ("new_string", "newString", "new_str", "newText")
_WHOLE = ("content", "contents", "file_text", "new_source")
_SKETCHES = ("code_edit", "streamingContent")


def read_call(tool: str, given: Mapping[str, Any]) -> list[Event]:
    """Parse a call of `tool` with these arguments, in Claude Code's words: a command, its edits, or a call as text."""
    kind = _TOOLS.get(tool.lower().rpartition("__")[2])
    path = first_text(given, _PATHS)
    events: list[Event] = []
    if kind == SHELL:
        words = (shell_words(given.get(key)) for key in ("command", "cmd", "script"))
        text = next(filter(None, words), "")
        before, begun, patch = text.partition("*** Begin Patch")  # earlier clients of Codex: `apply_patch <<'EOF' ...`
        events = list(patch_changes(patch)) if begun and "apply_patch" in before else []
        events = events or ([command(text)] if text else [])
    elif kind == "patch":
        events = list(patch_changes(first_text(given, ("input", "patch", "patchText", "patch_text"))))
    elif kind == EDIT and path:
        events = list(_edits(path, given))
    elif kind == TODOS and (todos := _todos(given.get("todos", given.get("plan")))):
        events = [Event(kind=EventKind.TOOL_CALL, text=bounded(todos), tool=TODOS)]
    elif kind == DELETE and path:
        events = [file_edit(path, "", tool=DELETE)]
    return events or [text_call(tool, given)]


def command(text: str, tool: str = SHELL) -> Event:
    """Return the event of a command that the agent ran."""
    return Event(kind=EventKind.COMMAND, text=bounded(text), tool=tool)


def file_edit(path: str, after: str, before: str | None = None, *, tool: str = EDIT) -> Event:
    """Return the event of one replacement in a file; `before` is None for a whole file or if unknown."""
    return Event(
        kind=EventKind.FILE_EDIT, text=bounded(f"{tool} {path}"), tool=tool, path=storable(path),
        before=None if before is None else bounded(before), after=bounded(after),
    )  # fmt: skip


def text_call(tool: str, given: Mapping[str, Any]) -> Event:
    """Return the event of a call as text for people: the to-do list, the plan, else `key: value` lines."""
    if tool == TODOS and isinstance(given.get("todos"), list):
        text = _todos(given["todos"])
    elif tool == "ExitPlanMode":
        text = text_of(given.get("plan"))
    else:
        values = (
            (key, one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) for key, one in given.items()
        )
        text = "\n".join(f"{key}: {value}" for key, value in values)
    return Event(kind=EventKind.TOOL_CALL, text=bounded(text), tool=tool, path=first_text(given, _PATHS) or None)


@dataclass(slots=True)
class EventBuilder:
    """Collect the events of one session. `session` is its id; `moment` and `uuid` belong to the current record.

    `agent_id` names the subagent of the current record: a subagent's prompts come from an agent.
    """

    agent: str
    session: str = ""
    events: list[Event] = field(default_factory=list)
    records: int = 0
    skipped: int = 0
    folders: dict[str, None] = field(default_factory=dict)
    branch: str | None = None
    title: str | None = None
    moment: datetime | None = None
    uuid: str = ""
    agent_id: str | None = None
    calls: dict[str, tuple[str, list[int]]] = field(default_factory=dict)

    def begin(self, *, moment: object, uuid: object = "") -> None:
        """Begin the next record; without an id it gets a stable one, from the session's id and its number."""
        self.records += 1
        self.uuid = text_of(uuid) or f"{self.session}:{self.records}"
        self.moment = parse_timestamp(moment) or self.moment

    def work_in(self, folder: object) -> None:
        """Add a folder that the session ran in; anything but a non-empty text is ignored."""
        if name := text_of(folder):
            self.folders.setdefault(storable(name))

    def add(self, kind: EventKind, text: str, **values: Any) -> None:
        """Append an event of the current record."""
        speaker, origin = SAID_BY[kind]
        if self.agent_id and speaker is Speaker.USER:
            speaker, origin = Speaker.AGENT, SpeechOrigin.WRITTEN
        said_by = {"speaker": speaker, "origin": origin} | values
        self.events.append(
            Event(
                kind=kind, text=bounded(text), uuid=self.uuid, timestamp=self.moment, agent_id=self.agent_id, **said_by
            )
        )

    def prompt(self, text: str) -> None:
        """Append a prompt without the text that the client inserted."""
        if typed := speakers.typed_text(text):
            self.speech(typed)

    def speech(self, text: str, *, is_paste: bool = False, **values: Any) -> None:
        """Append a person's typed text and the text pasted into it."""
        for kind, part, speaker, origin in prompt_parts(text, is_paste=is_paste):
            self.add(kind, part, speaker=speaker, origin=origin, **values)

    def reply(self, text: str) -> None:
        """Append a reply of the agent, unless it is blank."""
        if text.strip():
            self.add(EventKind.REPLY, text.strip())

    def shell(self, command: str) -> None:
        """Append a command that the person ran in the client."""
        self.add(EventKind.COMMAND, command, tool=USER_SHELL, speaker=Speaker.USER, origin=SpeechOrigin.TYPED)

    def tool(self, name: object, given: Mapping[str, Any], call_id: str) -> bool:
        """Append a call of a tool with these arguments; return whether it is a command."""
        events = read_call(text_of(name), given)
        self.call(events, call_id)
        is_command = events[0].kind is EventKind.COMMAND
        if is_command:
            self.work_in(first_text(given, ("workdir", "cwd", "working_directory")))
        return is_command

    def call(self, events: Sequence[Event], call_id: str = "") -> None:
        """Append the events of a call."""
        first = len(self.events)
        for event in events:
            own = replace(event, uuid=self.uuid, timestamp=self.moment, agent_id=self.agent_id, call_id=call_id or None)
            self.events.append(own)
        if call_id:
            self.calls[call_id] = (events[0].tool or "", list(range(first, len(self.events))))

    def result(self, call_id: str, text: str, *, ok: bool | None, exit_code: int | None = None) -> None:
        """Append the output of a call; of edits, note whether they succeeded. A command's exit code decides on `ok`."""
        tool, positions = self.calls.get(call_id, ("", []))
        named, ok = call_id or None, ok if exit_code is None else exit_code == 0
        text = speakers.strip_injected(text)
        edits = [position for position in positions if self.events[position].kind is EventKind.FILE_EDIT]
        for position in edits:
            self.events[position] = replace(self.events[position], ok=ok)
        if tool == SHELL:
            self.add(EventKind.OUTPUT, text, tool=tool, call_id=named, ok=ok, exit_code=exit_code)
        elif not edits or ok is False:
            self.add(EventKind.TOOL_RESULT, text, tool=tool or None, call_id=named, ok=ok)

    def build(self, path: Path | str) -> Session:
        """Return the session that was read from `path`."""
        stamps = [event.timestamp for event in self.events if event.timestamp]
        return Session(
            id=self.session, agent=self.agent, path=str(path), events=tuple(self.events),
            cwd=next(iter(self.folders), None), folders=tuple(self.folders), branch=storable(self.branch or "") or None,
            started=min(stamps, default=None), ended=max(stamps, default=None), title=self.title,
            records=self.records, skipped_records=self.skipped,
        )  # fmt: skip


def bounded(text: str) -> str:
    """Return the storable text, cut after MAX_TEXT_CHARS."""
    return storable(text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}\n… (cut)")


def arguments(value: object) -> Mapping[str, Any]:
    """Return the arguments of a call: an object, or the JSON text of one; a bare text is called `input`."""
    if isinstance(value, str):
        parsed = parse_record(value)
        return {"input": value} if parsed is None else parsed
    return value if isinstance(value, Mapping) else {}


def shell_words(command: object) -> str:
    """Return a command as typed, without the `bash -lc` around it."""
    if not isinstance(command, list):
        return text_of(command)
    words = [word for word in command if isinstance(word, str)]
    if len(words) == 3 and words[0].rpartition("/")[2] in ("bash", "sh", "zsh") and words[1].startswith("-"):
        return words[2]
    return shlex.join(words)


def patch_changes(patch: str) -> Iterator[Event]:
    """Yield the changes of a patch in apply_patch's format, one for each hunk; nothing for any other text."""
    path = ""
    added: list[str] | None = None
    old: list[str] = []
    new: list[str] = []
    for line in [*patch.splitlines(), "*** End Patch"] if "*** " in patch else ():
        mark, text = line[:1], line[1:]
        if line.startswith("*** Move to: ") and path:
            path = line[13:].strip()
        elif line.startswith(("*** ", "@@")):
            if path and added is not None:
                yield file_edit(path, "".join(f"{one}\n" for one in added), tool=WRITE)
            elif path and old != new:
                yield file_edit(path, "\n".join(new), "\n".join(old))
            old, new = [], []
            action, _, named = line.partition(": ")
            if action in ("*** Add File", "*** Update File"):
                path, added = named.strip(), [] if action == "*** Add File" else None
            elif not line.startswith(("@@", "*** End of File")):
                path, added = "", None
            if action == "*** Delete File":
                yield file_edit(named.strip(), "", tool=DELETE)
        elif added is not None:
            added.append(line.removeprefix("+"))
        else:
            old += [] if mark == "+" else [text]
            new += [] if mark == "-" else [text]


def first_text(given: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first text among these keys, or an empty string."""
    return next((value for key in keys if isinstance(value := given.get(key), str)), "")


def _edits(path: str, given: Mapping[str, Any]) -> Iterator[Event]:
    listed = given.get("edits")
    for part in objects_in(listed) if isinstance(listed, list) else [given]:
        old, new, whole, sketch = (
            next((value for key in keys if isinstance(value := part.get(key), str)), None)
            for keys in (_OLD, _NEW, _WHOLE, _SKETCHES)
        )
        if new is not None and (old is not None or part is not given):
            yield file_edit(path, new, old or "")
        elif part is given and whole is not None:
            yield file_edit(path, whole, tool=WRITE)
        elif part is given and sketch is not None:
            yield file_edit(path, sketch, "")


def _todos(listed: object) -> str:
    if isinstance(listed, str):
        return listed
    return "\n".join(
        f"[{text_of(todo.get('status'))}] {first_text(todo, ('content', 'step', 'description'))}"
        for todo in objects_in(listed)
    )
