"""From logs to bundles: ingest, intents, scores, limits, incidents and working notes; the walkthrough, step by step."""

from __future__ import annotations

import threading

import pytest
from logs import NOW, Logs

from nugget.config import Settings
from nugget.errors import UsageError
from nugget.evidence import TRUNCATED, bundle_json
from nugget.evidence.candidates import PROFILES
from nugget.evidence.derive import ingest
from nugget.index.connection import open_home
from nugget.index.events import TABLES
from nugget.sources.sessions import find_log

SESSION = "sess_walkthrough"


@pytest.fixture
def walked(logs: Logs) -> Logs:
    logs.walkthrough(SESSION)
    logs.ingest(SESSION)
    return logs


@pytest.mark.proves("EVI-WALKTHROUGH", "EVI-FAILURE-FIRST")
def test_the_second_example_finds_the_failing_command_and_its_error_line_first(walked: Logs) -> None:
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
def test_the_other_examples_resume_override_shorten_and_do_without_working_notes(walked: Logs) -> None:
    resumed = walked.ask(SESSION, "resume from where we left off")  # the third
    assert resumed.intent == "resume" and resumed.incidents
    assert "Edited src/lib.rs (overwrite)" in [note.text for note in resumed.notes]
    assert {"incident", "note.edit"} <= {one.kind for one in resumed.selected[:4]}
    assert walked.ask(SESSION, "what failed", intent="status").intent == "status"  # the fourth
    assert walked.ask(SESSION, "what failed").intent == "debug"
    with pytest.raises(UsageError, match="There is no intent 'llm-select'"):
        walked.ask(SESSION, "what failed", intent="llm-select")
    short = walked.ask(SESSION, "why did it fail", max_chars=180)  # the sixth
    assert len(short.context_text) <= 180
    assert "`cargo test --workspace` failed (exit 101)" in short.context_text
    assert TRUNCATED in short.context_text and short.truncated
    bare = walked.ask(SESSION, "what went wrong", include_artifacts=False)  # the seventh
    assert bare.notes == () and bundle_json(bare)["artifacts"] == []
    assert "working notes" not in bare.context_text


@pytest.mark.proves("EVI-WALKTHROUGH", "EVI-EXPLAIN")
def test_the_fifth_example_explains_itself(walked: Logs) -> None:
    bundle = walked.ask(SESSION, "why did it fail")
    shown = bundle_json(bundle, explain=True)
    assert shown["explain"]["selected_count"] == len(shown["selected_evidence"]) > 0
    assert shown["explain"]["candidate_count"] >= shown["explain"]["selected_count"]
    assert shown["explain"]["profile"]["category_caps"] == PROFILES["debug"].caps
    for one in shown["selected_evidence"]:
        assert one["source_table"] in TABLES
        found = walked.index.execute(f"SELECT ts_ms FROM {one['source_table']} WHERE id = ?", (one["source_id"],))
        assert found.fetchone() is not None
    assert any(one["reasons"] for one in shown["selected_evidence"])


@pytest.mark.proves("EVI-BUDGET")
def test_no_limit_is_ever_exceeded(walked: Logs) -> None:
    whole = walked.ask(SESSION, "why did it fail")
    assert not whole.truncated
    for max_chars in range(len(whole.context_text) + 5):
        assert len(walked.ask(SESSION, "why did it fail", max_chars=max_chars).context_text) <= max_chars
    for max_lines in range(whole.context_text.count("\n") + 3):
        text = walked.ask(SESSION, "why did it fail", max_lines=max_lines).context_text
        assert len(text.split("\n") if text else []) <= max_lines
    assert walked.ask(SESSION, "x" * 100_000, max_chars=300).context_text.count("x") < 300


@pytest.mark.proves("EVI-CHANGED")
def test_for_what_changed_edited_files_dominate_over_noisy_output(walked: Logs) -> None:
    walked.write(SESSION, "output.log", "".join(f"warning: thing {n} changed files, error\n" for n in range(2000)))
    for number in range(5):
        arguments = {"path": f"src/part{number}.rs"}
        walked.happen(SESSION, 2000 + number, "tool.start", tool="fs.write", args=arguments)
    walked.ingest(SESSION)
    bundle = walked.ask(SESSION, "what changed, which files?")
    assert bundle.intent == "what-changed"
    assert {one.kind for one in bundle.selected[:10]} == {"edit", "note.edit"}
    assert sum(one.kind == "output" for one in bundle.selected) <= PROFILES["what-changed"].caps["output"]


@pytest.mark.proves("EVI-INGEST")
def test_two_ingests_at_once_take_each_part_in_once(logs: Logs) -> None:
    for number in range(400):
        logs.run("s", number * 10, f"step {number}", number % 2, stderr=f"error: step {number} broke")
    log = find_log(logs.environment, "s")
    assert log is not None

    def take() -> None:
        connection = open_home(logs.home)
        ingest(connection, log, settings=Settings(), now=NOW)
        connection.close()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [logs.index.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES[:3]]
    assert counts == [800, 0, 400]
