"""Tool calls of any agent as a command, edits, a to-do list, or anything else.

Agents name the same things differently (`command`, `cmd`, `script`; `old_string`, `oldString`; ...). Patches are in
the format of Codex' apply_patch: `*** Begin Patch`, then `*** Add File:`, `*** Update File:` (with `*** Move to:`
and hunks after `@@`) or `*** Delete File:`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nugget.sources.claude_records import call_text, text_of

SHELL, WRITE, EDIT, TODOS, DELETE = "Bash", "Write", "Edit", "TodoWrite", "Delete"

_SHELLS = frozenset(
    "bash shell shell_command exec_command local_shell run_shell_command run_terminal_cmd run_terminal_command"
    " run_terminal_command_v2 execute container.exec unified_exec".split()
)
_EDITORS = frozenset(
    "write edit multiedit write_file replace edit_file edit_file_v2 search_replace strreplace str_replace multi_edit"
    " create create_file notebookedit edit_notebook write_to_file".split()
)
_PATCHERS = frozenset(["apply_patch", "applypatch", "patch"])
_PLANNERS = frozenset(["update_plan", "todowrite", "todo_write", "write_todos"])
_DELETERS = frozenset(["delete_file", "delete"])

_PATHS = ("file_path", "filePath", "filepath", "path", "target_file", "targetFile", "relativeWorkspacePath",
          "notebook_path", "target_notebook")  # fmt: skip
_OLD = ("old_string", "oldString", "old_str", "oldText")
_NEW = ("new_string", "newString", "new_str", "newText")
_WHOLE = ("content", "contents", "file_text", "new_source")
_SKETCHES = ("code_edit", "streamingContent")
_LEFT_OUT = re.compile(r"^\s*(?://|#|--|/\*|<!--)?\s*\.\.\.\s.*existing code.*$", re.IGNORECASE | re.MULTILINE)
"""How a sketch of an edit marks the code between its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One replacement in a file: `before` is None where the whole file is given or it is not known."""

    path: str
    after: str
    before: str | None = None
    tool: str = EDIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call in Claude Code's words. Exactly one of `command`, `changes` and `text` says what it is."""

    tool: str
    command: str | None = None
    changes: tuple[FileChange, ...] = ()
    text: str = ""
    path: str | None = None
    folder: str | None = None


def read_call(tool: str, given: Mapping[str, Any]) -> Call:
    """Return what the call of `tool` with these arguments asks for."""
    name = tool.lower().rpartition("__")[2]
    if name in _SHELLS and (command := _command(given)):
        return Call(tool=SHELL, command=command, folder=_first(given, ("workdir", "cwd", "working_directory")) or None)
    if name in _PATCHERS and (changes := tuple(patch_changes(_patch(given)))):
        return Call(tool=EDIT, changes=changes)
    if name in _EDITORS and (changes := tuple(_edits(given))):
        return Call(tool=changes[0].tool, changes=changes)
    if name in _PLANNERS and (todos := _todos(given)):
        return Call(tool=TODOS, text=todos)
    path = _first(given, _PATHS)
    if name in _DELETERS and path:
        return Call(tool=DELETE, changes=(FileChange(path=path, after="", tool=DELETE),))
    return Call(tool=tool, text=call_text(tool, given), path=path or None)


def arguments(value: object) -> Mapping[str, Any]:
    """The arguments of a call: an object, or the JSON text of one; a bare text is called `input`."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, str):
        return {}
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return {"input": value}
    return parsed if isinstance(parsed, dict) else {"input": value}


def shell_words(command: object) -> str:
    """A command as one would type it; the `bash -lc` around it is left out."""
    if not isinstance(command, list):
        return text_of(command)
    words = [word for word in command if isinstance(word, str)]
    if len(words) == 3 and words[0].rpartition("/")[2] in ("bash", "sh", "zsh") and words[1].startswith("-"):
        return words[2]
    return shlex.join(words)


def patch_changes(patch: str) -> Iterator[FileChange]:
    """Return the changes of a patch in apply_patch's format, one per hunk; empty for any other text."""
    if "*** " not in patch:
        return
    path, added, old, new = "", None, [], []  # type: str, list[str] | None, list[str], list[str]

    def hunk() -> Iterator[FileChange]:
        if path and added is not None:
            yield FileChange(path=path, after="".join(f"{line}\n" for line in added), tool=WRITE)
        elif path and old != new:
            yield FileChange(path=path, before="\n".join(old), after="\n".join(new))

    for line in patch.splitlines():
        if line.startswith(("*** ", "@@")):
            if line.startswith("*** Move to: ") and path:
                path = line[13:].strip()
                continue
            yield from hunk()
            old, new = [], []
            if line.startswith("*** "):
                path, added = line.partition(": ")[2].strip(), [] if line.startswith("*** Add File: ") else None
            if line.startswith("*** Delete File: "):
                yield FileChange(path=path, after="", tool=DELETE)
                path = ""
            elif not line.startswith(("*** Add File: ", "*** Update File: ", "@@")):
                path = path if line.startswith("*** End of File") else ""
        elif added is not None:
            added.append(line.removeprefix("+"))
        else:
            mark, text = line[:1], line[1:]
            old += [] if mark == "+" else [text]
            new += [] if mark == "-" else [text]
    yield from hunk()


def _command(given: Mapping[str, Any]) -> str:
    return next((words for key in ("command", "cmd", "script") if (words := shell_words(given.get(key)))), "")


def _patch(given: Mapping[str, Any]) -> str:
    return _first(given, ("input", "patch", "patchText", "patch_text"))


def _edits(given: Mapping[str, Any]) -> Iterator[FileChange]:
    path = _first(given, _PATHS)
    edits = given.get("edits")
    if not path:
        return
    if isinstance(edits, list):
        for part in edits:
            if isinstance(part, Mapping) and _has(part, _NEW):
                yield FileChange(path=path, before=_first(part, _OLD), after=_first(part, _NEW))
    elif _has(given, _NEW) and _has(given, _OLD):
        yield FileChange(path=path, before=_first(given, _OLD), after=_first(given, _NEW))
    elif _has(given, _WHOLE):
        yield FileChange(path=path, after=_first(given, _WHOLE), tool=WRITE)
    elif _has(given, _SKETCHES):
        yield FileChange(path=path, before="", after=_LEFT_OUT.sub("", _first(given, _SKETCHES)))


def _todos(given: Mapping[str, Any]) -> str:
    listed = given.get("todos", given.get("plan"))
    if isinstance(listed, str):
        return listed
    lines = []
    for todo in listed if isinstance(listed, list) else []:
        if isinstance(todo, Mapping):
            lines.append(f"[{text_of(todo.get('status'))}] {_first(todo, ('content', 'step', 'description'))}")
    return "\n".join(lines)


def _first(given: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((value for key in keys if isinstance(value := given.get(key), str)), "")


def _has(given: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    return any(isinstance(given.get(key), str) for key in keys)
