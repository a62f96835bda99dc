"""Promises about installing into Claude Code."""

PROMISES: dict[str, str] = {
    "INIT-INDEXES": "`init` and `install` index the brain, so that no session waits for it.",
    "INSTALL-PARTS": "one command puts in hooks with a timeout, the MCP server with alwaysLoad and the permission",
    "INSTALL-SCOPES": "user or project settings; CLAUDE_CONFIG_DIR moves those of the user",
    "INSTALL-MERGE": "only our entries change; the order, the indent and the line ends of the file stay",
    "INSTALL-IDEMPOTENT": "installing twice is installing once; an outdated entry is brought up to date, never doubled",
    "INSTALL-REFUSE": "settings that cannot be understood are refused in one sentence and left alone, all of them",
    "INSTALL-WRITE": "a write is atomic, guarded by what was read, follows links and keeps the mode",
    "INSTALL-DRY-RUN": "--dry-run prints a unified diff and writes nothing",
    "INSTALL-UNDO": "uninstall removes our entries and nothing else, and a file that we made when it is empty",
    "INSTALL-OFFER": "init offers to install at a terminal, and never asks anywhere else",
    "INSTALL-CLAUDE": "install asks once, at a terminal only, whether the `claude` command may find knowledge",
    "INSTALL-DOCTOR": "doctor finds a missing, outdated or broken installation and names the command",
    "PLUGIN-ALONE": "without the command the plugin says in one line how to get it, and fails no hook",
    "INSTALL-PLUGIN": "the plugin holds hooks, server and skill, and Claude Code's own validator accepts it",
    "CLIENTS-CONNECT": "Codex, Cursor, Gemini CLI, OpenCode and VS Code get server and rules, and lose nothing.",
    "CLIENTS-REFUSE": "settings of another agent that cannot be understood are left alone, in one sentence",
    "WATCH": "`nugget watch` captures sessions of agents that call no hook, and can be started at login.",
}
