"""The brain as a folder: making it, walking it, and never harming what is in it or outside of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from first_units import add_first_units
from knowledge_files import shell

from nugget import brain as brains
from nugget import config
from nugget.brain import is_brain
from nugget.brain.checks import lint
from nugget.errors import BrainError, ConflictError, GitError, KnowledgeError
from nugget.infra import git

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 4, 2, 12, 0, tzinfo=UTC)


def snapshot(folder: Path) -> dict[str, bytes | str]:
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def change(brain: Path, files: dict[str, bytes | None]) -> None:
    git.commit_change(brain, files, "Change", branch="main", expect_head=git.head(brain))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return add_first_units(brains.init_brain(tmp_path / "new", owner="Ada", now=NOW)[0])


# --- init


@pytest.mark.proves("BRAIN-INIT")
def test_init_makes_a_committed_brain_from_the_template(tmp_path: Path) -> None:
    path, is_new = brains.init_brain(tmp_path / "deep" / "my brain", owner='Ada "the" Älteste', now=NOW)
    assert (path, is_new) == (tmp_path / "deep" / "my brain", True)
    assert is_brain(path)
    loaded = config.load_settings(config.read_environment({"HOME": str(tmp_path)}), path)
    assert (loaded.owner, loaded.name) == ('Ada "the" Älteste', "my brain")
    assert shell(path, "rev-list", "--count", "HEAD").strip() == "1"
    (path / ".nugget").mkdir()
    (path / ".nugget" / "index.db").write_bytes(b"x")
    assert shell(path, "status", "--porcelain") == ""


@pytest.mark.proves("BRAIN-INIT-IDEMPOTENT")
def test_init_again_changes_nothing_even_after_work(new: Path) -> None:
    (new / "README.md").write_text("mine now")
    (new / "domains" / "coding" / "patterns" / "expand-then-contract.md").unlink()
    before, commit = snapshot(new), git.head(new)
    assert brains.init_brain(new, owner="Somebody else", now=LATER) == (new, False)
    assert (snapshot(new), git.head(new)) == (before, commit)


@pytest.mark.proves("BRAIN-INIT-FOREIGN")
@pytest.mark.parametrize("name", ["notes.txt", "README.md", ".env", "domains/coding/patterns/mine.md", "src/deep/a.py"])
def test_init_refuses_a_folder_with_something_else_in_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(BrainError, match=r"is not empty \(it holds .*\), and is not a brain") as caught:
        brains.init_brain(tmp_path, owner="", now=NOW)
    assert caught.value.hint == "Name a folder that is empty or does not exist yet."
    assert snapshot(tmp_path) == {name: b"mine"}


# --- walk and read


@pytest.mark.proves("BRAIN-CONTAINED")
def test_no_path_leads_out_of_the_brain_or_into_git(new: Path) -> None:
    (new.parent / "outside.md").write_text("secret")
    (new / ".nugget").mkdir()
    (new / ".nugget/index.db").write_text("x")
    head, config = git.head(new), (new / ".git/config").read_bytes()
    for path in ("../outside.md", "/etc/passwd", "domains/../../outside.md", "", ".", "domains//x.md", "./brain.yaml",
                 ".git/config", ".nugget/index.db"):  # fmt: skip
        with pytest.raises(KnowledgeError):
            brains.read_file(new, path)
        with pytest.raises((GitError, ConflictError)):
            git.commit_change(new, {path: b"changed"}, "m", branch="main", expect_head=head)
    assert (git.head(new), (new / ".git/config").read_bytes()) == (head, config)
    assert shell(new, "status", "--porcelain") == "" and not (new / ".git/nugget/work").exists()
    assert (new.parent / "outside.md").read_text() == "secret"


@pytest.mark.proves("BRAIN-CONTAINED", "BRAIN-BAD-INPUT")
def test_symbolic_links_out_of_the_brain_are_refused_and_told(new: Path) -> None:
    outside = new.parent / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("---\nid: pattern/secret\n---\n# Secret\n")
    patterns = new / "domains/coding/patterns"
    (patterns / "link.md").symlink_to(outside / "secret.md")
    (patterns / "config.md").symlink_to(new / ".git" / "config")
    (patterns / "root.md").symlink_to(new, target_is_directory=True)
    (patterns / "loop.md").symlink_to(patterns / "loop.md")
    (new / "domains" / "elsewhere").symlink_to(outside, target_is_directory=True)
    assert not any("secret" in path for path in brains.knowledge_paths(new))
    told = {problem.path: problem.reason for problem in lint(new)}
    assert told["domains/coding/patterns/link.md"] == "is a symbolic link out of the brain, which is not followed"
    assert "no knowledge" in told["domains/coding/patterns/config.md"]
    assert "cannot be read" in told["domains/coding/patterns/loop.md"]
    with pytest.raises(ConflictError, match=r"new\.md cannot be written \(a folder or a link is in its place\)"):
        change(new, {"domains/elsewhere/new.md": b"x"})
    assert not (outside / "new.md").exists()


# --- write


@pytest.mark.proves("BRAIN-GUARDED-WRITE")
def test_a_change_is_guarded_by_the_commit_that_was_read(new: Path) -> None:
    path, first = "domains/coding/patterns/x.md", git.head(new)
    change(new, {path: b"one"})
    with pytest.raises(ConflictError, match="main moved meanwhile; nothing was changed"):
        git.commit_change(new, {path: b"two"}, "m", branch="main", expect_head=first)
    (new / path).write_text("changed by hand")
    with pytest.raises(ConflictError, match=r"x\.md has uncommitted changes of yours in the brain; nothing"):
        change(new, {path: b"three"})
    with pytest.raises(ConflictError, match="uncommitted changes"):
        change(new, {path: None})
    assert (new / path).read_text() == "changed by hand"
    (new / path).unlink()
    with pytest.raises(ConflictError, match="uncommitted changes"):
        change(new, {path: b"three"})
    assert [entry.name for entry in (new / "domains/coding/patterns").iterdir()] == ["expand-then-contract.md"]
