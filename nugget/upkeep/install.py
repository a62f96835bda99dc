"""Nugget in other programs' files: hooks, an MCP server and a permission in Claude Code's settings, and a git hook.

Only our entries change; everything else keeps its value, its order and its indent. `$NUGGET_HOME/install.json` lists
the settings files that we edited. Formats: settings.json as of https://code.claude.com/docs/en/hooks, .mcp.json and
.claude.json as of .../en/mcp.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from nugget.config import Environment
from nugget.errors import ConflictError, GitError, InstallError, NuggetError
from nugget.infra import files, git

_NO_BRIEF = "--no-brief"
_FLAGS = {"SessionEnd": "", "SessionStart": "--brief", "UserPromptSubmit": "--recall"}
"""Our hooks, each with the argument by which it adds text to a session; without one a hook only captures."""
_ALWAYS = ("SessionEnd", "SessionStart")
_SERVER = "nugget"
RULE = "mcp__nugget__get_relevant_context"
_RULES = (RULE, "mcp__nugget", "mcp__nugget__*")
_TIMEOUT_S = 10
"""For a hook that takes 0.1 s: without a timeout of its own it would share 1.5 s with every other SessionEnd hook."""


class SettingsScope(StrEnum):
    """Scope of settings: those of the person, or those of one project."""

    USER = "user"
    PROJECT = "project"


@dataclass(slots=True, kw_only=True)
class SettingsFile:
    """A settings file being edited: its text (None: no file), and the value that will be written."""

    path: Path
    before: str | None
    value: dict[str, Any]
    mode: int
    is_ours: bool = True

    @property
    def after(self) -> str | None:
        """The value as JSON with the indent and the line ends of the file; None if nothing is left in it."""
        before = self.before or ""
        if self.value == parse_settings(self.path, before):
            return self.before
        if not self.value:
            return None
        if before.strip() and "\n" not in before.strip():
            separators = (", ", ": ") if '": ' in before else (",", ":")
            text = json.dumps(self.value, ensure_ascii=False, separators=separators)
        else:
            first = re.search(r"\n([ \t]+)\S", before)
            text = json.dumps(self.value, ensure_ascii=False, indent=first[1] if first else "  ")
        text += "" if before.strip() and not before.endswith("\n") else "\n"
        return text.replace("\n", "\r\n") if "\r\n" in before else text

    def part(self, *place: str, make: bool = False) -> Any:
        """Return the object, or list, at a place; an empty one if it is missing, put there with `make`.

        Raises InstallError if something of another kind is there.
        """
        found: Any = self.value
        for depth, key in enumerate(place, 1):
            kind: Any = list if key in (*_FLAGS, "allow") else dict
            found = found.setdefault(key, kind()) if make else found.get(key, kind())
            if not isinstance(found, kind):
                name = "an object" if kind is dict else "a list"
                raise InstallError(
                    f"{self.path}: `{'.'.join(place[:depth])}` is not {name}; nothing was changed.",
                    hint="Correct the file, then run the command again.",
                )
        return found

    def drop_empty(self, *place: str) -> None:
        """Remove a container that is empty, and then those around it that are."""
        while place and not self.part(*place):
            self.part(*place[:-1]).pop(place[-1], None)
            place = place[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """State of one scope. `missing` and `outdated` name parts, `broken` says what keeps it from working."""

    scope: SettingsScope
    folder: Path
    present: tuple[str, ...]
    missing: tuple[str, ...]
    outdated: tuple[str, ...]
    broken: str | None


def own_command(environment: Environment) -> Path:
    """Return the absolute path of the running `nugget`. Raises InstallError if it cannot be found."""
    beside = Path(sys.executable).with_name(_SERVER)
    for named in (sys.argv[0], str(beside), shutil.which(_SERVER, path=environment.variables.get("PATH"))):
        if named and os.sep in named and _is_nugget(named) and Path(named).is_file() and os.access(named, os.X_OK):
            return Path(named).absolute()
    raise InstallError("The nugget command was not found.", hint="Install Nugget so that `nugget` is on the PATH.")


def plan_install(
    scope: SettingsScope,
    environment: Environment,
    *,
    command: Path,
    cwd: Path,
    brief: bool | None = None,
    recall: bool | None = None,
) -> list[SettingsFile]:
    """Return what `apply` would write so that Claude Code captures sessions with `command` and asks it.

    `brief` and `recall` say whether text is added at a session's start and at each prompt; None leaves that as it is:
    at first a short brief if there is reviewed knowledge of the code, and no recall. Raises InstallError for settings
    that cannot be read, are not JSON, or have another server named `nugget`.
    """
    settings, servers = _open_settings(scope, environment, cwd)
    for event, wish in zip(_FLAGS, (False, brief, recall), strict=True):
        flag, ours = _FLAGS[event], _our_hooks(settings, event)
        before = _command_line(ours[0])[2:] if ours else []
        is_on = flag in before if wish is None else wish
        if event in _ALWAYS or is_on:
            if not ours:
                ours = [{}]
                settings.part("hooks", event, make=True).append({"hooks": ours})
            is_off = event == "SessionStart" and (wish is False or (wish is None and _NO_BRIEF in before))
            _write_hook(ours[0], str(command), [flag] if is_on else [_NO_BRIEF] if is_off else [])
            ours = ours[1:]
        _remove_hooks(settings, event, ours)
    if not any(rule in settings.part("permissions", "allow") for rule in _RULES):
        settings.part("permissions", "allow", make=True).append(RULE)
    entry = servers.part("mcpServers", make=True).setdefault(
        _SERVER, {"type": "stdio", "command": str(command), "args": ["serve"], "env": {}}
    )
    if not _is_our_server(entry):
        raise InstallError(
            f"{servers.path} has another MCP server that is called nugget; nothing was changed.",
            hint="Rename it or take it out (`claude mcp remove nugget`), then run the command again.",
        )
    _write_server(entry, str(command))
    return [file for file in (settings, servers) if file.before != file.after]


def plan_uninstall(scope: SettingsScope, environment: Environment, *, cwd: Path) -> list[SettingsFile]:
    """Return what `apply` would write to remove Nugget from the settings; [] if it is not in them.

    A file without other entries goes. Raises InstallError for settings that cannot be read or are not JSON.
    """
    settings, servers = _open_settings(scope, environment, cwd)
    for event in _FLAGS:
        _remove_hooks(settings, event, _our_hooks(settings, event))
    allowed = settings.part("permissions", "allow")
    if RULE in allowed:
        allowed[:] = [rule for rule in allowed if rule != RULE]
        settings.drop_empty("permissions", "allow")
    if _is_our_server(servers.part("mcpServers").get(_SERVER)):
        del servers.value["mcpServers"][_SERVER]
        servers.drop_empty("mcpServers")
    settings.is_ours = servers.is_ours = False
    return [file for file in (settings, servers) if file.before != file.after]


def apply(changes: Sequence[SettingsFile], environment: Environment) -> None:
    """Write planned changes, all or none. Raises ConflictError if a file changed meanwhile, else InstallError."""
    known = _edited_files(environment)
    _note_files(environment, known | {str(change.path) for change in changes if change.is_ours})
    written: list[SettingsFile] = []
    try:
        for change in changes:
            write_text(change.path, change.after, expected=change.before, mode=change.mode)
            written.append(change)
    except NuggetError:
        for change in reversed(written):
            with suppress(NuggetError):
                write_text(change.path, change.before, expected=change.after, mode=change.mode)
        _note_files(environment, known)
        raise
    if gone := {str(change.path) for change in changes if not change.is_ours}:
        _note_files(environment, known - gone)


def diff(changes: Sequence[SettingsFile]) -> str:
    """Planned changes as a unified diff."""
    lines: list[str] = []
    for change in changes:
        before, after = (text.splitlines() if text else [] for text in (change.before, change.after))
        old, new = ("/dev/null" if text is None else str(change.path) for text in (change.before, change.after))
        lines += difflib.unified_diff(before, after, old, new, lineterm="")
    return "\n".join(lines)


def inspect(environment: Environment) -> list[Installation]:
    """Return the state of the person's settings, and of each project Nugget was installed into. Reads only."""
    user_folder = environment.claude_config
    places = [(SettingsScope.USER, user_folder)]
    for named in map(Path, sorted(_edited_files(environment))):
        folder = named.parent
        if (folder.name, named.name) == (".claude", "settings.json") and folder.is_dir() and folder != user_folder:
            places.append((SettingsScope.PROJECT, folder.parent))
    return [_inspect(scope, folder, environment) for scope, folder in places]


