"""The command line: usage, the brain in use, settings, questions with and without an LLM, commands that change."""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_stage import golden, write_unit
from knowledge_files import add_first_units
from loopback_anthropic import AnthropicServer, Message, status, text, value
from paths import REPOSITORY
from replay import make_repository
from sessions import write_transcript
from waiting import wait_for

import nugget as library
from nugget.capture import queue
from nugget.config import load_settings, read_environment
from nugget.infra import files, git


@pytest.mark.proves("CLI-COMMANDS")
def test_help_lists_every_command_with_what_it_does(nugget):
    shown = nugget("--help")
    assert shown.code == 0
    for command in ("ask search get serve capture-session capture review add forget mv lint init install uninstall "
                    "sync rebuild eval queries status doctor logs config").split():  # fmt: skip
        assert re.search(rf"^  {command} +[A-Z]\w+", shown.out, re.MULTILINE), command
        own = nugget("help", command)
        assert own.code == 0 and f"Usage: nugget {command}" in own.out and not re.search(r"\w,?\.\.\.$", own.out, re.M)


@pytest.mark.proves("CLI-EXIT", "CLI-ERRORS")
def test_wrong_usage_is_told_in_a_sentence(nugget, words):
    for line, said in (
        (["aks", "x"], "Error: No such command 'aks'. Did you mean 'ask'?\n`nugget --help` shows how it is used.\n"),
        (["ask"], "Error: Missing argument 'QUESTION'.\n`nugget ask --help` shows how it is used.\n"),
        (["ask", "x", "--depth", "abyss"], "Error: Invalid value for '--depth'"),
        (["ask", "x", "--budget", "1e3"], "Error: --budget must be a whole number, not '1e3'.\n"),
        (["ask", "x", "--type", "patern"], "type 'patern'. Did you mean 'pattern'?\nTypes: pattern, concept,"),
        (["config", "set", "retrieval.limt", "3"], "no setting 'retrieval.limt'. Did you mean 'retrieval.limit'?\n"),
        (["ask", "x", "--since", "yesterday"], "Error: 'yesterday' is not a date.\nWrite YYYY-MM-DD, or an age such"),
        (["search", "x", "--source", "elsewhere"], "Sources: brain, canon,"),
        (["get", "mars:rover"], "Error: There is no source 'mars'.\n"),
        (["mv", "pattern/x"], "Error: Give --domain, --name, or both.\n"),
    ):
        shown = nugget(*line)
        assert (shown.code, shown.out) == (2, "") and said in shown.err and shown.err.startswith("Error: "), line


@pytest.mark.proves("CLI-BRAIN")
def test_the_brain_is_that_of_the_flag_the_variable_the_folder_or_the_default(nugget, tmp_path, monkeypatch):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    for name in ("usual", "named", "flagged"):
        assert nugget("init", tmp_path / name).code == 0
    assert nugget("init", tmp_path / "usual").code == 0

    def in_use(*flags: str | Path) -> str:
        return Path(nugget(*flags, "status", "--json").json["brain"]).name

    (elsewhere := tmp_path / "else where").mkdir()
    monkeypatch.chdir(elsewhere)
    assert in_use() == "usual"
    monkeypatch.chdir(tmp_path / "flagged" / "evals")
    assert in_use() == "flagged"
    monkeypatch.setenv("NUGGET_BRAIN", str(tmp_path / "named"))
    assert in_use() == "named"
    assert in_use("--brain", tmp_path / "flagged") == "flagged"
    assert f"`nugget init '{elsewhere}'` makes one there; if it was moved" in nugget("--brain", elsewhere, "status").err


