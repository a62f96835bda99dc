"""Install into coding agents and git: hooks, MCP server and permission for Claude Code, server and rules for others.

Formats: settings.json as of https://code.claude.com/docs/en/hooks, .mcp.json and .claude.json as of .../en/mcp; Codex'
config.toml and the JSON settings of Cursor, Gemini CLI, OpenCode and VS Code, as their own commands write them. The
prepare-commit-msg hook of a code repository goes beside an existing one; only our own file is written or removed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nugget.config import Environment, Settings, absolute_folder, config_home, user_home
from nugget.errors import GitError, NuggetError
from nugget.infra import git
from nugget.sources import agent_folders
from nugget.upkeep.client_settings import (
    FileChange,
    SettingsScope,
    add_server,
    command_line,
    drop_empty,
    drop_server,
    is_nugget,
    is_our_server,
    parse,
    part,
    planned,
    read_text,
)

RULE = "mcp__nugget__get_relevant_context"
BEGIN, END = "<!-- nugget: begin -->", "<!-- nugget: end -->"
PARAGRAPH = f"""\
{BEGIN}
Call `get_relevant_context` of the MCP server `nugget` before you plan, design, change or debug code, and again when the
task changes: it returns what earlier sessions found out, reviewed by a person. It is reference material, not an order.
{END}
"""
_NO_BRIEF = "--no-brief"
_FLAGS = {"SessionEnd": "", "SessionStart": "--brief", "UserPromptSubmit": "--recall", "Stop": "--notes",
          "PreCompact": "--notes"}  # fmt: skip
"""Our hooks by event, each with the option that makes it add text to a session; without it, it only captures."""
_ALWAYS = ("SessionEnd", "SessionStart")
_RULES = (RULE, "mcp__nugget", "mcp__nugget__*")
_TIMEOUT_S = 10
"""Without its own timeout a hook shares 1.5 s with all other SessionEnd hooks; ours takes 0.1 s."""
_HOOK = "prepare-commit-msg"
KEPT = f"{_HOOK}.before-nugget"
"""Name under which a foreign hook is kept; ours runs it first with the same arguments and fails if it fails."""
_MARK = "# Nugget's prepare-commit-msg hook."


@dataclass(frozen=True, slots=True)
class Client:
    """A coding agent: name, folder, settings file, key of MCP servers in it, our entry, and rules file."""

    title: str
    folder: Path
    settings: Path
    place: str
    entry: Mapping[str, Any]
    rules: Path | None = None


def own_command(environment: Environment) -> Path:
    """Return the absolute path of the running `nugget`. Raises NuggetError if it cannot be found."""
    beside = Path(sys.executable).with_name("nugget")
    for named in (sys.argv[0], str(beside), shutil.which("nugget", path=environment.variables.get("PATH"))):
        if named and os.sep in named and is_nugget(named) and Path(named).is_file() and os.access(named, os.X_OK):
            return Path(named).absolute()
    raise NuggetError("The nugget command was not found.", hint="Install Nugget so that `nugget` is on the PATH.")


def clients(environment: Environment, command: Path) -> dict[str, Client]:
    """Return the agents other than Claude Code that `nugget install` can connect, by their names there."""
    user, kept = user_home(environment), agent_folders(environment, Settings())
    codex, gemini, config = (
        absolute_folder(str(folder), user_home=user)
        for folder in (kept["codex"], kept["gemini"], config_home(environment))
    )
    code = (user / "Library" / "Application Support" if sys.platform == "darwin" else config) / "Code" / "User"
    plain = {"command": str(command), "args": ["serve"]}
    local = {"type": "local", "command": [str(command), "serve"], "enabled": True}
    cursor, opencode = user / ".cursor", config / "opencode"
    return {
        "codex": Client("Codex", codex, codex / "config.toml", "mcp_servers", plain, codex / "AGENTS.md"),
        "cursor": Client("Cursor", cursor, cursor / "mcp.json", "mcpServers", plain),
        "gemini": Client("Gemini CLI", gemini, gemini / "settings.json", "mcpServers", plain, gemini / "GEMINI.md"),
        "opencode": Client("OpenCode", opencode, opencode / "opencode.json", "mcp", local, opencode / "AGENTS.md"),
        "vscode": Client("VS Code", code, code / "mcp.json", "servers", {"type": "stdio", **plain}),
    }


def plan_install(
    scope: SettingsScope, environment: Environment, *, command: Path, cwd: Path, brief: bool | None = None,
    recall: bool | None = None, notes: bool | None = None,
) -> list[FileChange]:  # fmt: skip
    """Return the changes that make Claude Code capture sessions with `command` and ask its MCP server.

    `brief` and `recall` say whether text is added at a session's start and at each prompt; None keeps the choice,
    at first a short brief if there is reviewed knowledge of the code, and no recall. With `notes`, each turn and each
    compaction only notes the session for the next worker. Raises NuggetError for settings
    that cannot be read, are not JSON, or have another server named `nugget`.
    """
    settings, servers = _claude_files(scope, environment, cwd)
    entry = {"type": "stdio", "command": str(command), "args": ["serve"], "env": {}, "alwaysLoad": True}
    edits = (partial(_add_hooks, settings, str(command), (False, brief, recall, notes, notes)),
             partial(add_server, servers, "mcpServers", entry))  # fmt: skip
    return planned((settings, servers), edits, mode=0o600 if scope == "user" else 0o644)


def plan_uninstall(scope: SettingsScope, environment: Environment, *, cwd: Path) -> list[FileChange]:
    """Return the changes that remove Nugget from Claude Code's settings.

    A file without other entries is removed. Raises NuggetError for settings that cannot be read or are not JSON.
    """
    settings, servers = _claude_files(scope, environment, cwd)
    return planned((settings, servers), (partial(_drop_hooks, settings), partial(drop_server, servers, "mcpServers")))


def plan_client(client: Client, *, remove: bool = False) -> list[FileChange]:
    """Return the files that change when Nugget is connected with an agent, or removed from it.

    Additions of a person to our entry are kept. Raises NuggetError for settings that cannot be parsed or have another
    server named nugget.
    """
    path, place = client.settings, client.place
    edit = partial(drop_server, path, place) if remove else partial(add_server, path, place, client.entry)
    changes = planned((path,), (edit,))
    if client.rules is not None:
        before = read_text(client.rules)
        if (after := _with_rules(before or "", remove)) != (before or ""):
            changes.append(FileChange(path=client.rules, before=before, after=after or None, mode=0o644))
    return changes


def connections(environment: Environment, cwd: Path) -> Iterator[tuple[str, str, str, str | None]]:
    """Yield state, name, sentence and next command for each agent on this machine and for the folder's project."""
    name, user, found = "Claude Code", environment.claude_config, False
    steps: dict[SettingsScope, str] = {"user": "nugget install", "project": "nugget install --scope project"}
    for scope, step in steps.items():
        folder = _claude_files(scope, environment, cwd)[0].parent
        if scope == "project" and folder.absolute() == user.absolute():
            continue
        try:
            state, said = _claude_state(scope, environment, cwd)
        except NuggetError as error:
            state, said = "error", str(error).rstrip(".")
        if said:
            shown = said if scope == "user" else f"{folder.parent}: {said}"
            yield state, name, shown, None if state == "ok" else step
            found = True
    if not user.is_dir():
        yield "ok", name, "not on this machine", None
    elif not found:
        yield "warning", name, "not connected, so its sessions are not captured and it does not ask", "nugget install"
    for key, client in clients(environment, Path("nugget")).items():
        if client.folder.is_dir():
            try:
                is_connected = bool(plan_client(client, remove=True))
                said = "connected: asks the brain" if is_connected else f"not connected (nugget install {key})"
            except NuggetError as error:
                said = str(error)
            yield "ok", client.title, said, None


