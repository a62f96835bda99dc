"""`nugget commit` and the prepare-commit-msg hook on real repositories: what they write, and what they leave alone."""

import os
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from commit_stage import CLIENT, SUBJECT, last_message, make_shop, recent_agent, run, trailer, work
from loopback_anthropic import AnthropicServer, status, value
from programs import program
from replay import Agent, change_by_hand, git


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_shop(tmp_path / "shop")


@pytest.fixture
def agent(repo: Path, isolated_home: Path) -> Agent:
    return recent_agent(repo, isolated_home)


@pytest.mark.proves("COM-MATCH", "COM-TRAILERS", "COM-HUMAN", "COM-FACES")
def test_auto_commits_with_session_attribution_and_co_author(command, repo, agent):
    work(agent)
    change_by_hand(repo, "src/client.py", CLIENT.replace("range(3)", "range(5)"))
    git(repo, "add", "-A")
    done = run(command, repo, "commit", "--auto")
    assert done.returncode == 0, done.stderr
    assert last_message(repo).splitlines()[0] == SUBJECT
    assert trailer(repo, "Nugget-Session") == [agent.session]
    assert trailer(repo, "Nugget-Attribution") == ["88% agent (claude-code), 12% human (Test Person)"]
    assert trailer(repo, "Co-authored-by") == ["Claude <noreply@anthropic.com>"]
    assert git(repo, "status", "--porcelain") == "" and not (repo / ".git/NUGGET_EDITMSG").exists()


@pytest.mark.proves("COM-FACES")
def test_dry_run_prints_and_commits_nothing_and_the_editor_has_the_last_word(command, repo, agent, tmp_path):
    work(agent)
    git(repo, "update-index", "--cacheinfo", f"120000,{git(repo, 'rev-parse', 'HEAD:README.md').strip()},README.md")
    shown = run(command, repo, "commit", "--dry-run", "--offline")
    assert shown.stdout.startswith("feat(client): add a") and "T\tREADME" in git(repo, "diff", "--cached", "--raw")
    editor = program(tmp_path / "editor", "sed -i '1s/.*/feat: my own words/' \"$1\"")
    refused = run(command, repo, "commit", GIT_EDITOR="false")
    assert refused.returncode == 1 and "Nothing was committed" in refused.stderr
    assert (repo / ".git/NUGGET_EDITMSG").read_text().startswith("feat(client)")
    done = run(command, repo / "src", "commit", GIT_EDITOR=str(editor))
    assert done.returncode == 0, done.stderr
    assert last_message(repo).startswith("feat: my own words\n") and trailer(repo, "Nugget-Session") == [agent.session]


@pytest.mark.proves("COM-REFUSE")
def test_what_cannot_be_committed_is_said_in_one_sentence(command, repo, tmp_path):
    def refusal(folder: Path) -> str:
        done = run(command, folder, "commit", "--auto", "--offline")
        assert done.returncode == 1 and "Traceback" not in done.stderr
        return done.stderr

    assert "is not in a git repository" in refusal(tmp_path)
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    assert "bare repository" in refusal(tmp_path / "bare.git") and "Nothing is staged" in refusal(repo)
    change_by_hand(repo, "a.txt", "main\n", at=datetime.now(UTC))
    git(repo, "checkout", "-q", "-b", "side", "HEAD~1")
    change_by_hand(repo, "a.txt", "side\n", at=datetime.now(UTC))
    run(Path("git"), repo, "merge", "main")
    assert "Nothing is staged" in refusal(repo)  # but a conflict
    git(repo, "add", "-A")
    assert "under way: git has a message for it" in refusal(repo)


@pytest.mark.proves("COM-SECRETS")
def test_no_secret_of_a_session_gets_into_a_message(command, repo, agent):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    agent.prompt(f"add the token {secret} to the client")
    agent.write("src/client.py", CLIENT)
    git(repo, "add", "-A")
    shown = run(command, repo, "commit", "--dry-run", "--offline").stdout
    assert shown.startswith("feat(client): add the token") and secret not in shown


@pytest.mark.proves("COM-LLM")
def test_with_a_key_a_model_words_the_message_and_rules_do_where_it_fails(command, repo, agent):
    work(agent)
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


KEPT = "prepare-commit-msg.before-nugget"


@pytest.fixture
def hooked(repo: Path, command: Path) -> Path:
    """The repository with the hook in it."""
    done = run(command, repo, "install", "git-hook")
    assert done.returncode == 0, done.stderr
    return repo


def commit(folder: Path, *arguments: str, editor: str = "true") -> subprocess.CompletedProcess[str]:
    """`git commit` as a person runs it; again where a busy machine took the hook longer than its five seconds."""
    editing, log = os.environ | {"GIT_EDITOR": editor}, Path.home() / ".nugget/log/hook.log"
    for _ in range(6):
        log.unlink(missing_ok=True)
        done = subprocess.run(["git", "commit", *arguments], cwd=folder, capture_output=True, text=True, env=editing)
        if done.returncode == 0 or not log.exists() or "TimeoutError" not in log.read_text():
            break
    return done


