"""The brain as a folder: making it, walking it, and never harming what is in it or outside of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nugget import brain as brains
from nugget import config
from nugget.brain import knowledge_file as knowledge
from nugget.brain.lint import lint
from nugget.errors import BrainError, ConflictError, GitError, KnowledgeError, UsageError
from nugget.infra import git
from nugget.infra.brain_in_use import is_brain
from nugget.models import FileState, Problem, Severity
from nugget.sources import brain as source

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 4, 2, 12, 0, tzinfo=UTC)


def shell(repo: Path, *args: str) -> str:
    return subprocess.run(["git", "-C", str(repo), *args], check=True, capture_output=True, text=True).stdout


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
    return brains.init_brain(tmp_path / "new", owner="Ada", now=NOW).path


# --- init


@pytest.mark.proves("BRAIN-INIT")
def test_init_makes_a_committed_brain_from_the_template(tmp_path: Path) -> None:
    result = brains.init_brain(tmp_path / "deep" / "my brain", owner='Ada "the" Älteste', now=NOW)
    assert (result.path, result.created, result.problem) == (tmp_path / "deep" / "my brain", True, None)
    assert is_brain(result.path)
    loaded = config.load_settings(config.read_environment({"HOME": str(tmp_path)}), result.path)
    assert (loaded.owner, loaded.name) == ('Ada "the" Älteste', "my brain")
    assert shell(result.path, "rev-parse", "HEAD").strip() == result.commit
    assert shell(result.path, "status", "--porcelain") == ""
    (result.path / ".nugget").mkdir()
    (result.path / ".nugget" / "index.db").write_bytes(b"x")
    assert shell(result.path, "status", "--porcelain") == ""


@pytest.mark.proves("BRAIN-INIT")
def test_a_new_brain_has_an_example_of_every_type_of_today_and_nothing_to_lint(new: Path) -> None:
    units = [brains.load(new, path).unit for path in brains.knowledge_paths(new)]
    assert {unit.type for unit in units if unit} == {"pattern", "concept", "decision", "bug", "belief"}
    assert {unit.created for unit in units if unit} == {NOW.date()}
    assert lint(new) == []


@pytest.mark.proves("BRAIN-INIT-IDEMPOTENT")
def test_init_again_changes_nothing_even_after_work(new: Path) -> None:
    (new / "README.md").write_text("mine now")
    (new / "domains" / "coding" / "patterns" / "expand-then-contract.md").unlink()
    before, commit = snapshot(new), git.head(new)
    result = brains.init_brain(new, owner="Somebody else", now=LATER)
    assert (result.created, result.commit, result.problem) == (False, None, None)
    assert (snapshot(new), git.head(new)) == (before, commit)


def test_init_completes_what_an_earlier_try_left_undone(tmp_path: Path) -> None:
    whole = brains.init_brain(tmp_path / "whole", owner="Ada", now=NOW).path
    half = tmp_path / "half"
    (half / "domains/coding/bugs").mkdir(parents=True)
    for name in ("README.md", "domains/coding/bugs/stale-pid-file-blocks-start.md"):
        (half / name).write_bytes((whole / name).read_bytes())
    assert brains.init_brain(half, owner="Ada", now=LATER).commit
    assert set(brains.knowledge_paths(half)) == set(brains.knowledge_paths(whole))


def test_init_makes_a_plain_folder_of_knowledge_a_repository_with_all_of_it(new: Path) -> None:
    subprocess.run(["rm", "-rf", str(new / ".git")], check=True)
    (new / ".gitignore").write_text("*.swp\n")
    result = brains.init_brain(new, owner="", now=NOW)
    assert not result.created
    assert (new / ".gitignore").read_text() == "*.swp\n.nugget/\n"
    listed = shell(new, "ls-files").split("\n")
    assert set(brains.knowledge_paths(new)) <= set(listed)
    assert shell(new, "status", "--porcelain") == ""


@pytest.mark.proves("BRAIN-INIT-FOREIGN")
@pytest.mark.parametrize("name", ["notes.txt", "README.md", ".env", "domains/coding/patterns/mine.md", "src/deep/a.py"])
def test_init_refuses_a_folder_with_something_else_in_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(BrainError, match=r"is not empty \(it holds .*\), and is no brain") as caught:
        brains.init_brain(tmp_path, owner="", now=NOW)
    assert caught.value.hint == "Name a folder that is empty or does not exist yet."
    assert snapshot(tmp_path) == {name: b"mine"}


@pytest.mark.proves("BRAIN-INIT-FOREIGN")
def test_init_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BrainError, match="is a file, not a folder"):
        brains.init_brain(tmp_path / "file", owner="", now=NOW)
    with pytest.raises(BrainError, match="cannot be written"):
        brains.init_brain(tmp_path / "file" / "below", owner="", now=NOW)


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_without_git_init_makes_a_brain_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = brains.init_brain(tmp_path / "b", owner="", now=NOW)
    assert result.created
    assert result.problem == "git is not installed, or not on the PATH."
    assert len(list(brains.knowledge_paths(result.path))) == 5
    assert [str(problem) for problem in lint(result.path)] == [
        ".: is no git repository, so nothing has a history or can be proposed; run `nugget init` in it"
    ]


# --- walk and read


def test_the_walk_lists_knowledge_files_only_and_in_order(new: Path) -> None:
    for name in ("domains/README.md", "domains/coding/.hidden.md", "domains/.trash/patterns/x.md", "notes.md",
                 "domains/coding/patterns/x.txt", "domains/b/patterns/z.md", "domains/a.md"):  # fmt: skip
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_text("x")
    listed = list(brains.knowledge_paths(new))
    assert {path for path in listed if "coding" not in path} == {"domains/a.md", "domains/b/patterns/z.md"}
    assert listed.index("domains/b/patterns/z.md") < listed.index("domains/coding/patterns/expand-then-contract.md")
    assert all(brains.is_knowledge_path(path) for path in listed)
    assert listed == list(brains.knowledge_paths(new))
    assert not any(map(brains.is_knowledge_path, ["notes.md", "domains/README.md", "domains/.x.md", "domains/.t/a.md"]))


@pytest.mark.proves("BRAIN-CONTAINED")
@pytest.mark.parametrize(
    "path", ["../outside.md", "/etc/passwd", "domains/../../outside.md", "", ".", "domains//x.md", "./brain.yaml",
             ".git/config", ".nugget/index.db"]
)  # fmt: skip
def test_no_path_leads_out_of_the_brain_or_into_git(new: Path, path: str) -> None:
    (new.parent / "outside.md").write_text("secret")
    (new / ".nugget").mkdir()
    (new / ".nugget/index.db").write_text("x")
    with pytest.raises(KnowledgeError):
        brains.read_file(new, path)
    head, config = git.head(new), (new / ".git/config").read_bytes()
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
    (patterns / "dangling.md").symlink_to(new / "nowhere.md")
    (patterns / "loop.md").symlink_to(patterns / "loop.md")
    (new / "domains" / "elsewhere").symlink_to(outside, target_is_directory=True)
    assert not any("secret" in path for path in brains.knowledge_paths(new))
    told = {problem.path: problem.reason for problem in lint(new)}
    assert told["domains/coding/patterns/link.md"] == "is a symbolic link out of the brain, which is not followed"
    assert "no knowledge" in told["domains/coding/patterns/config.md"]
    assert "no knowledge" in told["domains/coding/patterns/root.md"]
    assert told["domains/coding/patterns/dangling.md"] == "cannot be read (no such file or directory)"
    assert "cannot be read" in told["domains/coding/patterns/loop.md"]
    assert told["domains/elsewhere"] == "is a symbolic link to a folder, which is not followed"
    with pytest.raises(ConflictError, match=r"new\.md cannot be written \(a folder or a link is in its place\)"):
        change(new, {"domains/elsewhere/new.md": b"x"})
    assert not (outside / "new.md").exists()


def test_a_link_within_the_brain_is_read(new: Path) -> None:
    (new / "domains/coding/patterns/also.md").symlink_to("expand-then-contract.md")
    whole = (new / "domains/coding/patterns/expand-then-contract.md").read_bytes()
    assert brains.read_file(new, "domains/coding/patterns/also.md") == whole


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_what_is_no_regular_file_is_refused_without_waiting(new: Path) -> None:
    patterns = new / "domains/coding/patterns"
    (patterns / "folder.md").mkdir()
    os.mkfifo(patterns / "pipe.md")
    with pytest.raises(KnowledgeError, match=r"folder\.md: is a folder, not a knowledge file"):
        brains.read_file(new, "domains/coding/patterns/folder.md")
    assert [(problem.path, problem.reason) for problem in lint(new)] == [
        ("domains/coding/patterns/pipe.md", "is no regular file, not a knowledge file")
    ]


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_a_file_of_50_mb_is_refused_without_being_read(new: Path) -> None:
    with (new / "domains/coding/patterns/huge.md").open("wb") as file:
        file.truncate(50_000_000)
    (problem,) = lint(new)
    assert str(problem) == "domains/coding/patterns/huge.md: is 50.0 MB; a knowledge file may be 5 MB at most"


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_a_path_with_a_line_break_is_told_on_one_line_and_unicode_is_fine(new: Path) -> None:
    text = "---\nid: concept/冪等性\ntype: concept\ndomain: 編程\n---\n# 冪等性\n\n文字。\n"
    (new / "domains/編程/concepts").mkdir(parents=True)
    (new / "domains/編程/concepts/冪等性.md").write_text(text, "utf-8")
    (new / "domains/coding/patterns/a\nb.md").write_text(text, "utf-8")
    (problem,) = lint(new)
    assert problem.path == "domains/coding/patterns/a\\nb.md"
    assert "line break" in problem.reason
    assert "\n" not in str(problem)
    assert brains.load(new, "domains/編程/concepts/冪等性.md").unit is not None
    (new / "domains/coding/patterns/a\nb.md").rename(new / "domains/coding/patterns" / os.fsdecode(b"\xff.md"))
    (problem,) = lint(new)
    assert str(problem).encode("utf-8").isascii()


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Run as a user whom permissions bind, also when the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def shut(new: Path) -> Iterator[Callable[..., None]]:
    """Opens the way to a new brain for other users, takes rights away from what it is given, and gives them back."""
    modes = {path: path.stat().st_mode for path in [*new.parents, *new.rglob("*"), new]}
    for parent in new.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(modes[parent] | 0o011)

    def take(mode: int, *paths: Path) -> None:
        for path in paths:
            path.chmod(mode)

    yield take
    for path, mode in modes.items():
        if path.stat().st_mode != mode:
            path.chmod(mode)


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_what_is_known_of_a_folder_that_cannot_be_listed_stays(new: Path, shut: Callable[..., None]) -> None:
    known = {path: FileState(path=path, hash="", size=1, mtime_ns=1) for path in brains.knowledge_paths(new)}
    hidden = {path for path in known if path.startswith("domains/coding/bugs/")}
    shut(0, new / "domains/coding/bugs")
    with ordinary_user():
        found = source.changes(new, lambda paths: known, None)
    assert hidden and {*found.modified} == {*known} - hidden
    assert found.removed == ()
    assert found.problems == (Problem(path="domains/coding/bugs", reason="cannot be listed (permission denied)"),)


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_an_unreadable_file_and_folder_are_told_and_the_rest_is_read(new: Path, shut: Callable[..., None]) -> None:
    shut(0, new / "domains/coding/patterns/expand-then-contract.md", new / "domains/coding/bugs")
    with ordinary_user():
        problems = [str(problem) for problem in lint(new) if "cannot be" in problem.reason]
        readable = [path for path in brains.knowledge_paths(new) if brains.load(new, path).unit]
    assert problems == [
        "domains/coding/bugs: cannot be listed (permission denied)",
        "domains/coding/patterns/expand-then-contract.md: cannot be read (permission denied)",
    ]
    assert len(readable) == 3


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_a_read_only_brain_can_be_read_and_says_that_it_cannot_be_written(new: Path, shut: Callable[..., None]) -> None:
    before = snapshot(new)
    path = "domains/coding/patterns/expand-then-contract.md"
    shut(0o555, new, *[folder for folder in (new / "domains").rglob("*") if folder.is_dir()], new / "domains")
    with ordinary_user():
        assert len([path for path in brains.knowledge_paths(new) if brains.load(new, path).unit]) == 5
        with pytest.raises(BrainError, match=r"cannot be written \(permission denied\)"):
            change(new, {path: b"x"})
        with pytest.raises(BrainError, match="cannot be written"):
            brains.init_brain(new / "inside", owner="", now=NOW)
    assert snapshot(new) == before


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


@pytest.mark.proves("BRAIN-GUARDED-WRITE")
def test_of_writers_racing_for_one_new_file_exactly_one_wins(new: Path) -> None:
    won: list[int] = []
    start, head = threading.Barrier(4), git.head(new)

    def write(number: int) -> None:
        start.wait()
        files = {"domains/coding/patterns/race.md": str(number).encode() * 10_000}
        with contextlib.suppress(ConflictError):
            git.commit_change(new, files, "m", branch="main", expect_head=head)
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert (new / "domains/coding/patterns/race.md").read_text() == str(won[0]) * 10_000
    assert len(list((new / "domains/coding/patterns").iterdir())) == 2


def test_a_change_keeps_the_mode_and_the_exact_bytes(new: Path) -> None:
    path = "domains/coding/patterns/expand-then-contract.md"
    (new / path).chmod(0o640)
    text = "\ufeffa\r\nb\rc\n".encode()
    change(new, {path: text})
    assert (new / path).read_bytes() == text
    assert (new / path).stat().st_mode & 0o777 == 0o640


def test_removing_the_last_file_removes_its_empty_folders(new: Path) -> None:
    path = "domains/a/b/patterns/x.md"
    change(new, {path: b"x"})
    change(new, {path: None})
    assert not (new / "domains/a").exists()
    assert (new / "domains").is_dir()


# --- names


@pytest.mark.parametrize(
    ("written", "domain"),
    [("coding", "coding"), (" Coding/Go ", "coding/go"), ("/coding/", "coding"), ("People Skills", "people-skills"),
     ("編程", "編程"), ("c++", "c++")],
)  # fmt: skip
def test_domains_are_folded_to_folder_names(written: str, domain: str) -> None:
    assert brains.validate_domain(written) == domain
    assert brains.unit_path("bug", written, "x") == f"domains/{domain}/bugs/x.md"
    assert knowledge.domain_of(brains.unit_path("bug", written, "x")) == domain


@pytest.mark.proves("BRAIN-CONTAINED")
@pytest.mark.parametrize("domain", ["", "/", "..", "../up", "a/../b", "a//b", ".git", "a\\b", "a\nb\0", "x" * 61])
def test_what_is_no_folder_name_is_no_domain(domain: str) -> None:
    with pytest.raises(UsageError, match="cannot be a domain"):
        brains.validate_domain(domain)


@pytest.mark.parametrize(("kind", "slug"), [("recipe", "x"), ("bug", ""), ("bug", "../x"), ("bug", "a/b")])
def test_a_unit_is_only_filed_under_safe_names(kind: str, slug: str) -> None:
    with pytest.raises(UsageError):
        brains.unit_path(kind, "coding", slug)


# --- states of the repository


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_an_empty_brain_is_fine(tmp_path: Path) -> None:
    (tmp_path / "brain.yaml").write_text("")
    (tmp_path / "domains").mkdir()
    git.init(tmp_path)
    assert list(brains.knowledge_paths(tmp_path)) == []
    assert lint(tmp_path) == []


@pytest.mark.proves("BRAIN-BAD-INPUT")
def test_a_brain_in_the_middle_of_a_merge_is_read_and_says_so(new: Path) -> None:
    path = "domains/coding/patterns/expand-then-contract.md"
    original = (new / path).read_text()
    main = shell(new, "branch", "--show-current").strip()
    shell(new, "switch", "-q", "-c", "other")
    (new / path).write_text(original.replace("type: pattern", "type: concept"))
    shell(new, "commit", "-qam", "other")
    shell(new, "switch", "-q", main)
    (new / path).write_text(original.replace("type: pattern", "type: belief"))
    shell(new, "commit", "-qam", "mine")
    subprocess.run(["git", "-C", str(new), "merge", "-q", "other"], check=False, capture_output=True)
    problems = {problem.path: problem for problem in lint(new)}
    ends = "`git merge --continue` or `git merge --abort` ends that"
    assert f"is in the middle of a merge; {ends}" in problems["."].reason
    assert problems[path].severity is Severity.ERROR
    assert problems[path].reason == "has merge conflict markers; decide between the two versions"
    lines = (new / path).read_text().split("\n")
    assert lines[(problems[path].line or 0) - 1].startswith("<<<<<<<")
    assert len([p for p in brains.knowledge_paths(new) if brains.load(new, p).unit]) == 4
    assert brains.init_brain(new, owner="", now=NOW).problem is None
