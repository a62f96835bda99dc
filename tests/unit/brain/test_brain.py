"""The brain as a folder: making, walking, checking and changing it; nothing in it or outside of it is harmed."""

import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from knowledge_files import add_first_units, linked_brain, shell, snapshot, write

from nugget import brain as brains
from nugget import config
from nugget.brain import is_brain
from nugget.brain import knowledge_file as knowledge
from nugget.brain.checks import lint
from nugget.brain.filing import add_unit, forget_unit, forgotten, move_unit
from nugget.config import Settings
from nugget.errors import BrainError, ConflictError, GitError, KnowledgeError
from nugget.infra import git
from nugget.models import Origin, Unit

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 4, 2, 12, 0, tzinfo=UTC)


def change(brain: Path, files: dict[str, bytes | None]) -> None:
    git.commit_change(brain, files, "Change", branch="main", expect_head=git.head(brain))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return add_first_units(brains.init_brain(tmp_path / "new", owner="Ada", now=NOW)[0])


@pytest.mark.proves("BRAIN-INIT")
def test_init_makes_a_committed_brain_from_the_template(tmp_path):
    path, is_new = brains.init_brain(tmp_path / "deep" / "my brain", owner='Ada "the" Älteste', now=NOW)
    assert (path, is_new, is_brain(path)) == (tmp_path / "deep" / "my brain", True, True)
    write(path, ".nugget/index.db", "x")
    assert shell(path, "rev-list", "--count", "HEAD") + shell(path, "status", "--porcelain") == "1\n"
    write(path, "brain.yaml", re.sub(r"(?m)^  # (?=\w+:)", "  ", (path / "brain.yaml").read_text("utf-8")))
    values, problems, misplaced = config.read_brain_file(path)
    own = {"owner": 'Ada "the" Älteste', "name": "my brain"}
    assert (values, problems, misplaced) == ({key: config.documented_keys()[key][0] for key in values} | own, [], {})


@pytest.mark.proves("BRAIN-INIT-IDEMPOTENT")
def test_init_again_changes_nothing_even_after_work(new):
    (new / "README.md").write_text("mine now")
    (new / "domains" / "coding" / "patterns" / "expand-then-contract.md").unlink()
    before, commit = snapshot(new), git.head(new)
    assert brains.init_brain(new, owner="Somebody else", now=LATER) == (new, False)
    assert (snapshot(new), git.head(new)) == (before, commit)
    (new / ".gitignore").write_bytes(b"caf\xe9/\n")
    brains.init_brain(new, owner="", now=LATER)
    assert (new / ".gitignore").read_bytes() == b"caf\xe9/\n.nugget/\n"