@pytest.mark.proves("CLI-HOSTILE", "CLI-PLAIN")
def test_what_a_brain_holds_cannot_steer_the_terminal(nugget, words):
    steering = "\x1b]0;owned\x07\x1b[2J \u202eevil\x9b1m"
    body = f"# Zebra [red]title[/red]\n\nquagga {steering} [bold]markup[/bold] :warning:"
    write_unit(words, "pattern/zebra", body, tags='["quagga \\e[31m"]')
    for command in (["ask", "--no-llm", "quagga"], ["search", "quagga"], ["get", "pattern/zebra"]):
        shown = nugget(*command)
        assert shown.code == 0
        assert "Zebra [red]title[/red]" in shown.out and "[bold]markup[/bold] :warning:" in shown.out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown.out + shown.err)


@pytest.mark.proves("CLI-ERRORS")
def test_a_setting_that_makes_no_sense_is_refused_with_file_line_and_key(nugget, words, home):
    home.mkdir()
    for yaml, said in (
        ("retrieval: {limit: 0}", "`retrieval.limit` must be at least 1, not '0'"),
        ("llm: yes", "`llm` must be a section with its keys below it"),
        ("retrieval: {reranker: clod}", "`retrieval.reranker` must be auto, local, claude or cross-encoder:MODEL, not"),
        ("brains: {captures: [team]}", "`brains.captures` must be a list of name=glob, not 'team'"),
    ):
        (home / "config.yaml").write_text(f"{yaml}\n")
        for line in (("search", "x"), ("status",), ("lint",)):
            shown = nugget(*line)
            assert shown.code == 2 and shown.err.startswith(f"Error: {home}/config.yaml:1: {said}")


@pytest.fixture
def asked(brain: Path, indexed: Path) -> Path:
    """tests/brain with its vectors."""
    shutil.copytree(indexed, brain / ".nugget")
    return brain


@pytest.mark.proves("CLI-ASK-JSON", "CLI-JSON", "CLI-EXPLAIN")
def test_ask_json_has_the_shape_of_the_contract_and_scores_that_add_up(nugget, asked):
    said = nugget("ask", "how do we retry payments", "--json", "--explain", "--brain", asked).json
    assert said["query"] == {
        "text": "how do we retry payments", "profile": "task", "path": None, "symbol": None, "depth": "standard",
    }  # fmt: skip
    assert said["budget"].keys() == {"requested", "used", "available", "truncated"}
    assert said["degraded"] == ["no_llm"] and said["answer"] is None and said["remaining"] > 0
    first = said["hits"][0]
    assert first["id"] == "pattern/retry-with-idempotency"
    assert first.keys() == {
        "id", "source", "type", "title", "domain", "tags", "confidence", "origin", "scope", "path", "ref", "created",
        "last_modified", "stale", "stale_reason", "score", "chunks", "related", "reasons", "speaker", "reviewed",
    }  # fmt: skip
    assert first["chunks"][0].keys() == {"breadcrumb", "text", "score"}
    assert {"id": "concept/idempotency-keys", "relation": "uses"} in first["related"]
    assert len(said["explain"]["hits"]) == len(said["hits"])
    assert nugget("ask", "🙂", "--json", "--brain", asked).json["hits"] == [], "signs have no meaning"
    for hit in said["explain"]["hits"]:
        assert sum(part["value"] for part in hit["contributions"]) == pytest.approx(hit["score"])


@pytest.mark.proves("CLI-UNKNOWN")
def test_where_nothing_matches_ask_says_so_and_what_to_do(nugget, words):
    shown = nugget("ask", "--no-llm", "xylophone")
    assert shown.code == 0 and shown.out.startswith("Nothing matches.\nTry other words.")
    assert nugget("ask", "where were we").out == "There are no sessions of this repository yet.\n"


@pytest.mark.proves("CLI-BEHIND", "CLI-DEGRADED", "SYNC-INLINE")
def test_many_changes_do_not_block_the_answer_and_are_caught_up_with(nugget, words, monkeypatch):
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
def test_with_an_llm_the_answer_is_written_and_its_sources_are_named(nugget, asked, claude):
    claude.script(judged(), text("Persist the key first [pattern/retry-with-idempotency]. Not [pattern/made-up]."))
    shown = nugget("--brain", asked, "ask", "how do we retry payments")
    answer, _, sources = shown.out.partition("\n\nSources\n")
    assert answer == "Persist the key first [pattern/retry-with-idempotency]. Not [pattern/made-up]."
    assert sources.startswith("   Retry with Idempotency Keys  pattern/retry-with-idempotency  pattern · coding")
    assert "made-up" not in sources and "no LLM" not in sources
    assert shown.code == 0 and claude.requests[-1].streams


