"""Other coding agents: our server in their settings, our paragraph in their rules, and their sessions by `watch`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import Nugget
from mcp_wire import RUN
from programs import program
from waiting import PATIENCE_S, wait_for

from nugget.config import read_environment
from nugget.upkeep.install import BEGIN, clients, connections

COMMAND = Path("/opt/nugget/bin/nugget")
FOLDERS = {
    "codex": ".codex", "cursor": ".cursor", "gemini": ".gemini", "opencode": ".config/opencode",
    "vscode": "Library/Application Support/Code/User" if sys.platform == "darwin" else ".config/Code/User",
}  # fmt: skip
CODEX = """\
# mine
model = "o9"

[mcp_servers.other]
command = "x" # keep

[tui]
colour = 1
"""


def files_in(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def stated() -> list[tuple[str, str]]:
    return [(title, said) for _, title, said, _ in connections(read_environment(), Path("/"))]


@pytest.mark.proves("CLIENTS-CONNECT")
@pytest.mark.parametrize("name", FOLDERS)
def test_an_agent_gets_the_server_and_a_paragraph_and_loses_nothing_else(
    name: str, isolated_home: Path, nugget: Nugget
) -> None:
    folder = isolated_home / FOLDERS[name]
    folder.mkdir(parents=True)
    client = clients(read_environment(), COMMAND)[name]
    settings = client.settings
    theirs = json.dumps({"theme": "dark", client.place: {"x": {}}}, indent=2) + "\n"
    settings.write_text(CODEX if name == "codex" else theirs)
    if client.rules:
        client.rules.write_text("My rules.\n")
    before = files_in(folder)
    assert (client.title, f"not connected (nugget install {name})") in stated()
    assert nugget("install", name).code == 0
    text = settings.read_text()
    servers = (tomllib.loads if name == "codex" else json.loads)(text)[client.place]
    words = [servers["nugget"]["command"], *servers["nugget"].get("args", [])]
    words = words[0] if isinstance(words[0], list) else words
    assert Path(words[0]).name == "nugget" and words[1:] == ["serve"] and len(servers) == 2
    assert client.rules is None or client.rules.read_text().startswith(f"My rules.\n\n{BEGIN}\n")
    assert (client.title, "connected: asks the brain") in stated()
    connected = files_in(folder)
    assert "already" in nugget("install", name).out and files_in(folder) == connected
    assert nugget("uninstall", name).code == 0
    after = files_in(folder)
    assert after.pop(settings.name) == before.pop(settings.name) or name != "codex"
    assert after == before and "nugget" not in settings.read_text() and '"x"' in settings.read_text()


@pytest.mark.proves("CLIENTS-REFUSE")
@pytest.mark.parametrize(
    ("name", "text"),
    [("codex", "[mcp_servers\n"), ("cursor", '{"mcpServers": []}'), ("gemini", "// a comment\n{}")],
)
def test_settings_that_cannot_be_understood_are_left_alone(
    name: str, text: str, isolated_home: Path, nugget: Nugget
) -> None:
    client = clients(read_environment(), COMMAND)[name]
    client.settings.parent.mkdir(parents=True)
    client.settings.write_text(text)
    done = nugget("install", name)
    assert done.code == 1 and str(client.settings) in done.err and "nothing was changed" in done.err
    assert files_in(client.settings.parent) == {client.settings.name: text}


@pytest.mark.proves("WATCH")
def test_watch_captures_a_session_that_called_no_hook(brain: Path, home: Path, shared_data: Path) -> None:
    place = Path.home() / ".gemini" / "tmp" / "shop" / "chats"
    place.mkdir(parents=True)
    source = next((shared_data / "transcripts" / "other-agents" / "gemini-cli-entire").rglob("*.json"))
    chat = Path(shutil.copy(source, place / "session-2026-02-06T03-31-abcdef12.json"))
    (home / "queue").mkdir(parents=True)
    (home / "queue/installed").touch()
    os.utime(home / "queue/installed", (1, 1))
    os.utime(chat, (chat.stat().st_mtime - 3600,) * 2)
    variables = {**os.environ, "NUGGET_BRAIN": str(brain), "NUGGET_EMBEDDING_MODEL": "none"}
    with subprocess.Popen([*RUN, "watch"], stdout=subprocess.PIPE, env=variables) as watching:
        try:
            wait_for(lambda: [*(home / "queue").glob("done/*"), *(home / "queue").glob("skipped/*")])
        finally:
            watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 130


@pytest.mark.proves("WATCH")
def test_watch_is_started_at_login(
    isolated_home: Path, tmp_path: Path, nugget: Nugget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("systemctl", "launchctl"):
        program(tmp_path / name, f'echo "$@" >> {tmp_path}/called')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert nugget("watch", "--install").code == 0
    (file,) = isolated_home.rglob("nugget-watch.*")
    assert "watch" in file.read_text() and (tmp_path / "called").exists()
    assert nugget("watch", "--uninstall").code == 0 and not file.exists()
