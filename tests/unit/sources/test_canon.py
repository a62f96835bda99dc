"""Canon: folders of markdown that are read and never written."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from nugget.models import Relation, RelationType, Unit
from nugget.sources import ReadDocument
from nugget.sources.notes import Canon, canon_folders


def canon(*folders: Path, max_files: int = 1000) -> Canon:
    named = canon_folders([str(folder) for folder in folders], base=Path("/"))
    return Canon(named, redact=lambda text: text.replace("hunter2", "[redacted:password]"), max_files=max_files)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_md", ".md").replace("dot", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def keys(source: Canon) -> list[str]:
    return [key for key, _ in source.files()]


def read(source: Canon, key: str) -> ReadDocument:
    return source.read(key, Path(dict(source.files())[key]))


def unit(source: Canon, key: str) -> Unit:
    return read(source, key).units[0]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    write(
        folder,
        Home_md="# Home\n\nSee [[Retry Policy|retries]], [[missing note#part]] and ![[Rates]].\n\n"
        "```\n[[not this]]\n```\n",
        ops__Rates_md="---\ntitle: Rate limits\ntags: [ops, limits]\naliases: [quota, throttle]\n"
        "created: 2025-03-04\n---\n"
        "Back to [home](../Home.md#top), [out](https://example.com/x.md). #ops/limits and the password hunter2",
    )
    (folder / "Retry Policy.md").write_text("Retry three times.")
    return folder


@pytest.mark.proves("CANON-READ")
def test_a_vault_is_read_with_its_titles_tags_names_dates_and_links(vault: Path) -> None:
    source = canon(vault)
    assert keys(source) == ["vault/Home.md", "vault/Retry Policy.md", "vault/ops/Rates.md"]
    rates = unit(source, "vault/ops/Rates.md")
    assert (rates.id, rates.ref, rates.title) == ("vault/ops/Rates.md", "canon:vault/ops/Rates.md", "Rate limits")
    assert (rates.tags, rates.created) == (("ops", "limits", "ops/limits"), date(2025, 3, 4))
    assert "Also called: quota, throttle" in rates.body
    assert "hunter2" not in rates.body
    assert rates.related == (Relation(id="vault/Home.md", relation=RelationType.INFORMED_BY),)
    home = unit(source, "vault/Home.md")
    assert [edge.id for edge in home.related] == [
        "vault/Retry Policy.md",
        "vault/missing note.md",
        "vault/ops/Rates.md",
    ]
    assert unit(source, "vault/Retry Policy.md").title == "Retry Policy"


@pytest.mark.proves("CANON-READ")
def test_decision_records_are_decisions_and_broken_frontmatter_costs_no_text(tmp_path: Path) -> None:
    write(
        tmp_path / "docs",
        adr__0001_md="# Use Postgres",
        bad_md="---\ntags: [a\n---\nThe text counts.",
        rule_md="---\nno end",
    )
    source = canon(tmp_path / "docs")
    assert unit(source, "docs/adr/0001.md").type == "decision"
    bad = read(source, "docs/bad.md")
    assert bad.units[0].body == "The text counts."
    assert "not valid YAML" in str(bad.problems)
    assert "no end" in unit(source, "docs/rule.md").body


@pytest.mark.proves("CANON-IGNORE")
def test_ignore_files_are_honoured_the_deeper_one_first(tmp_path: Path) -> None:
    repo = tmp_path / "shop"
    write(
        repo,
        dotgitignore="drafts/\n*.tmp.md\n/docs/generated\n",
        docs__a_md="a", docs__drafts__b_md="b", docs__generated__c_md="c", docs__node_modules__d_md="d",
        docs__dotobsidian__e_md="e", docs__keep__f_md="f", docs__keep__secret__g_md="g",
        docs__keep__dotnuggetignore="secret/\n!h.tmp.md\n",
    )  # fmt: skip
    (repo / "docs/x.tmp.md").write_text("x")
    (repo / "docs/keep/h.tmp.md").write_text("h")
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    assert keys(canon(repo / "docs")) == ["docs/a.md", "docs/keep/f.md", "docs/keep/h.tmp.md"]
    assert keys(canon(repo / "docs" / "drafts")) == ["drafts/b.md"], "whoever names an ignored folder means it"


@pytest.mark.proves("CANON-BAD-INPUT")
def test_links_in_circles_and_out_of_the_folder_are_not_followed(vault: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("secret")
    (vault / "round").symlink_to(vault)
    (vault / "out.md").symlink_to(tmp_path / "outside.md")
    (vault / "loop.md").symlink_to(vault / "loop.md")
    (vault / "alias.md").symlink_to(vault / "Home.md")
    assert keys(canon(vault)) == ["vault/Home.md", "vault/Retry Policy.md", "vault/alias.md", "vault/ops/Rates.md"]


@pytest.mark.proves("CANON-BAD-INPUT")
def test_what_cannot_be_read_is_told_and_the_rest_is_read(
    vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, real: object = os.scandir) -> object:
        if Path(path).name == "ops":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)  # type: ignore[operator]

    monkeypatch.setattr(os, "scandir", refuse)  # whoever runs the tests may be root, who can read everything
    source = canon(vault, tmp_path / "gone")
    assert keys(source) == ["vault/Home.md", "vault/Retry Policy.md"]
    assert [str(problem).replace(str(tmp_path), "") for problem in source.problems] == [
        "/vault/ops: cannot be listed (Permission denied)",
        "/gone: is not a folder (any more); nothing in it is found",
    ]


@pytest.mark.proves("CANON-CLOUD")
def test_conflict_copies_of_cloud_clients_are_left_out(vault: Path) -> None:
    before = keys(canon(vault))
    for name in ("Home (Ada's conflicted copy 2026-05-01).md", "Home.sync-conflict-20260501-101010-ABCDEFG.md"):
        (vault / name).write_text("x")
    assert keys(canon(vault)) == before


@pytest.mark.proves("CANON-BAD-INPUT")
def test_a_folder_with_too_many_notes_is_read_in_part_and_says_so(vault: Path) -> None:
    source = canon(vault, max_files=2)
    assert len(keys(source)) == 2
    assert source.problems == [], "which would be told with every search"
    assert "holds more than 2 notes" in str(source.left_out[0])


@pytest.mark.proves("CANON-SCALE")
def test_a_large_tree_is_walked_for_its_notes(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for folder in ("assets/1", "assets/2", "node_modules/x"):
        (site / folder).mkdir(parents=True)
        for number in range(300):
            (site / folder / f"{number}.{'md' if 'node' in folder else 'png'}").touch()
    write(site, a_md="a", docs__b_md="b")
    source = canon(site)
    assert keys(source) == ["site/a.md", "site/docs/b.md"] and source.problems == []


@pytest.mark.proves("CANON-READ")
def test_a_committed_note_has_the_day_of_its_commit_and_a_changed_one_its_own(vault: Path) -> None:
    variables = {**os.environ, "GIT_COMMITTER_DATE": "2024-05-06T12:00:00Z", "GIT_AUTHOR_DATE": "2024-05-06T12:00:00Z"}
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(vault), *command], check=True, env=variables)
    (vault / "Home.md").write_text("changed")
    source = canon(vault)
    assert unit(source, "vault/Retry Policy.md").last_modified == date(2024, 5, 6)
    changed = datetime.fromtimestamp((vault / "Home.md").stat().st_mtime, UTC)
    assert unit(source, "vault/Home.md").last_modified == changed.date()
    below = canon(vault / "ops")
    assert unit(below, "ops/Rates.md").last_modified == date(2024, 5, 6)