@pytest.mark.proves("CLI-ANSWER", "CLI-DEGRADED", "LLM-STREAM")
def test_when_the_llm_fails_the_passages_stand_in(nugget, asked, claude):
    claude.default = lambda request: status(401, "authentication_error")
    shown = nugget("--brain", asked, "ask", "cache invalidation")
    assert shown.code == 0 and shown.out.startswith("1. Cache Invalidation\n")
    assert "the re-ranker failed, so the order is the local one" in shown.out and ".)" not in shown.out
    assert "the LLM could not write an answer" in shown.out
    claude.script(judged(), text("The first words of an answer that was cut", cut_after=24))
    cut = nugget("--brain", asked, "ask", "cache invalidation")
    assert cut.code == 0 and cut.out.startswith("The first words") and "The answer broke off here." in cut.out
    assert "1. Cache Invalidation" in cut.out


NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def propose(brain: Path, branch: str = "nugget/session-20260304-050607-abcd1234") -> str:
    """A proposal of two units on a local branch."""
    files: dict[str, bytes | None] = {
        f"domains/coding/patterns/{slug}.md": (
            f"---\nid: pattern/{slug}\ntype: pattern\ndomain: coding\ntags: [zebra]\nconfidence: 0.7\n"
            "source: ai-session\nevidence:\n  - session: s1\n    quote: the zebra said so\n---\n"
            f"# The {slug} way\n\nDo it the {slug} way.\n"
        ).encode()
        for slug in ("zebra", "okapi")
    }
    git.create_branch(brain, branch, files=files, message="Knowledge from session 2026-03-04 05:06\n\nTwo.", now=NOW)
    return branch


@pytest.mark.proves("CLI-HAND")
def test_what_is_added_is_found_and_what_is_forgotten_is_gone(nugget, words):
    added = nugget("add", "Quokkas smile because of their jaws.", "--domain", "zoology", "--tag", "animals,jaws")
    golden("add", added.out)
    unit_id = re.findall(r"Kept as (\S+) in", added.out)[0]
    assert nugget("search", "quokkas", "-q").out == f"brain:{unit_id}\n"
    assert nugget("get", unit_id, "--json").json["tags"] == ["animals", "jaws"]
    assert nugget("get", unit_id).out.count("Quokkas smile because of their jaws") == 1
    assert git.uncommitted_paths(words) == []
    golden("mv", nugget("mv", unit_id, "--domain", "zoology/marsupials", "--name", "quokka-jaws").out)
    assert nugget("search", "quokkas", "-q").out == "brain:pattern/quokka-jaws\n"
    golden("forget", nugget("forget", "pattern/quokka-jaws").out, Path.home())
    assert nugget("search", "quokkas", "-q").out == ""


@pytest.mark.proves("CLI-LINT")
def test_lint_names_file_line_and_reason(nugget, words):
    clean = nugget("lint")
    assert (clean.code, clean.out) == (0, "All is well.\n")
    odd = write_unit(words, "pattern/odd", "# Odd\n\nText.", related="[{id: concept/nowhere, relation: uses}]")
    assert nugget("lint", odd).code == 0, "a warning fails nothing"
    write_unit(words, "pattern/broken", "# Broken", tags="[unclosed")
    shown = nugget("lint")
    assert shown.code == 1
    golden("lint", shown.out)


