"""One search over everything, in a world such as a person has: a brain, canon, real sessions, memory and a channel.

Golden transcripts stand in tests/golden/search; `UPDATE_GOLDEN=1 pytest tests/cli/test_search.py` writes them anew.
"""

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from cli_stage import is_golden
from paths import TESTS
from sessions import write_transcript

from nugget.app import Brain
from nugget.app.agent_session import AgentSession
from nugget.config import read_environment
from nugget.errors import NuggetError, UsageError
from nugget.evaluation import query_log
from nugget.mcp.answers import answer as answer_question
from nugget.models import Filter, Query, SourceName

GOLDEN = TESTS / "golden" / "search"
SECRET = "xylophone"
"""Stands in the memory of the identity zealot, and nowhere else."""

CANON = {
    "constitutions/cupid.md": "# CUPID CONSTITUTION\n\nYou are Cupid. You see love in every commit.",
    "constitutions/roast.md": "# LIFE ROASTER CONSTITUTION\n\nYou roast lives, kindly.",
    "archaeology/space_experimental_architecture.md": "# Bridge Architecture Reference\n\nThe bridge has channels. "
    "Each channel has one owner, as its constitution says.\n\n## Storage\n\nMessages are lines of JSON. See "
    "[[cupid]].\n\n### Rotation\n\nOnce a week.\n\n## Limits\n\nNone known.",
    "adr/0007-retries.md": "---\ntags: [payments]\n---\n# Retry payments three times\n\nWe retry payments three times.",
}
CHANNEL = [
    {"from": "ada", "text": "The architecture of the bridge stays as it is.", "timestamp": "2026-05-01T10:00:00Z"},
    {"from": "bob", "text": "Agreed; I write it down.", "timestamp": "2026-05-01T10:05:00Z"},
]
MOVED = "The architecture has three layers. I moved the mock tool below the gate."
TURNS = [("lets fix up the security architecture to use the mock tool", MOVED),
         ("and the walrus?", "The walrus stays outside of it.")]  # fmt: skip


class World(NamedTuple):
    """Where everything lies."""

    home: Path
    brain: Path
    canon: Path
    variables: dict[str, str]


