"""History: transcripts and channels as passages that are found, shown and followed; queries with operators."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from sessions import fork, write_transcript

from nugget.app.local_sources import read_logs
from nugget.config import Environment, Settings, read_environment
from nugget.errors import TranscriptError
from nugget.index.embedded.connection import open_home
from nugget.index.embedded.ingest import changed_logs, ingest_all, is_outdated
from nugget.index.embedded.sync import SyncResult
from nugget.models import Filter, Hit, SourceName
from nugget.retrieval.history import HISTORY_SOURCES, search_history
from nugget.retrieval.query_language import SearchQuery, parse_search
from nugget.retrieval.refs import read_excerpt
from nugget.sources.claude_code import read_session
from nugget.sources.sessions import write_archive

TODAY = date(2026, 3, 1)
FAILED = "Bash", {"command": "npm test"}, "1 failed", True


class World:
    """A machine with transcripts, and its index."""

    def __init__(self, home: Path) -> None:
        self.environment: Environment = read_environment({"HOME": str(home)})
        self.projects = self.environment.claude_config / "projects"
        self.connection: sqlite3.Connection = open_home(self.environment.home)

    def write(self, turns: list[tuple[Any, ...]], name: str = "11111111-aaaa", **more: Any) -> Path:
        file = self.projects / "-srv-shop" / f"{name}.jsonl"
        write_transcript(file, turns, session=name, **more)
        return file

    def sync(self, settings: Settings | None = None) -> SyncResult:
        return ingest_all(self.connection, self.environment, settings or Settings()) or SyncResult()

    def derive(self, settings: Settings | None = None) -> None:
        read_logs(self.connection, self.environment, settings or Settings(), None)

    def units(self) -> list[tuple[str]]:
        return self.connection.execute("SELECT id FROM units").fetchall()

    def search(
        self, query: str, *, since: date | None = None, until: date | None = None, sessions: tuple[str, ...] = (),
        source: SourceName = SourceName.SESSIONS, **more: Any,
    ) -> list[Hit]:  # fmt: skip
        asked = SearchQuery(given=query, text=query, filter=Filter(since=since, until=until, sessions=sessions))
        return search_history(self.connection, asked, source, today=TODAY, **more)

    def found(self, query: str, **more: Any) -> list[str]:
        return [hit.ref for hit in self.search(query, **more)]

    def matching(self, query: str) -> list[str]:
        parsed = parse_search(query, today=TODAY)
        assert parsed.match
        return [hit.ref for hit in search_history(self.connection, parsed, SourceName.SESSIONS, today=TODAY)]


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A machine with transcripts, and its index."""

    made = World(tmp_path)
    yield made
    made.connection.close()


@pytest.fixture(scope="module")
def real_world(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("real"))
    transcripts = shared_data / "transcripts"
    for name in ("claude-code", "claude-code-log", "claude-code-transcripts", "episodic-memory"):
        shutil.copytree(transcripts / name, made.projects / name)
    for scenario in (transcripts / "claude-code-2.1.329").iterdir():
        shutil.copytree(scenario, made.projects / scenario.name)
    made.sync()
    yield made
    made.connection.close()


@pytest.mark.proves("HIS-ROLES")
def test_a_session_is_found_by_what_you_and_the_agent_said(world):
    world.write([("Why does the\n- webhook time out?", "The proxy closes idle connections."), ("Fix it", "Done.")])
    world.sync()
    hits = world.search("webhook")
    assert [(hit.ref, hit.unit.type, hit.unit.body) for hit in hits] == [
        ("session:11111111-aaaa#1", "you", "Why does the\n- webhook time out?")
    ]
    assert hits[0].unit.created == date(2026, 3, 1)
    assert [hit.unit.type for hit in world.search("proxies idle")] == ["agent"]


@pytest.mark.proves("HIS-TITLE")
def test_a_session_is_found_by_its_title_and_one_without_a_title_is_named_by_its_first_prompt(world):
    file = world.write([("Why does this fail on Mondays?", "The clock is set by hand.")])
    world.write([("Is it slow?", "Mondays are fine here.")], name="22222222-bbbb")
    named = {"type": "custom-title", "customTitle": "Flaky login", "sessionId": "11111111-aaaa"}
    file.write_text(f"{file.read_text()}{json.dumps(named)}\n")
    world.sync()
    assert [(hit.ref, hit.unit.title) for hit in world.search("flaky logins")] == [
        ("session:11111111-aaaa#1", "Flaky login")
    ]
    assert world.found("flaky beacon") == [] and [one.unit.title for one in world.search("slow")] == ["Is it slow?"]
    assert {hit.unit.title for hit in world.search("Mondays")} == {"Flaky login", "Is it slow?"}


