"""Claude Code's settings, and Nugget in them: where the files are, what our entries look like, how they are put in.

Formats: settings.json as of https://code.claude.com/docs/en/hooks, .mcp.json and .claude.json as of .../en/mcp.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from nugget.config import Environment
from nugget.errors import GitError, InstallError
from nugget.infra import client_files
from nugget.upkeep import json_edits
from nugget.upkeep.json_edits import END, Edit, Place

EVENTS = ("SessionEnd", "SessionStart")
BRIEF_EVENT, RECALL_EVENT = "SessionStart", "UserPromptSubmit"
ALL_EVENTS = (*EVENTS, RECALL_EVENT)
BRIEF, RECALL = "--brief", "--recall"
"""What a hook is started with where a session wants to be told something; without them it only captures."""
SERVER = "nugget"
RULE = "mcp__nugget__get_relevant_context"
TIMEOUT_S = 10
"""For a hook that takes 0.1 s: without a timeout of its own it would share 1.5 s with every other SessionEnd hook."""

BROADER_RULES = ("mcp__nugget", "mcp__nugget__*")
_KINDS: dict[type, str] = {dict: "an object", list: "a list"}


class Scope(StrEnum):
    """Whose settings: those of the person, or those of one project."""

    USER = "user"
    PROJECT = "project"


@dataclass(slots=True, kw_only=True)
class Draft:
    """A settings file being edited, with what takes the edits back and the containers that were made for them."""

    path: Path
    before: str | None
    text: str
    undo: list[Edit] = field(default_factory=list)
    made: list[Place] = field(default_factory=list)

    @property
    def value(self) -> dict[str, Any]:
        """What the text says. Raises InstallError where it is no JSON object."""
        try:
            value = json_edits.parse(self.text)
        except ValueError as error:
            hint = "Correct the file (it is JSON, without comments), then run the command again."
            raise InstallError(f"{self.path} is not valid JSON: {error}; nothing was changed.", hint=hint) from error
        if not isinstance(value, dict):
            raise InstallError(f"{self.path} is not a JSON object; nothing was changed.")
        return value

    def part(self, *place: str) -> Any:
        """The object, then list or object, at a place; an empty one where there is none."""
        found: Any = self.value
        for depth, key in enumerate(place, 1):
            kind = list if key in (*ALL_EVENTS, "allow") else dict
            found = found.get(key, kind())
            if not isinstance(found, kind):
                raise InstallError(
                    f"{self.path}: `{'.'.join(place[:depth])}` is not {_KINDS[kind]}; nothing was changed.",
                    hint="Correct the file, then run the command again.",
                )
        return found

    def put(self, edit: Edit) -> None:
        """Make one edit."""
        self.undo.insert(0, edit.inverse(self.text))
        self.text = edit.apply(self.text)

    def insert(self, place: Place, value: object) -> None:
        """Put a value at a free place, with the containers that it needs."""
        edit, made = json_edits.insert(self.text, place, value)
        self.put(edit)
        self.made += made


def open_settings(scope: Scope, environment: Environment, cwd: Path, *, is_root: bool = False) -> tuple[Draft, Draft]:
    """The settings, and the file that holds the MCP servers."""
    if scope is Scope.PROJECT:
        root = cwd if is_root else _project(cwd)
        paths = (root / ".claude" / "settings.json", root / ".mcp.json")
    else:
        folder = environment.claude_config.absolute()
        moved = environment.variables.get("CLAUDE_CONFIG_DIR")
        paths = (folder / "settings.json", (folder if moved else folder.parent) / ".claude.json")
    settings, servers = (_draft(path) for path in paths)
    return settings, servers


def _draft(path: Path) -> Draft:
    before = client_files.read(path)
    draft = Draft(path=path, before=before, text=before or "")
    if not draft.text.strip():
        draft.put(Edit(start=0, end=len(draft.text), text="{}\n"))
    return draft


def _project(cwd: Path) -> Path:
    """The folder that holds a project's settings: the root of its repository, else the folder itself."""
    from nugget.infra import git

    try:
        top = git.run(cwd, "rev-parse", "--show-toplevel", check=False).decode("utf-8", "surrogateescape").strip()
    except GitError:
        top = ""
    return Path(top) if top else cwd


