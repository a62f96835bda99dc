"""`nugget review -i` as a person uses it: keys in a real terminal, an editor, one commit at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from commands import Nugget
from programs import program
from terminals import terminal

from nugget.infra import git

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
BRANCH = "nugget/session-20260304-050607-abcd1234"


@pytest.fixture
def proposed(words: Path) -> Path:
    """A brain in which five units wait: two patterns and a bug of one domain, two concepts of another."""
    files: dict[str, bytes | None] = {}
    for place in ("coding/patterns/okapi", "coding/patterns/zebra", "coding/bugs/yak", "ops/concepts/gnu",
                  "ops/concepts/ibex"):  # fmt: skip
        domain, kind, slug = place.split("/")
        head = f"---\nid: {kind[:-1]}/{slug}\ntype: {kind[:-1]}\ndomain: {domain}\n---\n"
        unit = f"{head}# The {slug} way\n\nBy {slug}.\n"
        files[f"domains/{place}.md"] = unit.encode()
    git.create_branch(words, BRANCH, files=files, message="Knowledge from a session\n\nFive.", now=NOW)
    return words


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.proves("REVIEW-KEYS")
def test_units_are_accepted_edited_rejected_and_skipped_by_keys_in_one_commit(
    proposed: Path, isolated_home: Path, nugget: Nugget, tmp_path: Path
) -> None:
    token = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    editor = program(tmp_path / "editor", f'sed -i "s/By yak./By yak, token {token}/" "$1"')
    before = git.head(proposed)
    with terminal("bash", isolated_home, {"EDITOR": str(editor)}) as shell:
        shell.type("nugget review -i\n")
        shell.answer(b"1 of 5", "e")  # bug/yak
        shell.answer(b"2 of 5", "r")  # pattern/okapi
        shell.answer(b"3 of 5", "s")  # pattern/zebra
        shell.answer(b"4 of 5", "t")  # both concepts
        shell.answer(b"accept 3 units, reject 1, leave 1", "y")
        shell.wait()
    commits = git.run(proposed, "rev-list", "--first-parent", f"{before}..HEAD").split()
    assert len(commits) == 1, "one act is one commit"
    held = git.files_at(proposed, "HEAD", under=["domains"])
    assert {"domains/coding/bugs/yak.md", "domains/ops/concepts/gnu.md", "domains/ops/concepts/ibex.md"} <= held.keys()
    edited = (proposed / "domains/coding/bugs/yak.md").read_text("utf-8")
    assert "By yak, token [redacted" in edited and "ghp_" not in edited
    (left,) = nugget("review", "list", "--json").json
    assert [file["id"] for file in left["files"]] == ["pattern/zebra"]
    ledger = (isolated_home / ".nugget" / "ledger" / "rejected.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in ledger] == ["pattern/okapi"]


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.proves("REVIEW-KEYS")
def test_a_review_that_is_interrupted_or_not_at_a_terminal_changes_nothing(
    proposed: Path, isolated_home: Path, nugget: Nugget
) -> None:
    before = subprocess.run(["git", "-C", proposed, "show-ref"], check=True, capture_output=True).stdout
    with terminal("bash", isolated_home) as shell:
        shell.type("nugget review -i\n")
        shell.answer(b"1 of 5", "d")  # all three of the domain
        shell.answer(b"4 of 5", "\x03")
        shell.wait()
    assert nugget("review", "-i").code == 2
    assert subprocess.run(["git", "-C", proposed, "show-ref"], check=True, capture_output=True).stdout == before
