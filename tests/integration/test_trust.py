"""A folder that was not chosen is data: a brain found by its place is used only when the user trusts it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from commands import Nugget
from mcp_wire import asked_over_mcp, hooked
from paths import REPOSITORY
from programs import program

from nugget.config import read_environment
from nugget.upkeep import default_brain, trusted

COMMANDS = (
    ("ask", "yeti"), ("search", "yeti"), ("get", "pattern/x"), ("suggest",), ("sync",), ("rebuild",), ("status",),
    ("doctor",), ("add", "A thing."), ("forget", "pattern/x"), ("mv", "pattern/x", "--domain", "coding"), ("lint",),
    ("review",), ("eval",), ("queries",), ("context", "."), ("extract",),
    ("brief",), ("recall", "what is known of the yeti"),
    ("capture-session", "--transcript", "x.jsonl"), ("serve", "--http", "127.0.0.1:0"), ("config",),
)  # fmt: skip


@pytest.fixture
def planted(brain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned repository that is a brain, with a program in git's configuration; git itself notes its calls."""
    ran, real_git = tmp_path / "ran", shutil.which("git")
    for name, then in (("git", f'exec {real_git} "$@"'), ("evil", "exit 0")):
        program(tmp_path / "bin" / name, f'echo {name} "$PWD" "$@" >> {ran}\n{then}')
    subprocess.run(["git", "-C", str(brain), "config", "core.fsmonitor", str(tmp_path / "bin/evil")], check=True)
    (brain / "brain.yaml").write_text("owner: [\nembedding: {model: none}\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    monkeypatch.chdir(brain / "domains")
    return brain


def sentence(brain: Path) -> str:
    return f"The brain in {brain} is not trusted; run `nugget trust {brain}` to use it."


@pytest.mark.proves("TRUST-FIRST")
def test_every_command_answers_with_one_sentence_and_runs_nothing(
    nugget: Nugget, planted: Path, tmp_path: Path
) -> None:
    for line in COMMANDS:
        shown = nugget(*line)
        assert (shown.code, shown.out, shown.err) == (2, "", f"Error: {sentence(planted)}\n"), line
    assert not (tmp_path / "ran").exists() and not (planted / ".nugget").exists()


@pytest.mark.proves("TRUST-FIRST")
def test_agents_and_hooks_get_the_same_sentence(planted: Path, tmp_path: Path, queue_lock: None) -> None:
    answer = asked_over_mcp(task_description="yeti", path="coding/x.md")
    (block,) = answer["content"]
    assert answer["isError"] and sentence(planted) in block["text"] and "\n" not in block["text"]
    for event in ("SessionStart", "UserPromptSubmit"):
        shown = hooked(
            says_something=True, hook_event_name=event, cwd=str(planted), prompt="What is known of the yeti?"
        )
        assert json.loads(shown) == {"systemMessage": sentence(planted)}
    assert not (tmp_path / "ran").exists()


@pytest.mark.proves("TRUST-FIRST", "TRUST-RECORD")
def test_a_trusted_brain_is_used_with_an_index_of_ones_own(nugget: Nugget, planted: Path, home: Path) -> None:
    (planted / ".nugget").mkdir()
    (planted / ".nugget/index.db").write_bytes(b"whatever came with the folder")
    assert nugget("trust", planted).code == 0
    assert not (planted / ".nugget").exists()
    shown = nugget("search", "cache", "--json")
    assert shown.code == 0 and shown.json["hits"]
    assert stat.S_IMODE((home / "trusted.json").stat().st_mode) == 0o600
    assert nugget("trust", "--list").out == f"{planted}\n"
    assert nugget("trust", "--remove", planted).code == 0
    assert nugget("search", "cache").err == f"Error: {sentence(planted)}\n"


@pytest.mark.proves("TRUST-OWNED")
@pytest.mark.parametrize("place", [".", "brain.yaml", ".git", ".."])
def test_a_brain_that_others_can_write_to_is_not_trusted(nugget: Nugget, planted: Path, place: str) -> None:
    opened = Path(os.path.normpath(planted / place))
    opened.chmod(0o777)
    told = f"others can write to {opened} (`chmod go-w` takes that away)."
    assert nugget("trust", planted).err == f"Error: {planted} cannot be trusted: {told}\n"
    assert nugget("status").err.endswith(f"is not trusted, and it cannot be: {told}\n")
    opened.chmod(0o755)
    assert nugget("trust", planted).code == 0
    opened.chmod(0o757)
    assert nugget("status").err == f"Error: The brain in {planted} cannot be used from here: {told}\n"
    if place == "..":
        opened.chmod(0o1777)  # like /tmp: what is there can be renamed by its owner alone
        assert nugget("status").code == 0


@pytest.mark.proves("CLONE")
def test_a_clone_is_checked_trusted_and_read(
    nugget: Nugget, planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "template/hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").symlink_to(tmp_path / "bin/evil")
    subprocess.run(["git", "config", "--global", "init.templateDir", str(tmp_path / "template")], check=True)
    (planted / ".nugget").mkdir()
    (planted / ".nugget/index.db").write_text("not an index")
    (planted / "brain.yaml").write_text("owner: Ada\n")
    for command in (["add", "-fA"], ["commit", "-qm", "More"]):
        subprocess.run(["git", "-C", str(planted), "-c", "core.fsmonitor=false", *command], check=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ran").unlink()
    shown = nugget("clone", planted, "mine")
    assert shown.code == 0 and f"{tmp_path / 'mine'}; it is trusted and the default" in shown.out
    assert not any(line.startswith("evil") for line in (tmp_path / "ran").read_text().splitlines())
    assert not [*tmp_path.glob(".*.nugget-clone")]
    assert default_brain(read_environment()) == tmp_path / "mine"
    monkeypatch.chdir(tmp_path / "mine")
    assert nugget("search", "cache", "--json").json["hits"]


@pytest.mark.proves("CLONE")
def test_what_cannot_be_cloned_leaves_nothing(nugget: Nugget, planted: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    subprocess.run(["git", "init", "-q", str(plain)], check=True)
    (plain / "a.md").write_text("x")
    for command in (["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(plain), *command], check=True)
    before = {*tmp_path.iterdir()}
    open_to_all = tmp_path / "bin/open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for url, folder, told in (
        (plain, "new", "is not a brain: it has no brain.yaml"),
        (f"ext::{tmp_path / 'bin/evil'}", "new", "transport 'ext' not allowed"),
        ("--upload-pack=evil", "new", "may not begin with `-`"),
        (tmp_path / "gone", "new", "there is no such repository"),
        (planted, "plain", "exists already"),
        (planted, "bin/open/new", f"others can write to {open_to_all}"),
    ):
        shown = nugget("clone", "--", url, tmp_path / folder)
        assert shown.code and told in shown.err and "Traceback" not in shown.err, url
    assert {*tmp_path.iterdir()} - {tmp_path / "ran"} == before - {tmp_path / "ran"}
    assert not any(line.startswith("evil") for line in (tmp_path / "ran").read_text().splitlines())
    assert trusted(read_environment()) == []
