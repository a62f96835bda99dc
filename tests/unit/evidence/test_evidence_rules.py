"""The rules of evidence: what is an incident and what ends it, what is a working note and what only looks like one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from logs import NOW, Logs
from sessions import write_transcript

from nugget.config import CaptureSettings, Settings
from nugget.evidence.derive import ingest, notes_of_command, notes_of_speech
from nugget.index.events import TABLES
from nugget.sources import Log, session_file
from nugget.sources.sessions import log_of


@pytest.mark.proves("EVI-NOTES")
@pytest.mark.parametrize(
    "command",
    [
        "npx next", "npx next build", "next build", "npm run next", "cat todo.md", "vim src/next/later.ts",
        'git commit -m "use pnpm instead of npm"', "git commit -m 'TODO: nothing'", "cargo run --use-cache",
        "rg TODO src", "nvm use 20",
    ],
)  # fmt: skip
def test_a_word_in_a_command_is_no_note(command: str) -> None:
    assert list(notes_of_command(command)) == []


@pytest.mark.proves("EVI-INCIDENTS")
def test_retries_edits_and_the_command_that_went_well_are_one_incident(logs: Logs) -> None:
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
        wrong, "failed 2 times", "edited since: src/shop.py", "fixed by: pytest tests/test_shop.py",
    )  # fmt: skip


@pytest.mark.proves("EVI-INCIDENTS")
@pytest.mark.parametrize(
    ("command", "code"), [("grep -rn foo src", 1), ("git log | grep nothing", 1), ("[ -f x ]", 1), ("tail -f log", 130)]
)
def test_a_search_without_result_and_a_command_stopped_by_hand_are_no_incidents(
    logs: Logs, command: str, code: int
) -> None:
    logs.run("s", 1000, command, code)
    logs.ingest("s")
    assert logs.ask("s", "what failed").incidents == ()


def transcript(file: Path, calls: list[tuple[str, dict[str, Any], str, bool]]) -> Log:
    """A transcript with a prompt and these tool calls: (tool, input, result, whether it failed)."""
    file.unlink(missing_ok=True)
    write_transcript(file, [("Fix the shop.", "Done.", *calls)], session=file.stem)
    found = session_file(file, agent="claude-code", name=file.stem)
    assert found is not None
    return log_of(found)


FAILED = ("Bash", {"command": "npm test"}, "Exit code 1\nFAIL cart.test.ts\nTypeError: price is undefined", True)
TODOS = {"todos": [{"content": "Mend the cart", "status": "completed"}, {"content": "Ship it", "status": "pending"}]}


@pytest.mark.proves("EVI-SESSIONS", "EVI-INGEST")
def test_an_agents_session_gives_the_same_rows_and_is_read_again_when_it_has_grown(logs: Logs, tmp_path: Path) -> None:
    file = tmp_path / "abc.jsonl"
    first = ingest(logs.index, transcript(file, [FAILED]), settings=Settings(), now=NOW)
    assert (first["events"], first["pane_output"], first["incidents"]) == (4, 2, 1)
    ids = [row[0] for row in logs.index.execute("SELECT id FROM events ORDER BY id")]
    calls = [
        FAILED, ("Edit", {"file_path": "/srv/shop/cart.ts", "old_string": "a", "new_string": "b"}, "done", False),
        ("TodoWrite", TODOS, "ok", False), ("Bash", {"command": "npm test"}, "12 passed", False),
    ]  # fmt: skip
    grown = transcript(file, calls)
    second = ingest(logs.index, grown, settings=Settings(), now=NOW)
    assert (second["events"], second["file_edits"], second["incidents"]) == (4, 1, 0)
    assert not ingest(logs.index, grown, settings=Settings(), now=NOW)["bytes_read"]
    assert [row[0] for row in logs.index.execute("SELECT id FROM events ORDER BY id")][:3] == ids[:3]
    (incident,) = logs.ask("abc", "what went wrong with npm").incidents
    assert incident.facts["fixed_by"] == "npm test" and "edited since: cart.ts" in incident.facts["summary"]
    todos = {note.text: note.facts["open"] for note in logs.ask("abc", "resume").notes if note.kind == "note.todo"}
    assert todos == {"Mend the cart": False, "Ship it": True}


@pytest.mark.proves("EVI-SESSIONS")
def test_of_excluded_projects_nothing_is_stored(logs: Logs, tmp_path: Path) -> None:
    hidden = Settings(capture=CaptureSettings(exclude_projects=("/srv/*",)))
    ingest(logs.index, transcript(tmp_path / "two.jsonl", [FAILED]), settings=hidden, now=NOW)
    stored = [logs.index.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES]
    assert not any(stored) and logs.ask("two", "what went wrong").candidate_count == 0


@pytest.mark.proves("EVI-SPEED")
def test_of_a_long_session_a_bounded_number_of_rows_is_looked_at(logs: Logs) -> None:
    lines = []
    for number in range(3000):
        start = f'{{"ts_ms":{number * 1000},"kind":"command.start","data":{{"cmd":"make module{number % 300}"}}}}'
        end = f'{{"ts_ms":{number * 1000 + 9},"kind":"command.end","data":{{"exit":{int(number % 40 == 0)}}}}}'
        lines.append(f"{start}\n{end}\n")
    logs.write("s", "events.jsonl", "".join(lines))
    assert logs.ingest("s")["events"] == 6000
    bundle = logs.ask("s", "what went wrong with module3 and what changed")
    assert "module3" in bundle.context_text
    assert bundle.candidate_count < 1000
    assert not logs.ingest("s")["bytes_read"]


@pytest.mark.proves("EVI-SHELL-INCREMENTAL")
def test_a_shell_log_that_changed_is_read_in_place_of_what_was_read_of_it(logs: Logs) -> None:
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
def test_of_what_is_said_only_sentences_that_decide_or_defer_are_notes() -> None:
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
