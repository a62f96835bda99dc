"""Existing notes become proposals: reviewed, once, without what must not get in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import reviewing
from import_stage import NOW, NYGARD, RULES, VAULT, bring_in
from knowledge_files import write as write_file

from nugget.brain import knowledge_file as knowledge
from nugget.capture import review
from nugget.config import CaptureSettings, Settings
from nugget.infra import git
from nugget.models import Origin

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        write_file(root, path, text)
    return root


@pytest.mark.proves("IMPORT-REVIEW", "IMPORT-EVIDENCE", "IMPORT-UNTOUCHED")
def test_a_folder_becomes_a_branch_that_is_reviewed_and_accepted(brain: Path, home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "Coding/Go/leak.md": VAULT})
    before = {file: file.read_bytes() for file in folder.rglob("*.md")}
    head = git.head(brain)
    result = bring_in(folder, brain, home)
    assert result.branch == "nugget/import-20260304-050607-shop" and result.files == 3
    assert git.head(brain) == head and git.run(brain, "status", "--porcelain") == b""
    assert {file: file.read_bytes() for file in folder.rglob("*.md")} == before
    proposal = review.show(brain)
    assert proposal.title == "Knowledge from shop" and proposal.trailers["Nugget-Import"] == "shop"
    assert "> from `shop/doc/adr/0002-x.md:1`" in proposal.body
    files = {file.path: file.unit for file in proposal.files}
    leak = files["domains/coding/go/bugs/leak.md"]
    assert leak is not None and leak.origin is Origin.IMPORTED and leak.session is None
    (evidence,) = leak.evidence
    assert evidence.session == "shop/Coding/Go/leak.md:6" and evidence.quote.startswith("A goroutine that waits")
    accepted = reviewing.accept(brain, now=NOW)
    assert len(accepted.files) == 4 and (brain / "domains/coding/go/bugs/leak.md").exists()
    for path in files:
        parsed = knowledge.parse((brain / path).read_text(), path=path)
        assert parsed.unit is not None and parsed.problems == ()


@pytest.mark.proves("IMPORT-ONCE")
def test_the_same_notes_are_proposed_once_whatever_became_of_them(brain: Path, home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "leak.md": VAULT})
    first = bring_in(folder, brain, home)
    again = bring_in(folder, brain, home)
    assert (again.branch, again.changes, again.known) == (None, (), 4), "they wait for review"
    review.reject(brain, home=home, now=NOW, units=["decision/implement-as-shell-scripts"])
    reviewing.accept(brain, first.branch, now=NOW)
    (folder / "leak.md").rename(folder / "renamed.md")
    moved = bring_in(folder.rename(tmp_path / "elsewhere"), brain, home)
    assert moved.changes == () and moved.known == 3
    assert [reason for reason in moved.dropped if "turned down before" in reason]


@pytest.mark.proves("IMPORT-NEAR", "IMPORT-UNTOUCHED")
def test_what_is_near_to_the_brain_is_flagged_and_edits_nothing(brain: Path, home: Path, tmp_path: Path) -> None:
    path = "domains/coding/concepts/idempotency-keys.md"
    known = knowledge.parse((brain / path).read_text(), path=path).unit
    assert known is not None
    copied = known.body
    more = (
        copied + "\n\nStripe keeps a key for a day; afterwards the same key starts a new payment, which nobody expects."
    )
    folder = write(tmp_path / "notes", {"same.md": copied})
    said = bring_in(folder, brain, home, similar=lambda unit: [(known, 0.99)])
    assert said.changes == () and "concept/idempotency-keys says it already" in said.dropped[0]
    write(folder, {"more.md": more})
    (change,) = bring_in(folder, brain, home, similar=lambda unit: [(known, 0.93)]).changes
    assert (
        change.is_new and change.path != path and change.note == "much like concept/idempotency-keys (similarity 0.93)"
    )


@pytest.mark.proves("IMPORT-REDACTED")
def test_no_secret_and_no_excluded_file_gets_in(brain: Path, home: Path, tmp_path: Path) -> None:
    text = f"# Deploy\n\nThe token {TOKEN} opens the registry for every deployment.\n<private>my wage</private>\n"
    folder = write(tmp_path / "notes", {"deploy.md": text, "hr/pay.md": "# Pay\n\n" + "Ann earns 90000 a year. " * 5})
    settings = Settings(capture=CaptureSettings(exclude_paths=("hr/*",)))
    result = bring_in(folder, brain, home, settings=settings)
    assert result.redacted == {"github-token": 1, "private": 1}
    held = git.run(brain, "log", "-p", str(result.branch)).decode()
    assert TOKEN not in held and "wage" not in held and "90000" not in held
    assert "notes/hr/pay.md: is excluded (capture.exclude_paths)" in map(str, result.left_out)


@pytest.mark.proves("IMPORT-HOSTILE")
def test_hostile_files_are_left_out_with_a_reason_and_stop_no_other(brain: Path, home: Path, tmp_path: Path) -> None:
    good = "# Vector clocks\n\nThey say which of two events came first, where no clock can be trusted to.\n"
    folder = write(
        tmp_path / "notes", {"good.md": good, "deep.json": '"memory"' + "[" * 100_000, "package.json": '{"a": 1}'}
    )
    (folder / "binary.md").write_bytes(b"# x\n\0\1\2" * 50)
    (folder / "latin.md").write_bytes("# Café\n\nüber".encode("latin-1"))
    (folder / "huge.md").write_bytes(b"x" * 1_000_001)
    (folder / "bomb.md").write_text(
        "---\na: &a [x]\nb: &b [*a,*a]\nc: "
        + "[" * 5000
        + "\n---\n"
        + "# Bomb clocks\n\nTicking is all that they do, and nobody should open one at home.\n"
    )
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "alias.md").symlink_to(folder / "good.md")
    (folder / "loop").symlink_to(folder)
    (folder / ".git").mkdir()
    (folder / ".git" / "notes.md").write_text(good)
    (folder / "evil.md").write_text(
        "---\ntitle: ../../../etc/passwd\ntype: ../x\ntags: ['a\\nb', '---']\n---\n---\nid: bug/x\n---\n" + "text " * 40
    )
    os.mkfifo(folder / "pipe.md")
    result = bring_in(folder, brain, home)
    said = {entry.path: entry.reason for entry in result.left_out}
    assert said == {
        "notes/binary.md": "is not a text in UTF-8", "notes/latin.md": "is not a text in UTF-8",
        "notes/alias.md": "is a link, which is not followed",
        "notes/huge.md": "is larger than 1,000,000 bytes", "notes/deep.json": "is not valid JSON",
    }  # fmt: skip
    (alone,) = bring_in(folder / "package.json", brain, home).left_out
    assert alone.reason == "is not a known export (mem0, claude-mem)"
    ids = {change.unit.id for change in result.changes}
    assert {"concept/vector-clocks", "concept/bomb-clocks"} <= ids and len(ids) == 3
    for change in result.changes:
        assert change.path.startswith("domains/") and ".." not in change.path
        assert knowledge.parse(change.text, path=change.path).unit is not None