def put_hook(draft: Draft, event: str, command: str, *, flag: str = "", is_wanted: bool | None = None) -> None:
    """Put in one hook of ours for an event: the first there is, brought up to date, or a new one.

    `flag` is put into its arguments where it is wanted, and taken out where it is not; None leaves it as it is.
    """
    draft.part("hooks", event)
    ours = list(hooks_of(draft, event))
    for place, _ in reversed(ours[1:]):
        take_out_hook(draft, place)
    kept = flags_of(ours[0][1]) if ours else ()
    flags = kept if is_wanted is None else (flag,) if is_wanted else ()
    if not ours:
        draft.insert(("hooks", event, END), {"hooks": [wanted_hook(command, {}, flags=flags)]})
        return
    place, entry = ours[0]
    if entry != (wanted := wanted_hook(command, entry, flags=flags)):
        draft.put(json_edits.replace(draft.text, place, wanted))


def put_recall_hook(draft: Draft, command: str, *, is_wanted: bool | None) -> None:
    """Put in the hook that a prompt is answered by, where it is wanted, or is there already and nothing is said."""
    ours = list(hooks_of(draft, RECALL_EVENT))
    if is_wanted or (ours and is_wanted is None):
        put_hook(draft, RECALL_EVENT, command, flag=RECALL, is_wanted=True)
        return
    for place, _ in reversed(ours):
        take_out_hook(draft, place)
    if ours and not draft.part("hooks", RECALL_EVENT):
        draft.put(json_edits.remove(draft.text, ("hooks", RECALL_EVENT)))


def put_server(draft: Draft, command: str) -> None:
    """Put in our MCP server, or bring it up to date. Raises InstallError where another has its name."""
    entry = draft.part("mcpServers").get(SERVER)
    if entry is None:
        draft.insert(("mcpServers", SERVER), wanted_server(command, {"args": ["serve"], "env": {}}))
    elif not is_our_server(entry):
        raise InstallError(
            f"{draft.path} has another MCP server that is called nugget; nothing was changed.",
            hint="Rename it or take it out (`claude mcp remove nugget`), then run the command again.",
        )
    elif entry != (wanted := wanted_server(command, entry)):
        draft.put(json_edits.replace(draft.text, ("mcpServers", SERVER), wanted))


def wanted_hook(command: str, entry: Mapping[str, Any], *, flags: Sequence[str] | None = None) -> dict[str, Any]:
    """The hook in exec form, without a shell; what a person set beside that stays, and so do flags not named."""
    kept = flags_of(entry) if flags is None else flags
    start = {"type": "command", "command": command, "args": ["capture-session", *kept]}
    return {"timeout": TIMEOUT_S, **entry, **start} if entry else {**start, "timeout": TIMEOUT_S}


def flags_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """What a hook of ours is told to do beside capturing."""
    return tuple(word for word in command_line(entry)[2:] if word in (BRIEF, RECALL))


def wanted_server(command: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The server, shown to the model from the first request on; arguments and variables that a person set stay."""
    return {"type": "stdio", "command": command, **entry, **{"type": "stdio", "command": command, "alwaysLoad": True}}


def hooks_of(draft: Draft, event: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Our hooks for an event, with their places."""
    for index, group in enumerate(draft.part("hooks", event)):
        entries = group.get("hooks") if isinstance(group, dict) else None
        for inner, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict) and _is_our_hook(entry):
                yield ("hooks", event, index, "hooks", inner), entry


def first_hook(draft: Draft, event: str) -> dict[str, Any] | None:
    """Our hook for an event, where there is one."""
    return next((entry for _, entry in hooks_of(draft, event)), None)


def _is_our_hook(entry: Mapping[str, Any]) -> bool:
    words = command_line(entry)
    is_capture = len(words) >= 2 and is_own_command(words[0]) and words[1] == "capture-session"
    return is_capture and all(word in (BRIEF, RECALL) for word in words[2:])


def is_our_server(entry: object) -> bool:
    """Whether an MCP server is `nugget serve`, wherever it is and whatever else it is given."""
    words = command_line(entry) if isinstance(entry, dict) else []
    return bool(words) and is_own_command(words[0]) and "serve" in words


def is_own_command(command: str) -> bool:
    """Whether a command is Nugget, by its name."""
    return Path(command).name in (SERVER, f"{SERVER}.exe")


def command_line(entry: Mapping[str, Any]) -> list[str]:
    """The command line of a hook or a server: exec form, or a shell line taken apart."""
    command, arguments = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return []
    if isinstance(arguments, list):
        return [command, *map(str, arguments)]
    try:
        return shlex.split(command)
    except ValueError:
        return []


def take_out_hook(draft: Draft, place: Place) -> None:
    """Remove a hook, and the group that has no other."""
    group = draft.part("hooks", str(place[1]))[place[2]]
    draft.put(json_edits.remove(draft.text, place if len(group["hooks"]) > 1 else place[:3]))
