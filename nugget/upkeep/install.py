"""Nugget in Claude Code: two hooks, one MCP server and one permission rule, put into settings that are not ours.

Only our entries change; everything else keeps its value, its order and its indent. `$NUGGET_HOME/install.json` lists
the files that we edited.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nugget.config import Environment
from nugget.errors import InstallError, NuggetError
from nugget.upkeep.client_settings import (
    ALL_EVENTS,
    BRIEF,
    BRIEF_EVENT,
    BROADER_RULES,
    EVENTS,
    RECALL_EVENT,
    RULE,
    SERVER,
    Draft,
    Scope,
    command_line,
    first_hook,
    hooks_of,
    is_our_server,
    is_own_command,
    open_settings,
    put_hook,
    put_recall_hook,
    put_server,
    read_text,
    take_out_hooks,
    wanted_hook,
    wanted_server,
    write_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A change to one settings file, by installing or uninstalling; None means no file."""

    path: Path
    before: str | None
    after: str | None
    is_ours: bool
    mode: int = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """State of one scope. `missing` and `outdated` name parts, `broken` says what keeps it from working."""

    scope: Scope
    folder: Path
    present: tuple[str, ...]
    missing: tuple[str, ...]
    outdated: tuple[str, ...]
    broken: str | None


def own_command(environment: Environment) -> Path:
    """Return the absolute path of the running `nugget`. Raises InstallError if it cannot be found."""
    beside = Path(sys.executable).with_name(SERVER)
    for named in (sys.argv[0], str(beside), shutil.which(SERVER, path=environment.variables.get("PATH"))):
        if named and os.sep in named and is_own_command(named) and Path(named).is_file() and os.access(named, os.X_OK):
            return Path(named).absolute()
    raise InstallError("The nugget command was not found.", hint="Install Nugget so that `nugget` is on the PATH.")


def plan_install(
    scope: Scope,
    environment: Environment,
    *,
    command: Path,
    cwd: Path,
    brief: bool | None = None,
    recall: bool | None = None,
) -> list[FileChange]:
    """Return what `apply` would write so that Claude Code captures sessions with `command` and asks it.

    `brief` and `recall` say whether text is added at a session's start and at each prompt; None leaves that as
    it is, which is off at first.
    Raises InstallError for settings that cannot be read, are not JSON, or have another server named `nugget`.
    """
    settings, servers = open_settings(scope, environment, cwd)
    for event in EVENTS:
        put_hook(settings, event, str(command), flag=BRIEF, is_wanted=brief if event == BRIEF_EVENT else None)
    put_recall_hook(settings, str(command), is_wanted=recall)
    allowed = settings.part("permissions", "allow")
    if not any(rule in allowed for rule in (RULE, *BROADER_RULES)):
        settings.part("permissions", "allow", make=True).append(RULE)
    put_server(servers, str(command))
    mode = 0o600 if scope is Scope.USER else 0o644
    return [
        FileChange(path=draft.path, before=draft.before, after=draft.text, is_ours=True, mode=mode)
        for draft in (settings, servers)
        if draft.before != draft.text
    ]


def plan_uninstall(scope: Scope, environment: Environment, *, cwd: Path) -> list[FileChange]:
    """Return what `apply` would write to remove Nugget from the settings; [] if it is not in them.

    Only our entries go; the order and the indent of the file stay, and a file without other entries goes.
    Raises InstallError for settings that cannot be read or are not JSON.
    """
    drafts = [draft for draft in open_settings(scope, environment, cwd) if draft.before is not None]
    changes = [
        FileChange(path=draft.path, before=draft.before, after=_without_ours(draft), is_ours=False) for draft in drafts
    ]
    return [change for change in changes if change.after != change.before]


def apply(changes: Sequence[FileChange], environment: Environment) -> None:
    """Write planned changes, all or none. Raises ConflictError where a file changed meanwhile, else InstallError."""
    known = _edited_files(environment)
    _note_files(environment, known | {str(change.path) for change in changes if change.is_ours})
    written: list[FileChange] = []
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