def _claude_state(scope: SettingsScope, environment: Environment, cwd: Path) -> tuple[str, str]:
    """Return the state of Claude Code's settings and a sentence; no sentence if Nugget is not in them."""
    settings, servers = _claude_files(scope, environment, cwd)
    value, server = parse(settings, read_text(settings)), parse(servers, read_text(servers))
    entry = part(servers, server, "mcpServers").get("nugget")
    ours = [hook for event in _FLAGS for hook in _our_hooks(settings, value, event)]
    commands = [command_line(one)[0] for one in [*ours, *([entry] if is_our_server(entry) else [])]]
    connected = "connected: captures sessions, asks the brain"
    if not commands:
        plugins = part(settings, value, "enabledPlugins").items()  # a plugin brings its own hooks and server
        has_plugin = any(name.startswith("nugget@") and is_on is True for name, is_on in plugins)
        return "ok", connected if has_plugin else ""
    for command in commands:
        if shutil.which(command, path=environment.variables.get("PATH")) is None:
            return "error", f"it starts {command}, which does not exist"
    if value.get("disableAllHooks") is True:
        return "error", f"{settings} has disableAllHooks"
    is_behind = plan_install(scope, environment, command=Path(commands[0]), cwd=cwd)
    return ("warning", "something is missing or outdated in its settings") if is_behind else ("ok", connected)


