"""Nugget in the settings of coding agents other than Claude Code: an MCP server, and a paragraph in their rules.

Only our entry and our paragraph change. Formats: Codex' config.toml, the JSON settings of Cursor, Gemini CLI, OpenCode
and VS Code, as their own commands write them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nugget.config import AgentSettings, Environment, absolute_folder, config_home, user_home
from nugget.errors import InstallError
from nugget.sources import agent_folders
from nugget.upkeep.install import SettingsFile, parse_settings, read_text

BEGIN, END = "<!-- nugget: begin -->", "<!-- nugget: end -->"
RULES = f"""\
{BEGIN}
Call `get_relevant_context` of the MCP server `nugget` before you plan, design, change or debug code, and again when the
task changes: it returns what earlier sessions found out, reviewed by a person. It is reference material, not an order.
{END}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A coding agent: its name, its folder, its settings with the place of MCP servers, our entry, its rules file."""

    title: str
    folder: Path
    settings: Path
    place: tuple[str, ...]
    entry: Mapping[str, Any]
    rules: Path | None = None


@dataclass(slots=True, kw_only=True)
class PlainFile(SettingsFile):
    """A file that is edited as text; empty: no file."""

    text: str

    @property
    def after(self) -> str | None:
        """The text that will be written."""
        return self.text or None


def clients(environment: Environment, command: Path) -> dict[str, Client]:
    """Return the agents that `command` can be connected with, by the name that `nugget install` takes."""
    user, kept = user_home(environment), agent_folders(environment, AgentSettings())
    codex, gemini, config = (
        absolute_folder(str(folder), user_home=user) for folder in (kept.codex, kept.gemini, config_home(environment))
    )
    opencode = config / "opencode"
    code = (user / "Library" / "Application Support" if sys.platform == "darwin" else config) / "Code" / "User"
    plain = {"command": str(command), "args": ["serve"]}
    return {
        "codex": Client(
            title="Codex", folder=codex, settings=codex / "config.toml", place=("mcp_servers",), entry=plain,
            rules=codex / "AGENTS.md",
        ),
        "cursor": Client(
            title="Cursor", folder=user / ".cursor", settings=user / ".cursor" / "mcp.json", place=("mcpServers",),
            entry=plain,
        ),
        "gemini": Client(
            title="Gemini CLI", folder=gemini, settings=gemini / "settings.json", place=("mcpServers",), entry=plain,
            rules=gemini / "GEMINI.md",
        ),
        "opencode": Client(
            title="OpenCode", folder=opencode, settings=opencode / "opencode.json", place=("mcp",),
            entry={"type": "local", "command": [str(command), "serve"], "enabled": True},
            rules=opencode / "AGENTS.md",
        ),
        "vscode": Client(
            title="VS Code", folder=code, settings=code / "mcp.json", place=("servers",),
            entry={"type": "stdio", **plain},
        ),
    }  # fmt: skip


def plan_client(client: Client, *, remove: bool = False) -> list[SettingsFile]:
    """Return the files that change when Nugget is connected with an agent, or removed from it.

    What a person added to our entry stays. Raises InstallError for settings that cannot be understood, or that have
    another server named nugget.
    """
    before = read_text(client.settings)
    edit = _edit_toml if client.settings.suffix == ".toml" else _edit_json
    planned: list[SettingsFile] = [edit(client, before, remove=remove)]
    if client.rules is not None:
        text = read_text(client.rules)
        after = _with_rules(text or "", remove=remove)
        planned.append(PlainFile(path=client.rules, before=text, text=after, value={}, mode=0o644, is_ours=not remove))
    return [file for file in planned if file.before != file.after]


def connections(environment: Environment) -> Iterator[tuple[str, str]]:
    """Yield each agent on this machine with a sentence that says if it is connected."""
    for name, client in clients(environment, Path("nugget")).items():
        if client.folder.is_dir():
            try:
                is_connected = bool(plan_client(client, remove=True))
            except InstallError as error:
                yield client.title, str(error)
            else:
                yield (
                    client.title,
                    "connected: asks the brain" if is_connected else f"not connected (nugget install {name})",
                )


def _edit_json(client: Client, before: str | None, *, remove: bool) -> SettingsFile:
    value = parse_settings(client.settings, before or "")
    file = SettingsFile(path=client.settings, before=before, value=value, mode=0o600, is_ours=not remove)
    if _edit(client, file.part(*client.place, make=True), remove=remove):
        file.drop_empty(*client.place)
    return file


def _edit_toml(client: Client, before: str | None, *, remove: bool) -> PlainFile:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(before or "")
    except TOMLKitError as error:
        raise InstallError(f"{client.settings} is not valid TOML: {error}; nothing was changed.") from error
    (name,) = client.place
    if not isinstance(document.get(name, {}), dict):
        raise InstallError(f"{client.settings}: `{name}` is not a table; nothing was changed.")
    if name not in document:
        document[name] = tomlkit.table(is_super_table=True)
    if _edit(client, document[name], remove=remove):
        del document[name]
    text = tomlkit.dumps(document)
    return PlainFile(path=client.settings, before=before, text=text, value={}, mode=0o600, is_ours=not remove)


def _edit(client: Client, servers: Any, *, remove: bool) -> bool:
    """Put our entry into the table of servers, or take it out; return True if the table is empty afterwards."""
    found = servers.get("nugget")
    if found is not None and not (isinstance(found, dict) and "serve" in _words(found)):
        if remove:
            return False
        raise InstallError(
            f"{client.settings} has another MCP server that is called nugget; nothing was changed.",
            hint="Rename it or take it out, then run the command again.",
        )
    if remove:
        servers.pop("nugget", None)
        return not servers
    if found is None:
        servers["nugget"] = dict(client.entry)
    elif _words(found)[:1] != _words(client.entry)[:1]:
        found["command"] = client.entry["command"]
    return False


def _words(entry: Mapping[str, Any]) -> list[str]:
    """Return the command line of an entry: OpenCode's is one list, all others' a command with arguments."""
    command, arguments = entry.get("command"), entry.get("args")
    words = command if isinstance(command, list) else [command]
    return [str(word) for word in [*words, *(arguments if isinstance(arguments, list) else [])]]


def _with_rules(text: str, *, remove: bool) -> str:
    """Return a rules file with our paragraph at its end, or where it was, or without it."""
    head, begun, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not (begun and ended):
        return text if remove or begun else (text.rstrip("\n") + "\n\n" if text.strip() else "") + RULES
    tail = tail.removeprefix("\n")
    if remove:
        return head.rstrip("\n") + "\n" * bool(head.strip()) + ("\n" + tail.lstrip("\n") if tail.strip() else "")
    return head + RULES + tail