@pytest.mark.proves("CLI-INIT")
def test_init_makes_a_brain_that_is_asked_from_anywhere(nugget, tmp_path, monkeypatch):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    folder = tmp_path / "my brain"
    made = nugget("init", folder, "--remote", "https://git.example.invalid/brain.git")
    assert made.code == 0
    golden("init", made.out, folder)
    assert git.head(folder) and load_settings(read_environment(), folder).owner == "Test Person"
    assert git.run(folder, "remote", "get-url", "origin") == b"https://git.example.invalid/brain.git\n"
    monkeypatch.chdir(tmp_path)
    for line in ("ask hippo", "search hippo", "ask hippo --type bug"):
        assert "The brain holds no knowledge yet." in nugget(*line.split()).out
    add_first_units(folder)
    assert "pattern/expand-then-contract" in nugget("ask", "--no-llm", "change an interface without breaking").out
    head = git.head(folder)
    git.run(tmp_path, "init", "-q", "--object-format=sha256", "other")
    assert "SHA-256 objects, which a brain cannot be" in nugget("init", tmp_path / "other").err
    assert nugget("init", folder).out.startswith(f"The brain is there already: {folder}\n") and git.head(folder) == head


@pytest.mark.proves("CLI-REVIEW")
def test_a_proposal_is_listed_shown_and_accepted(nugget, words):
    assert nugget("review").out.startswith("Nothing waits for review.")
    branch = propose(words)
    golden("review-list", nugget("review").out)
    golden("review-show", nugget("review", "show", "abcd").out)
    assert "   +# The zebra way" in nugget("review", "show", "--diff").out
    assert nugget("search", "zebra", "-q").out == ""

    accepted = nugget("review", "accept", branch, "--unit", "pattern/zebra")
    assert accepted.code == 0
    golden("review-accept", accepted.out)
    assert nugget("search", "zebra", "-q").out == "brain:pattern/zebra\n"
    assert nugget("review", "reject").out.startswith("Rejected, and not to be proposed again: pattern/okapi.")