@pytest.mark.proves("BRAIN-INIT-FOREIGN")
@pytest.mark.parametrize("name", ["notes.txt", "README.md", ".env", "domains/coding/patterns/mine.md", "src/deep/a.py"])
def test_init_refuses_a_folder_with_something_else_in_it(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(BrainError, match=r"is not empty \(it holds .*\), and is not a brain") as caught:
        brains.init_brain(tmp_path, owner="", now=NOW)
    assert caught.value.hint == "Name a folder that is empty or does not exist yet."
    assert [*filter(None, snapshot(tmp_path).values())] == [b"mine"]


@pytest.mark.proves("BRAIN-CONTAINED")
def test_no_path_leads_out_of_the_brain_or_into_git(new):
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
def test_symbolic_links_out_of_the_brain_are_refused_and_told(new):
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


@pytest.mark.proves("BRAIN-GUARDED-WRITE")
def test_a_change_is_guarded_by_the_commit_that_was_read(new):
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


def unit(kind: str, slug: str, *related: tuple[str, str], domain: str = "coding") -> str:
    edges = "".join(f"  - id: {target}\n    relation: {relation}\n" for target, relation in related)
    head = f"id: {kind}/{slug}\ntype: {kind}\ndomain: {domain}\n{'related:' if edges else ''}\n{edges}"
    return f"---\n{head}---\n# {slug}\n\nText.\n"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    write(tmp_path, "brain.yaml", "owner: Ada\n")
    (tmp_path / "domains").mkdir()
    git.init(tmp_path)
    return tmp_path


def told(brain: Path, *paths: Path) -> list[str]:
    return [f"{problem.severity}: {problem}" for problem in lint(brain, paths)]


@pytest.mark.proves("BRAIN-LINT")
def test_each_broken_file_is_told_and_the_others_are_still_checked(plain):
    write(plain, "domains/coding/bugs/a.md", "---\nid: bug/a\ntype: bug\nconfidence: high\n---\n# A\n")
    write(plain, "domains/coding/bugs/b.md", "---\nid: bug/b\ntype: [bug\n---\n# B\n")
    write(plain, "domains/coding/bugs/c.md", "# C\n")
    write(plain, "domains/coding/bugs/d.md", unit("bug", "d", ("bug/nobody", "uses")))
    assert told(plain) == [
        "warning: domains/coding/bugs/a.md:1: has no `domain`; it is filed under coding",
        "error: domains/coding/bugs/a.md:4: `confidence` must be a number from 0 to 1, not 'high'",
        "error: domains/coding/bugs/b.md:3: has frontmatter that is not valid YAML (did not find expected ',' or ']')",
        "error: domains/coding/bugs/c.md:1: has no frontmatter; start it with a line `---`, then `id:`, `type:` and "
        "`domain:`",
        "warning: domains/coding/bugs/d.md:6: `uses` names bug/nobody, which no file has",
    ]


@pytest.mark.proves("BRAIN-LINT-SECRETS")
def test_a_secret_is_told_by_kind_and_line_and_never_shown(plain):
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    write(plain, "domains/coding/bugs/a.md", unit("bug", "a") + f"\nThe token was {key} then.\n")
    write(plain, "domains/coding/bugs/b.md", unit("bug", "b") + "\nCommit 9f1c3bd2a8e04f3f9f1c3bd2a8e04f3f9f1c3bd2.\n")
    (said,) = told(plain)
    assert said.startswith("warning: domains/coding/bugs/a.md:11: holds what looks like a secret (github-token)")
    assert key not in said and key[4:16] not in said
    assert lint(plain, settings=Settings(redaction_allow=("ghp_a1B2",))) == []


@pytest.mark.proves("SETTINGS-BOUNDED")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a, *a]\nname: [*b, *b, *b]\n", "`name` must be text, not [{}, {}, {}]"),
        ("owner: " + "[" * 5000 + "]" * 5000 + "\n", "is nested too deep"),
        ("owner: x\n" + "# " + "y" * 300_000 + "\n", "longer than 64,000 bytes"),
        ("owner: !!python/object/apply:os.system [id]\n", "`owner` must be text, not ['id']"),
        ("owner: \u00fc\n", None),
    ],
)
def test_settings_that_are_bombs_are_refused_in_one_sentence(plain, text, said):
    write(plain, "brain.yaml", text)
    assert (
        [line for line in told(plain) if "brain.yaml" in line] == [] if said is None else said in "".join(told(plain))
    )
    (plain / "brain.yaml").write_bytes(b"owner: \xff\n")
    assert "not UTF-8" in told(plain)[0]


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


@pytest.mark.proves("BRAIN-ADD")
def test_add_files_a_text_and_commits_only_that_file(own):
    before = work_under_way(own)
    path, _ = add_unit(
        own, "Always set a worker's timeout. Without one a worker hangs forever.", type="pattern", domain="Coding/Go",
        tags=["http", " http ", ""], confidence=0.7, now=NOW,
    )  # fmt: skip
    assert path == "domains/coding/go/patterns/always-set-a-workers-timeout.md"
    unit = unit_at(own, path)
    assert (unit.id, unit.title, unit.tags, unit.confidence) == (
        "pattern/always-set-a-workers-timeout", "Always set a worker's timeout", ("http",), 0.7,
    )  # fmt: skip
    assert (unit.origin, unit.created, unit.last_modified) == (Origin.MANUAL, date(2026, 3, 1), date(2026, 3, 1))
    assert committed(own) == {path} and work_under_way(own) == before
    assert lint(own) == []


