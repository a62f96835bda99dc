"""Values, files and records that no program of good will writes: one sentence each, and nothing else suffers."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC
from pathlib import Path

import pytest
from commands import Nugget
from sessions import write_transcript

from nugget.brain.golden import parse
from nugget.infra.git import branches
from nugget.sources import parse_timestamp


@pytest.mark.proves("CLI-ERRORS")
@pytest.mark.parametrize(
    "value", ['!!int ""', "!!float ''", "!!bool maybe", "!!timestamp soon", "!!set {a}", "0x" + "f" * 5000]
)
def test_yaml_that_python_could_not_construct_stops_nothing(nugget: Nugget, words: Path, value: str) -> None:
    (words / "brain.yaml").write_text(f"name: x\nowner: {value}\n")
    assert nugget("search", "cache").code == 0
    assert "Traceback" not in (shown := nugget("doctor")).err and shown.out


@pytest.mark.proves("EVAL-GOLDEN")
@pytest.mark.parametrize("content", [b"questions: null\n", b"questions: ~\n", b"questions:\n"])
def test_a_golden_file_whose_list_is_empty_has_no_questions(content: bytes) -> None:
    assert parse(content, path="evals/golden.yaml").questions == ()


@pytest.mark.proves("SES-READ-ALL")
@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31"])
def test_a_time_that_is_none_in_another_time_zone_is_no_time(moment: str, tmp_path: Path, nugget: Nugget) -> None:
    assert parse_timestamp(moment) is None
    shown = nugget("sessions", "--since", moment.replace("9999-12-31T", "10000-01-01T"))
    assert shown.code != 3


@pytest.mark.proves("SES-READ-ALL")
def test_a_pipe_in_the_place_of_a_subagent_hides_no_session(nugget: Nugget, words: Path, tmp_path: Path) -> None:
    name = write_transcript(file := tmp_path / "s.jsonl", [("Why?", "We use one lock because two deadlocked.")])
    (tmp_path / "s" / "subagents").mkdir(parents=True)
    os.mkfifo(tmp_path / "s" / "subagents" / "agent-1.jsonl")
    os.mkfifo(tmp_path / "agent-2.jsonl")
    shown = nugget("capture-session", "--transcript", file, "--with", "offline", "--dry-run", "--json")
    assert shown.code == 0 and name in shown.out


@pytest.mark.proves("SYNC-CORRUPT")
@pytest.mark.parametrize("lost", ["DROP TABLE evidence_fts", "DROP TABLE units_fts_data", "DROP TABLE pane_output"])
def test_a_machine_index_that_lost_any_table_is_rebuilt(
    nugget: Nugget, words: Path, isolated_home: Path, lost: str
) -> None:
    file = isolated_home / ".claude/projects/-shop/s.jsonl"
    name = write_transcript(file, [("Why?", "Because of the queue.")])
    assert nugget("sync").code == 0
    with closing(sqlite3.connect(isolated_home / ".nugget/index.db")) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        if lost.startswith("DROP TABLE units_fts_"):
            connection.execute("DELETE FROM sqlite_schema WHERE name = ?", (lost.split()[-1],))
        else:
            connection.execute(lost)
        connection.commit()
    write_transcript(file, [("Why zorblatt?", "Error: it failed.")], session=name)
    assert nugget("rebuild").code == 0
    assert "zorblatt" in nugget("search", "zorblatt", "--source", "sessions").out


@pytest.mark.proves("MEMORY-SOURCES")
@pytest.mark.parametrize("told", ["[]", '{"projects": null}', '{"projects": 3}', "null", '"x"'])
def test_a_client_file_of_any_shape_names_no_workspace(
    nugget: Nugget, words: Path, isolated_home: Path, told: str
) -> None:
    (isolated_home / ".claude.json").write_text(told)
    assert nugget("search", "retry", "--as", "claude-code").code == 0


@pytest.mark.proves("CLI-REVIEW")
def test_a_proposal_from_a_year_that_no_clock_shows_is_listed(nugget: Nugget, words: Path) -> None:

    def git(*arguments: str, given: bytes = b"") -> str:
        done = subprocess.run(["git", "-C", str(words), *arguments], input=given, check=True, capture_output=True)
        return done.stdout.decode().strip()

    tree, who = git("rev-parse", "HEAD^{tree}"), "A <a@b.c> 999999999999 +0000"
    commit = f"tree {tree}\nparent {git('rev-parse', 'HEAD')}\nauthor {who}\ncommitter {who}\n\nProposal\n"
    sha = git("hash-object", "-t", "commit", "-w", "--stdin", given=commit.encode())
    git("update-ref", "refs/heads/nugget/session-x", sha)
    assert [branch.committed.astimezone(UTC).year for branch in branches(words, "nugget/")] == [9999]
    assert nugget("review", "list", "--json").code == 0


@pytest.mark.proves("CLI-ERRORS")
def test_suggested_questions_are_yaml_and_never_json(nugget: Nugget, words: Path) -> None:
    shown = nugget("eval", "--suggest", "--json")
    assert (shown.code, shown.out) == (2, "")
