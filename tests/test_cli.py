"""The commands as a person uses them: what they print, what they change, what they return.

Most run in this process through `nugget.cli.run`, the same border that the console entry calls. Golden transcripts
stand in tests/golden/cli; `UPDATE_GOLDEN=1 pytest tests/test_cli.py` writes them anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from commands import Nugget
from loopback_anthropic import AnthropicServer, Message, status, text, value

from nugget import git
from nugget.api import Brain
from nugget.config import documented_keys, load_settings, read_environment
from nugget.overlay import LIMITS

REPOSITORY = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden" / "cli"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/brain with its vectors, shared by the tests that only ask."""
    folder = tmp_path_factory.mktemp("indexed") / "brain"
    shutil.copytree(REPOSITORY / "tests" / "brain", folder)
    person = ["-c", "user.name=T", "-c", "user.email=t@example.invalid"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], [*person, "commit", "-q", "-m", "Knowledge"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    home = tmp_path_factory.mktemp("indexed-home")
    environment = read_environment({"HOME": str(home), "NUGGET_MODELS": str(REPOSITORY / ".models")})
    with Brain(folder, environment=environment) as opened:
        opened.sync()
    return folder


def golden(name: str, shown: str, *places: Path) -> None:
    """Compare with the transcript of that name; dates, hashes and folders do not count."""
    for number, place in enumerate(places, 1):
        shown = shown.replace(str(place), f"<folder {number}>")
    shown = re.sub(r"\b[0-9a-f]{10}\b", "<commit>", shown)
    shown = re.sub(r"\b20\d\d-\d\d-\d\d\b", "<date>", shown)
    shown = re.sub(r"\d+\.\d ms", "<time>", shown)
    shown = re.sub(r"\b0\.\d{3}\b", "<number>", shown)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown, "utf-8")
    assert shown == file.read_text("utf-8")


def write_unit(brain: Path, unit_id: str, body: str, **keys: str) -> Path:
    """Write a knowledge file straight into the brain, as an editor does."""
    kind, _, slug = unit_id.partition("/")
    file = brain / "domains" / "coding" / f"{kind}s" / f"{slug}.md"
    known = {"id": unit_id, "type": kind, "domain": "coding", **keys}
    lines = "".join(f"{key}: {said}\n" for key, said in known.items())
    file.write_text(f"---\n{lines}---\n{body}\n", "utf-8")
    return file


def propose(brain: Path, branch: str = "nugget/session-20260304-050607-abcd1234") -> str:
    """A proposal of two units on a local branch."""
    files: dict[str, bytes | None] = {
        f"domains/coding/patterns/{slug}.md": f"""---
id: pattern/{slug}
type: pattern
domain: coding
tags: [zebra]
confidence: 0.7
source: ai-session
evidence:
  - session: s1
    quote: the zebra said so
---
# The {slug} way

Do it the {slug} way.
""".encode()
        for slug in ("zebra", "okapi")
    }
    git.create_branch(brain, branch, files=files, message="Knowledge from session 2026-03-04 05:06\n\nTwo.", now=NOW)
    return branch


# --- the frame ---


@pytest.mark.proves("CLI-COMMANDS")
def test_help_lists_every_command_with_what_it_does(nugget: Nugget) -> None:
    shown = nugget("--help")
    commands = (
        "ask", "search", "get", "serve", "capture-session", "capture", "review", "add", "forget", "mv", "lint",
        "init", "install", "uninstall", "sync", "rebuild", "eval", "queries", "status", "doctor",
    )  # fmt: skip
    assert shown.code == 0
    for command in commands:
        assert re.search(rf"^│ {command} +[A-Z]\w+", shown.out, re.MULTILINE), command
        own = nugget(command, "--help")
        assert own.code == 0 and f"Usage: nugget {command}" in own.out


def test_alone_it_shows_its_help(nugget: Nugget) -> None:
    shown = nugget()
    assert shown.code == 0 and "Usage: nugget [OPTIONS] COMMAND" in shown.out


