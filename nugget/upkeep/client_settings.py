"""Claude Code's settings, and Nugget in them: where the files are, what our entries look like, how they are put in.

Formats: settings.json as of https://code.claude.com/docs/en/hooks, .mcp.json and .claude.json as of .../en/mcp.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from nugget.config import Environment
from nugget.errors import ConflictError, GitError, InstallError
from nugget.infra import files

EVENTS = ("SessionEnd", "SessionStart")
BRIEF_EVENT, RECALL_EVENT = "SessionStart", "UserPromptSubmit"
ALL_EVENTS = (*EVENTS, RECALL_EVENT)
BRIEF, RECALL = "--brief", "--recall"
"""Arguments of hooks that add text to a session; without them a hook only captures."""
SERVER = "nugget"
RULE = "mcp__nugget__get_relevant_context"
TIMEOUT_S = 10
"""For a hook that takes 0.1 s: without a timeout of its own it would share 1.5 s with every other SessionEnd hook."""

BROADER_RULES = ("mcp__nugget", "mcp__nugget__*")
_FIRST_INDENT = re.compile(r"\n([ \t]+)\S")
_MAX_BYTES = 64_000_000
_KINDS: dict[type, str] = {dict: "an object", list: "a list"}


class Scope(StrEnum):
    """Scope of settings: those of the person, or those of one project."""

    USER = "user"
    PROJECT = "project"


@dataclass(slots=True, kw_only=True)
class Draft:
    """A settings file being edited: its text before, and the value that will be written."""

    path: Path
    before: str | None
    value: dict[str, Any]

    @property
    def text(self) -> str:
        """The value as JSON, with the indent and the line ends of the file."""
        before = self.before or ""
        if before.strip() and self.value == _parse(self.path, before):
            return before
        if before.strip() and "\n" not in before.strip():
            separators = (", ", ": ") if '": ' in before else (",", ":")
            text = json.dumps(self.value, ensure_ascii=False, separators=separators)
        else:
            first = _FIRST_INDENT.search(before)
            text = json.dumps(self.value, ensure_ascii=False, indent=first[1] if first else "  ")
        end = "" if before.strip() and not before.endswith("\n") else "\n"
        text = text.replace("\n", "\r\n") + end.replace("\n", "\r\n") if "\r\n" in before else text + end
        return "\ufeff" + text if before.startswith("\ufeff") else text

    def part(self, *place: str, make: bool = False) -> Any:
        """Return the object, or list, at a place; an empty one if it is missing, put there with `make`.

        Raises InstallError if something of another kind is there.
        """
        found: Any = self.value
        for depth, key in enumerate(place, 1):
            kind = list if key in (*ALL_EVENTS, "allow") else dict
            found = found.setdefault(key, kind()) if make else found.get(key, kind())
            if not isinstance(found, kind):
                raise InstallError(
                    f"{self.path}: `{'.'.join(place[:depth])}` is not {_KINDS[kind]}; nothing was changed.",
                    hint="Correct the file, then run the command again.",
                )
        return found

    def drop_empty(self, *place: str) -> None:
        """Remove a container that is empty, and then those around it that are."""
        while place and not self.part(*place):
            self.part(*place[:-1]).pop(place[-1], None)
            place = place[:-1]


def open_settings(scope: Scope, environment: Environment, cwd: Path, *, is_root: bool = False) -> tuple[Draft, Draft]:
    """Return the settings, and the file that holds the MCP servers."""
    if scope is Scope.PROJECT:
        root = cwd if is_root else _project(cwd)
        paths = (root / ".claude" / "settings.json", root / ".mcp.json")
    else:
        folder = environment.claude_config.absolute()
        moved = environment.variables.get("CLAUDE_CONFIG_DIR")
        paths = (folder / "settings.json", (folder if moved else folder.parent) / ".claude.json")
    settings, servers = (_draft(path) for path in paths)
    return settings, servers


def read_text(path: Path) -> str | None:
    """Return the text of another program's file, line ends as they are; None if it is missing. Raises InstallError."""
    try:
        if path.exists() and not path.is_file():
            raise InstallError(f"{path} is not a file.")
        if path.stat().st_size > _MAX_BYTES:
            raise InstallError(f"{path} is larger than {_MAX_BYTES // 1_000_000} MB.")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InstallError(f"{path} is not UTF-8 text (byte {error.start}); it was left alone.") from error
    except OSError as error:
        raise InstallError(f"{path} cannot be read: {error.strerror or error}.") from error


def write_text(path: Path, text: str | None, *, expected: str | None, mode: int = 0o600) -> None:
    """Make `text` the content of a file that still holds `expected`; None stands for no file.

    A symbolic link is followed, and the mode of an existing file stays; `mode` is for a new one. Raises ConflictError
    if the file changed meanwhile, InstallError if it cannot be written; in both cases it is as it was.
    """
    target = path.resolve()

    def check() -> None:
        if read_text(path) != expected:
            raise ConflictError(
                f"{path} changed since it was read; nothing was written.", hint="Run the command again."
            )

    try:
        if text is None:
            check()
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            if not os.access(target, os.W_OK):
                raise InstallError(f"{path} is read-only; it was left alone.", hint=f"Make {target} writable.")
            mode = stat.S_IMODE(target.stat().st_mode)
        files.replace(target, text.encode("utf-8"), mode=mode, check=check)
    except OSError as error:
        raise InstallError(f"{path} cannot be written: {error.strerror or error}.") from error


def _draft(path: Path) -> Draft:
    before = read_text(path)
    return Draft(path=path, before=before, value=_parse(path, before) if before and before.strip() else {})