def _inspect(scope: SettingsScope, folder: Path, environment: Environment) -> Installation:
    present, missing, outdated = [], [], []
    broken = None
    try:
        settings, servers = _open_settings(scope, environment, folder, is_root=True)
        hooks = {event: next(iter(_our_hooks(settings, event)), None) for event in _FLAGS}
        entries = {f"{event} hook": entry for event, entry in hooks.items() if entry or event in _ALWAYS}
        server = servers.part("mcpServers").get(_SERVER)
        entries["MCP server"] = server if _is_our_server(server) else None
        for name, entry in entries.items():
            if entry is None:
                missing.append(name)
                continue
            present.append(name)
            command, *arguments = _command_line(entry)
            wanted = dict(entry)
            _write_server(wanted, command) if name == "MCP server" else _write_hook(wanted, command, arguments[1:])
            if shutil.which(command, path=environment.variables.get("PATH")) is None:
                broken = f"the {name} starts {command}, which is not there"
            elif entry != wanted:
                outdated.append(name)
        plugins = settings.part("enabledPlugins").items()  # a plugin brings its own hooks and server
        if not present and any(name.startswith(f"{_SERVER}@") and state is True for name, state in plugins):
            present, missing = ["plugin"], []
        elif present and not any(rule in settings.part("permissions", "allow") for rule in _RULES):
            missing.append("permission rule")
        if present and settings.value.get("disableAllHooks") is True:
            broken = f"{settings.path} has disableAllHooks"
    except InstallError as error:
        broken = str(error).rstrip(".")
    return Installation(
        scope=scope, folder=folder, present=tuple(present), missing=tuple(missing), outdated=tuple(outdated),
        broken=broken,
    )  # fmt: skip


