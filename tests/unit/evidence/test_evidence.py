"""From logs to bundles: ingest, incidents, notes, intents, limits, no secret, evidence chosen by a model."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logs import NOW, Logs
from loopback_anthropic import AnthropicServer, status, value
from secret_corpus import corpus, left_over
from sessions import write_transcript

from nugget.config import Settings
from nugget.errors import UsageError
from nugget.evidence import TRUNCATED, BundleOptions, bundle_json
from nugget.evidence.candidates import PROFILES
from nugget.evidence.derive import notes_of_command, notes_of_speech, put_evidence_units
from nugget.evidence.selection import select_with_llm
from nugget.index.embedded.events import TABLES
from nugget.infra.llm import LLM

SESSION = "sess_walkthrough"


@pytest.fixture
def walked(logs: Logs) -> Logs:
    logs.walkthrough(SESSION)
    logs.ingest(SESSION)
    return logs


@pytest.mark.proves("EVI-WALKTHROUGH", "EVI-FAILURE-FIRST")
def test_the_second_example_finds_the_failing_command_and_its_error_line_first(walked):
    bundle = walked.ask(SESSION, "what did i do wrong with cargo test")
    assert bundle.intent == "debug"
    (incident,) = bundle.incidents
    assert incident.facts["title"] == "`cargo test --workspace` failed (exit 101)"
    assert incident.facts["summary"][:2] == (
        "error[E0425]: cannot find value `foo` in this scope", "then: shell failed: tests still failing",
    )  # fmt: skip
    assert [one.kind for one in bundle.selected[:3]] == ["incident", "failure.command", "output"]
    assert "error[E0425]" in bundle.selected[2].text


@pytest.mark.proves("EVI-WALKTHROUGH", "EVI-RESUME", "EVI-INTENT", "EVI-BUDGET")
def test_the_other_examples_resume_override_shorten_and_do_without_working_notes(walked):
    resumed = walked.ask(SESSION, "resume from where we left off")  # the third
    assert resumed.intent == "resume" and resumed.incidents
    assert "Edited src/lib.rs (overwrite)" in [note.text for note in resumed.notes]
    assert {"incident", "note.edit"} <= {one.kind for one in resumed.selected[:4]}
    assert walked.ask(SESSION, "what failed", intent="status").intent == "status"  # the fourth
    assert walked.ask(SESSION, "what failed").intent == "debug"
    with pytest.raises(UsageError, match="There is no intent 'llm-select'"):
        walked.ask(SESSION, "what failed", intent="llm-select")
    short = walked.ask(SESSION, "why did it fail", max_chars=180)  # the sixth
    assert len(short.context_text) <= 180 and "`cargo test --workspace` failed (exit 101)" in short.context_text
    assert TRUNCATED in short.context_text and short.truncated
    bare = walked.ask(SESSION, "what went wrong", include_artifacts=False)  # the seventh
    assert bare.notes == () and bundle_json(bare)["artifacts"] == [] and "working notes" not in bare.context_text


@pytest.mark.proves("EVI-WALKTHROUGH", "EVI-EXPLAIN")
def test_the_fifth_example_explains_itself(walked):
    shown = bundle_json(walked.ask(SESSION, "why did it fail"), explain=True)
    assert shown["explain"]["selected_count"] == len(shown["selected_evidence"]) > 0
    assert shown["explain"]["candidate_count"] >= shown["explain"]["selected_count"]
    assert shown["explain"]["profile"]["category_caps"] == PROFILES["debug"].caps
    for one in shown["selected_evidence"]:
        assert one["source_table"] in TABLES
        found = walked.index.execute(f"SELECT ts_ms FROM {one['source_table']} WHERE id = ?", (one["source_id"],))
        assert found.fetchone() is not None
    assert any(one["reasons"] for one in shown["selected_evidence"])


@pytest.mark.proves("EVI-BUDGET")
def test_no_limit_is_ever_exceeded(walked):
    whole = walked.ask(SESSION, "why did it fail")
    assert not whole.truncated
    for max_chars in range(len(whole.context_text) + 5):
        assert len(walked.ask(SESSION, "why did it fail", max_chars=max_chars).context_text) <= max_chars
    for max_lines in range(whole.context_text.count("\n") + 3):
        text = walked.ask(SESSION, "why did it fail", max_lines=max_lines).context_text
        assert len(text.split("\n") if text else []) <= max_lines
    assert walked.ask(SESSION, "x" * 100_000, max_chars=300).context_text.count("x") < 300


@pytest.mark.proves("EVI-CHANGED")
def test_for_what_changed_edited_files_dominate_over_noisy_output(walked):
    walked.write(SESSION, "output.log", "".join(f"warning: thing {n} changed files, error\n" for n in range(2000)))
    for number in range(5):
        arguments = {"path": f"src/part{number}.rs"}
        walked.happen(SESSION, 2000 + number, "tool.start", tool="fs.write", args=arguments)
    walked.ingest(SESSION)
    bundle = walked.ask(SESSION, "what changed, which files?")
    assert bundle.intent == "what-changed"
    assert {one.kind for one in bundle.selected[:10]} == {"edit", "note.edit"}
    assert sum(one.kind == "output" for one in bundle.selected) <= PROFILES["what-changed"].caps["output"]


@pytest.mark.proves("EVI-NOTES")
@pytest.mark.parametrize(
    "command",
    [
        "npx next", "npx next build", "next build", "npm run next", "cat todo.md", "vim src/next/later.ts",
        'git commit -m "use pnpm instead of npm"', "git commit -m 'TODO: nothing'", "cargo run --use-cache",
        "rg TODO src", "nvm use 20",
    ],
)  # fmt: skip
def test_a_word_in_a_command_is_no_note(command):
    assert list(notes_of_command(command)) == []


@pytest.mark.proves("EVI-INCIDENTS")
def test_retries_edits_and_the_command_that_went_well_are_one_incident(logs):
    wrong = "src/shop.py:3: NameError: name 'prize' is not defined"
    logs.run("s", 1000, "pytest tests/test_shop.py", 1, stderr=wrong)
    logs.happen("s", 2000, "tool.start", tool="fs.write", args={"path": "src/shop.py"})
    logs.run("s", 3000, "ls")
    logs.run("s", 4000, "pytest -x tests/test_shop.py", 1, stderr=wrong)
    logs.happen("s", 5000, "tool.start", tool="fs.write", args={"path": "src/shop.py"})
    logs.run("s", 6000, "pytest tests/test_shop.py", stdout="1 passed")
    logs.ingest("s")
    (incident,) = logs.ask("s", "what went wrong with shop").incidents
    assert incident.facts["failures"] == 2 and incident.facts["first_ts_ms"] == 1001 and incident.ts_ms == 4001
    assert incident.facts["fixed_by"] == "pytest tests/test_shop.py"
    assert incident.facts["summary"] == (
        wrong, "failed 2 times", "edited since: src/shop.py", "fixed by: the same command",
    )  # fmt: skip


@pytest.mark.proves("EVI-INCIDENTS")
def test_a_search_without_result_and_a_command_stopped_by_hand_are_no_incidents(logs):
    for command, code in (("grep -r foo src", 1), ("git log | grep nothing", 1), ("[ -f x ]", 1), ("tail -f log", 130)):
        logs.run("s", 1000, command, code)
    logs.ingest("s")
    assert logs.ask("s", "what failed").incidents == ()


def transcript(file: Path, calls: list[tuple[str, dict[str, Any], str, bool]]) -> Path:
    """A transcript with a prompt and these tool calls: (tool, input, result, whether it failed)."""
    file.unlink(missing_ok=True)
    write_transcript(file, [("Fix the shop.", "Done.", *calls)], session=file.stem)
    return file


FAILED = ("Bash", {"command": "npm test"}, "Exit code 1\nFAIL cart.test.ts\nTypeError: price is undefined", True)
TODOS = {"todos": [{"content": "Mend the cart", "status": "completed"}, {"content": "Ship it", "status": "pending"}]}
HARMLESS = [
    ("Bash", {"command": "git diff"}, '+    t.Fatalf("failed: %v", err)\nError: none', False),
    ("Bash", {"command": "cat cart.ts"}, "class PriceError extends Error {}\nthrow new PriceError('failed')", False),
    ("Bash", {"command": "go test ./..."}, "--- PASS: TestErrorIsTold\nok  shop  0.2s", False),
    ("Bash", {"command": "git merge main"}, "The user doesn't want to proceed with this tool use. No.", True),
    ("Edit", {"file_path": "/srv/shop/cart.ts", "new_string": "b"}, "File has not been read yet.", True),
]


@pytest.mark.proves("EVI-INCIDENTS", "EVI-RESUME")
def test_what_is_shown_or_refused_is_no_failure_and_what_was_fixed_is_not_where_we_were(logs, tmp_path):
    def ask(question: str, *calls: tuple[str, dict[str, Any], str, bool]) -> str:
        logs.ingest("a", transcript(tmp_path / "a.jsonl", [*HARMLESS, *calls]))
        return logs.ask("a", question).context_text

    told = ["incidents:\n- `npm test` failed (exit 1)", "    TypeError: price is undefined", "    FAIL cart.test.ts"]
    assert ask("what went wrong").endswith("\nNothing failed.")
    assert ask("what went wrong with PriceError").endswith("\nNothing failed.")
    assert ask("what went wrong", FAILED).endswith("\n".join(told))
    put_evidence_units(logs.index)
    assert [*logs.index.execute("SELECT title FROM units")] == [("`npm test` failed (exit 1)",)]
    resumed = ask("where were we", FAILED, ("Bash", {"command": "npm test"}, "12 passed", False))
    assert "last prompt: Fix the shop.\nlast reply: Done.\n" in resumed and "failed" not in resumed


@pytest.mark.proves("EVI-SESSIONS", "EVI-INGEST")
def test_an_agents_session_gives_the_same_rows_and_is_read_again_when_it_has_grown(logs, tmp_path):
    file = tmp_path / "abc.jsonl"
    first = logs.ingest("abc", transcript(file, [FAILED]))
    assert (first["events"], first["pane_output"], first["incidents"]) == (4, 2, 1)
    ids = [row[0] for row in logs.index.execute("SELECT id FROM events ORDER BY id")]
    calls = [
        FAILED, ("Edit", {"file_path": "/srv/shop/cart.ts", "old_string": "a", "new_string": "b"}, "done", False),
        ("TodoWrite", TODOS, "ok", False), ("Bash", {"command": "npm test"}, "12 passed", False),
    ]  # fmt: skip
    second = logs.ingest("abc", transcript(file, calls))
    assert (second["events"], second["file_edits"], second["incidents"]) == (4, 1, 0)
    assert not logs.ingest("abc", file)["bytes_read"]
    assert [row[0] for row in logs.index.execute("SELECT id FROM events ORDER BY id")][:3] == ids[:3]
    (incident,) = logs.ask("abc", "what went wrong with npm").incidents
    assert incident.facts["fixed_by"] == "npm test" and "edited since: cart.ts" in incident.facts["summary"]
    todos = {note.text: note.facts["open"] for note in logs.ask("abc", "resume").notes if note.kind == "note.todo"}
    assert todos == {"Mend the cart": False, "Ship it": True}


@pytest.mark.proves("EVI-SHELL-INCREMENTAL")
def test_a_shell_log_that_changed_is_read_in_place_of_what_was_read_of_it(logs):
    logs.happen("s", 1000, "command.start", cmd="make")
    logs.write("s", "stdout.log", "one\ntwo\n")
    logs.ingest("s")
    logs.happen("s", 2000, "command.end", exit=2)
    output = logs.write("s", "stdout.log", "error: no rule to make it\n")
    second = logs.ingest("s")
    assert (second["events"], second["pane_output"], second["incidents"]) == (1, 1, 1)
    output.write_text("another log\n")
    logs.ingest("s")
    assert [row[0] for row in logs.index.execute("SELECT text FROM pane_output")] == ["another log"]


@pytest.mark.proves("EVI-NOTES")
def test_of_what_is_said_only_sentences_that_decide_or_defer_are_notes():
    said = (
        "Please use the existing helper. What should I use for dates? I don't know whether to use rust. "
        "We decided to ship on Friday. Use cases are in docs. Next, add a test for the parser. The next.js page lags. "
        "Next: one in thirty webhooks is refused."
    )
    assert list(notes_of_speech(said)) == [
        ("decision", "Please use the existing helper."),
        ("decision", "We decided to ship on Friday."),
        ("todo", "Next, add a test for the parser."),
    ]


@pytest.fixture
def many(logs: Logs) -> Logs:
    for number in range(400):
        logs.run("s", number * 10, f"step {number} --of-many", int(number == 17), stdout=f"step {number} is done")
    logs.run("s", 9_000, "curl -H 'Authorization: Bearer ghp_" + "a1B2c3D4e5" * 3 + "abcdef'", 1)
    logs.write("s", "stdin.log", "step 399 --of-many\n")
    logs.write("s", "stderr.log", "warning: the very last word\n")
    logs.ingest("s")
    return logs


def choose(many: Logs, server: AnthropicServer, settings: Settings | None = None, **options: Any) -> dict[str, Any]:
    llm = LLM(api_key="sk-ant-loopback", base_url=server.url, home=many.home)
    return select_with_llm(
        many.index, "s", "why did step 17 fail?", llm=llm, settings=settings or Settings(),
        options=BundleOptions(**options), now=NOW,
    )  # fmt: skip


@pytest.mark.proves("EVI-SELECT")
def test_what_the_model_names_is_looked_up_and_the_latest_streams_are_carried(many):
    with AnthropicServer() as server:
        server.script(value({"labels": ["e99999", "nonsense"]}))
        choose(many, server)
        (wanted,) = re.findall(r"(?m)^(e\d+) .*exit 1 failed\] step 17 ", server.requests[0].prompt)
        server.script(value({"labels": [wanted, "<made up>"]}))
        found = choose(many, server)
    assert "[command.end exit 1 failed] step 17 --of-many" in found["context_text"]
    assert "made up" not in found["context_text"] and len(found["source_ids"]) == 1
    carried = "latest stderr:|warning: the very last word|latest stdout:|step 399 is done|latest stdin:".split("|")
    assert [text for text in carried if text not in found["context_text"]] == []
    assert found["chunks"] == 1 and found["usd"] > 0 and not found["degraded"]
    asked = server.requests[0].prompt
    assert "why did step 17 fail?" in asked and "curl -H" in asked and "a1B2c3D4e5" not in asked


@pytest.mark.proves("EVI-SELECT")
def test_a_cap_on_cost_and_a_failing_model_leave_an_answer_that_says_so(many):
    with AnthropicServer() as server:
        server.default = lambda _: status(400)
        found = choose(many, server)
        assert found["chunks"] == 0 and found["degraded"][0].startswith("llm_select: ")
        assert "step 17 --of-many" in found["context_text"]
        asked = len(server.requests)
        found = choose(many, server, Settings(llm_select_max_usd=0.0))
        assert len(server.requests) == asked and "more than the $0.0000 allowed" in found["degraded"][0]
        ledger = (many.home / "ledger" / "costs.jsonl").read_text("utf-8")
    assert "select evidence" in ledger


@pytest.mark.proves("EVI-SELECT")
def test_history_is_cut_into_chunks_of_which_the_latest_are_read(many):
    with AnthropicServer() as server:
        server.default = lambda _: value({"labels": ["e1"]})
        found = choose(many, server, chunk_tokens=800, max_chunks=3, include_events=False)
        prompts = [request.prompt for request in server.requests]
    assert found["chunks"] == len(prompts) == 3 and found["left_out"] and "history_cut" in found["degraded"]
    assert all(len(prompt) < 800 * 4 + 1000 for prompt in prompts)
    assert "step 399 is done" in prompts[-1] and "step 0 is done" not in prompts[0]
    assert "command.end" not in "".join(prompts)


SECRETS = [("".join(row["text"]), "".join(row["secret"])) for row in corpus("secrets")]
EDGES = (4, 12, 30, 60)
"""So many characters before a limit a text with a secret begins, so that the limit may go through the secret."""

Write = Callable[[Logs, int, str], object]


def _event(kind: str, **given: Callable[[str], Any]) -> Write:
    return lambda logs, ts, text: logs.happen("s", ts, kind, **{name: make(text) for name, make in given.items()})


def _at_edges(limit: int, write: Callable[[Logs, int, str], object]) -> Write:
    return lambda logs, ts, text: [write(logs, ts, "x " * ((limit - edge) // 2) + text) for edge in EDGES]


def _line(name: str, before: str = "") -> Write:
    return lambda logs, _, text: logs.write("s", name, before + text + "\n")


PLACES: dict[str, Write] = {
    "a command": _event("command.start", cmd="deploy {}".format),
    "a folder": _event("command.start", cmd=lambda _: "ls", cwd="/srv/ {}".format),
    "the end of a command": _event("command.end", cmd="deploy {}".format, exit=lambda _: 1),
    "the name of a tool": _event("tool.start", tool=str, args=lambda _: {"command": "x"}),
    "the kind of an event": lambda logs, ts, text: logs.happen("s", ts, text, text="x"),
    "arguments": _event("tool.start", tool=lambda _: "http", args=lambda text: {"header": text, "more": [{"a": text}]}),
    "an error": _event("tool.end", tool=lambda _: "http", ok=lambda _: False, error="refused: {}".format),
    "the path of an edit": _event("tool.start", tool=lambda _: "fs.write", args=lambda text: {"path": f"src/ {text}"}),
    "a note": _event("note", text="todo: use this instead {}".format),
    "any other event": _event("other", stuff=lambda text: {"deep": [text]}),
    "what was typed": _line("stdin.log"),
    "a failing line": _line("stderr.log", "error: refused "),
    "output": _line("output.log"),
    "coloured output": lambda logs, _, text: logs.write("s", "stdout.log", f"\x1b[31m{text[:9]}\x1b[0m{text[9:]}\n"),
    "a long command": _at_edges(2000, _event("command.start", cmd=str)),
    "a long line": _at_edges(1000, _line("stdout.log")),
}


def everything(logs: Logs, session: str) -> str:
    """All that is stored of a session and returned about it."""
    tables = ["log_sessions", "read_files", *TABLES]
    stored = [str(row) for table in tables for row in logs.index.execute(f"SELECT * FROM {table}")]
    queries = ("what went wrong", "where were we", "what changed", "give me an overview")
    asked = (logs.ask(session, query, max_chars=10**6, max_lines=10**4) for query in queries)
    return "\n".join([*stored, *(json.dumps(bundle_json(one, explain=True), ensure_ascii=False) for one in asked)])


@pytest.mark.proves("EVI-REDACT")
@pytest.mark.parametrize("place", PLACES)
def test_no_secret_in_a_shell_log_is_stored_or_returned(logs, place):
    for number, (text, _) in enumerate(SECRETS):
        PLACES[place](logs, number * 10, text)
    assert logs.ingest("s")["bytes_read"]
    found = everything(logs, "s")
    assert [text for text, secret in SECRETS if left_over(secret, found)] == []


@pytest.mark.proves("EVI-REDACT")
def test_a_secret_that_is_written_in_two_parts_is_not_stored(logs):
    key = next(text for text, _ in SECRETS if "PRIVATE KEY" in text and "\n" in text)
    lines = key.split("\n")
    logs.write("s", "output.log", "\n".join(lines[:3]) + "\n")
    logs.ingest("s")
    logs.write("s", "output.log", "\n".join(lines[3:]) + "\n")
    logs.ingest("s")
    secret = next(secret for text, secret in SECRETS if text == key)
    assert not left_over(secret, everything(logs, "s"))


@pytest.mark.proves("EVI-REDACT", "EVI-SESSIONS")
def test_no_secret_in_an_agents_session_is_stored_or_returned(logs, tmp_path):
    calls: list[tuple[str, dict[str, Any], str, bool]] = []
    for text, _ in SECRETS:
        calls.append(("Bash", {"command": f"deploy {text}"}, f"Exit code 1\nerror: refused {text}", True))
        calls.append(("Edit", {"file_path": f"/srv/ {text}", "old_string": text, "new_string": text}, text, True))
        calls.append(("mcp__http", {"header": text, "deep": [{"a": text}]}, text, True))
        calls.append((f"odd {text}", {"x": "y"}, "fine", False))
        calls.append(("TodoWrite", {"todos": [{"content": f"use {text}", "status": "pending"}]}, "ok", False))
        for edge in EDGES[1:3]:
            command, printed = ("x " * ((limit - edge) // 2) + text for limit in (2000, 1000))
            calls.append(("Bash", {"command": command}, printed, True))
            calls.append(("mcp__http", {"q": "x"}, "z " * ((1500 - edge) // 2) + text, True))
    done = logs.ingest("a", transcript(tmp_path / "a.jsonl", calls))
    assert done["events"] > 5 * len(SECRETS) and done["incidents"]
    found = everything(logs, "a")
    assert [text for text, secret in SECRETS if left_over(secret, found)] == []
