"""A hostile file, session or log costs little, is named, and stops none of the others."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from logs import ShellLogs
from sessions import write_transcript

from nugget.brain.knowledge_file import MAX_RELATIONS, parse
from nugget.markdown import MAX_CHUNKS, MAX_LINES, chunk_markdown, size_problem, title_of
from nugget.models import SourceName
from nugget.sources.notes import MAX_LINKS, read_note

HEAD = "id: {0}/{1}\ntype: {0}\ndomain: coding\nconfidence: 0.5\nsource: manual\ncreated: 2026-01-01"
N = 100_000

HUGE = {
    "headings": "".join(f"## h{number}\n\ntext {number}\n\n" for number in range(N)),
    "link references": "".join(f"[l{number}]: http://x.invalid/{number}\n" for number in range(N // 2)),
    "a table of many rows": "|a|b|\n|-|-|\n" + "|x|y|\n" * N,
    "a table of many columns": "|a" * 5000 + "|\n" + "|-" * 5000 + "|\n" + ("|x" * 5000 + "|\n") * 20,
    "list entries": "- x\n" * N,
    "deep lists": "".join("  " * depth + "- x\n" for depth in range(1500)),
    "deep quotes": ">" * N + " x\n",
    "underlined headings": "a\n=\n" * (N // 2),
    "one line": "word " * (4 * N),
    "one word": "w" * (20 * N),
    "spaces in a heading": "# a" + " " * N + "b\n",
    "signs in a heading": "# a" + " #" * N + "b\n",
    "brackets": "[" * N,
    "open titles": "[a]: b 'x\n" * N,
    "links": "[[a/b]] [c](d.md) " * N,
    "full stops": ". " * N,
}


def knowledge_file(body: str, *, slug: str = "huge", more: str = "") -> str:
    return f"---\n{HEAD.format('concept', slug)}\nlast_modified: 2026-01-01\n{more}---\n# Huge\n\n{body}\n"


@pytest.mark.proves("LIMIT-FILE")
@pytest.mark.parametrize("body", HUGE.values(), ids=HUGE)
def test_no_body_holds_the_parser(body):
    # Some of these once took minutes; a test that hangs is the failure.
    assert title_of(body) is None or len(body) > N
    chunks = chunk_markdown(body, title="Huge")
    assert 0 < len(chunks) <= MAX_CHUNKS
    assert bool(size_problem(body)) == (body.count("\n") + 1 > MAX_LINES or len(chunks) == MAX_CHUNKS)


@pytest.mark.proves("LIMIT-FILE")
def test_relations_and_links_above_the_limit_are_named():
    related = "related:\n" + "".join(f"- {{id: concept/u{number}, relation: uses}}\n" for number in range(2001))
    parsed = parse(knowledge_file("x", more=related), path="domains/coding/concepts/huge.md")
    assert parsed.unit is not None and len(parsed.unit.related) == MAX_RELATIONS
    assert [problem.reason for problem in parsed.problems] == [
        "`related` has 2,001 entries; only the first 2,000 count"
    ]
    text = "".join(f"[[note {number}]]\n" for number in range(2001))
    note, problems = read_note(text, key="notes/a.md", source=SourceName.CANON, names={})
    assert len(note.related) == MAX_LINKS and "2,001 links" in problems[0].reason


@pytest.mark.proves("LIMIT-FILE")
def test_sync_indexes_what_it_may_and_says_what_it_left_out(nugget, words):
    folder = words / "domains" / "coding" / "concepts"
    for name in ("headings", "link references", "one word"):
        slug = name.replace(" ", "-")
        (folder / f"{slug}.md").write_text(knowledge_file(HUGE[name], slug=slug), "utf-8")
    problems = nugget("sync", "--json").json["problems"]
    named = {problem["path"].rsplit("/", 1)[1]: problem["reason"] for problem in problems}
    assert "only the first 20,000 are indexed" in named["headings.md"]
    assert "more than 2,000 passages" in named["one-word.md"]
    assert {"headings.md", "link-references.md", "one-word.md"} == named.keys()
    assert named.keys() <= {problem["path"].rsplit("/", 1)[1] for problem in nugget("lint", "--json").json["problems"]}
    assert nugget("ask", "how do we cache", "--no-llm").code == 0


HOSTILE: dict[str, bytes] = {
    "deep": b'{"type":"user","message":{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n",
    "digits": b'{"type":"user","timestamp":' + b"9" * 10_000 + b"}\n",
    "no-utf-8": b'{"type":"user","message":{"role":"user","content":"\xff\xfe\x00\xed\xa0\x80"}}\n' * 9,
    "surrogates": b'{"type":"user","sessionId":"\\ud800","cwd":"\\u0000","message":{"content":"\\udfff"}}\n',
    "shapes": b'{"type":[],"message":7,"timestamp":{},"uuid":[1],"sessionId":{"a":1},"cwd":[]}\n[]\n7\nnull\n"x"\n',
    "cut": b'{"type":"user","message":{"role":"user","content":"cut',
    "zip": gzip.compress(b"x" * 9000)[:-9],
    "bomb": gzip.compress(b"\0" * 9_000_000),
}


@pytest.fixture
def talk(isolated_home: Path) -> Path:
    """The one good transcript, in the folder of the client."""
    file = isolated_home / ".claude" / "projects" / "-srv-shop" / "5f0c7a52-0000-4000-8000-000000000001.jsonl"
    write_transcript(file, [("We decided to use uvloop for the gateway.", "Noted: the gateway uses uvloop.")])
    os.utime(file, (1_700_000_000, 1_700_000_000))
    return file


def plant(folder: Path, name: Callable[[str], str]) -> None:
    """Put every hostile content into a folder, and beside it what is no file at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for hostile, content in HOSTILE.items():
        (folder / name(hostile)).write_bytes(content)
    (folder / name("folder")).mkdir()
    os.mkfifo(folder / name("pipe"))
    (folder / name("loop")).symlink_to(folder / name("loop"))