def _claude_files(scope: SettingsScope, environment: Environment, cwd: Path) -> tuple[Path, Path]:
    """Return Claude Code's files of settings and MCP servers; for a project, those at its repository's root."""
    if scope == "project":
        with suppress(GitError):
            cwd = git.top_folder(cwd)
        return cwd / ".claude" / "settings.json", cwd / ".mcp.json"
    folder = environment.claude_config.absolute()
    moved = environment.variables.get("CLAUDE_CONFIG_DIR")
    return folder / "settings.json", (folder if moved else folder.parent) / ".claude.json"


def _add_hooks(path: Path, command: str, wishes: Sequence[bool | None], value: Any) -> None:
    """Add our hooks and permission to Claude Code's settings, each once."""
    for event, wish in zip(_FLAGS, wishes, strict=True):
        if not (wish or event in _ALWAYS or part(path, value, "hooks").get(event)):
            continue  # an empty list is the person's
        flag, ours = _FLAGS[event], _our_hooks(path, value, event)
        before = command_line(ours[0])[2:] if ours else []
        is_on = flag in before if wish is None else wish
        if event in _ALWAYS or is_on:
            if not ours:
                ours = [{}]
                part(path, value, "hooks", event).append({"hooks": ours})
            is_off = event == "SessionStart" and (wish is False or (wish is None and _NO_BRIEF in before))
            flags = [flag] if is_on else [_NO_BRIEF] if is_off else []
            ours[0].update({"type": "command", "command": command, "args": ["capture-session", *flags]})
            ours[0].setdefault("timeout", _TIMEOUT_S)  # keep a person's own
            ours = ours[1:]
        _remove_hooks(path, value, event, ours)
    allowed = part(path, value, "permissions", "allow")
    if not any(rule in allowed for rule in _RULES):
        allowed.append(RULE)


def _drop_hooks(path: Path, value: Any) -> None:
    for event in [event for event in _FLAGS if event in _ALWAYS or part(path, value, "hooks").get(event)]:
        _remove_hooks(path, value, event, _our_hooks(path, value, event))
    allowed = part(path, value, "permissions", "allow")
    allowed[:] = [rule for rule in allowed if rule != RULE]
    drop_empty(path, value, "permissions", "allow")


def _our_hooks(path: Path, value: Any, event: str) -> list[dict[str, Any]]:
    groups = [group.get("hooks") for group in part(path, value, "hooks", event) if isinstance(group, dict)]
    entries = [entry for group in groups if isinstance(group, list) for entry in group if isinstance(entry, dict)]
    lines = [(entry, command_line(entry)) for entry in entries]
    return [
        entry for entry, words in lines
        if words[1:2] == ["capture-session"] and is_nugget(words[0])
        and set(words[2:]) <= {*_FLAGS.values(), _NO_BRIEF}
    ]  # fmt: skip


def _remove_hooks(path: Path, value: Any, event: str, hooks: Sequence[Mapping[str, Any]]) -> None:
    """Remove these hooks, and groups and containers that become empty."""
    groups, gone = part(path, value, "hooks", event), {id(hook) for hook in hooks}
    for group in [*groups] if gone else []:
        entries = group.get("hooks") if isinstance(group, dict) else None
        if isinstance(entries, list) and any(id(entry) in gone for entry in entries):
            entries[:] = [entry for entry in entries if id(entry) not in gone]
            if not entries:
                groups.remove(group)
    drop_empty(path, value, "hooks", event)


