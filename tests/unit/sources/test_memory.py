"""Memory: the notes of one identity, in an index of its own."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from nugget.config import read_environment
from nugget.errors import UsageError
from nugget.index import read_memory
from nugget.index import units as stored
from nugget.index.connection import memory_index_file, open_home, open_memory
from nugget.index.sync import sync_documents
from nugget.models import SourceName, Unit
from nugget.sources.notes import Memory, check_identity


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
    source = Memory(identity, read_environment(), redact=str, brain=world / "brain")
    return [key.replace("@workspace/shop-", "@workspace/shop/").split("/", 1)[1] for key, _ in source.files()]


@pytest.mark.proves("MEMORY-SOURCES")
def test_an_identity_owns_its_folders_and_the_files_that_its_agent_reads(world: Path) -> None:
    assert ids("zealot", world) == ["plan.md", "@brain/brainy.md"]
    mine = [path if "@workspace" not in path else path.rsplit("/", 1)[-1] for path in ids("claude-code", world)]
    assert mine == ["@user/CLAUDE.md", "@project/-shop/MEMORY.md", "CLAUDE.md", "AGENTS.md", "go.md"]
    assert [path.rsplit("/", 1)[-1] for path in ids("codex", world)] == ["AGENTS.md", "AGENTS.md"]
    assert ids("nobody", world) == []


@pytest.mark.proves("MEMORY-IDENTITY")
@pytest.mark.parametrize(
    "text", ["", "..", "../zealot", "a/b", "a\\b", ".hidden", "a..b", "~", "a b", "x" * 65, "a\x00", "é"]
)
def test_an_identity_with_path_characters_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be an identity"):
        check_identity(text)


@pytest.mark.proves("MEMORY-ISOLATION")
def test_memory_stands_in_an_index_of_its_identity_and_can_stand_in_no_other(world: Path) -> None:
    environment = read_environment()
    source = Memory("zealot", environment, redact=str, brain=world / "brain")
    with closing(open_memory(environment.home, "zealot")) as connection:
        sync_documents(source, connection, embedder=None, cache_folder=environment.home / "embeddings")
    index = read_memory(environment.home, "zealot")
    assert index.unit_ids(SourceName.MEMORY) == ["zealot/@brain/brainy.md", "zealot/plan.md"]
    assert read_memory(environment.home, "Zealot").unit_ids(SourceName.MEMORY) == [], (
        "another identity, whatever the file system says"
    )
    note = Unit(id="zealot/plan.md", source=SourceName.MEMORY, type="document", title="x", body="x")
    with closing(open_home(environment.home)) as machine, pytest.raises(ValueError, match="its identity"):
        stored.put_unit(machine, note, [])
    with closing(open_memory(environment.home, "roast")) as other, pytest.raises(ValueError, match="its identity"):
        stored.put_unit(other, note, [])
    assert memory_index_file(environment.home, "a") != memory_index_file(environment.home, "A")