def diff(changes: Sequence[FileChange]) -> str:
    """Planned changes as a unified diff."""
    lines: list[str] = []
    for change in changes:
        before, after = (text.splitlines() if text else [] for text in (change.before, change.after))
        old, new = ("/dev/null" if text is None else str(change.path) for text in (change.before, change.after))
        lines += difflib.unified_diff(before, after, old, new, lineterm="")
    return "\n".join(lines)


def inspect(environment: Environment) -> list[Installation]:
    """Return the state of the person's settings, and of each project Nugget was installed into. Reads only."""
    places = [(Scope.USER, environment.claude_config)]
    for named in sorted(_edited_files(environment)):
        folder = Path(named).parent
        if Path(named).name == "settings.json" and folder != environment.claude_config and folder.is_dir():
            places.append((Scope.PROJECT, folder.parent))
    return [_inspect(scope, folder, environment) for scope, folder in places]


def _inspect(scope: Scope, folder: Path, environment: Environment) -> Installation:
    present, missing, outdated = [], [], []
    broken = None
    try:
        settings, servers = open_settings(scope, environment, folder, is_root=True)
        entries = {f"{event} hook": first_hook(settings, event) for event in EVENTS}
        if (recalling := first_hook(settings, RECALL_EVENT)) is not None:
            entries[f"{RECALL_EVENT} hook"] = recalling
        server = servers.part("mcpServers").get(SERVER)
        entries["MCP server"] = server if is_our_server(server) else None
        for name, entry in entries.items():
            if entry is None:
                missing.append(name)
                continue
            present.append(name)
            command = command_line(entry)[0]
            wanted = wanted_server if name == "MCP server" else wanted_hook
            if shutil.which(command, path=environment.variables.get("PATH")) is None:
                broken = f"the {name} starts {command}, which is not there"
            elif entry != wanted(command, entry):
                outdated.append(name)
        if not present and _has_plugin(settings):
            present, missing = ["plugin"], []
        elif present and not any(rule in settings.part("permissions", "allow") for rule in (RULE, *BROADER_RULES)):
            missing.append("permission rule")
        if present and settings.value.get("disableAllHooks") is True:
            broken = f"{settings.path} has disableAllHooks"
    except InstallError as error:
        broken = str(error).rstrip(".")
    return Installation(
        scope=scope, folder=folder, present=tuple(present), missing=tuple(missing), outdated=tuple(outdated),
        broken=broken,
    )  # fmt: skip


def _has_plugin(settings: Draft) -> bool:
    """Return whether Nugget is there as a plugin, which brings its own hooks and server."""
    enabled = settings.part("enabledPlugins")
    return any(name.startswith(f"{SERVER}@") and state is True for name, state in enabled.items())


def _without_ours(draft: Draft) -> str | None:
    """Return a settings file without Nugget; None if nothing else is in it."""
    before = draft.text
    for event in ALL_EVENTS:
        take_out_hooks(draft, event, hooks_of(draft, event))
    allowed = draft.part("permissions", "allow")
    if RULE in allowed:
        allowed[:] = [rule for rule in allowed if rule != RULE]
        draft.drop_empty("permissions", "allow")
    if is_our_server(draft.part("mcpServers").get(SERVER)):
        del draft.value["mcpServers"][SERVER]
        draft.drop_empty("mcpServers")
    return None if draft.text != before and not draft.value else draft.text


def _edited_files(environment: Environment) -> set[str]:
    """Return the settings files that we edited; empty if the list cannot be read."""
    with suppress(InstallError, ValueError):
        noted = json.loads(read_text(environment.home / "install.json") or "{}")
        return set(noted["files"]) if isinstance(noted, dict) and isinstance(noted.get("files"), dict) else set()
    return set()


def _note_files(environment: Environment, paths: Collection[str]) -> None:
    path = environment.home / "install.json"
    text = json.dumps({"version": 1, "files": {name: {} for name in sorted(paths)}}, indent=1) + "\n"
    write_text(path, text if paths else None, expected=read_text(path))
