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
        'grep -rn "FIXME" .', "psql -c 'use shop'", "git switch to-main", "pod install --next", "cd later", "ls next",
        "docker compose -f next.yml up", "python use_case.py", "sed -i 's/use/switch to/' a.txt", "mysql -e 'USE db'",
        "kubectl config use-context prod", "next dev -p 3000", "echo next", "yarn next lint", "fixme.sh --now",
    ],
)  # fmt: skip
def test_a_word_in_a_command_is_no_note(command: str) -> None:
    assert list(notes_of_command(command)) == []


@pytest.mark.proves("EVI-NOTES")
@pytest.mark.parametrize(
    ("command", "kind", "text"),
    [
        ("# TODO: rotate the staging keys", "todo", "TODO: rotate the staging keys"),
        ("make deploy  # fixme: hangs without VPN", "todo", "fixme: hangs without VPN"),
        ('echo "todo: write the migration" >> NOTES.md', "todo", "todo: write the migration"),
        ("ai next: fix the parser of the config", "todo", "next: fix the parser of the config"),
        ("todo add buy more disks", "todo", "buy more disks"),
        ("ai clean up the logs later", "todo", "clean up the logs later"),
        ("# decided to keep sqlite", "decision", "decided to keep sqlite"),
        ("ai let's use pnpm instead of npm", "decision", "let's use pnpm instead of npm"),
        ("ai we switch to postgres for the queue", "decision", "we switch to postgres for the queue"),
        ("we have chosen rust over go because of memory", "decision", "we have chosen rust over go because of memory"),
    ],
)
def test_what_a_person_says_in_a_shell_is_a_note(command: str, kind: str, text: str) -> None:
    assert list(notes_of_command(command)) == [(kind, text)]


@pytest.mark.proves("EVI-NOTES")
def test_of_what_is_said_only_sentences_that_decide_or_defer_are_notes() -> None:
    said = (
        "Please use the existing helper. What should I use for dates? I don't know whether to use rust. "
        "We decided to ship on Friday. Use cases are in docs. Next, add a test for the parser. The next.js page lags."
    )
    assert list(notes_of_speech(said)) == [
        ("decision", "Please use the existing helper."),
        ("decision", "We decided to ship on Friday."),
        ("todo", "Next, add a test for the parser."),
    ]


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
    (blocker,) = [note for note in logs.ask("s", "status").notes if note.kind == "note.blocker"]
    assert not blocker.facts["open"]


@pytest.mark.proves("EVI-INCIDENTS")
def test_another_target_neither_joins_nor_fixes_an_incident(logs: Logs) -> None:
    logs.run("s", 1000, "go test -run TestCart ./shop", 1, stderr="cart_test.go:9: error: want 2")
    logs.run("s", 2000, "go test -run TestPay ./shop", 1, stderr="pay_test.go:4: error: want 7")
    logs.run("s", 3000, "go vet ./shop")
    logs.run("s", 4000, "npm run lint", 1, stderr="error: semicolon missing")
    logs.run("s", 5000, "npm run build")
    logs.ingest("s")
    incidents = logs.ask("s", "what went wrong").incidents
    assert len(incidents) == 3 and all(one.facts["fixed_by"] is None for one in incidents)


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


@pytest.mark.proves("EVI-INCIDENTS")
def test_a_failure_whose_exit_code_was_lost_in_a_pipe_is_an_incident_and_a_quoted_one_is_none(logs: Logs) -> None:
    logs.run("s", 1000, "cargo build 2>&1 | tail -5", stdout="error[E0308]: mismatched types")
    logs.run("s", 2000, "cat build.log | head", stdout="error: that was yesterday")
    logs.run("s", 3000, "make check | tee out", stdout="12 passed, 0 failed")
    logs.ingest("s")
    (incident,) = logs.ask("s", "what failed").incidents
    assert incident.facts["command"] == "cargo build 2>&1 | tail -5"
    assert "output tells of a failure" in incident.reasons


@pytest.mark.proves("EVI-INCIDENTS")
def test_lines_of_a_plain_log_go_to_the_command_that_was_echoed_above_them(logs: Logs) -> None:
    for number, (command, code) in enumerate((("make one", 1), ("make two", 2))):
        logs.happen("s", 1000 * number, "command.start", cmd=command)
        logs.happen("s", 1000 * number + 1, "command.end", exit=code)
    logs.write("s", "output.log", "$ make one\nerror: no rule for one\n$ make two\nerror: two is out of disk\n$ \n")
    logs.ingest("s")
    one, two = sorted(logs.ask("s", "what failed").incidents, key=lambda incident: incident.ts_ms)
    assert (
        one.facts["summary"][0] == "error: no rule for one" and two.facts["summary"][0] == "error: two is out of disk"
    )


def transcript(file: Path, calls: list[tuple[str, dict[str, Any], str, bool]]) -> Log:
    """A transcript with a prompt and these tool calls: (tool, input, result, whether it failed)."""
    file.unlink(missing_ok=True)
    write_transcript(file, [("Fix the shop.", "Done.", *calls)], session=file.stem)
    found = session_file(file, agent="claude-code", name=file.stem)
    assert found is not None
    return log_of(found)


FAILED = ("Bash", {"command": "npm test"}, "Exit code 1\nFAIL cart.test.ts\nTypeError: price is undefined", True)
TODOS = {"todos": [{"content": "Mend the cart", "status": "completed"}, {"content": "Ship it", "status": "pending"}]}


@pytest.mark.proves("EVI-SESSIONS")
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
    assert incident.facts["summary"][0] == "TypeError: price is undefined"
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
    first = logs.ingest("s")
    assert (first["events"], first["pane_output"]) == (1, 2)
    logs.happen("s", 2000, "command.end", exit=2)
    output = logs.write("s", "stdout.log", "error: no rule to make it\n")
    second = logs.ingest("s")
    assert (second["events"], second["pane_output"], second["incidents"]) == (1, 1, 1)
    output.write_text("another log\n")
    logs.ingest("s")
    assert [row[0] for row in logs.index.execute("SELECT text FROM pane_output")] == ["another log"]