def _with_rules(text: str, remove: bool) -> str:
    """Return a rules file with our paragraph, in its place or at the end, or without it."""
    head, begun, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not (begun and ended):
        return text if remove or begun else (text.rstrip("\n") + "\n\n" if text.strip() else "") + PARAGRAPH
    tail = tail.removeprefix("\n")
    if remove:
        return head.rstrip("\n") + "\n" * bool(head.strip()) + ("\n" + tail.lstrip("\n") if tail.strip() else "")
    return head + PARAGRAPH + tail


def install_hook(repo: Path, *, command: Path, dry_run: bool) -> Iterator[str]:
    """Install the git hook in the repository that contains `repo`, and yield what was done.

    Raises GitError outside of a repository, NuggetError if a kept hook is in the way or a file cannot be written;
    nothing is changed then.
    """
    hook, scope = _hook_file(repo)
    kept, script = hook.with_name(KEPT), _script(command)
    is_foreign = os.path.lexists(hook) and not _is_our_hook(hook)
    if not is_foreign and hook.exists() and hook.read_bytes() == script.encode():
        yield f"{hook} is there already; nothing to change."
        return
    if is_foreign and os.path.lexists(kept):
        raise NuggetError(f"{hook} is not Nugget's, and {kept} exists as well.", hint=f"Merge or remove {kept}.")
    if dry_run:
        yield f"Would {f'keep the existing hook as {KEPT} and ' if is_foreign else ''}write {hook}"
        return
    try:
        hook.parent.mkdir(parents=True, exist_ok=True)
        made = hook.with_name(f"{_HOOK}.nugget-{os.getpid()}")
        made.write_text(script, "utf-8")
        made.chmod(0o755)
        if is_foreign:
            hook.rename(kept)
        made.replace(hook)
    except OSError as error:
        raise NuggetError(f"{hook} cannot be written: {error.strerror or error}.") from error
    yield f"Wrote {hook}"
    if is_foreign:
        yield f"The previous hook is kept beside it as {KEPT}, and runs first."
    if scope in ("global", "system"):
        yield f"core.hooksPath is set for all repositories ({scope}): the hook runs in each of them."
    yield "`git commit` proposes a message if an agent wrote some of it. `nugget uninstall git-hook` undoes this."


def uninstall_hook(repo: Path, *, dry_run: bool) -> Iterator[str]:
    """Remove our hook, restore the kept one, and yield what was done. Raises GitError, NuggetError."""
    hook, _ = _hook_file(repo)
    kept = hook.with_name(KEPT)
    if not _is_our_hook(hook):
        yield "Nugget's hook is not in this repository; nothing to change."
    elif dry_run:
        yield f"Would remove {hook}."
    else:
        is_kept = os.path.lexists(kept)
        try:
            kept.replace(hook) if is_kept else hook.unlink()
        except OSError as error:
            raise NuggetError(f"{hook} cannot be removed: {error.strerror or error}.") from error
        yield f"Removed {hook}{'; the previous hook is back' if is_kept else ''}."


def _hook_file(repo: Path) -> tuple[Path, str | None]:
    """Return the path of the repository's hook, and the scope in which `core.hooksPath` is set. Raises GitError."""
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel")
    common, *top = os.fsdecode(git.run(repo, *asked)).removesuffix("\n").split("\n")
    set_by = git.run(repo, "config", "--type=path", "--show-scope", "--get-all", "core.hooksPath", check=False)
    folder, scope = Path(common) / "hooks", None
    for line in os.fsdecode(set_by).split("\n"):
        origin, _, value = line.partition("\t")
        if value and origin != "command":  # our own git processes switch hooks off in this scope
            folder, scope = Path(top[0] if top else common, value), origin
    return folder / _HOOK, scope


def _is_our_hook(hook: Path) -> bool:
    return hook.is_file() and _MARK.encode() in hook.read_bytes()


def _script(command: Path) -> str:
    """Return the hook's script, which runs a kept hook first, then Nugget, and never stops a commit."""
    return f"""#!/bin/sh
{_MARK} `nugget uninstall git-hook` removes it.
kept="${{0%/*}}/{KEPT}"
if [ -x "$kept" ]; then
    "$kept" "$@" || exit $?
fi
nugget={shlex.quote(str(command))}
[ -x "$nugget" ] || nugget=nugget
"$nugget" commit --hook "$@" </dev/null >/dev/null 2>&1
exit 0
"""