@pytest.mark.proves("HIS-LONG", "HIS-REDACTED")
def test_a_long_reply_is_cut_into_passages_and_shown_whole_without_its_secrets(world):
    reply = "\n\n".join(f"Paragraph {n} is about lighthouse{n} and {SECRET} at length. " * 5 for n in range(20))
    world.write([("Tell me all", reply)])
    world.sync()
    assert "lighthouse17" in world.search("lighthouse17")[0].chunks[0].text
    shown = read_excerpt(world.connection, "session:11111111-aaaa#1").passages[1].text
    assert shown.startswith("Paragraph 0") and "lighthouse19" in shown
    assert shown.replace("[redacted:github-token]", SECRET) == reply.strip() and SECRET not in shown
    assert SECRET.encode() not in (world.environment.home / "index.db").read_bytes()


@pytest.mark.proves("HIS-INCREMENTAL", "HIS-UNCHANGED")
def test_a_session_that_grew_or_was_rewritten_is_read_again(world):
    file = world.write([("First question", "First answer")])
    assert world.sync().added == 1 and world.sync() == SyncResult(unchanged=1)
    ids = [row[0] for row in world.connection.execute("SELECT id FROM events ORDER BY id")]
    world.write([("Second lighthouse", "Second answer")])
    assert world.sync().modified == 1
    assert [row[0] for row in world.connection.execute("SELECT id FROM events ORDER BY id")][: len(ids)] == ids
    assert world.found("lighthouse") == ["session:11111111-aaaa#2"]
    file.unlink()
    world.write([("Another beacon, written again and much longer than what was there before " * 30, "ok")])
    world.sync()
    assert world.found("lighthouse") == [] and world.found("beacon") == ["session:11111111-aaaa#1"]


@pytest.mark.proves("HIS-FORKS")
def test_a_fork_repeats_nothing_and_takes_over_when_the_original_is_deleted(world):
    file = world.write([("Find the lighthouse", "It is on the cliff.")])
    world.sync()
    copy = file.with_name("22222222-bbbb.jsonl")
    fork(file, copy)
    write_transcript(copy, [("And the beacon?", "On the hill.")], session="22222222-bbbb")
    world.sync()
    assert world.found("lighthouse") == ["session:11111111-aaaa#1"]
    assert world.found("beacon") == ["session:22222222-bbbb#2"]
    with pytest.raises(TranscriptError, match="Nothing is known") as unknown:
        read_excerpt(world.connection, "session:22222222-bbbb#1", 0)
    assert unknown.value.hint == "The whole session: nugget sessions show 22222222-bbbb"
    file.unlink()
    world.sync()
    assert world.found("lighthouse") == ["session:22222222-bbbb#1"]
    assert world.found("beacon") == ["session:22222222-bbbb#2"]


@pytest.mark.proves("HIS-DELETED", "HIS-ARCHIVE")
def test_hits_of_a_deleted_transcript_disappear_unless_the_archive_has_it(world):
    kept = world.write([("Keep the lighthouse", "Kept.")], "11111111-aaaa")
    lost = world.write([("Lose the beacon", "Lost.")], "22222222-bbbb")
    world.sync()
    write_archive(world.environment.home, read_session(kept))
    kept.unlink()
    lost.unlink()
    assert world.sync().removed == 2 and world.found("beacon") == []
    assert world.found("lighthouse") == ["session:11111111-aaaa#1"]
    assert read_excerpt(world.connection, "session:11111111-aaaa#1").passages[0].text == "Keep the lighthouse"


@pytest.mark.proves("HIS-EXCLUDED")
def test_excluded_projects_are_not_read_and_are_forgotten_when_they_become_excluded(world):
    world.write([("Find the lighthouse", "Found.")])
    world.write([("Find the beacon", "Found.", FAILED)], "22222222-bbbb", cwd="/srv/secret/plan")
    world.derive()
    assert world.found("beacon") and world.units()
    excluding = Settings(capture_exclude_projects=("/srv/secret",))
    assert len(changed_logs(world.connection, world.environment, excluding, None)[0]) == 2
    world.derive(excluding)
    assert world.found("beacon") == [] and world.found("lighthouse") and not world.units()
    assert world.sync(excluding).changed is False


