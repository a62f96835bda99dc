"""The way through the `claude` command: a stand-in executable for every case, and the real client where it is there."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from llm_calls import MODEL, SCHEMA, TOKEN, ask

from nugget.config import Environment, Settings, read_environment
from nugget.errors import LLMUnavailable
from nugget.infra.llm import LLM, open_extractor
from nugget.infra.llm.others import ClaudeCli

BY_COMMAND = Settings(extraction_with="claude-code")

STAND_IN = """#!{python}
import json, os, pathlib, sys, time
folder = pathlib.Path({folder!r})
(folder / "seen.json").write_text(json.dumps(
    {{"argv": sys.argv[1:], "stdin": sys.stdin.read(), "cwd": os.getcwd(), "env": dict(os.environ)}}))
exec((folder / "behave.py").read_text())
"""


RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "stop_reason": "tool_use", "total_cost_usd": 0.0125,
    "usage": {"input_tokens": 1000, "output_tokens": 200}, "result": '{"count": 3}', "structured_output": {"count": 3},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder on the PATH with a `claude` that does what behave.py in it says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "claude"
    command.write_text(STAND_IN.format(python=sys.executable, folder=str(folder)))
    command.chmod(0o755)
    (folder / "behave.py").write_text(f"print({json.dumps(RESULT)!r})")
    return folder


@pytest.fixture
def environment(folder: Path, tmp_path: Path) -> Environment:
    return read_environment({"HOME": str(tmp_path / "home"), "PATH": f"{folder}:/usr/bin:/bin"})


def extractor(environment: Environment) -> ClaudeCli:
    return cast("ClaudeCli", open_extractor(BY_COMMAND, environment))


@pytest.mark.proves("LLM-COMMAND")
def test_the_command_is_used_only_when_asked_for_or_agreed_to(environment, folder):
    agreed = Settings(extraction_use_claude=True)
    with_key = replace(environment, anthropic_api_key="sk-x")
    assert open_extractor(Settings(), environment) is None, "no key, and the command was not agreed to"
    assert type(open_extractor(Settings(), with_key)) is LLM
    assert type(open_extractor(agreed, with_key)) is ClaudeCli
    assert open_extractor(agreed, with_key, "offline") is None
    assert open_extractor(replace(BY_COMMAND, llm_enabled=False), environment) is None
    inside = replace(environment, variables={**environment.variables, "NUGGET_INSIDE": "1"})
    assert open_extractor(agreed, inside) is None, "inside a session of Nugget's own"
    (folder / "claude").unlink()
    assert open_extractor(agreed, environment) is None
    assert type(open_extractor(agreed, with_key)) is LLM


@pytest.mark.proves("LLM-COMMAND")
def test_the_command_runs_without_tools_hooks_memory_or_a_saved_session(environment, folder):
    reply = ask(extractor(environment), prompt=f"how many? {TOKEN} <private>diary</private>")
    assert (reply.value, reply.usd) == ({"count": 3}, 0.0125)
    seen = json.loads((folder / "seen.json").read_text())
    argv = seen["argv"]
    for switch in ("--print", "--safe-mode", "--strict-mcp-config", "--no-session-persistence"):
        assert switch in argv
    assert argv[argv.index("--tools") + 1] == "" and argv[argv.index("--setting-sources") + 1] == ""
    assert argv[argv.index("--model") + 1] == MODEL
    assert argv[argv.index("--max-budget-usd") + 1] == "1.0000"
    assert json.loads(argv[argv.index("--json-schema") + 1]) == SCHEMA
    assert "how many?" in seen["stdin"] and "how many?" not in " ".join(argv), "what was said is in no process list"
    assert TOKEN not in seen["stdin"] and "diary" not in seen["stdin"]


@pytest.mark.proves("LLM-COMMAND-GUARD")
def test_what_nugget_starts_knows_it_and_starts_no_other(environment, folder):
    around = {
        "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "x", "CLAUDE_CODE_CHILD_SESSION": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli", "CLAUDE_CODE_OAUTH_TOKEN": "oauth", "CLAUDE_CONFIG_DIR": "/srv/claude",
    }  # fmt: skip
    ask(extractor(replace(environment, variables={**environment.variables, **around})))
    seen = json.loads((folder / "seen.json").read_text())
    assert (seen["env"]["NUGGET_INSIDE"], seen["env"]["NUGGET_CAPTURING"]) == ("1", "1")
    assert not {"CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_CHILD_SESSION"} & seen["env"].keys()
    assert seen["env"]["CLAUDE_CODE_OAUTH_TOKEN"] == "oauth" and seen["env"]["CLAUDE_CONFIG_DIR"] == "/srv/claude"
    assert Path(seen["cwd"]).is_relative_to(environment.home.resolve()), "sessions in there are never captured"
    (folder / "seen.json").unlink()
    with pytest.raises(LLMUnavailable, match="starts no other"):
        ask(extractor(replace(environment, variables=seen["env"])))
    assert not (folder / "seen.json").exists()
