"""Folders where each agent keeps its sessions: by the settings, by its own variables, else its default."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nugget.config import AgentSettings, Environment, absolute_folder, load_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolders:
    """Folders where each agent keeps its sessions."""

    codex: Path
    gemini: Path
    cursor_projects: Path
    cursor_user: Path
    opencode: Path


def agent_folders(environment: Environment, settings: AgentSettings | None = None) -> AgentFolders:
    """The folders by the settings (of this machine, where none are given), else by the agents' own variables."""
    env = environment.variables
    chosen = load_settings(environment).agents if settings is None else settings
    user_home = Path(env.get("HOME") or Path.home())

    def place(setting: str, fallback: Path) -> Path:
        return absolute_folder(setting, user_home=user_home) if setting else fallback

    on_mac = user_home / "Library/Application Support/Cursor/User"
    config = Path(env.get("XDG_CONFIG_HOME") or user_home / ".config")
    return AgentFolders(
        codex=place(chosen.codex, Path(env.get("CODEX_HOME") or user_home / ".codex")),
        gemini=place(chosen.gemini, Path(env.get("GEMINI_CLI_HOME") or user_home) / ".gemini"),
        cursor_projects=user_home / ".cursor/projects",
        cursor_user=place(chosen.cursor, on_mac if on_mac.is_dir() else config / "Cursor/User"),
        opencode=place(chosen.opencode, Path(env.get("XDG_DATA_HOME") or user_home / ".local/share") / "opencode"),
    )
