"""Lint: every file, and how they fit together, each with path, line and reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from knowledge_files import write

from nugget.brain.checks import lint
from nugget.config import Settings
from nugget.infra import git


def unit(kind: str, slug: str, *related: tuple[str, str], domain: str = "coding") -> str:
    edges = "".join(f"  - id: {target}\n    relation: {relation}\n" for target, relation in related)
    head = f"id: {kind}/{slug}\ntype: {kind}\ndomain: {domain}\n{'related:' if edges else ''}\n{edges}"
    return f"---\n{head}---\n# {slug}\n\nText.\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    write(tmp_path, "brain.yaml", "owner: Ada\n")
    (tmp_path / "domains").mkdir()
    git.init(tmp_path)
    return tmp_path


def told(brain: Path, *paths: Path) -> list[str]:
    return [f"{problem.severity}: {problem}" for problem in lint(brain, paths)]


@pytest.mark.proves("BRAIN-LINT")
def test_each_broken_file_is_told_and_the_others_are_still_checked(own: Path) -> None:
    write(own, "domains/coding/bugs/a.md", "---\nid: bug/a\ntype: bug\nconfidence: high\n---\n# A\n")
    write(own, "domains/coding/bugs/b.md", "---\nid: bug/b\ntype: [bug\n---\n# B\n")
    write(own, "domains/coding/bugs/c.md", "# C\n")
    write(own, "domains/coding/bugs/d.md", unit("bug", "d", ("bug/nobody", "uses")))
    assert told(own) == [
        "warning: domains/coding/bugs/a.md:1: has no `domain`; it is filed under coding",
        "error: domains/coding/bugs/a.md:4: `confidence` must be a number from 0 to 1, not 'high'",
        "error: domains/coding/bugs/b.md:3: has frontmatter that is not valid YAML (did not find expected ',' or ']')",
        "error: domains/coding/bugs/c.md:1: has no frontmatter; start it with a line `---`, then `id:`, `type:` and "
        "`domain:`",
        "warning: domains/coding/bugs/d.md:6: `uses` names bug/nobody, which no file has",
    ]


@pytest.mark.proves("BRAIN-LINT-SECRETS")
def test_a_secret_is_told_by_kind_and_line_and_never_shown(own: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    write(own, "domains/coding/bugs/a.md", unit("bug", "a") + f"\nThe token was {key} then.\n")
    write(own, "domains/coding/bugs/b.md", unit("bug", "b") + "\nCommit 9f1c3bd2a8e04f3f9f1c3bd2a8e04f3f9f1c3bd2.\n")
    (said,) = told(own)
    assert said.startswith("warning: domains/coding/bugs/a.md:11: holds what looks like a secret (github-token)")
    assert key not in said and key[4:16] not in said
    assert lint(own, settings=Settings(redaction_allow=("ghp_a1B2",))) == []


@pytest.mark.proves("SETTINGS-BOUNDED")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a, *a]\nname: [*b, *b, *b]\n", "`name` must be a valid string, not [{}, {}, {}]"),
        ("owner: " + "[" * 5000 + "]" * 5000 + "\n", "is nested too deep"),
        ("owner: x\n" + "# " + "y" * 300_000 + "\n", "longer than 64,000 bytes"),
        ("owner: !!python/object/apply:os.system [id]\n", "`owner` must be a valid string, not ['id']"),
        ("owner: \u00fc\n", None),
    ],
)
def test_settings_that_are_bombs_are_refused_in_one_sentence(own: Path, text: str, said: str | None) -> None:
    write(own, "brain.yaml", text)
    assert [line for line in told(own) if "brain.yaml" in line] == [] if said is None else said in "".join(told(own))
    (own / "brain.yaml").write_bytes(b"owner: \xff\n")
    assert "not UTF-8" in told(own)[0]
