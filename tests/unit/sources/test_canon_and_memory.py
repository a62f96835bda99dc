"""Notes: canon, folders of markdown that are read and never written; memory, that of one identity."""

import json
import subprocess
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from nugget.config import Settings, read_environment
from nugget.errors import UsageError
from nugget.index.embedded import read_memory
from nugget.index.embedded import units as stored
from nugget.index.embedded.connection import memory_index_file, open_home, open_memory
from nugget.index.embedded.sync import sync_documents
from nugget.models import Relation, RelationType, SourceName, Unit
from nugget.sources import UnitFiles
from nugget.sources.notes import check_identity, memory_of, open_canon

SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


def canon(folder: Path) -> UnitFiles:
    return open_canon(read_environment(), Settings(canon_folders=(str(folder),)), Path("/"))


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_md", ".md").replace("dot", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def keys(source: UnitFiles) -> list[str]:
    return [key for key, _ in source.files()]


def unit(source: UnitFiles, key: str) -> Unit:
    return source.read(key, file := Path(dict(source.files())[key]), source.content(key, file))[0][0]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    write(
        folder,
        Home_md="# Home\n\nSee [[Retry Policy|retries]], [[missing note#part]] and ![[Rates]].\n\n"
        "```\n[[not this]]\n```\n",
        ops__Rates_md="---\ntitle: Rate limits\ntags: [ops, limits]\naliases: [quota, throttle]\n"
        "created: 2025-03-04\n---\n"
        f"Back to [home](../Home.md#top), [out](https://example.com/x.md). #ops/limits and the token {SECRET}",
    )
    (folder / "Retry Policy.md").write_text("Retry three times.")
    return folder


@pytest.mark.proves("CANON-READ")
def test_a_vault_is_read_with_its_titles_tags_names_dates_and_links(vault):
    source = canon(vault)
    assert keys(source) == ["vault/Home.md", "vault/Retry Policy.md", "vault/ops/Rates.md"]
    rates = unit(source, "vault/ops/Rates.md")
    assert (rates.id, rates.ref, rates.title) == ("vault/ops/Rates.md", "canon:vault/ops/Rates.md", "Rate limits")
    assert (rates.tags, rates.created) == (("ops", "limits", "ops/limits"), date(2025, 3, 4))
    assert "Also called: quota, throttle" in rates.body and SECRET not in rates.body
    assert rates.related == (Relation(id="vault/Home.md", relation=RelationType.INFORMED_BY),)
    home = unit(source, "vault/Home.md")
    linked = ["vault/Retry Policy.md", "vault/missing note.md", "vault/ops/Rates.md"]
    assert [edge.id for edge in home.related] == linked


@pytest.mark.proves("CANON-IGNORE")
def test_ignore_files_are_honoured_the_deeper_one_first(tmp_path):
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


@pytest.mark.proves("CANON-BAD-INPUT")
def test_links_in_circles_and_out_of_the_folder_are_not_followed(vault, tmp_path):
    (tmp_path / "outside.md").write_text("secret")
    (vault / "round").symlink_to(vault)
    (vault / "out.md").symlink_to(tmp_path / "outside.md")
    (vault / "loop.md").symlink_to(vault / "loop.md")
    (vault / "alias.md").symlink_to(vault / "Home.md")
    assert keys(canon(vault)) == ["vault/Home.md", "vault/Retry Policy.md", "vault/alias.md", "vault/ops/Rates.md"]


@pytest.fixture
def world(isolated_home: Path, tmp_path: Path) -> Path:
    """Notes of two identities, and the files of Claude Code."""
    shop = tmp_path / "shop"
    texts = {
        isolated_home / ".nugget/memory/zealot/plan.md": "# Zealot's plan",
        isolated_home / ".nugget/memory/roast/jokes.md": "# Jokes",
        isolated_home / ".claude/CLAUDE.md": "Always run the tests.",
        isolated_home / ".claude/projects/-shop/memory/MEMORY.md": "The shop runs on port 8123.",
        isolated_home / ".claude.json": json.dumps({"projects": {str(shop): {}, "/gone": {}}}),
        isolated_home / ".codex/AGENTS.md": "Codex, be brief.",
        tmp_path / "brain/memory/zealot/brainy.md": "# In the brain",
        shop / "CLAUDE.md": "This is the shop.",
        shop / ".claude/rules/go.md": "Go rules.",
        shop / "AGENTS.md": "For all agents.",
    }
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def ids(identity: str, world: Path) -> list[str]:
    source = memory_of(identity, read_environment(), redact=str, brain=world / "brain")
    return [key.replace("@workspace/shop-", "@workspace/shop/").split("/", 1)[1] for key, _ in source.files()]


@pytest.mark.proves("MEMORY-SOURCES")
def test_an_identity_owns_its_folders_and_the_files_that_its_agent_reads(world):
    assert ids("zealot", world) == ["plan.md", "@brain/brainy.md"]
    mine = [path if "@workspace" not in path else path.rsplit("/", 1)[-1] for path in ids("claude-code", world)]
    assert mine == ["@user/CLAUDE.md", "@project/-shop/MEMORY.md", "CLAUDE.md", "AGENTS.md", "go.md"]
    assert ids("nobody", world) == []


@pytest.mark.proves("MEMORY-IDENTITY")
@pytest.mark.parametrize(
    "text", ["", "..", "../zealot", "a/b", "a\\b", ".hidden", "a..b", "~", "a b", "x" * 65, "a\x00", "é"]
)
def test_an_identity_with_path_characters_is_refused(text):
    with pytest.raises(UsageError, match="cannot be an identity"):
        check_identity(text)


@pytest.mark.proves("MEMORY-ISOLATION")
def test_memory_stands_in_an_index_of_its_identity_and_can_stand_in_no_other(world):
    environment = read_environment()
    source = memory_of("zealot", environment, redact=str, brain=world / "brain")
    with closing(open_memory(environment.home, "zealot")) as connection:
        sync_documents(source, connection, embedder=None)
    index = read_memory(environment.home, "zealot")
    assert index.unit_ids(SourceName.MEMORY) == ["zealot/@brain/brainy.md", "zealot/plan.md"]
    other = read_memory(environment.home, "Zealot")
    assert other.unit_ids(SourceName.MEMORY) == [], "another identity, whatever the file system says"
    note = Unit(id="zealot/plan.md", source=SourceName.MEMORY, type="document", title="x", body="x")
    with closing(open_home(environment.home)) as machine, pytest.raises(ValueError, match="its identity"):
        stored.put_unit(machine, note, [])
    with closing(open_memory(environment.home, "roast")) as other, pytest.raises(ValueError, match="its identity"):
        stored.put_unit(other, note, [])
    assert memory_index_file(environment.home, "a") != memory_index_file(environment.home, "A")
