"""A cloned or unpacked folder is data: no command of Nugget runs a program that its git configuration names."""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from commit_stage import make_shop, recent_agent, work
from hostile_repository import Traps, plant
from mcp_wire import asked_over_mcp
from programs import program
from replay import git as plain_git

from nugget.errors import GitError, NuggetError
from nugget.infra import git, remotes

READING = (
    ("status",), ("doctor",), ("sync",), ("lint",), ("ask", "--no-llm", "how are payments retried"),
    ("search", "payment client"), ("suggest",), ("extract", "--with", "offline"), ("context", "src/client.py"),
    ("context", "src/client.py", "--symbol", "call"), ("coverage", "--gaps"), ("nuggets", "--check"), ("sessions",),
    ("commit", "--dry-run", "--offline"), ("commit", "--hook", "MESSAGE"), ("review", "list"), ("logs", "context"),
    ("brief",), ("recall", "how are payments retried"),
)  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path, isolated_home: Path) -> Path:
    """A repository with a session that worked in it, staged and changed files; it is a brain too."""
    repo = make_shop(tmp_path / "shop")
    for path, text in {
        "brain.yaml": "owner: somebody\n",
        "pyproject.toml": "[project]\nname = 'shop'\n",
        "domains/coding/retry.md": "---\ntitle: Retry payments\ntype: decision\n---\n\nPayments are retried twice.\n",
    }.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(text)
    plain_git(repo, "add", "-A")
    plain_git(repo, "commit", "-qm", "Add a brain")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----\n"
    head, _, body = plain_git(repo, "cat-file", "commit", "HEAD").partition("\n\n")
    signed = subprocess.run(
        ["git", "-C", repo, "hash-object", "-t", "commit", "-w", "--stdin"], input=f"{head}\n{signature}\n{body}\n",
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    plain_git(repo, "update-ref", "HEAD", signed.stdout.strip())
    work(recent_agent(repo, isolated_home))
    plain_git(repo, "add", "src")
    for path in ("README.md", "brain.yaml", "pyproject.toml", "domains/coding/retry.md"):
        (repo / path).write_text((repo / path).read_text() + "\n")  # git has to look into it, and to filter it
    return repo


@pytest.fixture
def traps(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traps:
    """The traps in the repository, in which the commands run, and which is the brain."""
    monkeypatch.chdir(shop)
    monkeypatch.setenv("NUGGET_BRAIN", str(shop))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    (shop / "MESSAGE").write_text("")
    return plant(shop, tmp_path / "traps")


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_no_reading_command_runs_what_a_folders_git_configuration_names(shop, traps, nugget):
    for command in READING:
        nugget(*command)
        assert traps.sprung == set(), command
    assert "domains/coding/retry.md" in git.uncommitted_paths(shop), "git looked into the files"


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_starting_the_mcp_server_and_asking_it_runs_nothing_of_the_folder(traps):
    asked_over_mcp(query="payments", path="src/client.py")
    assert traps.sprung == set()


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_writing_into_a_repository_runs_no_program_of_its_configuration(shop, traps):
    for write in (
        lambda: git.commit_change(shop, {"README.md": b"x"}, "Change", branch="main", expect_head=git.head(shop)),
        lambda: git.run(shop, "add", "-A"),
        lambda: git.run(shop, "stash"),
        lambda: git.run(shop, "fetch", "origin"),
    ):
        with suppress(NuggetError):
            write()
    assert traps.sprung == set()


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_credential_helpers_and_ssh_are_the_users_own_and_not_those_of_the_brain(shop, traps, isolated_home):
    plain_git(shop, "config", "--global", "core.sshCommand", str(traps.program("my-ssh")))
    plain_git(shop, "config", "--unset-all", "url.ext::" + str(traps.folder) + "/address .insteadOf")
    plain_git(shop, "config", "remote.origin.url", "git@example.invalid:a/b.git")
    with pytest.raises(GitError):
        remotes.default_branch(shop, remotes.Remote(name="origin", url="git@example.invalid:a/b.git"))
    assert traps.sprung == {"my-ssh"}


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_a_missing_object_is_not_fetched(shop, traps):
    blob = plain_git(shop, "rev-parse", "HEAD:README.md").strip()
    for key, value in (("extensions.partialClone", "origin"), ("remote.origin.promisor", "true")):
        plain_git(shop, "config", key, value)
    (shop / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert git.read_blob(shop, "HEAD", "README.md") is None and traps.sprung == set()


@pytest.mark.proves("GIT-NO-PROGRAMS", "BRAIN-CONTAINED")
def test_a_change_that_came_with_the_folder_writes_and_deletes_nothing_outside(shop, tmp_path, nugget, monkeypatch):
    monkeypatch.setenv("NUGGET_BRAIN", str(shop))
    work, profile, tip = shop / ".git/nugget/work", tmp_path / "profile", git.head(shop)
    profile.write_text("mine")
    evil = b"100644 blob %s\tevil\n" % git.run(shop, "hash-object", "-w", "--stdin", stdin=b"evil").strip()
    up = b"040000 tree %s\t..\n" % git.run(shop, "mktree", stdin=evil).strip()
    tree = git.run(shop, "mktree", stdin=git.run(shop, "ls-tree", tip) + up).decode().strip()
    out = plain_git(shop, "commit-tree", tree, "-p", tip, "-m", "Leave the folder").strip()
    plain_git(shop, "update-ref", "refs/heads/main", out)
    change, lines = ["refs/heads/main", out], [["/", str(profile), {"a": "$(evil)"}], [str(profile), {"a": "$(evil)"}]]
    for intent in ([[[*change, tip]], False, lines], [[[*change, f"--output={profile}"]], True, []],
                   [[[*change, tip]], True, []], [[], True, []], {}):  # fmt: skip
        work.mkdir(parents=True, exist_ok=True)
        (work / "intent.json").write_text(json.dumps(intent))
        assert nugget("search", "payments").code == 0
    (work / "intent.json").rename(work / "held")
    os.mkfifo(work / "intent.json")
    assert "is nothing that Nugget wrote" in nugget("add", "A thing.").err
    (tmp_path / "work").mkdir(exist_ok=True)
    shutil.rmtree(work.parent)
    work.parent.symlink_to(tmp_path)
    assert "is or holds a link" in nugget("add", "A thing.").err
    assert (tmp_path / "work").exists() and profile.read_text() == "mine" and not (tmp_path / "evil").exists()


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_the_proxy_of_a_folders_remote_is_not_used(shop):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0)
        plain_git(shop, "remote", "add", "origin", "http://127.0.0.1:1/a/b")
        plain_git(shop, "config", "remote.origin.proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with pytest.raises(GitError):
            remotes.default_branch(shop, remotes.Remote(name="origin", url="http://127.0.0.1:1/a/b"))
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_bare_repository_inside_a_checkout_is_not_opened(shop):
    plain_git(shop, "init", "-q", "--bare", "fixture.git")
    with pytest.raises(GitError, match="bare repository"):
        git.top_folder(shop / "fixture.git")


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_a_remote_that_is_a_folder_runs_none_of_its_hooks_and_programs(shop, tmp_path, nugget, monkeypatch):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    remote = tmp_path / "remote"
    subprocess.run(["git", "clone", "-q", shop, remote], check=True)
    traps = plant(remote, tmp_path / "remote-traps")
    plain_git(remote, "config", "receive.denyCurrentBranch", "updateInstead")
    assert "Cloned" in nugget("clone", remote, tmp_path / "mine").out
    assert "is there already" in nugget("clone", remote, tmp_path / "mine").out
    mine = tmp_path / "mine"
    origin = remotes.find_remote(mine)
    plain_git(mine, "config", "remote.origin.fetch", "+refs/heads/main:refs/heads/taken")
    assert origin is not None and remotes.default_branch(mine, origin) and remotes.fetch(mine, origin, "main")
    assert not git.run(mine, "rev-parse", "-q", "--verify", "taken", check=False)
    changed = git.commit_files(mine, files={"new.py": b"x"}, message="Change", parents=[git.head(mine) or ""])
    assert remotes.push(mine, origin, changed, branch="nugget/x")
    assert remotes.push(mine, origin, None, branch="nugget/x", replacing=changed)
    assert traps.sprung == set()
    plain_git(mine, "remote", "set-url", "--push", "--add", "origin", str(remote))
    plain_git(mine, "remote", "set-url", "--push", "--add", "origin", str(tmp_path / "elsewhere"))
    with pytest.raises(GitError, match="more addresses"):
        remotes.push(mine, origin, changed, branch="nugget/x")
    subprocess.run(["git", "-C", mine, "push", "-q", "origin", f"{changed}:refs/heads/y"], capture_output=True)
    assert traps.sprung, "git itself runs them"


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_a_remote_helper_that_the_configuration_names_is_not_run(shop, traps, tmp_path, monkeypatch):
    traps.program("git-remote-trap")
    monkeypatch.setenv("PATH", f"{traps.folder}{os.pathsep}{os.environ['PATH']}")
    plain_git(shop, "config", "--unset-all", "url.ext::" + str(traps.folder) + "/address .insteadOf")
    plain_git(shop, "config", "--replace-all", "remote.origin.url", "https://example.invalid/x")
    plain_git(shop, "config", "remote.origin.vcs", "trap")
    with pytest.raises(GitError):
        remotes.fetch(shop, remotes.Remote(name="origin", url="https://example.invalid/x"), "main")
    assert traps.sprung == set()
    subprocess.run(["git", "-C", shop, "ls-remote", "origin"], capture_output=True, check=False)
    assert "git-remote-trap" in traps.sprung, "git itself runs it"


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_the_configuration_of_a_submodule_runs_nothing(shop, tmp_path, nugget, monkeypatch):
    monkeypatch.chdir(shop)
    monkeypatch.setenv("NUGGET_BRAIN", str(shop))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    library = make_shop(tmp_path / "library")
    plain_git(shop, *("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "domains/library"))
    plain_git(shop, "commit", "-qm", "Add a submodule")
    inner = shop / "domains/library"
    (inner / ".git").unlink()
    (shop / ".git/modules/domains/library").rename(inner / ".git")  # as in an unpacked folder
    subprocess.run(["git", "config", "--file", inner / ".git/config", "--unset", "core.worktree"], check=True)
    traps = plant(inner, tmp_path / "inner-traps")
    (inner / "README.md").write_text("changed")
    (shop / "MESSAGE").write_text("")
    for command in READING:
        nugget(*command)
        assert traps.sprung == set(), command
    subprocess.run(["git", "-C", shop, "status"], capture_output=True, check=False)
    assert traps.sprung, "git itself runs them"


@pytest.mark.proves("GIT-NO-PROGRAMS")
def test_a_git_that_ignores_the_hardened_settings_is_refused(shop, tmp_path, monkeypatch):
    shim = program(tmp_path / "old" / "git", "echo git version 2.30.2")
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    command = [sys.executable, "-m", "nugget", "--brain", str(shop), "review", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: git 2.30.2 is too old: Nugget needs 2.31 or newer.\nInstall a newer git.\n"