@pytest.mark.proves("CLI-EXIT", "CLI-ERRORS")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["aks", "x"], "Error: No such command 'aks'. Did you mean 'ask'?\n`nugget --help` shows how it is used.\n"),
        (["ask", "x", "--dept", "deep"], "No such option: --dept"),
        (["ask", "x", "--depth", "abyss"], "Error: Invalid value for '--depth'"),
        (["ask", "  "], "Error: Give a question.\n"),
        (["ask", "x", "--limit", "0"], "Error: limit must be at least 1, not 0.\n"),
        (["ask", "x", "--type", "patern"], "Error: There is no type 'patern'.\nTypes are: pattern, concept,"),
        (
            ["ask", "x", "--since", "yesterday"],
            "Error: 'yesterday' is no date.\nWrite it as YYYY-MM-DD, or as 30d,",
        ),
        (["search", "x", "--source", "elsewhere"], "Sources are: brain, canon,"),
        (["get", "mars:rover"], "Error: There is no source 'mars'.\n"),
        (["mv", "pattern/x"], "Error: Say where to: --domain, --name, or both.\n"),
        (["add", " "], "Error: There is nothing to keep: the text is empty.\n"),
        (["capture-session"], "Error: Say which session: --transcript PATH, --session ID"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], said: str
) -> None:
    shown = nugget(*line)
    assert (shown.code, shown.out) == (2, "")
    assert said in shown.err and shown.err.startswith("Error: ")


@pytest.mark.proves("CLI-ERRORS")
def test_a_setting_that_cannot_be_taken_is_told_with_its_file(nugget: Nugget, words: Path) -> None:
    (words / "brain.yaml").write_text("owner: X\nretrieval:\n  limit: many\n")
    shown = nugget("ask", "x")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err == f"Error: {words}/brain.yaml: `retrieval.limit` must be a whole number, not 'many'.\n"


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
    monkeypatch.chdir(tmp_path / "flagged" / "domains")
    assert in_use() == "flagged"
    monkeypatch.setenv("NUGGET_BRAIN", str(tmp_path / "named"))
    assert in_use() == "named"
    assert in_use("--brain", tmp_path / "flagged") == "flagged"
    behind = nugget("status", "--brain", tmp_path / "flagged", "--json")
    assert Path(behind.json["brain"]).name == "flagged"
    assert nugget("--brain", elsewhere, "status").code == 1


@pytest.mark.proves("CLI-ERRORS")
@pytest.mark.parametrize("name", ["NUGGET_BRAIN", "NUGGET_HOME", "AISH_LOG_DIR", "NUGGET_CANON_FOLDERS"])
def test_a_home_folder_of_nobody_is_a_folder_that_is_not_there(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, "~nobody-of-that-name/notes")
    result = nugget("search", "redis", "--quiet")
    assert "unexpected" not in result.err
    assert (result.code, result.err.splitlines()[:1]) == (
        (1, ["Error: ~nobody-of-that-name/notes does not exist."]) if name == "NUGGET_BRAIN" else (0, [])
    )