@pytest.mark.proves("FAULT-ISOLATED")
def test_history_evidence_and_extraction_go_on_after_a_session_of_any_shape(nugget, words, talk, isolated_home):
    plant(talk.parent, lambda hostile: f"{hostile}.jsonl")
    plant(isolated_home / ".codex" / "sessions" / "2026" / "01" / "01", lambda hostile: f"rollout-{hostile}.jsonl")
    plant(isolated_home / ".nugget" / "archive", lambda hostile: f"{hostile}.jsonl.gz")
    for loop in (["sync"], ["extract", "--all"], ["logs", "ingest", "--all"]):
        ended = nugget(*loop)
        assert ended.code in (0, 1) and "Traceback" not in ended.err
        for hostile in ("deep", "digits", "no-utf-8", "shapes", "bomb"):
            assert f"{hostile}.jsonl: " in ended.out + ended.err or f"failed: {hostile}: " in ended.err, (loop, hostile)
    assert "uvloop" in nugget("search", "uvloop").out and nugget("sessions").code == 0
    caught = nugget("capture", "--catch-up")
    queue = isolated_home / ".nugget" / "queue"
    worked = {json.loads(job.read_text())["transcript"]: job.parent.name for job in queue.glob("*/*.json")}
    assert worked.get(str(talk)) in ("done", "skipped"), (caught, worked)
    assert nugget("status").code == 0 and nugget("doctor").code in (0, 1)


@pytest.mark.proves("FAULT-ISOLATED")
def test_shell_logs_of_any_shape_stop_no_other(nugget, words, tmp_path, monkeypatch):
    logs = tmp_path / "logs"
    monkeypatch.setenv("AISH_LOG_DIR", str(logs))
    for hostile, content in HOSTILE.items():
        for name in ("events.jsonl", "stdin.log", "stdout.log"):
            folder = logs / f"sess_{hostile}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    ShellLogs(logs).run("sess_good", 1_700_000_000_000, "make uvloop-check", 2)
    assert nugget("logs", "ingest", "--all").code in (0, 1) and nugget("sync").code == 0
    assert "uvloop" in nugget("search", "uvloop-check").out


@pytest.mark.proves("FAULT-ISOLATED", "SYNC-BAD-FILES")
def test_knowledge_files_notes_and_stored_sessions_of_any_shape_stop_no_other(nugget, words, isolated_home, tmp_path):
    plant(words / "domains" / "coding" / "concepts", lambda hostile: f"{hostile}.md")
    plant(isolated_home / ".nugget" / "provenance" / "shop", lambda hostile: f"{hostile}.jsonl")
    plant(tmp_path / "notes", lambda hostile: f"{hostile}.md")
    plant(tmp_path / "exports", lambda hostile: f"{hostile}.json")
    shutil.copytree(
        tmp_path / "exports", tmp_path / "notes" / "exports", ignore=shutil.ignore_patterns("pipe*", "loop*")
    )
    good = "# Use uvloop\n\nThe gateway always uses uvloop, because the default loop drops connections under load.\n"
    (tmp_path / "notes" / "good.md").write_text(good)
    synced = nugget("sync", "--json")
    assert synced.code == 0
    named = " ".join(problem["path"] for problem in synced.json["problems"])
    assert all(hostile in named for hostile in ("no-utf-8", "bomb", "deep", "loop"))
    assert nugget("ask", "how do we cache answers", "--no-llm").code == 0
    assert nugget("lint").code == 1
    assert nugget("nuggets").code in (0, 1) and nugget("import", str(tmp_path / "notes")).code == 0
    assert "uvloop" in nugget("review", "list", "--json").out
