"""Which repository a folder belongs to: one identity for worktrees, clones and renamed folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from knowledge_files import shell

from nugget.infra.workspace import Workspace, find_workspace, relative_path


def make_repository(folder: Path, *, remote: str | None = None, commit: bool = True) -> Path:
    folder.mkdir(parents=True)
    shell(folder, "init", "-q")
    if commit:
        (folder / "README.md").write_text(f"# {folder}\n", "utf-8")
        shell(folder, "add", "-A")
        shell(folder, "commit", "-q", "-m", "First")
    if remote:
        shell(folder, "remote", "add", "origin", remote)
    return folder


def found(folder: Path) -> Workspace:
    workspace = find_workspace(folder)
    assert workspace is not None
    return workspace


@pytest.mark.proves("PROVENANCE-WORKSPACE")
@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:acme/shop.git",
        "git@github.com-work:acme/shop.git",
        "ssh://git@ssh.github.com:443/acme/shop.git",
        "https://github.com/acme/shop.git/",
        "https://ghp_secret:x-oauth-basic@github.com:443//acme/shop.git",
    ],
)
def test_clones_of_one_remote_have_one_identity_however_its_address_is_written(tmp_path: Path, url: str) -> None:
    one = found(make_repository(tmp_path / "one", remote="https://github.com/acme/shop.git"))
    other = found(make_repository(tmp_path / "other place", remote=url))
    assert one.identity == other.identity
    assert re.fullmatch(r"github\.com-acme-shop-[0-9a-f]{8}", one.identity)
    assert one.name == other.name == "shop"
    assert other.root == tmp_path / "other place"
    assert found(other.root.rename(tmp_path / "renamed")).identity == one.identity


@pytest.mark.proves("PROVENANCE-BAD-INPUT")
def test_paths_are_relative_to_the_workspace_and_those_outside_are_none(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    (tmp_path / "link").symlink_to(repo)
    workspace = found(repo)
    inside = {
        f"{repo}/src/a.py": "src/a.py",
        "src/../b.py": "b.py",
        f"{tmp_path}/link/src/a.py": "src/a.py",
        f"{repo}/.claude/worktrees/agent-1/src/a.py": "src/a.py",
        f"{repo}/Größe und Maß.md": "Größe und Maß.md",
    }
    assert {path: relative_path(workspace, path) for path in inside} == inside
    assert relative_path(workspace, "a.py", folder=str(repo / "src")) == "src/a.py"
    outside = ["/etc/passwd", "../x", f"{repo}-two/a.py", str(repo), "", "a\0b", f"{repo}/.git/config", "~/x"]
    assert [relative_path(workspace, path) for path in outside] == [None] * len(outside)
