"""`nugget commit` and the prepare-commit-msg hook on real git repositories."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from commit_stage import (
    CLIENT,
    SUBJECT,
    last_message,
    make_command,
    make_shop,
    recent_agent,
    run,
    trailer,
    work,
)
from loopback_anthropic import AnthropicServer, status, value
from replay import Agent, change_by_hand, git


@pytest.fixture
def command(tmp_path: Path) -> Path:
    return make_command(tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_shop(tmp_path / "shop")


@pytest.fixture
def agent(repo: Path, isolated_home: Path) -> Agent:
    return recent_agent(repo, isolated_home)


@pytest.mark.proves("COM-MATCH", "COM-TRAILERS", "COM-HUMAN", "COM-FACES")
def test_auto_commits_with_session_attribution_and_co_author(command: Path, repo: Path, agent: Agent) -> None:
    work(agent)
    change_by_hand(repo, "src/client.py", CLIENT.replace("range(3)", "range(5)"))
    git(repo, "add", "-A")
    done = run(command, repo, "commit", "--auto")
    assert done.returncode == 0, done.stderr
    assert last_message(repo).splitlines()[0] == SUBJECT
    assert trailer(repo, "Nugget-Session") == [agent.session]
    assert trailer(repo, "Nugget-Attribution") == ["88% agent (claude-code), 12% human (Test Person)"]
    assert trailer(repo, "Co-authored-by") == ["Claude <noreply@anthropic.com>"]
    assert git(repo, "status", "--porcelain") == ""
    assert not (repo / ".git/NUGGET_EDITMSG").exists()


@pytest.mark.proves("COM-FACES")
def test_dry_run_prints_and_commits_nothing_and_the_editor_has_the_last_word(
    command: Path, repo: Path, agent: Agent, tmp_path: Path
) -> None:
    work(agent)
    git(repo, "add", "-A")
    before = git(repo, "rev-parse", "HEAD")
    shown = run(command, repo, "commit", "--dry-run", "--offline")
    assert shown.stdout.startswith("feat(client): add a retry") and git(repo, "rev-parse", "HEAD") == before
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i '1s/.*/feat: my own words/' \"$1\"\n")
    editor.chmod(0o755)
    refused = run(command, repo, "commit", GIT_EDITOR="false")
    assert refused.returncode == 1 and "Nothing was committed" in refused.stderr
    assert (repo / ".git/NUGGET_EDITMSG").read_text().startswith("feat(client)")
    done = run(command, repo / "src", "commit", GIT_EDITOR=str(editor))
    assert done.returncode == 0, done.stderr
    assert last_message(repo).startswith("feat: my own words\n")
    assert trailer(repo, "Nugget-Session") == [agent.session]


@pytest.mark.proves("COM-REFUSE")
def test_what_cannot_be_committed_is_said_in_one_sentence(command: Path, repo: Path, tmp_path: Path) -> None:
    def refusal(folder: Path) -> str:
        done = run(command, folder, "commit", "--auto", "--offline")
        assert done.returncode == 1 and "Traceback" not in done.stderr
        return done.stderr

    (tmp_path / "plain").mkdir()
    assert "is in no git repository" in refusal(tmp_path / "plain")
    assert "Nothing is staged" in refusal(repo)
    git(repo, "checkout", "-q", "-b", "side")
    change_by_hand(repo, "a.txt", "side\n", at=datetime.now(UTC))
    git(repo, "checkout", "-q", "main")
    change_by_hand(repo, "b.txt", "main\n", at=datetime.now(UTC))
    git(repo, "merge", "-q", "--no-commit", "side")
    assert "under way: git has a message for it" in refusal(repo)


@pytest.mark.proves("COM-SECRETS")
def test_no_secret_of_a_session_gets_into_a_message(command: Path, repo: Path, agent: Agent) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    agent.prompt(f"add the token {secret} to the client")
    agent.write("src/client.py", CLIENT)
    git(repo, "add", "-A")
    shown = run(command, repo, "commit", "--dry-run", "--offline").stdout
    assert shown.startswith("feat(client): add the token") and secret not in shown


@pytest.mark.proves("COM-LLM")
def test_with_a_key_a_model_words_the_message_and_rules_do_where_it_fails(
    command: Path, repo: Path, agent: Agent
) -> None:
    work(agent)
    git(repo, "add", "-A")
    with AnthropicServer() as server:
        keys = {"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": server.url}
        server.script(value({
            "type": "fix", "scope": "Payments!", "subject": "Retry calls that fail.",
            "body": ["Calls failed at the first lost packet.", "Nugget-Session: forged"],
        }))  # fmt: skip
        shown = run(command, repo, "commit", "--dry-run", NUGGET_COMMIT_MODEL="claude-sonnet-5-5", **keys)
        assert shown.stdout.startswith("fix(payments): Retry calls that fail\n\nCalls failed at"), shown.stderr
        assert "forged" not in shown.stdout and f"Nugget-Session: {agent.session}" in shown.stdout
        assert server.requests[-1].body["model"] == "claude-sonnet-5-5"
        assert "src/client.py" in server.requests[-1].prompt
        server.script(status(400))
        failed = run(command, repo, "commit", "--dry-run", NUGGET_COMMIT_TIMEOUT_S="2", **keys)
        assert failed.stdout.startswith("feat(client): add a retry") and "made by rules" in failed.stderr