@pytest.mark.proves("HOOK-COMMENTS")
@pytest.mark.parametrize("mark", "#;")
def test_the_message_stands_above_what_git_wrote(hooked, agent, tmp_path, mark):
    work(agent)
    git(hooked, "config", "core.commentChar", mark)
    seen = tmp_path / "seen"
    assert commit(hooked, "-v", editor=str(program(tmp_path / "editor", f'cp "$1" {seen}'))).returncode == 0
    shown = seen.read_text()
    assert shown.startswith(f"{SUBJECT}\n\nNugget-Session: {agent.session}\n")
    message, _, rest = shown.partition(f"\n{mark} Please enter the commit message")
    assert mark not in message and "On branch main" in rest and "diff --git" in rest
    assert last_message(hooked).startswith(SUBJECT)
    assert trailer(hooked, "Nugget-Attribution") == ["100% agent (claude-code), 0% human (Test Person)"]


@pytest.mark.proves("HOOK-ONLY-EMPTY")
def test_a_message_of_the_persons_is_never_touched(hooked, agent, tmp_path):
    work(agent)
    assert commit(hooked, "-m", "my own").returncode == 0 and last_message(hooked) == "my own"
    assert commit(hooked, "--amend").returncode == 0 and last_message(hooked) == "my own"
    agent.write("src/other.py", CLIENT)
    git(hooked, "add", "-A")
    template = tmp_path / "template"
    template.write_text("from a template\n")
    assert commit(hooked, "-t", str(template), editor="sh -c 'echo more >> \"$1\"' --").returncode == 0
    assert last_message(hooked).startswith("from a template")
    git(hooked, "checkout", "-q", "-b", "side", "HEAD~1")
    agent.write("src/third.py", CLIENT)
    git(hooked, "add", "-A")
    assert commit(hooked, "-m", "side").returncode == 0
    git(hooked, "checkout", "-q", "main")
    git(hooked, "-c", "core.editor=true", "merge", "--no-ff", "side")
    assert last_message(hooked) == "Merge branch 'side'"
    git(hooked, "checkout", "-q", "-b", "again", "HEAD~1")
    git(hooked, "merge", "-q", "--squash", "side")
    assert commit(hooked).returncode == 0 and last_message(hooked).startswith("Squashed commit")
    git(hooked, "checkout", "-q", "side")
    git(hooked, "rebase", "-q", "main~1")
    assert last_message(hooked) == "side"


@pytest.mark.proves("HOOK-NEVER-BLOCKS")
@pytest.mark.parametrize("trouble", ["settings", "gone"])
def test_whatever_fails_in_the_hook_the_commit_goes_on(hooked, agent, command, isolated_home, trouble):
    work(agent)
    if trouble == "settings":
        (isolated_home / ".nugget").mkdir()
        (isolated_home / ".nugget/config.yaml").write_text("commit: [\n")
    else:
        command.unlink()
    done = commit(hooked, editor='sh -c \'echo "by hand" >> "$1"\' --')
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert last_message(hooked).splitlines()[-1] == "by hand"


@pytest.mark.proves("HOOK-RESTORE", "HOOK-CHAIN")
def test_a_foreign_hook_runs_first_with_its_arguments_and_comes_back_byte_for_byte(command, tmp_path, isolated_home):
    foreign = '#!/usr/bin/env bash\nset -e\necho "bash $0 $*" >> ran\n# no line end at the end'
    folder = make_shop(tmp_path / "chained")
    hook = folder / ".git/hooks/prepare-commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(foreign)
    hook.chmod(0o750)
    assert run(command, folder, "install", "git-hook").returncode == 0
    ours = hook.read_bytes()
    assert run(command, folder, "install", "git-hook").stdout.endswith("nothing to change.\n")
    assert "is not in a git repository." in run(command, folder.parent, "install", "git-hook").stderr
    assert hook.read_bytes() == ours and (hook.parent / KEPT).read_text() == foreign
    work(recent_agent(folder, isolated_home))
    assert commit(folder).returncode == 0 and commit(folder, "--amend").returncode == 0
    first, second = (line.split(" ", 2) for line in (folder / "ran").read_text().splitlines())
    assert first[2] == ".git/COMMIT_EDITMSG" and second[2].startswith(".git/COMMIT_EDITMSG commit HEAD")
    assert last_message(folder).startswith(SUBJECT)
    assert run(command, folder, "uninstall", "git-hook").returncode == 0
    assert hook.read_text() == foreign and stat.S_IMODE(hook.stat().st_mode) == 0o750
    assert not (hook.parent / KEPT).exists()
    assert "nothing to change" in run(command, folder, "uninstall", "git-hook").stdout


@pytest.mark.proves("HOOK-PLACE")
def test_hooks_path_and_worktrees_are_honoured(command, tmp_path, isolated_home):
    folder = make_shop(tmp_path / "husky")
    git(folder, "config", "core.hooksPath", ".husky")
    assert run(command, folder, "install", "git-hook").returncode == 0
    assert (folder / ".husky/prepare-commit-msg").exists()
    git(folder, "config", "--unset", "core.hooksPath")
    side = tmp_path / "side"
    git(folder, "worktree", "add", "-q", str(side), "-b", "side")
    assert run(command, side, "install", "git-hook").returncode == 0
    assert (folder / ".git/hooks/prepare-commit-msg").exists()
    agent = recent_agent(side, isolated_home)
    work(agent)
    assert commit(side).returncode == 0 and trailer(side, "Nugget-Session") == [agent.session]
    assert run(command, side, "uninstall", "git-hook").returncode == 0
    git(folder, "config", "--global", "core.hooksPath", str(tmp_path / "everywhere"))
    told = run(command, folder, "install", "git-hook").stdout
    assert (tmp_path / "everywhere/prepare-commit-msg").exists() and "all repositories" in told