def _open_settings(
    scope: SettingsScope, environment: Environment, cwd: Path, *, is_root: bool = False
) -> tuple[SettingsFile, SettingsFile]:
    """Return the settings, and the file that holds the MCP servers; of a project those at its repository's root."""
    if scope is SettingsScope.PROJECT:
        root = cwd
        if not is_root:
            with suppress(GitError):
                root = git.top_folder(cwd)
        paths = (root / ".claude" / "settings.json", root / ".mcp.json")
    else:
        folder = environment.claude_config.absolute()
        moved = environment.variables.get("CLAUDE_CONFIG_DIR")
        paths = (folder / "settings.json", (folder if moved else folder.parent) / ".claude.json")
    mode = 0o600 if scope is SettingsScope.USER else 0o644
    texts = [read_text(path) for path in paths]
    settings, servers = (
        SettingsFile(path=path, before=text, value=parse_settings(path, text or ""), mode=mode)
        for path, text in zip(paths, texts, strict=True)
    )
    return settings, servers


def parse_settings(path: Path, text: str) -> dict[str, Any]:
    """Parse a settings file. Raises InstallError if it is not a JSON object."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        reason = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        hint = "Correct the file (it is JSON, without comments), then run the command again."
        raise InstallError(f"{path} is not valid JSON: {reason}; nothing was changed.", hint=hint) from error
    if not isinstance(value, dict):
        raise InstallError(f"{path} is not a JSON object; nothing was changed.")
    return value


def _write_hook(entry: dict[str, Any], command: str, flags: Sequence[str]) -> None:
    """Make an entry our hook in exec form, without a shell; what a person set beside that stays."""
    entry.update(type="command", command=command, args=["capture-session", *flags])
    entry.setdefault("timeout", _TIMEOUT_S)


def _write_server(entry: dict[str, Any], command: str) -> None:
    """Make an entry our server, shown to the model from the first request; arguments that a person set stay."""
    entry.update(type="stdio", command=command, alwaysLoad=True)


def _our_hooks(settings: SettingsFile, event: str) -> list[dict[str, Any]]:
    groups = [group.get("hooks") for group in settings.part("hooks", event) if isinstance(group, dict)]
    entries = [entry for group in groups if isinstance(group, list) for entry in group if isinstance(entry, dict)]
    lines = [(entry, _command_line(entry)) for entry in entries]
    return [
        entry for entry, words in lines
        if words[1:2] == ["capture-session"] and _is_nugget(words[0])
        and set(words[2:]) <= {*_FLAGS.values(), _NO_BRIEF}
    ]  # fmt: skip


def _remove_hooks(settings: SettingsFile, event: str, hooks: Sequence[Mapping[str, Any]]) -> None:
    """Remove these hooks, and the groups and containers that are left without any."""
    gone = {id(hook) for hook in hooks}
    groups = settings.part("hooks", event)
    for group in [*groups] if gone else []:
        entries = group.get("hooks") if isinstance(group, dict) else None
        if isinstance(entries, list) and any(id(entry) in gone for entry in entries):
            entries[:] = [entry for entry in entries if id(entry) not in gone]
            if not entries:
                groups.remove(group)
    if gone:
        settings.drop_empty("hooks", event)


def _is_our_server(entry: object) -> bool:
    """Return whether an MCP server is `nugget serve`, wherever it is and whatever else it is given."""
    words = _command_line(entry) if isinstance(entry, dict) else []
    return bool(words) and _is_nugget(words[0]) and "serve" in words


def _is_nugget(command: str) -> bool:
    return Path(command).name == _SERVER


def _command_line(entry: Mapping[str, Any]) -> list[str]:
    """Return the command line of a hook or a server: exec form, or a shell line taken apart."""
    command, arguments = entry.get("command"), entry.get("args")
    with suppress(ValueError):
        if isinstance(command, str):
            return [command, *map(str, arguments)] if isinstance(arguments, list) else shlex.split(command)
    return []


def _edited_files(environment: Environment) -> set[str]:
    """Return the settings files that we edited; empty if the list cannot be read."""
    with suppress(InstallError, ValueError, TypeError, LookupError):
        return set(json.loads(read_text(environment.home / "install.json") or "")["files"])
    return set()


def _note_files(environment: Environment, paths: set[str]) -> None:
    path = environment.home / "install.json"
    text = json.dumps({"version": 1, "files": {name: {} for name in sorted(paths)}}, indent=1) + "\n"
    write_text(path, text if paths else None, expected=read_text(path))


def read_text(path: Path) -> str | None:
    """Return the text of another program's file, line ends as they are; None if it is missing. Raises InstallError."""
    try:
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

    def check() -> None:
        if read_text(path) != expected:
            raise ConflictError(
                f"{path} changed since it was read; nothing was written.", hint="Run the command again."
            )

    target = path.resolve()
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
