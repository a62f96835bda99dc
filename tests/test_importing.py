"""Existing notes become proposals: what each format gives, and what is left alone."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

import nugget
from nugget import git, knowledge, review
from nugget.cli import run
from nugget.config import CaptureSettings, Settings
from nugget.errors import BrainError, UsageError
from nugget.importing import Import, ImportResult, import_notes
from nugget.importing.notes import LeftOut, Note, page_of
from nugget.importing.pages import notes_of
from nugget.models import Origin, Unit

EXPORTS = Path(__file__).parent / "exports"
"""Written by the programs themselves: claude-mem 13.25.3, mem0ai 2.2.1, basic-memory 0.24.1."""
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3

NYGARD = """\
# 2. Implement as shell scripts

Date: 12/02/2016

## Status

Accepted

## Context

The tool needs to create new files and apply small edits to existing files.

## Decision

The tool is implemented as shell scripts that use standard Unix tools.

## Consequences

The tool won't support Windows.
"""
MADR = """\
---
status: "superseded by ADR-0009"
date: 2024-05-01
decision-makers: [Ann]
---
# Use dashes in filenames

## Context and Problem Statement

What is the pattern of the filename where an ADR is stored?

## Considered Options

* `NNNN-title-with-dashes.md` - format used by [adr-tools](https://github.com/npryce/adr-tools)
* `YYYY-MM-DD Title`

## Decision Outcome

Chosen option: "`NNNN-title-with-dashes.md`", because it provides a unique number for references.
"""
CURSOR = """\
---
description: FastAPI best practices
globs: **/*.py, app/**/*.py
alwaysApply: false
---

# FastAPI Best Practices

## Models
- Use Pydantic models for everything that crosses the border of the service
- Keep models organised by domain

## Stub
- short
"""
RULES = """\
# CLAUDE.md

This file provides guidance to Claude Code when it works with code here.

## Testing
- Run `make test` before each push; it runs everything that CI runs.
- A bug gets its test first.

## Database

### Migrations
- Never run migrations at start-up: two replicas that start at once would deadlock.

### Queries
- Every query of a request handler goes through the repository classes.

@docs/more.md
"""
VAULT = """\
---
tags: [go, bug]
created: 2025-04-03
aliases: [leak]
---
A goroutine that waits on a channel without looking at [[Contexts|the context]] never ends.
See ![[diagram.png]] and [[Goroutines]]; the way out is a select. #concurrency
"""
OBSERVATIONS = """\
---
title: Authentication Design
type: note
permalink: authentication-design
tags: [auth, security]
---
# Authentication Design

## Observations
- [decision] Use JWT for stateless authentication #security
- [decision] Refresh tokens stand in HTTP-only cookies
- [constraint] Tokens expire after 15 minutes

## Relations
- implements [[API Security Requirements]]
"""


def notes(text: str, path: str = "notes/page.md") -> list[Note]:
    return [found for found in notes_of(page_of(text, path=path)) if isinstance(found, Note)]


def reasons(text: str, path: str = "notes/page.md") -> list[str]:
    return [found.reason for found in notes_of(page_of(text, path=path)) if isinstance(found, LeftOut)]


def nothing_similar(unit: Unit) -> Sequence[tuple[Unit, float]]:
    return []


@pytest.fixture
def home(isolated_home: Path) -> Path:
    return isolated_home / ".nugget"


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    return root


def bring_in(path: Path, brain: Path, home: Path, **changes: object) -> ImportResult:
    bound = {"settings": Settings(), "similar": nothing_similar, "now": NOW} | changes
    return import_notes(path, Import(brain=brain.resolve(), home=home, **bound))  # type: ignore[arg-type]


@pytest.mark.proves("IMPORT-FORMATS", "IMPORT-ONE-IDEA")
def test_a_record_by_nygard_is_one_decision() -> None:
    (note,) = notes(NYGARD, "shop/doc/adr/0002-implement-as-shell-scripts.md")
    assert (note.kind, note.title, note.line) == ("decision", "Implement as shell scripts", 1)
    assert note.body.startswith("# Implement as shell scripts\n") and "won't support Windows" in note.body
    assert note.quote.strip() == "The tool is implemented as shell scripts that use standard Unix tools."
    assert note.reason == "an architecture decision record (Nygard)" and note.confidence == 0.8
    assert note.created == date(2016, 2, 12) and note.warning is None


@pytest.mark.proves("IMPORT-FORMATS")
def test_a_record_by_madr_keeps_its_alternatives_and_its_status() -> None:
    (numbered,) = notes(NYGARD.replace("## ", "## 1. "), "shop/doc/adr/0002.md")
    assert numbered.quote.strip().startswith("The tool is implemented") and numbered.kind == "decision"
    (note,) = notes(MADR, "shop/docs/decisions/0005-use-dashes.md")
    assert (note.kind, note.title) == ("decision", "Use dashes in filenames")
    assert note.alternatives == ("YYYY-MM-DD Title",)
    assert note.reason == "an architecture decision record (MADR), superseded"
    assert note.confidence == 0.3 and "superseded" in note.tags and "worth keeping" in str(note.warning)
    assert note.created == date(2024, 5, 1) and note.line == 6


@pytest.mark.proves("IMPORT-FORMATS", "IMPORT-ONE-IDEA")
def test_rules_become_units_by_their_sections() -> None:
    found = notes(RULES, "shop/CLAUDE.md")
    assert [(note.title, note.line) for note in found] == [
        ("Rules of shop: Testing", 5),
        ("Rules of shop: Database", 9),
    ]
    assert "### Migrations" in found[1].body and "@docs" not in found[1].body
    assert {note.kind for note in found} == {"pattern"}
    assert reasons(RULES, "shop/CLAUDE.md") == ["only says what the file is for"]


@pytest.mark.proves("IMPORT-FORMATS")
def test_cursor_rules_are_read_although_their_frontmatter_is_no_yaml() -> None:
    (note,) = notes(CURSOR, "shop/.cursor/rules/fastapi.mdc")
    assert note.title == "FastAPI Best Practices: Models" and note.line == 9
    assert note.body.endswith("Applies to files that match `**/*.py, app/**/*.py`.")
    assert reasons(CURSOR, "shop/.cursor/rules/fastapi.mdc") == ["says too little to stand alone"]
    flat = "You are an expert in Go. Handle every error where it happens, and wrap it with what was tried.\n"
    (rules,) = notes(flat, "shop/.cursorrules")
    assert (rules.title, rules.body) == ("Rules of shop", flat.strip())


@pytest.mark.proves("IMPORT-FORMATS")
def test_a_note_of_obsidian_keeps_tags_and_words_and_loses_dead_links() -> None:
    (note,) = notes(VAULT, "vault/Coding/Go/Context leaks.md")
    assert (note.kind, note.title, note.reason) == ("bug", "Context leaks", "a note: tagged #bug")
    assert note.tags == ("go", "bug", "concurrency") and note.created == date(2025, 4, 3)
    assert "looking at the context never" in note.body and "[[" not in note.body and "(diagram.png)" in note.body


@pytest.mark.proves("IMPORT-FORMATS")
def test_a_note_of_basic_memory_is_of_the_type_that_most_observations_are() -> None:
    (note,) = notes(OBSERVATIONS)
    assert (note.kind, note.title) == ("decision", "Authentication Design")
    assert note.reason == "a note with observations: its observations are of [decision]"
    assert note.tags[:2] == ("auth", "security")


@pytest.mark.proves("IMPORT-FORMATS")
@pytest.mark.parametrize(
    ("path", "text", "kind", "reason"),
    [
        ("v/a.md", "---\ntype: Pattern\n---\n# A thing\n\n", "pattern", "its `type` says Pattern"),
        ("v/Postmortems/a.md", "# The outage in May\n\n", "bug", "filed under Postmortems/"),
        ("v/a.md", "# Why we use Postgres for sessions\n\n", "decision", "it reads like a decision"),
        ("v/a.md", "# How to rotate keys\n\n", "pattern", "it reads like a pattern"),
        ("v/a.md", "# The pool leaks connections\n\n", "bug", "it reads like a bug"),
        ("v/a.md", "# Vector clocks\n\n", "concept", "nothing says otherwise"),
        ("v/a.md", "# Slow pages\n\n## Symptoms\n\nSlow.\n\n", "bug", "it has a section 'symptoms'"),
        ("v/a.md", "# Small pull requests matter\n\n", "belief", "it reads like a belief"),
    ],
)
def test_the_type_is_inferred_and_the_reason_told(path: str, text: str, kind: str, reason: str) -> None:
    (note,) = notes(text + "Some sentences that say enough to be worth a unit of their own in a brain.\n", path)
    assert note.kind == kind and reason in note.reason


@pytest.mark.proves("IMPORT-ONE-IDEA")
def test_a_long_note_is_cut_at_its_sections_with_the_right_lines() -> None:
    part = "A sentence that fills the page with words. " * 60
    text = f"# Databases\n\n{part}\n\n## 1. Indexes\n\n{part}\n\n```\n# no heading\n```\n\n## Locks\n\n{part}\n"
    found = notes(text)
    lines = text.split("\n")
    assert [note.title for note in found] == ["Databases", "Databases: Indexes", "Databases: Locks"]
    assert [lines[note.line - 1] for note in found] == ["# Databases", "## 1. Indexes", "## Locks"]
    assert "# no heading" in found[1].body


@pytest.mark.proves("IMPORT-LEFT-OUT")
@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("v/2026-03-01.md", "Went running and read a long book about databases and their history.", "journal"),
        ("v/todo.md", "- [ ] one thing that has to be done soon\n- [x] and another that is done already\n", "tasks"),
        (
            "v/moc.md",
            "# Map\n\n- [[A long name of a note]]\n- [text of it](b.md)\n- https://example.org/page\n" * 3,
            "",
        ),
        ("v/a.md", "# Title\n\nshort", "too little"),
        ("v/adr-template.md", NYGARD, "template"),
        (
            "v/adr/7.md",
            "# <!-- title -->\n\n## Considered Options\n\n<!-- numbers can vary -->\n\n## Decision Outcome\n",
            "template",
        ),
        ("v/new.md", "# {short title of the problem}\n\n## Decision\n\nx\n\n## Status\n\ny", "template"),
    ],
)
def test_what_is_no_knowledge_by_its_form_is_left_out(path: str, text: str, reason: str) -> None:
    assert notes(text, path) == []
    (said,) = reasons(text, path)
    assert reason in said


@pytest.mark.proves("IMPORT-REVIEW", "IMPORT-EVIDENCE", "IMPORT-UNTOUCHED")
def test_a_folder_becomes_a_branch_that_is_reviewed_and_accepted(brain: Path, home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "Coding/Go/leak.md": VAULT})
    before = {file: file.read_bytes() for file in folder.rglob("*.md")}
    head = git.head(brain)
    result = bring_in(folder, brain, home)
    assert result.branch == "nugget/import-20260304-050607-shop" and result.files == 3
    assert git.head(brain) == head and git.run(brain, "status", "--porcelain") == b""
    assert {file: file.read_bytes() for file in folder.rglob("*.md")} == before
    proposal = review.show(brain)
    assert proposal.title == "Knowledge from shop" and proposal.trailers["Nugget-Import"] == "shop"
    assert "> from `shop/doc/adr/0002-x.md:1`" in proposal.body
    files = {file.path: file.unit for file in proposal.files}
    leak = files["domains/coding/go/bugs/leak.md"]
    assert leak is not None and leak.origin is Origin.IMPORTED and leak.session is None
    (evidence,) = leak.evidence
    assert evidence.session == "shop/Coding/Go/leak.md:6" and evidence.quote.startswith("A goroutine that waits")
    assert leak.created == date(2025, 4, 3) and leak.last_modified == NOW.date()
    accepted = review.accept(brain, now=NOW)
    assert len(accepted.files) == 4 and (brain / "domains/coding/go/bugs/leak.md").exists()
    for path in files:
        parsed = knowledge.parse((brain / path).read_text(), path=path)
        assert parsed.unit is not None and parsed.problems == ()


@pytest.mark.proves("IMPORT-ONCE")
def test_the_same_notes_are_proposed_once_whatever_became_of_them(brain: Path, home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "leak.md": VAULT})
    first = bring_in(folder, brain, home)
    again = bring_in(folder, brain, home)
    assert (again.branch, again.changes, again.known) == (None, (), 4), "they wait for review"
    review.reject(brain, home=home, now=NOW, units=["decision/implement-as-shell-scripts"])
    review.accept(brain, first.branch, now=NOW)
    (folder / "leak.md").rename(folder / "renamed.md")
    moved = bring_in(folder.rename(tmp_path / "elsewhere"), brain, home)
    assert moved.changes == () and moved.known == 3
    assert [reason for reason in moved.dropped if "turned down before" in reason]
    write(
        tmp_path / "elsewhere", {"new.md": "# How to rotate keys\n\n" + "Rotate each key on both sides at once. " * 3}
    )
    assert [change.unit.id for change in bring_in(tmp_path / "elsewhere", brain, home).changes] == [
        "pattern/how-to-rotate-keys"
    ]


@pytest.mark.proves("IMPORT-NEAR", "IMPORT-UNTOUCHED")
def test_what_is_near_to_the_brain_is_flagged_and_edits_nothing(brain: Path, home: Path, tmp_path: Path) -> None:
    path = "domains/coding/concepts/idempotency-keys.md"
    known = knowledge.parse((brain / path).read_text(), path=path).unit
    assert known is not None
    copied = known.body
    more = (
        copied + "\n\nStripe keeps a key for a day; afterwards the same key starts a new payment, which nobody expects."
    )
    folder = write(tmp_path / "notes", {"same.md": copied})
    said = bring_in(folder, brain, home, similar=lambda unit: [(known, 0.99)])
    assert said.changes == () and "concept/idempotency-keys says it already" in said.dropped[0]
    write(folder, {"more.md": more})
    (change,) = bring_in(folder, brain, home, similar=lambda unit: [(known, 0.93)]).changes
    assert (
        change.is_new and change.path != path and change.note == "much like concept/idempotency-keys (similarity 0.93)"
    )
    assert "much like concept/idempotency" in review.show(brain).body


@pytest.mark.proves("IMPORT-REDACTED")
def test_no_secret_and_no_excluded_file_gets_in(brain: Path, home: Path, tmp_path: Path) -> None:
    text = f"# Deploy\n\nThe token {TOKEN} opens the registry for every deployment.\n<private>my wage</private>\n"
    folder = write(tmp_path / "notes", {"deploy.md": text, "hr/pay.md": "# Pay\n\n" + "Ann earns 90000 a year. " * 5})
    settings = Settings(capture=CaptureSettings(exclude_paths=("hr/*",)))
    result = bring_in(folder, brain, home, settings=settings)
    assert result.redacted == {"github-token": 1, "private": 1}
    held = git.run(brain, "log", "-p", str(result.branch)).decode()
    assert TOKEN not in held and "wage" not in held and "90000" not in held
    assert "notes/hr/pay.md: is excluded (capture.exclude_paths)" in map(str, result.left_out)


@pytest.mark.proves("IMPORT-HOSTILE")
def test_hostile_files_are_left_out_with_a_reason_and_stop_no_other(brain: Path, home: Path, tmp_path: Path) -> None:
    good = "# Vector clocks\n\nThey say which of two events came first, where no clock can be trusted to.\n"
    folder = write(
        tmp_path / "notes", {"good.md": good, "deep.json": '"memory"' + "[" * 100_000, "package.json": '{"a": 1}'}
    )
    (folder / "binary.md").write_bytes(b"# x\n\0\1\2" * 50)
    (folder / "latin.md").write_bytes("# Café\n\nüber".encode("latin-1"))
    (folder / "huge.md").write_bytes(b"x" * 1_000_001)
    (folder / "bomb.md").write_text(
        "---\na: &a [x]\nb: &b [*a,*a]\nc: "
        + "[" * 5000
        + "\n---\n"
        + "# Bomb clocks\n\nTicking is all that they do, and nobody should open one at home.\n"
    )
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(folder)
    (folder / ".git").mkdir()
    (folder / ".git" / "notes.md").write_text(good)
    (folder / "evil.md").write_text(
        "---\ntitle: ../../../etc/passwd\ntype: ../x\ntags: ['a\\nb', '---']\n---\n---\nid: bug/x\n---\n" + "text " * 40
    )
    os.mkfifo(folder / "pipe.md")
    result = bring_in(folder, brain, home)
    said = {entry.path: entry.reason for entry in result.left_out}
    assert said == {
        "notes/binary.md": "is binary", "notes/latin.md": "is no UTF-8 text",
        "notes/link.md": "is a link, which is not followed",
        "notes/huge.md": "is larger than 1,000,000 bytes", "notes/deep.json": "is no JSON that can be read",
        "notes/pipe.md": "is no ordinary file",
    }  # fmt: skip
    (alone,) = bring_in(folder / "package.json", brain, home).left_out
    assert alone.reason == "is no export that is known (mem0, claude-mem)"
    ids = {change.unit.id for change in result.changes}
    assert {"concept/vector-clocks", "concept/bomb-clocks"} <= ids and len(ids) == 3
    for change in result.changes:
        assert change.path.startswith("domains/") and ".." not in change.path
        assert knowledge.parse(change.text, path=change.path).unit is not None


@pytest.mark.proves("IMPORT-HOSTILE")
@pytest.mark.parametrize(
    "part",
    [
        "\n",
        " \n",
        "* \n",
        "[[",
        "![[a|",
        "<!--",
        "- [decision] ",
        "@a\n",
        "**status",
        "chosen option:'",
        "> ",
        "# a\n",
        "`",
        "[a](",
        "#a ",
    ],
)
def test_no_text_takes_long_to_read(part: str) -> None:
    """Linear in the text, whatever it repeats: 30 kB within a second or two, where a square of it takes minutes."""
    title = f"# {part * (10_000 // len(part))}\n\n## Decision\n\n## Status\n\n{part * 1500}"
    began = time.process_time()
    for text in (part * (30_000 // len(part)), title):
        for path in ("v/a.md", "v/CLAUDE.md"):
            list(notes_of(page_of(text, path=path)))
    assert time.process_time() - began < 8


@pytest.mark.proves("IMPORT-FORMATS", "IMPORT-EVIDENCE")
def test_an_export_of_claude_mem_gives_what_was_learned_and_not_what_was_done(
    brain: Path, home: Path, tmp_path: Path
) -> None:
    def observation(number: int, kind: str, title: str, concepts: list[str]) -> dict[str, object]:
        return {
            "id": number, "memory_session_id": "s", "project": "shop", "text": None, "type": kind, "title": title,
            "subtitle": "A line below", "facts": json.dumps([f"{title} has a first fact.", "And a second one."]),
            "narrative": f"{title}: what was found out while the code was read, in a few words.",
            "concepts": json.dumps(concepts), "files_read": "[]", "files_modified": '["a.py"]', "prompt_number": 1,
            "created_at": "2026-01-05T10:00:00.000Z", "created_at_epoch": 1,
        }  # fmt: skip

    export = {
        "exportedAt": "2026-02-01T00:00:00Z", "query": "all", "totalObservations": 5, "sessions": [], "summaries": [],
        "prompts": [], "observations": [
            observation(1, "bugfix", "Pool exhausted by early return", ["problem-solution"]),
            observation(2, "decision", "Sessions live in Postgres", ["trade-off"]),
            observation(3, "discovery", "How the router matches", ["how-it-works"]),
            observation(4, "feature", "Added the export button", ["what-changed"]),
            observation(5, "change", "Cache keys carry the tenant", ["pattern"]),
            observation(6, "refactor", "Moved the parser", ["how-it-works", "what-changed"]),
            observation(7, "sensitive", "What Ann said about Bob", ["gotcha"]),
        ],
    }  # fmt: skip
    file = tmp_path / "memories.json"
    file.write_text(json.dumps(export, indent=2))
    result = bring_in(file, brain, home, domain="shop")
    found = {change.unit.title: change.unit for change in result.changes}
    assert {title: unit.type for title, unit in found.items()} == {
        "Pool exhausted by early return": "bug", "Sessions live in Postgres": "decision",
        "How the router matches": "concept", "Cache keys carry the tenant": "pattern",
    }  # fmt: skip
    assert [entry.reason for entry in result.left_out] == [
        "only says what was done (feature)", "only says what was done (refactor)", "is marked as sensitive",
    ]  # fmt: skip
    lines = file.read_text().split("\n")
    for title, unit in found.items():
        path, _, line = unit.evidence[0].session.rpartition(":")
        assert path == f"{tmp_path.name}/memories.json" and title in lines[int(line) - 1]
        assert "- And a second one." in unit.body and unit.domain == "shop" and unit.created == date(2026, 1, 5)


@pytest.mark.proves("IMPORT-FORMATS")
@pytest.mark.parametrize("form", ["results", "list", "lines"])
def test_memories_of_mem0_become_units_where_they_say_enough(
    brain: Path, home: Path, tmp_path: Path, form: str
) -> None:
    memories = [
        {"id": "1", "memory": "Likes tea", "user_id": "ann", "hash": "x", "metadata": None, "categories": ["food"]},
        {"id": "2", "memory": "The staging database is reset every night, so long imports fail there",
         "metadata": {"category": "gotcha"}, "categories": None, "created_at": "2025-11-02T08:00:00Z"},
        {"id": "3", "memory": "Prefers integration tests with a real database", "categories": ["preferences"]},
    ]  # fmt: skip
    file = tmp_path / ("m.jsonl" if form == "lines" else "m.json")
    texts = {"results": json.dumps({"results": memories}), "list": json.dumps(memories),
             "lines": "\n".join(map(json.dumps, memories))}  # fmt: skip
    file.write_text(texts[form])
    result = bring_in(file, brain, home)
    assert [(change.unit.type, change.unit.confidence) for change in result.changes] == [("bug", 0.4), ("belief", 0.4)]
    assert "filed under gotcha" in result.changes[0].reason
    assert [entry.reason for entry in result.left_out] == ["says too little to stand alone"]


LEARNED = {
    ("bug", "Captures were doubled by a retry without an idempotency key", "payments-api"),
    ("decision", "Keys are made of order id and attempt day", "payments-api"),
    ("concept", "Settlement runs as a nightly batch", "payments-api"),
    ("bug", "Webhook signatures are not compared in constant time", "payments-api"),
    ("concept", "Staging gateway hours", "payments-api"),
}


@pytest.mark.proves("IMPORT-REAL")
@pytest.mark.parametrize("form", ["export.json", "observations.json", "claude-mem.db", "folder"])
def test_what_claude_mem_itself_wrote_is_read_in_each_of_its_forms(
    brain: Path, home: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "home" / form
    file.parent.mkdir()
    if form in ("export.json", "observations.json"):
        file.write_bytes((EXPORTS / "claude-mem" / form).read_bytes())
    else:
        database = tmp_path / "home" / ".claude-mem" / "claude-mem.db"
        database.parent.mkdir()
        database.write_bytes(gzip.decompress((EXPORTS / "claude-mem" / "claude-mem.db.gz").read_bytes()))
        file = database.parent if form == "folder" else database
    before = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*")}
    result = bring_in(file, brain, home)
    found = {(change.unit.type, change.unit.title, change.unit.domain) for change in result.changes}
    assert found == LEARNED and result.files == 1
    assert sorted(entry.reason for entry in result.left_out) == ["is marked as sensitive",
                                                                 "only says what was done (feature)"]  # fmt: skip
    bug = next(change.unit for change in result.changes if "doubled" in change.unit.title)
    assert "- The gateway keeps keys for 24 hours" in bug.body and bug.created == date(2026, 5, 2)
    now = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*")}
    assert now == before, "not even a file of SQLite's is left"


@pytest.mark.proves("IMPORT-REAL")
@pytest.mark.parametrize(
    ("form", "beginnings"),
    [
        ("get_all.json", ["Migrations", "Team", "The"]),
        ("history.db", ["Migrations", "Team", "The"]),
        ("history.json", ["The"]),
        ("search.json", ["The"]),
    ],
)
def test_what_mem0_itself_wrote_is_read_in_each_of_its_forms(
    brain: Path, home: Path, form: str, beginnings: list[str]
) -> None:
    result = bring_in(EXPORTS / "mem0" / form, brain, home)
    said = sorted(change.unit.body.removeprefix("#").strip() for change in result.changes)
    assert [text.split()[0] for text in said] == beginnings
    assert "at most five times" in said[-1] and "at most three" not in "".join(said), "what an update replaced is gone"
    assert {entry.reason for entry in result.left_out} <= {"says too little to stand alone"}


@pytest.mark.proves("IMPORT-REAL")
def test_what_basic_memory_itself_wrote_is_read_with_its_types_and_relations(brain: Path, home: Path) -> None:
    result = bring_in(EXPORTS / "basic-memory", brain, home)
    found = {change.unit.title: change.unit for change in result.changes}
    assert {title: (unit.type, unit.domain) for title, unit in found.items()} == {
        "Webhook signatures": ("bug", "general"), "Settlement": ("concept", "general"),
        "Payment retries": ("decision", "payments"),
    }  # fmt: skip
    assert "- implements Payment API" in found["Payment retries"].body
    assert found["Webhook signatures"].tags == ("webhooks", "security")
    assert [entry.path for entry in result.left_out] == ["basic-memory/journal/Morning notes.md"]


@pytest.mark.proves("IMPORT-HOSTILE")
def test_a_database_that_is_no_memory_or_is_damaged_is_one_sentence(brain: Path, home: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "history.db")) as other:
        other.execute("CREATE TABLE history (url TEXT)")
    (tmp_path / "claude-mem.db").write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    (tmp_path / "text.db").write_text("no database")
    for name, reason in (("history.db", "is no database that is known"), ("claude-mem.db", "cannot be read"),
                         ("text.db", "is no JSON")):  # fmt: skip
        (left,) = bring_in(tmp_path / name, brain, home).left_out
        assert reason in left.reason


@pytest.mark.proves("IMPORT-IGNORED")
def test_what_ignore_files_leave_out_is_not_imported_and_said(brain: Path, home: Path, tmp_path: Path) -> None:
    words = "The {} is what this page is about, at some length and breadth.\n"
    pages = ("walnut", "drafts/a", "private/b", "sub/c", "sub/harbour", "log", "node_modules/x/README")
    folder = write(tmp_path / "repo" / "notes", {f"{page}.md": words.format(page) * 2 for page in pages})
    write(tmp_path / "repo", {".gitignore": "log.md\n", "notes/.nuggetignore": "drafts/\n/private\n",
                              "notes/sub/.ignore": "*.md\n!harbour.md\n"})  # fmt: skip
    git.run(tmp_path / "repo", "init", "-q")
    result = bring_in(folder, brain, home)
    places = sorted(change.unit.evidence[0].session for change in result.changes)
    assert places == ["notes/sub/harbour.md:1", "notes/walnut.md:1"]
    assert [str(left) for left in result.left_out] == [
        "notes: 4 files and folders left out by .gitignore, .ignore, .nuggetignore"
    ]
    named = bring_in(folder / "log.md", brain, home)
    assert [change.unit.title for change in named.changes] == ["log"], "a file that is named is meant"


@pytest.mark.proves("IMPORT-PYTHON")
def test_python_imports_as_the_command_does(
    brain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "todo.md": "- [ ] a\n"})
    assert run(["import", str(folder), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    with nugget.open() as opened:
        tried = opened.import_notes(folder, dry_run=True)
        assert [(change.unit.id, change.path) for change in tried.changes] == [
            (unit["id"], unit["path"]) for unit in told["units"]
        ]
        assert tried.branch is None and [left.path for left in tried.left_out] == [
            left["path"] for left in told["left_out"]
        ]
        made = opened.import_notes(str(folder), domain="shop/web", limit=2)
        assert made.branch == git.branches(brain, "nugget/")[0].name and made.waiting == 1
        assert {change.unit.domain for change in made.changes} == {"shop/web"} and made.published.local
        with pytest.raises(UsageError):
            opened.import_notes(folder, domain="../x")
        with pytest.raises(UsageError):
            opened.import_notes(folder, limit=0)


def test_a_limit_leaves_the_rest_for_the_next_import(brain: Path, home: Path, tmp_path: Path) -> None:
    topics = ["walnut", "granite", "harbour", "lantern", "meadow"]
    files = {
        f"{name}.md": f"# All about {name}\n\n" + f"The {name} is what this page is about. " * 3 for name in topics
    }
    folder = write(tmp_path / "notes", files)
    first = bring_in(folder, brain, home, limit=3)
    assert len(first.changes) == 3 and first.waiting == 2
    second = bring_in(folder, brain, home, limit=3)
    assert len(second.changes) == 2 and second.known == 3 and second.branch == f"{first.branch}-2"


def test_what_cannot_be_imported_is_one_sentence(brain: Path, home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        bring_in(tmp_path / "nowhere", brain, home)
    with pytest.raises(UsageError, match="is a brain already"):
        bring_in(brain / "domains", brain, home)
    with pytest.raises(BrainError, match="no git repository"):
        bring_in(tmp_path, tmp_path / "none", home)
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(UsageError, match="is no file or folder"):
        bring_in(tmp_path / "circle", brain, home)


@pytest.mark.proves("IMPORT-ONCE")
def test_a_brain_among_the_notes_is_not_imported(brain: Path, home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "work", {"walnut.md": "# Walnuts\n\n" + "The walnut is what this page is about. " * 3})
    shutil.copytree(brain, folder / "brain")
    result = bring_in(folder, brain, home)
    assert [change.unit.title for change in result.changes] == ["Walnuts"]
    assert [(one.path, one.reason) for one in result.left_out] == [("work/brain", "is a brain already")]


@pytest.mark.proves("IMPORT-REVIEW")
def test_the_command_shows_writes_nothing_when_asked_and_answers_in_json(
    brain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    folder = write(tmp_path / "shop", {"doc/adr/0002-x.md": NYGARD, "CLAUDE.md": RULES, "todo.md": "- [ ] a\n"})
    assert run(["import", str(folder), "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert (
        "3 units of 3 files would be proposed" in shown.out and "shop/CLAUDE.md:5: a section of the rules" in shown.out
    )
    assert "left out: shop/todo.md" in shown.err and git.branches(brain, "nugget/") == []
    assert run(["import", str(folder), "--json", "--domain", "shop/web"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert len(value["units"]) == 3 and {unit["domain"] for unit in value["units"]} == {"shop/web"}
    assert (
        value["branch"] == git.branches(brain, "nugget/")[0].name and value["left_out"][0]["path"] == "shop/CLAUDE.md"
    )
    assert run(["import", str(folder)]) == 0
    assert "Nothing new to propose" in capsys.readouterr().out
    assert run(["import", str(folder), "--domain", "../x"]) == 2