@pytest.mark.proves("BRAIN-ADD")
def test_a_secret_in_what_is_added_by_hand_reaches_neither_file_nor_history(own):
    token = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    path, counts = add_unit(
        own, f"# Use {token}\n\nLog in with {token} first.", type="pattern", domain="coding", now=NOW
    )
    add_unit(own, FINISHED + f"\nToken {token}\n", type="pattern", domain="coding", now=NOW)
    assert "Log in with [redacted:github-token] first." in (own / path).read_text()
    assert counts == {"github-token": 2} and token not in shell(own, "log", "-p", "--all")
    assert token.lower() not in path


@pytest.mark.proves("BRAIN-FORGET")
def test_forget_removes_the_unit_its_relations_and_remembers_in_one_commit(own):
    before, body = work_under_way(own), unit_at(own, "domains/coding/concepts/keys.md").body
    result = forget_unit(own, "concept/keys")
    assert result.relinked == ("domains/coding/patterns/queue.md", "domains/coding/patterns/retry.md")
    assert committed(own) == {result.old_path, "forgotten.yaml", *result.relinked}
    assert unit_at(own, "domains/coding/patterns/retry.md").related == ()
    assert forgotten(own) == {"concept/keys", knowledge.body_digest(body)}
    assert work_under_way(own) == before and lint(own) == []


@pytest.mark.proves("BRAIN-FORGET", "BRAIN-UNCOMMITTED")
@pytest.mark.parametrize("stage", [True, False])
def test_a_change_of_a_file_with_work_in_it_is_refused_before_anything_moves(own, stage):
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
    (own / retry).write_text("---\n{id: pattern/x, type: pattern, related: [{id: concept/keys, relation: uses}]}\n---")
    with pytest.raises(KnowledgeError, match=f"{retry}: The frontmatter"):
        forget_unit(own, "concept/keys")


@pytest.mark.proves("BRAIN-MOVE")
def test_a_move_to_another_domain_keeps_id_and_history(own):
    before = work_under_way(own)
    result = move_unit(own, "pattern/retry", domain="Operations/Payments")
    assert (result.new_id, result.new_path) == ("pattern/retry", "domains/operations/payments/patterns/retry.md")
    assert committed(own) == {result.old_path, result.new_path}
    assert (own / result.new_path).read_text() == (
        "---\nid: pattern/retry\ntype: pattern\ndomain: operations/payments\nrelated:\n"
        "  - id: concept/keys  # because\n    relation: uses\n---\n# retry\n\nAbout retry.\n"
    )
    assert work_under_way(own) == before and lint(own) == []


@pytest.mark.proves("BRAIN-MOVE")
def test_a_new_name_is_followed_by_every_relation(own):
    result = move_unit(own, "concept/keys", slug="idempotency-keys")
    assert (result.old_id, result.new_id) == ("concept/keys", "concept/idempotency-keys")
    assert result.relinked == ("domains/coding/patterns/queue.md", "domains/coding/patterns/retry.md")
    assert "  - id: concept/idempotency-keys # because\n" in (own / result.relinked[0]).read_text()
    assert committed(own) == {result.old_path, result.new_path, *result.relinked} and lint(own) == []


@pytest.mark.proves("BRAIN-ONE-WRITER")
def test_writers_at_the_same_moment_all_get_their_commit(own):
    code = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path;"
        "from nugget.brain.filing import add_unit;"
        "add_unit(Path(sys.argv[1]), f'Fact {sys.argv[2]} is kept.', type='belief', domain='x', now=datetime.now(UTC))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, own, str(number)]) for number in range(3)]
    assert [writer.wait() for writer in writers] == [0] * 3
    assert shell(own, "status", "--porcelain", "--", "domains") == ""
    assert shell(own, "log", "--format=%s").count("Add belief/fact-") == 3
