"""The command line as a whole, and questions on it: usage, the brain in use, settings, with and without an LLM."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_stage import write_unit
from commands import Nugget
from loopback_anthropic import AnthropicServer, Message, status, text, value
from paths import REPOSITORY
from waiting import wait_for


@pytest.mark.proves("CLI-COMMANDS")
def test_help_lists_every_command_with_what_it_does(nugget: Nugget) -> None:
    shown = nugget("--help")
    assert shown.code == 0
    for command in ("ask search get serve capture-session capture review add forget mv lint init install uninstall "
                    "sync rebuild eval queries status doctor").split():  # fmt: skip
        assert re.search(rf"^  {command} +[A-Z]\w+", shown.out, re.MULTILINE), command
        own = nugget(command, "--help")
        assert own.code == 0 and f"Usage: nugget {command}" in own.out


@pytest.mark.proves("CLI-EXIT", "CLI-ERRORS")
def test_wrong_usage_is_told_in_a_sentence(nugget: Nugget, words: Path) -> None:
    for line, said in (
        (["aks", "x"], "Error: No such command 'aks'. Did you mean 'ask'?\n`nugget --help` shows how it is used.\n"),
        (["ask", "x", "--depth", "abyss"], "Error: Invalid value for '--depth'"),
        (["ask", "x", "--limit", "0"], "Error: limit must be at least 1, not 0.\n"),
        (["ask", "x", "--type", "patern"], "Error: There is no type 'patern'.\nTypes are: pattern, concept,"),
        (["ask", "x", "--since", "yesterday"], "Error: 'yesterday' is not a date.\nWrite YYYY-MM-DD, or an age such"),
        (["search", "x", "--source", "elsewhere"], "Sources are: brain, canon,"),
        (["get", "mars:rover"], "Error: There is no source 'mars'.\n"),
        (["mv", "pattern/x"], "Error: Say where to: --domain, --name, or both.\n"),
    ):
        shown = nugget(*line)
        assert (shown.code, shown.out) == (2, "") and said in shown.err and shown.err.startswith("Error: "), line


@pytest.mark.proves("CLI-BRAIN")
def test_the_brain_is_that_of_the_flag_the_variable_the_folder_or_the_default(
    nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    for name in ("usual", "named", "flagged"):
        assert nugget("init", tmp_path / name).code == 0
    assert nugget("init", tmp_path / "usual").code == 0

    def in_use(*flags: str | Path) -> str:
        return Path(nugget(*flags, "status", "--json").json["brain"]).name

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert in_use() == "usual"
    monkeypatch.chdir(tmp_path / "flagged" / "evals")
    assert in_use() == "flagged"
    monkeypatch.setenv("NUGGET_BRAIN", str(tmp_path / "named"))
    assert in_use() == "named"
    assert in_use("--brain", tmp_path / "flagged") == "flagged"
    assert nugget("--brain", elsewhere, "status").code == 1


@pytest.mark.proves("CLI-HOSTILE", "CLI-PLAIN")
def test_what_a_brain_holds_cannot_steer_the_terminal(nugget: Nugget, words: Path) -> None:
    steering = "\x1b]0;owned\x07\x1b[2J \u202eevil\x9b1m"
    body = f"# Zebra [red]title[/red]\n\nquagga {steering} [bold]markup[/bold] :warning:"
    write_unit(words, "pattern/zebra", body, tags='["quagga \\e[31m"]')
    for command in (["ask", "--no-llm", "quagga"], ["search", "quagga"], ["get", "pattern/zebra"]):
        shown = nugget(*command)
        assert shown.code == 0
        assert "Zebra [red]title[/red]" in shown.out and "[bold]markup[/bold] :warning:" in shown.out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown.out + shown.err)


@pytest.mark.proves("CLI-ERRORS")
def test_a_setting_that_makes_no_sense_is_refused_with_file_line_and_key(
    nugget: Nugget, words: Path, home: Path
) -> None:
    home.mkdir()
    for yaml, said in (
        ("retrieval: {limit: 0}", "`retrieval.limit` must be greater than or equal to 1, not '0'"),
        ("llm: yes", "`llm` must be a section with its keys below it"),
        ("redaction: {allow: ['(']}", "`redaction.allow` must be a list of regular expressions ('(': "),
    ):
        (home / "config.yaml").write_text(f"{yaml}\n")
        for line in (("search", "x"), ("doctor",), ("lint",)):
            shown = nugget(*line)
            assert shown.code == 2 and shown.err.startswith(f"Error: {home}/config.yaml:1: {said}")


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


@pytest.mark.proves("CLI-BEHIND", "CLI-DEGRADED", "SYNC-INLINE")
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


@pytest.mark.proves("CLI-ANSWER", "CLI-DEGRADED", "LLM-STREAM")
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