@pytest.mark.proves("EXT-EXPLAIN")
def test_explain_shows_what_a_model_found_and_what_kept_it_out(nugget, words, server, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    quote = "Stripe sends some events twice"
    unit = {"type": "bug", "title": quote, "domain": "coding/web", "tags": [], "confidence": 0.9, "quotes": [quote],
            "body": f"{quote}, so a handler has to remember the ids it has seen.", "reason": "it surprised everybody",
            "alternatives": [], "relations": []}  # fmt: skip
    server.default = lambda request: value({"summary": "s", "units": [unit, unit | {"title": "Kafka holds the queue"}]})
    transcript = words.parent / "s.jsonl"
    write_transcript(transcript, [(f"Why is it booked again? {quote}, I read.", "I made the handler idempotent.")])
    shown = nugget("capture-session", "--transcript", transcript, "--explain", "--with", "api")
    assert shown.code == 0 and "Judged by claude-sonnet-5-5." in shown.out
    assert "0.90 bug Stripe sends some events twice: proposed as domains/coding/web/bugs/" in shown.out
    assert "it surprised everybody" in shown.out and f"“{quote}” said by the user" in shown.out
    assert "left out: Kafka holds the queue: its quotes do not say it" in shown.out
    assert nugget("review", "list", "--json").json == []


@pytest.mark.proves("GEN-FAILURE")
def test_a_session_of_which_a_model_says_nothing_twice_is_captured_later(nugget, words, home, server, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    nugget("config", "set", "extraction.with", "api")
    transcript = words.parent / "s.jsonl"
    session = write_transcript(transcript, [("Why is it booked again?", "Stripe sends some events twice, so I look.")])
    server.script(value({}), value({}))
    files.queue_job(home, {"version": 1, "queued": 1.0, "session": session, "transcript": str(transcript)})
    nugget("capture")
    (job,) = queue.jobs(home, "failed")
    assert "did not reply as asked" in (job.reason or "") and job.next_try is not None and len(server.requests) == 2
    server.script(value({"summary": "s", "units": []}))
    nugget("capture", "--retry")
    assert len(server.requests) == 3 and not queue.jobs(home, "failed")


@pytest.mark.proves("CLI-CAPTURE")
def test_a_session_becomes_knowledge_that_is_found(nugget, words):
    session = REPOSITORY / "examples/demo/session.jsonl"
    capture = ("capture-session", "--transcript", session, "--with", "offline")
    tried = nugget(*capture, "--dry-run")
    assert tried.code == 0 and "would be proposed (offline)" in tried.out
    assert nugget("review", "list", "--json").json == []

    done = nugget(*capture, "--json").json
    assert done["skipped"] is None and "Use PostgreSQL to remember which events were applied" in str(done["units"])
    (waiting,) = nugget("review", "list", "--json").json
    assert waiting["branch"] == done["branch"]
    assert {file["id"] for file in waiting["files"]} == {unit["id"] for unit in done["units"]}
    assert nugget(*capture).out == "Nothing to propose: nothing new since it was captured.\n"

    assert nugget("review", "accept", "--all").code == 0
    first, *others = done["units"]
    assert nugget("search", first["title"], "-q", "-n", "3").out.count(f"brain:{first['id']}\n") == 1
    nugget("forget", first["id"])
    (listed,) = nugget("sessions", "--all", "--json").json["sessions"]
    assert (listed["captured"], listed["units"]) == ("yes", {"kept": len(others), "absent": 1})


@pytest.mark.proves("HIS-CHANNEL-NAME")
def test_the_name_of_a_channel_is_text(nugget, words, isolated_home):
    file = isolated_home / ".nugget/bridge/falconry.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"from": "ada", "to": "bob", "text": "It ships on Friday"}) + "\n")
    assert nugget("search", "falconry", "--source", "bridge", "-q").out == "bridge:falconry#1\n"


@pytest.mark.proves("HIS-RELATED-SHARE")
def test_what_is_far_from_the_nearest_is_not_related(nugget, asked):
    hits = nugget("--brain", asked, "search", "--related", "cache invalidation", "--json").json["hits"]
    cosines = [float(reason.split()[-1]) for hit in hits for reason in hit["reasons"] if reason.startswith("cosine")]
    assert cosines and min(cosines) >= 0.6 * max(cosines) - 0.01


@pytest.mark.proves("QUERIES-CODE")
def test_questions_about_code_are_in_the_log_with_budget_and_agent(nugget, words, tmp_path, monkeypatch):
    monkeypatch.chdir(make_repository(tmp_path / "shop"))
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")
    assert nugget("why", "--query", "why zebras", "--budget", "300").code == 0
    (asked,) = [one for one in nugget("queries", "--zero", "--json").json["queries"] if one["text"] == "why zebras"]
    assert (asked["zero"], asked["budget"], asked["agent"]) == (True, 300, "claude-code")


@pytest.mark.proves("API-PROVENANCE")
def test_extract_and_coverage_are_there_in_python(words, tmp_path):
    repository = make_repository(tmp_path / "shop")
    with library.open(words) as opened:
        seen = opened.provenance(repository)
        outcomes, tunings, workspace = seen.extract()
        assert (list(outcomes), tunings, workspace.root) == ([], 0, repository.resolve())
        assert seen.coverage() == []


@pytest.mark.proves("EVID-SELECT")
def test_a_model_chooses_evidence_on_the_command_line(nugget, words, isolated_home, monkeypatch):
    transcript = isolated_home / ".claude/projects/-x/52ae3f06-3584-4ea8-a1be-f5d3bd9dd94c.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes((REPOSITORY / "examples/demo/session.jsonl").read_bytes())
    assert "needs a model" in nugget("logs", "context", "what failed", "--select").err
    with AnthropicServer(default=lambda request: value({"labels": ["e1", "e2"]})) as api:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-0123456789")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        chosen = nugget("logs", "context", "what failed", "--select", "--json").json
        assert chosen["chunks"] == len(api.requests) == 1 and len(chosen["source_ids"]) == 2
