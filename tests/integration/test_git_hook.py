"""The prepare-commit-msg hook in real repositories: when it writes, what it leaves alone, how it comes and goes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
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
from replay import Agent, git

KEPT = "prepare-commit-msg.before-nugget"


@pytest.fixture(autouse=True, scope="module")
def read_from_disk() -> None:
    """Read the hook's modules once: it gives up after five seconds, and a cold disk may take longer."""
    names = "nugget.commits, nugget.sources.sessions, nugget.extraction.file_changes, nugget.extraction.places"
    subprocess.run([sys.executable, "-c", f"import {names}"], check=True)


@pytest.fixture
def command(tmp_path: Path) -> Path:
    return make_command(tmp_path)


@pytest.fixture
def repo(tmp_path: Path, command: Path) -> Path:
    """A repository with the hook in it."""
    folder = make_shop(tmp_path / "shop")
    done = run(command, folder, "install", "git-hook")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def agent(repo: Path, isolated_home: Path) -> Agent:
    return recent_agent(repo, isolated_home)


def commit(repo: Path, *arguments: str, editor: str = "true", **variables: str) -> subprocess.CompletedProcess[str]:
    """`git commit` as a person runs it."""
    return subprocess.run(
        ["git", "commit", *arguments], cwd=repo, capture_output=True, text=True, timeout=60,
        env=os.environ | {"GIT_EDITOR": editor} | variables,
    )  # fmt: skip


def write_hook(file: Path, text: str, mode: int = 0o755) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


@pytest.mark.proves("HOOK-COMMENTS")
def test_the_message_stands_above_what_git_wrote(repo: Path, agent: Agent, tmp_path: Path) -> None:
    work(agent)
    git(repo, "add", "-A")
    seen = tmp_path / "seen"
    editor = tmp_path / "editor"
    write_hook(editor, f'#!/bin/sh\ncp "$1" {seen}\n')
    assert commit(repo, "-v", editor=str(editor)).returncode == 0
    shown = seen.read_text()
    assert shown.startswith(f"{SUBJECT}\n\nNugget-Session: {agent.session}\n")
    message, _, rest = shown.partition("\n# Please enter the commit message")
    assert "#" not in message and "On branch main" in rest and "diff --git" in rest
    assert last_message(repo).startswith(SUBJECT)
    assert trailer(repo, "Nugget-Attribution") == ["100% agent (claude-code), 0% human (Test Person)"]


@pytest.mark.proves("HOOK-ONLY-EMPTY")
def test_a_message_of_the_persons_is_never_touched(repo: Path, agent: Agent, tmp_path: Path) -> None:
    work(agent)
    git(repo, "add", "-A")
    assert commit(repo, "-m", "my own").returncode == 0
    assert last_message(repo) == "my own"
    assert commit(repo, "--amend").returncode == 0
    assert last_message(repo) == "my own"
    agent.write("src/other.py", CLIENT)
    git(repo, "add", "-A")
    template = tmp_path / "template"
    template.write_text("from a template\n")
    assert commit(repo, "-t", str(template), editor="sh -c 'echo more >> \"$1\"' --").returncode == 0
    assert last_message(repo).startswith("from a template")
    git(repo, "checkout", "-q", "-b", "side", "HEAD~1")
    agent.write("src/third.py", CLIENT)
    git(repo, "add", "-A")
    assert commit(repo, "-m", "side").returncode == 0
    git(repo, "checkout", "-q", "main")
    subprocess.run(["git", "merge", "--no-ff", "side"], cwd=repo, check=True, env=os.environ | {"GIT_EDITOR": "true"},
                   capture_output=True)  # fmt: skip
    assert last_message(repo) == "Merge branch 'side'"
    git(repo, "checkout", "-q", "side")
    git(repo, "rebase", "-q", "main~1")
    assert last_message(repo) == "side"


@pytest.mark.proves("HOOK-NEVER-BLOCKS")
@pytest.mark.parametrize("trouble", ["settings", "gone", "home"])
def test_whatever_fails_in_the_hook_the_commit_goes_on(
    repo: Path, agent: Agent, command: Path, isolated_home: Path, trouble: str
) -> None:
    work(agent)
    git(repo, "add", "-A")
    home = isolated_home / ".nugget"
    if trouble == "settings":
        home.mkdir()
        (home / "config.yaml").write_text("commit: [\n")
    elif trouble == "gone":
        command.unlink()
    else:
        home.write_text("a file where the folder should be")
    done = commit(repo, editor='sh -c \'echo "by hand" >> "$1"\' --')
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert last_message(repo).splitlines()[-1] == "by hand"


@pytest.mark.proves("HOOK-RESTORE", "HOOK-CHAIN")
def test_a_foreign_hook_runs_first_with_its_arguments_and_comes_back_byte_for_byte(
    command: Path, tmp_path: Path, isolated_home: Path
) -> None:
    foreign = '#!/usr/bin/env bash\nset -e\necho "bash $0 $*" >> ran\n# no line end at the end'
    folder = make_shop(tmp_path / "chained")
    hook = folder / ".git/hooks/prepare-commit-msg"
    write_hook(hook, foreign, 0o750)
    assert run(command, folder, "install", "git-hook").returncode == 0
    ours = hook.read_bytes()
    assert run(command, folder, "install", "git-hook").stdout.endswith("nothing to change.\n")
    assert hook.read_bytes() == ours and (hook.parent / KEPT).read_text() == foreign
    work(recent_agent(folder, isolated_home))
    git(folder, "add", "src")
    assert commit(folder).returncode == 0
    assert commit(folder, "--amend").returncode == 0
    first, second = (line.split(" ", 2) for line in (folder / "ran").read_text().splitlines())
    assert first[2] == ".git/COMMIT_EDITMSG" and second[2].startswith(".git/COMMIT_EDITMSG commit HEAD")
    assert last_message(folder).startswith(SUBJECT)
    assert run(command, folder, "uninstall", "git-hook").returncode == 0
    assert hook.read_text() == foreign and stat.S_IMODE(hook.stat().st_mode) == 0o750
    assert not (hook.parent / KEPT).exists()
    assert "nothing to change" in run(command, folder, "uninstall", "git-hook").stdout


@pytest.mark.proves("HOOK-PLACE")
def test_hooks_path_and_worktrees_are_honoured(command: Path, tmp_path: Path, isolated_home: Path) -> None:
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
    git(side, "add", "-A")
    assert commit(side).returncode == 0
    assert trailer(side, "Nugget-Session") == [agent.session]
    assert run(command, side, "uninstall", "git-hook").returncode == 0
    git(folder, "config", "--global", "core.hooksPath", str(tmp_path / "everywhere"))
    told = run(command, folder, "install", "git-hook").stdout
    assert (tmp_path / "everywhere/prepare-commit-msg").exists() and "all repositories" in told
