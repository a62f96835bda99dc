"""Installing into Claude Code and other agents: ours is put in, nothing of theirs touched, all can be had back."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mcp_wire import RUN
from programs import program
from terminals import at_terminal
from waiting import PATIENCE_S, wait_for

from nugget import __version__
from nugget.config import load_settings, read_environment
from nugget.errors import ConflictError, NuggetError
from nugget.infra.files import resource
from nugget.upkeep import client_settings, install
from nugget.upkeep.client_settings import SettingsScope
from nugget.upkeep.doctor import Finding, doctor
from nugget.upkeep.install import BEGIN, RULE, clients, connections

NOTIFY = {"matcher": "", "hooks": [{"type": "command", "command": "notify-send bye"}]}
PERMISSIONS = {"deny": ["Read(./.env)"], "allow": ["Bash(ls:*)", "Read(~/notes/**)"]}
THEIRS = json.dumps(
    {"model": "opus", "hooks": {"SessionEnd": [NOTIFY], "Stop": []}, "permissions": PERMISSIONS, "ünïcode": "é😀"},
    indent=4, ensure_ascii=False,
)  # fmt: skip
SERVERS = '{"numStartups":12,"oauthAccount":{"emailAddress":"me@example.invalid"},"projects":{"/x":{"history":[]}}}'


@pytest.fixture
def settings(isolated_home: Path) -> Path:
    file = isolated_home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(THEIRS, encoding="utf-8")
    return file


@pytest.fixture
def servers(isolated_home: Path) -> Path:
    file = isolated_home / ".claude.json"
    file.write_text(SERVERS)
    return file


def put_in(command: Path, scope: SettingsScope = "user", cwd: Path = Path("/"), **told: bool) -> None:
    client_settings.apply(install.plan_install(scope, read_environment(), command=command, cwd=cwd, **told))


def take_out(scope: SettingsScope = "user", cwd: Path = Path("/")) -> None:
    client_settings.apply(install.plan_uninstall(scope, read_environment(), cwd=cwd))


def value_of(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))


def hook(command: Path) -> dict[str, Any]:
    return {"type": "command", "command": str(command), "args": ["capture-session"], "timeout": 10}


def server(command: Path) -> dict[str, Any]:
    return {"type": "stdio", "command": str(command), "args": ["serve"], "env": {}, "alwaysLoad": True}


@pytest.mark.proves("INSTALL-PARTS")
def test_hooks_server_and_permission_are_put_where_there_was_nothing(command, isolated_home):
    put_in(command)
    assert value_of(isolated_home / ".claude" / "settings.json") == {
        "hooks": {event: [{"hooks": [hook(command)]}] for event in ("SessionEnd", "SessionStart")},
        "permissions": {"allow": [RULE]},
    }
    assert value_of(isolated_home / ".claude.json") == {"mcpServers": {"nugget": server(command)}}
    assert stat.S_IMODE((isolated_home / ".claude.json").stat().st_mode) == 0o600
    take_out()
    assert not (isolated_home / ".claude" / "settings.json").exists() and not (isolated_home / ".claude.json").exists()


@pytest.mark.proves("INSTALL-MERGE")
def test_only_our_entries_change_and_order_and_indent_stay(command, settings, servers):
    put_in(command)
    remaining = iter(settings.read_text("utf-8"))
    assert all(character in remaining for character in THEIRS), "only insertions"
    merged = value_of(settings)
    assert merged["hooks"]["SessionEnd"] == [NOTIFY, {"hooks": [hook(command)]}]
    assert merged["permissions"] == {**PERMISSIONS, "allow": [*PERMISSIONS["allow"], RULE]}
    assert servers.read_text().startswith(SERVERS[:-1] + ',"mcpServers":{"nugget":{"type":"stdio"')


@pytest.mark.proves("INSTALL-SCOPES")
def test_a_project_gets_its_own_files_at_the_root_of_its_repository(command, tmp_path, isolated_home):
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    put_in(command, "project", project / "src")
    assert value_of(project / ".mcp.json") == {"mcpServers": {"nugget": server(command)}}
    assert value_of(project / ".claude" / "settings.json")["permissions"]["allow"] == [RULE]
    assert not (isolated_home / ".claude").exists()
    take_out("project", project)
    assert not (project / ".mcp.json").exists()


@pytest.mark.proves("INSTALL-IDEMPOTENT", "INSTALL-UNDO")
def test_entries_of_an_older_installation_are_brought_up_to_date_and_not_doubled(command, tmp_path, settings, servers):
    shell = {"type": "command", "command": "/old/bin/nugget capture-session"}
    settings.write_text(json.dumps({
        "hooks": {"SessionEnd": [{"hooks": [shell, {"type": "command", "command": "other"}]}, {"hooks": [shell]}]},
        "permissions": {"allow": ["mcp__nugget"]},
    }))  # fmt: skip
    servers.write_text(json.dumps({"mcpServers": {"nugget": {
        "command": "nugget", "args": ["--brain", "/b", "serve"], "env": {"NUGGET_HOME": "/h"},
    }}}))  # fmt: skip
    put_in(command)
    (group,) = value_of(settings)["hooks"]["SessionEnd"]
    assert group["hooks"] == [hook(command), {"type": "command", "command": "other"}]
    kept = {"args": ["--brain", "/b", "serve"], "env": {"NUGGET_HOME": "/h"}}
    assert value_of(servers)["mcpServers"]["nugget"] == server(command) | kept
    moved = tmp_path / "elsewhere" / "nugget"
    put_in(moved)
    assert str(command) not in settings.read_text() and settings.read_text().count(str(moved)) == 2
    take_out()
    assert not servers.exists(), "a file with nothing else in it goes"


@pytest.mark.proves("INSTALL-REFUSE")
def test_settings_that_make_no_sense_are_refused_and_left_alone(command, settings, servers):
    for content, said in (
        (b'{"hooks": {},}', "not valid JSON: line 1"), (b'{"permissions": null}', "permissions"),
        (b'{"hooks": {"SessionEnd": {}}}', "`hooks.SessionEnd`"), (b"\xff\xfe{\x00}\x00", "UTF-8"),
    ):  # fmt: skip
        settings.write_bytes(content)
        with pytest.raises(NuggetError, match=said) as refused:
            put_in(command)
        assert str(settings) in str(refused.value)
        assert settings.read_bytes() == content and servers.read_text() == SERVERS


@pytest.mark.proves("INSTALL-WRITE")
def test_a_file_that_changes_meanwhile_is_not_written_and_the_others_are_put_back(command, settings, servers):
    changes = install.plan_install("user", read_environment(), command=command, cwd=Path("/"))
    servers.write_text('{"numStartups":13}')
    with pytest.raises(ConflictError, match="changed since"):
        client_settings.apply(changes)
    assert settings.read_text("utf-8") == THEIRS and servers.read_text() == '{"numStartups":13}'


@pytest.mark.proves("BRIEF-INSTALL", "BRIEF-OFF")
def test_sessions_are_told_something_only_if_it_was_asked_for(command, settings):
    plain, events = ["capture-session"], ("SessionEnd", "SessionStart", "UserPromptSubmit")
    both = dict(zip(events, (plain, [*plain, "--brief"], [*plain, "--recall"]), strict=True))

    def told(**options: bool) -> dict[str, list[str]]:
        put_in(command, **options)
        groups = ((event, group) for event, found in value_of(settings)["hooks"].items() for group in found)
        entries = [(event, entry) for event, group in groups for entry in group["hooks"]]
        return {event: entry["args"] for event, entry in entries if entry["command"] == str(command)}

    assert told() == {"SessionEnd": plain, "SessionStart": plain}
    assert told(brief=True, recall=True) == both == told(), "an installation that says nothing of it leaves it"
    assert next(install.connections(read_environment(), Path("/")))[0] == "ok"
    assert told(recall=False) == {event: both[event] for event in events[:2]}
    assert told(brief=False) == {"SessionEnd": plain, "SessionStart": [*plain, "--no-brief"]} == told()
    put_in(command, brief=True, recall=True)
    take_out()
    assert settings.read_text("utf-8") == THEIRS


@pytest.mark.proves("INSTALL-DRY-RUN")
def test_a_dry_run_prints_a_diff_and_writes_nothing(settings, isolated_home, nugget):
    before = sorted(isolated_home.rglob("*"))
    shown = nugget("install", "claude-code", "--dry-run").out
    assert f"--- {settings}\n+++ {settings}\n@@ " in shown and "--- /dev/null" in shown and RULE in shown
    assert sorted(isolated_home.rglob("*")) == before and settings.read_text("utf-8") == THEIRS


@pytest.mark.proves("INSTALL-OFFER", "INSTALL-CLAUDE")
def test_init_offers_it_at_a_terminal(command, tmp_path, isolated_home):
    shutil.copy(command, command.with_name("claude"))
    path = {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    shown = at_terminal([str(command), "init", str(tmp_path / "b")], os.environ | path, typed=b"y\nn\n", columns=200)
    assert "Connect Claude Code now" in shown and "May Nugget use it (recommended)?" in shown
    assert (isolated_home / ".claude" / "settings.json").exists() and "let Claude Code ask" not in shown
    assert load_settings(read_environment()).extraction_use_claude is False
    assert "May Nugget" not in at_terminal([str(command), "install"], os.environ | path, typed=b"\n"), "it asks once"


def finding(brain: Path) -> Finding:
    environment = read_environment()
    found = doctor(brain, load_settings(environment, brain), environment, now=datetime.now(UTC))
    return next(entry for entry in found if entry["name"] == "Claude Code")


@pytest.mark.proves("INSTALL-DOCTOR")
def test_doctor_sees_what_is_missing_outdated_and_broken(brain, command, isolated_home, monkeypatch):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    assert "not on this machine" in finding(brain)["said"]
    settings = isolated_home / ".claude" / "settings.json"
    settings.parent.mkdir()
    assert (finding(brain)["state"], finding(brain)["next_step"]) == ("warning", "nugget install")
    put_in(command)
    assert finding(brain)["state"] == "ok"
    whole = settings.read_text()
    settings.write_text(whole.replace(RULE, "Other").replace('"timeout": 10', '"x": 1'))
    assert finding(brain)["state"] == "warning" and "missing or outdated" in finding(brain)["said"]
    settings.write_text(whole)
    command.unlink()
    assert finding(brain)["state"] == "error" and f"{command}, which does not exist" in finding(brain)["said"]


@pytest.mark.proves("INSTALL-PLUGIN")
def test_the_plugin_says_the_same_as_the_installation(command, isolated_home):
    plugin = resource("plugin")
    put_in(command)

    def as_installed(file: str) -> Any:
        return json.loads((isolated_home / file).read_text("utf-8").replace(str(command), "nugget"))

    text = (plugin / "hooks" / "hooks.json").read_text("utf-8")
    text = text.replace('"sh", "args": ["${CLAUDE_PLUGIN_ROOT}/hooks/nugget", ', '"nugget", "args": [')
    hooks = json.loads(text)["hooks"]
    asks = hooks.pop("UserPromptSubmit")  # a plugin cannot be installed with a choice: it is silent until told to speak
    assert hooks == as_installed(".claude/settings.json")["hooks"] and asks == hooks["SessionStart"]
    assert value_of(plugin / ".mcp.json") == as_installed(".claude.json")
    assert value_of(plugin / ".claude-plugin" / "plugin.json")["version"] == __version__
    assert "get_relevant_context" in (plugin / "skills" / "recall" / "SKILL.md").read_text("utf-8")


@pytest.mark.proves("PLUGIN-ALONE")
def test_a_plugin_without_the_command_says_how_to_get_it_and_fails_no_hook():
    hook = ["/bin/sh", str(resource("plugin") / "hooks" / "nugget"), "capture-session"]
    for event in ("SessionStart", "SessionEnd", "UserPromptSubmit"):
        payload = json.dumps({"hook_event_name": event})
        done = subprocess.run(hook, input=payload, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert (done.returncode, done.stderr, bool(done.stdout)) == (0, "", event == "SessionStart")
        assert not done.stdout or "Nugget is not installed" in json.loads(done.stdout)["systemMessage"]


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
def test_an_agent_gets_the_server_and_a_paragraph_and_loses_nothing_else(name, isolated_home, nugget):
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
    servers = (tomllib.loads if name == "codex" else json.loads)(settings.read_text())[client.place]
    words = [servers["nugget"]["command"], *servers["nugget"].get("args", [])]
    words = words[0] if isinstance(words[0], list) else words
    assert Path(words[0]).name == "nugget" and words[1:] == ["serve"] and len(servers) == 2
    assert client.rules is None or client.rules.read_text().startswith(f"My rules.\n\n{BEGIN}\n")
    assert (client.title, "connected: asks the brain") in stated()
    assert "already" in nugget("install", name).out and files_in(folder) == files_in(folder)
    assert nugget("uninstall", name).code == 0
    after = files_in(folder)
    assert after.pop(settings.name) == before.pop(settings.name) or name != "codex"
    assert after == before and "nugget" not in settings.read_text() and '"x"' in settings.read_text()


@pytest.mark.proves("CLIENTS-REFUSE")
@pytest.mark.parametrize(
    ("name", "text"), [("codex", "[mcp_servers\n"), ("cursor", '{"mcpServers": []}'), ("gemini", "// a comment\n{}")]
)
def test_settings_that_cannot_be_understood_are_left_alone(name, text, isolated_home, nugget):
    for client in (known := clients(read_environment(), COMMAND)).values():
        client.settings.parent.mkdir(parents=True, exist_ok=True)
    (settings := known[name].settings).write_text(text)
    done = nugget("install", "--all")
    assert done.code == 1 and str(settings) in done.err and done.out.count("is connected") == len(known) - 1
    assert files_in(settings.parent)[settings.name] == text


@pytest.mark.proves("WATCH")
def test_watch_captures_a_session_that_called_no_hook(brain, home, shared_data):
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
def test_watch_is_started_at_login(isolated_home, tmp_path, nugget, monkeypatch):
    for name in ("systemctl", "launchctl"):
        program(tmp_path / name, f'echo "$@" >> {tmp_path}/called; echo "No bus." >&2; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = nugget("watch", "--install").out
    assert "` failed: No bus. Run it yourself.\n" in told and told.endswith("start `nugget watch` at each login.\n")
    (file,) = isolated_home.rglob("nugget-watch.*")
    assert "watch" in file.read_text() and (tmp_path / "called").exists()
    assert f"Would remove {file}\n" in nugget("uninstall", "--all", "--dry-run").out and file.exists()
    assert nugget("uninstall", "--all").code == 0 and not file.exists()
