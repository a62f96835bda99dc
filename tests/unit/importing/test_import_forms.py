"""The forms of notes that people have: records of decisions, rules, vaults; what each becomes."""

from __future__ import annotations

from datetime import date

import pytest
from import_stage import NYGARD, RULES, VAULT

from nugget.extraction.proposals import Proposal
from nugget.importing.notes import LeftOut, notes_of_page

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


def notes(text: str, path: str = "notes/page.md") -> list[Proposal]:
    return [found for found in notes_of_page(text, path=path) if isinstance(found, Proposal)]


def line_of(note: Proposal) -> int:
    return int(note.unit.evidence[0].session.rpartition(":")[2])


def reasons(text: str, path: str = "notes/page.md") -> list[str]:
    return [found.reason for found in notes_of_page(text, path=path) if isinstance(found, LeftOut)]


@pytest.mark.proves("IMPORT-FORMATS", "IMPORT-ONE-IDEA")
def test_a_record_by_nygard_is_one_decision() -> None:
    (note,) = notes(NYGARD, "shop/doc/adr/0002-implement-as-shell-scripts.md")
    assert (note.unit.type, note.unit.title, line_of(note)) == ("decision", "Implement as shell scripts", 1)
    assert note.unit.body.startswith("# Implement as shell scripts\n") and "won't support Windows" in note.unit.body
    assert note.unit.evidence[0].quote == "The tool is implemented as shell scripts that use standard Unix tools."
    assert note.reason == "an architecture decision record (Nygard)" and note.unit.confidence == 0.8
    assert note.unit.created == date(2016, 2, 12) and note.note is None


@pytest.mark.proves("IMPORT-FORMATS")
def test_a_record_by_madr_keeps_its_alternatives_and_its_status() -> None:
    (note,) = notes(MADR, "shop/docs/decisions/0005-use-dashes.md")
    assert (note.unit.type, note.unit.title) == ("decision", "Use dashes in filenames")
    assert note.unit.alternatives == ("YYYY-MM-DD Title",)
    assert note.reason == "an architecture decision record (MADR), superseded"
    assert note.unit.confidence == 0.3 and "superseded" in note.unit.tags and "worth keeping" in str(note.note)
    assert note.unit.created == date(2024, 5, 1) and line_of(note) == 6


@pytest.mark.proves("IMPORT-FORMATS", "IMPORT-ONE-IDEA")
def test_rules_become_units_by_their_sections() -> None:
    found = notes(RULES, "shop/CLAUDE.md")
    assert [(note.unit.title, line_of(note)) for note in found] == [
        ("Rules of shop: Testing", 5),
        ("Rules of shop: Database", 9),
    ]
    assert "### Migrations" in found[1].unit.body and "@docs" not in found[1].unit.body
    assert {note.unit.type for note in found} == {"pattern"}
    assert reasons(RULES, "shop/CLAUDE.md") == ["only says what the file is for"]


@pytest.mark.proves("IMPORT-FORMATS")
def test_cursor_rules_are_read_although_their_frontmatter_is_no_yaml() -> None:
    (note,) = notes(CURSOR, "shop/.cursor/rules/fastapi.mdc")
    assert note.unit.title == "FastAPI Best Practices: Models" and line_of(note) == 9
    assert note.unit.body.endswith("Applies to files that match `**/*.py, app/**/*.py`.")
    assert reasons(CURSOR, "shop/.cursor/rules/fastapi.mdc") == ["says too little to stand alone"]


@pytest.mark.proves("IMPORT-FORMATS")
def test_a_note_of_obsidian_keeps_tags_and_words_and_loses_dead_links() -> None:
    (note,) = notes(VAULT, "vault/Coding/Go/Context leaks.md")
    assert (note.unit.type, note.unit.title, note.reason) == ("bug", "Context leaks", "a note: tagged #bug")
    assert note.unit.tags == ("go", "bug", "concurrency") and note.unit.created == date(2025, 4, 3)
    assert (
        "looking at the context never" in note.unit.body
        and "[[" not in note.unit.body
        and "(diagram.png)" in note.unit.body
    )


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
        ("v/new.md", "# {short title of the problem}\n\n## Decision\n\nx\n\n## Status\n\ny", "template"),
    ],
)
def test_what_is_no_knowledge_by_its_form_is_left_out(path: str, text: str, reason: str) -> None:
    assert notes(text, path) == []
    (said,) = reasons(text, path)
    assert reason in said


@pytest.mark.proves("IMPORT-ONE-IDEA")
def test_a_long_note_is_cut_at_its_sections_with_the_right_lines() -> None:
    part = "A sentence that fills the page with words. " * 60
    text = f"# Databases\n\n{part}\n\n## 1. Indexes\n\n{part}\n\n```\n# no heading\n```\n\n## Locks\n\n{part}\n"
    found = notes(text)
    lines = text.split("\n")
    assert [note.unit.title for note in found] == ["Databases", "Databases: Indexes", "Databases: Locks"]
    assert [lines[line_of(note) - 1] for note in found] == ["# Databases", "## 1. Indexes", "## Locks"]
    assert "# no heading" in found[1].unit.body