def test_a_brain_cannot_be_made_at_links_that_lead_in_a_circle(nugget: Nugget, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    code, _, told = nugget("init", tmp_path / "circle", "--no-install")
    assert code == 1 and "circle/" in told and "unexpected" not in told


def test_a_current_folder_that_is_gone_is_told(nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    shown = nugget("status")
    assert shown.code == 2
    assert shown.err == "Error: The current folder does not exist any more.\nChange to another folder.\n"


@pytest.mark.proves("CLI-PLAIN", "CLI-JSON")
def test_a_terminal_that_knows_only_ascii_gets_ascii(words: Path) -> None:
    write_unit(words, "pattern/gnu", "# Gnü 角\n\nwildebeest")
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "ascii"}

    def shown(*arguments: str) -> str:
        command = [sys.executable, "-m", "nugget.entry", *arguments]
        done = subprocess.run(command, env=variables, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode("ascii")

    assert shown("search", "wildebeest").startswith("## RESULTS\n\nBRAIN (1)\n  Gn? ?: wildebeest\n")
    assert json.loads(shown("search", "wildebeest", "--json"))["hits"][0]["title"] == "Gnü 角"


# --- asking ---


def test_ask_gives_the_passages_that_answer(nugget: Nugget, indexed: Path) -> None:
    shown = nugget("--brain", indexed, "ask", "cache", "invalidation")
    assert shown.code == 0
    assert shown.out.startswith("1. Cache Invalidation\n   concept/cache-invalidation  concept · coding · confidence")
    assert "cooking" not in shown.out
    assert "Note: no LLM took part; these are the passages themselves.\n" in shown.out
    assert "no LLM" not in nugget("--brain", indexed, "ask", "--no-llm", "cache invalidation").out


@pytest.mark.proves("CLI-ASK-JSON", "CLI-JSON", "CLI-EXPLAIN")
def test_ask_json_has_the_shape_of_the_contract_and_scores_that_add_up(nugget: Nugget, indexed: Path) -> None:
    shown = nugget("ask", "how do we retry payments", "--json", "--explain", "--brain", indexed)
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
        "last_modified", "stale", "stale_reason", "score", "chunks", "related", "reasons",
    }  # fmt: skip
    assert first["chunks"][0].keys() == {"breadcrumb", "text", "score"}
    assert {"id": "concept/idempotency-keys", "relation": "uses"} in first["related"]
    assert len(said["explain"]["hits"]) == len(said["hits"])
    for hit in said["explain"]["hits"]:
        assert sum(part["value"] for part in hit["contributions"]) == pytest.approx(hit["score"])


@pytest.mark.proves("CLI-EXPLAIN")
def test_explain_shows_addends_of_the_score(nugget: Nugget, indexed: Path) -> None:
    shown = nugget("ask", "how do we retry payments", "--explain", "--brain", indexed)
    lines = re.findall(r"^   score (\d\.\d+) = (.*)$", shown.out, re.MULTILINE)
    assert len(lines) >= 5
    for score, addends in lines:
        numbers = [float(number) for number in re.findall(r"(?:^|\+ )(\d\.\d+)", addends)]
        assert sum(numbers) == pytest.approx(float(score), abs=0.0021)
    assert re.search(r"^Ranking calibrated, vectors by \S+: .*gather \d", shown.out, re.MULTILINE)


def test_filters_leave_out_what_they_should(nugget: Nugget, indexed: Path) -> None:
    asked = ("ask", "what fails under load", "--json", "--brain", indexed)
    types = {hit["type"] for hit in nugget(*asked, "--type", "bug,decision").json["hits"]}
    assert types and types <= {"bug", "decision"}
    domains = {hit["domain"] for hit in nugget(*asked, "--domain", "operations").json["hits"]}
    assert domains and all(domain.split("/")[0] == "operations" for domain in domains)
    assert all(hit["last_modified"] >= "2026-01-01" for hit in nugget(*asked, "--since", "2026-01-01").json["hits"])
    assert len(nugget(*asked, "--limit", "2").json["hits"]) <= 2
    assert nugget(*asked, "--budget", "300").json["budget"]["used"] <= 300


@pytest.mark.proves("CLI-UNKNOWN")
def test_where_nothing_matches_ask_says_so_and_what_to_do(nugget: Nugget, words: Path) -> None:
    shown = nugget("ask", "--no-llm", "xylophone")
    assert shown.code == 0
    assert shown.out.startswith("Nothing in the brain matches.\nTry other words.")
    assert "fewer of --type" in nugget("ask", "--no-llm", "xylophone", "--type", "bug").out
    assert nugget("ask", "xylophone", "--json").json["hits"] == []


@pytest.mark.proves("CLI-DEGRADED")
def test_a_model_that_cannot_be_had_is_told_and_words_still_find(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", str(words / "evals"))
    (words / "evals").mkdir(exist_ok=True)
    shown = nugget("ask", "--no-llm", "cache invalidation")
    assert shown.code == 0 and "1. Cache Invalidation" in shown.out
    assert "Note: found by words alone, without vectors.\n" in shown.out
    assert "Searching by words alone." in shown.err


def test_search_groups_excerpts_by_source(nugget: Nugget, words: Path) -> None:
    golden("search", nugget("search", "hollandaise").out)
    quiet = nugget("search", "hollandaise", "--quiet")
    assert quiet.out == "brain:bug/split-hollandaise\n"
    assert nugget("search", "hollandaise", "--json").json["query"]["profile"] == "search"


def test_get_shows_one_unit_whole(nugget: Nugget, words: Path) -> None:
    shown = nugget("get", "brain:decision/redis-for-sessions")
    golden("get", shown.out)
    body = nugget("get", "decision/redis-for-sessions", "--json").json["body"]
    assert all(line in shown.out for line in body.splitlines()[1:])
    missing = nugget("get", "decision/redis-session")
    assert missing.code == 1
    assert missing.err.startswith("Error: There is no unit decision/redis-session in the brain.\nNear: ")
    assert "decision/redis-for-sessions" in missing.err


@pytest.mark.proves("CLI-HOSTILE", "CLI-PLAIN")
def test_what_a_brain_holds_cannot_steer_the_terminal(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steering = "\x1b]0;owned\x07\x1b[2J \u202eevil\x9b1m"
    body = f"# Zebra [red]title[/red]\n\nquagga {steering} [bold]markup[/bold] :warning:"
    write_unit(words, "pattern/zebra", body, tags='["quagga \\e[31m"]')
    for command in (["ask", "--no-llm", "quagga"], ["search", "quagga"], ["get", "pattern/zebra"]):
        shown = nugget(*command)
        assert shown.code == 0
        assert "Zebra [red]title[/red]" in shown.out and "[bold]markup[/bold] :warning:" in shown.out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown.out + shown.err)


@pytest.mark.proves("CLI-PLAIN")
def test_long_lines_stay_whole_where_the_output_is_no_terminal(nugget: Nugget, words: Path) -> None:
    line = "okapi " * 80
    write_unit(words, "pattern/okapi", f"# Okapi\n\n{line.strip()}")
    shown = nugget("ask", "--no-llm", "okapi")
    assert f"   {line.strip()}\n" in shown.out
    assert "\x1b" not in shown.out


@pytest.mark.proves("CLI-JSON")
def test_a_first_question_makes_the_index_and_still_prints_one_document(nugget: Nugget, words: Path) -> None:
    assert not (words / ".nugget").exists()
    shown = nugget("ask", "cache invalidation", "--json")
    assert shown.json["hits"][0]["id"] == "concept/cache-invalidation"


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
    deadline = time.monotonic() + 60
    while nugget("status", "--json").json["index"]["state"] != "ready":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert len(nugget("search", "wildebeest", "-q", "-n", "100").out.split()) == 60


@pytest.mark.proves("CLI-BEHIND")
def test_an_index_without_the_vectors_that_it_should_have_is_made_anew_behind_the_answer(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    nugget("sync")
    monkeypatch.delenv("NUGGET_EMBEDDING_MODEL")
    shown = nugget("ask", "cache invalidation", "--json")
    assert shown.json["hits"][0]["id"] == "concept/cache-invalidation" and "no_vectors" in shown.json["degraded"]
    assert shown.err.startswith("The index is being made anew for all-MiniLM-L6-v2/int8;")
    deadline = time.monotonic() + 90
    while nugget("status", "--json").json["index"]["vectors"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert "no_vectors" not in nugget("ask", "cache invalidation", "--json").json["degraded"]


# --- with an LLM ---


@pytest.fixture
def claude(monkeypatch: pytest.MonkeyPatch) -> Any:
    with AnthropicServer() as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


def judged(count: int = 30) -> Message:
    """The re-ranker's reply: the first passage is best."""
    return value({"passages": [{"number": n, "relevance": max(0.0, 1 - n / 50)} for n in range(1, count + 1)]})


@pytest.mark.proves("CLI-ANSWER")
def test_with_an_llm_the_answer_is_written_and_its_sources_are_named(
    nugget: Nugget, indexed: Path, claude: AnthropicServer
) -> None:
    claude.script(judged(), text("Persist the key first [pattern/retry-with-idempotency]. Not [pattern/made-up]."))
    shown = nugget("--brain", indexed, "ask", "how do we retry payments")
    assert shown.code == 0
    answer, _, sources = shown.out.partition("\n\nSources\n")
    assert answer == "Persist the key first [pattern/retry-with-idempotency]. Not [pattern/made-up]."
    assert sources.startswith("   Retry with Idempotency Keys  pattern/retry-with-idempotency  pattern · coding")
    assert "made-up" not in sources and "no LLM" not in sources
    assert claude.requests[-1].streams

    claude.script(judged(), text("Persist it [pattern/retry-with-idempotency]."))
    said = nugget("--brain", indexed, "ask", "how do we retry payments", "--json").json
    assert said["answer"] == "Persist it [pattern/retry-with-idempotency]." and said["degraded"] == []
    assert said["hits"][0]["reasons"][-1].startswith("claude ")


@pytest.mark.proves("CLI-ANSWER", "CLI-DEGRADED")
def test_when_the_llm_fails_the_passages_stand_in(nugget: Nugget, indexed: Path, claude: AnthropicServer) -> None:
    claude.default = lambda request: status(401, "authentication_error")
    shown = nugget("--brain", indexed, "ask", "cache invalidation")
    assert shown.code == 0 and shown.out.startswith("1. Cache Invalidation\n")
    assert "the re-ranker failed, so the order is the local one" in shown.out
    assert "the LLM could not write an answer" in shown.out

    claude.script(judged(), text("The first words of an answer that was cut", cut_after=24))
    cut = nugget("--brain", indexed, "ask", "cache invalidation")
    assert cut.code == 0
    assert cut.out.startswith("The first words") and "The answer broke off here." in cut.out
    assert "1. Cache Invalidation" in cut.out


def test_an_answer_that_cites_nothing_is_told_from_one_that_does(
    nugget: Nugget, indexed: Path, claude: AnthropicServer
) -> None:
    claude.script(judged(), text("The brain does not say."))
    shown = nugget("--brain", indexed, "ask", "cache invalidation", "-n", "2")
    assert shown.out.startswith("The brain does not say.\n\nThe answer cites nothing; it was written from\n   Cache")


def test_no_llm_calls_nobody(nugget: Nugget, indexed: Path, claude: AnthropicServer) -> None:
    assert nugget("--brain", indexed, "ask", "--no-llm", "cache invalidation").code == 0
    assert claude.requests == []


# --- knowledge by hand ---


@pytest.mark.proves("CLI-HAND")
def test_what_is_added_is_found_and_what_is_forgotten_is_gone(nugget: Nugget, words: Path) -> None:
    added = nugget("add", "Quokkas smile because of their jaws.", "--domain", "zoology", "--tag", "animals,jaws")
    golden("add", added.out)
    unit_id = re.findall(r"Kept as (\S+) in", added.out)[0]
    assert nugget("search", "quokkas", "-q").out == f"brain:{unit_id}\n"
    assert nugget("get", unit_id, "--json").json["tags"] == ["animals", "jaws"]
    assert git.state(words).dirty == ()

    moved = nugget("mv", unit_id, "--domain", "zoology/marsupials", "--name", "quokka-jaws")
    golden("mv", moved.out)
    assert nugget("search", "quokkas", "-q").out == "brain:pattern/quokka-jaws\n"

    gone = nugget("forget", "pattern/quokka-jaws")
    golden("forget", gone.out, Path.home())
    assert nugget("status", "--json").json["index"]["behind"] == 0
    assert nugget("search", "quokkas", "-q").out == ""
    again = nugget("forget", "pattern/quokka-jaws")
    assert again.code == 1 and again.err.startswith("Error: There is no unit pattern/quokka-jaws in the brain.")


def test_a_text_is_taken_from_stdin(nugget: Nugget, words: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nugget.entry", "add", "-", "--type", "bug", "--json"],
        input="# Quokka bug\n\nIt ran away.\n", capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."},
        cwd=REPOSITORY, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"id": "bug/quokka-bug", "path": "domains/general/bugs/quokka-bug.md"}
    assert "It ran away." in (words / "domains/general/bugs/quokka-bug.md").read_text("utf-8")


@pytest.mark.proves("CLI-LINT")
def test_lint_names_file_line_and_reason(nugget: Nugget, words: Path) -> None:
    clean = nugget("lint")
    assert (clean.code, clean.out) == (0, "All is well.\n")
    odd = write_unit(words, "pattern/odd", "# Odd\n\nText.", related="[{id: concept/nowhere, relation: uses}]")
    shown = nugget("lint", odd)
    assert shown.code == 0, "a warning fails nothing"
    write_unit(words, "pattern/broken", "# Broken", tags="[unclosed")
    shown = nugget("lint")
    assert shown.code == 1
    golden("lint", shown.out)
    said = nugget("lint", "--json")
    assert said.code == 1 and said.json["errors"] == 1
    assert {problem["path"] for problem in said.json["problems"]} == {
        "domains/coding/patterns/broken.md", "domains/coding/patterns/odd.md",
    }  # fmt: skip


# --- setting up ---


@pytest.mark.proves("CLI-INIT")
def test_init_makes_a_brain_that_is_asked_from_anywhere(
    nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    folder = tmp_path / "my brain"
    made = nugget("init", folder, "--remote", "https://git.example.invalid/brain.git")
    assert made.code == 0
    golden("init", made.out, folder)
    assert git.head(folder) and load_settings(read_environment(), folder).owner == "Test Person"
    assert git.run(folder, "remote", "get-url", "origin") == b"https://git.example.invalid/brain.git\n"
    monkeypatch.chdir(tmp_path)
    assert "pattern/expand-then-contract" in nugget("ask", "--no-llm", "change an interface without breaking").out

    head = git.head(folder)
    again = nugget("init", folder, "--no-install")
    assert again.code == 0 and again.out.startswith(f"The brain is there already: {folder}\n")
    assert git.head(folder) == head and "nugget install" not in again.out


@pytest.mark.proves("CLI-INIT")
def test_init_without_a_path_takes_an_empty_folder_else_the_usual_one(
    nugget: Nugget, tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    monkeypatch.chdir(full)
    assert nugget("init").code == 0
    assert (isolated_home / "brain" / "brain.yaml").is_file() and [*full.iterdir()] == [full / "thesis.txt"]
    monkeypatch.chdir(empty)
    assert nugget("init").code == 0
    assert (empty / "brain.yaml").is_file()
    foreign = nugget("init", full)
    assert foreign.code == 1 and foreign.err.startswith("Error: ") and [*full.iterdir()] == [full / "thesis.txt"]


def test_sync_tells_what_it_did(nugget: Nugget, words: Path) -> None:
    golden("sync-first", nugget("sync").out)
    write_unit(words, "pattern/gnu", "# Gnu\n\nwildebeest")
    write_unit(words, "pattern/broken", "# Broken", tags="[unclosed")
    golden("sync-changed", nugget("sync").out)
    said = nugget("rebuild", "--json").json
    assert said["rebuilt"] == "asked for" and said["added"] == 46 and len(said["problems"]) == 1


def test_of_hundreds_of_problems_sync_shows_the_first_and_names_the_command_for_the_rest(
    nugget: Nugget, words: Path
) -> None:
    for number in range(130):
        write_unit(words, f"pattern/broken-{number}", "# Broken", tags="[unclosed")
    shown = nugget("sync").out
    assert "130 problems; left out: 130 files." in shown and shown.count(" error: ") == 20
    assert "… and 110 more. Next: nugget lint\n" in shown
    assert len(nugget("sync", "--json").json["problems"]) == 130


# --- from sessions to knowledge ---


@pytest.mark.proves("CLI-REVIEW")
def test_a_proposal_is_listed_shown_and_accepted(nugget: Nugget, words: Path) -> None:
    assert nugget("review").out.startswith("Nothing waits for review.")
    branch = propose(words)
    golden("review-list", nugget("review").out)
    assert nugget("review", "list", "--json").json[0]["branch"] == branch
    golden("review-show", nugget("review", "show", "abcd").out)
    assert "   +# The zebra way" in nugget("review", "show", "--diff").out
    files = nugget("review", "show", "--json").json["files"]
    assert [file["status"] for file in files] == ["new", "new"] and "Do it the okapi way." in files[0]["text"]
    assert nugget("search", "zebra", "-q").out == ""

    accepted = nugget("review", "accept", branch, "--unit", "pattern/zebra")
    assert accepted.code == 0
    golden("review-accept", accepted.out)
    assert nugget("search", "zebra", "-q").out == "brain:pattern/zebra\n"


@pytest.mark.proves("CLI-REVIEW")
def test_a_proposed_edit_is_shown_as_what_changes(nugget: Nugget, words: Path) -> None:
    path = "domains/coding/concepts/cache-invalidation.md"
    edited = (words / path).read_bytes().replace(b"Delete, do not update.", b"Delete, never update.")
    git.create_branch(words, "nugget/session-1", files={path: edited}, message="Knowledge from session", now=NOW)
    shown = nugget("review", "show")
    assert "edited  concept/cache-invalidation" in shown.out
    assert "\n   -- Delete, do not update." in shown.out and "\n   +- Delete, never update." in shown.out
    assert "thundering herd" not in shown.out


@pytest.mark.proves("CLI-REVIEW")
def test_a_proposal_is_rejected_for_good(nugget: Nugget, words: Path) -> None:
    branch = propose(words)
    rejected = nugget("review", "reject", branch)
    assert rejected.code == 0
    assert rejected.out.startswith("Rejected, and not to be proposed again: pattern/okapi, pattern/zebra.")
    assert nugget("review", "list", "--json").json == []
    missing = nugget("review", "accept", branch)
    assert missing.code == 1 and missing.err.startswith("Error: Nothing waits for review.")


def test_an_empty_queue_is_worked_at_once(nugget: Nugget, words: Path) -> None:
    shown = nugget("capture", "--catch-up", "--retry")
    assert (shown.code, shown.out) == (0, "0 found by catch-up, 0 sessions worked: 0 proposals, 0 failed.\n")
    assert nugget("capture", "--json").json == {"found": 0, "jobs": [], "published": []}


def test_a_transcript_that_is_not_there_is_told(nugget: Nugget, words: Path) -> None:
    shown = nugget("capture-session", "--transcript", words / "none.jsonl", "--method", "heuristic")
    assert (shown.code, shown.out) == (1, "") and "none.jsonl" in shown.err
    shown = nugget("capture-session", "--session", "0000-none")
    assert (shown.code, shown.out) == (1, "") and "There is no transcript of session 0000-none" in shown.err


@pytest.mark.proves("CLI-CAPTURE")
def test_a_session_becomes_knowledge_that_is_found(nugget: Nugget, words: Path) -> None:
    session = REPOSITORY / "nugget" / "demo" / "session.jsonl"
    capture = ("capture-session", "--transcript", session, "--method", "heuristic")
    tried = nugget(*capture, "--dry-run")
    assert tried.code == 0 and "would be proposed (heuristic)" in tried.out
    assert nugget("review", "list", "--json").json == []

    done = nugget(*capture, "--json").json
    assert done["method"] == "heuristic" and done["units"] and done["skipped"] is None
    (waiting,) = nugget("review", "list", "--json").json
    assert waiting["branch"] == done["branch"]
    assert {file["id"] for file in waiting["files"]} == {unit["id"] for unit in done["units"]}
    again = nugget(*capture)
    assert again.code == 0 and again.out == "Nothing to propose: nothing new since it was captured.\n"

    assert nugget("review", "accept").code == 0
    first = done["units"][0]
    assert nugget("search", first["title"], "-q", "-n", "3").out.count(f"brain:{first['id']}\n") == 1
    assert nugget("status").out.count("Captured  last 20") == 1


@pytest.mark.proves("CLI-ERRORS")
def test_stdin_that_is_no_utf8_is_one_sentence(words: Path) -> None:
    command = [sys.executable, "-P", "-m", "nugget.entry", "add", "-"]
    shown = subprocess.run(command, input=b"one\ncaf\xe9", capture_output=True, timeout=60, env=dict(os.environ))
    assert shown.returncode == 2 and shown.stdout == b""
    assert shown.stderr.decode().splitlines() == [
        "Error: What is on stdin is no UTF-8 text (line 2).", "`iconv -t UTF-8` converts it.",
    ]  # fmt: skip
    command.append("--json")
    given = "# Café\n\nÜber Kaffee."
    kept = subprocess.run(command, input=given.encode(), capture_output=True, timeout=60,
                          env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    assert kept.returncode == 0 and json.loads(kept.stdout)["id"] == "pattern/cafe"


@pytest.mark.proves("CLI-HAND")
def test_a_text_that_begins_with_frontmatter_is_no_option(nugget: Nugget, words: Path) -> None:
    text = "---\nid: belief/small-steps\ntype: belief\ndomain: coding\n---\n# Small steps\n\nThey are quicker.\n"
    shown = nugget("add", text, "--json")
    assert shown.json == {"id": "belief/small-steps", "path": "domains/coding/beliefs/small-steps.md"}
    assert (words / shown.json["path"]).read_text() == text


@pytest.mark.proves("CLI-ERRORS")
@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("retrieval: {limit: 0}", "`retrieval.limit` must be at least 1, not 0."),
        ("retrieval: {hops: 9}", "`retrieval.hops` must be 0 to 2, not 9."),
        ("retrieval: {rrf_k: -1}", "`retrieval.rrf_k` must be at least 0, not -1."),
        ("retrieval: {rerank_max_usd: .nan}", "`retrieval.rerank_max_usd` must be at least 0, not nan."),
        ("retrieval: {ranking: best}", "`retrieval.ranking` must be one of calibrated, rrf, not 'best'."),
        ("embedding: {model: ''}", "`embedding.model` must be given, not ''."),
        ("redaction: {allow: ['(']}", "`redaction.allow` must be a list of regular expressions ('(' is none:"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_with_file_and_key(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch, yaml: str, said: str
) -> None:
    assert LIMITS.keys() <= documented_keys().keys()
    monkeypatch.delenv("NUGGET_EMBEDDING_MODEL")
    (words / "brain.yaml").write_text(f"{yaml}\n")
    for line in (("search", "x"), ("doctor",), ("add", "x")):
        shown = nugget(*line)
        assert (shown.code, shown.out) == (2, "")
        assert shown.err.startswith(f"Error: {words}/brain.yaml: {said}")
    shown = nugget("lint")
    assert shown.code == 1 and f"brain.yaml:1: error: {said.rstrip('.')}" in shown.out


@pytest.mark.proves("CLI-BRAIN")
def test_half_a_brain_is_told_and_another_is_not_used_in_its_place(
    nugget: Nugget, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = tmp_path / "half"
    half.mkdir()
    (half / "brain.yaml").write_text("owner: X\n")
    said = f"Error: {half} is no brain: it has a brain.yaml, but neither a `domains` folder nor a git repository.\n"
    assert nugget("--brain", half, "status").err.startswith(said)
    nugget("init", words, "--no-install")
    monkeypatch.delenv("NUGGET_BRAIN")
    monkeypatch.chdir(half)
    assert nugget("status").err.startswith(said)


@pytest.mark.proves("CLI-ERRORS")
def test_a_config_that_is_no_utf8_is_told_before_anything_is_made(
    nugget: Nugget, isolated_home: Path, tmp_path: Path
) -> None:
    (isolated_home / ".nugget").mkdir()
    (isolated_home / ".nugget/config.yaml").write_bytes(b"owner: \xff\n")
    shown = nugget("init", tmp_path / "new", "--no-install")
    assert shown.code == 2 and f"{isolated_home}/.nugget/config.yaml" in shown.err
    assert not (tmp_path / "new").exists()


@pytest.mark.proves("CLI-ERRORS")
def test_messages_and_help_speak_of_no_python(nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nugget("search", "x", "--source", "nope").err.startswith("Error: There is no source 'nope'.\n")
    said = "Error: Invalid value for '--type': 'foo' is not one of"
    assert nugget("add", "x", "--type", "foo").err.startswith(said)
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("add", "ask", "import", "search"):
        shown = nugget(command, "--help").out
        assert not any(word in shown for word in ("<str>", "<bool>", "list[", "<int", "<path>", "<float"))
    assert "bug" in nugget("add", "--help").out.split()