@pytest.mark.proves("HIS-OFF")
def test_history_can_be_switched_off_and_is_forgotten_then(world):
    world.write([("Find the lighthouse", "Found.", FAILED)])
    world.derive()
    off = Settings(history_enabled=False)
    assert world.units() and world.sync(off).removed == 1 and not world.units()
    assert world.found("lighthouse") == [] and world.sync(off).changed is False
    world.connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, 'events_fts', 'row')")
    assert world.connection.execute("SELECT count(*) FROM temp.words").fetchone() == (0,)


@pytest.mark.proves("HIS-GOLDEN")
def test_what_people_noted_of_real_sessions_finds_the_session(real_world, shared_data):
    asked = found = 0
    for line in (shared_data / "transcripts" / "claude-code-summaries.jsonl").read_text("utf-8").splitlines():
        noted = json.loads(line)
        summary, name = noted["summary"], Path(noted["transcript"]).stem
        for query in filter(None, [summary.get("intent"), summary.get("outcome"), *summary.get("friction", [])]):
            asked += 1
            found += any((hit.unit.session or "")[:19] == name[:19] for hit in real_world.search(query, limit=3))
    assert asked > 30 and found >= 0.85 * asked, (found, asked)


@pytest.mark.proves("HIS-FILTERS")
def test_hits_are_filtered_by_time_source_and_session(world):
    world.write([("Old lighthouse", "ok")], started=datetime(2026, 1, 1, tzinfo=UTC))
    world.write([("New lighthouse", "ok")], "22222222-bbbb", cwd="/srv/other")
    world.sync()
    assert set(world.found("lighthouse")) == {"session:11111111-aaaa#1", "session:22222222-bbbb#1"}
    assert world.found("lighthouse", since=date(2026, 2, 1)) == ["session:22222222-bbbb#1"]
    assert world.found("lighthouse", until=date(2026, 1, 1)) == ["session:11111111-aaaa#1"], "that day counts"
    assert world.found("lighthouse", source=SourceName.BRIDGE) == []
    assert world.found("lighthouse", sessions=("222",)) == ["session:22222222-bbbb#1"]


@pytest.mark.proves("HIS-RANK")
def test_what_says_more_of_it_comes_first_and_what_is_newer_where_they_are_equal(world):
    world.write([("The lighthouse keeper of the northern cliff", "ok")], "a", started=datetime(2025, 1, 1, tzinfo=UTC))
    world.write([("A lighthouse", "ok")], "b", started=datetime(2026, 1, 1, tzinfo=UTC))
    world.write([("A lighthouse, though", "ok")], "c", started=datetime(2026, 5, 1, tzinfo=UTC))
    world.sync()
    assert world.found("lighthouse keeper cliff")[0] == "session:a#1"
    assert world.found("lighthouse") == ["session:c#1", "session:b#1", "session:a#1"]


