"""Knowledge by hand: add, forget, move; exact commits, true relations, nothing lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from knowledge_files import linked_brain, shell

from nugget import brain as brains
from nugget.brain import knowledge_file as knowledge
from nugget.brain.checks import lint
from nugget.brain.filing import add_unit, forget_unit, forgotten, move_unit
from nugget.errors import BrainError, ConflictError
from nugget.infra import git
from nugget.models import Origin, Unit

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FINISHED = """\
---
id: decision/use-sqlite   # mine
type: decision
domain: operations
x-review: {by: Ada}
---

# Use SQLite

One file, no server.
"""


def committed(repo: Path) -> set[str]:
    """The paths of the last commit."""
    return set(shell(repo, "show", "--format=", "--name-only", "--no-renames", "HEAD").split())


def unit_at(repo: Path, path: str) -> Unit:
    unit = brains.load(repo, path).unit
    assert unit is not None
    return unit


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A small brain of linked units, with unrelated work under way."""
    return linked_brain(tmp_path / "own")


def work_under_way(repo: Path) -> str:
    return shell(repo, "status", "--porcelain", "--", "staged.txt", "README.md")


# --- add


@pytest.mark.proves("BRAIN-ADD")
def test_add_files_a_text_and_commits_only_that_file(own: Path) -> None:
    before = work_under_way(own)
    path, _ = add_unit(
        own, "Always set a timeout. Without one a worker hangs forever.", type="pattern", domain="Coding/Go",
        tags=["http", " http ", ""], confidence=0.7, now=NOW,
    )  # fmt: skip
    assert path == "domains/coding/go/patterns/always-set-a-timeout.md"
    unit = unit_at(own, path)
    assert (unit.id, unit.title, unit.tags, unit.confidence) == (
        "pattern/always-set-a-timeout", "Always set a timeout", ("http",), 0.7,
    )  # fmt: skip
    assert (unit.origin, unit.created, unit.last_modified) == (Origin.MANUAL, date(2026, 3, 1), date(2026, 3, 1))
    assert committed(own) == {path}
    assert work_under_way(own) == before
    assert lint(own) == []


@pytest.mark.proves("BRAIN-ADD")
def test_a_secret_in_what_is_added_by_hand_reaches_neither_file_nor_history(own: Path) -> None:
    token = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    path, counts = add_unit(
        own, f"# Use {token}\n\nLog in with {token} first.", type="pattern", domain="coding", now=NOW
    )
    add_unit(own, FINISHED + f"\nToken {token}\n", type="pattern", domain="coding", now=NOW)
    assert "Log in with [redacted:github-token] first." in (own / path).read_text()
    assert counts == {"github-token": 2}
    assert token not in shell(own, "log", "-p", "--all")
    assert token.lower() not in path


# --- forget


@pytest.mark.proves("BRAIN-FORGET")
def test_forget_removes_the_unit_its_relations_and_remembers_in_one_commit(own: Path) -> None:
    before, body = work_under_way(own), unit_at(own, "domains/coding/concepts/keys.md").body
    result = forget_unit(own, "concept/keys")
    assert result.relinked == ("domains/coding/patterns/queue.md", "domains/coding/patterns/retry.md")
    assert committed(own) == {result.old_path, "forgotten.yaml", *result.relinked}
    assert unit_at(own, "domains/coding/patterns/retry.md").related == ()
    assert forgotten(own) == {"concept/keys", knowledge.body_digest(body)}
    assert work_under_way(own) == before
    assert lint(own) == []


@pytest.mark.proves("BRAIN-FORGET", "BRAIN-UNCOMMITTED")
@pytest.mark.parametrize("stage", [True, False])
def test_a_change_of_a_file_with_work_in_it_is_refused_before_anything_moves(own: Path, stage: bool) -> None:
    retry = "domains/coding/patterns/retry.md"
    (own / retry).write_text((own / retry).read_text() + "\nNot finished yet.\n")
    if stage:
        shell(own, "add", retry)
    before, head = shell(own, "status", "--porcelain"), git.head(own)
    for change in (lambda: forget_unit(own, "concept/keys"), lambda: move_unit(own, "concept/keys", slug="key")):
        with pytest.raises(ConflictError, match=r"retry\.md has uncommitted changes of yours in the brain") as caught:
            change()
        assert caught.value.hint == "Commit or undo them there, then run this again."
    assert (shell(own, "status", "--porcelain"), git.head(own)) == (before, head)
    assert (own / retry).read_text().endswith("\nNot finished yet.\n")


# --- move


@pytest.mark.proves("BRAIN-MOVE")
def test_a_move_to_another_domain_keeps_id_and_history(own: Path) -> None:
    before = work_under_way(own)
    result = move_unit(own, "pattern/retry", domain="Operations/Payments")
    assert (result.new_id, result.new_path) == ("pattern/retry", "domains/operations/payments/patterns/retry.md")
    assert committed(own) == {result.old_path, result.new_path}
    assert (own / result.new_path).read_text() == (
        "---\nid: pattern/retry\ntype: pattern\ndomain: operations/payments\nrelated:\n"
        "  - id: concept/keys  # because\n    relation: uses\n---\n# retry\n\nAbout retry.\n"
    )
    assert work_under_way(own) == before
    assert lint(own) == []


@pytest.mark.proves("BRAIN-MOVE")
def test_a_new_name_is_followed_by_every_relation(own: Path) -> None:
    result = move_unit(own, "concept/keys", slug="idempotency-keys")
    assert (result.old_id, result.new_id) == ("concept/keys", "concept/idempotency-keys")
    assert result.relinked == ("domains/coding/patterns/queue.md", "domains/coding/patterns/retry.md")
    assert "  - id: concept/idempotency-keys # because\n" in (own / result.relinked[0]).read_text()
    assert committed(own) == {result.old_path, result.new_path, *result.relinked}
    assert lint(own) == []


# --- states of the repository


@pytest.mark.proves("BRAIN-READY")
def test_a_brain_without_git_is_not_written(own: Path) -> None:
    shutil.rmtree(own / ".git")
    with pytest.raises(BrainError, match=r"own is not a git repository; nothing was changed") as caught:
        add_unit(own, "text", type="bug", domain="coding", now=NOW)
    assert caught.value.hint == f"Run `nugget init {own}`."
    assert not (own / "domains/coding/bugs/text.md").exists()


# --- several writers


@pytest.mark.proves("BRAIN-ONE-WRITER")
def test_writers_at_the_same_moment_all_get_their_commit(own: Path) -> None:
    code = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path;"
        "from nugget.brain.filing import add_unit;"
        "add_unit(Path(sys.argv[1]), f'Fact {sys.argv[2]} is kept.', type='belief', domain='x', now=datetime.now(UTC))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, own, str(number)]) for number in range(3)]
    assert [writer.wait() for writer in writers] == [0] * 3
    assert shell(own, "status", "--porcelain", "--", "domains") == ""
    assert shell(own, "log", "--format=%s").count("Add belief/fact-") == 3
