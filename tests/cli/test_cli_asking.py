"""Questions on the command line: `ask`, `search` and `get`, with and without an LLM."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_stage import write_unit
from commands import Nugget
from loopback_anthropic import AnthropicServer, Message, status, text, value
from paths import REPOSITORY
from waiting import wait_for


@pytest.fixture
def asked(brain: Path, indexed: Path) -> Path:
    """tests/brain with its vectors."""
    shutil.copytree(indexed, brain / ".nugget")
    return brain


@pytest.mark.proves("CLI-ASK-JSON", "CLI-JSON", "CLI-EXPLAIN")
def test_ask_json_has_the_shape_of_the_contract_and_scores_that_add_up(nugget: Nugget, asked: Path) -> None:
    shown = nugget("ask", "how do we retry payments", "--json", "--explain", "--brain", asked)
    said = shown.json
    assert said["query"] == {
        "text": "how do we retry payments", "profile": "task", "path": None, "symbol": None, "depth": "standard",
    }  # fmt: skip
    assert said["budget"].keys() == {"requested", "used", "available", "truncated"}
    assert said["degraded"] == ["no_llm"] and said["answer"] is None
    first = said["hits"][0]
    assert first["id"] == "pattern/retry-with-idempotency"
    assert first.keys() == {
        "id", "source", "type", "title", "domain", "tags", "confidence", "origin", "scope", "path", "ref", "created",
        "last_modified", "stale", "stale_reason", "score", "chunks", "related", "reasons", "speaker", "reviewed",
    }  # fmt: skip
    assert first["chunks"][0].keys() == {"breadcrumb", "text", "score"}
    assert {"id": "concept/idempotency-keys", "relation": "uses"} in first["related"]
    assert len(said["explain"]["hits"]) == len(said["hits"])
    for hit in said["explain"]["hits"]:
        assert sum(part["value"] for part in hit["contributions"]) == pytest.approx(hit["score"])


@pytest.mark.proves("CLI-UNKNOWN")
def test_where_nothing_matches_ask_says_so_and_what_to_do(nugget: Nugget, words: Path) -> None:
    shown = nugget("ask", "--no-llm", "xylophone")
    assert shown.code == 0
    assert shown.out.startswith("Nothing matches.\nTry other words.")


@pytest.mark.proves("CLI-BEHIND", "CLI-DEGRADED")
def test_many_changes_do_not_block_the_answer_and_are_caught_up_with(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    nugget("sync")
    for number in range(60):
        write_unit(words, f"pattern/gnu-{number}", f"# Gnu {number}\n\nwildebeest")
    shown = nugget("ask", "wildebeest", "--json")
    assert shown.json["hits"] == [] and "index_behind" in shown.json["degraded"]
    assert "60 files changed; they are being indexed in the background, and this answer is from before." in shown.err
    wait_for(lambda: nugget("status", "--json").json["index"]["state"] == "ready")
    assert len(nugget("search", "wildebeest", "-q", "-n", "100").out.split()) == 60


@pytest.fixture
def claude(monkeypatch: pytest.MonkeyPatch) -> Any:
    with AnthropicServer() as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("NUGGET_RETRIEVAL_RERANK_TIMEOUT_S", "60")
        yield server


def judged(count: int = 30) -> Message:
    """The re-ranker's reply: the first passage is best."""
    return value({"passages": [{"number": n, "relevance": max(0.0, 1 - n / 50)} for n in range(1, count + 1)]})


@pytest.mark.proves("CLI-ANSWER")
def test_with_an_llm_the_answer_is_written_and_its_sources_are_named(
    nugget: Nugget, asked: Path, claude: AnthropicServer
) -> None:
    claude.script(judged(), text("Persist the key first [pattern/retry-with-idempotency]. Not [pattern/made-up]."))
    shown = nugget("--brain", asked, "ask", "how do we retry payments")
    assert shown.code == 0
    answer, _, sources = shown.out.partition("\n\nSources\n")
    assert answer == "Persist the key first [pattern/retry-with-idempotency]. Not [pattern/made-up]."
    assert sources.startswith("   Retry with Idempotency Keys  pattern/retry-with-idempotency  pattern · coding")
    assert "made-up" not in sources and "no LLM" not in sources
    assert claude.requests[-1].streams


@pytest.mark.proves("CLI-ANSWER", "CLI-DEGRADED")
def test_when_the_llm_fails_the_passages_stand_in(nugget: Nugget, asked: Path, claude: AnthropicServer) -> None:
    claude.default = lambda request: status(401, "authentication_error")
    shown = nugget("--brain", asked, "ask", "cache invalidation")
    assert shown.code == 0 and shown.out.startswith("1. Cache Invalidation\n")
    assert "the re-ranker failed, so the order is the local one" in shown.out
    assert "the LLM could not write an answer" in shown.out

    claude.script(judged(), text("The first words of an answer that was cut", cut_after=24))
    cut = nugget("--brain", asked, "ask", "cache invalidation")
    assert cut.code == 0
    assert cut.out.startswith("The first words") and "The answer broke off here." in cut.out
    assert "1. Cache Invalidation" in cut.out