@pytest.mark.proves("HIS-BRIDGE")
def test_messages_of_channels_are_found_and_read_as_a_thread(world):
    file = world.environment.home / "bridge" / "release.jsonl"
    file.parent.mkdir()
    lines = [
        {"from": "zealot", "to": "scout", "text": "The lighthouse ships on Friday",
         "timestamp": "2026-03-01T10:00:00Z"},
        {"from": "scout", "text": f"Understood, with {SECRET}", "timestamp": "2026-03-01T10:01:00Z"},
        ["no message"], {"from": "scout", "text": ""},
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"from": "torn', "utf-8")
    world.sync()
    hits = world.search("lighthouse Friday", source=SourceName.BRIDGE)
    assert [(hit.ref, hit.unit.session, hit.chunks[0].breadcrumb) for hit in hits] == [
        ("bridge:release#1", "release", "zealot")
    ]
    thread = read_excerpt(world.connection, "bridge:release#2")
    assert [passage.text for passage in thread.passages] == [
        "#release zealot → scout: The lighthouse ships on Friday",
        "#release scout: Understood, with [redacted:github-token]"
    ]  # fmt: skip
    with file.open("a", encoding="utf-8") as opened:
        opened.write('", "text": "whole now"}\n')
    world.sync()
    assert world.found("whole now", source=SourceName.BRIDGE) == ["bridge:release#3"]


@pytest.mark.proves("HIS-REAL", "HIS-INJECTED")
def test_every_hit_in_real_sessions_can_be_read_and_none_is_what_the_client_put_in(real_world):
    queries = ("session", "test", "command caveat", "continued from a previous conversation", "system reminder")
    hits = [hit for query in queries for source in HISTORY_SOURCES
            for hit in real_world.search(query, source=source, limit=30)]  # fmt: skip
    assert len(hits) > 60
    for hit in hits:
        passages = read_excerpt(real_world.connection, hit.ref, 0).passages
        assert any(passage.role == hit.unit.type for passage in passages)
        for passage in passages:
            assert not passage.text.startswith(
                ("<system-reminder>", "<command-name>", "Caveat: The messages below", "This session is being continued")
            )


@pytest.mark.proves("HIS-SHELL")
def test_commands_and_output_of_shells_are_found_and_shown(world):
    folder = world.environment.shell_logs / "shell-1"
    folder.mkdir(parents=True)
    (folder / "stdin.log").write_text(f"cargo test --workspace\nexport TOKEN={SECRET}\ngit push lighthouse")
    lines = [f"test {n} of the beacon passed" for n in range(100)] + ["\x1b[31merror: quota exceeded\x1b[0m", "A" * 80]
    (folder / "output.log").write_text("\n".join(lines) + "\n")
    (folder / "stdout.log").write_text("error: quota exceeded\n")
    (world.environment.shell_logs / "linked").symlink_to(folder)
    world.sync()
    shell = SourceName.SHELL
    assert world.found("cargo workspace", source=shell) == ["shell:shell-1#1"]
    assert world.found("lighthouse", source=shell) == [], "the last line is not whole yet"
    with (folder / "stdin.log").open("a") as opened:
        opened.write(" --force\n")
    world.sync()
    assert world.found("lighthouse", source=shell) == ["shell:shell-1#3"]
    hits = world.search("quota exceeded", source=shell)
    assert [(hit.unit.type, hit.ref) for hit in hits] == [("output", "shell:shell-1/output.log#3")]
    assert "error: quota exceeded" in hits[0].unit.body and "\x1b" not in hits[0].unit.body


@pytest.mark.proves("HIS-RULES")
def test_other_rules_read_everything_again_and_redact_what_cannot_be_read(world):
    world.write([("Deploy the lighthouse with hunter2lighthouse", "ok")])
    lost = world.write([("Deploy the beacon", "ok")], "22222222-bbbb")
    world.sync()
    lost.unlink()
    world.sync()
    allowing = Settings(redaction_allow=("hunter2.*",))
    assert is_outdated(world.connection, allowing) and not is_outdated(world.connection, Settings())
    world.sync(allowing)
    assert world.found("lighthouse") == ["session:11111111-aaaa#1"] and world.found("beacon") == []


@pytest.mark.proves("HIS-EXPRESSION")
def test_an_expression_decides_what_is_found_and_phrases_hold(world):
    world.write([("the end of the file was reached", "ok")], "a")
    world.write([("the file was at an end", "ok")], "b")
    world.write([("lighthouses everywhere, retryWithBackoff", "ok")], "c")
    world.write([("payments by keyboard, 支払いの再試行", "ok")], "d")
    world.sync()
    assert world.matching('"end of the file"') == ["session:a#1"]
    assert set(world.matching("end AND file")) == {"session:a#1", "session:b#1"}
    assert world.matching("file NOT reached") == ["session:b#1"]
    assert world.matching('file NOT "end of the"') == ["session:b#1"]
    assert world.matching("pay* AND key*") == ["session:d#1"]
    assert world.matching("NEAR(支払い 再試行, 5)") == ["session:d#1"]
    assert world.matching('"retry with"') == []
    assert world.matching("NEAR(end reached, 4)") == ["session:a#1"] and world.matching("NEAR(end reached, 3)") == []
    assert world.matching('"the of"') == []


@pytest.mark.proves("HIS-UNSPACED")
@pytest.mark.parametrize("word", ["検", "索", "能", "検索", "機能", "索機", "検索機能", "速"])
def test_a_part_of_what_is_written_without_spaces_is_found_wherever_it_stands(world, word):
    world.write([("検索機能が遅い。もっと速", "ok")], "a")
    world.write([("The payments are slow.", "遅延")], "b")
    world.sync()
    assert world.found(word) == ["session:a#1"] and world.matching(f"{word} AND 遅い") == ["session:a#1"]
    assert world.matching(f"payments NOT {word}") == ["session:b#1"]


@pytest.mark.proves("HIS-WHILE-WRITTEN")
def test_a_line_that_is_still_being_written_is_taken_when_it_is_whole(world):
    file = world.write([("First", "One"), ("Second lighthouse", "Two")])
    whole = file.read_bytes()
    cut = whole.index(b"Second") + 3
    file.write_bytes(whole[:cut])
    world.sync()
    assert world.found("lighthouse") == [] and world.found("First")
    file.write_bytes(whole)
    world.sync()
    assert world.found("lighthouse") == ["session:11111111-aaaa#2"]
    file.write_bytes(whole.rstrip(b"\n"))
    assert world.sync().problems == ()