@pytest.fixture(scope="module")
def made(knowledge: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world, made and indexed once; searched by words alone."""
    folder = tmp_path_factory.mktemp("world")
    home, brain, canon = folder / "home", folder / "brain", folder / "handbook"
    shutil.copytree(knowledge, brain)
    for name, text in CANON.items():
        (canon / name).parent.mkdir(parents=True, exist_ok=True)
        (canon / name).write_text(text)
    memory = home / ".nugget" / "memory"
    for identity, text in (("zealot", f"# Plan\n\nThe architecture needs a {SECRET}."), ("roast", "# Jokes\n\nNone.")):
        (memory / identity).mkdir(parents=True)
        (memory / identity / "plan.md").write_text(text)
    channel = home / ".nugget" / "bridge" / "release.jsonl"
    channel.parent.mkdir(parents=True)
    channel.write_text("".join(json.dumps(line) + "\n" for line in CHANNEL))
    session = "30eb2a7b-1111-4222-8333-944455556666"
    transcript = home / f".claude/projects/-work-shop/{session}.jsonl"
    started = datetime(2025, 10, 13, 10, 55, tzinfo=UTC)
    write_transcript(transcript, TURNS, session=session, cwd="/work/shop", started=started)
    for file in [*canon.rglob("*.md"), *memory.rglob("*.md")]:
        os.utime(file, (1_772_366_400, 1_772_366_400))  # 2026-03-01
    variables = {"HOME": str(home), "NUGGET_BRAIN": str(brain), "NUGGET_CANON_FOLDERS": str(canon),
                 "NUGGET_EMBEDDING_MODEL": "none"}  # fmt: skip
    with Brain(brain, environment=read_environment(variables)) as opened:
        opened.sync()
        opened.sync_local_sources()
    return World(home, brain, canon, variables)


@pytest.fixture
def world(made: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.brain)
    return made


@pytest.fixture
def opened(world: World) -> Iterator[Brain]:
    with Brain(world.brain, environment=read_environment()) as brain:
        yield brain


def golden(name: str, shown: str, world: World) -> None:
    """Compare with the transcript of that name; the world's folders do not count."""
    is_golden(GOLDEN / f"{name}.txt", shown.replace(str(world.home.parent), "<world>"))


@pytest.mark.proves("SEARCH-GROUPS", "SEARCH-EXAMPLES")
@pytest.mark.parametrize(("name", "arguments"), [
    ("architecture", ["architecture"]), ("sessions", ["architecture", "--scope", "sessions"]),
    ("constitution", ["constitution", "--scope", "canon"]),
    ("as", ["spawn architecture", "--as", "zealot", "--source", "memory"]),
    ("quiet", ["architecture", "--quiet", "--limit", "2"]), ("malformed", ['retry "payments', "--source", "canon"]),
    ("language", ["type:decision path:adr tag:payments retry* NOT walrus"]),
])  # fmt: skip
def test_a_search_looks_like_this(nugget, world, name, arguments):
    result = nugget("search", *arguments)
    assert result.code == 0, result.err
    golden(name, result.out, world)


@pytest.mark.proves("SEARCH-GET")
@pytest.mark.parametrize(
    ("name", "ref"),
    [("get-exchange", "session:30eb2a7b#1"), ("get-message", "bridge:release#1"),
     ("get-note", "canon:handbook/adr/0007-retries.md"),
     ("get-section", "canon:handbook/archaeology/space_experimental_architecture.md#Storage")],
)  # fmt: skip
def test_a_ref_is_shown_whole_with_what_stands_around_it(nugget, world, name, ref):
    result = nugget("get", ref)
    assert result.code == 0, result.err
    golden(name, result.out, world)
    assert nugget("get", ref, "--json").json["ref"]


@pytest.mark.proves("SEARCH-RELATED")
def test_what_is_near_a_note_are_its_links_and_its_like(world, nugget):
    ref = "canon:handbook/archaeology/space_experimental_architecture.md"
    hits = nugget("search", "--related", ref, "--json", "--source", "canon").json["hits"]
    assert hits[0]["ref"] == "canon:handbook/constitutions/cupid.md" and ref not in [hit["ref"] for hit in hits]


@pytest.mark.proves("SEARCH-SUGGEST")
def test_suggestions_say_what_can_be_asked(world, nugget):
    every = nugget("suggest", "--json").json
    assert every["domains"][0]["name"] == "coding"
    assert {"name": "Test Person", "count": 1} in every["people"]
    assert "payments" in [tag["name"] for tag in nugget("suggest", "pay", "--json").json["tags"]]
    assert "handbook/adr/" in [path["name"] for path in nugget("suggest", "adr", "--json").json["paths"]]


@pytest.mark.proves("SEARCH-COMPLETION")
def test_a_shell_completes_refs_domains_tags_and_types(world):
    from nugget.cli.ask import DomainOption, TagOption, TypeOption, complete_ref

    assert complete_ref("pattern/retry")[0][0] == "pattern/retry-with-idempotency"
    domains, tags, types = (get_args(one)[1].autocompletion for one in (DomainOption, TagOption, TypeOption))
    assert "cooking" in domains("coo") and tags("payme") == ["payments"] and types("dec") == ["decision"]
    assert complete_ref("memory:") == []


@pytest.mark.proves("MEMORY-ISOLATION")
def test_memory_is_nowhere_without_its_identity(nugget, opened, world):
    ref = "memory:zealot/plan.md"
    assert SECRET in nugget("search", SECRET, "--as", "zealot").out, "it is there, and would be found"
    assert SECRET in nugget("get", ref, "--as", "zealot").out
    for arguments in (
        ["search", "architecture needs", "--explain"], ["search", "architecture needs", "--as", "roast"],
        ["search", "--related", "architecture needs"], ["ask", "architecture needs", "--json"], ["get", ref],
        ["get", ref, "--as", "roast"], ["suggest", "", "--json"], ["search", "--related", ref],
        ["search", "architecture", "--source", "memory"], ["queries", "--json"], ["status", "--json"],
    ):  # fmt: skip
        result = nugget(*arguments)
        assert "zealot/" not in result.out + result.err.replace(ref, ""), arguments
        assert f"needs a {SECRET}" not in result.out + result.err, arguments
    with pytest.raises(UsageError):
        opened.search("plan source:memory")
    with pytest.raises(UsageError):
        opened.search(Query("plan", identity="../zealot"))
    entries = query_log.read(read_environment().home)
    assert not any(unit.startswith(("memory:", "zealot")) for entry in entries for unit in entry.unit_ids)
    with closing(sqlite3.connect(world.home / ".nugget" / "index.db")) as machine:
        assert machine.execute("SELECT count(*) FROM units WHERE source = 'memory'").fetchone() == (0,)
        assert machine.execute("SELECT count(*) FROM chunks_vocabulary WHERE term = ?", (SECRET,)).fetchone() == (0,)


@pytest.mark.proves("MEMORY-ISOLATION", "SEARCH-MCP")
def test_an_agent_gets_other_sources_and_refs_and_memory_only_of_the_servers_identity(world):
    def answer(
        identity: str | None, text: str = "architecture", ref: str | None = None, *, sources: Sequence[str] = ()
    ) -> str:
        session = AgentSession(flag=None, environment=read_environment(), cwd=world.brain, identity=identity)
        try:
            named = Filter(sources=tuple(map(SourceName, sources)))
            return answer_question(session, Query(text, filter=named), ref=ref)
        finally:
            for thread in threading.enumerate():  # the warm-up still asks
                if thread.name == "nugget-warm-up":
                    thread.join()
            session.close()

    told = answer(None, sources=["sessions", "canon"])
    assert "session:30eb2a7b" in told and "canon:handbook/archaeology" in told
    assert "three layers" in answer(None, text="", ref="session:30eb2a7b#1")
    assert SECRET not in answer(None) and SECRET not in answer("zealot"), "it has to be asked for"
    assert SECRET in answer("zealot", sources=["memory"])
    assert SECRET in answer("zealot", text="", ref="memory:zealot/plan.md")
    for identity, question in (
        (None, {"sources": ["memory"]}), (None, {"ref": "memory:zealot/plan.md"}),
        ("roast", {"ref": "memory:zealot/plan.md"}),
    ):  # fmt: skip
        with pytest.raises(NuggetError):
            answer(identity, **question)
    assert SECRET not in answer("roast", sources=["memory"])


@pytest.mark.proves("SEARCH-FRESH")
def test_what_changed_is_found_and_what_is_gone_is_not(nugget, world):
    note = world.canon / "fresh.md"
    note.write_text("# Fresh\n\nThe narwhal is new.")
    assert "fresh.md" in nugget("search", "narwhal").out
    note.unlink()
    assert "Nothing matches." in nugget("search", "narwhal", "--source", "canon").out


@pytest.mark.proves("SEARCH-LIST")
def test_filters_alone_list_what_they_admit_the_newest_first(nugget, opened):
    def listed(*arguments: str) -> list[str]:
        return nugget("search", *arguments, "--quiet").out.split()

    assert listed("tag:payments source:canon") == ["canon:handbook/adr/0007-retries.md"]
    assert listed("source:bridge until:2026-05-01") == ["bridge:release#2", "bridge:release#1"]
    assert listed("source:bridge until:2026-04-30") == []
    assert {ref[:16] for ref in listed("session:30eb2a7b architecture")} == {"session:30eb2a7b"}
    assert len(said := listed("source:sessions")) == len({*said}) > 1, "both sides of an exchange have one ref"
    decisions = opened.search("type:decision source:brain").hits
    days = [hit.unit.last_modified or hit.unit.created for hit in decisions]
    assert len(decisions) > 3 and {hit.unit.type for hit in decisions} == {"decision"}
    assert days == sorted(days, key=str, reverse=True)
    assert SECRET not in (out := nugget("search", "domain:operations since:2026-02").out)
    assert "confidence 0.85 · changed 2026-06-24" in out, "it was learned in 2025"


@pytest.mark.proves("ASK-SOURCES", "SEARCH-PAGES")
def test_ask_has_the_hits_of_search_page_by_page(nugget, world):
    def refs(command: str, *arguments: str) -> list[str]:
        found = nugget(command, "architecture of the bridge", "--json", *arguments).json
        return [hit["ref"] for hit in found["hits"]]

    every = refs("search", "-n", "50")
    assert {ref.partition(":")[0] for ref in every} >= {"brain", "canon", "session", "bridge"}
    assert refs("ask", "--no-llm") == refs("search") == every[:10]
    assert refs("search", "-n", "3", "--more") == every[3:6] == refs("ask", "-n", "3", "--more")
    assert nugget("search", "architecture", "-n", "50", "--more").out.startswith("No more results.\n")