def _parse(path: Path, text: str) -> dict[str, Any]:
    """Parse a settings file. Raises InstallError if it is not a JSON object."""
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        reason = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        hint = "Correct the file (it is JSON, without comments), then run the command again."
        raise InstallError(f"{path} is not valid JSON: {reason}; nothing was changed.", hint=hint) from error
    if not isinstance(value, dict):
        raise InstallError(f"{path} is not a JSON object; nothing was changed.")
    return value


def _project(cwd: Path) -> Path:
    """Return the folder that holds a project's settings: the root of its repository, else the folder itself."""
    from nugget.infra import git

    try:
        top = git.run(cwd, "rev-parse", "--show-toplevel", check=False).decode("utf-8", "surrogateescape").strip()
    except GitError:
        top = ""
    return Path(top) if top else cwd


def put_hook(draft: Draft, event: str, command: str, *, flag: str = "", is_wanted: bool | None = None) -> None:
    """Put one hook of ours in for an event: bring the first there is up to date, or add one.

    `flag` is added to its arguments if `is_wanted` and removed if not; None leaves it as it is.
    """
    ours = hooks_of(draft, event)
    kept = flags_of(ours[0]) if ours else ()
    flags = kept if is_wanted is None else (flag,) if is_wanted else ()
    if not ours:
        draft.part("hooks", event, make=True).append({"hooks": [wanted_hook(command, {}, flags=flags)]})
        return
    wanted = wanted_hook(command, ours[0], flags=flags)
    take_out_hooks(draft, event, ours[1:])
    ours[0].clear()
    ours[0].update(wanted)


def put_recall_hook(draft: Draft, command: str, *, is_wanted: bool | None) -> None:
    """Put in the hook that answers a prompt if it is wanted, or is there and nothing was said."""
    ours = hooks_of(draft, RECALL_EVENT)
    if is_wanted or (ours and is_wanted is None):
        put_hook(draft, RECALL_EVENT, command, flag=RECALL, is_wanted=True)
    else:
        take_out_hooks(draft, RECALL_EVENT, ours)


def put_server(draft: Draft, command: str) -> None:
    """Put in our MCP server, or bring it up to date. Raises InstallError where another has its name."""
    entry = draft.part("mcpServers").get(SERVER)
    if entry is None:
        draft.part("mcpServers", make=True)[SERVER] = wanted_server(command, {"args": ["serve"], "env": {}})
    elif not is_our_server(entry):
        raise InstallError(
            f"{draft.path} has another MCP server that is called nugget; nothing was changed.",
            hint="Rename it or take it out (`claude mcp remove nugget`), then run the command again.",
        )
    else:
        draft.part("mcpServers")[SERVER] = wanted_server(command, entry)


def wanted_hook(command: str, entry: Mapping[str, Any], *, flags: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the hook in exec form, without a shell; what a person set beside that stays, and so do flags not named."""
    kept = flags_of(entry) if flags is None else flags
    start = {"type": "command", "command": command, "args": ["capture-session", *kept]}
    return {"timeout": TIMEOUT_S, **entry, **start} if entry else {**start, "timeout": TIMEOUT_S}


def flags_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the flags of a hook of ours."""
    return tuple(word for word in command_line(entry)[2:] if word in (BRIEF, RECALL))


def wanted_server(command: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the server, shown to the model from the first request; arguments that a person set stay."""
    return {"type": "stdio", "command": command, **entry, **{"type": "stdio", "command": command, "alwaysLoad": True}}


def hooks_of(draft: Draft, event: str) -> list[dict[str, Any]]:
    """Return our hooks for an event."""
    groups = [group.get("hooks") for group in draft.part("hooks", event) if isinstance(group, dict)]
    entries = chain.from_iterable(group for group in groups if isinstance(group, list))
    return [entry for entry in entries if isinstance(entry, dict) and _is_our_hook(entry)]


def first_hook(draft: Draft, event: str) -> dict[str, Any] | None:
    """Return our hook for an event, if there is one."""
    return next(iter(hooks_of(draft, event)), None)


def _is_our_hook(entry: Mapping[str, Any]) -> bool:
    words = command_line(entry)
    is_capture = len(words) >= 2 and is_own_command(words[0]) and words[1] == "capture-session"
    return is_capture and all(word in (BRIEF, RECALL) for word in words[2:])


def is_our_server(entry: object) -> bool:
    """Return whether an MCP server is `nugget serve`, wherever it is and whatever else it is given."""
    words = command_line(entry) if isinstance(entry, dict) else []
    return bool(words) and is_own_command(words[0]) and "serve" in words


def is_own_command(command: str) -> bool:
    """Return whether a command is Nugget, by its name."""
    return Path(command).name in (SERVER, f"{SERVER}.exe")


def command_line(entry: Mapping[str, Any]) -> list[str]:
    """Return the command line of a hook or a server: exec form, or a shell line taken apart."""
    command, arguments = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return []
    if isinstance(arguments, list):
        return [command, *map(str, arguments)]
    try:
        return shlex.split(command)
    except ValueError:
        return []


def take_out_hooks(draft: Draft, event: str, hooks: Sequence[Mapping[str, Any]]) -> None:
    """Remove these hooks, and the groups and containers that are left without any."""
    if not hooks:
        return
    groups = draft.part("hooks", event)
    gone = {id(hook) for hook in hooks}
    for group in list(groups):
        entries = group.get("hooks") if isinstance(group, dict) else None
        if isinstance(entries, list) and any(id(entry) in gone for entry in entries):
            group["hooks"] = [entry for entry in entries if id(entry) not in gone]
            if not group["hooks"]:
                groups.remove(group)
    draft.drop_empty("hooks", event)
